//! What the service accepts, endpoint by endpoint, in the documented order, and what it makes of it.
//!
//! Pure: catalog and body in, an [`Order`] or the first failure out. The balance, the last check of the order,
//! belongs to the account.

mod image;
mod sound;
mod video;
mod video_options;

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
    pub(crate) provider_rejection: Option<ProviderRejection>,
}

/// A request that passes the service's checks and that the provider will not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProviderRejection {
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
        Kind::SoundEffect => sound::effect(catalog, &body),
        Kind::ShortsStudio => Ok(sound::shorts_studio(catalog, &body)),
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

/// Prohibited-use wording, in one word or several; also caught inside negated sentences.
fn refuse_prohibited(text: &str) -> Result<(), ApiError> {
    const PROHIBITED: [&str; 4] = ["deepfake", "faceswap", "swapface", "impersonat"];
    /// Most words that one expression is written in.
    const WORDS_MAX: usize = 3;
    let lower = text.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_said = |first: usize| {
        let said = words[first..].iter().take(WORDS_MAX).copied().collect::<String>();
        PROHIBITED.iter().any(|expression| said.starts_with(expression))
    };
    if (0..words.len()).any(is_said) {
        return Err(ApiError::content_rejected());
    }
    Ok(())
}

/// URLs the service can fetch without a key.
fn require_http_urls(name: &str, urls: &[&str]) -> Result<(), ApiError> {
    let starts =
        |text: &str, with: &str| text.get(..with.len()).is_some_and(|s| s.eq_ignore_ascii_case(with));
    let valid = |text: &&str| {
        // The parser alone would forgive `http:host` and `http:/host`.
        let text = text.trim();
        (starts(text, "http://") || starts(text, "https://"))
            && url::Url::parse(text).is_ok_and(|url| url.has_host())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn word() -> impl Strategy<Value = Value> {
        let words = [
            "house-c1",
            "model-h3",
            "model-s-2-mini",
            "model-r",
            "model-k-2-6",
            "model-g-omni",
            "model-f-3",
            "gi-2",
            "gi-2-5",
            "fi-open",
            "aria",
            "text-to-video",
            "video-to-video",
            "reference-to-video",
            "image-to-image",
            "720p",
            "1080P",
            "4K",
            "5s",
            "10",
            "16:9",
            "1024x1024",
            "9999999999x16",
            "Max",
            "https://a.b/c",
            "ftp://a",
            "http://",
            "",
            " ",
            "deepfake",
            "a boat",
            "\u{0}\u{FEFF}é",
        ];
        proptest::sample::select(words.to_vec()).prop_map(Value::from)
    }

    fn scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            6 => word(),
            1 => any::<f64>().prop_map(Value::from),
            1 => any::<i64>().prop_map(Value::from),
            1 => (0_u64..40).prop_map(Value::from),
            1 => any::<bool>().prop_map(Value::from),
            1 => Just(Value::Null),
            1 => ".{0,12}".prop_map(Value::from),
        ]
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            4 => scalar(),
            1 => prop::collection::vec(scalar(), 0..4).prop_map(Value::from),
            1 => Just(json!({})),
        ]
    }

    fn fields(names: &'static [&'static str]) -> impl Strategy<Value = Map<String, Value>> {
        let name = proptest::sample::select(names.to_vec()).prop_map(str::to_owned);
        prop::collection::btree_map(name, any_value(), 0..6).prop_map(|map| map.into_iter().collect())
    }

    fn body() -> impl Strategy<Value = Value> {
        let options = fields(&[
            "duration",
            "resolution",
            "aspect_ratio",
            "audio",
            "quality",
            "size",
            "duration_seconds",
            "speed",
            "source_video_duration_seconds",
            "model_id",
            "prompt_influence",
        ]);
        let rest =
            fields(&["mode", "scene", "image_urls", "video_urls", "prompt", "text", "model", "voice_id"]);
        (word(), rest, options).prop_map(|(model, mut body, options)| {
            for (name, value) in
                [("model", model), ("prompt", json!("x")), ("text", json!("x")), ("voice_id", json!("aria"))]
            {
                body.entry(name).or_insert(value);
            }
            body.insert(String::from("options"), Value::Object(options));
            Value::Object(body)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_body_makes_the_service_panic_and_every_refusal_is_a_documented_400(body in body()) {
            let catalog = Catalog::built_in().unwrap();
            for kind in [Kind::Video, Kind::Image, Kind::Music, Kind::Speech, Kind::SoundEffect, Kind::ShortsStudio] {
                match order(&catalog, kind, &body) {
                    Ok(order) => {
                        prop_assert!((1..=10_000).contains(&order.price_credits), "{:?}", order);
                        prop_assert!(order.shape.length_ms <= 300_000 && order.shape.ratio.0 > 0);
                        prop_assert!(order.options.contains_key("mode"));
                    }
                    Err(error) => {
                        prop_assert_eq!(error.status, 400);
                        prop_assert!(["invalid_request", "content_rejected"].contains(&error.kind));
                    }
                }
            }
        }
    }
}
