//! Music: the length, and the trap of `style`, `title` and `lyrics` (POST /api/v1/music).

use serde_json::{Map, Value};

use super::catalog::MusicModel;
use super::music_price::price;
use super::validate::{boolean, number_within, option, text};
use super::{PricedBody, QuoteContext, find_model, request_body, validate};
use crate::domain::diagnostic::Diagnostics;
use crate::domain::request::Kind;

/// Options that the service refuses by name.
pub(super) const RENAMED: [&str; 2] = ["duration", "music_length_ms"];

/// The shortest and the longest track, in seconds.
pub(super) const SECONDS: (f64, f64) = (3.0, 300.0);

const LENGTH: &str = "duration_seconds";
/// The length of a track that gives none.
const DEFAULT_SECONDS: u32 = 60;

/// Validates, defaults and prices a track.
pub(super) fn draft(basis: &QuoteContext<'_>, diagnostics: &mut Diagnostics) -> PricedBody {
    let request = basis.request;
    let prompt = validate::prompt("prompt", request.prompt.as_deref(), basis.rules, diagnostics);
    check_model(basis, diagnostics);
    let mut options = validate::present(&request.options);
    check_options(&options, diagnostics);
    if !options.contains_key(LENGTH) {
        options.insert(LENGTH.to_owned(), Value::from(DEFAULT_SECONDS));
    }
    let priced = price(options.get(LENGTH), basis.catalog);
    let body = request_body::body([("prompt", Some(Value::from(prompt)))], options);
    PricedBody::new(request.model.clone(), body, priced)
}

/// A model says that the row is music; the service chooses its own.
fn check_model(basis: &QuoteContext<'_>, diagnostics: &mut Diagnostics) {
    if basis.request.model.is_some() {
        let found: Option<&MusicModel> =
            find_model::find(Kind::Music, &basis.catalog.music, basis, diagnostics);
        if found.is_some() {
            diagnostics.note("model", "is not sent: the service takes no model for music");
        }
    }
}

fn check_options(options: &Map<String, Value>, diagnostics: &mut Diagnostics) {
    for name in RENAMED.into_iter().filter(|name| options.contains_key(*name)) {
        diagnostics.refuse_with(
            &option(name),
            "is not accepted for music",
            "the length goes into duration_seconds",
        );
    }
    number_within(options, LENGTH, SECONDS, diagnostics);
    let instrumental = boolean(options, "instrumental", diagnostics) == Some(true);
    let [style, title, lyrics] = ["style", "title", "lyrics"].map(|name| given(options, name, diagnostics));
    if instrumental && lyrics {
        diagnostics.note("options.lyrics", "will not be sung: instrumental means no vocals");
    }
    for name in [("style", style), ("title", title)].into_iter().filter(|pair| pair.1).map(|pair| pair.0) {
        if !lyrics {
            diagnostics.note(&option(name), format!("with {name} the prompt is sung as lyrics"));
        }
    }
    if lyrics && (style || title) {
        let which = if style { "style" } else { "title" };
        let message = format!("stands beside {which}, with which the prompt itself is sung as lyrics");
        let hint = "put the lyrics into prompt, or leave style and title out";
        diagnostics.refuse_with("options.lyrics", message, hint);
    }
}

/// Whether a text option says anything.
fn given(options: &Map<String, Value>, name: &str, diagnostics: &mut Diagnostics) -> bool {
    text(options, name, diagnostics).is_some_and(|text| !text.trim().is_empty())
}
