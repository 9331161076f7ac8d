//! Cutting a CSV stream into records, within bounds.
//!
//! The csv crate unquotes cells; what it does not tell is decided here: where each cell begins, that
//! a quote was never closed (it would swallow the rest of the file in silence), that text follows a
//! closing quote, that a record is longer than anyone means it to be.

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;

use crate::domain::diagnostic::{Diagnostic, Position};

use super::source::{fill, unreadable};

/// What may stand between cells.
pub(super) const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// A stream of records.
#[derive(Debug)]
pub(super) struct CsvRecords<R> {
    source: BufReader<R>,
    record: CsvRecord,
}

impl<R: Read> CsvRecords<R> {
    /// Records of at most `most_bytes`, of which the first is cut at any separator.
    pub(super) fn new(source: R, most_bytes: usize) -> CsvRecords<R> {
        CsvRecords { source: BufReader::new(source), record: CsvRecord::new(SEPARATORS.to_vec(), most_bytes) }
    }

    /// From here on only `separator` stands between cells.
    pub(super) fn separate_at(&mut self, separator: u8) {
        self.record.separators = vec![separator];
    }

    /// The next record; none at the end. A problem means that nothing further can be read.
    pub(super) fn next(&mut self) -> Result<Option<&CsvRecord>, Diagnostic> {
        self.record.begin();
        loop {
            let chunk = fill(&mut self.source).map_err(|error| unreadable(self.record.here(), &error))?;
            if chunk.is_empty() {
                return self.record.end_of_file();
            }
            let (used, is_ended) = self.record.take_all(chunk);
            self.source.consume(used);
            if is_ended {
                return Ok(Some(&self.record));
            }
        }
    }
}

/// One record as it is written.
#[derive(Debug)]
pub(super) struct CsvRecord {
    /// Its bytes, without the line end.
    pub bytes: Vec<u8>,
    /// Where each cell begins.
    pub cells: Vec<Position>,
    /// The byte of `bytes` where each cell begins.
    starts: Vec<usize>,
    /// Where it begins.
    pub at: Position,
    /// It has more bytes than are kept.
    pub too_long: bool,
    /// Text behind a closing quote.
    pub stray: Option<Stray>,
    separators: Vec<u8>,
    most_bytes: usize,
    state: State,
    opened: Position,
    line: u64,
    column: u64,
    after_return: bool,
}

/// Text behind a closing quote: a quote inside the cell was probably meant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stray {
    /// Where the cell was opened.
    pub opened: Position,
    /// Where the text stands.
    pub at: Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    CellStart,
    Bare,
    Quoted,
    /// Behind a quote in a quoted cell: it closes the cell, or is the first of a doubled one.
    QuoteInQuoted,
    /// Behind the closing quote and white space.
    Closed,
}

impl CsvRecord {
    fn new(separators: Vec<u8>, most_bytes: usize) -> CsvRecord {
        let start = Position::at(1, 1);
        CsvRecord {
            bytes: Vec::new(),
            cells: Vec::new(),
            starts: Vec::new(),
            at: start,
            too_long: false,
            stray: None,
            separators,
            most_bytes,
            state: State::CellStart,
            opened: start,
            line: 1,
            column: 1,
            after_return: false,
        }
    }

    /// This record as it is when only `separator` stands between cells.
    pub(super) fn cut_at(&self, separator: u8) -> CsvRecord {
        let mut record = CsvRecord::new(vec![separator], self.most_bytes);
        (record.line, record.column) = (self.at.line, self.at.column.unwrap_or(1));
        record.begin();
        for &byte in &self.bytes {
            record.take(byte);
        }
        record.too_long |= self.too_long;
        record
    }

    fn begin(&mut self) {
        self.bytes.clear();
        self.state = State::CellStart;
        self.too_long = false;
        self.stray = None;
        self.restart();
    }

    /// Takes bytes up to the end of the record: how many, and whether it has ended.
    fn take_all(&mut self, chunk: &[u8]) -> (usize, bool) {
        let mut used = 0;
        while let Some(rest) = chunk.get(used..).filter(|rest| !rest.is_empty()) {
            let run = self.run(rest);
            if run > 0 {
                self.take_run(&rest[..run]);
                used += run;
                continue;
            }
            used += 1;
            if self.take(rest[0]) {
                return (used, true);
            }
        }
        (used, false)
    }

    /// How many of the next bytes are within the present cell and change nothing but where the record is.
    fn run(&self, bytes: &[u8]) -> usize {
        let end = match (self.state, &self.separators[..]) {
            _ if self.after_return => Some(0),
            (State::Bare, [separator]) => memchr::memchr3(*separator, b'\n', b'\r', bytes),
            (State::Quoted, _) => memchr::memchr3(b'"', b'\n', b'\r', bytes),
            _ => Some(0),
        };
        end.unwrap_or(bytes.len())
    }

    fn take_run(&mut self, bytes: &[u8]) {
        let room = self.most_bytes.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.too_long |= room < bytes.len();
        self.column += bytes.iter().filter(|byte| begins_character(**byte)).count() as u64;
    }

    /// Whether a cell is not opened by a quote: one that stands behind white space is part of its text.
    pub(super) fn is_bare(&self, cell: usize) -> bool {
        self.starts.get(cell).and_then(|start| self.bytes.get(*start)) != Some(&b'"')
    }

    /// The cells as ranges of `bytes`, without the quotes around them; false where one has quotes within it.
    pub(super) fn plain_cells(&self, ranges: &mut Vec<Range<usize>>) -> bool {
        if self.starts.len() != self.cells.len() {
            return false;
        }
        let ends = self.starts.iter().skip(1).map(|next| next - 1).chain([self.bytes.len()]);
        for (&start, end) in self.starts.iter().zip(ends) {
            let range = match &self.bytes[start..end] {
                [b'"', within @ .., b'"'] if !within.contains(&b'"') => start + 1..end - 1,
                cell if !cell.contains(&b'"') => start..end,
                _ => return false,
            };
            ranges.push(range);
        }
        true
    }

    fn here(&self) -> Position {
        Position::at(self.line, self.column)
    }

    /// Takes one byte; whether it ended the record.
    fn take(&mut self, byte: u8) -> bool {
        let ends_pair = byte == b'\n' && self.after_return;
        self.after_return = byte == b'\r';
        if ends_pair {
            if self.state == State::Quoted {
                self.keep(byte);
            } else {
                self.restart();
            }
            return false;
        }
        let ends_line = matches!(byte, b'\n' | b'\r');
        if ends_line && self.state != State::Quoted {
            self.next_line();
            return true;
        }
        self.keep(byte);
        self.turn(byte);
        self.step_over(byte, ends_line);
        if self.state == State::CellStart && !self.too_long {
            self.cells.push(self.here());
            self.starts.push(self.bytes.len());
        }
        false
    }

    /// The line feed of a `\r\n` belongs to the record before.
    fn restart(&mut self) {
        self.at = self.here();
        self.cells.clear();
        self.cells.push(self.at);
        self.starts.clear();
        self.starts.push(0);
    }

    fn keep(&mut self, byte: u8) {
        if self.bytes.len() < self.most_bytes {
            self.bytes.push(byte);
        } else {
            self.too_long = true;
        }
    }

    fn turn(&mut self, byte: u8) {
        let separates = self.separators.contains(&byte);
        self.state = match self.state {
            State::CellStart if byte == b'"' => {
                self.opened = self.here();
                State::Quoted
            }
            State::Quoted if byte == b'"' => State::QuoteInQuoted,
            State::Quoted => State::Quoted,
            State::QuoteInQuoted if byte == b'"' => State::Quoted,
            _ if separates => State::CellStart,
            State::QuoteInQuoted | State::Closed if byte == b' ' || byte == b'\t' => State::Closed,
            State::QuoteInQuoted | State::Closed => {
                let stray = Stray { opened: self.opened, at: self.here() };
                self.stray.get_or_insert(stray);
                State::Bare
            }
            State::CellStart | State::Bare => State::Bare,
        };
    }

    fn step_over(&mut self, byte: u8, ends_line: bool) {
        if ends_line {
            self.next_line();
        } else if begins_character(byte) {
            self.column += 1;
        }
    }

    fn next_line(&mut self) {
        self.line += 1;
        self.column = 1;
    }

    fn end_of_file(&self) -> Result<Option<&CsvRecord>, Diagnostic> {
        if self.state == State::Quoted {
            let problem = Diagnostic::at(self.opened, "the quote that opens this cell is never closed");
            return Err(problem.hint("close it with \"; inside a quoted cell a quote is written twice"));
        }
        Ok(Some(self).filter(|record| !record.bytes.is_empty()))
    }
}

/// Whether a byte of UTF-8 is the first of a character.
fn begins_character(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every record as `line:column of each cell | bytes`, then how the file ended.
    fn transcript(text: &str) -> Vec<String> {
        let mut records = CsvRecords::new(text.as_bytes(), 40);
        records.separate_at(b',');
        let mut lines = Vec::new();
        loop {
            match records.next() {
                Ok(Some(record)) => lines.push(shown(record)),
                Ok(None) => {
                    assert!(records.record.bytes.capacity() <= 64, "no more is held than may be");
                    return lines;
                }
                Err(problem) => {
                    lines.push(problem.to_string());
                    return lines;
                }
            }
        }
    }

    fn shown(record: &CsvRecord) -> String {
        let place = |at: &Position| format!("{}:{}", at.line, at.column.unwrap());
        let cells: Vec<_> = record.cells.iter().map(place).collect();
        let stray = record.stray.map(|stray| format!(" stray {}", place(&stray.at))).unwrap_or_default();
        let long = if record.too_long { " too long" } else { "" };
        format!(
            "{} | {}{stray}{long}",
            cells.join(" "),
            String::from_utf8_lossy(&record.bytes).escape_debug()
        )
    }

    #[test]
    fn cells_know_where_they_begin() {
        assert_eq!(transcript("a,bü,c\n\"x\ny\",z\n"), ["1:1 1:3 1:6 | a,bü,c", "2:1 3:4 | \\\"x\\ny\\\",z"]);
    }

    #[test]
    fn line_ends_of_every_kind() {
        let expected = ["1:1 | a", "2:1 | b", "3:1 | c"];
        assert_eq!(transcript("a\nb\nc"), expected);
        assert_eq!(transcript("a\r\nb\r\nc\r\n"), expected);
        assert_eq!(transcript("a\rb\rc\r"), expected);
        assert_eq!(transcript("\"a\r\nb\",c\r\nd"), ["1:1 2:4 | \\\"a\\r\\nb\\\",c", "3:1 | d"]);
    }

    #[test]
    fn an_unclosed_quote_is_told_where_it_opened() {
        let told = "2:3: the quote that opens this cell is never closed \
                    (hint: close it with \"; inside a quoted cell a quote is written twice)";
        assert_eq!(transcript("a,b\nc,\"d\ne,f\n"), ["1:1 1:3 | a,b", told]);
    }

    #[test]
    fn text_behind_a_closing_quote_is_noticed() {
        assert_eq!(transcript("\"a \"b\" c\",d"), ["1:1 1:11 | \\\"a \\\"b\\\" c\\\",d stray 1:5"]);
        assert_eq!(
            transcript("\"a\" ,\"b\"\"c\",5\" tall"),
            ["1:1 1:6 1:13 | \\\"a\\\" ,\\\"b\\\"\\\"c\\\",5\\\" tall"]
        );
    }

    #[test]
    fn a_long_record_is_cut_and_the_next_one_is_whole() {
        let text = format!("{}\nnext,one", "x".repeat(1000));
        let expected = format!("1:1 | {} too long", "x".repeat(40));
        assert_eq!(transcript(&text), [expected.as_str(), "2:1 2:6 | next,one"]);
    }

    proptest::proptest! {
        /// Whether the bytes come one by one or many at a time, and are taken so.
        #[test]
        fn runs_of_bytes_are_taken_as_each_of_them_is(
            text in "([a\u{fc} ,;\"]|\"\"|aaaa|\u{72d0}\u{72d0}|\r|\n|\r\n){0,60}",
            separators in proptest::sample::select(vec![vec![b','], vec![b',', b';']]),
            most_bytes in 1..30_usize,
        ) {
            let describe = |record: &CsvRecord| {
                (shown(record), record.starts.clone(), record.state, record.here())
            };
            let mut one_by_one = CsvRecord::new(separators.clone(), most_bytes);
            one_by_one.begin();
            let mut expected = Vec::new();
            for &byte in text.as_bytes() {
                if one_by_one.take(byte) {
                    expected.push(describe(&one_by_one));
                    one_by_one.begin();
                }
            }
            expected.push(describe(&one_by_one));
            let mut record = CsvRecord::new(separators, most_bytes);
            record.begin();
            let (mut found, mut rest) = (Vec::new(), text.as_bytes());
            while !rest.is_empty() {
                let (used, is_ended) = record.take_all(rest);
                rest = &rest[used..];
                if is_ended {
                    found.push(describe(&record));
                    record.begin();
                }
            }
            found.push(describe(&record));
            proptest::prop_assert_eq!(found, expected);
        }
    }
}
