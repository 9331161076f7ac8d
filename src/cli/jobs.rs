//! `callsheet jobs`: the jobs of a batch, or of all.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::client;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::table::{self, Cell, RowPrinter};
use crate::cli::terminal::Tone;
use crate::cli::{printable, written};
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::job_state::{self, JobState};
use crate::server::protocol::{JobSummary, JobsRequest, Request};

/// What `jobs` takes.
#[derive(Debug, Args)]
pub(super) struct JobsCommand {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
}

const HEADINGS: [&str; 6] = ["state", "kind", "credits", "job", "file", "prompt or error"];

/// Digits of an identity that are shown: enough for a command.
const IDENTITY_SHOWN: usize = 8;

/// The flags with the state directory that they mean, and which jobs `--state` asks for: it is the directory's flag
/// everywhere, and here the name of a job state means the jobs in it.
pub(super) fn split_state(global: &Global) -> (Global, Option<JobState>) {
    let wanted: Option<JobState> =
        global.state.as_deref().and_then(Path::to_str).and_then(|name| name.parse().ok());
    let folder = match wanted {
        None => global.state.clone(),
        Some(_) => std::env::var_os("CALLSHEET_STATE").map(PathBuf::from),
    };
    (Global { state: folder, ..global.clone() }, wanted)
}

pub(super) async fn run(command: &JobsCommand, global: &Global) -> Result<Exit, Failure> {
    let (global, wanted) = &split_state(global);
    if let Some(path) = global.state.as_deref().filter(|path| wanted.is_none() && !path.exists())
        && let Some(name) = path.to_str().filter(|name| !name.contains('/'))
    {
        let message = format!("there is neither a job state nor a state directory {name}");
        let hint = match job_state::nearest(name) {
            Some(near) => format!("did you mean --state {near}?"),
            None => format!("the job states are {}", JobState::ALL.map(JobState::name).join(", ")),
        };
        return Err(Failure::new(Exit::Usage, message).hint(hint));
    }
    let state = wanted.map(|state| state.name().to_owned());
    let request = JobsRequest { batch: command.batch.clone(), state };
    client::with(global, JobsRequest::METHOD, async |client| {
        let mut out = BufWriter::new(anstream::stdout());
        let mut rows = RowPrinter::new(table::with_headings(HEADINGS).numbers(&[2]).minor(&[1, 2]).cut(&[5]));
        let mut print = |line: &[u8]| {
            if global.json { out.write_all(line) } else { add_row(line, &mut rows, &mut out) }
        };
        let not_listed = client.lines(&request, &mut print).await?;
        written(rows.finish(&mut out).and_then(|()| out.flush()))?;
        client::report_not_listed(not_listed);
        Ok(Exit::Success)
    })
    .await
}

/// What is shown behind the name of a job. The name of an edited row means the version that is wanted; of another one its
/// identity does.
pub(super) fn superseded_mark(identity: &str, superseded: bool) -> String {
    let identity = identity.get(..IDENTITY_SHOWN).filter(|_| superseded);
    identity.map(|identity| format!(" (superseded, {identity})")).unwrap_or_default()
}

fn add_row(line: &[u8], rows: &mut RowPrinter, out: &mut impl Write) -> io::Result<()> {
    let job: JobSummary = serde_json::from_slice(line)?;
    let tone = match job.state.parse() {
        // One that failed in whose place another version is wanted is no failure.
        Ok(JobState::Failed) if job.superseded => Tone::Plain,
        Ok(JobState::Failed | JobState::InDoubt) => Tone::Failed,
        _ => Tone::Plain,
    };
    let file = match job.files.as_slice() {
        [] => String::new(),
        [file] => file.path.clone(),
        [first, more @ ..] => format!("{} (+{})", first.path, more.len()),
    };
    let identity = superseded_mark(&job.job, job.superseded);
    let text = match job.error {
        Some(fault) => fault.to_string(),
        None if job.inputs.is_empty() => job.prompt,
        None => {
            let length = job.sent_length.map(|length| format!("; {length}")).unwrap_or_default();
            format!("{} (takes {}{length})", job.prompt, job.inputs.join(", "))
        }
    };
    rows.add_row(
        out,
        [
            Cell::toned(job.state, tone),
            job.kind.into(),
            job.charged_credits.0.to_string().into(),
            printable(&format!("{}/{}{identity}", job.batch, job.id)).into(),
            printable(&file).into(),
            Cell::toned(printable(&text), tone),
        ],
    )
}
