//! The terminal: how wide it is, and text that fits it. Where there is none nothing is cut or wrapped.

use std::io::{self, Write};
use std::os::fd::AsFd;

use anstream::stream::RawStream;
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;
use unicode_width::UnicodeWidthStr;

use crate::cli::invocation::with_typed_commands;
use crate::cli::printable;

/// Columns that are assumed where a terminal does not tell how many it has.
const USUAL_COLUMNS: usize = 80;
/// Rows that are assumed there.
const USUAL_ROWS: usize = 24;
/// Fewest columns that anything is laid out for.
const COLUMNS_MIN: usize = 20;

/// What a text says of itself by its colour. Streams that are no terminal, `NO_COLOR` and `TERM=dumb` take it away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    /// Something failed: red.
    Failed,
    /// Something waits: yellow.
    Waiting,
}

impl Tone {
    /// The text with the marks of its colour.
    pub(super) fn paint(self, text: &str) -> String {
        match self {
            Tone::Plain => text.to_owned(),
            Tone::Failed => format!("\x1b[31m{text}\x1b[0m"),
            Tone::Waiting => format!("\x1b[33m{text}\x1b[0m"),
        }
    }
}

/// The text without the marks of [`Tone::paint`].
pub(super) fn without_tones(text: &str) -> String {
    ["\x1b[31m", "\x1b[33m", "\x1b[0m"].iter().fold(text.to_owned(), |text, mark| text.replace(mark, ""))
}

/// Columns of the terminal that a stream is; none where it is no terminal.
pub(super) fn columns(stream: impl AsFd) -> Option<usize> {
    if !rustix::termios::isatty(&stream) {
        return None;
    }
    let told = rustix::termios::tcgetwinsize(&stream).map_or(0, |size| usize::from(size.ws_col));
    Some(if told == 0 { USUAL_COLUMNS } else { told.max(COLUMNS_MIN) })
}

/// Whether a stream is a terminal that can move its cursor.
pub(super) fn can_redraw(stream: impl AsFd) -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    !is_dumb && rustix::termios::isatty(&stream)
}

/// Rows of the terminal that a stream is; as usual where it does not tell.
pub(super) fn rows(stream: impl AsFd) -> usize {
    let told = rustix::termios::tcgetwinsize(&stream).map_or(0, |size| usize::from(size.ws_row));
    if told == 0 { USUAL_ROWS } else { told }
}

/// Waits until nobody reads a pipe any more; for ever where that cannot be known, as of a file.
pub(super) async fn until_unread(stream: impl AsFd) {
    // Unchecked: it stays as it is, and nothing is written through it.
    let pipe = stream.as_fd().try_clone_to_owned().and_then(Sender::from_owned_fd_unchecked);
    if let Ok(pipe) = pipe
        && pipe.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Writes text that moves the cursor, at once, with colours where they are wanted.
pub(super) fn put(mut out: impl RawStream, text: &str) -> io::Result<()> {
    let has_colours = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
    let text = if has_colours { text.to_owned() } else { without_tones(text) };
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The lines of a text that is wrapped between its words, each indented like the first. A word that is wider than a
/// line has one of its own.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let words = text.trim_start_matches(' ');
    let indent = &text[..text.len() - words.len()];
    let mut lines = Vec::new();
    let mut line = indent.to_owned();
    for word in words.split(' ') {
        if line.len() > indent.len() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        } else if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Prints a text for people on stderr: wrapped between its words where that is a terminal.
pub(super) fn print_wrapped(text: &str, tone: Tone) {
    let text = with_typed_commands(text);
    for line in wrapped(&text, columns(std::io::stderr())) {
        print_line(&tone.paint(&line));
    }
}

/// Prints a command to copy on stderr, on a line of its own that is never wrapped.
pub(super) fn print_command(command: &str) {
    print_line(&format!("    {}", printable(command)));
}

/// Prints a line on stderr as it is. Where that cannot be written to (a log on a full disk) nobody can be told, and the
/// work goes on.
pub(super) fn print_line(line: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Writes sentences that stand below a table on stdout: wrapped between their words where that is a terminal.
pub(super) fn write_wrapped(out: &mut impl Write, text: &str) -> io::Result<()> {
    wrapped(&with_typed_commands(text), columns(std::io::stdout()))
        .iter()
        .try_for_each(|line| writeln!(out, "{line}"))
}

/// The lines of a text as so many columns show them; as they are where there is no terminal.
fn wrapped(text: &str, columns: Option<usize>) -> Vec<String> {
    let wrapped = |line: &str| columns.map_or_else(|| vec![line.to_owned()], |columns| wrap(line, columns));
    text.lines().flat_map(wrapped).collect()
}

/// Formats a sentence and prints it with [`print_wrapped`].
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::terminal::print_wrapped(&format!($($text)*), $crate::cli::terminal::Tone::Plain)
    };
}
pub(super) use say;

/// The beginning of a text that fits, cut after a word where there is one, with `…` for the rest.
pub(super) fn shorten(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let next = at + c.len_utf8();
        if width(&text[..next]) + 1 > columns {
            break;
        }
        end = next;
    }
    let fits = &text[..end];
    let is_between = text[end..].starts_with(' ');
    let whole = if is_between { Some(fits) } else { fits.rsplit_once(' ').map(|(words, _)| words) };
    format!("{}…", whole.filter(|words| !words.is_empty()).unwrap_or(fits).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_and_cut_between_words() {
        assert_eq!(wrap("a boat on the sea", 7), ["a boat", "on the", "sea"]);
        assert_eq!(
            wrap("see output/spring/results.csv now", 10),
            ["see", "output/spring/results.csv", "now"]
        );
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("  then repeat this command", 12), ["  then", "  repeat", "  this", "  command"]);
        assert_eq!(shorten("a boat on the sea", 17), "a boat on the sea");
        assert_eq!(shorten("a boat on the sea", 12), "a boat on…");
        assert_eq!(shorten("a boat on the sea", 10), "a boat on…");
        assert_eq!(shorten("lighthouse", 5), "ligh…");
        assert_eq!(shorten("長長長長", 5), "長長…");
    }
}
