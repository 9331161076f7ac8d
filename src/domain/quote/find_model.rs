//! The catalog entry of the model that a request names.

use super::QuoteContext;
use super::catalog::{Catalog, CatalogList, Model};
use super::validate::{either, nearest, shorten};
use crate::domain::diagnostic::{Diagnostic, Diagnostics};
use crate::domain::request::Kind;

/// The catalog entry of the request's model; errors when there is none to be had.
pub(super) fn find<'a, M: Model>(
    kind: Kind,
    listing: &'a CatalogList<M>,
    basis: &QuoteContext<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<&'a M> {
    let Some(id) = basis.request.model.as_deref() else {
        let message = format!("is missing; {} needs a model id of the catalog", article(kind));
        diagnostics.refuse_with("model", message, "`callsheet models` lists them");
        return None;
    };
    match listing.get(id) {
        Some(model) if model.about().coming_soon => {
            diagnostics.refuse("model", format!("{id} is announced but not available yet"));
            Some(model)
        }
        Some(model) => Some(model),
        None => {
            if let Some(error) = absent(kind, listing, id, basis) {
                diagnostics.push(error);
            }
            None
        }
    }
}

/// Why a model is not in its catalog. An empty catalog validates nothing.
fn absent<M: Model>(
    kind: Kind,
    listing: &CatalogList<M>,
    id: &str,
    basis: &QuoteContext<'_>,
) -> Option<Diagnostic> {
    let refused = |message: String, hint: String| Some(Diagnostic::new(message).in_field("model").hint(hint));
    if let Some(said) = basis.rules.model(id).and_then(|model| model.withdrawn.as_deref()) {
        let message = format!("{id} is withdrawn; the service says: {said}");
        return refused(message, "pick another model".to_owned());
    }
    if let Some(other) = other_kind(kind, id, basis.catalog) {
        let message = format!("{id} is not a model for {kind}, but for {other}");
        return refused(message, format!("set kind to {other}, or pick a {kind} model"));
    }
    if listing.is_empty() {
        return None;
    }
    let message = format!("\"{}\" is not in the {kind} catalog, which lists {}", shorten(id), listing.len());
    refused(message, suggestion(id, listing))
}

fn other_kind(kind: Kind, id: &str, catalog: &Catalog) -> Option<Kind> {
    let listed = [
        (Kind::Video, catalog.video.get(id).is_some()),
        (Kind::Image, catalog.image.get(id).is_some()),
        (Kind::Music, catalog.music.get(id).is_some()),
    ];
    listed.into_iter().find(|(other, known)| *known && *other != kind).map(|(other, _)| other)
}

/// Ids that are nearly the one given, or whose label is.
fn suggestion<M: Model>(id: &str, listing: &CatalogList<M>) -> String {
    let mut near = nearest(id, listing.iter().map(|model| model.id()));
    let by_label = listing.iter().filter(|model| model.label().is_some_and(|l| l.eq_ignore_ascii_case(id)));
    near.extend(by_label.map(|model| model.id()));
    near.dedup();
    if near.is_empty() {
        return "`callsheet models` lists them".to_owned();
    }
    format!("did you mean {}?", either(&near))
}

fn article(kind: Kind) -> &'static str {
    match kind {
        Kind::Image => "an image",
        _ => "a video",
    }
}
