//! From result links to files that are whole, checked, named and on the device.

use std::path::{Path, PathBuf};

use std::time::Duration;

use sha2::Digest;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::Interval;

use crate::api::{DownloadError, Opened};
use crate::clock::{Clock, whole_ms};
use crate::domain::ids::BatchName;
use crate::domain::job::OutputFile;
use crate::domain::request::Kind;
use crate::domain::slow_download::SlowDownload;
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Tick};
use crate::engine::EngineDeps;
use crate::engine::blocking;
use crate::engine::scheduler::{FetchFault, FetchOrder};
use crate::engine::suspended_downloads::{PartialDownload, SuspendedDownload, SuspendedDownloads};
use crate::metrics::{Answer, Endpoint, Metrics};
use crate::output::layout::Layout;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::{self, Part, hex, is_disk_error};
use crate::output::{detect_media_type, is_truncated};

/// How often the download of one link is resumed.
const RESUMES_MAX: u32 = 4;
/// Pieces are written in this size: larger writes cost four times the processor time (measured).
const WRITE_BYTES: usize = 64 * 1024;
/// Most outputs of one task that are believed.
const OUTPUTS_MAX: usize = 256;
/// Bytes kept to recognise the content.
const HEAD_BYTES: usize = 4096;

/// Longest time between two looks at a download's rate, and at whether another waits.
const RATE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How often in a row the rest of a file may fail, before the download starts over.
const EMPTY_RESUMES_MAX: u32 = 8;
/// After so long a download that is still slow is given up.
const SLOW_MAX: Millis = Millis::from_secs(24 * 3600);

/// Downloads and lands the outputs of one job.
#[derive(Debug)]
pub(super) struct Fetcher<'a> {
    deps: &'a EngineDeps,
    suspended_downloads: &'a SuspendedDownloads,
    clock: Clock,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(
        deps: &'a EngineDeps,
        suspended_downloads: &'a SuspendedDownloads,
        clock: Clock,
    ) -> Fetcher<'a> {
        Fetcher { deps, suspended_downloads, clock }
    }

    pub(super) async fn fetch(&self, order: &FetchOrder) -> Result<Vec<OutputFile>, FetchFault> {
        // The layout was checked when the batch was accepted.
        let layout = order.layout.as_deref().and_then(|text| Layout::parse(text).ok());
        let layout = layout.unwrap_or_else(|| self.deps.layout.clone());
        if let Some(files) = self.landed_before(order, &layout).await {
            return Ok(files);
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
        let (output_dir, of_job) = (self.deps.output_dir.clone(), order.clone());
        let now = self.clock.now().wall;
        let land = move || {
            let FetchOrder { batch, spec, job, .. } = &of_job;
            output_dir.publish(OutputSpec { batch, layout: &layout, spec, job }, &parts, now)
        };
        match blocking(land).await {
            Ok(files) => Ok(files),
            Err(error) => {
                // What waits for a disk does not fill it meanwhile.
                self.sweep(order).await;
                Err(disk_fault(&error, bytes))
            }
        }
    }

    async fn parts(&self, order: &FetchOrder) -> Result<Vec<Part>, FetchFault> {
        let (mut done, mut partial) = match self.suspended_downloads.resume(order.key, &order.urls) {
            Some(suspended) => (suspended.done, Some(suspended.partial)),
            None => (Vec::new(), None),
        };
        for (index, url) in order.urls.iter().enumerate().skip(done.len()) {
            let path = self.part_path(order, index);
            let begun = partial.take().unwrap_or_else(|| PartialDownload::nothing(self.clock.now().tick));
            match self.part(order, url, &path, begun).await {
                Ok(part) => done.push(part),
                Err(DownloadEnd::Failed(fault)) => return Err(fault),
                Err(DownloadEnd::Yielded(partial)) => {
                    let text =
                        format!("fewer than {} a second, after {} bytes", self.min_rate(), partial.bytes);
                    self.suspended_downloads
                        .suspend(order.key, SuspendedDownload { urls: order.urls.clone(), done, partial });
                    return Err(FetchFault::Slow(Fault::new("slow", text)));
                }
            }
        }
        Ok(done)
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

    async fn landed_before(&self, order: &FetchOrder, layout: &Layout) -> Option<Vec<OutputFile>> {
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
    ) -> Result<Part, DownloadEnd> {
        let mut transfer = Transfer::resume(&order.batch, path, self.deps, begun).await?;
        let mut resumes = 0;
        loop {
            match self.run(&mut transfer, url).await {
                Ok(()) => break,
                Err(TransferError::Link(error)) if resumes >= RESUMES_MAX => {
                    return Err(FetchFault::Stale(error.into()).into());
                }
                Err(TransferError::Link(DownloadError::Broken(_))) => resumes += 1,
                // Asking again changes nothing: a person decides where results may come from.
                Err(TransferError::Link(error @ DownloadError::Refused(_))) => {
                    return Err(FetchFault::Lasting(Fault::new("refused_link", error.to_string())).into());
                }
                Err(TransferError::Link(error)) => return Err(FetchFault::Stale(error.into()).into()),
                Err(TransferError::Here(fault)) => return Err(fault.into()),
                Err(TransferError::Slow) => return Err(self.slow(transfer)),
            }
        }
        Ok(transfer.finish(order.spec.order.kind, path).await?)
    }

    /// What becomes of a download that does not keep up.
    fn slow(&self, transfer: Transfer) -> DownloadEnd {
        let (bytes, mut partial) = (transfer.partial.bytes, transfer.partial);
        if self.clock.now().tick.since(partial.began) >= SLOW_MAX {
            let text =
                format!("after a day fewer than {} a second still come, {bytes} in all", self.min_rate());
            return FetchFault::Lasting(Fault::new("slow", text)).into();
        }
        partial.empty_resumes = if transfer.received == 0 { partial.empty_resumes + 1 } else { 0 };
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
            Err(TransferError::Link(DownloadError::Status(429))) => Answer::RateLimited,
            Err(TransferError::Link(
                DownloadError::Status(_) | DownloadError::BadUrl(_) | DownloadError::Refused(_),
            )) => Answer::Refused,
            Err(TransferError::Link(DownloadError::Broken(_))) => Answer::Connection,
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

/// Why the downloads of a job stopped.
enum DownloadEnd {
    Failed(FetchFault),
    /// For others, who wait.
    Yielded(PartialDownload),
}

impl From<FetchFault> for DownloadEnd {
    fn from(fault: FetchFault) -> DownloadEnd {
        DownloadEnd::Failed(fault)
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

/// One file on its way in.
struct Transfer {
    file: File,
    partial: PartialDownload,
    /// Bytes received since it was resumed.
    received: u64,
    buffer: Vec<u8>,
    max_bytes: u64,
    metrics: Metrics,
    /// How large the host says that it is.
    total: Option<u64>,
}

impl Transfer {
    /// Goes on where a file was left, or from its beginning where nothing of it can be found.
    async fn resume(
        batch: &BatchName,
        path: &Path,
        deps: &EngineDeps,
        partial: PartialDownload,
    ) -> Result<Transfer, FetchFault> {
        let (output_dir, batch, place) = (deps.output_dir.clone(), batch.clone(), path.to_owned());
        let bytes = partial.bytes;
        let create = move || match publish::create(&place) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                output_dir.make_batch_dir(&batch)?;
                publish::create(&place)
            }
            other => other,
        };
        let left = path.to_owned();
        let open = move || match bytes {
            0 => create().map(|file| (file, true)),
            _ => publish::append(&left, bytes)
                .map_or_else(|_| create().map(|file| (file, false)), |file| Ok((file, true))),
        };
        let (file, is_there) = blocking(open).await.map_err(|error| disk_fault(&error, 0))?;
        Ok(Transfer {
            file: File::from_std(file),
            partial: if is_there { partial } else { PartialDownload::nothing(partial.began) },
            received: 0,
            buffer: Vec::with_capacity(WRITE_BYTES),
            max_bytes: deps.max_file_bytes,
            metrics: deps.metrics.clone(),
            total: None,
        })
    }

    async fn run(&mut self, fetcher: &Fetcher<'_>, url: &str) -> Result<(), TransferError> {
        let mut slow_timeout = SlowTimeout::new(fetcher, self.partial.began);
        let opening = fetcher.deps.downloads.open(url, self.partial.bytes, &self.partial.version);
        let mut opened = tokio::select! {
            opened = opening => opened.map_err(TransferError::Link)?,
            () = slow_timeout.expired() => return Err(TransferError::Slow),
        };
        if opened.start != self.partial.bytes {
            self.start_over().await.map_err(TransferError::Here)?;
        }
        if opened.start > self.partial.bytes {
            let text = "the result host sent another part than the requested one".to_owned();
            return Err(TransferError::Link(DownloadError::Broken(text)));
        }
        self.total = opened.total;
        if opened.start == 0 {
            self.partial.version.clone_from(&opened.version);
        }
        self.partial.content_type.clone_from(&opened.content_type);
        self.refuse_too_large(opened.total.unwrap_or_default()).map_err(TransferError::Here)?;
        self.take(&mut opened, &mut slow_timeout).await?;
        match opened.total {
            Some(total) if total != self.partial.bytes => {
                let text = format!("{} of {total} bytes came", self.partial.bytes);
                Err(TransferError::Link(DownloadError::Broken(text)))
            }
            _ => Ok(()),
        }
    }

    async fn take(
        &mut self,
        opened: &mut Opened,
        slow_timeout: &mut SlowTimeout<'_>,
    ) -> Result<(), TransferError> {
        let taken = self.take_pieces(opened, slow_timeout).await;
        // Whatever it ends with, what came is written: it may go on from there.
        self.write_out().await.map_err(TransferError::Here)?;
        let flushed = self.file.flush().await;
        flushed.map_err(|error| TransferError::Here(self.refused(&error)))?;
        taken
    }

    async fn take_pieces(
        &mut self,
        opened: &mut Opened,
        slow_timeout: &mut SlowTimeout<'_>,
    ) -> Result<(), TransferError> {
        loop {
            let chunk = tokio::select! {
                chunk = opened.chunk() => chunk.map_err(TransferError::Link)?,
                () = slow_timeout.expired() => return Err(TransferError::Slow),
            };
            let Some(chunk) = chunk else { return Ok(()) };
            slow_timeout.slow_download.took(chunk.as_ref().len() as u64);
            self.piece(chunk.as_ref()).await?;
        }
    }

    async fn piece(&mut self, piece: &[u8]) -> Result<(), TransferError> {
        let partial = &mut self.partial;
        partial.bytes += piece.len() as u64;
        self.received += piece.len() as u64;
        self.metrics.downloaded(piece.len() as u64);
        let missing = HEAD_BYTES.saturating_sub(partial.head.len()).min(piece.len());
        partial.head.extend_from_slice(&piece[..missing]);
        partial.hasher.update(piece);
        self.buffer.extend_from_slice(piece);
        self.refuse_too_large(self.partial.bytes).map_err(TransferError::Here)?;
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out().await.map_err(TransferError::Here)?;
        }
        Ok(())
    }

    async fn write_out(&mut self) -> Result<(), FetchFault> {
        let written = self.file.write_all(&self.buffer).await;
        self.buffer.clear();
        written.map_err(|error| self.refused(&error))
    }

    /// The disk refuses.
    fn refused(&self, error: &std::io::Error) -> FetchFault {
        disk_fault(error, self.total.unwrap_or(self.partial.bytes))
    }

    /// The host sent the file from its beginning.
    async fn start_over(&mut self) -> Result<(), FetchFault> {
        use tokio::io::AsyncSeekExt;
        self.file.set_len(0).await.map_err(|error| disk_fault(&error, 0))?;
        self.file.rewind().await.map_err(|error| disk_fault(&error, 0))?;
        self.partial = PartialDownload::nothing(self.partial.began);
        self.buffer.clear();
        Ok(())
    }

    fn refuse_too_large(&self, bytes: u64) -> Result<(), FetchFault> {
        if bytes <= self.max_bytes {
            return Ok(());
        }
        let text = format!("the result is larger than {} bytes; output.max_file allows more", self.max_bytes);
        Err(FetchFault::Lasting(Fault::new("too_large", text)))
    }

    async fn finish(mut self, kind: Kind, path: &Path) -> Result<Part, FetchFault> {
        let flushed = self.file.flush().await;
        flushed.map_err(|error| self.refused(&error))?;
        let media = detect_media_type(kind, &self.partial.head, self.partial.content_type.as_deref());
        // Another reading of the task may bring another link.
        let media = media.map_err(|wrong| FetchFault::Stale(Fault::new("not_media", wrong.to_string())))?;
        let (place, content_type) = (path.to_owned(), media.content_type.clone());
        let cut_off = blocking(move || is_truncated(&place, &content_type)).await;
        if cut_off.map_err(|error| self.refused(&error))? {
            let text = format!("the result ends too early, after {} bytes", self.partial.bytes);
            return Err(FetchFault::Stale(Fault::new("cut_off", text)));
        }
        let sha256 = hex(&self.partial.hasher.finalize());
        Ok(Part { path: path.to_owned(), bytes: self.partial.bytes, sha256, media })
    }
}

fn disk_fault(error: &std::io::Error, wanted_bytes: u64) -> FetchFault {
    let fault = Fault::new("disk", error.to_string());
    if is_disk_error(error) {
        FetchFault::DiskRefuses { fault, wanted_bytes }
    } else {
        FetchFault::Passing(fault)
    }
}
