//! What the service charged above its own catalog, for later plans and holds.
//!
//! Beside the state and not in it, as the catalogs are: losing it costs no credit that a budget does not cover, since
//! the next charge tells it anew.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::domain::quote::Surcharges;
use crate::store::{StoreError, write_atomic};

const FILE_NAME: &str = "surcharges.json";

/// What one service charged above its catalog.
#[derive(Debug, Serialize, Deserialize)]
struct SurchargeFile {
    service: String,
    cells: Surcharges,
}

/// What is known of a service; nothing where nothing is kept, or nothing that can be read.
///
/// # Errors
/// When the file cannot be opened.
pub fn read(dir: &Path, service: &str) -> Result<Surcharges, StoreError> {
    let path = dir.join(FILE_NAME);
    match fs::read(&path) {
        Ok(bytes) => {
            let kept: Option<SurchargeFile> = serde_json::from_slice(&bytes).ok();
            Ok(kept.filter(|kept| kept.service == service).map(|kept| kept.cells).unwrap_or_default())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Surcharges::default()),
        Err(error) => Err(StoreError::io(&path)(error)),
    }
}

/// Keeps what is known of a service. On return it is on the device.
///
/// # Errors
/// When the folder cannot be written to.
pub fn keep(dir: &Path, service: &str, cells: &Surcharges) -> Result<(), StoreError> {
    let kept = SurchargeFile { service: service.to_owned(), cells: cells.clone() };
    write_atomic::put(&dir.join(FILE_NAME), write_atomic::SURCHARGES, &kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::credits::Credits;

    #[test]
    fn what_one_service_charged_says_nothing_of_another() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path(), "a").unwrap().is_empty());
        let mut cells = Surcharges::default();
        cells.learn("cell", Credits(10), Credits(20));
        keep(dir.path(), "a", &cells).unwrap();
        assert_eq!(read(dir.path(), "a").unwrap(), cells);
        assert!(read(dir.path(), "b").unwrap().is_empty());
        fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert!(read(dir.path(), "a").unwrap().is_empty(), "damaged is as good as lost");
    }
}
