//! What a manifest says once it is typed: its header and its rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::credits::Credits;
use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::quote::kind_fields::documented_options;
use crate::domain::request::{Kind, Request};
use crate::domain::time::{Millis, Timestamp};

/// One row of a manifest: what is wanted, how often, and under what terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Where the row begins.
    pub position: Position,
    /// What to generate; absent where the row leaves it to the model or the fields.
    pub kind: Option<Kind>,
    /// The generation itself.
    pub request: Request,
    /// The job's label and file name.
    pub id: Option<String>,
    /// How many variations: as many jobs. At least 1.
    pub count: u32,
    /// Higher goes first; 0 unless given.
    pub priority: Option<i8>,
    /// When the job is overdue.
    pub deadline: Option<Deadline>,
    /// The most this job may cost; lets an unpriced job be sent.
    pub max_credits: Option<Credits>,
    /// Whether its outputs wait for a person's decision.
    pub review: Option<bool>,
    /// The pipeline's own columns (`meta.sku`), never sent, handed back in the results.
    pub meta: Map<String, Value>,
    /// Options that are not of the type that some kinds document, by name, with what is wrong with them. For a kind
    /// that does not document the option nothing is: it is forwarded as it was written.
    pub mistyped: BTreeMap<String, MistypedOption>,
    /// The combination of the matrix for which it was made, as messages name it (`locale "de"`).
    pub combination: Option<Arc<str>>,
    /// The number of that combination.
    pub cell: Option<u64>,
    /// How values were read that are written otherwise than the service takes them.
    pub notes: Vec<Diagnostic>,
    /// Where each field stands, by its canonical name (`prompt`, `options.duration`), so that a
    /// later check can point at it. Where columns are not known it may be empty.
    pub places: FieldPlaces,
}

impl Row {
    /// A row that asks for one of nothing yet.
    pub fn at(position: Position) -> Row {
        Row {
            position,
            kind: None,
            request: Request::default(),
            id: None,
            count: 1,
            priority: None,
            deadline: None,
            max_credits: None,
            review: None,
            meta: Map::new(),
            mistyped: BTreeMap::new(),
            combination: None,
            cell: None,
            notes: Vec::new(),
            places: FieldPlaces::default(),
        }
    }

    /// What is wrong with the types of its options, where it is of `kind`.
    pub fn type_problems(&self, kind: Kind) -> Vec<Diagnostic> {
        let documented = documented_options(kind);
        let of_kind = self.mistyped.iter().filter(|(name, _)| documented.contains(&name.as_str()));
        of_kind.map(|(_, mistyped)| mistyped.problem.clone()).collect()
    }

    /// Reads the options of `kind` that are of another type and can be read in one way only. Before this such a row
    /// of that kind is an error, so it has no key yet that could change.
    pub fn read_options(&mut self, kind: Kind) {
        for name in documented_options(kind) {
            let Some(reading) = self.mistyped.get_mut(*name).and_then(|mistyped| mistyped.reading.take())
            else {
                continue;
            };
            let (value, note) = reading;
            self.mistyped.remove(*name);
            self.request.options.insert((*name).to_owned(), value);
            self.notes.push(note);
        }
    }

    /// What is wrong with options that can be read in no way.
    pub fn unread_options(&self) -> impl Iterator<Item = &Diagnostic> {
        self.mistyped.values().filter(|mistyped| mistyped.reading.is_none()).map(|mistyped| &mistyped.problem)
    }

    /// Where `field` stands, or the row's own place.
    pub fn place(&self, field: &str) -> Position {
        self.places.get(field).unwrap_or(self.position)
    }
}

/// Where the fields of a row stand, by their canonical names. They are few, and mostly nobody asks.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct FieldPlaces(Vec<(Arc<str>, Position)>);

impl FieldPlaces {
    /// Notes where a field stands; of one that is noted already, that it stands there.
    pub fn set(&mut self, field: &Arc<str>, at: Position) {
        match self.0.iter_mut().find(|(noted, _)| noted == field) {
            Some((_, noted)) => *noted = at,
            None => {
                if self.0.is_empty() {
                    self.0.reserve(FieldPlaces::TYPICAL);
                }
                self.0.push((Arc::clone(field), at));
            }
        }
    }

    /// Where a field stands, if it is given.
    pub fn get(&self, field: &str) -> Option<Position> {
        self.0.iter().find(|(noted, _)| **noted == *field).map(|(_, at)| *at)
    }

    /// Most rows have no more fields.
    const TYPICAL: usize = 8;
}

/// An option that is not of the type that some kinds document.
#[derive(Debug, Clone, PartialEq)]
pub struct MistypedOption {
    /// What is wrong with it.
    pub problem: Diagnostic,
    /// The value that it can only mean for those kinds, with the note that says so.
    pub reading: Option<(Value, Diagnostic)>,
}

/// A row that could not be typed.
#[derive(Debug, Clone, PartialEq)]
pub struct BadRow {
    /// Everything wrong with it that can be told without a catalog. Never empty.
    pub problems: Vec<Diagnostic>,
    /// What could be typed of it, so that the rest is checked as well. Nothing where it could not be cut into fields.
    pub row: Option<Box<Row>>,
    /// It has fields that are not known, which may be what seems to be missing.
    pub has_unknown_fields: bool,
}

impl BadRow {
    /// One that could not be cut into fields.
    pub fn unread(problem: Diagnostic) -> BadRow {
        BadRow { problems: vec![problem], row: None, has_unknown_fields: false }
    }
}

/// When a job is overdue: so long after it was first sent, or at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    /// This long after the first POST (`30m`).
    After(Millis),
    /// At this instant (`2026-12-01T08:00:00Z`).
    At(Timestamp),
}

impl Deadline {
    /// The instant that is meant, where spans are counted from `start`.
    pub fn instant(self, start: Timestamp) -> Timestamp {
        match self {
            Deadline::After(span) => start.after(span),
            Deadline::At(at) => at,
        }
    }

    /// Whether it is an instant that has passed: what is sent from `now` on could only be late.
    pub fn has_passed(self, now: Timestamp) -> bool {
        matches!(self, Deadline::At(at) if at <= now)
    }
}

/// What becomes of an overdue job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDeadline {
    /// Its slot is freed; its task is watched slowly and collected if it succeeds after all.
    Watch,
    /// As `watch`, and a new attempt is made, which is paid for as well if both succeed: the budget must have room
    /// for it. Not for a deadline that is an instant, after which a new attempt could only be late, and not for an
    /// endpoint without idempotency keys.
    Resubmit,
}

/// What becomes of a batch when a charge differs from its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDrift {
    /// Said in the report.
    Report,
    /// Said, and the batch is paused.
    Pause,
}

/// The terms of a batch. Absent means: whatever the next source says (flags over manifest over
/// inbox or schedule over configuration).
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// The most the batch may spend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Credits>,
    /// Priority of rows that give none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i8>,
    /// Deadline of rows that give none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// What becomes of overdue jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_deadline: Option<OnDeadline>,
    /// What has not been sent by then never is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Deadline>,
    /// How many attempts (idempotency keys) a job may use. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// One bad row refuses the whole manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Options that look like misspelt ones are sent as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unknown_options: Option<bool>,
    /// What becomes of the batch when a charge differs from its plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_drift: Option<OnDrift>,
    /// Outputs of rows that do not say otherwise wait for a person's decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<bool>,
    /// Layout of the output files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
}

impl Policy {
    /// These terms, and for what they do not say the terms below them.
    #[must_use]
    pub fn over(&self, below: &Policy) -> Policy {
        let Policy {
            budget,
            priority,
            deadline,
            on_deadline,
            expires,
            attempts,
            strict,
            allow_unknown_options,
            on_drift,
            review,
            layout,
        } = self.clone();
        Policy {
            budget: budget.or(below.budget),
            priority: priority.or(below.priority),
            deadline: deadline.or(below.deadline),
            on_deadline: on_deadline.or(below.on_deadline),
            expires: expires.or(below.expires),
            attempts: attempts.or(below.attempts),
            strict: strict.or(below.strict),
            allow_unknown_options: allow_unknown_options.or(below.allow_unknown_options),
            on_drift: on_drift.or(below.on_drift),
            review: review.or(below.review),
            layout: layout.or_else(|| below.layout.clone()),
        }
    }
}

/// What a manifest says about all its rows. CSV and JSON Lines say nothing.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Header {
    /// Name of the batch, where the manifest gives one.
    pub batch: Option<String>,
    /// The terms of the batch.
    pub policy: Policy,
}

/// What a reader hands out, row by row.
#[derive(Debug, Clone, PartialEq)]
pub enum ReadRow {
    /// A row that could be typed.
    Good(Box<Row>),
    /// A row that could not, with everything wrong with it. Reading goes on.
    Bad(BadRow),
    /// The rest of the file cannot be read (an unclosed quote, broken JSON, a read error).
    Unreadable(Diagnostic),
}
