//! The service's catalogs as last seen, for the time when it does not answer.
//!
//! They lie beside the state and not in it: a plan keeps them without opening the state, and whoever
//! writes last wins, since every version is the service's own.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::time::Timestamp;
use crate::store::{StoreError, successor};

pub(super) const FILE_NAME: &str = "catalogs.json";

/// Catalogs of one service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The service that gave them.
    pub service: String,
    /// When.
    pub fetched: Timestamp,
    /// By part: `video`, `image`, `music`, `voices`.
    pub data: Value,
}

/// The catalogs kept in a state folder; nothing when there are none, or none that can be read.
///
/// # Errors
/// When the file cannot be opened.
pub fn read(dir: &Path) -> Result<Option<Kept>, StoreError> {
    let path = dir.join(FILE_NAME);
    match fs::read(&path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io(&path)(error)),
    }
}

/// Keeps catalogs in a state folder, which is made where it is missing.
///
/// # Errors
/// When the folder cannot be written to.
pub fn keep(dir: &Path, kept: &Kept) -> Result<(), StoreError> {
    let path = dir.join(FILE_NAME);
    let save = || -> io::Result<()> {
        fs::create_dir_all(dir)?;
        // A dot before the name: a plan that is cut short leaves nothing that looks like a state.
        let file = successor::begin(dir, successor::CATALOGS)?;
        serde_json::to_writer(io::BufWriter::new(&file), kept)?;
        file.persist(&path).map(drop).map_err(|error| error.error)
    };
    save().map_err(StoreError::io(&path))
}
