//! Tables as commands print them: columns with blanks between them, and no lines.
//!
//! On a terminal they fit its width: first columns go that say nothing, then cells are wrapped between words, then minor
//! columns go, and where that is not enough each row becomes a block with a line for each column. No word is broken.

use std::io::{self, Write};

use crate::cli::terminal::{self, Tone};

/// Rows that a table is laid out by which has any number of them.
const ROWS_AT_ONCE: usize = 100;
/// Columns of a terminal that a text which is cut has at least.
const CUT_MIN: usize = 16;
/// Blanks between two columns.
const GAP: usize = 2;

/// Rows of cells below headings.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// Rows with the same headings were printed above it.
    is_continued: bool,
}

#[derive(Debug)]
struct Column {
    heading: String,
    is_number: bool,
    is_spare: bool,
    is_minor: bool,
    is_cut: bool,
}

/// Text of one line, with its tone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone }
    }

    /// Whether a column of such cells says nothing.
    fn is_nothing(&self) -> bool {
        matches!(self.text.as_str(), "" | "0" | "-")
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

/// A table with nothing in it but its headings.
pub(super) fn with_headings<T: Into<String>>(headings: impl IntoIterator<Item = T>) -> Table {
    let column = |heading: T| Column {
        heading: heading.into(),
        is_number: false,
        is_spare: false,
        is_minor: false,
        is_cut: false,
    };
    Table { columns: headings.into_iter().map(column).collect(), rows: Vec::new(), is_continued: false }
}

/// Prints it, as wide as the terminal that stdout is, or as wide as it is.
pub(super) fn print(out: &mut impl Write, table: &Table) -> io::Result<()> {
    table.lines(terminal::columns(io::stdout())).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Prints a table of any number of rows as they come, some at a time.
pub(super) struct RowPrinter {
    table: Table,
    limit: Option<usize>,
    is_begun: bool,
}

impl RowPrinter {
    /// `table` has no rows yet.
    pub(super) fn new(table: Table) -> RowPrinter {
        RowPrinter { table, limit: terminal::columns(io::stdout()), is_begun: false }
    }

    pub(super) fn add_row<T: Into<Cell>>(
        &mut self,
        out: &mut impl Write,
        cells: impl IntoIterator<Item = T>,
    ) -> io::Result<()> {
        self.table.add_row(cells);
        if self.table.rows.len() < ROWS_AT_ONCE { Ok(()) } else { self.print(out) }
    }

    /// Prints the rest.
    pub(super) fn finish(mut self, out: &mut impl Write) -> io::Result<()> {
        if self.table.is_empty() { Ok(()) } else { self.print(out) }
    }

    fn print(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.table.is_continued = self.is_begun;
        self.is_begun = true;
        self.table.lines(self.limit).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        self.table.rows.clear();
        Ok(())
    }
}

impl Table {
    pub(super) fn add_row<T: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Columns of numbers, which stand to the right.
    #[must_use]
    pub(super) fn numbers(mut self, columns: &[usize]) -> Table {
        columns.iter().for_each(|at| self.columns[*at].is_number = true);
        self
    }

    /// Columns that are left out where the room is short and all their cells are empty or 0.
    #[must_use]
    pub(super) fn spare(mut self, columns: &[usize]) -> Table {
        columns.iter().for_each(|at| self.columns[*at].is_spare = true);
        self
    }

    /// Columns that are left out where the room is too short for whole words otherwise.
    #[must_use]
    pub(super) fn minor(mut self, columns: &[usize]) -> Table {
        columns.iter().for_each(|at| self.columns[*at].is_minor = true);
        self
    }

    /// Columns of texts, which are cut to one line where the room is short.
    #[must_use]
    pub(super) fn cut(mut self, columns: &[usize]) -> Table {
        columns.iter().for_each(|at| self.columns[*at].is_cut = true);
        self
    }

    /// Its lines, without blanks at their ends; without a limit each row is one.
    pub(super) fn lines(&self, limit: Option<usize>) -> Vec<String> {
        let limit = limit.unwrap_or(usize::MAX);
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let wide = self.widths(&all, terminal::width);
        if total(&wide) <= limit {
            return self.grid(&all, &wide);
        }
        let says =
            |at: &usize| !self.columns[*at].is_spare || self.rows.iter().any(|row| !row[*at].is_nothing());
        let said: Vec<usize> = all.into_iter().filter(says).collect();
        let mut kept = said.clone();
        while total(&self.least_widths(&kept)) > limit {
            match kept.iter().rposition(|at| self.columns[*at].is_minor) {
                Some(minor) => drop(kept.remove(minor)),
                None => return self.blocks(&said, limit),
            }
        }
        let mut widths = self.widths(&kept, terminal::width);
        let least = self.least_widths(&kept);
        while total(&widths) > limit {
            let room = (0..widths.len()).filter(|at| widths[*at] > least[*at]);
            let Some(widest) = room.max_by_key(|at| (self.columns[kept[*at]].is_cut, widths[*at])) else {
                break;
            };
            widths[widest] -= 1;
        }
        self.grid(&kept, &widths)
    }

    /// The greatest of what `measure` finds in each column.
    fn widths(&self, columns: &[usize], measure: impl Fn(&str) -> usize) -> Vec<usize> {
        let of = |at: &usize| {
            let cells = self.rows.iter().map(|row| measure(&row[*at].text));
            cells.chain([measure(&self.columns[*at].heading)]).max().unwrap_or_default()
        };
        columns.iter().map(of).collect()
    }

    /// The widths that no word, or what remains of a text that is cut, does without.
    fn least_widths(&self, columns: &[usize]) -> Vec<usize> {
        let words = self.widths(columns, widest_word).into_iter().zip(self.widths(columns, terminal::width));
        let least = |(at, (word, text)): (&usize, (usize, usize))| {
            if self.columns[*at].is_cut { text.min(CUT_MIN) } else { word }
        };
        columns.iter().zip(words).map(least).collect()
    }

    fn grid(&self, columns: &[usize], widths: &[usize]) -> Vec<String> {
        let headings: Vec<Cell> =
            self.columns.iter().map(|column| Cell::from(column.heading.as_str())).collect();
        let headings = Some(&headings).filter(|_| !self.is_continued);
        let rows = headings.into_iter().chain(&self.rows);
        rows.flat_map(|row| self.grid_row(row, columns, widths)).collect()
    }

    /// The lines of a row: as many as its highest cell has.
    fn grid_row(&self, row: &[Cell], columns: &[usize], widths: &[usize]) -> Vec<String> {
        let fit = |(at, width): (&usize, &usize)| match self.columns[*at].is_cut {
            true => vec![terminal::shorten(&row[*at].text, *width)],
            false => terminal::wrap(&row[*at].text, *width),
        };
        let wrapped: Vec<Vec<String>> = columns.iter().zip(widths).map(fit).collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or_default();
        let line = |n: usize| {
            let mut line = String::new();
            let mut blanks = 0;
            for ((at, width), cell) in columns.iter().zip(widths).zip(&wrapped) {
                let text = cell.get(n).map(String::as_str).unwrap_or_default();
                let fill = width.saturating_sub(terminal::width(text));
                let (before, after) = if self.columns[*at].is_number { (fill, 0) } else { (0, fill) };
                if !text.is_empty() {
                    line.extend(std::iter::repeat_n(' ', blanks + before));
                    line.push_str(&row[*at].tone.paint(text));
                    blanks = after + GAP;
                } else {
                    blanks += width + GAP;
                }
            }
            line
        };
        (0..height).map(line).collect()
    }

    /// Each row as a block: a line for each column, and an empty line between two rows.
    fn blocks(&self, columns: &[usize], limit: usize) -> Vec<String> {
        let headings = columns.iter().map(|at| terminal::width(&self.columns[*at].heading));
        let indent = headings.max().unwrap_or_default() + GAP;
        let mut lines = Vec::new();
        for row in &self.rows {
            if self.is_continued || !lines.is_empty() {
                lines.push(String::new());
            }
            for at in columns {
                let (heading, cell) = (&self.columns[*at].heading, &row[*at]);
                if cell.text.is_empty() {
                    continue;
                }
                let wrapped = terminal::wrap(&cell.text, limit.saturating_sub(indent));
                for (n, text) in wrapped.iter().enumerate() {
                    let heading = if n == 0 { heading.as_str() } else { "" };
                    let blanks = " ".repeat(indent - terminal::width(heading));
                    lines.push(format!("{heading}{blanks}{}", cell.tone.paint(text)));
                }
            }
        }
        lines
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn widest_word(text: &str) -> usize {
    text.split(' ').map(terminal::width).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table =
            with_headings(["batch", "jobs", "state", "waived", "files"]).numbers(&[1]).spare(&[3]);
        table.add_row(["spring", "12", "10 succeeded, 2 failed", "0", "output/spring"]);
        table.add_row(["長", "1", "1 succeeded", "0", "output/長"]);
        table
    }

    #[test]
    fn with_room_every_row_is_a_line() {
        let wide = [
            "batch   jobs  state                   waived  files",
            "spring    12  10 succeeded, 2 failed  0       output/spring",
            "長         1  1 succeeded             0       output/長",
        ];
        assert_eq!(table().lines(None), wide);
        assert_eq!(table().lines(Some(59)), wide);
    }

    #[test]
    fn columns_that_say_nothing_go_first_then_cells_are_wrapped() {
        assert_eq!(table().lines(Some(58))[1], "spring    12  10 succeeded, 2 failed  output/spring");
        assert_eq!(
            table().lines(Some(45)),
            [
                "batch   jobs  state             files",
                "spring    12  10 succeeded, 2   output/spring",
                "              failed",
                "長         1  1 succeeded       output/長",
            ]
        );
    }

    #[test]
    fn a_text_is_cut_to_one_line_before_minor_columns_go() {
        let mut table = with_headings(["job", "kind", "prompt"]).minor(&[1]).cut(&[2]);
        table.add_row(["spring/gull", "image", "A gull over the harbour at dusk"]);
        assert_eq!(table.lines(Some(45))[1], "spring/gull  image  A gull over the harbour…");
        assert_eq!(table.lines(Some(35))[1], "spring/gull  A gull over the…");
        assert_eq!(table.lines(None)[1], "spring/gull  image  A gull over the harbour at dusk");
    }

    #[test]
    fn where_no_word_would_fit_each_row_is_a_block() {
        let narrow = table().lines(Some(24));
        assert_eq!(
            narrow,
            [
                "batch  spring",
                "jobs   12",
                "state  10 succeeded, 2",
                "       failed",
                "files  output/spring",
                "",
                "batch  長",
                "jobs   1",
                "state  1 succeeded",
                "files  output/長",
            ]
        );
    }

    #[test]
    fn at_any_width_nothing_is_wider_unless_a_word_is() {
        for limit in 20..100 {
            for line in table().lines(Some(limit)) {
                assert!(terminal::width(&line) <= limit, "{limit}: {line}");
            }
        }
    }

    #[test]
    fn a_tone_takes_no_room() {
        let mut table = with_headings(["state", "job"]);
        table.add_row([Cell::toned("failed", Tone::Failed), "gull".into()]);
        assert_eq!(table.lines(None)[1], "\x1b[31mfailed\x1b[0m  gull");
    }
}
