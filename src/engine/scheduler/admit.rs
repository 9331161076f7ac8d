//! Out of the queue: candidates for admission, and rows for the windows.

use std::collections::BTreeSet;

use crate::domain::admission::{
    self, Admission, AdmissionInput, Candidate, InFlight, Limits, Turn, WaitingBatch,
};
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchNo, JobKey};
use crate::domain::lifecycle::{Event, Want};
use crate::domain::parked_reason::Parked;
use crate::domain::remedy::could_only_expire;
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Now};
use crate::engine::scheduler::job_log;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::admission_candidates::{LookedAt, WaitingJobs, is_refused, turns};
use crate::engine::scheduler::parts::api_key_refusal::Call;
use crate::engine::scheduler::parts::attention::Attention;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{ADMIT_MAX, Mode, Scheduler, SchedulerError};

impl Scheduler {
    /// Lets jobs out; nothing is returned where nothing was decided.
    pub(super) fn admit(&mut self, now: Now) -> Result<Option<Admission>, SchedulerError> {
        // Whatever else keeps the queue: a wait that is over is no reason to wake up.
        self.adaptive_limit.forget_past_wait(now.tick);
        self.submit_rate.set_waiting(false, now.tick);
        if self.mode != Mode::Paying || !self.account.key_lets(Call::Post) {
            return Ok(None);
        }
        let disk = self.disk.is_low().then_some(Parked::Disk);
        // Whose outputs it refused has ended otherwise: nobody asks it again but the next one.
        if self.jobs.counts().fetching() == 0 && self.output_store.is_wanted_by_none() {
            job_log::queue_unparked(Parked::Store);
        }
        let store = self.output_store.refuses().then_some(Parked::Store);
        let closed = disk.or(store).or((!self.scratch.has_room()).then_some(Parked::Scratch));
        let (open, backlog) = self.backlog();
        let closed = closed.or(self.look_at_result_hosts(open, backlog).then_some(Parked::ResultHost));
        self.park_batches(closed, now);
        if closed.is_none() && (self.output_store.is_awaited() || self.output_store.is_unanswered()) {
            self.park_until_store_answers(now);
            return Ok(None);
        }
        // A batch that is parked is said to be, whether or not prices are known: none are asked for on its account.
        if closed.is_some() || !self.prices.are_known(now.tick) {
            self.unpark_batches();
            return Ok(None);
        }
        let counts = self.jobs.counts();
        let requests = self.requests_left();
        if open >= backlog || requests == 0 || counts.in_flight().all >= self.adaptive_limit.slots(now.tick) {
            // What was found of budgets before still stands, as long as something is under way that will change it.
            if open == 0 {
                self.unpark_batches();
            }
            return Ok(None);
        }
        let turns = turns(&mut self.batches, &self.jobs);
        self.unpark_where_nothing_waits(&turns);
        self.park_by_inputs();
        let submits = self.submit_rate.turns(now.tick);
        if submits == 0 {
            self.submit_rate.set_waiting(!turns.is_empty(), now.tick);
            return Ok(None);
        }
        let mut found = LookedAt::default();
        let (input, in_flight) = (self.admission_input(now), self.in_flight());
        let input = AdmissionInput { in_flight: in_flight.clone(), ..input };
        let limits = input.limits.clone();
        let mut waiting_jobs = self.waiting_jobs(&limits, &in_flight, now);
        let most = ADMIT_MAX.min(backlog - open).min(submits).min(requests);
        let decision = admission::admit(input, turns, |no| waiting_jobs.look_at(no, &mut found), most);
        self.read_first(&found.to_read, now);
        if !found.too_dear.is_empty() {
            self.refuse(found.too_dear, now)?;
            return Ok(None);
        }
        for no in &found.batches {
            // Of one that stands still nothing may be sent before its pilot is continued.
            if self.batches.get(no).is_some_and(|active| self.stands_still(active)) {
                continue;
            }
            self.unpark(*no);
            if is_refused(&self.jobs, *no)
                && let Some(active) = self.batches.get_mut(no)
            {
                active.park_next(Some(Parked::Store));
            }
        }
        if !found.waits {
            return Ok(None);
        }
        let admitted = decision.admitted.len();
        if admitted >= ADMIT_MAX {
            self.pending.wake_at(now.tick);
        }
        self.submit_rate.take(admitted, now.tick);
        self.submit_rate.set_waiting(admitted >= submits, now.tick);
        for (batch, parked) in &decision.parked {
            if let Some(active) = self.batches.get_mut(batch) {
                active.park_next(Some(*parked));
                active.log_parked(*parked);
            }
        }
        for candidate in &decision.admitted {
            // It looked as if no budget covered it.
            let is_read_first = |open: &OpenJob| open.is_read_first(now.tick, self.reading_counts_for());
            if self.jobs.get(&candidate.key).is_some_and(is_read_first) {
                self.read_first(&[candidate.key], now);
                continue;
            }
            self.batches.served(candidate.key.batch);
            self.account.spend(candidate.hold);
            self.send(candidate, now)?;
            let asks_store =
                |open: &OpenJob| open.lacks_found_inputs() && !open.spec().order.files.is_empty();
            if self.jobs.get(&candidate.key).is_some_and(asks_store) {
                self.input_store.let_out();
            }
            // One that could only be late ended instead: its slot is free for the next, without waiting for news.
            if !self.jobs.contains_key(&candidate.key) {
                self.pending.wake_at(now.tick);
            }
        }
        Ok(Some(decision))
    }

    /// Nothing is sent until the object store of outputs answers. What a budget keeps waits for that all the same.
    fn park_until_store_answers(&mut self, now: Now) {
        self.unpark_batches();
        self.park_by_inputs();
        let met = if self.prices.are_known(now.tick) { self.out_of_budget(now) } else { Vec::new() };
        for (no, parked) in met {
            if let Some(active) = self.batches.get_mut(&no) {
                active.park_next(Some(parked));
                active.log_parked(parked);
            }
        }
        if !self.output_store.is_unanswered() {
            return;
        }
        for turn in turns(&mut self.batches, &self.jobs) {
            if let Some(active) = self.batches.get_mut(&turn.batch)
                && active.parked().is_none()
            {
                active.park_next(Some(Parked::Store));
            }
        }
    }

    /// How many requests more may be under way.
    pub(super) fn requests_left(&self) -> usize {
        // What has come waits for the disk alone.
        let busy = (self.jobs.counts().busy() as usize).saturating_sub(self.downloads.received_count());
        self.settings.requests_at_once.saturating_sub(busy)
    }

    /// How many jobs are in flight or wait for their outputs, and how many may. Outputs that pile up because the disk or the
    /// result host is slow hold back new work. What is overdue does not: its slot is free.
    pub(super) fn backlog(&self) -> (usize, usize) {
        let counts = self.jobs.counts();
        // Those that the object store refuses one by one wait for themselves alone.
        let fetching = counts.fetching().saturating_sub(counts.refused());
        // So do those whose own folder cannot be written to.
        let in_folders = match self.refused_folders.is_empty() {
            true => 0,
            false => self.jobs.iter().filter(|open| self.waits_for_folder(open)).count(),
        };
        let fetching = fetching.saturating_sub(u32::try_from(in_folders).unwrap_or(u32::MAX));
        let in_flight_max = self.settings.limits.in_flight as usize;
        // What has come is published soon, and shares a sync with what comes meanwhile. Where more waits, the disk may hang.
        let received = self.downloads.received_count().min(in_flight_max);
        let open = ((counts.in_flight().all + fetching) as usize).saturating_sub(received);
        (open, in_flight_max * 2 + self.settings.downloads)
    }

    /// Whether outputs that wait for result hosts that are not available keep more from being bought, of any batch: others may
    /// come from the same host. It is said when that begins and when it is over.
    fn look_at_result_hosts(&mut self, open: usize, backlog: usize) -> bool {
        let unavailable = self.jobs.counts().unavailable() as usize;
        let is_kept = open >= backlog && open.saturating_sub(unavailable) < backlog;
        if is_kept != std::mem::replace(&mut self.is_kept_by_result_hosts, is_kept) {
            match is_kept {
                true => job_log::result_hosts_keep(unavailable),
                false => job_log::queue_unparked(Parked::ResultHost),
            }
        }
        is_kept
    }

    /// Reads the tasks of earlier attempts at jobs before another is paid for: they may have ended since they were read. The
    /// jobs stay in the queue meanwhile.
    fn read_first(&mut self, jobs: &[JobKey], now: Now) {
        let within = self.reading_counts_for();
        let mut begun = 0;
        for key in jobs {
            let Some(open) = self.jobs.get(key) else { continue };
            let idle = open.unread_attempts(now.tick, within).filter(|(_, is_idle)| *is_idle);
            let idle: Vec<AttemptNo> = idle.map(|(attempt, _)| attempt).collect();
            for attempt in idle {
                // It has its turn when a reading ends.
                if self.timers.has_delayed_reading(*key, attempt) {
                    continue;
                }
                self.schedule(*key, attempt, now.tick);
                self.pending.wake_at(now.tick);
                begun += 1;
                if begun >= ADMIT_MAX {
                    return;
                }
            }
        }
    }

    /// For how long a reading of a task tells that it still runs, before another attempt is paid for.
    pub(super) fn reading_counts_for(&self) -> Millis {
        Millis(self.settings.poll_max.0.saturating_mul(2))
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

    /// What admission looks at, with nothing in flight.
    pub(super) fn admission_input(&mut self, now: Now) -> AdmissionInput {
        let mut limits = self.settings.limits.clone();
        limits.in_flight = self.adaptive_limit.slots(now.tick);
        let (balance, balance_age) = self.account.balance_left(now.tick);
        self.batches.sort_in();
        AdmissionInput {
            limits,
            in_flight: InFlight::default(),
            total: self.budgets.total(),
            day: self.budgets.day(now.wall.utc_day()),
            may_be_charged: self.may_be_charged(),
            balance,
            balance_age,
            out_of_credits: self.account.is_out_of_credits(),
            pools: self.account.pools(now.wall),
        }
    }

    /// What jobs may have been charged that a state that is gone may have sent, and nothing tells.
    pub(super) fn may_be_charged(&self) -> Credits {
        let of_batches = self.batches.sorted(Attention::MayBeCharged);
        let of_batches = of_batches.map(|active| active.record().may_be_charged);
        let elsewhere = self.may_be_charged_elsewhere.values().copied();
        of_batches.chain(elsewhere).fold(Credits::ZERO, |sum, more| sum + more)
    }

    fn waiting_jobs<'a>(
        &'a mut self,
        limits: &'a Limits,
        in_flight: &'a InFlight,
        now: Now,
    ) -> WaitingJobs<'a> {
        let reading_counts_for = self.reading_counts_for();
        WaitingJobs {
            batches: &self.batches,
            jobs: &self.jobs,
            account: &self.account,
            inputs: &self.inputs,
            files_room: self.input_store.room(now.tick),
            input_waits: &self.input_waits,
            prices: &mut self.prices,
            budgets: &mut self.budgets,
            group_limits: &self.settings.group_limits,
            limits,
            in_flight,
            reading_counts_for,
            now,
        }
    }

    /// Which budgets keep which batches, where nothing is sent. Slots come free by themselves, so that it does not matter
    /// what is in flight.
    pub(super) fn out_of_budget(&mut self, now: Now) -> Vec<(BatchNo, Parked)> {
        let input = self.admission_input(now);
        let waiting = self.all_waiting(&input.limits, &input.in_flight, now);
        admission::out_of_budget(input, waiting)
    }

    /// The waiting jobs of every batch, whatever its turn.
    pub(super) fn all_waiting(
        &mut self,
        limits: &Limits,
        in_flight: &InFlight,
        now: Now,
    ) -> Vec<WaitingBatch> {
        let turns = turns(&mut self.batches, &self.jobs);
        let mut found = LookedAt::default();
        let mut waiting_jobs = self.waiting_jobs(limits, in_flight, now);
        turns.iter().filter_map(|turn| waiting_jobs.look_at(turn.batch, &mut found)).collect()
    }

    /// What keeps batches from sending, whatever their jobs are: `all` keeps all of them.
    fn park_batches(&mut self, all: Option<Parked>, now: Now) {
        self.batches.park_all(all);
        let mut may_be_parked = self.batches.needing_or_expired(Attention::MayBeParkedWhole, now.wall);
        may_be_parked.extend(self.refused_folders.iter());
        for no in may_be_parked {
            let Some(active) = self.batches.get(&no) else { continue };
            let is_paused = active.record().paused.is_some();
            let perhaps_sent = self.waits_for_a_person(active, now).then_some(Parked::PerhapsSent);
            let waits_after_pilot = self.jobs.wait_after_pilot(active.record(), self.inputs.waiting_of(no));
            let refused = self.refused_folders.contains(no).then_some(Parked::Disk);
            let whole = is_paused.then_some(Parked::Paused).or(perhaps_sent).or(refused);
            let whole = whole.or(waits_after_pilot.then_some(Parked::Pilot));
            if active.parked_whole() == whole {
                continue;
            }
            let Some(active) = self.batches.get_mut(&no) else { continue };
            active.park_whole(whole);
            if waits_after_pilot {
                active.log_parked(Parked::Pilot);
            }
            if whole == Some(Parked::PerhapsSent) {
                active.log_parked(Parked::PerhapsSent);
            }
        }
    }

    /// Whether a batch has expired, and what waits of it may have been sent by a state that is gone: neither is it sent, nor
    /// does it end by itself.
    fn waits_for_a_person(&self, active: &ActiveBatch, now: Now) -> bool {
        let record = active.record();
        // What was sent before is sent again, expired or not.
        let is_unsent = |open: &OpenJob| open.job().may_have_been_sent() && open.job().first_sent().is_none();
        let may_have_been_sent = |key: &JobKey| self.jobs.get(key).is_some_and(is_unsent);
        !record.has_ended()
            && active.has_expired(now)
            && (record.has_rows_perhaps_sent()
                || self.jobs.all_candidates(record.no).iter().any(may_have_been_sent))
    }

    /// Admission has found nothing about any batch.
    pub(super) fn unpark_batches(&mut self) {
        for no in self.batches.needing(Attention::IsNextParked) {
            self.unpark(no);
        }
    }

    fn unpark(&mut self, no: BatchNo) {
        if self.batches.get(&no).is_some_and(ActiveBatch::is_next_parked)
            && let Some(active) = self.batches.get_mut(&no)
        {
            active.park_next(None);
        }
    }

    /// What was found of batches before stands until they are looked at again, unless nothing of them waits any more.
    fn unpark_where_nothing_waits(&mut self, turns: &[Turn]) {
        let parked = self.batches.needing(Attention::IsNextParked);
        if parked.is_empty() {
            return;
        }
        let waiting: BTreeSet<BatchNo> = turns.iter().map(|turn| turn.batch).collect();
        for no in parked {
            if !waiting.contains(&no) {
                self.unpark(no);
            }
        }
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
        if could_only_expire(&open.spec().order, open.job(), now.wall) {
            return self.apply(key, attempt, Event::Expire, now);
        }
        let hold = candidate.admission_hold;
        let order = &open.spec().order;
        // What an earlier attempt cost by its length says nothing of what this one is held at.
        let was = if order.has_open_length() { order.hold() } else { open.job().hold(order) };
        let was = was.filter(|was| *was != hold.hold);
        self.prices.note_admission(key, hold);
        self.apply(key, attempt, Event::Price { hold, was }, now)?;
        if !candidate.held.is_zero() && !candidate.is_held_today {
            self.apply(key, attempt, Event::ReleaseHold, now)?;
        }
        let event = Event::Admit { hold: candidate.hold, day: now.wall.utc_day() };
        self.apply(key, attempt, event, now)?;
        if let Some(active) = self.batches.get_mut(&key.batch) {
            active.log_unparked();
        }
        if let Some(mut open) = self.jobs.get_mut(&key) {
            open.set_in_flight(now);
        }
        self.set_deadline_timer(key, attempt);
        self.begin(key, attempt, Want::Post, now.tick);
        Ok(())
    }

    /// Rows at the front whose jobs were canceled before their turn.
    pub(super) fn pass_over_skipped(&mut self) {
        for no in self.batches.needing(Attention::PassesOver) {
            if self.batches.get_mut(&no).is_some_and(ActiveBatch::pass_over_skipped) {
                self.pending.batch_changed(no);
            }
        }
    }

    /// Reads rows where few are left in memory.
    pub(super) fn load_rows(&mut self) {
        if self.mode == Mode::Stopping {
            return;
        }
        let all = self.batches.len();
        for no in self.batches.needing(Attention::LoadsRows) {
            let effects = self.batches.get_mut(&no).map(|active| active.load_rows(all)).unwrap_or_default();
            effects.into_iter().for_each(|effect| self.pending.begin(effect));
        }
    }
}
