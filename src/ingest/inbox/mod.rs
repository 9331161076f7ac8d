//! Inboxes: folders that manifests are dropped into.
//!
//! An [`Inbox`] hands out the manifests of one folder once they are complete; what was taken in of them
//! is filed away afterwards. Until then a manifest stays where it was dropped, so that a crash at any
//! point leads to a second reading, which finds every job there and adds nothing.
//!
//! What is left alone: names that say so and those without a manifest's ending (`ignored_names.rs`), symbolic links,
//! folders, pipes and devices. A file with several hard links stays where it is, too, and is reported: under its other name it may still be
//! changed, or belong to somebody who did not mean to drop it. `link` and then `unlink`, as some writers
//! publish files, ends with one name and is found by the next scan.

mod complete_manifest;
mod dir;
pub mod dispose;
mod dispose_names;
pub mod folder_lock;
mod fs_events;
mod ignored_names;
mod index;
pub mod overlap;
mod settle_time;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::clock::Clock;
use crate::domain::time::{Millis, Tick};
pub use crate::ingest::inbox::complete_manifest::FileStat;
use crate::ingest::inbox::folder_lock::FolderLock;
use crate::ingest::inbox::fs_events::{FolderWatch, FsEvents};
use crate::ingest::inbox::index::FileIndex;
pub use crate::ingest::inbox::settle_time::NETWORK_SETTLE;

/// How a folder is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchOptions {
    /// How often the whole folder is looked through.
    pub rescan: Millis,
    /// Whether the kernel's events are listened to as well.
    pub events: bool,
    /// How long a file that is written in place stays unchanged before it is handed out.
    pub settle: Millis,
}

impl WatchOptions {
    /// By events, and by a look at everything now and then.
    pub fn settling(settle: Millis) -> WatchOptions {
        WatchOptions { rescan: Millis::from_secs(10), events: true, settle }
    }
}

/// A complete manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyManifest {
    /// Where it lies.
    pub path: PathBuf,
    /// What it looked like when it was found complete.
    pub stat: FileStat,
}

/// One folder, watched until this is dropped.
#[derive(Debug)]
pub struct Inbox {
    ready: mpsc::Receiver<ReadyManifest>,
    events: Arc<FsEvents>,
    watcher: JoinHandle<()>,
}

impl Inbox {
    /// Begins to watch `folder`, which is made where there is none. Trouble with it is logged, once, and
    /// it is tried again with every scan. `lock` is the folder's lock, where that was taken already.
    ///
    /// Must be called within a runtime.
    pub fn open(folder: &Path, lock: Option<FolderLock>, watch: WatchOptions, clock: Clock) -> Inbox {
        let events = Arc::new(FsEvents::default());
        // One at a time, so that each is looked at just before it is handed out.
        let (sender, ready) = mpsc::channel(1);
        let watcher = InboxWatcher::new((folder, lock), watch, clock, Arc::clone(&events));
        Inbox { ready, events, watcher: tokio::spawn(watch_folder(watcher, sender)) }
    }

    /// The next complete manifest; of several, the one that was written first. Each is handed out once,
    /// until it changes, is put back or leaves the folder. Nothing when watching broke off.
    ///
    /// Cancel safe: a manifest is not lost when this is dropped before it returns.
    pub async fn next(&mut self) -> Option<ReadyManifest> {
        self.ready.recv().await
    }

    /// Takes back a manifest that cannot be used now: it changed while it was read, or the service's
    /// catalogs cannot be had. It is handed out again after `wait`, and later if it keeps changing.
    pub fn put_back(&self, manifest: &ReadyManifest, wait: Millis) {
        if let Some(name) = manifest.path.file_name() {
            self.events.put_back(name.to_owned(), wait);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// What keeps an inbox, between two of its looks.
#[derive(Debug)]
struct InboxWatcher {
    folder: PathBuf,
    rescan: Millis,
    clock: Clock,
    events: Arc<FsEvents>,
    index: FileIndex,
    has_events: bool,
    watch: Option<FolderWatch>,
    /// Why there is no watch, as it was last reported.
    trouble: Option<String>,
    next_scan: Tick,
}

impl InboxWatcher {
    fn new(
        (folder, lock): (&Path, Option<FolderLock>),
        watch: WatchOptions,
        clock: Clock,
        events: Arc<FsEvents>,
    ) -> InboxWatcher {
        let (index, next_scan) = (FileIndex::new(folder, lock, watch.settle), clock.now().tick);
        let WatchOptions { rescan, events: has_events, .. } = watch;
        let folder = folder.to_owned();
        InboxWatcher {
            folder,
            rescan,
            clock,
            events,
            index,
            has_events,
            watch: None,
            trouble: None,
            next_scan,
        }
    }

    /// Looks at all that happened, and at all whose time has come.
    fn look(&mut self) {
        let pending = self.events.take();
        let now = self.clock.now().tick;
        for (name, wait) in pending.put_back {
            self.index.put_back(&name, wait, now);
        }
        for (name, sign) in pending.signs {
            self.index.note(&name, sign, now);
        }
        if pending.scan || self.next_scan <= now {
            // The watch first: what comes between it and the scan is found by both.
            self.keep_watching();
            self.index.scan(now);
            self.next_scan = self.clock.now().tick.after(self.rescan);
        }
        self.index.settle(now);
        for report in self.index.take_reports() {
            tracing::warn!("{report}");
        }
    }

    /// A folder that was deleted and made again is another one: its watch would stay silent for ever.
    fn keep_watching(&mut self) {
        if !self.has_events || self.watch.as_ref().is_some_and(|watch| watch.is_of(&self.folder)) {
            return;
        }
        self.watch = None;
        // Whether it can be made is the scan's to tell.
        let begun = std::fs::create_dir_all(&self.folder)
            .map_err(notify::Error::io)
            .and_then(|()| FolderWatch::begin(&self.folder, &self.events));
        match begun {
            Ok(watch) => {
                self.watch = Some(watch);
                self.trouble = None;
            }
            Err(error) => {
                let trouble = error.to_string();
                if self.trouble.as_ref() != Some(&trouble) {
                    let (folder, secs) = (self.folder.display(), self.rescan.0.div_ceil(1000));
                    tracing::warn!(
                        "inbox {folder} cannot be watched: {trouble}; scanning it every {secs} s instead"
                    );
                    self.trouble = Some(trouble);
                }
            }
        }
    }

    /// When the next look is due if nothing happens.
    fn wake(&self) -> Tick {
        self.index.next_due().map_or(self.next_scan, |due| due.min(self.next_scan))
    }
}

/// Looks into the folder where a slow file system holds up nobody else.
async fn aside<T: Send + 'static>(
    mut watcher: InboxWatcher,
    work: impl FnOnce(&mut InboxWatcher) -> T + Send + 'static,
) -> io::Result<(InboxWatcher, T)> {
    let work = move || {
        let done = work(&mut watcher);
        (watcher, done)
    };
    Ok(spawn_blocking(work).await?)
}

async fn watch_folder(mut watcher: InboxWatcher, ready: mpsc::Sender<ReadyManifest>) {
    let folder = watcher.folder.clone();
    loop {
        watcher = match aside(watcher, InboxWatcher::look).await {
            Ok((watcher, ())) => watcher,
            Err(error) => return tracing::error!("inbox {} is no longer watched: {error}", folder.display()),
        };
        let wake = tokio::time::sleep(watcher.clock.until(watcher.wake()));
        let events = Arc::clone(&watcher.events);
        tokio::select! {
            permit = ready.reserve(), if watcher.index.has_ready() => {
                let Ok(permit) = permit else { return };
                let handed = aside(watcher, |watcher| watcher.index.hand_out(watcher.clock.now().tick)).await;
                watcher = match handed {
                    Ok((watcher, manifest)) => {
                        if let Some(manifest) = manifest {
                            permit.send(manifest);
                        }
                        watcher
                    }
                    Err(error) => return tracing::error!("inbox {} is no longer watched: {error}", folder.display()),
                };
            }
            () = events.arrived() => {}
            () = wake => {}
            () = ready.closed() => return,
        }
    }
}
