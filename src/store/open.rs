//! Opening the database so that damage in it is a message and not the end of the process.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::thread::park_timeout;
use std::time::Duration;

use crate::store::open_check::{self, CheckResult};
use crate::store::{
    CACHE_BYTES, JobRecord, StoreError, batch_backup, clean_shutdown, commits_beside, database,
    must_be_latest, quarantine, verify,
};

/// Opens the database of the state in `dir`, which this process has locked.
///
/// One that is not byte for byte as it was left is tried out first, and what it holds is checked, both on
/// a copy: opening writes to it, and what is refused should be left as it was found. A snapshot that is
/// torn is set aside: the database is then recovered from its whole log, and nothing is lost.
///
/// # Errors
/// [`StoreError::Damaged`], or what the file system said.
pub(super) fn open(dir: &Path) -> Result<sled::Db, StoreError> {
    sweep_copies(dir)?;
    if !dir.join("db").join("db").exists() {
        // A backup is written when there is a database already.
        return match batch_backup::all(dir).first() {
            Some(_) => Err(damaged(dir, "it is missing, but there are batches".to_owned())),
            None => open_here(dir),
        };
    }
    for moved in quarantine::set_torn(dir)? {
        tracing::warn!(to = %moved.to().display(), "set a torn snapshot of the database aside");
    }
    if clean_shutdown::take_mark(dir) {
        return open_here(dir);
    }
    let first = match check(dir, dir, true) {
        Ok(()) => match open_here(dir) {
            Err(error @ StoreError::Damaged { .. }) => error,
            other => return other,
        },
        Err(error @ StoreError::Damaged { .. }) => error,
        Err(error) => return Err(error),
    };
    if matches!(check(dir, dir, false), Err(StoreError::Damaged { .. })) {
        return Err(first);
    }
    let moved = quarantine::set_dispensable(dir)?;
    if moved.is_empty() {
        return Err(first);
    }
    tracing::warn!(%first, "the database is recovered from its whole log");
    open_here(dir)
}

/// Whether [`open`] would open the database of the state in `dir`. Nothing of the state is locked or changed, so
/// nothing is certain while another process has it open.
pub(super) fn foresee(dir: &Path) -> Result<(), StoreError> {
    if !dir.join("db").join("db").exists() {
        return match batch_backup::all(dir).first() {
            Some(_) => Err(damaged(dir, "it is missing, but there are batches".to_owned())),
            None => Ok(()),
        };
    }
    let elsewhere = std::env::temp_dir();
    match check(dir, &elsewhere, true) {
        // What the log alone tells is enough.
        Err(first @ StoreError::Damaged { .. }) => check(dir, &elsewhere, false).map_err(|_| first),
        other => other,
    }
}

/// Tries a copy of the database out and checks what it holds, with its snapshots and settings or without. The copy is
/// made in `work` and gone on return.
fn check(dir: &Path, work: &Path, with_snapshots: bool) -> Result<(), StoreError> {
    if !open_check::is_possible() {
        return Ok(());
    }
    let copy = tempfile::Builder::new().prefix(COPY).tempdir_in(work).map_err(StoreError::io(work))?;
    copy_database(&dir.join("db"), copy.path(), with_snapshots)?;
    let salvage = match open_check::check_in_child(copy.path()) {
        CheckResult::Opens(salvage) => salvage,
        CheckResult::No => return Ok(()),
        CheckResult::Damaged(detail) => return Err(damaged(dir, detail)),
    };
    if let Some(first) = salvage.unreadable.into_iter().next() {
        return Err(damaged(dir, first));
    }
    must_be_latest(dir, salvage.records.commits, commits_beside(dir)?)?;
    verify::quick(dir, &salvage.records)
}

/// The open jobs of the state in `dir`, which no process has open, from a copy of its database. Nothing where they cannot
/// be told.
pub(super) fn open_jobs_beside(dir: &Path) -> Option<Vec<JobRecord>> {
    if !dir.join("db").join("db").exists() {
        return Some(Vec::new());
    }
    let copy = tempfile::Builder::new().prefix(COPY).tempdir().ok()?;
    copy_database(&dir.join("db"), copy.path(), true).ok()?;
    match open_check::check_in_child(copy.path()) {
        CheckResult::Opens(salvage) if salvage.unreadable.is_empty() => Some(salvage.records.open),
        CheckResult::Opens(_) | CheckResult::No | CheckResult::Damaged(_) => None,
    }
}

fn damaged(dir: &Path, detail: String) -> StoreError {
    StoreError::Damaged { dir: dir.to_owned(), what: "the database".to_owned(), detail }
}

/// How copies are called, and the work of a rebuild; leftovers of a killed process are swept by it.
const COPY: &str = ".try-";
pub(super) const REBUILD: &str = ".rebuild-";

fn sweep_copies(dir: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(StoreError::io(dir))? {
        let entry = entry.map_err(StoreError::io(dir))?;
        let name = entry.file_name();
        if [COPY, REBUILD].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            remove_folder(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a folder that a child of a killed process may still be writing to.
fn remove_folder(path: &Path) -> Result<(), StoreError> {
    for _ in 0..AGAIN_TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => park_timeout(AGAIN_WAIT),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => return other.map_err(StoreError::io(path)),
        }
    }
    tracing::warn!(path = %path.display(), "another process writes to the copy of a database; it is left in place");
    Ok(())
}

/// Copies a database, with what its log can do without or not; false when there is none.
pub(super) fn copy_database(from: &Path, to: &Path, with_snapshots: bool) -> Result<bool, StoreError> {
    fs::create_dir_all(to).map_err(StoreError::io(to))?;
    let Ok(entries) = fs::read_dir(from) else { return Ok(false) };
    let mut any = false;
    for entry in entries {
        let path = entry.map_err(StoreError::io(from))?.path();
        let name = path.file_name().unwrap_or_default().to_os_string();
        if path.is_dir() {
            copy_database(&path, &to.join(name), true)?;
        } else if with_snapshots || !quarantine::is_dispensable(&name.to_string_lossy()) {
            fs::copy(&path, to.join(name)).map_err(StoreError::io(&path))?;
            any = true;
        }
    }
    Ok(any)
}

/// How often something is tried that threads or children of the last user may still be busy with.
const AGAIN_TRIES: u32 = 50;
const AGAIN_WAIT: Duration = Duration::from_millis(20);

/// Opens it in this process. The last threads of one that was just dropped may still hold the file; no other process
/// can, since the state is locked.
pub(super) fn open_here(dir: &Path) -> Result<sled::Db, StoreError> {
    let config = sled::Config::new().path(dir.join("db")).cache_capacity(CACHE_BYTES).flush_every_ms(None);
    let mut tried = 0;
    loop {
        match config.open() {
            Err(sled::Error::Io(error)) if error.kind() == ErrorKind::Other && tried < AGAIN_TRIES => {
                tried += 1;
                park_timeout(AGAIN_WAIT);
            }
            other => return other.map_err(|source| database(dir, source)),
        }
    }
}
