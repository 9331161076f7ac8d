//! What a JSON manifest says about all its jobs: batch, policy, defaults.

use serde_json::Value;

use crate::domain::diagnostic::{Diagnostic, Diagnostics, Position};

use super::Limits;
use super::cell_value::CellValue;
use super::coerce::{self, not_one_of};
use super::duplicate_keys::UniqueNames;
use super::job;
use super::matrix::Matrix;
use super::matrix_rows::ROWS_MAX;
use super::matrix_table::{ReadTable, Tables};
use super::messages::{nearest, placed, shortened};
use super::row::{Header, OnDeadline, OnDrift, Policy, Row};
use super::row_template::is_template;
use super::spanned::{Key, Shape, Spanned};

/// The keys of a manifest that is an object.
const KEYS: &[&str] = &["batch", "defaults", "policy", "matrix", "matrix_max", "tables", "jobs"];

/// The keys of a policy.
const POLICY: &[&str] = &[
    "budget",
    "priority",
    "deadline",
    "on_deadline",
    "expires",
    "attempts",
    "strict",
    "allow_unknown_options",
    "on_drift",
    "review",
    "layout",
];

/// Most attempts a job may use.
pub(super) const MOST_ATTEMPTS: u32 = 100;

/// A manifest's heading and the array of its jobs.
#[derive(Debug)]
pub(super) struct JsonHeader<'a> {
    pub header: Header,
    pub defaults: Option<Box<Row>>,
    /// Defaults with templates in them, which each row fills.
    pub templated_defaults: Option<Spanned<'a>>,
    /// What its jobs are made for, and how many rows that may come to.
    pub matrix: Option<(Matrix, u32)>,
    pub jobs: Spanned<'a>,
    /// All that is wrong with the rest. The file is refused then, but its jobs are checked as well.
    pub problems: Vec<Diagnostic>,
}

/// Reads `{"batch", "defaults", "policy", "matrix", "jobs"}`; tables that the matrix names by `read_table`.
///
/// # Errors
/// Everything that is wrong, where there are no jobs.
pub(super) fn read<'a>(
    manifest: Spanned<'a>,
    limits: &Limits,
    read_table: &mut ReadTable<'_>,
) -> Result<JsonHeader<'a>, Vec<Diagnostic>> {
    let mut reading = HeaderReader {
        limits,
        header: Header::default(),
        defaults: None,
        defaults_given: None,
        matrix: None,
        matrix_max: ROWS_MAX,
        tables: None,
        jobs: None,
        jobs_given: false,
        problems: Diagnostics::default(),
    };
    let mut given = UniqueNames::default();
    let walked = manifest.entries(&mut |key, value| match given.first(key.name.clone(), &key.name, key.at) {
        Ok(()) => reading.entry(&key, value),
        Err(problem) => reading.problems.push(problem),
    });
    if let Err(problem) = walked {
        reading.problems.push(problem);
    }
    reading.finish(manifest.at, read_table)
}

struct HeaderReader<'a, 'l> {
    limits: &'l Limits,
    header: Header,
    defaults: Option<Box<Row>>,
    defaults_given: Option<Spanned<'a>>,
    matrix: Option<Spanned<'a>>,
    matrix_max: u32,
    tables: Option<Spanned<'a>>,
    jobs: Option<Spanned<'a>>,
    jobs_given: bool,
    problems: Diagnostics,
}

impl<'a> HeaderReader<'a, '_> {
    fn entry(&mut self, key: &Key, value: Spanned<'a>) {
        match key.name.as_str() {
            "batch" => self.batch(value),
            "defaults" => self.defaults_given = Some(value),
            "matrix" => self.matrix = Some(value),
            "matrix_max" => self.matrix_max(value),
            "tables" => self.tables = Some(value),
            "policy" => self.policy(value),
            "jobs" => self.jobs(value),
            _ => self.problems.push_with(|| unknown(key, KEYS)),
        }
    }

    fn jobs(&mut self, value: Spanned<'a>) {
        self.jobs_given = true;
        match value.shape() {
            Shape::Array => self.jobs = Some(value),
            _ => self.problems.push(value.is_not("an array of jobs").in_field("jobs")),
        }
    }

    fn batch(&mut self, value: Spanned<'_>) {
        let name = value.value().and_then(|json| {
            coerce::text(&CellValue::Json(json)).map_err(|diagnostic| placed(diagnostic, "batch", value.at))
        });
        match name {
            Ok(name) => self.header.batch = name,
            Err(problem) => self.problems.push(problem),
        }
    }

    fn defaults(&mut self, value: Spanned<'_>) {
        match job::read(value, None, self.limits) {
            Ok(row) if row.id.is_some() => {
                let problem =
                    Diagnostic::at(row.place("id"), "an id names one job; give it in the job itself");
                self.problems.push(problem.in_field("defaults.id"));
            }
            Ok(mut row) => {
                for mistyped in row.mistyped.values_mut() {
                    mistyped.problem = within_defaults(mistyped.problem.clone());
                }
                self.defaults = Some(row);
            }
            Err(bad) => {
                for problem in bad.problems {
                    self.problems.push(within_defaults(problem));
                }
            }
        }
    }

    fn matrix_max(&mut self, value: Spanned<'_>) {
        let accepted = "a whole number of rows, at least 1";
        let read = value.value().and_then(|json| {
            coerce::whole(&CellValue::Json(json), accepted, |number| {
                u32::try_from(number).ok().filter(|rows| *rows > 0)
            })
        });
        match read {
            Ok(rows) => self.matrix_max = rows.unwrap_or(ROWS_MAX),
            Err(problem) => self.problems.push(placed(problem, "matrix_max", value.at)),
        }
    }

    fn policy(&mut self, object: Spanned<'_>) {
        if object.shape() != Shape::Object {
            return self.problems.push(object.is_not("an object").in_field("policy"));
        }
        let mut given = UniqueNames::default();
        let walked = object.entries(&mut |key, value| {
            let field = format!("policy.{}", key.name);
            match given.first(key.name.clone(), &field, key.at) {
                Ok(()) => self.term(&key, &field, value),
                Err(problem) => self.problems.push(problem),
            }
        });
        if let Err(problem) = walked {
            self.problems.push(problem);
        }
    }

    fn term(&mut self, key: &Key, field: &str, value: Spanned<'_>) {
        if !POLICY.contains(&key.name.as_str()) {
            return self.problems.push_with(|| unknown(key, POLICY).in_field(shortened(field)));
        }
        let set = value.value().map_err(|problem| problem.in_field(field)).and_then(|json| {
            set_term(&mut self.header.policy, &key.name, json)
                .map_err(|diagnostic| placed(diagnostic, field, value.at))
        });
        if let Err(problem) = set {
            self.problems.push(problem);
        }
    }

    fn finish(
        mut self,
        at: Position,
        read_table: &mut ReadTable<'_>,
    ) -> Result<JsonHeader<'a>, Vec<Diagnostic>> {
        let given = self.defaults_given;
        let templated_defaults = given.filter(|defaults| self.matrix.is_some() && is_template(defaults.text));
        if let Some(defaults) = given.filter(|_| templated_defaults.is_none()) {
            self.defaults(defaults);
        }
        let matrix = self.matrix.map(|matrix| {
            let mut tables = Tables { given: self.tables, read: read_table, limits: self.limits };
            Matrix::read(matrix, &mut tables)
        });
        let matrix = match matrix {
            None => {
                if let Some(tables) = self.tables {
                    let message = "there is no \"matrix\" that names them";
                    self.problems.push(Diagnostic::at(tables.at, message).in_field("tables"));
                }
                None
            }
            Some(Ok(matrix)) => Some((matrix, self.matrix_max)),
            // Templates without values are of no use: nothing of the jobs is checked.
            Some(Err(problems)) => {
                self.jobs = None;
                problems.into_iter().for_each(|problem| self.problems.push(problem));
                None
            }
        };
        if !self.jobs_given {
            let problem = Diagnostic::at(at, "there is no \"jobs\", the array of what is to be made");
            self.problems.push(problem.hint("a single job is written [{...}]"));
        }
        let problems = self.problems.finish().err().unwrap_or_default();
        match self.jobs {
            Some(jobs) => Ok(JsonHeader {
                header: self.header,
                defaults: self.defaults,
                templated_defaults,
                matrix,
                jobs,
                problems,
            }),
            // Without jobs there is a problem.
            None => Err(problems),
        }
    }
}

/// Reads a policy that stands outside a manifest: an inbox's or a schedule's.
///
/// # Errors
/// What is wrong with its terms, by their names.
pub fn read_policy(terms: serde_json::Map<String, Value>) -> Result<Policy, Vec<String>> {
    let mut policy = Policy::default();
    let mut problems = Vec::new();
    for (name, json) in terms {
        if !POLICY.contains(&name.as_str()) {
            problems.push(format!("unknown key `{name}`, expected one of `{}`", POLICY.join("`, `")));
        } else if let Err(diagnostic) = set_term(&mut policy, &name, json) {
            let message = match diagnostic.hint {
                Some(hint) => format!("{name}: {} ({hint})", diagnostic.message),
                None => format!("{name}: {}", diagnostic.message),
            };
            problems.push(message);
        }
    }
    if problems.is_empty() { Ok(policy) } else { Err(problems) }
}

/// Takes one term of a policy; `null` leaves it to the next source.
fn set_term(policy: &mut Policy, name: &str, json: Value) -> Result<(), Diagnostic> {
    if json.is_null() {
        return Ok(());
    }
    let given = &CellValue::Json(json);
    match name {
        "budget" => policy.budget = coerce::credits(given)?,
        "priority" => policy.priority = coerce::priority(given)?,
        "deadline" => policy.deadline = coerce::instant_or_span(given)?,
        "on_deadline" => policy.on_deadline = choice(given, &ON_DEADLINE)?,
        "expires" => policy.expires = coerce::instant_or_span(given)?,
        "attempts" => policy.attempts = attempts(given)?,
        "strict" => policy.strict = coerce::flag(given)?,
        "allow_unknown_options" => policy.allow_unknown_options = coerce::flag(given)?,
        "on_drift" => policy.on_drift = choice(given, &ON_DRIFT)?,
        "review" => policy.review = coerce::flag(given)?,
        _ => policy.layout = coerce::text(given)?,
    }
    Ok(())
}

pub(super) const ON_DEADLINE: [(&str, OnDeadline); 2] =
    [("watch", OnDeadline::Watch), ("resubmit", OnDeadline::Resubmit)];

pub(super) const ON_DRIFT: [(&str, OnDrift); 2] = [("report", OnDrift::Report), ("pause", OnDrift::Pause)];

fn choice<T: Copy>(given: &CellValue<'_>, choices: &[(&str, T)]) -> Result<Option<T>, Diagnostic> {
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    let Some(found) = coerce::text(given)? else { return Ok(None) };
    let chosen = choices.iter().find(|(name, _)| *name == found);
    chosen.map(|(_, choice)| Some(*choice)).ok_or_else(|| Diagnostic::new(not_one_of(&found, &names)))
}

fn attempts(given: &CellValue<'_>) -> Result<Option<u32>, Diagnostic> {
    let accepted = format!("a whole number from 1 to {MOST_ATTEMPTS}");
    coerce::whole(given, &accepted, |number| {
        u32::try_from(number).ok().filter(|attempts| (1..=MOST_ATTEMPTS).contains(attempts))
    })
}

fn within_defaults(problem: Diagnostic) -> Diagnostic {
    let field = problem.field.as_ref().map_or("defaults".to_owned(), |field| format!("defaults.{field}"));
    problem.in_field(field)
}

fn unknown(key: &Key, names: &'static [&'static str]) -> Diagnostic {
    let accepted = names.join(", ");
    let message = match nearest(&key.name, names.iter().copied()) {
        Some(near) => format!("unknown key; did you mean \"{near}\"?"),
        None => format!("unknown key, expected one of {accepted}"),
    };
    Diagnostic::at(key.at, message).in_field(shortened(&key.name))
}
