//! What can be seen from outside.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::job_state::{JobState, JobStateCounts};
use crate::domain::ledger::Totals;
use crate::domain::parked_reason::Parked;
use crate::domain::time::Now;
use crate::engine::engine_mode::Scope;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::attention::Attention;
use crate::engine::scheduler::parts::job_counts::NextAction;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::{BatchOverview, Effect, Input, Mode, Outage, Scheduler, Standstill};
use crate::store::{BatchRecord, JobRecord};

/// Open jobs that are looked at for those of one batch: with 100,000 in flight nothing may look at all of them.
const OPEN_LOOKED_AT_MAX: usize = 2_000;

impl Scheduler {
    /// Has it work for these batches alone: others may be taken up by a command, and are not waited for.
    pub fn work_for(&mut self, scope: Scope) {
        self.scope = scope;
    }

    /// The batches that it works for, oldest first.
    fn own_batches(&self) -> impl Iterator<Item = &ActiveBatch> {
        self.batches.iter().filter(|active| self.scope.contains(active.record().no))
    }

    /// The batches that it works for and those whose outputs they lack, if these are not all.
    fn waited_for(&self) -> Option<BTreeSet<BatchNo>> {
        if self.mode == Mode::Stopping || self.own_batches().count() == self.batches.iter().count() {
            return None;
        }
        let mut waited: BTreeSet<BatchNo> = self.own_batches().map(|active| active.record().no).collect();
        let mut next: Vec<BatchNo> = waited.iter().copied().collect();
        while let Some(no) = next.pop() {
            next.extend(self.inputs.named_by(no).filter(|named| waited.insert(*named)));
        }
        Some(waited)
    }

    /// Why nothing will move by itself any more of the batches that it works for; nothing while something will.
    pub fn standstill(&self) -> Option<Standstill> {
        let waited = self.waited_for();
        let is_waited_for = |no: BatchNo| waited.as_ref().is_none_or(|waited| waited.contains(&no));
        let waited_batches = || self.batches.iter().filter(|active| is_waited_for(active.record().no));
        let counts = self.jobs.counts();
        let moving = waited.iter().flatten().copied();
        let moving = if waited.is_some() { counts.moving_of(moving) } else { counts.moving() };
        if moving.busy > 0
            || self.account.is_asking()
            || self.account.key_is_doubtful() && self.mode != Mode::Stopping
            // Copies are being removed, or wait for the store.
            || self.mode != Mode::Stopping && !self.scratch.is_empty()
            || self.inputs.is_looking_up() && self.mode == Mode::Paying
            || self.prices.are_busy() && self.mode != Mode::Stopping
            || waited_batches().any(|active| active.is_loading() || active.is_going_back())
            || self.jobs.has_to_cancel()
            || self.mode == Mode::Stopping && self.timers.next_effect().is_some()
        {
            return None;
        }
        if self.own_batches().all(|active| active.record().is_done()) {
            return Some(Standstill::Done);
        }
        if self.mode == Mode::Stopping {
            return Some(Standstill::Stopped);
        }
        if self.own_batches().all(|active| active.record().has_ended()) {
            return Some(Standstill::Review);
        }
        let sends = self.mode == Mode::Paying && !self.account.key_is_refused();
        let moves = |action| moving.actions[action] > 0;
        let blocked = self.account.blocked().iter().filter(|key| is_waited_for(key.batch));
        let blocked = blocked.filter_map(|key| self.jobs.get(key));
        let blocked = blocked.filter(|open| open.action() == Some(NextAction::Post)).count();
        let refused = match self.refused_folders.is_empty() {
            true => 0,
            false => {
                let waited = self.jobs.iter().filter(|open| is_waited_for(open.key().batch));
                waited.filter(|open| self.waits_for_folder(open)).count()
            }
        };
        if sends && (moves(NextAction::NextAttempt) || moving.actions[NextAction::Post] as usize > blocked)
            || !self.account.key_is_refused() && (moves(NextAction::Read) || moving.unread > 0)
            || !self.disk.is_low() && moving.actions[NextAction::Fetch] as usize > refused
        {
            return None;
        }
        if self.mode == Mode::Free && !(self.disk.is_low() && moves(NextAction::Fetch)) && refused == 0 {
            return Some(Standstill::Done);
        }
        if self.disk.is_low() {
            return Some(Standstill::Parked(Parked::Disk));
        }
        if self.account.key_is_refused() {
            return Some(Standstill::Parked(Parked::Key));
        }
        if self.account.waits_for_balance() {
            return None;
        }
        let with_queue =
            waited_batches().filter(|active| active.has_rows() || counts.has_queued(active.record().no));
        let with_queue = with_queue.filter(|active| !self.waits_for_unreadable(active));
        let parked_by = |active: &ActiveBatch| {
            let for_files = || self.waits_for_files(active).then_some(Parked::Store);
            active.parked().or_else(for_files)
        };
        let parked = with_queue.map(|active| Some((active.record().no, parked_by(active)?)));
        // A batch whose queue is not parked waits for something that will come.
        let parked: Vec<(BatchNo, Parked)> = parked.collect::<Option<_>>()?;
        let own = parked.into_iter().filter(|(no, _)| self.scope.contains(*no));
        let parked: Vec<Parked> = own.map(|(_, parked)| parked).collect();
        if parked.contains(&Parked::NoPrice) && self.prices.lack_a_catalog() {
            return None;
        }
        let asks_again = self.output_store.is_unanswered() && !self.output_store.is_given_up();
        if parked.contains(&Parked::Store) && asks_again {
            return None;
        }
        let disk = (refused > 0).then_some(Parked::Disk);
        let credits = self.account.blocked().iter().any(|key| is_waited_for(key.batch));
        let credits = credits.then_some(Parked::Credits);
        Some(parked.first().copied().or(disk).or(credits).map_or(Standstill::Overdue, Standstill::Parked))
    }

    /// Whether requests are sent and not answered, of whatever batch.
    pub fn has_requests_in_flight(&self) -> bool {
        self.jobs.counts().busy() > 0
    }

    /// Whether all that is left in the queue of a batch waits for tasks of earlier attempts that cannot be read.
    fn waits_for_unreadable(&self, active: &ActiveBatch) -> bool {
        let no = active.record().no;
        let mut queued = self.jobs.iter().filter(|open| open.key().batch == no && open.is_queued());
        !active.has_rows() && queued.all(OpenJob::waits_for_unreadable)
    }

    /// Whether all that is left of a batch needs files of this machine that the object store has refused too often in a row.
    fn waits_for_files(&self, active: &ActiveBatch) -> bool {
        let no = active.record().no;
        let waits = |open: &OpenJob| open.is_queued() && !open.spec().order.files.is_empty();
        let mut open = self.jobs.iter().filter(|open| open.key().batch == no).peekable();
        self.input_store.is_given_up() && open.peek().is_some() && open.all(waits)
    }

    /// Whether the disk keeps the queue.
    pub fn disk_is_low(&self) -> bool {
        self.disk.is_low()
    }

    /// The batches whose output folders cannot be written to.
    pub fn refused_folders(&self) -> Vec<(BatchNo, BatchName)> {
        let named = |no| Some((no, self.batches.get(&no)?.record().name.clone()));
        self.refused_folders.iter().filter_map(named).collect()
    }

    /// Creating requests that are sent and not answered: all of them, and those of endpoints without keys.
    pub fn unanswered_posts(&self) -> (usize, usize) {
        let is_sent =
            |open: &&OpenJob| open.is_busy() && open.record().job.state().job_state() == JobState::Submitting;
        let keyed = self.jobs.iter().filter(is_sent).map(|open| open.spec().order.kind.is_keyed());
        keyed.fold((0, 0), |(all, keyless), is_keyed| (all + 1, keyless + usize::from(!is_keyed)))
    }

    /// How much room, in bytes, the output disk must have before it is asked to take files again; nothing unless it
    /// refused one.
    pub fn refused_bytes(&self) -> Option<u64> {
        self.disk.refused_bytes()
    }

    /// Every batch in numbers, oldest first.
    pub fn overview(&self) -> Vec<BatchOverview> {
        let (blocked, watched) = (self.blocked_batches(), self.watched_in_queue());
        self.batches.iter().map(|active| self.overview_of(active, &blocked, &watched)).collect()
    }

    /// Every batch as it stands and in numbers, oldest first, or the one called so.
    pub fn batch_snapshots(&self, name: Option<&BatchName>) -> Vec<(BatchRecord, BatchOverview)> {
        let (blocked, watched) = (self.blocked_batches(), self.watched_in_queue());
        let batches = self.batches.iter();
        let named = batches.filter(|active| name.is_none_or(|name| *name == active.record().name));
        named.map(|active| (active.record().clone(), self.overview_of(active, &blocked, &watched))).collect()
    }

    /// A batch as it stands and in numbers, with `most` of its open jobs at most, those first that are overdue. Of many
    /// open jobs only some are looked at.
    pub fn batch_standing(
        &self,
        no: BatchNo,
        most: usize,
    ) -> Option<(BatchRecord, BatchOverview, Vec<JobRecord>)> {
        let active = self.batches.get(&no)?;
        let overview = self.overview_of(active, &self.blocked_batches(), &self.watched_in_queue());
        let open = self.jobs.iter().take(OPEN_LOOKED_AT_MAX).map(OpenJob::record);
        let mut open: Vec<&JobRecord> = open.filter(|record| record.key.batch == no).collect();
        open.sort_by_key(|record| (!record.job.is_overdue(), record.key.seq));
        let open = open.into_iter().take(most).cloned().collect();
        Some((active.record().clone(), overview, open))
    }

    /// Batches with jobs that the balance does not cover.
    pub(super) fn blocked_batches(&self) -> BTreeSet<BatchNo> {
        self.account.blocked().iter().map(|key| key.batch).collect()
    }

    fn overview_of(
        &self,
        active: &ActiveBatch,
        blocked: &BTreeSet<BatchNo>,
        watched: &BTreeMap<BatchNo, u32>,
    ) -> BatchOverview {
        let no = active.record().no;
        let overview = overview_of(active.record(), self.jobs.counts().of_batch(no).states);
        // A pause is named first: no key, credits or room would make a paused batch go on.
        let parked = overview.parked.or_else(|| self.kept_by(active, blocked));
        let is_for_balance = matches!(parked, Some(Parked::Credits | Parked::MinBalance));
        let is_for_credits = is_for_balance || parked == Some(Parked::BatchBudget);
        let next = if is_for_credits { self.next_hold(active) } else { None };
        let (needs, beside) = next.unzip();
        let refused = self.account.refused_balance().filter(|_| parked == Some(Parked::Credits));
        let left = if is_for_balance { self.account.left() } else { None };
        let (balance, is_refused) = (refused.or(left), refused.is_some());
        let shortage = parked.and_then(|parked| self.budget_shortage(active, parked));
        let last_failures = active.last_failures();
        let is_for_host = parked == Some(Parked::ResultHost);
        let unfetched = if is_for_host { self.jobs.counts().unavailable() } else { 0 };
        let overdue = self.jobs.counts().of_batch(no).overdue;
        let watched = watched.get(&no).copied().unwrap_or_default();
        BatchOverview {
            parked,
            overdue,
            watched,
            needs,
            beside: beside.unwrap_or_default(),
            balance,
            is_refused,
            shortage,
            unfetched,
            last_failures,
            ..overview
        }
    }

    /// What keeps a batch from going on beside a pause: what keeps all of them first. `blocked` are those with jobs that the
    /// balance does not cover.
    pub(super) fn kept_by(&self, active: &ActiveBatch, blocked: &BTreeSet<BatchNo>) -> Option<Parked> {
        let no = active.record().no;
        let key = self.account.key_is_refused().then_some(Parked::Key);
        let disk = self.disk.is_low().then_some(Parked::Disk);
        let store = self.output_store.refuses().then_some(Parked::Store);
        let store = store.or((!self.scratch.has_room()).then_some(Parked::Scratch));
        // Jobs with files wait for theirs, and nothing of the batch moves.
        let waits = self.jobs.counts().queued_of(no) > 0 || active.has_rows();
        let store = store.or((self.is_kept_by_result_hosts && waits).then_some(Parked::ResultHost));
        let is_still = self.jobs.counts().queued_of(no) == self.jobs.counts().open_of(no);
        let files = (self.input_store.is_down() && waits && is_still).then_some(Parked::Store);
        let alone = waits && is_still && self.input_waits.any_alone(no);
        let files = files.or(alone.then_some(Parked::InputsUnavailable));
        // Its answer is waited for before anything is sent.
        let awaits = self.output_store.is_awaited() && waits && self.mode == Mode::Paying;
        let unanswered = (awaits || self.output_store.is_unanswered()).then_some(Parked::Store);
        let files = unanswered.or(files);
        let credits = blocked.contains(&no).then_some(Parked::Credits);
        disk.or(key).or(store).or(active.parked()).or(files).or(credits)
    }

    /// By batch the jobs in the queue of which a task of an earlier attempt is still running.
    fn watched_in_queue(&self) -> BTreeMap<BatchNo, u32> {
        let queued = self.jobs.iter().take(OPEN_LOOKED_AT_MAX).filter(|open| open.is_queued());
        let watched = queued.filter(|open| open.job().watched_attempts().next().is_some());
        let mut by_batch = BTreeMap::new();
        watched.for_each(|open| *by_batch.entry(open.key().batch).or_default() += 1);
        by_batch
    }

    /// What is to be read of the spools before [`Scheduler::foresee`] can tell.
    pub fn rows_wanted(&mut self) -> Vec<Effect> {
        self.load_rows();
        self.pending.take_effects()
    }

    /// The same of how jobs ended whose outputs these rows take.
    pub fn lookups_wanted(&mut self) -> Vec<Effect> {
        self.look_up_ended();
        self.pending.take_effects()
    }

    /// Takes in what was read: rows, or how jobs ended.
    pub fn add_read(&mut self, read: Input) {
        match read {
            Input::Rows { batch, from, rows } => self.rows(batch, from, rows),
            Input::Ended { batch, jobs } => self.ended_jobs(batch, jobs),
            _ => {}
        }
    }

    /// Finds out which budgets keep batches, where no engine does. Nothing is sent, and nothing durable changes.
    pub fn foresee(&mut self, now: Now) {
        let met = self.out_of_budget(now);
        self.unpark_batches();
        for (batch, parked) in met {
            if let Some(active) = self.batches.get_mut(&batch) {
                active.park_next(Some(parked));
            }
        }
        let all = self.batches.iter().map(|active| active.record().no);
        let after_pilot: Vec<BatchNo> = all.filter(|no| self.waits_after_pilot(*no)).collect();
        for no in after_pilot {
            if let Some(active) = self.batches.get_mut(&no) {
                active.park_next(Some(Parked::Pilot));
            }
        }
    }

    /// Totals of the whole state.
    pub fn total(&self) -> Totals {
        self.budgets.total()
    }

    /// Whether a download waits for a slot.
    pub fn download_waits(&self) -> bool {
        self.downloads.has_waiting()
    }

    /// A batch's record as it stands.
    pub fn batch(&self, no: BatchNo) -> Option<&BatchRecord> {
        self.batches.get(&no).map(ActiveBatch::record)
    }

    /// Whether the pilot of a batch is done, and the rest waits for a person to continue.
    pub fn waits_after_pilot(&self, no: BatchNo) -> bool {
        self.batch(no).is_some_and(|record| self.jobs.wait_after_pilot(record, self.inputs.waiting_of(no)))
    }

    /// Batches of which all that is left waits for rows that a person has to see to, and whose owners were not told.
    pub fn waiting_untold(&self) -> impl Iterator<Item = BatchNo> {
        let parked = self.batches.sorted(Attention::IsNextParked);
        let untold =
            parked.filter(|active| !active.record().inputs_announced).map(|active| active.record().no);
        untold.filter(|no| self.waits_for_people(*no))
    }

    /// Whether all that is left of a batch waits for rows that a person has to see to, and admission has come to it.
    pub fn waits_for_people(&self, no: BatchNo) -> bool {
        let waits = |active: &ActiveBatch| active.waits_for_rows() && self.stands_still(active);
        self.batches.get(&no).is_some_and(waits) && self.waits_for_nothing_that_moves(no)
    }

    /// Batches of which all that is left waits for rows that a person has to see to, whether or not admission has come to
    /// them since the start. Nothing while it is being looked up how rows ended that some of them need.
    pub fn waiting_for_people(&self) -> Option<Vec<BatchNo>> {
        let waiting = self.inputs.with_waiting().filter_map(|no| self.batches.get(&no));
        let still = waiting.filter(|active| active.parked_whole().is_none() && self.stands_still(active));
        let mut still: Vec<BatchNo> = still.map(|active| active.record().no).collect();
        if !still.iter().all(|no| self.inputs.are_known(*no)) {
            return None;
        }
        still.retain(|no| self.waits_for_nothing_that_moves(*no));
        Some(still)
    }

    /// A row that takes outputs of another batch waits for that one as long as anything of it moves.
    fn waits_for_nothing_that_moves(&self, no: BatchNo) -> bool {
        let mut others = self.inputs.named_by(no);
        others.all(|other| self.batches.get(&other).is_none_or(|active| self.stands_still(active)))
    }

    /// Whether all that is open of a batch waits for inputs or for the end of a pilot, and none of its rows may be sent.
    pub(super) fn stands_still(&self, active: &ActiveBatch) -> bool {
        let (record, no) = (active.record(), active.record().no);
        if record.has_rows_to_send() {
            return false;
        }
        let (counts, waiting) = (self.jobs.counts(), self.inputs.waiting_count(no));
        let open = counts.open_of(no);
        if open == waiting || record.pilot.is_none() || open != counts.queued_of(no) {
            return open == waiting;
        }
        // Rows of the rest that were canceled and wanted again, or tried before there was a pilot.
        let rest = self.jobs.all_candidates(no);
        let waits = |open: &OpenJob| record.waits_for_pilot(open.record().row_at, open.job());
        rest.len() + waiting as usize == open as usize
            && rest.iter().filter_map(|key| self.jobs.get(key)).all(waits)
    }

    /// Every batch's record as it stands.
    pub fn batches(&self) -> impl Iterator<Item = &BatchRecord> {
        self.batches.iter().map(ActiveBatch::record)
    }

    /// Every open job as it stands.
    pub fn open_jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.iter().map(OpenJob::record)
    }

    /// The outage that is being waited out; nothing while the service answers.
    pub fn outage(&self) -> Option<Outage> {
        let next_try = [self.timers.next_effect(), self.adaptive_limit.wait_until()];
        self.outage_detector.outage(next_try.into_iter().flatten().min())
    }

    /// How many jobs may be in flight, as configured.
    pub fn configured_limit(&self) -> u32 {
        self.settings.limits.in_flight
    }

    /// How many jobs may be in flight, as learned so far.
    pub fn present_limit(&self) -> u32 {
        self.adaptive_limit.present()
    }
}

impl BatchOverview {
    /// A batch that is done in numbers.
    pub fn of_finished(record: &BatchRecord) -> BatchOverview {
        overview_of(record, JobStateCounts::default())
    }

    /// In numbers a batch that is not done and that the run leaves alone which has the state open, with its jobs that have
    /// begun and not ended.
    pub fn of_unattended(record: &BatchRecord, open: &[JobRecord]) -> BatchOverview {
        let mut counts = JobStateCounts::default();
        for open in open {
            counts[open.job.state().job_state()] += 1;
        }
        let overview = overview_of(record, counts);
        BatchOverview { parked: overview.parked.or(Some(Parked::AnotherRun)), ..overview }
    }
}

/// A batch in numbers, from its record and the states of its open jobs.
fn overview_of(record: &BatchRecord, open: JobStateCounts) -> BatchOverview {
    let begun: u32 = open.values().sum();
    let parked = record.paused.map(|_| Parked::Paused);
    let not_begun = record.rows.saturating_sub(begun + record.ended.all());
    let not_open = record.ended.by_state(not_begun);
    let states = open.map(|state, open| open + not_open[state]);
    BatchOverview {
        beside: Default::default(),
        name: record.name.clone(),
        rows: record.rows,
        states,
        overdue: 0,
        watched: 0,
        planned: record.planned_credits(),
        totals: record.totals,
        parked,
        needs: None,
        balance: None,
        is_refused: false,
        shortage: None,
        unfetched: 0,
        last_failures: Vec::new(),
    }
}
