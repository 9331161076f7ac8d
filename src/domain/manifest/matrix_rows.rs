//! The rows of a manifest with a matrix: each of its jobs, once for each combination of the axes that the job names.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::Value;

use crate::domain::diagnostic::{Diagnostic, Diagnostics, Position};

use super::Limits;
use super::fields::{Field, META, OPTIONS};
use super::job;
use super::matrix::{Combination, Matrix};
use super::row::{ReadRow, Row};
use super::row_template::{Templates, is_template};
use super::spanned::{PositionTracker, Spanned, next_element, offset_within};
use super::template_check::is_never_empty;

/// Rows that a matrix may make unless its manifest asks for more.
pub(super) const ROWS_MAX: u32 = 10_000;

/// A part of the document: where it begins and ends in it, and where that is for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    begin: usize,
    end: usize,
    at: Position,
}

impl Part {
    pub(super) fn of(document: &str, part: Spanned<'_>) -> Part {
        let begin = offset_within(document, part.text);
        Part { begin, end: begin + part.text.len(), at: part.at }
    }

    fn in_document<'a>(&self, document: &'a str) -> Spanned<'a> {
        Spanned::new(document.get(self.begin..self.end).unwrap_or_default(), self.at)
    }
}

/// A job with templates in it.
#[derive(Debug)]
struct TemplatedJob {
    part: Part,
    /// The axes that it names, and those of the defaults that it takes.
    axes: Vec<usize>,
    /// The fields for which it takes no default, by their canonical names.
    own: BTreeSet<String>,
    /// Combinations of these for which it was made.
    made: HashSet<Combination>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct MatrixRows {
    matrix: Matrix,
    templates: Templates,
    defaults: Option<Part>,
    jobs: Vec<TemplatedJob>,
    /// Each id that a row has, with the job and the combination of the row.
    ids: HashMap<String, (usize, Combination)>,
    number: u64,
    combination: Option<Combination>,
    job: usize,
}

impl MatrixRows {
    /// Looks at each job of the array at `offset`, and counts the rows.
    ///
    /// # Errors
    /// When a template names what is no axis, an axis is named by no job, or there are too many rows.
    pub(super) fn new(
        document: &str,
        (matrix, defaults): (Matrix, Option<Part>),
        jobs: Spanned<'_>,
        rows_max: u32,
        limits: &Limits,
    ) -> Result<MatrixRows, Vec<Diagnostic>> {
        let templates = Templates::new(&matrix);
        let mut problems = Diagnostics::default();
        let of_defaults = defaults.map(|part| (part.in_document(document), "defaults."));
        let of_defaults = match of_defaults {
            Some((part, prefix)) => axes_of(part, prefix, &matrix, &templates, limits, &mut problems),
            None => BTreeMap::new(),
        };
        let mut found = Vec::new();
        let mut offset = offset_within(document, jobs.text) + 1;
        let mut tracker = PositionTracker::resume(document, offset - 1, jobs.at);
        // Broken JSON was refused before.
        while let Ok(Some(element)) = next_element(document, offset) {
            let begin = offset_within(document, element);
            let part = Spanned::new(element, tracker.to(begin));
            offset = begin + element.len();
            let of_job = axes_of(part, "", &matrix, &templates, limits, &mut problems);
            let own = own_fields(part);
            let taken = of_defaults.iter().filter(|(field, _)| !own.contains(*field)).map(|(_, axes)| axes);
            let axes: BTreeSet<usize> = of_job.values().chain(taken).flatten().copied().collect();
            let (part, axes) = (Part::of(document, part), axes.into_iter().collect());
            found.push(TemplatedJob { part, axes, own, made: HashSet::new() });
        }
        problems.finish()?;
        for (axis, named) in matrix.axes().iter().enumerate() {
            if !found.iter().any(|job| job.axes.contains(&axis)) {
                let is_of_defaults = of_defaults.values().any(|axes| axes.contains(&axis));
                let message = match is_of_defaults {
                    true => format!(
                        "only defaults name the axis \"{}\", in fields that every job sets itself; remove it",
                        named.name
                    ),
                    false => format!(
                        "no job names the axis \"{}\"; write {{{{ {} }}}} in a job, or remove it",
                        named.name, named.name
                    ),
                };
                return Err(vec![
                    Diagnostic::at(jobs.at, message).in_field(format!("matrix.{}", named.name)),
                ]);
            }
        }
        let mut rows = MatrixRows {
            matrix,
            templates,
            defaults,
            jobs: found,
            ids: HashMap::new(),
            number: 0,
            combination: None,
            job: 0,
        };
        rows.count(jobs.at, rows_max)?;
        Ok(rows)
    }

    /// Refuses more rows than may be, and none at all.
    fn count(&mut self, at: Position, rows_max: u32) -> Result<(), Vec<Diagnostic>> {
        let mut rows = 0_u32;
        while self.next_job().is_some() {
            rows += 1;
            if rows > rows_max {
                let message = format!("the matrix makes more than {rows_max} rows");
                let hint = "to make them all, raise the limit beside \"matrix\": \"matrix_max\": N";
                return Err(vec![Diagnostic::at(at, message).in_field("matrix").hint(hint)]);
            }
        }
        if rows == 0 && !self.jobs.is_empty() {
            let message = "the matrix makes no row: every combination is excluded";
            return Err(vec![Diagnostic::at(at, message).in_field("matrix")]);
        }
        (self.number, self.job, self.combination) = (0, 0, None);
        self.jobs.iter_mut().for_each(|job| job.made.clear());
        Ok(())
    }

    /// The next job and the combination that it is made for: all jobs of a combination, then the next one.
    fn next_job(&mut self) -> Option<(usize, Combination)> {
        loop {
            if self.combination.is_none() {
                if self.number >= self.matrix.combinations() {
                    return None;
                }
                self.combination = self.matrix.combination(self.number);
                (self.number, self.job) = (self.number + 1, 0);
            }
            let Some(combination) = &self.combination else { continue };
            let Some(job) = self.jobs.get_mut(self.job) else {
                self.combination = None;
                continue;
            };
            self.job += 1;
            let has_all = job.axes.iter().all(|axis| combination.get(*axis).is_some_and(Option::is_some));
            let part: Combination =
                job.axes.iter().map(|axis| combination.get(*axis).copied().flatten()).collect();
            if has_all && job.made.insert(part) {
                return Some((self.job - 1, combination.clone()));
            }
        }
    }

    /// The next row.
    pub(super) fn next_row(
        &mut self,
        document: &str,
        defaults: Option<&Row>,
        limits: &Limits,
    ) -> Option<ReadRow> {
        let (number, combination) = self.next_job()?;
        let job = self.jobs.get(number)?;
        let fill = |_: &str, text: &str, _: Position| self.templates.fill(text, &self.matrix, &combination);
        // The combination may not have the axes of a default that the job does not take.
        let fill_default = |field: &str, text: &str, at: Position| match job.own.contains(&canonical(field)) {
            true => Ok(String::new()),
            false => fill(field, text, at),
        };
        let read_defaults = self
            .defaults
            .map(|part| job::read_filled(part.in_document(document), None, limits, Some(&fill_default)));
        let part = job.part.in_document(document);
        let read = match &read_defaults {
            Some(Err(bad)) => Err(bad.clone()),
            Some(Ok(defaults)) => job::read_filled(part, Some(defaults), limits, Some(&fill)),
            None => job::read_filled(part, defaults, limits, Some(&fill)),
        };
        let shown = self.matrix.shown(&job.axes, &combination);
        let named = |problem: Diagnostic| match shown.is_empty() {
            true => problem,
            false => problem.for_combination(&shown),
        };
        let mut row = match read {
            Ok(row) => row,
            Err(mut bad) => {
                bad.problems = bad.problems.into_iter().map(named).collect();
                if let Some(row) = &mut bad.row {
                    row.combination = Some(shown.as_str().into()).filter(|_| !shown.is_empty());
                }
                return Some(ReadRow::Bad(bad));
            }
        };
        row.position = job.part.at;
        // The number of the next combination is one more.
        row.cell = self.number.checked_sub(1);
        row.combination = Some(shown.as_str().into()).filter(|_| !shown.is_empty());
        let Some(id) = row.id.clone() else { return Some(ReadRow::Good(row)) };
        if let Some((other, before)) = self.ids.get(&id) {
            let other = self.jobs.get(*other)?;
            let before_shown = self.matrix.shown(&other.axes, before);
            let before =
                if before_shown.is_empty() { String::new() } else { format!(" with {before_shown}") };
            let message = format!(
                "\"{id}\" is the id of the row at line {}{before}, too; an id names one row",
                other.part.at.line
            );
            let hint = "name the axes in the id that tell the rows apart";
            let problem = Diagnostic::at(row.place("id"), message).in_field("id").hint(hint);
            let problems = vec![named(problem)];
            return Some(ReadRow::Bad(super::row::BadRow { problems, row: None, has_unknown_fields: false }));
        }
        self.ids.insert(id, (number, combination));
        Some(ReadRow::Good(row))
    }
}

/// The axes that the templates of a job name, by field; what is wrong with these is noted.
fn axes_of(
    job: Spanned<'_>,
    prefix: &str,
    matrix: &Matrix,
    templates: &Templates,
    limits: &Limits,
    problems: &mut Diagnostics,
) -> BTreeMap<String, BTreeSet<usize>> {
    let found = RefCell::new((BTreeMap::<String, BTreeSet<usize>>::new(), Vec::new()));
    let look = |field: &str, text: &str, at: Position| {
        let (axes, problems) = &mut *found.borrow_mut();
        match templates.axes_of(text, matrix) {
            Ok(named) => axes.entry(canonical(field)).or_default().extend(named),
            Err(problem) => problems.push(problem.positioned(at).in_field(format!("{prefix}{field}"))),
        }
        // Whatever is wrong with the job besides is said of its rows.
        Ok(String::new())
    };
    let _ = job::read_filled(job, None, limits, Some(&look));
    let (axes, found) = found.into_inner();
    for problem in found {
        problems.push(problem);
    }
    axes
}

/// The fields that a job gives itself for every combination. A template that may be empty leaves the default in force.
fn own_fields(job: Spanned<'_>) -> BTreeSet<String> {
    let stays = |value: &Value| match value {
        Value::String(text) if is_template(text) => is_never_empty(text),
        Value::String(text) => !text.trim().is_empty(),
        _ => true,
    };
    let Ok(Value::Object(fields)) = job.value() else { return BTreeSet::new() };
    let mut own = BTreeSet::new();
    for (name, value) in &fields {
        match (format!("{name}."), value) {
            (prefix, Value::Object(members)) if [OPTIONS, META].contains(&prefix.as_str()) => {
                let members = members.iter().filter(|(_, value)| stays(value));
                own.extend(members.map(|(member, _)| canonical(&format!("{prefix}{member}"))));
            }
            _ if stays(value) => {
                own.insert(canonical(name));
            }
            _ => {}
        }
    }
    own
}

/// The one name of a field, as a job spells it or its member of `options` and `meta`.
fn canonical(spelled: &str) -> String {
    let field = match (spelled.strip_prefix(OPTIONS), spelled.strip_prefix(META)) {
        (Some(option), _) => Some(Field::option(option)),
        (None, Some(name)) => Some(Field::Meta(name.to_owned())),
        (None, None) => Field::bare(spelled),
    };
    field.map_or_else(|| spelled.to_owned(), |field| field.canonical())
}
