//! What a person does to batches and jobs while nothing runs: pause, resume, cancel, retry.
//!
//! The same conductor decides and the same store commits; only nothing is sent.

use std::sync::Arc;

use crate::clock::Clock;
use crate::domain::ids::BatchNo;
use crate::domain::job::{Job, JobSpec, State};
use crate::domain::lifecycle::{self, Event, IllegalEvent, Terms};
use crate::domain::request::Kind;
use crate::domain::retry::{self, Prospect};
use crate::engine::conductor::{Effect, Input, Settings};
use crate::engine::spooled;
use crate::engine::walk::Walk;
use crate::engine::{self, EngineError};
use crate::output::landing::{Arrival, Landing};
use crate::output::layout::Layout;
use crate::store::{BatchRecord, Change, JobRecord, Pause, Store};

/// Jobs that are taken up again in one commit.
const REOPEN_CHUNK: usize = 100;

/// Pauses a batch: nothing more of it is sent. What is in flight goes on.
///
/// # Errors
/// [`EngineError`] when the state refuses.
pub fn pause(store: &Store, batch: &BatchRecord) -> Result<(), EngineError> {
    let paused = BatchRecord { paused: Some(Pause::Owner), ..batch.clone() };
    Ok(store.commit(&[Change::Batch(Box::new(paused))])?)
}

/// Lifts a pause, whoever made it.
///
/// # Errors
/// [`EngineError`] when the state refuses.
pub fn resume(store: &Store, batch: &BatchRecord) -> Result<(), EngineError> {
    let resumed = BatchRecord { paused: None, rejections: 0, ..batch.clone() };
    Ok(store.commit(&[Change::Batch(Box::new(resumed))])?)
}

/// Cancels what is not sent yet, of one batch, and returns how many jobs that were. What is at the
/// service cannot be recalled.
///
/// # Errors
/// [`EngineError`] when the state refuses.
pub fn cancel(
    store: &Arc<Store>,
    batch: &BatchRecord,
    settings: Settings,
    clock: Clock,
) -> Result<u32, EngineError> {
    let mut canceled = batch.clone();
    canceled.canceled = true;
    let before = batch.ended.canceled;
    // Kept first: should this be cut short, the next start goes on with it.
    store.commit(&[Change::Batch(Box::new(canceled))])?;
    let mut conductor = engine::take_up(store, settings, |no| no == batch.no, clock.now())?;
    conductor.hold_back();
    let mut inputs = Vec::new();
    loop {
        let turn = conductor.turn(std::mem::take(&mut inputs), clock.now())?;
        if !turn.changes.is_empty() {
            store.commit(&turn.changes)?;
        }
        for effect in turn.effects {
            if let Effect::LoadRows { batch, from, end, most } = effect {
                let rows = spooled::load_rows(store, batch, from, end, most)?;
                inputs.push(Input::Rows { batch, from, rows });
            }
        }
        if inputs.is_empty() {
            break;
        }
    }
    let after = conductor.batch(batch.no).map_or(before, |batch| batch.ended.canceled);
    // A later manifest in this batch is a new wish.
    if let Some(record) = conductor.batch(batch.no) {
        let record = BatchRecord { canceled: false, ..record.clone() };
        store.commit(&[Change::Batch(Box::new(record))])?;
    }
    Ok(after - before)
}

/// What became of a wish to try failed jobs again.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Retried {
    /// Jobs that are queued again, under a new key.
    pub queued: u32,
    /// Jobs that the service would refuse again unchanged: their rows need changing.
    pub hopeless: Vec<String>,
    /// Jobs that are paid for and only were not downloaded.
    pub paid: Vec<String>,
}

/// Queues the failed, canceled and expired jobs of a batch again, or the one called `label`.
///
/// # Errors
/// [`EngineError`] when the state refuses.
pub fn retry(
    store: &Store,
    batch: &BatchRecord,
    label: Option<&str>,
    clock: Clock,
) -> Result<Retried, EngineError> {
    let mut outcome = Retried::default();
    let mut batch = batch.clone();
    let mut reopened: Vec<Change> = Vec::new();
    let mut walk = Walk::begin(store, &batch)?;
    while let Some((spec, record)) = walk.next_job()? {
        if label.is_some_and(|label| !is_called(&spec, label)) {
            continue;
        }
        match again(&spec, &record, clock) {
            Again::No => {}
            Again::Hopeless => outcome.hopeless.push(spec.label),
            Again::Paid => outcome.paid.push(spec.label),
            Again::Yes(job) => {
                batch.count_reopened(spec.order.kind, &record.job.state);
                reopened.push(Change::Open(JobRecord { job: *job, ..record }));
                outcome.queued += 1;
            }
        }
        if reopened.len() >= REOPEN_CHUNK {
            commit_reopened(store, &batch, &mut reopened)?;
        }
    }
    commit_reopened(store, &batch, &mut reopened)?;
    Ok(outcome)
}

/// Takes up every job of a batch that is paid for and whose outputs are not all on disk as they were,
/// or the one called `label`; returns how many that are. Running the engine then downloads them.
///
/// # Errors
/// [`EngineError`] when the state refuses.
pub fn fetch_again(
    store: &Store,
    landing: &Landing,
    default_layout: &Layout,
    batch: &BatchRecord,
    label: Option<&str>,
    clock: Clock,
) -> Result<u32, EngineError> {
    let mut batch = batch.clone();
    let layout = batch.policy.layout.as_deref().and_then(|text| Layout::parse(text).ok());
    let layout = layout.unwrap_or_else(|| default_layout.clone());
    let mut reopened: Vec<Change> = Vec::new();
    let mut count = 0;
    let mut walk = Walk::begin(store, &batch)?;
    while let Some((spec, record)) = walk.next_job()? {
        if label.is_some_and(|label| !is_called(&spec, label)) {
            continue;
        }
        let arrival = Arrival { batch: &batch.name, layout: &layout, spec: &spec, job: &record.job };
        if landing.landed(arrival).is_some() {
            continue;
        }
        let terms = Terms { attempts: 0, keyed: true };
        let now = clock.now().wall;
        let Ok(step) = lifecycle::apply(&record.job, record.job.attempt, Event::FetchAgain, terms, now)
        else {
            continue;
        };
        batch.count_reopened(spec.order.kind, &record.job.state);
        reopened.push(Change::Open(JobRecord { job: step.job, ..record }));
        count += 1;
        if reopened.len() >= REOPEN_CHUNK {
            commit_reopened(store, &batch, &mut reopened)?;
        }
    }
    commit_reopened(store, &batch, &mut reopened)?;
    Ok(count)
}

/// Whether `text` names the job: its label, its identity, or the beginning of that.
pub fn is_called(spec: &JobSpec, text: &str) -> bool {
    spec.label == text || text.len() >= 8 && spec.id.to_string().starts_with(text)
}

fn commit_reopened(
    store: &Store,
    batch: &BatchRecord,
    reopened: &mut Vec<Change>,
) -> Result<(), EngineError> {
    if !reopened.is_empty() {
        let mut changes = std::mem::take(reopened);
        changes.push(Change::Batch(Box::new(batch.clone())));
        store.commit(&changes)?;
    }
    Ok(())
}

enum Again {
    No,
    Hopeless,
    Paid,
    Yes(Box<Job>),
}

fn again(spec: &JobSpec, record: &JobRecord, clock: Clock) -> Again {
    if let State::Failed { fault, .. } = &record.job.state
        && retry::prospect(&fault.code) == Prospect::Hopeless
    {
        return Again::Hopeless;
    }
    let terms = Terms { attempts: u32::MAX, keyed: spec.order.kind != Kind::ShortsStudio };
    let attempt = record.job.attempt;
    match lifecycle::apply(&record.job, attempt, Event::Retry, terms, clock.now().wall) {
        Ok(step) => Again::Yes(Box::new(step.job)),
        Err(IllegalEvent::Misplaced { .. }) if matches!(record.job.state, State::Failed { .. }) => {
            Again::Paid
        }
        Err(_) => Again::No,
    }
}

/// The batch called so.
///
/// # Errors
/// [`EngineError`] when the state cannot be read.
pub fn find_batch(store: &Store, name: &str) -> Result<Option<BatchRecord>, EngineError> {
    Ok(store.batches()?.into_iter().find(|batch| batch.name.as_str() == name))
}

/// Every job called so, with its batch.
///
/// # Errors
/// [`EngineError`] when the state cannot be read.
pub fn find_jobs(store: &Store, text: &str) -> Result<Vec<(BatchRecord, JobSpec, JobRecord)>, EngineError> {
    // `BATCH/JOB` names the batch, where two batches have a job of one name.
    let (within, text) = match text.split_once('/') {
        Some((batch, job)) => (Some(batch), job),
        None => (None, text),
    };
    let mut found = Vec::new();
    for batch in store.batches()? {
        if within.is_some_and(|name| name != batch.name.as_str()) {
            continue;
        }
        let mut walk = Walk::begin(store, &batch)?;
        while let Some((spec, record)) = walk.next_job()? {
            if is_called(&spec, text) {
                found.push((batch.clone(), spec, record));
            }
        }
    }
    Ok(found)
}

/// How many jobs of a batch are at the service at this moment.
///
/// # Errors
/// [`EngineError`] when the state cannot be read.
pub fn in_flight(store: &Store, batch: BatchNo) -> Result<usize, EngineError> {
    let open = store.open_jobs()?;
    let sent = |record: &&JobRecord| {
        record.key.batch == batch
            && matches!(record.job.state, State::Submitting { .. } | State::Running { .. })
    };
    Ok(open.iter().filter(sent).count())
}
