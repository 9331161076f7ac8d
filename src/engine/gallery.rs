//! The galleries of batches, written while jobs end.
//!
//! It costs the engine a note of each batch whose jobs end. What is written comes from the state, off the engine's loop, not
//! too often (`write_interval.rs`), and nothing waits for a device. A gallery that a disk refuses is told of once and tried
//! again later, by itself; no job and no other gallery fails for it.

mod list;
mod output_details;
mod pages;
mod write_interval;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::job::OutputFile;
use crate::domain::job_state::JobStateCounts;
use crate::domain::parked_reason::Parked;
use crate::domain::time::Tick;
use crate::engine::engine_handle::Handle;
use crate::engine::gallery::output_details::MediaReader;
use crate::engine::gallery::pages::BatchPages;
use crate::engine::gallery::write_interval::{LOOK_INTERVAL, RETRY_INTERVAL, rest_after};
use crate::engine::scheduler::{BatchOverview, Scheduler, Step};
use crate::engine::{EngineError, blocking, sleep};
use crate::output::publish::OutputDir;
use crate::pages::INDEX;
use crate::pages::gallery_index::OPEN_MAX;
use crate::store::{BatchRecord, Change, JobRecord, Store};

/// Unfinished batches that are looked at then, at most.
const LOOK_MAX: usize = 50;
/// How long outputs are looked into at most by a command that opens a page. What is left is found out the next time.
const FACTS_AT_ONCE: Duration = Duration::from_secs(3);
/// The same at the end of a run.
const FACTS_AT_END: Duration = Duration::from_millis(250);
/// Where more jobs end between two times that galleries are written, outputs are looked into later.
const BUSY_JOBS: usize = 100;

/// A batch as its gallery shows it, but for its ended jobs.
#[derive(Debug, Clone)]
pub struct Standing {
    pub record: BatchRecord,
    /// Its jobs by state.
    pub states: JobStateCounts,
    /// What keeps its queue.
    pub parked: Option<Parked>,
    /// Jobs that have begun and not ended, at most [`OPEN_MAX`].
    pub open: Vec<JobRecord>,
}

impl Standing {
    /// A batch in numbers, with its open jobs, those first that are overdue.
    pub fn new(record: BatchRecord, overview: &BatchOverview, mut open: Vec<JobRecord>) -> Standing {
        open.sort_by_key(|record| (!record.job.is_overdue(), record.key.seq));
        open.truncate(OPEN_MAX);
        Standing { record, states: overview.states, parked: overview.parked, open }
    }
}

/// The galleries of a state's batches. Cheap to clone; nothing where they are switched off.
#[derive(Debug, Default, Clone)]
pub struct Gallery(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    store: Arc<Store>,
    output_dir: OutputDir,
    clock: Clock,
    /// Flags of commands that pages show.
    flags: String,
    /// Batches whose galleries are to be written.
    changed: Mutex<BTreeSet<BatchNo>>,
    notify: Notify,
    /// One at a time writes.
    batches: Mutex<HashMap<BatchNo, BatchPages>>,
    /// Looks into outputs.
    reader: Mutex<MediaReader>,
    /// Jobs that ended since galleries were written.
    ended: AtomicUsize,
    /// Commands that wait for the galleries.
    waiting: AtomicUsize,
    /// Batches that the list has.
    listed: Mutex<BTreeSet<BatchNo>>,
    /// Batches whose galleries the disk refused, and that was told.
    refused: Mutex<BTreeSet<BatchNo>>,
    /// The disk refused the list of batches, and that was told.
    is_list_refused: AtomicBool,
}

/// Follows an engine as long as it is there.
#[derive(Debug)]
pub(super) struct Following {
    worker: Option<tokio::task::JoinHandle<()>>,
    /// When all unfinished batches are looked at next.
    look_due: Tick,
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.abort();
        }
    }
}

impl Gallery {
    /// The galleries in an output folder; `output.gallery` switches them off.
    pub fn new(store: Arc<Store>, output_dir: OutputDir, clock: Clock, flags: String) -> Gallery {
        Gallery(output_dir.options().gallery.then(|| {
            let (changed, batches, listed) = (Mutex::default(), Mutex::default(), Mutex::default());
            let (reader, ended, waiting) = (Mutex::default(), AtomicUsize::new(0), AtomicUsize::new(0));
            let (refused, is_list_refused) = (Mutex::default(), AtomicBool::new(false));
            let notify = Notify::new();
            Arc::new(Shared {
                store,
                output_dir,
                clock,
                flags,
                changed,
                notify,
                batches,
                reader,
                ended,
                waiting,
                listed,
                refused,
                is_list_refused,
            })
        }))
    }

    /// Whether galleries are written: they are not switched off.
    pub fn is_written(&self) -> bool {
        self.0.is_some()
    }

    /// Begins to write the galleries of a running engine.
    pub(super) fn follow(&self, engine: Handle) -> Following {
        let worker = self.0.clone().map(|shared| tokio::spawn(shared.work(engine)));
        Following { worker, look_due: Tick(0) }
    }

    /// Sees a step that is durable.
    pub(super) fn observe(&self, following: &mut Following, scheduler: &Scheduler, step: &Step, now: Tick) {
        let Some(shared) = &self.0 else { return };
        shared.ended.fetch_add(step.ended.len(), Ordering::Relaxed);
        let is_due = now >= following.look_due;
        let mut outcomes = step.changes.iter().filter_map(|change| match change {
            Change::End(record) => Some(record.key.batch),
            _ => None,
        });
        let first = outcomes.next();
        if first.is_none() && !is_due {
            return;
        }
        {
            let mut changed = shared.changed.lock().unwrap_or_else(PoisonError::into_inner);
            let mut last = None;
            for no in first.into_iter().chain(outcomes) {
                if last != Some(no) {
                    last = Some(no);
                    changed.insert(no);
                }
            }
            if is_due {
                following.look_due = now.after(LOOK_INTERVAL);
                let unfinished = scheduler.batches().filter(|batch| !batch.is_done());
                changed.extend(unfinished.map(|batch| batch.no).take(LOOK_MAX));
            }
        }
        shared.notify.notify_one();
    }

    /// Writes the galleries of batches as they stand, and the list. Where a disk refuses, that is a warning.
    pub async fn finish(&self, batches: Vec<Standing>) {
        let Some(shared) = self.0.clone() else { return };
        shared.waiting.fetch_add(1, Ordering::Relaxed);
        blocking(move || {
            for standing in batches {
                shared.tell(&standing.record, shared.update_with_facts(&standing, false, FACTS_AT_END));
            }
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
            shared.reader.lock().unwrap_or_else(PoisonError::into_inner).rest();
            let listed = list::write(&shared.store, &shared.output_dir);
            shared.tell_of_list(listed);
        })
        .await;
    }

    /// Looks into outputs that are about to leave the disk, so that their thumbnails stay.
    pub(super) fn keep_facts(&self, batch: &BatchName, files: &[OutputFile]) {
        let Some(shared) = &self.0 else { return };
        let mut reader = shared.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = output_details::keep_facts(&shared.output_dir, batch, files, &mut reader) {
            tracing::debug!(%batch, %error, "an output has no thumbnail");
        }
    }

    /// Makes the gallery of a batch current, or the list of all. Returns the page; nothing where galleries are switched
    /// off.
    ///
    /// # Errors
    /// When the state cannot be read or the page not be written.
    pub async fn open(&self, batch: Option<Standing>) -> Result<Option<PathBuf>, EngineError> {
        let Some(shared) = self.0.clone() else { return Ok(None) };
        shared.waiting.fetch_add(1, Ordering::Relaxed);
        blocking(move || {
            let written = batch
                .as_ref()
                .map_or(Ok(()), |standing| shared.update_with_facts(standing, true, FACTS_AT_ONCE));
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
            written?;
            let page = match &batch {
                Some(standing) => shared.output_dir.batch_dir(&standing.record.name).join(INDEX),
                None => shared.output_dir.root().join(INDEX),
            };
            match list::write(&shared.store, &shared.output_dir) {
                Err(error) if batch.is_none() => Err(error),
                listed => {
                    shared.tell_of_list(listed);
                    Ok(Some(page))
                }
            }
        })
        .await
    }
}

impl Shared {
    /// Writes what changed, until its engine ends.
    async fn work(self: Arc<Shared>, engine: Handle) {
        // When galleries that a disk refused are tried again.
        let mut refused: HashMap<BatchNo, Duration> = HashMap::new();
        loop {
            let next = refused.values().min().map(|due| due.saturating_sub(self.clock.elapsed()));
            tokio::select! {
                () = self.notify.notified() => {}
                () = sleep(next) => {}
            }
            let begun = self.clock.elapsed();
            let mut changed =
                std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
            changed.extend(refused.keys());
            changed.retain(|no| refused.get(no).is_none_or(|due| *due <= begun));
            let mut ended = false;
            let mut standings = Vec::new();
            for no in &changed {
                refused.remove(no);
                let standing = match engine.standing(*no, OPEN_MAX).await {
                    Ok(Some((record, overview, open))) => Standing::new(record, &overview, open),
                    Ok(None) => match self.finished(*no).await {
                        Some(standing) => standing,
                        None => continue,
                    },
                    Err(_) => return,
                };
                ended |= standing.record.is_done();
                let shared = self.clone();
                let (is_written, standing) = blocking(move || {
                    (shared.tell(&standing.record, shared.update(&standing, false)), standing)
                })
                .await;
                if is_written {
                    standings.push(standing.record);
                } else {
                    refused.insert(*no, self.clock.elapsed() + RETRY_INTERVAL);
                }
            }
            if self.note_listed(&changed) || ended {
                let shared = self.clone();
                blocking(move || shared.tell_of_list(list::write(&shared.store, &shared.output_dir))).await;
            }
            let took = self.clock.elapsed().saturating_sub(begun);
            let rested = begun + took + rest_after(took);
            let is_busy = self.ended.swap(0, Ordering::Relaxed) > BUSY_JOBS;
            if is_busy {
                self.change(standings.iter().map(|record| record.no));
            } else {
                let shared = self.clone();
                blocking(move || {
                    let gives_way = || shared.waiting.load(Ordering::Relaxed) > 0;
                    shared.find_facts(&standings, rested, &gives_way);
                })
                .await;
            }
            tokio::time::sleep(rested.saturating_sub(self.clock.elapsed())).await;
        }
    }

    /// The galleries of these batches are to be written.
    fn change(&self, batches: impl IntoIterator<Item = BatchNo>) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).extend(batches);
        self.notify.notify_one();
    }

    /// Looks into the outputs of batches whose galleries were just written, until that time or somebody who waits for the
    /// galleries. What was found out is written the next time.
    fn find_facts(&self, records: &[BatchRecord], until: Duration, gives_way: &dyn Fn() -> bool) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut again = Vec::new();
        for record in records {
            let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(pages) = batches.get_mut(&record.no) else { continue };
            let before = pages.stamp.clone();
            let goes_on = || self.clock.elapsed() < until && !gives_way();
            let found = pages.find_facts(&self.store, &self.output_dir, record, &mut reader, &goes_on);
            let is_left = match found {
                Ok(is_left) => is_left,
                Err(error) => {
                    tracing::debug!(batch = %record.name, %error, "thumbnails are left for later");
                    false
                }
            };
            if pages.stamp != before || is_left {
                again.push(record.no);
            } else if !is_left && record.is_done() {
                // What is on the disk tells where to go on.
                batches.remove(&record.no);
            }
        }
        if again.is_empty() {
            reader.rest();
        } else {
            self.change(again);
        }
    }

    /// Writes a gallery, looks into outputs for a while, and writes what was found out.
    fn update_with_facts(&self, standing: &Standing, looks: bool, most: Duration) -> Result<(), EngineError> {
        self.update(standing, looks)?;
        let until = self.clock.elapsed() + most;
        self.find_facts(std::slice::from_ref(&standing.record), until, &|| false);
        let written = self.update(standing, false);
        if standing.record.is_done() {
            self.batches.lock().unwrap_or_else(PoisonError::into_inner).remove(&standing.record.no);
        }
        written
    }

    /// A batch that has left the engine.
    async fn finished(self: &Arc<Shared>, no: BatchNo) -> Option<Standing> {
        let shared = self.clone();
        let found = blocking(move || shared.store.batch(no)).await;
        let record = found.ok()??;
        let overview = BatchOverview::of_finished(&record);
        Some(Standing::new(record, &overview, Vec::new()))
    }

    /// Writes the gallery of a batch; `looks` says whether it is looked whether outputs are still there.
    fn update(&self, standing: &Standing, looks: bool) -> Result<(), EngineError> {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let no = standing.record.no;
        let pages = batches.entry(no).or_insert_with(|| {
            let folder = self.output_dir.batch_dir(&standing.record.name).join(crate::pages::GALLERY_FOLDER);
            BatchPages::load(&self.store, &folder, standing)
        });
        let now = self.clock.now().wall;
        let written = pages.update(&self.store, &self.output_dir, standing, looks, now, &self.flags);
        if written.is_err() {
            // What is on the disk tells where to go on.
            batches.remove(&no);
        }
        written
    }

    /// Notes that the list has these batches. Returns whether one of them is new in it.
    fn note_listed(&self, batches: &BTreeSet<BatchNo>) -> bool {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = listed.len();
        listed.extend(batches);
        listed.len() > before
    }

    /// Tells of a gallery that could not be written, once. It is a warning unless others cannot be written, either: a disk
    /// that is full refuses all. Returns whether it was written.
    fn tell(&self, batch: &BatchRecord, written: Result<(), EngineError>) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &batch.name;
        match written {
            Ok(()) => {
                if refused.remove(&batch.no) {
                    tracing::info!(batch = %name, "the gallery can be written again");
                }
                true
            }
            Err(error) => {
                let is_first = refused.is_empty();
                match refused.insert(batch.no) {
                    true if is_first => {
                        tracing::warn!(batch = %name, %error, "the gallery could not be written; trying again later");
                    }
                    true => {
                        tracing::info!(batch = %name, %error, "this gallery could not be written, either; trying again later");
                    }
                    false => {}
                }
                false
            }
        }
    }

    fn tell_of_list(&self, written: Result<(), EngineError>) {
        let was_refused = self.is_list_refused.swap(written.is_err(), Ordering::Relaxed);
        match written {
            Err(error) if !was_refused => {
                tracing::warn!(%error, "the list of batches could not be written; trying again later");
            }
            Ok(()) if was_refused => tracing::info!("the list of batches can be written again"),
            _ => {}
        }
    }
}
