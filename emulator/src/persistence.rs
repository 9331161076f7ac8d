//! The record log: every fact that must outlive the process, one JSON line each.
//!
//! A line is handed to the operating system before the answer it belongs to is sent, so the death of the process
//! loses nothing that a client was told. It is not synced: the emulator guards no real money. A last line that
//! was cut short is dropped, since no client got an answer for it.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::options::StartError;
use super::state::Record;

/// The record log's file name in the state directory.
const FILE: &str = "emulator.jsonl";
/// The format written; an unknown one is refused.
pub(crate) const VERSION: u32 = 1;

/// An open record log, locked against a second emulator.
#[derive(Debug)]
pub(crate) struct RecordLog {
    file: File,
    length: u64,
}

impl RecordLog {
    /// Open the record log of a directory and read what it holds, oldest first.
    pub(crate) fn open(dir: &Path, mut each: impl FnMut(Record)) -> Result<Self, StartError> {
        let path = dir.join(FILE);
        let failed = |source| StartError::State { path: path.clone(), source };
        std::fs::create_dir_all(dir).map_err(failed)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(StartError::StateInUse { path }),
            Err(std::fs::TryLockError::Error(source)) => return Err(failed(source)),
        }
        let length = read_lines(&file, &path, &mut each)?;
        let mut record_log = Self { file, length };
        record_log.file.set_len(length).map_err(failed)?;
        record_log.file.seek(SeekFrom::Start(length)).map_err(failed)?;
        Ok(record_log)
    }

    /// Write one line, whole or not at all.
    pub(crate) fn append(&mut self, record: &Record) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            // Take back what may have been written of it.
            self.file.set_len(self.length)?;
            self.file.seek(SeekFrom::Start(self.length))?;
            return Err(error);
        }
        self.length += u64::try_from(line.len()).unwrap_or(0);
        Ok(())
    }
}

impl Drop for RecordLog {
    fn drop(&mut self) {
        // Closing is not enough: a child process that was forked meanwhile holds the lock until it runs another program.
        let _ = self.file.unlock();
    }
}

/// Read whole lines; returns how many bytes of the file are good.
fn read_lines(file: &File, path: &Path, each: &mut impl FnMut(Record)) -> Result<u64, StartError> {
    let damaged =
        |line: usize, reason: String| StartError::Damaged { path: PathBuf::from(path), line, reason };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut good = 0_u64;
    for number in 1.. {
        line.clear();
        let read = reader.read_until(b'\n', &mut line);
        let read = read.map_err(|source| StartError::State { path: PathBuf::from(path), source })?;
        if read == 0 || line.last() != Some(&b'\n') {
            break;
        }
        let record: Record = match serde_json::from_slice(&line) {
            Ok(record) => record,
            // Garbage at the very end is a torn write as well.
            Err(_) if reader.fill_buf().is_ok_and(<[u8]>::is_empty) => break,
            Err(error) => return Err(damaged(number, error.to_string())),
        };
        if let Record::Opened { version, .. } = record
            && version != VERSION
        {
            return Err(damaged(
                number,
                format!("version {version} of the format is not supported, only {VERSION} is"),
            ));
        }
        each(record);
        good += u64::try_from(read).unwrap_or(0);
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(base_ms: i64) -> Record {
        Record::Clock { manual: true, base_ms }
    }

    fn read(dir: &Path) -> Result<Vec<i64>, StartError> {
        let mut seen = Vec::new();
        RecordLog::open(dir, |record| {
            if let Record::Clock { base_ms, .. } = record {
                seen.push(base_ms);
            }
        })?;
        Ok(seen)
    }

    #[test]
    fn a_torn_last_line_is_forgotten_and_the_log_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut record_log = RecordLog::open(dir.path(), |_| {}).unwrap();
        record_log.append(&clock(1)).unwrap();
        record_log.append(&clock(2)).unwrap();
        drop(record_log);
        let path = dir.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        for cut in 1..whole.len() / 2 {
            std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            assert_eq!(read(dir.path()).unwrap(), [1]);
            RecordLog::open(dir.path(), |_| {}).unwrap().append(&clock(3)).unwrap();
            assert_eq!(read(dir.path()).unwrap(), [1, 3]);
        }
    }

    #[test]
    fn damage_in_the_middle_is_an_error_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join(FILE),
            "nonsense\n{\"record\":\"clock\",\"manual\":true,\"base_ms\":1}\n",
        )
        .unwrap();
        assert!(matches!(read(dir.path()), Err(StartError::Damaged { line: 1, .. })));
    }

    #[test]
    fn a_second_emulator_on_the_same_state_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = RecordLog::open(dir.path(), |_| {}).unwrap();
        assert!(matches!(read(dir.path()), Err(StartError::StateInUse { .. })));
    }
}
