//! Reading the configuration's text so that all of its problems are said at once.
//!
//! A deserializer stops at the first problem. It is asked again without the entry that it stopped at, until nothing is
//! wrong with the rest.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

use super::Config;
use super::suggest::with_suggestion;
use crate::domain::diagnostic::{Diagnostic, Position};

/// So many problems of one file are looked for.
const PROBLEMS_MAX: usize = 100;

/// Where each key of a configuration's text stands.
#[derive(Debug)]
pub(super) struct Positions<'t> {
    text: &'t str,
    root: Spanned<DeTable<'t>>,
}

/// A text with which something is wrong by itself.
pub(super) struct Damaged<'t> {
    /// Everything that is wrong with it.
    pub(super) problems: Vec<Diagnostic>,
    /// What could be read of it without that.
    pub(super) rest: Option<(Config, Positions<'t>)>,
    /// The sections of which it cannot be told which value is missing: a key is misspelt, or a whole table is missing.
    sections: BTreeSet<String>,
    /// The keys whose values are missing in it.
    keys: BTreeSet<String>,
}

/// Sections whose values say together what holds: what one lacks may be what is wrong with another.
const WHOLE_SECTIONS: [&str; 3] = ["budget", "inbox", "rules"];

impl Damaged<'_> {
    /// Whether a problem of the rest is one of the text, too: none of a value that is missing in it, nor of one that does
    /// not fit to such a value, whose key (`poll.max`) the message names.
    pub(super) fn has(&self, problem: &Diagnostic) -> bool {
        let field = problem.field.as_deref().unwrap_or_default();
        let section = field.split('.').next().unwrap_or_default();
        let lacks = |section: &str| self.sections.contains(section);
        let names = |key: &String| problem.message.contains(key.as_str());
        match section {
            // Each stands by itself.
            "limits" => !self.keys.contains(field),
            // They name inboxes.
            "budget" => !lacks("budget") && !lacks("inbox"),
            _ => !lacks(section) && !self.keys.iter().any(|key| field == key || names(key)),
        }
    }
}

/// The configuration, and where its keys stand; or what is wrong with the text by itself.
pub(super) fn read(text: &str) -> Result<(Config, Positions<'_>), Box<Damaged<'_>>> {
    let (root, broken) = DeTable::parse_recoverable(text);
    let places = Positions { text, root };
    if !broken.is_empty() {
        // What stands behind a mistake of spelling may be read as something else.
        let mut problems: Vec<Diagnostic> = broken.iter().map(|error| places.diagnostic(error)).collect();
        problems.sort_by_key(|problem| problem.position);
        problems.truncate(PROBLEMS_MAX);
        return Err(Box::new(Damaged {
            problems,
            rest: None,
            sections: BTreeSet::new(),
            keys: BTreeSet::new(),
        }));
    }
    let mut rest = places.root.clone();
    let mut problems: Vec<Diagnostic> = Vec::new();
    let mut keys: BTreeSet<String> = BTreeSet::new();
    let mut sections = BTreeSet::new();
    let read = loop {
        match Config::deserialize(Deserializer::from(rest.clone())) {
            Ok(config) if problems.is_empty() => return Ok((config, places)),
            Ok(config) => break Some(config),
            Err(error) => {
                let span = error.span().unwrap_or_default();
                // What was removed for its own problem is not missing.
                let names = keys.iter().filter_map(|key| key.rsplit('.').next());
                let mut missing = names.map(|name| format!("missing field `{name}`"));
                if !missing.any(|message| message == error.message()) {
                    problems.push(places.diagnostic(&error));
                }
                let section = section_at(rest.get_ref(), &span);
                match key_at(rest.get_ref(), &span) {
                    Some((key, value)) if !is_of_tables(value) => drop(keys.insert(key)),
                    _ => sections.extend(section.clone()),
                }
                sections.extend(section.filter(|section| WHOLE_SECTIONS.contains(&section.as_str())));
                if problems.len() == PROBLEMS_MAX || !remove(rest.get_mut(), &span) {
                    break None;
                }
            }
        }
    };
    problems.sort_by_key(|problem| problem.position);
    Err(Box::new(Damaged { problems, rest: read.map(|config| (config, places)), sections, keys }))
}

impl Positions<'_> {
    /// The line of a key (`limits.in_flight`), or of the table that it would stand in. Of tables that stand more than
    /// once, `which` says which one.
    pub(super) fn of(&self, key: &str, which: usize) -> Position {
        self.of_keys(&key.split('.').collect::<Vec<_>>(), which)
    }

    /// The same of a key that is given by its parts, which may have dots.
    pub(super) fn of_keys(&self, keys: &[&str], which: usize) -> Position {
        let mut span = self.root.span();
        let mut table = Some(self.root.get_ref());
        for name in keys {
            let Some((found, value)) = table.and_then(|table| table.get_key_value(*name)) else { break };
            span = found.span();
            table = value.get_ref().as_table();
            if let Some(item) = value.get_ref().as_array().and_then(|items| items.get(which)) {
                span = item.span();
                table = item.get_ref().as_table();
            }
        }
        self.position(span.start)
    }

    /// What is wrong with the value of a key.
    pub(super) fn problem(&self, key: &str, which: usize, message: impl Into<String>) -> Diagnostic {
        Diagnostic::at(self.of(key, which), message).in_field(key)
    }

    fn position(&self, start: usize) -> Position {
        let before = self.text.as_bytes().get(..start).unwrap_or_default();
        Position::line(1 + before.iter().filter(|byte| **byte == b'\n').count() as u64)
    }

    /// The message alone: the error's own display would print the line, whatever is in it.
    fn diagnostic(&self, error: &Error) -> Diagnostic {
        let span = error.span().unwrap_or_default();
        let found = key_at(self.root.get_ref(), &span);
        let key = found.as_ref().map(|(key, _)| key.as_str()).unwrap_or_default();
        // Terms are read as a whole: a message about one of them names it.
        let term = found.as_ref().and_then(|(_, value)| named_key(value, error.message()));
        let start = term.unwrap_or(span.start);
        let diagnostic = Diagnostic::at(self.position(start), with_suggestion(key, error.message()));
        // A message about a key names it already: it stands at the key, or at the table that lacks it.
        match found {
            Some((key, value)) if !value.is_table() => diagnostic.in_field(key),
            Some(_) | None => diagnostic,
        }
    }
}

/// The value that stands at `span`, and its key with those of the tables around it.
fn key_at<'t, 'v>(table: &'v DeTable<'t>, span: &Range<usize>) -> Option<(String, &'v DeValue<'t>)> {
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        if value.span() == *span {
            return Some((name.to_string(), value.get_ref()));
        }
        let (below, value) = match value.get_ref() {
            DeValue::Table(table) => key_at(table, span),
            DeValue::Array(items) => items.iter().find_map(|item| match item.get_ref() {
                DeValue::Table(table) => key_at(table, span),
                value => (item.span() == *span).then(|| (String::new(), value)),
            }),
            _ => None,
        }?;
        Some((if below.is_empty() { name.to_string() } else { format!("{name}.{below}") }, value))
    })
}

/// Where the key of a table stands that a message names at its beginning, or first in backticks.
fn named_key(value: &DeValue<'_>, message: &str) -> Option<usize> {
    let table = value.as_table()?;
    let at_start = message.split(": ").next().unwrap_or_default();
    let at_start = at_start.strip_prefix("policy.").unwrap_or(at_start);
    let quoted = message.split('`').nth(1).unwrap_or_default();
    let (key, _) = [at_start, quoted].into_iter().find_map(|name| table.get_key_value(name))?;
    Some(key.span().start)
}

/// Whether it is a table, or a list of tables, which stands where its first one does.
fn is_of_tables(value: &DeValue<'_>) -> bool {
    let items = value.as_array().map(|items| items.iter()).into_iter().flatten();
    value.is_table() || items.map(Spanned::get_ref).any(DeValue::is_table)
}

/// The section in which a key or a value stands at `span`.
fn section_at(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    fn stands_in(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
        value.span() == *span
            || match value.get_ref() {
                DeValue::Table(table) => {
                    table.iter().any(|(key, value)| key.span() == *span || stands_in(value, span))
                }
                DeValue::Array(items) => items.iter().any(|item| stands_in(item, span)),
                _ => false,
            }
    }
    let found = table.iter().find(|(key, value)| key.span() == *span || stands_in(value, span));
    found.map(|(key, _)| key.get_ref().to_string())
}

/// Removes the entry whose key or value stands at `span`; nothing where there is none. The first of many tables stands
/// where their list does, so the innermost is removed.
fn remove(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    let is_removed_below = table.iter_mut().any(|(_, value)| match value.get_mut() {
        DeValue::Table(table) => remove(table, span),
        DeValue::Array(items) => {
            if items.iter().any(|item| item.span() == *span) {
                *items = items.iter().filter(|item| item.span() != *span).cloned().collect();
                return true;
            }
            items.iter_mut().any(|item| match item.get_mut() {
                DeValue::Table(table) => remove(table, span),
                _ => false,
            })
        }
        _ => false,
    });
    let is_it = |key: &Spanned<_>, value: &Spanned<DeValue<'_>>| key.span() == *span || value.span() == *span;
    let found = table.iter().find(|(key, value)| is_it(key, value)).map(|(key, _)| key.clone());
    is_removed_below || found.is_some_and(|key| table.remove(&key).is_some())
}
