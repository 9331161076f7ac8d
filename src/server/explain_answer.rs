//! `callsheet explain`: the whole story of a job, and what comes next.

use std::pin::Pin;

use crate::domain::budget::BudgetShortage;
use crate::domain::charge_drift;
use crate::domain::idempotency_key::IdempotencyKey;
use crate::domain::ids::{BatchName, JobId};
use crate::domain::input_file::InputContent;
use crate::domain::job::{Job, JobSpec, State};
use crate::domain::job_reference::{EndedTake, JobInput, MissingInput, parent};
use crate::domain::job_state::JobState;
use crate::domain::parked_reason::Parked;
use crate::domain::remedy::{ask_under_its_key, missed_its_deadline, remedy_command};
use crate::domain::shell_word::{job_argument, shell_word};
use crate::domain::time::Timestamp;
use crate::engine::engine_client::EngineClient;
use crate::engine::scheduler::{BatchOverview, PlannedStep, Withheld, ended_take};
use crate::engine::{FindError, NamedJob, Target, blocking};
use crate::server::handlers::HandlerError;
use crate::server::next_step::{
    next_of_doubt_beside, next_of_failed, next_of_waiting, next_of_watched, sent_when,
};
use crate::server::protocol::{Explanation, InputView, RowVersion};
use crate::store::{BatchRecord, JobRecord, Pause, StoreError};

/// The whole story of a job.
///
/// # Errors
/// [`HandlerError`].
pub(super) async fn explain(engine: &EngineClient, job: &str) -> Result<Explanation, HandlerError> {
    match engine.find_job(job).await? {
        Target::Batch(batch) => Err(HandlerError::IsBatch { batch: batch.name }),
        Target::Job(named) => {
            let NamedJob { batch, spec, record, .. } = *named;
            let key = IdempotencyKey::derive(spec.id, record.job.attempt());
            let is_queued = matches!(record.job.state(), State::Queued);
            let JobParked { parked, shortage, unfetched } = parked_of(engine, &batch, &spec, &record).await?;
            let parked_by = parked.filter(|_| !record.job.is_over());
            let versions = versions_of(engine, &batch, &spec).await?;
            let (inputs, missing) = inputs_of(engine, &batch.name, &spec, &record.job, 0).await?;
            let missing = missing.map(|missing| format!("it waits: {missing}"));
            let superseded = versions.iter().any(|version| version.job == spec.id && version.superseded);
            let may_wait = is_queued || matches!(record.job.state(), State::Submitting { .. });
            let planned = engine.planned_step(record.key).await?;
            let withheld = if may_wait { engine.withheld(record.key, &spec).await? } else { None };
            let next = match (superseded, record.job.state().is_final()) {
                (true, true) => {
                    // Its label means the version that is wanted.
                    let version = versions.iter().find(|version| version.job == spec.id);
                    let label = version.map_or_else(|| spec.id.to_string(), |version| version.name.clone());
                    after_edit(&record, &job_argument(&batch.name, &label))
                }
                _ if parked_by == Some(Parked::ResultHost) && is_queued => format!(
                    "it is parked: {}. The outputs of {unfetched} jobs wait",
                    Parked::ResultHost.explain_for(&batch.name)
                ),
                _ => match &withheld {
                    Some(Withheld::InputsUnavailable(why))
                        if matches!(parked_by, None | Some(Parked::InputsUnavailable)) =>
                    {
                        waits_for_inputs(why)
                    }
                    None | Some(Withheld::InputsUnavailable(_)) => {
                        next(&batch, &spec, &record, parked_by, shortage.as_ref(), missing, planned.as_ref())
                    }
                    Some(withheld) => not_sent_now(&batch.name, &spec, withheld),
                },
            };
            Ok(Explanation {
                batch: batch.name,
                idempotency_key: spec.order.kind.is_keyed().then(|| key.to_string()),
                drift: charge_drift::of(&spec.order, &record.job),
                spec,
                job: record.job,
                parked_by,
                superseded,
                versions,
                inputs,
                next,
            })
        }
    }
}

/// What parks a job.
struct JobParked {
    parked: Option<Parked>,
    /// How much is missing, where a budget parks it.
    shortage: Option<BudgetShortage>,
    /// Jobs of its batch whose outputs wait for their hosts.
    unfetched: u32,
}

async fn parked_of(
    engine: &EngineClient,
    batch: &BatchRecord,
    spec: &JobSpec,
    record: &JobRecord,
) -> Result<JobParked, HandlerError> {
    let overviews = engine.overview().await?;
    let overview = overviews.iter().find(|of| of.name == batch.name);
    // A run works on the batches of its manifests alone.
    let is_left_alone = !engine.works_on_all() && !batch.has_ended();
    let waits_here = batch.waits_for_pilot(record.row_at, &record.job);
    let parked = match overview {
        Some(overview) => overview.parked,
        None if is_left_alone && !waits_here => BatchOverview::of_unattended(batch, &[]).parked,
        None => None,
    };
    let shortage = overview.and_then(|of| of.shortage.clone());
    let unfetched = overview.map_or(0, |of| of.unfetched);
    let is_queued = matches!(record.job.state(), State::Queued);
    // The batch is parked by the groups of the jobs that wait first, which may be those of others.
    let (parked, shortage) = match parked {
        Some(Parked::GroupBudget | Parked::GroupDayBudget) if is_queued => {
            engine.group_shortage(record.key, spec).await?.unzip()
        }
        _ => (parked, shortage),
    };
    let parked = match engine.works() {
        true => parked,
        // A budget holds back what is queued; the next process continues what was sent.
        false => parked.filter(|_| is_queued).or(Some(Parked::NoProcess)),
    };
    Ok(JobParked { parked, shortage, unfetched })
}

/// Why a queued job that waits for no other row is not sent, and what helps; nothing where it will be.
async fn held_back(engine: &EngineClient, named: &NamedJob) -> Result<Option<String>, HandlerError> {
    let NamedJob { batch, spec, record, .. } = named;
    if !matches!(record.job.state(), State::Queued) || batch.waits_for_pilot(record.row_at, &record.job) {
        return Ok(None);
    }
    if let Some(withheld) = engine.withheld(record.key, spec).await? {
        return Ok(Some(not_sent_now(&batch.name, spec, &withheld)));
    }
    let JobParked { parked, shortage, .. } = parked_of(engine, batch, spec, record).await?;
    let parked = parked.filter(|parked| *parked != Parked::Inputs);
    let is_held = batch.paused.is_some() || parked.is_some();
    Ok(is_held.then(|| next(batch, spec, record, parked, shortage.as_ref(), None, None)))
}

/// Most rows between a job that waits and the row that it waits for.
const CHAIN_MAX: u32 = 64;

/// What an input waits for that waits itself: `depth` rows are between it and the job that is asked about.
fn what_it_waits_for<'a>(
    engine: &'a EngineClient,
    input: &'a NamedJob,
    depth: u32,
) -> Pin<Box<dyn Future<Output = Result<Option<String>, HandlerError>> + Send + 'a>> {
    Box::pin(async move {
        let NamedJob { batch, spec, record, .. } = input;
        if depth >= CHAIN_MAX || !matches!(record.job.state(), State::Queued) {
            return Ok(None);
        }
        let (_, missing) = inputs_of(engine, &batch.name, spec, &record.job, depth + 1).await?;
        Ok(missing)
    })
}

/// The inputs of a job that are outputs of other rows or files, and what it waits for where one is missing.
async fn inputs_of(
    engine: &EngineClient,
    batch: &BatchName,
    spec: &JobSpec,
    job: &Job,
    depth: u32,
) -> Result<(Vec<InputView>, Option<String>), HandlerError> {
    let (mut views, mut missing) = (Vec::new(), None);
    for (index, input) in spec.order.inputs.iter().enumerate() {
        // Of a row between, the first that is missing is enough.
        if depth > 0 && missing.is_some() {
            break;
        }
        let address = job.present().inputs().get(index).cloned();
        let measured = job.present().input_lengths().get(index).filter(|length| length.0 > 0).copied();
        let view = |state: String| InputView {
            field: input.shown_field(),
            reference: input.shown(),
            is_file: false,
            state,
            address,
            measured_ms: measured,
        };
        let mut takes: Vec<Take> = Vec::new();
        let batch = input.batch.as_ref().map_or(batch, |other| &other.name);
        if let Some(moved) = moved_away(engine, batch).await? {
            let waits = matches!(job.state(), State::Queued);
            missing = missing.or_else(|| waits.then(|| moved.clone()));
            views.push(view(moved));
            continue;
        }
        for id in input.jobs() {
            // Where there is none its row is refused, or was never handed in.
            takes.extend(take_of(engine, batch, id).await?);
        }
        let mut later: Vec<Take> = Vec::new();
        for id in input.later_jobs() {
            let Some(take) = take_of(engine, batch, id).await? else { break };
            later.push(take);
        }
        // What was sent stays, whichever take is chosen by now.
        let made_of = job.made_of().get(index).copied().filter(|take| *take > 0);
        let used = takes.iter().chain(&later).find(|(named, _)| Some(named.spec.variation) == made_of);
        if let Some((used, _)) = used {
            views.push(view(format!("is there: {}", used.spec.label)));
            continue;
        }
        let ended: Vec<Option<EndedTake>> = takes.iter().map(|(_, ended)| *ended).collect();
        let ended_later: Vec<EndedTake> = later.iter().filter_map(|(_, ended)| *ended).collect();
        let state = match parent(input, &ended, &ended_later) {
            Ok(seq) => {
                let named = takes.iter().chain(&later).find(|(named, _)| named.spec.seq == seq);
                named.map(|(named, _)| format!("is there: {}", named.spec.label)).unwrap_or_default()
            }
            Err(why) => {
                let wait = match older_version(engine, &takes, why).await? {
                    Some(version) => wait_for_older(batch, input, &version, why),
                    None => {
                        let wait = wait_for(batch, input, (&takes, &later), why);
                        match unfinished(&takes).filter(|_| why == MissingInput::Unfinished) {
                            Some(named) => match what_it_waits_for(engine, named, depth).await? {
                                Some(root) => format!("{wait}, since {root}"),
                                None => match held_back(engine, named).await? {
                                    Some(held) => format!("{wait}: {held}"),
                                    None => wait,
                                },
                            },
                            None => wait,
                        }
                    }
                };
                missing = missing.or_else(|| matches!(job.state(), State::Queued).then(|| wait.clone()));
                wait
            }
        };
        views.push(view(state));
    }
    let beyond = spec.order.inputs.len();
    views.extend(spec.order.files.iter().enumerate().map(|(index, file)| {
        let InputContent { bytes, sha256, .. } = &file.content;
        InputView {
            field: format!("{}[{}]", file.field.name(), file.place),
            reference: file.name.clone(),
            is_file: true,
            measured_ms: None,
            state: format!("{bytes} bytes, SHA-256 {sha256}"),
            address: job.present().inputs().get(beyond + index).cloned(),
        }
    }));
    Ok((views, missing))
}

/// The first of several takes that has not ended.
fn unfinished(takes: &[Take]) -> Option<&NamedJob> {
    takes.iter().find(|(_, ended)| ended.is_none()).map(|(named, _)| named)
}

/// Why nothing can be told of the jobs of a batch, where its files were moved away, and what helps.
async fn moved_away(engine: &EngineClient, batch: &BatchName) -> Result<Option<String>, HandlerError> {
    let (store, name) = (engine.store().clone(), batch.clone());
    match blocking(move || store.batch_named(&name)).await {
        Err(moved @ StoreError::BatchMoved { .. }) => Ok(Some(format!("{moved}; then: callsheet resume"))),
        found => Ok(found.map(|_| None)?),
    }
}

/// A job that may give an input, and how it ended, if it has.
type Take = (NamedJob, Option<EndedTake>);

/// A take by its identity; nothing where the batch has no such job.
async fn take_of(engine: &EngineClient, batch: &BatchName, id: JobId) -> Result<Option<Take>, HandlerError> {
    match engine.find(&format!("{batch}/{id}")).await {
        Ok(Target::Job(named)) => {
            let ended = named.record.job.is_over().then(|| ended_take(&named.record));
            Ok(Some((*named, ended)))
        }
        Ok(Target::Batch(_)) | Err(FindError::Nothing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The name of the version of a row that a job waits for, where that one gives no outputs as things are and is not wanted
/// any more.
async fn older_version(
    engine: &EngineClient,
    takes: &[Take],
    why: MissingInput,
) -> Result<Option<String>, HandlerError> {
    let Some((first, _)) = takes.first().filter(|_| why != MissingInput::Unfinished) else { return Ok(None) };
    let versions = versions_of(engine, &first.batch, &first.spec).await?;
    let mut older = versions.into_iter().filter(|version| version.superseded);
    Ok(older.find(|version| version.job == first.spec.id).map(|version| version.name))
}

/// What an input lacks that is to come from an older version of an edited row, and what helps.
fn wait_for_older(batch: &BatchName, input: &JobInput, version: &str, why: MissingInput) -> String {
    let (row, name) = (input.shown(), job_argument(batch, version));
    let again = "to take outputs of that one, submit the manifest of this row again";
    let command = match why {
        MissingInput::Unfinished | MissingInput::Ended(_) => {
            return format!("the row {row} was edited, and its newer version is another job; {again}");
        }
        MissingInput::AwaitsReview | MissingInput::Rejected => format!("callsheet review approve {name}"),
        MissingInput::AwaitsPick => format!("callsheet review pick {name}"),
    };
    format!(
        "the row {row} was edited, and the version before that {}: {command}; its newer version is another job; {again}",
        why.explain()
    )
}

/// What an input lacks, and the command that helps. `later` are takes that were asked for after the row was named.
fn wait_for(
    batch: &BatchName,
    input: &JobInput,
    (takes, later): (&[Take], &[Take]),
    why: MissingInput,
) -> String {
    let Some((first, _)) = takes.first() else {
        return format!("the row {} is not in the batch {batch}; submit its manifest again", input.row);
    };
    let name = job_argument(batch, &first.spec.label);
    let row = input.shown();
    let is_of_row =
        input.variation.is_none() && matches!(why, MissingInput::Rejected | MissingInput::Ended(_));
    if is_of_row && let Some(other) = another_take(batch, takes, later) {
        return format!("the row {row} {}, and {other}", why.explain());
    }
    let command = match why {
        MissingInput::Unfinished => {
            let NamedJob { batch, record, .. } = unfinished(takes).unwrap_or(first);
            return match batch.waits_for_pilot(record.row_at, &record.job) {
                true => format!("the row {row} {}", after_pilot(batch)),
                false => format!("the row {row} is {}", record.job.state().name()),
            };
        }
        MissingInput::Ended(JobState::InDoubt) => {
            format!("callsheet resolve {name} --charged N or --not-charged, as the account shows")
        }
        MissingInput::Ended(JobState::Expired)
            if missed_its_deadline(&first.spec.order, &first.record.job) =>
        {
            "the deadline of its row has passed; to have it made, add that row with another id".to_owned()
        }
        MissingInput::Ended(_) => remedy_command(&name, first.spec.order.kind, &first.record.job),
        MissingInput::AwaitsReview => format!("callsheet review approve {name}"),
        MissingInput::Rejected if input.variation.is_some() => {
            format!("callsheet review approve {name}")
        }
        MissingInput::Rejected => {
            let has_outputs = |(take, _): &&Take| take.record.job.has_succeeded();
            let rejected = takes.iter().find(has_outputs).map_or(first, |(take, _)| take);
            let name = job_argument(batch, &rejected.spec.label);
            format!("callsheet review approve {name}, or callsheet review another-take {name}, which costs")
        }
        MissingInput::AwaitsPick => {
            choose(batch, takes, later).unwrap_or_else(|| format!("callsheet review pick {name}"))
        }
    };
    format!("the row {row} {}: {command}", why.explain())
}

/// Another take of a row that was bought already and may give what is missing: what it waits for, or the command that
/// helps.
fn another_take(batch: &BatchName, takes: &[Take], later: &[Take]) -> Option<String> {
    let mut all = takes.iter().chain(later);
    if let Some((take, _)) = all.find(|(_, ended)| ended.is_none()) {
        let (label, state) = (&take.spec.label, take.record.job.state());
        let then = match state {
            State::Queued => format!("; what it waits for: callsheet explain {}", job_argument(batch, label)),
            _ => String::new(),
        };
        return Some(format!("its take {label} is {}{then}", state.name()));
    }
    choose(batch, takes, later).map(|command| format!("another take of it is there: {command}"))
}

/// The command that chooses among the takes that have outputs and are not rejected; nothing where there is none.
fn choose(batch: &BatchName, takes: &[Take], later: &[Take]) -> Option<String> {
    let may_give = |(_, ended): &&Take| ended.is_some_and(|take| take.may_give());
    let mut choice = takes.iter().chain(later).filter(may_give);
    let (one, _) = choice.next()?;
    let verb = if choice.next().is_some() { "pick" } else { "approve" };
    Some(format!("callsheet review {verb} {}", job_argument(batch, &one.spec.label)))
}

impl InputView {
    /// As its row writes it: `job:still-07`, or the name of a file.
    pub fn shown(&self) -> String {
        let scheme = if self.is_file { "" } else { "job:" };
        format!("{scheme}{}", self.reference)
    }
}

/// What a row of the rest waits for that a pilot may need.
fn after_pilot(batch: &BatchRecord) -> String {
    format!("waits with the rest until the pilot is continued: callsheet continue {}", batch.name)
}

/// The versions of a job's row, where it was edited.
async fn versions_of(
    engine: &EngineClient,
    batch: &BatchRecord,
    spec: &JobSpec,
) -> Result<Vec<RowVersion>, HandlerError> {
    if batch.versions_bytes == 0 {
        return Ok(Vec::new());
    }
    let (store, batch) = (engine.store().clone(), batch.clone());
    let (label, variation, seq) = (spec.label.clone(), spec.variation, spec.seq);
    let found = blocking(move || -> Result<_, StoreError> {
        let wanted = store.row_versions(&batch)?;
        if !wanted.is_edited(seq) {
            return Ok(Vec::new());
        }
        let versions = store.versions_called(&batch, &label, variation)?;
        let version = |(index, (_, spec)): (usize, (u64, JobSpec))| RowVersion {
            name: format!("{label}@{}", index + 1),
            job: spec.id,
            superseded: wanted.is_superseded(spec.seq),
        };
        Ok(versions.into_iter().enumerate().map(version).collect())
    });
    Ok(found.await?)
}

/// What can be done for a version of a row that has ended, and is not wanted any more; `name` is what commands call it.
fn after_edit(record: &JobRecord, name: &str) -> String {
    let again = "to want this version again, submit a manifest with its text";
    match record.job.state() {
        state if state.is_replaced() => {
            format!("nothing: another version of its row was wanted before it was sent; {again}")
        }
        State::InDoubt { .. } => format!(
            "another version of its row is wanted; check the account and record the charge: callsheet resolve {name} \
             --charged N, or --not-charged; until then its credits count as spent"
        ),
        _ => format!("nothing: another version of its row is wanted; {again}"),
    }
}

/// What the program does next for a job, and what a person can do.
fn next(
    batch: &BatchRecord,
    spec: &JobSpec,
    record: &JobRecord,
    parked: Option<Parked>,
    shortage: Option<&BudgetShortage>,
    missing: Option<String>,
    planned: Option<&PlannedStep>,
) -> String {
    if batch.paused.is_none()
        && parked != Some(Parked::Pilot)
        && let Some(missing) = missing
    {
        return missing;
    }
    let name = job_argument(&batch.name, &spec.label);
    let to_end_it = format!("callsheet resolve {name} --charged N or --not-charged, as the account shows");
    let unfetched = match record.job.task() {
        Some(_) => "",
        None => "; its outputs are not downloaded then, since no task of it is known",
    };
    if let Some(parked_reason) =
        parked.and_then(|parked| parked_reason(batch, spec, record, parked, shortage))
    {
        return match record.job.state() {
            // Once it is sent again, its key returns its task: nothing is to be looked up.
            State::Submitting { .. } if matches!(parked, Some(Parked::Credits | Parked::Key)) => {
                parked_reason
            }
            State::Submitting { may_have_run: true, .. } | State::Running { .. }
                if record.job.is_overdue() =>
            {
                format!("{parked_reason}. It is overdue. To end it: {to_end_it}{unfetched}")
            }
            _ => parked_reason,
        };
    }
    let overdue = match record.job.is_overdue() {
        false => String::new(),
        true => {
            format!(" It is overdue, so it is asked less often. To end it instead: {to_end_it}{unfetched}")
        }
    };
    if let Some(waits) = planned.and_then(|planned| next_of_waiting(spec, &record.job, planned, &overdue)) {
        return waits;
    }
    match record.job.state() {
        State::Queued => next_of_queued(batch, spec, record, &to_end_it, planned),
        State::Submitting { may_have_run: true, .. } => {
            format!("the same request is sent again under the same key; it cannot be charged twice.{overdue}")
        }
        State::Submitting { .. } => "its request is being sent".to_owned(),
        State::Running { .. } => format!("its task is polled until it ends.{overdue}"),
        State::Fetching { urls, .. } if urls.is_empty() => "its task is polled for fresh links".to_owned(),
        State::Fetching { .. } => "its outputs are downloaded".to_owned(),
        State::Succeeded { .. } if record.job.awaits_review() => format!(
            "its outputs wait for a decision: callsheet review approve {name}, or callsheet review reject {name}; of several \
             takes of its row, callsheet review pick {name}, after which the undecided ones count as not picked"
        ),
        State::Succeeded { .. } if record.job.gave_up_download_since(Timestamp(i64::MIN)) => format!(
            "nothing; its outputs could not be downloaded again: its history says why; to try once more, free of charge: \
             callsheet download {name}; to have another made at its price: callsheet review another-take {name}"
        ),
        State::InDoubt { .. } => {
            let (look, fetch) = match record.job.task() {
                Some(task) => (
                    format!("look its task up (callsheet tasks {})", shell_word(&task.0)),
                    format!(
                        ". If task {task} has succeeded at the service, callsheet download {name} fetches its outputs once the \
                         charge is recorded, free of charge"
                    ),
                ),
                None if spec.order.kind.is_keyed() => (
                    "check the account".to_owned(),
                    format!(
                        ". No task of it is known: after --charged N its outputs are not downloaded. {}",
                        ask_under_its_key(&name)
                    ),
                ),
                None => ("check the account".to_owned(), String::new()),
            };
            format!(
                "nothing: {look} and record the charge: callsheet resolve {name} --charged N, or --not-charged; until then \
                 its credits count as spent{fetch}"
            )
        }
        State::Succeeded { .. } | State::Failed { .. } | State::Canceled { .. } | State::Expired => {
            match (record.job.watched_attempts().next(), record.job.doubt_beside()) {
                (Some(watched), _) => next_of_watched(&record.job, watched, &name),
                (None, Some(doubt)) => next_of_doubt_beside(doubt, &name),
                (None, None) if record.job.has_succeeded() => {
                    format!("nothing; callsheet download {name} fetches its outputs again, free of charge")
                }
                (None, None) => next_of_failed(spec, &record.job, &name, batch.expires()),
            }
        }
    }
}

/// The same of a job that nothing parks and that has not begun. `to_end_it` is the command by which a person ends it.
fn next_of_queued(
    batch: &BatchRecord,
    spec: &JobSpec,
    record: &JobRecord,
    to_end_it: &str,
    planned: Option<&PlannedStep>,
) -> String {
    let name = &batch.name;
    if record.job.may_have_been_sent() || batch.may_have_been_sent(spec.seq) {
        return if spec.order.kind.is_keyed() {
            format!(
                "it may have been sent before the state was rebuilt or imported. After callsheet resume {name} it is sent \
                 under this key: a key that was used returns its task, a key that was not used buys. To end it instead: \
                 {to_end_it}"
            )
        } else {
            format!(
                "it may have been sent before the state was rebuilt or imported, and has no key to find its task. After \
                 callsheet resume {name} it is in doubt. To end it: {to_end_it}"
            )
        };
    }
    match batch.paused {
        Some(Pause::Rebuilt) => format!(
            "its batch is paused because the state was rebuilt or imported; after callsheet resume {name} it is sent under \
             this key: a key that was used returns its task, a key that was not used buys"
        ),
        Some(pause) => {
            let reason = pause.reason().map_or_else(String::new, |reason| format!(", since {reason}"));
            format!("its batch is paused{reason}; to continue: callsheet resume {name}")
        }
        None if batch.waits_for_pilot(record.row_at, &record.job) => format!("it {}", after_pilot(batch)),
        None => sent_when(planned),
    }
}

/// What is said of a job whose inputs cannot be had just now.
fn waits_for_inputs(why: &str) -> String {
    format!(
        "it waits for its inputs, which cannot be had just now: {why}. It is tried again with increasing delays, for up to a \
         day; nothing is charged meanwhile"
    )
}

/// Why a queued job that may have been sent by a state that is gone is neither sent nor dropped, and what a person can do.
fn not_sent_now(batch: &BatchName, spec: &JobSpec, withheld: &Withheld) -> String {
    let name = job_argument(batch, &spec.label);
    let (why, instead) = match withheld {
        Withheld::Expired => (
            "its batch has expired",
            "; to have it sent all the same, submit its manifest with a later policy.expires",
        ),
        Withheld::PastDeadline => (
            "the deadline of its row has passed",
            "; to have it made all the same, add its row with another id and a later deadline",
        ),
        Withheld::AboveMax(why) => (why.as_str(), ""),
        Withheld::InputsUnavailable(why) => return waits_for_inputs(why),
    };
    format!(
        "it may have been sent before the state was rebuilt or imported, and is neither sent now nor dropped: {why}. To end \
         it: callsheet resolve {name} --charged N or --not-charged, as the account shows{instead}"
    )
}

/// What a job waits for, where that is what its batch is parked by and no pause.
fn parked_reason(
    batch: &BatchRecord,
    spec: &JobSpec,
    record: &JobRecord,
    parked: Parked,
    shortage: Option<&BudgetShortage>,
) -> Option<String> {
    let state = record.job.state();
    let why = parked.explain_for(&batch.name);
    match (state, parked) {
        (_, Parked::Paused) => None,
        (State::Queued, Parked::Inputs) if batch.waits_for_pilot(record.row_at, &record.job) => {
            Some(format!("it {}", after_pilot(batch)))
        }
        (State::Queued, Parked::BatchBudget) => {
            let (needs, budget) = (spec.order.hold().unwrap_or_default(), batch.budget());
            // Of what may be charged already it is a part itself where it may have been sent.
            let may_have_been_sent = record.job.may_have_been_sent() || batch.may_have_been_sent(spec.seq);
            let committed = if may_have_been_sent { batch.totals.committed() } else { batch.committed() };
            let left = budget.saturating_sub(committed);
            let left_of = format!("{} of {budget} are left", left.0);
            Some(if needs <= left {
                format!(
                    "it is parked: {why}. This job was planned at {needs}, and {left_of}: it costs more now, or waits \
                     behind a job that does"
                )
            } else {
                format!("it is parked: {why}. This job needs {needs}; {left_of}")
            })
        }
        (State::Queued, Parked::NoPrice) => {
            let job = job_argument(&batch.name, &spec.label);
            Some(format!(
                "it is parked, or waits behind a job that is: {why}. Here: callsheet retry {job} --max-credits N, or \
                 callsheet cancel {job}"
            ))
        }
        (State::Queued, Parked::NoProcess | Parked::AnotherRun)
            if record.job.may_have_been_sent() || batch.may_have_been_sent(spec.seq) =>
        {
            let job = job_argument(&batch.name, &spec.label);
            let limit = record.job.max_credits().or(spec.order.max_credits);
            let limit = limit.map_or_else(String::new, |limit| {
                format!(
                    "; if it costs more than {limit} by then, it waits until more is allowed: callsheet retry {job} \
                     --max-credits N"
                )
            });
            Some(format!(
                "it is parked: {why}. It may have been sent before the state was rebuilt or imported. To end it: callsheet \
                 resolve {job} --charged N or --not-charged, as the account shows{limit}"
            ))
        }
        (State::Queued, Parked::Credits | Parked::MinBalance) => {
            let needs = spec.order.hold().unwrap_or_default();
            Some(format!("it is parked: {why}. This job needs {needs}"))
        }
        (State::Queued, _) => {
            let shortage = shortage.map(|shortage| format!("; of its batch, {shortage}")).unwrap_or_default();
            Some(format!("it is parked: {why}{shortage}"))
        }
        // It is sent again all the same.
        (State::Submitting { .. }, Parked::Credits)
            if record.job.lacks_answer() && spec.order.kind.is_keyed() =>
        {
            None
        }
        (
            State::Submitting { .. },
            Parked::Key | Parked::Credits | Parked::NoProcess | Parked::AnotherRun,
        ) => Some(format!("its request is sent again under the same key when it is no longer parked: {why}")),
        (State::Running { .. }, Parked::Key | Parked::NoProcess | Parked::AnotherRun) => {
            Some(format!("its task is not polled: {why}"))
        }
        (State::Fetching { urls, .. }, Parked::Key | Parked::NoProcess | Parked::AnotherRun)
            if urls.is_empty() =>
        {
            Some(format!("its task is not polled for fresh links: {why}"))
        }
        (State::Fetching { .. }, Parked::Store) => {
            Some(format!("its outputs are not all in the object store: {why}"))
        }
        (State::Fetching { .. }, Parked::Disk | Parked::Scratch | Parked::NoProcess | Parked::AnotherRun) => {
            Some(format!("its outputs are not downloaded: {why}"))
        }
        _ => None,
    }
}
