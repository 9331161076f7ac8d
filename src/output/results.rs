//! A batch's results in manifest order: one line a job as JSON Lines, one row a file as CSV.

mod results_csv;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::domain::charge_drift::{self, Drift};
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, TaskId};
use crate::domain::job::{Job, JobSpec, OutputFile, State};
use crate::domain::json_object::JsonObject;
use crate::domain::task::Fault;
use crate::domain::time::Timestamp;
use crate::output::csv_dialect::CsvDialect;
use crate::output::decisions_csv::ReviewResult;
use crate::output::own_file::OwnFile;
use crate::output::publish::create;
use crate::output::results::results_csv::ResultsCsv;
use crate::output::task_fields::TaskFields;

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
    task: Option<TaskFields>,
    meta: &'a JsonObject,
    kind: &'static str,
    line: u64,
    job: String,
    first_sent: Option<String>,
    ended: Option<String>,
    drift: Vec<Drift>,
    prompt: String,
    /// The outputs of other rows that it takes: `still-07`, `still-07-v2#3`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<String>,
    /// The length that was sent, where it is that of one of them: `5s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_length: Option<&'a str>,
    superseded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    review: Option<ReviewResult>,
}

impl<'a> ResultLine<'a> {
    /// The result of a job, ended or not; `superseded` where another version of its row is wanted.
    pub fn new(batch: &'a BatchName, spec: &'a JobSpec, job: &'a Job, superseded: bool) -> ResultLine<'a> {
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
            task: TaskFields::of(job),
            meta: &spec.order.meta,
            kind: spec.order.kind.name(),
            line: spec.order.line,
            job: spec.id.to_string(),
            first_sent: job.first_sent().map(show),
            ended: ended.map(|line| show(line.at)),
            drift: charge_drift::of(&spec.order, job),
            prompt: spec.order.text(),
            inputs: spec.order.inputs_made_of(job.present().input_takes()),
            sent_length: spec.order.sent_length(job.present().inputs()),
            superseded,
            review: ReviewResult::of(job, superseded),
        }
    }
}

impl ResultLine<'_> {
    /// Whether it belongs into a list of decisions: it waits for one, or there is one.
    pub fn is_reviewed(&self) -> bool {
        self.review.is_some()
    }

    /// The fault of a job that failed.
    pub fn error(&self) -> Option<&Fault> {
        self.error
    }
}

/// Bytes that one write to a file has, about.
const BUFFER_BYTES: usize = 64 * 1024;

/// Writes `results.jsonl` and `results.csv` of a batch, side by side.
///
/// Both appear under their names once they are complete; until then what was there stays.
#[derive(Debug)]
pub struct ResultsWriter {
    dir: PathBuf,
    jsonl: BufWriter<File>,
    csv: ResultsCsv,
}

impl ResultsWriter {
    /// Creates both files in the batch's folder. `meta_columns` are the names of all `meta.` columns.
    pub fn begin(
        dir: &Path,
        dialect: CsvDialect,
        meta_columns: BTreeSet<String>,
    ) -> io::Result<ResultsWriter> {
        let jsonl = BufWriter::with_capacity(BUFFER_BYTES, create(&OwnFile::ResultsJsonl.draft(dir))?);
        let csv = ResultsCsv::begin(dir, dialect, meta_columns)?;
        Ok(ResultsWriter { dir: dir.to_owned(), jsonl, csv })
    }

    /// Adds a job: its line, and a row for each of its files.
    pub fn push(&mut self, line: &ResultLine<'_>) -> io::Result<()> {
        serde_json::to_writer(&mut self.jsonl, line)?;
        self.jsonl.write_all(b"\n")?;
        self.csv.push(line)
    }

    /// Renames both files to their final names.
    pub fn finish(mut self) -> io::Result<()> {
        self.jsonl.flush()?;
        self.jsonl.get_ref().sync_data()?;
        self.csv.finish()?;
        OwnFile::ResultsJsonl.put(&self.dir)?;
        OwnFile::ResultsCsv.put(&self.dir)?;
        File::open(&self.dir)?.sync_all()
    }
}

/// Removes what is left of results that could not be written: a full disk needs the room.
pub fn sweep(dir: &Path) {
    for file in [OwnFile::ResultsJsonl, OwnFile::ResultsCsv, OwnFile::Report, OwnFile::Decisions] {
        // One that was not begun is not there.
        let _ = fs::remove_file(file.draft(dir));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{AttemptNo, Fingerprint, JobId, Seq};

    fn spec(label: &str) -> JobSpec {
        let order = serde_json::json!({
            "line": 2, "kind": "image", "body": { "prompt": "=1+1" }, "priority": 0, "meta": { "note": "@a" },
        });
        JobSpec {
            seq: Seq(0),
            id: JobId([1; 16]),
            fingerprint: Fingerprint([1; 16]),
            variation: 1,
            label: label.to_owned(),
            apart: false,
            order: serde_json::from_value(order).unwrap(),
        }
    }

    fn file(path: &str) -> OutputFile {
        OutputFile {
            path: path.to_owned(),
            bytes: 3,
            sha256: "ab".to_owned(),
            content_type: "image/png".to_owned(),
            edited: None,
            object: None,
        }
    }

    /// `results.csv` of a job of two files, and of one that has not begun.
    fn written(dialect: CsvDialect) -> (Vec<u8>, PathBuf, tempfile::TempDir) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("b");
        fs::create_dir(&dir).unwrap();
        let (batch, two, none) = ("b".parse().unwrap(), spec("-two"), spec("none"));
        let state = State::Succeeded {
            task: TaskId("t".into()),
            files: vec![file("a b.png"), file("a b-2.png")].into(),
        };
        let job = Job::at(AttemptNo::FIRST, state);
        let mut writer = ResultsWriter::begin(&dir, dialect, ["note".to_owned()].into()).unwrap();
        writer.push(&ResultLine::new(&batch, &two, &job, true)).unwrap();
        writer.push(&ResultLine::new(&batch, &none, &Job::queued(), false)).unwrap();
        writer.finish().unwrap();
        (fs::read(dir.join("results.csv")).unwrap(), dir, root)
    }

    /// The cells of some columns of each row.
    fn rows(bytes: &[u8], columns: &[&str]) -> Vec<Vec<String>> {
        let mut reader = csv::Reader::from_reader(bytes);
        let headings = reader.headers().unwrap().clone();
        let at = columns.iter().map(|name| headings.iter().position(|heading| heading == *name).unwrap());
        let at: Vec<usize> = at.collect();
        let cells = |row: csv::StringRecord| at.iter().map(|at| row[*at].to_owned()).collect();
        reader.records().map(|row| cells(row.unwrap())).collect()
    }

    #[test]
    fn each_file_has_a_row_and_credits_add_up() {
        let (bytes, dir, _root) = written(CsvDialect::Plain);
        let path = |name: &str| dir.join(name).display().to_string();
        assert_eq!(
            rows(&bytes, &["id", "files", "path", "file_no", "charged_credits", "superseded"]),
            [
                ["-two", "a b.png", &path("a b.png"), "1", "0", "true"],
                ["-two", "a b-2.png", &path("a b-2.png"), "2", "", "true"],
                ["none", "", "", "", "0", "false"],
            ]
        );
        assert_eq!(rows(&bytes, &["prompt", "meta.note", "ended"])[0], ["=1+1", "@a", ""]);
    }

    #[test]
    fn a_spreadsheet_gets_a_byte_order_mark_and_no_formula() {
        let (bytes, ..) = written(CsvDialect::Excel);
        assert!(bytes.starts_with(b"\xef\xbb\xbfid,"));
        let (bytes, plain) = (&bytes[3..], written(CsvDialect::Plain).0);
        assert_eq!(rows(bytes, &["id", "prompt", "meta.note"])[0], ["'-two", "'=1+1", "'@a"]);
        let unquoted = |cell: String| cell.strip_prefix('\'').unwrap_or(&cell).to_owned();
        let text = |bytes: &[u8]| rows(bytes, &results_csv::COLUMNS[..22]);
        let (excel, plain) = (text(bytes), text(&plain));
        let excel = excel.into_iter().map(|row| row.into_iter().map(unquoted).collect::<Vec<_>>());
        assert_eq!(excel.collect::<Vec<_>>(), plain, "nothing else differs");
    }
}
