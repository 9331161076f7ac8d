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

const DOUBLING: [&str; 4] = ["double", "doubles", "doubled", "twice"];
const INCLUDED: [&str; 3] = ["included", "includes", "free"];
const NEGATION: [&str; 7] = ["not", "never", "doesn't", "isn't", "aren't", "without", "except"];

/// Reads a note by whole words, so that `1.2x` and `12x` are not `2x`. A note that mentions audio and
/// does not plainly say one multiplier or that audio is included, or that negates, is unclear rather than free.
pub(super) fn audio_note(note: Option<&str>) -> AudioNote {
    let note = note.unwrap_or_default().to_lowercase();
    let words: Vec<&str> = note
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | ',' | '×' | '\'')))
        .map(|word| word.trim_matches(['.', ',', '\'']))
        .collect();
    let says = |list: &[&str]| words.iter().any(|word| list.contains(word));
    if !says(&["audio", "sound"]) {
        return AudioNote::Silent;
    }
    let mut factors: Vec<Decimal> = words.iter().filter_map(|word| factor(word)).collect();
    factors.dedup();
    match (factors.as_slice(), says(&INCLUDED), says(&NEGATION)) {
        ([factor], false, false) if !says(&["no"]) && *factor >= Decimal::ONE => AudioNote::Times(*factor),
        ([], true, false) => AudioNote::Included,
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
}
