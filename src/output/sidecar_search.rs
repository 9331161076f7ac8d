//! Sidecars wherever they lie in the folder of a batch: for what was made and paid for under a layout that nothing tells any
//! more.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::domain::ids::JobId;
use crate::output::sidecar::Sidecar;

/// Longest file that is read as a sidecar, in bytes.
const SIDECAR_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Most folders whose sidecars are known.
const FOLDERS_MAX: usize = 8;

type Found = HashMap<JobId, Vec<PathBuf>>;

/// Each folder is searched once: what matters was there before this process began.
#[derive(Debug, Default)]
pub(super) struct SidecarSearch {
    folders: Mutex<VecDeque<(PathBuf, Arc<Found>)>>,
}

impl SidecarSearch {
    /// The sidecars of a job that are below a folder, as far as they are still there, with their paths.
    pub(super) fn find(&self, folder: &Path, job: JobId) -> Vec<(PathBuf, Sidecar)> {
        let found = self.in_folder(folder);
        let read = |path: &PathBuf| {
            Some((path.clone(), Sidecar::read(path).filter(|sidecar| sidecar.is_of(job, None))?))
        };
        found.get(&job).into_iter().flatten().filter_map(read).collect()
    }

    fn in_folder(&self, folder: &Path) -> Arc<Found> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = folders.iter().find(|(known, _)| known == folder) {
            return found.clone();
        }
        let found = Arc::new(search(folder));
        folders.truncate(FOLDERS_MAX - 1);
        folders.push_front((folder.to_owned(), found.clone()));
        found
    }
}

/// Reads what may be a sidecar below a folder; links are not followed.
fn search(folder: &Path) -> Found {
    let (mut found, mut folders) = (Found::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (Ok(kind), path) = (entry.file_type(), entry.path()) else { continue };
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file()
                && path.extension().is_some_and(|ext| ext == "json")
                && entry.metadata().is_ok_and(|meta| meta.len() <= SIDECAR_MAX_BYTES)
                && let Some(sidecar) = Sidecar::read(&path)
            {
                found.entry(sidecar.job).or_default().push(path);
            }
        }
    }
    found
}
