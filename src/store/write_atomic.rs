//! Files that are to take another's place: written under a name of their own, then renamed.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::store::StoreError;

/// How the successors of the files of a state are called, until they have their names.
pub(super) const CATALOGS: &str = ".catalogs-";
pub(super) const MARKER: &str = ".state-";
pub(super) const SCHEDULES: &str = ".schedules-";
pub(super) const SURCHARGES: &str = ".surcharges-";
/// The same in a batch's folder.
pub(super) const CARD: &str = ".batch-";

/// A file that is to take another's place, with the rights that new files have here: members of a service's
/// group read what it keeps.
pub(super) fn begin(dir: &Path, prefix: &str) -> io::Result<NamedTempFile> {
    let as_the_umask_says = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(prefix).permissions(as_the_umask_says).tempfile_in(dir)
}

/// Puts a value in the place of `path`, whole and for people to read; its content and its name are on the device on
/// return.
pub(super) fn put<T: Serialize>(path: &Path, prefix: &str, value: &T) -> Result<(), StoreError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let save = || -> io::Result<()> {
        // In one piece: printed to a file it would take a call for each word.
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        let mut file = begin(dir, prefix)?;
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(dir)?.sync_all()
    };
    save().map_err(StoreError::io(path))
}

/// Removes the successors that killed processes left. A plan that keeps its catalogs at this moment may lose
/// its copy; the next one asks again.
pub(super) fn sweep(dir: &Path) -> Result<(), StoreError> {
    sweep_called(dir, &[CATALOGS, MARKER, SCHEDULES, SURCHARGES])
}

/// The same in a batch's folder.
pub(super) fn sweep_batch(dir: &Path) -> Result<(), StoreError> {
    sweep_called(dir, &[CARD])
}

fn sweep_called(dir: &Path, prefixes: &[&str]) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(StoreError::io(dir))? {
        let entry = entry.map_err(StoreError::io(dir))?;
        let name = entry.file_name();
        if !prefixes.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io(&entry.path())(error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_processes_left_is_swept_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let batch = dir.path().join("spool/000001");
        fs::create_dir_all(&batch).unwrap();
        for name in [".state-a1", ".catalogs-b2", ".schedules-c3", ".mine", "catalogs.json"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        for name in [".batch-d4", "batch.json", ".state-of-mine"] {
            fs::write(batch.join(name), "").unwrap();
        }
        sweep(dir.path()).unwrap();
        sweep_batch(&batch).unwrap();
        let names = |dir: &Path| {
            let mut names: Vec<_> =
                fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(dir.path()), [".mine", "catalogs.json", "spool"]);
        assert_eq!(names(&batch), [".state-of-mine", "batch.json"]);
    }
}
