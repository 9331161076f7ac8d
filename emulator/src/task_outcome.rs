//! The outcome of a task: decided when it is created, from the order and the fault plan.

use super::errors::ApiError;
use super::faults::{ActiveFaults, Afterwards, Call, Effect, Target};
use super::tasks::{Ending, ErrorCode, FirstAnswer, Kind, Results};
use super::validation::{Order, ProviderRejection};

/// The outcome of a task, decided when it is created.
pub(crate) struct TaskOutcome {
    pub(crate) ending: Ending,
    pub(crate) first_answer: FirstAnswer,
    /// It ends when it is created.
    pub(crate) at_once: bool,
    /// Added to its render time.
    pub(crate) late_ms: i64,
    /// The model that runs it, as the task shows it.
    pub(crate) model: String,
    pub(crate) results: Results,
    /// The creating call waits for the end.
    pub(crate) in_call: bool,
    /// Shorts Studio names it by its `requestId` alone.
    pub(crate) request_id_alone: bool,
    /// What is charged, in hundredths of the price.
    pub(crate) charge_percent: u64,
}

impl TaskOutcome {
    /// The outcome of an order under the rules that strike it, or the error that comes before a task.
    pub(crate) fn decide(
        fault_profile: &mut ActiveFaults,
        order: &Order,
        key: &str,
    ) -> Result<Self, ApiError> {
        let model = order.model.split('/').next().unwrap_or("");
        let call = Call {
            target: Target::Create,
            kind: Some(order.kind),
            model,
            prompt: &order.prompt,
            identity: key,
        };
        let effects = fault_profile.on_a_new_task(&call);
        let mut outcome = Self::of_order(order);
        // The earlier rule wins, so it is written last. Speech has no safety check to be away.
        let documented =
            |effect: &Effect| order.kind != Kind::Speech || !matches!(effect, Effect::SafetyUnavailable {});
        for effect in effects.into_iter().rev().filter(documented) {
            outcome.bend(effect, order)?;
        }
        Ok(outcome)
    }

    fn of_order(order: &Order) -> Self {
        let calm = Self {
            ending: Ending::Success,
            first_answer: FirstAnswer::Task,
            at_once: false,
            late_ms: 0,
            model: order.model.clone(),
            results: Results { count: 1, signature: 0, expire_ms: None },
            in_call: false,
            request_id_alone: false,
            charge_percent: 100,
        };
        let invalid = |reason: &str| failed(ErrorCode::InvalidInput, reason);
        match &order.provider_rejection {
            None => calm,
            Some(ProviderRejection::AtSubmission(reason)) => {
                Self { ending: invalid(reason), first_answer: FirstAnswer::Rejected, at_once: true, ..calm }
            }
            Some(ProviderRejection::WhileRendering(reason)) => Self { ending: invalid(reason), ..calm },
        }
    }

    fn at_once(&mut self, ending: Ending, answer: FirstAnswer) {
        (self.ending, self.first_answer, self.at_once) = (ending, answer, true);
    }

    fn bend(&mut self, effect: Effect, order: &Order) -> Result<(), ApiError> {
        match effect {
            Effect::SafetyUnavailable {} => return Err(ApiError::safety_check_unavailable()),
            // Its errors carry no task: what it refuses, it refuses before there is one.
            Effect::ContentRejected { .. } if order.kind == Kind::ShortsStudio => {
                return Err(ApiError::content_rejected());
            }
            Effect::RejectAtSubmission { reason } if order.kind == Kind::ShortsStudio => {
                return Err(ApiError::invalid(reason));
            }
            Effect::ContentRejected { with_task: false } => return Err(ApiError::content_rejected()),
            Effect::ContentRejected { with_task: true } => {
                self.at_once(failed(ErrorCode::ContentRejected, ""), FirstAnswer::ContentRejected);
            }
            Effect::RejectAtSubmission { reason } => {
                self.at_once(failed(ErrorCode::InvalidInput, &reason), FirstAnswer::Rejected);
            }
            Effect::FailAtSubmission {} => {
                self.at_once(failed(ErrorCode::ProviderUnavailable, ""), FirstAnswer::Failed);
            }
            Effect::UnknownOutcome { ending } => {
                self.first_answer = FirstAnswer::Unknown;
                if ending == Afterwards::Failed {
                    self.ending = failed(ErrorCode::ProviderUnavailable, "");
                }
            }
            Effect::TaskFails { code, reason } => self.ending = failed(code, &reason),
            Effect::TaskCanceled {} => self.ending = Ending::Canceled,
            Effect::TaskNever {} => self.ending = Ending::Never,
            Effect::TaskLate { ms } => {
                self.late_ms = i64::try_from(ms).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
            }
            // A video's model is shown with its mode, whichever model it is.
            Effect::OtherModel { model } if order.kind == Kind::Video && !model.contains('/') => {
                self.model = format!("{model}/{}", order.scene);
            }
            Effect::OtherModel { model } => self.model = model,
            Effect::Urls { count, signature } => {
                self.results.count = count;
                self.results.signature = signature;
            }
            Effect::RendersInCall {} => self.in_call = order.kind != Kind::ShortsStudio,
            Effect::RequestIdAlone {} => self.request_id_alone = order.kind == Kind::ShortsStudio,
            Effect::ChargePercent { percent } => self.charge_percent = percent.into(),
            Effect::UrlsExpire { ms } => self.results.expire_ms = Some(i64::from(ms)),
            _ => {}
        }
        Ok(())
    }
}

fn failed(code: ErrorCode, reason: &str) -> Ending {
    let reason = if reason.is_empty() { "the settings are not supported" } else { reason };
    Ending::Failed { code, reason: reason.into() }
}

/// A synchronous call that ends badly answers with an error that carries the task.
pub(crate) fn answer_of_a_synchronous(ending: &Ending) -> FirstAnswer {
    match ending {
        Ending::Failed { code: ErrorCode::InvalidInput, .. } => FirstAnswer::Rejected,
        Ending::Failed { code: ErrorCode::ContentRejected, .. } => FirstAnswer::ContentRejected,
        Ending::Failed { .. } | Ending::Canceled => FirstAnswer::Failed,
        Ending::Success | Ending::Never => FirstAnswer::Task,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::catalog::Catalog;
    use crate::faults::FaultPlan;
    use crate::validation;

    fn outcome(effect: &str, kind: Kind, body: &Value) -> TaskOutcome {
        let plan = FaultPlan::parse(&format!("[[rules]]\neffect = {effect}")).unwrap();
        let order = validation::order(&Catalog::built_in().unwrap(), kind, body).unwrap();
        TaskOutcome::decide(&mut ActiveFaults::new(plan), &order, "k").unwrap()
    }

    #[test]
    fn another_model_that_ran_a_video_is_shown_with_the_mode() {
        let effect = "{ do = 'other-model', model = 'understudy' }";
        let video = json!({"model": "house-c1", "prompt": "x"});
        assert_eq!(outcome(effect, Kind::Video, &video).model, "understudy/text-to-video");
        let image = json!({"model": "gi-2", "prompt": "x"});
        assert_eq!(outcome(effect, Kind::Image, &image).model, "understudy");
    }

    #[test]
    fn shorts_studio_never_renders_in_the_call_and_no_other_kind_has_a_request_id() {
        let image = json!({"model": "gi-2", "prompt": "x"});
        let studio = |effect| outcome(effect, Kind::ShortsStudio, &json!({}));
        assert!(outcome("{ do = 'renders-in-call' }", Kind::Image, &image).in_call);
        assert!(!studio("{ do = 'renders-in-call' }").in_call);
        assert!(studio("{ do = 'request-id-alone' }").request_id_alone);
        assert!(!outcome("{ do = 'request-id-alone' }", Kind::Image, &image).request_id_alone);
    }

    #[test]
    fn speech_has_no_safety_check_to_be_away() {
        let body = json!({"text": "x", "voice_id": "aria"});
        assert_eq!(outcome("{ do = 'safety-unavailable' }", Kind::Speech, &body).ending, Ending::Success);
    }
}
