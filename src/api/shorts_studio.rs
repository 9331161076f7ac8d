//! Shorts Studio, whose bodies the document does not show.
//!
//! Known: its POST takes a body as it is and no idempotency key; while a task runs it is answered with 202;
//! it is polled by `taskId` or `requestId`; its errors carry `code` and `message` alone.
//!
//! Assumed, and nothing more: a success shows, in `data` or bare, an object with `id`, `taskId` or
//! `requestId`; where it shows `status`, `costCredits` and `waivedCredits` they are those of the task
//! object; results stand in `taskUrls`, `urls`, `url` or in `taskResult.output`. What shows no id
//! leaves the outcome unknown, and an unknown outcome is never sent again. An answer may not say what
//! was charged.

use serde_json::Value;

use crate::api::http_client::RawResponse;
use crate::api::url_path::path_segment;
use crate::api::{response, wire};
use crate::domain::ids::TaskId;
use crate::domain::request::Kind;
use crate::domain::task::{Fault, PostAnswer, ReadAnswer, TaskReading, TaskStatus};

/// Before the id of a task that is known by its `requestId` alone.
const REQUEST: &str = "request:";
/// Why an answer is no reading that shows another task than the one that was asked for.
const OF_ANOTHER_TASK: &str = "the answer is about another task";

/// Path and query that read a task.
pub(super) fn poll_path(task: &TaskId) -> String {
    let (name, id) = match task.0.strip_prefix(REQUEST) {
        Some(request) => ("requestId", request),
        None => ("taskId", task.as_str()),
    };
    format!("/api/v1/shorts-studio?{name}={}", path_segment(id))
}

/// Classifies the response to the POST.
pub fn classify_post(raw: &RawResponse) -> PostAnswer {
    if !is_success(raw) {
        return match response::classify_post(raw, Kind::ShortsStudio) {
            // Without a key, only a request that was turned away unread may be sent again.
            PostAnswer::Again { fault, wait, .. } => {
                PostAnswer::Again { fault, wait, may_have_run: !matches!(raw.status, 405 | 429) }
            }
            other => other,
        };
    }
    match reading(raw, None) {
        Ok(reading) => PostAnswer::Task(reading),
        Err(why) => {
            PostAnswer::Again { fault: Fault::new("broken_answer", why), wait: None, may_have_run: true }
        }
    }
}

/// Classifies the response to a poll.
pub fn classify_read(raw: &RawResponse, task: &TaskId) -> ReadAnswer {
    if !is_success(raw) {
        return response::classify_read(raw);
    }
    match reading(raw, Some(task)) {
        Ok(reading) => ReadAnswer::Task(reading),
        Err(why) if raw.status == 202 && why != OF_ANOTHER_TASK => ReadAnswer::Task(running(task)),
        Err(why) => ReadAnswer::Again { fault: Fault::new("broken_answer", why), wait: None },
    }
}

/// What 202 says by itself.
fn running(task: &TaskId) -> TaskReading {
    TaskReading {
        id: task.clone(),
        status: TaskStatus::Processing,
        model: None,
        options: None,
        charged: None,
        waived: None,
        urls: Vec::new(),
        fault: None,
        record: None,
    }
}

/// The record of a task as its poll shows it; nothing where the endpoint does not know the task.
pub(super) fn parse_task_record(raw: &RawResponse, task: &TaskId) -> Result<Option<Value>, Fault> {
    match classify_read(raw, task) {
        ReadAnswer::Task(reading) => {
            let body: Option<Value> = serde_json::from_slice(&raw.body).ok();
            let places = ["/data/task", "/data", "/task", ""];
            let shown = places.iter().find_map(|place| body.as_ref()?.pointer(place)?.as_object().cloned());
            let mut record = shown.unwrap_or_default();
            record.entry("id").or_insert_with(|| task.as_str().into());
            if reading.status == TaskStatus::Processing {
                record.insert("status".to_owned(), "processing".into());
            }
            Ok(Some(record.into()))
        }
        // It says no more of what it does not know than that it refuses it.
        _ if matches!(raw.status, 400 | 404 | 405) => Ok(None),
        ReadAnswer::Missing(fault) | ReadAnswer::Unauthorised(fault) | ReadAnswer::Again { fault, .. } => {
            Err(fault)
        }
    }
}

fn is_success(raw: &RawResponse) -> bool {
    (200..300).contains(&raw.status)
}

fn reading(raw: &RawResponse, known: Option<&TaskId>) -> Result<TaskReading, &'static str> {
    let body: Value = serde_json::from_slice(&raw.body).map_err(|_| "the answer is not JSON")?;
    if body.get("code").and_then(Value::as_i64).is_some_and(|code| code != 0) {
        return Err("the answer is an error and a success at once");
    }
    let places = [body.pointer("/data/task"), body.get("data"), body.get("task"), Some(&body)];
    let objects = || places.into_iter().flatten().filter(|place| place.is_object());
    let named = objects().find_map(|object| Some((object, id_in(object)?)));
    if let (Some((object, _)), Some(known)) = (&named, known)
        && names_another(object, known)
    {
        return Err(OF_ANOTHER_TASK);
    }
    let (object, id) = match (named, known) {
        // As it was given first, so that one task has one name.
        (Some((object, _)), Some(known)) if !known.0.starts_with(REQUEST) => (object, known.clone()),
        (Some(named), _) => named,
        (None, Some(known)) => (objects().next().unwrap_or(&body), known.clone()),
        (None, None) => return Err("the answer shows no task"),
    };
    let urls = urls_in(object);
    let status = status(raw, object, &urls, known.is_some())?;
    let credits = |name: &str| object.get(name).and_then(wire::charge);
    Ok(TaskReading {
        id,
        fault: wire::task_fault(object, &status),
        status,
        model: wire::model(object),
        options: None,
        charged: credits("costCredits"),
        waived: credits("waivedCredits"),
        urls,
        record: wire::record(object),
    })
}

/// Whether an object shows ids, and none of them is the one that was asked for. What was asked for by its
/// `requestId` may show a `taskId` alone: that is how the task's own name is learned.
fn names_another(object: &Value, known: &TaskId) -> bool {
    let (names, known): (&[&str], _) = match known.0.strip_prefix(REQUEST) {
        Some(request) => (&["requestId"], request),
        // The upstream's id may stand beside the task's own.
        None => (&["taskId", "id"], known.as_str()),
    };
    let shown: Vec<String> = names.iter().filter_map(|name| wire::text(object, name)).collect();
    !shown.is_empty() && !shown.iter().any(|id| id.eq_ignore_ascii_case(known))
}

fn id_in(object: &Value) -> Option<TaskId> {
    let given = |name: &str| wire::text(object, name).filter(|id| wire::is_id(id));
    // Of a task object, `taskId` is what it is called at the provider.
    let task = given("id").or_else(|| given("taskId"));
    task.or_else(|| given("requestId").map(|id| format!("{REQUEST}{id}"))).map(|id| TaskId(id.into()))
}

/// 202 is running, whatever else the answer shows. Otherwise by the word that it shows; without a known one, 200 to a
/// poll is success only where results stand beside it.
fn status(
    raw: &RawResponse,
    object: &Value,
    urls: &[String],
    is_poll: bool,
) -> Result<TaskStatus, &'static str> {
    let word = wire::text(object, "status").map(|word| TaskStatus::from_wire(&word));
    match word.filter(|word| !matches!(word, TaskStatus::Other(_))) {
        Some(TaskStatus::Pending) if raw.status == 202 => Ok(TaskStatus::Pending),
        _ if raw.status == 202 => Ok(TaskStatus::Processing),
        Some(status) => Ok(status),
        _ if !urls.is_empty() => Ok(TaskStatus::Success),
        _ if is_poll => Err("the answer shows neither a status nor results"),
        _ => Ok(TaskStatus::Pending),
    }
}

fn urls_in(object: &Value) -> Vec<String> {
    let result: Option<Value> =
        wire::text(object, "taskResult").and_then(|text| serde_json::from_str(&text).ok());
    let output = result.as_ref().and_then(|result| result.get("output"));
    let lists = [object.get("taskUrls"), object.get("urls"), object.get("url"), output];
    let texts = |value: &Value| -> Vec<String> {
        match value {
            Value::String(url) => vec![url.clone()],
            Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    };
    lists.into_iter().flatten().map(texts).find(|urls| !urls.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(status: u16, body: &str) -> RawResponse {
        RawResponse { status, retry_after: None, date: None, redirect: None, body: body.as_bytes().to_vec() }
    }

    fn said(reading: &TaskReading) -> String {
        let charged = reading.charged.map_or("?".to_owned(), |charged| charged.0.to_string());
        format!("{} {:?} {charged} {:?}", reading.id, reading.status, reading.urls)
    }

    fn post(status: u16, body: &str) -> String {
        match classify_post(&raw(status, body)) {
            PostAnswer::Task(reading) => said(&reading),
            PostAnswer::Again { may_have_run, .. } => format!("again, may have run: {may_have_run}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_task_is_found_wherever_it_may_stand() {
        for (status, body, expected) in [
            (
                202,
                r#"{"code":0,"data":{"taskId":"t","status":"pending","costCredits":25}}"#,
                "t Pending 25 []",
            ),
            (202, r#"{"code":0,"data":{"task":{"id":"t"}}}"#, "t Processing ? []"),
            (200, r#"{"requestId":"r"}"#, "request:r Pending ? []"),
            (202, r#"{"code":0,"data":{"id":"t","taskId":"up-1","status":"failed"}}"#, "t Processing ? []"),
            (200, r#"{"code":0,"data":{"id":"t","urls":["http://x/1"]}}"#, "t Success ? [\"http://x/1\"]"),
        ] {
            assert_eq!(post(status, body), expected, "{body}");
        }
    }

    #[test]
    fn an_unknown_outcome_is_never_sent_again() {
        for (status, body) in [
            (200, "<html>"),
            (200, r#"{"code":0,"data":{}}"#),
            (200, r#"{"code":-1,"message":"no","id":"t"}"#),
            (500, r#"{"code":-1,"message":"broken"}"#),
            (503, r#"{"code":-1,"message":"away"}"#),
            (502, ""),
        ] {
            assert_eq!(post(status, body), "again, may have run: true", "{status} {body}");
        }
        assert_eq!(post(429, ""), "again, may have run: false");
    }

    #[test]
    fn errors_carry_a_code_and_a_message_alone() {
        let refused = classify_post(&raw(400, r#"{"code":-1,"message":"no segments"}"#));
        assert_eq!(refused, PostAnswer::Refused(Fault::new("code_-1", "no segments")));
        let poor = classify_post(&raw(402, r#"{"code":-1002,"message":"too dear"}"#));
        assert!(matches!(poor, PostAnswer::OutOfCredits(_)));
        let missing = classify_read(&raw(404, r#"{"code":-1,"message":"no"}"#), &TaskId("t".into()));
        assert!(matches!(missing, ReadAnswer::Missing(_)));
    }

    #[test]
    fn polling_goes_on_while_the_answer_is_202_and_success_shows_results() {
        let task = TaskId("t".into());
        let poll = |status, body: &str| match classify_read(&raw(status, body), &task) {
            ReadAnswer::Task(reading) => said(&reading),
            _ => "again".to_owned(),
        };
        assert_eq!(poll(202, "{}"), "t Processing ? []");
        for word in ["failed", "success", "canceled", "processing"] {
            assert_eq!(poll(202, &format!(r#"{{"status":"{word}"}}"#)), "t Processing ? []");
        }
        for body in ["", "<html>", r#"{"code":1,"message":"busy"}"#, "[]", r#"{"data":{"requestId":"r"}}"#] {
            assert_eq!(poll(202, body), "t Processing ? []", "{body}");
        }
        assert_eq!(poll(202, r#"{"data":{"taskId":"u"}}"#), "again", "it is about another task");
        assert_eq!(poll(200, "{}"), "again");
        assert_eq!(poll(200, r#"{"status":"success","url":"http://x/1"}"#), "t Success ? [\"http://x/1\"]");
        assert_eq!(poll(200, r#"{"data":{"status":"failed","costCredits":0}}"#), "t Failed 0 []");
    }

    #[test]
    fn an_answer_about_another_task_is_not_believed() {
        let read = |task: &str, body: &str| match classify_read(&raw(200, body), &TaskId(task.into())) {
            ReadAnswer::Task(reading) => said(&reading),
            ReadAnswer::Again { fault, .. } => fault.into_message(),
            _ => "something else".to_owned(),
        };
        let done = r#""status":"success","costCredits":9,"url":"http://x/1""#;
        for (task, ids, expected) in [
            ("t", r#""id":"t","#, "t Success 9 [\"http://x/1\"]"),
            ("T", r#""taskId":"t","#, "T Success 9 [\"http://x/1\"]"),
            ("t", r#""id":"t","taskId":"upstream","#, "t Success 9 [\"http://x/1\"]"),
            ("t", r#""id":"u","#, "the answer is about another task"),
            ("t", r#""taskId":"u","#, "the answer is about another task"),
            ("t", r#""taskId":"u","requestId":"t","#, "the answer is about another task"),
            ("request:r", r#""taskId":"t","requestId":"r","#, "t Success 9 [\"http://x/1\"]"),
            ("request:r", r#""taskId":"t","#, "t Success 9 [\"http://x/1\"]"),
            ("request:r", r#""taskId":"t","requestId":"s","#, "the answer is about another task"),
        ] {
            assert_eq!(read(task, &format!("{{\"data\":{{{ids}{done}}}}}")), expected, "{task} {ids}");
        }
    }

    #[test]
    fn the_record_of_a_task_is_what_its_poll_shows() {
        let record = |status, body: &str| {
            let record = parse_task_record(&raw(status, body), &TaskId("t".into()));
            record.map(|record| record.map(|record| record.to_string())).map_err(|fault| fault.code.clone())
        };
        let done = r#"{"code":0,"data":{"taskId":"t","status":"success","url":"http://x/1"}}"#;
        let shown = r#"{"id":"t","status":"success","taskId":"t","url":"http://x/1"}"#;
        assert_eq!(record(200, done), Ok(Some(shown.to_owned())));
        assert_eq!(record(202, ""), Ok(Some(r#"{"id":"t","status":"processing"}"#.to_owned())));
        assert_eq!(record(404, r#"{"code":-1,"message":"no"}"#), Ok(None));
        assert_eq!(record(500, ""), Err("http_500".to_owned()));
    }

    #[test]
    fn a_task_is_polled_by_what_is_known_of_it() {
        assert_eq!(poll_path(&TaskId("a b".into())), "/api/v1/shorts-studio?taskId=a%20b");
        assert_eq!(poll_path(&TaskId("request:r".into())), "/api/v1/shorts-studio?requestId=r");
    }
}
