//! A task and its life (document: "Task object", "States and transitions").
//!
//! What will become of a task is settled when it is created: how long it waits, how long it renders and how it
//! ends. Its status at any moment is therefore a pure function of the moment, and needs no timer and no memory
//! of transitions; a restart changes nothing.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::account::Allowance;
use super::clock::iso;

/// The kinds of media, one per creating endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Video,
    Image,
    Music,
    Speech,
    SoundEffect,
    ShortsStudio,
}

impl Kind {
    /// Whether the service renders inside the creating call.
    pub(crate) fn is_synchronous(self) -> bool {
        matches!(self, Self::Music | Self::Speech | Self::SoundEffect)
    }

    /// The task's `mediaType`.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Video | Self::ShortsStudio => "video",
            Self::Image => "image",
            Self::Music => "music",
            Self::Speech | Self::SoundEffect => "audio",
        }
    }

    /// The ending of a result's file name.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Video | Self::ShortsStudio => "mp4",
            Self::Image => "png",
            Self::Music | Self::Speech | Self::SoundEffect => "wav",
        }
    }

    /// The word used in the audit and in fault plans.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Video => "video",
            Self::Image => "image",
            Self::Music => "music",
            Self::Speech => "speech",
            Self::SoundEffect => "sound-effect",
            Self::ShortsStudio => "shorts-studio",
        }
    }
}

/// A task's `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Pending,
    Processing,
    Success,
    Failed,
    Canceled,
}

/// The `errorCode` values of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorCode {
    InsufficientCredits,
    AuthRequired,
    RateLimited,
    RequestCancelled,
    ProviderUnavailable,
    InvalidInput,
    ContentRejected,
    Busy,
    DuplicateRequest,
    Generic,
}

impl ErrorCode {
    fn sentence(self) -> &'static str {
        match self {
            Self::InsufficientCredits => "the provider account is out of credits",
            Self::AuthRequired => "the provider refused the service's credentials",
            Self::RateLimited => "the provider is limiting requests",
            Self::RequestCancelled => "the request was cancelled",
            Self::ProviderUnavailable => "the provider is unavailable",
            Self::InvalidInput => "the provider did not accept the input",
            Self::ContentRejected => "the content was rejected by safety filters",
            Self::Busy => "the provider is busy",
            Self::DuplicateRequest => "the provider has seen this request before",
            Self::Generic => "the generation failed",
        }
    }
}

/// How a task will end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    Success,
    /// `reason` is the provider's own text; only `invalid_input` shows it.
    Failed {
        code: ErrorCode,
        reason: Box<str>,
    },
    Canceled,
    /// The service has no task timeout: such a task stays `processing`.
    Never,
}

/// When a task moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Timing {
    pub(crate) created_ms: i64,
    pub(crate) pending_ms: i64,
    pub(crate) render_ms: i64,
}

impl Timing {
    /// The moment of the final state, if it has one.
    pub(crate) fn ends_ms(self) -> i64 {
        self.created_ms.saturating_add(self.pending_ms).saturating_add(self.render_ms)
    }
}

/// What the result looks and sounds like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Width to height of pictures.
    pub(crate) ratio: (u32, u32),
    /// The exact width and height in pixels, when they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pixels: Option<(u32, u32)>,
    /// Length of video and sound.
    pub(crate) length_ms: u32,
}

/// How the results are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// How many URLs `taskUrls` holds at success.
    pub(crate) count: u16,
    /// Characters of the signature that each URL carries, as those of an object store do.
    #[serde(default)]
    pub(crate) signature: u16,
    /// How long each URL works after the task was read; for ever when absent.
    pub(crate) expire_ms: Option<i64>,
}

/// One task, as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) id: Uuid,
    pub(crate) kind: Kind,
    /// As shown: the model that ran.
    pub(crate) model: Box<str>,
    pub(crate) scene: Box<str>,
    pub(crate) prompt: Box<str>,
    /// JSON text.
    pub(crate) options: Box<str>,
    pub(crate) timing: Timing,
    pub(crate) ending: Ending,
    pub(crate) shape: Shape,
    pub(crate) results: Results,
    /// Deducted at creation; 0 when an allowance covered it.
    pub(crate) charged_credits: u64,
    /// The normal price, when an allowance covered it.
    pub(crate) waived_credits: u64,
    pub(crate) allowance: Option<Allowance>,
    pub(crate) key: Option<Box<str>>,
    /// A digest of endpoint and body, to notice a foreign body under an old key.
    pub(crate) body_digest: u64,
    /// What the first answer was, when it was an error that carries this task.
    pub(crate) first_answer: FirstAnswer,
    /// Rendered inside the creating call, though its kind is not always.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) in_call: bool,
    /// Shorts Studio: named by its `requestId` alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) request_id_alone: bool,
}

/// What the creating call answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FirstAnswer {
    /// 200 with the task.
    Task,
    /// 400 with `error.task_id`: refused at submission.
    Rejected,
    /// 500 with `error.task_id`, failed and refunded.
    Failed,
    /// 500 with `error.task_id`, outcome unknown.
    Unknown,
    /// 400 `content_rejected` with `error.task_id`.
    ContentRejected,
}

impl Task {
    /// The status at a moment.
    pub(crate) fn status(&self, now_ms: i64) -> Status {
        if self.ending != Ending::Never && now_ms >= self.timing.ends_ms() {
            return match self.ending {
                Ending::Success | Ending::Never => Status::Success,
                Ending::Failed { .. } => Status::Failed,
                Ending::Canceled => Status::Canceled,
            };
        }
        if now_ms >= self.timing.created_ms.saturating_add(self.timing.pending_ms) {
            Status::Processing
        } else {
            Status::Pending
        }
    }

    /// Whether the creating call waits for the end.
    pub(crate) fn renders_in_call(&self) -> bool {
        self.in_call || self.kind.is_synchronous()
    }

    /// What Shorts Studio calls the task beside its id.
    pub(crate) fn request_id(&self) -> Uuid {
        Uuid::new_v5(&self.id, b"request")
    }

    fn updated_ms(&self, status: Status) -> i64 {
        match status {
            Status::Pending => self.timing.created_ms,
            Status::Processing => self.timing.created_ms.saturating_add(self.timing.pending_ms),
            Status::Success | Status::Failed | Status::Canceled => self.timing.ends_ms(),
        }
    }

    /// The result URLs at a moment, on the given media origin.
    pub(crate) fn urls(&self, now_ms: i64, media_url: &str) -> Vec<String> {
        if self.status(now_ms) != Status::Success {
            return Vec::new();
        }
        let expires = self.results.expire_ms.map(|ttl| format!("expires={}", now_ms.saturating_add(ttl)));
        let signature = match self.results.signature {
            0 => None,
            length => Some(format!("signature={}", "f".repeat(usize::from(length)))),
        };
        let parts: Vec<String> = [expires, signature].into_iter().flatten().collect();
        let query = if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) };
        (0..self.results.count)
            .map(|n| format!("{media_url}/media/{}/{n}.{}{query}", self.id, self.kind.extension()))
            .collect()
    }

    /// The task object of the wire.
    pub(crate) fn object(&self, now_ms: i64, user: Uuid, media_url: &str) -> Value {
        let status = self.status(now_ms);
        let urls = self.urls(now_ms, media_url);
        let (info, result) = self.details(status, &urls);
        let upstream = if self.kind.is_synchronous() {
            format!("sync:{}", self.id)
        } else {
            format!("up-{}", self.id.simple())
        };
        json!({
            "id": self.id,
            "userId": user,
            "mediaType": self.kind.media_type(),
            "model": self.model,
            "prompt": self.prompt,
            "options": self.options,
            "status": status,
            "createdAt": iso(self.timing.created_ms),
            "updatedAt": iso(self.updated_ms(status)),
            "deletedAt": null,
            "taskId": upstream,
            "taskInfo": info,
            "taskResult": result,
            "taskUrls": urls,
            "costCredits": self.charged_credits,
            "waivedCredits": self.waived_credits,
            "fairUseKey": self.fair_use_key(),
            "scene": self.scene,
            "visibility": "user",
            "creditId": Uuid::new_v5(&self.id, b"credit"),
        })
    }

    fn fair_use_key(&self) -> Option<String> {
        let slot = self.allowance?;
        let day = iso(slot.day.saturating_mul(86_400_000));
        Some(format!("{}:{}:{}", slot.pool.word(), day.get(..10).unwrap_or(""), self.id.simple()))
    }

    /// `taskInfo` and `taskResult`, both JSON text or null.
    fn details(&self, status: Status, urls: &[String]) -> (Option<String>, Option<String>) {
        let failure = |code: ErrorCode, reason: &str| {
            let said = if code == ErrorCode::InvalidInput { reason } else { code.sentence() };
            let text = json!({"errorCode": code, "error": code.sentence(), "errorMessage": said}).to_string();
            (Some(text.clone()), Some(text))
        };
        match (status, &self.ending) {
            (Status::Failed, Ending::Failed { code, reason }) => failure(*code, reason),
            (Status::Canceled, _) => failure(ErrorCode::RequestCancelled, ""),
            (Status::Success, _) => {
                let info = json!({"stage": "done", "renderMs": self.timing.render_ms}).to_string();
                (Some(info), Some(json!({"output": urls}).to_string()))
            }
            (Status::Processing, _) => (Some(json!({"stage": "rendering"}).to_string()), None),
            _ => (None, None),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample(ending: Ending) -> Task {
        Task {
            id: Uuid::from_u128(1),
            kind: Kind::Video,
            model: "house-c1/text-to-video".into(),
            scene: "text-to-video".into(),
            prompt: "a boat".into(),
            options: "{}".into(),
            timing: Timing { created_ms: 1_000, pending_ms: 10, render_ms: 20 },
            ending,
            shape: Shape { ratio: (16, 9), pixels: None, length_ms: 1_000 },
            results: Results { count: 1, signature: 0, expire_ms: None },
            charged_credits: 10,
            waived_credits: 0,
            allowance: None,
            key: None,
            body_digest: 0,
            first_answer: FirstAnswer::Task,
            in_call: false,
            request_id_alone: false,
        }
    }

    #[test]
    fn a_task_is_pending_then_processing_then_final() {
        let task = sample(Ending::Success);
        assert_eq!(task.status(1_009), Status::Pending);
        assert_eq!(task.status(1_010), Status::Processing);
        assert_eq!(task.status(1_029), Status::Processing);
        assert_eq!(task.status(1_030), Status::Success);
        assert_eq!(sample(Ending::Canceled).status(1_030), Status::Canceled);
        assert_eq!(sample(Ending::Never).status(i64::MAX), Status::Processing);
    }

    #[test]
    fn task_urls_is_empty_until_success_and_always_an_array() {
        let task = sample(Ending::Success);
        let user = Uuid::nil();
        assert_eq!(task.object(1_000, user, "http://m")["taskUrls"], json!([]));
        let done = task.object(2_000, user, "http://m");
        assert_eq!(done["taskUrls"], json!([format!("http://m/media/{}/0.mp4", task.id)]));
        assert_eq!(done["updatedAt"], "1970-01-01T00:00:01.030Z");
    }

    #[test]
    fn a_task_object_has_the_fields_of_the_document_and_no_others() {
        let object = sample(Ending::Success).object(2_000, Uuid::nil(), "http://m");
        let mut documented =
            "id userId mediaType model prompt options status createdAt updatedAt deletedAt taskId \
            taskInfo taskResult taskUrls costCredits waivedCredits fairUseKey scene visibility creditId"
                .split_whitespace()
                .collect::<Vec<_>>();
        documented.sort_unstable();
        let mut fields = object.as_object().unwrap().keys().collect::<Vec<_>>();
        fields.sort_unstable();
        assert_eq!(fields, documented);
    }

    #[test]
    fn only_invalid_input_shows_the_providers_reason() {
        let says = |code| {
            let task = sample(Ending::Failed { code, reason: "seven fingers".into() });
            let object = task.object(2_000, Uuid::nil(), "http://m");
            assert_eq!(object["taskInfo"], object["taskResult"]);
            let info: Value = serde_json::from_str(object["taskInfo"].as_str().unwrap()).unwrap();
            info["errorMessage"].as_str().unwrap().to_owned()
        };
        assert_eq!(says(ErrorCode::InvalidInput), "seven fingers");
        assert_ne!(says(ErrorCode::Busy), "seven fingers");
    }

    #[test]
    fn synchronous_kinds_have_a_sync_task_id_and_an_output_array() {
        let mut task = sample(Ending::Success);
        task.kind = Kind::Speech;
        let object = task.object(2_000, Uuid::nil(), "http://m");
        assert_eq!(object["taskId"], format!("sync:{}", task.id));
        let result: Value = serde_json::from_str(object["taskResult"].as_str().unwrap()).unwrap();
        assert_eq!(result["output"], object["taskUrls"]);
    }

    #[test]
    fn expiring_urls_are_renewed_by_reading_the_task_again() {
        let mut task = sample(Ending::Success);
        task.results.expire_ms = Some(50);
        assert!(task.urls(2_000, "http://m")[0].ends_with("?expires=2050"));
        assert!(task.urls(3_000, "http://m")[0].ends_with("?expires=3050"));
        task.results.signature = 3;
        assert!(task.urls(3_000, "http://m")[0].ends_with("?expires=3050&signature=fff"));
    }
}
