//! Errors as people read them: what failed, what to do next, and the exit code.

use std::path::PathBuf;

use serde::Serialize;

use crate::api::{ClientError, ServiceError};
use crate::cli::invocation::with_typed_commands;
use crate::cli::printable;
use crate::cli::terminal::{self, say};
use crate::config::ConfigError;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::exit_code::Exit;
use crate::domain::path_text;
use crate::engine::EngineError;
use crate::ingest::ManifestError;
use crate::ingest::catalog_refresh::CatalogError;
use crate::server::protocol::Refusal;
use crate::store::StoreError;
use crate::store::dump::DumpError;

/// Why a command could not do its work.
#[derive(Debug)]
pub(super) struct Failure {
    exit: Exit,
    message: String,
    hint: Option<String>,
    problems: Vec<FileProblem>,
}

/// One thing that is wrong in a file.
#[derive(Debug, Serialize)]
pub(super) struct FileProblem {
    /// As the command names it.
    #[serde(serialize_with = "path_text::shown")]
    pub(super) file: PathBuf,
    #[serde(flatten)]
    pub(super) problem: Diagnostic,
}

/// An error with `--json`: what the control API answers, and every single problem.
#[derive(Debug, Serialize)]
struct ErrorReport<'a> {
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    exit_code: u8,
    problems: &'a [FileProblem],
}

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), hint: None, problems: Vec::new() }
    }

    /// Nothing went wrong; there is only nobody left to tell.
    pub(super) fn quiet() -> Failure {
        Failure { exit: Exit::Success, message: String::new(), hint: None, problems: Vec::new() }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// The code that the process ends with.
    pub(super) fn exit(&self) -> Exit {
        self.exit
    }

    /// Exit code, what failed, and what to do next.
    pub(super) fn into_parts(self) -> (Exit, String, Option<String>) {
        (self.exit, self.message, self.hint)
    }

    /// The same in other words.
    pub(super) fn message(self, message: String) -> Failure {
        Failure { message, ..self }
    }

    /// The same with every single thing that is wrong.
    pub(super) fn problems(mut self, problems: Vec<FileProblem>) -> Failure {
        self.problems = problems;
        self
    }

    /// Says it on stderr: as text, or, with `--json`, as one line of JSON.
    pub(super) fn report(mut self, is_json: bool) -> Exit {
        if self.message.is_empty() {
            return self.exit;
        }
        if is_json {
            let hint = self.hint.as_deref().map(with_typed_commands);
            for hint in self.problems.iter_mut().filter_map(|found| found.problem.hint.as_mut()) {
                *hint = with_typed_commands(hint);
            }
            let error = ErrorReport {
                message: &self.message,
                hint: hint.as_deref(),
                exit_code: self.exit.code(),
                problems: &self.problems,
            };
            terminal::print_line(&serde_json::json!({ "error": error }).to_string());
            return self.exit;
        }
        // A configuration has a line for each of its problems.
        for line in self.message.lines() {
            say!("error: {}", printable(line));
        }
        if let Some(hint) = self.hint {
            say!("hint: {}", printable(&hint));
        }
        self.exit
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.hint {
            Some(hint) => write!(f, "{} ({hint})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Failure {
        let text = error.render().to_string();
        let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        let message = message.trim().strip_prefix("error: ").unwrap_or(message.trim());
        let failure = Failure::new(Exit::Usage, message.lines().map(str::trim).collect::<Vec<_>>().join(" "));
        let tips: Vec<&str> = rest.lines().filter_map(|line| line.trim().strip_prefix("tip: ")).collect();
        if tips.is_empty() { failure } else { failure.hint(tips.join("; ")) }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        let failure = Failure::new(Exit::Usage, error.to_string());
        let ConfigError::Invalid { path, problems } = error else { return failure };
        let placed = |problem| FileProblem { file: path.clone(), problem };
        failure.problems(problems.into_iter().map(placed).collect())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::new(Exit::Usage, error.to_string())
    }
}

macro_rules! failures {
    ($($error:ident)*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Refusal::from(&error).into()
            }
        })*
    };
}

failures! { ServiceError StoreError ManifestError CatalogError EngineError }

impl From<Refusal> for Failure {
    fn from(Refusal { message, hint, exit_code }: Refusal) -> Failure {
        Failure { exit: Exit::of_code(exit_code), message, hint, problems: Vec::new() }
    }
}

impl From<DumpError> for Failure {
    fn from(error: DumpError) -> Failure {
        match error {
            DumpError::Store(error) => error.into(),
            // The reader has closed its end.
            DumpError::Io(source) if source.kind() == std::io::ErrorKind::BrokenPipe => Failure::quiet(),
            DumpError::Io(ref source) if source.kind() == std::io::ErrorKind::NotFound => {
                Failure::new(Exit::Usage, error.to_string())
            }
            DumpError::Io(_) => Failure::new(Exit::Disk, error.to_string()),
            DumpError::Line { .. } => Failure::new(Exit::Usage, error.to_string())
                .hint("an export is imported completely or not at all; export again, or use an older export"),
            DumpError::OtherState { .. } => Failure::new(Exit::Usage, error.to_string()).hint(
                "nothing was changed; give an export of this state, of any age, or none: callsheet state rebuild",
            ),
            DumpError::NotEmpty { .. } => Failure::new(Exit::Usage, error.to_string())
                .hint("give an empty or missing directory with --state"),
        }
    }
}
