//! What outputs on disk and a folder as a store both need of file systems: a name that replaces nothing.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

/// Renames a file. With [`RenameFlags::NOREPLACE`] a name that is taken is an error, also on file systems that do not know the
/// flag: there the name is looked up right before.
///
/// # Errors
/// What the disk refuses.
pub fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, flags) {
        Err(Errno::INVAL | Errno::NOSYS) if flags.contains(RenameFlags::NOREPLACE) => {
            match to.symlink_metadata() {
                Ok(_) => Err(Errno::EXIST.into()),
                Err(_) => fs::rename(from, to),
            }
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        let taken = rename(&from, &to, RenameFlags::NOREPLACE).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&to).unwrap(), "old");
    }
}
