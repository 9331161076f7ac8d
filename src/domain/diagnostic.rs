//! What is wrong with a manifest, and where.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A place in a manifest. Lines and columns count from 1, as editors show them; a column counts
/// characters.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Line of the file.
    pub line: u64,
    /// Character in the line, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
}

impl Position {
    /// The start of a line, where no column is known.
    pub fn line(line: u64) -> Position {
        Position { line, column: None }
    }

    /// A line and a column.
    pub fn at(line: u64, column: u64) -> Position {
        Position { line, column: Some(column) }
    }
}

/// One thing wrong with a manifest: where, which field, what was found and what would be accepted.
///
/// `message` is a lowercase fragment that says what was found and what is accepted; `hint` is what
/// to do about it, where that is more than the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Where.
    #[serde(flatten)]
    pub position: Position,
    /// The field as the manifest spells it (`options.duration`), where one is to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was found, and what would be accepted.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A problem of a whole line or file.
    pub fn new(position: Position, message: impl Into<String>) -> Diagnostic {
        Diagnostic { position, field: None, message: message.into(), hint: None }
    }

    /// Names the field to blame.
    #[must_use]
    pub fn in_field(mut self, field: impl Into<String>) -> Diagnostic {
        self.field = Some(field.into());
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = Some(hint.into());
        self
    }
}

/// `12:7: duration: found "7", the model takes 5s or 10s (hint: ...)`.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.position.line)?;
        if let Some(column) = self.position.column {
            write!(f, ":{column}")?;
        }
        f.write_str(": ")?;
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " (hint: {hint})")?;
        }
        Ok(())
    }
}
