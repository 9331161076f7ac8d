//! A person's decisions about outputs: what is named is found, and what is decided of one take is told of the others of
//! its row. Nothing is bought by it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::domain::ids::{BatchNo, JobId, JobKey};
use crate::domain::job::JobSpec;
use crate::domain::review::{self, Decision, ReviewAction, Take, Verdict};
use crate::domain::time::Timestamp;
use crate::engine::engine_client::{EngineClient, Reopening};
use crate::engine::name_lookup::{self, FindError, NamedJob, Target};
use crate::engine::row_takes::{RowTakes, row_takes};
use crate::engine::scheduler::{Command, FoundJob, still_watched};
use crate::engine::{EngineError, blocking};
use crate::store::{BatchRecord, JobRecord, Store, StoreError};

/// Jobs that one commit decides about, at most.
const DECIDED_MAX: usize = 100;

/// What a person asks for about one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedDecision {
    /// The job's label, `BATCH/LABEL`, or the beginning of its identity.
    pub job: String,
    /// What is to hold.
    pub action: ReviewAction,
    /// Why.
    pub note: Option<String>,
    /// The outputs that were looked at, by their SHA-256, in their order; others than these are not decided about.
    /// Nothing where that was not said.
    pub sha256: Option<Vec<String>>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct DecidedJob {
    /// The batch and the label of the job, where it was found.
    pub job: Option<(BatchRecord, JobId, String)>,
    /// Whether anything changed: what holds already is no change.
    pub is_changed: bool,
    /// Other takes of its row that were decided with it.
    pub others: u32,
    /// Why nothing was decided.
    pub refused: Option<String>,
}

impl DecidedJob {
    fn refused(job: Option<(BatchRecord, JobId, String)>, why: String) -> DecidedJob {
        DecidedJob { job, is_changed: false, others: 0, refused: Some(why) }
    }
}

/// One decision with all that it changes.
struct Planned {
    index: usize,
    changes: Vec<(FoundJob, Decision)>,
}

impl EngineClient {
    /// Records decisions, in their order. Each is answered, in that order; those that cannot be recorded keep no other
    /// from being.
    ///
    /// # Errors
    /// [`EngineError`] when the engine has ended or the state cannot be read.
    pub async fn review(
        &self,
        _alone: &Reopening,
        asked: Vec<AskedDecision>,
        by: &str,
    ) -> Result<Vec<DecidedJob>, EngineError> {
        let mut answers: Vec<DecidedJob> = Vec::with_capacity(asked.len());
        let mut placed: HashMap<BatchNo, RowTakes> = HashMap::new();
        let mut pending: Vec<Planned> = Vec::new();
        let mut touched: HashSet<JobKey> = HashSet::new();
        let mut as_of = 0;
        let mut in_batch = None;
        for (index, decision) in asked.into_iter().enumerate() {
            let (store, text) = (self.store().clone(), decision.job.clone());
            let found = blocking(move || name_lookup::target(&store, &text)).await;
            let named = match found {
                Ok(Target::Job(named)) => named,
                Ok(Target::Batch(batch)) => {
                    let why = format!("{} is a batch; name a job, as {}/JOB", batch.name, batch.name);
                    answers.push(DecidedJob::refused(None, why));
                    continue;
                }
                Err(FindError::Engine(error)) => return Err(error),
                Err(error) => {
                    answers.push(DecidedJob::refused(None, error.to_string()));
                    continue;
                }
            };
            let key = named.record.key;
            let needs_takes =
                decision.action == ReviewAction::Pick || verdict_of(&named.record) == Some(Verdict::Picked);
            // Takes that are decided in the same commit would be read as they were before it.
            let is_other_batch = in_batch.is_some_and(|no| no != key.batch);
            let changes: usize = pending.iter().map(|planned| planned.changes.len()).sum();
            if is_other_batch
                || needs_takes && !touched.is_empty()
                || touched.contains(&key)
                || changes >= DECIDED_MAX
            {
                self.take_down(&mut pending, &mut touched, as_of, &mut answers).await?;
            }
            let (store, by) = (self.store().clone(), by.to_owned());
            let mut known = placed.remove(&key.batch);
            // Read again where something of it was just decided.
            let planning = move || {
                let as_of = store.outcomes_bytes(&named.batch)?;
                let record = store.job_at(&named.batch, named.record.row_at, &named.spec)?;
                let named = NamedJob { record, ..*named };
                let takes = match needs_takes {
                    true => takes(&store, &named, &mut known)?,
                    false => vec![(Arc::new(named.spec.clone()), named.record.clone())],
                };
                let planned = plan(&named, &takes, &decision, &by);
                Ok::<_, StoreError>((named, planned, known, as_of))
            };
            let (named, planned, known, read_at) = blocking(planning).await?;
            if let Some(known) = known {
                placed.insert(key.batch, known);
            }
            let job = Some((named.batch, named.spec.id, named.spec.label));
            match planned {
                Err(why) => answers.push(DecidedJob::refused(job, why)),
                Ok(changes) => {
                    let others = u32::try_from(changes.len().saturating_sub(1)).unwrap_or(u32::MAX);
                    let is_changed = !changes.is_empty();
                    answers.push(DecidedJob { job, is_changed, others, refused: None });
                    if is_changed {
                        if pending.is_empty() {
                            (as_of, in_batch) = (read_at, Some(key.batch));
                        }
                        touched.extend(changes.iter().map(|((_, record), _)| record.key));
                        pending.push(Planned { index, changes });
                    }
                }
            }
        }
        self.take_down(&mut pending, &mut touched, as_of, &mut answers).await?;
        Ok(answers)
    }

    /// Makes what is planned durable.
    async fn take_down(
        &self,
        pending: &mut Vec<Planned>,
        touched: &mut HashSet<JobKey>,
        as_of: u64,
        answers: &mut [DecidedJob],
    ) -> Result<(), EngineError> {
        touched.clear();
        let planned = std::mem::take(pending);
        let indexes: Vec<usize> = planned.iter().map(|planned| planned.index).collect();
        let changes: Vec<_> = planned.into_iter().flat_map(|planned| planned.changes).collect();
        if changes.is_empty() {
            return Ok(());
        }
        let outcome = self.execute_on_found(Command::Decide(changes), as_of).await?;
        if let Some(refused) = outcome.refused {
            for index in indexes {
                if let Some(answer) = answers.get_mut(index) {
                    let job = answer.job.take();
                    *answer = DecidedJob::refused(job, refused.clone());
                }
            }
        }
        Ok(())
    }
}

fn verdict_of(record: &JobRecord) -> Option<Verdict> {
    record.job.decision().map(|decision| decision.verdict)
}

/// What a decision changes, or why it cannot be recorded.
fn plan(
    named: &NamedJob,
    takes: &[FoundJob],
    asked: &AskedDecision,
    by: &str,
) -> Result<Vec<(FoundJob, Decision)>, String> {
    let NamedJob { batch, spec, record, .. } = named;
    if let Some(why) = still_watched(&batch.name, spec, &record.job) {
        return Err(why);
    }
    if !record.job.has_succeeded() {
        return Err(format!("it has no outputs to decide about: it is {}", record.job.state().name()));
    }
    let sums =
        |record: &JobRecord| record.job.outputs().iter().map(|file| file.sha256.clone()).collect::<Vec<_>>();
    if asked.sha256.as_ref().is_some_and(|looked_at| *looked_at != sums(record)) {
        return Err("its outputs differ from those in the decision (sha256)".to_owned());
    }
    let decision = |verdict, note: Option<&String>, record: &JobRecord| Decision {
        verdict,
        by: by.to_owned(),
        // The engine's clock says when.
        at: Timestamp(0),
        note: note.cloned(),
        sha256: sums(record),
    };
    let as_takes: Vec<Take> = takes
        .iter()
        .map(|(spec, record)| Take { job: spec.seq, variation: spec.variation, verdict: verdict_of(record) })
        .collect();
    let mut changes = Vec::new();
    for (seq, verdict) in review::verdicts(asked.action, spec.seq, &as_takes) {
        let Some(found) = takes.iter().find(|(take, _)| take.seq == seq) else { continue };
        if let Some(why) = still_watched(&batch.name, &found.0, &found.1.job) {
            return Err(format!("{}: {why}", found.0.label));
        }
        let note = asked.note.as_ref().filter(|_| seq == spec.seq);
        changes.push((found.clone(), decision(verdict, note, &found.1)));
    }
    // The same verdict with another note is news.
    let present = record.job.decision().filter(|present| present.verdict == asked.action.verdict());
    if changes.is_empty()
        && let Some(present) = present
        && asked.note.is_some()
        && present.note != asked.note
    {
        let found = (Arc::new(spec.clone()), record.clone());
        changes.push((found, decision(present.verdict, asked.note.as_ref(), record)));
    }
    Ok(changes)
}

/// The jobs of the row of a job that have outputs, itself among them.
fn takes(store: &Store, named: &NamedJob, known: &mut Option<RowTakes>) -> Result<Vec<FoundJob>, StoreError> {
    let NamedJob { batch, spec, record, .. } = named;
    if known.is_none() {
        *known = Some(row_takes(store, batch, |_| true)?);
    }
    let places = known.as_ref().and_then(|known| known.get(&spec.fingerprint)).cloned().unwrap_or_default();
    let mut rows = store.spool(batch.no).rows_scattered(0, batch.spool_bytes)?;
    let mut found = vec![(Arc::new(spec.clone()), record.clone())];
    for at in places.into_iter().filter(|at| *at != record.row_at) {
        let other: JobSpec = rows.line_at(at)?;
        let record = store.job_at(batch, at, &other)?;
        if record.job.has_succeeded() {
            found.push((Arc::new(other), record));
        }
    }
    Ok(found)
}
