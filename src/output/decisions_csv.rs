//! The outputs of a batch and what was decided about them: a line of the control API, and a row of `decisions.csv`, which
//! is written for spreadsheets and read back from them.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::domain::credits::Credits;
use crate::domain::hex::hex;
use crate::domain::ids::BatchName;
use crate::domain::job::{Job, JobSpec, OutputFile};
use crate::domain::review::{Decision, Verdict};
use crate::output::csv_dialect::{CsvDialect, FORMULA_STARTS};
use crate::output::own_file::OwnFile;
use crate::output::publish::create;

/// What holds of the outputs of a job, as results and lists show it. Scripts rely on the names: fields may be added, not
/// renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewResult {
    /// `waiting`, `approved`, `rejected`, `picked` or `not_picked`; `undecided` where nobody waits for a decision.
    pub decision: String,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ReviewResult {
    /// What holds of a job; nothing of one that was never to be reviewed and about which nobody decided.
    pub fn of(job: &Job, superseded: bool) -> Option<ReviewResult> {
        let undecided =
            |decision: &str| ReviewResult { decision: decision.to_owned(), by: None, at: None, note: None };
        match job.decision() {
            Some(decision) => Some(ReviewResult::decided(decision)),
            None if job.awaits_review() && !superseded => Some(undecided("waiting")),
            None if job.has_succeeded() && !job.decisions().is_empty() => Some(undecided("undecided")),
            None => None,
        }
    }

    fn decided(decision: &Decision) -> ReviewResult {
        ReviewResult {
            decision: decision.verdict.name().to_owned(),
            by: Some(decision.by.clone()),
            at: Some(decision.at.to_string()),
            note: decision.note.clone(),
        }
    }
}

/// A job with outputs. Scripts rely on the names: fields may be added, not renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewLine {
    /// The job's label.
    pub id: String,
    /// Its batch.
    pub batch: BatchName,
    /// Its identity.
    pub job: String,
    /// What its takes have in common: those of one row have the same.
    pub row: String,
    /// Which take of its row, from 1.
    pub take: u32,
    /// Its place in the batch, from 0: where a further page goes on.
    pub seq: u32,
    /// What is generated.
    pub kind: String,
    /// The model that ran, or that its row names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it shows or says.
    pub prompt: String,
    /// Its outputs.
    pub files: Vec<OutputFile>,
    /// What it was charged, in credits.
    pub charged_credits: Credits,
    /// What holds of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewResult>,
    /// Another version of its row is wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

impl ReviewLine {
    /// Of a job of a batch; nothing where it has no outputs. `superseded` where another version of its row is wanted.
    pub fn of(batch: &BatchName, spec: &JobSpec, job: &Job, superseded: bool) -> Option<ReviewLine> {
        job.has_succeeded().then(|| ReviewLine {
            id: spec.label.clone(),
            batch: batch.clone(),
            job: spec.id.to_string(),
            row: hex(&spec.fingerprint.0),
            take: spec.variation,
            seq: spec.seq.0,
            kind: spec.order.kind.name().to_owned(),
            model: job.ran_model().or(spec.order.model.as_deref()).map(str::to_owned),
            prompt: spec.order.text(),
            files: job.outputs().to_vec(),
            charged_credits: job.all_books().charged,
            review: ReviewResult::of(job, superseded),
            superseded,
        })
    }

    /// Whether it waits for a decision.
    pub fn is_waiting(&self) -> bool {
        self.review.as_ref().is_some_and(|review| review.decision == "waiting")
    }

    /// The verdict that holds; nothing while it is undecided.
    pub fn verdict(&self) -> Option<Verdict> {
        let review = self.review.as_ref()?;
        let all = [Verdict::Approved, Verdict::Rejected, Verdict::Picked, Verdict::NotPicked];
        all.into_iter().find(|verdict| verdict.name() == review.decision)
    }

    /// Whether it belongs into a list of decisions: it waits for one, or there is one.
    pub fn is_reviewed(&self) -> bool {
        self.review.is_some()
    }
}

/// The columns of `decisions.csv`. `decision` and `note` are those that a person fills in.
pub const COLUMNS: [&str; 12] =
    ["job", "take", "file", "credits", "decision", "note", "by", "at", "prompt", "batch", "id", "sha256"];

/// Writes `decisions.csv`.
#[derive(Debug)]
pub struct DecisionsWriter<W: Write> {
    csv: csv::Writer<W>,
    dialect: CsvDialect,
}

impl<W: Write> DecisionsWriter<W> {
    /// Begins with the headings.
    ///
    /// # Errors
    /// What `out` refuses.
    pub fn begin(mut out: W, dialect: CsvDialect) -> io::Result<DecisionsWriter<W>> {
        if dialect == CsvDialect::Excel {
            out.write_all("\u{feff}".as_bytes())?;
        }
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(COLUMNS)?;
        Ok(DecisionsWriter { csv, dialect })
    }

    /// Adds a job.
    ///
    /// # Errors
    /// As above.
    pub fn push(&mut self, line: &ReviewLine) -> io::Result<()> {
        let review = line.review.as_ref();
        let decision = line.verdict().map_or("", Verdict::name);
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let join = |part: fn(&OutputFile) -> &str| line.files.iter().map(part).collect::<Vec<_>>().join(" ");
        let cells = [
            line.id.clone(),
            line.take.to_string(),
            join(|file| &file.path),
            line.charged_credits.0.to_string(),
            decision.to_owned(),
            text(review.and_then(|review| review.note.as_ref())),
            text(review.and_then(|review| review.by.as_ref())),
            text(review.and_then(|review| review.at.as_ref())),
            line.prompt.clone(),
            line.batch.to_string(),
            line.job.clone(),
            join(|file| &file.sha256),
        ];
        let guarded = cells.map(|cell| match self.dialect {
            CsvDialect::Excel if cell.starts_with(FORMULA_STARTS) => format!("'{cell}"),
            _ => cell,
        });
        Ok(self.csv.write_record(guarded)?)
    }

    /// Hands everything on.
    ///
    /// # Errors
    /// As above.
    pub fn finish(self) -> io::Result<W> {
        self.csv.into_inner().map_err(|error| io::Error::other(error.to_string()))
    }
}

/// `decisions.csv` in the folder of a batch: it appears under its name once it is complete. With nothing to tell there
/// is none.
#[derive(Debug)]
pub struct DecisionsFile {
    dir: PathBuf,
    dialect: CsvDialect,
    writer: Option<DecisionsWriter<io::BufWriter<fs::File>>>,
}

impl DecisionsFile {
    /// One that nothing was written into.
    pub fn new(dir: &Path, dialect: CsvDialect) -> DecisionsFile {
        DecisionsFile { dir: dir.to_owned(), dialect, writer: None }
    }

    /// Adds a job that belongs into a list of decisions.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn push(&mut self, line: &ReviewLine) -> io::Result<()> {
        if self.writer.is_none() {
            let out = io::BufWriter::new(create(&OwnFile::Decisions.draft(&self.dir))?);
            self.writer = Some(DecisionsWriter::begin(out, self.dialect)?);
        }
        self.writer.as_mut().map_or(Ok(()), |writer| writer.push(line))
    }

    /// Renames it to its final name.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn finish(self) -> io::Result<()> {
        let Some(writer) = self.writer else { return Ok(()) };
        let file = writer.finish()?.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
        file.sync_data()?;
        OwnFile::Decisions.put(&self.dir)?;
        fs::File::open(&self.dir)?.sync_all()
    }
}
