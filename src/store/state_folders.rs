//! Where the parts of a state lie.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::domain::ids::BatchNo;
use crate::store::StoreError;

/// Where state format 1 kept the folders of batches that were done long ago.
pub(super) fn archive(dir: &Path) -> PathBuf {
    dir.join("archive")
}

/// The folder of the folders of batches.
pub(super) fn spool(dir: &Path) -> PathBuf {
    dir.join("spool")
}

/// The folder of a batch's rows and outcomes.
pub(super) fn batch_dir(dir: &Path, batch: BatchNo) -> PathBuf {
    let folder = spool(dir).join(folder_name(batch));
    // State format 1 moved those away that were done long ago.
    let archived = archive(dir).join(folder_name(batch));
    if !folder.exists() && archived.exists() { archived } else { folder }
}

/// How a batch's folder is called.
pub(super) fn folder_name(batch: BatchNo) -> String {
    format!("{:06}", batch.0)
}

/// The folders of all batches in a state, in order.
pub(super) fn batch_dirs(dir: &Path) -> Result<BatchDirs, StoreError> {
    Ok(spool_entries(dir)?.batches)
}

/// The number of each batch, and where its folder lies.
pub(super) type BatchDirs = Vec<(BatchNo, PathBuf)>;

/// What lies in the spool, and the folders of batches that state format 1 moved away.
#[derive(Debug)]
pub(super) struct SpoolEntries {
    /// The folders of all batches, in order.
    pub(super) batches: BatchDirs,
    /// All else in the spool.
    pub(super) others: Vec<PathBuf>,
}

/// Lists the spool of a state once: it has a folder for each batch that ever was.
pub(super) fn spool_entries(dir: &Path) -> Result<SpoolEntries, StoreError> {
    let mut batches = BatchDirs::new();
    let others = add_numbered(&spool(dir), &mut batches)?;
    add_numbered(&archive(dir), &mut batches)?;
    batches.sort_unstable();
    batches.dedup_by_key(|(no, _)| *no);
    Ok(SpoolEntries { batches, others })
}

/// Adds the folders that have a number for a name. Returns all else.
fn add_numbered(parent: &Path, batches: &mut BatchDirs) -> Result<Vec<PathBuf>, StoreError> {
    let mut others = Vec::new();
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(others),
        Err(error) => return Err(StoreError::io(parent)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(StoreError::io(parent))?;
        match entry.file_name().to_string_lossy().parse() {
            Ok(no) => batches.push((BatchNo(no), entry.path())),
            Err(_) => others.push(entry.path()),
        }
    }
    Ok(others)
}

/// Opens a file to read and to write, as it is; an empty one where there was none.
pub(super) fn open_or_create(path: &Path) -> Result<File, StoreError> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(StoreError::io(path))
}

/// Makes durable what the process before wrote and this one reads: a killed one may have synced none of it.
/// With it, the names of the folders that all else is written in.
pub(super) fn sync_found(dir: &Path) -> Result<(), StoreError> {
    let (spool, db) = (spool(dir), dir.join("db"));
    fs::create_dir_all(&spool).map_err(StoreError::io(&spool))?;
    sync_files(&db).map_err(StoreError::io(&db))?;
    for folder in [&spool, dir] {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::io(folder))?;
    }
    let dir = dir.canonicalize().map_err(StoreError::io(dir))?;
    // One that refuses was made by somebody else, and not just now.
    let synced = |above: &Path| File::open(above).and_then(|folder| folder.sync_all()).is_ok();
    dir.ancestors().skip(1).take_while(|above| synced(above)).for_each(drop);
    Ok(())
}

/// Waits until the files in a folder, and their names, are on the device.
pub(super) fn sync_files(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(folder)?.sync_all()
}

/// A new name in a folder, and the folder's own name, are on the device only after this.
pub(super) fn sync_dir_and_parent(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}
