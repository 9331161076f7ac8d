//! From downloaded parts to finished files: checked, synced, named, never overwriting anything that
//! is not ours.
//!
//! The order makes every crash harmless: the parts and the sidecar, which names the job and the hash of each file, are
//! written and synced; the sidecar takes the name; the parts are renamed; their folders are synced. In a new folder the
//! sidecar is written under its name at once, elsewhere to a draft that is renamed. A job's final file is recognised by its
//! record afterwards, or by its sidecar where nothing is recorded, so nothing is fetched or paid for twice. Jobs that are
//! published at the same time share the syncs (`publish/group.rs`).
//!
//! A sidecar is found in the folder for sidecars and beside the outputs, wherever new ones are put: a job keeps its
//! sidecar where it is.

mod group;
mod incomplete;
pub(super) mod name_when_taken;

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Access, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::domain::hex::hex;
use crate::domain::ids::{BatchName, JobId, TaskId};
use crate::domain::job::{JobSpec, OutputFile, PublishedOutputs};
use crate::domain::time::Timestamp;
use crate::file_system::{FileId, Gone, KnownFolder};
use crate::output::file_names::{self, Layout, SIDECAR_FOLDER};
use crate::output::group_sync::sync_folders;
use crate::output::output_spec::OutputSpec;
use crate::output::part_sweep::{PartSweep, PartSweeps};
use crate::output::publish::name_when_taken::is_edited;
use crate::output::sidecar::Sidecar;
use crate::output::sidecar_search::SidecarSearch;
use crate::output::{Media, OutputOptions, recorded_paths};

/// Room that is asked for at least before a disk that refused a file is believed again, in bytes: the file, its
/// sidecar and a folder.
pub const PROBE_BYTES: u64 = 64 * 1024;
/// Most batches whose folders are known to be new.
const MADE_MAX: usize = 64;

/// One downloaded part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Path of the downloaded part.
    pub path: PathBuf,
    /// Its content, where that is small and not written yet. Otherwise it is in the file, on the device.
    pub unwritten: Option<Vec<u8>>,
    /// Its length in bytes.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    pub media: Media,
}

impl Part {
    /// Writes it to its file where that was not done. Returns the file, for its sync.
    fn write(&self) -> io::Result<Option<File>> {
        let Some(content) = &self.unwritten else { return Ok(None) };
        let mut file = create(&self.path)?;
        file.write_all(content)?;
        Ok(Some(file))
    }

    /// Frees the memory of its content: on return that is in its file, on the device.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write_out(&mut self) -> io::Result<()> {
        if let Some(file) = self.write()? {
            file.sync_data()?;
            self.unwritten = None;
        }
        Ok(())
    }
}

/// Outputs of a job that are ready to be published.
#[derive(Debug, Clone, Copy)]
pub struct Publication<'a> {
    pub output_spec: OutputSpec<'a>,
    pub parts: &'a [Part],
    /// When they were complete.
    pub now: Timestamp,
}

#[derive(Debug, Clone)]
pub struct OutputDir {
    root: PathBuf,
    options: OutputOptions,
    /// The batches whose folders were made last, all by this process.
    made: Arc<Mutex<VecDeque<BatchName>>>,
    /// The folder at the root whose name and those of all above it are on the device.
    named_root: Arc<Mutex<Option<FileId>>>,
    /// The folder at the root as it was found first.
    known_root: KnownFolder,
    sweeps: Arc<PartSweeps>,
    sidecars_anywhere: Arc<SidecarSearch>,
}

/// Two are equal where they put outputs at the same places.
impl PartialEq for OutputDir {
    fn eq(&self, other: &OutputDir) -> bool {
        (&self.root, self.options) == (&other.root, other.options)
    }
}

impl OutputDir {
    /// Outputs go below `root`.
    pub fn new(root: &Path, options: OutputOptions) -> OutputDir {
        OutputDir {
            root: root.to_owned(),
            options,
            made: Arc::default(),
            named_root: Arc::default(),
            known_root: KnownFolder::default(),
            sweeps: Arc::default(),
            sidecars_anywhere: Arc::default(),
        }
    }

    /// The same, as what takes the place of `before` in this process: a sweep that goes on knows of its parts, and of the same
    /// folder it is known how it was found.
    #[must_use]
    pub fn in_place_of(self, before: &OutputDir) -> OutputDir {
        let is_same = self.root == before.root;
        let known_root = if is_same { before.known_root.clone() } else { self.known_root };
        OutputDir { sweeps: before.sweeps.clone(), known_root, ..self }
    }

    pub fn options(&self) -> OutputOptions {
        self.options
    }

    pub fn batch_dir(&self, batch: &BatchName) -> PathBuf {
        self.root.join(batch.as_str())
    }

    /// Where output `n` (from 1) of a job is downloaded to. From now on no sweep removes it.
    pub fn part_path(&self, batch: &BatchName, job: JobId, n: usize) -> PathBuf {
        let path = self.batch_dir(batch).join(format!(".{job}-{n}.part"));
        self.sweeps.note_own(&path);
        path
    }

    /// Begins to remove the parts that a killed process left in the folders of batches, but for those of this process.
    pub fn begin_part_sweep<'a>(&self, batches: impl IntoIterator<Item = &'a BatchName>) -> PartSweep {
        self.sweeps.begin(batches.into_iter().map(|batch| self.batch_dir(batch)).collect())
    }

    /// Creates a batch's folder. On return its name is on the device. What is in it is not looked at: that may be a lot.
    ///
    /// # Errors
    /// When the folder cannot be made or written to.
    pub fn prepare(&self, batch: &BatchName) -> io::Result<()> {
        let dir = self.batch_dir(batch);
        let is_new = dir.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        self.make_folder(&dir)?;
        if is_new {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.truncate(MADE_MAX - 1);
            made.push_front(batch.clone());
        }
        // Finds out about a read-only folder before anything is paid for.
        self.check_writable(batch)?;
        self.sync_name(&dir)
    }

    /// Checks that the folder of a batch can be made and written to, and that its disk takes what is written.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_folder(&self, batch: &BatchName) -> io::Result<()> {
        self.check_writable(batch)?.iter().try_for_each(|folder| File::open(folder)?.sync_all())
    }

    /// Writes something to the folders of a batch, which are returned.
    fn check_writable(&self, batch: &BatchName) -> io::Result<Vec<PathBuf>> {
        self.make_batch_dir(batch)?;
        let dir = self.batch_dir(batch);
        let sidecars = dir.join(SIDECAR_FOLDER);
        let mut folders = vec![dir];
        if sidecars.symlink_metadata().is_ok() {
            self.make_folder(&sidecars)?;
            folders.push(sidecars);
        }
        folders.iter().try_for_each(|folder| tempfile::tempfile_in(folder).map(drop))?;
        Ok(folders)
    }

    /// Waits until the name of a batch's folder is on the device; the first time, those of all folders above it, too.
    fn sync_name(&self, dir: &Path) -> io::Result<()> {
        let root = File::open(&self.root)?;
        let root_is = Some(FileId::of(&root.metadata()?));
        if *self.named_root.lock().unwrap_or_else(PoisonError::into_inner) == root_is {
            return root.sync_all();
        }
        sync_names_above(dir)?;
        *self.named_root.lock().unwrap_or_else(PoisonError::into_inner) = root_is;
        Ok(())
    }

    /// Whether nothing of a batch can have been published before it was prepared by this process: its folder was not there. False
    /// where that is not known.
    pub fn is_new(&self, batch: &BatchName) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(batch)
    }

    /// From now on it is not known any more that nothing of a batch was published: some of it was, and its job waits.
    pub fn forget_is_new(&self, batch: &BatchName) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).retain(|made| made != batch);
    }

    /// Creates a batch's folder if it is missing.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn make_batch_dir(&self, batch: &BatchName) -> io::Result<()> {
        self.make_folder(&self.batch_dir(batch))
    }

    /// Creates a folder in a batch's folder, and what leads to it, where that is missing.
    ///
    /// # Errors
    /// When it cannot be created, or a part of it is a link.
    pub fn make_folder_in(&self, batch: &BatchName, folder: &str) -> io::Result<()> {
        self.make_folder(&self.batch_dir(batch).join(folder))
    }

    /// Creates a folder below the output folder that is no batch's, where it is missing. Returns its path.
    ///
    /// # Errors
    /// As [`OutputDir::make_folder_in`].
    pub fn make_folder_beside_batches(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.root.join(name);
        self.make_folder(&folder)?;
        Ok(folder)
    }

    /// Creates a folder below the output folder, and what leads to it, unless the output folder is gone. That may be a link,
    /// since a person named it; what is below it belongs to the program, and a link there may lead anywhere.
    pub(super) fn make_folder(&self, dir: &Path) -> io::Result<()> {
        self.check_root()?;
        make_folder(&self.root, dir)
    }

    /// Checks that a file of so many bytes fits on the disk, by allocating and freeing it.
    ///
    /// # Errors
    /// The error of the disk: full, or not writable.
    pub fn check_space(&self, bytes: u64) -> io::Result<()> {
        let mut file = tempfile::tempfile_in(&self.root)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes.max(PROBE_BYTES)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.check_space_by_writing(&mut file, bytes),
            other => Ok(other?),
        }
    }

    /// The same on a file system that cannot: so many bytes must be free, and a piece of a file is written.
    fn check_space_by_writing(&self, file: &mut File, bytes: u64) -> io::Result<()> {
        if self.free_bytes().is_some_and(|free| free < bytes) {
            return Err(Errno::NOSPC.into());
        }
        let piece = [0xa5; 4096];
        (0..PROBE_BYTES / 4096).try_for_each(|_| file.write_all(&piece))?;
        file.sync_data()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Checks that this user may write to the output folder, or make it where it is not there yet.
    ///
    /// # Errors
    /// When it is refused: by the rights of the folder, since its file system is read-only, or since the folder is gone.
    pub fn check_rights(&self) -> io::Result<()> {
        self.check_root()?;
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::access(self.nearest_folder(), rights) {
            Err(refused @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Err(refused.into()),
            // What else is wrong the next file says.
            _ => Ok(()),
        }
    }

    /// Checks that the output folder is not gone that this process has made or found: one on a disk that is not mounted
    /// any more is neither made anew on another disk, nor is what is below its mount point written to.
    ///
    /// # Errors
    /// What is gone, and what helps.
    pub fn check_root(&self) -> io::Result<()> {
        let root = self.root.display();
        let reason = match self.known_root.gone(&self.root) {
            None => return Ok(()),
            Some(Gone::Missing) => format!(
                "the output directory {root} is gone; mount its disk again, or restore or create the directory"
            ),
            Some(Gone::Unmounted) => format!(
                "the disk of the output directory {root} is gone; mount it again, or restart callsheet to use the \
                 directory without it"
            ),
        };
        Err(io::Error::new(ErrorKind::NotFound, reason))
    }

    /// The output folder, or the one above it that it will be made in.
    fn nearest_folder(&self) -> &Path {
        let there = self.root.ancestors().find(|path| path.as_os_str().is_empty() || path.exists());
        there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Free space on the disk of the output folder, in bytes, for users other than root.
    pub fn free_bytes(&self) -> Option<u64> {
        // It may not be made yet: the disk is that of the folder it will be in.
        let stat = rustix::fs::statvfs(self.nearest_folder()).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// The outputs of a job that were published before, and are unchanged since: named by its record, or else by its own
    /// sidecar. Their names are on the device on return: the process that renamed them may have been killed before they were.
    pub fn published(&self, output_spec: OutputSpec<'_>) -> Option<Vec<OutputFile>> {
        let (sidecar, files) = self.whole_outputs_of(output_spec, has_its_content)?;
        let dir = self.batch_dir(output_spec.batch);
        let paths = files.iter().map(|file| dir.join(&file.path)).chain(sidecar);
        sync_folders(&self.root, &folders_of(&dir, paths)).is_ok().then_some(files)
    }

    /// The same by their sizes, for one who reads their contents anyway.
    pub fn published_by_size(&self, output_spec: OutputSpec<'_>) -> Option<Vec<OutputFile>> {
        Some(self.whole_outputs_of(output_spec, has_its_size)?.1)
    }

    /// What the sidecar of a job says whose outputs are on disk, unchanged, be it under another layout than this one.
    pub fn published_outputs(
        &self,
        batch: &BatchName,
        layout: &Layout,
        spec: &JobSpec,
    ) -> Option<PublishedOutputs> {
        let dir = self.batch_dir(batch);
        let is_whole = |(_, sidecar): &(PathBuf, Sidecar)| are_whole(&dir, &sidecar.files, has_its_content);
        let known = self.own_sidecars(batch, layout, spec, None).find(is_whole);
        let anywhere = || self.sidecars_anywhere.find(&dir, spec.id).into_iter().find(is_whole);
        known.or_else(anywhere)?.1.published_outputs()
    }

    /// The sidecar that a state that is gone left of a job, wherever it put it, whatever became of the files.
    pub fn sidecar_of_lost_state(
        &self,
        batch: &BatchName,
        layout: &Layout,
        spec: &JobSpec,
    ) -> Option<PathBuf> {
        let known = self.own_sidecars(batch, layout, spec, None).next().map(|(path, _)| path);
        known.or_else(|| {
            // In a folder that this process made there is nothing of others.
            let found =
                (!self.is_new(batch)).then(|| self.sidecars_anywhere.find(&self.batch_dir(batch), spec.id));
            found?.into_iter().next().map(|(path, _)| path)
        })
    }

    /// The sidecar of a job with these outputs, whatever became of them.
    pub fn sidecar_of(&self, output_spec: OutputSpec<'_>, files: &[OutputFile]) -> Option<PathBuf> {
        Some(self.sidecars_by_record(output_spec, files).next()?.0)
    }

    /// The outputs of a job that are on disk, unchanged, with its sidecar, if there is one: where its record says, or else where
    /// a sidecar of it does.
    fn whole_outputs_of(
        &self,
        output_spec: OutputSpec<'_>,
        is_whole: fn(&Path, &OutputFile) -> bool,
    ) -> Option<(Option<PathBuf>, Vec<OutputFile>)> {
        let dir = self.batch_dir(output_spec.batch);
        let recorded = output_spec.job.recorded_outputs();
        if are_whole(&dir, recorded, is_whole) {
            return Some((
                self.sidecar_of(output_spec, recorded),
                recorded.iter().map(OutputFile::on_disk).collect(),
            ));
        }
        let mut sidecars = self.sidecars_by_record(output_spec, recorded);
        let (path, sidecar) = sidecars.find(|(_, sidecar)| are_whole(&dir, &sidecar.files, is_whole))?;
        Some((Some(path), sidecar.files))
    }

    /// The sidecars of a job that has these outputs, with their paths: first the one that they have.
    pub(super) fn sidecars_by_record(
        &self,
        output_spec: OutputSpec<'_>,
        files: &[OutputFile],
    ) -> impl Iterator<Item = (PathBuf, Sidecar)> {
        let OutputSpec { batch, layout, spec, .. } = output_spec;
        let (dir, task) = (self.batch_dir(batch), task_of(output_spec));
        let places = if files.is_empty() { None } else { Some(recorded_paths::sidecars(files)) };
        let places: Vec<PathBuf> = places.into_iter().flatten().map(|path| dir.join(path)).collect();
        let (job, own_task) = (spec.id, task.cloned());
        let read = move |path: PathBuf| own_sidecar(path, job, own_task.as_ref());
        places.into_iter().filter_map(read).chain(self.own_sidecars(batch, layout, spec, task))
    }

    /// The sidecars of a job, with their paths, wherever one may have been put. Where a task is given, those of other tasks
    /// are left out: another service, such as an emulator, may have made the same row.
    pub(super) fn own_sidecars(
        &self,
        batch: &BatchName,
        layout: &Layout,
        spec: &JobSpec,
        task: Option<&TaskId>,
    ) -> impl Iterator<Item = (PathBuf, Sidecar)> {
        let (dir, job, task) = (self.batch_dir(batch), spec.id, task.cloned());
        let names = file_names::job_names(spec);
        let paths = names.iter().flat_map(|name| layout.sidecars(batch, spec, name)).collect::<Vec<_>>();
        let read = move |path: String| own_sidecar(dir.join(path), job, task.as_ref());
        paths.into_iter().chain(layout.unreserved_sidecars(batch, spec)).filter_map(read)
    }

    /// Gives the parts of one job their final names: [`OutputDir::publish_all`].
    ///
    /// # Errors
    /// I/O errors; the parts may then be published again.
    pub fn publish(
        &self,
        output_spec: OutputSpec<'_>,
        parts: &[Part],
        now: Timestamp,
    ) -> io::Result<Vec<OutputFile>> {
        let mut outcomes = self.publish_all(&[Publication { output_spec, parts, now }], || {});
        outcomes.pop().unwrap_or_else(|| Err(ErrorKind::InvalidInput.into()))
    }

    /// The outputs of a job that somebody changed after they were published, by their paths relative to the batch's folder:
    /// they stay when the outputs are fetched again.
    pub fn edited(&self, output_spec: OutputSpec<'_>) -> Vec<String> {
        let recorded = output_spec.job.recorded_outputs();
        let own = match recorded {
            [] => self.sidecars_by_record(output_spec, recorded).next().map(|(_, own)| own.files),
            recorded => Some(recorded.to_vec()),
        };
        let dir = self.batch_dir(output_spec.batch);
        let is_edited = |file: &OutputFile| is_edited(&dir.join(&file.path), &[file]).unwrap_or(false);
        own.into_iter().flatten().filter(is_edited).map(|file| file.path).collect()
    }
}

/// The task that made the outputs of a job, where one is known.
fn task_of(output_spec: OutputSpec<'_>) -> Option<&TaskId> {
    output_spec.job.state().task()
}

/// The sidecar at a path, with the path; none if it is not there or not this job's.
fn own_sidecar(path: PathBuf, job: JobId, task: Option<&TaskId>) -> Option<(PathBuf, Sidecar)> {
    let sidecar = Sidecar::read(&path).filter(|sidecar| sidecar.is_of(job, task))?;
    Some((path, sidecar))
}

/// Whether a disk, or a quota on it, is full.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a disk cannot be written to, for whatever reason.
pub fn is_disk_error(error: &io::Error) -> bool {
    is_disk_full(error) || error.kind() == io::ErrorKind::ReadOnlyFilesystem
}

/// Whether a folder cannot be written to, for a reason that has nothing to do with the file and may pass: its rights, or a
/// disk or a network file system that fails.
pub fn is_folder_error(error: &io::Error) -> bool {
    const FAILING: [Errno; 8] = [
        Errno::IO,
        Errno::STALE,
        Errno::NODEV,
        Errno::NXIO,
        Errno::NOTCONN,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::TIMEDOUT,
    ];
    error.kind() == ErrorKind::PermissionDenied
        || Errno::from_io_error(error).is_some_and(|errno| FAILING.contains(&errno))
}

fn make_folder(root: &Path, dir: &Path) -> io::Result<()> {
    if !root.is_dir() {
        return fs::create_dir_all(dir);
    }
    let mut path = root.to_owned();
    for name in dir.strip_prefix(root).unwrap_or(Path::new("")).components() {
        path.push(name);
        let found = match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match fs::create_dir(&path) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
                path.symlink_metadata()?
            }
            other => other?,
        };
        if found.is_symlink() {
            let reason = format!("{} is a link; a directory is required", path.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, reason));
        }
        if !found.is_dir() {
            return Err(Errno::EXIST.into());
        }
    }
    Ok(())
}

/// The folders of a batch that lead to its files.
pub(super) fn folders_of(batch_dir: &Path, files: impl IntoIterator<Item = PathBuf>) -> BTreeSet<PathBuf> {
    let above = |file: PathBuf| file.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
    files.into_iter().flat_map(above).filter(|folder| folder.starts_with(batch_dir)).collect()
}

/// Waits until the name of a folder, and those of all above it, are on the device. One that refuses was made by
/// somebody else, and not just now.
fn sync_names_above(dir: &Path) -> io::Result<()> {
    let synced = |above: &Path| File::open(above).and_then(|folder| folder.sync_all()).is_ok();
    dir.canonicalize()?.ancestors().skip(1).take_while(|above| synced(above)).for_each(drop);
    Ok(())
}

/// Creates a file, or truncates it; one that is a link is refused.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?.into())
}

/// Opens a file that was left at so many bytes, to go on there; one that is a link, or of another length, is
/// refused.
pub fn append(path: &Path, bytes: u64) -> io::Result<File> {
    let flags = OFlags::APPEND | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    if file.metadata()?.len() != bytes {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(file)
}

/// SHA-256 of a file, in hexadecimal.
pub fn hash_file(path: &Path) -> io::Result<String> {
    hash(&mut File::open(path)?)
}

/// SHA-256 of the rest of a file from its present position, in hexadecimal.
pub fn hash(file: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// Whether the outputs of a job are all there; false where it has none.
fn are_whole(dir: &Path, files: &[OutputFile], is_whole: fn(&Path, &OutputFile) -> bool) -> bool {
    !files.is_empty() && files.iter().all(|file| is_whole(&dir.join(&file.path), file))
}

fn has_its_size(path: &Path, file: &OutputFile) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() == file.bytes)
}

pub(super) fn has_its_content(path: &Path, file: &OutputFile) -> bool {
    has_its_size(path, file) && hash_file(path).is_ok_and(|hash| hash == file.sha256)
}

#[cfg(test)]
mod tests;
