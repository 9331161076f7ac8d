//! Rows that are alike but for what tells the rows of most large manifests apart: their `id`, prompt, `meta` and line.
//!
//! What such a row comes to is known from the first of them: its own values take the places of the first one's. A prompt
//! decides about a row in three ways: it may be missing, be too long, or say what the service refuses. A row whose
//! prompt does none of these costs what a row with another such prompt costs.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::budget_group::{GroupKey, GroupLimits};
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::{BatchName, Fingerprint};
use crate::domain::manifest::row::Row;
use crate::domain::request::Request;
use crate::domain::row_selection::meta_value;
use crate::ingest::IngestContext;
use crate::store::staging::{AllowanceDraw, RowRequest, StagedOrder, StagedRow};

/// Most rows that are kept: kinds of rows mostly come mixed.
const KNOWN_MAX: usize = 8;
/// After so many rows that no known one is like, more must be found than not: rows may each have a value of their own, a
/// seed for one.
const TRIALS: u64 = 256;

/// The last rows of a manifest that were validated, of those that no other was like.
pub(super) struct ValidationCache<'a> {
    batch: &'a BatchName,
    context: &'a IngestContext<'a>,
    /// The one that was found last comes first.
    known: Vec<CachedRow>,
    found: u64,
    missed: u64,
}

/// A row, and what it came to.
struct CachedRow {
    /// As it was read.
    row: Row,
    /// The longest prompt with which a row came to this, in characters: a shorter one is not too long.
    prompt_chars: usize,
    /// The body from which its identity follows.
    identity: AroundPrompt,
    /// Its order, without the line at the beginning and `meta` at the end.
    order_json: AroundPrompt,
    /// Its order; what differs from row to row is not looked at.
    order: StagedOrder,
    draws: Option<AllowanceDraw>,
    /// What is worth saying of it, without positions.
    notes: Vec<Diagnostic>,
}

/// JSON without the value of its only field `prompt`.
struct AroundPrompt {
    before: String,
    after: String,
}

impl<'a> ValidationCache<'a> {
    /// For rows of that batch. None is known yet.
    pub(super) fn new(batch: &'a BatchName, context: &'a IngestContext<'a>) -> ValidationCache<'a> {
        ValidationCache { batch, context, known: Vec::new(), found: 0, missed: 0 }
    }

    /// What a row comes to, and what is worth saying of it, without positions; nothing where no row is known that is
    /// like it.
    pub(super) fn find(&mut self, row: &Row) -> Option<(StagedRow, &[Diagnostic])> {
        if !self.may_know(row) {
            return None;
        }
        let groups = self.context.group_limits;
        let Some(place) = self.known.iter().position(|known| known.is_like(row, groups)) else {
            self.missed += 1;
            return None;
        };
        self.known[..=place].rotate_right(1);
        let known = &self.known[0];
        let prompt = plain_prompt(row, self.context)?;
        if prompt.chars().count() > known.prompt_chars {
            return None;
        }
        self.found += 1;
        Some((known.staged(row, prompt, self.context.namespace, self.batch), &known.notes))
    }

    /// Whether a row may be found, or is worth keeping when it was validated.
    pub(super) fn may_know(&self, row: &Row) -> bool {
        let is_worth_it = self.missed < TRIALS || self.found > self.missed;
        is_worth_it && row.request.prompt.is_some() && row.notes.is_empty() && row.mistyped.is_empty()
    }

    /// Keeps what a row came to, for those that are like it. It takes neither an output of another row nor a file.
    /// `as_read` is the row before it was validated, `identity` the body from which its identity follows; `notes` have no
    /// positions.
    pub(super) fn keep(
        &mut self,
        as_read: Row,
        staged: &StagedRow,
        identity: &Map<String, Value>,
        notes: &[Diagnostic],
    ) {
        let Some(prompt) = plain_prompt(&as_read, self.context).map(str::to_owned) else { return };
        let Some(known) = CachedRow::of(as_read, &prompt, staged, identity, notes) else { return };
        // What it came to must come out of it.
        if known.staged(&known.row, &prompt, self.context.namespace, self.batch) != *staged {
            return;
        }
        // One that is like it has a shorter prompt.
        self.known.retain(|other| !other.is_like(&known.row, self.context.group_limits));
        self.known.truncate(KNOWN_MAX - 1);
        self.known.insert(0, known);
    }
}

/// The prompt as it is sent; nothing where something is to be said of it.
fn plain_prompt<'r>(row: &'r Row, context: &IngestContext<'_>) -> Option<&'r str> {
    let prompt = row.request.prompt.as_deref()?.trim();
    (!prompt.is_empty() && !context.rules.prohibits(prompt)).then_some(prompt)
}

impl CachedRow {
    fn of(
        row: Row,
        prompt: &str,
        staged: &StagedRow,
        identity: &Map<String, Value>,
        notes: &[Diagnostic],
    ) -> Option<CachedRow> {
        let RowRequest::Order(order) = &staged.wanted else { return None };
        let (begin, end) = ends(&row);
        let order_json = order.json.strip_prefix(&begin)?.strip_suffix(&end)?;
        let prompt_json = json(prompt);
        Some(CachedRow {
            row,
            prompt_chars: prompt.chars().count(),
            identity: AroundPrompt::of(&json(identity), &prompt_json)?,
            order_json: AroundPrompt::of(order_json, &prompt_json)?,
            order: StagedOrder::clone(order),
            draws: staged.draws.clone(),
            notes: notes.to_vec(),
        })
    }

    fn is_like(&self, other: &Row, groups: &GroupLimits) -> bool {
        let Row {
            position: _,
            kind,
            ref request,
            ref id,
            count: _,
            priority,
            deadline,
            max_credits,
            review,
            ref meta,
            mistyped: _,
            combination: _,
            cell: _,
            notes: _,
            places: _,
        } = *other;
        let known = &self.row;
        let Request { model, prompt: _, text, voice_id, mode, scene, image_urls, video_urls, options } =
            request;
        let asked = &known.request;
        let is_same_group = |key: &GroupKey| match key {
            GroupKey::Inbox => true,
            GroupKey::Meta(column) => meta_value(&known.meta, column) == meta_value(meta, column),
        };
        (known.kind, known.priority, known.deadline) == (kind, priority, deadline)
            && (known.max_credits, known.review) == (max_credits, review)
            && known.id.is_some() == id.is_some()
            && asked.model == *model
            && asked.options == *options
            && asked.mode == *mode
            && asked.scene == *scene
            && asked.image_urls == *image_urls
            && asked.video_urls == *video_urls
            && asked.voice_id == *voice_id
            && asked.text == *text
            && groups.keys().all(is_same_group)
    }

    /// What a row that is like it comes to, with that prompt.
    fn staged(&self, row: &Row, prompt: &str, namespace: &str, batch: &BatchName) -> StagedRow {
        let prompt_json = json(prompt);
        let StagedOrder { kind, priority, hold, classes, text: _, json: _ } = self.order;
        let (id, identity) = (row.id.as_deref(), self.identity.with(&prompt_json));
        let (begin, end) = ends(row);
        let AroundPrompt { before, after } = &self.order_json;
        let order = StagedOrder {
            kind,
            priority,
            hold,
            classes,
            text: if id.is_some() { String::new() } else { prompt.to_owned() },
            json: [&begin, before, &prompt_json, after, &end].map(String::as_str).concat(),
        };
        StagedRow {
            fingerprint: Fingerprint::of_json(namespace, batch, id, kind.endpoint(), &identity),
            label: row.id.clone(),
            count: row.count,
            line: row.position.line,
            cell: row.cell,
            draws: self.draws.clone(),
            apart: false,
            wanted: RowRequest::Order(Box::new(order)),
        }
    }
}

impl AroundPrompt {
    /// Nothing where the field is not there, or the same stands at another place as well. Within a text it cannot: its
    /// quotes are escaped there.
    fn of(text: &str, prompt_json: &str) -> Option<AroundPrompt> {
        const FIELD: &str = "\"prompt\":";
        let (before, after) = text.split_once(&format!("{FIELD}{prompt_json}"))?;
        let is_only = !before.contains(FIELD) && !after.contains(FIELD);
        is_only.then(|| AroundPrompt { before: format!("{before}{FIELD}"), after: after.to_owned() })
    }

    fn with(&self, prompt_json: &str) -> String {
        [&self.before, prompt_json, &self.after].concat()
    }
}

/// How the JSON of a row's order begins and ends.
fn ends(row: &Row) -> (String, String) {
    let begin = format!("{{\"line\":{}", row.position.line);
    let end = if row.meta.is_empty() { "}".to_owned() } else { format!(",\"meta\":{}}}", json(&row.meta)) };
    (begin, end)
}

/// A text, or values under names of text: they always print.
fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::domain::budget_group::KeyLimits;
    use crate::domain::credits::Credits;
    use crate::domain::diagnostic::Position;
    use crate::domain::manifest::row::{Deadline, Policy, ReadRow};
    use crate::domain::quote::Rules;
    use crate::domain::quote::tests::{catalog, properties};
    use crate::domain::request::Kind;
    use crate::domain::time::{Millis, Timestamp};
    use crate::ingest::IngestOptions;
    use crate::ingest::input_files::{InputFiles, NO_FILES};
    use crate::ingest::row_references::RowReferences;
    use crate::ingest::row_validator::{RowRules, RowValidation, RowValidator};

    /// What each row comes to beside those before it, what it comes to by itself, and how many were found.
    fn validated(
        rows: &[Row],
        has_groups: bool,
        allow_unknown_options: bool,
    ) -> (Vec<[RowValidation; 2]>, u64) {
        let (catalog, rules) = (catalog(), Rules::builtin());
        let mut context = IngestContext::new(&catalog, &rules, IngestOptions::default());
        let groups = GroupLimits::from([("meta.client".parse().unwrap(), KeyLimits::default())]);
        if has_groups {
            context.group_limits = &groups;
        }
        let policy = Policy { allow_unknown_options: Some(allow_unknown_options), ..Policy::default() };
        let (batch, references) = ("spring".parse().unwrap(), RowReferences::default());
        let files = InputFiles::new(None, Path::new(""), &NO_FILES);
        let rules = RowRules { policy: &policy, context: &context, files: &files, now: Timestamp(0) };
        let validator = RowValidator { batch: &batch, rules, references: &references };
        let alone = || ValidationCache::new(&batch, &context);
        let mut alike = alone();
        let validate = |row: &Row, alike: &mut ValidationCache<'_>| {
            validator.validate_row(&mut ReadRow::Good(Box::new(row.clone())), alike)
        };
        let validated =
            rows.iter().map(|row| [validate(row, &mut alike), validate(row, &mut alone())]).collect();
        (validated, alike.found)
    }

    fn boats(rows: u64) -> Vec<Row> {
        let row = |n: u64| {
            let mut row = Row::at(Position::line(n + 2));
            row.kind = Some(Kind::SoundEffect);
            row.request.prompt = Some(format!(" a \"boat\" {n} "));
            row.id = n.is_multiple_of(2).then(|| format!("boat-{n}"));
            row.meta.insert("sku".to_owned(), Value::from(n));
            row
        };
        (0..rows).map(row).collect()
    }

    #[test]
    fn rows_that_differ_in_id_prompt_and_meta_are_judged_once() {
        // One with an `id` and one without are validated, and then those whose prompts are longer.
        let (validated, found) = validated(&boats(300), true, false);
        assert_eq!(found, 300 - 2 * 3);
        validated.iter().for_each(|[beside, alone]| assert_eq!(beside, alone));
    }

    #[test]
    fn rows_that_each_have_a_value_of_their_own_are_not_looked_for_for_ever() {
        let mut rows = boats(2_000);
        for (seed, row) in (0u64..).zip(&mut rows) {
            row.request.options.insert("seed".to_owned(), Value::from(seed.min(1_500)));
        }
        let (validated, found) = validated(&rows, false, true);
        assert_eq!(found, 0);
        validated.iter().for_each(|[beside, alone]| assert_eq!(beside, alone));
    }

    prop_compose! {
        fn rows()(requests in properties::mixed())(
            terms in prop::collection::vec((0u8..2, 0u8..6, 0u8..4, 0u8..8), requests.len()),
            requests in Just(requests),
        ) -> Vec<Row> {
            let row = |(line, ((kind, request), (id, client, sku, term))): (u64, ((Kind, Request), _))| {
                let mut row = Row::at(Position::line(line));
                row.kind = Some(kind);
                row.request = request;
                row.id = (id > 0).then(|| format!("row-{line}"));
                if client > 0 {
                    let column = if client % 2 > 0 { "client" } else { "Client" };
                    row.meta.insert(column.to_owned(), Value::from(client / 2));
                }
                if sku > 0 {
                    row.meta.insert("prompt".to_owned(), Value::from(if sku > 1 { "a fox" } else { "é\"" }));
                }
                match term {
                    0 => row.priority = Some(3),
                    1 => row.max_credits = Some(Credits(7)),
                    2 => row.deadline = Some(Deadline::After(Millis::from_secs(60))),
                    3 => row.review = Some(true),
                    4 => row.count = 3,
                    _ => {}
                }
                row
            };
            (2..).zip(requests.into_iter().zip(terms)).map(row).collect()
        }
    }

    proptest! {
        #[test]
        fn a_row_comes_to_what_it_comes_to_by_itself(rows in rows(), has_groups: bool, allows: bool) {
            for [beside, alone] in validated(&rows, has_groups, allows).0 {
                prop_assert_eq!(beside, alone);
            }
        }
    }
}
