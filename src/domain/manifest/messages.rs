//! Parts of messages: what was found, made fit to print, and the nearest name that is known.

use serde_json::Value;

use crate::domain::diagnostic::{Diagnostic, Position};

/// Found text is shown up to this many characters.
const SHOWN_CHARS: usize = 60;

/// Names longer than this are not compared with the known ones: nobody mistypes at such length.
const COMPARED_CHARS: usize = 64;

/// Below this likeness (Jaro-Winkler) a name is not what was meant.
const LIKENESS: f64 = 0.85;

/// A diagnostic of a value as one of `field`, which stands at `position`.
pub(super) fn placed(diagnostic: Diagnostic, field: &str, position: Position) -> Diagnostic {
    diagnostic.in_field(shortened(field)).positioned(position)
}

/// `text` in quotes, shortened, with its control characters escaped.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}

/// `text` shortened, with its control characters escaped.
pub(super) fn shortened(text: &str) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == SHOWN_CHARS {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A JSON value as a message names it.
pub(super) fn named(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The one of `names` that `found` was probably meant to be.
pub(super) fn nearest<'n>(found: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if found.chars().count() > COMPARED_CHARS {
        return None;
    }
    let found = plain(found);
    let letters = sorted(&found);
    let scored = names.into_iter().map(|name| {
        let name_plain = plain(name);
        // The same letters in another order: `modle` is `model`, however near `mode` is.
        let is_transposed = sorted(&name_plain) == letters;
        (is_transposed, strsim::jaro_winkler(&found, &name_plain), name)
    });
    let best = scored.max_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)))?;
    (best.1 >= LIKENESS).then_some(best.2)
}

fn sorted(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}

/// A name without what people vary: case, and what stands between its words.
pub(super) fn plain(name: &str) -> String {
    let letters = name.chars().filter(|character| !matches!(character, '_' | '-' | ' '));
    letters.flat_map(char::to_lowercase).collect()
}

/// A byte count in the largest unit that divides it.
pub(super) fn bytes(count: usize) -> String {
    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;
    match count {
        0 => "0 bytes".to_owned(),
        _ if count.is_multiple_of(MIB) => format!("{} MiB", count / MIB),
        _ if count.is_multiple_of(KIB) => format!("{} KiB", count / KIB),
        _ => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_text_is_short_and_printable() {
        assert_eq!(quoted("a\u{7}b\n"), r#""a\u{7}b\n""#);
        assert_eq!(quoted("Übermut 🎬"), "\"Übermut 🎬\"");
        assert_eq!(shortened(&"x".repeat(100)).chars().count(), SHOWN_CHARS + 1);
    }

    #[test]
    fn a_name_is_guessed_only_when_it_is_near() {
        let names = ["duration", "image_urls", "voice_id", "duration_seconds"];
        let check = |found, expected| assert_eq!(nearest(found, names), expected, "{found}");
        check("durration", Some("duration"));
        assert_eq!(nearest("modle", ["mode", "model", "model_id"]), Some("model"));
        check("Duration", Some("duration"));
        check("image-url", Some("image_urls"));
        check("voice", Some("voice_id"));
        check("durationSeconds", Some("duration_seconds"));
        check("banana", None);
        check(&"duration".repeat(100), None);
    }

    #[test]
    fn byte_counts_read_well() {
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(100), "100 bytes");
    }
}
