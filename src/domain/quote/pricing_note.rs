//! What a pricing note says about audio. It is prose, so it is read with suspicion.

/// What a `pricing_note` says about audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AudioNote {
    /// Nothing: audio costs no more.
    Silent,
    /// Audio doubles the price.
    Doubles,
    /// Something about audio that is not understood: with audio there is no price.
    Unclear,
}

const DOUBLING: [&str; 9] = ["2x", "2×", "x2", "×2", "2.0x", "double", "doubles", "doubled", "twice"];
const NEGATION: [&str; 5] = ["no", "not", "never", "doesn't", "isn't"];

/// Reads a note by whole words, so that `1.2x` and `12x` are not `2x`. A note that mentions audio and
/// does not plainly say doubling, or that negates, is unclear rather than free.
pub(super) fn audio_note(note: Option<&str>) -> AudioNote {
    let note = note.unwrap_or_default().to_lowercase();
    let words: Vec<&str> = note
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '×' | '\'')))
        .map(|word| word.trim_matches(['.', '\'']))
        .collect();
    let says = |list: &[&str]| words.iter().any(|word| list.contains(word));
    match (says(&["audio", "sound"]), says(&DOUBLING), says(&NEGATION)) {
        (false, _, _) => AudioNote::Silent,
        (true, true, false) => AudioNote::Doubles,
        (true, _, _) => AudioNote::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::{AudioNote, audio_note};

    #[test]
    fn a_note_is_read_by_whole_words() {
        let read = |note| audio_note(Some(note));
        for doubles in ["Audio enabled costs 2x", "2x with audio.", "audio doubles the price", "Sound on: ×2"]
        {
            assert_eq!(read(doubles), AudioNote::Doubles, "{doubles}");
        }
        for unclear in ["audio 1.2x", "Audio: 12x", "audio does not double it", "audio included"] {
            assert_eq!(read(unclear), AudioNote::Unclear, "{unclear}");
        }
        for silent in ["", "2x at 4k", "50-240 credits"] {
            assert_eq!(read(silent), AudioNote::Silent, "{silent}");
        }
    }
}
