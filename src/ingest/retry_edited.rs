//! Jobs that are retried with other fields: their rows are taken in anew as if a person had edited them in the manifest
//! and handed it in again.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::ids::BatchName;
use crate::domain::manifest::{FieldEdit, RowEdits};
use crate::engine::{blocking, to_the_end};
use crate::ingest::ingest_handle::{IncomingDir, IngestError, IngestHandle};
use crate::ingest::receipt::Receipt;
use crate::ingest::retry_manifest::{self, JobChoice, RetryManifest};
use crate::ingest::{IngestOptions, ManifestError};
use crate::store::{BatchRecord, StoreError};

/// What came, or would come, of jobs that are retried with other fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EditedRetry {
    /// Their batch.
    pub batch: BatchName,
    /// Jobs that were chosen, to be replaced by those of the edited rows.
    pub jobs: u64,
    /// Variations of their rows that were not chosen, and are replaced, too: all variations of a row are edited together.
    #[serde(default)]
    pub other_variations: u64,
    /// Jobs that take outputs of their rows, or of such jobs: they are replaced, too.
    #[serde(default)]
    pub dependent_jobs: u64,
    /// Jobs whose row has no `id`, so that no other takes their place: they are left as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_id: Vec<String>,
    /// The receipt of the edited rows and of rows that take their outputs; nothing where no job was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// Jobs that are paid for and only were not downloaded: they are left as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paid: Vec<String>,
    /// Jobs that are older versions of edited rows: they are left as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<String>,
}

/// Which jobs of a batch, what is set in their rows, and whether that is only planned.
#[derive(Debug, Clone)]
pub struct EditedRetryOptions {
    /// The jobs.
    pub choice: JobChoice,
    /// What is set.
    pub fields: Vec<FieldEdit>,
    /// Nothing is accepted.
    pub is_plan: bool,
}

/// Retries jobs of a batch with other fields. While it lasts, no other command may take up jobs that have ended.
///
/// # Errors
/// [`IngestError`]; nothing was accepted then. Diagnostics of rows stand in the receipt, and keep all rows from being
/// accepted.
pub async fn retry_edited(
    ingest: &IngestHandle,
    batch: BatchRecord,
    options: EditedRetryOptions,
) -> Result<EditedRetry, IngestError> {
    let EditedRetryOptions { choice, fields, is_plan } = options;
    let (store, now) = (ingest.store().clone(), ingest.now());
    let namespace = ingest.namespace();
    let record = batch.clone();
    let write = move || {
        let io = |error| ManifestError::Store(StoreError::io(store.dir())(error));
        let folder = IncomingDir::create(store.dir()).map_err(io)?;
        let path = folder.path().join("retry.jsonl");
        let mut file = BufWriter::new(File::create(&path).map_err(io)?);
        let manifest = retry_manifest::write(&store, &record, choice, &namespace, now, &mut file)?;
        Ok::<_, ManifestError>((folder, path, manifest))
    };
    let (folder, path, manifest) = blocking(write).await?;
    let RetryManifest {
        jobs,
        other_variations,
        dependent_jobs,
        lines,
        labels,
        without_id,
        paid,
        superseded,
        unknown,
        files,
    } = manifest;
    if !unknown.is_empty() {
        return Err(IngestError::UnknownRows(unknown));
    }
    let batch_name = batch.name.clone();
    let mut retry = EditedRetry {
        batch: batch_name,
        jobs,
        other_variations,
        dependent_jobs,
        without_id,
        receipt: None,
        paid,
        superseded,
    };
    if jobs == 0 {
        return Ok(retry);
    }
    let edits = RowEdits { fields, lines: Arc::new(lines) };
    let (files, edits) = (Some(Arc::new(files)), Some(edits));
    let options = IngestOptions { files, edits, ..IngestOptions::amending(&batch) };
    let taken = {
        let ingest = ingest.clone();
        // The folder is kept until the manifest was read, though the client goes away.
        to_the_end(async move {
            let taken = match is_plan {
                true => ingest.plan(&path, options).await,
                false => ingest.accept(&path, options).await,
            };
            drop(folder);
            taken
        })
    };
    let mut receipt = taken.await?;
    receipt.file = PathBuf::from(batch.name.as_str());
    name_rows(&mut receipt, &labels);
    retry.receipt = Some(receipt);
    Ok(retry)
}

/// Says of problems and notes whose row they are: nobody has seen the manifest.
fn name_rows(receipt: &mut Receipt, labels: &HashMap<u64, String>) {
    let name = |problem: &mut Diagnostic| {
        let label = problem.position.and_then(|Position { line, .. }| labels.get(&line));
        if let Some(label) = label.filter(|label| !problem.message.starts_with(label.as_str())) {
            problem.message = format!("{} (row {label})", problem.message);
        }
    };
    receipt.problems.iter_mut().chain(&mut receipt.notes).for_each(name);
}
