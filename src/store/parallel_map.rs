//! Many records by all processors together.

use std::num::NonZeroUsize;

/// So few are not worth a thread.
const PARALLEL_MIN: usize = 4_096;

/// What `of` makes of each, in order.
pub(in crate::store) fn parallel_map<E: Sync, T: Send>(entries: &[E], of: impl Fn(&E) -> T + Sync) -> Vec<T> {
    if entries.len() < PARALLEL_MIN {
        return entries.iter().map(of).collect();
    }
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        let of = &of;
        let parts = entries.chunks(entries.len().div_ceil(threads));
        let under_way: Vec<_> =
            parts.map(|part| scope.spawn(move || part.iter().map(of).collect::<Vec<T>>())).collect();
        let mut made = Vec::with_capacity(entries.len());
        for part in under_way {
            // A thread that panics takes the process down.
            made.append(&mut part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        made
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_comes_in_the_order_of_what_it_is_made_of() {
        for length in [0, 1, PARALLEL_MIN - 1, PARALLEL_MIN, 3 * PARALLEL_MIN + 1] {
            let entries: Vec<usize> = (0..length).collect();
            assert!(parallel_map(&entries, |entry| entry + 1).into_iter().eq(1..=length), "{length}");
        }
    }
}
