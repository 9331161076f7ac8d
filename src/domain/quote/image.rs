//! Images: scene, options, and the two ways in which the service reads them (POST /api/v1/images).

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::builtin_model_rules::SCENES;
use super::canonical_request::image_scene;
use super::catalog::{ImageMode, ImageModel};
use super::model_rules::ExactPixels;
use super::price_formula::Priced;
use super::validate::{either, found, not_one_of, option, text};
use super::{PricedBody, QuoteContext, find_model, image_price, pixels, request_body, validate};
use crate::domain::diagnostic::Diagnostics;
use crate::domain::request::Kind;

/// Validates, defaults and prices an image.
pub(super) fn draft(basis: &QuoteContext<'_>, diagnostics: &mut Diagnostics) -> PricedBody {
    let request = basis.request;
    let prompt = validate::prompt("prompt", request.prompt.as_deref(), basis.rules, diagnostics);
    validate::urls("image_urls", &request.image_urls, diagnostics);
    let mut options = validate::present(&request.options);
    let found_model = find_model::find(Kind::Image, &basis.catalog.image, basis, diagnostics);
    let scene = scene_of(basis, found_model, diagnostics);
    let priced = match found_model.map(|model| (model, model.modes.get(scene))) {
        Some((model, Some(mode))) => {
            ImageOrder { id: &model.about.id, mode }.settle(basis, &mut options, diagnostics)
        }
        _ => Priced::unpriced("the image catalog does not list it"),
    };
    let fields = [
        ("model", request.model.as_deref().map(Value::from)),
        ("prompt", Some(Value::from(prompt))),
        ("scene", Some(Value::from(scene))),
        ("image_urls", request_body::list(&request.image_urls)),
    ];
    let allowance = request.model.as_deref().and_then(|id| basis.rules.allowance(id, 1));
    PricedBody::new(request.model.clone(), request_body::body(fields, options), priced).waivable(allowance)
}

/// The scene, given or by default; errors when it is none, the model lacks it, or images are missing.
fn scene_of<'a>(
    basis: &QuoteContext<'a>,
    model: Option<&ImageModel>,
    diagnostics: &mut Diagnostics,
) -> &'a str {
    let scene = image_scene(basis.request);
    if !SCENES.contains(&scene) {
        diagnostics.push(not_one_of("scene", scene, &SCENES));
        return scene;
    }
    if scene == SCENES[1] && basis.request.image_urls.is_empty() {
        diagnostics.refuse("image_urls", "is missing; image-to-image needs at least one image");
    }
    if scene == SCENES[0] && !basis.request.image_urls.is_empty() {
        diagnostics.note("image_urls", "text-to-image takes no images");
    }
    let lacking = model.filter(|model| !model.modes.is_empty() && !model.modes.contains_key(scene));
    if let Some(model) = lacking {
        let scenes: Vec<&str> = model.modes.keys().map(String::as_str).collect();
        let message = format!("{} has no {scene}; {} is accepted", model.about.id, either(&scenes));
        diagnostics.refuse("scene", message);
    }
    scene
}

/// A model's scene in the catalog.
struct ImageOrder<'a> {
    id: &'a str,
    mode: &'a ImageMode,
}

impl ImageOrder<'_> {
    fn settle(
        &self,
        basis: &QuoteContext<'_>,
        options: &mut Map<String, Value>,
        diagnostics: &mut Diagnostics,
    ) -> Priced {
        match self.exact_pixels(basis) {
            Some(family) => self.settle_exact(&family, options, diagnostics),
            None => self.settle_plain(options, diagnostics),
        }
    }

    /// The exact-pixel family: by the rules, or by the price field that only this family has.
    fn exact_pixels<'r>(&self, basis: &QuoteContext<'r>) -> Option<Cow<'r, ExactPixels>> {
        let ruled = basis.rules.model(self.id).and_then(|rules| rules.exact_pixels.as_ref());
        let shown = self.mode.credits_by_resolution_and_aspect_ratio.is_some();
        ruled.map(Cow::Borrowed).or_else(|| shown.then(|| Cow::Owned(ExactPixels::default())))
    }

    /// The family refuses what it does not list, and has defaults of its own.
    fn settle_exact(
        &self,
        family: &ExactPixels,
        options: &mut Map<String, Value>,
        diagnostics: &mut Diagnostics,
    ) -> Priced {
        let listed = &self.mode.qualities;
        let qualities = if listed.is_empty() { &family.qualities } else { listed };
        let sized = pixels::check(family, options, diagnostics);
        if sized {
            pixels::leave_out_overridden(options, diagnostics);
        }
        let mut choose = |name, list: &[String], exact, default: &String| {
            Choice { id: self.id, name, list, exact }.make(options, Some(default), "", diagnostics)
        };
        let quality = choose("quality", qualities, false, &family.default_quality);
        if sized {
            return image_price::price_of_pixels(self.mode, quality.as_deref());
        }
        let resolution = choose("resolution", &family.resolutions, false, &family.default_resolution);
        let ratio = choose("aspect_ratio", &self.mode.aspect_ratios, true, &family.default_aspect_ratio);
        image_price::price(self.mode, quality.as_deref(), resolution.as_deref(), ratio.as_deref())
    }

    /// Other models take something else in the place of what they do not list; that is refused here.
    fn settle_plain(&self, options: &mut Map<String, Value>, diagnostics: &mut Diagnostics) -> Priced {
        if options.contains_key("size") {
            diagnostics.refuse("options.size", format!("{} takes no exact pixels, leave it out", self.id));
        }
        let asked_as = self.resolution_as_quality(options, diagnostics);
        let list = &self.mode.qualities;
        let default = self.mode.defaults.get("quality").or_else(|| list.first());
        let becomes =
            list.first().map_or(String::new(), |first| format!("; the service would make it {first}"));
        let choice = Choice { id: self.id, name: "quality", list, exact: false };
        let quality = choice.make_as(asked_as, options, default, &becomes, diagnostics);
        let ratios =
            Choice { id: self.id, name: "aspect_ratio", list: &self.mode.aspect_ratios, exact: true };
        let ratio = self.mode.defaults.get("aspect_ratio");
        let becomes = match ratio {
            Some(default) => format!("; the service would make it {default}"),
            None => "; the service would use its default instead".to_owned(),
        };
        let ratio = ratios.make(options, ratio, &becomes, diagnostics);
        image_price::price(self.mode, quality.as_deref(), None, ratio.as_deref())
    }

    /// Without `quality`, `resolution` is read as it: it is sent as what it is read as. Returns the
    /// field that the writer gave.
    fn resolution_as_quality(
        &self,
        options: &mut Map<String, Value>,
        diagnostics: &mut Diagnostics,
    ) -> &'static str {
        if self.mode.qualities.is_empty() {
            return "quality";
        }
        if options.contains_key("quality") {
            if options.contains_key("resolution") {
                diagnostics
                    .note("options.resolution", format!("{} does not read it beside quality", self.id));
            }
            return "quality";
        }
        match options.remove("resolution") {
            Some(value) => {
                options.insert("quality".to_owned(), value);
                "resolution"
            }
            None => "quality",
        }
    }
}

/// One option with a list of allowed values. An empty list lets everything through.
struct Choice<'a> {
    id: &'a str,
    name: &'static str,
    list: &'a [String],
    exact: bool,
}

impl Choice<'_> {
    fn make(
        &self,
        options: &mut Map<String, Value>,
        default: Option<&String>,
        becomes: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        self.make_as(self.name, options, default, becomes, diagnostics)
    }

    /// The value that counts, in `options` as the catalog spells it. `asked_as` is the field that a
    /// finding blames; `becomes` says what the service would silently do.
    fn make_as(
        &self,
        asked_as: &str,
        options: &mut Map<String, Value>,
        default: Option<&String>,
        becomes: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<String> {
        if !options.contains_key(self.name) {
            return self.fill(options, default?);
        }
        if self.list.is_empty() {
            return text(options, self.name, diagnostics).map(str::to_owned);
        }
        let given = options.get(self.name)?;
        let word = given.as_str().unwrap_or_default();
        let Some(listed) = self.list.iter().find(|listed| self.same(listed, word)).cloned() else {
            let accepted = either(self.list);
            let message = format!("found {}; {} takes {accepted}{becomes}", found(given), self.id);
            diagnostics.refuse(&option(asked_as), message);
            return None;
        };
        options.insert(self.name.to_owned(), Value::from(listed.as_str()));
        Some(listed)
    }

    /// The default: sent along, unless it is one that the list would refuse.
    fn fill(&self, options: &mut Map<String, Value>, default: &str) -> Option<String> {
        let listed = self.list.iter().find(|listed| self.same(listed, default)).map(String::as_str);
        let value = listed.unwrap_or(default);
        if listed.is_some() || self.list.is_empty() {
            options.insert(self.name.to_owned(), Value::from(value));
        }
        Some(value.to_owned())
    }

    fn same(&self, listed: &str, word: &str) -> bool {
        if self.exact { listed == word } else { listed.eq_ignore_ascii_case(word) }
    }
}
