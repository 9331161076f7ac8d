//! Edited rows: of a row's versions one is wanted. Another one that was not sent is dropped, and gets no further attempt.

use crate::domain::ids::{AttemptNo, BatchNo, JobKey};
use crate::domain::job::Job;
use crate::domain::lifecycle::{self, AttemptRules, Event, Transition};
use crate::domain::row_versions::RowVersions;
use crate::domain::time::Now;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::attention::Attention;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{
    AppliedVersions, Effect, EndedVersion, Mode, RenamedJob, Scheduler, SchedulerError, SpooledRow,
};
use crate::store::JobRecord;

/// Jobs of a batch that a step drops at most, so that its commit stays small.
const DROPPED_MAX: usize = 64;

impl Scheduler {
    /// Takes up which versions of the edited rows of a batch are wanted.
    pub fn set_versions(&mut self, no: BatchNo, versions: RowVersions) {
        if let Some(active) = self.batches.get_mut(&no) {
            active.set_versions(versions);
        }
    }

    /// The same of a manifest that changed them: jobs of theirs that have ended count as superseded from now on, or do not
    /// any more.
    pub fn change_versions(&mut self, no: BatchNo, versions: RowVersions, ended: &[EndedVersion]) {
        let Some(active) = self.batches.get_mut(&no) else { return };
        let before = active.set_versions(versions);
        for version in ended {
            if !self.jobs.contains_key(&JobKey { batch: no, seq: version.seq }) {
                active.recount(version, before.is_superseded(version.seq));
            }
        }
    }

    /// Whether another version of a job's row is wanted.
    pub(super) fn is_superseded(&self, key: JobKey) -> bool {
        self.batches.get(&key.batch).is_some_and(|active| active.versions().is_superseded(key.seq))
    }

    /// Whether the versions of a job's row were changed since its download began.
    pub(super) fn is_named_anew(&self, key: JobKey, attempt: AttemptNo) -> bool {
        let Some((active, open)) = self.batches.get(&key.batch).zip(self.jobs.get(&key)) else {
            return false;
        };
        let is_edited = active.versions().is_edited(key.seq);
        is_edited && open.has_newer_versions(attempt, active.record().versions_bytes)
    }

    /// Drops what waits to be sent of versions that are not wanted any more, free of charge. What may have been sent by a
    /// state that is gone is in doubt: it is not sent to find out. Where its request was on its way, it goes on.
    pub(super) fn drop_replaced(&mut self, now: Now) -> Result<(), SchedulerError> {
        if self.mode == Mode::Stopping {
            return Ok(());
        }
        for no in self.batches.needing(Attention::IsEdited) {
            self.begin_replaced_rows(no);
            let queued = self.superseded_in_queue(no).into_iter().filter_map(|key| {
                let job = self.jobs.get(&key)?.job();
                let was_sent = job.may_have_been_sent() && !job.books().held.is_zero();
                (!was_sent).then_some((key, job.attempt()))
            });
            let queued: Vec<_> = queued.take(DROPPED_MAX).collect();
            for (key, attempt) in queued {
                self.apply(key, attempt, Event::Replace, now)?;
                // What waits behind it in the spool is looked at next.
                self.pending.wake_at(now.tick);
            }
        }
        Ok(())
    }

    /// The jobs of a batch that wait in the queue, also for their inputs, and of whose rows another version is wanted.
    fn superseded_in_queue(&self, no: BatchNo) -> Vec<JobKey> {
        let Some(active) = self.batches.get(&no) else { return Vec::new() };
        let versions = active.versions();
        // Whichever is less to look through: this is asked in each step.
        if versions.count_superseded() < self.jobs.counts().queued_of(no) as usize {
            let keys = versions.superseded().map(|seq| JobKey { batch: no, seq });
            return keys.filter(|key| self.jobs.get(key).is_some_and(OpenJob::is_queued)).collect();
        }
        let queued = self.jobs.all_candidates(no).into_iter().chain(self.inputs.waiting_of(no));
        queued.filter(|key| versions.is_superseded(key.seq)).collect()
    }

    /// Takes up what manifests went back to.
    pub(super) fn go_back(&mut self) {
        if self.mode == Mode::Stopping {
            return;
        }
        for no in self.batches.needing(Attention::GoesBack) {
            if let Some(from) = self.batches.get_mut(&no).and_then(ActiveBatch::begin_going_back) {
                self.pending.begin(Effect::GoBack { batch: no, from });
            }
        }
    }

    /// What a manifest went back to is taken up; outputs were renamed.
    pub(super) fn versions_applied(
        &mut self,
        applied: AppliedVersions,
        now: Now,
    ) -> Result<(), SchedulerError> {
        let AppliedVersions { batch, up_to, queued, renamed, as_of: _ } = applied;
        for RenamedJob { record, files, .. } in renamed {
            self.outputs_changed(&record, Event::Renamed(files), now)?;
        }
        for (spec, record) in queued {
            // It may be superseded again by now. Where its batch has expired, so does it.
            if !self.jobs.contains_key(&record.key) && !self.is_superseded(record.key) {
                self.prices.renew();
                self.queue_again(&spec, &record, now);
            }
        }
        if let Some(up_to) = up_to
            && let Some(active) = self.batches.get_mut(&batch)
        {
            active.went_back(up_to);
            self.pending.batch_changed(batch);
        }
        Ok(())
    }

    /// The outputs of a job that has succeeded were renamed or stored. True: they were its outputs.
    pub(super) fn outputs_changed(
        &mut self,
        record: &JobRecord,
        event: Event,
        now: Now,
    ) -> Result<bool, SchedulerError> {
        if let Some(open) = self.jobs.get(&record.key) {
            // One that is not done ends with the names that it finds then: `is_named_anew`. Of one that is, the task of
            // another attempt is watched.
            let (is_done, attempt) = (open.job().has_succeeded(), open.job().attempt());
            if is_done {
                self.apply(record.key, attempt, event, now)?;
            }
            return Ok(is_done);
        }
        // One that is open, in a batch that is left alone here, stays as it is.
        if !record.job.is_over() {
            return Ok(false);
        }
        let rules = AttemptRules { attempts: 0, keyed: true };
        let changed = lifecycle::apply(&record.job, record.job.attempt(), event, rules, now.wall);
        let Ok(Transition { job, .. }) = changed else { return Ok(false) };
        let JobRecord { key, id, row_at, .. } = *record;
        self.pending.outcome_changed(JobRecord { key, id, row_at, job });
        Ok(true)
    }

    /// Begins rows that wait in memory, only to end them.
    fn begin_replaced_rows(&mut self, no: BatchNo) {
        let Some(active) = self.batches.get_mut(&no) else { return };
        for SpooledRow { at, spec, .. } in active.replaced_rows(DROPPED_MAX) {
            let key = JobKey { batch: no, seq: spec.seq };
            // With too many that are passed over already, those at the front leave as if it were their turn.
            let Some(active) = self.batches.get_mut(&no) else { return };
            if active.skip(spec.seq) {
                let job = match active.record().may_have_been_sent(spec.seq) {
                    true => Job::queued_perhaps_sent(),
                    false => Job::queued(),
                };
                self.open_queued(JobRecord { key, id: spec.id, row_at: at, job }, spec);
            } else if active.is_at_front(spec.seq) {
                self.open_rows_up_to(key);
            }
        }
    }
}
