//! Files that were uploaded long ago, or handed over and never needed: they are removed, from the state and from the object
//! store, once no job that goes on names them.

use std::collections::HashSet;
use std::sync::Arc;

use crate::domain::time::Timestamp;
use crate::engine::blocking;
use crate::engine::input_store::InputStore;
use crate::engine::job_iter::JobIter;
use crate::store::staged_inputs::{StagedInputs, StagedMark};
use crate::store::{Store, StoreError};

/// Removes what was last used before `used_before`. Rows are read only where there is something to remove.
pub async fn remove_unused(store: Arc<Store>, inputs: Option<InputStore>, used_before: Timestamp) {
    let looked = blocking(move || unused(&store, used_before)).await;
    let (staged, unused) = match looked {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "failed to look for inputs that are not needed any more");
            return;
        }
    };
    for mark in unused {
        // Removing the ones before it took a while, and a manifest may have named it meanwhile.
        let (looked, sha256) = (staged.clone(), mark.sha256.clone());
        if !blocking(move || looked.is_older(&sha256, used_before)).await {
            continue;
        }
        if let Some(object) = &mark.object {
            // Without a store it cannot be removed from there; it stays known.
            let Some(inputs) = &inputs else { continue };
            if let Err(error) = inputs.remove(object).await {
                tracing::warn!(%error, object, "failed to remove an input from the object store; it is tried again");
                continue;
            }
        }
        tracing::info!(sha256 = mark.sha256, "an input was removed that no job needs any more");
        let staged = staged.clone();
        if let Err(error) = blocking(move || staged.remove(&mark.sha256)).await {
            tracing::warn!(%error, "failed to remove an input from the state; it is tried again");
        }
    }
}

fn unused(store: &Store, used_before: Timestamp) -> Result<(StagedInputs, Vec<StagedMark>), StoreError> {
    let staged = StagedInputs::of(store.dir());
    let mut old = staged.used_before(used_before)?;
    if !old.is_empty() {
        let needed = needed(store)?;
        old.retain(|mark| !needed.contains(&mark.sha256));
    }
    Ok((staged, old))
}

/// The contents that jobs name which go on, by their hashes.
fn needed(store: &Store) -> Result<HashSet<String>, StoreError> {
    let mut needed = HashSet::new();
    for batch in store.batches()? {
        let mut jobs = JobIter::open(store, &batch)?;
        while let Some((spec, record)) = jobs.next_job()? {
            if !record.job.state().is_final() {
                needed.extend(spec.order.files.into_iter().map(|file| file.content.sha256));
            }
        }
    }
    Ok(needed)
}
