//! The service's catalogs as last seen, for the time when it does not answer.
//!
//! They lie beside the state and not in it: a plan keeps them without opening the state, and the
//! last writer wins, since every version is the service's own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::quote::CatalogPart;
use crate::domain::time::Timestamp;
use crate::store::{StoreError, write_atomic};

pub(super) const FILE_NAME: &str = "catalogs.json";

/// Catalogs of one service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CachedCatalogs {
    /// The service that gave them.
    pub service: String,
    /// When it gave the newest of them.
    pub fetched: Timestamp,
    /// By part, as it gave them: `video`, `image`, `music`, `voices`; one that never came is left out.
    pub data: BTreeMap<String, Box<RawValue>>,
    /// When it gave those that are older than the newest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub older: BTreeMap<String, Timestamp>,
}

impl CachedCatalogs {
    /// None yet, of a service.
    pub fn none(service: &str) -> CachedCatalogs {
        CachedCatalogs {
            service: service.to_owned(),
            fetched: Timestamp(0),
            data: BTreeMap::new(),
            older: BTreeMap::new(),
        }
    }

    /// A part, and when it was given.
    pub fn part(&self, part: CatalogPart) -> Option<(&RawValue, Timestamp)> {
        let data = self.data.get(part.name()).filter(|data| data.get() != "null")?;
        Some((data, self.older.get(part.name()).copied().unwrap_or(self.fetched)))
    }

    /// Whether there is no part at all.
    pub fn is_empty(&self) -> bool {
        CatalogPart::ALL.into_iter().all(|part| self.part(part).is_none())
    }

    /// Takes a part as it was given at `at`.
    pub fn put(&mut self, part: CatalogPart, data: Box<RawValue>, at: Timestamp) {
        let times = CatalogPart::ALL.map(|part| (part, self.part(part).map(|(_, given)| given)));
        let older = times.into_iter().filter(|(other, _)| *other != part);
        let older = older.filter_map(|(other, given)| Some((other.name().to_owned(), given?)));
        self.older = older.filter(|(_, given)| *given != at).collect();
        self.fetched = at;
        self.data.insert(part.name().to_owned(), data);
    }
}

/// The catalogs kept in a state folder; nothing when there are none, or none that can be read.
///
/// # Errors
/// When the file cannot be opened.
pub fn read(dir: &Path) -> Result<Option<CachedCatalogs>, StoreError> {
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
pub fn keep(dir: &Path, kept: &CachedCatalogs) -> Result<(), StoreError> {
    let path = dir.join(FILE_NAME);
    let save = || -> io::Result<()> {
        fs::create_dir_all(dir)?;
        // A dot before the name: a plan that is cut short leaves nothing that looks like a state.
        let file = write_atomic::begin(dir, write_atomic::CATALOGS)?;
        serde_json::to_writer(io::BufWriter::new(&file), kept)?;
        file.persist(&path).map(drop).map_err(|error| error.error)
    };
    save().map_err(StoreError::io(&path))
}
