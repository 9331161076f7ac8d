//! What a pricing note says about audio. It is prose, so it is read with suspicion.

use rust_decimal::Decimal;

/// What a `pricing_note` says about audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AudioNote {
    /// Nothing: audio costs no more.
    Silent,
    /// That it is included: audio costs no more.
    Included,
    /// Audio multiplies the price.
    Times(Decimal),
    /// Something about audio that is not understood: with audio there is no price.
    Unclear,
}

const AUDIO: [&str; 3] = ["audio", "sound", "soundtrack"];
const DOUBLING: [&str; 4] = ["double", "doubles", "doubled", "twice"];
const NEGATION: [&str; 6] = ["no", "not", "never", "cannot", "without", "except"];
/// Words that say that audio costs nothing beside the price.
const FREE: [&str; 7] = ["included", "includes", "include", "including", "inclusive", "incl", "free"];
/// Pairs of words that do.
const FREE_PAIRS: [(&[&str], &[&str]); 3] = [
    (&["no", "without", "zero"], &["extra", "additional", "surcharge", "charge", "cost", "costs", "fee"]),
    (&["same"], &["price", "cost", "rate", "credits"]),
    (&["costs", "cost"], &["nothing"]),
];
/// What may end an expression that begins as `no extra`.
const COSTS: [&str; 6] = ["cost", "costs", "charge", "charges", "credits", "fee"];
/// Words with which a clause about audio says something else than that it is free.
const COSTLY: [&str; 18] = [
    "extra",
    "additional",
    "additionally",
    "surcharge",
    "more",
    "plus",
    "charge",
    "charged",
    "fee",
    "premium",
    "triple",
    "half",
    "except",
    "only",
    "if",
    "unless",
    "optional",
    "excluded",
];

/// Reads a note by whole words, so that `1.2x` and `12x` are not `2x`. A note that mentions audio and
/// does not plainly say one multiplier or that audio is included, or that negates, is unclear rather than free.
pub(super) fn audio_note(note: Option<&str>) -> AudioNote {
    let note = plain(note.unwrap_or_default());
    let about_audio: Vec<Vec<&str>> = note
        .split(['\n', ';', '(', ')', '|'])
        .map(words)
        .filter(|words| words.iter().any(|word| AUDIO.contains(word)))
        .collect();
    if about_audio.is_empty() {
        return AudioNote::Silent;
    }
    if about_audio.iter().all(|clause| is_free(clause)) {
        return AudioNote::Included;
    }
    let all = words(&note);
    let negates = all.iter().any(|word| is_negation(word));
    // Beside a word that audio is included, a multiplier may be of anything.
    let is_mixed = about_audio.iter().flatten().any(|word| FREE.contains(word));
    let mut factors: Vec<Decimal> = all.iter().filter_map(|word| factor(word)).collect();
    factors.dedup();
    match factors.as_slice() {
        [factor] if !negates && !is_mixed && *factor >= Decimal::ONE => AudioNote::Times(*factor),
        _ => AudioNote::Unclear,
    }
}

/// `2x`, `x1.5`, `×2`, or a word for twice.
fn factor(word: &str) -> Option<Decimal> {
    if DOUBLING.contains(&word) {
        return Some(Decimal::TWO);
    }
    let number = word.strip_suffix(['x', '×']).or_else(|| word.strip_prefix(['x', '×']))?;
    number.parse().ok()
}

/// In lower case, with one kind of apostrophe. A full stop that is none of a number ends a clause, and such a comma is
/// a space.
fn plain(note: &str) -> String {
    let lower = note.to_lowercase().replace('\u{2019}', "'");
    let letters: Vec<char> = lower.chars().collect();
    let is_digit = |at: Option<usize>| at.and_then(|at| letters.get(at)).is_some_and(char::is_ascii_digit);
    let in_number = |at: usize| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    let stops = letters.iter().enumerate();
    let shown = stops.map(|(at, &letter)| match letter {
        '.' if !in_number(at) => ';',
        ',' if !in_number(at) => ' ',
        other => other,
    });
    shown.collect()
}

fn words(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | ',' | '×' | '\'')));
    words.map(|word| word.trim_matches('\'')).filter(|word| !word.is_empty()).collect()
}

fn is_negation(word: &str) -> bool {
    NEGATION.contains(&word) || word.ends_with("n't")
}

/// Whether a clause says of audio that it costs nothing, and nothing else: no number, no condition.
fn is_free(clause: &[&str]) -> bool {
    let mut is_free = false;
    let mut rest = clause;
    let mut before = "";
    while let Some((word, behind)) = rest.split_first() {
        let is_pair = |next: &&str| {
            FREE_PAIRS.iter().any(|(first, second)| first.contains(word) && second.contains(next))
        };
        rest = behind;
        if let Some((next, behind)) = behind.split_first().filter(|(next, _)| is_pair(next)) {
            is_free = true;
            before = next;
            rest = behind;
            while let Some((_, behind)) = rest.split_first().filter(|(noun, _)| COSTS.contains(noun)) {
                rest = behind;
            }
            continue;
        }
        let is_either = *word == "without" && before == "or";
        let has_number = word.chars().any(|c| c.is_numeric() || c == '×');
        if (is_negation(word) && !is_either) || has_number || DOUBLING.contains(word) || COSTLY.contains(word)
        {
            return false;
        }
        is_free |= FREE.contains(word);
        before = word;
    }
    is_free
}

#[cfg(test)]
mod tests {
    use rust_decimal::Decimal;

    use super::{AudioNote, audio_note};

    #[test]
    fn a_note_is_read_by_whole_words() {
        let read = |note| audio_note(Some(note));
        for doubles in ["Audio enabled costs 2x", "2x with audio.", "audio doubles the price", "Sound on: ×2"]
        {
            assert_eq!(read(doubles), AudioNote::Times(2.into()), "{doubles}");
        }
        for (note, tenths) in [("audio 1.2x", 12), ("Audio: 12x", 120), ("x1.5 with sound", 15)] {
            assert_eq!(read(note), AudioNote::Times(Decimal::new(tenths, 1)), "{note}");
        }
        for included in ["audio included", "Audio included at no extra cost", "sound is free"] {
            assert_eq!(read(included), AudioNote::Included, "{included}");
        }
        for unclear in [
            "audio does not double it",
            "audio is not included",
            "audio 1,5x",
            "audio 2x, 3x at 4k",
            "audio 0.5x",
            "audio included, 2x at 4k",
            "audio costs more",
        ] {
            assert_eq!(read(unclear), AudioNote::Unclear, "{unclear}");
        }
        for silent in ["", "2x at 4k", "50-240 credits"] {
            assert_eq!(read(silent), AudioNote::Silent, "{silent}");
        }
    }

    #[test]
    fn audio_that_is_included_costs_no_more() {
        for free in [
            "audio included",
            "Audio is included.",
            "Price includes audio",
            "Includes native audio; 2x at 4K",
            "2x at 4k. Sound included",
            "Audio at no extra cost",
            "No additional charge for audio",
            "Same price with or without audio",
            "Free audio",
            "per generation (audio incl.)",
            "with audio: no surcharge",
        ] {
            assert_eq!(audio_note(Some(free)), AudioNote::Included, "{free}");
        }
    }

    #[test]
    fn a_doubling_beside_what_else_is_included() {
        assert_eq!(
            audio_note(Some("Audio enabled costs 2x; watermark included")),
            AudioNote::Times(2.into())
        );
        assert_eq!(audio_note(Some("audio-enabled 2x")), AudioNote::Times(2.into()));
    }

    #[test]
    fn what_only_sounds_like_it_is_not_free() {
        for unclear in [
            "audio not included",
            "audio isn't included",
            "audio included up to 5 s",
            "audio included, +20%",
            "audio included at 1.5x",
            "Audio excluded",
            "audio extra",
            "free without audio",
            "audio isn’t included",
            "Included.Audio extra",
            "audio included; audio at 4k costs 30 more",
            "audio included in 720p only",
            "includes 2x audio",
            "audio 2x, watermark included",
            "no audio included",
        ] {
            assert_eq!(audio_note(Some(unclear)), AudioNote::Unclear, "{unclear}");
        }
    }
}
