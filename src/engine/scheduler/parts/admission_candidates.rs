//! The jobs that admission looks at: of each batch and class the first few, at the prices in force.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::admission::{Candidate, GroupBooks, InFlight, Limits, Turn, WaitingBatch};
use crate::domain::budget_group::{Group, GroupLimits};
use crate::domain::credit_hold::HoldRefusal;
use crate::domain::ids::{BatchNo, JobKey, Seq};
use crate::domain::job::{Job, JobSpec, Order};
use crate::domain::parked_reason::Parked;
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Now};
use crate::engine::scheduler::parts::account_state::AccountState;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;
use crate::engine::scheduler::parts::active_batches::ActiveBatches;
use crate::engine::scheduler::parts::budget_totals::BudgetTotals;
use crate::engine::scheduler::parts::input_waits::InputWaits;
use crate::engine::scheduler::parts::job_inputs::JobInputs;
use crate::engine::scheduler::parts::open_job::OpenJob;
use crate::engine::scheduler::parts::open_jobs::OpenJobs;
use crate::engine::scheduler::parts::prices::{Prices, above_max};
use crate::store::BatchRecord;

/// Queued jobs of a batch past which no further row is passed over for one behind it: each that is costs a record.
const PASSED_OVER_MAX: u32 = 256;
/// Jobs of a batch whose outputs the object store refuses while it takes others, past which nothing more of it is bought.
pub const REFUSED_MAX: u32 = 8;
/// Candidates of each class, at least and at most.
const FRONT: (usize, usize) = (4, 64);

/// What decides which jobs wait, and at which price.
#[derive(Debug)]
pub struct WaitingJobs<'a> {
    /// The batches.
    pub batches: &'a ActiveBatches,
    /// The jobs that have begun.
    pub jobs: &'a OpenJobs,
    /// The account.
    pub account: &'a AccountState,
    /// What rows wait for that name others.
    pub inputs: &'a JobInputs,
    /// How many jobs with files may be let out.
    pub files_room: usize,
    /// Which of them tried before.
    pub input_waits: &'a InputWaits,
    /// The prices in force.
    pub prices: &'a mut Prices,
    /// What groups of rows have held and spent.
    pub budgets: &'a mut BudgetTotals,
    /// What they may.
    pub group_limits: &'a GroupLimits,
    /// The limits in force.
    pub limits: &'a Limits,
    /// Jobs in flight.
    pub in_flight: &'a InFlight,
    /// For how long a reading of an earlier attempt's task tells that it still runs.
    pub reading_counts_for: Millis,
    /// When this is.
    pub now: Now,
}

/// What was found when waiting jobs were looked at.
#[derive(Debug, Default)]
pub struct LookedAt {
    /// The batches.
    pub batches: Vec<BatchNo>,
    /// Whether something waits in one of them.
    pub waits: bool,
    /// Jobs that cost more than they may: they are no candidates.
    pub too_dear: Vec<(JobKey, Fault)>,
    /// Jobs of which the task of an earlier attempt is to be read before another is paid for: they are no candidates until
    /// then, and take nobody's slot.
    pub to_read: Vec<JobKey>,
}

/// The turns of all batches in which something may wait, the next one first.
pub fn turns(batches: &mut ActiveBatches, jobs: &OpenJobs) -> Vec<Turn> {
    let last_served = batches.last_served();
    let turn = |(batch, priority)| Turn { batch, priority };
    let mut turns: Vec<Turn> = batches.with_rows().chain(jobs.with_queue()).map(turn).collect();
    turns.sort_by_key(|turn| (turn.batch <= last_served, turn.batch, Reverse(turn.priority)));
    turns.dedup_by_key(|turn| turn.batch);
    turns
}

/// Whether the object store refuses so much of a batch that nothing more of it is bought.
pub fn is_refused(jobs: &OpenJobs, batch: BatchNo) -> bool {
    jobs.counts().of_batch(batch).refused >= REFUSED_MAX
}

/// Whether a state that is gone had set something aside for a job in the queue: its request was on its way.
fn was_on_its_way(job: &Job) -> bool {
    job.may_have_been_sent() && !job.books().held.is_zero()
}

impl WaitingJobs<'_> {
    /// The waiting jobs of a batch; nothing where none waits.
    pub fn look_at(&mut self, batch: BatchNo, found: &mut LookedAt) -> Option<WaitingBatch> {
        found.batches.push(batch);
        let may_send = |active: &&ActiveBatch| {
            active.record().paused.is_none() && active.parked_whole() != Some(Parked::Disk)
        };
        let active = self.batches.get(&batch).filter(may_send)?;
        if is_refused(self.jobs, batch) {
            return None;
        }
        let free = self.limits.in_flight.saturating_sub(self.in_flight.all) as usize;
        let waiting = self.waiting(active, free.clamp(FRONT.0, FRONT.1), found);
        found.waits |= waiting.is_some();
        waiting
    }

    /// A batch as admission sees it: of each class the first few jobs that were open before, then of each class the
    /// first few rows that have not begun, in order. Not more of each than may be sent: if those do not fit, no other
    /// of their class does.
    fn waiting(&mut self, active: &ActiveBatch, most: usize, found: &mut LookedAt) -> Option<WaitingBatch> {
        let record = active.record();
        let batch = record.no;
        let (jobs, limits, in_flight) = (self.jobs, self.limits, self.in_flight);
        let has_room = |order: &Order| in_flight.has_room(limits, order.kind, order.model.as_deref());
        let has_expired = active.has_expired(self.now);
        let needs_person = Cell::new(false);
        let may_go = |spec: &JobSpec| {
            let is_late = self.may_only_be_late(spec, record);
            needs_person.set(needs_person.get() || is_late);
            !is_late
        };
        let is_unread = |open: &OpenJob| open.is_read_first(self.now.tick, self.reading_counts_for);
        // Those that wait for its pilot stand in nobody's way, nor do those that a person has to see to, or whose tasks are
        // to be read.
        let is_passed = |open: &OpenJob| is_unread(open) || self.may_only_be_late(open.spec(), record);
        let are_waiting = self.input_waits.any(batch);
        let are_passed = record.pilot.is_some() || are_waiting || jobs.candidates(batch, most).any(is_passed);
        let most_begun = if are_passed { usize::MAX } else { most };
        let begun = jobs.candidates(batch, most_begun);
        let begun = begun.filter(|open| !record.waits_for_pilot(open.record().row_at, open.job()));
        // One that may have been sent is not dropped; it is not bought after its time either.
        let begun = begun.filter(|open| !has_expired || open.job().first_sent().is_some());
        let is_superseded = |open: &&OpenJob| active.versions().is_superseded(open.key().seq);
        let begun = begun.filter(|open| !is_superseded(open) || was_on_its_way(open.job()));
        let begun = begun.filter(|open| may_go(open.spec()));
        // Those whose inputs cannot be had just now leave most slots to others.
        let holds_slot = |key: &JobKey| jobs.get(key).is_some_and(|open| !open.is_queued());
        let retry_room = match are_waiting {
            true => self.input_waits.retry_room(batch, limits.in_flight, holds_slot),
            false => 0,
        };
        let begun = begun.filter(|open| retry_room > 0 || self.input_waits.tries(&open.key()) == 0);
        let (unread, begun): (Vec<&OpenJob>, Vec<&OpenJob>) = begun.partition(|open| is_unread(open));
        let unread = unread.iter().map(|open| open.spec()).filter(|spec| has_room(&spec.order));
        let unread: Vec<Arc<JobSpec>> = unread.cloned().collect();
        let begun = begun.into_iter().map(|open| (false, open.spec()));
        let passed_over = jobs.counts().queued_of(batch).saturating_sub(self.inputs.waiting_count(batch));
        let is_crowded = passed_over >= PASSED_OVER_MAX;
        let are_many = self.input_waits.are_many(batch);
        let may_begin = |order: &Order| !are_many || order.inputs.is_empty() && order.files.is_empty();
        let is_ready = |spec: &JobSpec| {
            self.inputs.are_there(batch, &spec.order) && may_begin(&spec.order) && may_go(spec)
        };
        let rows = if has_expired { Vec::new() } else { active.front_rows(most, is_crowded, is_ready) };
        let rows = rows.into_iter().map(|spec| (true, spec));
        let mut specs: Vec<(bool, &Arc<JobSpec>)> =
            begun.chain(rows).filter(|(_, spec)| has_room(&spec.order)).collect();
        // While the object store takes nothing each job asks it in turn: the file of one may be at fault.
        let tries = |spec: &JobSpec| self.input_waits.tries(&JobKey { batch, seq: spec.seq });
        let has_files = |spec: &JobSpec| !spec.order.files.is_empty();
        let mut with_files: Vec<(u32, Seq)> = Vec::new();
        if self.files_room < specs.len() {
            let mine = specs.iter().filter(|(_, spec)| has_files(spec));
            with_files.extend(mine.map(|(_, spec)| (tries(spec), spec.seq)));
            with_files.sort_unstable();
            with_files.truncate(self.files_room);
            let let_out = &with_files;
            specs.retain(|(_, spec)| !has_files(spec) || let_out.iter().any(|(_, seq)| *seq == spec.seq));
        }
        self.files_room -= specs.iter().filter(|(_, spec)| has_files(spec)).count().min(self.files_room);
        // What goes on from outputs that are there goes before what begins: finished chains come early.
        let begins = |is_row: bool, spec: &JobSpec| is_row && spec.order.inputs.is_empty();
        specs.sort_by_key(|(is_row, spec)| (Reverse(spec.order.priority), begins(*is_row, spec), spec.seq));
        let (mut lacks_price, mut needs_person) = (false, needs_person.get());
        let mut candidates = Vec::with_capacity(specs.len());
        let read = specs.into_iter().map(|(_, spec)| (false, spec));
        for (is_unread, spec) in read.chain(unread.iter().map(|spec| (true, spec))) {
            let key = JobKey { batch, seq: spec.seq };
            match self.candidate(key, spec, active) {
                // What no budget covers is read as slowly as what nothing waits for.
                Ok(candidate) if is_unread && self.fits_budgets(&candidate, record) => {
                    found.to_read.push(key);
                }
                Ok(candidate) => candidates.push(candidate),
                Err(withheld) => match above_max(&withheld, &record.name, &spec.label) {
                    // What may have been sent may have been charged, too: a person says so, or lets it cost more.
                    Some(_) if self.jobs.may_have_been_sent(&key, record) => needs_person = true,
                    Some(fault) => found.too_dear.push((key, fault)),
                    None => lacks_price = true,
                },
            }
        }
        let (budget, totals) = (record.budget(), record.totals);
        let awaits_charge = self.prices.await_charge(batch, |key| jobs.get(key).map(OpenJob::job));
        let waits = !candidates.is_empty() || lacks_price || needs_person;
        let groups = if waits { self.group_books(&candidates) } else { BTreeMap::new() };
        waits.then_some(WaitingBatch {
            batch,
            budget,
            totals,
            may_be_charged: record.may_be_charged,
            awaits_charge,
            lacks_price,
            needs_person,
            retry_room,
            candidates,
            groups,
        })
    }

    /// Whether the deadline of a waiting job, an instant, has passed, and a state that is gone may have sent it in time: it is
    /// neither sent late nor dropped. What this one sent is asked for under its key.
    fn may_only_be_late(&self, spec: &JobSpec, record: &BatchRecord) -> bool {
        let key = JobKey { batch: record.no, seq: spec.seq };
        spec.order.deadline.is_some_and(|deadline| deadline.has_passed(self.now.wall))
            && self.jobs.get(&key).is_none_or(|open| open.job().first_sent().is_none())
            && self.jobs.may_have_been_sent(&key, record)
    }

    /// Whether every budget covers a candidate as things are.
    fn fits_budgets(&self, candidate: &Candidate, record: &BatchRecord) -> bool {
        let (hold, today) = (candidate.hold.saturating_sub(candidate.held), self.now.wall.utc_day());
        self.budgets.fit(hold, (record.totals, record.budget()), self.limits, &candidate.groups, today)
    }

    /// What the groups have held and spent that candidates count against.
    fn group_books(&self, candidates: &[Candidate]) -> BTreeMap<Group, GroupBooks> {
        let groups = candidates.iter().flat_map(|candidate| &candidate.groups).map(|limit| &limit.group);
        let books = |group: &Group| {
            let found = self.budgets.groups().get(group);
            (group.clone(), GroupBooks { total: found.total, day: found.of_day(self.now.wall.utc_day()) })
        };
        groups.map(books).collect()
    }

    /// A waiting job as admission sees it, at the price in force.
    fn candidate(
        &mut self,
        key: JobKey,
        spec: &JobSpec,
        active: &ActiveBatch,
    ) -> Result<Candidate, HoldRefusal> {
        let (order, origin) = (&spec.order, active.record().origin.as_ref());
        let job = self.jobs.get(&key).map(OpenJob::job);
        let held = job.map(|job| job.books().held).unwrap_or_default();
        let is_held_today = job.and_then(Job::day) == Some(self.now.wall.utc_day());
        // Before it is admitted: two values do not both get the last totals that there are.
        self.budgets.take_up(&order.meta, origin);
        let admission_hold = self.prices.decide(key, order, job.and_then(|job| job.max_credits()))?;
        Ok(Candidate {
            key,
            priority: order.priority,
            kind: order.kind,
            model: self.limits.counted_model(order.model.as_deref()).map(str::to_owned),
            hold: admission_hold.hold.max(held),
            held,
            is_held_today,
            admission_hold,
            may_have_been_sent: self.jobs.may_have_been_sent(&key, active.record()),
            tries_again: self.input_waits.tries(&key) > 0,
            allowance: self.account.allowance_of(order),
            groups: self.budgets.groups().limits_of(self.group_limits, &order.meta, origin),
        })
    }
}
