//! `callsheet explain`: the whole story of a job, and what comes next.

use std::io::Write;

use serde_json::json;

use crate::cli::arguments::{Global, JobArgument};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::{printable, state, written};
use crate::domain::ids::IdempotencyKey;
use crate::domain::job::{JobSpec, State};
use crate::domain::ledger::Movement;
use crate::domain::retry::{self, Prospect};
use crate::store::{BatchRecord, JobRecord, Pause};

pub(super) fn run(command: &JobArgument, global: &Global) -> Result<Exit, Failure> {
    let store = state::open(global)?;
    let (batch, spec, record) = state::job(&store, &command.job)?;
    let text = if global.json { json_text(&batch, &spec, &record) } else { story(&batch, &spec, &record) };
    written(writeln!(anstream::stdout(), "{text}"))?;
    Ok(Exit::Success)
}

fn json_text(batch: &BatchRecord, spec: &JobSpec, record: &JobRecord) -> String {
    let key = IdempotencyKey::derive(spec.id, record.job.attempt);
    let story = json!({
        "batch": batch.name,
        "spec": spec,
        "job": record.job,
        "idempotency_key": spec.order.kind.is_keyed().then(|| key.to_string()),
        "next": next(batch, record),
    });
    format!("{story:#}")
}

fn story(batch: &BatchRecord, spec: &JobSpec, record: &JobRecord) -> String {
    let job = &record.job;
    let mut lines = vec![
        format!(
            "{}/{}: {} (line {} of the manifest)",
            batch.name,
            printable(&spec.label),
            job.state.name(),
            spec.order.line
        ),
        format!("  what      {} {}", spec.order.kind, spec.order.model.as_deref().unwrap_or_default()),
        format!("  text      {}", shorten(spec.order.text())),
        format!("  price     {}", price(spec)),
        format!(
            "  books     {} held, {} charged, {} waived",
            job.books.held.0, job.books.charged.0, job.books.waived.0
        ),
        format!("  identity  {}", spec.id),
    ];
    if job.first_sent.is_some() {
        let key = IdempotencyKey::derive(spec.id, job.attempt);
        let key = if spec.order.kind.is_keyed() {
            key.to_string()
        } else {
            "none: the endpoint honours no key".to_owned()
        };
        lines.push(format!("  attempt   {} under key {key}", job.attempt.0));
    }
    if let Some(task) = job.state.task() {
        lines.push(format!("  task      {}", printable(&task.0)));
    }
    if let State::Succeeded { files, .. } = &job.state {
        lines.extend(files.iter().map(|file| format!("  file      {} ({} bytes)", file.path, file.bytes)));
    }
    lines.push("history".to_owned());
    for line in &job.history {
        let movement = line.movement.map(|movement| format!(" [{}]", moved(movement))).unwrap_or_default();
        lines.push(format!("  {} #{} {}{movement}", line.at, line.attempt.0, printable(&line.what)));
    }
    if job.history.is_empty() {
        lines.push("  nothing was done for it yet".to_owned());
    }
    lines.push(format!("next: {}", next(batch, record)));
    lines.join("\n")
}

fn price(spec: &JobSpec) -> String {
    match spec.order.price {
        Some(price) => format!("{} ({})", price, spec.order.formula),
        None => format!("not known ({})", spec.order.formula),
    }
}

/// A movement in a few words.
pub(super) fn moved(movement: Movement) -> String {
    match movement {
        Movement::Hold(credits) => format!("{} held", credits.0),
        Movement::Settle { held, spent, waived } => {
            format!("{} held became {} charged, {} waived", held.0, spent.0, waived.0)
        }
        Movement::Release(credits) => format!("{} released", credits.0),
        Movement::Refund { spent, waived } => format!("{} refunded, {} waived given back", spent.0, waived.0),
        Movement::Correct { from, to } => format!("charge corrected from {} to {}", from.0, to.0),
    }
}

/// What the program does next for it, and what a person can do.
fn next(batch: &BatchRecord, record: &JobRecord) -> String {
    let overdue = if record.job.overdue { " It is overdue, so it is read slowly." } else { "" };
    match &record.job.state {
        State::Queued if batch.paused == Some(Pause::Rebuilt) => format!(
            "its batch is paused since the state was rebuilt or imported; after callsheet resume {} it is sent \
             under this key: the service answers a key that was used with its task, and one that was not buys",
            batch.name
        ),
        State::Queued if batch.paused.is_some() => {
            format!("its batch is paused; callsheet resume {} lets it go on", batch.name)
        }
        State::Queued => "it is sent when a slot and the budgets allow".to_owned(),
        State::Submitting { may_have_run: true, .. } => {
            format!("the same request is sent again under the same key; it cannot be charged twice.{overdue}")
        }
        State::Submitting { .. } => "its request is on its way, or about to be".to_owned(),
        State::Running { .. } => format!("its task is read until it ends.{overdue}"),
        State::Fetching { urls, .. } if urls.is_empty() => "its task is read for fresh links".to_owned(),
        State::Fetching { .. } => "its outputs are downloaded".to_owned(),
        State::Succeeded { .. } => {
            "nothing; callsheet download fetches its outputs again, free of charge".to_owned()
        }
        State::Failed { .. } if !record.job.books.charged.is_zero() => {
            "it is paid for; callsheet download tries to fetch its outputs again, free of charge".to_owned()
        }
        State::Failed { fault, .. } if retry::prospect(&fault.code) == Prospect::Hopeless => {
            "nothing: unchanged it would be refused again; change its row and run the manifest again"
                .to_owned()
        }
        State::Failed { .. } => "nothing; callsheet retry makes another attempt, under a new key".to_owned(),
        State::Canceled | State::Expired => "nothing; callsheet retry queues it again".to_owned(),
        State::InDoubt { .. } => {
            "nothing by itself: look at the account, whether it was charged; its credits stay counted"
                .to_owned()
        }
    }
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(100).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    printable(&short)
}
