//! Lines at the bottom of a terminal that are drawn again and again.
//!
//! The cursor rests at the first column of the first. A terminal that is resized may wrap them anew: whatever becomes of
//! them is then behind the cursor, and goes when they are drawn again.

use std::io::stderr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::AbortHandle;

use crate::cli::terminal;

/// Returns to the first column and erases all that follows.
const ERASE: &str = "\r\x1b[J";

/// What the lines say in so many columns, at least one of them and at most so many.
pub(super) type Content = Box<dyn Fn(usize, usize) -> Vec<String> + Send>;

/// Lines that stay below everything else that is written to stderr. Copies are the same lines.
#[derive(Clone)]
pub(super) struct LiveLine {
    state: Arc<Mutex<State>>,
    /// Redraws them when the terminal is resized.
    resizes: AbortHandle,
}

struct State {
    content: Option<Content>,
    drawn: Vec<String>,
}

impl LiveLine {
    /// No lines yet; none where stderr is no terminal that can move its cursor.
    pub(super) fn begin() -> Option<LiveLine> {
        if !terminal::can_redraw(stderr()) {
            return None;
        }
        let state = Arc::new(Mutex::new(State { content: None, drawn: Vec::new() }));
        let shared = state.clone();
        let redraw = async move {
            // Without a handler the lines are drawn for the new width when it changes.
            let Ok(mut resized) = signal(SignalKind::window_change()) else { return };
            while resized.recv().await.is_some() {
                lock(&shared).draw(true);
            }
        };
        let resizes = tokio::spawn(redraw).abort_handle();
        Some(LiveLine { state, resizes })
    }

    /// Shows something else.
    pub(super) fn show(&self, content: Content) {
        let mut state = lock(&self.state);
        state.content = Some(content);
        state.draw(false);
    }

    /// Writes lines to stderr that stay, above these.
    pub(super) fn above(&self, write: impl FnOnce()) {
        let mut state = lock(&self.state);
        state.erase();
        write();
        state.draw(true);
    }

    /// Removes them. What is shown later appears no more.
    pub(super) fn end(&self) {
        self.resizes.abort();
        let mut state = lock(&self.state);
        state.erase();
        state.content = None;
    }
}

impl State {
    fn draw(&mut self, is_needed: bool) {
        let Some(content) = &self.content else { return };
        let columns = terminal::columns(stderr()).unwrap_or(1);
        // The last column stays free: some terminals begin a new line once it is taken.
        let lines = content(columns.saturating_sub(1), (terminal::rows(stderr()) / 2).max(1));
        if is_needed || lines != self.drawn {
            let up = match lines.len() {
                0 | 1 => String::new(),
                n => format!("\x1b[{}A", n - 1),
            };
            put(&format!("{ERASE}{}\r{up}", lines.join("\r\n")));
            self.drawn = lines;
        }
    }

    fn erase(&mut self) {
        if !self.drawn.is_empty() {
            put(ERASE);
            self.drawn.clear();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes at once.
fn put(text: &str) {
    // There is nobody to tell when stderr is gone.
    let _ = terminal::put(stderr().lock(), text);
}
