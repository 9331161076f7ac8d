//! `callsheet review BATCH --import FILE`: decisions that were made in a spreadsheet.
//!
//! Every line is checked against what holds, and only what differs is recorded: a file that is imported as it was
//! exported changes nothing. A line that is wrong is said with its number, and keeps no other from taking effect.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::cli::client;
use crate::cli::failure::{Failure, FileProblem};
use crate::cli::global_flags::Global;
use crate::cli::review_decisions::{decide, say_left};
use crate::cli::terminal::say;
use crate::cli::{printable, printable_path, written};
use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::plural::counted;
use crate::domain::review::{NOTE_MAX_CHARS, ReviewAction, Verdict};
use crate::output::decisions_csv::ReviewLine;
use crate::server::protocol::{DecideRequest, DecisionRequest, Request, ReviewRequest};

/// Lines that are wrong and are said; the rest are counted.
const SHOWN_MAX: usize = 20;

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImportedLine {
    /// Its number in the file, from 1.
    line: u64,
    /// The job's identity, or its label.
    job: String,
    /// The batch that the file names; empty where it does not.
    batch: String,
    decision: String,
    note: String,
    /// SHA-256 of the outputs that were looked at; empty where the file does not say.
    sha256: Vec<String>,
}

impl ImportedLine {
    /// The version of an edited row that it names as LABEL@N, in `batch` (empty: not known); nothing where it names none, or
    /// one of another batch.
    fn version(&self, batch: &str) -> Option<String> {
        self.job.rsplit_once('@').filter(|(_, version)| version.parse::<u32>().is_ok())?;
        match self.job.split_once('/') {
            None if !batch.is_empty() => Some(format!("{batch}/{}", self.job)),
            Some((named, _)) if !batch.is_empty() && batch != named => None,
            _ => Some(self.job.clone()),
        }
    }
}

/// A line that is wrong.
type BadLine = (u64, String);

pub(super) async fn run(
    batch: Option<&BatchName>,
    file: &Path,
    by: &str,
    global: &Global,
) -> Result<Exit, Failure> {
    let unread = |error: String| {
        Failure::new(Exit::Usage, format!("failed to read {}: {error}", file.display()))
            .hint("export a file with callsheet review BATCH --export FILE, and keep its headings")
    };
    let text = match file == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(file),
    };
    let text = text.map_err(|error| unread(error.to_string()))?;
    let (lines, mut bad) = read(&text).map_err(unread)?;
    client::with(global, DecideRequest::METHOD, async |client| {
        let mut jobs = ListedJobs::default();
        let request = ReviewRequest { batch: batch.cloned(), all: true, ..ReviewRequest::default() };
        let mut take = |line: &[u8]| {
            jobs.add(serde_json::from_slice(line)?);
            Ok(())
        };
        client.lines(&request, &mut take).await?;
        let (asked, numbers, refused) = changes(&lines, &jobs, batch);
        bad.extend(refused);
        let decided = decide(client, &asked, by).await?;
        for (outcome, line) in decided.decisions.iter().zip(numbers) {
            bad.extend(outcome.refused.clone().map(|refused| (line, refused)));
        }
        bad.sort();
        let changed = decided.decisions.iter().filter(|outcome| outcome.changed).count();
        if global.json {
            let problems: Vec<_> = bad
                .iter()
                .map(|(line, message)| serde_json::json!({"line": line, "message": message}))
                .collect();
            let told =
                serde_json::json!({"changed": changed, "problems": problems, "batches": decided.batches});
            let printed =
                written(std::io::Write::write_fmt(&mut anstream::stdout(), format_args!("{told:#}\n")));
            report_problems(file, &bad);
            printed?;
        } else {
            for (line, message) in bad.iter().take(SHOWN_MAX) {
                say!("{}:{line}: {}", printable_path(file), printable(message));
            }
            if bad.len() > SHOWN_MAX {
                say!("{}: and {} more lines with problems", printable_path(file), bad.len() - SHOWN_MAX);
            }
            say!("{}: {} changed", printable_path(file), counted(changed as u64, "decision"));
            say_left(&decided);
        }
        Ok(if bad.is_empty() { Exit::Success } else { Exit::Usage })
    })
    .await
}

/// With `--json`: says on stderr which lines are wrong, as an error with every problem.
fn report_problems(file: &Path, bad: &[BadLine]) {
    if bad.is_empty() {
        return;
    }
    let placed = |(line, message): &BadLine| FileProblem {
        file: file.to_owned(),
        problem: Diagnostic::at(Position::line(*line), message),
    };
    let message = format!("{} of {} cannot be used", counted(bad.len() as u64, "line"), file.display());
    Failure::new(Exit::Usage, message)
        .hint("correct the lines and import the file again; decisions that were made already stay")
        .problems(bad.iter().map(placed).collect())
        .report(true);
}

/// The lines of the file, and those that cannot be read.
fn read(text: &str) -> Result<(Vec<ImportedLine>, Vec<BadLine>), String> {
    // Ended by a line feed, so that the place behind a record tells the line of its end. Of `\r\n` the reader would leave
    // the second for the next record.
    let text = format!("{}\n", text.strip_prefix('\u{feff}').unwrap_or(text)).replace("\r\n", "\n");
    let head = text.lines().next().unwrap_or_default();
    let separators = [b',', b';', b'\t'];
    let count = |separator: &u8| head.bytes().filter(|byte| byte == separator).count();
    let separator = separators.into_iter().max_by_key(count).unwrap_or(b',');
    let mut csv = csv::ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(text.as_bytes());
    let headings = csv.headers().map_err(|error| error.to_string())?.clone();
    let column = |name: &str| headings.iter().position(|heading| heading.trim().eq_ignore_ascii_case(name));
    let Some(decision) = column("decision") else { return Err("it has no column decision".to_owned()) };
    let (id, label, batch) = (column("id"), column("job"), column("batch"));
    if id.or(label).is_none() {
        return Err("it has neither a column id nor a column job".to_owned());
    }
    let (note, sha256) = (column("note"), column("sha256"));
    let (mut lines, mut bad) = (Vec::new(), Vec::new());
    let mut record = csv::StringRecord::new();
    loop {
        match csv.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                bad.push((line, error.to_string()));
                continue;
            }
        }
        // The reader itself takes blank lines before a record for a part of it.
        let within: u64 = record.iter().map(|cell| cell.matches('\n').count() as u64).sum();
        let line = csv.position().line().saturating_sub(within + 1);
        let cell = |column: Option<usize>| {
            let cell = column.and_then(|column| record.get(column)).unwrap_or_default().trim();
            // Put before what a spreadsheet would take for a formula.
            let guarded = cell.strip_prefix('\'').filter(|rest| rest.starts_with(['=', '+', '-', '@']));
            guarded.unwrap_or(cell).to_owned()
        };
        if record.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        let job = Some(cell(id)).filter(|id| !id.is_empty()).unwrap_or_else(|| cell(label));
        let sha256 = cell(sha256).split_whitespace().map(str::to_owned).collect();
        let (batch, decision, note) = (cell(batch), cell(Some(decision)), cell(note));
        lines.push(ImportedLine { line, job, batch, decision, note, sha256 });
    }
    Ok((lines, bad))
}

/// What a cell asks for: nothing where it leaves things as they are.
fn action(cell: &str) -> Result<Option<ReviewAction>, String> {
    Ok(Some(match cell.to_lowercase().as_str() {
        // The other takes of a picked one follow from the pick.
        "" | "not_picked" | "not picked" | "waiting" => return Ok(None),
        "approve" | "approved" => ReviewAction::Approve,
        "reject" | "rejected" => ReviewAction::Reject,
        "pick" | "picked" => ReviewAction::Pick,
        "withdraw" | "withdrawn" | "undecided" => ReviewAction::Withdraw,
        _ => return Err(format!("decision: found {cell:?}, expected approve, reject, pick or withdraw")),
    }))
}

/// The jobs with outputs, by what lines call them.
#[derive(Default)]
struct ListedJobs {
    by_identity: HashMap<String, ReviewLine>,
    /// The identities of the jobs with each label.
    by_label: HashMap<String, Vec<String>>,
}

impl ListedJobs {
    fn add(&mut self, job: ReviewLine) {
        self.by_label.entry(job.id.clone()).or_default().push(job.job.clone());
        self.by_identity.insert(job.job.clone(), job);
    }

    /// The job of this identity, or else the one with this label whose version of its row is wanted; BATCH/ before either, or
    /// a batch that the line names, says whose.
    fn find(&self, name: &str, batch: &str) -> Result<&ReviewLine, String> {
        let (batch, name) = match name.split_once('/') {
            // A label may have a slash itself.
            Some(named) if !self.by_label.contains_key(name) && (batch.is_empty() || named.0 == batch) => {
                named
            }
            _ => (batch, name),
        };
        let is_of_batch = |job: &&ReviewLine| batch.is_empty() || job.batch.as_str() == batch;
        if let Some(job) = self.by_identity.get(name).filter(is_of_batch) {
            return Ok(job);
        }
        let called = self.by_label.get(name).into_iter().flatten();
        let called = called.filter_map(|job| self.by_identity.get(job)).filter(is_of_batch);
        let called: Vec<&ReviewLine> = called.collect();
        let identities = |jobs: &[&ReviewLine]| {
            let identities: Vec<&str> = jobs.iter().map(|job| job.job.as_str()).collect();
            identities.join(", ")
        };
        let wanted: Vec<&ReviewLine> = called.iter().copied().filter(|job| !job.superseded).collect();
        match (wanted.as_slice(), called.as_slice()) {
            ([job], _) => Ok(*job),
            ([], []) if batch.is_empty() => Err(format!("no job {name} has outputs")),
            ([], []) => Err(format!("no job {name} of batch {batch} has outputs")),
            ([], earlier) => Err(format!(
                "the wanted version of {name} has no outputs; an earlier version has: to decide about it, write its \
                 identity in a column id: {}",
                identities(earlier)
            )),
            (several, _) => Err(format!(
                "{} jobs are called {name}; write the identity of the one that is meant in a column id: {}",
                several.len(),
                identities(several)
            )),
        }
    }
}

/// The decisions that differ from what holds, the line of each, and the lines that are wrong.
fn changes(
    lines: &[ImportedLine],
    jobs: &ListedJobs,
    batch: Option<&BatchName>,
) -> (Vec<DecisionRequest>, Vec<u64>, Vec<BadLine>) {
    let (mut asked, mut numbers, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen: HashMap<String, u64> = HashMap::new();
    let mut picked: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines {
        let mut refuse = |message: String| bad.push((line.line, message));
        let action = match action(&line.decision) {
            Ok(action) => action,
            Err(message) => {
                refuse(message);
                continue;
            }
        };
        if let Some(batch) = batch
            && !line.batch.is_empty()
            && line.batch != batch.as_str()
        {
            refuse(format!("batch: found {:?}, expected {batch}", line.batch));
            continue;
        }
        let of_batch = if line.batch.is_empty() { batch.map_or("", BatchName::as_str) } else { &line.batch };
        // By its identity, which is that of one job whatever it is called. Which version has a number, and what holds of it, is
        // known where it is decided.
        let (job, name) = match (jobs.find(&line.job, of_batch), line.version(of_batch)) {
            (Ok(job), _) => (Some(job), format!("{}/{}", job.batch, job.job)),
            (Err(_), Some(version)) => (None, version),
            (Err(message), None) => {
                refuse(message);
                continue;
            }
        };
        if let Some(first) = seen.insert(name.clone(), line.line) {
            let label = job.map_or(&line.job, |job| &job.id);
            refuse(format!("{label} is already decided about at line {first}"));
            continue;
        }
        if line.note.chars().count() > NOTE_MAX_CHARS {
            refuse(format!("note: at most {NOTE_MAX_CHARS} characters are accepted"));
            continue;
        }
        let Some(action) = action else { continue };
        let note = Some(line.note.clone()).filter(|note| !note.is_empty());
        if job.is_some_and(|job| is_standing(job, action, note.as_ref())) {
            continue;
        }
        if let (ReviewAction::Pick, Some(job)) = (action, job)
            && let Some(first) = picked.insert(&job.row, line.line)
        {
            refuse(format!("another take of its row is picked at line {first}; pick one"));
            continue;
        }
        let sha256 = Some(line.sha256.clone()).filter(|sums| !sums.is_empty());
        asked.push(DecisionRequest { job: name, decision: action, note, sha256 });
        numbers.push(line.line);
    }
    (asked, numbers, bad)
}

/// Whether that decision, with that note, is what holds.
fn is_standing(job: &ReviewLine, action: ReviewAction, note: Option<&String>) -> bool {
    let is_same = match (job.verdict(), action.verdict()) {
        (None, Verdict::Withdrawn) => true,
        (standing, wanted) => standing == Some(wanted),
    };
    // As it is read: a line end of two characters is one.
    let standing = job.review.as_ref().and_then(|review| review.note.as_ref());
    let standing = standing.map(|note| note.replace("\r\n", "\n"));
    is_same && (note.is_none() || note == standing.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::credits::Credits;
    use crate::output::CsvDialect;
    use crate::output::decisions_csv::{DecisionsWriter, ReviewResult};

    fn job(label: &str, row: &str, decision: &str) -> ReviewLine {
        let review = ReviewResult { decision: decision.to_owned(), by: None, at: None, note: None };
        ReviewLine {
            id: label.to_owned(),
            batch: "b".parse().unwrap(),
            job: format!("0{label}"),
            row: row.to_owned(),
            take: 1,
            seq: 0,
            kind: "image".to_owned(),
            model: None,
            prompt: "=1+1; \"fox\"\nand hen".to_owned(),
            files: Vec::new(),
            charged_credits: Credits(3),
            review: Some(review),
            superseded: false,
        }
    }

    fn jobs() -> Vec<ReviewLine> {
        [("a", "1", "waiting"), ("b", "2", "picked"), ("c", "2", "not_picked"), ("-d", "3", "rejected")]
            .map(|(label, row, decision)| job(label, row, decision))
            .to_vec()
    }

    /// `line job decision`, or `line! why`.
    fn told(text: &str) -> Vec<String> {
        told_of(jobs(), text)
    }

    fn told_of(of: Vec<ReviewLine>, text: &str) -> Vec<String> {
        let mut jobs = ListedJobs::default();
        of.into_iter().for_each(|job| jobs.add(job));
        let (lines, unread) = read(text).unwrap();
        let (asked, numbers, bad) = changes(&lines, &jobs, Some(&"b".parse().unwrap()));
        let asked = asked.iter().zip(numbers).map(|(asked, line)| {
            let note = asked.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
            format!("{line} {} {}{note}", asked.job, asked.decision.name())
        });
        asked.chain(unread.into_iter().chain(bad).map(|(line, why)| format!("{line}! {why}"))).collect()
    }

    #[test]
    fn what_was_exported_changes_nothing_in_either_dialect() {
        for dialect in [CsvDialect::Plain, CsvDialect::Excel] {
            let mut writer = DecisionsWriter::begin(Vec::new(), dialect).unwrap();
            jobs().iter().for_each(|job| writer.push(job).unwrap());
            let text = String::from_utf8(writer.finish().unwrap()).unwrap();
            assert_eq!(read(&text).unwrap().0.len(), 4);
            assert_eq!(told(&text), [""; 0], "{text}");
        }
    }

    #[test]
    fn only_what_differs_is_taken_down_and_a_bad_line_keeps_no_other_back() {
        assert_eq!(
            told("job;Decision;note\na;Approve;\nb;picked;\nc;not_picked;\n-d;REJECT;\n"),
            ["2 b/0a approve"]
        );
        // Another take is picked in its place; the one before is as it was exported.
        assert_eq!(told("id,decision\n0b,picked\n0c,pick\n"), ["3 b/0c pick"]);
        assert_eq!(told("id,decision,note\n0b,picked,for the cover\n"), ["2 b/0b pick (for the cover)"]);
        assert_eq!(told("job\tdecision\n-d\twithdraw\na\tundecided\n"), ["2 b/0-d withdraw"]);
        assert_eq!(
            told("job,decision\na,maybe\nx,approve\na,approve\n\na,reject\n"),
            [
                "4 b/0a approve",
                "2! decision: found \"maybe\", expected approve, reject, pick or withdraw",
                "3! no job x of batch b has outputs",
                "6! a is already decided about at line 4",
            ]
        );
        assert_eq!(
            told("job,decision\nb/a,approve\nb/0c,pick\nother/a,reject\n"),
            ["2 b/0a approve", "3 b/0c pick", "4! no job other/a of batch b has outputs"]
        );
        assert_eq!(
            told("job,decision\na@1,approve\nother/a@2,reject\na@1,reject\na@2,\n"),
            [
                "2 b/a@1 approve",
                "3! no job other/a@2 of batch b has outputs",
                "4! a@1 is already decided about at line 2",
            ]
        );
        let long = "n".repeat(NOTE_MAX_CHARS + 1);
        let refused = format!("2! note: at most {NOTE_MAX_CHARS} characters are accepted");
        assert_eq!(told(&format!("job,decision,note\na@1,reject,{long}\n")), [refused]);
        let slash = job("scenes/01", "4", "waiting");
        assert_eq!(told_of(vec![slash], "job,decision\nscenes/01,approve\n"), ["2 b/0scenes/01 approve"]);
        // Lines of a spreadsheet may end otherwise.
        assert_eq!(
            told("job,batch,decision\r\na,b,approve\r\nb,other,reject\r\nx,other,\r\n-d,,maybe\r\n"),
            [
                "2 b/0a approve",
                "3! batch: found \"other\", expected b",
                "4! batch: found \"other\", expected b",
                "5! decision: found \"maybe\", expected approve, reject, pick or withdraw",
            ]
        );
    }

    #[test]
    fn a_label_means_the_version_that_is_wanted_and_is_refused_where_several_jobs_have_it() {
        let version = |label: &str, identity: &str, superseded| ReviewLine {
            job: identity.to_owned(),
            superseded,
            ..job(label, identity, "waiting")
        };
        let jobs = [
            version("a", "a1", false),
            version("a", "a2", true),
            version("old", "o1", true),
            version("s-v2", "s2", false),
            version("s-v2", "s3", false),
        ];
        assert_eq!(
            told_of(jobs.to_vec(), "job,decision\na,approve\nold,approve\ns-v2,pick\ns3,pick\na2,reject\n"),
            [
                "2 b/a1 approve",
                "5 b/s3 pick",
                "6 b/a2 reject",
                "3! the wanted version of old has no outputs; an earlier version has: to decide about it, write its identity \
                 in a column id: o1",
                "4! 2 jobs are called s-v2; write the identity of the one that is meant in a column id: s2, s3",
            ]
        );
    }

    #[test]
    fn a_file_without_its_headings_is_refused() {
        assert_eq!(read("a,b\n1,2\n").unwrap_err(), "it has no column decision");
        assert_eq!(read("decision\napprove\n").unwrap_err(), "it has neither a column id nor a column job");
    }
}
