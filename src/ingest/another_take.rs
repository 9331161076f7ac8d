//! Another take of a row: its next free variation, a job of its own under a key of its own. It is taken in as if the `count`
//! of the row had been raised in its manifest, so that a manifest with that count buys nothing more.
//!
//! A request names which take it is and the price that was shown. So the same request twice buys one take, and
//! nothing is bought at a price that nobody saw.

use std::fs::File;
use std::io::BufWriter;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, JobId};
use crate::domain::job::{JobSpec, State};
use crate::domain::job_label::label;
use crate::domain::pilot::PilotRows;
use crate::domain::remedy::remedy_command;
use crate::domain::shell_word::shell_word;
use crate::engine::{NamedJob, blocking, to_the_end};
use crate::ingest::context::ExpectedTake;
use crate::ingest::ingest_handle::{IncomingDir, IngestError, IngestHandle};
use crate::ingest::receipt::Receipt;
use crate::ingest::take_manifest::{self, NoTake, TakeManifest};
use crate::ingest::{IngestOptions, ManifestError};
use crate::store::{BatchRecord, StoreError};

/// Another take of a row, planned or accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnotherTake {
    /// Its batch.
    pub batch: BatchName,
    /// Which take of its row it is, from 1.
    pub take: u32,
    /// Its label.
    pub id: String,
    /// The identity of its job.
    pub job: JobId,
    /// What it costs, or at most costs where that is not known exactly; nothing where the batch had it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_credits: Option<u64>,
    /// What is left of a budget of the batch that does not grow with the take; nothing where it grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_left_credits: Option<u64>,
    /// It is accepted now.
    pub accepted: bool,
    /// The batch had it before: nothing was bought.
    #[serde(default)]
    pub already_there: bool,
}

/// Why there is no other take; nothing was accepted.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// It cannot be had, or not so.
    #[error("{message}")]
    Refused {
        /// Why.
        message: String,
        /// What helps.
        hint: Option<String>,
    },
    /// See [`IngestError`].
    #[error(transparent)]
    Ingest(#[from] IngestError),
}

impl TakeError {
    fn refused(message: impl Into<String>, hint: impl Into<String>) -> TakeError {
        TakeError::Refused { message: message.into(), hint: Some(hint.into()) }
    }
}

/// What was shown, and is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeOrder {
    /// Which take of the row.
    pub take: u32,
    /// What it may cost at most.
    pub price: Credits,
}

/// Accepts another take of a job's row as it is ordered; without an order it says which take that would be, and its price.
/// While it lasts, no other command may take up jobs that have ended.
///
/// # Errors
/// [`TakeError`]; nothing was accepted then.
pub async fn another_take(
    ingest: &IngestHandle,
    named: &NamedJob,
    order: Option<TakeOrder>,
) -> Result<AnotherTake, TakeError> {
    let NamedJob { batch, spec, record, .. } = named;
    let name = format!("{}/{}", batch.name, spec.label);
    match record.job.state() {
        State::Succeeded { .. } => {}
        State::Failed { .. } | State::Canceled { .. } | State::Expired => {
            let hint = remedy_command(&shell_word(&name), spec.order.kind, &record.job);
            return Err(TakeError::refused(format!("{name} is {}", record.job.state().name()), hint));
        }
        state => {
            let message = format!("{name} is {}: it has no take to look at yet", state.name());
            return Err(TakeError::refused(message, format!("callsheet explain {}", shell_word(&name))));
        }
    }
    let (folder, path, manifest) = write(ingest, batch, spec, order).await?;
    let TakeManifest { take, id, files } = match manifest {
        Ok(manifest) => manifest,
        Err(NoTake::Superseded) => {
            let message = format!("this version of {name} is an older one: its row was edited");
            return Err(TakeError::refused(message, "ask for another take of the version that is wanted"));
        }
        Err(NoTake::Unknown) => {
            return Err(IngestError::UnknownRows(vec![spec.label.clone()]).into());
        }
    };
    let budget_left =
        batch.policy.budget.map(|budget| budget.saturating_sub(batch.totals.held + batch.totals.spent));
    let answer = |take: u32| {
        let job = JobId::derive(spec.fingerprint, take);
        AnotherTake {
            batch: batch.name.clone(),
            take,
            id: label(id.as_deref(), take, || spec.order.text(), job),
            job,
            price_credits: None,
            budget_left_credits: budget_left.map(|left| left.0),
            accepted: false,
            already_there: false,
        }
    };
    match order {
        Some(order) if order.take < take => {
            return Ok(AnotherTake { already_there: true, ..answer(order.take) });
        }
        Some(order) if order.take > take => {
            let message = format!("take {take} of {name} does not exist yet and must be bought first");
            return Err(TakeError::refused(message, format!("ask for take {take}")));
        }
        _ => {}
    }
    let expected = ExpectedTake { fingerprint: spec.fingerprint, take };
    let options = IngestOptions { files: Some(Arc::new(files)), ..ingest_options(batch, expected) };
    let taken = {
        let ingest = ingest.clone();
        // The folder is kept until the manifest was read, though the client goes away.
        to_the_end(async move {
            let taken = match order {
                None => ingest.plan(&path, options).await,
                Some(_) => ingest.accept(&path, options).await,
            };
            drop(folder);
            taken
        })
    };
    let receipt = taken.await?;
    if receipt.refused || receipt.file_refused || receipt.added() != 1 {
        return Err(refusal(&name, &receipt));
    }
    Ok(AnotherTake { price_credits: Some(receipt.price.0), accepted: order.is_some(), ..answer(take) })
}

type Written = (IncomingDir, PathBuf, Result<TakeManifest, NoTake>);

async fn write(
    ingest: &IngestHandle,
    batch: &BatchRecord,
    spec: &JobSpec,
    order: Option<TakeOrder>,
) -> Result<Written, IngestError> {
    let (store, batch, spec) = (ingest.store().clone(), batch.clone(), spec.clone());
    let namespace = ingest.namespace();
    let write = move || {
        let io = |error| ManifestError::Store(StoreError::io(store.dir())(error));
        let folder = IncomingDir::create(store.dir()).map_err(io)?;
        let path = folder.path().join("take.jsonl");
        let mut file = BufWriter::new(File::create(&path).map_err(io)?);
        let most = order.map(|order| order.price);
        let manifest = take_manifest::write(&store, &batch, &spec, most, &namespace, &mut file)?;
        Ok::<_, ManifestError>((folder, path, manifest))
    };
    Ok(blocking(write).await?)
}

/// As the last manifest of the batch came in, but that it adds this take and nothing else.
fn ingest_options(batch: &BatchRecord, expected: ExpectedTake) -> IngestOptions {
    IngestOptions {
        // A person who looks at a pilot and wants another take of it need not continue first.
        pilot: batch.pilot.map(|_| PilotRows::First(NonZeroU32::MIN)),
        take: Some(expected),
        ..IngestOptions::amending(batch)
    }
}

/// Why a take was not accepted.
fn refusal(name: &str, receipt: &Receipt) -> TakeError {
    let Some(problem) = receipt.problems.first() else {
        return TakeError::refused(
            format!("no further take of {name} is possible"),
            "callsheet explain shows the job",
        );
    };
    let (why, hint) = match problem.field.as_deref() {
        Some("max_credits") => (
            format!("the price that was given {}", problem.message),
            Some("its price has changed: ask for it again".to_owned()),
        ),
        _ => (problem.field_message(), problem.hint.clone()),
    };
    TakeError::Refused { message: format!("no other take of {name}: {why}"), hint }
}
