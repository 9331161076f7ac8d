//! Commands that look at the state, or change what is wanted in it, without running anything.

use std::path::PathBuf;

use crate::cli::arguments::Global;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::service;
use crate::domain::ids::BatchName;
use crate::domain::job::JobSpec;
use crate::engine::by_hand;
use crate::store::{BatchRecord, JobRecord, Store};

/// Opens the state that `--state`, the environment or the configuration names.
pub(super) fn open(global: &Global) -> Result<Store, Failure> {
    let config = service::config(global)?;
    let dir = config.paths.state.unwrap_or_else(|| PathBuf::from("state"));
    Ok(Store::open_existing(&dir)?)
}

/// The batch called so; without a name all of them.
pub(super) fn batches(store: &Store, name: Option<&BatchName>) -> Result<Vec<BatchRecord>, Failure> {
    let all = store.batches()?;
    match name {
        None => Ok(all),
        Some(name) => Ok(vec![one_of(all, name.as_str())?]),
    }
}

/// The batch called so.
pub(super) fn batch(store: &Store, name: &str) -> Result<BatchRecord, Failure> {
    one_of(store.batches()?, name)
}

fn one_of(all: Vec<BatchRecord>, name: &str) -> Result<BatchRecord, Failure> {
    let names: Vec<String> = all.iter().map(|batch| batch.name.to_string()).collect();
    let found = all.into_iter().find(|batch| batch.name.as_str() == name);
    found.ok_or_else(|| {
        let known = if names.is_empty() {
            "there is none".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        };
        Failure::new(Exit::Usage, format!("no batch is called {name}; {known}"))
    })
}

/// What `BATCH|JOB` names: a batch, or one job of one batch.
pub(super) enum Named {
    Batch(BatchRecord),
    Job(BatchRecord, Box<JobSpec>),
}

/// Finds what is called so: a batch first, then a job by its label, its identity, or `BATCH/JOB`.
pub(super) fn named(store: &Store, text: &str) -> Result<Named, Failure> {
    if let Some(batch) = by_hand::find_batch(store, text)? {
        return Ok(Named::Batch(batch));
    }
    let (batch, spec, _) = job(store, text)?;
    Ok(Named::Job(batch, Box::new(spec)))
}

/// The one job called so.
pub(super) fn job(store: &Store, text: &str) -> Result<(BatchRecord, JobSpec, JobRecord), Failure> {
    let mut found = by_hand::find_jobs(store, text)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Failure::new(Exit::Usage, format!("no batch or job is called {text}"))
            .hint("callsheet jobs lists them; a job may be named BATCH/JOB")),
        n => {
            let (batch, spec, _) = &found[0];
            let message = format!("{n} jobs are called {text}");
            Err(Failure::new(Exit::Usage, message)
                .hint(format!("name one as {}/{} or by its identity", batch.name, spec.id)))
        }
    }
}
