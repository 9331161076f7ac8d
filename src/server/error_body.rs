//! The JSON body of an error response. Fields may be added, not renamed.

use serde::{Deserialize, Serialize};

use crate::domain::exit_code::Exit;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is wrong.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What a command ends with because of it.
    pub exit_code: u8,
}

impl Refusal {
    /// One that says what is wrong, and nothing of what to do.
    pub fn new(exit: Exit, message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), hint: None, exit_code: exit.code() }
    }

    /// The same with what to do next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Refusal {
        Refusal { hint: Some(hint.into()), ..self }
    }
}

/// Body of every answer with a status of 400 and above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Why.
    pub error: Refusal,
}
