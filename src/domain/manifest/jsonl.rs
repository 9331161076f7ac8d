//! A JSON Lines manifest: one job object a line, read as a stream.

use std::io::{self, BufRead, BufReader, Read};

use crate::domain::diagnostic::{Diagnostic, Position};

use super::Limits;
use super::job;
use super::messages::bytes;
use super::row::{BadRow, ReadRow};
use super::source::{fill, not_utf8, unreadable};
use super::spanned::{PositionTracker, Spanned, offset_within};

/// The jobs of a stream of lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: BufReader<R>,
    limits: Limits,
    line: u64,
    buffer: Vec<u8>,
}

/// How a line ended.
enum Ended {
    /// In a line feed or the end of the file.
    Whole,
    /// The same, but it was too long to be kept.
    TooLong,
    /// There is no further line.
    NoMore,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R, limits: &Limits) -> Lines<R> {
        Lines { source: BufReader::new(source), limits: limits.clone(), line: 0, buffer: Vec::new() }
    }

    /// Reads the next line into the buffer.
    fn read_line(&mut self) -> io::Result<Ended> {
        self.buffer.clear();
        let (mut any, mut too_long) = (false, false);
        loop {
            let chunk = fill(&mut self.source)?;
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            too_long |= self.buffer.len() + part.len() > self.limits.max_line_bytes;
            if !too_long {
                self.buffer.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.source.consume(used);
            if end.is_some() {
                break;
            }
        }
        Ok(if !any {
            Ended::NoMore
        } else if too_long {
            Ended::TooLong
        } else {
            Ended::Whole
        })
    }

    /// The job of the line in the buffer; none when it is blank.
    fn job(&self) -> Option<ReadRow> {
        let start = Position::at(self.line, 1);
        let line = match std::str::from_utf8(&self.buffer) {
            Ok(line) => line,
            Err(error) => {
                return Some(ReadRow::Bad(BadRow::unread(not_utf8(
                    &self.buffer,
                    error.valid_up_to(),
                    start,
                ))));
            }
        };
        let text = line.trim();
        if text.is_empty() {
            return None;
        }
        let placed =
            Spanned::new(text, PositionTracker::new(Spanned::new(line, start)).to(offset_within(line, text)));
        let row = placed
            .check_syntax()
            .map_err(|problem| BadRow::unread(in_lines(problem)))
            .and_then(|()| job::read(placed, None, &self.limits));
        Some(row.map_or_else(ReadRow::Bad, ReadRow::Good))
    }
}

/// A mistake that says nothing of what to do is probably a job on more than one line.
fn in_lines(problem: Diagnostic) -> Diagnostic {
    if problem.hint.is_some() { problem } else { problem.hint("each line is one whole job object") }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = ReadRow;

    fn next(&mut self) -> Option<ReadRow> {
        loop {
            self.line += 1;
            let at = Position::line(self.line);
            match self.read_line() {
                Ok(Ended::NoMore) => return None,
                Ok(Ended::Whole) => match self.job() {
                    Some(row) => return Some(row),
                    None => continue,
                },
                Ok(Ended::TooLong) => {
                    let message = format!("the line is longer than {}", bytes(self.limits.max_line_bytes));
                    return Some(ReadRow::Bad(BadRow::unread(Diagnostic::at(at, message))));
                }
                Err(error) => return Some(ReadRow::Unreadable(unreadable(at, &error))),
            }
        }
    }
}
