//! `callsheet review`: outputs that wait for a person's decision, and the decisions.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::cli::client;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::jobs::superseded_mark;
use crate::cli::new_file::ExportTarget;
use crate::cli::review_decisions::{decide, say_left};
use crate::cli::table::{self, RowPrinter};
use crate::cli::terminal::say;
use crate::cli::{another_take, examples, printable, printable_path, review_import, service_target, written};
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::plural::counted;
use crate::domain::review::{BY_MAX_CHARS, ReviewAction};
use crate::domain::shell_word::path_word;
use crate::output::decisions_csv::{DecisionsWriter, ReviewLine};
use crate::server::protocol::{DecideRequest, DecisionRequest, Decisions, Request, ReviewRequest};

/// What `review` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::REVIEW))]
pub(super) struct ReviewCommand {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
    /// List decided outputs, too
    #[arg(long)]
    pub(super) all: bool,
    /// Write the outputs and their decisions to a new CSV file, a pipe, or - for standard output
    #[arg(long, value_name = "FILE", requires = "batch", conflicts_with = "import")]
    pub(super) export: Option<PathBuf>,
    /// Read decisions from a CSV file that --export wrote
    #[arg(long, value_name = "FILE", requires = "batch", conflicts_with = "all")]
    pub(super) import: Option<PathBuf>,
    /// Who decides [default: $SUDO_USER, $USER or $LOGNAME, else cli]
    #[arg(long, value_name = "NAME", global = true)]
    pub(super) by: Option<String>,
    #[command(subcommand)]
    pub(super) decision: Option<DecisionCommand>,
}

#[derive(Debug, Subcommand)]
pub(super) enum DecisionCommand {
    /// Approve outputs
    Approve(DecisionArguments),
    /// Reject outputs; the files stay where they are
    Reject(DecisionArguments),
    /// Choose and approve one take of a row; the other undecided takes of the row count as not picked
    Pick(DecisionArguments),
    /// Cancel a decision: the outputs are undecided again
    Withdraw(DecisionArguments),
    /// Buy another take of a row; without --take and --price only show its price
    AnotherTake(another_take::TakeArguments),
}

#[derive(Debug, Args)]
pub(super) struct DecisionArguments {
    /// Label of a job, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "JOB", required = true)]
    pub(super) named: Vec<String>,
    /// Reason, kept with the decision
    #[arg(long, value_name = "TEXT")]
    pub(super) note: Option<String>,
}

const HEADINGS: [&str; 6] = ["decision", "credits", "take", "job", "file", "prompt or note"];

pub(super) async fn run(command: &ReviewCommand, global: &Global) -> Result<Exit, Failure> {
    let by = command.by.clone().unwrap_or_else(user);
    let (action, arguments) = match &command.decision {
        Some(DecisionCommand::Approve(arguments)) => (ReviewAction::Approve, arguments),
        Some(DecisionCommand::Reject(arguments)) => (ReviewAction::Reject, arguments),
        Some(DecisionCommand::Pick(arguments)) => (ReviewAction::Pick, arguments),
        Some(DecisionCommand::Withdraw(arguments)) => (ReviewAction::Withdraw, arguments),
        Some(DecisionCommand::AnotherTake(arguments)) => {
            refuse_flags(command, "another-take")?;
            if command.by.is_some() {
                let message = "--by names who decides; another take is no decision";
                return Err(Failure::new(Exit::Usage, message));
            }
            return another_take::run(arguments, global).await;
        }
        None => {
            return match (&command.import, &command.export) {
                (Some(file), _) => review_import::run(command.batch.as_ref(), file, &by, global).await,
                (None, Some(file)) => export(command.batch.as_ref(), file, global).await,
                (None, None) => list(command, global).await,
            };
        }
    };
    refuse_flags(command, action.name())?;
    let asked = arguments.named.iter().map(|job| DecisionRequest {
        job: job.clone(),
        decision: action,
        note: arguments.note.clone(),
        sha256: None,
    });
    let asked: Vec<DecisionRequest> = asked.collect();
    client::with(global, DecideRequest::METHOD, async |client| {
        let decided = decide(client, &asked, &by).await?;
        if global.json {
            let text = serde_json::to_string_pretty(&decided).unwrap_or_default();
            written(writeln!(anstream::stdout(), "{text}"))?;
        }
        Ok(say_decided(&decided, action, global.json))
    })
    .await
}

/// Flags of the list say nothing about a job.
fn refuse_flags(command: &ReviewCommand, name: &str) -> Result<(), Failure> {
    if command.batch.is_some() || command.all || command.export.is_some() || command.import.is_some() {
        let message =
            format!("callsheet review {name} takes jobs, and neither a batch nor flags of the list");
        return Err(Failure::new(Exit::Usage, message).hint("name a job of a batch as BATCH/JOB"));
    }
    Ok(())
}

/// Says what came of decisions that people typed.
fn say_decided(decided: &Decisions, action: ReviewAction, is_json: bool) -> Exit {
    let mut exit = Exit::Success;
    for decision in &decided.decisions {
        // The name of a job means the version of its row that is wanted; who names another, as gull@1, means that.
        let name = decision.name.as_ref().filter(|_| !decision.job.contains('@'));
        let name = printable(name.unwrap_or(&decision.job));
        match &decision.refused {
            Some(refused) => {
                exit = Failure::new(Exit::Usage, format!("{name}: {}", printable(refused))).report(is_json);
            }
            None if is_json => {}
            None if !decision.changed => say!("{name}: {} already", action.verdict().name()),
            None => {
                let others = match decision.others {
                    0 => String::new(),
                    1 => "; another take of its row was decided with it".to_owned(),
                    others => format!("; {others} other takes of its row were decided with it"),
                };
                say!("{name}: {}{others}", action.verdict().name());
            }
        }
    }
    if !is_json {
        say_left(decided);
    }
    exit
}

async fn list(command: &ReviewCommand, global: &Global) -> Result<Exit, Failure> {
    let request =
        ReviewRequest { batch: command.batch.clone(), all: command.all, ..ReviewRequest::default() };
    client::with(global, ReviewRequest::METHOD, async |client| {
        let mut out = BufWriter::new(anstream::stdout());
        let mut rows = RowPrinter::new(table::with_headings(HEADINGS).numbers(&[1, 2]).minor(&[2]).cut(&[5]));
        let mut listed = 0_u64;
        let mut print = |line: &[u8]| {
            listed += 1;
            if global.json { out.write_all(line) } else { add_row(line, &mut rows, &mut out) }
        };
        client.lines(&request, &mut print).await?;
        written(rows.finish(&mut out).and_then(|()| out.flush()))?;
        if listed == 0 && !global.json {
            let of = command.batch.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
            say!("no output{of} {}", if command.all { "is on disk" } else { "waits for review" });
        }
        Ok(Exit::Success)
    })
    .await
}

fn add_row(line: &[u8], rows: &mut RowPrinter, out: &mut impl Write) -> io::Result<()> {
    let job: ReviewLine = serde_json::from_slice(line)?;
    let file = match job.files.as_slice() {
        [] => String::new(),
        [file] => file.path.clone(),
        [first, more @ ..] => format!("{} (+{})", first.path, more.len()),
    };
    let mark = superseded_mark(&job.job, job.superseded);
    let review = job.review.as_ref();
    let text = review.and_then(|review| review.note.clone()).unwrap_or(job.prompt);
    rows.add_row(
        out,
        [
            review.map(|review| review.decision.clone()).unwrap_or_default(),
            job.charged_credits.0.to_string(),
            job.take.to_string(),
            printable(&format!("{}/{}{mark}", job.batch, job.id)),
            printable(&file),
            printable(&text),
        ],
    )
}

/// Writes every output that waits or is decided.
async fn export(batch: Option<&BatchName>, file: &Path, global: &Global) -> Result<Exit, Failure> {
    let dialect = service_target::config(global)?.output.results_csv;
    // Decisions that were filled in are not written over.
    let target = ExportTarget::begin(file)?;
    let request = ReviewRequest { batch: batch.cloned(), all: true, ..ReviewRequest::default() };
    let mut writer = DecisionsWriter::begin(Vec::new(), dialect).map_err(|error| failed(file, &error))?;
    let mut exported = 0_u64;
    client::with(global, ReviewRequest::METHOD, async |client| {
        let mut push = |line: &[u8]| {
            let line: ReviewLine = serde_json::from_slice(line)?;
            if !line.is_reviewed() {
                return Ok(());
            }
            exported += 1;
            writer.push(&line)
        };
        client.lines(&request, &mut push).await.map(drop)
    })
    .await?;
    let text = writer.finish().map_err(|error| failed(file, &error))?;
    if !target.write(&text)? {
        return Ok(Exit::Success);
    }
    say!(
        "{}: {}; fill in the column decision (approve, reject, pick or withdraw), then callsheet review {} \
         --import {}",
        printable_path(file),
        counted(exported, "output"),
        batch.map_or("BATCH", BatchName::as_str),
        printable(&path_word(file))
    );
    Ok(Exit::Success)
}

fn failed(file: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Disk, format!("failed to write {}: {error}", file.display()))
}

/// The name of who runs the command.
fn user() -> String {
    let names = ["SUDO_USER", "USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let names =
        names.map(|name| name.chars().filter(|c| !c.is_control()).take(BY_MAX_CHARS).collect::<String>());
    names.map(|name| name.trim().to_owned()).find(|name| !name.is_empty()).unwrap_or_else(|| "cli".to_owned())
}
