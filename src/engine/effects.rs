//! Effects: what was decided is done, measured and reported back. All but downloads begin when it is durable.

use std::sync::Arc;

use tracing::Span;

use crate::api::{DownloadError, ServiceError};
use crate::clock::whole_ms;
use crate::domain::idempotency_key::IdempotencyKey;
use crate::domain::ids::{BatchName, BatchNo, JobId};
use crate::domain::job::{JobSpec, MADE_BEFORE, Order};
use crate::domain::task::{Fault, PostAnswer};
use crate::engine::committed_steps::StepCommit;
use crate::engine::download::{Fetcher, disk_fault};
use crate::engine::effect_context::EffectContext;
use crate::engine::scheduler::{Effect, FetchFault, FetchOrder, Input, NoBalance, Scheduler};
use crate::engine::scratch_files::ScratchMarks;
use crate::engine::{EngineDeps, blocking, edited_rows, input_store, job_inputs, output_sync, row_reader};
use crate::metrics::{Answer, Endpoint};
use crate::output::file_names::Layout;
use crate::store::{Store, StoreError};

/// Says whom everything is about that is logged while an effect lasts, by whatever library.
pub(super) fn effect_span(effect: &Effect, scheduler: &Scheduler) -> Span {
    let name = |no: BatchNo| scheduler.batch(no).map_or("", |batch| BatchName::as_str(&batch.name));
    match effect {
        Effect::Post { key, attempt, spec, .. } => {
            let batch = name(key.batch);
            tracing::info_span!("post", batch, job = spec.label.as_str(), attempt = attempt.0)
        }
        Effect::FindInputs { key, attempt, spec, .. } => {
            let batch = name(key.batch);
            tracing::info_span!("find_inputs", batch, job = spec.label.as_str(), attempt = attempt.0)
        }
        Effect::Read { key, attempt, task, spec, .. } => {
            let (batch, task) = (name(key.batch), task.as_str());
            tracing::info_span!("read", batch, job = spec.label.as_str(), attempt = attempt.0, task)
        }
        Effect::Fetch(order) => {
            let (batch, job, attempt) = (order.batch.as_str(), order.spec.label.as_str(), order.attempt.0);
            let task = order.job.state().task().map(|task| task.as_str());
            tracing::info_span!("fetch", batch, job, attempt, task)
        }
        Effect::LoadRows { batch, .. } | Effect::LoadEnded { batch } => {
            tracing::info_span!("load", batch = name(*batch))
        }
        Effect::GoBack { batch, .. } => tracing::info_span!("go_back", batch = name(*batch)),
        Effect::AskBalance | Effect::RenewCatalog | Effect::KeepSurcharges(_) => Span::none(),
    }
}

/// Does one effect and says what it came to. `commit` is that of the step which decided it.
pub(super) async fn run_effect(
    effect: Effect,
    commit: &StepCommit,
    deps: &EngineDeps,
    context: &EffectContext,
) -> Vec<Input> {
    let EffectContext { store, exchanges, clock, .. } = context;
    let metrics = &deps.metrics;
    let input = match effect {
        Effect::Post { key, attempt, spec, inputs } => {
            if let Some(fault) = paid_by_lost_state(deps, store, key.batch, &spec).await {
                return vec![Input::Posted(key, attempt, PostAnswer::Refused(fault))];
            }
            let inputs = match input_store::sign_all(deps.inputs.as_ref(), &spec.order, inputs).await {
                Ok(inputs) => inputs,
                Err(fault) => {
                    let answer = PostAnswer::Again { fault, wait: None, may_have_run: false };
                    return vec![Input::Posted(key, attempt, answer)];
                }
            };
            deps.submits.wait().await;
            let idempotency_key = IdempotencyKey::derive(spec.id, attempt);
            let header = spec.order.kind.is_keyed().then_some(&idempotency_key);
            let begun = clock.elapsed();
            let with_inputs = (!inputs.is_empty())
                .then(|| Order { body: spec.order.body_with(&inputs).into(), ..spec.order.clone() });
            let answer = deps.service.post(with_inputs.as_ref().unwrap_or(&spec.order), header).await;
            let (class, took) = (Answer::of_post(&answer), clock.elapsed().saturating_sub(begun));
            metrics.request(Endpoint::Create(spec.order.kind), class, took);
            tracing::debug!(key = %idempotency_key, answer = class.name(), took_ms = whole_ms(took), "posted");
            Input::Posted(key, attempt, answer)
        }
        Effect::FindInputs { key, attempt, spec, parents, uses_own_copies } => {
            let wanted = (key.batch, &*spec);
            let found = job_inputs::find(deps, store, exchanges, wanted, &parents, uses_own_copies).await;
            Input::InputsFound(key, attempt, found)
        }
        Effect::LoadEnded { batch } => {
            let store = store.clone();
            match blocking(move || job_inputs::ended_jobs(&store, batch)).await {
                Ok(jobs) => Input::Ended { batch, jobs },
                Err(moved @ StoreError::BatchMoved { .. }) => Input::Moved { batch, why: moved.to_string() },
                Err(damage) => Input::Unreadable(damage.to_string()),
            }
        }
        Effect::Read { key, attempt, task, spec, due } => {
            deps.polls.wait().await;
            metrics.poll_late(clock.now().tick.since(due));
            let begun = clock.elapsed();
            let answer = deps.service.read_task(&spec.order, &task).await;
            let (class, took) = (Answer::of_read(&answer), clock.elapsed().saturating_sub(begun));
            metrics.request(Endpoint::Task, class, took);
            tracing::debug!(answer = class.name(), took_ms = whole_ms(took), "read");
            Input::Read(key, attempt, answer)
        }
        Effect::Fetch(order) => {
            return fetch(&Arc::new(*order), commit, deps, context)
                .await
                .unwrap_or_else(|damage| vec![Input::Unreadable(damage.to_string())]);
        }
        Effect::GoBack { batch, from } => {
            let (output_dir, layout) = (deps.output_dir.clone(), deps.layout.clone());
            let going = store.clone();
            match blocking(move || edited_rows::go_back(&going, &output_dir, &layout, batch, from)).await {
                Ok(mut applied) => {
                    if let Err(fault) = output_sync::keep_renamed(deps, store, &mut applied).await {
                        tracing::warn!(
                            fault = %fault.fault(),
                            "outputs with new names are not in the object store; to put them there: callsheet outputs \
                             sync"
                        );
                    }
                    Input::Versions(applied)
                }
                Err(damage) => Input::Unreadable(damage.to_string()),
            }
        }
        Effect::LoadRows { batch, from, end, most } => {
            match row_reader::load_rows(store, batch, from, end, most).await {
                Ok(rows) => Input::Rows { batch, from, rows },
                Err(damage) => Input::Unreadable(damage.to_string()),
            }
        }
        Effect::RenewCatalog => {
            let renewed = match &deps.catalogs {
                Some(source) => source.renew().await,
                None => Err("this process has no source of catalogs".to_owned()),
            };
            Input::Catalog(renewed.map_err(|why| Fault::new("catalog", why)))
        }
        Effect::KeepSurcharges(surcharges) => {
            if let Some(source) = deps.catalogs.clone() {
                let keep = move || source.keep(&surcharges);
                if let Err(error) = blocking(keep).await {
                    tracing::warn!(%error, "failed to store the surcharges for later plans");
                }
            }
            Input::SurchargesKept
        }
        Effect::AskBalance => {
            let begun = clock.elapsed();
            let answer = deps.service.credits().await;
            let class = match &answer {
                Ok(_) => Answer::Ok,
                Err(ServiceError::Unauthorised(_)) => Answer::Unauthorised,
                Err(ServiceError::Unreachable { .. }) => Answer::Error,
            };
            metrics.request(Endpoint::Credits, class, clock.elapsed().saturating_sub(begun));
            tracing::debug!(answer = class.name(), "balance read");
            Input::Balance(answer.map_err(|error| match error {
                ServiceError::Unauthorised(_) => NoBalance::Unauthorised,
                ServiceError::Unreachable { .. } => NoBalance::Unanswered,
            }))
        }
    };
    vec![input]
}

/// Downloads the outputs of a job. Where they take the name of other versions of their row, what became of those comes
/// first, so that no commit has both under one name.
async fn fetch(
    order: &Arc<FetchOrder>,
    commit: &StepCommit,
    deps: &EngineDeps,
    context: &EffectContext,
) -> Result<Vec<Input>, StoreError> {
    let store = &context.store;
    let batch = order.key.batch;
    if !deps.keeps_local {
        commit.wait().await;
        let (marks, key) = (ScratchMarks::of(store.dir()), order.key);
        if let Err(error) = blocking(move || marks.set(key)).await {
            let fault = FetchFault::Passing(Fault::new("state", error.to_string()));
            return Ok(vec![Input::Fetched(order.key, order.attempt, Err(fault))]);
        }
    }
    let (mut others, mut jobs) = (Vec::new(), Vec::new());
    if order.takes_name {
        // What became of them may be part of it.
        commit.wait().await;
        let (store, spec) = (store.clone(), order.spec.clone());
        let look = move || {
            let others = edited_rows::others(&store, batch, &spec)?;
            let jobs = edited_rows::versions(&store, batch, &others)?;
            Ok::<_, StoreError>((others, jobs))
        };
        (others, jobs) = blocking(look).await?;
    }
    let mut versions: Vec<JobId> = others.iter().map(|(_, spec)| spec.id).collect();
    let outcome = Fetcher::new(deps, context, commit, jobs).fetch(order).await;
    let mut inputs = Vec::new();
    let mut kept = Ok(Vec::new());
    if outcome.is_ok() && !others.is_empty() {
        let (present, output_dir, layout) = (store.clone(), deps.output_dir.clone(), deps.layout.clone());
        let mut applied =
            blocking(move || edited_rows::after_publishing(&present, &output_dir, &layout, batch, others))
                .await?;
        // They have their new names in the object store before this job takes their plain one.
        kept = output_sync::keep_renamed(deps, store, &mut applied).await;
        if !applied.renamed.is_empty() && kept.is_ok() {
            inputs.push(Input::Versions(applied));
        }
    }
    let outcome = match (outcome, kept) {
        (Ok(files), Ok(left)) => {
            // Nothing else may have what they hold.
            versions.retain(|version| !left.contains(version));
            output_sync::keep_fetched(deps, order, &versions, files).await.map_err(FetchFault::from)
        }
        (Ok(_), Err(fault)) => Err(fault.into()),
        (Err(fault), _) => Err(fault),
    };
    let outcome = match outcome {
        Err(FetchFault::Passing(fault)) => Err(of_folder(deps, &order.batch, fault).await),
        outcome => outcome,
    };
    if let Err(
        FetchFault::StoreRefuses(_)
        | FetchFault::ObjectRefused(_)
        | FetchFault::Passing(_)
        | FetchFault::FolderRefuses(_)
        | FetchFault::DiskRefuses { .. },
    ) = &outcome
    {
        // Its outputs may be on disk, and are looked for there before they are downloaded again.
        deps.output_dir.forget_is_new(&order.batch);
    }
    inputs.push(Input::Fetched(order.key, order.attempt, outcome));
    Ok(inputs)
}

/// A fault that may pass, or that of the folder of a batch where nothing can be written there, whatever the reason: it became
/// a link, or its disk is gone.
async fn of_folder(deps: &EngineDeps, batch: &BatchName, fault: Fault) -> FetchFault {
    let (output_dir, batch) = (deps.output_dir.clone(), batch.clone());
    match blocking(move || output_dir.check_folder(&batch)).await.map_err(|error| disk_fault(&error, 0)) {
        Ok(()) => FetchFault::Passing(fault),
        Err(FetchFault::Passing(fault)) => FetchFault::FolderRefuses(fault),
        Err(refused) => refused,
    }
}

/// Why a job is not sent whose kind has no key: its sidecar says that a state that is gone has paid for it.
async fn paid_by_lost_state(
    deps: &EngineDeps,
    store: &Arc<Store>,
    no: BatchNo,
    spec: &Arc<JobSpec>,
) -> Option<Fault> {
    if spec.order.kind.is_keyed() {
        return None;
    }
    let (store, spec) = (store.clone(), spec.clone());
    let (output_dir, default) = (deps.output_dir.clone(), deps.layout.clone());
    let path = blocking(move || {
        let batch = store.batch(no).ok().flatten()?;
        let layout = Layout::of_batch(batch.layout(), &default);
        output_dir.sidecar_of_lost_state(&batch.name, &layout, &spec)
    })
    .await?;
    let text = format!(
        "it was made and paid for before, see {}; to make and pay for it again, move that file away and use \
         callsheet retry",
        path.display()
    );
    Some(Fault::new(MADE_BEFORE, text))
}

impl From<DownloadError> for Fault {
    fn from(error: DownloadError) -> Fault {
        Fault::new("download", error.to_string())
    }
}
