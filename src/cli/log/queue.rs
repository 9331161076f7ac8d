//! Lines that one thread writes, so that a reader of the log who stops reading stops nothing else.
//!
//! What waits is limited. Once that is reached lines are dropped and counted, until half of what waits is written: then
//! one line in their place says how many they were.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Lines that wait may take so many bytes: some ten thousand of them.
const WAITING_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Lines on their way to the log. Copies are the same queue.
#[derive(Debug, Clone)]
pub(super) struct LogQueue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write.
    filled: Condvar,
    /// Nothing is left to write.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    /// Bytes of `lines`.
    bytes: usize,
    /// Lines that were dropped since it was last said how many.
    dropped: u64,
    /// The thread waits for lines; a wake-up costs a system call.
    is_idle: bool,
}

impl LogQueue {
    /// Begins a thread that writes each line by `write`. `notice` makes the line that says how many were dropped.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn begin(
        write: impl FnMut(&[u8]) + Send + 'static,
        notice: impl Fn(u64) -> Vec<u8> + Send + 'static,
    ) -> io::Result<LogQueue> {
        let queue = LogQueue { shared: Arc::default() };
        let shared = queue.shared.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || shared.work(write, notice))?;
        Ok(queue)
    }

    /// Has a line written, or drops it where too much waits. It never waits for the reader.
    pub(super) fn push(&self, line: Vec<u8>) {
        let mut state = self.shared.lock();
        let has_room = state.lines.is_empty() || state.bytes + line.len() <= WAITING_MAX_BYTES;
        if state.dropped > 0 || !has_room {
            state.dropped += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        if state.is_idle {
            self.shared.filled.notify_one();
        }
    }

    /// Waits until everything is written, at most so long. Returns whether it is.
    pub(super) fn flush(&self, at_most: Duration) -> bool {
        let state = self.shared.lock();
        let is_left = |state: &mut State| !(state.is_idle && state.lines.is_empty());
        let waited = self.shared.emptied.wait_timeout_while(state, at_most, is_left);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes for as long as the process lives.
    fn work(&self, mut write: impl FnMut(&[u8]), notice: impl Fn(u64) -> Vec<u8>) {
        let mut state = self.lock();
        loop {
            if state.dropped > 0 && state.bytes <= WAITING_MAX_BYTES / 2 {
                let line = notice(std::mem::take(&mut state.dropped));
                state.bytes += line.len();
                state.lines.push_back(line);
            }
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                drop(state);
                write(&line);
                state = self.lock();
            } else {
                state.is_idle = true;
                self.emptied.notify_all();
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.is_idle = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// A queue whose reader takes a line when it is allowed to, and what that reader got.
    fn with_reader() -> (LogQueue, Sender<()>, Receiver<String>) {
        let (allow, allowed) = mpsc::channel();
        let (read, lines) = mpsc::channel();
        let write = move |line: &[u8]| {
            // Allowed for ever once the test lets go of it.
            let _ = allowed.recv();
            let _ = read.send(String::from_utf8(line[..line.len().min(20)].to_vec()).unwrap());
        };
        let notice = |dropped| format!("{dropped} dropped").into_bytes();
        (LogQueue::begin(write, notice).unwrap(), allow, lines)
    }

    #[test]
    fn lines_are_written_in_their_order() {
        let (queue, allow, lines) = with_reader();
        drop(allow);
        (0..100).for_each(|n| queue.push(n.to_string().into_bytes()));
        assert!(queue.flush(LONG));
        let expected: Vec<String> = (0..100).map(|n: u32| n.to_string()).collect();
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_reader_that_stops_reading_loses_lines_and_is_told_how_many_when_it_goes_on() {
        let (queue, allow, lines) = with_reader();
        let line = |n: usize| format!("{n:<1024}").into_bytes();
        let pushed = WAITING_MAX_BYTES / 1024 + 1_000;
        (0..pushed).for_each(|n| queue.push(line(n)));
        assert!(!queue.flush(Duration::from_millis(10)), "nobody reads");
        {
            let state = queue.shared.lock();
            assert!(state.bytes <= WAITING_MAX_BYTES);
            assert!(state.dropped >= 999, "{}", state.dropped);
        }
        // The reader goes on. What comes while it is behind is dropped, too.
        allow.send(()).unwrap();
        assert_eq!(lines.recv().unwrap().trim(), "0");
        queue.push(line(pushed));
        drop(allow);
        assert!(queue.flush(LONG));
        queue.push(b"the next".to_vec());
        assert!(queue.flush(LONG));
        let read: Vec<String> = lines.try_iter().map(|line| line.trim().to_owned()).collect();
        let written = read.len() - 2;
        let expected = format!("{} dropped", pushed - written);
        assert_eq!(read[..written], (1..=written).map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(read[written..], [expected.as_str(), "the next"]);
    }

    #[test]
    fn a_line_that_is_longer_than_all_that_may_wait_is_written_all_the_same() {
        let (queue, allow, lines) = with_reader();
        drop(allow);
        queue.push(vec![b'x'; WAITING_MAX_BYTES + 1]);
        assert!(queue.flush(LONG));
        assert_eq!(lines.try_iter().count(), 1);
    }
}
