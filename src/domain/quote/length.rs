//! Requests that are to be as long as an output of another row: which lengths the service takes, and what they cost.
//!
//! Until that output is there, the body has the reference in the place of the length. Such a request is priced at every
//! length that it may come to, and the dearest is what must be at hand. The length that is sent is the shortest that the
//! service takes and that is not shorter than the output.

use rust_decimal::Decimal;
use serde_json::{Map, Number, Value};

use super::duration::plain;
use super::price_formula::Priced;
use super::price_matrix::Bound;
use super::reprice::request_of;
use super::validate::option;
use super::{Catalog, PricedBody, QuoteContext, Rules, music, priced_as_it_is, sound_effect, video};
use crate::domain::diagnostic::Diagnostics;
use crate::domain::job_reference::{InputField, is_reference};
use crate::domain::request::{Kind, Request};
use crate::domain::time::Millis;

/// Which lengths a request may have.
enum Allowed {
    /// These spellings, by their seconds, shortest first. Never empty.
    OneOf(Vec<(Decimal, String)>),
    /// Any number of seconds from one to another.
    Within(Decimal, Decimal),
}

/// Why a request cannot have the length of an output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LengthError {
    /// The output is longer than the longest that the service takes.
    #[error("is {output} s long, and {subject} takes {most} at most")]
    TooLong {
        /// Seconds of the output.
        output: String,
        /// The model, or the kind.
        subject: String,
        /// The longest, as it is written in a manifest.
        most: String,
    },
    /// It takes no length, or nobody says which.
    #[error("{0}")]
    NotTaken(String),
}

/// The reference that a request has in the place of its length, and the option that has it.
fn reference(kind: Kind, request: &Request) -> Option<(&'static str, &str)> {
    let name = InputField::length_of(kind)?.name();
    let text = request.options.get(name)?.as_str()?;
    is_reference(text).then_some((name, text))
}

fn allowed(kind: Kind, basis: &QuoteContext<'_>) -> Result<Allowed, LengthError> {
    let (least, most) = match kind {
        Kind::Video => return Ok(Allowed::OneOf(video::durations(basis).map_err(LengthError::NotTaken)?)),
        Kind::Music => music::SECONDS,
        Kind::SoundEffect => sound_effect::SECONDS,
        Kind::Image | Kind::Speech | Kind::ShortsStudio => {
            return Err(LengthError::NotTaken(format!("a {kind} has no length to be asked for")));
        }
    };
    let bound = |seconds: f64| Decimal::try_from(seconds).unwrap_or_default();
    Ok(Allowed::Within(bound(least), bound(most)))
}

/// The least length of a request that is not less than `seconds`, as its option says it.
///
/// # Errors
/// [`LengthError`].
pub fn fitting_length(
    kind: Kind,
    request: &Request,
    seconds: &Value,
    catalog: &Catalog,
    rules: &Rules,
) -> Result<Value, LengthError> {
    let wanted = super::duration::seconds(seconds).unwrap_or_default();
    fitting(kind, &QuoteContext { request, catalog, rules }, wanted)
}

/// The same for a body that was accepted, and an output that was measured.
///
/// # Errors
/// [`LengthError`].
pub fn fitting_length_of_body(
    kind: Kind,
    body: &Map<String, Value>,
    measured: Millis,
    catalog: &Catalog,
    rules: &Rules,
) -> Result<Value, LengthError> {
    let request = request_of(kind, body);
    let wanted = Decimal::from(measured.0) / Decimal::ONE_THOUSAND;
    fitting(kind, &QuoteContext { request: &request, catalog, rules }, wanted)
}

fn fitting(kind: Kind, basis: &QuoteContext<'_>, wanted: Decimal) -> Result<Value, LengthError> {
    let too_long = |most: String| LengthError::TooLong {
        output: plain(wanted),
        subject: basis.request.model.clone().unwrap_or_else(|| kind.name().to_owned()),
        most,
    };
    match allowed(kind, basis)? {
        Allowed::OneOf(listed) => match listed.iter().find(|(seconds, _)| *seconds >= wanted) {
            Some((_, text)) => Ok(Value::from(text.as_str())),
            None => Err(too_long(listed.last().map(|(_, text)| text.clone()).unwrap_or_default())),
        },
        Allowed::Within(_, most) if wanted > most => Err(too_long(plain(most))),
        Allowed::Within(least, _) => Ok(number(wanted.max(least))),
    }
}

fn number(seconds: Decimal) -> Value {
    plain(seconds).parse::<Number>().map_or(Value::Null, Value::Number)
}

/// Judges and prices a request whose length is that of another row's output; nothing for any other request.
pub(super) fn priced(
    kind: Kind,
    basis: &QuoteContext<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<PricedBody> {
    let (name, reference) = reference(kind, basis.request)?;
    let with = |length: Option<Value>| {
        let mut request = basis.request.clone();
        request.options.remove(name);
        request.options.extend(length.map(|length| (name.to_owned(), length)));
        request
    };
    let priced_with = |length: Option<Value>, diagnostics: &mut Diagnostics| {
        let request = with(length);
        priced_as_it_is(kind, &QuoteContext { request: &request, ..*basis }, diagnostics)
    };
    let lengths: Vec<Value> = match allowed(kind, basis) {
        Ok(Allowed::OneOf(listed)) => listed.into_iter().map(|(_, text)| Value::from(text)).collect(),
        Ok(Allowed::Within(least, most)) => vec![number(least), number(most)],
        Err(why) => {
            let draft = priced_with(None, diagnostics);
            diagnostics.refuse(&option(name), why.to_string());
            return Some(draft);
        }
    };
    let each = lengths.iter().map(|length| priced_with(Some(length.clone()), &mut Diagnostics::default()));
    let prices: Vec<Priced> = each.map(|draft| draft.priced).collect();
    let dearest = (0..prices.len()).max_by_key(|index| prices[*index].bound.dearest)?;
    let cheapest = (0..prices.len()).min_by_key(|index| prices[*index].bound.dearest)?;
    let mut draft = priced_with(lengths.get(dearest).cloned(), diagnostics);
    if let Some(options) = draft.body.get_mut("options").and_then(Value::as_object_mut) {
        options.insert(name.to_owned(), Value::from(reference));
    }
    let (least, most) = (prices.get(cheapest)?, prices.get(dearest)?);
    let are_all_known = prices.iter().all(|priced| priced.credits.is_some());
    if are_all_known && least.credits == most.credits {
        draft.priced.formula = format!("{}, however long {reference} is", most.formula);
        return Some(draft);
    }
    // What an allowance covers is all of a request or nothing of it, and this one may come to more than is left.
    (draft.listed, draft.waivable) = (None, None);
    let is_firm = prices.iter().all(|priced| priced.bound.is_firm);
    draft.priced.credits = None;
    draft.priced.bound = Bound { dearest: most.bound.dearest, is_firm };
    draft.cheapest = least.credits.filter(|_| are_all_known && is_firm);
    draft.priced.formula = format!("{} up to {}, by the length of {reference}", least.formula, most.formula);
    Some(draft)
}
