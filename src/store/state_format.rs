//! Whose state a folder holds: format version and service, in a file a person can read.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::store::open_check::is_database;
use crate::store::state_folders::batch_dirs;
use crate::store::{StoreError, batch_backup, catalog_cache, write_atomic};

/// What the state of the emulator says in place of a service's address.
pub const EMULATOR_IDENTITY: &str = "the emulator";

/// The file that says that all of a folder but what a plan left is of an import that has not ended.
pub(super) const IMPORTING: &str = ".importing";
pub(super) const FILE_NAME: &str = "callsheet-state.json";
/// Format of the whole directory. In format 2 a job's record is a list of attempts, and a finished batch is a line of
/// the database; format 1 had finished batches in the database, and old ones in `archive/`.
const FORMAT: u32 = 2;
/// The oldest format that is read. It is carried over as it is changed: what is written is of the latest.
const OLDEST: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    format: u32,
    service: String,
}

/// Refuses a folder that is not ours, before anything is written into it.
pub(super) fn check_folder(dir: &Path) -> Result<(), StoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(StoreError::Io { path: dir.to_owned(), source }),
    };
    if dir.join(FILE_NAME).exists() {
        return Ok(());
    }
    must_not_have_lost_marker(dir)?;
    for entry in entries {
        let name = entry.map_err(StoreError::io(dir))?.file_name();
        let name = name.to_string_lossy();
        // `lock`: a first start that was cut short. `catalogs.json`: a plan was here before any run.
        // `emulator` and `emulator-service`: the emulator's own states, which lie inside the default
        // state folder.
        let ours = ["lock", catalog_cache::FILE_NAME, "emulator", "emulator-service"];
        if !name.starts_with('.') && !ours.contains(&&*name) {
            return Err(StoreError::Foreign { dir: dir.to_owned(), found: name.into_owned() });
        }
    }
    Ok(())
}

/// Refuses the folder of a state that has all but the file which says whose it is: another state begun in its place would
/// know of nothing that it bought.
fn must_not_have_lost_marker(dir: &Path) -> Result<(), StoreError> {
    let has_backup =
        || batch_dirs(dir).is_ok_and(|dirs| dirs.iter().any(|(_, dir)| batch_backup::is_in(dir)));
    // An import that has not ended has no such file yet.
    let is_state = !dir.join(IMPORTING).exists() && (is_database(&dir.join("db")) || has_backup());
    match is_state {
        true => {
            Err(StoreError::MarkerDamaged { path: dir.join(FILE_NAME), detail: "it is missing".to_owned() })
        }
        false => Ok(()),
    }
}

/// The service that a state was begun with; nothing where there is no state.
pub(super) fn service(dir: &Path) -> Result<Option<String>, StoreError> {
    match read(dir)? {
        Some(marker) => Ok(Some(marker.service)),
        None => must_not_have_lost_marker(dir).map(|()| None),
    }
}

/// Hands a state over to another service.
pub(super) fn adopt(dir: &Path, service: &str) -> Result<(), StoreError> {
    write(dir, service)
}

/// Checks that the folder belongs to this version and `service`, and writes so when it is new. With `adopts` it may belong
/// to another service, and does so until [`adopt`].
pub(super) fn claim(dir: &Path, service: &str, adopts: bool) -> Result<(), StoreError> {
    let Some(marker) = read(dir)? else { return write(dir, service) };
    match marker.service == service || adopts {
        true => raise(dir),
        false => Err(StoreError::OtherService {
            dir: dir.to_owned(),
            found: marker.service,
            wanted: service.to_owned(),
        }),
    }
}

/// Says that the folder is of the latest format, before anything of that is written: an older program refuses it from
/// then on.
pub(super) fn raise(dir: &Path) -> Result<(), StoreError> {
    match read(dir)?.filter(|marker| marker.format < FORMAT) {
        Some(marker) => write(dir, &marker.service),
        None => Ok(()),
    }
}

fn read(dir: &Path) -> Result<Option<Marker>, StoreError> {
    let path = dir.join(FILE_NAME);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Io { path, source }),
    };
    let marker: Marker = serde_json::from_slice(&text)
        .map_err(|error| StoreError::MarkerDamaged { path, detail: error.to_string() })?;
    if !(OLDEST..=FORMAT).contains(&marker.format) {
        let dir = dir.to_owned();
        return Err(StoreError::OtherVersion { dir, found: marker.format, expected: FORMAT });
    }
    Ok(Some(marker))
}

fn write(dir: &Path, service: &str) -> Result<(), StoreError> {
    let marker = Marker { format: FORMAT, service: service.to_owned() };
    write_atomic::put(&dir.join(FILE_NAME), write_atomic::MARKER, &marker)
}
