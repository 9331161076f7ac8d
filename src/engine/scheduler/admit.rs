//! Out of the queue: candidates for admission, and rows for the windows.

use std::collections::BTreeMap;

use crate::domain::admission::{
    self, Admission, AdmissionInput, Candidate, GroupBooks, InFlight, WaitingBatch,
};
use crate::domain::budget_group::Group;
use crate::domain::ids::{BatchNo, JobKey};
use crate::domain::lifecycle::{Event, Want};
use crate::domain::parked_reason::Parked;
use crate::domain::task::Fault;
use crate::domain::time::Now;
use crate::domain::utc_day::UtcDay;
use crate::engine::scheduler::missed_deadlines::could_only_be_late;
use crate::engine::scheduler::parts::admission_candidates::WaitingJobs;
use crate::engine::scheduler::parts::api_key_refusal::Call;
use crate::engine::scheduler::{ADMIT_MAX, Mode, Scheduler, SchedulerError};

impl Scheduler {
    /// Lets jobs out; nothing is returned where nothing was decided.
    pub(super) fn admit(&mut self, now: Now) -> Result<Option<Admission>, SchedulerError> {
        // Whatever else keeps the queue: a wait that is over is no reason to wake up.
        self.adaptive_limit.forget_past_wait(now.tick);
        if self.mode != Mode::Paying || !self.account.key_lets(Call::Post) {
            return Ok(None);
        }
        let disk = self.disk.is_low().then_some(Parked::Disk);
        let store = self.output_store.is_down().then_some(Parked::Store);
        let closed = disk.or(store).or((!self.scratch.has_room()).then_some(Parked::Scratch));
        let jobs = &self.jobs;
        self.batches.for_each(|active| {
            // What is left of an expired batch may have been sent: it waits for a person.
            let is_kept = active.record().paused.is_some() || active.has_expired(now);
            let waits_after_pilot = jobs.wait_after_pilot(active.record());
            if waits_after_pilot {
                active.log_parked(Parked::Pilot);
            }
            let kept = is_kept.then_some(Parked::Paused).or(waits_after_pilot.then_some(Parked::Pilot));
            active.keep(closed.or(kept));
        });
        // A batch that is kept is said to be, whether or not prices are known: none are asked for on its account.
        if closed.is_some() || !self.prices.are_known(now.tick) {
            self.batches.for_each(|active| active.park(None));
            return Ok(None);
        }
        // Outputs that pile up because the disk or the result host is slow hold back new work. What is
        // overdue does not: its slot is free.
        let counts = self.jobs.counts();
        let open = (counts.in_flight().all + counts.fetching()) as usize;
        let backlog = self.settings.limits.in_flight as usize * 2 + self.settings.downloads;
        if open >= backlog || counts.in_flight().all >= self.adaptive_limit.slots(now.tick) {
            // What was found of budgets before still stands, as long as something is under way that will change it.
            if open == 0 {
                self.batches.for_each(|active| active.park(None));
            }
            return Ok(None);
        }
        self.batches.for_each(|active| active.park(None));
        self.park_by_inputs();
        let (board, too_dear) = self.board(self.in_flight(), now);
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
                active.park(Some(*parked));
                active.log_parked(*parked);
            }
        }
        for candidate in &decision.admitted {
            self.batches.served(candidate.key.batch);
            self.account.spend(candidate.hold);
            self.send(candidate, now)?;
            if self.jobs.get(&candidate.key).is_some_and(|open| !open.spec().order.files.is_empty()) {
                self.input_store.let_out();
            }
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
                self.open_rows_up_to(key);
            }
            let Some(attempt) = self.jobs.get(&key).map(|open| open.job().attempt()) else { continue };
            self.prices.forget(&key);
            self.apply(key, attempt, Event::Refuse(fault), now)?;
        }
        // What waits behind them takes its turn.
        self.pending.wake_at(now.tick);
        Ok(())
    }

    /// Jobs in flight, as far as something limits them.
    pub(super) fn in_flight(&self) -> InFlight {
        let counted = self.jobs.counts().in_flight();
        let limited = self.settings.limits.in_flight_per_model.keys();
        let by_model = limited.filter_map(|model| Some((model.clone(), *counted.by_model.get(model)?)));
        InFlight { all: counted.all, by_kind: counted.by_kind.clone(), by_model: by_model.collect() }
    }

    /// What admission looks at beside so many jobs in flight, and the jobs that cost more than they may: those are left
    /// out.
    pub(super) fn board(&mut self, in_flight: InFlight, now: Now) -> (AdmissionInput, Vec<(JobKey, Fault)>) {
        let mut limits = self.settings.limits.clone();
        limits.in_flight = self.adaptive_limit.slots(now.tick);
        let waiting_jobs = WaitingJobs {
            batches: &self.batches,
            jobs: &self.jobs,
            account: &self.account,
            inputs: &self.inputs,
            files_room: self.input_store.room(now.tick),
            prices: &mut self.prices,
            budgets: &mut self.budgets,
            group_limits: &self.settings.group_limits,
            limits: &limits,
            in_flight: &in_flight,
            now,
        };
        let (waiting, too_dear) = waiting_jobs.collect();
        let (total, day) = (self.budgets.total(), self.budgets.day(now.wall.utc_day()));
        let groups = self.group_books(&waiting, now.wall.utc_day());
        let (balance, balance_age) = self.account.balance_left(now.tick);
        let out_of_credits = self.account.is_out_of_credits();
        let pools = self.account.pools(now.wall);
        let board = AdmissionInput {
            limits,
            in_flight,
            total,
            day,
            groups,
            balance,
            balance_age,
            out_of_credits,
            pools,
            waiting,
        };
        (board, too_dear)
    }

    /// What the groups have held and spent that waiting jobs count against.
    fn group_books(&self, waiting: &[WaitingBatch], today: UtcDay) -> BTreeMap<Group, GroupBooks> {
        let candidates = waiting.iter().flat_map(|batch| &batch.candidates);
        let groups = candidates.flat_map(|candidate| &candidate.groups).map(|limit| &limit.group);
        let books = |group: &Group| {
            let found = self.budgets.groups().get(group);
            (group.clone(), GroupBooks { total: found.total, day: found.of_day(today) })
        };
        groups.map(books).collect()
    }

    /// Which budgets keep which batches, where nothing is sent. Slots come free by themselves, so that it does not matter
    /// what is in flight.
    pub(super) fn out_of_budget(&mut self, now: Now) -> Vec<(BatchNo, Parked)> {
        admission::out_of_budget(self.board(InFlight::default(), now).0)
    }

    /// Takes a candidate out of the queue and sets its hold aside; its POST leaves once that is
    /// durable.
    fn send(&mut self, candidate: &Candidate, now: Now) -> Result<(), SchedulerError> {
        let key = candidate.key;
        if !self.jobs.contains_key(&key) {
            self.open_rows_up_to(key);
        }
        let Some(open) = self.jobs.get(&key) else { return Ok(()) };
        let attempt = open.job().attempt();
        if could_only_be_late(open, now) {
            return self.apply(key, attempt, Event::Expire, now);
        }
        let release = candidate.release;
        let order = &open.spec().order;
        // What an earlier attempt cost by its length says nothing of what this one is held at.
        let was = if order.has_open_length() { order.hold() } else { open.job().hold(order) };
        let was = was.filter(|was| *was != release.hold);
        self.prices.released(key, release);
        self.apply(key, attempt, Event::Price { release, was }, now)?;
        if !candidate.held.is_zero() && !candidate.is_held_today {
            self.apply(key, attempt, Event::ReleaseHold, now)?;
        }
        let event = Event::Admit { hold: candidate.hold, day: now.wall.utc_day() };
        self.apply(key, attempt, event, now)?;
        if let Some(active) = self.batches.get_mut(&key.batch) {
            active.log_unparked();
        }
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.set_in_flight(now.tick);
        }
        self.set_deadline_timer(key, attempt);
        self.begin(key, attempt, Want::Post, now.tick);
        Ok(())
    }

    /// Rows at the front whose jobs were canceled before their turn.
    pub(super) fn pass_over_skipped(&mut self) {
        let pending = &mut self.pending;
        self.batches.for_each(|active| {
            if active.pass_over_skipped() {
                pending.batch_changed(active.record().no);
            }
        });
    }

    /// Reads rows where few are left in memory.
    pub(super) fn load_rows(&mut self) {
        if self.mode == Mode::Stopping {
            return;
        }
        let pending = &mut self.pending;
        self.batches.for_each(|active| {
            active.load_rows().into_iter().for_each(|effect| pending.begin(effect));
        });
    }
}
