//! Many records by all processors together.

use std::iter::Flatten;
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::IntoIter;

/// So many go from one thread to another at once; fewer are not worth a thread.
const CHUNK: usize = 1_024;
/// Chunks that wait to be taken up, for each thread.
const CHUNKS_AHEAD: usize = 2;

/// Chunks that wait to be taken up, with the place of each among all.
type Waiting<E> = Mutex<Receiver<(usize, Vec<E>)>>;

/// What `of` makes of each, in order. This thread fetches them, while others make something of those that are there. It also
/// frees them: memory that one thread allocates and another frees makes the threads wait for each other.
pub(in crate::store) fn parallel_map<E: Send, T: Send>(
    entries: impl Iterator<Item = E>,
    of: impl Fn(&E) -> T + Sync,
) -> Flatten<IntoIter<Vec<T>>> {
    made_of(entries, of).into_iter().flatten()
}

/// The same, as it was made: a list for each chunk.
fn made_of<E: Send, T: Send>(entries: impl Iterator<Item = E>, of: impl Fn(&E) -> T + Sync) -> Vec<Vec<T>> {
    let mut entries = entries.fuse();
    let mut chunks = std::iter::from_fn(|| {
        let chunk: Vec<E> = entries.by_ref().take(CHUNK).collect();
        (!chunk.is_empty()).then_some(chunk)
    });
    let first = chunks.next().unwrap_or_default();
    if first.len() < CHUNK {
        return vec![first.iter().map(of).collect()];
    }
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (sender, waiting) = sync_channel(threads * CHUNKS_AHEAD);
    let waiting = Arc::new(Mutex::new(waiting));
    let (used, to_free) = channel::<Vec<E>>();
    let work = |waiting: Arc<Waiting<E>>, used: Sender<Vec<E>>| {
        let mut made: Vec<(usize, Vec<T>)> = Vec::new();
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((place, chunk)) = next else { return made };
            made.push((place, chunk.iter().map(&of).collect()));
            // The thread that fetches is there until all have ended.
            let _ = used.send(chunk);
        }
    };
    std::thread::scope(|scope| {
        let workers = (0..threads).map(|_| {
            let (waiting, used) = (waiting.clone(), used.clone());
            scope.spawn(|| work(waiting, used))
        });
        let workers: Vec<_> = workers.collect();
        // Where all of them panicked, nobody takes any.
        drop(waiting);
        for chunk in std::iter::once(first).chain(chunks).enumerate() {
            if sender.send(chunk).is_err() {
                break;
            }
            to_free.try_iter().for_each(drop);
        }
        drop((sender, used));
        to_free.iter().for_each(drop);
        let mut made = Vec::new();
        for worker in workers {
            // A thread that panics takes the process down.
            made.append(&mut worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        made.sort_unstable_by_key(|(place, _)| *place);
        made.into_iter().map(|(_, made)| made).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_comes_in_the_order_of_what_it_is_made_of() {
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 50 * CHUNK + 1] {
            assert!(parallel_map(0..length, |entry| entry + 1).eq(1..=length), "{length}");
        }
    }

    #[test]
    #[should_panic(expected = "what cannot be")]
    fn a_panic_goes_on_here() {
        let _ = parallel_map(0..100 * CHUNK, |entry| assert!(*entry < 2 * CHUNK, "what cannot be"));
    }
}
