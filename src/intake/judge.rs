//! What a manifest comes to, row by row, before any of it counts: the one path that planning and
//! accepting share, so that a plan can never differ from what a run does.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use crate::domain::credits::Credits;
use crate::domain::ids::{BadBatchName, BatchName, Fingerprint, JobId};
use crate::domain::job::Order;
use crate::domain::label::label;
use crate::domain::manifest::row::{Header, Policy, ReadRow, Row};
use crate::domain::manifest::{self, Limits};
use crate::domain::problem::{Position, Problem};
use crate::domain::quote::{self, AccountPlan, Allowance, Quote};
use crate::failpoint;
use crate::intake::receipt::Receipt;
use crate::intake::source::Identity;
use crate::intake::{IntakeError, Terms, source};
use crate::output::layout::Layout;
use crate::store::StoreError;
use crate::store::draft::{Draft, DraftRow, Draw, Judged, JudgedRows, Verdict, Wanted};

/// A manifest that was read and judged. Nothing of it counts yet, and its rows lie in a file that goes
/// with it.
#[derive(Debug)]
pub struct Judgement {
    /// The counts, and what to tell its owner.
    pub receipt: Receipt,
    /// The terms, as resolved.
    pub policy: Policy,
    pub(super) judged: Judged,
}

/// One row of a judgement.
#[derive(Debug)]
pub struct JudgedRow {
    /// Its line of the manifest.
    pub line: u64,
    /// Its jobs, or what is wrong with it.
    pub outcome: Outcome,
}

/// What becomes of a row.
#[derive(Debug)]
pub enum Outcome {
    /// It wants jobs.
    Jobs(Box<Jobs>),
    /// It could not be sent today, but the batch has all of it from a day when it could.
    Kept {
        /// Its `id`.
        id: Option<String>,
        /// How many jobs.
        count: u32,
    },
    /// It wants nothing that can be sent.
    Invalid {
        /// Its `id`, where it could be read.
        id: Option<String>,
        /// How many of its jobs the batch has all the same.
        known: u32,
        /// Everything that is wrong with it.
        problems: Vec<Problem>,
    },
}

/// The jobs of a row: as many as its `count`.
#[derive(Debug)]
pub struct Jobs {
    /// What each of them is.
    pub order: Order,
    /// The plan allowance that each would draw from.
    pub draws: Option<Draw>,
    id: Option<String>,
    fingerprint: Fingerprint,
    first: u32,
    count: u32,
    known: u32,
}

impl Jobs {
    /// How many of them the batch has already.
    pub fn known_count(&self) -> u32 {
        self.known
    }

    /// How many of them are new.
    pub fn new_count(&self) -> u32 {
        self.count - self.known
    }

    /// Who each of them is, what it is called, and whether it is new.
    pub fn labels(&self) -> impl Iterator<Item = (JobId, String, bool)> + '_ {
        (0..self.count).map(|index| {
            let variation = self.first + index;
            let job = JobId::derive(self.fingerprint, variation);
            (job, label(self.id.as_deref(), variation, self.order.text(), job), index >= self.known)
        })
    }

    /// The identities of those that are new.
    pub(super) fn new_variations(&self) -> impl Iterator<Item = (Fingerprint, u32)> + '_ {
        (self.known..self.count).map(|index| (self.fingerprint, self.first + index))
    }
}

impl Judgement {
    /// The rows, in manifest order.
    ///
    /// # Errors
    /// When the file that holds them cannot be read.
    pub fn rows(&self) -> Result<Rows<'_>, StoreError> {
        Ok(Rows { rows: self.judged.rows()? })
    }

    /// Whether nothing of the manifest would be taken in, although rows of it are good.
    pub fn is_refused(&self) -> bool {
        self.receipt.file_refused || (self.policy.strict == Some(true) && self.receipt.invalid > 0)
    }
}

/// The rows of a judgement, one after the other.
#[derive(Debug)]
pub struct Rows<'a> {
    rows: JudgedRows<'a>,
}

impl Rows<'_> {
    /// The next row; nothing at the end.
    ///
    /// # Errors
    /// When the file that holds them cannot be read.
    pub fn next_row(&mut self) -> Result<Option<JudgedRow>, StoreError> {
        let Some((row, verdict)) = self.rows.next_row()? else { return Ok(None) };
        Ok(Some(JudgedRow { line: row.line, outcome: outcome(row, verdict) }))
    }
}

fn outcome(row: DraftRow, verdict: Verdict) -> Outcome {
    let DraftRow { fingerprint, label: id, count, line, draws, wanted } = row;
    let (first, known) = match verdict {
        Verdict::Wanted { first, have } => (first, have.saturating_sub(first - 1).min(count)),
        Verdict::RepeatedId { first_line } => {
            let message = format!("is already used at line {first_line}; an id names one row");
            let problem = Problem::new(Position::line(line), message).in_field("id");
            return Outcome::Invalid { id, known: 0, problems: vec![problem] };
        }
        Verdict::Unread => (1, 0),
    };
    match wanted {
        Wanted::Order(order) => {
            Outcome::Jobs(Box::new(Jobs { order: *order, draws, id, fingerprint, first, count, known }))
        }
        Wanted::Invalid(_) if known == count => Outcome::Kept { id, count },
        Wanted::Invalid(problems) => Outcome::Invalid { id, known, problems },
    }
}

/// Reads and judges a manifest into `draft`. `note_existing` tells the draft which jobs there are, once
/// the batch has a name.
///
/// # Errors
/// [`IntakeError`]. Problems of rows are no error: they stand in the receipt, and good rows go on.
pub fn judge(
    draft: Draft,
    path: &Path,
    terms: &Terms<'_>,
    note_existing: impl FnOnce(&BatchName, &mut Draft) -> Result<(), IntakeError>,
) -> Result<Judgement, IntakeError> {
    judge_opened(draft, path, source::open(path)?, terms, note_existing)
}

/// The same for a manifest that is open, and was as `identity` says when it was opened.
pub(super) fn judge_opened(
    mut draft: Draft,
    path: &Path,
    (file, identity): (File, Identity),
    terms: &Terms<'_>,
    note_existing: impl FnOnce(&BatchName, &mut Draft) -> Result<(), IntakeError>,
) -> Result<Judgement, IntakeError> {
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut receipt = Receipt::new(path);
    receipt.read = Some(identity);
    let source = BufReader::with_capacity(64 * 1024, file);
    let manifest = match manifest::open(&file_name, source, &Limits::default()) {
        Ok(manifest) => manifest,
        Err(problems) => {
            // One that is still being written is not refused for what is missing of it.
            identity.check(path)?;
            refuse_file(problems, &mut receipt, &mut draft)?;
            let policy = terms.policy.over(&terms.default_policy);
            return Ok(Judgement { receipt, policy, judged: draft.judge()? });
        }
    };
    let header = manifest.header().clone();
    let name = batch_name(path, &header, terms)?;
    receipt.batch = Some(name.clone());
    let policy = resolve_policy(terms, &header);
    if let Some(problem) = layout_problem(&policy) {
        refuse_file(vec![problem], &mut receipt, &mut draft)?;
    }
    note_existing(&name, &mut draft)?;
    let mut desk = Desk { batch: &name, policy: &policy, terms, receipt: &mut receipt };
    for read in manifest {
        match desk.judge_row(read) {
            Judge::Row(row) => draft.push(&row)?,
            Judge::Unread(line, problems) => draft.push_unread(line, problems)?,
        }
    }
    identity.check(path)?;
    failpoint::hit("accepting");
    let mut judgement = Judgement { receipt, policy, judged: draft.judge()? };
    count(&mut judgement)?;
    Ok(judgement)
}

/// A problem of the whole file takes a place among its rows, too, so that whoever walks them sees it.
fn refuse_file(problems: Vec<Problem>, receipt: &mut Receipt, draft: &mut Draft) -> Result<(), StoreError> {
    let line = problems.first().map_or(1, |problem| problem.position.line);
    draft.push_unread(line, problems.clone())?;
    receipt.refuse_file(problems);
    Ok(())
}

fn batch_name(path: &Path, header: &Header, terms: &Terms<'_>) -> Result<BatchName, BadBatchName> {
    match (&terms.batch, &header.batch) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(name)) => name.parse(),
        (None, None) => BatchName::from_file_stem(&path.file_stem().unwrap_or_default().to_string_lossy()),
    }
}

/// Who brings it over manifest over defaults. The budget of a schedule is the most that a run may spend, and
/// the manifest may ask for less.
fn resolve_policy(terms: &Terms<'_>, header: &Header) -> Policy {
    let mut policy = terms.policy.over(&header.policy).over(&terms.default_policy);
    if terms.occasion.is_some() {
        policy.budget =
            [terms.policy.budget, header.policy.budget].into_iter().flatten().min().or(policy.budget);
    }
    policy
}

fn layout_problem(policy: &Policy) -> Option<Problem> {
    let error = policy.layout.as_deref().map(Layout::parse)?.err()?;
    Some(Problem::new(Position::line(1), error.to_string()).in_field("policy.layout"))
}

/// What a row comes to by itself.
enum Judge {
    Row(DraftRow),
    /// It has no identity.
    Unread(u64, Vec<Problem>),
}

/// What rows are judged by.
struct Desk<'a> {
    batch: &'a BatchName,
    policy: &'a Policy,
    terms: &'a Terms<'a>,
    receipt: &'a mut Receipt,
}

impl Desk<'_> {
    fn judge_row(&mut self, read: ReadRow) -> Judge {
        match read {
            ReadRow::Good(mut row) => {
                self.receipt.rows += 1;
                // Before identity is derived: another day is another job.
                if let Some(occasion) = &self.terms.occasion {
                    occasion.fill(&mut row);
                }
                self.typed_row(&row)
            }
            ReadRow::Bad(problems) => {
                self.receipt.rows += 1;
                Judge::Unread(problems.first().map_or(0, |problem| problem.position.line), problems)
            }
            // What comes after it is lost to the reader, so it counts as one invalid row.
            ReadRow::Unreadable(problem) => Judge::Unread(problem.position.line, vec![problem]),
        }
    }

    /// One whose kind cannot be told has no identity; one that the quote refuses has, because the
    /// batch may have it from a time when it was valid.
    fn typed_row(&mut self, row: &Row) -> Judge {
        let Terms { catalog, rules, namespace, .. } = *self.terms;
        let kind = match row.kind.map_or_else(|| quote::infer_kind(&row.request, catalog, rules), Ok) {
            Ok(kind) => kind,
            Err(finding) => return Judge::Unread(row.position.line, vec![place(row, finding)]),
        };
        let body = quote::canonical_body(kind, &row.request);
        let fingerprint =
            Fingerprint::derive(namespace, self.batch, row.id.as_deref(), kind.endpoint(), &body);
        let mut draws = None;
        let wanted = match quote::quote(Some(kind), &row.request, catalog, rules) {
            Err(findings) => {
                Wanted::Invalid(findings.into_iter().map(|finding| place(row, finding)).collect())
            }
            Ok(quote) => {
                for note in &quote.notes {
                    self.receipt.note(row.place(&note.field), note);
                }
                draws = quote.waivable.as_ref().and_then(|allowance| draw(self.terms.plan, allowance));
                self.order(row, quote, draws.is_some())
            }
        };
        let label = row.id.clone();
        Judge::Row(DraftRow { fingerprint, label, count: row.count, line: row.position.line, draws, wanted })
    }

    fn order(&self, row: &Row, quote: Quote, waivable: bool) -> Wanted {
        if let Some(problem) = self.too_dear(row, &quote) {
            return Wanted::Invalid(vec![problem]);
        }
        let price = quote.price;
        Wanted::Order(Box::new(Order {
            line: row.position.line,
            kind: quote.kind,
            model: quote.model,
            body: quote.body,
            price,
            bound: Some(quote.bound.dearest).filter(|_| price.is_none() && quote.bound.is_firm),
            formula: quote.formula,
            waivable: price.filter(|_| waivable).unwrap_or_default(),
            // Whoever gave a limit meant it for the price that is paid, which may be another by then.
            max_credits: [row.max_credits, self.terms.max_credits].into_iter().flatten().min(),
            priority: row.priority.or(self.policy.priority).unwrap_or_default(),
            deadline: row.deadline.or(self.policy.deadline),
            meta: row.meta.clone(),
        }))
    }

    /// A row that may cost more than it, or the command, allows.
    fn too_dear(&self, row: &Row, quote: &Quote) -> Option<Problem> {
        let refuse = |message: String, hint: &str| {
            Some(Problem::new(row.place("max_credits"), message).in_field("max_credits").hint(hint))
        };
        let Quote { formula, bound, .. } = quote;
        let dearest = bound.dearest;
        let may_cost = match (dearest.is_zero(), bound.is_firm) {
            (true, _) => String::new(),
            (false, true) => format!("; it may cost up to {dearest}"),
            (false, false) => format!("; it may cost {dearest}, or more"),
        };
        let enough = format!("set max_credits to {} or more", dearest.0);
        match (quote.price, row.max_credits, self.terms.max_credits) {
            (None, _, Some(most)) if !bound.is_firm || most < dearest => {
                let message = format!(
                    "the price is not known, and at most {most} a row are allowed: {formula}{may_cost}"
                );
                refuse(message, "leave --max-credits out, or leave the row out")
            }
            (None, None, None) => {
                let message = format!("missing, and the price is not known: {formula}{may_cost}");
                let hint = if dearest.is_zero() {
                    "give the most this row may cost in max_credits"
                } else {
                    &enough
                };
                refuse(message, hint)
            }
            (None, Some(most), _) if most < dearest => {
                let message = format!("is {}, but the price is not known: {formula}{may_cost}", most.0);
                refuse(message, &enough)
            }
            (Some(price), _, Some(most)) if price > most => {
                let message =
                    format!("at most {most} a row are allowed, but it costs {}: {formula}", price.0);
                refuse(message, "raise --max-credits, or ask for less")
            }
            (Some(price), Some(most), _) if price > most => {
                let message = format!("is {}, but the row costs {}: {formula}", most.0, price.0);
                refuse(message, "raise max_credits, or ask for less")
            }
            _ => None,
        }
    }
}

fn place(row: &Row, finding: quote::Finding) -> Problem {
    let position = row.place(&finding.field);
    Problem { position, field: Some(finding.field), message: finding.message, hint: finding.hint }
}

/// What a job may draw from the account's allowance; nothing where the plan has none, or where one
/// day's allowance is less than the job needs: it covers all of a job or nothing.
fn draw(plan: AccountPlan, allowance: &Allowance) -> Option<Draw> {
    let per_day = allowance.rule.per_day(plan);
    let pool = allowance.rule.pool.clone();
    (allowance.units <= per_day && per_day > 0).then_some(Draw { pool, units: allowance.units, per_day })
}

/// Counts new, existing and invalid jobs, and adds up the price of the new ones.
fn count(judgement: &mut Judgement) -> Result<(), StoreError> {
    let Judgement { judged, receipt, .. } = judgement;
    let mut rows = Rows { rows: judged.rows()? };
    // A problem of the file has been counted.
    let mut file_rows = u32::from(receipt.file_refused);
    while let Some(row) = rows.next_row()? {
        match row.outcome {
            _ if file_rows > 0 => file_rows -= 1,
            Outcome::Jobs(jobs) => {
                receipt.have += jobs.known_count();
                receipt.new += jobs.new_count();
                let each = jobs.order.hold().unwrap_or_default();
                receipt.price = receipt.price + Credits(each.0.saturating_mul(u64::from(jobs.new_count())));
            }
            Outcome::Kept { count, .. } => receipt.have += count,
            Outcome::Invalid { known, problems, .. } => {
                receipt.have += known;
                receipt.refuse_row(problems);
            }
        }
    }
    Ok(())
}
