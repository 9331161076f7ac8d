//! The kind of a request that does not say it: by the catalog that lists its model, or by fields
//! that only one kind has.

use super::catalog::Catalog;
use super::kind_fields;
use super::model_rules::Rules;
use super::spelling::same_but_case;
use super::validate::either;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::request::{Kind, Request};

/// Infers what a request generates.
///
/// The model decides, where exactly one catalog (or the rules) knows it. Otherwise the fields do,
/// where all that belong to some kinds only leave one kind over.
///
/// # Errors
/// Says what is missing when neither decides, or between which kinds.
pub fn infer_kind(request: &Request, catalog: &Catalog, rules: &Rules) -> Result<Kind, Diagnostic> {
    let by_model = kinds_of_model(request, catalog, rules);
    if let [kind] = by_model.as_slice() {
        return Ok(*kind);
    }
    let among = if by_model.is_empty() { Kind::ALL.to_vec() } else { by_model };
    let left: Vec<Kind> = among.into_iter().filter(|kind| may_be(*kind, request)).collect();
    match left.as_slice() {
        [kind] => Ok(*kind),
        // An id that is written in another case decides last: what was decided before it was read stays.
        _ => by_model_in_any_case(request, catalog).ok_or_else(|| undecided(&left)),
    }
}

/// The kind of the one catalog that lists the model's id in another case.
fn by_model_in_any_case(request: &Request, catalog: &Catalog) -> Option<Kind> {
    let id = request.model.as_deref()?;
    let listed = [
        (Kind::Video, same_but_case(&catalog.video, id).is_some()),
        (Kind::Image, same_but_case(&catalog.image, id).is_some()),
        (Kind::Music, same_but_case(&catalog.music, id).is_some()),
    ];
    let mut kinds = listed.into_iter().filter(|(_, is_listed)| *is_listed).map(|(kind, _)| kind);
    kinds.next().filter(|_| kinds.next().is_none())
}

fn kinds_of_model(request: &Request, catalog: &Catalog, rules: &Rules) -> Vec<Kind> {
    let Some(id) = request.model.as_deref() else { return Vec::new() };
    let listed = [
        (Kind::Video, catalog.video.get(id).is_some()),
        (Kind::Image, catalog.image.get(id).is_some()),
        (Kind::Music, catalog.music.get(id).is_some()),
    ];
    let mut kinds: Vec<Kind> = listed.into_iter().filter(|(_, known)| *known).map(|(kind, _)| kind).collect();
    if kinds.is_empty() {
        kinds.extend(rules.model(id).and_then(|model| model.kind));
    }
    kinds
}

/// Whether every field and documented option of the request is one of `kind`'s.
///
/// Shorts Studio has no field of its own, and no idempotency key: it is never guessed.
fn may_be(kind: Kind, request: &Request) -> bool {
    if kind == Kind::ShortsStudio {
        return false;
    }
    let option_fits = |name: &str| {
        let mut owners = kind_fields::kinds_of_option(name).peekable();
        owners.peek().is_none() || owners.any(|owner| owner == kind)
    };
    let names = request.options.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name);
    kind_fields::given(request).all(|field| kind_fields::kinds_of_field(field).contains(&kind))
        && names.into_iter().all(|name| option_fits(name))
}

fn undecided(left: &[Kind]) -> Diagnostic {
    let names: Vec<&str> = if left.is_empty() { &Kind::ALL } else { left }.iter().map(|k| k.name()).collect();
    let why =
        if left.is_empty() { "the fields match no kind" } else { "the fields match more than one kind" };
    let message = format!("is missing, and {why}; {} is accepted", either(&names));
    Diagnostic::new(message).in_field("kind").hint("add kind, or a model that one of the catalogs lists")
}
