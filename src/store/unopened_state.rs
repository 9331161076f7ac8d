//! A state that is locked and whose database is not open: what each of its parts still tells, and a new database put in
//! the place of the old one. What becomes of its jobs is decided above the store, in `recovery`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::domain::ids::BatchNo;
use crate::domain::job::JobSpec;
use crate::domain::row_versions::RowVersions;
use crate::failpoint;
use crate::store::batch_backup::{self, BatchBackup};
use crate::store::dump::{self, DumpError};
use crate::store::open_check::{self, CheckResult, REBUILD};
use crate::store::process_lock::{Holding, Lock};
use crate::store::set_aside::REPLACED;
use crate::store::snapshot::{Salvaged, Snapshot};
use crate::store::spool::{Appender, Lines, Spool};
use crate::store::state_folders::{batch_dir, batch_dirs, sync_dir_and_parent};
use crate::store::{
    BatchRecord, FinishedBatch, JobRecord, StoreError, catalog_cache, clean_shutdown, commit_count,
    disk_reserve, finished, job_index, set_aside, state_format, verify, version_file, write_atomic,
};

/// A state, whole or damaged, that this process has locked.
#[derive(Debug)]
pub struct UnopenedState {
    dir: PathBuf,
    /// Where copies are tried out and a new database is built; gone with this.
    work: TempDir,
    _lock: Lock,
}

/// What a state's database still tells.
#[derive(Debug, Default)]
pub struct Remainder {
    /// Its records.
    pub records: Snapshot,
    /// It is whole, the latest one, and agrees with the spool in everything.
    pub is_whole: bool,
    /// What could not be read, in words.
    pub notes: Vec<String>,
}

impl UnopenedState {
    /// Locks the state in `dir`, and looks whether its disk has room for another database.
    ///
    /// # Errors
    /// [`StoreError`]: there is none, it is in use, or the disk is full.
    pub fn take(dir: &Path) -> Result<UnopenedState, StoreError> {
        if state_format::service(dir)?.is_none() {
            return Err(StoreError::Missing { dir: dir.to_owned() });
        }
        let lock = Lock::take(dir, Holding::ForLong)?;
        disk_reserve::take(dir)?;
        UnopenedState::with(dir, lock)
    }

    fn with(dir: &Path, lock: Lock) -> Result<UnopenedState, StoreError> {
        let work = tempfile::Builder::new().prefix(REBUILD).tempdir_in(dir).map_err(StoreError::io(dir))?;
        Ok(UnopenedState { dir: dir.to_owned(), work, _lock: lock })
    }

    /// Reads what a copy of the database still tells: reading writes to it. Where an earlier rebuild was killed before the new
    /// one was in its place, it is the one that was to be replaced.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn read_database(&self) -> Result<Remainder, StoreError> {
        let mut remainder = Remainder::default();
        let paths = ["db", REPLACED].map(|name| self.dir.join(name));
        let Some(path) = paths.iter().find(|path| open_check::is_database(path)) else {
            return Ok(remainder);
        };
        let salvaged = match open_check::read(&self.dir, path, self.work.path()) {
            Ok(CheckResult::Opens(salvaged)) => salvaged,
            Ok(CheckResult::OpensWithoutSnapshots(salvaged, why)) => {
                remainder
                    .notes
                    .push(format!("nothing can be read from the snapshots of the database: {why}"));
                salvaged
            }
            Ok(CheckResult::Untried) => {
                remainder.notes.push("the old database could not be tried out, and is not read".to_owned());
                return Ok(remainder);
            }
            Err(StoreError::Damaged { detail, .. }) => {
                remainder.notes.push(format!("nothing can be read from the damaged database: {detail}"));
                return Ok(remainder);
            }
            Err(error) => return Err(error),
        };
        let Salvaged { records, unreadable, .. } = *salvaged;
        remainder.is_whole = unreadable.is_empty()
            && records.commits > 0
            && records.commits >= commit_count::read(&self.dir)?
            && verify::full(&self.dir, &records, &mut |_| {})?.faults == 0;
        remainder.notes.extend(unreadable);
        Ok(Remainder { records, ..remainder })
    }

    /// Reads an export beside the state: its records are returned, its rows and outcomes lie in
    /// [`UnopenedState::export_spool`].
    ///
    /// # Errors
    /// [`DumpError`] when it is not what was written, or is of another service.
    pub fn read_export(&self, path: &Path) -> Result<Snapshot, DumpError> {
        let (service, records) = dump::read_into(fs::File::open(path)?, &self.export_dir())?;
        match state_format::service(&self.dir)? {
            Some(ours) if ours != service => Err(DumpError::OtherState {
                found: format!("it belongs to {service}, and the state in {} to {ours}", self.dir.display()),
            }),
            _ => Ok(records),
        }
    }

    fn export_dir(&self) -> PathBuf {
        self.work.path().join("export")
    }

    /// The number of the last commit that anything beside the database shows.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn last_commit_beside(&self) -> Result<u64, StoreError> {
        let backups = batch_backup::all(&self.dir).into_iter().map(|written| written.commit);
        Ok(backups.chain([commit_count::read(&self.dir)?]).max().unwrap_or_default())
    }

    /// The batches that have a folder, in order.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn folders(&self) -> Result<Vec<BatchNo>, StoreError> {
        Ok(batch_dirs(&self.dir)?.into_iter().map(|(no, _)| no).collect())
    }

    /// Whether nobody moved the folder of a batch away.
    pub fn has_folder(&self, no: BatchNo) -> bool {
        batch_dir(&self.dir, no).exists()
    }

    /// Moves the folder of a batch aside, which nothing knows. Returns where it is now.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn set_folder_aside(&self, no: BatchNo) -> Result<Option<PathBuf>, StoreError> {
        let folder = batch_dir(&self.dir, no);
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let moved = set_aside::set(&self.dir, &folder, &format!("spool-{name}"))?;
        Ok(moved.map(|moved| moved.to().to_owned()))
    }

    /// Puts the folder of a batch that has none in its place, as the export has it: it is there in full or not at all. Its rows
    /// are so many bytes.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn take_folder_from_export(&self, no: BatchNo, spool_bytes: u64) -> Result<(), StoreError> {
        let (exported, folder) = (batch_dir(&self.export_dir(), no), batch_dir(&self.dir, no));
        job_index::extend(&exported, spool_bytes)?;
        let spool = folder.parent().unwrap_or(&self.dir);
        fs::create_dir_all(spool).map_err(StoreError::io(spool))?;
        fs::File::open(&exported)
            .and_then(|exported| exported.sync_all())
            .map_err(StoreError::io(&exported))?;
        fs::rename(&exported, &folder).map_err(StoreError::io(&folder))?;
        sync_dir_and_parent(spool).map_err(StoreError::io(spool))
    }

    /// The rows of a batch are not what they were: `detail` says how.
    pub fn rows_damaged(&self, no: BatchNo, detail: String) -> StoreError {
        StoreError::Damaged { dir: self.dir.clone(), what: format!("spool/{:06}/rows", no.0), detail }
    }

    /// The rows and outcomes of a batch.
    pub fn spool(&self, no: BatchNo) -> Spool {
        Spool::new(batch_dir(&self.dir, no))
    }

    /// How much of what says which versions of edited rows a batch wants can be read, in bytes.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn readable_versions_bytes(&self, no: BatchNo) -> Result<u64, StoreError> {
        version_file::read_whole_lines(&self.spool(no)).map(|(_, bytes)| bytes)
    }

    /// Which versions of its edited rows a batch wants.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn row_versions(&self, batch: &BatchRecord) -> Result<RowVersions, StoreError> {
        version_file::read(&self.spool(batch.no), batch.versions_bytes)
    }

    /// Those that the export has of it.
    pub fn export_spool(&self, no: BatchNo) -> Spool {
        Spool::new(batch_dir(&self.export_dir(), no))
    }

    /// The last record that a batch had when it was done, from its folder, with the number of the commit that it was written
    /// for.
    pub fn last_finished_record(&self, no: BatchNo) -> Option<(u64, BatchRecord)> {
        finished::last_record(&batch_dir(&self.dir, no))
    }

    /// What the backup of a batch says, with the number of the commit that it was written for; the rest is as in `known`,
    /// where something is.
    pub fn backed_up(&self, no: BatchNo, known: Option<&BatchRecord>) -> Option<(u64, BatchRecord)> {
        let written = batch_backup::read(&batch_dir(&self.dir, no))?;
        let backup = written.backup;
        let record = known.map_or_else(|| backup.batch(), |known| backup.laid_over(known.clone()));
        Some((written.commit, record))
    }

    /// Whether a job of a batch that had ended may have been taken up again: its backup says so, or does not tell.
    pub fn may_have_reopened(&self, no: BatchNo) -> bool {
        let written = batch_backup::read(&batch_dir(&self.dir, no));
        written.and_then(|written| written.backup.has_reopened) != Some(false)
    }

    /// The record of a finished batch, where it can be read.
    pub fn finished_record(&self, line: &FinishedBatch) -> Option<BatchRecord> {
        line.read(&self.dir).ok().map(|kept| kept.record)
    }

    /// Accepted rows that cannot be read are taken from the export, of which the spool is the continuation. Returns
    /// whether they were; the old ones are set aside.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when they cannot be read there either.
    pub fn repair_rows(&self, batch: &BatchRecord) -> Result<bool, StoreError> {
        let path = self.spool(batch.no).rows_path();
        let Err(error) = read_all(&path, batch.spool_bytes) else { return Ok(false) };
        let StoreError::Damaged { .. } = error else { return Err(error) };
        let Ok(mut whole) = fs::read(self.export_spool(batch.no).rows_path()) else { return Err(error) };
        if let Ok(ours) = fs::read(&path) {
            whole.extend(ours.get(whole.len()..).unwrap_or_default());
        }
        let draft = path.with_extension("repaired");
        write_synced(&draft, &whole).map_err(StoreError::io(&draft))?;
        if read_all(&draft, batch.spool_bytes).is_err() {
            fs::remove_file(&draft).map_err(StoreError::io(&draft))?;
            return Err(error);
        }
        self.replace(&path, &draft, &format!("rows-{:06}", batch.no.0))?;
        Ok(true)
    }

    /// Writes the outcomes that count, if they are not those that lie there, and returns their length in bytes.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn write_outcomes(&self, no: BatchNo, outcomes: &[JobRecord]) -> Result<u64, StoreError> {
        let spool = self.spool(no);
        let (path, draft) = (spool.outcomes_path(), spool.dir().join("outcomes.repaired"));
        let _ = fs::remove_file(&draft);
        let mut file = Appender::open(&draft, 0)?;
        for outcome in outcomes {
            file.push(outcome)?;
        }
        let bytes = file.sync()?;
        let is_same = match (fs::read(&path), fs::read(&draft)) {
            (Ok(before), Ok(after)) => before == after,
            (Err(_), Ok(after)) => after.is_empty(),
            _ => false,
        };
        if is_same {
            // A process that was killed may have written it and not waited for the device.
            let synced = fs::File::open(&path).and_then(|file| file.sync_all());
            synced.or_else(ignore_missing).map_err(StoreError::io(&path))?;
            fs::remove_file(&draft).map_err(StoreError::io(&draft))?;
            return Ok(bytes);
        }
        self.replace(&path, &draft, &format!("outcomes-{:06}", no.0))?;
        Ok(bytes)
    }

    /// Puts a file that was synced in the place of another one, which is set aside as `name`, and keeps its place until
    /// then. The new name is on the device on return.
    fn replace(&self, path: &Path, new: &Path, name: &str) -> Result<(), StoreError> {
        if path.exists() {
            let kept = set_aside::place(&self.dir, name)?;
            fs::hard_link(path, &kept)
                .or_else(|_| fs::copy(path, &kept).map(drop))
                .map_err(StoreError::io(&kept))?;
            set_aside::sync(&self.dir)?;
        }
        fs::rename(new, path).map_err(StoreError::io(path))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::io(folder))
    }

    /// Puts a new database with these records in the place of the old one, which is set aside; returns where it lies then.
    /// Batches that are done may be among the others: they get their lines.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the records contradict each other or the spool; the old database is then in its place.
    /// Rows and outcomes that were replaced before stay so.
    pub fn install(&self, mut records: Snapshot) -> Result<Option<PathBuf>, StoreError> {
        let dir = self.dir.as_path();
        let all = records.batches.clone();
        records.retire(dir)?.into_iter().for_each(|line| records.add_finished(line));
        verify::quick(dir, &records, &batch_dirs(dir)?)?;
        state_format::raise(dir)?;
        let fresh = self.work.path().join("fresh");
        records.write_database(dir, &fresh)?;
        for batch in &all {
            batch_backup::write(&batch_dir(dir, batch.no), &BatchBackup::of(batch), records.commits)?;
        }
        clean_shutdown::take_mark(dir);
        let database = dir.join("db");
        if database.exists() {
            set_aside::set_replaced(dir)?;
            fs::rename(&database, dir.join(REPLACED)).map_err(StoreError::io(&database))?;
        }
        failpoint::hit("database-replaced");
        fs::rename(&fresh, &database).map_err(StoreError::io(&fresh))?;
        commit_count::write(dir, records.commits)?;
        fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(StoreError::io(dir))?;
        let aside = set_aside::set_replaced(dir)?;
        Ok(aside.map(|moved| moved.to().to_owned()))
    }
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn read_all(path: &Path, bytes: u64) -> Result<(), StoreError> {
    let mut lines = Lines::open(path, 0, bytes)?;
    while lines.next_line::<JobSpec>()?.is_some() {}
    Ok(())
}

/// A state that is being made of an export, in a folder that was empty. Dropped before it is installed, it leaves the
/// folder as it was.
#[derive(Debug)]
pub struct NewState {
    dir: PathBuf,
    service: String,
    /// What lay there before.
    found: BTreeSet<&'static str>,
    locked: Option<UnopenedState>,
}

impl NewState {
    /// Reads an export into the empty folder `dir`: its rows and outcomes lie in the spool on return, its records are
    /// returned.
    ///
    /// # Errors
    /// [`DumpError`]; the folder is then as it was.
    pub fn read(dump: impl Read, dir: &Path) -> Result<(NewState, Snapshot), DumpError> {
        if !is_left_over(dir) {
            must_be_empty(dir)?;
        }
        let is_there = [(".", dir.exists()), ("lock", dir.join("lock").exists())];
        let found = is_there.into_iter().filter_map(|(what, is_there)| is_there.then_some(what)).collect();
        fs::create_dir_all(dir).map_err(StoreError::io(dir))?;
        let lock = Lock::take(dir, Holding::ForLong)?;
        // Nobody else works on it now: what another import left that was killed is removed.
        if is_left_over(dir) {
            remove_made(dir)?;
        }
        must_be_empty(dir)?;
        let begun = dir.join(state_format::IMPORTING);
        write_synced(&begun, &[])
            .and_then(|()| fs::File::open(dir)?.sync_all())
            .map_err(StoreError::io(&begun))?;
        let locked = UnopenedState::with(dir, lock)?;
        let mut state = NewState { dir: dir.to_owned(), service: String::new(), found, locked: Some(locked) };
        let (service, records) = dump::read_into(dump, dir)?;
        state.service = service;
        // Jobs are found by their names without reading all rows, also in batches that are done.
        for batch in &records.batches {
            job_index::extend(&batch_dir(dir, batch.no), batch.spool_bytes)?;
        }
        Ok((state, records))
    }

    /// The service that the state belongs to.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The row of a job.
    ///
    /// # Errors
    /// When there is none.
    pub fn spec_of(&self, job: &JobRecord) -> Result<JobSpec, StoreError> {
        let path = Spool::new(batch_dir(&self.dir, job.key.batch)).rows_path();
        Lines::open(&path, job.row_at, u64::MAX)?.line_at(job.row_at)
    }

    /// The rows and outcomes of a batch.
    pub fn spool(&self, no: BatchNo) -> Spool {
        Spool::new(batch_dir(&self.dir, no))
    }

    /// Which versions of its edited rows a batch wants.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn row_versions(&self, batch: &BatchRecord) -> Result<RowVersions, StoreError> {
        version_file::read(&self.spool(batch.no), batch.versions_bytes)
    }

    /// Adds outcomes of a batch after those that its records have; they are on the device on return.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn add_outcomes(
        &self,
        no: BatchNo,
        outcomes: &[JobRecord],
        records: &mut Snapshot,
    ) -> Result<(), StoreError> {
        let mut file = Appender::open(&self.spool(no).outcomes_path(), records.outcomes_bytes(no))?;
        for outcome in outcomes {
            file.push(outcome)?;
        }
        records.outcomes_bytes.insert(no, file.sync()?);
        Ok(())
    }

    /// Whether an accepted row of a batch takes a file of the machine that it was accepted on.
    ///
    /// # Errors
    /// When its rows cannot be read.
    pub fn takes_files(&self, batch: &BatchRecord) -> Result<bool, StoreError> {
        let mut lines = Spool::new(batch_dir(&self.dir, batch.no)).rows(0, batch.spool_bytes)?;
        while let Some((_, spec)) = lines.next_line::<JobSpec>()? {
            if !spec.order.files.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes it a state.
    ///
    /// # Errors
    /// As [`UnopenedState::install`].
    pub fn install(mut self, records: Snapshot) -> Result<(), StoreError> {
        if let Some(locked) = &self.locked {
            locked.install(records)?;
        }
        // Last: without it the folder is no state.
        state_format::claim(&self.dir, &self.service, false)?;
        self.locked = None;
        // What remains of it says nothing about a state.
        let _ = fs::remove_file(self.dir.join(state_format::IMPORTING));
        Ok(())
    }

    /// Removes what was made, while the folder is still locked: the corrected export finds it empty.
    fn take_back(&mut self) {
        let dir = self.dir.as_path();
        // What cannot be removed is named by the next import.
        let _ = fs::remove_file(dir.join(state_format::FILE_NAME));
        let _ = remove_made(dir);
        if !self.found.contains("lock") {
            let _ = fs::remove_file(dir.join("lock"));
        }
        // With the work in it.
        self.locked = None;
        if !self.found.contains(".") {
            let _ = fs::remove_dir(dir);
        }
    }
}

impl Drop for NewState {
    fn drop(&mut self) {
        if self.locked.is_some() {
            self.take_back();
        }
    }
}

/// Whether a folder holds what an import made that was killed.
fn is_left_over(dir: &Path) -> bool {
    dir.join(state_format::IMPORTING).exists() && !dir.join(state_format::FILE_NAME).exists()
}

/// Removes what an import makes before its folder is a state. That it was begun is removed last.
fn remove_made(dir: &Path) -> Result<(), StoreError> {
    let of_import = |name: &str| {
        ["db", "spool", "commits"].contains(&name)
            || [REBUILD, write_atomic::MARKER].iter().any(|prefix| name.starts_with(prefix))
    };
    for entry in fs::read_dir(dir).map_err(StoreError::io(dir))? {
        let path = entry.map_err(StoreError::io(dir))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if of_import(&name) {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(StoreError::io(&path))?;
        }
    }
    let begun = dir.join(state_format::IMPORTING);
    fs::remove_file(&begun).or_else(ignore_missing).map_err(StoreError::io(&begun))
}

fn must_be_empty(dir: &Path) -> Result<(), DumpError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(StoreError::io(dir))?,
    };
    for entry in entries {
        let name = entry.map_err(StoreError::io(dir))?.file_name();
        // A plan keeps its catalogs, and emulators their states, in folders that are to be states.
        let kept = ["lock", catalog_cache::FILE_NAME, "emulator", "emulator-service"];
        if !kept.iter().any(|kept| name == *kept) {
            let found = name.to_string_lossy().into_owned();
            return Err(DumpError::NotEmpty { dir: dir.to_owned(), found });
        }
    }
    Ok(())
}
