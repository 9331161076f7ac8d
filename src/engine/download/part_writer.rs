//! A part on its way to the disk: what is small stays in memory, to be written when it is published; what is large is
//! hashed and written as it comes, by the thread that received it, so that it is still in the cache of its processor.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::domain::ids::BatchName;
use crate::engine::{blocking, in_place};
use crate::output::publish::{self, OutputDir};

/// Bytes that a small part has at most, and that are collected of pieces that come in too small to be written.
const BUFFER_BYTES: usize = 256 * 1024;
/// A piece of so many bytes is written as it came.
const DIRECT_MIN_BYTES: usize = 64 * 1024;
/// One write: larger ones cost four times the processor time (measured).
const WRITE_BYTES: usize = 64 * 1024;

/// See the module's documentation.
pub(super) struct PartWriter {
    path: PathBuf,
    output_dir: OutputDir,
    batch: BatchName,
    /// Of all bytes but those in the buffer.
    hasher: Sha256,
    /// None before the first piece is written.
    file: Option<File>,
    buffer: Vec<u8>,
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
    pub(super) fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        let is_direct = piece.len() >= DIRECT_MIN_BYTES && self.file.is_some();
        if !is_direct && self.buffer.len() + piece.len() <= BUFFER_BYTES {
            self.buffer.extend_from_slice(piece);
            return Ok(());
        }
        self.write(piece)
    }

    /// Whether all that came is in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        self.file.is_none()
    }

    /// Bytes in memory.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Begins anew.
    pub(super) fn start_over(&mut self) -> io::Result<()> {
        self.buffer.clear();
        self.hasher = Sha256::default();
        let Some(file) = &mut self.file else { return Ok(()) };
        in_place(|| file.set_len(0).and_then(|()| file.rewind()))
    }

    /// All that came is in the file on return. It is not synced.
    pub(super) fn write_out(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.write(&[]) }
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

    /// Hashes and writes the buffer, and then a piece that comes after it.
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        in_place(|| {
            let mut file = match self.file.take() {
                Some(file) => file,
                None => self.create()?,
            };
            for piece in self.buffer.chunks(WRITE_BYTES).chain(piece.chunks(WRITE_BYTES)) {
                self.hasher.update(piece);
                file.write_all(piece)?;
            }
            self.buffer.clear();
            self.file = Some(file);
            Ok(())
        })
    }

    fn create(&self) -> io::Result<File> {
        match publish::create(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.output_dir.make_batch_dir(&self.batch)?;
                publish::create(&self.path)
            }
            other => other,
        }
    }
}
