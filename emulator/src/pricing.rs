//! Prices, from the catalog and the sent or defaulted values (document: "Video cost", image cost, "Limits").
//!
//! All arithmetic is decimal: a rate such as 7.5 times a length such as 4.2 seconds is rounded up once, exactly.

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::catalog::{ImageMode, SpeechRate, VideoMode};

/// Models that bill the source video's seconds besides the output's.
const BILLS_SOURCE: [&str; 3] = ["model-s-2-0", "model-s-2-0-fast", "model-s-2-mini"];
/// At most so many source seconds are billed.
const SOURCE_SECONDS_BILLED: u64 = 15;

/// The values that decide a video's price.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VideoAsk<'a> {
    /// The model's id in the document, whose rules it has.
    pub(crate) rules_of: &'a str,
    pub(crate) duration: Option<&'a str>,
    pub(crate) resolution: Option<&'a str>,
    pub(crate) quality: Option<&'a str>,
    pub(crate) audio: bool,
    pub(crate) has_video: bool,
    pub(crate) source_seconds: Option<Decimal>,
}

/// Why there is no price: the catalog has no cell for the combination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoPrice;

/// The price of a video in whole credits. A price is whole before audio multiplies it.
pub(crate) fn video(mode: &VideoMode, ask: &VideoAsk<'_>) -> Result<u64, NoPrice> {
    let base = if mode.credits_per_second.is_some() || mode.credits_per_second_with_video_input.is_some() {
        per_second(mode, ask)?
    } else {
        from_matrix(mode, ask)?
    };
    let base = whole(base)?;
    if !ask.audio || chooses_by_audio(mode) {
        return Ok(base);
    }
    let factor = mode.pricing_note.as_deref().map_or(Decimal::ONE, audio_factor);
    whole(Decimal::from(base).checked_mul(factor).ok_or(NoPrice)?)
}

/// Whether the matrix has prices of its own with and without audio.
fn chooses_by_audio(mode: &VideoMode) -> bool {
    let rows = mode.credits.iter().flat_map(|matrix| matrix.values());
    rows.into_iter().any(|row| row.contains_key("with-audio"))
}

/// By what a note says that audio multiplies the price: `Audio enabled costs 2x`, `audio: x1.5`, `audio doubles`.
fn audio_factor(note: &str) -> Decimal {
    let note = note.to_lowercase();
    let mentions = |text: &str| text.contains("audio") || text.contains("sound");
    let is_free = |text: &str| ["included", "free", "no extra"].iter().any(|word| text.contains(word));
    let mut clauses = note.split([';', ',', '(', ')']);
    if !mentions(&note) || clauses.any(|clause| mentions(clause) && is_free(clause)) {
        return Decimal::ONE;
    }
    let words: Vec<&str> = note
        .split(|c: char| c.is_whitespace() || ",;:()".contains(c))
        .map(|word| word.trim_end_matches('.'))
        .collect();
    let factor = |word: &&str| {
        let number = word.strip_suffix(['x', '×']).or_else(|| word.strip_prefix(['x', '×']))?;
        number.parse::<Decimal>().ok().filter(|factor| *factor > Decimal::ZERO)
    };
    let says = |list: &[&str]| words.iter().any(|word| list.contains(word));
    let doubles =
        says(&["double", "doubles", "doubled", "twice"]) && !says(&["not", "never", "doesn't", "no"]);
    let spelled = if doubles { Decimal::TWO } else { Decimal::ONE };
    words.iter().find_map(factor).unwrap_or(spelled)
}

fn per_second(mode: &VideoMode, ask: &VideoAsk<'_>) -> Result<Decimal, NoPrice> {
    let with_video = mode.credits_per_second_with_video_input.as_ref().filter(|_| ask.has_video);
    let rates = with_video.or(mode.credits_per_second.as_ref()).ok_or(NoPrice)?;
    let rate = match ask.resolution {
        Some(resolution) => {
            rates.iter().find(|(key, _)| key.eq_ignore_ascii_case(resolution)).map(|(_, rate)| rate)
        }
        None => rates.values().next().filter(|_| rates.len() == 1),
    };
    let mut seconds = ask.duration.and_then(seconds_of).ok_or(NoPrice)?;
    if ask.has_video && BILLS_SOURCE.contains(&ask.rules_of) {
        let source = ask.source_seconds.ok_or(NoPrice)?.min(Decimal::from(SOURCE_SECONDS_BILLED));
        seconds = seconds.checked_add(source).ok_or(NoPrice)?;
    }
    rate.ok_or(NoPrice)?.0.checked_mul(seconds).ok_or(NoPrice)
}

fn from_matrix(mode: &VideoMode, ask: &VideoAsk<'_>) -> Result<Decimal, NoPrice> {
    let matrix = mode.credits.as_ref().ok_or(NoPrice)?;
    let sound = if ask.audio { "with-audio" } else { "without-audio" };
    if let Some(row) = ask.duration.and_then(|duration| matrix.get(duration)) {
        return row.get(sound).map(|amount| amount.0).ok_or(NoPrice);
    }
    let named = |name: Option<&str>| {
        let name = name?;
        matrix.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, row)| row)
    };
    // A matrix with one row has one price whatever the row is called: `model-f-3` and `model-s-1-0-pro`.
    let only = || matrix.values().next().filter(|_| matrix.len() == 1);
    let row = named(ask.resolution).or_else(|| named(ask.quality)).or_else(only).ok_or(NoPrice)?;
    let cell = ask.duration.and_then(|duration| row.get(duration)).or_else(|| row.get("per_generation"));
    cell.map(|amount| amount.0).ok_or(NoPrice)
}

/// Whether the matrix knows this duration at this resolution (`model-r` has fewer at `1080p`).
pub(crate) fn durations_at<'a>(mode: &'a VideoMode, resolution: &str) -> Option<Vec<&'a str>> {
    let row = mode.credits.as_ref()?.get(resolution)?;
    let listed: Vec<&str> =
        mode.durations.iter().map(String::as_str).filter(|d| row.contains_key(*d)).collect();
    (!listed.is_empty()).then_some(listed)
}

/// The seconds of a catalog duration such as `5s`.
pub(crate) fn seconds_of(duration: &str) -> Option<Decimal> {
    duration.trim_end_matches('s').parse().ok()
}

/// The values that decide an image's price.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ImageAsk<'a> {
    pub(crate) quality: Option<&'a str>,
    pub(crate) resolution: Option<&'a str>,
    pub(crate) aspect_ratio: Option<&'a str>,
}

/// The price of an image in whole credits.
pub(crate) fn image(mode: &ImageMode, ask: ImageAsk<'_>) -> Result<u64, NoPrice> {
    let amount = if let Some(nested) = &mode.credits_by_resolution_and_aspect_ratio {
        let by_ratio = ask.resolution.and_then(|r| nested.get(r)).ok_or(NoPrice)?;
        let by_quality = ask.aspect_ratio.and_then(|a| by_ratio.get(a)).ok_or(NoPrice)?;
        ask.quality.and_then(|q| by_quality.get(q))
    } else if let Some(credits) = &mode.credits {
        ask.quality.and_then(|q| credits.get(q))
    } else {
        mode.credits_per_generation.as_ref()
    };
    whole(amount.ok_or(NoPrice)?.0)
}

/// Music: `max(60, ceil(duration_seconds))`, or more than 60 where the catalog has a higher base.
pub(crate) fn music(base: Decimal, duration_seconds: Decimal) -> u64 {
    whole(base.max(duration_seconds).max(Decimal::from(60))).unwrap_or(u64::MAX)
}

/// Speech: a credit for so many characters of the trimmed text, and at least the catalog's minimum.
pub(crate) fn speech(rate: SpeechRate, characters: usize) -> u64 {
    let credits = Decimal::from(characters).checked_div(rate.characters_per_credit);
    credits.and_then(|credits| whole(credits.max(rate.minimum_credits)).ok()).unwrap_or(u64::MAX)
}

fn whole(amount: Decimal) -> Result<u64, NoPrice> {
    amount.ceil().to_u64().ok_or(NoPrice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn price(model: &str, mode: &str, ask: VideoAsk<'_>) -> Result<u64, NoPrice> {
        let catalog = Catalog::built_in().unwrap();
        video(&catalog.video_model(model).unwrap().modes[mode], &VideoAsk { rules_of: model, ..ask })
    }

    fn ask<'a>(duration: &'a str, resolution: &'a str) -> VideoAsk<'a> {
        VideoAsk { duration: Some(duration), resolution: Some(resolution), ..VideoAsk::default() }
    }

    #[test]
    fn credits_per_second_is_the_ceiling_of_rate_times_seconds() {
        assert_eq!(price("house-c1", "text-to-video", ask("5s", "768P")), Ok(10));
        assert_eq!(price("model-s-2-mini", "text-to-video", ask("5s", "720p")), Ok(38));
    }

    #[test]
    fn a_source_video_has_its_own_rates_and_bills_at_most_15_source_seconds() {
        let with = |model, seconds: &str, mode, duration, resolution| {
            let source_seconds = Some(seconds.parse().unwrap());
            price(model, mode, VideoAsk { has_video: true, source_seconds, ..ask(duration, resolution) })
        };
        // 7.9 * (4 + 4.2) = 64.78; 7.9 * (4 + 15) = 150.1; H3 bills its output alone: 3.5 * 5 = 17.5.
        assert_eq!(with("model-s-2-mini", "4.2", "reference-to-video", "4s", "720p"), Ok(65));
        assert_eq!(with("model-s-2-mini", "99", "reference-to-video", "4s", "720p"), Ok(151));
        assert_eq!(with("model-h3", "9", "video-to-video", "5s", "768P"), Ok(18));
    }

    #[test]
    fn every_matrix_shape_has_its_price() {
        assert_eq!(price("model-x-imagine", "text-to-video", ask("10s", "720p")), Ok(45));
        let fixed = VideoAsk { resolution: Some("4k"), ..VideoAsk::default() };
        assert_eq!(price("model-v-3-1", "text-to-video", fixed), Ok(285));
        let k = |audio| VideoAsk { duration: Some("10s"), audio, ..VideoAsk::default() };
        assert_eq!(price("model-k-2-6", "text-to-video", k(true)), Ok(220));
        assert_eq!(price("model-k-2-6", "text-to-video", k(false)), Ok(110));
        assert_eq!(price("model-s-1-0-pro", "text-to-video", ask("5s", "1080p")), Ok(14));
        let f = VideoAsk { duration: Some("20s"), ..VideoAsk::default() };
        assert_eq!(price("model-f-3", "frames-to-video", f), Ok(320));
        assert_eq!(price("model-r", "text-to-video", ask("10s", "1080p")), Err(NoPrice));
    }

    #[test]
    fn a_pricing_note_that_says_so_doubles_the_price_with_audio() {
        let loud = VideoAsk { audio: true, ..ask("12s", "1080p") };
        assert_eq!(price("model-s-1-5-pro", "text-to-video", loud), Ok(90));
        assert_eq!(price("model-s-1-5-pro", "text-to-video", ask("12s", "1080p")), Ok(45));
    }

    #[test]
    fn a_note_says_by_how_much_audio_multiplies() {
        for (note, factor) in [
            ("Audio enabled costs 2x", "2"),
            ("audio 1.2x", "1.2"),
            ("Audio: x1.5.", "1.5"),
            ("12x with sound", "12"),
            ("audio doubles the price", "2"),
            ("audio does not double it", "1"),
            ("audio included", "1"),
            ("2x at 4k, audio included", "1"),
            ("2x at 4k", "1"),
            ("", "1"),
        ] {
            assert_eq!(audio_factor(note), factor.parse().unwrap(), "{note}");
        }
    }

    #[test]
    fn a_price_is_whole_before_audio_multiplies_it() {
        let mode: VideoMode = serde_json::from_value(serde_json::json!({
            "credits_per_second": {"720p": 1.5}, "pricing_note": "Audio enabled costs 2x"
        }))
        .unwrap();
        // 1.5 a second for 3 seconds is 4.5, which is 5; twice that is 10, and not 9.
        let loud = VideoAsk { audio: true, ..ask("3s", "720P") };
        assert_eq!((video(&mode, &ask("3s", "720p")), video(&mode, &loud)), (Ok(5), Ok(10)));
    }

    #[test]
    fn music_speech_and_their_edges() {
        let music_of = |text: &str| music(Decimal::from(60), text.parse().unwrap());
        assert_eq!((music_of("3"), music_of("60"), music_of("60.01"), music_of("300")), (60, 60, 61, 300));
        let with_base = |base: u64| music(Decimal::from(base), Decimal::from(10));
        assert_eq!([0, 30, 90].map(with_base), [60, 60, 90], "the document's minimum stays");
        let speech_of = |per_credit: u64, least: u64, characters| {
            let rate = SpeechRate {
                characters_per_credit: Decimal::from(per_credit),
                minimum_credits: Decimal::from(least),
            };
            speech(rate, characters)
        };
        let documented = |characters| speech_of(20, 1, characters);
        assert_eq!([1, 19, 20, 21, 1000].map(documented), [1, 1, 1, 2, 50]);
        assert_eq!([1, 50, 51, 1000].map(|characters| speech_of(25, 2, characters)), [2, 2, 3, 40]);
    }

    #[test]
    fn every_models_prices_stay_inside_the_documents_range() {
        let range = |label: &str| {
            let digits =
                |s: &str| s.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap();
            let parts: Vec<u64> = label.split('–').map(digits).collect();
            (parts[0], *parts.last().unwrap(), label.contains("per second"))
        };
        let catalog = Catalog::built_in().unwrap();
        let served = catalog.models(None);
        for (model, raw) in catalog.video.iter().zip(served.as_array().unwrap()) {
            let (low, high, rates) = range(raw["credits_label"].as_str().unwrap());
            let mut seen = Vec::new();
            for mode in model.modes.values() {
                let none = vec![None];
                let some = |list: &Vec<String>| -> Vec<Option<String>> {
                    if list.is_empty() { none.clone() } else { list.iter().cloned().map(Some).collect() }
                };
                for (duration, resolution) in some(&mode.durations)
                    .into_iter()
                    .flat_map(|d| some(&mode.resolutions).into_iter().map(move |r| (d.clone(), r)))
                {
                    for audio in [false, true] {
                        let ask = VideoAsk {
                            rules_of: &model.id,
                            duration: duration.as_deref(),
                            resolution: resolution.as_deref(),
                            audio: audio && mode.audio_toggle,
                            ..VideoAsk::default()
                        };
                        if let Ok(price) = video(mode, &ask) {
                            let seconds = duration.as_deref().and_then(seconds_of).and_then(|s| s.to_u64());
                            seen.push(if rates { price / seconds.unwrap() } else { price });
                        }
                    }
                }
            }
            assert_eq!(
                (*seen.iter().min().unwrap(), *seen.iter().max().unwrap()),
                (low, high),
                "{}",
                model.id
            );
        }
    }
}
