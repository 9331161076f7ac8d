//! A disk that loses its power: what lies on the device at each moment, by what was synced until then.
//!
//! The model is a harsh one, harsher than any file system that is in use: bytes are on the device after a sync
//! of their file that began when they were written, and a name after a sync of its folder. Nothing else
//! is: not after `sync_file_range`, not because of a rename, and not because a neighbour was synced. A `syncfs` is a sync of
//! every file and folder below the folder that it was asked by.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::state::power_loss::trace::{Call, Event};

/// A change, and since when it is on the device.
#[derive(Debug)]
pub struct Change<T> {
    pub entry: usize,
    pub exit: usize,
    /// When the sync ended that made it durable.
    pub durable: Option<usize>,
    pub what: T,
}

impl<T> Change<T> {
    fn new(event: &Event, what: T) -> Change<T> {
        Change { entry: event.entry, exit: event.exit, durable: None, what }
    }

    /// Whether it is on the device when something begins at `moment`.
    pub fn is_durable_by(&self, moment: usize) -> bool {
        self.durable.is_some_and(|durable| durable < moment)
    }

    /// A sync makes durable what was done before it began.
    fn synced(&mut self, sync: &Event) {
        if self.durable.is_none() && self.exit < sync.entry {
            self.durable = Some(sync.exit);
        }
    }
}

/// What a name stands for: a file by its number, a folder, or nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    File(usize),
    Folder,
    Nothing,
}

#[derive(Debug, Default)]
pub struct Disk {
    /// Of each file, what was written to it.
    files: Vec<Vec<Change<Vec<u8>>>>,
    names: BTreeMap<PathBuf, Vec<Change<Target>>>,
}

impl Disk {
    /// What some processes did to it, one after the other. What was there before is not known, and is taken
    /// to be durable.
    pub fn after(events: &[Event]) -> Disk {
        let mut disk = Disk::default();
        for event in events {
            disk.take(event);
        }
        disk
    }

    fn take(&mut self, event: &Event) {
        match &event.call {
            Call::Open { path, empties } => {
                let is_new = self.target(path) == Some(Target::Nothing) || self.target(path).is_none();
                let file = self.file(path, event);
                if *empties && !is_new {
                    self.files[file].push(Change::new(event, Vec::new()));
                }
            }
            Call::Write { path, data } => {
                let file = self.file(path, event);
                self.files[file].push(Change::new(event, data.clone()));
            }
            Call::Sync { path } => self.sync(path, event),
            Call::SyncBelow { path } => self.sync_below(path, event),
            Call::Rename { from, to } => {
                let target = self.target(from).unwrap_or_else(|| {
                    self.files.push(Vec::new());
                    Target::File(self.files.len() - 1)
                });
                self.name(from, event, Target::Nothing);
                self.name(to, event, target);
                if !matches!(target, Target::File(_)) {
                    self.move_names(from, to, event);
                }
            }
            Call::Link { from, to } => {
                let file = self.file(from, event);
                self.name(to, event, Target::File(file));
            }
            Call::Mkdir { path } => self.name(path, event, Target::Folder),
            Call::Remove { path } => self.name(path, event, Target::Nothing),
            Call::Send { .. } => {}
        }
    }

    fn name(&mut self, path: &Path, event: &Event, target: Target) {
        self.names.entry(path.to_owned()).or_default().push(Change::new(event, target));
    }

    /// What lies in a folder goes with it: names that were on the device are there under the new name of the folder.
    fn move_names(&mut self, from: &Path, to: &Path, event: &Event) {
        let within = self.names.iter().filter(|(name, _)| name.starts_with(from) && *name != from);
        let within: Vec<(PathBuf, Option<usize>, Target)> = within
            .filter_map(|(name, changes)| {
                let last = changes.last().filter(|last| last.what != Target::Nothing)?;
                Some((name.clone(), last.durable, last.what))
            })
            .collect();
        for (name, durable, target) in within {
            let moved = to.join(name.strip_prefix(from).unwrap());
            let durable = durable.map(|_| event.exit);
            self.names.entry(name).or_default().push(Change::new(event, Target::Nothing));
            self.names.entry(moved).or_default().push(Change { durable, ..Change::new(event, target) });
        }
    }

    fn target(&self, path: &Path) -> Option<Target> {
        Some(self.names.get(path)?.last()?.what)
    }

    /// The file of that name; a new one where there is none.
    fn file(&mut self, path: &Path, event: &Event) -> usize {
        if let Some(Target::File(file)) = self.target(path) {
            return file;
        }
        self.files.push(Vec::new());
        let file = self.files.len() - 1;
        self.name(path, event, Target::File(file));
        file
    }

    fn sync(&mut self, path: &Path, event: &Event) {
        if let Some(Target::File(file)) = self.target(path) {
            self.files[file].iter_mut().for_each(|write| write.synced(event));
            return;
        }
        let within = self.names.iter_mut().filter(|(name, _)| name.parent() == Some(path));
        within.flat_map(|(_, changes)| changes).for_each(|change| change.synced(event));
    }

    /// A sync of a whole file system counts for what is below the folder that it was asked by: what lies elsewhere may
    /// be on another one.
    fn sync_below(&mut self, folder: &Path, event: &Event) {
        for (_, changes) in self.names.iter_mut().filter(|(name, _)| name.starts_with(folder)) {
            for change in changes.iter_mut() {
                if let Target::File(file) = change.what {
                    self.files[file].iter_mut().for_each(|write| write.synced(event));
                }
                change.synced(event);
            }
        }
    }

    /// All that was ever written to files of this name.
    pub fn writes(&self, path: &Path) -> impl Iterator<Item = &Change<Vec<u8>>> {
        let mut files: Vec<usize> = Vec::new();
        for change in self.names.get(path).into_iter().flatten() {
            if let Target::File(file) = change.what
                && !files.contains(&file)
            {
                files.push(file);
            }
        }
        files.into_iter().flat_map(|file| &self.files[file])
    }

    /// All that was ever written to the file that got this name at that moment.
    pub fn writes_to_renamed(&self, path: &Path, at: usize) -> impl Iterator<Item = &Change<Vec<u8>>> {
        let named = self.names[path].iter().find(|change| change.entry == at).unwrap();
        let file = match named.what {
            Target::File(file) => Some(file),
            Target::Folder | Target::Nothing => None,
        };
        file.into_iter().flat_map(|file| &self.files[file])
    }

    /// Every name there ever was.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.names.keys().map(PathBuf::as_path)
    }

    /// Names that stand for files when something begins at `moment`.
    pub fn paths_at(&self, moment: usize) -> impl Iterator<Item = &Path> {
        let is_file = move |changes: &[Change<Target>]| {
            let last = changes.iter().rfind(|change| change.exit < moment);
            last.is_some_and(|change| matches!(change.what, Target::File(_)))
        };
        self.names.iter().filter(move |(_, changes)| is_file(changes)).map(|(path, _)| path.as_path())
    }

    /// What of a file, and of the folders that lead to it, would be lost in a power cut when something begins
    /// at `moment`: nothing, if all is well.
    pub fn lost(&self, path: &Path, moment: usize) -> Option<String> {
        let changes = self.names.get(path).map(Vec::as_slice).unwrap_or_default();
        let Some(name) = changes.iter().rfind(|change| change.exit < moment) else {
            return Some(format!("{} is not there", path.display()));
        };
        let Target::File(file) = name.what else { return Some(format!("{} is no file", path.display())) };
        let unsynced =
            self.files[file].iter().find(|write| write.entry < moment && !write.is_durable_by(moment));
        if let Some(write) = unsynced {
            return Some(format!("{}: what was written at {} is not synced", path.display(), write.entry));
        }
        self.lost_name(path, moment)
    }

    /// The same of the name alone, and of the folders that lead to it.
    pub fn lost_name(&self, path: &Path, moment: usize) -> Option<String> {
        path.ancestors().find_map(|path| {
            let change = self.names.get(path)?.iter().rfind(|change| change.exit < moment)?;
            let said =
                || format!("{}: the name that it got at {} is not synced", path.display(), change.exit);
            (!change.is_durable_by(moment)).then(said)
        })
    }
}

#[test]
fn a_sync_covers_what_was_done_before_it_began_and_nothing_else() {
    let trace = r#"1 mkdir("/w/d", 0777) = 0
1 openat(AT_FDCWD</w>, "/w/d/a.part", O_CREAT|O_WRONLY, 0666) = 3</w/d/a.part>
1 write(3</w/d/a.part>, "1", 1) = 1
1 write(3</w/d/a.part>, "2", 1 <unfinished ...>
2 fdatasync(3</w/d/a.part>) = 0
1 <... write resumed>) = 1
1 fdatasync(3</w/d/a.part>) = 0
1 rename("/w/d/a.part", "/w/d/a") = 0
1 fsync(4</w/d>) = 0
1 fsync(5</w>) = 0
"#;
    let lost = |lines: usize, moment| {
        let text: String = trace.lines().take(lines).flat_map(|line| [line, "\n"]).collect();
        Disk::after(&crate::state::power_loss::trace::read(&text, 0, Path::new("/")))
            .lost(Path::new("/w/d/a"), moment)
    };
    assert_eq!(lost(10, 99), None);
    assert_eq!(lost(10, 9).unwrap(), "/w/d: the name that it got at 0 is not synced");
    assert_eq!(lost(8, 99).unwrap(), "/w/d/a: the name that it got at 7 is not synced");
    let without = trace.replace("1 fdatasync(3</w/d/a.part>) = 0\n", "");
    let disk = Disk::after(&crate::state::power_loss::trace::read(&without, 0, Path::new("/")));
    let lost = disk.lost(Path::new("/w/d/a"), 99).unwrap();
    assert_eq!(lost, "/w/d/a: what was written at 3 is not synced");
}
