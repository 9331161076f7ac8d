//! What can be seen from outside.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::admission::Parked;
use crate::domain::ids::BatchNo;
use crate::domain::job::State;
use crate::domain::lifecycle::{self, Want};
use crate::engine::conductor::{BatchOverview, Conductor, Desk, OpenJob, Standstill};
use crate::store::{BatchRecord, JobRecord};

impl Conductor {
    /// Why nothing will move by itself any more; nothing while something will.
    pub fn standstill(&self) -> Option<Standstill> {
        let busy = self.jobs.values().any(|open| open.busy);
        if busy || self.asking_balance || self.desks.values().any(|desk| desk.loading) {
            return None;
        }
        if self.desks.values().all(|desk| desk.record.is_done()) {
            return Some(Standstill::Done);
        }
        if self.stopping {
            return Some(Standstill::Stopped);
        }
        let moving = |open: &OpenJob| match lifecycle::wants(&open.record.job.state) {
            // One that waits for its next attempt.
            Want::Admission | Want::Post if self.held_back => false,
            Want::Admission => open.due.is_some() && self.gate.is_none(),
            Want::Nothing => false,
            // An overdue one is waited for until it was tried once since the start.
            Want::Post => self.gate.is_none() && (!open.record.job.overdue || open.faults == 0),
            Want::Read => !self.key_is_refused() && (!open.record.job.overdue || open.task_since.is_none()),
            Want::Fetch => !self.disk_is_low,
        };
        if self.jobs.values().any(moving) {
            return None;
        }
        if self.held_back {
            return Some(Standstill::Done);
        }
        if self.disk_is_low {
            return Some(Standstill::Parked(Parked::Disk));
        }
        if let Some(gate) = self.gate {
            return Some(Standstill::Parked(gate.parked));
        }
        let waits = |desk: &Desk| !desk.window.is_empty() || desk.segment().is_some();
        let queued: BTreeSet<BatchNo> = self
            .jobs
            .values()
            .filter(|open| matches!(open.record.job.state, State::Queued))
            .map(|open| open.record.key.batch)
            .collect();
        let with_queue = self.desks.iter().filter(|(no, desk)| waits(desk) || queued.contains(no));
        let parked = with_queue.map(|(_, desk)| desk.parked);
        // A batch whose queue is not parked waits for something that will come.
        let parked: Vec<Parked> = parked.collect::<Option<_>>()?;
        Some(parked.first().map_or(Standstill::Overdue, |first| Standstill::Parked(*first)))
    }

    /// Every batch in numbers, oldest first.
    pub fn overview(&self) -> Vec<BatchOverview> {
        let mut open: BTreeMap<BatchNo, Vec<&'static str>> = BTreeMap::new();
        for job in self.jobs.values() {
            open.entry(job.record.key.batch).or_default().push(job.record.job.state.name());
        }
        let gate = self.gate.map(|gate| gate.parked);
        let overview = |(no, desk): (&BatchNo, &Desk)| {
            let overview = batch_overview(&desk.record, open.remove(no).unwrap_or_default().into_iter());
            BatchOverview { parked: gate.or(desk.parked).or(overview.parked), ..overview }
        };
        self.desks.iter().map(overview).collect()
    }

    /// A batch's record as it stands.
    pub fn batch(&self, no: BatchNo) -> Option<&BatchRecord> {
        self.desks.get(&no).map(|desk| &desk.record)
    }

    /// Every batch's record as it stands.
    pub fn batches(&self) -> impl Iterator<Item = &BatchRecord> {
        self.desks.values().map(|desk| &desk.record)
    }

    /// Every open job as it stands.
    pub fn open_jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.values().map(|open| &open.record)
    }

    /// How many jobs may be in flight, as learned so far.
    pub fn present_limit(&self) -> u32 {
        self.throttle.present()
    }
}

/// A batch in numbers, from its record and the states of its open jobs.
pub fn batch_overview(record: &BatchRecord, states: impl Iterator<Item = &'static str>) -> BatchOverview {
    let mut open: BTreeMap<&'static str, u32> = BTreeMap::new();
    states.for_each(|state| *open.entry(state).or_default() += 1);
    let begun: u32 = open.values().sum();
    let parked = record.paused.map(|_| Parked::Paused);
    let not_begun = record.rows.saturating_sub(begun + record.ended.all());
    *open.entry("queued").or_default() += not_begun;
    let ended = record.ended;
    let states = [
        ("queued", open.get("queued").copied().unwrap_or_default()),
        ("submitting", open.get("submitting").copied().unwrap_or_default()),
        ("running", open.get("running").copied().unwrap_or_default()),
        ("fetching", open.get("fetching").copied().unwrap_or_default()),
        ("succeeded", ended.succeeded),
        ("failed", ended.failed),
        ("canceled", ended.canceled),
        ("expired", ended.expired),
        ("in_doubt", ended.in_doubt),
    ];
    let states = states.into_iter().filter(|(_, n)| *n > 0).collect();
    BatchOverview {
        name: record.name.clone(),
        rows: record.rows,
        states,
        planned: record.planned,
        totals: record.totals,
        parked,
    }
}
