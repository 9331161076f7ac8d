//! Envelopes and objects as they stand on the wire. Unknown fields are ignored, and a field that is
//! missing or of another type spoils its object alone.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::domain::credits::Credits;
use crate::domain::ids::TaskId;
use crate::domain::request::Kind;
use crate::domain::task::{Fault, TaskReading, TaskRecord, TaskStatus};

/// Longest id of a task, in bytes. A UUID has 36.
const ID_MAX_BYTES: usize = 256;
/// Longest code of an error, in characters.
const CODE_MAX_CHARS: usize = 100;
/// Longest message of an error, in characters.
const MESSAGE_MAX_CHARS: usize = 2_000;
/// Longest of the texts of a task's record that decide nothing, in bytes. A longer one is left out.
const RECORD_MAX_BYTES: usize = 512;
/// Longest name of a model, in bytes.
const MODEL_MAX_BYTES: usize = 256;
/// Longest `options` text that is kept, in bytes.
const OPTIONS_MAX_BYTES: usize = 64 * 1024;

/// A whole number of credits. A negative one, or a fraction, is none.
pub(super) fn credits(value: &Value) -> Option<Credits> {
    let whole = value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..9e15).contains(number))?;
        // Whole, not negative and below 2^53: exact.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Some(number as u64)
    });
    whole.map(Credits)
}

/// What is left on an account. A negative whole number is a debt, which buys nothing.
pub(super) fn balance(value: &Value) -> Option<Credits> {
    let is_debt = value.as_f64().is_some_and(|number| number.fract() == 0.0 && number < 0.0);
    if is_debt { Some(Credits::ZERO) } else { credits(value) }
}

/// The `data` of a success envelope. One with another `code` than 0, or with none, is no success.
pub(super) fn success(body: &Value) -> Option<&Value> {
    let is_success = body.get("code").is_some_and(is_success_code);
    body.get("data").filter(|data| is_success && !data.is_null())
}

/// The same as it came, of an answer that is large: nothing else of it is read.
pub(super) fn success_text(body: &[u8]) -> Option<&RawValue> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
    let code = serde_json::from_str(fields.get("code")?.get()).ok()?;
    fields.get("data").copied().filter(|data| is_success_code(&code) && data.get() != "null")
}

fn is_success_code(code: &Value) -> bool {
    code.as_i64() == Some(0)
}

/// What a task is charged. More than [`Credits::TASK_MAX`] is none.
pub(super) fn charge(value: &Value) -> Option<Credits> {
    credits(value).filter(|charge| *charge <= Credits::TASK_MAX)
}

/// The `error` of an error envelope, with its message.
pub(super) struct WireError {
    pub(super) fault: Fault,
    pub(super) task: Option<TaskId>,
    /// A task is named, by something that cannot be the id of one.
    pub(super) task_is_unreadable: bool,
}

/// Reads an error envelope (`code`, `message`, `error`), by its `error.type` or its `code`: Shorts
/// Studio's errors have no `error` object. The service's `code` is negative (Response envelope): what else says
/// `{"code": 403}` is something on the way, and does not speak for the service.
pub(super) fn error(body: &Value) -> Option<WireError> {
    let code = body.get("code").and_then(Value::as_i64).filter(|code| *code < 0)?;
    let message = text(body, "message").unwrap_or_default();
    let error = body.get("error");
    let of_error = |name: &str| error.and_then(|error| text(error, name));
    let kind = of_error("type").filter(|kind| !kind.is_empty()).unwrap_or_else(|| format!("code_{code}"));
    let task = of_error("task_id").filter(|id| is_id(id)).map(|id| TaskId(id.into()));
    let is_named = error.and_then(|error| error.get("task_id")).is_some_and(|id| !id.is_null() && id != "");
    let task_is_unreadable = is_named && task.is_none();
    let message = match of_error("hint") {
        Some(hint) if !hint.is_empty() => format!("{message} ({hint})"),
        _ => message,
    };
    let docs = of_error("docs").filter(|docs| (1..=RECORD_MAX_BYTES).contains(&docs.len()));
    let mut fault = fault(&kind, &message);
    fault.docs = docs;
    Some(WireError { fault, task, task_is_unreadable })
}

/// Reads a task object. What is missing is named.
pub(super) fn task(data: &Value) -> Result<TaskReading, &'static str> {
    let id = text(data, "id").filter(|id| is_id(id)).ok_or("the task has no valid id")?;
    let status = text(data, "status").ok_or("the task has no status")?;
    let charged = data.get("costCredits").and_then(charge).ok_or("the task has no valid costCredits")?;
    let waived = match data.get("waivedCredits") {
        None | Some(Value::Null) => Credits::ZERO,
        Some(waived) => charge(waived).ok_or("the task has no valid waivedCredits")?,
    };
    let status = TaskStatus::from_wire(&status);
    let urls = match urls(data) {
        Some(urls) => urls,
        // Whatever stands there is a result that was paid for.
        None if status == TaskStatus::Success => return Err("the task's taskUrls are not all links"),
        None => Vec::new(),
    };
    Ok(TaskReading {
        id: TaskId(id.into()),
        fault: task_fault(data, &status),
        status,
        model: model(data),
        options: options(data),
        charged: Some(charged),
        waived: Some(waived),
        urls,
        record: record(data),
    })
}

/// Reads the task object that answers a POST of a kind. One of another medium is the answer to another request (Task
/// object: `mediaType` is `video`, `image`, `music` or `audio`); a medium that is not documented says nothing.
pub(super) fn task_of(data: &Value, kind: Kind) -> Result<TaskReading, String> {
    let wanted = match kind {
        Kind::Video => "video",
        Kind::Image => "image",
        Kind::Music => "music",
        Kind::Speech | Kind::SoundEffect => "audio",
        Kind::ShortsStudio => return task(data).map_err(str::to_owned),
    };
    let medium = data.get("mediaType").and_then(Value::as_str);
    match medium.filter(|medium| ["video", "image", "music", "audio"].contains(medium)) {
        Some(medium) if medium != wanted => {
            let id = text(data, "id").filter(|id| is_id(id)).unwrap_or_default();
            Err(format!("the service answered with task {id}, whose mediaType is {medium} and not {wanted}"))
        }
        _ => task(data).map_err(str::to_owned),
    }
}

/// What else a task's record says; nothing where it says nothing.
pub(super) fn record(data: &Value) -> Option<Box<TaskRecord>> {
    let said = |name: &str| text(data, name).filter(|text| (1..=RECORD_MAX_BYTES).contains(&text.len()));
    let record = TaskRecord {
        credit_id: said("creditId"),
        fair_use_key: said("fairUseKey"),
        created_at: said("createdAt"),
        updated_at: said("updatedAt"),
        upstream_id: said("taskId"),
        visibility: said("visibility"),
    };
    (record != TaskRecord::default()).then(|| Box::new(record))
}

/// `taskUrls`; none where they are anything but a list of texts.
fn urls(data: &Value) -> Option<Vec<String>> {
    match data.get("taskUrls") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

/// Whether this may be a task's id: not nothing, nothing endless, and no step within a path, which no escape
/// hides from the rules of URLs.
pub(super) fn is_id(text: &str) -> bool {
    (1..=ID_MAX_BYTES).contains(&text.len()) && text != "." && text != ".."
}

pub(super) fn model(data: &Value) -> Option<String> {
    text(data, "model").filter(|model| model.len() <= MODEL_MAX_BYTES)
}

/// What was said, as much of it as belongs into a history.
fn fault(code: &str, message: &str) -> Fault {
    let cut = |text: &str, most: usize| -> String { text.chars().take(most).collect() };
    Fault::new(cut(code, CODE_MAX_CHARS), cut(message, MESSAGE_MAX_CHARS))
}

/// `options`: JSON text, as the document has it, or the object itself.
fn options(data: &Value) -> Option<Map<String, Value>> {
    match data.get("options")? {
        Value::String(text) if text.len() <= OPTIONS_MAX_BYTES => serde_json::from_str(text).ok(),
        Value::Object(options) => {
            let length = serde_json::to_string(options).ok()?.len();
            (length <= OPTIONS_MAX_BYTES).then(|| options.clone())
        }
        _ => None,
    }
}

/// Why a task failed: `taskInfo` or `taskResult`, JSON text (or the object itself) with `errorCode`,
/// `error` and `errorMessage`. Of a task that runs or has succeeded they are diagnostics that nothing depends on (Task object).
pub(super) fn task_fault(data: &Value, status: &TaskStatus) -> Option<Fault> {
    if !matches!(status, TaskStatus::Failed | TaskStatus::Canceled) {
        return None;
    }
    let from = |name: &str| {
        let object = match data.get(name)? {
            Value::String(text) => serde_json::from_str(text).ok()?,
            object => object.clone(),
        };
        let code = text(&object, "errorCode")?;
        let said = text(&object, "errorMessage").filter(|said| !said.is_empty());
        Some(fault(&code, &said.or_else(|| text(&object, "error")).unwrap_or_default()))
    };
    from("taskInfo").or_else(|| from("taskResult"))
}

pub(super) fn text(object: &Value, name: &str) -> Option<String> {
    object.get(name).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A task, with one field as given.
    fn with(status: &str, name: &str, value: &Value) -> Result<TaskReading, &'static str> {
        let mut data = json!({"id": "t1", "status": status, "costCredits": 0});
        data[name] = value.clone();
        task(&data)
    }

    #[test]
    fn a_task_of_another_medium_answers_another_request() {
        let answer = |medium: Value, kind| {
            let data = json!({"id": "t1", "status": "failed", "costCredits": 0, "mediaType": medium});
            task_of(&data, kind).map(|task| task.id.to_string())
        };
        for (medium, kind) in [
            ("video", Kind::Video),
            ("image", Kind::Image),
            ("music", Kind::Music),
            ("audio", Kind::Speech),
            ("audio", Kind::SoundEffect),
            ("video", Kind::ShortsStudio),
            ("hologram", Kind::Image),
        ] {
            assert_eq!(answer(json!(medium), kind), Ok("t1".to_owned()), "{medium} {kind:?}");
        }
        assert_eq!(answer(Value::Null, Kind::Image), Ok("t1".to_owned()), "it says nothing");
        let refused = |medium, kind| answer(json!(medium), kind).unwrap_err();
        let other = "the service answered with task t1, whose mediaType is video and not image";
        assert_eq!(refused("video", Kind::Image), other);
        assert!(refused("music", Kind::SoundEffect).ends_with("music and not audio"));
    }

    #[test]
    fn what_was_waived_is_read_as_strictly_as_what_was_charged() {
        for good in [json!(0), json!(10), json!(10.0), json!(1_000_000_000_000_u64)] {
            let (charged, waived) =
                (with("success", "costCredits", &good), with("success", "waivedCredits", &good));
            assert_eq!(charged.unwrap().charged, waived.unwrap().waived, "{good}");
        }
        for bad in [json!(-5), json!(1e30), json!(0.5), json!("10"), json!([10]), json!(true)] {
            for name in ["costCredits", "waivedCredits"] {
                let said = with("success", name, &bad).unwrap_err();
                assert_eq!(said, format!("the task has no valid {name}"), "{bad}");
            }
        }
        for none in [Value::Null, json!(0)] {
            assert_eq!(with("success", "waivedCredits", &none).unwrap().waived, Some(Credits::ZERO));
        }
    }

    #[test]
    fn a_result_that_is_no_link_spoils_a_success() {
        let url = "https://h/1.png";
        assert_eq!(with("success", "taskUrls", &json!([url, url])).unwrap().urls, [url, url]);
        assert_eq!(with("success", "taskUrls", &Value::Null).unwrap().urls, [""; 0]);
        for bad in [json!([url, null, {}]), json!([7]), json!([[url]]), json!(url), json!({"0": url})] {
            let said = with("success", "taskUrls", &bad).unwrap_err();
            assert_eq!(said, "the task's taskUrls are not all links", "{bad}");
            // Whose results nobody fetches may say what it likes.
            assert_eq!(with("failed", "taskUrls", &bad).unwrap().urls, [""; 0], "{bad}");
        }
    }
}
