//! `callsheet explain`: the whole story of a job, and what comes next.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::cli::client;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::invocation::with_typed_commands;
use crate::cli::name_arguments::JobArgument;
use crate::cli::{printable, written};
use crate::domain::exit_code::Exit;
use crate::domain::job::{Job, JobSpec, State};
use crate::domain::review::Decision;
use crate::domain::shell_word::job_argument;
use crate::domain::task::TaskRecord;
use crate::server::protocol::{ExplainRequest, Explanation};

pub(super) async fn run(command: &JobArgument, global: &Global) -> Result<Exit, Failure> {
    let explanation = client::call(global, &ExplainRequest { job: command.job.clone() }).await?;
    let text = if global.json {
        format!("{:#}", json!(explanation))
    } else {
        with_typed_commands(&history_text(&explanation))
    };
    written(writeln!(anstream::stdout(), "{text}"))?;
    Ok(Exit::Success)
}

fn history_text(explanation: &Explanation) -> String {
    let Explanation { batch, spec, job, idempotency_key, next, .. } = explanation;
    let books = job.all_books();
    let mut lines = vec![
        format!(
            "{}/{}: {} (line {} of the manifest)",
            batch,
            spec.label,
            job.state().name(),
            spec.order.line
        ),
        format!("  what      {} {}", spec.order.kind, spec.order.model.as_deref().unwrap_or_default()),
        format!("  text      {}", shorten(&spec.order.text())),
        format!("  price     {}", price(spec, job)),
        format!("  books     {} held, {} charged, {} waived", books.held.0, books.charged.0, books.waived.0),
        format!("  identity  {}", spec.id),
    ];
    if let Some(version) = explanation.versions.iter().find(|version| version.job == spec.id) {
        let wanted = explanation.versions.iter().find(|version| !version.superseded);
        let which = match wanted {
            Some(wanted) if version.superseded => format!(", superseded by {}", wanted.name),
            _ => ", the wanted version".to_owned(),
        };
        lines.push(format!("  version   {} of {}{which}", version.name, explanation.versions.len()));
    }
    lines.extend(explanation.inputs.iter().flat_map(|input| {
        let what = format!("  input     {} is {}: {}", input.field, input.shown(), input.state);
        let measured = input
            .measured_ms
            .map(|ms| format!(", since that is {} s long", Duration::from_millis(ms.0).as_secs_f64()));
        let measured = measured.unwrap_or_default();
        let sent = input.address.as_deref().map(|address| format!("  sent      {address}{measured}"));
        [Some(what), sent].into_iter().flatten()
    }));
    if job.first_sent().is_some() {
        let key = idempotency_key.as_deref().unwrap_or("none: the endpoint supports no key");
        lines.push(format!("  attempt   {} under key {key}", job.attempt().0));
    }
    if let Some(task) = job.state().task() {
        lines.push(format!("  task      {}", task.0));
    }
    lines.extend(job.resubmitted_attempts().filter_map(|other| {
        let (task, charged) = (&other.task()?.0, other.books().charged);
        Some(format!("  other     task {task} of attempt {}: {charged} charged", other.no().0))
    }));
    if let State::Succeeded { files, .. } = job.state() {
        lines.extend(files.iter().map(|file| format!("  file      {} ({} bytes)", file.path, file.bytes)));
    }
    lines.extend(job.decisions().iter().map(|decision| {
        let Decision { verdict, by, at, note, .. } = decision;
        let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        format!("  review    {} by {by} at {at}{note}", verdict.name())
    }));
    if job.awaits_review() && !explanation.superseded {
        lines.push(format!(
            "  review    waiting for a decision: callsheet review approve {}",
            job_argument(batch, &spec.label)
        ));
    }
    lines.extend(explanation.drift.iter().map(|drift| format!("  drift     {drift}")));
    lines.extend(job.task_record().and_then(recorded));
    lines.push("history".to_owned());
    for line in job.history() {
        let movement = line.movement.map(|movement| format!(" [{movement}]")).unwrap_or_default();
        lines.push(format!("  {} #{} {}{movement}", line.at, line.attempt.0, line.what));
    }
    if job.history().is_empty() {
        lines.push("  no history yet".to_owned());
    }
    lines.push(format!("next: {next}"));
    // Whatever stands on a line, and from wherever it came.
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}

/// What the task's record says for reconciling an invoice.
fn recorded(record: &TaskRecord) -> Option<String> {
    let fields = [
        ("credit record", &record.credit_id),
        ("allowance", &record.fair_use_key),
        ("created", &record.created_at),
        ("updated", &record.updated_at),
        ("upstream", &record.upstream_id),
    ];
    let said = fields.iter().filter_map(|(name, text)| Some(format!("{name} {}", text.as_deref()?)));
    let said = said.collect::<Vec<_>>().join(", ");
    (!said.is_empty()).then(|| format!("  record    {said}"))
}

fn price(spec: &JobSpec, job: &Job) -> String {
    let order = &spec.order;
    let (now, planned) = (job.price(order), order.price);
    match (now, planned) {
        (Some(now), Some(planned)) if now != planned => {
            format!("{now} when it was sent, {} when it was accepted ({})", planned.0, order.formula)
        }
        (Some(now), _) => format!("{now} ({})", order.formula),
        (None, _) if order.cheapest.is_some() => {
            let (least, most) = (order.cheapest.unwrap_or_default(), job.hold(order).unwrap_or_default());
            format!("{} to {most} ({})", least.0, order.formula)
        }
        (None, _) => {
            let most = job.hold(order).map(|most| format!(", {most} at most")).unwrap_or_default();
            format!("not known{most} ({})", order.formula)
        }
    }
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(100).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
