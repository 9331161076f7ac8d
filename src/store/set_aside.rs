//! Damaged parts are set aside under `aside/`, never deleted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::store::StoreError;
use crate::store::state_folders::sync_dir_and_parent;

/// Most things of one name that are set aside: past that, somebody should look.
const KEPT_MAX: u32 = 10_000;

/// Where the database lies that a rebuild is just replacing: one that is killed in between loses none.
pub(super) const REPLACED: &str = "db.replaced";

/// The file of the database's settings, which sled writes in two pieces before it makes the log, and does not sync.
const SETTINGS: &str = "conf";

/// Something that was moved.
#[derive(Debug)]
pub(super) struct Moved {
    to: PathBuf,
}

/// A free place in `aside/` for something called `name`.
pub(super) fn place(dir: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let aside = dir.join("aside");
    fs::create_dir_all(&aside).map_err(StoreError::io(&aside))?;
    let free = (1..=KEPT_MAX).map(|n| aside.join(format!("{name}-{n}"))).find(|path| !path.exists());
    free.ok_or_else(|| StoreError::io(&aside)(io::ErrorKind::AlreadyExists.into()))
}

/// Waits until the names in `aside/` are on the device.
pub(super) fn sync(dir: &Path) -> Result<(), StoreError> {
    let aside = dir.join("aside");
    sync_dir_and_parent(&aside).map_err(StoreError::io(&aside))
}

/// Moves a file or folder aside and returns where it is now; nothing when there is none.
pub(super) fn set(dir: &Path, what: &Path, name: &str) -> Result<Option<Moved>, StoreError> {
    if !what.exists() {
        return Ok(None);
    }
    let to = place(dir, name)?;
    fs::rename(what, &to).map_err(StoreError::io(what))?;
    sync(dir)?;
    Ok(Some(Moved { to }))
}

/// Moves the database aside that a rebuild has replaced, also one that was killed before it did so itself.
pub(super) fn set_replaced(dir: &Path) -> Result<Option<Moved>, StoreError> {
    if !dir.join("db").exists() {
        return Ok(None);
    }
    set(dir, &dir.join(REPLACED), "db")
}

/// Whether the database's log can do without the file of that name: snapshots spare it reading all of the
/// log, and its settings are always the same.
pub(super) fn is_dispensable(name: &str) -> bool {
    name.starts_with("snap.") || name == SETTINGS
}

/// Removes the settings of a database that has no log: a process that was killed while it made the database may have left
/// half of them, and half of them are refused. They hold nothing of the state, and are written again with the log.
pub(super) fn remove_settings_without_log(dir: &Path) -> Result<(), StoreError> {
    let settings = dir.join("db").join(SETTINGS);
    match fs::remove_file(&settings) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io(&settings)(error)),
        _ => Ok(()),
    }
}

/// Moves snapshots aside that were never finished.
pub(super) fn set_torn(dir: &Path) -> Result<Vec<Moved>, StoreError> {
    set_where(dir, |name| name.starts_with("snap.") && name.ends_with(".generating"))
}

/// Moves aside what the database's log can do without: it is then recovered from the whole of it.
pub(super) fn set_dispensable(dir: &Path) -> Result<Vec<Moved>, StoreError> {
    set_where(dir, is_dispensable)
}

fn set_where(dir: &Path, goes: impl Fn(&str) -> bool) -> Result<Vec<Moved>, StoreError> {
    let db = dir.join("db");
    let entries = match fs::read_dir(&db) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io(&db)(error)),
    };
    let mut moved = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StoreError::io(&db))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if goes(&name) {
            moved.extend(set(dir, &entry.path(), &name)?);
        }
    }
    Ok(moved)
}

impl Moved {
    /// Where it is now.
    pub(super) fn to(&self) -> &Path {
        &self.to
    }
}
