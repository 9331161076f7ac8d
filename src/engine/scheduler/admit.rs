//! Out of the queue: candidates for admission, and rows for the windows.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::domain::admission::{
    self, Admission, AdmissionInput, Candidate, InFlight, Limits, Parked, WaitingBatch,
};
use crate::domain::credits::Credits;
use crate::domain::ids::JobKey;
use crate::domain::job::{Job, JobSpec, Order};
use crate::domain::lifecycle::{Event, Want};
use crate::domain::manifest::row::Deadline;
use crate::domain::release_price::{Basis, Release, Withheld};
use crate::domain::request::Kind;
use crate::domain::task::Fault;
use crate::domain::time::Now;
use crate::engine::scheduler::parts::row_windows::{RowWindow, window_rows};
use crate::engine::scheduler::prices::above_max;
use crate::engine::scheduler::{
    ADMIT_MAX, ActiveBatch, Effect, OpenJob, Scheduler, SchedulerError, SpooledRow,
};
use crate::store::JobRecord;

/// Queued jobs of a batch past which no further row is passed over for one behind it: each that is costs a record.
const PASSED_OVER_MAX: u32 = 256;
/// Candidates of each class, at least.
const FRONT_MIN: usize = 4;

/// What decides whether a row can be sent.
fn needs(row: &SpooledRow) -> (Kind, Option<&str>, Option<Credits>) {
    let order = &row.spec.order;
    (order.kind, order.model.as_deref(), order.hold())
}

impl Scheduler {
    /// Lets jobs out; nothing is returned where nothing was decided.
    pub(super) fn admit(&mut self, now: Now) -> Result<Option<Admission>, SchedulerError> {
        // Whatever else keeps the queue: a wait that is over is no reason to wake up.
        self.adaptive_limit.forget_past_wait(now.tick);
        if self.stopping || self.sending_disabled || self.key_is_refused() {
            return Ok(None);
        }
        let is_low = self.disk.is_low().then_some(Parked::Disk);
        self.batches.for_each(|active| {
            // What is left of an expired batch may have been sent: it waits for a person.
            let is_kept = active.record.paused.is_some() || active.has_expired(now);
            active.parked = is_low.or(is_kept.then_some(Parked::Paused));
        });
        // A batch that is kept is said to be, whether or not prices are known: none are asked for on its account.
        if self.disk.is_low() || !self.prices_are_known(now) {
            return Ok(None);
        }
        // Outputs that pile up because the disk or the result host is slow hold back new work. What is
        // overdue does not: its slot is free.
        let counts = self.jobs.counts();
        let open = (counts.in_flight().all + counts.fetching()) as usize;
        let backlog = self.settings.limits.in_flight as usize * 2 + self.settings.downloads;
        if open >= backlog || counts.in_flight().all >= self.adaptive_limit.slots(now.tick) {
            return Ok(None);
        }
        let mut too_dear = Vec::new();
        let board = self.board_with(now, &mut too_dear);
        if !too_dear.is_empty() {
            self.refuse(too_dear, now)?;
            return Ok(None);
        }
        if board.waiting.is_empty() {
            return Ok(None);
        }
        let decision = admission::admit(board, ADMIT_MAX.min(backlog - open));
        if decision.admitted.len() >= ADMIT_MAX {
            self.pending.wake_at(now.tick);
        }
        for (batch, parked) in &decision.parked {
            if let Some(active) = self.batches.get_mut(batch) {
                active.parked = Some(*parked);
                active.log_parked(*parked);
            }
        }
        for candidate in &decision.admitted {
            self.batches.served(candidate.key.batch);
            self.spend(candidate.hold);
            self.send(candidate, now)?;
            // One that could only be late ended instead: its slot is free for the next, without waiting for news.
            if !self.jobs.contains_key(&candidate.key) {
                self.pending.wake_at(now.tick);
            }
        }
        Ok(Some(decision))
    }

    /// Ends jobs that cost more than they may.
    fn refuse(&mut self, too_dear: Vec<(JobKey, Fault)>, now: Now) -> Result<(), SchedulerError> {
        for (key, fault) in too_dear.into_iter().take(ADMIT_MAX) {
            if !self.jobs.contains_key(&key) {
                self.begin_rows_up_to(key);
            }
            let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) else { continue };
            self.prices.forget(&key);
            self.apply(key, attempt, Event::Refuse(fault), now)?;
        }
        // What waits behind them takes its turn.
        self.pending.wake_at(now.tick);
        Ok(())
    }

    pub(super) fn board(&self, now: Now) -> AdmissionInput {
        self.board_with(now, &mut Vec::new())
    }

    /// What admission looks at; jobs that cost more than they may are left out, and told in `too_dear`.
    fn board_with(&self, now: Now, too_dear: &mut Vec<(JobKey, Fault)>) -> AdmissionInput {
        let mut limits = self.settings.limits.clone();
        limits.in_flight = self.adaptive_limit.slots(now.tick);
        let counted = self.jobs.counts().in_flight();
        let limited = limits.in_flight_per_model.keys();
        let by_model = limited.filter_map(|model| Some((model.clone(), *counted.by_model.get(model)?)));
        let in_flight =
            InFlight { all: counted.all, by_kind: counted.by_kind.clone(), by_model: by_model.collect() };
        // Batches after the one served last come first, then the others.
        let batches = self.batches.in_turn().filter(|active| active.record.paused.is_none());
        let free = limits.in_flight.saturating_sub(in_flight.all) as usize;
        let most = free.clamp(FRONT_MIN, ADMIT_MAX);
        let waiting = batches
            .filter_map(|active| self.waiting(active, &limits, &in_flight, most, now, too_dear))
            .collect();
        let day = self.budgets.day(now.wall.utc_day());
        let (balance, balance_age) = self.balance_left(now);
        let out_of_credits = self.account.block.out_of_credits.is_some();
        let (total, pools) = (self.budgets.total(), self.pools(now));
        AdmissionInput { limits, in_flight, total, day, balance, balance_age, out_of_credits, pools, waiting }
    }

    /// A batch as admission sees it: of each class the first few jobs that were open before, then of each class the
    /// first few rows that have not begun, in order. Not more of each than may be sent: if those do not fit, no other
    /// of their class does.
    fn waiting(
        &self,
        active: &ActiveBatch,
        limits: &Limits,
        in_flight: &InFlight,
        most: usize,
        now: Now,
        too_dear: &mut Vec<(JobKey, Fault)>,
    ) -> Option<WaitingBatch> {
        let batch = active.record.no;
        let has_room = |order: &Order| in_flight.has_room(limits, order.kind, order.model.as_deref());
        let has_expired = active.has_expired(now);
        let begun = self.jobs.candidates(batch, most);
        // One that may have been sent is not dropped; it is not bought after its time either.
        let begun = begun.filter(|open| !has_expired || open.job().first_sent().is_some());
        let begun = begun.map(|open| (false, open.spec()));
        let rows = if has_expired { Vec::new() } else { self.rows_at_the_front(active, most) };
        let rows = rows.into_iter().map(|spec| (true, spec));
        let mut specs: Vec<(bool, &Arc<JobSpec>)> =
            begun.chain(rows).filter(|(_, spec)| has_room(&spec.order)).collect();
        specs.sort_by_key(|(is_row, spec)| (Reverse(spec.order.priority), *is_row, spec.seq));
        let mut lacks_price = false;
        let mut candidates = Vec::with_capacity(specs.len());
        for (_, spec) in specs {
            let key = JobKey { batch, seq: spec.seq };
            match self.candidate(key, spec, limits) {
                Ok(candidate) => candidates.push(candidate),
                Err(withheld) => match above_max(&withheld, &active.record.name, &spec.label) {
                    // What may have been sent may have been charged, too.
                    Some(fault) if !self.may_be_charged(key) => too_dear.push((key, fault)),
                    _ => lacks_price = true,
                },
            }
        }
        let (budget, totals) = (active.record.budget(), active.record.totals);
        let awaits_charge = self.waits_for_a_charge(batch);
        let waits = !candidates.is_empty() || lacks_price;
        waits.then_some(WaitingBatch { batch, budget, totals, awaits_charge, lacks_price, candidates })
    }

    /// A waiting job as admission sees it, at the price in force.
    fn candidate(&self, key: JobKey, spec: &JobSpec, limits: &Limits) -> Result<Candidate, Withheld> {
        let order = &spec.order;
        let job = self.jobs.get(&key).map(|open| open.job());
        let held = job.map(|job| job.books().held).unwrap_or_default();
        let Release { hold, basis } =
            self.prices.decide(key, order, job.and_then(|job| job.max_credits()))?;
        Ok(Candidate {
            key,
            priority: order.priority,
            kind: order.kind,
            model: limits.counted_model(order.model.as_deref()).map(str::to_owned),
            hold: hold.max(held),
            held,
            allowance: self.allowance_of(order),
            is_unbounded: basis == Basis::MaxCredits,
        })
    }

    fn may_be_charged(&self, key: JobKey) -> bool {
        self.jobs.get(&key).is_some_and(|open| open.job().may_have_been_sent())
    }

    /// The first rows of each window; of a mixed one all, since any may fit where the first does not.
    fn rows_at_the_front<'a>(&self, active: &'a ActiveBatch, most: usize) -> Vec<&'a Arc<JobSpec>> {
        let ActiveBatch { record, windows, .. } = active;
        // The order of the manifest is only known once every window shows its first row.
        if windows.iter().any(|window| window.rows.is_empty() && window.unread(&record.segments).is_some()) {
            return Vec::new();
        }
        let is_crowded = self.jobs.counts().queued_of(record.no) >= PASSED_OVER_MAX;
        // Canceled rows leave the window in order: whatever is behind one waits for that.
        let is_canceled =
            |row: &SpooledRow| row.at < record.canceled_below && !record.may_have_been_sent(row.spec.seq);
        let front = |window: &'a RowWindow| {
            let first = window.rows.front().map(needs);
            let most = if window.is_mixed() { usize::MAX } else { most };
            // A row that is passed over costs a record: with many of them, only rows that pass none are sent.
            let goes = |row: &&SpooledRow| !is_canceled(row) && (!is_crowded || Some(needs(row)) == first);
            let rows = window.rows.iter().take_while(goes);
            let rows = rows.filter(|row| !record.skipped.contains(&row.spec.seq));
            rows.map(|row| &row.spec).take(most).collect::<Vec<_>>()
        };
        windows.iter().flat_map(front).collect()
    }

    /// Takes a candidate out of the queue and sets its hold aside; its POST leaves once that is
    /// durable.
    pub(super) fn send(&mut self, candidate: &Candidate, now: Now) -> Result<(), SchedulerError> {
        let key = candidate.key;
        if !self.jobs.contains_key(&key) {
            self.begin_rows_up_to(key);
        }
        let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) else { return Ok(()) };
        if self.deadline_has_passed(key, now) {
            return self.apply(key, attempt, Event::Expire, now);
        }
        self.let_out(key, attempt, now)?;
        let event = Event::Admit { hold: candidate.hold, day: now.wall.utc_day() };
        self.apply(key, attempt, event, now)?;
        if let Some(active) = self.batches.get_mut(&key.batch) {
            active.log_unparked();
        }
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.set_in_flight(now.tick);
        }
        self.watch_deadline(key);
        self.begin(key, Want::Post, now.tick);
        Ok(())
    }

    /// Whether a job that was never sent could only be late. One that may have been sent was perhaps sent in time.
    fn deadline_has_passed(&self, key: JobKey, now: Now) -> bool {
        let Some(open) = self.jobs.get(&key) else { return false };
        let (job, deadline) = (open.job(), open.spec().order.deadline);
        let was_never_sent = job.first_sent().is_none() && !job.may_have_been_sent();
        was_never_sent && matches!(deadline, Some(Deadline::At(at)) if at <= now.wall)
    }

    /// Rows leave a window in order. One that is passed over, because it fits no budget, begins as
    /// a queued job, so that the cursor can move on.
    pub(super) fn begin_rows_up_to(&mut self, key: JobKey) {
        let Some(ActiveBatch { record, windows, .. }) = self.batches.get_mut(&key.batch) else { return };
        let Some(window) = windows.iter_mut().find(|window| window.holds(key.seq)) else { return };
        while let Some(row) = window.pop(&mut record.segments) {
            let row_key = JobKey { batch: key.batch, seq: row.spec.seq };
            if record.skipped.remove(&row.spec.seq) {
                continue;
            }
            let job = match record.may_have_been_sent(row.spec.seq) {
                true => Job::queued_perhaps_sent(),
                false => Job::queued(),
            };
            let job = JobRecord { key: row_key, id: row.spec.id, row_at: row.at, job };
            self.jobs.insert(OpenJob::new(job, row.spec));
            self.jobs.queue(row_key);
            self.pending.job_changed(row_key);
            if row_key == key {
                break;
            }
        }
        self.pending.batch_changed(key.batch);
    }

    /// Rows at the front whose jobs were canceled before their turn.
    pub(super) fn pass_over_skipped(&mut self) {
        let pending = &mut self.pending;
        self.batches.for_each(|ActiveBatch { record, windows, .. }| {
            if record.skipped.is_empty() {
                return;
            }
            for window in windows {
                while let Some(row) = window.rows.front()
                    && record.skipped.remove(&row.spec.seq)
                {
                    window.pop(&mut record.segments);
                    pending.batch_changed(record.no);
                }
            }
        });
    }

    pub(super) fn load_rows(&mut self) {
        if self.stopping {
            return;
        }
        let pending = &mut self.pending;
        self.batches.for_each(|ActiveBatch { record, windows, .. }| {
            windows.retain_mut(|window| window.advance(&record.segments));
            let most = window_rows(windows.len());
            for window in windows {
                if window.loading || window.rows.len() > most / 2 {
                    continue;
                }
                if let Some((from, end)) = window.unread(&record.segments) {
                    window.loading = true;
                    pending.begin(Effect::LoadRows { batch: record.no, from, end, most });
                }
            }
        });
    }
}
