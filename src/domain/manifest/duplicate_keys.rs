//! Names that stand once only: keys of an object.

use std::collections::BTreeMap;

use crate::domain::diagnostic::{Diagnostic, Position};

use super::messages::shortened;

/// Names that may be given once only, and where they were.
#[derive(Debug, Default)]
pub(super) struct UniqueNames(BTreeMap<String, Position>);

impl UniqueNames {
    /// Notes that `name` is given at `at`; a problem if it was before.
    pub(super) fn first(&mut self, name: String, spelled: &str, at: Position) -> Result<(), Diagnostic> {
        let Some(before) = self.0.get(&name) else {
            self.0.insert(name, at);
            return Ok(());
        };
        let column = before.column.map(|column| format!(":{column}")).unwrap_or_default();
        let message = format!("given twice, first at {}{column}; keep one", before.line);
        Err(Diagnostic::at(at, message).in_field(shortened(spelled)))
    }
}
