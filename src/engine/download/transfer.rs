//! One file on its way in: requests for its link, and what comes of them.

use std::io::Cursor;
use std::path::Path;

use sha2::Digest;

use crate::api::{DownloadError, Opened};
use crate::domain::hex::hex;
use crate::domain::request::Kind;
use crate::domain::task::Fault;
use crate::engine::download::part_writer::PartWriter;
use crate::engine::download::{Fetcher, SlowTimeout, TransferError, disk_fault};
use crate::engine::scheduler::{FetchFault, FetchOrder};
use crate::engine::suspended_downloads::PartialDownload;
use crate::engine::{EngineDeps, blocking};
use crate::metrics::Metrics;
use crate::output::publish::Part;
use crate::output::{detect_media_type, is_truncated};

/// Bytes kept to recognise the content.
const HEAD_BYTES: usize = 4096;

/// One file on its way in.
pub(super) struct Transfer {
    writer: PartWriter,
    pub(super) partial: PartialDownload,
    /// Bytes received since it was resumed.
    pub(super) received: u64,
    max_bytes: u64,
    metrics: Metrics,
}

impl Transfer {
    /// Goes on where a file was left, or from its beginning where nothing of it can be found.
    pub(super) async fn resume(
        order: &FetchOrder,
        path: &Path,
        deps: &EngineDeps,
        mut partial: PartialDownload,
    ) -> Transfer {
        // What goes to an object store is read again at once.
        let may_be_direct = deps.outputs.is_none();
        let mut writer = PartWriter::new(path, &deps.output_dir, &order.batch, may_be_direct);
        if partial.bytes > 0 {
            writer = match writer.resume(partial.bytes, std::mem::take(&mut partial.hasher)).await {
                Ok(writer) => writer,
                Err(writer) => {
                    partial = PartialDownload::nothing(partial.began);
                    writer
                }
            };
        }
        Transfer {
            writer,
            partial,
            received: 0,
            max_bytes: deps.max_file_bytes,
            metrics: deps.metrics.clone(),
        }
    }

    /// One request for the link.
    pub(super) async fn run(&mut self, fetcher: &Fetcher<'_>, url: &str) -> Result<(), TransferError> {
        let mut slow_timeout = SlowTimeout::new(fetcher, self.partial.began);
        let opening = fetcher.deps.downloads.open(url, self.partial.bytes, &self.partial.version);
        let mut opened = tokio::select! {
            opened = opening => opened.map_err(TransferError::Link)?,
            () = slow_timeout.expired() => return Err(TransferError::Slow),
        };
        // What was said of its length holds for the answers after it, too, that say nothing of it.
        let is_another = opened.version.differs_from(&self.partial.version);
        let known_total = self.partial.total.filter(|_| !is_another);
        if opened.start != self.partial.bytes {
            self.start_over().map_err(TransferError::Here)?;
        }
        self.partial.total = opened.total.or(known_total);
        if opened.start > self.partial.bytes {
            let text = "the result host sent another part than the requested one".to_owned();
            return Err(TransferError::Link(DownloadError::Broken(text)));
        }
        if opened.start == 0 {
            self.partial.version.clone_from(&opened.version);
        }
        self.partial.content_type.clone_from(&opened.content_type);
        self.refuse_too_large(opened.total.unwrap_or_default()).map_err(TransferError::Here)?;
        self.writer.expect(opened.total.unwrap_or_default());
        self.take(&mut opened, &mut slow_timeout).await?;
        match self.partial.total {
            Some(total)
                if self.partial.bytes < total || opened.total.is_some_and(|of| of != self.partial.bytes) =>
            {
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
        loop {
            let chunk = tokio::select! {
                chunk = opened.chunk() => chunk.map_err(TransferError::Link)?,
                () = slow_timeout.expired() => return Err(TransferError::Slow),
            };
            let Some(chunk) = chunk else { return Ok(()) };
            slow_timeout.slow_download.took(chunk.as_ref().len() as u64);
            if !self.writer.fits_in_memory(chunk.as_ref().len()) {
                slow_timeout.fetcher.commit.wait().await;
            }
            self.piece(chunk.as_ref()).map_err(TransferError::Here)?;
        }
    }

    fn piece(&mut self, piece: &[u8]) -> Result<(), FetchFault> {
        let partial = &mut self.partial;
        partial.bytes += piece.len() as u64;
        self.received += piece.len() as u64;
        self.metrics.downloaded(piece.len() as u64);
        let missing = HEAD_BYTES.saturating_sub(partial.head.len()).min(piece.len());
        partial.head.extend_from_slice(&piece[..missing]);
        self.refuse_too_large(self.partial.bytes)?;
        let pushed = self.writer.push(piece);
        pushed.map_err(|error| self.refused(&error))
    }

    /// The disk refuses.
    fn refused(&self, error: &std::io::Error) -> FetchFault {
        disk_fault(error, self.partial.total.unwrap_or(self.partial.bytes))
    }

    /// The host sent the file from its beginning.
    fn start_over(&mut self) -> Result<(), FetchFault> {
        self.writer.start_over().map_err(|error| disk_fault(&error, 0))?;
        self.partial = PartialDownload::nothing(self.partial.began);
        Ok(())
    }

    fn refuse_too_large(&self, bytes: u64) -> Result<(), FetchFault> {
        if bytes <= self.max_bytes {
            return Ok(());
        }
        let text = format!("the result is larger than {} bytes; output.max_file allows more", self.max_bytes);
        Err(FetchFault::Lasting(Fault::new("too_large", text)))
    }

    /// How far it came; that is in its file on return.
    pub(super) fn suspend(mut self) -> Result<PartialDownload, FetchFault> {
        let written = self.writer.write_out();
        written.map_err(|error| self.refused(&error))?;
        self.partial.hasher = self.writer.into_hasher();
        Ok(self.partial)
    }

    /// Whether the file stays in memory where it has no more bytes than that.
    pub(super) fn stays_in_memory(&self, in_memory_max: usize) -> bool {
        self.writer.is_in_memory() && self.writer.buffered() <= in_memory_max
    }

    /// A whole file: in memory where it has no more bytes than `in_memory_max`, otherwise on the device.
    pub(super) async fn finish(
        mut self,
        kind: Kind,
        url: &str,
        path: &Path,
        in_memory_max: usize,
    ) -> Result<Part, FetchFault> {
        let media = detect_media_type(kind, &self.partial.head, self.partial.content_type.as_deref(), url);
        // Another reading of the task may bring another link.
        let media = media.map_err(|wrong| FetchFault::Stale(Fault::new("not_media", wrong.to_string())))?;
        let cut_off = || {
            let text = format!("the result ends too early, after {} bytes", self.partial.bytes);
            FetchFault::Stale(Fault::new("cut_off", text))
        };
        let (path, bytes) = (path.to_owned(), self.partial.bytes);
        if self.stays_in_memory(in_memory_max) {
            let cut_off = cut_off();
            let (hasher, content) = self.writer.into_memory();
            if is_truncated(Cursor::new(&content), &media.content_type).unwrap_or(true) {
                return Err(cut_off);
            }
            return Ok(Part {
                path,
                unwritten: Some(content),
                bytes,
                sha256: hex(&hasher.finalize()),
                media,
            });
        }
        let written = self.writer.write_out();
        written.map_err(|error| self.refused(&error))?;
        let total = self.partial.total.unwrap_or(bytes);
        let cut_off = cut_off();
        let (hasher, file) = self.writer.into_file();
        let (place, content_type) = (path.clone(), media.content_type.clone());
        let check = move || {
            let is_whole = !is_truncated(std::fs::File::open(place)?, &content_type)?;
            // Here, so that no other job waits for a large file.
            if let (true, Some(file)) = (is_whole, file) {
                file.sync_data()?;
            }
            Ok(is_whole)
        };
        match blocking(check).await {
            Ok(true) => Ok(Part { path, unwritten: None, bytes, sha256: hex(&hasher.finalize()), media }),
            Ok(false) => Err(cut_off),
            Err(error) => Err(disk_fault(&error, total)),
        }
    }
}
