//! Log entries for systemd-journald, by its native protocol: one datagram with the fields of an entry.
//!
//! The message carries the fields, too: `journalctl -u callsheet` shows messages alone, and `finished` says
//! little without its job.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tracing::Level;

use crate::domain::text_prefix::text_prefix;

/// The socket of systemd-journald.
const SOCKET: &str = "/run/systemd/journal/socket";
/// What precedes the names of our fields: `CALLSHEET_BATCH`, `CALLSHEET_JOB`.
const PREFIX: &str = "CALLSHEET_";
/// Longest name of a field that the journal takes.
const NAME_MAX: usize = 64;
/// More of a value is cut off: an entry has to fit into a datagram.
const VALUE_MAX_BYTES: usize = 8 * 1024;

/// Writes entries.
#[derive(Debug)]
pub(super) struct Journal {
    /// Not connected: a journal that is restarted is found again.
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// Finds the machine's journal.
    ///
    /// # Errors
    /// When none listens.
    pub(super) fn find() -> io::Result<Journal> {
        Journal::at(Path::new(SOCKET))
    }

    pub(super) fn socket_path() -> &'static str {
        SOCKET
    }

    fn at(path: &Path) -> io::Result<Journal> {
        let journal = Journal { socket: UnixDatagram::unbound()?, path: path.to_owned() };
        // It takes no notice of an empty entry; whether it is there is known by it. One that is too busy to take it is there.
        journal.socket.set_nonblocking(true)?;
        match journal.socket.send_to(&[], &journal.path) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        journal.socket.set_nonblocking(false)?;
        Ok(journal)
    }

    /// Writes an entry, and waits where the journal is busy. There is nobody to tell when that fails.
    pub(super) fn write(&self, entry: &[u8]) {
        let _ = self.socket.send_to(entry, &self.path);
    }
}

/// An entry, field by field.
#[derive(Debug)]
pub(super) struct JournalEntry {
    bytes: Vec<u8>,
}

impl JournalEntry {
    pub(super) fn new(message: &str, level: Level, target: &str) -> JournalEntry {
        let mut entry = JournalEntry { bytes: Vec::with_capacity(512) };
        entry.field("MESSAGE", message);
        entry.field("PRIORITY", priority(level));
        entry.field("SYSLOG_IDENTIFIER", "callsheet");
        entry.field("TARGET", target);
        entry
    }

    /// What is sent.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds a field of ours.
    pub(super) fn add_field(&mut self, name: &str, value: &Value) {
        let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name: String = PREFIX.chars().chain(name.chars().map(fit)).take(NAME_MAX).collect();
        match value {
            Value::String(text) => self.field(&name, text),
            other => self.field(&name, &other.to_string()),
        }
    }

    /// By its length, whatever is in it: a value cannot begin a field of its own.
    fn field(&mut self, name: &str, value: &str) {
        let value = text_prefix(value, VALUE_MAX_BYTES);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(b'\n');
        self.bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(b'\n');
    }
}

fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Reads an entry as the journal does.
    fn read(mut bytes: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let name_end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            let (name, rest) = bytes.split_at(name_end);
            let (length, rest) = rest[1..].split_at(8);
            let length = usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            fields.push((text(name), text(&rest[..length])));
            assert_eq!(rest[length], b'\n');
            bytes = &rest[length + 1..];
        }
        fields
    }

    #[test]
    fn an_entry_arrives_field_by_field() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert!(Journal::at(&path).is_err(), "no journal is running");
        let listener = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::at(&path).unwrap();
        let mut entry = JournalEntry::new("failed batch=ads", Level::WARN, "callsheet::engine");
        entry.add_field("batch", &json!("ads"));
        entry.add_field("late.by", &json!(3));
        entry.add_field("reason", &json!("two\nPRIORITY=0"));
        journal.write(&entry.into_bytes());
        let mut buffer = [0; 1024];
        assert_eq!(listener.recv(&mut buffer).unwrap(), 0, "the check that it is there");
        let length = listener.recv(&mut buffer).unwrap();
        let expected = [
            ("MESSAGE", "failed batch=ads"),
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "callsheet"),
            ("TARGET", "callsheet::engine"),
            ("CALLSHEET_BATCH", "ads"),
            ("CALLSHEET_LATE_BY", "3"),
            ("CALLSHEET_REASON", "two\nPRIORITY=0"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read(&buffer[..length]), expected);
    }

    #[test]
    fn a_journal_that_takes_nothing_is_found_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = UnixDatagram::bind(&path).unwrap();
        let full = UnixDatagram::unbound().unwrap();
        full.set_nonblocking(true).unwrap();
        while full.send_to(&[0; 1024], &path).is_ok() {}
        assert!(Journal::at(&path).is_ok());
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let entry = JournalEntry::new(&"ü".repeat(VALUE_MAX_BYTES), Level::ERROR, "t");
        assert_eq!(read(&entry.bytes)[0].1, "ü".repeat(VALUE_MAX_BYTES / 2));
        let odd = JournalEntry::new(&format!("x{}", "ü".repeat(VALUE_MAX_BYTES)), Level::ERROR, "t");
        assert_eq!(read(&odd.bytes)[0].1.len(), VALUE_MAX_BYTES - 1);
    }
}
