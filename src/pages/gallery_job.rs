//! A job as the gallery shows it.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::charge_drift;
use crate::domain::default_fields::is_default;
use crate::domain::ids::BatchName;
use crate::domain::job::{Job, JobSpec, OutputFile, State};
use crate::domain::json_object::JsonObject;
use crate::domain::remedy::{Remedy, missed_its_deadline, remedy};
use crate::domain::shell_word::job_argument;

/// Digits of an output's SHA-256 that its thumbnail is called by.
const THUMBNAIL_DIGITS: usize = 24;
/// Fields of a request that the gallery shows apart from its options.
const APART: [&str; 5] = ["prompt", "text", "model", "options", "clientRequestId"];

/// A job: an element of a page of data. The names are those that the gallery's script reads.
#[derive(Debug, Serialize)]
pub struct GalleryJob<'a> {
    /// Its place in the batch. Of several with the same one the last counts.
    seq: u32,
    /// What its takes have in common: the beginning of the fingerprint of their row.
    row: String,
    /// Which take of its row, from 1.
    take: u32,
    line: u64,
    id: &'a str,
    /// Its identity, as far as commands need it.
    job: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    prompt: String,
    state: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<GalleryFile<'a>>,
    /// As run, where the record of its task tells; otherwise as they were asked for.
    options: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<u64>,
    charged: u64,
    #[serde(skip_serializing_if = "is_default")]
    waived: u64,
    #[serde(skip_serializing_if = "is_default")]
    held: u64,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a str>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<GalleryError<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    review: Option<GalleryReview<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<NextStep>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drift: Vec<String>,
    #[serde(skip_serializing_if = "JsonObject::is_empty")]
    meta: &'a JsonObject,
    /// What a command calls it.
    name: String,
}

#[derive(Debug, Serialize)]
struct GalleryError<'a> {
    code: &'a str,
    message: &'a str,
}

/// What a person decided about its outputs.
#[derive(Debug, Serialize)]
struct GalleryReview<'a> {
    /// `waiting`, `approved`, `rejected`, `picked`, `not_picked`
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// An output.
#[derive(Debug, Serialize)]
struct GalleryFile<'a> {
    /// Relative to the batch's folder.
    path: &'a str,
    bytes: u64,
    #[serde(rename = "type")]
    content_type: &'a str,
    /// What its thumbnail and its facts are called by.
    key: &'a str,
}

/// What a person can do.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct NextStep {
    text: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// What an output's thumbnail and facts are called by: the beginning of its SHA-256.
pub fn media_key(file: &OutputFile) -> &str {
    file.sha256.get(..THUMBNAIL_DIGITS).unwrap_or(&file.sha256)
}

impl<'a> GalleryJob<'a> {
    /// The job of a row, ended or not.
    pub fn new(batch: &BatchName, spec: &'a JobSpec, job: &'a Job) -> GalleryJob<'a> {
        let files = match job.state() {
            State::Succeeded { files, .. } => files.as_slice(),
            _ => &[],
        };
        let error = match job.state() {
            State::Failed { fault, .. } | State::InDoubt { fault, .. } => Some(fault),
            State::Submitting { fault, .. } | State::Canceled { fault, .. } => fault.as_ref(),
            _ => None,
        };
        let books = job.all_books();
        let fingerprint = spec.fingerprint.to_string();
        let ended = job.history().last().filter(|_| job.state().is_final());
        let name = command_name(batch, spec);
        GalleryJob {
            seq: spec.seq.0,
            row: fingerprint[..12].to_owned(),
            take: spec.variation,
            line: spec.order.line,
            id: &spec.label,
            job: spec.id.short(),
            kind: spec.order.kind.name(),
            model: job.ran_model().or(spec.order.model.as_deref()),
            prompt: spec.order.text(),
            state: if job.state().is_replaced() { "replaced" } else { job.state().name() },
            late: job.is_late() || (!job.state().is_final() && job.is_overdue()),
            files: files.iter().map(file).collect(),
            options: options(spec, job),
            price: job.price(&spec.order).map(|credits| credits.0),
            charged: books.charged.0,
            waived: books.waived.0,
            held: books.held.0,
            attempts: if job.first_sent().is_some() { job.newest_attempt().0 } else { 0 },
            task: job.state().task().map(|task| task.as_str()),
            sent: job.first_sent().map(|at| at.0),
            ended: ended.map(|line| line.at.0),
            error: error.map(|fault| GalleryError { code: &fault.code, message: &fault.message }),
            review: review(job),
            next: next_step(&name, spec, job),
            drift: charge_drift::of(&spec.order, job).iter().map(ToString::to_string).collect(),
            meta: &spec.order.meta,
            name,
        }
    }
}

fn review(job: &Job) -> Option<GalleryReview<'_>> {
    match job.decision() {
        Some(decision) => Some(GalleryReview {
            decision: decision.verdict.name(),
            by: Some(&decision.by),
            at: Some(decision.at.0),
            note: decision.note.as_deref(),
        }),
        None => job.awaits_review().then_some(GalleryReview {
            decision: "waiting",
            by: None,
            at: None,
            note: None,
        }),
    }
}

fn file(file: &OutputFile) -> GalleryFile<'_> {
    let content_type = &file.content_type;
    GalleryFile { path: &file.path, bytes: file.bytes, content_type, key: media_key(file) }
}

/// The options that its task ran with, or that it asks for.
fn options(spec: &JobSpec, job: &Job) -> Map<String, Value> {
    if let Some(ran) = job.ran_options() {
        return ran.fields();
    }
    let body = &spec.order.body_with_length(job.present().inputs());
    let nested = body.get("options").and_then(Value::as_object).into_iter().flatten();
    let own = body.iter().filter(|(name, _)| !APART.contains(&name.as_str()));
    own.chain(nested).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What a person can do for a job that did not succeed; `name` is what commands call it.
fn next_step(name: &str, spec: &JobSpec, job: &Job) -> Option<NextStep> {
    let step = |text, command: &str| {
        let command = (!command.is_empty()).then(|| command.replace("JOB", name));
        Some(NextStep { text, command })
    };
    let after = remedy(job);
    match job.state() {
        State::InDoubt { .. } => step(
            "It may have been charged, and no answer of the service told how much. Look the charge up and record it, \
             or --not-charged; until then its credits count as spent.",
            "callsheet resolve JOB --charged N",
        ),
        State::Failed { .. } if after.is_some_and(|after| after != Remedy::Retry) => match after {
            Some(Remedy::Nothing) if spec.order.kind.is_keyed() => step(
                "It was recorded as charged, and no task of it is known. A retry under its key returns the task that was made, \
                 without a second charge, or buys it if none was; before it:",
                "callsheet resolve JOB --not-charged",
            ),
            Some(Remedy::Nothing) => {
                step("It was recorded as charged, and no task of it is known: nothing can be downloaded.", "")
            }
            Some(Remedy::Download) => step(
                "It is paid for. Its outputs can be downloaded again, free of charge.",
                "callsheet download JOB",
            ),
            Some(Remedy::RaiseLimit) => step(
                "It costs more than its limit. A higher one queues it again.",
                "callsheet retry JOB --max-credits N",
            ),
            Some(Remedy::SetLength) => step(
                "Nothing was charged. A length of its own lets it be sent.",
                "callsheet retry JOB --set FIELD=SECONDS",
            ),
            Some(Remedy::MoveFileAway) => step(
                "It was made and paid for before: see the file that its error names. To pay for it again, move that file away \
                 first.",
                "callsheet retry JOB",
            ),
            Some(Remedy::RestoreInput) => {
                step("An input is gone. Its error says what helps; after that:", "callsheet retry JOB")
            }
            _ => step(
                "It would be rejected again. Change its row and submit the manifest again, or:",
                "callsheet retry JOB --set FIELD=VALUE",
            ),
        },
        state if state.is_replaced() => {
            step("A newer version of its row came before it was sent. Nothing was charged.", "")
        }
        state if state.is_ended_by_record() => {
            step("Another attempt has a new key and its own charge.", "callsheet retry JOB")
        }
        State::Expired if missed_its_deadline(&spec.order, job) => step(
            "The deadline of its row had passed before it was sent. To have it made, add its row with another id and a later \
             deadline.",
            "",
        ),
        State::Expired => step(
            "Its batch had expired before it was sent. Submit its manifest with a later policy.expires, then:",
            "callsheet retry JOB",
        ),
        State::Failed { .. } | State::Canceled { .. } if spec.order.kind.is_keyed() => {
            step("It can be queued again, under the same key.", "callsheet retry JOB")
        }
        State::Failed { .. } | State::Canceled { .. } if job.first_sent().is_some() => step(
            "It can be sent again, without a key, since its endpoint supports none: if the request before was received \
             after all, both are charged.",
            "callsheet retry JOB",
        ),
        State::Failed { .. } | State::Canceled { .. } => {
            step("It can be queued again.", "callsheet retry JOB")
        }
        _ => None,
    }
}

/// `BATCH/LABEL` as a shell takes it; the identity of a job whose label no shell should be given.
fn command_name(batch: &BatchName, spec: &JobSpec) -> String {
    let label = &spec.label;
    let is_odd = |c: char| c.is_control() || (!c.is_ascii() && !c.is_alphanumeric()) || c == '\'';
    if label.chars().any(is_odd) || label.starts_with('-') || label.is_empty() {
        return spec.id.short();
    }
    job_argument(batch, label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::credit_hold::ABOVE_MAX;
    use crate::domain::ids::{AttemptNo, Fingerprint, JobId, Seq, TaskId};
    use crate::domain::task::Fault;

    fn spec(label: &str) -> JobSpec {
        let order = serde_json::json!({
            "line": 2, "kind": "image", "priority": 0, "meta": { "__proto__": "x", "client": "<acme>" },
            "body": { "prompt": "a harbour", "model": "gi-2", "options": { "aspectRatio": "3:4" }, "seed": 7 },
        });
        JobSpec {
            seq: Seq(4),
            id: JobId([0xab; 16]),
            fingerprint: Fingerprint([0xcd; 16]),
            variation: 2,
            label: label.to_owned(),
            apart: false,
            order: serde_json::from_value(order).unwrap(),
        }
    }

    fn shown(job: &Job) -> Value {
        serde_json::to_value(GalleryJob::new(&"b".parse().unwrap(), &spec("hero"), job)).unwrap()
    }

    #[test]
    fn an_output_is_shown_with_what_it_was_made_with() {
        let files = vec![OutputFile {
            path: "hero.png".into(),
            bytes: 9,
            sha256: "0123456789abcdef".repeat(4),
            content_type: "image/png".into(),
            edited: None,
            object: None,
        }];
        let job =
            Job::at(AttemptNo::FIRST, State::Succeeded { task: TaskId("t".into()), files: files.into() });
        let shown = shown(&job);
        let file = serde_json::json!({
            "path": "hero.png", "bytes": 9, "type": "image/png", "key": "0123456789abcdef01234567",
        });
        assert_eq!(shown["files"], serde_json::json!([file]));
        assert_eq!(shown["options"], serde_json::json!({ "aspectRatio": "3:4", "seed": 7 }));
        assert_eq!(
            (&shown["row"], &shown["take"], &shown["seq"]),
            (&"cdcdcdcdcdcd".into(), &2.into(), &4.into())
        );
        assert_eq!(shown["meta"]["__proto__"], "x");
        assert!(shown.get("next").is_none() && shown.get("error").is_none());
        let ran = job.with_run("gi-3", &serde_json::json!({ "aspectRatio": "1:1" }));
        let ran = serde_json::to_value(GalleryJob::new(&"b".parse().unwrap(), &spec("hero"), &ran)).unwrap();
        assert_eq!((&ran["model"], &ran["options"]["aspectRatio"]), (&"gi-3".into(), &"1:1".into()));
    }

    #[test]
    fn a_decision_is_shown_as_it_holds() {
        use crate::domain::review::{Decision, Verdict};
        use crate::domain::time::Timestamp;

        let sum = "0123456789abcdef".repeat(4);
        let files = vec![OutputFile {
            path: "hero.png".into(),
            bytes: 9,
            sha256: sum.clone(),
            content_type: "image/png".into(),
            edited: None,
            object: None,
        }];
        let mut job =
            Job::at(AttemptNo::FIRST, State::Succeeded { task: TaskId("t".into()), files: files.into() });
        assert_eq!(shown(&job).get("review"), None, "nobody asked for one");
        job.note_review(
            &serde_json::from_value(serde_json::json!({
                "line": 2, "kind": "image", "priority": 0, "body": {}, "review": true,
            }))
            .unwrap(),
        );
        assert_eq!(shown(&job)["review"], serde_json::json!({ "decision": "waiting" }));
        let (by, note) = ("ana".to_owned(), Some("<b>".to_owned()));
        let decision =
            Decision { verdict: Verdict::NotPicked, by, at: Timestamp(7), note, sha256: vec![sum] };
        job.decide(decision);
        let expected = serde_json::json!({ "decision": "not_picked", "by": "ana", "at": 7, "note": "<b>" });
        assert_eq!(shown(&job)["review"], expected);
    }

    #[test]
    fn a_failure_says_why_and_what_next() {
        let failed = |code: &str| {
            let state = State::Failed { fault: Fault::new(code, "no"), task: None };
            shown(&Job::at(AttemptNo::FIRST, state))
        };
        assert_eq!(failed("timeout")["error"]["code"], "timeout");
        assert_eq!(failed("timeout")["next"]["command"], "callsheet retry b/hero");
        assert_eq!(failed(ABOVE_MAX)["next"]["command"], "callsheet retry b/hero --max-credits N");
        let state = State::InDoubt { fault: Fault::new("timeout", "no"), task: None };
        let doubt = shown(&Job::at(AttemptNo::FIRST, state));
        assert_eq!((&doubt["state"], &doubt["late"]), (&"in_doubt".into(), &Value::Null));
        assert_eq!(doubt["next"]["command"], "callsheet resolve b/hero --charged N");
    }

    #[test]
    fn a_command_can_be_pasted_whatever_a_job_is_called() {
        let name = |label: &str| command_name(&"b".parse().unwrap(), &spec(label));
        assert_eq!(name("hero-v2"), "b/hero-v2");
        assert_eq!(name("a b; rm -rf $(x)"), "'b/a b; rm -rf $(x)'");
        for odd in ["it's", "a\nb", "-x", "a\u{202e}b", ""] {
            assert_eq!(name(odd), "abababab", "{odd:?}");
        }
    }
}
