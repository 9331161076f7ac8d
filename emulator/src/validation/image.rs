//! `POST /api/v1/images`.

use serde_json::{Map, Value};

use super::{Body, Options, Order, ratio_of, refuse_prohibited, require_http_urls};
use crate::account::{Pool, may_cover_image};
use crate::catalog::{Catalog, ImageMode};
use crate::errors::ApiError;
use crate::pricing::{self, ImageAsk};
use crate::tasks::{Kind, Shape};

const SCENES: [&str; 2] = ["text-to-image", "image-to-image"];

pub(super) fn order(catalog: &Catalog, body: &Body<'_>) -> Result<Order, ApiError> {
    let id = body.required("model")?;
    let prompt = body.required("prompt")?;
    let scene_asked = body.optional("scene")?;
    let images = body.strings("image_urls")?;
    let options = body.options()?;

    refuse_prohibited(prompt)?;
    let Some(model) = catalog.image_model(id) else {
        let known = catalog.image.iter().map(|m| m.id.as_str()).collect::<Vec<_>>().join(", ");
        return Err(ApiError::invalid(format!("unsupported image model: {id}. Supported models: {known}")));
    };
    let scene = scene_asked.unwrap_or(if images.is_empty() { SCENES[0] } else { SCENES[1] });
    if !SCENES.contains(&scene) {
        return Err(ApiError::invalid(format!("scene must be one of {}, got {scene}", SCENES.join("|"))));
    }
    let Some(mode) = model.modes.get(scene) else {
        return Err(ApiError::invalid(format!("{id} does not support mode {scene}")));
    };
    if scene == SCENES[1] && images.is_empty() {
        return Err(ApiError::invalid("image-to-image requires image_urls"));
    }
    require_http_urls("image_urls", &images)?;
    let chosen = if mode.credits_by_resolution_and_aspect_ratio.is_some() {
        exact(mode, options)?
    } else {
        lenient(mode, options)?
    };
    let price = pricing::image(mode, chosen.ask())
        .map_err(|_| ApiError::invalid(format!("{id} {scene} has no price for these options")))?;
    let claim = may_cover_image(catalog.ruled_as(id)).then_some((Pool::Images, 1));
    Ok(Order { claim, ..finish(id, scene, prompt, options, &chosen, price) })
}

/// The values that are priced and sent.
#[derive(Default)]
struct Chosen {
    quality: Option<String>,
    resolution: Option<String>,
    aspect_ratio: Option<String>,
    size: Option<(u32, u32)>,
}

impl Chosen {
    fn ask(&self) -> ImageAsk<'_> {
        ImageAsk {
            quality: self.quality.as_deref(),
            resolution: self.resolution.as_deref(),
            aspect_ratio: self.aspect_ratio.as_deref(),
        }
    }
}

/// The `gi-2-5` models refuse what they do not know.
fn exact(mode: &ImageMode, options: Options<'_>) -> Result<Chosen, ApiError> {
    let nested = mode.credits_by_resolution_and_aspect_ratio.as_ref();
    let invalid = |what: &str| ApiError::invalid(format!("Invalid GPT Image 2.5 {what}"));
    let listed = |list: Vec<&String>, asked: &str| {
        list.into_iter().find(|known| known.eq_ignore_ascii_case(asked)).cloned()
    };
    // A value of the wrong type is as unrecognised as an unknown word.
    let text = |name: &str, what: &str| options.text(name).map_err(|_| invalid(what));

    let quality = text("quality", "quality")?.unwrap_or("Medium");
    let quality = listed(mode.qualities.iter().collect(), quality).ok_or_else(|| invalid("quality"))?;
    if let Some(size) = text("size", "pixel dimensions")? {
        let size = pixel_size(size).ok_or_else(|| invalid("pixel dimensions"))?;
        let (resolution, aspect_ratio) = billed_cell(mode, size);
        return Ok(Chosen { quality: Some(quality), resolution, aspect_ratio, size: Some(size) });
    }
    let resolution = text("resolution", "resolution")?.unwrap_or("1K");
    let resolutions = nested.map(|n| n.keys().collect()).unwrap_or_default();
    let resolution = listed(resolutions, resolution).ok_or_else(|| invalid("resolution"))?;
    let ratio = text("aspect_ratio", "aspect ratio")?.unwrap_or("1:1");
    let ratio =
        mode.aspect_ratios.iter().find(|known| *known == ratio).ok_or_else(|| invalid("aspect ratio"))?;
    Ok(Chosen {
        quality: Some(quality),
        resolution: Some(resolution),
        aspect_ratio: Some(ratio.clone()),
        size: None,
    })
}

/// `<width>x<height>`: multiples of 16, longest side at most 3840, ratio at most 3:1, 655,360 to 8,294,400 pixels.
fn pixel_size(text: &str) -> Option<(u32, u32)> {
    let digits = |part: &str| {
        let plain = !part.is_empty() && part.len() <= 5 && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<u32>().ok().filter(|_| plain)
    };
    let (width, height) = text.split_once('x')?;
    let (width, height) = (digits(width)?, digits(height)?);
    let (long, short) = (width.max(height), width.min(height));
    let sides = short > 0 && width.is_multiple_of(16) && height.is_multiple_of(16) && long <= 3840;
    let pixels = u64::from(width) * u64::from(height);
    (sides && long <= short * 3 && (655_360..=8_294_400).contains(&pixels)).then_some((width, height))
}

/// The price cell of an exact size: the document does not say; the emulator takes the smallest resolution that
/// holds the pixels and the nearest listed aspect ratio.
fn billed_cell(mode: &ImageMode, (width, height): (u32, u32)) -> (Option<String>, Option<String>) {
    let pixels = u64::from(width) * u64::from(height);
    let holding = [(1_572_864, "1K"), (4_194_304, "2K")].into_iter().find(|(most, _)| pixels <= *most);
    let resolution = holding.map_or("4K", |(_, name)| name);
    let wanted = f64::from(width) / f64::from(height);
    let distance = |ratio: &String| {
        let (w, h) = ratio_of(Some(ratio), (1, 1));
        ((f64::from(w) / f64::from(h)).ln() - wanted.ln()).abs()
    };
    let nearest = mode.aspect_ratios.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    (Some(resolution.to_owned()), nearest.cloned())
}

/// All other models replace what they do not know, and bill at the replacement.
fn lenient(mode: &ImageMode, options: Options<'_>) -> Result<Chosen, ApiError> {
    let quality = match options.text("quality")? {
        None => options.text("resolution")?,
        some => some,
    };
    let known = mode.qualities.iter().find(|q| quality.is_some_and(|asked| q.eq_ignore_ascii_case(asked)));
    let ratio = options.text("aspect_ratio")?;
    let ratio = if mode.aspect_ratios.is_empty() {
        ratio.map(str::to_owned)
    } else {
        let known = mode.aspect_ratios.iter().find(|known| ratio == Some(known.as_str()));
        known.or(mode.aspect_ratios.first()).cloned()
    };
    Ok(Chosen {
        quality: known.or(mode.qualities.first()).cloned(),
        aspect_ratio: ratio,
        ..Chosen::default()
    })
}

fn finish(
    id: &str,
    scene: &str,
    prompt: &str,
    options: Options<'_>,
    chosen: &Chosen,
    price_credits: u64,
) -> Order {
    let mut filled: Map<String, Value> = options.to_map();
    for (name, value) in [
        ("quality", chosen.quality.as_deref()),
        ("resolution", chosen.resolution.as_deref()),
        ("aspect_ratio", chosen.aspect_ratio.as_deref()),
        ("mode", Some(scene)),
    ] {
        if let Some(value) = value {
            filled.insert(name.to_owned(), Value::String(value.to_owned()));
        }
    }
    let ratio = chosen.size.unwrap_or_else(|| ratio_of(chosen.aspect_ratio.as_deref(), (1, 1)));
    Order {
        kind: Kind::Image,
        model: id.to_owned(),
        scene: scene.to_owned(),
        prompt: prompt.to_owned(),
        options: filled,
        price_credits,
        claim: None,
        shape: Shape { ratio, pixels: chosen.size, length_ms: 0 },
        provider_rejection: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::order as check;
    use super::*;

    fn run(body: &Value) -> Result<Order, String> {
        check(&Catalog::built_in().unwrap(), Kind::Image, body).map_err(|error| error.message)
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads as a literal at its calls")]
    fn with(model: &str, options: Value) -> Result<Order, String> {
        run(&json!({"model": model, "prompt": "x", "options": options}))
    }

    #[test]
    fn the_scene_follows_the_inputs_and_is_checked() {
        let urls = json!(["https://example.com/a.png"]);
        let scene = |body: Value| run(&body).map(|order| order.scene);
        assert_eq!(scene(json!({"model": "gi-2", "prompt": "x"})), Ok("text-to-image".into()));
        assert_eq!(
            scene(json!({"model": "gi-2", "prompt": "x", "image_urls": urls})),
            Ok("image-to-image".into())
        );
        assert_eq!(
            scene(json!({"model": "gi-2", "prompt": "x", "scene": "collage"})),
            Err("scene must be one of text-to-image|image-to-image, got collage".into())
        );
        assert_eq!(
            scene(json!({"model": "gi-2", "prompt": "x", "scene": "image-to-image"})),
            Err("image-to-image requires image_urls".into())
        );
        assert_eq!(
            scene(json!({"model": "ii-3", "prompt": "x", "image_urls": urls})),
            Err("ii-3 does not support mode image-to-image".into())
        );
    }

    #[test]
    fn an_unknown_model_is_answered_with_the_known_ones() {
        assert!(
            with("nope", json!({}))
                .unwrap_err()
                .starts_with("unsupported image model: nope. Supported models: gi-2, ")
        );
    }

    #[test]
    fn gi_2_5_refuses_what_it_does_not_know() {
        let refused = |options: Value| with("gi-2-5", options).unwrap_err();
        assert_eq!(refused(json!({"quality": "Basic"})), "Invalid GPT Image 2.5 quality");
        assert_eq!(refused(json!({"resolution": "8K"})), "Invalid GPT Image 2.5 resolution");
        assert_eq!(refused(json!({"aspect_ratio": "5:1"})), "Invalid GPT Image 2.5 aspect ratio");
        assert_eq!(refused(json!({"size": "1000x1000"})), "Invalid GPT Image 2.5 pixel dimensions");
    }

    #[test]
    fn gi_2_5_defaults_are_medium_1k_and_square() {
        let order = with("gi-2-5", json!({})).unwrap();
        assert_eq!(
            Value::Object(order.options),
            json!({"quality": "Medium", "resolution": "1K", "aspect_ratio": "1:1", "mode": "text-to-image"})
        );
        assert_eq!(order.price_credits, 6);
        assert_eq!(
            with("gi-2-5", json!({"quality": "xhigh", "resolution": "4k"})).unwrap().price_credits,
            84
        );
    }

    #[test]
    fn exact_sizes_are_held_to_their_limits() {
        for good in ["1024x1024", "3840x2160", "640x1024", "2400x800"] {
            assert!(pixel_size(good).is_some(), "{good}");
        }
        for bad in [
            "1024",
            "1024X1024",
            "1000x1024",
            "3856x2160",
            "2448x800",
            "800x800",
            "3840x3840",
            "-16x16",
            "x",
            "+1024x1024",
        ] {
            assert!(pixel_size(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn other_models_replace_the_unrecognised_and_bill_the_replacement() {
        let order = with("gi-2", json!({"quality": "Ultra", "aspect_ratio": "7:5"})).unwrap();
        assert_eq!(
            (&order.options["quality"], &order.options["aspect_ratio"]),
            (&json!("1K"), &json!("1:1"))
        );
        assert_eq!(order.price_credits, 8);
        assert_eq!(with("gi-2", json!({"resolution": "4k"})).unwrap().price_credits, 20);
        assert_eq!(with("gi-2", json!({"resolution": "4k", "quality": "2K"})).unwrap().price_credits, 12);
        assert_eq!(with("fi-open", json!({"aspect_ratio": "7:5"})).unwrap().options["aspect_ratio"], "7:5");
    }

    #[test]
    fn only_the_listed_models_claim_an_allowance() {
        for (model, claims) in [("gi-2", true), ("x-imagine-image", true), ("si-4", false)] {
            assert_eq!(with(model, json!({})).unwrap().claim.is_some(), claims, "{model}");
        }
    }
}
