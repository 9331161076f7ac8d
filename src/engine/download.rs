//! From result links to files that are whole, checked, named and on the device.

mod part_writer;
mod transfer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Interval;

use crate::api::DownloadError;
use crate::clock::{Clock, whole_ms};
use crate::domain::job::{Job, JobSpec, OutputFile};
use crate::domain::slow_download::SlowDownload;
use crate::domain::task::{DISK_FAULT, Fault};
use crate::domain::time::{Millis, Tick};
use crate::engine::EngineDeps;
use crate::engine::blocking;
use crate::engine::committed_steps::StepCommit;
use crate::engine::download::transfer::Transfer;
use crate::engine::effect_context::EffectContext;
use crate::engine::publish_queue::{PublishQueue, QueuedPublication};
use crate::engine::scheduler::{FetchFault, FetchOrder};
use crate::engine::suspended_downloads::{
    FailedDownload, KnownLength, PartialDownload, SuspendedDownload, SuspendedDownloads,
};
use crate::failpoint;
use crate::metrics::{Answer, Endpoint};
use crate::output::file_names::Layout;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::{Part, hash_file, is_disk_error, is_folder_error};

/// How often in a row the download of one link is resumed and gets no further.
const RESUMES_MAX: u32 = 4;
/// Requests for one link before the download starts over, however far each got.
const REQUESTS_MAX: u32 = 64;
/// Bytes of a job's outputs that stay in memory until they are published, at most.
const IN_MEMORY_MAX_BYTES: usize = 256 * 1024;
/// Most outputs of one task that are believed.
const OUTPUTS_MAX: usize = 256;

/// Longest time between two looks at a download's rate, and at whether another waits.
const RATE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How often in a row the rest of a file may fail, before the download starts over.
const EMPTY_RESUMES_MAX: u32 = 8;
/// After so long a download that is still slow is given up.
const SLOW_MAX: Millis = Millis::from_secs(24 * 3600);

/// Downloads and publishes the outputs of one job.
#[derive(Debug)]
pub(super) struct Fetcher<'a> {
    deps: &'a EngineDeps,
    publish_queue: &'a Arc<PublishQueue>,
    suspended_downloads: &'a SuspendedDownloads,
    clock: Clock,
    /// The commit of what it follows from: before that nothing is written to the disk.
    commit: &'a StepCommit,
    /// Other versions of the row, whose outputs give the plain name up.
    others: Vec<(JobSpec, Job)>,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(
        deps: &'a EngineDeps,
        context: &'a EffectContext,
        commit: &'a StepCommit,
        others: Vec<(JobSpec, Job)>,
    ) -> Fetcher<'a> {
        let EffectContext { publish_queue, suspended_downloads, clock, .. } = context;
        Fetcher { deps, publish_queue, suspended_downloads, clock: *clock, commit, others }
    }

    pub(super) async fn fetch(&self, order: &Arc<FetchOrder>) -> Result<Vec<OutputFile>, FetchFault> {
        let layout = Layout::of_batch(order.layout.as_deref(), &self.deps.layout);
        // What was published by this process and is wanted again is not whole any more, but where a row went back to an older version
        // or an output waits for the object store: then its batch is not new any more.
        let is_edited = !self.others.is_empty() || order.is_superseded;
        if is_edited || !self.deps.output_dir.is_new(&order.batch) {
            self.commit.wait().await;
            if let Some(files) = self.published_before(order, &layout).await {
                if !is_edited {
                    return Ok(files);
                }
                self.name_versions(order, &layout).await.map_err(|error| disk_fault(&error, 0))?;
                return Ok(self.published_before(order, &layout).await.unwrap_or(files));
            }
        }
        if order.urls.len() > OUTPUTS_MAX {
            let text = format!("the task lists {} results, more than {OUTPUTS_MAX}", order.urls.len());
            return Err(FetchFault::Lasting(Fault::new("too_many_outputs", text)));
        }
        let parts = match self.parts(order).await {
            Ok(parts) => parts,
            // What came of it stays, and is where the next one goes on.
            Err(fault @ FetchFault::Slow(_)) => return Err(fault),
            Err(fault) => {
                self.sweep(order).await;
                return Err(fault);
            }
        };
        let bytes = parts.iter().map(|part| part.bytes).max().unwrap_or_default();
        let is_kept = |(index, part): &(usize, &Part)| part.path != self.part_path(order, *index);
        let kept: BTreeMap<usize, Part> =
            parts.iter().enumerate().filter(is_kept).map(|(index, part)| (index, part.clone())).collect();
        if !self.others.is_empty()
            && let Err(error) = self.name_versions(order, &layout).await
        {
            self.sweep(order).await;
            self.note_failed(order, kept, BTreeMap::new());
            return Err(disk_fault(&error, bytes));
        }
        let publication = QueuedPublication {
            output_dir: self.deps.output_dir.clone(),
            order: order.clone(),
            layout,
            parts,
            now: self.clock.now().wall,
        };
        // What is uploaded afterwards keeps its slot: uploads that are slower than downloads do not fill the disk.
        let is_in_memory = publication.parts.iter().all(|part| part.unwritten.is_some());
        let gives_up_slot = is_in_memory && self.deps.outputs.is_none();
        match self.publish_queue.publish(publication, gives_up_slot).await {
            Ok(files) => {
                if order.urls.len() > 1 {
                    self.remove_kept(order, &files).await;
                }
                Ok(files)
            }
            Err(error) => {
                // What waits for a disk does not fill it meanwhile.
                self.sweep(order).await;
                self.note_failed(order, kept, BTreeMap::new());
                Err(disk_fault(&error, bytes))
            }
        }
    }

    /// Removes what was kept of a job while not all of its results had come.
    async fn remove_kept(&self, order: &Arc<FetchOrder>, files: &[OutputFile]) {
        let (output_dir, order, files) = (self.deps.output_dir.clone(), order.clone(), files.to_vec());
        blocking(move || output_dir.remove_kept(&order.batch, &order.spec, &files)).await;
    }

    /// Has the outputs of versions of the row that are not wanted give the plain name up.
    async fn name_versions(&self, order: &Arc<FetchOrder>, layout: &Layout) -> std::io::Result<()> {
        let (output_dir, order, layout) = (self.deps.output_dir.clone(), order.clone(), layout.clone());
        let others = self.others.clone();
        let name = move || {
            let FetchOrder { batch, spec, job, .. } = &*order;
            let output_spec = OutputSpec { batch, layout: &layout, spec, job };
            match order.is_superseded {
                true => output_dir.set_aside(output_spec),
                false => output_dir.name_versions(output_spec, &others),
            }
        };
        blocking(name).await
    }

    /// Downloads every link, also where one before it does not work: each result is paid for.
    async fn parts(&self, order: &FetchOrder) -> Result<Vec<Part>, FetchFault> {
        let mut failed = self.left_before(order).await;
        let suspended = self.suspended_downloads.resume(order.key, &order.urls);
        let (mut done, mut partial) = match suspended {
            Some(suspended) => (suspended.done, Some(suspended.partial)),
            None => (std::mem::take(&mut failed.whole), None),
        };
        let mut faults = Vec::new();
        for (index, url) in order.urls.iter().enumerate() {
            if done.contains_key(&index) {
                continue;
            }
            let path = self.part_path(order, index);
            let known = failed.lengths.remove(&index);
            let begun = match partial.take_if(|(of, _)| *of == index) {
                Some((_, partial)) => partial,
                None => PartialDownload::of_length(self.clock.now().tick, known),
            };
            let in_memory: usize =
                done.values().map(|part| part.unwritten.as_ref().map_or(0, Vec::len)).sum();
            let in_memory_max = IN_MEMORY_MAX_BYTES.saturating_sub(in_memory);
            match self.part(order, url, &path, begun, in_memory_max).await {
                Ok(part) => {
                    done.insert(index, part);
                }
                Err(DownloadEnd::Failed(fault, length)) => {
                    failed.lengths.extend(length.map(|length| (index, length)));
                    let is_of_link_alone = is_of_link(&fault);
                    faults.push(fault);
                    if !is_of_link_alone {
                        break;
                    }
                }
                Err(DownloadEnd::Yielded(partial)) => {
                    let text =
                        format!("fewer than {} a second, after {} bytes", self.min_rate(), partial.bytes);
                    let done =
                        blocking(move || write_out(done)).await.map_err(|error| disk_fault(&error, 0))?;
                    let suspended =
                        SuspendedDownload { urls: order.urls.clone(), done, partial: (index, partial) };
                    self.suspended_downloads.suspend(order.key, suspended);
                    return Err(FetchFault::Slow(Fault::new("slow", text)));
                }
            }
        }
        failpoint::hit("downloaded");
        self.commit.wait().await;
        match decisive(faults) {
            None => Ok(done.into_values().collect()),
            Some(fault) => Err(self.keep_whole(order, done, fault, failed.lengths).await),
        }
    }

    /// What an earlier download of the job left that failed, as far as it is still there.
    async fn left_before(&self, order: &FetchOrder) -> FailedDownload {
        let mut failed = self.suspended_downloads.take_failed(order.key, &order.urls);
        if !failed.whole.is_empty() {
            let mut whole = std::mem::take(&mut failed.whole);
            let is_there = |part: &Part| hash_file(&part.path).is_ok_and(|hash| hash == part.sha256);
            failed.whole = blocking(move || {
                whole.retain(|_, part| is_there(part));
                whole
            })
            .await;
        }
        failed
    }

    /// Keeps the results of a job that are whole while others are not, for its next download and for a person. Returns the
    /// fault with what is missing, and where the rest is.
    async fn keep_whole(
        &self,
        order: &FetchOrder,
        mut done: BTreeMap<usize, Part>,
        mut fault: FetchFault,
        lengths: BTreeMap<usize, KnownLength>,
    ) -> FetchFault {
        let is_of_host = is_of_link(&fault) || matches!(fault, FetchFault::Unavailable { .. });
        // What waits for a disk does not fill it meanwhile.
        done.retain(|index, part| is_of_host || part.path != self.part_path(order, *index));
        let mut whole = BTreeMap::new();
        if !done.is_empty() {
            let (output_dir, batch, spec) =
                (self.deps.output_dir.clone(), order.batch.clone(), order.spec.clone());
            let keep = move |(index, mut part): (usize, Part)| {
                output_dir.keep_part(&batch, &spec, index + 1, &mut part).ok().map(|()| (index, part))
            };
            whole = blocking(move || done.into_iter().filter_map(keep).collect()).await;
        }
        if order.urls.len() > 1 && is_of_host {
            let worded = fault.fault_mut();
            worded.message = format!("{}: {}", missing(order.urls.len(), &whole), worded.message);
            if !whole.is_empty() {
                let dir = self.deps.output_dir.incomplete_dir(&order.batch);
                worded.message.push_str(&format!("; what came is in {}", dir.display()));
            }
        }
        self.note_failed(order, whole, lengths);
        fault
    }

    /// Keeps for the next download what this one leaves.
    fn note_failed(
        &self,
        order: &FetchOrder,
        whole: BTreeMap<usize, Part>,
        lengths: BTreeMap<usize, KnownLength>,
    ) {
        if !whole.is_empty() || !lengths.is_empty() {
            let failed = FailedDownload { urls: order.urls.clone(), lengths, whole };
            self.suspended_downloads.note_failed(order.key, failed);
        }
    }

    fn min_rate(&self) -> String {
        format!("{} bytes", self.deps.min_rate.bytes_per_second)
    }

    /// Removes what came of a download that failed: the next one begins anew, and there may be none.
    async fn sweep(&self, order: &FetchOrder) {
        // The temporary file of the sidecar has the number 0.
        let _ = tokio::fs::remove_file(self.deps.output_dir.part_path(&order.batch, order.spec.id, 0)).await;
        for index in 0..order.urls.len() {
            // One that never came is not there, and one that stays is swept by the next run.
            let _ = tokio::fs::remove_file(self.part_path(order, index)).await;
        }
    }

    fn part_path(&self, order: &FetchOrder, index: usize) -> PathBuf {
        self.deps.output_dir.part_path(&order.batch, order.spec.id, index + 1)
    }

    async fn published_before(&self, order: &Arc<FetchOrder>, layout: &Layout) -> Option<Vec<OutputFile>> {
        let (output_dir, order, layout) = (self.deps.output_dir.clone(), order.clone(), layout.clone());
        let look = move || {
            let output_spec =
                OutputSpec { batch: &order.batch, layout: &layout, spec: &order.spec, job: &order.job };
            output_dir.published(output_spec)
        };
        blocking(look).await
    }

    /// Downloads one link to its part, resuming a transfer that broke off.
    async fn part(
        &self,
        order: &FetchOrder,
        url: &str,
        path: &Path,
        begun: PartialDownload,
        in_memory_max: usize,
    ) -> Result<Part, DownloadEnd> {
        if begun.bytes > 0 {
            self.commit.wait().await;
        }
        let mut transfer = Transfer::resume(order, path, self.deps, begun).await;
        let (mut resumes, mut requests, mut farthest) = (0, 0, 0);
        loop {
            let outcome = self.run(&mut transfer, url).await;
            requests += 1;
            if transfer.partial.bytes > farthest {
                (farthest, resumes) = (transfer.partial.bytes, 0);
            }
            match outcome {
                Ok(()) => break,
                Err(TransferError::Link(DownloadError::Unavailable { reason, wait, .. })) => {
                    let fault = Fault::new("download", reason);
                    return Err(FetchFault::Unavailable { fault, wait }.into());
                }
                Err(TransferError::Link(error)) if resumes >= RESUMES_MAX || requests >= REQUESTS_MAX => {
                    let length = transfer.partial.known_length();
                    return Err(DownloadEnd::Failed(FetchFault::Stale(error.into()), length));
                }
                Err(TransferError::Link(DownloadError::Broken(_))) => resumes += 1,
                // Asking again changes nothing: a person decides where results may come from.
                Err(TransferError::Link(error @ DownloadError::Refused(_))) => {
                    return Err(FetchFault::Lasting(Fault::new("refused_link", error.to_string())).into());
                }
                Err(TransferError::Link(error @ DownloadError::Status(401 | 403 | 404 | 410))) => {
                    return Err(FetchFault::LinkRefused(error.into()).into());
                }
                Err(TransferError::Link(error)) => return Err(FetchFault::Stale(error.into()).into()),
                Err(TransferError::Here(fault)) => return Err(fault.into()),
                Err(TransferError::Slow) => {
                    self.commit.wait().await;
                    return Err(self.slow(transfer));
                }
            }
        }
        if !transfer.stays_in_memory(in_memory_max) {
            self.commit.wait().await;
        }
        Ok(transfer.finish(order.spec.order.kind, url, path, in_memory_max).await?)
    }

    /// What becomes of a download that does not keep up.
    fn slow(&self, transfer: Transfer) -> DownloadEnd {
        let received = transfer.received;
        let mut partial = match transfer.suspend() {
            Ok(partial) => partial,
            Err(fault) => return fault.into(),
        };
        let bytes = partial.bytes;
        if self.clock.now().tick.since(partial.began) >= SLOW_MAX {
            let text =
                format!("after a day the rate is still below {} a second; {bytes} received", self.min_rate());
            return FetchFault::Lasting(Fault::new("slow", text)).into();
        }
        partial.empty_resumes = if received == 0 { partial.empty_resumes + 1 } else { 0 };
        if bytes == 0 || partial.empty_resumes > EMPTY_RESUMES_MAX {
            let text = format!("the result host sent nothing after {bytes} bytes, and other downloads wait");
            return FetchFault::Stale(Fault::new("silent", text)).into();
        }
        DownloadEnd::Yielded(partial)
    }

    /// One request for a link, measured.
    async fn run(&self, transfer: &mut Transfer, url: &str) -> Result<(), TransferError> {
        let begun = self.clock.elapsed();
        let outcome = transfer.run(self, url).await;
        let class = match &outcome {
            Ok(()) | Err(TransferError::Here(_) | TransferError::Slow) => Answer::Ok,
            Err(TransferError::Link(error)) => class_of(error),
        };
        let took = self.clock.elapsed().saturating_sub(begun);
        self.deps.metrics.request(Endpoint::Result, class, took);
        tracing::debug!(
            answer = class.name(),
            took_ms = whole_ms(took),
            bytes = transfer.partial.bytes,
            "downloaded"
        );
        outcome
    }
}

/// As what a request for a link is counted that failed.
fn class_of(error: &DownloadError) -> Answer {
    match error {
        DownloadError::Unavailable { status: Some(429), .. } => Answer::RateLimited,
        DownloadError::Unavailable { status: Some(_), .. }
        | DownloadError::Status(_)
        | DownloadError::BadUrl(_)
        | DownloadError::Refused(_) => Answer::Refused,
        DownloadError::Unavailable { status: None, .. } | DownloadError::Broken(_) => Answer::Connection,
    }
}

/// Why the downloads of a job stopped.
enum DownloadEnd {
    /// With what the host said of the length of a file that broke off again and again.
    Failed(FetchFault, Option<KnownLength>),
    /// For others, who wait.
    Yielded(PartialDownload),
}

impl From<FetchFault> for DownloadEnd {
    fn from(fault: FetchFault) -> DownloadEnd {
        DownloadEnd::Failed(fault, None)
    }
}

/// Why a transfer stopped.
enum TransferError {
    Link(DownloadError),
    Here(FetchFault),
    /// It does not keep up, and others wait or it has for a day.
    Slow,
}

/// How long a request for a link is borne, from the first word to the last byte.
struct SlowTimeout<'a> {
    fetcher: &'a Fetcher<'a>,
    /// When the file was begun.
    began: Tick,
    slow_download: SlowDownload,
    checks: Interval,
}

impl<'a> SlowTimeout<'a> {
    fn new(fetcher: &'a Fetcher<'a>, began: Tick) -> SlowTimeout<'a> {
        let min_rate = fetcher.deps.min_rate;
        let slow_download = SlowDownload::new(min_rate, fetcher.clock.now().tick);
        let checks = RATE_CHECK_INTERVAL.min(Duration::from_millis(min_rate.window.0.max(1)));
        SlowTimeout { fetcher, began, slow_download, checks: tokio::time::interval(checks) }
    }

    /// Ends when too little comes and another waits, or too little has come for too long.
    async fn expired(&mut self) {
        loop {
            self.checks.tick().await;
            let now = self.fetcher.clock.now().tick;
            let is_too_long = now.since(self.began) >= SLOW_MAX;
            if self.slow_download.is_slow(now)
                && (is_too_long || self.fetcher.suspended_downloads.is_waiting())
            {
                return;
            }
        }
    }
}

pub(super) fn disk_fault(error: &std::io::Error, wanted_bytes: u64) -> FetchFault {
    let fault = Fault::new(DISK_FAULT, error.to_string());
    if is_disk_error(error) {
        FetchFault::DiskRefuses { fault, wanted_bytes }
    } else if is_folder_error(error) {
        FetchFault::FolderRefuses(fault)
    } else {
        FetchFault::Passing(fault)
    }
}

/// Whether a fault concerns one link of a task, and says nothing of the others.
fn is_of_link(fault: &FetchFault) -> bool {
    matches!(fault, FetchFault::Stale(_) | FetchFault::LinkRefused(_) | FetchFault::Lasting(_))
}

/// Of the faults of several links the one that the job's next step follows from: as long as one may work later, it is tried.
fn decisive(faults: Vec<FetchFault>) -> Option<FetchFault> {
    let rank = |fault: &FetchFault| match fault {
        FetchFault::Stale(_) => 1,
        FetchFault::LinkRefused(_) => 2,
        FetchFault::Lasting(_) => 3,
        _ => 0,
    };
    faults.into_iter().min_by_key(rank)
}

/// Which results of a job are missing.
fn missing(all: usize, whole: &BTreeMap<usize, Part>) -> String {
    let numbers = (0..all).filter(|index| !whole.contains_key(index)).map(|index| (index + 1).to_string());
    let numbers: Vec<String> = numbers.collect();
    match numbers.as_slice() {
        [number] => format!("result {number} of {all} is missing"),
        numbers => format!("results {} of {all} are missing", numbers.join(", ")),
    }
}

/// Frees the memory of parts.
fn write_out(mut parts: BTreeMap<usize, Part>) -> std::io::Result<BTreeMap<usize, Part>> {
    parts.values_mut().try_for_each(Part::write_out)?;
    Ok(parts)
}
