//! What is known of a job, fact by fact: as `callsheet explain` prints it and as its live page shows it.

use std::time::Duration;

use crate::domain::job::{Job, JobSpec, State};
use crate::domain::review::Decision;
use crate::domain::shell_word::job_argument;
use crate::domain::task::TaskRecord;
use crate::server::protocol::{Explanation, InputView};

/// A fact of a job: what it is about in one word, and what is so.
pub(crate) type Fact = (&'static str, String);

/// All facts of a job but its state, its text, its history and its next step.
pub(crate) fn job_facts(explanation: &Explanation) -> Vec<Fact> {
    let Explanation { batch, spec, job, idempotency_key, superseded, drift, inputs, .. } = explanation;
    let (order, books) = (&spec.order, job.all_books());
    let mut facts = vec![
        ("batch", batch.to_string()),
        ("line", format!("{} of the manifest", order.line)),
        ("what", kind_and_model(spec, job)),
        ("price", price(spec, job)),
        ("credits", format!("{} held, {} charged, {} waived", books.held.0, books.charged.0, books.waived.0)),
        ("identity", spec.id.to_string()),
    ];
    facts.extend(version(explanation));
    facts.extend(inputs.iter().flat_map(input));
    if job.first_sent().is_some() {
        let key = idempotency_key.as_deref().unwrap_or("none: the endpoint supports no key");
        facts.push(("attempt", format!("{} under key {key}", job.attempt().0)));
    }
    facts.extend(job.state().task().map(|task| ("task", task.to_string())));
    facts.extend(job.resubmitted_attempts().filter_map(|other| {
        let (task, charged) = (&other.task()?.0, other.books().charged);
        Some(("other", format!("task {task} of attempt {}: {charged} charged", other.no().0)))
    }));
    match job.state() {
        State::Succeeded { files, .. } => {
            facts.extend(files.iter().map(|file| ("file", format!("{} ({} bytes)", file.path, file.bytes))));
        }
        State::Failed { fault, .. } => facts.push(("error", fault.to_string())),
        _ => {}
    }
    facts.extend(job.decisions().iter().map(|decision| ("decision", decided(decision))));
    if job.awaits_review() && !superseded {
        let approve = format!("callsheet review approve {}", job_argument(batch, &spec.label));
        facts.push(("review", format!("waiting for a decision: {approve}")));
    }
    facts.extend(drift.iter().map(|drift| ("drift", drift.to_string())));
    facts.extend(job.task_record().and_then(recorded));
    facts.extend(order.meta.fields().iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        ("column", format!("meta.{name} = {value}"))
    }));
    facts
}

/// `image gi-2`: what a job makes, and by which model, as its task says or else its row.
pub(crate) fn kind_and_model(spec: &JobSpec, job: &Job) -> String {
    let ran = job.ran_model().filter(|model| !model.is_empty());
    let model = ran.or(spec.order.model.as_deref()).unwrap_or_default();
    format!("{} {model}", spec.order.kind).trim_end().to_owned()
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

/// Which version of its row it is, where that was edited.
fn version(explanation: &Explanation) -> Option<Fact> {
    let Explanation { versions, spec, .. } = explanation;
    let version = versions.iter().find(|version| version.job == spec.id)?;
    let wanted = versions.iter().find(|version| !version.superseded);
    let which = match (version.superseded, wanted) {
        (true, Some(wanted)) => format!("superseded by {}", wanted.name),
        (true, None) => "superseded".to_owned(),
        (false, _) => "the wanted version".to_owned(),
    };
    Some(("version", format!("{} of {}, {which}", version.name, versions.len())))
}

fn input(input: &InputView) -> impl Iterator<Item = Fact> + use<> {
    let measured = input
        .measured_ms
        .map(|length| format!(", since that is {} s long", Duration::from_millis(length.0).as_secs_f64()));
    let sent = input.address.as_deref().map(|address| {
        let measured = measured.unwrap_or_default();
        ("sent", format!("{address}{measured}"))
    });
    let what = ("input", format!("{} is {}: {}", input.field, input.shown(), input.state));
    [Some(what), sent].into_iter().flatten()
}

fn decided(decision: &Decision) -> String {
    let Decision { verdict, by, at, note, .. } = decision;
    let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    format!("{} by {by} at {at}{note}", verdict.name())
}

/// What the task's record says for reconciling an invoice.
fn recorded(record: &TaskRecord) -> Option<Fact> {
    let fields = [
        ("credit record", &record.credit_id),
        ("allowance", &record.fair_use_key),
        ("created", &record.created_at),
        ("updated", &record.updated_at),
        ("upstream", &record.upstream_id),
    ];
    let said = fields.iter().filter_map(|(name, text)| Some(format!("{name} {}", text.as_deref()?)));
    let said = said.collect::<Vec<_>>().join(", ");
    (!said.is_empty()).then_some(("record", said))
}
