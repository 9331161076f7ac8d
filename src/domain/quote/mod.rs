//! The price of a request before it is paid: validated, defaulted and priced as the service would.
//!
//! The service has no price preview. This module is one: catalogs and a request in, and out comes
//! either everything that is wrong with it or the body to send with its price and formula. Pure: no
//! clock, no files, no async. It knows no positions, batches and money limits; the caller adds the position of each
//! [`Diagnostic`] in its manifest.
//!
//! Reading order: [`quote`], then one file per kind, then [`catalog`] and [`model_rules`] (what the
//! catalog says and what it leaves out), `price_matrix` (the price shapes), [`canonical_body`].

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::credits::Credits;
use crate::domain::diagnostic::{Diagnostic, Diagnostics};
use crate::domain::request::{Kind, Request};
use crate::domain::time::Millis;

mod audio_note;
mod builtin_model_rules;
mod canonical_request;
pub mod catalog;
mod catalog_list;
mod duration;
mod find_model;
mod image;
mod image_price;
mod infer_kind;
pub mod kind_fields;
mod measured_length;
pub mod model_rules;
mod music;
mod music_price;
mod pixels;
mod price_formula;
mod price_matrix;
mod prohibited_words;
mod reprice;
mod request_body;
mod sound_effect;
mod sound_effect_price;
mod speech;
mod speech_price;
mod spelling;
mod surcharge;
#[cfg(test)]
pub(crate) mod tests;
mod validate;
mod video;
mod video_price;

pub use canonical_request::canonical_body;
pub use catalog::{Catalog, CatalogPart};
pub use infer_kind::infer_kind;
pub use measured_length::{LengthError, fitting_length, fitting_length_of_body, unfit_length};
pub use model_rules::{AccountPlan, Allowance, AllowanceUnit, Rules, RulesExtension};
pub use price_matrix::{Bound, Prices};
pub use reprice::{Cost, reprice};
pub use surcharge::{Surcharge, Surcharges};
pub use video::wants_source_seconds;

use price_formula::Priced;

/// What the service makes of an option that is outside its range, where it moves it unasked.
pub fn clamped_setting(kind: Kind, name: &str, value: &Value) -> Option<Value> {
    if kind == Kind::Speech { speech::clamped_setting(name, value) } else { None }
}

/// The seconds that a duration means, as a JSON number: of `8s` 8.
pub fn seconds_as_number(value: &Value) -> Option<Value> {
    let number: serde_json::Number = duration::plain(duration::seconds(value)?).parse().ok()?;
    Some(Value::Number(number))
}

/// The milliseconds that a duration means, a part of one for a whole: of `8s` 8,000.
pub fn milliseconds_of(value: &Value) -> Option<Millis> {
    let ms = duration::seconds(value)?.checked_mul(Decimal::ONE_THOUSAND)?.ceil();
    ms.to_u64().map(Millis)
}

/// Whether two spellings of an option mean the same to the service.
pub fn same_option(kind: Kind, name: &str, one: &Value, other: &Value) -> bool {
    let canonical = |value: &Value| canonical_request::canonical_option(kind, name, value.clone());
    canonical(one) == canonical(other)
}

/// Whether an option that is sent tells how it is written in the canonical body.
pub fn tells_option(kind: Kind, name: &str, sent: &Value, written: &Value) -> bool {
    sent == written || canonical_request::canonical_option(kind, name, sent.clone()) == *written
}

/// Whether an option of a body says nothing, because another one in it overrides it.
pub fn is_overridden(kind: Kind, name: &str, options: &Map<String, Value>) -> bool {
    kind == Kind::Image && options.contains_key("size") && pixels::OVERRIDDEN.contains(&name)
}

/// A request that passed: what to send, what it costs, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quote {
    /// Given, or inferred.
    pub kind: Kind,
    /// The catalog id that was asked for, where the kind has one.
    pub model: Option<String>,
    /// The body of the creating POST: defaults that matter for the price spelled out, in the
    /// catalog's spelling.
    pub body: Map<String, Value>,
    /// The full price, before any plan allowance; `None` when it cannot be computed.
    pub price: Option<Credits>,
    /// The most that it may cost.
    pub bound: Bound,
    /// Without a price: the least that it may cost, where only its length is not known yet. The most is firm then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cheapest: Option<Credits>,
    /// `5 s x 2/s = 10`, or why there is no price.
    pub formula: String,
    /// The catalog's own price, before what was charged above it.
    #[serde(skip)]
    pub listed: Option<Credits>,
    /// The cell of the catalog that the price comes from.
    #[serde(skip)]
    pub cell: String,
    /// The plan allowance that may cover it, whose remainder the service does not tell.
    pub waivable: Option<Allowance>,
    /// What is worth saying and refuses nothing: clamping, a value that is not read, billed seconds. Each has a field.
    pub notes: Vec<Diagnostic>,
}

/// Validates `request` as the service would before it charges, and prices it.
///
/// `kind` is what the manifest says; without it the kind is inferred from the model or the fields.
///
/// # Errors
/// Everything that is wrong, not the first thing alone.
pub fn quote(
    kind: Option<Kind>,
    request: &Request,
    catalog: &Catalog,
    rules: &Rules,
) -> Result<Quote, Vec<Diagnostic>> {
    let kind = match kind {
        Some(kind) => kind,
        None => infer_kind(request, catalog, rules).map_err(|finding| vec![finding])?,
    };
    let (request, mut notes) = spelling::listed(kind, request, catalog, rules);
    let request = &*request;
    let mut diagnostics = Diagnostics::default();
    kind_fields::check(kind, request, rules, &mut diagnostics);
    let draft = priced_by(kind, &QuoteContext { request, catalog, rules }, &mut diagnostics);
    notes.extend(diagnostics.finish()?);
    Ok(Quote {
        kind,
        model: draft.model,
        body: draft.body,
        price: draft.priced.credits,
        bound: draft.priced.bound,
        cheapest: draft.cheapest,
        formula: draft.priced.formula,
        listed: draft.listed,
        cell: draft.priced.cell,
        waivable: draft.waivable,
        notes,
    })
}

/// What a request comes to, with everything that is wrong with it in `diagnostics`.
fn priced_by(kind: Kind, basis: &QuoteContext<'_>, diagnostics: &mut Diagnostics) -> PricedBody {
    measured_length::priced(kind, basis, diagnostics)
        .unwrap_or_else(|| priced_as_it_is(kind, basis, diagnostics))
}

/// The same of a request whose length is known.
fn priced_as_it_is(kind: Kind, basis: &QuoteContext<'_>, diagnostics: &mut Diagnostics) -> PricedBody {
    let draft = match kind {
        Kind::Video => video::draft(basis, diagnostics),
        Kind::Image => image::draft(basis, diagnostics),
        Kind::Music => music::draft(basis, diagnostics),
        Kind::Speech => speech::draft(basis, diagnostics),
        Kind::SoundEffect => sound_effect::draft(basis, diagnostics),
        Kind::ShortsStudio => shorts_studio(basis.request),
    };
    draft.with_surcharge(kind, &basis.catalog.surcharges, diagnostics)
}

/// Shorts Studio's body and price are not documented: the options are the body, as they are.
fn shorts_studio(request: &Request) -> PricedBody {
    PricedBody::new(
        None,
        request.options.clone(),
        Priced::unpriced("the service does not document its price"),
    )
}

/// What every kind's file works from.
#[derive(Clone, Copy)]
struct QuoteContext<'a> {
    request: &'a Request,
    catalog: &'a Catalog,
    rules: &'a Rules,
}

/// A quote whose findings are not yet counted.
struct PricedBody {
    model: Option<String>,
    body: Map<String, Value>,
    priced: Priced,
    /// The catalog's own price.
    listed: Option<Credits>,
    /// Without a price: the least that it may cost, where only its length is not known yet.
    cheapest: Option<Credits>,
    waivable: Option<Allowance>,
}

impl PricedBody {
    fn new(model: Option<String>, body: Map<String, Value>, priced: Priced) -> PricedBody {
        PricedBody { model, body, listed: priced.credits, priced, cheapest: None, waivable: None }
    }

    /// Names the cell in full, and raises its price to what was charged for it before.
    fn with_surcharge(
        mut self,
        kind: Kind,
        surcharges: &Surcharges,
        diagnostics: &mut Diagnostics,
    ) -> PricedBody {
        let Some(listed) = self.listed else { return self };
        let mode = ["mode", "scene"].into_iter().find_map(|name| self.body.get(name)?.as_str());
        let priced = &mut self.priced;
        let model = self.model.as_deref().filter(|_| kind != Kind::Music).unwrap_or_default();
        priced.cell = format!("{kind} {model} {}: {}", mode.unwrap_or_default(), priced.cell);
        let Some(surcharge) = surcharges.of(&priced.cell) else { return self };
        let Some(raised) = surcharge.on(listed).filter(|raised| *raised > listed) else { return self };
        let Surcharge { price, charged } = surcharge;
        priced.formula = format!(
            "{}, and {} as {} was charged for {} before",
            priced.formula, raised.0, charged.0, price.0
        );
        priced.credits = Some(raised);
        priced.bound.dearest = raised;
        let message = format!(
            "the catalog's price is {}, but {} was charged for {} before: {} is planned",
            listed.0, charged.0, price.0, raised.0
        );
        diagnostics.note("model", message);
        self
    }

    fn waivable(mut self, allowance: Option<Allowance>) -> PricedBody {
        self.waivable = allowance;
        self
    }
}
