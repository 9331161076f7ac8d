//! What a video costs (Video cost; Price matrix shapes).

use std::collections::BTreeMap;

use rust_decimal::Decimal;

use super::audio_note::{AudioNote, audio_note};
use super::catalog::VideoMode;
use super::duration::{plain, seconds_of};
use super::price_formula::Priced;
use super::price_matrix::{Bound, Cell, Most, Pick, Prices, below, settle};

const WITH_AUDIO: &str = "with-audio";
const WITHOUT_AUDIO: &str = "without-audio";
const PER_GENERATION: &str = "per_generation";

/// What a price depends on, sent or defaulted.
pub(super) struct Terms {
    pub(super) resolution: Option<String>,
    pub(super) seconds: Option<Decimal>,
    pub(super) audio: bool,
    pub(super) video_sent: bool,
    /// Source seconds that are billed beside the output's, or why nobody can tell.
    pub(super) source_seconds: Result<Option<Decimal>, UnsaidSource>,
}

/// Nobody says whether the seconds of a source video are billed.
pub(super) struct UnsaidSource {
    pub(super) why: String,
    /// How many there are, where the request says so: more cannot be billed.
    pub(super) seconds: Option<Decimal>,
}

/// The price of a video, by the first of the catalog's fields that applies.
///
/// With a source video its own rates go first. Where a matrix and a rate both apply and disagree,
/// the catalog contradicts itself and there is no price.
pub(super) fn price(mode: &VideoMode, terms: &Terms) -> Priced {
    let with_video = mode.credits_per_second_with_video_input.as_ref().filter(|_| terms.video_sent);
    if let Some(rates) = with_video {
        return with_audio(per_second(rates, mode, terms), mode, terms);
    }
    let matrix = mode.credits.as_ref().map(|matrix| fixed(matrix, mode, terms));
    let rate = mode.credits_per_second.as_ref().map(|rates| per_second(rates, mode, terms));
    let base = match (matrix, rate) {
        (Some(matrix), Some(rate)) => agreeing(matrix, rate),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => Priced::unpriced("the catalog gives it no price"),
    };
    with_audio(base, mode, terms)
}

/// Whether the matrix has prices with and without audio.
pub(super) fn by_audio(mode: &VideoMode) -> bool {
    fn any(prices: &Prices) -> bool {
        match prices {
            Prices::By(map) => audio_keys(map) || map.values().any(any),
            _ => false,
        }
    }
    mode.credits.as_ref().is_some_and(any)
}

/// The durations that the matrix prices at a resolution, where it lists durations there.
pub(super) fn durations_at<'a>(mode: &'a VideoMode, resolution: &str) -> Option<Vec<&'a str>> {
    let (_, Prices::By(row)) = mode.credits.as_ref()?.below(resolution)? else { return None };
    if !duration_keys(row) {
        return None;
    }
    let mut durations: Vec<&str> = row.keys().map(String::as_str).collect();
    durations.sort_by_key(|text| seconds_of(text));
    Some(durations)
}

fn fixed(matrix: &Prices, mode: &VideoMode, terms: &Terms) -> Priced {
    match settle(matrix, 0, &|map, _| pick(map, mode, terms)) {
        Ok(cell) => Priced::fixed(&cell),
        Err(undecided) => Priced::undecided(undecided),
    }
}

/// The most seconds that can be billed, where the request or the mode's list says so.
fn most_seconds(mode: &VideoMode, terms: &Terms) -> Option<Decimal> {
    let listed = || {
        let durations = mode.durations.as_deref().filter(|list| !list.is_empty())?;
        let seconds: Option<Vec<Decimal>> = durations.iter().map(|text| seconds_of(text)).collect();
        seconds?.into_iter().max()
    };
    let output = terms.seconds.or_else(listed)?;
    let source = match &terms.source_seconds {
        Ok(source) => source.unwrap_or_default(),
        Err(unsaid) => unsaid.seconds?,
    };
    output.checked_add(source)
}

/// What a rate may come to where it, or the seconds, are undecided.
fn undecided_rate(why: impl Into<String>, rate: Most, mode: &VideoMode, terms: &Terms) -> Priced {
    let most = match most_seconds(mode, terms) {
        Some(seconds) => rate.times(seconds),
        None => Most { is_firm: false, ..rate },
    };
    Priced::at_most(why, most)
}

/// `ceil(rate x seconds)`, where some models bill source seconds too.
fn per_second(rates: &Prices, mode: &VideoMode, terms: &Terms) -> Priced {
    let Cell { price: rate, path } = match settle(rates, 0, &|map, _| pick(map, mode, terms)) {
        Ok(cell) => cell,
        Err(undecided) => return undecided_rate(undecided.why, undecided.most, mode, terms),
    };
    let undecided = |why: String| undecided_rate(why, Most { price: rate, is_firm: true }, mode, terms);
    let Some(output) = terms.seconds else {
        return undecided(format!("{}/s, and no duration is known", plain(rate)));
    };
    let source = match &terms.source_seconds {
        Ok(source) => *source,
        Err(unsaid) => return undecided(unsaid.why.clone()),
    };
    let billed = output.checked_add(source.unwrap_or_default());
    let seconds = match source {
        Some(source) => format!("({} s + {} s of source)", plain(output), plain(source)),
        None => format!("{} s", plain(output)),
    };
    let formula = format!("{seconds} x {}/s = ", plain(rate));
    let source = if source.is_some() { ", with source" } else { "" };
    let cell = format!("{}: {}/s{source}", path.join(", "), plain(rate));
    match billed.and_then(|billed| billed.checked_mul(rate)) {
        Some(total) => Priced::of(total, &formula, cell),
        None => Priced::unpriced(format!("{formula}more than can be counted")),
    }
}

fn agreeing(matrix: Priced, rate: Priced) -> Priced {
    let bound = Bound {
        dearest: matrix.bound.dearest.max(rate.bound.dearest),
        is_firm: matrix.bound.is_firm && rate.bound.is_firm,
    };
    match (matrix.credits, rate.credits) {
        (Some(a), Some(b)) if a != b => {
            let why = format!(
                "the catalog contradicts itself: {} by its matrix, {} by its rate",
                matrix.formula, rate.formula
            );
            Priced::at_most(why, bound)
        }
        (Some(_), None) => matrix,
        (None, None) => Priced { bound, ..rate },
        _ => rate,
    }
}

/// Multiplies the price by what the note says that audio does, unless the matrix chose by audio already.
fn with_audio(base: Priced, mode: &VideoMode, terms: &Terms) -> Priced {
    if !terms.audio || by_audio(mode) {
        return base;
    }
    match audio_note(mode.pricing_note.as_deref()) {
        AudioNote::Silent | AudioNote::Included => base,
        AudioNote::Times(factor) => base.times(factor),
        AudioNote::Unclear => base.unclear("the catalog's note about audio is not understood"),
    }
}

/// Decides one level of a matrix by what its keys are.
fn pick<'a>(map: &'a BTreeMap<String, Prices>, mode: &VideoMode, terms: &Terms) -> Pick<'a> {
    if audio_keys(map) {
        return by_key(map, if terms.audio { WITH_AUDIO } else { WITHOUT_AUDIO });
    }
    if let (1, Some((key, prices))) = (map.len(), map.get_key_value(PER_GENERATION)) {
        return Pick::Key(key, prices);
    }
    if resolution_keys(map, mode, terms) {
        return match &terms.resolution {
            Some(resolution) => by_key(map, resolution),
            None => Pick::Any("resolution"),
        };
    }
    if duration_keys(map) {
        return match terms.seconds {
            Some(seconds) => by_seconds(map, seconds),
            None => Pick::Any("duration"),
        };
    }
    // What is left is a quality, which no documented option of a video chooses.
    Pick::Any("quality")
}

fn by_key<'a>(map: &'a BTreeMap<String, Prices>, key: &str) -> Pick<'a> {
    match below(map, key) {
        Some((key, prices)) => Pick::Key(key, prices),
        None => Pick::Nothing(format!("the catalog lists no price for {key}")),
    }
}

fn by_seconds(map: &BTreeMap<String, Prices>, seconds: Decimal) -> Pick<'_> {
    match map.iter().find(|(key, _)| seconds_of(key) == Some(seconds)) {
        Some((key, prices)) => Pick::Key(key, prices),
        None => Pick::Nothing(format!("the catalog lists no price for {} s", plain(seconds))),
    }
}

fn audio_keys(map: &BTreeMap<String, Prices>) -> bool {
    !map.is_empty() && map.keys().all(|key| key == WITH_AUDIO || key == WITHOUT_AUDIO)
}

fn duration_keys(map: &BTreeMap<String, Prices>) -> bool {
    !map.is_empty() && map.keys().all(|key| seconds_of(key).is_some())
}

/// Whether a level is keyed by resolution: it has the chosen one, or one that the mode lists. A mode
/// that lists none and has one key only (`model-f-3`) needs no choice.
fn resolution_keys(map: &BTreeMap<String, Prices>, mode: &VideoMode, terms: &Terms) -> bool {
    let listed = mode.resolutions.as_deref().unwrap_or_default().iter().map(String::as_str);
    let mut known = listed.chain(terms.resolution.as_deref());
    let unlisted = mode.resolutions.is_none() && terms.resolution.is_some() && !duration_keys(map);
    known.any(|resolution| below(map, resolution).is_some()) || unlisted
}
