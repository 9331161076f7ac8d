//! Out of the queue: candidates for admission, and rows for the windows.

use crate::domain::admission::{self, Admission, Board, Candidate, InFlight, Limits, Parked, Waiting};
use crate::domain::credits::Credits;
use crate::domain::ids::{JobKey, Seq};
use crate::domain::job::{Job, Order};
use crate::domain::lifecycle::{Event, Want};
use crate::domain::manifest::row::Deadline;
use crate::domain::time::Now;
use crate::engine::conductor::{
    ADMIT_MAX, BatchDesk, Conductor, ConductorError, Effect, OpenJob, SpooledRow,
};
use crate::store::{JobRecord, Segment};

/// Rows of a batch that wait in memory for their turn.
const WINDOW_ROWS: usize = 64;
/// Jobs of a batch that were passed over because they fit no budget, or wait for another attempt.
const PASSED_OVER_MAX: usize = 256;
/// Jobs of a batch that are looked at for those: others wait for a kind or a model without a free slot.
const LOOKED_AT_MAX: usize = 1_024;

impl Conductor {
    /// Lets jobs out; nothing is returned where nothing was decided.
    pub(super) fn admit(&mut self, now: Now) -> Result<Option<Admission>, ConductorError> {
        // Whatever else keeps the queue: a wait that is over is no reason to wake up.
        self.crowded_until = self.throttle.wait_until().filter(|until| now.tick < *until);
        if self.stopping || self.held_back || self.key_is_refused() {
            return Ok(None);
        }
        let is_low = self.disk_is_low.then_some(Parked::Disk);
        self.desks.for_each_busy(|desk| {
            // What is left of an expired batch may have been sent: it waits for a person.
            let is_kept = desk.record.paused.is_some() || desk.has_expired(now);
            desk.parked = is_low.or(is_kept.then_some(Parked::Paused));
        });
        if self.disk_is_low {
            return Ok(None);
        }
        // Outputs that pile up because the disk or the result host is slow hold back new work. What is
        // overdue does not: its slot is free.
        let tally = self.jobs.tally();
        let open = (tally.in_flight.all + tally.fetching()) as usize;
        let backlog = self.settings.limits.in_flight as usize * 2 + self.settings.downloads;
        if open >= backlog || tally.in_flight.all >= self.throttle.slots(now.tick) {
            return Ok(None);
        }
        let board = self.board(now);
        if board.waiting.is_empty() {
            return Ok(None);
        }
        let decision = admission::admit(board, ADMIT_MAX.min(backlog - open));
        if decision.admitted.len() >= ADMIT_MAX {
            self.pending.turn.wake = Some(now.tick);
        }
        for (batch, parked) in &decision.parked {
            if let Some(desk) = self.desks.get_mut(batch) {
                desk.parked = Some(*parked);
                desk.say_parked(*parked);
            }
        }
        for candidate in &decision.admitted {
            self.last_served = candidate.key.batch;
            self.spend(candidate.wanted());
            self.send(candidate, now)?;
            // One that could only be late ended instead: its slot is free for the next, without waiting for news.
            if !self.jobs.contains_key(&candidate.key) {
                self.pending.turn.wake = Some(now.tick);
            }
        }
        Ok(Some(decision))
    }

    pub(super) fn board(&self, now: Now) -> Board {
        let mut limits = self.settings.limits.clone();
        limits.in_flight = self.throttle.slots(now.tick);
        let counted = &self.jobs.tally().in_flight;
        let limited = limits.in_flight_per_model.keys();
        let by_model = limited.filter_map(|model| Some((model.clone(), *counted.by_model.get(model)?)));
        let in_flight =
            InFlight { all: counted.all, by_kind: counted.by_kind.clone(), by_model: by_model.collect() };
        // Batches after the one served last come first, then the others.
        let desks = self.desks.busy_after(self.last_served).filter(|desk| desk.record.paused.is_none());
        let waiting = desks.filter_map(|desk| self.waiting(desk, &limits, &in_flight, now)).collect();
        let day = self.days.get(&now.wall.utc_day()).copied().unwrap_or_default();
        let (balance, balance_age) = self.balance_left(now);
        let out_of_credits = self.account.block.out_of_credits.is_some();
        let (total, pools) = (self.total, self.pools(now));
        Board { limits, in_flight, total, day, balance, balance_age, out_of_credits, pools, waiting }
    }

    /// A batch as admission sees it: jobs that were passed over before, then rows that have not begun.
    fn waiting(&self, desk: &BatchDesk, limits: &Limits, in_flight: &InFlight, now: Now) -> Option<Waiting> {
        let batch = desk.record.no;
        let range = JobKey { batch, seq: Seq(0) }..=JobKey { batch, seq: Seq(u32::MAX) };
        let from_window = self.candidates.range(range.clone()).nth(PASSED_OVER_MAX - 1).is_none();
        let has_room = |order: &Order| in_flight.has_room(limits, order.kind, order.model.as_deref());
        let passed_over = self.candidates.range(range).take(LOOKED_AT_MAX);
        let has_expired = desk.has_expired(now);
        let passed_over: Vec<&OpenJob> = passed_over
            .filter_map(|key| self.jobs.get(key))
            // One that may have been sent is not dropped; it is not bought after its time either.
            .filter(|open| !has_expired || open.record.job.first_sent.is_some())
            .filter(|open| has_room(&open.spec.order))
            .take(PASSED_OVER_MAX)
            .collect();
        let begun = passed_over.iter().map(|open| (open.record.key, &open.spec, open.record.job.books.held));
        let is_skipped = |seq: &Seq| desk.record.skipped.contains(seq);
        // Canceled rows leave the window in order: those behind one that is kept wait for that.
        let is_canceled = |row: &SpooledRow| {
            row.at < desk.record.canceled_below && !desk.record.may_have_been_sent(row.spec.seq)
        };
        let rows = desk.window.iter().filter(|row| from_window && !has_expired && !is_canceled(row));
        let rows = rows.filter(|row| !is_skipped(&row.spec.seq));
        let rows = rows.map(|row| (JobKey { batch, seq: row.spec.seq }, &row.spec, Credits::ZERO));
        let candidates: Vec<Candidate> = begun
            .chain(rows)
            .filter_map(|(key, spec, held)| {
                let model = limits.counted_model(spec.order.model.as_deref()).map(str::to_owned);
                let (hold, allowance) = (spec.order.hold()?, self.allowance_of(&spec.order));
                Some(Candidate { key, kind: spec.order.kind, model, hold, held, allowance })
            })
            .collect();
        let first =
            passed_over.first().map(|open| &open.spec).or_else(|| desk.window.front().map(|row| &row.spec));
        let priority = first?.order.priority;
        let (budget, totals) = (desk.record.budget(), desk.record.totals);
        Some(Waiting { batch, priority, budget, totals, candidates })
    }

    /// Takes a candidate out of the queue and sets its hold aside; its POST leaves once that is
    /// durable.
    pub(super) fn send(&mut self, candidate: &Candidate, now: Now) -> Result<(), ConductorError> {
        let key = candidate.key;
        if !self.jobs.contains_key(&key) {
            self.begin_rows_up_to(key);
        }
        let Some(attempt) = self.jobs.get(&key).map(|open| open.record.job.attempt) else { return Ok(()) };
        if self.deadline_has_passed(key, now) {
            return self.apply(key, attempt, Event::Expire, now);
        }
        let event = Event::Admit { hold: candidate.hold, day: now.wall.utc_day() };
        self.apply(key, attempt, event, now)?;
        if let Some(desk) = self.desks.get_mut(&key.batch) {
            desk.say_unparked();
        }
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.in_flight_since = Some(now.tick);
        }
        self.watch_deadline(key);
        self.begin(key, Want::Post, now.tick);
        Ok(())
    }

    /// Whether a job that was never sent could only be late.
    fn deadline_has_passed(&self, key: JobKey, now: Now) -> bool {
        let Some(open) = self.jobs.get(&key) else { return false };
        let deadline = open.spec.order.deadline;
        open.record.job.first_sent.is_none() && matches!(deadline, Some(Deadline::At(at)) if at <= now.wall)
    }

    /// Rows leave the window in order. One that is passed over, because it fits no budget, begins as
    /// a queued job, so that the cursor can move on.
    pub(super) fn begin_rows_up_to(&mut self, key: JobKey) {
        let Some(desk) = self.desks.get_mut(&key.batch) else { return };
        let Some(index) = desk.segment() else { return };
        while let Some(row) = desk.window.pop_front() {
            let row_key = JobKey { batch: key.batch, seq: row.spec.seq };
            desk.record.segments[index].cursor = row.end;
            if desk.record.skipped.remove(&row.spec.seq) {
                continue;
            }
            let may_have_been_sent = desk.record.may_have_been_sent(row.spec.seq);
            let job = Job { may_have_been_sent, ..Job::queued() };
            let record = JobRecord { key: row_key, id: row.spec.id, row_at: row.at, job };
            let open = OpenJob::new(record, row.spec);
            self.candidates.insert(row_key);
            self.jobs.insert(row_key, open);
            self.pending.changed_jobs.insert(row_key);
            if row_key == key {
                break;
            }
        }
        self.pending.changed_batches.insert(key.batch);
    }

    /// Rows at the front whose jobs were canceled before their turn.
    pub(super) fn pass_over_skipped(&mut self) {
        let changed = &mut self.pending.changed_batches;
        self.desks.for_each_busy(|desk| {
            let Some(index) = desk.segment().filter(|_| !desk.record.skipped.is_empty()) else { return };
            while let Some(row) = desk.window.front()
                && desk.record.skipped.remove(&row.spec.seq)
            {
                desk.record.segments[index].cursor = row.end;
                desk.window.pop_front();
                changed.insert(desk.record.no);
            }
        });
    }

    pub(super) fn load_rows(&mut self) {
        if self.stopping {
            return;
        }
        let effects = &mut self.pending.turn.effects;
        self.desks.for_each_busy(|desk| {
            if desk.loading || desk.window.len() > WINDOW_ROWS / 2 {
                return;
            }
            let Some(index) = desk.segment() else { return };
            let Segment { cursor, end, .. } = desk.record.segments[index];
            let from = desk.window.back().map_or(cursor, |row| row.end);
            if from < end {
                desk.loading = true;
                let batch = desk.record.no;
                effects.push(Effect::LoadRows { batch, from, end, most: WINDOW_ROWS });
            }
        });
    }
}
