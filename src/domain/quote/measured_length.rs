//! Requests that take the length of an output of another row: their own length, or that of their source video. Which
//! lengths the service takes, and what they cost.
//!
//! Until that output is there, the body has the reference in the place of the length. Such a request is priced at every
//! length that it may come to, and the dearest is what must be at hand. Its own length is sent as the shortest that the
//! service takes and that is not shorter than the output; that of a source video as it is.

use rust_decimal::Decimal;
use serde_json::{Map, Number, Value};

use super::duration::plain;
use super::price_formula::Priced;
use super::price_matrix::Bound;
use super::reprice::request_of;
use super::validate::option;
use super::{
    Catalog, PricedBody, QuoteContext, Rules, music, priced_as_it_is, sound_effect, spelling, video,
};
use crate::domain::diagnostic::{Diagnostic, Diagnostics};
use crate::domain::ids::BatchName;
use crate::domain::job_reference::{INPUT_LENGTH, INPUT_TOO_LONG, InputField, JobInput, length_reference};
use crate::domain::request::{Kind, Request};
use crate::domain::shell_word::job_argument;
use crate::domain::task::Fault;
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

/// Why a job is not sent that would be as long as an output: nothing was charged, and a length of its own helps.
pub fn unfit_length(why: &LengthError, input: &JobInput, batch: &BatchName, label: &str) -> Fault {
    let (code, length) = match why {
        LengthError::TooLong { most, .. } => (INPUT_TOO_LONG, most.as_str()),
        LengthError::NotTaken(_) => (INPUT_LENGTH, "SECONDS"),
    };
    let (row, option) = (input.shown(), input.field.name());
    let name = job_argument(batch, label);
    let message = match (input.field, why) {
        // Other seconds than those of the video would not make it fit.
        (InputField::SourceVideoDurationSeconds, LengthError::TooLong { .. }) => format!(
            "{row} {why} as a source video; nothing was charged. To send it with another model: callsheet retry \
             {name} --set model=MODEL"
        ),
        _ => format!(
            "{row} {why}; nothing was charged. To send it with a length of its own: callsheet retry {name} \
             --set {option}={length}"
        ),
    };
    Fault::new(code, message)
}

/// The lengths of a request that are those of outputs, with the references in their places.
fn open_lengths(kind: Kind, request: &Request) -> Vec<(InputField, &str)> {
    let fields = InputField::lengths_of(kind).iter();
    fields.filter_map(|field| Some((*field, length_reference(*field, &request.options)?))).collect()
}

fn allowed(kind: Kind, field: InputField, basis: &QuoteContext<'_>) -> Result<Allowed, LengthError> {
    let (least, most) = match (field, kind) {
        (InputField::SourceVideoDurationSeconds, _) => {
            let most = video::source_seconds_max(basis).map(Decimal::from);
            return Ok(Allowed::Within(Decimal::ZERO, most.unwrap_or(Decimal::MAX)));
        }
        (_, Kind::Video) => {
            return Ok(Allowed::OneOf(video::durations(basis).map_err(LengthError::NotTaken)?));
        }
        (_, Kind::Music) => music::SECONDS,
        (_, Kind::SoundEffect) => sound_effect::SECONDS,
        (_, Kind::Image | Kind::Speech | Kind::ShortsStudio) => {
            return Err(LengthError::NotTaken(format!("a {kind} has no length to be asked for")));
        }
    };
    let bound = |seconds: f64| Decimal::try_from(seconds).unwrap_or_default();
    Ok(Allowed::Within(bound(least), bound(most)))
}

/// The lengths at which a request is priced: those between cost no less than the cheapest of them, and no more than the
/// dearest.
fn priced_lengths(
    kind: Kind,
    field: InputField,
    basis: &QuoteContext<'_>,
) -> Result<Vec<Value>, LengthError> {
    if field == InputField::SourceVideoDurationSeconds {
        let ends = video::priced_source_seconds(basis).map_err(LengthError::NotTaken)?;
        return Ok(ends.into_iter().map(Value::from).collect());
    }
    Ok(match allowed(kind, field, basis)? {
        Allowed::OneOf(listed) => listed.into_iter().map(|(_, text)| Value::from(text)).collect(),
        Allowed::Within(least, most) => vec![number(least), number(most)],
    })
}

/// What is sent in an option for an output of so many seconds: of the request's own length the least that is not less. The
/// model may be spelled as [`quote`](super::quote) reads it.
///
/// # Errors
/// [`LengthError`].
pub fn fitting_length(
    (kind, request): (Kind, &Request),
    field: InputField,
    seconds: &Value,
    catalog: &Catalog,
    rules: &Rules,
) -> Result<Value, LengthError> {
    let wanted = super::duration::seconds(seconds).unwrap_or_default();
    let (request, _) = spelling::listed(kind, request, catalog, rules);
    fitting(kind, field, &QuoteContext { request: &request, catalog, rules }, wanted)
}

/// The same for a body that was accepted, and an output that was measured.
///
/// # Errors
/// [`LengthError`].
pub fn fitting_length_of_body(
    (kind, body): (Kind, &Map<String, Value>),
    field: InputField,
    measured: Millis,
    catalog: &Catalog,
    rules: &Rules,
) -> Result<Value, LengthError> {
    let request = request_of(kind, body);
    let wanted = Decimal::from(measured.0) / Decimal::ONE_THOUSAND;
    fitting(kind, field, &QuoteContext { request: &request, catalog, rules }, wanted)
}

fn fitting(
    kind: Kind,
    field: InputField,
    basis: &QuoteContext<'_>,
    wanted: Decimal,
) -> Result<Value, LengthError> {
    let too_long = |most: String| LengthError::TooLong {
        output: plain(wanted),
        subject: basis.request.model.clone().unwrap_or_else(|| kind.name().to_owned()),
        most,
    };
    match allowed(kind, field, basis)? {
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

/// Validates and prices a request that takes lengths of other rows' outputs; nothing for any other request.
pub(super) fn priced(
    kind: Kind,
    basis: &QuoteContext<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<PricedBody> {
    let open = open_lengths(kind, basis.request);
    if open.is_empty() {
        return None;
    }
    let priced_with = |lengths: &[(InputField, Value)], diagnostics: &mut Diagnostics| {
        let mut request = basis.request.clone();
        for (field, _) in &open {
            request.options.remove(field.name());
        }
        request.options.extend(lengths.iter().map(|(field, value)| (field.name().to_owned(), value.clone())));
        priced_as_it_is(kind, &QuoteContext { request: &request, ..*basis }, diagnostics)
    };
    let (mut choices, mut refused) = (vec![Vec::new()], Vec::new());
    for (field, _) in &open {
        let lengths = priced_lengths(kind, *field, basis).unwrap_or_else(|why| {
            refused.push((*field, why));
            // What else is wrong is told without it, or for some length where it must be there.
            if *field == InputField::SourceVideoDurationSeconds { vec![Value::from(1)] } else { Vec::new() }
        });
        let with = |chosen: &Vec<(InputField, Value)>, length: &Value| {
            chosen.iter().cloned().chain([(*field, length.clone())]).collect()
        };
        if !lengths.is_empty() {
            choices = choices
                .iter()
                .flat_map(|chosen| lengths.iter().map(move |length| with(chosen, length)))
                .collect();
        }
    }
    // What is said of a length is said of one of several that it may come to.
    let is_about_length = |note: &Diagnostic| {
        open.iter().any(|(field, _)| note.field.as_deref() == Some(option(field.name()).as_str()))
    };
    if !refused.is_empty() {
        let mut found = Diagnostics::default();
        let draft = priced_with(choices.first()?, &mut found);
        diagnostics.absorb(found, |note| !is_about_length(note));
        refused
            .into_iter()
            .for_each(|(field, why)| diagnostics.refuse(&option(field.name()), why.to_string()));
        return Some(draft);
    }
    let each = choices.iter().map(|lengths| priced_with(lengths, &mut Diagnostics::default()).priced);
    let prices: Vec<Priced> = each.collect();
    let dearest = (0..prices.len()).max_by_key(|index| prices[*index].bound.dearest)?;
    let cheapest = (0..prices.len()).min_by_key(|index| prices[*index].bound.dearest)?;
    let mut found = Diagnostics::default();
    let mut draft = priced_with(choices.get(dearest)?, &mut found);
    diagnostics.absorb(found, |note| !is_about_length(note));
    if let Some(options) = draft.body.get_mut("options").and_then(Value::as_object_mut) {
        for (field, reference) in &open {
            options.insert(field.name().to_owned(), Value::from(*reference));
        }
    }
    let mut named: Vec<&str> = open.iter().map(|(_, reference)| *reference).collect();
    named.dedup();
    let (least, most) = (prices.get(cheapest)?, prices.get(dearest)?);
    let are_all_known = prices.iter().all(|priced| priced.credits.is_some());
    if are_all_known && least.credits == most.credits {
        let verb = if named.len() == 1 { "is" } else { "are" };
        draft.priced.formula = format!("{}, however long {} {verb}", most.formula, named.join(" and "));
        return Some(draft);
    }
    // Of an allowance it may need as much as the longest one: it is tried where so much was not refused.
    draft.listed = None;
    let is_firm = prices.iter().all(|priced| priced.bound.is_firm);
    draft.priced.credits = None;
    draft.priced.bound = Bound { dearest: most.bound.dearest, is_firm };
    draft.cheapest = least.credits.filter(|_| are_all_known && is_firm);
    draft.priced.formula =
        format!("{} up to {}, by the length of {}", least.formula, most.formula, named.join(" and "));
    Some(draft)
}
