//! Errors and notes about a manifest or a request: one type for all of them, and one list that is bounded.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;

/// So many errors of one row, heading or request are kept; the rest is counted.
const ERRORS_MAX: usize = 100;

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

    pub fn at(line: u64, column: u64) -> Position {
        Position { line, column: Some(column) }
    }
}

/// An error, or a note that refuses nothing: where, which field, what was found and what would be accepted.
///
/// A check of a request, or of a single value, leaves the position out: the caller that knows it adds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// In the manifest; none for a value or a request by itself.
    #[serde(flatten)]
    pub position: Option<Position>,
    /// The field as the manifest spells it, or by its canonical name (`options.duration`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A lowercase fragment: what was found, and what would be accepted.
    pub message: String,
    /// What to do about it, where that is more than the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What the row costs, in credits, where that alone is wrong: it may not cost so much.
    #[serde(default, rename = "price_credits", skip_serializing_if = "Option::is_none")]
    pub price: Option<Credits>,
}

impl Diagnostic {
    /// Without position and field.
    pub fn new(message: impl Into<String>) -> Diagnostic {
        Diagnostic { position: None, field: None, message: message.into(), hint: None, price: None }
    }

    /// `found X, expected Y`.
    pub fn expected(found: &str, accepted: &str) -> Diagnostic {
        Diagnostic::new(format!("found {found}, expected {accepted}"))
    }

    /// Of a whole line or file, until a field is named.
    pub fn at(position: Position, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(message).positioned(position)
    }

    /// Sets the position.
    #[must_use]
    pub fn positioned(mut self, position: Position) -> Diagnostic {
        self.position = Some(position);
        self
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

    /// Says for which combination of a matrix it is.
    #[must_use]
    pub fn for_combination(mut self, combination: &str) -> Diagnostic {
        self.message = format!("{} (with {combination})", self.message);
        self
    }

    /// The line of the manifest; 1 where none is known.
    pub fn line(&self) -> u64 {
        self.position.map_or(1, |position| position.line)
    }

    /// `model: is withdrawn`: the message with its field, without position and hint.
    pub fn field_message(&self) -> String {
        match &self.field {
            Some(field) => format!("{field}: {}", self.message),
            None => self.message.clone(),
        }
    }
}

/// `12:7: duration: found "7", the model takes 5s or 10s (hint: ...)`.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}")?;
            if let Some(column) = column {
                write!(f, ":{column}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.field_message())?;
        if let Some(hint) = &self.hint {
            write!(f, " (hint: {hint})")?;
        }
        Ok(())
    }
}

/// What a check of one row, heading or request finds: bounded, whatever the bytes say.
#[derive(Debug, Default)]
pub struct Diagnostics {
    errors: Vec<Diagnostic>,
    omitted: u64,
    notes: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds an error, or counts it if there are `ERRORS_MAX`.
    pub fn push(&mut self, error: Diagnostic) {
        self.push_with(|| error);
    }

    /// The same, but makes the error only if it is kept: the guess at a misspelt name takes time, and a row may have
    /// more unknown names than anyone reads.
    pub fn push_with(&mut self, error: impl FnOnce() -> Diagnostic) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error());
        } else {
            self.omitted += 1;
        }
    }

    /// Adds an error of a field.
    pub fn refuse(&mut self, field: &str, message: impl Into<String>) {
        self.push_with(|| Diagnostic::new(message).in_field(field));
    }

    /// Adds an error of a field that says what to do.
    pub fn refuse_with(&mut self, field: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.push_with(|| Diagnostic::new(message).in_field(field).hint(hint));
    }

    /// Adds a note about a field, which refuses nothing.
    pub fn note(&mut self, field: &str, message: impl Into<String>) {
        self.notes.push(Diagnostic::new(message).in_field(field));
    }

    /// Adds what another check found: all errors, and the notes that are wanted.
    pub fn absorb(&mut self, other: Diagnostics, is_wanted: impl Fn(&Diagnostic) -> bool) {
        other.errors.into_iter().for_each(|error| self.push(error));
        self.omitted += other.omitted;
        self.notes.extend(other.notes.into_iter().filter(is_wanted));
    }

    /// Whether there is no error.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// The notes, or, if there are any, the errors in the order of the manifest; omitted ones are counted in the last.
    ///
    /// # Errors
    /// The errors.
    pub fn finish(mut self) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
        self.errors.sort_by_key(|error| error.position);
        let Some(last) = self.errors.last() else { return Ok(self.notes) };
        if self.omitted > 0 {
            let message = format!("and {} more problems like these", self.omitted);
            self.errors.push(Diagnostic { position: last.position, ..Diagnostic::new(message) });
        }
        Err(self.errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_bounded() {
        let mut diagnostics = Diagnostics::default();
        for line in 0..250 {
            diagnostics.push(Diagnostic::at(Position::line(line), "bad"));
        }
        let errors = diagnostics.finish().unwrap_err();
        assert_eq!(errors.len(), ERRORS_MAX + 1);
        assert_eq!(errors[ERRORS_MAX].message, "and 150 more problems like these");
    }

    #[test]
    fn the_json_has_a_position_where_one_is_known() {
        let error = Diagnostic::new("is withdrawn").in_field("model");
        let placed = error.clone().positioned(Position::at(3, 7));
        for (error, json) in [
            (error, r#"{"field":"model","message":"is withdrawn"}"#),
            (placed, r#"{"line":3,"column":7,"field":"model","message":"is withdrawn"}"#),
        ] {
            assert_eq!(serde_json::to_string(&error).unwrap(), json);
            assert_eq!(serde_json::from_str::<Diagnostic>(json).unwrap(), error);
        }
    }
}
