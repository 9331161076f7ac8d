//! What people get wrong in JSON, by where the parser stops.

/// A mistake and what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonMistake {
    pub message: &'static str,
    pub hint: &'static str,
}

const TRAILING_COMMA: JsonMistake =
    JsonMistake { message: "a comma stands before the closing bracket", hint: "remove the comma" };
const SINGLE_QUOTES: JsonMistake = JsonMistake {
    message: "a single quote stands where a string would begin",
    hint: "write names and texts in double quotes",
};
const TYPOGRAPHIC_QUOTES: JsonMistake = JsonMistake {
    message: "a typographic quote stands where a string would begin",
    hint: "write names and texts in straight double quotes",
};
const COMMENT: JsonMistake =
    JsonMistake { message: "JSON has no comments", hint: "remove the comment, or keep it in \"meta\"" };
const PYTHON_WORD: JsonMistake = JsonMistake {
    message: "this word is not valid in JSON",
    hint: "true, false and null are written in lower case; a number is finite",
};
const BARE_NAME: JsonMistake =
    JsonMistake { message: "a name stands without quotes", hint: "write names in double quotes" };
const BARE_TEXT: JsonMistake =
    JsonMistake { message: "a text stands without quotes", hint: "write texts in double quotes" };
const MISSING_COMMA: JsonMistake =
    JsonMistake { message: "a comma is missing before this", hint: "separate entries with commas" };

/// Words of other languages for values of JSON.
const WORDS: [&str; 10] =
    ["True", "False", "None", "TRUE", "FALSE", "NULL", "NaN", "Infinity", "undefined", "nil"];

/// The mistake in `text` at which a parser stops at the byte `offset`, and its own byte. Nothing where it is none of
/// the common ones.
pub(super) fn find(text: &str, offset: usize) -> Option<(usize, JsonMistake)> {
    let (before, rest) = text.split_at_checked(offset)?;
    let at = offset + (rest.len() - rest.trim_start().len());
    let next = rest.trim_start().chars().next()?;
    let behind = before.trim_end();
    let last = behind.chars().next_back();
    match (last, next) {
        (Some(','), '}' | ']') => Some((behind.len() - 1, TRAILING_COMMA)),
        (_, '\'') => Some((at, SINGLE_QUOTES)),
        (_, '“' | '”' | '„' | '‘' | '’' | '«' | '»') => Some((at, TYPOGRAPHIC_QUOTES)),
        (_, '/' | '#') => Some((at, COMMENT)),
        (Some('"' | '}' | ']' | '0'..='9'), '"' | '{' | '[') => Some((at, MISSING_COMMA)),
        _ => word(text, at),
    }
}

/// A word without quotes, in which the parser may stop.
fn word(text: &str, at: usize) -> Option<(usize, JsonMistake)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let start = text.get(..at)?.trim_end_matches(is_part).len();
    let word_and_rest = text.get(start..)?;
    let rest = word_and_rest.trim_start_matches(is_part);
    let word = word_and_rest.strip_suffix(rest)?;
    // A text that begins with one is not meant as JSON.
    if start == 0 || !word.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return None;
    }
    let mistake = match rest.trim_start().starts_with(':') {
        true => BARE_NAME,
        false if WORDS.contains(&word) => PYTHON_WORD,
        false if matches!(word, "true" | "false" | "null") => return None,
        false => BARE_TEXT,
    };
    Some((start, mistake))
}
