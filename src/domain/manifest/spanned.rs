//! JSON with places: every key and value knows its line and column.
//!
//! A text is walked once per level of nesting, always forwards, so that reading stays linear however
//! the text is broken into lines. Nothing is collected on the way: a caller sees one entry at a time.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::text_prefix::text_prefix;

use super::json_mistake;
use super::messages::{quoted, shortened};

/// A JSON text and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spanned<'a> {
    pub text: &'a str,
    pub at: Position,
}

/// A key of an object and where it stands.
#[derive(Debug)]
pub(super) struct Key {
    pub name: String,
    pub at: Position,
}

/// What a JSON text is, by its first character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    Array,
    Scalar,
}

impl<'a> Spanned<'a> {
    /// The whole of a text that begins at `at`.
    pub(super) fn new(text: &'a str, at: Position) -> Spanned<'a> {
        Spanned { text, at }
    }

    /// What the text is; a `Scalar` may also be no JSON at all.
    pub(super) fn shape(self) -> Shape {
        match self.text.trim_start().as_bytes().first() {
            Some(b'{') => Shape::Object,
            Some(b'[') => Shape::Array,
            _ => Shape::Scalar,
        }
    }

    /// Whether the whole text is one JSON value, and nothing behind it.
    pub(super) fn check_syntax(self) -> Result<(), Diagnostic> {
        serde_json::from_str::<&RawValue>(self.text).map(drop).map_err(|error| self.broken(&error))
    }

    /// Shows `visit` each entry of the object, in the order of the text.
    pub(super) fn entries(self, visit: &mut dyn FnMut(Key, Spanned<'a>)) -> Result<(), Diagnostic> {
        let mut reader = serde_json::Deserializer::from_str(self.text);
        let visitor = Entries { tracker: PositionTracker::new(self), visit };
        reader.deserialize_map(visitor).and_then(|()| reader.end()).map_err(|error| self.broken(&error))
    }

    /// The text as a value: no key twice, no number that would lose digits.
    pub(super) fn value(self) -> Result<Value, Diagnostic> {
        let UniqueKeys(value) = serde_json::from_str(self.text).map_err(|error| self.broken(&error))?;
        kept_whole(value, self.text).map_err(|diagnostic| Diagnostic::at(self.at, diagnostic.message))
    }

    /// It is not what is accepted here.
    pub(super) fn is_not(self, accepted: &str) -> Diagnostic {
        Diagnostic::at(self.at, format!("found {}, expected {accepted}", shortened(self.text)))
    }

    /// The parser's error as a problem at its own place.
    fn broken(self, error: &serde_json::Error) -> Diagnostic {
        let offset = offset_of(self.text, error.line(), error.column());
        let place = |offset| PositionTracker::new(self).to(offset);
        let is_common = ["expected", "key must be a string", "trailing comma"]
            .iter()
            .any(|begin| error.is_syntax() && error.to_string().starts_with(begin));
        match json_mistake::find(self.text, offset).filter(|_| is_common) {
            Some((offset, mistake)) => {
                Diagnostic::at(place(offset), format!("not JSON: {}", mistake.message)).hint(mistake.hint)
            }
            // Said of the value, of which no other rule is to tell anything then.
            None if is_half_character(error) && self.shape() == Shape::Scalar => {
                Diagnostic::at(self.at, reason(error))
            }
            None => Diagnostic::at(place(offset), reason(error)),
        }
    }
}

/// A value from a text without places: what a CSV cell holds.
pub(super) fn value_in_cell(text: &str) -> Result<Value, Diagnostic> {
    let read = serde_json::from_str(text);
    let UniqueKeys(value) =
        read.map_err(|error| Diagnostic::new(format!("{}: {}", quoted(text), reason(&error))))?;
    kept_whole(value, text)
}

/// The element of an array that begins at or after `offset`, which is behind the opening bracket, an
/// element or the comma after one.
pub(super) fn next_element(array: &str, offset: usize) -> Result<Option<&str>, serde_json::Error> {
    let rest = array.get(offset..).unwrap_or_default().trim_start();
    let rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    if rest.is_empty() || rest.starts_with(']') {
        return Ok(None);
    }
    let element = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(rest))?;
    Ok(Some(element.get()))
}

/// Where `part`, a slice of `whole`, begins in it.
pub(super) fn offset_within(whole: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize)
}

/// Follows a text forwards and knows line and column on the way.
#[derive(Debug, Clone, Copy)]
pub(super) struct PositionTracker<'a> {
    text: &'a str,
    offset: usize,
    line: u64,
    column: u64,
}

impl<'a> PositionTracker<'a> {
    pub(super) fn new(start: Spanned<'a>) -> PositionTracker<'a> {
        PositionTracker::resume(start.text, 0, start.at)
    }

    /// Goes on from `offset` in `text`, which stands at `at`.
    pub(super) fn resume(text: &'a str, offset: usize, at: Position) -> PositionTracker<'a> {
        PositionTracker { text, offset, line: at.line, column: at.column.unwrap_or(1) }
    }

    /// The place of the character at `offset`; never goes back.
    pub(super) fn to(&mut self, offset: usize) -> Position {
        for character in self.text.get(self.offset..offset).unwrap_or_default().chars() {
            if character == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.offset = self.offset.max(offset);
        Position::at(self.line, self.column)
    }
}

/// The parser counts lines and bytes from the start of its text.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let lines_before = line.saturating_sub(1);
    let line_start: usize = text.split_inclusive('\n').take(lines_before).map(str::len).sum();
    text_prefix(text, line_start + column.saturating_sub(1)).len()
}

/// What the parser says, without its own idea of the place.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let said = text.strip_suffix(&place).unwrap_or(&text);
    match said.strip_prefix(TWICE) {
        None if is_half_character(error) => {
            "has half of a character: a surrogate, such as \\ud83d, is followed by the other half, such as \\ude00; write \
             both, or the character itself"
                .to_owned()
        }
        Some(key) => format!("the key {key} is given twice"),
        None => format!("not JSON: {}", said.replace("EOF", "the text ends")),
    }
}

/// Whether an escape is one surrogate without the other: texts that are cut between two code units have them.
fn is_half_character(error: &serde_json::Error) -> bool {
    let text = error.to_string();
    ["lone leading surrogate", "unexpected end of hex escape"].iter().any(|begin| text.starts_with(begin))
}

/// Marks the one error that is ours and not the parser's.
const TWICE: &str = "twice: ";

/// The value that was read from a text. A whole number that was read as a fraction because it does not fit has
/// lost digits.
fn kept_whole(value: Value, text: &str) -> Result<Value, Diagnostic> {
    let whole = || text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    match value.as_number().filter(|number| number.is_f64() && whole()) {
        // Fractions alone can be a negative zero.
        Some(number) if number.as_f64() == Some(0.0) => Ok(Value::from(0)),
        Some(_) => Err(too_many_digits(text)),
        None => Ok(value),
    }
}

fn too_many_digits(text: &str) -> Diagnostic {
    let found = shortened(text.trim());
    Diagnostic::new(format!("{found} has more digits than a JSON number keeps exactly; write it as text"))
}

/// Hands the entries of an object on, one by one.
struct Entries<'a, 'v> {
    tracker: PositionTracker<'a>,
    visit: &'v mut dyn FnMut(Key, Spanned<'a>),
}

impl<'a> Visitor<'a> for Entries<'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<&'a RawValue, &'a RawValue>()? {
            let name: String = serde_json::from_str(key.get()).map_err(de::Error::custom)?;
            let text = self.tracker.text;
            let key = Key { name, at: self.tracker.to(offset_within(text, key.get())) };
            let at = self.tracker.to(offset_within(text, value.get()));
            (self.visit)(key, Spanned::new(value.get(), at));
        }
        Ok(())
    }
}

/// A value in which no object gives a key twice, however deep.
struct UniqueKeys(Value);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UniqueKeys, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor).map(UniqueKeys)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueKeys(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if values.contains_key(&key) {
                return Err(de::Error::custom(format_args!("{TWICE}{}", quoted(&key))));
            }
            let UniqueKeys(value) = map.next_value()?;
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(text: &str) -> Spanned<'_> {
        Spanned::new(text, Position::at(1, 1))
    }

    #[test]
    fn entries_know_their_places() {
        let text = "{\"a\": 1,\n  \"ü\" : \"x\", \"b\":\n[2]}";
        let mut seen = Vec::new();
        let visited = start(text).entries(&mut |key, value| {
            let place = |at: Position| format!("{}:{}", at.line, at.column.unwrap());
            seen.push(format!("{} {} {} {}", key.name, place(key.at), value.text, place(value.at)));
        });
        assert_eq!(visited, Ok(()));
        assert_eq!(seen, ["a 1:2 1 1:7", "ü 2:3 \"x\" 2:9", "b 2:14 [2] 3:1"]);
    }

    #[test]
    fn values_are_strict() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = start(text).value();
            let shown = found.map(|value| value.to_string()).map_err(|problem| problem.to_string());
            assert_eq!(shown.as_deref().map_err(String::as_str), expected);
        };
        check(r#"{"b":[1,2.5,null],"a":"ü"}"#, Ok(r#"{"a":"ü","b":[1,2.5,null]}"#));
        check("{\"a\":\n {\"b\":1,\"b\":2}}", Err("2:11: the key \"b\" is given twice"));
        check(
            "123456789012345678901234567890",
            Err(
                "1:1: 123456789012345678901234567890 has more digits than a JSON number keeps exactly; write it as text",
            ),
        );
        check("1e30", Ok("1e+30"));
        check("{\"a\":1", Err("1:6: not JSON: the text ends while parsing an object"));
        check("[1] 2", Err("1:5: not JSON: trailing characters"));
        check(
            "{\"a\": [1,\n ],}",
            Err("1:9: not JSON: a comma stands before the closing bracket (hint: remove the comma)"),
        );
        check(
            "{\"a\": 1,}",
            Err("1:8: not JSON: a comma stands before the closing bracket (hint: remove the comma)"),
        );
        check(
            "{'a': 1}",
            Err(
                "1:2: not JSON: a single quote stands where a string would begin (hint: write names and texts in double quotes)",
            ),
        );
        check(
            "{\"a\": “x”}",
            Err(
                "1:7: not JSON: a typographic quote stands where a string would begin (hint: write names and texts in straight double quotes)",
            ),
        );
        check(
            "[1, // one\n2]",
            Err("1:5: not JSON: JSON has no comments (hint: remove the comment, or keep it in \"meta\")"),
        );
        check(
            "{\"audio\": True}",
            Err(
                "1:11: not JSON: this word is not valid in JSON (hint: true, false and null are written in lower case; a number is finite)",
            ),
        );
        check(
            "{model: 1}",
            Err("1:2: not JSON: a name stands without quotes (hint: write names in double quotes)"),
        );
        check(
            "{\"model\": house}",
            Err("1:11: not JSON: a text stands without quotes (hint: write texts in double quotes)"),
        );
        check(
            "{\"a\": 1\n\"b\": 2}",
            Err("2:1: not JSON: a comma is missing before this (hint: separate entries with commas)"),
        );
        check(&"[".repeat(500), Err("1:128: not JSON: recursion limit exceeded"));
    }

    #[test]
    fn elements_come_one_by_one() {
        let text = r#"[ {"a":1} ,2, "x]" ]"#;
        let mut found = Vec::new();
        let mut offset = 1;
        while let Some(element) = next_element(text, offset).unwrap() {
            found.push(element);
            offset = offset_within(text, element) + element.len();
        }
        assert_eq!(found, [r#"{"a":1}"#, "2", "\"x]\""]);
    }
}
