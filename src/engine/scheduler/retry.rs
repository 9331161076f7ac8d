//! Retrying a job that has ended: whether another attempt can help, and under which key.

use std::sync::Arc;

use crate::domain::credits::Credits;
use crate::domain::ids::JobKey;
use crate::domain::job::{Job, JobSpec, MADE_BEFORE, State};
use crate::domain::lifecycle::{self, AttemptRules, Event, IllegalEvent, Want};
use crate::domain::remedy::could_only_expire;
use crate::domain::retry_delay;
use crate::domain::time::Now;
use crate::engine::scheduler::commands::FoundJob;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{CommandOutcome, Scheduler};
use crate::store::{BatchRecord, JobRecord};

impl Scheduler {
    pub(super) fn retry(&mut self, found: Vec<FoundJob>, now: Now) -> CommandOutcome {
        let mut outcome = CommandOutcome::default();
        self.prices.renew();
        for (spec, record) in found {
            if self.is_superseded(record.key) {
                outcome.superseded.push(spec.label.clone());
                continue;
            }
            let is_watched = |open: &OpenJob| {
                let job = open.job();
                job.state().is_final() && !job.is_over() && !job.has_succeeded()
            };
            if self.jobs.get(&record.key).is_some_and(is_watched) {
                outcome.watched.push(spec.label.clone());
                continue;
            }
            if matches!(record.job.state(), State::Queued) || self.jobs.contains_key(&record.key) {
                let is_allowed = u32::from(self.allow(record.key, record.job.max_credits()));
                outcome.jobs += is_allowed;
                outcome.allowed += is_allowed;
                continue;
            }
            let batch = self.batches.get(&record.key.batch).map(ActiveBatch::record);
            if let Some(expiry) = expiry_after(batch, &spec, &record.job, now) {
                let left_out = match expiry {
                    Expiry::OfItself => &mut outcome.missed_deadline,
                    Expiry::WithItsBatch => &mut outcome.expired,
                };
                left_out.push(spec.label.clone());
                continue;
            }
            let is_made =
                matches!(record.job.state(), State::Failed { fault, .. } if fault.code == MADE_BEFORE);
            match self.queue_again(&spec, &record, now) {
                QueuedAgain::No => {}
                QueuedAgain::Hopeless => outcome.hopeless.push(spec.label.clone()),
                QueuedAgain::Paid => outcome.paid.push(spec.label.clone()),
                QueuedAgain::Yes { same_key } => {
                    let is_keyed = spec.order.kind.is_keyed();
                    outcome.same_key += u32::from(same_key && is_keyed);
                    outcome.without_key += u32::from(!is_keyed);
                    outcome.jobs += 1;
                    if is_made {
                        outcome.made_before.push(spec.label.clone());
                    }
                }
            }
        }
        outcome
    }

    /// Queues a job that has ended again, where that can help.
    pub(super) fn queue_again(&mut self, spec: &Arc<JobSpec>, record: &JobRecord, now: Now) -> QueuedAgain {
        let mut job = match retried(spec, record, now) {
            RetryVerdict::No => return QueuedAgain::No,
            RetryVerdict::Hopeless => return QueuedAgain::Hopeless,
            RetryVerdict::Paid => return QueuedAgain::Paid,
            RetryVerdict::Yes(job) => job,
        };
        let Some(active) = self.batches.get_mut(&record.key.batch) else { return QueuedAgain::No };
        // No key would find its task again, had a state that is gone sent it after all.
        let was_dropped = matches!(record.job.state(), State::Canceled { task: None, .. } | State::Expired);
        if was_dropped && !spec.order.kind.is_keyed() && active.record().may_have_been_sent(spec.seq) {
            job.mark_may_have_been_sent();
        }
        let same_key = job.attempt() == record.job.attempt();
        if active.record().waits_for_pilot(record.row_at, &job) {
            active.change_waiting(true, spec.order.hold().unwrap_or_default());
        }
        active.job_reopened(spec, &record.job);
        active.note_perhaps_sent(&record.job, &job, &spec.order);
        active.uncancel();
        self.open_queued(JobRecord { job: *job, ..record.clone() }, spec.clone());
        QueuedAgain::Yes { same_key }
    }

    /// Lets a waiting job cost more, or less, than its row says. False: it does not wait, or not yet where it could be
    /// told.
    fn allow(&mut self, key: JobKey, max_credits: Option<Credits>) -> bool {
        if max_credits.is_none() {
            return false;
        }
        let is_next = |active: &ActiveBatch| active.holds(key.seq);
        if !self.jobs.contains_key(&key) && self.batches.get(&key.batch).is_some_and(is_next) {
            self.open_rows_up_to(key);
        }
        let Some(mut open) = self.jobs.get_mut(&key) else { return false };
        if !matches!(open.job().state(), State::Queued) {
            return false;
        }
        open.set_max_credits(max_credits);
        drop(open);
        self.prices.forget(&key);
        self.pending.job_changed(key);
        true
    }
}

/// Whether a job is queued again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueuedAgain {
    /// It has not ended, or its batch is not here.
    No,
    /// The service would refuse it again.
    Hopeless,
    /// It is paid for.
    Paid,
    /// Under the key that it had, or under a new one.
    Yes { same_key: bool },
}

/// Why a job that is queued again would expire at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiry {
    /// It missed its own deadline.
    OfItself,
    /// What its batch did not send in time is not sent any more.
    WithItsBatch,
}

/// Whether a job would expire at once if it was queued again.
fn expiry_after(batch: Option<&BatchRecord>, spec: &JobSpec, job: &Job, now: Now) -> Option<Expiry> {
    // No key would find its task, had a state that is gone sent it after all: queued again, it waits for a person.
    let waits_for_a_person =
        !spec.order.kind.is_keyed() && batch.is_some_and(|batch| batch.may_have_been_sent(spec.seq));
    if !waits_for_a_person && could_only_expire(&spec.order, job, now.wall) {
        return Some(Expiry::OfItself);
    }
    let expires = job.first_sent().is_none() && batch.is_some_and(|batch| batch.has_expired(now.wall));
    expires.then_some(Expiry::WithItsBatch)
}

/// Whether a retry of its batch queues a job again that has ended.
pub fn is_retried(batch: &BatchRecord, spec: &JobSpec, record: &JobRecord, now: Now) -> bool {
    expiry_after(Some(batch), spec, &record.job, now).is_none()
        && matches!(retried(spec, record, now), RetryVerdict::Yes(_))
}

/// Whether a job that failed is paid for and only was not downloaded.
pub fn is_paid_for(spec: &JobSpec, record: &JobRecord, now: Now) -> bool {
    matches!(retried(spec, record, now), RetryVerdict::Paid)
}

enum RetryVerdict {
    No,
    Hopeless,
    Paid,
    Yes(Box<Job>),
}

fn retried(spec: &JobSpec, record: &JobRecord, now: Now) -> RetryVerdict {
    if let State::Failed { fault, .. } = record.job.state()
        && retry_delay::is_hopeless(&fault.code, !record.job.present().inputs().is_empty())
    {
        return RetryVerdict::Hopeless;
    }
    let terms = AttemptRules { attempts: u32::MAX, keyed: spec.order.kind.is_keyed() };
    let attempt = record.job.attempt();
    match lifecycle::apply(&record.job, attempt, Event::Retry, terms, now.wall) {
        Ok(transition) if lifecycle::wants(transition.job.state()) == Want::Admission => {
            RetryVerdict::Yes(Box::new(transition.job))
        }
        Err(IllegalEvent::Misplaced { .. }) if matches!(record.job.state(), State::Failed { .. }) => {
            RetryVerdict::Paid
        }
        Ok(_) | Err(_) => RetryVerdict::No,
    }
}
