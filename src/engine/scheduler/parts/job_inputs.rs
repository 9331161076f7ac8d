//! Rows that name outputs of other rows: which of these have ended, and which jobs wait for them.
//!
//! How the jobs of a batch ended is looked up once, when the first of its rows comes up that names another, and is kept
//! up to date from then on: for each job that has ended a line of some 40 bytes. Batches that no row refers to have none.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::domain::ids::{BatchNo, JobId, JobKey, Seq};
use crate::domain::job::Order;
use crate::domain::job_reference::{EndedTake, MissingInput, parent};

/// What is known of the ended jobs of a batch.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Lookup {
    /// Nothing, and nobody needs it.
    #[default]
    Idle,
    /// Nothing, and it is to be looked up.
    Wanted,
    /// It is being looked up.
    Asked,
    /// All of it.
    Done,
    /// It cannot be looked up: somebody moved the files of the batch away. Its jobs count as not ended until an owner
    /// asks to go on.
    Moved,
}

impl Lookup {
    /// No answer is to come.
    fn is_over(self) -> bool {
        matches!(self, Lookup::Done | Lookup::Moved)
    }
}

#[derive(Debug, Default)]
struct BatchInputs {
    lookup: Lookup,
    ended: HashMap<JobId, EndedTake>,
    /// Jobs, of this batch and of others, that are queued, look for their inputs or were sent with them and may be turned away,
    /// by those whose outputs they need.
    children: HashMap<JobId, BTreeSet<JobKey>>,
    /// Queued jobs that lack an input.
    waiting: BTreeSet<Seq>,
    /// Nothing of it goes on; it is kept for the children that other batches have of it.
    is_finished: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct JobInputs {
    batches: BTreeMap<BatchNo, BatchInputs>,
    /// By batch, those whose outputs its children need, each with how often: they are asked for in each step.
    named: BTreeMap<BatchNo, BTreeMap<BatchNo, usize>>,
}

impl JobInputs {
    /// The jobs that give the inputs of a job, one for each.
    ///
    /// # Errors
    /// What the first one lacks that is not there.
    pub fn parents(&self, batch: BatchNo, order: &Order) -> Result<Vec<JobKey>, MissingInput> {
        let each = order.inputs.iter().map(|input| {
            let known = self.batches.get(&input.batch_of(batch)).filter(|known| known.lookup == Lookup::Done);
            let known = known.ok_or(MissingInput::Unfinished)?;
            let takes: Vec<Option<EndedTake>> =
                input.jobs().map(|job| known.ended.get(&job).copied()).collect();
            let later: Vec<EndedTake> =
                input.later_jobs().filter_map(|job| known.ended.get(&job).copied()).collect();
            parent(input, &takes, &later).map(|seq| input.key_of(batch, seq))
        });
        each.collect()
    }

    /// Which takes of their rows give the inputs of a job, where they were chosen among several; nothing where an input
    /// is not there.
    pub fn takes(&self, batch: BatchNo, order: &Order) -> Option<Vec<Option<u32>>> {
        let parents = self.parents(batch, order).ok()?;
        let each = order.inputs.iter().zip(parents).map(|(input, parent)| {
            let ended = self.batches.get(&parent.batch).map(|known| &known.ended)?;
            let gives = |job: &JobId| ended.get(job).is_some_and(|take| take.seq == parent.seq);
            input.choice(input.jobs().chain(input.later_jobs()).find(gives)?)
        });
        Some(each.collect())
    }

    /// Whether every input of a job is there.
    pub fn are_there(&self, batch: BatchNo, order: &Order) -> bool {
        order.inputs.is_empty() || self.parents(batch, order).is_ok()
    }

    /// How the jobs of a batch ended has to be known.
    pub fn want(&mut self, batch: BatchNo) {
        let known = self.batches.entry(batch).or_default();
        if known.lookup == Lookup::Idle {
            known.lookup = Lookup::Wanted;
        }
    }

    /// How the jobs of the batches ended has to be known whose outputs a job needs.
    pub fn want_for(&mut self, batch: BatchNo, order: &Order) {
        order.inputs.iter().for_each(|input| self.want(input.batch_of(batch)));
    }

    /// Whether it is known how the jobs of a batch ended.
    pub fn is_known(&self, batch: BatchNo) -> bool {
        self.batches.get(&batch).is_some_and(|known| known.lookup.is_over())
    }

    /// Whether that is known of the batches whose outputs a job needs.
    pub fn are_known_for(&self, batch: BatchNo, order: &Order) -> bool {
        order.inputs.iter().all(|input| self.is_known(input.batch_of(batch)))
    }

    /// Batches whose ended jobs are to be looked up. They are being looked up from now on.
    pub fn begin_lookups(&mut self) -> Vec<BatchNo> {
        let wanted = self.batches.iter_mut().filter(|(_, known)| known.lookup == Lookup::Wanted);
        let begin = |(no, known): (&BatchNo, &mut BatchInputs)| {
            known.lookup = Lookup::Asked;
            *no
        };
        wanted.map(begin).collect()
    }

    /// Whether ended jobs are being looked up.
    pub fn is_looking_up(&self) -> bool {
        self.batches.values().any(|known| known.lookup == Lookup::Asked)
    }

    /// Takes in how the jobs of a batch ended; what came since is newer. Returns the jobs that wait for some of them.
    pub fn looked_up(&mut self, batch: BatchNo, ended: Vec<(JobId, EndedTake)>) -> Vec<JobKey> {
        let Some(known) = self.batches.get_mut(&batch) else { return Vec::new() };
        known.lookup = Lookup::Done;
        for (job, take) in ended {
            known.ended.entry(job).or_insert(take);
        }
        let own = known.waiting.iter().map(|seq| JobKey { batch, seq: *seq });
        let children: BTreeSet<JobKey> = own.chain(known.children.values().flatten().copied()).collect();
        children.into_iter().collect()
    }

    /// How the jobs of a batch ended cannot be looked up, since its files were moved away.
    pub fn moved(&mut self, batch: BatchNo) {
        if let Some(known) = self.batches.get_mut(&batch) {
            known.lookup = Lookup::Moved;
        }
    }

    /// What was moved away may have been put back: it is looked up again.
    pub fn look_up_moved(&mut self) {
        let moved = self.batches.values_mut().filter(|known| known.lookup == Lookup::Moved);
        moved.for_each(|known| known.lookup = Lookup::Wanted);
    }

    /// A queued job lacks inputs.
    pub fn wait(&mut self, key: JobKey, order: &Order) {
        self.batches.entry(key.batch).or_default().waiting.insert(key.seq);
        self.note_child(key, order);
    }

    /// A queued job lacks no input.
    pub fn is_ready(&mut self, key: JobKey, order: &Order) {
        self.batches.entry(key.batch).or_default().waiting.remove(&key.seq);
        // A decision may take it back.
        self.note_child(key, order);
    }

    /// A job that is not queued looks for its inputs, or may still be turned away: what is known of them is kept.
    pub fn looks_for(&mut self, key: JobKey, order: &Order) {
        if let Some(known) = self.batches.get_mut(&key.batch) {
            known.waiting.remove(&key.seq);
        }
        self.note_child(key, order);
    }

    fn note_child(&mut self, key: JobKey, order: &Order) {
        for input in &order.inputs {
            let no = input.batch_of(key.batch);
            let known = self.batches.entry(no).or_default();
            for job in input.jobs().chain(input.later_jobs()) {
                if known.children.entry(job).or_default().insert(key) {
                    *self.named.entry(key.batch).or_default().entry(no).or_default() += 1;
                }
            }
        }
    }

    /// A job needs its inputs no more: it has them, or has ended.
    pub fn has_left(&mut self, key: JobKey, order: &Order) {
        if let Some(known) = self.batches.get_mut(&key.batch) {
            known.waiting.remove(&key.seq);
        }
        for input in &order.inputs {
            let no = input.batch_of(key.batch);
            let Some(known) = self.batches.get_mut(&no) else { continue };
            for job in input.jobs().chain(input.later_jobs()) {
                if let Some(children) = known.children.get_mut(&job) {
                    if children.remove(&key) {
                        names_one_less(&mut self.named, key.batch, no);
                    }
                    if children.is_empty() {
                        known.children.remove(&job);
                    }
                }
            }
            if known.is_finished && known.children.is_empty() {
                self.batches.remove(&no);
            }
        }
    }

    /// A job has ended, or a decision was made about it. Returns the queued jobs that need its outputs.
    pub fn has_ended(&mut self, batch: BatchNo, job: JobId, take: EndedTake) -> Vec<JobKey> {
        let Some(known) = self.batches.get_mut(&batch).filter(|known| known.lookup != Lookup::Idle) else {
            return Vec::new();
        };
        known.ended.insert(job, take);
        known.children.get(&job).into_iter().flatten().copied().collect()
    }

    /// A job that had ended goes on. Returns the queued jobs that need its outputs.
    pub fn goes_on(&mut self, batch: BatchNo, job: JobId) -> Vec<JobKey> {
        let Some(known) = self.batches.get_mut(&batch) else { return Vec::new() };
        match known.ended.remove(&job) {
            Some(_) => known.children.get(&job).into_iter().flatten().copied().collect(),
            None => Vec::new(),
        }
    }

    /// Batches whose outputs children of this one need.
    pub fn named_by(&self, batch: BatchNo) -> impl Iterator<Item = BatchNo> {
        self.named.get(&batch).into_iter().flat_map(BTreeMap::keys).copied()
    }

    /// Batches some of whose queued jobs lack inputs.
    pub fn with_waiting(&self) -> impl Iterator<Item = BatchNo> {
        self.batches.iter().filter(|(_, known)| !known.waiting.is_empty()).map(|(no, _)| *no)
    }

    /// Queued jobs of a batch that lack inputs.
    pub fn waiting_of(&self, batch: BatchNo) -> impl Iterator<Item = JobKey> {
        let waiting = self.batches.get(&batch).into_iter().flat_map(|known| &known.waiting);
        waiting.map(move |seq| JobKey { batch, seq: *seq })
    }

    /// Whether a queued job lacks inputs.
    pub fn is_waiting(&self, key: JobKey) -> bool {
        self.batches.get(&key.batch).is_some_and(|known| known.waiting.contains(&key.seq))
    }

    /// The jobs that have not ended whose outputs queued jobs of a batch lack, by identity; they may be of other batches.
    pub fn lacked_by(&self, batch: BatchNo) -> impl Iterator<Item = (BatchNo, JobId)> {
        let [first, last] = [0, u32::MAX].map(|seq| JobKey { batch, seq: Seq(seq) });
        let waits = move |jobs: &BTreeSet<JobKey>| jobs.range(first..=last).any(|key| self.is_waiting(*key));
        self.batches.iter().flat_map(move |(no, known)| {
            let is_open = move |job: &JobId| !known.ended.contains_key(job);
            let lacked = known.children.iter().filter(move |(job, jobs)| is_open(job) && waits(jobs));
            lacked.map(move |(job, _)| (*no, *job))
        })
    }

    /// Whether it is known of every batch how its jobs ended whose outputs children of this one need.
    pub fn are_known(&self, batch: BatchNo) -> bool {
        self.named_by(batch).all(|named| self.is_known(named))
    }

    /// How many there are.
    pub fn waiting_count(&self, batch: BatchNo) -> u32 {
        let waiting = self.batches.get(&batch).map_or(0, |known| known.waiting.len());
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    /// Keeps nothing of batches that nobody waits for, but for those of which it `is_needed`.
    pub fn keep_needed(&mut self, is_needed: impl Fn(BatchNo) -> bool) {
        // What is being looked up comes first: an older answer must not stand in for a newer one.
        self.batches.retain(|no, known| {
            is_needed(*no) || !known.children.is_empty() || known.lookup == Lookup::Asked
        });
    }

    /// Keeps nothing of a batch that has left, unless other batches wait for it.
    pub fn forget_batch(&mut self, batch: BatchNo) {
        if let Some(known) = self.batches.get_mut(&batch) {
            known.is_finished = true;
            if known.children.is_empty() {
                self.batches.remove(&batch);
            }
        }
    }
}

/// One child less of a batch needs an output of another.
fn names_one_less(named: &mut BTreeMap<BatchNo, BTreeMap<BatchNo, usize>>, child: BatchNo, parent: BatchNo) {
    let Some(parents) = named.get_mut(&child) else { return };
    if let Some(count) = parents.get_mut(&parent) {
        *count -= 1;
        if *count == 0 {
            parents.remove(&parent);
        }
    }
    if parents.is_empty() {
        named.remove(&child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Fingerprint;
    use crate::domain::job_reference::{InputBatch, InputField, JobInput};
    use crate::domain::job_state::JobState;
    use crate::domain::request::Kind;
    use crate::engine::scheduler::tests::spec;

    const BATCH: BatchNo = BatchNo(1);
    const PARENT: Fingerprint = Fingerprint([1; 16]);

    fn child() -> Order {
        let input = JobInput {
            field: InputField::ImageUrls,
            place: 0,
            batch: None,
            row: "still".to_owned(),
            fingerprint: PARENT,
            takes: 1,
            variation: None,
            output: 1,
        };
        Order { inputs: vec![input].into(), ..spec(1, Kind::Video).order.clone() }
    }

    fn ended(state: JobState) -> EndedTake {
        EndedTake { seq: Seq(0), state, wants_review: false, verdict: None }
    }

    #[test]
    fn a_child_waits_until_its_parent_is_known_to_be_done() {
        let (mut inputs, order) = (JobInputs::default(), child());
        let (key, parent) = (JobKey { batch: BATCH, seq: Seq(1) }, JobId::derive(PARENT, 1));
        assert_eq!(inputs.parents(BATCH, &order), Err(MissingInput::Unfinished));
        inputs.want(BATCH);
        inputs.wait(key, &order);
        assert_eq!(inputs.begin_lookups(), [BATCH]);
        assert!(inputs.begin_lookups().is_empty() && inputs.is_looking_up());
        assert_eq!(inputs.has_ended(BATCH, parent, ended(JobState::Succeeded)), [key]);
        assert!(!inputs.are_there(BATCH, &order), "what else has ended is not known yet");
        // What is read may be older.
        assert_eq!(inputs.looked_up(BATCH, vec![(parent, ended(JobState::Failed))]), [key]);
        assert_eq!(inputs.parents(BATCH, &order), Ok(vec![JobKey { batch: BATCH, seq: Seq(0) }]));
        inputs.is_ready(key, &order);
        assert_eq!(inputs.waiting_count(BATCH), 0);
        assert_eq!(inputs.goes_on(BATCH, parent), [key]);
        assert!(!inputs.are_there(BATCH, &order));
        assert_eq!(inputs.has_ended(BATCH, parent, ended(JobState::Failed)), [key]);
        inputs.has_left(key, &order);
        assert!(inputs.has_ended(BATCH, parent, ended(JobState::Succeeded)).is_empty());
    }

    #[test]
    fn a_child_of_another_batch_waits_for_it_and_keeps_what_is_known_of_it() {
        let (mut inputs, mut order) = (JobInputs::default(), child());
        let own = BatchNo(2);
        order.inputs[0].batch = Some(InputBatch { no: BATCH, name: "spring".parse().unwrap() });
        let (key, parent) = (JobKey { batch: own, seq: Seq(1) }, JobId::derive(PARENT, 1));
        inputs.want_for(own, &order);
        inputs.wait(key, &order);
        assert_eq!(inputs.begin_lookups(), [BATCH], "the batch of the child is nobody's");
        assert!(!inputs.are_known_for(own, &order));
        assert_eq!(inputs.looked_up(BATCH, Vec::new()), [key]);
        assert!(inputs.are_known_for(own, &order) && !inputs.are_there(own, &order));
        assert_eq!(inputs.has_ended(BATCH, parent, ended(JobState::Succeeded)), [key]);
        inputs.is_ready(key, &order);
        assert_eq!(inputs.named_by(own).collect::<Vec<_>>(), [BATCH]);
        inputs.looks_for(key, &order);
        inputs.forget_batch(BATCH);
        inputs.keep_needed(|_| false);
        assert_eq!(
            inputs.parents(own, &order),
            Ok(vec![JobKey { batch: BATCH, seq: Seq(0) }]),
            "it looks for its inputs"
        );
        inputs.has_left(key, &order);
        assert!(!inputs.is_known(BATCH), "nobody waits for it any more");
        assert!(inputs.named_by(own).next().is_none() && inputs.named.is_empty());
    }

    #[test]
    fn a_batch_whose_files_were_moved_away_is_looked_up_again_when_an_owner_asks() {
        let (mut inputs, order) = (JobInputs::default(), child());
        let (key, parent) = (JobKey { batch: BATCH, seq: Seq(1) }, JobId::derive(PARENT, 1));
        inputs.want(BATCH);
        inputs.wait(key, &order);
        assert_eq!(inputs.begin_lookups(), [BATCH]);
        assert!(!inputs.are_known(BATCH));
        inputs.moved(BATCH);
        assert!(inputs.are_known(BATCH) && inputs.are_known_for(BATCH, &order), "nothing is waited for");
        assert!(!inputs.are_there(BATCH, &order));
        inputs.want(BATCH);
        assert!(inputs.begin_lookups().is_empty(), "it is not asked for again and again");
        inputs.look_up_moved();
        assert_eq!(inputs.begin_lookups(), [BATCH]);
        assert_eq!(inputs.looked_up(BATCH, vec![(parent, ended(JobState::Succeeded))]), [key]);
        assert!(inputs.are_there(BATCH, &order));
    }

    #[test]
    fn of_batches_without_references_nothing_is_kept() {
        let mut inputs = JobInputs::default();
        let job = JobId::derive(PARENT, 1);
        assert!(inputs.has_ended(BATCH, job, ended(JobState::Succeeded)).is_empty());
        assert!(inputs.are_there(BATCH, &spec(0, Kind::Video).order));
        assert!(inputs.batches.is_empty());
    }
}
