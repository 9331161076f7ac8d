//! What lies in one inbox and how far each file has come: the folder is looked at, nothing is changed.
//!
//! A file waits until it is complete, is ready until it is handed out, and out until it is filed away or
//! changes. What can be seen and not be used is blocked: said once, and looked at again with every scan.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileType};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::domain::time::{Millis, Tick};
use crate::ingest::inbox::ReadyManifest;
use crate::ingest::inbox::complete_manifest::{CompletionSign, FileStat, FileState};
use crate::ingest::inbox::folder_lock::{FolderLock, FolderLockError};
use crate::ingest::inbox::ignored_names::{has_manifest_ending, is_left_alone, other_ending_report};
use crate::ingest::inbox::settle_time::SettleTimes;

/// Files of one inbox that are kept in mind at once. What lies there beyond that is found by a later
/// scan, when some of these have been filed away.
const KNOWN_MAX: usize = 50_000;

type Name = Arc<OsStr>;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct FileIndex {
    folder: PathBuf,
    /// Keeps other processes from handing out the same files.
    lock: Option<FolderLock>,
    files: HashMap<Name, IndexedFile>,
    due: BTreeSet<(Tick, Name)>,
    /// The file that was written first comes first.
    ready: BTreeSet<((i64, i64), Name)>,
    scans: u64,
    pub(super) known_max: usize,
    /// How long what is written here in place has to stay unchanged.
    settle: Millis,
    /// The same, as the file system asks for it.
    waits: SettleTimes,
    /// What keeps the folder from being read, as it was last reported.
    trouble: Option<String>,
    is_full: bool,
    /// Links, pipes and the like, and files with other endings, which the last scan passed over.
    passed_over: HashSet<OsString>,
    reports: Vec<String>,
}

#[derive(Debug)]
struct IndexedFile {
    state: FileState,
    stage: FileStage,
    /// The scan that saw it last.
    scan: u64,
    /// What its owner was told last.
    last_report: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileStage {
    Waiting(Tick),
    /// Filed under the time it was written.
    Ready((i64, i64)),
    Out,
    Blocked,
}

impl FileIndex {
    /// The folder need not exist yet; `lock` is its lock, where that was taken already. `settle` is how long what is written
    /// there in place has to stay unchanged.
    pub(super) fn new(folder: &Path, lock: Option<FolderLock>, settle: Millis) -> FileIndex {
        FileIndex {
            folder: folder.to_owned(),
            lock,
            files: HashMap::new(),
            due: BTreeSet::new(),
            ready: BTreeSet::new(),
            scans: 0,
            known_max: KNOWN_MAX,
            settle,
            waits: SettleTimes::here(settle),
            trouble: None,
            is_full: false,
            passed_over: HashSet::new(),
            reports: Vec::new(),
        }
    }

    /// What its owner should be told, once each.
    pub(super) fn take_reports(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reports)
    }

    /// When a waiting file has to be looked at.
    pub(super) fn next_due(&self) -> Option<Tick> {
        self.due.first().map(|(tick, _)| *tick)
    }

    /// Whether a file could be handed out.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A sign was seen of a name.
    pub(super) fn note(&mut self, name: &OsStr, sign: CompletionSign, now: Tick) {
        if is_left_alone(name) || !has_manifest_ending(name) {
            return;
        }
        // What cannot even be looked at is told by the next scan, which looks at all of them.
        if let Err(error) = self.look_at(&Name::from(name), sign, now) {
            tracing::debug!(inbox = %self.folder.display(), ?name, %error, "cannot be inspected");
        }
    }

    /// A file that was handed out could not be used yet: it is looked at again after `wait`.
    pub(super) fn put_back(&mut self, name: &OsStr, wait: Millis, now: Tick) {
        if self.files.get(name).is_some_and(|known| known.stage == FileStage::Out) {
            self.place(&Name::from(name), FileStage::Waiting(now.after(wait)));
        }
    }

    /// Looks through the whole folder, which is made where there is none.
    pub(super) fn scan(&mut self, now: Tick) {
        self.scans += 1;
        match self.walk(now) {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    self.reports.push(format!("inbox {} can be read again", self.folder.display()));
                }
                self.forget_what_is_gone();
            }
            Err(error) => {
                let trouble = match &error {
                    FolderLockError::Io(error) => format!(
                        "cannot be read: {error}; it is retried with every scan: the user that runs callsheet needs the \
                         rights to read, write and enter it"
                    ),
                    FolderLockError::Taken(_) => format!(
                        "{error}: this daemon accepts nothing from it until that one ends; it is retried with every scan"
                    ),
                };
                if self.trouble.as_ref() != Some(&trouble) {
                    self.reports.push(format!("inbox {} {trouble}", self.folder.display()));
                    self.trouble = Some(trouble);
                }
            }
        }
    }

    /// Locks what the folder's name stands for now. Nothing is known of a folder that cannot be locked.
    fn keep_locked(&mut self) -> Result<(), FolderLockError> {
        if let Some(lock) = &self.lock
            && lock.is_of(&self.folder)?
        {
            return Ok(());
        }
        self.lock = None;
        match FolderLock::take(&self.folder) {
            Ok(lock) => self.lock = Some(lock),
            Err(error) => {
                self.forget_all();
                return Err(error);
            }
        }
        Ok(())
    }

    fn walk(&mut self, now: Tick) -> Result<(), FolderLockError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.folder)?;
                fs::read_dir(&self.folder)?
            }
            other => other?,
        };
        self.keep_locked()?;
        // At every scan: the folder may have been mounted meanwhile.
        if let Ok(stat) = rustix::fs::statfs(&self.folder) {
            self.waits = SettleTimes::on(stat.f_type, self.settle);
        }
        let (mut is_full, mut trouble, mut passed_over) = (false, None, HashSet::new());
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if is_left_alone(&name) {
                continue;
            }
            // Most file systems tell the kind with the name: folders cost no further look.
            if let Ok(kind) = entry.file_type()
                && !kind.is_file()
            {
                // A folder may have been made on purpose; whatever else has a manifest's name was meant as one.
                if !kind.is_dir() && passed_over.len() < self.known_max {
                    if !self.passed_over.contains(&name) {
                        self.reports.push(passed_over_report(&entry.path(), kind));
                    }
                    passed_over.insert(name);
                }
                continue;
            }
            if !has_manifest_ending(&name) {
                if passed_over.len() < self.known_max {
                    if !self.passed_over.contains(&name) {
                        self.reports.push(other_ending_report(&entry.path()));
                    }
                    passed_over.insert(name);
                }
                continue;
            }
            let name = Name::from(name);
            if self.files.len() >= self.known_max && !self.files.contains_key(&name) {
                is_full = true;
                continue;
            }
            if let Err(error) = self.look_at(&name, CompletionSign::Found, now) {
                trouble = Some(error);
            }
            if let Some(known) = self.files.get_mut(&name) {
                known.scan = self.scans;
            }
        }
        if is_full && !self.is_full {
            let (folder, most) = (self.folder.display(), self.known_max);
            self.reports.push(format!("inbox {folder} holds more than {most} files; the rest waits"));
        }
        self.is_full = is_full;
        self.passed_over = passed_over;
        trouble.map_or(Ok(()), |error| Err(error.into()))
    }

    fn forget_all(&mut self) {
        self.files.clear();
        self.due.clear();
        self.ready.clear();
        self.passed_over.clear();
    }

    fn forget_what_is_gone(&mut self) {
        let gone: Vec<Name> = self
            .files
            .iter()
            .filter(|(_, known)| known.scan != self.scans)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in gone {
            self.forget(&name);
        }
    }

    /// Looks at the files whose wait is over.
    pub(super) fn settle(&mut self, now: Tick) {
        while let Some((_, name)) = self.due.first().filter(|(tick, _)| *tick <= now) {
            let name = Arc::clone(name);
            self.examine(&name, now);
        }
    }

    /// The ready file that was written first, if it is still what it was. It is not handed out again
    /// before it changes, is put back, or leaves the folder.
    pub(super) fn hand_out(&mut self, now: Tick) -> Option<ReadyManifest> {
        // Another folder may have taken its place since the last scan, which another process watches.
        if !self.ready.is_empty() && self.keep_locked().is_err() {
            self.forget_all();
        }
        while let Some((_, name)) = self.ready.first() {
            let name = Arc::clone(name);
            let path = self.path(&name);
            let stat = self.files.get(&name).map(|known| known.state.stat);
            match (look_at(&path), stat) {
                (Ok(Some(found)), Some(stat)) if found == stat => {
                    self.place(&name, FileStage::Out);
                    return Some(ReadyManifest { path, stat });
                }
                _ => self.examine(&name, now),
            }
        }
        None
    }

    fn look_at(&mut self, name: &Name, sign: CompletionSign, now: Tick) -> io::Result<()> {
        let Some(stat) = look_at(&self.path(name))? else {
            self.forget(name);
            return Ok(());
        };
        let Some(known) = self.files.get_mut(name) else {
            let state = FileState::first(stat, sign, now);
            let known = IndexedFile { state, stage: FileStage::Out, scan: self.scans, last_report: None };
            self.files.insert(Arc::clone(name), known);
            self.place(name, FileStage::Waiting(state.ready_at(self.waits)));
            return Ok(());
        };
        let is_changed = known.state.again(stat, sign, now);
        let ready_at = known.state.ready_at(self.waits);
        match known.stage {
            FileStage::Ready(_) | FileStage::Out if !is_changed => {}
            FileStage::Blocked if !is_changed => self.examine(name, now),
            // One that was put back keeps its wait, unless it changes.
            FileStage::Waiting(due) if !is_changed && due > ready_at && sign == CompletionSign::Found => {}
            _ => self.place(name, FileStage::Waiting(ready_at)),
        }
        Ok(())
    }

    /// Decides about a file whose wait may be over.
    fn examine(&mut self, name: &Name, now: Tick) {
        let path = self.path(name);
        let stat = match look_at(&path) {
            Ok(Some(stat)) => stat,
            Ok(None) => return self.forget(name),
            Err(error) => return self.block(name, unreadable(&error)),
        };
        let Some(known) = self.files.get_mut(name) else { return };
        known.state.again(stat, CompletionSign::Found, now);
        let ready_at = known.state.ready_at(self.waits);
        if ready_at > now {
            return self.place(name, FileStage::Waiting(ready_at));
        }
        match inspect(&path, &stat) {
            Inspection::Fine => {
                known.last_report = None;
                self.place(name, FileStage::Ready(stat.identity.modified()));
            }
            // What was looked at before was out of date: opening asks the server of a network file system.
            Inspection::Changed(stat) => {
                known.state = FileState::first(stat, CompletionSign::Found, now);
                let ready_at = known.state.ready_at(self.waits);
                self.place(name, FileStage::Waiting(ready_at));
            }
            Inspection::Obstacle(why) => self.block(name, why),
        }
    }

    fn path(&self, name: &OsStr) -> PathBuf {
        self.folder.join(name)
    }

    fn block(&mut self, name: &Name, why: String) {
        let path = self.path(name);
        let Some(known) = self.files.get_mut(name) else { return };
        if known.last_report.as_ref() != Some(&why) {
            self.reports.push(format!("{} {why}", path.display()));
            known.last_report = Some(why);
        }
        self.place(name, FileStage::Blocked);
    }

    fn place(&mut self, name: &Name, stage: FileStage) {
        self.lift(name);
        let Some(known) = self.files.get_mut(name) else { return };
        known.stage = stage;
        match stage {
            FileStage::Waiting(tick) => {
                self.due.insert((tick, Arc::clone(name)));
            }
            FileStage::Ready(modified) => {
                self.ready.insert((modified, Arc::clone(name)));
            }
            FileStage::Out | FileStage::Blocked => {}
        }
    }

    /// Takes a file out of whatever it waits in.
    fn lift(&mut self, name: &Name) {
        match self.files.get(name).map(|known| known.stage) {
            Some(FileStage::Waiting(tick)) => {
                self.due.remove(&(tick, Arc::clone(name)));
            }
            Some(FileStage::Ready(modified)) => {
                self.ready.remove(&(modified, Arc::clone(name)));
            }
            _ => {}
        }
    }

    fn forget(&mut self, name: &Name) {
        self.lift(name);
        self.files.remove(name);
    }
}

/// Looks at a name without following it; nothing where there is no regular file.
fn look_at(path: &Path) -> io::Result<Option<FileStat>> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(meta.is_file().then(|| FileStat::of(&meta))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is said of something in an inbox that is not a regular file.
fn passed_over_report(path: &Path, kind: FileType) -> String {
    let what = if kind.is_symlink() { "a symbolic link" } else { "not a regular file" };
    format!(
        "{} is {what}: it is ignored; to submit the manifest, copy the file into the inbox",
        path.display()
    )
}

/// What opening a complete file shows.
enum Inspection {
    Fine,
    /// It is not what it looked like.
    Changed(FileStat),
    /// It cannot be used, and what to do.
    Obstacle(String),
}

fn inspect(path: &Path, stat: &FileStat) -> Inspection {
    if stat.links > 1 {
        return Inspection::Obstacle(format!(
            "has {} names (hard links), so another user may change it; it stays in place until it has one name: drop \
             a copy instead",
            stat.links
        ));
    }
    // Not followed, and not waited for: the name may have become something else this moment.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
    match opened.map_err(io::Error::from).and_then(|file| file.metadata()) {
        Ok(meta) if meta.is_file() && FileStat::of(&meta) != *stat => {
            Inspection::Changed(FileStat::of(&meta))
        }
        Ok(_) => Inspection::Fine,
        // Gone, or a link by now: the look before it is handed out finds that.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::LOOP)) => {
            Inspection::Fine
        }
        Err(error) => Inspection::Obstacle(unreadable(&error)),
    }
}

fn unreadable(error: &io::Error) -> String {
    format!(
        "cannot be read: {error}; it stays in place and is retried: give the user that runs callsheet the right to \
         read it"
    )
}
