//! The state of a job whose record was lost, damaged or carried elsewhere, from what is left of it.
//!
//! A job that may have been sent comes back under a key that it had, marked as such: it is neither dropped as unsent
//! nor given another key before its task's own record says that it failed or was canceled. One whose endpoint honours
//! no key is never queued by guessing: it is in doubt, and a person decides.

use std::cmp::Ordering;

use crate::domain::credits::Credits;
use crate::domain::ids::AttemptNo;
use crate::domain::job::{Books, HistoryLine, Job, JobSpec, PublishedOutputs, State};
use crate::domain::ledger::{Movement, Totals};
use crate::domain::lifecycle::{self, AttemptRules, Event};
use crate::domain::retry_delay;
use crate::domain::task::{PostAnswer, TaskReading, TaskStatus};
use crate::domain::time::Timestamp;
use crate::domain::utc_day::UtcDay;

/// What is left of a job.
#[derive(Debug, Default)]
pub struct Remains {
    /// Its last outcome.
    pub outcome: Option<Job>,
    /// As the database has it, while it was open.
    pub open: Option<Job>,
    /// As an export has it, while it was open.
    pub exported: Option<Job>,
    /// Jobs of its batch that had ended were taken up again, or may have been, and its row is still wanted.
    pub may_be_asked_again: bool,
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    pub job: Job,
    /// Only its sidecar tells.
    pub is_from_sidecar: bool,
}

/// Where a job stands, if anything tells that it has begun. `is_trusted`: the database is whole and the latest one, so
/// a job of which it has nothing and that has no outcome has not begun. `published` reads what its sidecar says, where its
/// outputs lie unchanged beside it; it is asked only where that counts.
pub fn recovered(
    spec: &JobSpec,
    remains: Remains,
    published: impl FnOnce() -> Option<PublishedOutputs>,
    is_trusted: bool,
    now: Timestamp,
) -> Option<Recovered> {
    let Remains { outcome, open, exported, may_be_asked_again } = remains;
    if is_trusted && open.is_none() && outcome.is_none() {
        return None;
    }
    // A database that is to be trusted knows all of it; otherwise among equals its record counts.
    let open = match (open, exported.filter(|_| !is_trusted)) {
        (Some(open), Some(exported)) if is_later(&exported, &open) => Some(exported),
        (open, exported) => open.or(exported),
    };
    let is_known = |job: &Job| job.state().task().is_some() || job.resubmitted_attempts().next().is_some();
    let is_news = |open: &Job| {
        is_trusted
            || outcome.as_ref().is_none_or(|outcome| match open.attempt().cmp(&outcome.attempt()) {
                Ordering::Greater => true,
                Ordering::Equal => !outcome.is_paid() && goes_beyond(open, outcome),
                Ordering::Less => false,
            })
    };
    let open = open.filter(is_news);
    // A sidecar tells of the attempt that was paid for, where its outcome was not written. An open job that knows its
    // task finds it by itself.
    if !outcome.as_ref().is_some_and(Job::is_paid) && !open.as_ref().is_some_and(is_known) {
        let attempts = [&open, &outcome].into_iter().flatten().map(|job| job.attempt());
        let least = attempts.max().unwrap_or(AttemptNo::FIRST);
        if let Some(published) = published().filter(|published| published.attempt >= least) {
            return Some(Recovered { job: job_of_published(published, spec, now)?, is_from_sidecar: true });
        }
    }
    let is_keyed = spec.order.kind.is_keyed();
    let job = match (outcome, open) {
        (_, Some(open)) => goes_on(open, spec, is_trusted, now),
        (Some(mut outcome), None) => {
            // It may have been asked for again since, and sent: a key finds that task when it is asked for once more, and
            // without a key nothing does.
            let may_be_sent = !is_keyed || may_be_asked_again && can_be_asked_again(&outcome);
            if !is_trusted && may_be_sent && !outcome.is_paid() {
                outcome.mark_may_have_been_sent();
            }
            if !is_trusted && matches!(outcome.state(), State::InDoubt { .. }) {
                outcome.mark_may_have_gone_on();
            }
            outcome
        }
        (None, None) if !is_keyed => on_its_way(&Job::queued(), spec, now)?,
        (None, None) => return None,
    };
    Some(Recovered { job, is_from_sidecar: false })
}

/// Whether one of two open records of a job is later than the other: by their histories, or else by their attempts.
fn is_later(record: &Job, other: &Job) -> bool {
    continues(record, other) || record.attempt() > other.attempt() && !continues(other, record)
}

/// Whether an open record is later than an outcome of the same attempt: a job that is asked for again may keep its key. Its
/// history tells, which every change makes longer. Where it does not, what was sent or set aside counts: it is not
/// forgotten, and to read a task costs nothing.
fn goes_beyond(open: &Job, outcome: &Job) -> bool {
    let has_begun = !matches!(open.state(), State::Queued) || open.books() != Books::default();
    continues(open, outcome) || has_begun && !continues(outcome, open)
}

/// Whether a record has the end of the other one's history, and more after it; or nothing that is as old any more.
fn continues(record: &Job, earlier: &Job) -> bool {
    let (history, Some(last)) = (record.history(), earlier.history().last()) else { return false };
    match history.iter().rposition(|line| line == last) {
        Some(place) => place + 1 < history.len(),
        None => history.first().is_some_and(|first| first.at > last.at),
    }
}

/// A job of which nothing is left, and whose row lies before that of one that has begun: it has begun, too, unless the
/// database is to be trusted.
pub fn silent(is_trusted: bool) -> Job {
    if is_trusted { Job::queued() } else { Job::queued_perhaps_sent() }
}

/// Whether a retry queues a job again that has ended and is not paid for.
fn can_be_asked_again(outcome: &Job) -> bool {
    match outcome.state() {
        State::Failed { fault, .. } => {
            !retry_delay::is_hopeless(&fault.code, !outcome.present().inputs().is_empty())
        }
        // One that another version took the place of is queued again where its manifest goes back to it.
        _ => true,
    }
}

/// Whether an outcome counts more than the one that was read before it: outcomes are written in the order of their
/// ends, so the last one counts, unless it is of an earlier attempt.
pub fn replaces(outcome: &Job, before: Option<&Job>) -> bool {
    outcome.is_over() && before.is_none_or(|before| before.attempt() <= outcome.attempt())
}

/// What a job adds to the totals of its batch and of the state, and of the UTC day where one is said: what each of its
/// attempts holds and was charged, and what was given back. A refund counts for the day of the attempt that was charged.
pub fn booked(job: &Job) -> impl Iterator<Item = (Option<UtcDay>, Totals)> + '_ {
    let books = job.books_by_day().map(|(day, Books { held, charged, waived })| {
        (day, Totals { held, spent: charged, waived, refunded: Credits::ZERO })
    });
    let refunds = job.history().iter().filter_map(|line| match line.movement {
        Some(Movement::Refund { spent, .. }) => {
            Some((day_of(job, line.attempt), Totals { refunded: spent, ..Totals::default() }))
        }
        _ => None,
    });
    books.chain(refunds)
}

/// The UTC day that an attempt counts for. One that is forgotten is known from its hold.
fn day_of(job: &Job, no: AttemptNo) -> Option<UtcDay> {
    let of_its_hold = |line: &HistoryLine| match line.movement {
        Some(Movement::Hold(_)) if line.attempt == no => Some(line.at.utc_day()),
        _ => None,
    };
    let attempt = job.attempts().iter().find(|attempt| attempt.no() == no);
    attempt.and_then(|attempt| attempt.day()).or_else(|| job.history().iter().find_map(of_its_hold))
}

/// A job whose request was on its way goes back to the queue, under the same key and with its hold. One whose
/// endpoint honours no key stays as it is. One that is queued may have been sent since, and so may the attempts after that of
/// one whose task was read.
pub fn requeued(job: Job, spec: &JobSpec, now: Timestamp) -> Job {
    let mut job = lifecycle::requeued(job, spec.order.kind.is_keyed(), now);
    job.mark_may_have_gone_on();
    job
}

/// An open job as it goes on: nothing of it is sent by itself.
fn goes_on(open: Job, spec: &JobSpec, is_trusted: bool, now: Timestamp) -> Job {
    let is_queued = matches!(open.state(), State::Queued);
    let is_keyed = spec.order.kind.is_keyed();
    match is_trusted {
        false if is_queued && !is_keyed => on_its_way(&open, spec, now).unwrap_or(open),
        false => requeued(open, spec, now),
        true if is_queued => open,
        true => lifecycle::requeued(open, is_keyed, now),
    }
}

const KEYED: AttemptRules = AttemptRules { attempts: 1, keyed: true };

/// The job as if its request had just left: what became of it is not known.
fn on_its_way(job: &Job, spec: &JobSpec, now: Timestamp) -> Option<Job> {
    let job = &lifecycle::taken_for_unsent(job.clone());
    let event = Event::Admit { hold: spec.order.hold().unwrap_or_default(), day: now.utc_day() };
    lifecycle::apply(job, job.attempt(), event, KEYED, now).ok().map(|step| step.job)
}

/// The job that its sidecar tells of.
fn job_of_published(published: PublishedOutputs, spec: &JobSpec, now: Timestamp) -> Option<Job> {
    let attempt = published.attempt;
    let reading = TaskReading {
        id: published.task,
        status: TaskStatus::Success,
        model: published.model,
        options: None,
        charged: Some(published.charged),
        waived: Some(published.waived),
        urls: Vec::new(),
        fault: None,
        record: None,
    };
    let mut job = on_its_way(&Job::queued_at(attempt), spec, now)?;
    for event in [Event::Posted(PostAnswer::Task(reading)), Event::Fetched(published.files)] {
        job = lifecycle::apply(&job, attempt, event, KEYED, now).ok()?.job;
    }
    Some(job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::credits::Credits;
    use crate::domain::ids::{Fingerprint, JobId, Seq, TaskId};
    use crate::domain::job::{Order, OrderTerms};
    use crate::domain::json_object::JsonObject;
    use crate::domain::request::Kind;
    use crate::domain::task::Fault;

    fn spec(kind: Kind) -> JobSpec {
        JobSpec {
            seq: Seq(0),
            id: JobId([7; 16]),
            fingerprint: Fingerprint([7; 16]),
            variation: 1,
            label: "gull".into(),
            apart: false,
            order: Order {
                line: 2,
                body: JsonObject::default(),
                inputs: Default::default(),
                files: Default::default(),
                written: None,
                meta: JsonObject::default(),
                terms: OrderTerms { price: Some(Credits(8)), ..OrderTerms::of(kind) }.into(),
            },
        }
    }

    fn at(attempt: u32, state: State) -> Job {
        Job::at(AttemptNo(attempt), state)
    }

    fn failed(attempt: u32) -> Job {
        at(attempt, State::Failed { fault: Fault::new("resolved", "nothing was charged"), task: None })
    }

    fn submitting(attempt: u32) -> Job {
        let state = State::Submitting { may_have_run: false, sends: 0, fault: None };
        at(attempt, state).with_books(Books { held: Credits(8), ..Books::default() })
    }

    fn published(attempt: u32) -> PublishedOutputs {
        let (charged, waived) = (Credits(8), Credits::ZERO);
        let task = TaskId("t1".into());
        PublishedOutputs {
            task,
            attempt: AttemptNo(attempt),
            charged,
            waived,
            model: None,
            files: Vec::new(),
        }
    }

    /// `state#attempt credits`, `?` for one that may have been sent, `*` for one that a sidecar tells of.
    fn stands(kind: Kind, remains: Remains, sidecar: Option<PublishedOutputs>, is_trusted: bool) -> String {
        let found = recovered(&spec(kind), remains, || sidecar, is_trusted, Timestamp(0));
        let Some(Recovered { job, is_from_sidecar }) = found else { return "not begun".to_owned() };
        let (sent, star) =
            (if job.may_have_been_sent() { "?" } else { "" }, if is_from_sidecar { "*" } else { "" });
        let credits = job.books().held + job.books().charged;
        format!("{}{sent}{star}#{} {}", job.state().name(), job.attempt().0, credits.0)
    }

    fn left(outcome: Option<Job>, open: Option<Job>) -> Remains {
        Remains { outcome, open, exported: None, may_be_asked_again: false }
    }

    #[test]
    fn a_whole_database_is_believed() {
        let [keyed, keyless] =
            [Kind::Image, Kind::ShortsStudio].map(|kind| move |remains| stands(kind, remains, None, true));
        assert_eq!(keyed(left(None, None)), "not begun");
        assert_eq!(keyless(left(None, None)), "not begun");
        assert_eq!(keyed(left(None, Some(submitting(1)))), "queued?#1 8");
        assert_eq!(keyless(left(None, Some(submitting(1)))), "submitting#1 8");
        assert_eq!(keyed(left(None, Some(Job::queued()))), "queued#1 0");
        assert_eq!(keyed(left(Some(failed(1)), Some(Job::queued()))), "queued#1 0", "it was asked for again");
        assert_eq!(keyless(left(Some(failed(1)), None)), "failed#1 0");
        let ended = Remains { exported: Some(submitting(1)), ..left(Some(failed(1)), None) };
        assert_eq!(keyed(ended), "failed#1 0", "an export is older");
        let mut doubted = failed(1);
        doubted.mark_may_have_been_sent();
        assert_eq!(keyless(left(Some(doubted), None)), "failed?#1 0", "an earlier rebuild could not tell");
    }

    #[test]
    fn without_its_database_a_job_may_have_been_sent() {
        let [keyed, keyless] =
            [Kind::Image, Kind::ShortsStudio].map(|kind| move |remains| stands(kind, remains, None, false));
        assert_eq!(
            keyed(left(None, None)),
            "not begun",
            "the rows before a later one are marked by their batch"
        );
        // The engine takes up one without a key that was on its way as in doubt.
        assert_eq!(keyless(left(None, None)), "submitting#1 8");
        assert_eq!(keyed(left(None, Some(Job::queued()))), "queued?#1 0");
        assert_eq!(keyless(left(None, Some(Job::queued()))), "submitting#1 8");
        assert_eq!(keyed(left(Some(failed(1)), None)), "failed#1 0", "asked for again, it keeps its key");
        assert_eq!(keyless(left(Some(failed(1)), None)), "failed?#1 0", "asked for again, it is in doubt");
        let asked_again = |outcome| Remains { may_be_asked_again: true, ..left(Some(outcome), None) };
        assert_eq!(keyed(asked_again(failed(1))), "failed?#1 0", "its key finds what was sent since");
        assert_eq!(keyed(asked_again(at(1, State::DROPPED))), "canceled?#1 0");
        let rejected = State::Failed { fault: Fault::new("content_rejected", "no"), task: None };
        assert_eq!(keyed(asked_again(at(1, rejected))), "failed#1 0", "a retry would not have sent it");
        assert_eq!(keyed(left(Some(failed(1)), Some(at(2, State::Queued)))), "queued?#2 0");
        let exported = Remains { exported: Some(submitting(2)), ..left(None, Some(submitting(1))) };
        assert_eq!(keyed(exported), "queued?#2 8", "the later attempt is the later news");
    }

    /// It was canceled before it was sent, asked for again under its key, and sent.
    #[test]
    fn without_its_database_what_was_asked_for_again_and_sent_is_not_forgotten() {
        let rules = AttemptRules { attempts: 3, keyed: true };
        let after = |job: &Job, event: Event, at| {
            lifecycle::apply(job, job.attempt(), event, rules, Timestamp(at)).unwrap().job
        };
        let hold = Event::Admit { hold: Credits(8), day: Timestamp(0).utc_day() };
        let canceled = after(&Job::queued(), Event::Cancel, 1);
        let queued = after(&canceled, Event::Retry, 2);
        let sent = after(&queued, hold, 3);
        let stands = |outcome: &Job, open: &Job| {
            stands(Kind::Image, left(Some(outcome.clone()), Some(open.clone())), None, false)
        };
        assert_eq!(stands(&canceled, &queued), "queued?#1 0");
        assert_eq!(stands(&canceled, &sent), "queued?#1 8");
        let reading = TaskReading {
            id: TaskId("t1".into()),
            status: TaskStatus::Processing,
            model: None,
            options: None,
            charged: Some(Credits(8)),
            waived: Some(Credits::ZERO),
            urls: Vec::new(),
            fault: None,
            record: None,
        };
        let running = after(&sent, Event::Posted(PostAnswer::Task(reading)), 4);
        assert_eq!(stands(&canceled, &running), "running#1 8");
        assert_eq!(stands(&failed(1), &running), "running#1 8", "a history that tells nothing");
        // The database is older than the export.
        let both = Remains { exported: Some(running.clone()), ..left(Some(canceled), Some(queued)) };
        let found = recovered(&spec(Kind::Image), both, || None, false, Timestamp(9)).unwrap();
        let mut expected = running;
        expected.mark_may_have_gone_on();
        assert_eq!(found.job, expected);
        // The database is an older one: it was turned away, and canceled after that.
        let canceled_since = after(&after(&sent, Event::Requeue, 4), Event::Cancel, 5);
        assert_eq!(stands(&canceled_since, &sent), "canceled#1 0");
    }

    #[test]
    fn a_sidecar_tells_of_what_was_paid_for() {
        for kind in [Kind::Image, Kind::ShortsStudio] {
            let stands = |remains, attempt| stands(kind, remains, Some(published(attempt)), false);
            assert_eq!(stands(left(None, None), 1), "succeeded*#1 8");
            assert_eq!(
                stands(left(Some(failed(1)), None), 2),
                "succeeded*#2 8",
                "its outcome was not written"
            );
            assert_eq!(stands(left(None, Some(submitting(2))), 2), "succeeded*#2 8");
        }
        let older = stands(Kind::Image, left(Some(failed(2)), None), Some(published(1)), false);
        assert_eq!(older, "failed#2 0", "that was before");
        let paid = failed(1).with_books(Books { charged: Credits(5), ..Books::default() });
        let told = stands(Kind::Image, left(Some(paid), None), Some(published(1)), false);
        assert_eq!(told, "failed#1 5", "a person has said what it cost");
    }

    /// Two attempts on two days, the first of which is refunded after the second was held.
    #[test]
    fn a_refund_counts_for_the_day_of_the_attempt_that_was_charged() {
        const DAY_MS: i64 = 86_400_000;
        let rules = AttemptRules { attempts: 3, keyed: true };
        let reading = |task: &str, status, charged| TaskReading {
            id: TaskId(task.into()),
            status,
            model: None,
            options: None,
            charged: Some(Credits(charged)),
            waived: Some(Credits::ZERO),
            urls: Vec::new(),
            fault: None,
            record: None,
        };
        let hold = |day: i64| Event::Admit { hold: Credits(8), day: Timestamp(day * DAY_MS).utc_day() };
        let posted =
            |task, charged| Event::Posted(PostAnswer::Task(reading(task, TaskStatus::Processing, charged)));
        let steps = [
            (1, 1, hold(1)),
            (1, 1, posted("t1", 8)),
            (1, 1, Event::Resubmit),
            (2, 2, hold(2)),
            (2, 2, posted("t2", 5)),
            (2, 1, Event::Read(reading("t1", TaskStatus::Failed, 8))),
        ];
        let job = steps.into_iter().fold(Job::queued(), |job, (day, attempt, event)| {
            lifecycle::apply(&job, AttemptNo(attempt), event, rules, Timestamp(day * DAY_MS)).unwrap().job
        });
        let mut days: Vec<(i32, u64, u64)> = Vec::new();
        for (day, totals) in booked(&job) {
            days.push((day.unwrap().0, totals.spent.0, totals.refunded.0));
        }
        assert_eq!(days, [(1, 0, 0), (2, 5, 0), (1, 0, 8)]);
    }
}
