//! A part on its way to the disk: what is small stays in memory, to be written when it is published; what is large is
//! hashed and written as it comes, by the thread that received it, so that it is still in the cache of its processor.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::mem;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::domain::ids::BatchName;
use crate::engine::{blocking, in_place};
use crate::output::direct_io::DirectWriter;
use crate::output::publish::{self, OutputDir};

/// Bytes that a small part has at most, and that are collected of pieces that come in too small to be written.
const BUFFER_BYTES: usize = 256 * 1024;
/// A piece of so many bytes is written as it came.
const UNBUFFERED_MIN_BYTES: usize = 64 * 1024;
/// One write: larger ones cost four times the processor time (measured).
const WRITE_BYTES: usize = 64 * 1024;

/// See the module's documentation.
pub(super) struct PartWriter {
    path: PathBuf,
    output_dir: OutputDir,
    batch: BatchName,
    /// Of all bytes that came.
    hasher: Sha256,
    target: Target,
    /// What was not written yet, but by direct I/O.
    buffer: Vec<u8>,
    /// Length of the whole part, in bytes, where the host told it.
    expected: u64,
    /// Nobody reads the part as soon as it is published.
    may_be_direct: bool,
}

/// Where the bytes of a part go.
enum Target {
    /// Nowhere yet.
    Memory,
    Cached(File),
    Direct(DirectWriter),
}

impl PartWriter {
    /// A part of which nothing has come. Where it `may_be_direct` it is not read soon, and does not go through the page
    /// cache if it is large.
    pub(super) fn new(
        path: &Path,
        output_dir: &OutputDir,
        batch: &BatchName,
        may_be_direct: bool,
    ) -> PartWriter {
        PartWriter {
            path: path.to_owned(),
            output_dir: output_dir.clone(),
            batch: batch.clone(),
            hasher: Sha256::default(),
            target: Target::Memory,
            buffer: Vec::new(),
            expected: 0,
            may_be_direct,
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
                (self.target, self.hasher) = (Target::Cached(file), hasher);
                Ok(self)
            }
            Err(_) => Err(self),
        }
    }

    /// Room for a part of that length.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.expected = bytes;
        if !matches!(self.target, Target::Direct(_)) {
            self.buffer.reserve(usize::try_from(bytes).map_or(BUFFER_BYTES, |bytes| bytes.min(BUFFER_BYTES)));
        }
    }

    /// Whether the part stays in memory with so many more bytes.
    pub(super) fn fits_in_memory(&self, more: usize) -> bool {
        self.is_in_memory() && self.buffer.len() + more <= BUFFER_BYTES
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hasher.update(piece);
        let is_taken = match &self.target {
            Target::Direct(writer) if !writer.has_room_for(piece.len()) => false,
            Target::Direct(_) => return self.write(piece),
            Target::Cached(_) if piece.len() >= UNBUFFERED_MIN_BYTES => false,
            Target::Cached(_) | Target::Memory => self.buffer.len() + piece.len() <= BUFFER_BYTES,
        };
        if is_taken {
            self.buffer.extend_from_slice(piece);
            return Ok(());
        }
        in_place(|| self.write(piece))
    }

    /// Whether all that came is in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self.target, Target::Memory)
    }

    /// Bytes of a part that is in memory.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Begins anew.
    pub(super) fn start_over(&mut self) -> io::Result<()> {
        self.buffer.clear();
        self.hasher = Sha256::default();
        match &mut self.target {
            Target::Memory => Ok(()),
            Target::Cached(file) => in_place(|| file.set_len(0).and_then(|()| file.rewind())),
            Target::Direct(writer) => in_place(|| writer.start_over()),
        }
    }

    /// All that came is in the file on return. It is not synced.
    pub(super) fn write_out(&mut self) -> io::Result<()> {
        in_place(|| {
            if !self.buffer.is_empty() {
                self.write(&[])?;
            }
            self.target = match mem::replace(&mut self.target, Target::Memory) {
                Target::Direct(writer) => Target::Cached(writer.finish()?),
                other => other,
            };
            Ok(())
        })
    }

    /// The hash of what was written out.
    pub(super) fn into_hasher(self) -> Sha256 {
        self.hasher
    }

    /// The hash and the bytes of a part that is in memory.
    pub(super) fn into_memory(self) -> (Sha256, Vec<u8>) {
        (self.hasher, self.buffer)
    }

    /// The hash and the file of a part that was written out; no file where nothing ever came.
    pub(super) fn into_file(self) -> (Sha256, Option<File>) {
        match self.target {
            Target::Cached(file) => (self.hasher, Some(file)),
            _ => (self.hasher, None),
        }
    }

    /// Writes the buffer, and then a piece that comes after it. By direct I/O its end may be left for the next write.
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.is_in_memory() {
            self.target = self.create()?;
        }
        match &mut self.target {
            Target::Direct(writer) => {
                if !self.buffer.is_empty() {
                    writer.push(&mem::take(&mut self.buffer))?;
                }
                writer.push(piece)
            }
            Target::Cached(file) => {
                let mut pieces = self.buffer.chunks(WRITE_BYTES).chain(piece.chunks(WRITE_BYTES));
                pieces.try_for_each(|piece| file.write_all(piece))?;
                self.buffer.clear();
                Ok(())
            }
            // It was created above.
            Target::Memory => Ok(()),
        }
    }

    fn create(&self) -> io::Result<Target> {
        let file = self.create_file()?;
        if !self.may_be_direct || !DirectWriter::is_for(self.expected, self.output_dir.root()) {
            return Ok(Target::Cached(file));
        }
        Ok(DirectWriter::begin(file).map_or_else(Target::Cached, Target::Direct))
    }

    fn create_file(&self) -> io::Result<File> {
        self.output_dir.check_root()?;
        match publish::create(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.output_dir.make_batch_dir(&self.batch)?;
                publish::create(&self.path)
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::hex::hex;
    use crate::output::OutputOptions;
    use crate::output::direct_io::folder_on_disk;

    use super::*;

    /// A part that is not read soon.
    fn new(dir: &Path, expected: u64) -> PartWriter {
        let output_dir = OutputDir::new(dir, OutputOptions::default());
        let mut writer = PartWriter::new(&dir.join(".part"), &output_dir, &"spring".parse().unwrap(), true);
        writer.expect(expected);
        writer
    }

    #[tokio::test]
    async fn a_large_part_that_was_left_and_begun_anew_is_whole() {
        let dir = folder_on_disk();
        let content: Vec<u8> = (0..5_500_000).map(|n| u8::try_from(n / 11 % 241).unwrap()).collect();
        let mut writer = new(dir.path(), content.len() as u64);
        content[..3_000_001].chunks(100_000).for_each(|piece| writer.push(piece).unwrap());
        writer.start_over().unwrap();
        let (before, after) = content.split_at(4_700_003);
        before.chunks(70_000).for_each(|piece| writer.push(piece).unwrap());
        writer.write_out().unwrap();
        assert_eq!(std::fs::metadata(dir.path().join(".part")).unwrap().len(), before.len() as u64);
        let hasher = writer.into_hasher();
        let resumed = new(dir.path(), content.len() as u64).resume(before.len() as u64, hasher).await;
        let mut writer = resumed.ok().unwrap();
        after.chunks(999).for_each(|piece| writer.push(piece).unwrap());
        writer.write_out().unwrap();
        let (hasher, file) = writer.into_file();
        assert!(file.is_some());
        assert_eq!(hex(&hasher.finalize()), hex(&Sha256::digest(&content)));
        assert!(std::fs::read(dir.path().join(".part")).unwrap() == content);
    }

    #[test]
    fn a_small_part_stays_in_memory_and_one_that_nobody_told_the_length_of_is_written() {
        let dir = folder_on_disk();
        let mut writer = new(dir.path(), 4);
        writer.push(b"boat").unwrap();
        assert!(writer.is_in_memory());
        assert_eq!(writer.into_memory().1, b"boat");
        let mut writer = new(dir.path(), 0);
        let content = vec![3; BUFFER_BYTES + 1];
        writer.push(&content).unwrap();
        writer.write_out().unwrap();
        assert_eq!(hex(&writer.into_file().0.finalize()), hex(&Sha256::digest(&content)));
        assert!(std::fs::read(dir.path().join(".part")).unwrap() == content);
    }
}
