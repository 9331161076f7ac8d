//! `[log]`: format and level of the log.

use serde::Deserialize;

use super::read::Positions;
use crate::domain::diagnostic::Diagnostic;

/// `[log]`
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// How lines look.
    pub format: LogFormat,
    /// The log level: `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `callsheet::api=debug`.
    pub level: Option<String>,
}

/// How log lines look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `Human` on a terminal and for every command but the daemon; the daemon uses the journal if there is one, else JSON.
    #[default]
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
    /// For systemd's journal, with fields.
    Journald,
}

/// The names of log levels.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Whether `text` is a level, or a filter: parts such as `callsheet::api=debug`, with commas between them.
///
/// # Errors
/// What was found, and what would be accepted. A mistyped level would otherwise be taken for the name of
/// a module, and silence everything else.
pub fn check_log_level(text: &str) -> Result<(), String> {
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let is_part = |part: &str| match part.rsplit_once('=') {
        Some((target, level)) => {
            !target.is_empty() && !target.contains(char::is_whitespace) && is_level(level)
        }
        None => is_level(part),
    };
    if text.split(',').all(is_part) {
        return Ok(());
    }
    Err(format!(
        "found {text:?}; error, warn, info, debug, trace or off is accepted, or a filter such as \
         info,hyper=debug"
    ))
}

impl LogConfig {
    /// A level that is none.
    pub(super) fn problems(&self, positions: &Positions<'_>) -> Vec<Diagnostic> {
        let wrong = self.level.as_deref().map(check_log_level).and_then(Result::err);
        wrong.into_iter().map(|message| positions.problem("log.level", 0, message)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("callsheet.toml")).unwrap_err().to_string()
    }

    #[test]
    fn a_level_is_one_of_a_few_words() {
        for right in ["warn", "INFO", "off", "info,callsheet::engine=debug", "warn,callsheet[post]=trace"] {
            assert_eq!(check_log_level(right), Ok(()), "{right}");
        }
        for wrong in ["", "inof", "info,", "warn, info", "callsheet::api", "=info", "a=b"] {
            assert!(check_log_level(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            error("[log]\nlevel = \"inof\""),
            "callsheet.toml:2: log.level: found \"inof\"; error, warn, info, debug, trace or off is accepted, or a filter such as \
             info,hyper=debug"
        );
    }
}
