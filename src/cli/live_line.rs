//! A line at the bottom of a terminal that is drawn again and again.
//!
//! The cursor rests at its first column. A terminal that is resized may wrap the line anew: whatever becomes of it is then
//! behind the cursor, and goes when the line is drawn again.

use std::io::{Write, stderr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::AbortHandle;

use crate::cli::terminal;

/// Returns to the first column and erases all that follows.
const ERASE: &str = "\r\x1b[J";

/// What a line says at a width in columns.
pub(super) type Content = Box<dyn Fn(usize) -> String + Send>;

/// A line that stays below everything else that is written to stderr. Copies are the same line.
#[derive(Clone)]
pub(super) struct LiveLine {
    state: Arc<Mutex<State>>,
    /// Redraws it when the terminal is resized.
    resizes: AbortHandle,
}

struct State {
    content: Option<Content>,
    drawn: String,
}

impl LiveLine {
    /// An empty line; none where stderr is no terminal that can move its cursor.
    pub(super) fn begin() -> Option<LiveLine> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        if is_dumb || terminal::columns(stderr()).is_none() {
            return None;
        }
        let state = Arc::new(Mutex::new(State { content: None, drawn: String::new() }));
        let shared = state.clone();
        let redraw = async move {
            // Without a handler the line is drawn for the new width when it changes.
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

    /// Writes lines to stderr that stay, above this one.
    pub(super) fn above(&self, write: impl FnOnce()) {
        let mut state = lock(&self.state);
        state.erase();
        write();
        state.draw(true);
    }

    /// Removes it. What is shown later appears no more.
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
        let line = content(columns.saturating_sub(1));
        if is_needed || line != self.drawn {
            put(&format!("{ERASE}{line}\r"));
            self.drawn = line;
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

/// Writes at once, with colours where they are wanted.
fn put(text: &str) {
    let mut out = stderr().lock();
    let colours = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
    let text = if colours { text.to_owned() } else { terminal::without_tones(text) };
    // There is nobody to tell when stderr is gone.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
