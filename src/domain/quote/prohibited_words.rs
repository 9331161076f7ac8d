//! Wording that the service refuses, in the forms in which people write it: `deep fakes`, `Face-Swapped`.

/// Most words that one expression is written in.
const JOINED_MAX: usize = 3;

/// Expressions that the service refuses, each by how it begins, in the forms in which texts are searched for them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Expressions {
    list: Vec<Expression>,
    beginnings: Beginnings,
}

/// How many letters of a text in a row are looked at before the whole of it is searched.
const BEGINNING: usize = 3;
/// By how many bits a letter moves those before it in a hash, which holds as many letters.
const LETTER_BITS: usize = 5;
const HASH_BITS: usize = BEGINNING * LETTER_BITS;

/// The first letters of all expressions, as hashes: a text that has none of them in a row, whatever stands between, says
/// none of the expressions.
#[derive(Debug, Clone, Default, PartialEq)]
struct Beginnings {
    /// By hash. Empty where an expression has too few letters, or others than those of ASCII.
    is_one: Vec<bool>,
}

/// The hash of the letters so far, with one more.
fn hash_with(hash: usize, place: usize) -> usize {
    ((hash << LETTER_BITS) ^ place) & ((1 << HASH_BITS) - 1)
}

impl Beginnings {
    fn of(list: &[Expression]) -> Beginnings {
        let mut is_one = vec![false; 1 << HASH_BITS];
        for expression in list {
            let letters = expression.letters.as_bytes().get(..BEGINNING);
            let hash = letters.and_then(|letters| {
                letters.iter().try_fold(0, |hash, letter| Some(hash_with(hash, place_of(*letter)?)))
            });
            match hash {
                Some(hash) => is_one[hash] = true,
                None => return Beginnings::default(),
            }
        }
        Beginnings { is_one }
    }

    /// Whether a text has to be searched.
    fn may_be_in(&self, text: &str) -> bool {
        if self.is_one.is_empty() || !text.is_ascii() {
            return true;
        }
        let mut hash = 0;
        // Fewer letters may have the hash of a beginning, too: then the text is searched without a result.
        text.bytes().filter_map(place_of).any(|place| {
            hash = hash_with(hash, place);
            self.is_one[hash]
        })
    }
}

/// The place of a letter or digit of ASCII in the alphabet.
fn place_of(byte: u8) -> Option<usize> {
    match byte {
        b'a'..=b'z' => Some(usize::from(byte - b'a')),
        b'A'..=b'Z' => Some(usize::from(byte - b'A')),
        b'0'..=b'9' => Some(26 + usize::from(byte - b'0')),
        _ => None,
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Expression {
    /// As it was given.
    given: String,
    /// Its letters and digits alone, in lower case.
    letters: String,
    /// As it was given, in lower case.
    lower: String,
}

impl Expressions {
    pub(super) fn new(list: impl IntoIterator<Item = String>) -> Expressions {
        let mut expressions = Expressions::default();
        expressions.extend(list);
        expressions
    }

    pub(super) fn extend(&mut self, list: impl IntoIterator<Item = String>) {
        self.list.extend(list.into_iter().map(|given| {
            let (letters, lower) = (Words::of(&given).letters, given.to_lowercase());
            Expression { given, letters, lower }
        }));
        self.beginnings = Beginnings::of(&self.list);
    }

    /// The first expression that `text` says: as it stands there, where it begins a word, or else as it was given.
    pub(super) fn find_in(&self, text: &str) -> Option<String> {
        if !self.beginnings.may_be_in(text) {
            return None;
        }
        let words = Words::of(text);
        if let Some(said) = self.list.iter().find_map(|expression| words.find(text, &expression.letters)) {
            return Some(said.to_owned());
        }
        let text = text.to_lowercase();
        let said =
            |expression: &&Expression| !expression.lower.is_empty() && text.contains(&expression.lower);
        self.list.iter().find(said).map(|expression| expression.given.clone())
    }
}

/// The words of a text: what stands between them is left out.
struct Words {
    /// The letters and digits of all of them, in lower case.
    letters: String,
    words: Vec<Word>,
}

/// A word of a text.
struct Word {
    /// Where it begins and ends in the text, in bytes.
    begins: usize,
    ends: usize,
    /// Where its letters begin and end among all.
    letters_begin: usize,
    letters_end: usize,
}

impl Words {
    fn of(text: &str) -> Words {
        let mut found = Words { letters: String::with_capacity(text.len()), words: Vec::with_capacity(32) };
        let mut is_within = false;
        for (at, character) in text.char_indices() {
            if !character.is_alphanumeric() {
                is_within = false;
                continue;
            }
            if !is_within {
                let letters = found.letters.len();
                found.words.push(Word { begins: at, ends: at, letters_begin: letters, letters_end: letters });
            }
            is_within = true;
            if character.is_ascii() {
                found.letters.push(character.to_ascii_lowercase());
            } else {
                found.letters.extend(character.to_lowercase());
            }
            if let Some(word) = found.words.last_mut() {
                word.ends = at + character.len_utf8();
                word.letters_end = found.letters.len();
            }
        }
        found
    }

    /// Where `text`, whose words these are, says something that begins with the letters of `stem`, whether in one word
    /// or in a few.
    fn find<'t>(&self, text: &'t str, stem: &str) -> Option<&'t str> {
        let (&initial, _) = stem.as_bytes().split_first()?;
        for (first, word) in self.words.iter().enumerate() {
            let letters = &self.letters.as_bytes()[word.letters_begin..];
            // Nearly all words begin otherwise.
            if letters.first() != Some(&initial) || !letters.starts_with(stem.as_bytes()) {
                continue;
            }
            let end = word.letters_begin + stem.len();
            let mut joined = self.words[first..].iter().take(JOINED_MAX);
            if let Some(last) = joined.find(|last| last.letters_end >= end) {
                return text.get(word.begins..last.ends);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Beginnings, Expressions, Words};

    proptest! {
        #[test]
        fn no_text_is_passed_over_that_says_an_expression(
            text in "([a-cA-C][a-cA-C -]|[1 ,\u{e9}\u{212a}]){0,12}",
            stems in prop::collection::vec("[a-ck][a-c1 -]{0,4}", 0..4),
        ) {
            let expressions = Expressions::new(stems);
            let searched = Expressions { beginnings: Beginnings::default(), ..expressions.clone() };
            prop_assert_eq!(expressions.find_in(&text), searched.find_in(&text));
        }
    }

    #[test]
    fn an_expression_is_found_in_every_form_and_not_across_others() {
        let found = |text: &'static str, stem: &str| {
            let expressions = Expressions::new([stem.to_owned()]);
            Words::of(text).find(text, &expressions.list[0].letters)
        };
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
