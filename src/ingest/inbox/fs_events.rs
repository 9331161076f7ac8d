//! What happens in a folder, as the kernel tells it: hints about names, never more than that.
//!
//! Hints may be missing (network file systems, an overflowing queue, a folder that was replaced) or
//! outlive their file. A scan finds what they miss, and every hint is checked by a look at the file.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::domain::time::Millis;
use crate::ingest::inbox::complete_manifest::CompletionSign;
use crate::ingest::inbox::folder_lock::FolderId;

/// Names that are noted between two looks. Where there are more, the folder is scanned instead.
const NOTED_MAX: usize = 20_000;

/// Where hints are left for the inbox worker.
#[derive(Debug, Default)]
pub(super) struct FsEvents {
    pending: Mutex<PendingEvents>,
    arrived: tokio::sync::Notify,
}

/// What was left since the last look.
#[derive(Debug, Default)]
pub(super) struct PendingEvents {
    /// The best sign seen of each name.
    pub(super) signs: HashMap<OsString, CompletionSign>,
    /// Files that were put back, and for how long.
    pub(super) put_back: Vec<(OsString, Millis)>,
    /// Hints were lost.
    pub(super) scan: bool,
}

impl FsEvents {
    pub(super) fn take(&self) -> PendingEvents {
        std::mem::take(&mut *self.pending())
    }

    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(super) fn put_back(&self, name: OsString, wait: Millis) {
        self.pending().put_back.push((name, wait));
        self.arrived.notify_one();
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, PendingEvents> {
        // They are hints: what a panicking holder left is as good as any.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_for_scan(&self) {
        self.pending().scan = true;
        self.arrived.notify_one();
    }

    fn sign(&self, name: OsString, sign: CompletionSign) {
        let mut pending = self.pending();
        if pending.signs.len() >= NOTED_MAX && !pending.signs.contains_key(&name) {
            pending.scan = true;
        } else {
            let best = pending.signs.entry(name).or_insert(sign);
            *best = sign.max(*best);
        }
        drop(pending);
        self.arrived.notify_one();
    }

    /// Only what ends a writer's work is a sign: reading a file makes events, too, and our own reading
    /// must not call us.
    fn receive(&self, folder: &Path, beside: &Path, event: notify::Result<Event>) {
        let Ok(event) = event else { return self.ask_for_scan() };
        if event.need_rescan() {
            return self.ask_for_scan();
        }
        let Some(path) = event.paths.first() else { return };
        let sign = match event.kind {
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From))
                if path == folder || path == beside =>
            {
                return self.ask_for_scan();
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => CompletionSign::Closed,
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => CompletionSign::Renamed,
            _ => return,
        };
        if let Some(name) = path.file_name().filter(|_| path.parent() == Some(folder)) {
            self.sign(name.to_owned(), sign);
        }
    }
}

/// A watch of one folder, of that very folder: one that is put in its place is another.
#[derive(Debug)]
pub(super) struct FolderWatch {
    folder: FolderId,
    _watcher: RecommendedWatcher,
}

impl FolderWatch {
    /// Watches what `path` names now.
    ///
    /// # Errors
    /// Where there is no such folder, or the kernel has no watch left.
    pub(super) fn begin(path: &Path, events: &Arc<FsEvents>) -> notify::Result<FolderWatch> {
        // Events name files by absolute paths.
        let path = std::path::absolute(path)?;
        let (events, root) = (Arc::clone(events), path.clone());
        let folder = FolderId::at(&path)?;
        let parent = path.parent().unwrap_or(&path);
        let beside = parent.join(path.file_name().unwrap_or_default());
        let mut watcher = notify::recommended_watcher(move |event| events.receive(&root, &beside, event))?;
        watcher.watch(&path, RecursiveMode::NonRecursive)?;
        // The folder is held open while it is locked, and until it is closed the kernel does not tell that it was removed. The
        // folder above it does; where that cannot be watched, the next scan finds it.
        let _ = watcher.watch(parent, RecursiveMode::NonRecursive);
        Ok(FolderWatch { folder, _watcher: watcher })
    }

    /// Whether `path` still names the folder that is watched.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        FolderId::at(path).is_ok_and(|folder| folder == self.folder)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_file_in_a_folder_with_a_relative_path_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let here = std::env::current_dir().unwrap();
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let inbox = up.join(dir.path().strip_prefix("/").unwrap());
        assert!(inbox.is_relative());
        let events = Arc::new(FsEvents::default());
        let _watch = FolderWatch::begin(&inbox, &events).unwrap();
        fs::write(inbox.join(".a.csv"), "").unwrap();
        fs::rename(inbox.join(".a.csv"), inbox.join("a.csv")).unwrap();
        let signs = async {
            loop {
                events.arrived().await;
                let signs = events.take().signs;
                if let Some(sign) = signs.get(&OsString::from("a.csv")) {
                    return *sign;
                }
            }
        };
        let sign = tokio::time::timeout(Duration::from_secs(60), signs).await;
        assert_eq!(sign, Ok(CompletionSign::Renamed));
    }
}
