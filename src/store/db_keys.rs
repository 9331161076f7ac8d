//! Keys of the database: a letter for the kind of record, then big-endian numbers, so that records
//! of a kind lie together and in order.

use std::ops::Range;

use crate::domain::ids::{BatchName, BatchNo, JobKey, Seq};
use crate::domain::time::Timestamp;
use crate::domain::utc_day::UtcDay;

/// Prefix of batches.
pub(super) const BATCH: u8 = b'b';
/// Prefix of the lines of finished batches, by name.
pub(super) const FINISHED: u8 = b'a';
/// Prefix of the names of finished batches by their number.
pub(super) const FINISHED_NUMBER: u8 = b'n';
/// Prefix of the names of finished batches by their number, where their end was not announced.
pub(super) const UNANNOUNCED: u8 = b'u';
/// Prefix of open jobs: nothing else lies between them, so they are found without reading what has
/// ended.
pub(super) const JOB: u8 = b'j';

pub(super) fn batch(no: BatchNo) -> [u8; 5] {
    numbered(BATCH, no.0.to_be_bytes())
}

pub(super) fn outcomes_bytes(no: BatchNo) -> [u8; 5] {
    numbered(b'o', no.0.to_be_bytes())
}

/// Days before 1970 do not occur; the sign bit is flipped so that order would hold even for them.
pub(super) fn day(day: UtcDay) -> [u8; 5] {
    let sortable = day.0.to_be_bytes();
    numbered(b'd', [sortable[0] ^ 0x80, sortable[1], sortable[2], sortable[3]])
}

pub(super) fn job(key: JobKey) -> [u8; 9] {
    let (batch, seq) = (key.batch.0.to_be_bytes(), key.seq.0.to_be_bytes());
    [JOB, batch[0], batch[1], batch[2], batch[3], seq[0], seq[1], seq[2], seq[3]]
}

/// The place in its batch of the job that a key stands for.
pub(super) fn seq_of_job(key: &[u8]) -> Option<Seq> {
    let seq = key.get(5..)?.try_into().ok()?;
    Some(Seq(u32::from_be_bytes(seq)))
}

/// Prefix of the open jobs of a batch.
pub(super) fn jobs_of(batch: BatchNo) -> [u8; 5] {
    numbered(JOB, batch.0.to_be_bytes())
}

pub(super) fn finished(name: &BatchName) -> Vec<u8> {
    [&[FINISHED], name.as_str().as_bytes()].concat()
}

pub(super) fn finished_number(no: BatchNo) -> [u8; 5] {
    numbered(FINISHED_NUMBER, no.0.to_be_bytes())
}

/// By the time of their end, then by number. The sign bit is flipped as that of days.
pub(super) fn finished_at(at: Timestamp, no: BatchNo) -> [u8; 13] {
    let mut key = [b'f'; 13];
    key[1..9].copy_from_slice(&sortable(at));
    key[9..].copy_from_slice(&no.0.to_be_bytes());
    key
}

/// The keys of batches that ended at that time or later.
pub(super) fn finished_since(at: Timestamp) -> Range<Vec<u8>> {
    let first = [&[b'f'][..], &sortable(at)].concat();
    // The key that follows them is another record's: it is the end, and not in the range.
    first..vec![b'g']
}

fn sortable(at: Timestamp) -> [u8; 8] {
    (at.0 ^ i64::MIN).to_be_bytes()
}

pub(super) fn unannounced(no: BatchNo) -> [u8; 5] {
    numbered(UNANNOUNCED, no.0.to_be_bytes())
}

pub(super) fn total() -> [u8; 1] {
    *b"t"
}

pub(super) fn account() -> [u8; 1] {
    *b"g"
}

pub(super) fn commits() -> [u8; 1] {
    *b"c"
}

fn numbered(prefix: u8, number: [u8; 4]) -> [u8; 5] {
    [prefix, number[0], number[1], number[2], number[3]]
}

/// What a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Batch,
    Job,
    OutcomesBytes(BatchNo),
    Finished,
    FinishedNumber(BatchNo),
    FinishedAt(Timestamp, BatchNo),
    Unannounced(BatchNo),
    Day(UtcDay),
    Total,
    Account,
    Commits,
}

/// Reads a key; nothing when it is none of ours.
pub(super) fn meaning(key: &[u8]) -> Option<Meaning> {
    let (kind, rest) = key.split_first()?;
    let number = || rest.try_into().ok().map(u32::from_be_bytes);
    match (*kind, rest.len()) {
        (BATCH, 4) => Some(Meaning::Batch),
        (JOB, 8) => Some(Meaning::Job),
        (b'o', 4) => Some(Meaning::OutcomesBytes(BatchNo(number()?))),
        (b'd', 4) => {
            let [first, rest @ ..] = number()?.to_be_bytes();
            let [a, b, c] = rest;
            Some(Meaning::Day(UtcDay(i32::from_be_bytes([first ^ 0x80, a, b, c]))))
        }
        (FINISHED, 1..) => Some(Meaning::Finished),
        (FINISHED_NUMBER, 4) => Some(Meaning::FinishedNumber(BatchNo(number()?))),
        (b'f', 12) => {
            let (at, no) = rest.split_first_chunk::<8>()?;
            let at = Timestamp(i64::from_be_bytes(*at) ^ i64::MIN);
            Some(Meaning::FinishedAt(at, BatchNo(u32::from_be_bytes(no.try_into().ok()?))))
        }
        (UNANNOUNCED, 4) => Some(Meaning::Unannounced(BatchNo(number()?))),
        (b't', 0) => Some(Meaning::Total),
        (b'g', 0) => Some(Meaning::Account),
        (b'c', 0) => Some(Meaning::Commits),
        _ => None,
    }
}

/// A key in words, for messages about damage.
pub(super) fn describe(key: &[u8]) -> String {
    let number = |at: usize| -> String {
        let bytes: Option<[u8; 4]> = key.get(at..at + 4).and_then(|slice| slice.try_into().ok());
        bytes.map_or_else(|| "?".to_owned(), |bytes| u32::from_be_bytes(bytes).to_string())
    };
    match key.first() {
        Some(&BATCH) => format!("of batch {}", number(1)),
        Some(&JOB) => format!("of job {} in batch {}", number(5), number(1)),
        Some(b'o') => format!("of the outcomes of batch {}", number(1)),
        Some(&FINISHED) => format!("of the finished batch {}", String::from_utf8_lossy(&key[1..])),
        Some(&(FINISHED_NUMBER | UNANNOUNCED)) => format!("of the finished batch {}", number(1)),
        Some(b'f') => format!("of the finished batch {}", number(9)),
        Some(b'd') => "of a day's totals".to_owned(),
        Some(b't') => "of the totals".to_owned(),
        Some(b'g') => "of what the account refused".to_owned(),
        Some(b'c') => "of the commit count".to_owned(),
        _ => format!("with key {key:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Seq;

    #[test]
    fn keys_sort_as_their_numbers_do() {
        let key = |batch, seq| job(JobKey { batch: BatchNo(batch), seq: Seq(seq) });
        assert!(key(1, 255) < key(1, 256));
        assert!(key(1, u32::MAX) < key(2, 0));
        for number in [-1, 0, 20_000] {
            assert_eq!(meaning(&day(UtcDay(number))), Some(Meaning::Day(UtcDay(number))));
        }
        assert_eq!(meaning(&outcomes_bytes(BatchNo(7))), Some(Meaning::OutcomesBytes(BatchNo(7))));
        assert!(day(UtcDay(-1)) < day(UtcDay(0)) && day(UtcDay(0)) < day(UtcDay(1)));
        for at in [-1, 0, 1_700_000_000_000] {
            let key = finished_at(Timestamp(at), BatchNo(7));
            assert_eq!(meaning(&key), Some(Meaning::FinishedAt(Timestamp(at), BatchNo(7))));
            let (since, later) = (finished_since(Timestamp(at)), finished_since(Timestamp(at + 1)));
            assert!(!since.contains(&account().to_vec()));
            assert!(since.start[..] <= key[..] && key[..] < since.end[..] && key[..] < later.start[..]);
        }
    }
}
