//! Envelopes and objects as they stand on the wire. Unknown fields are ignored, and a field that is
//! missing or of another type spoils its object alone.

use serde_json::{Map, Value};

use crate::domain::credits::Credits;
use crate::domain::ids::TaskId;
use crate::domain::task::{Fault, TaskReading, TaskStatus};

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

/// The `error` of an error envelope, with its message.
pub(super) struct WireError {
    pub(super) fault: Fault,
    pub(super) task: Option<TaskId>,
}

/// Reads an error envelope (`code`, `message`, `error`), by its `error.type` or its `code`: Shorts
/// Studio's errors have no `error` object.
pub(super) fn error(body: &Value) -> Option<WireError> {
    let code = body.get("code").and_then(Value::as_i64);
    let message = text(body, "message").unwrap_or_default();
    let error = body.get("error");
    let of_error = |name: &str| error.and_then(|error| text(error, name));
    let kind = of_error("type").or_else(|| code.map(|code| format!("code_{code}")))?;
    let task = of_error("task_id").filter(|id| !id.is_empty()).map(TaskId);
    let message = match of_error("hint") {
        Some(hint) if !hint.is_empty() => format!("{message} ({hint})"),
        _ => message,
    };
    Some(WireError { fault: Fault::new(kind, message), task })
}

/// Reads a task object. What is missing is named.
pub(super) fn task(data: &Value) -> Result<TaskReading, &'static str> {
    let id = text(data, "id").filter(|id| !id.is_empty()).ok_or("the task has no id")?;
    let status = text(data, "status").ok_or("the task has no status")?;
    let charged = data.get("costCredits").and_then(credits).ok_or("the task has no valid costCredits")?;
    let waived = data.get("waivedCredits").and_then(credits).unwrap_or_default();
    let urls = data.get("taskUrls").and_then(Value::as_array).into_iter().flatten();
    Ok(TaskReading {
        id: TaskId(id),
        status: TaskStatus::from_wire(&status),
        model: text(data, "model"),
        options: options(data),
        charged,
        waived,
        urls: urls.filter_map(Value::as_str).map(str::to_owned).collect(),
        fault: task_fault(data),
    })
}

/// `options`: JSON text, as the document has it, or the object itself.
fn options(data: &Value) -> Option<Map<String, Value>> {
    match data.get("options")? {
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Object(options) => Some(options.clone()),
        _ => None,
    }
}

/// Why a task failed: `taskInfo` or `taskResult`, JSON text (or the object itself) with `errorCode`,
/// `error` and `errorMessage`.
pub(super) fn task_fault(data: &Value) -> Option<Fault> {
    let from = |name: &str| {
        let object = match data.get(name)? {
            Value::String(text) => serde_json::from_str(text).ok()?,
            object => object.clone(),
        };
        let code = text(&object, "errorCode")?;
        let said = text(&object, "errorMessage").filter(|said| !said.is_empty());
        Some(Fault::new(code, said.or_else(|| text(&object, "error")).unwrap_or_default()))
    };
    from("taskInfo").or_else(|| from("taskResult"))
}

pub(super) fn text(object: &Value, name: &str) -> Option<String> {
    object.get(name).and_then(Value::as_str).map(str::to_owned)
}
