//! Whose the files of a state are: those of the folder's owner, also where root looked at the state.
//!
//! A command that root gives may have to recover a state, which makes files. If these stayed root's, the service, which runs as
//! another user, could not begin again. Nothing is followed on the way to a file, and of what has several names nothing is
//! given away: the folder's owner may have put links there.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::{Errno, Result};

/// How anything is opened here.
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Files and folders in a state that belong to somebody else than its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strangers {
    /// How many there are.
    pub count: usize,
    /// The first that was found.
    pub first: PathBuf,
    /// Number of the user that the folder belongs to.
    pub owner: u32,
}

/// Looks for what does not belong to the owner of the state `dir`; nothing where all does, or where it cannot be looked at.
pub fn strangers(dir: &Path) -> Option<Strangers> {
    let folder = open_state(dir).ok()?;
    let owner = rustix::fs::fstat(&folder).ok()?.st_uid;
    let (mut count, mut first) = (0, None);
    let mut note = |_: &OwnedFd, _: &CStr, stat: &Stat, path: &Path| {
        if stat.st_uid != owner {
            count += 1;
            first.get_or_insert_with(|| path.to_owned());
        }
        Ok(())
    };
    walk(&folder, dir, &mut note).ok()?;
    first.map(|first| Strangers { count, first, owner })
}

/// Gives what root made in the state `dir` to the owner and the group of the folder. Does nothing for other users, who
/// could not.
pub(super) fn hand_over(dir: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    if let Err(error) = try_hand_over(dir) {
        tracing::warn!(
            "files that root made in {} may still be root's: {error}; give them to its owner: chown -R",
            dir.display()
        );
    }
}

fn try_hand_over(dir: &Path) -> Result<()> {
    let folder = open_state(dir)?;
    let owner = rustix::fs::fstat(&folder)?;
    if owner.st_uid == Uid::ROOT.as_raw() {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    walk(&folder, dir, &mut |folder, name, stat, _| {
        if !may_be_given(stat) {
            return Ok(());
        }
        let file = rustix::fs::openat(folder, name, OPEN, Mode::empty())?;
        let opened = rustix::fs::fstat(&file)?;
        // Another file may have its name by now.
        if may_be_given(&opened) && (opened.st_dev, opened.st_ino) == (stat.st_dev, stat.st_ino) {
            rustix::fs::fchown(&file, Some(user), Some(group))?;
        }
        Ok(())
    })
}

/// Whether it is root's, and reached by this name only.
fn may_be_given(stat: &Stat) -> bool {
    let is_alone = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => stat.st_nlink == 1,
        FileType::Directory => true,
        _ => false,
    };
    is_alone && stat.st_uid == Uid::ROOT.as_raw()
}

/// Opens the folder of a state. Its own path may be one of links: it is what was opened as the state.
fn open_state(dir: &Path) -> Result<OwnedFd> {
    let dir = dir.canonicalize().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    open_folder(CWD, dir.as_os_str())
}

fn open_folder(above: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd> {
    rustix::fs::openat(above, name, OPEN | OFlags::DIRECTORY, Mode::empty())
}

/// What is done with each file and folder: the folder it is in, its name, what it is, and its path for messages.
type Visit<'a> = dyn FnMut(&OwnedFd, &CStr, &Stat, &Path) -> Result<()> + 'a;

/// Visits all that is in a folder, and in the folders in it.
fn walk(folder: &OwnedFd, at: &Path, visit: &mut Visit<'_>) -> Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let path = at.join(OsStr::from_bytes(name.to_bytes()));
        match visit_one(folder, name, &path, visit) {
            // Removed or replaced meanwhile.
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
            other => other?,
        }
    }
    Ok(())
}

fn visit_one(folder: &OwnedFd, name: &CStr, path: &Path, visit: &mut Visit<'_>) -> Result<()> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    visit(folder, name, &stat, path)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        walk(&open_folder(folder, name)?, path, visit)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, chown, symlink};

    use super::*;

    #[test]
    fn a_state_that_is_reached_by_a_link_is_given_to_its_owner() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (state, link) = (dir.path().join("disk"), dir.path().join("state"));
        fs::create_dir(&state).unwrap();
        fs::write(state.join("log"), "").unwrap();
        fs::write(dir.path().join("outside"), "").unwrap();
        symlink("../outside", state.join("link")).unwrap();
        symlink("disk", &link).unwrap();
        chown(&state, Some(12_345), Some(12_345)).unwrap();
        assert_eq!(strangers(&link).map(|found| found.owner), Some(12_345));
        hand_over(&link);
        let owner = |path: &str| dir.path().join(path).metadata().unwrap().uid();
        assert_eq!((owner("disk/log"), owner("outside")), (12_345, 0));
    }
}
