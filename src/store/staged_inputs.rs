//! Files that rows name as inputs, until they are in the object store: `inputs/<sha256>`, copied when a manifest is handed
//! in, so that what becomes of the originals changes nothing. Of a file that was uploaded a mark stays
//! (`inputs/<sha256>.uploaded`): it is not handed over again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::domain::hex::hex;
use crate::domain::input_file::is_sha256;
use crate::domain::time::Timestamp;
use crate::store::{StoreError, write_atomic};

/// How files are called that are being copied.
const PART: &str = ".input-";

/// See the module's documentation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StagedInputs {
    dir: PathBuf,
}

/// A content that the state knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedMark {
    /// Its SHA-256 in lowercase hex.
    pub sha256: String,
    /// The object that it is; nothing for one that was not uploaded.
    pub object: Option<String>,
}

/// A file was not copied.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// It does not hold what was said of it.
    #[error("the content has the SHA-256 {found}, not {expected}: it changed since it was read")]
    Changed { expected: String, found: String },
    /// The disk refuses, or it cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl StagedInputs {
    /// Those of the state in this folder.
    pub fn of(state: &Path) -> StagedInputs {
        StagedInputs { dir: state.join("inputs") }
    }

    fn content_path(&self, sha256: &str) -> PathBuf {
        self.dir.join(sha256)
    }

    fn mark_path(&self, sha256: &str) -> PathBuf {
        self.dir.join(format!("{sha256}.uploaded"))
    }

    /// Whether a content was handed over, or uploaded.
    pub fn has(&self, sha256: &str) -> bool {
        is_sha256(sha256) && (self.content_path(sha256).is_file() || self.mark_path(sha256).is_file())
    }

    /// Whether a content was uploaded.
    pub fn is_uploaded(&self, sha256: &str) -> bool {
        is_sha256(sha256) && self.mark_path(sha256).is_file()
    }

    /// The object that a content was uploaded as, where that alone is known of it.
    pub fn object_of(&self, sha256: &str) -> Option<String> {
        let is_mark_alone = is_sha256(sha256) && !self.content_path(sha256).is_file();
        fs::read_to_string(self.mark_path(sha256)).ok().filter(|object| is_mark_alone && !object.is_empty())
    }

    /// Whether a content was handed over, or uploaded. A manifest is about to name it, so it counts as used now.
    pub fn has_for_manifest(&self, sha256: &str) -> bool {
        let is_there = self.has(sha256);
        if is_there {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let times = Timestamps { last_access: now, last_modification: now };
            for path in [self.content_path(sha256), self.mark_path(sha256)] {
                // One of them is not there; where the time cannot be set the file may be removed, and is handed over again.
                let _ = rustix::fs::utimensat(CWD, path, &times, AtFlags::empty());
            }
        }
        is_there
    }

    /// Whether a content was handed over, uploaded or last sent before this time.
    pub fn is_older(&self, sha256: &str, time: Timestamp) -> bool {
        let modified = |path: PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let newest =
            [self.content_path(sha256), self.mark_path(sha256)].into_iter().filter_map(modified).max();
        newest.is_none_or(|newest| is_before(newest, time))
    }

    /// Where a content lies; nothing where it does not.
    pub fn content(&self, sha256: &str) -> Option<PathBuf> {
        Some(self.content_path(sha256)).filter(|path| is_sha256(sha256) && path.is_file())
    }

    /// Begins a copy.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn begin(&self) -> io::Result<StagedCopy> {
        fs::create_dir_all(&self.dir)?;
        let file = write_atomic::begin(&self.dir, PART)?;
        Ok(StagedCopy { inputs: self.clone(), file, hash: Sha256::new() })
    }

    /// Copies a file that was read before and had this content then. Nothing is done for one that is there.
    ///
    /// # Errors
    /// [`StageError`].
    pub fn copy(&self, file: &mut impl io::Read, sha256: &str) -> Result<(), StageError> {
        if self.has(sha256) {
            return Ok(());
        }
        let mut copy = self.begin()?;
        let mut buffer = vec![0; 256 * 1024];
        loop {
            match file.read(&mut buffer)? {
                0 => return copy.finish(sha256),
                read => copy.write(buffer.get(..read).unwrap_or_default())?,
            }
        }
    }

    /// A content is in the object store, as `object`: its copy is not needed any more.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn uploaded(&self, sha256: &str, object: &str) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let mut mark = write_atomic::begin(&self.dir, PART)?;
        mark.write_all(object.as_bytes())?;
        mark.as_file().sync_all()?;
        mark.persist(self.mark_path(sha256)).map_err(|error| error.error)?;
        File::open(&self.dir)?.sync_all()?;
        remove(&self.content_path(sha256))
    }

    /// What was handed over, uploaded or last sent before this time.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn used_before(&self, time: Timestamp) -> Result<Vec<StagedMark>, StoreError> {
        let io = |error| StoreError::io(&self.dir)(error);
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io)?,
        };
        let mut old = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let (sha256, is_mark) = match name.strip_suffix(".uploaded") {
                Some(sha256) => (sha256, true),
                None => (name.as_str(), false),
            };
            let modified = entry.metadata().and_then(|meta| meta.modified()).map_err(io)?;
            if is_sha256(sha256) && is_before(modified, time) {
                let object = if is_mark { Some(fs::read_to_string(entry.path()).map_err(io)?) } else { None };
                old.push(StagedMark { sha256: sha256.to_owned(), object });
            }
        }
        Ok(old)
    }

    /// A content is not needed any more.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self, sha256: &str) -> io::Result<()> {
        remove(&self.content_path(sha256))?;
        remove(&self.mark_path(sha256))
    }

    /// A content is not in the object store any more: it has to be handed over again.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn is_gone(&self, sha256: &str) -> io::Result<()> {
        remove(&self.mark_path(sha256))
    }

    /// Removes what killed processes left of copies.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn sweep(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PART) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn is_before(modified: SystemTime, time: Timestamp) -> bool {
    let since_1970 = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).is_ok_and(|at| Timestamp(at) < time)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A copy that is being written; it goes where it is dropped before its end.
#[derive(Debug)]
pub struct StagedCopy {
    inputs: StagedInputs,
    file: NamedTempFile,
    hash: Sha256,
}

impl StagedCopy {
    /// Writes on.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.file.write_all(bytes)
    }

    /// Ends it; it is on the device on return.
    ///
    /// # Errors
    /// [`StageError`].
    pub fn finish(self, sha256: &str) -> Result<(), StageError> {
        let StagedCopy { inputs, file, hash } = self;
        let found = hex(&hash.finalize());
        if found != sha256 {
            return Err(StageError::Changed { expected: sha256.to_owned(), found });
        }
        file.as_file().sync_all()?;
        file.persist(inputs.content_path(sha256)).map_err(|error| error.error)?;
        File::open(&inputs.dir)?.sync_all()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_content_is_kept_until_it_is_uploaded() {
        let dir = tempfile::tempdir().unwrap();
        let inputs = StagedInputs::of(dir.path());
        inputs.sweep().unwrap();
        assert!(!inputs.has(ABC));
        inputs.copy(&mut &b"abc"[..], ABC).unwrap();
        assert_eq!(fs::read(inputs.content(ABC).unwrap()).unwrap(), b"abc");
        assert_eq!((inputs.used_before(Timestamp(0)).unwrap(), inputs.object_of(ABC)), (vec![], None));
        inputs.uploaded(ABC, "inputs/abc.png").unwrap();
        assert!(inputs.has(ABC) && inputs.content(ABC).is_none());
        assert_eq!(inputs.object_of(ABC).as_deref(), Some("inputs/abc.png"));
        let mark = StagedMark { sha256: ABC.to_owned(), object: Some("inputs/abc.png".to_owned()) };
        assert_eq!(inputs.used_before(Timestamp(i64::MAX)).unwrap(), [mark]);
        let long_ago = UNIX_EPOCH + std::time::Duration::from_secs(1_000);
        File::open(inputs.mark_path(ABC)).unwrap().set_modified(long_ago).unwrap();
        assert!(inputs.is_older(ABC, Timestamp(2_000_000)));
        assert!(
            inputs.has_for_manifest(ABC) && !inputs.is_older(ABC, Timestamp(2_000_000)),
            "it is used now"
        );
        inputs.is_gone(ABC).unwrap();
        assert!(!inputs.has(ABC) && !inputs.has_for_manifest(ABC) && inputs.is_older(ABC, Timestamp(0)));
    }

    #[test]
    fn what_is_not_what_was_said_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let inputs = StagedInputs::of(dir.path());
        assert!(matches!(inputs.copy(&mut &b"abd"[..], ABC), Err(StageError::Changed { .. })));
        let mut left = inputs.begin().unwrap();
        left.write(b"ab").unwrap();
        std::mem::forget(left);
        inputs.sweep().unwrap();
        assert_eq!(fs::read_dir(dir.path().join("inputs")).unwrap().count(), 0);
        assert!(!inputs.has("../state") && inputs.content("..").is_none());
    }
}
