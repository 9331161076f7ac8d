//! From result links to files that are whole, checked, named and on the device.

use std::path::{Path, PathBuf};

use std::time::Duration;

use sha2::Digest;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::Interval;

use crate::api::{DownloadError, Opened};
use crate::clock::Clock;
use crate::domain::ids::BatchName;
use crate::domain::job::OutputFile;
use crate::domain::request::Kind;
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Tick};
use crate::domain::trickle::Trickle;
use crate::engine::Outside;
use crate::engine::blocking;
use crate::engine::perform::whole_ms;
use crate::engine::scheduler::{FetchFault, FetchOrder};
use crate::engine::transfers::{Halfway, Halted, Transfers};
use crate::metrics::{Answer, Endpoint, Metrics};
use crate::output::layout::Layout;
use crate::output::publish::{self, OutputSpec, Part, hex, is_disk_error};
use crate::output::{detect_media_type, is_truncated};

/// How often one link is taken up again where it broke off.
const RESUMES_MAX: u32 = 4;
/// Pieces are written in this size: larger writes cost four times the processor time (measured).
const WRITE_BYTES: usize = 64 * 1024;
/// Most outputs of one task that are believed.
const OUTPUTS_MAX: usize = 256;
/// Bytes kept to recognise the content.
const HEAD_BYTES: usize = 4096;

/// Longest time between two looks at a download's rate, and at whether another waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often in a row the rest of a file may be asked for in vain, before it is begun anew.
const SILENCES_MAX: u32 = 8;
/// After so long a download that is still slow is given up.
const SLOW_MAX: Millis = Millis::from_secs(24 * 3600);

/// Downloads and lands the outputs of one job.
#[derive(Debug)]
pub(super) struct Fetcher<'a> {
    outside: &'a Outside,
    transfers: &'a Transfers,
    clock: Clock,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(outside: &'a Outside, transfers: &'a Transfers, clock: Clock) -> Fetcher<'a> {
        Fetcher { outside, transfers, clock }
    }

    pub(super) async fn fetch(&self, order: &FetchOrder) -> Result<Vec<OutputFile>, FetchFault> {
        // The layout was checked when the batch was accepted.
        let layout = order.layout.as_deref().and_then(|text| Layout::parse(text).ok());
        let layout = layout.unwrap_or_else(|| self.outside.layout.clone());
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
        let (output_dir, of_job) = (self.outside.output_dir.clone(), order.clone());
        let land = move || {
            let FetchOrder { batch, spec, job, .. } = &of_job;
            output_dir.publish(OutputSpec { batch, layout: &layout, spec, job }, &parts)
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
        let (mut done, mut halfway) = match self.transfers.take_up(order.key, &order.urls) {
            Some(halted) => (halted.done, Some(halted.halfway)),
            None => (Vec::new(), None),
        };
        for (index, url) in order.urls.iter().enumerate().skip(done.len()) {
            let path = self.part_path(order, index);
            let begun = halfway.take().unwrap_or_else(|| Halfway::nothing(self.clock.now().tick));
            match self.part(order, url, &path, begun).await {
                Ok(part) => done.push(part),
                Err(Stopped::Failed(fault)) => return Err(fault),
                Err(Stopped::GaveWay(halfway)) => {
                    let text = format!("fewer than {} a second, after {} bytes", self.floor(), halfway.bytes);
                    self.transfers.halt(order.key, Halted { urls: order.urls.clone(), done, halfway });
                    return Err(FetchFault::Slow(Fault::new("slow", text)));
                }
            }
        }
        Ok(done)
    }

    fn floor(&self) -> String {
        format!("{} bytes", self.outside.rate_floor.bytes_per_second)
    }

    /// Removes what came of a download that failed: the next one begins anew, and there may be none.
    async fn sweep(&self, order: &FetchOrder) {
        // The draft of the sidecar has the number 0.
        let _ =
            tokio::fs::remove_file(self.outside.output_dir.part_path(&order.batch, order.spec.id, 0)).await;
        for index in 0..order.urls.len() {
            // One that never came is not there, and one that stays is swept by the next run.
            let _ = tokio::fs::remove_file(self.part_path(order, index)).await;
        }
    }

    fn part_path(&self, order: &FetchOrder, index: usize) -> PathBuf {
        self.outside.output_dir.part_path(&order.batch, order.spec.id, index + 1)
    }

    async fn landed_before(&self, order: &FetchOrder, layout: &Layout) -> Option<Vec<OutputFile>> {
        let (output_dir, order, layout) = (self.outside.output_dir.clone(), order.clone(), layout.clone());
        let look = move || {
            let output_spec =
                OutputSpec { batch: &order.batch, layout: &layout, spec: &order.spec, job: &order.job };
            output_dir.published(output_spec)
        };
        blocking(look).await
    }

    /// Downloads one link to its part, taking up a broken transfer where it broke off.
    async fn part(
        &self,
        order: &FetchOrder,
        url: &str,
        path: &Path,
        begun: Halfway,
    ) -> Result<Part, Stopped> {
        let mut transfer = Transfer::take_up(&order.batch, path, self.outside, begun).await?;
        let mut resumes = 0;
        loop {
            match self.run(&mut transfer, url).await {
                Ok(()) => break,
                Err(Broken::Link(error)) if resumes >= RESUMES_MAX => {
                    return Err(FetchFault::Stale(error.into()).into());
                }
                Err(Broken::Link(DownloadError::Broken(_))) => resumes += 1,
                // Asking again changes nothing: a person decides where results may come from.
                Err(Broken::Link(error @ DownloadError::Refused(_))) => {
                    return Err(FetchFault::Lasting(Fault::new("refused_link", error.to_string())).into());
                }
                Err(Broken::Link(error)) => return Err(FetchFault::Stale(error.into()).into()),
                Err(Broken::Here(fault)) => return Err(fault.into()),
                Err(Broken::Slow) => return Err(self.slow(transfer)),
            }
        }
        Ok(transfer.finish(order.spec.order.kind, path).await?)
    }

    /// What becomes of a download that does not keep up.
    fn slow(&self, transfer: Transfer) -> Stopped {
        let (bytes, mut halfway) = (transfer.halfway.bytes, transfer.halfway);
        if self.clock.now().tick.since(halfway.began) >= SLOW_MAX {
            let text = format!("after a day fewer than {} a second still come, {bytes} in all", self.floor());
            return FetchFault::Lasting(Fault::new("slow", text)).into();
        }
        halfway.silences = if transfer.received == 0 { halfway.silences + 1 } else { 0 };
        if bytes == 0 || halfway.silences > SILENCES_MAX {
            let text = format!("the result host fell silent after {bytes} bytes, and others wait");
            return FetchFault::Stale(Fault::new("silent", text)).into();
        }
        Stopped::GaveWay(halfway)
    }

    /// One request for a link, measured.
    async fn run(&self, transfer: &mut Transfer, url: &str) -> Result<(), Broken> {
        let begun = self.clock.elapsed();
        let outcome = transfer.run(self, url).await;
        let class = match &outcome {
            Ok(()) | Err(Broken::Here(_) | Broken::Slow) => Answer::Ok,
            Err(Broken::Link(DownloadError::Status(429))) => Answer::RateLimited,
            Err(Broken::Link(
                DownloadError::Status(_) | DownloadError::BadUrl(_) | DownloadError::Refused(_),
            )) => Answer::Refused,
            Err(Broken::Link(DownloadError::Broken(_))) => Answer::Connection,
        };
        let took = self.clock.elapsed().saturating_sub(begun);
        self.outside.metrics.request(Endpoint::Result, class, took);
        tracing::debug!(
            answer = class.name(),
            took_ms = whole_ms(took),
            bytes = transfer.halfway.bytes,
            "downloaded"
        );
        outcome
    }
}

/// Why the downloads of a job stopped.
enum Stopped {
    Failed(FetchFault),
    /// For others, who wait.
    GaveWay(Halfway),
}

impl From<FetchFault> for Stopped {
    fn from(fault: FetchFault) -> Stopped {
        Stopped::Failed(fault)
    }
}

/// Why a transfer stopped.
enum Broken {
    Link(DownloadError),
    Here(FetchFault),
    /// It does not keep up, and others wait or it has for a day.
    Slow,
}

/// How long a request for a link is borne, from the first word to the last byte.
struct Patience<'a> {
    fetcher: &'a Fetcher<'a>,
    /// When the file was begun.
    began: Tick,
    trickle: Trickle,
    looks: Interval,
}

impl<'a> Patience<'a> {
    fn new(fetcher: &'a Fetcher<'a>, began: Tick) -> Patience<'a> {
        let floor = fetcher.outside.rate_floor;
        let trickle = Trickle::new(floor, fetcher.clock.now().tick);
        let looks = LOOK_INTERVAL.min(Duration::from_millis(floor.window.0.max(1)));
        Patience { fetcher, began, trickle, looks: tokio::time::interval(looks) }
    }

    /// Ends when too little comes and another waits, or too little has come for too long.
    async fn ends(&mut self) {
        loop {
            self.looks.tick().await;
            let now = self.fetcher.clock.now().tick;
            let is_too_long = now.since(self.began) >= SLOW_MAX;
            if self.trickle.is_slow(now) && (is_too_long || self.fetcher.transfers.is_waiting()) {
                return;
            }
        }
    }
}

/// One file on its way in.
struct Transfer {
    file: File,
    halfway: Halfway,
    /// What came since it was taken up, in bytes.
    received: u64,
    buffer: Vec<u8>,
    max_bytes: u64,
    metrics: Metrics,
    /// How large the host says that it is.
    total: Option<u64>,
}

impl Transfer {
    /// Goes on where a file was left, or from its beginning where nothing of it can be found.
    async fn take_up(
        batch: &BatchName,
        path: &Path,
        outside: &Outside,
        halfway: Halfway,
    ) -> Result<Transfer, FetchFault> {
        let (output_dir, batch, place) = (outside.output_dir.clone(), batch.clone(), path.to_owned());
        let bytes = halfway.bytes;
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
            halfway: if is_there { halfway } else { Halfway::nothing(halfway.began) },
            received: 0,
            buffer: Vec::with_capacity(WRITE_BYTES),
            max_bytes: outside.max_file_bytes,
            metrics: outside.metrics.clone(),
            total: None,
        })
    }

    async fn run(&mut self, fetcher: &Fetcher<'_>, url: &str) -> Result<(), Broken> {
        let mut patience = Patience::new(fetcher, self.halfway.began);
        let opening = fetcher.outside.downloads.open(url, self.halfway.bytes, &self.halfway.version);
        let mut opened = tokio::select! {
            opened = opening => opened.map_err(Broken::Link)?,
            () = patience.ends() => return Err(Broken::Slow),
        };
        if opened.start != self.halfway.bytes {
            self.start_over().await.map_err(Broken::Here)?;
        }
        if opened.start > self.halfway.bytes {
            let text = "the result host sent another part than the one asked for".to_owned();
            return Err(Broken::Link(DownloadError::Broken(text)));
        }
        self.total = opened.total;
        if opened.start == 0 {
            self.halfway.version.clone_from(&opened.version);
        }
        self.halfway.content_type.clone_from(&opened.content_type);
        self.refuse_too_large(opened.total.unwrap_or_default()).map_err(Broken::Here)?;
        self.take(&mut opened, &mut patience).await?;
        match opened.total {
            Some(total) if total != self.halfway.bytes => {
                let text = format!("{} of {total} bytes came", self.halfway.bytes);
                Err(Broken::Link(DownloadError::Broken(text)))
            }
            _ => Ok(()),
        }
    }

    async fn take(&mut self, opened: &mut Opened, patience: &mut Patience<'_>) -> Result<(), Broken> {
        let taken = self.take_pieces(opened, patience).await;
        // Whatever it ends with, what came is written: it may go on from there.
        self.write_out().await.map_err(Broken::Here)?;
        let flushed = self.file.flush().await;
        flushed.map_err(|error| Broken::Here(self.refused(&error)))?;
        taken
    }

    async fn take_pieces(&mut self, opened: &mut Opened, patience: &mut Patience<'_>) -> Result<(), Broken> {
        loop {
            let chunk = tokio::select! {
                chunk = opened.chunk() => chunk.map_err(Broken::Link)?,
                () = patience.ends() => return Err(Broken::Slow),
            };
            let Some(chunk) = chunk else { return Ok(()) };
            patience.trickle.took(chunk.as_ref().len() as u64);
            self.piece(chunk.as_ref()).await?;
        }
    }

    async fn piece(&mut self, piece: &[u8]) -> Result<(), Broken> {
        let halfway = &mut self.halfway;
        halfway.bytes += piece.len() as u64;
        self.received += piece.len() as u64;
        self.metrics.downloaded(piece.len() as u64);
        let missing = HEAD_BYTES.saturating_sub(halfway.head.len()).min(piece.len());
        halfway.head.extend_from_slice(&piece[..missing]);
        halfway.hasher.update(piece);
        self.buffer.extend_from_slice(piece);
        self.refuse_too_large(self.halfway.bytes).map_err(Broken::Here)?;
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out().await.map_err(Broken::Here)?;
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
        disk_fault(error, self.total.unwrap_or(self.halfway.bytes))
    }

    /// The host sent the file from its beginning.
    async fn start_over(&mut self) -> Result<(), FetchFault> {
        use tokio::io::AsyncSeekExt;
        self.file.set_len(0).await.map_err(|error| disk_fault(&error, 0))?;
        self.file.rewind().await.map_err(|error| disk_fault(&error, 0))?;
        self.halfway = Halfway::nothing(self.halfway.began);
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
        let media = detect_media_type(kind, &self.halfway.head, self.halfway.content_type.as_deref());
        // Another reading of the task may bring another link.
        let media = media.map_err(|wrong| FetchFault::Stale(Fault::new("not_media", wrong.to_string())))?;
        let (place, content_type) = (path.to_owned(), media.content_type.clone());
        let cut_off = blocking(move || is_truncated(&place, &content_type)).await;
        if cut_off.map_err(|error| self.refused(&error))? {
            let text = format!("the result ends too early, after {} bytes", self.halfway.bytes);
            return Err(FetchFault::Stale(Fault::new("cut_off", text)));
        }
        let sha256 = hex(&self.halfway.hasher.finalize());
        Ok(Part { path: path.to_owned(), bytes: self.halfway.bytes, sha256, media })
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
