//! Resolving a job in doubt: a person found out what it was charged.

use crate::domain::credits::Credits;
use crate::domain::ids::AttemptNo;
use crate::domain::job::State;
use crate::domain::lifecycle::Event;
use crate::domain::time::Now;
use crate::engine::scheduler::commands::FoundJob;
use crate::engine::scheduler::parts::active_batch::SKIPPED_MAX;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{CommandOutcome, Mode, Scheduler, SchedulerError};

impl Scheduler {
    /// What a person found out of a job that may have been sent ends it where it stands in the queue.
    fn resolve_queued(
        &mut self,
        (spec, record): FoundJob,
        charged: Credits,
        now: Now,
    ) -> Result<CommandOutcome, SchedulerError> {
        let key = record.key;
        let attempt = self.jobs.get(&key).map_or(record.job.attempt(), |open| open.job().attempt());
        if !self.jobs.contains_key(&key) {
            let Some(active) = self.batches.get_mut(&key.batch) else { return Ok(CommandOutcome::default()) };
            if !active.skip(spec.seq) {
                let refused = format!("{SKIPPED_MAX} jobs of its batch have ended before their turn already");
                return Ok(CommandOutcome::refused(refused));
            }
            let mut record = record;
            record.job.mark_may_have_been_sent();
            self.open_queued(record, spec);
        }
        self.apply(key, attempt, Event::Resolve(charged), now)?;
        Ok(CommandOutcome { jobs: 1, ..CommandOutcome::default() })
    }

    pub(super) fn resolve(
        &mut self,
        (spec, record): FoundJob,
        asked: Option<AttemptNo>,
        charged: Credits,
        now: Now,
    ) -> Result<CommandOutcome, SchedulerError> {
        let key = record.key;
        let is_open = self.jobs.contains_key(&key);
        let job = self.jobs.get(&key).map_or(&record.job, |open| open.job());
        let is_of_present = asked.is_none_or(|no| no == job.attempt());
        let is_believable = charged <= Credits::TASK_MAX;
        if is_believable
            && is_of_present
            && matches!(job.state(), State::Queued)
            && self.may_have_been_sent(&key)
        {
            return self.resolve_queued((spec, record), charged, now);
        }
        let (attempt, has_task) = match job.attempt_to_resolve(asked, charged) {
            Ok(attempt) => (attempt.no(), attempt.task().is_some()),
            Err(refused) => {
                return Ok(CommandOutcome::refused(refused));
            }
        };
        // An answer that is on its way would come to an attempt that is over. Without a process none is: what was due when the
        // state was opened was not begun.
        if self.mode != Mode::Free && self.jobs.get(&key).is_some_and(|open| open.is_attempt_busy(attempt)) {
            let refused = "a request about it is under way; repeat the command in a moment".to_owned();
            return Ok(CommandOutcome::refused(refused));
        }
        if !is_open {
            let Some(active) = self.batches.get_mut(&key.batch) else { return Ok(CommandOutcome::default()) };
            active.job_reopened(&spec, &record.job);
            self.jobs.insert(OpenJob::new(record, spec));
        }
        let is_another = self.jobs.get(&key).is_some_and(|open| open.job().attempt() != attempt);
        self.apply(key, attempt, Event::Resolve(charged), now)?;
        let is_watched = |open: &OpenJob| open.job().watched_attempts().next().is_some();
        let is_one_of_several = is_another || self.jobs.get(&key).is_some_and(is_watched);
        let one_of_several = is_one_of_several.then_some(attempt.0);
        Ok(CommandOutcome { jobs: 1, one_of_several, has_task, ..CommandOutcome::default() })
    }
}
