//! POST /api/v1/images: fields, options, cost.

use serde_json::{Value, json};

use super::{check, quoted, sent, sent_options, with};
use crate::domain::quote::AllowanceUnit;
use crate::domain::request::Kind;

#[track_caller]
fn validated(model: &str, more: Value, expected: &str) {
    check(Kind::Image, with(json!({"model": model, "prompt": "a fox"}), more), expected);
}

fn options(model: &str, options: Value) -> Value {
    sent_options(Kind::Image, json!({"model": model, "prompt": "a fox", "options": options}))
}

#[test]
fn scene_defaults_by_inputs() {
    let scene = |fields: Value| {
        sent(Kind::Image, with(json!({"model": "gi-2", "prompt": "x"}), fields))["scene"].clone()
    };
    assert_eq!(scene(json!({})), "text-to-image");
    assert_eq!(scene(json!({"image_urls": ["https://h.example/i.png"]})), "image-to-image");
}

#[test]
fn scene_is_one_of_two_and_one_of_the_models() {
    validated(
        "gi-2",
        json!({"scene": "text-to-imago"}),
        "scene: found \"text-to-imago\"; text-to-image or image-to-image is accepted \
         (hint: did you mean text-to-image?)",
    );
    validated(
        "ni-2",
        json!({"image_urls": ["https://h.example/i.png"]}),
        "scene: ni-2 has no image-to-image; text-to-image is accepted",
    );
}

#[test]
fn image_to_image_needs_an_image_and_any_number_will_do() {
    let from_image = json!({"scene": "image-to-image"});
    validated("gi-2", from_image, "image_urls: is missing; image-to-image needs at least one image");
    let many: Vec<String> = (0..50).map(|n| format!("https://h.example/{n}.png")).collect();
    validated("gi-2", json!({"image_urls": many}), "5 credits: Medium: 5");
}

#[test]
fn quality_ignores_case_defaults_to_the_first_and_is_spelled_out() {
    validated("gi-2", json!({}), "4 credits: Medium: 4");
    validated("gi-2", json!({"options": {"quality": "hIGH"}}), "9 credits: High: 9");
    assert_eq!(options("gi-2", json!({"quality": "high"})), json!({"quality": "High"}));
    assert_eq!(options("gi-2", json!({})), json!({"quality": "Medium"}));
}

#[test]
fn what_the_service_would_silently_replace_is_refused() {
    validated(
        "gi-2",
        json!({"options": {"quality": "ultra", "aspect_ratio": "4:3"}}),
        "options.quality: found \"ultra\"; gi-2 takes Medium or High; the service would make it Medium\n\
         options.aspect_ratio: found \"4:3\"; gi-2 takes 1:1 or 16:9; the service would use its default instead",
    );
}

#[test]
fn resolution_is_read_as_quality_without_one() {
    validated("ni-2", json!({"options": {"resolution": "2k"}}), "6 credits: 2K: 6");
    assert_eq!(options("ni-2", json!({"resolution": "2k"})), json!({"quality": "2K"}));
    validated(
        "ni-2",
        json!({"options": {"resolution": "8K"}}),
        "options.resolution: found \"8K\"; ni-2 takes 1K, 2K or 4K; the service would make it 1K",
    );
    validated(
        "ni-2",
        json!({"options": {"resolution": "2K", "quality": "4k"}}),
        "12 credits: 4K: 12\nnote: options.resolution: ni-2 does not read it beside quality",
    );
}

#[test]
fn an_empty_list_of_aspect_ratios_lets_any_through() {
    assert_eq!(options("ni-2", json!({"aspect_ratio": "7:5"}))["aspect_ratio"], "7:5");
}

#[test]
fn credits_per_generation_where_there_are_no_credits() {
    validated("x-flat", json!({}), "7 credits: fixed: 7");
}

#[test]
fn a_label_alone_is_no_price() {
    validated("x-labelled", json!({}), "unpriced: the catalog gives it no price");
}

#[test]
fn gi_2_5_has_defaults_and_a_price_by_three_keys() {
    validated("gi-2-5", json!({}), "4 credits: 1K, 1:1, Medium: 4");
    let filled = json!({"quality": "Medium", "resolution": "1K", "aspect_ratio": "1:1"});
    assert_eq!(options("gi-2-5", json!({})), filled);
    validated(
        "gi-2-5",
        json!({"options": {"quality": "xhigh", "resolution": "4k", "aspect_ratio": "16:9"}}),
        "52 credits: 4K, 16:9, XHigh: 52",
    );
}

#[test]
fn gi_2_5_refuses_what_it_does_not_list() {
    validated(
        "gi-2-5",
        json!({"options": {"quality": "best", "resolution": "8K", "aspect_ratio": "5:4"}}),
        "options.quality: found \"best\"; gi-2-5 takes Low, Medium, High, XHigh or Max\n\
         options.resolution: found \"8K\"; gi-2-5 takes 1K, 2K or 4K\n\
         options.aspect_ratio: found \"5:4\"; gi-2-5 takes 1:1 or 16:9",
    );
}

#[test]
fn size_in_exact_pixels() {
    let size = |size: &str| json!({"options": {"size": size, "quality": "Low"}});
    let price = "2 credits: any resolution, any aspect ratio, Low: 2";
    for good in ["1024x1024", "3840x2160", "2160x3840", "1024x640", "3072x1024"] {
        validated("gi-2-5", size(good), price);
    }
    let refused =
        |bad: &str, why: &str| validated("gi-2-5", size(bad), &format!("options.size: found {why}"));
    refused("1000x1024", "1000x1024; both sides must be multiples of 16");
    refused("3856x2048", "3856x2048; a side has 3840 pixels at most");
    refused("3088x1024", "3088x1024; one side is at most 3 times the other");
    refused("1024x624", "1024x624, 638976 pixels; 655360 to 8294400 are accepted");
    refused("3840x2176", "3840x2176, 8355840 pixels; 655360 to 8294400 are accepted");
    refused("big", "\"big\"; WIDTHxHEIGHT in pixels is accepted");
    refused("1024 x 1024", "\"1024 x 1024\"; WIDTHxHEIGHT in pixels is accepted");
}

#[test]
fn a_size_overrides_ratio_and_resolution_and_so_decides_no_price() {
    validated(
        "gi-2-5",
        json!({"options": {"size": "1024x1024", "resolution": "2K"}}),
        "unpriced: the catalog has prices by resolution and aspect ratio, and none for an exact size\n\
         note: options.resolution: is not sent: size overrides it",
    );
    // Whatever they say: nobody reads them.
    let odd = json!({"options": {"size": "1024x1024", "resolution": "720p", "aspect_ratio": "7:5", "quality": "Low"}});
    assert_eq!(options("gi-2-5", odd["options"].clone()), json!({"size": "1024x1024", "quality": "Low"}));
}

#[test]
fn size_is_for_the_exact_pixel_family_only() {
    let size = json!({"options": {"size": "1024x1024"}});
    validated("gi-2", size, "options.size: gi-2 takes no exact pixels, leave it out");
}

#[test]
fn plans_cover_images_of_the_listed_models() {
    let allowance = |model: &str| {
        let fields = json!({"model": model, "prompt": "a fox"});
        quoted(Kind::Image, fields).unwrap().waivable
    };
    let covered = allowance("gi-2").unwrap();
    assert_eq!((covered.units, covered.rule.unit), (1, AllowanceUnit::Images));
    assert_eq!((covered.rule.pro_per_day, covered.rule.ultra_per_day), (25, 100));
    assert_eq!(allowance("gi-2-5").unwrap().rule.pool, covered.rule.pool, "one allowance for all of them");
    assert_eq!(allowance("x-flat"), None);
}

#[test]
fn fields_of_other_kinds() {
    validated(
        "gi-2",
        json!({"video_urls": ["https://h.example/v.mp4"]}),
        "video_urls: is not a field of image, but of video",
    );
    validated(
        "gi-2",
        json!({"options": {"duration": 5}}),
        "4 credits: Medium: 4\nnote: options.duration: is not an option of image, but of video; 5 is sent as it is, \
         unchecked",
    );
}
