//! A part on its way to the disk: what is small stays in memory, to be written when it is published; what is large is
//! hashed and written in pieces, beside what still comes.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;

use crate::domain::ids::BatchName;
use crate::engine::blocking;
use crate::output::publish::{self, OutputDir};

/// Bytes that are handed to a writing thread at once, and that a small part has at most.
const BUFFER_BYTES: usize = 256 * 1024;
/// One write: larger ones cost four times the processor time (measured).
const WRITE_BYTES: usize = 64 * 1024;

/// See the module's documentation.
pub(super) struct PartWriter {
    path: PathBuf,
    output_dir: OutputDir,
    batch: BatchName,
    /// Of all bytes but those in the buffer.
    hasher: Sha256,
    /// None before the first piece is written, and while one is.
    file: Option<File>,
    buffer: Vec<u8>,
    writing: Option<JoinHandle<Written>>,
}

/// What comes back from a thread that wrote.
struct Written {
    hasher: Sha256,
    buffer: Vec<u8>,
    file: io::Result<File>,
}

impl PartWriter {
    /// A part of which nothing has come.
    pub(super) fn new(path: &Path, output_dir: &OutputDir, batch: &BatchName) -> PartWriter {
        PartWriter {
            path: path.to_owned(),
            output_dir: output_dir.clone(),
            batch: batch.clone(),
            hasher: Sha256::default(),
            file: None,
            buffer: Vec::new(),
            writing: None,
        }
    }

    /// Goes on with a part of which so many bytes, with this hash, are in its file.
    ///
    /// # Errors
    /// Where that file is not there or is of another length.
    pub(super) async fn resume(mut self, bytes: u64, hasher: Sha256) -> Result<PartWriter, PartWriter> {
        let path = self.path.clone();
        match blocking(move || publish::append(&path, bytes)).await {
            Ok(file) => {
                (self.file, self.hasher) = (Some(file), hasher);
                Ok(self)
            }
            Err(_) => Err(self),
        }
    }

    /// Room for a part of that length.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.buffer.reserve(usize::try_from(bytes).map_or(BUFFER_BYTES, |bytes| bytes.min(BUFFER_BYTES)));
    }

    /// Takes the next bytes.
    pub(super) async fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(piece);
        if self.buffer.len() >= BUFFER_BYTES { self.begin_writing().await } else { Ok(()) }
    }

    /// Whether all that came is in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        self.file.is_none() && self.writing.is_none()
    }

    /// Bytes in memory.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Begins anew.
    pub(super) async fn start_over(&mut self) -> io::Result<()> {
        self.settle().await?;
        self.buffer.clear();
        self.hasher = Sha256::default();
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let empty = move || file.set_len(0).and_then(|()| file.rewind()).map(|()| file);
        self.file = Some(blocking(empty).await?);
        Ok(())
    }

    /// All that came is in the file on return. It is not synced.
    pub(super) async fn write_out(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.begin_writing().await?;
        }
        self.settle().await
    }

    /// The hash of what was written out.
    pub(super) fn into_hasher(self) -> Sha256 {
        self.hasher
    }

    /// The hash and the bytes of a part that is in memory.
    pub(super) fn into_memory(self) -> (Sha256, Vec<u8>) {
        (self.hasher.chain_update(&self.buffer), self.buffer)
    }

    /// The hash and the file of a part that was written out; no file where nothing ever came.
    pub(super) fn into_file(self) -> (Sha256, Option<File>) {
        (self.hasher, self.file)
    }

    /// Hands the buffer to a thread that hashes and writes it, once the one before is done.
    async fn begin_writing(&mut self) -> io::Result<()> {
        let full = std::mem::take(&mut self.buffer);
        self.settle().await?;
        let (path, output_dir, batch) = (self.path.clone(), self.output_dir.clone(), self.batch.clone());
        let create = move || match publish::create(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                output_dir.make_batch_dir(&batch)?;
                publish::create(&path)
            }
            other => other,
        };
        let (mut hasher, file) = (std::mem::take(&mut self.hasher), self.file.take());
        let write = move || {
            let file = file.map_or_else(create, Ok);
            let file = file.and_then(|mut file| {
                for piece in full.chunks(WRITE_BYTES) {
                    hasher.update(piece);
                    file.write_all(piece)?;
                }
                Ok(file)
            });
            Written { hasher, buffer: full, file }
        };
        self.writing = Some(tokio::task::spawn_blocking(write));
        Ok(())
    }

    /// Waits until nothing is being written; the buffer may be used again.
    async fn settle(&mut self) -> io::Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let written = writing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let Written { hasher, mut buffer, file } = written;
        (self.hasher, self.file) = (hasher, Some(file?));
        if self.buffer.capacity() == 0 {
            buffer.clear();
            self.buffer = buffer;
        }
        Ok(())
    }
}
