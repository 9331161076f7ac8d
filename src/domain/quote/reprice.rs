//! The price of a job that was accepted earlier, by the catalog in force now.
//!
//! An accepted body has its defaults spelled out, so it is a request that means the same under any catalog. What it
//! costs, and whether the service would still take it, is read off as for a new row. Wording and unknown options are
//! not validated again: they were accepted once, and say nothing about the price.

use serde_json::{Map, Value};

use super::{Bound, Catalog, Quote, QuoteContext, Rules, priced_by};
use crate::domain::credits::Credits;
use crate::domain::diagnostic::{Diagnostic, Diagnostics};
use crate::domain::request::{Kind, Request};

/// What a request costs by some catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// The price, where there is an exact one. Charges above the catalog's own price are counted in.
    pub price: Option<Credits>,
    /// The most that it may cost.
    pub bound: Bound,
    /// Without a price: the least that it may cost, where only its length is not known yet.
    pub cheapest: Option<Credits>,
    /// How the price was computed, or why there is none.
    pub formula: String,
    /// The catalog's own price, before what was charged above it.
    pub listed: Option<Credits>,
    /// The cell of the catalog that the price comes from.
    pub cell: String,
}

impl Quote {
    pub fn cost(&self) -> Cost {
        Cost {
            price: self.price,
            bound: self.bound,
            cheapest: self.cheapest,
            formula: self.formula.clone(),
            listed: self.listed,
            cell: self.cell.clone(),
        }
    }
}

/// Prices a body that was accepted earlier.
///
/// # Errors
/// The first reason why the catalog and the rules in force would not take it: a model that is withdrawn, say.
pub fn reprice(
    kind: Kind,
    body: &Map<String, Value>,
    catalog: &Catalog,
    rules: &Rules,
) -> Result<Cost, Diagnostic> {
    let request = request_of(kind, body);
    let mut diagnostics = Diagnostics::default();
    let draft = priced_by(kind, &QuoteContext { request: &request, catalog, rules }, &mut diagnostics);
    if let Some(first) = diagnostics.finish().err().and_then(|errors| errors.into_iter().next()) {
        return Err(first);
    }
    Ok(Cost {
        price: draft.priced.credits,
        bound: draft.priced.bound,
        cheapest: draft.cheapest,
        formula: draft.priced.formula,
        listed: draft.listed,
        cell: draft.priced.cell,
    })
}

/// A body as the request that it was made of.
pub(super) fn request_of(kind: Kind, body: &Map<String, Value>) -> Request {
    if kind == Kind::ShortsStudio {
        return Request { options: body.clone(), ..Request::default() };
    }
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let list = |name: &str| {
        let items = body.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    Request {
        model: text("model"),
        prompt: text("prompt"),
        text: text("text"),
        voice_id: text("voice_id"),
        mode: text("mode"),
        scene: text("scene"),
        image_urls: list("image_urls"),
        video_urls: list("video_urls"),
        options: body.get("options").and_then(Value::as_object).cloned().unwrap_or_default(),
    }
}
