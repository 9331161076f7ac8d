//! Every error answer of the service, in one place (document: "Errors").

use serde_json::{Value, json};
use uuid::Uuid;

const DOCS: &str = "https://docs.invalid/api/v1/errors";

/// An error as the service answers it: an HTTP status, a code, and the `error` object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) code: i32,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) hint: &'static str,
    /// Present only when a task had already been created.
    pub(crate) task_id: Option<Uuid>,
}

impl ApiError {
    fn new(
        status: u16,
        code: i32,
        kind: &'static str,
        message: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self { status, code, kind, message: message.into(), hint, task_id: None }
    }

    /// 400 `invalid_request`.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, -1, "invalid_request", message, "fix the request and send it again")
    }

    /// 400 `content_rejected`.
    pub(crate) fn content_rejected() -> Self {
        Self::new(
            400,
            -1,
            "content_rejected",
            "input content was rejected by safety filters",
            "change the content; do not retry it unchanged",
        )
    }

    /// 401: missing or invalid key.
    pub(crate) fn unauthorized() -> Self {
        Self::new(
            401,
            -1001,
            "unauthorized",
            "missing or invalid API key",
            "send the header Authorization: Bearer <API_KEY>",
        )
    }

    /// 402: the balance is lower than the cost; no task was created.
    pub(crate) fn insufficient_credits() -> Self {
        Self::new(
            402,
            -1002,
            "insufficient_credits",
            "insufficient credits",
            "no task was created; add credits before trying again",
        )
    }

    /// 404: no such task or endpoint.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(404, -1, "not_found", format!("{what} not found"), "check the address and the task id")
    }

    /// 429, which the document never shows but proxies in front of services do.
    pub(crate) fn too_many_requests() -> Self {
        Self::new(429, -1, "rate_limited", "too many requests", "wait before trying again")
    }

    /// 500 with the task that failed and was refunded.
    pub(crate) fn failed_after_creation(task: Uuid) -> Self {
        Self::new(
            500,
            -1,
            "internal_error",
            "the generation service is temporarily unavailable",
            "the task failed and was refunded; retry once with a new Idempotency-Key",
        )
        .with_task(task)
    }

    /// 500 with a task whose outcome the service does not know.
    pub(crate) fn outcome_unknown(task: Uuid) -> Self {
        Self::new(
            500,
            -1,
            "internal_error",
            "the generation service is temporarily unavailable",
            "the outcome is unknown; poll the task and do not retry",
        )
        .with_task(task)
    }

    /// 400 with the task that the provider refused at submission.
    pub(crate) fn unsupported_settings(task: Uuid) -> Self {
        Self::new(
            400,
            -1,
            "invalid_request",
            "the generation request uses unsupported settings",
            "read taskInfo.errorMessage of the task; it failed and was refunded; use a new Idempotency-Key",
        )
        .with_task(task)
    }

    /// 500 without a task.
    pub(crate) fn internal() -> Self {
        Self::new(
            500,
            -1,
            "internal_error",
            "the generation service is temporarily unavailable",
            "no task was created; retry after a short delay",
        )
    }

    /// 503: the content-safety check is away.
    pub(crate) fn safety_check_unavailable() -> Self {
        Self::new(
            503,
            -1,
            "internal_error",
            "the content safety check is temporarily unavailable",
            "no task was created; retry after a short delay",
        )
    }

    /// The same error, carrying a task id.
    pub(crate) fn with_task(mut self, task: Uuid) -> Self {
        self.task_id = Some(task);
        self
    }

    /// The error envelope: no `data`.
    pub(crate) fn body(&self) -> Value {
        let mut error = json!({"type": self.kind, "hint": self.hint, "docs": DOCS});
        if let Some(task) = self.task_id {
            error["task_id"] = json!(task);
        }
        json!({"code": self.code, "message": self.message, "error": error})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_body_has_no_data_and_names_a_task_only_when_there_is_one() {
        let plain = ApiError::unauthorized().body();
        assert_eq!(plain["code"], -1001);
        assert_eq!(plain["error"]["type"], "unauthorized");
        assert!(plain.get("data").is_none() && plain["error"].get("task_id").is_none());
        let id = Uuid::from_u128(7);
        assert_eq!(ApiError::outcome_unknown(id).body()["error"]["task_id"], json!(id));
    }
}
