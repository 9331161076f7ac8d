//! The rows of a manifest, read, validated and collected beside each other.
//!
//! One thread reads, as many as there are processors validate, and the caller collects, in the order of the manifest. Rows
//! go from one to the next in chunks, of which there are only so many at a time: memory is bounded, whatever is slow.

use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::{Map, Value};

use crate::domain::manifest::row::ReadRow;
use crate::domain::request::Request;

/// Most rows of a chunk that is validated.
pub(super) const CHUNK_ROWS: usize = 128;
/// A chunk that weighs more than so much for each of its most rows takes no further one, in bytes.
const ROW_BYTES: usize = 2 * 1024;
/// Most chunks between two stages.
const CHUNKS_MAX: usize = 4;

/// Rows in chunks of at most so many, in the order in which they are read.
pub(super) struct Chunks<I, W> {
    pub rows: I,
    pub most_rows: usize,
    /// About how much memory a row takes, in bytes.
    pub weigh: W,
}

impl<I: Iterator, W: Fn(&I::Item) -> usize> Iterator for Chunks<I, W> {
    type Item = Vec<I::Item>;

    fn next(&mut self) -> Option<Vec<I::Item>> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < self.most_rows
            && bytes < self.most_rows * ROW_BYTES
            && let Some(row) = self.rows.next()
        {
            bytes += (self.weigh)(&row);
            chunk.push(row);
        }
        Some(chunk).filter(|chunk| !chunk.is_empty())
    }
}

/// Validates every chunk and hands what comes of it to `collect`, in order. `validator` begins a validator, of which each thread has
/// one. Rows that were validated go back to the thread that read them and are freed there: threads that free what another
/// allocated wait for each other.
///
/// # Errors
/// The first error of `collect`: no further chunk is collected.
pub(super) fn for_each<I, W, U, E, V>(
    mut chunks: Chunks<I, W>,
    validator: impl Fn() -> V + Sync,
    mut collect: impl FnMut(U) -> Result<(), E>,
) -> Result<(), E>
where
    I: Iterator<Item: Send> + Send,
    W: Fn(&I::Item) -> usize + Send,
    U: Send,
    V: FnMut(&mut [I::Item]) -> U,
{
    let first = chunks.next().unwrap_or_default();
    if first.len() < chunks.most_rows {
        // Too few for threads, or too large.
        let mut validator = validator();
        let mut chunk = Some(first);
        while let Some(mut rows) = chunk {
            collect(validator(&mut rows))?;
            chunk = chunks.next();
        }
        return Ok(());
    }
    let (to_validate, waiting) = sync_channel::<(Vec<I::Item>, SyncSender<U>)>(CHUNKS_MAX);
    let (in_order, validated) = sync_channel::<Receiver<U>>(CHUNKS_MAX);
    let (to_free, spent) = channel::<Vec<I::Item>>();
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        let (validator, waiting) = (&validator, &waiting);
        scope.spawn(move || {
            let mut chunk = Some(first);
            while let Some(rows) = chunk {
                let (done, place) = sync_channel(1);
                // The caller takes no more after an error.
                if in_order.send(place).is_err() || to_validate.send((rows, done)).is_err() {
                    return;
                }
                spent.try_iter().for_each(drop);
                chunk = chunks.next();
            }
        });
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            let to_free = to_free.clone();
            scope.spawn(move || {
                let mut validator = validator();
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((mut rows, done)) = next else { return };
                    // As above.
                    let _ = done.send(validator(&mut rows));
                    // Where the reader has ended, they are freed here.
                    let _ = to_free.send(rows);
                }
            });
        }
        // A validator that is gone has panicked, which the scope passes on.
        validated.into_iter().map_while(|place| place.recv().ok()).try_for_each(collect)
    })
}

/// About how much memory a row takes, in bytes.
pub(super) fn weight(read: &ReadRow) -> usize {
    /// A value, and what holds it.
    const VALUE_BYTES: usize = 64;
    fn bytes(value: &Value) -> usize {
        VALUE_BYTES
            + match value {
                Value::String(text) => text.len(),
                Value::Array(items) => items.iter().map(bytes).sum(),
                Value::Object(fields) => bytes_of(fields),
                Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            }
    }
    fn bytes_of(fields: &Map<String, Value>) -> usize {
        fields.iter().map(|(name, value)| name.len() + bytes(value)).sum()
    }
    let row = match read {
        ReadRow::Good(row) => Some(row),
        ReadRow::Bad(bad) => bad.row.as_ref(),
        ReadRow::Unreadable(_) => None,
    };
    row.map_or(VALUE_BYTES, |row| {
        let Request { prompt, text, image_urls, video_urls, options, .. } = &row.request;
        let texts = prompt.iter().chain(text).chain(image_urls).chain(video_urls);
        texts.map(|text| VALUE_BYTES + text.len()).sum::<usize>() + bytes_of(options) + bytes_of(&row.meta)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = usize;

    fn chunks<I>(rows: I, weight: usize) -> Chunks<I, impl Fn(&Row) -> usize> {
        Chunks { rows, most_rows: CHUNK_ROWS, weigh: move |_: &Row| weight }
    }

    fn doubled(rows: usize, weight: usize) -> Vec<usize> {
        let mut collected = Vec::new();
        let validator = || |rows: &mut [Row]| -> Vec<Row> { rows.iter().map(|row| *row * 2).collect() };
        let collect = |rows: Vec<Row>| {
            collected.extend(rows);
            Ok::<(), ()>(())
        };
        for_each(chunks(0..rows, weight), validator, collect).unwrap();
        collected
    }

    #[test]
    fn every_row_is_collected_once_and_in_order() {
        for rows in [0, 1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 10_000] {
            for weight in [1, ROW_BYTES, 2 * ROW_BYTES, CHUNK_ROWS * ROW_BYTES] {
                let expected: Vec<usize> = (0..rows).map(|row| row * 2).collect();
                assert_eq!(doubled(rows, weight), expected, "{rows} of {weight}");
            }
        }
    }

    #[test]
    fn an_error_ends_it() {
        let mut collected = 0;
        let collect = |rows: Row| {
            collected += rows;
            if collected == 50 * CHUNK_ROWS { Err(collected) } else { Ok(()) }
        };
        let validator = || |rows: &mut [Row]| rows.len();
        assert_eq!(for_each(chunks(0.., 1), validator, collect), Err(50 * CHUNK_ROWS));
        assert_eq!(collected, 50 * CHUNK_ROWS);
    }

    #[test]
    fn rows_are_read_only_so_far_ahead() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let read = AtomicUsize::new(0);
        let rows = (0..1_000_000).inspect(|_| _ = read.fetch_add(1, Ordering::Relaxed));
        let validators = thread::available_parallelism().map_or(1, NonZero::get);
        // What the two channels hold, what each stage has in hand, and one that is read.
        let most = (2 * CHUNKS_MAX + validators + 3) * CHUNK_ROWS;
        let validator = || |rows: &mut [Row]| rows[0];
        let collect = |row: Row| {
            let ahead = read.load(Ordering::Relaxed) - row;
            assert!(ahead <= most, "{ahead} rows ahead");
            if row >= 20_000 { Err(()) } else { Ok(()) }
        };
        assert_eq!(for_each(chunks(rows, 1), validator, collect), Err(()));
    }
}
