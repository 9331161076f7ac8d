//! Writing a large file by direct I/O: its bytes go from this process's memory to the device, and not through the page cache
//! of the kernel. That spares a copy and the kernel's work on a page for every 4 KiB, a third of what a download costs
//! (`PERFORMANCE.md`, large files), and what others have in the cache stays there.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::output::group_sync::is_local;

/// A smaller file goes through the cache: it is soon synced, and likely to be looked at.
const FILE_MIN_BYTES: u64 = 4 * 1024 * 1024;
/// One write: a quarter of it costs a tenth more processor time (measured).
const WRITE_BYTES: usize = 1024 * 1024;
/// The device takes buffers and lengths that are multiples of its block; this is one of every block size in use.
const BLOCK_BYTES: usize = 4096;

/// A file that is written from its beginning to its end.
#[derive(Debug)]
pub struct DirectWriter {
    file: File,
    /// `start` bytes that are not used, so that the rest is aligned, and what was not written yet. Never grown: that would move
    /// it.
    buffer: Vec<u8>,
    start: usize,
    /// Nothing was refused yet.
    is_direct: bool,
}

impl DirectWriter {
    /// Whether a file of that length, below `root`, is to be written by direct I/O.
    pub fn is_for(bytes: u64, root: &Path) -> bool {
        bytes >= FILE_MIN_BYTES && is_local(root)
    }

    /// Begins an empty file; the file as it was where direct I/O is refused.
    ///
    /// # Errors
    /// The file.
    pub fn begin(file: File) -> Result<DirectWriter, File> {
        if set_direct(&file, true).is_err() {
            return Err(file);
        }
        let mut buffer: Vec<u8> = Vec::with_capacity(WRITE_BYTES + BLOCK_BYTES);
        let start = buffer.as_ptr().align_offset(BLOCK_BYTES);
        buffer.resize(start, 0);
        Ok(DirectWriter { file, buffer, start, is_direct: true })
    }

    /// Whether so many bytes are taken without writing.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.buffered() + bytes < WRITE_BYTES
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !self.has_room_for(bytes.len()) {
            let (now, later) = bytes.split_at(WRITE_BYTES - self.buffered());
            self.buffer.extend_from_slice(now);
            self.write()?;
            bytes = later;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Begins the file anew.
    ///
    /// # Errors
    /// I/O errors.
    pub fn start_over(&mut self) -> io::Result<()> {
        self.buffer.truncate(self.start);
        self.file.set_len(0)?;
        self.file.rewind()
    }

    /// Writes what is left, which is no whole block, through the cache. Returns the file, which is not synced.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(mut self) -> io::Result<File> {
        let whole = self.buffered() / BLOCK_BYTES * BLOCK_BYTES;
        let rest = self.buffer.split_off(self.start + whole);
        self.write()?;
        self.write_cached(&rest)?;
        Ok(self.file)
    }

    fn buffered(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Writes the buffer, which is of whole blocks.
    fn write(&mut self) -> io::Result<()> {
        let mut written = self.start;
        while self.is_direct && written < self.buffer.len() {
            match self.file.write(&self.buffer[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A device with larger blocks, or a write that ended within one.
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => break,
                Err(error) => return Err(error),
            }
        }
        let rest = self.buffer.split_off(written);
        self.buffer.truncate(self.start);
        self.write_cached(&rest)
    }

    fn write_cached(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.is_direct {
            set_direct(&self.file, false)?;
            self.is_direct = false;
        }
        self.file.write_all(bytes)
    }
}

fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, is_direct);
    Ok(fcntl_setfl(file, flags)?)
}

/// A folder beside this program, which is on a disk, wherever the temporary folder is.
#[cfg(test)]
pub(crate) fn folder_on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Writes pieces of a length into a file, and compares.
    fn is_written(dir: &Path, bytes: usize, piece: usize) {
        let content: Vec<u8> = (0..bytes).map(|n| u8::try_from(n / 7 % 251).unwrap()).collect();
        let path = dir.join("file");
        let mut writer = DirectWriter::begin(File::create(&path).unwrap()).unwrap();
        writer.push(b"what the host had begun to send").unwrap();
        writer.start_over().unwrap();
        content.chunks(piece).for_each(|piece| writer.push(piece).unwrap());
        writer.finish().unwrap().sync_data().unwrap();
        assert!(fs::read(&path).unwrap() == content, "{bytes} bytes in pieces of {piece}");
    }

    #[test]
    fn every_byte_is_written_whatever_the_length_of_the_file_and_of_what_comes() {
        let dir = folder_on_disk();
        if let Err(file) = DirectWriter::begin(File::create(dir.path().join("file")).unwrap()) {
            eprintln!("SKIPPED: {file:?} is on a file system without direct I/O");
            return;
        }
        for bytes in
            [0, 1, BLOCK_BYTES, WRITE_BYTES - 1, WRITE_BYTES, WRITE_BYTES + 1, 3 * WRITE_BYTES + 5000]
        {
            for piece in [999, BLOCK_BYTES, WRITE_BYTES, WRITE_BYTES + 1, 4 * WRITE_BYTES] {
                is_written(dir.path(), bytes, piece);
            }
        }
    }

    /// As a device with larger blocks would.
    #[test]
    fn what_the_device_refuses_goes_through_the_cache() {
        let dir = folder_on_disk();
        let path = dir.path().join("file");
        let Ok(mut writer) = DirectWriter::begin(File::create(&path).unwrap()) else { return };
        // The position is within a block then.
        set_direct(&writer.file, false).unwrap();
        writer.file.write_all(b"begun").unwrap();
        set_direct(&writer.file, true).unwrap();
        let content = vec![7; WRITE_BYTES + 1000];
        writer.push(&content).unwrap();
        assert!(!writer.is_direct);
        writer.finish().unwrap();
        assert!(fs::read(&path).unwrap() == [b"begun".as_slice(), &content].concat());
    }

    #[test]
    fn small_files_and_other_file_systems_are_left_to_the_cache() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(!DirectWriter::is_for(FILE_MIN_BYTES - 1, root));
        assert_eq!(DirectWriter::is_for(FILE_MIN_BYTES, root), is_local(root));
        assert!(!DirectWriter::is_for(FILE_MIN_BYTES, Path::new("/proc")));
    }
}
