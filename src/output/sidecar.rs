//! The sidecar: a JSON file that says of a job's outputs what their job, task and request were.

use std::fs;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::credits::Credits;
use crate::domain::idempotency_key::IdempotencyKey;
use crate::domain::ids::{AttemptNo, BatchName, JobId, TaskId};
use crate::domain::job::{OutputFile, PublishedOutputs};
use crate::domain::time::{Millis, Timestamp};
use crate::output::output_spec::OutputSpec;
use crate::output::task_fields::TaskFields;

/// Within this time a sidecar that was created is written, or its process was killed.
const WRITTEN_WITHIN: Millis = Millis(10);
/// How every sidecar begins.
const BEGINNING: &[u8] = b"{\n  \"job\": \"";

/// The JSON file of a job's outputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sidecar {
    pub(super) job: JobId,
    id: String,
    batch: BatchName,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    request: Map<String, Value>,
    task_id: Option<TaskId>,
    idempotency_key: String,
    attempt: u32,
    price_credits: Option<Credits>,
    charged_credits: Credits,
    waived_credits: Credits,
    late: bool,
    /// When the job was first sent; sidecars of older versions have no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_sent: Option<String>,
    /// When the outputs were complete on this disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    downloaded: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<TaskFields>,
    pub(super) files: Vec<OutputFile>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    meta: Map<String, Value>,
}

impl Sidecar {
    /// The sidecar of outputs that are about to be published.
    pub(super) fn of(output_spec: OutputSpec<'_>, files: Vec<OutputFile>, now: Timestamp) -> Sidecar {
        let OutputSpec { batch, spec, job, .. } = output_spec;
        Sidecar {
            job: spec.id,
            id: spec.label.clone(),
            batch: batch.clone(),
            kind: spec.order.kind.name().to_owned(),
            model: job.ran_model().map(str::to_owned).or_else(|| spec.order.model.clone()),
            request: spec.order.body_with_length(job.present().inputs()),
            task_id: job.state().task().cloned(),
            idempotency_key: IdempotencyKey::derive(spec.id, job.attempt()).to_string(),
            attempt: job.attempt().0,
            price_credits: job.price(&spec.order),
            charged_credits: job.books().charged,
            waived_credits: job.books().waived,
            late: job.is_overdue(),
            first_sent: job.first_sent().map(|at| at.to_string()),
            downloaded: Some(now.to_string()),
            task: TaskFields::of(job),
            files,
            meta: spec.order.meta.fields(),
        }
    }

    /// The sidecar of outputs that were published before and have none any more.
    pub(super) fn of_record(output_spec: OutputSpec<'_>) -> Sidecar {
        let files = output_spec.job.recorded_outputs().iter().map(OutputFile::on_disk).collect();
        Sidecar { downloaded: None, ..Sidecar::of(output_spec, files, Timestamp(0)) }
    }

    /// The task that made the outputs; nothing in sidecars of others.
    pub(super) fn task(&self) -> Option<&TaskId> {
        self.task_id.as_ref()
    }

    /// Whether it is of this job, and of this task of it where one is given and the sidecar names its own.
    pub(super) fn is_of(&self, job: JobId, task: Option<&TaskId>) -> bool {
        let is_same = |(own, task): (&TaskId, &TaskId)| own.0.eq_ignore_ascii_case(&task.0);
        self.job == job && self.task_id.as_ref().zip(task).is_none_or(is_same)
    }

    /// The same of files with other names.
    pub(super) fn with_files(&self, files: Vec<OutputFile>) -> Sidecar {
        Sidecar { files, ..self.clone() }
    }

    /// What a sidecar says of the published outputs; none without a task.
    pub(super) fn published_outputs(self) -> Option<PublishedOutputs> {
        Some(PublishedOutputs {
            task: self.task_id?,
            attempt: AttemptNo(self.attempt),
            charged: self.charged_credits,
            waived: self.waived_credits,
            model: self.model,
            files: self.files,
        })
    }

    /// Reads the sidecar at a path; none if the file is something else.
    pub(super) fn read(path: &Path) -> Option<Sidecar> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Whether a file is what an earlier process, killed or without power, left of a sidecar: nothing, zeros, or a beginning that
    /// is cut off. One that was changed just before `now` may be that of a process that writes it.
    pub(super) fn is_torn(path: &Path, now: Timestamp) -> bool {
        let is_left = |found: fs::Metadata| {
            found.is_file() && changed(&found).is_some_and(|at| at.after(WRITTEN_WITHIN) < now)
        };
        if !path.symlink_metadata().is_ok_and(is_left) {
            return false;
        }
        let Ok(mut found) = fs::read(path) else { return false };
        found.truncate(found.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        let is_cut_off = || serde_json::from_slice::<IgnoredAny>(&found).is_err_and(|error| error.is_eof());
        BEGINNING.starts_with(&found) || found.starts_with(BEGINNING) && is_cut_off()
    }

    /// As it lies in its file. It is written by one call: a writer of JSON makes one of each word (measured).
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// When a file was changed last.
fn changed(found: &fs::Metadata) -> Option<Timestamp> {
    let since_1970 = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since_1970.as_millis()).ok().map(Timestamp)
}
