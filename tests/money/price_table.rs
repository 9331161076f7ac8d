//! The plan against the bill: every model, mode, resolution, duration and audio of a full catalog is
//! quoted by the client and bought from the emulator. The two share no code; the price must be the
//! charge, and what one refuses the other must refuse. So it is with the built-in catalog, and with a recorded one
//! that has other ids, other units and other notes. A plain run takes a fourth of the combinations.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

use callsheet::domain::quote::{Catalog, Rules, RulesExtension, quote, reprice};
use callsheet::domain::request::{Kind, Request};
use callsheet_emulator::{self as emulator, DEFAULT_API_KEY, Emulator, Options, Plan};
use serde_json::{Map, Value, json};

use crate::support::case_share;

/// A client's desk and a shop that was never shown its rules.
struct Market {
    emulator: Emulator,
    http: reqwest::Client,
    catalog: Catalog,
    rules: Rules,
    bought: usize,
    /// Bought without an exact price, at no more than the bound.
    bounded: usize,
    refused: usize,
    wrong: Vec<String>,
}

impl Market {
    async fn open() -> Market {
        Market::with(Rules::builtin(), Options::default()).await
    }

    /// A shop that serves what was recorded; the client is told the same of its ids.
    async fn recorded(plan: Plan) -> Market {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recorded_catalog.json");
        let recorded: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let like = |(id, like): (&String, &Value)| (id.clone(), json!({"inherit": like}));
        let models = recorded["rules"]["inherit"].as_object().unwrap().iter().map(like);
        let extension: RulesExtension =
            serde_json::from_value(json!({"models": models.collect::<Map<_, _>>()})).unwrap();
        let rules = Rules::builtin().extended(extension).unwrap();
        Market::with(rules, Options { catalog: Some(file), plan, ..Options::default() }).await
    }

    async fn with(rules: Rules, options: Options) -> Market {
        let options = Options { speed: f64::INFINITY, credits: u64::MAX / 4, ..options };
        let emulator = emulator::start(options).await.unwrap();
        let http = crate::support::http_client().build().unwrap();
        let mut parts = BTreeMap::new();
        for (name, path) in [
            ("video", "models"),
            ("image", "models?type=image"),
            ("music", "models?type=music"),
            ("voices", "voices"),
        ] {
            let url = format!("{}/api/v1/{path}", emulator.base_url());
            let answer: Value = http.get(url).send().await.unwrap().json().await.unwrap();
            parts.insert(name, answer["data"].clone());
        }
        let catalog = Catalog::of(&parts["video"], &parts["image"], &parts["music"], &parts["voices"]);
        assert!(catalog.oddities.is_empty(), "{:?}", catalog.oddities);
        Market { emulator, http, catalog, rules, bought: 0, bounded: 0, refused: 0, wrong: Vec::new() }
    }

    /// Quotes the request, then buys it: as quoted when the quote accepts it, as written when not.
    async fn compare(&mut self, kind: Kind, request: &Request) {
        let quoted = quote(Some(kind), request, &self.catalog, &self.rules);
        let body = match &quoted {
            Ok(quote) => Value::Object(quote.body.clone()),
            Err(_) => serde_json::to_value(request).unwrap(),
        };
        if let Ok(quote) = &quoted {
            let again = reprice(kind, &quote.body, &self.catalog, &self.rules);
            assert_eq!(
                again.as_ref(),
                Ok(&quote.cost()),
                "{kind} {body}: a queued job is priced as a new row is"
            );
        }
        let url = format!("{}{}", self.emulator.base_url(), kind.endpoint());
        let answer = self.http.post(url).bearer_auth(DEFAULT_API_KEY).json(&body).send().await.unwrap();
        let status = answer.status().as_u16();
        let answer: Value = answer.json().await.unwrap();
        let charged = answer["data"]["costCredits"].as_u64();
        let verdict = match (&quoted, charged) {
            (Ok(quote), Some(charged)) => match quote.price {
                None if quote.bound.is_firm && charged <= quote.bound.dearest.0 => {
                    self.bounded += 1;
                    return;
                }
                Some(price) if price.0 == charged => {
                    self.bought += 1;
                    return;
                }
                other => format!("quoted {other:?} ({}), charged {charged}", quote.formula),
            },
            (Err(_), None) if status == 400 => {
                self.refused += 1;
                return;
            }
            (Ok(quote), None) => format!("quoted {:?}, refused: {}", quote.price, answer["message"]),
            (Err(findings), _) => {
                format!("refused by the quote: {findings:?}; the shop said {status} {charged:?}")
            }
        };
        self.wrong.push(format!("{kind} {body}: {verdict}"));
    }

    fn settle(self, least: usize) {
        let shown: Vec<&String> = self.wrong.iter().take(20).collect();
        assert!(self.wrong.is_empty(), "{} wrong, first: {shown:#?}", self.wrong.len());
        assert!(
            self.bought >= least,
            "only {} combinations were bought, {} refused",
            self.bought,
            self.refused
        );
    }
}

fn options(pairs: &[(&str, Option<Value>)]) -> Map<String, Value> {
    let given = pairs.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)));
    given.collect()
}

/// `None`, then each of the values.
fn omitted_or(values: &[String]) -> Vec<Option<Value>> {
    let given = values.iter().map(|value| Some(json!(value)));
    std::iter::once(None).chain(given).collect()
}

fn urls(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("https://files.example/{what}-{n}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_video_mode_resolution_duration_and_audio() {
    let mut market = Market::open().await;
    assert_eq!(market.catalog.video.iter().count(), 23);
    videos(&mut market, 0).await;
    market.settle(1_000 / case_share::one_of());
}

/// Which combinations this run takes. They are drawn: each fourth would always be the same value of an option that has four.
struct Draw(fastrand::Rng);

impl Draw {
    fn with_seed(seed: u64) -> Draw {
        Draw(fastrand::Rng::with_seed(seed))
    }

    fn takes_next(&mut self) -> bool {
        self.0.usize(..case_share::one_of()) == 0
    }
}

async fn videos(market: &mut Market, seed: u64) {
    let mut draw = Draw::with_seed(seed);
    let models: Vec<_> = market.catalog.video.iter().cloned().collect();
    for model in &models {
        for (mode, limits) in &model.modes {
            let (images, videos) = least_inputs(market, &model.about.id, mode);
            let durations = limits.durations.clone().unwrap_or_default();
            let resolutions = limits.resolutions.clone().unwrap_or_default();
            for resolution in omitted_or(&resolutions) {
                for duration in omitted_or(&durations) {
                    for audio in [None, Some(json!(false)), Some(json!(true))] {
                        if !draw.takes_next() {
                            continue;
                        }
                        let seconds = (videos > 0).then(|| json!(7.5));
                        let request = Request {
                            model: Some(model.about.id.clone()),
                            prompt: Some("a paper boat".into()),
                            mode: Some(mode.clone()),
                            image_urls: urls("image.png", images),
                            video_urls: urls("video.mp4", videos),
                            options: options(&[
                                ("resolution", resolution.clone()),
                                ("duration", duration.clone()),
                                ("audio", audio),
                                ("source_video_duration_seconds", seconds),
                            ]),
                            ..Request::default()
                        };
                        market.compare(Kind::Video, &request).await;
                    }
                }
            }
        }
    }
}

/// The fewest images and videos with which the quote accepts the mode's defaults.
fn least_inputs(market: &Market, model: &str, mode: &str) -> (usize, usize) {
    for videos in 0..=1 {
        for images in 0..=9 {
            let request = Request {
                model: Some(model.into()),
                prompt: Some("a paper boat".into()),
                mode: Some(mode.into()),
                image_urls: urls("image.png", images),
                video_urls: urls("video.mp4", videos),
                options: options(&[("source_video_duration_seconds", (videos > 0).then(|| json!(7.5)))]),
                ..Request::default()
            };
            if quote(Some(Kind::Video), &request, &market.catalog, &market.rules).is_ok() {
                return (images, videos);
            }
        }
    }
    panic!("no inputs fit {model} {mode}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_count_of_images_and_videos() {
    let mut market = Market::open().await;
    let mut draw = Draw::with_seed(1);
    let models: Vec<_> = market.catalog.video.iter().cloned().collect();
    for model in &models {
        for mode in model.modes.keys() {
            for images in 0..=10 {
                for videos in 0..=2 {
                    for seconds in [None, Some(json!(4)), Some(json!(9.2)), Some(json!(20))] {
                        // Longer than the provider takes: accepted and charged, then failed and refunded.
                        if model.about.id == "model-g-omni" && seconds == Some(json!(20)) {
                            continue;
                        }
                        if !draw.takes_next() {
                            continue;
                        }
                        let request = Request {
                            model: Some(model.about.id.clone()),
                            prompt: Some("a paper boat".into()),
                            mode: Some(mode.clone()),
                            image_urls: urls("image.png", images),
                            video_urls: urls("video.mp4", videos),
                            options: options(&[("source_video_duration_seconds", seconds)]),
                            ..Request::default()
                        };
                        market.compare(Kind::Video, &request).await;
                    }
                }
            }
        }
    }
    market.settle(300 / case_share::one_of());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_image_scene_quality_resolution_and_ratio() {
    let mut market = Market::open().await;
    images(&mut market, 0).await;
    market.settle(200 / case_share::one_of());
}

async fn images(market: &mut Market, seed: u64) {
    let mut draw = Draw::with_seed(seed);
    let models: Vec<_> = market.catalog.image.iter().cloned().collect();
    for model in &models {
        for (scene, limits) in &model.modes {
            let has_resolutions = limits.credits_by_resolution_and_aspect_ratio.is_some();
            let resolutions: &[&str] = if has_resolutions { &["1K", "2K", "4K"] } else { &[] };
            let resolutions: Vec<String> = resolutions.iter().map(|text| (*text).to_owned()).collect();
            for quality in omitted_or(&limits.qualities) {
                for ratio in omitted_or(&limits.aspect_ratios) {
                    for resolution in omitted_or(&resolutions) {
                        if !draw.takes_next() {
                            continue;
                        }
                        let request = Request {
                            model: Some(model.about.id.clone()),
                            prompt: Some("a harbour".into()),
                            scene: Some(scene.clone()),
                            image_urls: urls("image.png", usize::from(scene == "image-to-image")),
                            options: options(&[
                                ("quality", quality.clone()),
                                ("aspect_ratio", ratio.clone()),
                                ("resolution", resolution.clone()),
                            ]),
                            ..Request::default()
                        };
                        market.compare(Kind::Image, &request).await;
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn music_speech_and_sound_effects_at_every_bound() {
    let mut market = Market::open().await;
    sounds(&mut market).await;
    market.settle(20);
}

async fn sounds(market: &mut Market) {
    let voice = market.catalog.voices.voices.iter().next().unwrap().id.clone();
    for seconds in
        [2.9, 3.0, 59.5, 60.0, 60.2, 61.0, 79.0, 80.0, 80.5, 81.0, 300.0, 300.5].map(|seconds| json!(seconds))
    {
        let request = Request {
            prompt: Some("slow piano".into()),
            options: options(&[("duration_seconds", Some(seconds))]),
            ..Request::default()
        };
        market.compare(Kind::Music, &request).await;
    }
    for characters in [1, 19, 20, 21, 25, 26, 40, 41, 50, 51, 75, 76, 999, 1000, 1001] {
        let text = Some(format!("  {}  ", "é".repeat(characters)));
        let request = Request { text, voice_id: Some(voice.clone()), ..Request::default() };
        market.compare(Kind::Speech, &request).await;
    }
    for seconds in [None, Some(json!(0.4)), Some(json!(0.5)), Some(json!(22)), Some(json!(22.1))] {
        for influence in [None, Some(json!(-0.1)), Some(json!(0)), Some(json!(1)), Some(json!(1.1))] {
            let given = options(&[("duration_seconds", seconds.clone()), ("prompt_influence", influence)]);
            let request = Request { prompt: Some("a gull".into()), options: given, ..Request::default() };
            market.compare(Kind::SoundEffect, &request).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_catalog_with_other_ids_units_and_notes_is_charged_as_it_is_quoted() {
    let mut market = Market::recorded(Plan::None).await;
    assert!(market.catalog.video.get("lumen-2").is_some() && market.catalog.video.get("house-c1").is_none());
    videos(&mut market, 2).await;
    images(&mut market, 2).await;
    sounds(&mut market).await;
    market.settle(500 / case_share::one_of());
}

/// Which allowance covers what is decided by the document's id that an id of the catalog stands for.
#[tokio::test(flavor = "multi_thread")]
async fn the_allowances_of_a_recorded_catalog_cover_what_the_quote_says_they_may() {
    let market = Market::recorded(Plan::Ultra).await;
    let video = |model: &str| (Kind::Video, model.to_owned());
    let image = |model: &str| (Kind::Image, model.to_owned());
    let mut covered = Vec::new();
    for (kind, model) in [
        video("lumen-2"),
        video("kite-fast"),
        image("pict-1"),
        image("pict-2-5"),
        image("pict-plain"),
        image("sign-4"),
    ] {
        let request =
            Request { model: Some(model.clone()), prompt: Some("a harbour".into()), ..Request::default() };
        let quoted = quote(Some(kind), &request, &market.catalog, &market.rules).unwrap();
        let url = format!("{}{}", market.emulator.base_url(), kind.endpoint());
        let body = Value::Object(quoted.body.clone());
        let answer = market.http.post(url).bearer_auth(DEFAULT_API_KEY).json(&body).send().await.unwrap();
        let task = answer.json::<Value>().await.unwrap()["data"].clone();
        let price = quoted.price.unwrap().0;
        if quoted.waivable.is_some() {
            assert_eq!((&task["costCredits"], &task["waivedCredits"]), (&json!(0), &json!(price)), "{model}");
            covered.push(model);
        } else {
            assert_eq!((&task["costCredits"], &task["waivedCredits"]), (&json!(price), &json!(0)), "{model}");
        }
    }
    assert_eq!(covered, ["lumen-2", "pict-1", "pict-2-5", "pict-plain"]);
}
