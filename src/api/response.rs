//! Classifies responses: the one table from HTTP to [`PostAnswer`] and [`ReadAnswer`] (Errors).
//!
//! `error.type` decides where the service's own envelope is there; the HTTP status decides for
//! everything else, since proxies answer too. The wording of messages and hints decides nothing.

use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

use crate::api::http_client::RawResponse;
use crate::api::retry_after::retry_after;
use crate::api::{tls, wire};
use crate::domain::credits::Credits;
use crate::domain::ids::TaskId;
use crate::domain::quote::catalog::CatalogPart;
use crate::domain::request::Kind;
use crate::domain::task::{Fault, PostAnswer, ReadAnswer, is_word_on_the_request};

/// Longest address of a redirect in a message, in characters.
const REDIRECT_SHOWN_MAX_CHARS: usize = 200;

/// Classifies the response to a creating POST of that kind.
pub fn classify_post(raw: &RawResponse, kind: Kind) -> PostAnswer {
    let body = parse(raw);
    if is_success(raw) {
        return match body.as_ref().and_then(wire::success).map(|data| wire::task_of(data, kind)) {
            Some(Ok(reading)) => PostAnswer::Task(reading),
            Some(Err(broken)) => again(raw, Fault::new("broken_answer", broken), true),
            None => again(raw, Fault::new("broken_answer", excerpt(raw)), true),
        };
    }
    let error = body.as_ref().and_then(wire::error);
    let is_envelope = error.is_some();
    let (fault, task) = match error {
        // There may be a task all the same, and no way to ask for it: the same key finds it again.
        Some(error) if error.task_is_unreadable => return again(raw, error.fault, true),
        Some(error) => (error.fault, error.task),
        None => (http_fault(raw), None),
    };
    if let Some(task) = task {
        return PostAnswer::TaskNamed(task, fault);
    }
    match (raw.status, fault.code.as_str()) {
        (401, _) | (_, "unauthorized") => return PostAnswer::Unauthorised(fault),
        // Whatever it is called: by this code it is known later for what it was.
        (402, _) if is_envelope => {
            return PostAnswer::OutOfCredits(fault.with_code("insufficient_credits"));
        }
        (402, _) | (_, "insufficient_credits") => return PostAnswer::OutOfCredits(fault),
        _ => {}
    }
    match raw.status {
        // Turned away before anything was done. The document names no type for it, so that the service may
        // call it what it likes.
        429 if is_envelope => again(raw, fault.with_code("rate_limited"), false),
        429 => again(raw, fault, false),
        // The content-safety check is away (503 of the Errors table); a proxy's 503 says less.
        503 if is_envelope => again(raw, fault, false),
        408 | 409 | 425 => again(raw, fault, true),
        // The code of a task that something passing stopped: the same key asks again.
        400..=499 if matches!(fault.code.as_str(), "busy" | "provider_unavailable" | "rate_limited") => {
            again(raw, fault, false)
        }
        // A request like it is under way, or failed somewhere behind the service: its key finds the task.
        400..=499 if matches!(fault.code.as_str(), "duplicate_request" | "internal_error") => {
            again(raw, fault, true)
        }
        // The type is what counts (Errors): what is wrong with the request stays wrong.
        500..=599 if is_word_on_the_request(&fault.code) => PostAnswer::Refused(fault),
        // The service's own words, or what is wrong with this very request wherever it arrives.
        400..=499 if is_envelope => PostAnswer::Refused(fault),
        // The paths are the document's, so that a server which knows no POST there stands in the service's place.
        405 => again(raw, fault, false),
        411 | 413 | 414 | 415 | 431 => PostAnswer::Refused(fault),
        // All else may come from anything on the way, after the service took the request or before: a
        // page of a firewall says nothing about an earlier call whose answer was lost.
        _ => again(raw, fault, true),
    }
}

/// Classifies the error of a creating POST without a complete response.
pub fn classify_post_error(error: &reqwest::Error) -> PostAnswer {
    if error.is_builder() {
        return PostAnswer::Refused(Fault::new("cannot_send", describe(error)));
    }
    // Only a connection that was never made proves that the service has not read the request.
    PostAnswer::Again { fault: transport_fault(error), wait: None, may_have_run: !error.is_connect() }
}

/// Classifies the response to a poll. Nothing but a task object or the service's own 404 says anything
/// about the task.
pub fn classify_read(raw: &RawResponse) -> ReadAnswer {
    let body = parse(raw);
    if is_success(raw) {
        return match body.as_ref().and_then(wire::success).map(wire::task) {
            Some(Ok(reading)) => ReadAnswer::Task(reading),
            Some(Err(missing)) => read_again(raw, Fault::new("broken_answer", missing)),
            None => read_again(raw, Fault::new("broken_answer", excerpt(raw))),
        };
    }
    match (raw.status, body.as_ref().and_then(wire::error)) {
        // Without the envelope it is somebody's on the way, and may be this answer's alone.
        (401, Some(error)) => ReadAnswer::Unauthorised(error.fault),
        (404, Some(error)) => ReadAnswer::Missing(error.fault),
        (_, Some(error)) => read_again(raw, error.fault),
        (_, None) => read_again(raw, http_fault(raw)),
    }
}

/// Classifies the error of a poll without a response.
pub fn classify_read_error(error: &reqwest::Error) -> ReadAnswer {
    ReadAnswer::Again { fault: transport_fault(error), wait: None }
}

/// Reads the response with the balance. A debt can buy as little as nothing.
pub fn parse_balance(raw: &RawResponse) -> Result<Credits, Fault> {
    let remaining = parse_data(raw)?.get("remainingCredits").and_then(wire::balance);
    remaining.ok_or_else(|| Fault::new("broken_answer", "the response has no remainingCredits"))
}

/// The `data` of an answer with a catalog.
#[derive(Debug)]
pub struct CatalogAnswer {
    /// As it came.
    pub text: Box<RawValue>,
    /// The same, read.
    pub data: Value,
}

/// A catalog was asked for. One that lists nothing, or in which nothing can be read, would refuse every row, and is no
/// answer: the document knows no kind without models.
pub fn parse_catalog(raw: &RawResponse, part: CatalogPart) -> Result<CatalogAnswer, Fault> {
    if raw.status != 200 {
        return Err(fault_of(raw));
    }
    let text = wire::success_text(&raw.body);
    let data = text.and_then(|text| serde_json::from_str(text.get()).ok());
    let Some((text, data)) = text.zip(data) else {
        return Err(Fault::new("broken_answer", excerpt(raw)));
    };
    if !part.lists_any(&data) {
        let why = match holds_an_empty_list(&data) {
            true => "the catalog in the answer is empty",
            false => "no entry of the catalog can be read",
        };
        return Err(Fault::new("broken_answer", why));
    }
    Ok(CatalogAnswer { text: text.to_owned(), data })
}

/// The record of any task of the account, as it came; nothing where the service does not know the task.
pub fn parse_task_record(raw: &RawResponse, task: &TaskId) -> Result<Option<Value>, Fault> {
    match parse_data(raw) {
        Err(fault) if raw.status == 404 && fault.code == "not_found" => Ok(None),
        Err(fault) => Err(fault),
        Ok(record) => {
            // The record of another task is no answer.
            let id = wire::text(&record, "id").filter(|id| id.eq_ignore_ascii_case(&task.0));
            id.map(|_| Some(record))
                .ok_or_else(|| Fault::new("broken_answer", "the response is not a record of that task"))
        }
    }
}

fn holds_an_empty_list(data: &Value) -> bool {
    [Some(data), data.get("models"), data.get("voices")]
        .into_iter()
        .flatten()
        .any(|list| list.as_array().is_some_and(Vec::is_empty))
}

/// A task or the balance was asked for: the `data` of the answer.
fn parse_data(raw: &RawResponse) -> Result<Value, Fault> {
    if raw.status != 200 {
        return Err(fault_of(raw));
    }
    let data = parse(raw).as_ref().and_then(wire::success).cloned();
    data.ok_or_else(|| Fault::new("broken_answer", excerpt(raw)))
}

/// What an answer that is no success says.
fn fault_of(raw: &RawResponse) -> Fault {
    parse(raw).as_ref().and_then(wire::error).map_or_else(|| http_fault(raw), |error| error.fault)
}

/// A transport error in one line. Of the URL it shows the host alone: the rest may be a secret of a result host.
pub fn describe(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "no answer in time".to_owned()
    } else if error.is_connect() {
        "no connection".to_owned()
    } else {
        "the connection broke".to_owned()
    };
    let host = error.url().and_then(Url::host_str).unwrap_or("the host");
    let mut source = std::error::Error::source(error);
    let mut innermost = None;
    while let Some(cause) = source {
        innermost = Some(cause.to_string());
        if let Some(fault) = tls::within(cause) {
            innermost = Some(tls::message(fault, host));
            break;
        }
        if cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            innermost = Some(format!("{host} does not answer with HTTP ({cause}){}", advice(error.url())));
            break;
        }
        source = cause.source();
    }
    if let Some(cause) = innermost {
        text = format!("{text}: {cause}");
    }
    text
}

/// Where an address is plain, its host may speak TLS alone.
fn advice(url: Option<&Url>) -> &'static str {
    if url.is_some_and(|url| url.scheme() == "http") { "; try https://" } else { "" }
}

fn transport_fault(error: &reqwest::Error) -> Fault {
    Fault::new(if error.is_timeout() { "timeout" } else { "connection" }, describe(error))
}

fn http_fault(raw: &RawResponse) -> Fault {
    let text = match &raw.redirect {
        // It is not followed: a POST would be sent twice, and the key to another host.
        Some(target) => {
            let target: String = target.chars().take(REDIRECT_SHOWN_MAX_CHARS).collect();
            format!(
                "the service redirects to {target}; set service.base_url to the address it should be reached at"
            )
        }
        None => excerpt(raw),
    };
    Fault::new(format!("http_{}", raw.status), text)
}

/// 200 by the document. A task that came with a 201 is paid for all the same.
fn is_success(raw: &RawResponse) -> bool {
    (200..300).contains(&raw.status)
}

fn parse(raw: &RawResponse) -> Option<Value> {
    serde_json::from_slice(&raw.body).ok()
}

/// The beginning of a body that is no envelope, fit for a message.
fn excerpt(raw: &RawResponse) -> String {
    let text = String::from_utf8_lossy(&raw.body);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(120).collect();
    match text.trim() {
        "" => "empty answer".to_owned(),
        text => format!("not an answer of the service: {text}"),
    }
}

fn again(raw: &RawResponse, fault: Fault, may_have_run: bool) -> PostAnswer {
    PostAnswer::Again { fault, wait: retry_after(raw), may_have_run }
}

fn read_again(raw: &RawResponse, fault: Fault) -> ReadAnswer {
    ReadAnswer::Again { fault, wait: retry_after(raw) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Millis;

    fn raw(status: u16, body: &str) -> RawResponse {
        RawResponse { status, retry_after: None, date: None, redirect: None, body: body.as_bytes().to_vec() }
    }

    fn envelope(kind: &str, task: Option<&str>) -> String {
        let mut error = serde_json::json!({"type": kind, "hint": "", "docs": "https://docs"});
        if let Some(task) = task {
            error["task_id"] = task.into();
        }
        serde_json::json!({"code": -1, "message": "m", "error": error}).to_string()
    }

    fn outcome(status: u16, body: &str) -> String {
        match classify_post(&raw(status, body), Kind::Video) {
            PostAnswer::Task(reading) => format!("task {} {:?}", reading.id, reading.status),
            PostAnswer::TaskNamed(task, fault) => format!("read {task} ({})", fault.code),
            PostAnswer::Refused(fault) => format!("refused ({})", fault.code),
            PostAnswer::Unauthorised(_) => "park: key".into(),
            PostAnswer::OutOfCredits(fault) => {
                assert!(fault.is_want_of_credits(), "{fault}");
                "park: credits".into()
            }
            PostAnswer::Again { fault, may_have_run, .. } => {
                format!("again ({}){}", fault.code, if may_have_run { ", may have run" } else { "" })
            }
        }
    }

    #[test]
    fn every_row_of_the_errors_table() {
        let task = r#"{"code":0,"message":"ok","data":{"id":"t1","status":"pending","costCredits":10}}"#;
        let invalid = envelope("invalid_request", None);
        let internal = envelope("internal_error", None);
        for (status, body, expected) in [
            (200, task, "task t1 Pending"),
            (201, task, "task t1 Pending"),
            (204, "", "again (broken_answer), may have run"),
            (200, &task.replace("\"code\":0", "\"code\":-1"), "again (broken_answer), may have run"),
            (201, &task.replace("\"code\":0,", ""), "again (broken_answer), may have run"),
            (200, &invalid, "again (broken_answer), may have run"),
            (200, &envelope("insufficient_credits", Some("t9")), "again (broken_answer), may have run"),
            (200, "<html>", "again (broken_answer), may have run"),
            (
                200,
                r#"{"code":0,"data":{"id":"t1","status":"pending","costCredits":-5}}"#,
                "again (broken_answer), may have run",
            ),
            (400, &invalid, "refused (invalid_request)"),
            (400, r#"{"code":-1,"error":{"type":"e","task_id":7}}"#, "again (e), may have run"),
            (400, r#"{"code":-1,"error":{"type":"e","task_id":null}}"#, "refused (e)"),
            (400, &envelope("content_rejected", None), "refused (content_rejected)"),
            (400, &envelope("invalid_request", Some("t9")), "read t9 (invalid_request)"),
            (400, &envelope("duplicate_request", None), "again (duplicate_request), may have run"),
            (400, &envelope("busy", None), "again (busy)"),
            (400, &envelope("rate_limited", None), "again (rate_limited)"),
            (401, &envelope("unauthorized", None), "park: key"),
            (402, &envelope("insufficient_credits", None), "park: credits"),
            (402, "", "park: credits"),
            (402, &envelope("payment_required", None), "park: credits"),
            (403, &envelope("unauthorized", None), "park: key"),
            (400, &envelope("insufficient_credits", None), "park: credits"),
            (404, &envelope("not_found", None), "refused (not_found)"),
            (404, "<html>", "again (http_404), may have run"),
            (405, "", "again (http_405)"),
            (403, r#"{"code":403,"message":"Forbidden"}"#, "again (http_403), may have run"),
            (400, r#"{"code":0,"error":{"type":"invalid_request"}}"#, "again (http_400), may have run"),
            (400, r#"{"code":-1,"error":{"type":""}}"#, "refused (code_-1)"),
            (400, r#"{"error":{"type":"invalid_request"}}"#, "again (http_400), may have run"),
            (402, r#"{"code":402}"#, "park: credits"),
            (413, "", "refused (http_413)"),
            (400, "<html>", "again (http_400), may have run"),
            (403, "<html>Forbidden</html>", "again (http_403), may have run"),
            (429, "", "again (http_429)"),
            (429, &envelope("slow_down", None), "again (rate_limited)"),
            (400, &internal, "again (internal_error), may have run"),
            (500, &internal, "again (internal_error), may have run"),
            (500, &invalid, "refused (invalid_request)"),
            (502, &envelope("content_rejected", None), "refused (content_rejected)"),
            (500, &envelope("internal_error", Some("t9")), "read t9 (internal_error)"),
            (502, "<html>Bad gateway</html>", "again (http_502), may have run"),
            (503, &internal, "again (internal_error)"),
            (503, "", "again (http_503), may have run"),
            (504, "", "again (http_504), may have run"),
            (307, "", "again (http_307), may have run"),
            (400, r#"{"code":-1,"message":"shorts studio says no"}"#, "refused (code_-1)"),
        ] {
            assert_eq!(outcome(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn what_no_task_can_cost_is_no_charge() {
        for (cost, is_one) in [
            ("0", true),
            ("10", true),
            ("10.0", true),
            ("1e3", true),
            ("1000000000000", true),
            ("1000000000001", false),
            ("18446744073709551615", false),
            ("1e30", false),
            ("1e400", false),
            ("-1", false),
            ("-0.5", false),
            ("0.5", false),
            ("\"10\"", false),
            ("[10]", false),
            ("null", false),
            ("true", false),
            ("NaN", false),
        ] {
            let body =
                format!(r#"{{"code":0,"data":{{"id":"t1","status":"pending","costCredits":{cost}}}}}"#);
            let expected = if is_one { "task t1 Pending" } else { "again (broken_answer), may have run" };
            assert_eq!(outcome(200, &body), expected, "{cost}");
        }
    }

    #[test]
    fn nothing_endless_is_taken_from_an_answer() {
        let long = "x".repeat(3_000_000);
        let task = |id: &str, model: &str| {
            let options = serde_json::json!({"a": model});
            let info = serde_json::json!({"errorCode": model, "errorMessage": model});
            let task = serde_json::json!({
                "id": id, "status": "failed", "costCredits": 1, "model": model, "options": options, "taskInfo": info,
            });
            serde_json::json!({"code": 0, "data": task}).to_string()
        };
        assert_eq!(outcome(200, &task(&long, "m")), "again (broken_answer), may have run");
        let PostAnswer::Task(reading) = classify_post(&raw(200, &task("t1", &long)), Kind::Video) else {
            panic!("no task")
        };
        let fault = reading.fault.unwrap();
        assert_eq!((reading.model, reading.options), (None, None));
        assert!(fault.code.len() <= 100 && fault.message.len() <= 2_000);
        let PostAnswer::Refused(fault) = classify_post(&raw(400, &envelope(&long, None)), Kind::Video) else {
            panic!("not refused")
        };
        assert!(fault.code.len() <= 100);
        let named = outcome(400, &envelope("e", Some(&long)));
        assert_eq!(named, "again (e), may have run");
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(outcome(200, &deep), "again (broken_answer), may have run");
    }

    #[test]
    fn only_a_task_object_or_the_services_own_404_speaks_of_a_task() {
        let missing = classify_read(&raw(404, &envelope("not_found", None)));
        assert!(matches!(missing, ReadAnswer::Missing(_)));
        let gateway = r#"{"code":404,"message":"no route matched"}"#;
        let code = r#"{"code":-1,"data":{"id":"t1","status":"failed","costCredits":0}}"#;
        for (status, body) in [
            (404, "<html>"),
            (404, gateway),
            (500, ""),
            (200, "{}"),
            (402, ""),
            (200, "{\"data\":{}}"),
            (200, code),
        ] {
            assert!(matches!(classify_read(&raw(status, body)), ReadAnswer::Again { .. }), "{status} {body}");
        }
        for page in ["", "<html>", gateway] {
            assert!(
                matches!(classify_read(&raw(401, page)), ReadAnswer::Again { .. }),
                "somebody's on the way"
            );
        }
        assert!(matches!(
            classify_read(&raw(401, &envelope("unauthorized", None))),
            ReadAnswer::Unauthorised(_)
        ));
    }

    #[test]
    fn a_balance_is_a_whole_number_and_a_debt_is_none() {
        for (said, expected) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("0", Some(0)),
            ("-3", Some(0)),
            ("-3.0", Some(0)),
            ("-9223372036854775808", Some(0)),
            ("-1e300", Some(0)),
            ("0.5", None),
            ("-0.5", None),
            ("1e300", None),
            ("\"-3\"", None),
            ("null", None),
        ] {
            let body = |code: i32| format!(r#"{{"code":{code},"data":{{"remainingCredits":{said}}}}}"#);
            assert_eq!(parse_balance(&raw(200, &body(0))).ok(), expected.map(Credits), "{said}");
            assert!(parse_balance(&raw(200, &body(-1))).is_err(), "{said}");
        }
    }

    #[test]
    fn a_catalog_that_lists_nothing_or_in_which_nothing_can_be_read_is_no_answer() {
        let models = r#"{"models":[{"id":"m"}]}"#;
        for (code, data, is_one) in [
            ("0", models, true),
            ("0", r#"[{"id":"m"},{"name":"no id"}]"#, true),
            ("0", r#"{"default_model":"m","voices":[{"id":"v"}]}"#, true),
            ("-1", models, false),
            ("\"0\"", models, false),
            ("0", r#"{"models":[]}"#, false),
            ("0", r#"{"default_model":"m","voices":[]}"#, false),
            ("0", "[]", false),
            ("0", r#"{"id":"t","taskUrls":[]}"#, false),
            ("0", r#"{"models":[{"name":"no id"}]}"#, false),
            ("0", "{}", false),
            ("0", "null", false),
        ] {
            let answer = raw(200, &format!(r#"{{"code":{code},"message":"m","data":{data}}}"#));
            for part in [CatalogPart::Video, CatalogPart::Image, CatalogPart::Music, CatalogPart::Voices] {
                assert_eq!(parse_catalog(&answer, part).is_ok(), is_one, "{part:?} {code} {data}");
            }
        }
    }

    #[test]
    fn a_failed_task_tells_why() {
        let info =
            serde_json::json!({"errorCode": "invalid_input", "error": "e", "errorMessage": "too dark"});
        // As JSON text, as the document has it, or as the object itself.
        for info in [info.to_string().into(), info] {
            let task =
                serde_json::json!({"id": "t1", "status": "failed", "costCredits": 10, "taskInfo": info});
            let body = serde_json::json!({"code": 0, "message": "ok", "data": task}).to_string();
            let ReadAnswer::Task(reading) = classify_read(&raw(200, &body)) else { panic!("no task") };
            assert_eq!(reading.fault, Some(Fault::new("invalid_input", "too dark")));
        }
    }

    #[test]
    fn a_redirect_is_named_with_what_to_do() {
        let moved =
            RawResponse { redirect: Some("https://www.x.example/api".to_owned()), ..raw(301, "<html>") };
        let expected = Fault::new(
            "http_301",
            "the service redirects to https://www.x.example/api; set service.base_url to the address it should be reached at",
        );
        assert_eq!(parse_balance(&moved), Err(expected.clone()));
        assert_eq!(classify_read(&moved), ReadAnswer::Again { fault: expected.clone(), wait: None });
        assert_eq!(
            classify_post(&moved, Kind::Video),
            PostAnswer::Again { fault: expected, wait: None, may_have_run: true }
        );
    }

    #[test]
    fn both_tables_say_how_long_to_wait() {
        let asked = RawResponse { retry_after: Some("7".to_owned()), ..raw(429, "") };
        assert!(matches!(
            classify_post(&asked, Kind::Video),
            PostAnswer::Again { wait: Some(Millis(7_000)), .. }
        ));
        assert!(matches!(classify_read(&asked), ReadAnswer::Again { wait: Some(Millis(7_000)), .. }));
    }
}
