//! Why a state cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// The state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it.
    #[error("{} is in use by process {pid}", .dir.display())]
    InUse {
        /// The state directory.
        dir: PathBuf,
        /// Who holds it, as the lock file says; `unknown` when it does not.
        pid: String,
    },
    /// The folder holds something else.
    #[error("{} is not a state of callsheet: it holds {found}", .dir.display())]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// What lies in it.
        found: String,
    },
    /// There is none.
    #[error("there is no state in {}", .dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// The file that says whose state it is cannot be read.
    #[error("{} is damaged: {detail}", .path.display())]
    MarkerDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Another version wrote it.
    #[error("{} has state format {found}; this version reads formats up to {expected}", .dir.display())]
    OtherVersion {
        /// The state directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// It was begun with another service.
    #[error("{} belongs to {found}, not to {wanted}", .dir.display())]
    OtherService {
        /// The state directory.
        dir: PathBuf,
        /// The service it was begun with.
        found: String,
        /// The service of this run.
        wanted: String,
    },
    /// A record or file in it is not what was written.
    #[error("{what} in {} is damaged: {detail}", .dir.display())]
    Damaged {
        /// The state directory.
        dir: PathBuf,
        /// Which part.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The disk is too full to open the database safely.
    #[error(
        "the disk of {} is full: {} KiB are free, and opening the state safely takes {} KiB",
        .dir.display(), .free_bytes / 1024, .wanted_bytes.div_ceil(1024)
    )]
    NoRoom {
        /// The state directory.
        dir: PathBuf,
        /// What is free, in bytes.
        free_bytes: u64,
        /// What must be, in bytes.
        wanted_bytes: u64,
    },
    /// A finished batch is named, and its folder was moved away.
    #[error(
        "batch {name} is finished, and its files are no longer in {}; put them back (another batch name buys its rows anew)",
        .folder.display()
    )]
    BatchMoved {
        /// The batch.
        name: String,
        /// Where its folder belongs.
        folder: PathBuf,
    },
    /// The file system refused.
    #[error("failed to use {}: {source}", .path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database refused.
    #[error("the database in {} failed: {source}", .dir.display())]
    Database {
        /// The state directory.
        dir: PathBuf,
        /// Why.
        source: sled::Error,
    },
}

impl StoreError {
    /// Names the file that an I/O error is about.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
        move |source| StoreError::Io { path: path.to_owned(), source }
    }

    fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            StoreError::Io { source, .. } => Some(source.kind()),
            StoreError::Database { source: sled::Error::Io(source), .. } => Some(source.kind()),
            StoreError::NoRoom { .. } => Some(io::ErrorKind::StorageFull),
            _ => None,
        }
    }

    /// Whether the cause is a disk without room.
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// Whether accepted rows are damaged, which are in an export and nowhere else.
    pub fn is_of_rows(&self) -> bool {
        let StoreError::Damaged { what, detail, .. } = self else { return false };
        [what, detail].into_iter().any(|text| text.split_whitespace().any(|word| word.ends_with("/rows")))
    }

    /// Whether the cause is a full or read-only disk.
    pub fn is_disk(&self) -> bool {
        let Some(kind) = self.kind() else { return false };
        matches!(
            kind,
            io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::AlreadyExists
        )
    }
}

/// What the database's refusal means.
pub(super) fn database(dir: &Path, source: sled::Error) -> StoreError {
    let dir = dir.to_owned();
    if is_damage(&source) {
        return StoreError::Damaged { dir, what: "the database".to_owned(), detail: in_words(&source) };
    }
    StoreError::Database { dir, source }
}

/// Whether the database itself is at fault.
fn is_damage(error: &sled::Error) -> bool {
    !matches!(error, sled::Error::Io(_))
}

/// Damage in words: sled's own speak of its insides.
fn in_words(error: &sled::Error) -> String {
    match error {
        sled::Error::Corruption { .. } => "its checksums are wrong".to_owned(),
        other => other.to_string(),
    }
}
