//! Log lines: on stderr for people, or one JSON object each; in the journal as entries with fields.
//!
//! Fields of the spans around an event stand on its line as its own do, so that `batch`, `job`, `attempt`
//! and `task` are always found in one place. For people, text from outside is shown, not obeyed: a service's
//! message cannot move the cursor or begin a line of its own.
//!
//! `docs/dependencies.md` says what the formatters of tracing-subscriber and tracing-journald lack for this.

use std::fmt::{self, Write};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::cli::log::journal::JournalEntry;
use crate::cli::log::queue::LogQueue;
use crate::cli::printable;
use crate::clock::Clock;
use crate::domain::time::Timestamp;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Human { colour: bool },
    Json,
}

/// What is made of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    Text(Style),
    JournalEntry,
}

/// Writes every event as a line.
pub(super) struct FormatLayer {
    format: LineFormat,
    /// What writes lines; nothing where they go to stderr at once.
    queue: Option<LogQueue>,
    clock: Clock,
}

impl FormatLayer {
    pub(super) fn new(format: LineFormat, queue: Option<LogQueue>, clock: Clock) -> FormatLayer {
        FormatLayer { format, queue, clock }
    }
}

/// The line that says that so many were dropped.
pub(super) fn dropped_notice(format: LineFormat, dropped: u64, at: Timestamp) -> Vec<u8> {
    let fields = Fields {
        message: "log lines were dropped because they were not read fast enough".to_owned(),
        log_target: None,
        list: vec![("dropped", dropped.into())],
    };
    LogLine { at, level: Level::WARN, target: module_path!(), fields: &fields }.in_format(format)
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for FormatLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flatten().collect::<Vec<_>>().into_iter().rev() {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                of_span.list.iter().for_each(|(name, value)| fields.put(name, value.clone()));
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        // Libraries that speak `log` name themselves in a field.
        let target = fields.log_target.take().unwrap_or_else(|| metadata.target().to_owned());
        let line =
            LogLine { at: self.clock.now().wall, level: *metadata.level(), target: &target, fields: &fields };
        let line = line.in_format(self.format);
        match &self.queue {
            Some(queue) => queue.push(line),
            None => super::write(&line),
        }
    }
}

/// What an event or a span says.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    log_target: Option<String>,
    list: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, name: &'static str, value: Value) {
        match self.list.iter_mut().find(|(known, _)| *known == name) {
            Some((_, before)) => *before = value,
            None => self.list.push((name, value)),
        }
    }

    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("log.target", Value::String(text)) => self.log_target = Some(text),
            ("log.module_path" | "log.file" | "log.line", _) => {}
            (name, value) => self.put(name, value),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}").into());
    }
}

/// An event, ready to be written.
struct LogLine<'a> {
    at: Timestamp,
    level: Level,
    target: &'a str,
    fields: &'a Fields,
}

impl LogLine<'_> {
    fn in_format(&self, format: LineFormat) -> Vec<u8> {
        match format {
            LineFormat::Text(Style::Human { colour }) => self.human(colour).into_bytes(),
            LineFormat::Text(Style::Json) => self.json().into_bytes(),
            LineFormat::JournalEntry => self.journal_entry().into_bytes(),
        }
    }

    fn human(&self, colour: bool) -> String {
        let (dim, bright, plain) = if colour { ("\x1b[2m", self.colour(), "\x1b[0m") } else { ("", "", "") };
        let (at, level, message) = (self.at, self.level, printable(&self.fields.message));
        let mut line = format!("{dim}{at}{plain} {bright}{level:>5}{plain} ");
        // Of our own modules only those who look for a fault want to know.
        if !self.target.starts_with("callsheet") || level >= Level::DEBUG {
            let _ = write!(line, "{dim}{}:{plain} ", printable(self.target));
        }
        line.push_str(&message);
        self.append_fields(&mut line, dim, plain);
        line.push('\n');
        line
    }

    fn append_fields(&self, line: &mut String, dim: &str, plain: &str) {
        for (name, value) in &self.fields.list {
            let _ = write!(line, " {dim}{name}={plain}{}", quoted(value));
        }
    }

    fn journal_entry(&self) -> JournalEntry {
        let mut message = printable(&self.fields.message);
        self.append_fields(&mut message, "", "");
        let mut entry = JournalEntry::new(&message, self.level, self.target);
        self.fields.list.iter().for_each(|(name, value)| entry.add_field(name, value));
        entry
    }

    fn colour(&self) -> &'static str {
        match self.level {
            Level::ERROR => "\x1b[31m",
            Level::WARN => "\x1b[33m",
            Level::INFO => "\x1b[32m",
            Level::DEBUG => "\x1b[34m",
            Level::TRACE => "\x1b[35m",
        }
    }

    fn json(&self) -> String {
        let standard = [
            ("timestamp", Value::from(self.at.to_string())),
            ("level", self.level.as_str().into()),
            ("target", self.target.into()),
            ("message", self.fields.message.as_str().into()),
        ];
        let all = standard.iter().chain(&self.fields.list);
        let members = all.map(|(name, value)| format!("{}:{value}", Value::from(*name)));
        format!("{{{}}}\n", members.collect::<Vec<_>>().join(","))
    }
}

/// A value as one word, or in quotation marks.
fn quoted(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let is_word = |c: char| c.is_alphanumeric() || "-_.:/@%+,#".contains(c);
    if !text.is_empty() && text.chars().all(is_word) { text.clone() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(fields: &Fields, level: Level) -> LogLine<'_> {
        LogLine { at: Timestamp(1_000), level, target: "callsheet::engine", fields }
    }

    fn fields(message: &str, list: &[(&'static str, Value)]) -> Fields {
        Fields { message: message.to_owned(), log_target: None, list: list.to_vec() }
    }

    #[test]
    fn people_read_words_and_what_is_no_word_is_quoted() {
        let fields = fields(
            "failed",
            &[("batch", json!("ads")), ("attempt", json!(2)), ("reason", json!("too dark"))],
        );
        assert_eq!(
            line(&fields, Level::INFO).human(false),
            "1970-01-01T00:00:01.000Z  INFO failed batch=ads attempt=2 reason=\"too dark\"\n"
        );
        let debug = line(&fields, Level::DEBUG).human(true);
        assert!(debug.contains("\x1b[34mDEBUG\x1b[0m \x1b[2mcallsheet::engine:\x1b[0m failed"), "{debug:?}");
    }

    #[test]
    fn a_message_from_outside_cannot_drive_the_terminal() {
        let hostile = "\x1b[2J\x07\r\nERROR forged \u{9b}31m \u{202e}";
        let line = line(&fields(hostile, &[("fault", json!(hostile))]), Level::WARN).human(false);
        assert_eq!(line.chars().filter(|c| c.is_control()).collect::<String>(), "\n", "{line:?}");
        assert!(line.ends_with("\\u{202e}\"\n"), "{line:?}");
    }

    #[test]
    fn json_lines_hold_everything_side_by_side() {
        let mut fields = fields("read \"it\"", &[("task", json!("t\n1"))]);
        fields.put("attempt", json!(1));
        fields.put("attempt", json!(2));
        let line = line(&fields, Level::INFO).json();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({
                "timestamp": "1970-01-01T00:00:01.000Z",
                "level": "INFO",
                "target": "callsheet::engine",
                "message": "read \"it\"",
                "task": "t\n1",
                "attempt": 2
            })
        );
    }
}
