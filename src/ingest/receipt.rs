//! The receipt of a manifest: how many rows were accepted, refused or known, and why.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::domain::absent_rows::AbsentRows;
use crate::domain::batch_terms::TermChange;
use crate::domain::budget::BudgetShortage;
use crate::domain::budget_group::GroupTotals;
use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::ids::BatchName;
use crate::domain::manifest::row::Policy;
use crate::domain::path_text;
use crate::domain::pilot::Pilot;
use crate::domain::quote::kind_fields::is_on_unknown_option;
use crate::domain::row_changes::FieldChange;
use crate::domain::row_verdict::{JobStanding, RowVerdict};
use crate::domain::shell_word::job_argument;
use crate::ingest::manifest_file::Identity;
use crate::store::staging::{AcceptedTerms, AskedJobs};

/// What to do about a row that cannot be validated now.
pub(super) const LATER: &str = "the row may be valid: submit the file again when the catalog is available";

/// Whether a problem is one of this moment, and none of the row.
pub(super) fn is_for_now(problem: &Diagnostic) -> bool {
    problem.hint.as_deref() == Some(LATER)
}

/// What to do about a row whose deadline has passed.
pub(super) const MISSED_DEADLINE: &str =
    "set a later instant, or a span such as 30m, which is counted from when the job is sent";

/// Whether a problem is a deadline that has passed, so that a job that was not sent would expire after a retry.
pub(super) fn is_missed_deadline(problem: &Diagnostic) -> bool {
    problem.hint.as_deref() == Some(MISSED_DEADLINE)
}

/// Diagnostics and notes that a receipt lists; the rest are counted.
pub const LISTED_MAX: usize = 1000;

/// The receipt of one manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Receipt {
    /// The manifest. A name that is no UTF-8 is written as it is shown.
    #[serde(serialize_with = "path_text::shown")]
    pub file: PathBuf,
    /// The batch it belongs to.
    pub batch: Option<BatchName>,
    /// Rows that were read.
    pub rows: u64,
    /// Jobs that are new.
    pub new: u32,
    /// Jobs that are as new as those, of rows whose `id` the batch has with another request.
    #[serde(default)]
    pub changed: u32,
    /// Jobs that the batch has already: all of the following together.
    pub have: u32,
    /// Jobs that it has and that were not sent yet.
    #[serde(default)]
    pub waiting: u32,
    /// Jobs that are at the service, or on their way.
    #[serde(default)]
    pub running: u32,
    /// Jobs of which a person has to tell what they were charged.
    #[serde(default)]
    pub in_doubt: u32,
    /// Jobs that failed, were canceled or expired.
    #[serde(default)]
    pub failed: u32,
    /// Jobs whose outputs are there.
    #[serde(default)]
    pub done: u32,
    /// Rows that are not valid.
    pub invalid: u64,
    /// Of these, rows that could not be validated now, because a catalog was not available.
    #[serde(default, skip_serializing_if = "is_default")]
    pub not_validated: u64,
    /// Rows that are not in the part of the manifest that was handed in (`--first`, `--random`, `--only`, `--where`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub left_out: u64,
    /// What of the batch is done first and what waits, where the manifest was handed in with `--pilot` or the batch has
    /// a pilot already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<Pilot>,
    /// What the new and the changed jobs may cost.
    pub price: Credits,
    /// What is still to be spent: for new, changed and waiting jobs.
    #[serde(default)]
    pub total_credits: Credits,
    /// What is set aside or charged for jobs that are running or in doubt.
    #[serde(default)]
    pub held_credits: Credits,
    /// What `retry` would cost for those that failed.
    #[serde(default)]
    pub retry_credits: Credits,
    /// Nothing was accepted, because of `strict` or because the file could not be read.
    pub refused: bool,
    /// The file as a whole is wrong.
    pub file_refused: bool,
    /// Rows of the batch that the manifest does not have. They stay wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<AbsentRows>,
    /// Budgets of groups of rows that what is still to be spent would pass, as far as it is known what they have spent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_budgets: Vec<BudgetShortage>,
    /// What is still to be spent, by the groups that have budgets.
    #[serde(skip)]
    pub(crate) by_group: GroupTotals,
    /// What is wrong, in order of lines; the first thousand.
    pub problems: Vec<Diagnostic>,
    /// How many problems there are.
    pub problems_total: u64,
    /// What is worth saying and refuses nothing; the first thousand.
    pub notes: Vec<Diagnostic>,
    /// The options of these notes that the service does not document: of each, one row is named.
    #[serde(skip)]
    pub(crate) unknown_options: BTreeSet<String>,
    /// The terms of the batch.
    #[serde(default)]
    pub terms: Policy,
    /// The most that the batch may spend; nothing where nothing was taken in.
    #[serde(default)]
    pub budget: Option<Credits>,
    /// The terms of the batch that were others before.
    #[serde(default)]
    pub changes: Vec<TermChange>,
    /// The file as it was when it was opened.
    #[serde(skip)]
    pub read: Option<Identity>,
}

impl Receipt {
    pub(crate) fn new(file: &Path) -> Receipt {
        Receipt {
            file: file.to_owned(),
            batch: None,
            rows: 0,
            new: 0,
            changed: 0,
            have: 0,
            waiting: 0,
            running: 0,
            in_doubt: 0,
            failed: 0,
            done: 0,
            invalid: 0,
            not_validated: 0,
            left_out: 0,
            pilot: None,
            price: Credits::ZERO,
            total_credits: Credits::ZERO,
            held_credits: Credits::ZERO,
            retry_credits: Credits::ZERO,
            refused: false,
            file_refused: false,
            absent: None,
            group_budgets: Vec::new(),
            by_group: GroupTotals::default(),
            problems: Vec::new(),
            problems_total: 0,
            notes: Vec::new(),
            unknown_options: BTreeSet::new(),
            terms: Policy::default(),
            budget: None,
            changes: Vec::new(),
            read: None,
        }
    }

    /// The receipt of a manifest that was not taken in for a reason outside its rows.
    pub fn of_refused(file: &Path, why: Diagnostic) -> Receipt {
        let mut receipt = Receipt::new(file);
        receipt.refused = true;
        receipt.refuse_file(vec![why]);
        receipt
    }

    pub(super) fn refuse_file(&mut self, problems: Vec<Diagnostic>) {
        self.file_refused = true;
        self.list(problems);
    }

    /// Nothing of it counts any more, but why.
    pub(super) fn refuse_whole(&mut self, why: Diagnostic) {
        (self.new, self.changed, self.have, self.invalid) = (0, 0, 0, 0);
        (self.waiting, self.running, self.in_doubt, self.failed, self.done) = (0, 0, 0, 0, 0);
        (self.price, self.total_credits) = (Credits::ZERO, Credits::ZERO);
        (self.held_credits, self.retry_credits) = (Credits::ZERO, Credits::ZERO);
        self.notes.clear();
        self.pilot = None;
        (self.absent, self.by_group) = (None, GroupTotals::default());
        self.problems.clear();
        self.problems_total = 0;
        self.refuse_file(vec![why]);
    }

    pub(super) fn refuse_row(&mut self, problems: Vec<Diagnostic>) {
        self.invalid += 1;
        self.not_validated += u64::from(problems.iter().any(is_for_now));
        self.list(problems);
    }

    /// Problems of the submission, which refuse no row.
    pub(super) fn report(&mut self, problems: Vec<Diagnostic>) {
        self.list(problems);
    }

    pub(super) fn note(&mut self, notes: Vec<Diagnostic>) {
        for note in notes {
            if self.notes.len() >= LISTED_MAX {
                return;
            }
            let field = note.field.as_deref().unwrap_or_default();
            if is_on_unknown_option(&note) && !self.unknown_options.insert(field.to_owned()) {
                continue;
            }
            self.notes.push(note);
        }
    }

    /// Counts jobs that are new, and the credits of all of them together. Returns whether they were counted: not where
    /// they are more than a batch has.
    pub(super) fn count_new(&mut self, AskedJobs { jobs, credits }: AskedJobs) -> bool {
        let Some(new) = u32::try_from(jobs).ok().and_then(|jobs| self.new.checked_add(jobs)) else {
            return false;
        };
        self.new = new;
        (self.total_credits, self.price) = (self.total_credits + credits, self.price + credits);
        true
    }

    /// Counts one job, and the credits that belong to what becomes of it.
    pub(super) fn count(&mut self, verdict: RowVerdict, credits: Credits) {
        let (count, is_known) = match verdict {
            RowVerdict::New => (&mut self.new, false),
            RowVerdict::Changed => (&mut self.changed, false),
            RowVerdict::Waiting => (&mut self.waiting, true),
            RowVerdict::Running => (&mut self.running, true),
            RowVerdict::InDoubt => (&mut self.in_doubt, true),
            RowVerdict::Failed => (&mut self.failed, true),
            RowVerdict::Done => (&mut self.done, true),
            // Rows are counted as they are refused.
            RowVerdict::Invalid => return,
        };
        *count += 1;
        self.have += u32::from(is_known);
        let sum = match verdict {
            RowVerdict::New | RowVerdict::Changed | RowVerdict::Waiting => &mut self.total_credits,
            RowVerdict::Running | RowVerdict::InDoubt => &mut self.held_credits,
            RowVerdict::Failed => &mut self.retry_credits,
            RowVerdict::Done | RowVerdict::Invalid => return,
        };
        *sum = *sum + credits;
        if !is_known {
            self.price = self.price + credits;
        }
    }

    /// Notes in what a row differs from the one of the same `id` that the batch has, and what becomes of that one, which
    /// stands so.
    pub(super) fn note_changed(
        &mut self,
        line: u64,
        label: &str,
        changed: &[FieldChange],
        before: Option<JobStanding>,
    ) {
        let becomes = match before {
            Some(JobStanding::Waiting) => "which is not submitted yet and is replaced free of charge",
            Some(JobStanding::PerhapsSent) => {
                "which may have been sent before the state was rebuilt or imported and may have been charged; it is not sent \
                 again"
            }
            Some(JobStanding::Running | JobStanding::InDoubt) => {
                "which is submitted already; this one is bought beside it"
            }
            Some(JobStanding::Failed | JobStanding::FailedForGood) => {
                "which failed; this one takes its place"
            }
            Some(JobStanding::Canceled) => "which was canceled; this one takes its place",
            Some(JobStanding::Expired) => "which has expired; this one takes its place",
            Some(JobStanding::Done) | None => "and is bought again",
        };
        let what = format!("{label} is in the batch with another request, {becomes}");
        self.note_fields(line, &what, changed);
    }

    /// Notes in what a row differs from the one of the same `id` that was wanted until now, where the batch had its
    /// request before that, and what becomes of that one, which stands so.
    pub(super) fn note_back(
        &mut self,
        (line, label): (u64, &str),
        variations: usize,
        changed: &[FieldChange],
        before: Option<JobStanding>,
    ) {
        let becomes = match before {
            Some(JobStanding::Waiting) => "is not submitted yet and is replaced free of charge",
            Some(JobStanding::PerhapsSent) => {
                "may have been sent before the state was rebuilt or imported and may have been charged; it is not sent again"
            }
            Some(JobStanding::Running | JobStanding::InDoubt) => {
                "is submitted already and stays in the batch"
            }
            Some(JobStanding::Failed | JobStanding::FailedForGood) => "failed",
            Some(JobStanding::Canceled) => "was canceled",
            Some(JobStanding::Expired) => "has expired",
            Some(JobStanding::Done) | None => "is done and stays in the batch",
        };
        let what = match before {
            // Each may stand otherwise.
            before if variations > 1 && before != Some(JobStanding::PerhapsSent) => format!(
                "{label} and its further variations go back to a request that the batch had before; of those that were wanted \
                 until now, what is not submitted yet is replaced free of charge, and the others stay in the batch"
            ),
            _ => format!(
                "{label} goes back to a request that the batch had before; the one that was wanted until now {becomes}"
            ),
        };
        self.note_fields(line, &what, changed);
    }

    /// Notes what may have been charged for earlier versions of rows that a state that is gone may have sent, beside what the
    /// plan comes to.
    pub(super) fn note_perhaps_charged(&mut self, credits: Credits) {
        let message = format!(
            "earlier versions of edited rows may have been sent before the state was rebuilt or imported, and may have cost up \
             to {credits} beside this plan; they are not sent again"
        );
        let hint =
            "after the submission they are in doubt: record what the account shows with callsheet resolve";
        self.notes.insert(0, Diagnostic::new(message).hint(hint));
    }

    /// Notes that another version of a row has so many further variations, which the row does not ask for any more.
    pub(super) fn note_dropped(&mut self, line: u64, label: &str, variations: usize) {
        let (what, those) = match variations {
            1 => (
                "1 further variation of an earlier version is".to_owned(),
                "it is replaced free of charge if it is",
            ),
            _ => (
                format!("{variations} further variations of an earlier version are"),
                "those are replaced free of charge that are",
            ),
        };
        let message = format!("{label}: {what} not wanted any more; {those} not submitted yet");
        self.note(vec![Diagnostic::at(Position::line(line), message).in_field("count")]);
    }

    /// Notes that rows of the batch that the manifest does not have are not listed, since a row may be one of them that
    /// could not be read; and what they may still cost at most.
    pub(super) fn note_untold_absent(&mut self, line: u64, unspent: Credits) {
        let message = format!(
            "rows of the batch that are not in this file cannot be listed, since this row could not be read and may be one \
             of them; what is not in the file stays wanted and may still cost up to {unspent}"
        );
        self.note(vec![Diagnostic::at(Position::line(line), message).hint("correct the row to see them")]);
    }

    /// Notes that a job that waits keeps what it was accepted with, though its row says something else now.
    pub(super) fn note_kept_terms(
        &mut self,
        line: u64,
        label: &str,
        kept: AcceptedTerms,
        wanted: AcceptedTerms,
    ) {
        let note =
            |field: &str, message: String| Diagnostic::at(Position::line(line), message).in_field(field);
        if kept.max_credits != wanted.max_credits {
            let hint = self.limit_hint(label, wanted.max_credits);
            self.note(vec![note("max_credits", kept_limit(label, kept.max_credits)).hint(hint)]);
        }
        if kept.review != wanted.review {
            let becomes = if kept.review { "with a review" } else { "without a review" };
            let message = format!("{label} waits in the batch {becomes}, which a manifest does not change");
            self.note(vec![note("review", message)]);
        }
        // That a new default is none of theirs is said once for all.
        let is_own = wanted.priority != self.terms.priority.unwrap_or_default();
        if is_own && kept.priority != wanted.priority {
            let priority = kept.priority;
            let message = format!(
                "{label} waits in the batch with priority {priority}, which a manifest does not change"
            );
            self.note(vec![note("priority", message)]);
        }
    }

    /// Notes that a job that waits keeps its limit, though its row has one now that the row could not be accepted with.
    pub(super) fn note_kept_limit(&mut self, label: &str, kept: Option<Credits>, problems: Vec<Diagnostic>) {
        let hint = self.limit_hint(label, None);
        let limits = problems.into_iter().filter(|problem| problem.field.as_deref() == Some("max_credits"));
        let notes = limits.map(|problem| {
            let message = format!("{}; {}", problem.message, kept_limit(label, kept));
            Diagnostic { message, ..problem }.hint(hint.clone())
        });
        self.note(notes.collect());
    }

    /// How the limit of a job that waits is changed, to `most` where that is known.
    fn limit_hint(&self, label: &str, most: Option<Credits>) -> String {
        let job = self.batch.as_ref().map_or_else(|| "JOB".to_owned(), |batch| job_argument(batch, label));
        let most = most.map_or_else(|| "N".to_owned(), |most| most.0.to_string());
        format!("to change it: callsheet retry {job} --max-credits {most}")
    }

    fn note_fields(&mut self, line: u64, what: &str, changed: &[FieldChange]) {
        let room = LISTED_MAX.saturating_sub(self.notes.len());
        self.notes.extend(changed.iter().take(room).map(|FieldChange { field, message }| {
            Diagnostic::at(Position::line(line), format!("{what}: {message}")).in_field(field.clone())
        }));
    }

    /// Jobs that the batch does not have: new and changed ones.
    pub fn added(&self) -> u32 {
        self.new + self.changed
    }

    fn list(&mut self, problems: Vec<Diagnostic>) {
        self.problems_total += problems.len() as u64;
        let room = LISTED_MAX.saturating_sub(self.problems.len());
        self.problems.extend(problems.into_iter().take(room));
    }

    /// Tells the log, once what was accepted is durable.
    pub fn announce(&self) {
        let Some(batch) = self.batch.as_ref().filter(|_| !self.refused) else {
            tracing::info!(file = %self.file.display(), problems = self.problems_total, "nothing was accepted");
            return;
        };
        let (new, changed, have, invalid, credits) =
            (self.new, self.changed, self.have, self.invalid, self.price.0);
        if !self.is_taken_in() {
            tracing::info!(%batch, file = %self.file.display(), invalid, "nothing was accepted");
            return;
        }
        tracing::info!(%batch, file = %self.file.display(), new, changed, have, invalid, credits, "batch accepted");
    }

    /// Whether jobs of the manifest are in its batch now, new ones or ones that it had.
    pub fn is_taken_in(&self) -> bool {
        !self.refused && !self.file_refused && (self.added() > 0 || self.have > 0)
    }

    /// Why rows could not be validated now; nothing where all could.
    pub fn why_not_validated(&self) -> Option<String> {
        let first = self.problems.iter().find(|problem| is_for_now(problem));
        let why =
            first.map_or_else(|| "a catalog is not available".to_owned(), |problem| problem.message.clone());
        let (rows, wait) = if self.not_validated == 1 { ("row", "waits") } else { ("rows", "wait") };
        (self.not_validated > 0)
            .then(|| format!("{} {rows} of {} {wait}: {why}", self.not_validated, self.file.display()))
    }

    /// Whether something in the manifest has to be fixed.
    pub fn has_problems(&self) -> bool {
        self.problems_total > 0
    }
}

fn kept_limit(label: &str, kept: Option<Credits>) -> String {
    let limit = kept.map_or_else(|| "no limit".to_owned(), |most| format!("a limit of {most}"));
    format!("{label} waits in the batch with {limit}, which a manifest does not change")
}
