//! From result links to files that are whole, checked, named and on the device.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::api::{DownloadError, Downloads, Opened};
use crate::clock::Clock;
use crate::domain::ids::BatchName;
use crate::domain::job::OutputFile;
use crate::domain::request::Kind;
use crate::domain::task::Fault;
use crate::engine::Outside;
use crate::engine::conductor::{FetchFault, FetchOrder};
use crate::engine::perform::whole_ms;
use crate::metrics::{Answer, Endpoint, Metrics};
use crate::output::landing::{self, Arrival, Part, hex, is_refusal};
use crate::output::layout::Layout;
use crate::output::{is_cut_off, sniff};

/// How often one link is taken up again where it broke off.
const RESUMES_MAX: u32 = 4;
/// Pieces are written in this size: larger writes cost four times the processor time (measured).
const WRITE_BYTES: usize = 64 * 1024;
/// Most outputs of one task that are believed.
const OUTPUTS_MAX: usize = 256;
/// Bytes kept to recognise the content.
const HEAD_BYTES: usize = 4096;

/// Downloads and lands the outputs of one job.
#[derive(Debug)]
pub(super) struct Fetcher<'a> {
    outside: &'a Outside,
    clock: Clock,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(outside: &'a Outside, clock: Clock) -> Fetcher<'a> {
        Fetcher { outside, clock }
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
            Err(fault) => {
                self.sweep(order).await;
                return Err(fault);
            }
        };
        let bytes = parts.iter().map(|part| part.bytes).max().unwrap_or_default();
        let (landing, of_job) = (self.outside.landing.clone(), order.clone());
        let land = move || {
            let FetchOrder { batch, spec, job, .. } = &of_job;
            landing.land(Arrival { batch, layout: &layout, spec, job }, &parts)
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
        let mut parts = Vec::with_capacity(order.urls.len());
        for (index, url) in order.urls.iter().enumerate() {
            let path = self.part_path(order, index);
            parts.push(self.part(order, url, &path).await?);
        }
        Ok(parts)
    }

    /// Removes what came of a download that failed: the next one begins anew, and there may be none.
    async fn sweep(&self, order: &FetchOrder) {
        // The draft of the sidecar has the number 0.
        let _ = tokio::fs::remove_file(self.outside.landing.part_path(&order.batch, order.spec.id, 0)).await;
        for index in 0..order.urls.len() {
            // One that never came is not there, and one that stays is swept by the next run.
            let _ = tokio::fs::remove_file(self.part_path(order, index)).await;
        }
    }

    fn part_path(&self, order: &FetchOrder, index: usize) -> PathBuf {
        self.outside.landing.part_path(&order.batch, order.spec.id, index + 1)
    }

    async fn landed_before(&self, order: &FetchOrder, layout: &Layout) -> Option<Vec<OutputFile>> {
        let (landing, order, layout) = (self.outside.landing.clone(), order.clone(), layout.clone());
        let look = move || {
            let arrival =
                Arrival { batch: &order.batch, layout: &layout, spec: &order.spec, job: &order.job };
            landing.landed(arrival)
        };
        blocking(look).await
    }

    /// Downloads one link to its part, taking up a broken transfer where it broke off.
    async fn part(&self, order: &FetchOrder, url: &str, path: &Path) -> Result<Part, FetchFault> {
        let mut transfer = Transfer::begin(&order.batch, path, self.outside).await?;
        let mut resumes = 0;
        loop {
            match self.run(&mut transfer, url).await {
                Ok(()) => break,
                Err(Broken::Link(error)) if resumes >= RESUMES_MAX => {
                    return Err(FetchFault::Stale(error.into()));
                }
                Err(Broken::Link(DownloadError::Broken(_))) => resumes += 1,
                // Asking again changes nothing: a person decides where results may come from.
                Err(Broken::Link(error @ DownloadError::Refused(_))) => {
                    return Err(FetchFault::Lasting(Fault::new("refused_link", error.to_string())));
                }
                Err(Broken::Link(error)) => return Err(FetchFault::Stale(error.into())),
                Err(Broken::Here(fault)) => return Err(fault),
            }
        }
        transfer.finish(order.spec.order.kind, path).await
    }

    /// One request for a link, measured.
    async fn run(&self, transfer: &mut Transfer, url: &str) -> Result<(), Broken> {
        let begun = self.clock.elapsed();
        let outcome = transfer.run(&self.outside.downloads, url).await;
        let class = match &outcome {
            Ok(()) | Err(Broken::Here(_)) => Answer::Ok,
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
            bytes = transfer.bytes,
            "downloaded"
        );
        outcome
    }
}

/// Why a transfer stopped.
enum Broken {
    Link(DownloadError),
    Here(FetchFault),
}

/// One file on its way in.
struct Transfer {
    file: File,
    hasher: Sha256,
    head: Vec<u8>,
    buffer: Vec<u8>,
    bytes: u64,
    max_bytes: u64,
    metrics: Metrics,
    /// How large the host says that it is.
    total: Option<u64>,
    etag: Option<String>,
    content_type: Option<String>,
}

impl Transfer {
    async fn begin(batch: &BatchName, path: &Path, outside: &Outside) -> Result<Transfer, FetchFault> {
        let (landing, batch, place) = (outside.landing.clone(), batch.clone(), path.to_owned());
        let create = move || match landing::create(&place) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                landing.make_batch_dir(&batch)?;
                landing::create(&place)
            }
            other => other,
        };
        let file = blocking(create).await.map(File::from_std).map_err(|error| disk_fault(&error, 0))?;
        Ok(Transfer {
            file,
            hasher: Sha256::new(),
            head: Vec::new(),
            buffer: Vec::with_capacity(WRITE_BYTES),
            bytes: 0,
            max_bytes: outside.max_file_bytes,
            metrics: outside.metrics.clone(),
            total: None,
            etag: None,
            content_type: None,
        })
    }

    async fn run(&mut self, downloads: &Downloads, url: &str) -> Result<(), Broken> {
        let mut opened = downloads.open(url, self.bytes, self.etag.as_deref()).await.map_err(Broken::Link)?;
        if opened.start != self.bytes {
            self.start_over().await.map_err(Broken::Here)?;
        }
        if opened.start > self.bytes {
            let text = "the result host sent another part than the one asked for".to_owned();
            return Err(Broken::Link(DownloadError::Broken(text)));
        }
        self.total = opened.total;
        self.etag.clone_from(&opened.etag);
        self.content_type.clone_from(&opened.content_type);
        self.refuse_too_large(opened.total.unwrap_or_default()).map_err(Broken::Here)?;
        self.take(&mut opened).await?;
        match opened.total {
            Some(total) if total != self.bytes => {
                let text = format!("{} of {total} bytes came", self.bytes);
                Err(Broken::Link(DownloadError::Broken(text)))
            }
            _ => Ok(()),
        }
    }

    async fn take(&mut self, opened: &mut Opened) -> Result<(), Broken> {
        while let Some(chunk) = opened.chunk().await.map_err(Broken::Link)? {
            let chunk = chunk.as_ref();
            self.bytes += chunk.len() as u64;
            self.metrics.downloaded(chunk.len() as u64);
            self.refuse_too_large(self.bytes).map_err(Broken::Here)?;
            let missing = HEAD_BYTES.saturating_sub(self.head.len()).min(chunk.len());
            self.head.extend_from_slice(&chunk[..missing]);
            self.hasher.update(chunk);
            self.buffer.extend_from_slice(chunk);
            if self.buffer.len() >= WRITE_BYTES {
                self.write_out().await.map_err(Broken::Here)?;
            }
        }
        self.write_out().await.map_err(Broken::Here)
    }

    async fn write_out(&mut self) -> Result<(), FetchFault> {
        let written = self.file.write_all(&self.buffer).await;
        self.buffer.clear();
        written.map_err(|error| self.refused(&error))
    }

    /// The disk refuses.
    fn refused(&self, error: &std::io::Error) -> FetchFault {
        disk_fault(error, self.total.unwrap_or(self.bytes))
    }

    /// The host sent the file from its beginning.
    async fn start_over(&mut self) -> Result<(), FetchFault> {
        use tokio::io::AsyncSeekExt;
        self.file.set_len(0).await.map_err(|error| disk_fault(&error, 0))?;
        self.file.rewind().await.map_err(|error| disk_fault(&error, 0))?;
        (self.bytes, self.hasher) = (0, Sha256::new());
        self.head.clear();
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
        let media = sniff(kind, &self.head, self.content_type.as_deref());
        // Another reading of the task may bring another link.
        let media = media.map_err(|wrong| FetchFault::Stale(Fault::new("not_media", wrong.to_string())))?;
        let (place, content_type) = (path.to_owned(), media.content_type.clone());
        let cut_off = blocking(move || is_cut_off(&place, &content_type)).await;
        if cut_off.map_err(|error| self.refused(&error))? {
            let text = format!("the result ends too early, after {} bytes", self.bytes);
            return Err(FetchFault::Stale(Fault::new("cut_off", text)));
        }
        let sha256 = hex(&self.hasher.finalize());
        Ok(Part { path: path.to_owned(), bytes: self.bytes, sha256, media })
    }
}

fn disk_fault(error: &std::io::Error, wanted_bytes: u64) -> FetchFault {
    let fault = Fault::new("disk", error.to_string());
    if is_refusal(error) {
        FetchFault::DiskRefuses { fault, wanted_bytes }
    } else {
        FetchFault::Passing(fault)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
