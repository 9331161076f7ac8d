//! Tables for programs and for spreadsheets.

use serde::Deserialize;

/// What a spreadsheet takes a cell for a formula by.
pub(super) const FORMULA_STARTS: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// Who `results.csv` is written for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CsvDialect {
    /// Programs: UTF-8, every cell as it is.
    #[default]
    Plain,
    /// Spreadsheets: with a byte order mark, and no cell that is taken for a formula.
    Excel,
}
