//! Tables as commands print them: columns with blanks between them, and no lines.

use std::io::{self, Write};

use comfy_table::{Cell, Table, presets};

/// A table with nothing in it but its headings.
pub(super) fn with_headings<T: Into<Cell>>(headings: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(headings);
    table
}

/// Prints it, without the blanks that fill up its lines.
pub(super) fn print(out: &mut impl Write, table: &Table) -> io::Result<()> {
    table.to_string().lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}
