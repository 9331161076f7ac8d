//! What the service accepts, endpoint by endpoint, in the documented order, and what it makes of it.
//!
//! Pure: catalog and body in, an [`Order`] or the first failure out. The balance, the last check of the order,
//! belongs to the account.

mod image;
mod sound;
mod video;

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::account::Pool;
use super::catalog::{Catalog, decimal};
use super::errors::ApiError;
use super::tasks::{Kind, Shape};

/// A valid, defaulted and priced request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Order {
    pub(crate) kind: Kind,
    /// As the task will show it.
    pub(crate) model: String,
    pub(crate) scene: String,
    pub(crate) prompt: String,
    /// What was sent, with defaults filled.
    pub(crate) options: Map<String, Value>,
    pub(crate) price_credits: u64,
    /// The allowance that may cover it, and the units it would use.
    pub(crate) claim: Option<(Pool, u64)>,
    pub(crate) shape: Shape,
    pub(crate) doom: Option<Doom>,
}

/// A request that passes the service's checks and that the provider will not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Doom {
    /// Refused at submission: 400 with `error.task_id`.
    AtSubmission(String),
    /// Fails while it renders.
    WhileRendering(String),
}

/// Validate the body of a creating call.
pub(crate) fn order(catalog: &Catalog, kind: Kind, body: &Value) -> Result<Order, ApiError> {
    let body = Body::new(body)?;
    match kind {
        Kind::Video => video::order(catalog, &body),
        Kind::Image => image::order(catalog, &body),
        Kind::Music => sound::music(catalog, &body),
        Kind::Speech => sound::speech(catalog, &body),
        Kind::SoundEffect => sound::effect(&body),
        Kind::ShortsStudio => Ok(sound::shorts_studio(&body)),
    }
}

/// A body that is known to be an object.
struct Body<'a> {
    fields: &'a Map<String, Value>,
}

impl<'a> Body<'a> {
    fn new(body: &'a Value) -> Result<Self, ApiError> {
        let fields =
            body.as_object().ok_or_else(|| ApiError::invalid("request body must be a JSON object"))?;
        Ok(Self { fields })
    }

    /// A field, where null counts as absent.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// A string that must be there and not be blank; trimmed.
    fn required(&self, name: &str) -> Result<&'a str, ApiError> {
        let text = match self.get(name) {
            None => None,
            Some(Value::String(text)) => Some(text.trim()),
            Some(_) => return Err(ApiError::invalid(format!("{name} must be a string"))),
        };
        text.filter(|text| !text.is_empty()).ok_or_else(|| ApiError::invalid(format!("{name} is required")))
    }

    /// A string that may be left out or blank.
    fn optional(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(_) => Err(ApiError::invalid(format!("{name} must be a string"))),
        }
    }

    /// A list of strings; absent is empty.
    fn strings(&self, name: &str) -> Result<Vec<&'a str>, ApiError> {
        let wrong = || ApiError::invalid(format!("{name} must be an array of strings"));
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(|item| item.as_str().ok_or_else(wrong)).collect(),
            Some(_) => Err(wrong()),
        }
    }

    /// The options object; absent is empty.
    fn options(&self) -> Result<Options<'a>, ApiError> {
        match self.get("options") {
            None => Ok(Options { fields: None }),
            Some(Value::Object(fields)) => Ok(Options { fields: Some(fields) }),
            Some(_) => Err(ApiError::invalid("options must be an object")),
        }
    }
}

/// The `options` object of a request.
#[derive(Clone, Copy)]
struct Options<'a> {
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> Options<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields?.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim())),
            Some(_) => Err(ApiError::invalid(format!("options.{name} must be a string"))),
        }
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(ApiError::invalid(format!("options.{name} must be a boolean"))),
        }
    }

    /// A JSON number; a number in quotes is not one.
    fn number(&self, name: &str) -> Result<Option<Decimal>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(decimal(number))),
            Some(_) => Err(ApiError::invalid(format!("options.{name} must be a number"))),
        }
    }

    /// A JSON number inside a range, or the documented message.
    fn number_within(&self, name: &str, low: &str, high: &str) -> Result<Option<Decimal>, ApiError> {
        let wrong = || ApiError::invalid(format!("options.{name} must be a number from {low} to {high}"));
        let inside = |n: &Decimal| {
            low.parse::<Decimal>().is_ok_and(|low| *n >= low)
                && high.parse::<Decimal>().is_ok_and(|high| *n <= high)
        };
        match self.number(name) {
            Ok(None) => Ok(None),
            Ok(Some(number)) if inside(&number) => Ok(Some(number)),
            _ => Err(wrong()),
        }
    }

    /// All that was sent, nulls left out, as the start of the task's own options.
    fn to_map(self) -> Map<String, Value> {
        let sent = self.fields.into_iter().flatten();
        sent.filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

/// Prohibited-use wording; also caught inside negated sentences.
fn refuse_prohibited(text: &str) -> Result<(), ApiError> {
    let plain: String = text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
    let prohibited = ["deepfake", "faceswap", "swapfaces", "swapface", "impersonat"];
    if prohibited.iter().any(|word| plain.contains(word)) {
        return Err(ApiError::content_rejected());
    }
    Ok(())
}

/// URLs the service can fetch without a key.
fn require_http_urls(name: &str, urls: &[&str]) -> Result<(), ApiError> {
    let valid = |text: &&str| {
        url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    };
    if urls.iter().all(valid) {
        Ok(())
    } else {
        Err(ApiError::invalid(format!("{name} must contain valid http(s) URLs")))
    }
}

/// `16:9` as numbers; `Auto` and anything else is `fallback`.
fn ratio_of(text: Option<&str>, fallback: (u32, u32)) -> (u32, u32) {
    let parse = |text: &str| {
        let (w, h) = text.split_once([':', 'x'])?;
        let (w, h) = (w.trim().parse::<u32>().ok()?, h.trim().parse::<u32>().ok()?);
        (w > 0 && h > 0 && w / h <= 8 && h / w <= 8).then_some((w, h))
    };
    text.and_then(parse).unwrap_or(fallback)
}

/// Seconds as milliseconds, bounded to what a media file may last here.
fn millis(seconds: Decimal) -> u32 {
    use rust_decimal::prelude::ToPrimitive;
    let millis = seconds.checked_mul(Decimal::ONE_THOUSAND).and_then(|ms| ms.to_u32());
    millis.unwrap_or(300_000).clamp(100, 300_000)
}

/// A number as it goes back into JSON.
fn json_number(number: Decimal) -> Value {
    serde_json::from_str(&number.normalize().to_string()).unwrap_or_default()
}
