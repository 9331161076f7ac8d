//! Jobs that were dropped before the export of their batch and had not ended by then: their request had not been sent.
//! They end as they would have. Others that have not begun may have been sent since.

use crate::domain::ids::{AttemptNo, JobKey};
use crate::domain::job::{Job, JobSpec, State};
use crate::domain::lifecycle::{self, AttemptRules, Event};
use crate::domain::row_versions::RowVersions;
use crate::domain::time::Timestamp;
use crate::store::unopened_state::NewState;
use crate::store::{BatchRecord, JobRecord, Snapshot, StoreError};

/// Rows of a batch that are passed over one by one at most: their numbers travel with its record.
const SKIPPED_MAX: usize = 1000;
/// Outcomes that are written at once.
const WRITTEN_MAX: usize = 10_000;

/// A batch of which dropped jobs are ended.
struct Dropping<'a> {
    state: &'a NewState,
    batch: &'a mut BatchRecord,
    versions: RowVersions,
    ended: Vec<JobRecord>,
    now: Timestamp,
}

/// Ends the dropped jobs of all batches of an export, whose marks of earlier losses are still as they were.
pub(super) fn end_all(state: &NewState, records: &mut Snapshot, now: Timestamp) -> Result<(), StoreError> {
    let mut batches = std::mem::take(&mut records.batches);
    for batch in batches.iter_mut().filter(|batch| !batch.has_ended()) {
        let versions = state.row_versions(batch)?;
        let mut dropping = Dropping { state, batch, versions, ended: Vec::new(), now };
        dropping.open_jobs(records)?;
        dropping.rows(records)?;
        dropping.write(records)?;
        if batch.is_done() {
            batch.finished = Some(now);
        }
    }
    records.batches = batches;
    Ok(())
}

impl Dropping<'_> {
    /// What has begun and waits in the queue.
    fn open_jobs(&mut self, records: &mut Snapshot) -> Result<(), StoreError> {
        let (of_batch, others): (Vec<JobRecord>, Vec<JobRecord>) =
            std::mem::take(&mut records.open).into_iter().partition(|open| open.key.batch == self.batch.no);
        records.open = others;
        for open in of_batch {
            let is_unsent = matches!(open.job.state(), State::Queued) && !open.job.may_have_been_sent();
            let ended = match self.reason(&open, self.batch.canceled).filter(|_| is_unsent) {
                Some(event) => self.end(&open, event, &self.state.spec_of(&open)?),
                None => None,
            };
            match ended {
                Some(ended) if ended.job.is_over() => self.ended.push(ended),
                Some(goes_on) => records.open.push(goes_on),
                None => records.open.push(open),
            }
        }
        records.open.sort_by_key(|open| open.key);
        Ok(())
    }

    /// What has not begun. Rows before the first that stays are passed for good, and some of the others.
    fn rows(&mut self, records: &mut Snapshot) -> Result<(), StoreError> {
        for index in 0..self.batch.segments.len() {
            let segment = &self.batch.segments[index];
            if segment.is_through() || !self.batch.may_send(segment) {
                continue;
            }
            let mut rows = self.state.spool(self.batch.no).rows(segment.cursor, segment.end)?;
            let mut is_front = true;
            while let Some((at, spec)) = rows.next_line::<JobSpec>()? {
                let is_skipped = self.batch.skipped.contains(&spec.seq);
                if !is_skipped {
                    let has_room = is_front || self.batch.skipped.len() < SKIPPED_MAX;
                    let key = JobKey { batch: self.batch.no, seq: spec.seq };
                    let row = JobRecord { key, id: spec.id, row_at: at, job: Job::queued() };
                    let is_unsent = has_room && !self.batch.may_have_been_sent(spec.seq);
                    let reason = self.reason(&row, at < self.batch.canceled_below).filter(|_| is_unsent);
                    let Some(ended) = reason.and_then(|event| self.end(&row, event, &spec)) else {
                        is_front = false;
                        continue;
                    };
                    self.ended.push(ended);
                }
                if is_front {
                    self.batch.skipped.remove(&spec.seq);
                    self.batch.segments[index].cursor = rows.at();
                } else {
                    self.batch.skipped.insert(spec.seq);
                }
                if self.ended.len() >= WRITTEN_MAX {
                    self.write(records)?;
                }
            }
        }
        Ok(())
    }

    /// Why a job that was not sent had been dropped, if it had: `is_canceled` tells whether its owner had canceled it, or its
    /// batch had expired.
    fn reason(&self, job: &JobRecord, is_canceled: bool) -> Option<Event> {
        let has_expired = self.batch.has_expired(self.now);
        match is_canceled {
            true if has_expired && !self.batch.canceled => Some(Event::Expire),
            true => Some(Event::Cancel),
            false => self.versions.is_superseded(job.key.seq).then_some(Event::Replace),
        }
    }

    fn end(&mut self, record: &JobRecord, reason: Event, spec: &JobSpec) -> Option<JobRecord> {
        let rules = AttemptRules { attempts: 1, keyed: spec.order.kind.is_keyed() };
        let attempt: AttemptNo = record.job.attempt();
        let job = lifecycle::apply(&record.job, attempt, reason, rules, self.now).ok()?.job;
        if job.is_over() {
            let is_superseded = self.versions.is_superseded(spec.seq);
            self.batch.count_ended((spec.seq, spec.order.kind), job.state(), is_superseded);
            self.batch.replaced = self.batch.replaced + self.batch.unspent_of(&job, &spec.order);
        }
        Some(JobRecord { job, ..record.clone() })
    }

    fn write(&mut self, records: &mut Snapshot) -> Result<(), StoreError> {
        let ended = std::mem::take(&mut self.ended);
        if ended.is_empty() { Ok(()) } else { self.state.add_outcomes(self.batch.no, &ended, records) }
    }
}
