//! From downloaded parts to finished files: checked, synced, named, never overwriting anything that
//! is not ours.
//!
//! The order makes every crash harmless: the parts are synced; the sidecar, which names the job and
//! the hash of each file, is written; the parts are renamed; the folder is synced. A job's final
//! file is recognised by its sidecar afterwards, so nothing is fetched or paid for twice.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::domain::ids::{BatchName, JobId};
use crate::domain::job::{Job, JobSpec, Landed, OutputFile};
use crate::failpoint;
use crate::output::Media;
use crate::output::layout::{self, Layout};
use crate::output::sidecar::Sidecar;

/// Room that is asked for at least before a disk that refused a file is believed again, in bytes: the file, its
/// sidecar and a folder.
pub const PROBE_BYTES: u64 = 64 * 1024;
/// Most edited copies of one output that are kept.
const EDITED_MAX: u32 = 100;

/// One downloaded part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Path of the downloaded part.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    pub media: Media,
}

#[derive(Debug, Clone)]
pub struct OutputDir {
    root: PathBuf,
}

/// A job whose outputs are published.
#[derive(Debug, Clone, Copy)]
pub struct OutputSpec<'a> {
    pub batch: &'a BatchName,
    /// Layout of the names of its files.
    pub layout: &'a Layout,
    /// The job as it was accepted.
    pub spec: &'a JobSpec,
    /// The job as it stands.
    pub job: &'a Job,
}

/// Who owns a file name.
enum Owner {
    Nobody,
    Us,
    SomebodyElse,
}

impl OutputDir {
    /// Outputs go below `root`.
    pub fn new(root: &Path) -> OutputDir {
        OutputDir { root: root.to_owned() }
    }

    pub fn batch_dir(&self, batch: &BatchName) -> PathBuf {
        self.root.join(batch.as_str())
    }

    /// Where output `n` (from 1) of a job is downloaded to.
    pub fn part_path(&self, batch: &BatchName, job: JobId, n: usize) -> PathBuf {
        self.batch_dir(batch).join(format!(".{job}-{n}.part"))
    }

    /// Creates a batch's folder, and removes the parts that a killed process left in it. On return its name is on
    /// the device.
    ///
    /// # Errors
    /// When the folder cannot be made or written to.
    pub fn prepare(&self, batch: &BatchName) -> io::Result<()> {
        let dir = self.batch_dir(batch);
        make_folder(&self.root, &dir)?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if is_part(&entry.file_name().to_string_lossy()) {
                fs::remove_file(entry.path())?;
            }
        }
        // Finds out about a read-only folder before anything is paid for.
        tempfile::tempfile_in(&dir)?;
        sync_names_above(&dir)
    }

    /// Creates a batch's folder if it is missing.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn make_batch_dir(&self, batch: &BatchName) -> io::Result<()> {
        make_folder(&self.root, &self.batch_dir(batch))
    }

    /// Checks that a file of so many bytes fits on the disk, by allocating and freeing it.
    ///
    /// # Errors
    /// The error of the disk: full, or not writable.
    pub fn check_space(&self, bytes: u64) -> io::Result<()> {
        let mut file = tempfile::tempfile_in(&self.root)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes.max(PROBE_BYTES)) {
            // A file system that cannot: a piece of a file has to do.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let piece = [0xa5; 4096];
                (0..PROBE_BYTES / 4096).try_for_each(|_| file.write_all(&piece))?;
                file.sync_data()
            }
            other => Ok(other?),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Free space on the disk of the output folder, in bytes, for users other than root.
    pub fn free_bytes(&self) -> Option<u64> {
        // It may not be made yet: the disk is that of the folder it will be in.
        let there = self.root.ancestors().find(|path| path.exists())?;
        let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        let stat = rustix::fs::statvfs(there).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// The outputs of a job that landed before: named by its own sidecar, and unchanged since. Their names are
    /// on the device on return: the process that renamed them may have been killed before they were.
    pub fn published(&self, output_spec: OutputSpec<'_>) -> Option<Vec<OutputFile>> {
        let files = self.sidecar_of(output_spec.batch, output_spec.layout, output_spec.spec)?.files;
        let dir = self.batch_dir(output_spec.batch);
        let mut folders = files.iter().filter_map(|file| Some(dir.join(&file.path).parent()?.to_owned()));
        folders.all(|folder| sync_names(&dir, &folder).is_ok()).then_some(files)
    }

    /// What the sidecar of a job says whose outputs are on disk, unchanged.
    pub fn published_record(&self, batch: &BatchName, layout: &Layout, spec: &JobSpec) -> Option<Landed> {
        self.sidecar_of(batch, layout, spec)?.landed()
    }

    /// The sidecar of a job, whatever became of the files that it names.
    pub fn sidecar_path(&self, batch: &BatchName, layout: &Layout, spec: &JobSpec) -> Option<PathBuf> {
        let dir = self.batch_dir(batch);
        let paths = layout::job_names(spec).map(|name| dir.join(layout.sidecar(batch, spec, &name)));
        paths.into_iter().find(|path| Sidecar::read(path).is_some_and(|sidecar| sidecar.job == spec.id))
    }

    fn sidecar_of(&self, batch: &BatchName, layout: &Layout, spec: &JobSpec) -> Option<Sidecar> {
        let dir = self.batch_dir(batch);
        for name in layout::job_names(spec) {
            let path = dir.join(layout.sidecar(batch, spec, &name));
            let Some(sidecar) = Sidecar::read(&path).filter(|sidecar| sidecar.job == spec.id) else {
                continue;
            };
            let is_whole = |file: &OutputFile| {
                let path = dir.join(&file.path);
                fs::metadata(&path).is_ok_and(|meta| meta.len() == file.bytes)
                    && hash_file(&path).is_ok_and(|hash| hash == file.sha256)
            };
            if !sidecar.files.is_empty() && sidecar.files.iter().all(is_whole) {
                return Some(sidecar);
            }
        }
        None
    }

    /// Gives parts their final names. On return they, their sidecar and their names are on the
    /// device.
    ///
    /// # Errors
    /// I/O errors; the parts may then be published again.
    pub fn publish(&self, output_spec: OutputSpec<'_>, parts: &[Part]) -> io::Result<Vec<OutputFile>> {
        for part in parts {
            File::open(&part.path)?.sync_data()?;
        }
        failpoint::hit("part-written");
        for (index, name) in layout::job_names(output_spec.spec).into_iter().enumerate() {
            // Outputs keep a name that they have.
            if index == 0 && output_spec.spec.apart && self.own_sidecar(&name, output_spec).is_none() {
                continue;
            }
            if let Some(files) = self.publish_as(&name, output_spec, parts)? {
                return Ok(files);
            }
        }
        let reason = format!("every name for job {} belongs to another file", output_spec.spec.label);
        Err(io::Error::new(io::ErrorKind::AlreadyExists, reason))
    }

    /// The job's own sidecar under one of its names.
    fn own_sidecar(&self, name: &str, output_spec: OutputSpec<'_>) -> Option<Sidecar> {
        let OutputSpec { batch, layout, spec, .. } = output_spec;
        let path = self.batch_dir(batch).join(layout.sidecar(batch, spec, name));
        Sidecar::read(&path).filter(|sidecar| sidecar.job == spec.id)
    }

    /// The outputs of a job that somebody changed after they were published, by their paths relative to the batch's folder:
    /// they stay when the outputs are fetched again.
    pub fn edited(&self, output_spec: OutputSpec<'_>) -> Vec<String> {
        let names = layout::job_names(output_spec.spec);
        let Some(own) = names.iter().find_map(|name| self.own_sidecar(name, output_spec)) else {
            return Vec::new();
        };
        let dir = self.batch_dir(output_spec.batch);
        let is_edited = |file: &&OutputFile| is_edited(&dir.join(&file.path), &[file]).unwrap_or(false);
        own.files.iter().filter(is_edited).map(|file| file.path.clone()).collect()
    }

    /// Publishes under one name; none if another file has it.
    fn publish_as(
        &self,
        name: &str,
        output_spec: OutputSpec<'_>,
        parts: &[Part],
    ) -> io::Result<Option<Vec<OutputFile>>> {
        let OutputSpec { batch, layout, spec, .. } = output_spec;
        let dir = self.batch_dir(batch);
        let mut files: Vec<OutputFile> = parts
            .iter()
            .enumerate()
            .map(|(index, part)| OutputFile {
                path: layout.path(batch, spec, name, index + 1, &part.media.ext),
                bytes: part.bytes,
                sha256: part.sha256.clone(),
                content_type: part.media.content_type.clone(),
                edited: None,
            })
            .collect();
        let sidecar_path = dir.join(layout.sidecar(batch, spec, name));
        let owner = owner(&sidecar_path, &dir, &files, spec.id);
        if matches!(owner, Owner::SomebodyElse) {
            return Ok(None);
        }
        if let Some(own) = self.own_sidecar(name, output_spec) {
            beside_edited(&dir, output_spec, &own, &mut files)?;
        }
        let folder = sidecar_path.parent().unwrap_or(&dir);
        make_folder(&self.root, folder)?;
        // Called a part, so that nothing takes it for a result and a sweep finds it.
        let draft = self.part_path(batch, spec.id, 0);
        let flags = if matches!(owner, Owner::Us) { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        Sidecar::of(output_spec, files.clone()).write(create(&draft)?)?;
        match rename(&draft, &sidecar_path, flags) {
            // Another job of the same name was faster: the sidecar is what takes a name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&draft)?;
                return Ok(None);
            }
            other => other?,
        }
        failpoint::hit("sidecar-written");
        for (part, file) in parts.iter().zip(&files) {
            let target = dir.join(&file.path);
            match rename(&part.path, &target, flags) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // Somebody put a file there between the look and the rename. Parts renamed
                    // before it keep their bytes: they are put back.
                    for (part, file) in parts.iter().zip(&files) {
                        if !part.path.exists() {
                            fs::rename(dir.join(&file.path), &part.path)?;
                        }
                    }
                    fs::remove_file(&sidecar_path)?;
                    return Ok(None);
                }
                other => other?,
            }
        }
        failpoint::hit("named");
        sync_names(&dir, folder)?;
        failpoint::hit("landed");
        Ok(Some(files))
    }
}

/// Whether `path` exists and is none of the expected files.
fn is_edited(path: &Path, may_be: &[&OutputFile]) -> io::Result<bool> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    if !found.is_file() {
        return Ok(true);
    }
    let is_as_long = |file: &&&OutputFile| file.bytes == found.len();
    let may_be: Vec<_> = may_be.iter().filter(is_as_long).collect();
    if may_be.is_empty() {
        return Ok(true);
    }
    let hash = hash_file(path)?;
    Ok(may_be.iter().all(|file| file.sha256 != hash))
}

/// Gives files that are downloaded again a name beside those that a person edited meanwhile.
fn beside_edited(
    dir: &Path,
    output_spec: OutputSpec<'_>,
    own: &Sidecar,
    files: &mut [OutputFile],
) -> io::Result<()> {
    let OutputSpec { batch, layout, spec, .. } = output_spec;
    let [_, short, long] = layout::job_names(spec);
    for (index, file) in files.iter_mut().enumerate() {
        let fetched = file.clone();
        let is_theirs = |path: &str| {
            let landed = own.files.iter().find(|file| file.path == path);
            let may_be: Vec<&OutputFile> = landed.into_iter().chain([&fetched]).collect();
            is_edited(&dir.join(path), &may_be)
        };
        let usual = fetched.path.clone();
        if !is_theirs(&usual)? {
            continue;
        }
        let ext = usual.rsplit('.').next().unwrap_or_default().to_owned();
        let numbered = (2..=EDITED_MAX).map(|n| format!("{long}.{n}"));
        let mut free = None;
        for name in [short.clone(), long.clone()].into_iter().chain(numbered) {
            let path = layout.path(batch, spec, &name, index + 1, &ext);
            if path != usual && !is_theirs(&path)? {
                free = Some(path);
                break;
            }
        }
        let Some(path) = free else {
            let reason = format!("{usual} and all its copies were edited; rename some of them");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        };
        tracing::info!(batch = %batch, edited = usual, path, "an output was edited: kept, and downloaded under \
                                                              another name");
        file.edited = Some(usual);
        file.path = path;
    }
    Ok(())
}

/// Whether a disk, or a quota on it, is full.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a disk cannot be written to, for whatever reason.
pub fn is_disk_error(error: &io::Error) -> bool {
    is_disk_full(error) || error.kind() == io::ErrorKind::ReadOnlyFilesystem
}

/// Creates a folder below the output folder. The output folder itself may be a link, since a person named it; what
/// is below it belongs to the program, and a link there may lead anywhere.
fn make_folder(root: &Path, dir: &Path) -> io::Result<()> {
    if !root.is_dir() {
        return fs::create_dir_all(dir);
    }
    let mut path = root.to_owned();
    for name in dir.strip_prefix(root).unwrap_or(Path::new("")).components() {
        path.push(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let found = path.symlink_metadata()?;
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

/// Waits until the names in a folder of a batch, and of the folders that lead to it, are on the device.
fn sync_names(batch_dir: &Path, folder: &Path) -> io::Result<()> {
    let below = folder.ancestors().take_while(|folder| folder.starts_with(batch_dir));
    below.into_iter().try_for_each(|folder| File::open(folder)?.sync_all())
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

/// Whether a name was made by [`OutputDir::part_path`].
fn is_part(name: &str) -> bool {
    let Some(middle) = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".part")) else {
        return false;
    };
    middle.split_once('-').is_some_and(|(job, n)| {
        job.len() == 32 && job.bytes().all(|b| b.is_ascii_hexdigit()) && n.parse::<usize>().is_ok()
    })
}

/// Whose the names of a job's outputs are: the sidecar tells, and without one anything that is there
/// is somebody else's.
fn owner(sidecar: &Path, dir: &Path, files: &[OutputFile], job: JobId) -> Owner {
    if sidecar.symlink_metadata().is_ok() {
        let ours = Sidecar::read(sidecar).is_some_and(|found| found.job == job);
        return if ours { Owner::Us } else { Owner::SomebodyElse };
    }
    let is_taken = files.iter().any(|file| dir.join(&file.path).symlink_metadata().is_ok());
    if is_taken { Owner::SomebodyElse } else { Owner::Nobody }
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, flags) {
        // A file system without the flag: the owner was looked up a moment ago.
        Err(Errno::INVAL | Errno::NOSYS) if !to.exists() => fs::rename(from, to),
        other => Ok(other?),
    }
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

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::domain::credits::Credits;
    use crate::domain::ids::{AttemptNo, Fingerprint, Seq, TaskId};
    use crate::domain::job::{Order, State};
    use crate::domain::request::Kind;

    struct Bench {
        dir: tempfile::TempDir,
        output_dir: OutputDir,
        batch: BatchName,
        layout: Layout,
    }

    fn bench() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let (output_dir, batch) = (OutputDir::new(dir.path()), "b".parse().unwrap());
        output_dir.prepare(&batch).unwrap();
        Bench { dir, output_dir, batch, layout: Layout::default() }
    }

    fn spec(id: u8, label: &str) -> JobSpec {
        let order = Order {
            line: 2,
            kind: Kind::Image,
            model: None,
            body: Map::new(),
            price: Some(Credits(4)),
            bound: None,
            formula: String::new(),
            waivable: Credits::ZERO,
            allowance: None,
            max_credits: None,
            priority: 0,
            deadline: None,
            meta: Map::new(),
        };
        let (id, fingerprint) = (JobId([id; 16]), Fingerprint([id; 16]));
        JobSpec { seq: Seq(0), id, fingerprint, variation: 1, label: label.into(), apart: false, order }
    }

    impl Bench {
        fn job(&self) -> Job {
            let urls = vec!["http://x/1.png".to_owned()];
            Job::at(AttemptNo::FIRST, State::Fetching { task: TaskId("t1".into()), urls })
        }

        fn part(&self, job: JobId, n: usize, content: &str) -> Part {
            let path = self.output_dir.part_path(&self.batch, job, n);
            fs::write(&path, content).unwrap();
            let sha256 = hash_file(&path).unwrap();
            let media = Media { content_type: "image/png".into(), ext: "png".into() };
            Part { path, bytes: content.len() as u64, sha256, media }
        }

        fn publish(&self, spec: &JobSpec, contents: &[&str]) -> Vec<String> {
            let parts: Vec<Part> =
                contents.iter().enumerate().map(|(n, text)| self.part(spec.id, n + 1, text)).collect();
            let job = self.job();
            let output_spec = OutputSpec { batch: &self.batch, layout: &self.layout, spec, job: &job };
            let files = self.output_dir.publish(output_spec, &parts).unwrap();
            assert_eq!(self.output_dir.published(output_spec), Some(files.clone()));
            files.into_iter().map(|file| file.path).collect()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.dir.path().join("b")).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.dir.path().join("b").join(name)).unwrap()
        }
    }

    #[test]
    fn parts_become_files_with_a_sidecar() {
        let bench = bench();
        assert_eq!(bench.publish(&spec(1, "hero"), &["one", "two"]), ["hero.png", "hero-2.png"]);
        assert_eq!(bench.names(), ["hero-2.png", "hero.json", "hero.png"]);
    }

    #[test]
    fn two_jobs_with_one_name_both_land() {
        let bench = bench();
        assert_eq!(bench.publish(&spec(1, "hero"), &["one"]), ["hero.png"]);
        assert_eq!(bench.publish(&spec(2, "hero"), &["two"]), ["hero-02020202.png"]);
        assert_eq!(bench.read("hero.png"), "one");
    }

    /// The names are free when both look: the sidecar that comes first has the name, and keeps it.
    #[test]
    fn many_jobs_with_one_name_that_land_at_once_keep_their_sidecars() {
        for _ in 0..20 {
            let bench = bench();
            std::thread::scope(|scope| {
                for id in 1..=6 {
                    let bench = &bench;
                    scope.spawn(move || bench.publish(&spec(id, "hero"), &["one", "two"]));
                }
            });
            assert_eq!(bench.names().len(), 6 * 3, "{:?}", bench.names());
        }
    }

    #[test]
    fn a_foreign_file_is_never_overwritten() {
        let bench = bench();
        fs::write(bench.dir.path().join("b/hero-2.png"), "mine").unwrap();
        assert_eq!(
            bench.publish(&spec(1, "hero"), &["one", "two"]),
            ["hero-01010101.png", "hero-01010101-2.png"]
        );
        assert_eq!(bench.read("hero-2.png"), "mine");
    }

    #[test]
    fn a_dangling_link_in_the_way_is_not_followed() {
        let bench = bench();
        let outside = bench.dir.path().join("outside");
        std::os::unix::fs::symlink(&outside, bench.dir.path().join("b/hero.png")).unwrap();
        assert_eq!(bench.publish(&spec(1, "hero"), &["one"]), ["hero-01010101.png"]);
        assert!(!outside.exists());
    }

    #[test]
    fn landing_again_after_a_crash_takes_the_same_name() {
        let bench = bench();
        bench.publish(&spec(1, "hero"), &["one"]);
        fs::remove_file(bench.dir.path().join("b/hero.png")).unwrap();
        assert_eq!(bench.publish(&spec(1, "hero"), &["one again"]), ["hero.png"]);
        assert_eq!(bench.names(), ["hero.json", "hero.png"]);
    }

    #[test]
    fn a_changed_file_is_not_taken_for_a_result() {
        let bench = bench();
        let spec = spec(1, "hero");
        bench.publish(&spec, &["one"]);
        fs::write(bench.dir.path().join("b/hero.png"), "eno").unwrap();
        let job = bench.job();
        let output_spec = OutputSpec { batch: &bench.batch, layout: &bench.layout, spec: &spec, job: &job };
        assert_eq!(bench.output_dir.published(output_spec), None);
    }

    #[test]
    fn what_a_person_edited_stays_and_the_output_lands_beside_it() {
        let bench = bench();
        let spec = spec(1, "hero");
        bench.publish(&spec, &["one", "two"]);
        let edit = |name: &str, text: &str| fs::write(bench.dir.path().join("b").join(name), text).unwrap();
        edit("hero-2.png", "cut");
        let job = bench.job();
        let output_spec = OutputSpec { batch: &bench.batch, layout: &bench.layout, spec: &spec, job: &job };
        assert_eq!(bench.output_dir.edited(output_spec), ["hero-2.png"]);
        assert_eq!(bench.publish(&spec, &["one", "two"]), ["hero.png", "hero-01010101-2.png"]);
        assert_eq!(bench.output_dir.edited(output_spec), [""; 0]);
        let files = bench.output_dir.published(output_spec).unwrap();
        let edited: Vec<Option<&str>> = files.iter().map(|file| file.edited.as_deref()).collect();
        assert_eq!(edited, [None, Some("hero-2.png")]);
        assert_eq!(
            (bench.read("hero-2.png"), bench.read("hero-01010101-2.png")),
            ("cut".into(), "two".into())
        );
        // The copy is edited, too.
        edit("hero-01010101-2.png", "cut again");
        let long = format!("hero-{}-2.png", spec.id);
        assert_eq!(bench.publish(&spec, &["one", "two"]), ["hero.png".to_owned(), long]);
        assert_eq!(bench.read("hero-01010101-2.png"), "cut again");
    }

    #[test]
    fn a_folder_or_a_link_in_an_outputs_place_stays() {
        let bench = bench();
        let spec = spec(1, "hero");
        bench.publish(&spec, &["one"]);
        fs::remove_file(bench.dir.path().join("b/hero.png")).unwrap();
        fs::create_dir(bench.dir.path().join("b/hero.png")).unwrap();
        assert_eq!(bench.publish(&spec, &["one"]), ["hero-01010101.png"]);
    }

    #[test]
    fn a_job_that_is_to_be_kept_apart_carries_its_identity_from_the_start() {
        let bench = bench();
        bench.publish(&spec(1, "hero"), &["one"]);
        let other = JobSpec { apart: true, ..spec(2, "HERO") };
        assert_eq!(bench.publish(&other, &["two"]), ["HERO-02020202.png"]);
        // One that landed under its plain name keeps it.
        bench.publish(&spec(3, "Owl"), &["three"]);
        fs::remove_file(bench.dir.path().join("b/Owl.png")).unwrap();
        assert_eq!(bench.publish(&JobSpec { apart: true, ..spec(3, "Owl") }, &["three"]), ["Owl.png"]);
    }

    #[test]
    fn leftover_parts_are_swept_and_nothing_else() {
        let bench = bench();
        bench.part(JobId([1; 16]), 1, "half");
        for name in [".keep.part", "b.part", ".0101-1.part"] {
            fs::write(bench.dir.path().join("b").join(name), "").unwrap();
        }
        bench.output_dir.prepare(&bench.batch).unwrap();
        assert_eq!(bench.names(), [".0101-1.part", ".keep.part", "b.part"]);
    }
}
