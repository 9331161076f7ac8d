//! Drift: where what was charged and made differs from what was planned (money rule 10).
//!
//! Found from the task's record alone, and only where it says something: what it leaves out is no
//! difference. What to do about it is `policy.on_drift`'s.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::job::{Job, Order, State};
use crate::domain::manifest::row::OnDrift;
use crate::domain::quote::{clamped_setting, is_overridden, same_option};
use crate::domain::request::Kind;

/// The field of a charge above the hold of a job without an exact price.
const HOLD: &str = "hold_credits";

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// `price_credits`, `hold_credits`, `model`, `mode`, `scene` or `options.NAME`.
    pub field: String,
    pub planned: Value,
    pub actual: Value,
}

/// `price_credits: planned 10, was 20`
impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        write!(f, "{}: planned {}, was {}", self.field, show(&self.planned), show(&self.actual))
    }
}

/// Whether a batch is to be paused for the drift of one of its jobs. A charge above the hold of a job without an exact
/// price pauses whatever the policy says: nothing else bounds what the next one would be charged.
pub fn pauses(policy: Option<OnDrift>, drift: &[Drift]) -> bool {
    drift.iter().any(|drift| drift.field == HOLD) || policy == Some(OnDrift::Pause) && !drift.is_empty()
}

/// Everything in which a job's task differs from its order. Worth asking from the moment its charge is
/// settled, and again when it ends.
pub fn of(order: &Order, job: &Job) -> Vec<Drift> {
    let mut found = Vec::new();
    found.extend(price(order, job));
    found.extend(model(order, job.ran_model()));
    found.extend(job.ran_options().into_iter().flat_map(|ran| options(order, job, &ran.fields())));
    found
}

/// Charged and waived together are the full price (Task object), which is held against the price that the job was let
/// out at, or without one against its hold. A failed task's charge was given
/// back, and an unsettled one is not known.
fn price(order: &Order, job: &Job) -> Option<Drift> {
    let is_charged =
        matches!(job.state(), State::Running { .. } | State::Fetching { .. } | State::Succeeded { .. });
    let actual = job.books().charged + job.books().waived;
    let is_known = is_charged && job.books().held.is_zero();
    match job.price(order) {
        Some(price) => (is_known && price != actual).then(|| drift("price_credits", price.0, actual.0)),
        None => {
            let hold = job.hold(order)?;
            (is_known && actual > hold).then(|| drift(HOLD, hold.0, actual.0))
        }
    }
}

/// Whether what was charged for a job without an exact price is above what was held for it.
pub fn is_above_hold(order: &Order, job: &Job) -> bool {
    price(order, job).is_some_and(|drift| drift.field == HOLD)
}

/// A video's model is shown as `<model_id>/<mode>`. Speech names its model among its options, and the
/// other kinds choose none.
fn model(order: &Order, ran: Option<&str>) -> Option<Drift> {
    let ran = ran.filter(|ran| !ran.is_empty())?;
    let option = || Some(order.body.get("options")?.get("model_id")?.as_str()?.to_owned());
    let planned = match order.kind {
        Kind::Video | Kind::Image => order.model.clone(),
        Kind::Speech => option(),
        Kind::Music | Kind::SoundEffect | Kind::ShortsStudio => None,
    }?;
    let rest = ran.strip_prefix(planned.as_str());
    let is_same = rest == Some("") || (order.kind == Kind::Video && mode_is_planned(order, rest));
    (!is_same).then(|| drift("model", planned, ran))
}

fn mode_is_planned(order: &Order, rest: Option<&str>) -> bool {
    let mode = rest.and_then(|rest| rest.strip_prefix('/'));
    mode.is_some() && order.body.get("mode").is_none_or(|planned| planned.as_str() == mode)
}

/// The options that both sides name, and the mode, which the record keeps among them.
fn options(order: &Order, job: &Job, ran: &Map<String, Value>) -> Vec<Drift> {
    if order.kind == Kind::ShortsStudio {
        return Vec::new();
    }
    let body = match order.has_open_length() {
        true => order.body_with_length(job.present().inputs()),
        false => order.body.fields(),
    };
    let given = body.get("options").and_then(Value::as_object);
    let planned = given.into_iter().flatten();
    let planned =
        planned.filter(|(name, _)| !given.is_some_and(|given| is_overridden(order.kind, name, given)));
    let differing = planned.filter_map(|(name, planned)| {
        let actual = ran.get(name)?;
        let expected = clamped_setting(order.kind, name, planned).unwrap_or_else(|| planned.clone());
        let differs = !same_option(order.kind, name, &expected, actual);
        differs.then(|| drift(&format!("options.{name}"), expected, actual.clone()))
    });
    let mut found: Vec<Drift> = differing.collect();
    let mode = ["mode", "scene"].into_iter().find_map(|name| Some((name, body.get(name)?)));
    if let (Some((name, planned)), Some(actual)) = (mode, ran.get("mode"))
        && planned != actual
    {
        found.push(drift(name, planned.clone(), actual.clone()));
    }
    found
}

fn drift(field: &str, planned: impl Into<Value>, actual: impl Into<Value>) -> Drift {
    Drift { field: field.to_owned(), planned: planned.into(), actual: actual.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::credit_hold::{Basis, Hold};
    use crate::domain::credits::Credits;
    use crate::domain::ids::{AttemptNo, TaskId};
    use crate::domain::job::Books;

    fn order(kind: Kind, model: Option<&str>, price: Option<u64>, body: Value) -> Order {
        let Value::Object(body) = body else { panic!("a body is an object") };
        let order = json!({"line": 2, "kind": kind, "model": model, "price": price, "body": body});
        serde_json::from_value(order).unwrap()
    }

    fn video() -> Order {
        let options = json!({"duration": "5s", "resolution": "768P", "audio": false});
        let body = json!({"model": "house-c1", "mode": "text-to-video", "options": options});
        order(Kind::Video, Some("house-c1"), Some(10), body)
    }

    fn running() -> Job {
        Job::at(AttemptNo::FIRST, State::Running { task: TaskId("t".into()) })
    }

    fn ran(model: &str, charged: u64, waived: u64, options: &Value) -> Job {
        let books = Books { charged: Credits(charged), waived: Credits(waived), ..Books::default() };
        running().with_books(books).with_run(model, options)
    }

    #[track_caller]
    fn check(order: &Order, job: &Job, expected: &[&str]) {
        let found: Vec<String> = of(order, job).iter().map(Drift::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_charge_as_planned_is_no_drift_whether_it_is_paid_or_waived() {
        let options = json!({"duration": 5, "resolution": "768p", "audio": false, "mode": "text-to-video"});
        check(&video(), &ran("house-c1/text-to-video", 10, 0, &options), &[]);
        check(&video(), &ran("house-c1", 0, 10, &json!({})), &[]);
    }

    #[test]
    fn every_difference_is_told() {
        let options = json!({"duration": "10s", "resolution": "768P", "mode": "image-to-video"});
        check(
            &video(),
            &ran("house-turbo/text-to-video", 20, 0, &options),
            &[
                "price_credits: planned 10, was 20",
                "model: planned house-c1, was house-turbo/text-to-video",
                "options.duration: planned 5s, was 10s",
                "mode: planned text-to-video, was image-to-video",
            ],
        );
        check(
            &video(),
            &ran("house-c1/image-to-video", 10, 0, &json!({})),
            &["model: planned house-c1, was house-c1/image-to-video"],
        );
    }

    #[test]
    fn what_the_record_leaves_out_and_what_was_given_back_is_no_drift() {
        let dropped = Job::at(AttemptNo::FIRST, State::DROPPED).with_run("house-c1", &json!(null));
        check(&video(), &dropped, &[]);
        let held = Books { held: Credits(10), ..Books::default() };
        check(&video(), &running().with_books(held).with_run("house-c1", &json!(null)), &[]);
        let unpriced = order(Kind::ShortsStudio, None, None, json!({"any": 1}));
        check(&unpriced, &ran("studio", 40, 0, &json!({"any": 2})), &[]);
    }

    #[test]
    fn what_the_plan_said_would_be_clamped_is_no_drift() {
        let options = json!({"speed": 9, "stability": 0.5, "model_id": "voice-a"});
        let speech =
            order(Kind::Speech, None, Some(1), json!({"text": "x", "voice_id": "v", "options": options}));
        let filled = json!({"speed": 4.0, "stability": 0.5, "mode": "text-to-speech"});
        check(&speech, &ran("voice-a", 1, 0, &filled), &[]);
        check(
            &speech,
            &ran("voice-b", 1, 0, &json!({"speed": 2})),
            &["model: planned voice-a, was voice-b", "options.speed: planned 4.0, was 2"],
        );
    }

    #[test]
    fn a_charge_is_held_against_the_price_that_the_job_was_let_out_at() {
        let job = ran("house-c1", 20, 0, &json!({}));
        check(&video(), &job, &["price_credits: planned 10, was 20"]);
        check(&video(), &job.with_admission_hold(Hold::priced(Credits(20))), &[]);
    }

    #[test]
    fn a_charge_above_the_hold_of_an_unpriced_job_is_drift_and_always_pauses() {
        let unpriced = order(Kind::ShortsStudio, None, None, json!({"any": 1}));
        let hold = Hold { hold: Credits(40), basis: Basis::MaxCredits };
        let job = ran("studio", 40, 0, &json!({})).with_admission_hold(hold);
        check(&unpriced, &job, &[]);
        assert!(!is_above_hold(&unpriced, &job));
        let job = ran("studio", 41, 0, &json!({})).with_admission_hold(hold);
        check(&unpriced, &job, &["hold_credits: planned 40, was 41"]);
        assert!(is_above_hold(&unpriced, &job));
        assert!(pauses(None, &of(&unpriced, &job)) && pauses(Some(OnDrift::Report), &of(&unpriced, &job)));
    }

    #[test]
    fn what_a_size_overrides_is_no_drift() {
        let options =
            json!({"size": "1024x1024", "aspect_ratio": "16:9", "resolution": "2K", "quality": "High"});
        let image = order(Kind::Image, Some("gi-2-5"), None, json!({"model": "gi-2-5", "options": options}));
        let ran_as = |size: &str| {
            let filled = json!({"size": size, "aspect_ratio": "1:1", "resolution": "1K", "quality": "High"});
            ran("gi-2-5", 20, 0, &filled)
        };
        check(&image, &ran_as("1024x1024"), &[]);
        check(&image, &ran_as("2048x2048"), &["options.size: planned 1024x1024, was 2048x2048"]);
        let plain = order(
            Kind::Image,
            Some("gi-2-5"),
            None,
            json!({"model": "gi-2-5", "options": {"aspect_ratio": "16:9"}}),
        );
        check(&plain, &ran_as("1024x1024"), &["options.aspect_ratio: planned 16:9, was 1:1"]);
    }

    #[test]
    fn only_a_policy_that_says_so_pauses() {
        let found = [drift("model", "a", "b")];
        assert!(pauses(Some(OnDrift::Pause), &found));
        assert!(!pauses(Some(OnDrift::Pause), &[]));
        assert!(!pauses(Some(OnDrift::Report), &found));
        assert!(!pauses(None, &found));
    }
}
