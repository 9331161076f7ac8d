//! A batch's results: one line a job, in manifest order, as JSON Lines and as CSV.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::charge_drift::{self, Drift};
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, TaskId};
use crate::domain::job::{Job, JobSpec, OutputFile, State};
use crate::domain::task::{Fault, TaskRecord};
use crate::domain::time::Timestamp;
use crate::output::publish::create;

/// A line of `results.jsonl`. Scripts rely on the names: fields may be added, not renamed.
#[derive(Debug, Serialize)]
pub struct ResultLine<'a> {
    id: &'a str,
    batch: &'a BatchName,
    state: &'static str,
    late: bool,
    files: &'a [OutputFile],
    price_credits: Option<Credits>,
    charged_credits: Credits,
    waived_credits: Credits,
    attempts: u32,
    task_id: Option<&'a TaskId>,
    model: Option<&'a str>,
    error: Option<&'a Fault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskShown>,
    meta: &'a Map<String, Value>,
    kind: &'static str,
    line: u64,
    job: String,
    first_sent: Option<String>,
    ended: Option<String>,
    drift: Vec<Drift>,
}

/// What a task's record says, for reconciling an invoice: in `results.jsonl` and in the sidecar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TaskShown {
    #[serde(flatten)]
    record: TaskRecord,
    /// The options that it ran with, defaults filled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    options: Option<Map<String, Value>>,
}

impl TaskShown {
    /// What the record of a job's present task says, once it has ended; nothing where it was not kept.
    pub(super) fn of(job: &Job) -> Option<TaskShown> {
        let record = job.task_record()?.clone();
        Some(TaskShown { record, options: job.ran_options().cloned() })
    }
}

impl<'a> ResultLine<'a> {
    /// The result of a job, ended or not.
    pub fn new(batch: &'a BatchName, spec: &'a JobSpec, job: &'a Job) -> ResultLine<'a> {
        let files = match job.state() {
            State::Succeeded { files, .. } => files.as_slice(),
            _ => &[],
        };
        let error = match job.state() {
            State::Failed { fault, .. } | State::InDoubt { fault, .. } => Some(fault),
            State::Submitting { fault, .. } => fault.as_ref(),
            _ => None,
        };
        let sent = job.first_sent().is_some();
        let ended = job.history().last().filter(|_| job.state().is_final());
        let show = |at: Timestamp| at.to_string();
        ResultLine {
            id: &spec.label,
            batch,
            state: job.state().name(),
            late: job.is_late(),
            files,
            price_credits: job.price(&spec.order),
            charged_credits: job.all_books().charged,
            waived_credits: job.all_books().waived,
            attempts: if sent { job.newest_attempt().0 } else { 0 },
            task_id: job.state().task(),
            model: job.ran_model().or(spec.order.model.as_deref()),
            error,
            task: TaskShown::of(job),
            meta: &spec.order.meta,
            kind: spec.order.kind.name(),
            line: spec.order.line,
            job: spec.id.to_string(),
            first_sent: job.first_sent().map(show),
            ended: ended.map(|line| show(line.at)),
            drift: charge_drift::of(&spec.order, job),
        }
    }
}

impl ResultLine<'_> {
    /// The fault of a job that failed.
    pub fn error(&self) -> Option<&Fault> {
        self.error
    }
}

const CSV_COLUMNS: [&str; 19] = [
    "id",
    "batch",
    "state",
    "late",
    "files",
    "bytes",
    "sha256",
    "content_type",
    "price_credits",
    "charged_credits",
    "waived_credits",
    "attempts",
    "task_id",
    "model",
    "error_code",
    "error_message",
    "kind",
    "line",
    "drift",
];

/// Writes `results.jsonl` and `results.csv` of a batch, side by side.
///
/// Both appear under their names once they are complete; until then what was there stays.
#[derive(Debug)]
pub struct ResultsWriter {
    dir: PathBuf,
    jsonl: BufWriter<File>,
    csv: csv::Writer<File>,
    meta_columns: BTreeSet<String>,
}

impl ResultsWriter {
    /// Creates both files in the batch's folder. `meta_columns` are the names of all `meta.` columns.
    pub fn begin(dir: &Path, meta_columns: BTreeSet<String>) -> io::Result<ResultsWriter> {
        let jsonl = BufWriter::new(create(&draft_path(dir, "results.jsonl"))?);
        let mut csv = csv::Writer::from_writer(create(&draft_path(dir, "results.csv"))?);
        let meta = meta_columns.iter().map(|name| format!("meta.{name}"));
        csv.write_record(CSV_COLUMNS.into_iter().map(str::to_owned).chain(meta))?;
        Ok(ResultsWriter { dir: dir.to_owned(), jsonl, csv, meta_columns })
    }

    /// Adds a job's line.
    pub fn push(&mut self, line: &ResultLine<'_>) -> io::Result<()> {
        serde_json::to_writer(&mut self.jsonl, line)?;
        self.jsonl.write_all(b"\n")?;
        let credits = |credits: Credits| credits.0.to_string();
        // Several outputs stand in one cell, with a space between them, in the same order everywhere.
        let each = |of: fn(&OutputFile) -> String| line.files.iter().map(of).collect::<Vec<_>>().join(" ");
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let fixed = [
            line.id.to_owned(),
            line.batch.to_string(),
            line.state.to_owned(),
            line.late.to_string(),
            each(|file| file.path.clone()),
            each(|file| file.bytes.to_string()),
            each(|file| file.sha256.clone()),
            each(|file| file.content_type.clone()),
            line.price_credits.map(credits).unwrap_or_default(),
            credits(line.charged_credits),
            credits(line.waived_credits),
            line.attempts.to_string(),
            text(line.task_id.map(|task| task.0.as_str())),
            text(line.model),
            text(line.error.map(|fault| fault.code.as_str())),
            text(line.error.map(|fault| fault.message.as_str())),
            line.kind.to_owned(),
            line.line.to_string(),
            line.drift.iter().map(Drift::to_string).collect::<Vec<_>>().join("; "),
        ];
        let meta = self.meta_columns.iter().map(|name| line.meta.get(name).map(cell).unwrap_or_default());
        Ok(self.csv.write_record(fixed.into_iter().chain(meta))?)
    }

    /// Renames both files to their final names.
    pub fn finish(mut self) -> io::Result<()> {
        self.jsonl.flush()?;
        self.jsonl.get_ref().sync_data()?;
        self.csv.flush()?;
        let csv = self.csv.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
        csv.sync_data()?;
        for name in ["results.jsonl", "results.csv"] {
            fs::rename(draft_path(&self.dir, name), self.dir.join(name))?;
        }
        File::open(&self.dir)?.sync_all()
    }
}

/// Removes what is left of results that could not be written: a full disk needs the room.
pub fn sweep(dir: &Path) {
    for name in ["results.jsonl", "results.csv", "report.json"] {
        // One that was not begun is not there.
        let _ = fs::remove_file(draft_path(dir, name));
    }
}

/// Path of a results file until it is complete.
pub(super) fn draft_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.draft"))
}

/// A meta value as a cell: text as it is, anything else as JSON.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
