//! Reading bytes: a first look, then on and on, and what can go wrong with them.

use std::io::{self, BufRead, BufReader, Chain, Cursor, ErrorKind, Read};

use crate::domain::diagnostic::{Diagnostic, Position};

use super::spanned::{PositionTracker, Spanned};

/// So much of a file is looked at to tell what it is.
const HEAD_BYTES: usize = 8 * 1024;

/// A source whose first bytes have been looked at and are read once more.
pub(super) type Source<R> = Chain<Cursor<Vec<u8>>, R>;

/// The first bytes of `source`, as many as there are.
pub(super) fn head<R: Read>(source: &mut R) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_BYTES];
    let mut filled = 0;
    while let Some(room) = head.get_mut(filled..).filter(|room| !room.is_empty()) {
        match source.read(room) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(filled);
    Ok(head)
}

/// The bytes at hand, read on if there are none; empty at the end.
pub(super) fn fill<R: Read>(source: &mut BufReader<R>) -> io::Result<&[u8]> {
    while let Err(error) = source.fill_buf() {
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
    source.fill_buf()
}

/// What is wrong with bytes that are UTF-8 up to `valid` only, of which the first stands at `from`.
pub(super) fn not_utf8(bytes: &[u8], valid: usize, from: Position) -> Diagnostic {
    let text = String::from_utf8_lossy(bytes.get(..valid).unwrap_or_default());
    let at = PositionTracker::new(Spanned::new(&text, from)).to(text.len());
    let byte = bytes.get(valid).copied().unwrap_or_default();
    Diagnostic::at(at, format!("found the byte 0x{byte:02X}, expected UTF-8"))
        .hint("save the file as UTF-8; a spreadsheet calls it \"CSV UTF-8\"")
}

/// What is wrong with a file that stops being readable at `at`.
pub(super) fn unreadable(at: Position, error: &io::Error) -> Diagnostic {
    Diagnostic::at(at, format!("the file cannot be read further: {error}"))
}
