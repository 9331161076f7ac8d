//! Wording that the service refuses, in the forms in which people write it: `deep fakes`, `Face-Swapped`.

/// Most words that one expression is written in.
const JOINED_MAX: usize = 3;

/// A word of a text: where it begins and ends, and its letters in lower case.
pub(super) struct Word {
    begins: usize,
    ends: usize,
    letters: String,
}

/// The words of a text: what stands between them is left out.
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut is_within = false;
    for (at, character) in text.char_indices() {
        if !character.is_alphanumeric() {
            is_within = false;
            continue;
        }
        if !is_within {
            words.push(Word { begins: at, ends: at, letters: String::new() });
        }
        is_within = true;
        if let Some(word) = words.last_mut() {
            word.ends = at + character.len_utf8();
            word.letters.extend(character.to_lowercase());
        }
    }
    words
}

/// Where `text` says something that begins with the letters of `stem`, whether in one word or in a few.
pub(super) fn find<'t>(text: &'t str, words: &[Word], stem: &str) -> Option<&'t str> {
    let stem: String = self::words(stem).into_iter().map(|word| word.letters).collect();
    if stem.is_empty() {
        return None;
    }
    for (first, word) in words.iter().enumerate() {
        let mut letters = String::new();
        for last in words.iter().skip(first).take(JOINED_MAX) {
            letters.push_str(&last.letters);
            if letters.starts_with(&stem) {
                return text.get(word.begins..last.ends);
            }
            if !stem.starts_with(&letters) {
                break;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{find, words};

    #[test]
    fn an_expression_is_found_in_every_form_and_not_across_others() {
        let found = |text: &'static str, stem| find(text, &words(text), stem);
        assert_eq!(found("two DEEP-FAKES of", "deepfak"), Some("DEEP-FAKES"));
        assert_eq!(found("deepfaking", "deepfak"), Some("deepfaking"));
        assert_eq!(found("a face  swapped clip", "face swap"), Some("face  swapped"));
        assert_eq!(found("impersonating him", "impersonat"), Some("impersonating"));
        for innocent in ["the surface swap", "deep blue, fake", "a face, and a swap", "", "person"] {
            for stem in ["deepfak", "face swap", "impersonat", "", "-"] {
                assert_eq!(found(innocent, stem), None, "{innocent}");
            }
        }
    }
}
