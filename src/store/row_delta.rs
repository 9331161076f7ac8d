//! Rows of a large manifest in a fraction of their length: what a row has in common with one before it is left out.
//!
//! Such a line is `CRC32 ~DISTANCE`, and then, each after a tab, `INDEX=VALUE` for every value in which the row differs
//! from the one that begins `DISTANCE` bytes before it and stands there in full. Values are names, texts, numbers and
//! words of the JSON of both, counted from 0; what stands between them is the same. JSON has no tab that is not escaped,
//! and does not begin with a tilde, so that a reader tells by the first character which line it has.
//!
//! A row in full is referred to from at most [`DISTANCE_MAX`] bytes: to read one row takes two short reads at most, and
//! a damaged line takes no more than that with it. Small manifests have every row in full.

use std::collections::VecDeque;
use std::ops::Range;

/// The first character of a row that refers to another.
pub(super) const MARK: u8 = b'~';
/// From so many rows on, rows are shortened.
const ROWS_IN_FULL: u64 = 1_000;
/// How far a row may lie from the one that it refers to, in bytes.
const DISTANCE_MAX: u64 = 128 * 1024;
/// Rows in full that are compared with the next one: kinds of rows mostly come mixed.
const BASES_MAX: usize = 8;

/// A row in full, cut into its values.
#[derive(Debug, Clone)]
pub(super) struct Base {
    json: Vec<u8>,
    values: Vec<Range<usize>>,
}

impl Base {
    pub(super) fn new(json: Vec<u8>) -> Base {
        let mut values = Vec::new();
        cut(&json, &mut values);
        Base { json, values }
    }

    /// Adds what a row differs in to `text`; false where it is built otherwise.
    fn differences(&self, json: &[u8], text: &mut Vec<u8>) -> bool {
        let (mut at, mut base_at, mut index) = (0, 0, 0);
        loop {
            let same = common_prefix(&json[at..], &self.json[base_at..]);
            let parts_at = base_at + same;
            if (at + same, parts_at) == (json.len(), self.json.len()) {
                return true;
            }
            // The value in which they part, or that goes on in the row where it ends in the base.
            while self.values.get(index).is_some_and(|base| base.end < parts_at) {
                index += 1;
            }
            let Some(base) = self.values.get(index).filter(|base| base.start <= parts_at) else {
                return false;
            };
            let start = at + (base.start - base_at);
            let Some(end) = end_of_value(json, start) else { return false };
            let value = &json[start..end];
            if *value == self.json[base.clone()] {
                // What stands behind it is not the same.
                return false;
            }
            text.push(b'\t');
            text.extend_from_slice(index.to_string().as_bytes());
            text.push(b'=');
            text.extend_from_slice(value);
            (at, base_at, index) = (end, base.end, index + 1);
        }
    }

    /// Writes the row that differs from this one by `differences`, which begin with a tab each.
    pub(super) fn row(&self, differences: &[u8], json: &mut Vec<u8>) -> Result<(), String> {
        json.clear();
        let mut next = 0;
        let mut copied = 0;
        // Before the first tab stands the distance.
        for difference in differences.split(|byte| *byte == b'\t').skip(1) {
            let equals = difference.iter().position(|byte| *byte == b'=').ok_or("a value has no number")?;
            let index = number(&difference[..equals]).ok_or("a value has no number")?;
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let value = self.values.get(index).filter(|_| index >= next);
            let value = value.ok_or("a value is not one of the row that it refers to")?;
            json.extend_from_slice(&self.json[copied..value.start]);
            json.extend_from_slice(&difference[equals + 1..]);
            (next, copied) = (index + 1, value.end);
        }
        json.extend_from_slice(&self.json[copied..]);
        Ok(())
    }
}

/// How many bytes before a row the one begins that it refers to; `text` begins with the mark.
pub(super) fn distance(text: &[u8]) -> Option<u64> {
    number(text.get(1..)?.split(|byte| *byte == b'\t').next()?)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Cuts JSON without white space into its names, texts, numbers and words.
fn cut(json: &[u8], values: &mut Vec<Range<usize>>) {
    values.clear();
    let mut at = 0;
    while at < json.len() {
        match end_of_value(json, at) {
            Some(end) => {
                values.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
}

/// The byte after the value that begins at `at`; nothing where none does.
fn end_of_value(json: &[u8], at: usize) -> Option<usize> {
    match json.get(at)? {
        b'{' | b'}' | b'[' | b']' | b':' | b',' => None,
        b'"' => Some(end_of_text(json, at + 1)),
        _ => {
            let length = json[at..].iter().position(|byte| b"{}[]:,\"".contains(byte));
            Some(length.map_or(json.len(), |length| at + length))
        }
    }
}

/// How many bytes both begin with alike.
fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    const CHUNK: usize = 32;
    let (chunks, _) = one.as_chunks::<CHUNK>();
    let (others, _) = other.as_chunks::<CHUNK>();
    let whole = chunks.iter().zip(others).take_while(|(one, other)| one == other).count() * CHUNK;
    whole + one[whole..].iter().zip(&other[whole..]).take_while(|(one, other)| one == other).count()
}

/// The byte after the closing quote of a text whose first byte is at `at`.
fn end_of_text(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        if json[at + found] == b'"' {
            return at + found + 1;
        }
        at += found + 2;
    }
    json.len()
}

/// Shortens rows that follow each other in one file, or in a part that stays in one piece.
#[derive(Debug, Default)]
pub(super) struct RowShortener {
    /// With the byte where each begins; the one that was referred to last comes first.
    bases: Vec<(u64, Base)>,
    text: Vec<u8>,
}

impl RowShortener {
    /// The text of the row `json` that begins at byte `at`, and comes after so many others of its manifest: shortened, or
    /// in full.
    pub(super) fn shorten<'a>(&'a mut self, json: &'a [u8], at: u64, rows_before: u64) -> &'a [u8] {
        if rows_before < ROWS_IN_FULL {
            return json;
        }
        let RowShortener { bases, text } = self;
        bases.retain(|(base_at, _)| at - base_at <= DISTANCE_MAX);
        for place in 0..bases.len() {
            let (base_at, base) = &bases[place];
            text.clear();
            text.push(MARK);
            text.extend_from_slice((at - base_at).to_string().as_bytes());
            if base.differences(json, text) && text.len() < json.len() {
                bases[..=place].rotate_right(1);
                return text;
            }
        }
        bases.truncate(BASES_MAX - 1);
        bases.insert(0, (at, Base::new(json.to_vec())));
        json
    }
}

/// The rows in full that rows to come may refer to: shortens rows as they were shortened before.
#[derive(Debug, Default)]
pub(super) struct KnownRows {
    /// With the byte where each begins.
    full: VecDeque<(u64, Vec<u8>)>,
    /// The one that was referred to last.
    base: Option<(u64, Base)>,
}

impl KnownRows {
    /// A row in full begins at byte `at`.
    pub(super) fn add(&mut self, json: &[u8], at: u64) {
        while self.full.front().is_some_and(|(before, _)| at - before > DISTANCE_MAX) {
            self.full.pop_front();
        }
        self.full.push_back((at, json.to_vec()));
    }

    /// The text of the row `json` that begins at byte `at` and refers to the one that begins `distance` bytes before it;
    /// nothing where none does that it can refer to.
    pub(super) fn shorten(&mut self, json: &[u8], at: u64, distance: u64) -> Option<Vec<u8>> {
        let base_at = at.checked_sub(distance)?;
        if self.base.as_ref().is_none_or(|(known, _)| *known != base_at) {
            let place = self.full.binary_search_by_key(&base_at, |(at, _)| *at).ok()?;
            self.base = Some((base_at, Base::new(self.full.get(place)?.1.clone())));
        }
        let (_, base) = self.base.as_ref()?;
        let mut text = format!("~{distance}").into_bytes();
        base.differences(json, &mut text).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn shortened(row: &Value, base: &Value) -> Option<(String, usize)> {
        let base = Base::new(base.to_string().into_bytes());
        let json = row.to_string().into_bytes();
        let mut text = b"~12".to_vec();
        if !base.differences(&json, &mut text) {
            return None;
        }
        let mut again = Vec::new();
        base.row(&text, &mut again).unwrap();
        assert_eq!(again, json);
        assert_eq!(distance(&text), Some(12));
        let length = text.len();
        Some((String::from_utf8(text).unwrap(), length))
    }

    #[test]
    fn what_is_the_same_is_left_out() {
        let base = json!({"seq": 1, "label": "a", "body": {"prompt": "a fox", "list": [1, true, null]}});
        let row = json!({"seq": 2, "label": "a", "body": {"prompt": "tab\t, \"quote\" \\", "list": [1, true, null]}});
        // Names count, too, and serde_json sorts them.
        let (text, _) = shortened(&row, &base).unwrap();
        assert_eq!(text, "~12\t6=\"tab\\t, \\\"quote\\\" \\\\\"\t10=2");
        assert_eq!(shortened(&base, &base).unwrap().0, "~12");
        let longer = json!({"seq": 2, "label": "a", "body": {"prompt": "", "list": [1, true, null, 2]}});
        assert_eq!(shortened(&longer, &base), None);
        let otherwise = json!({"seq": 2, "label": "a", "body": {"prompt": "", "list": [[1, true], null]}});
        assert_eq!(shortened(&otherwise, &base), None);
    }

    #[test]
    fn what_was_not_written_so_is_told() {
        let base = Base::new(br#"{"a":1}"#.to_vec());
        let row = |text: &str| {
            let mut json = Vec::new();
            base.row(text.as_bytes(), &mut json).map(|()| String::from_utf8(json).unwrap())
        };
        assert_eq!(row("~3\t1=22"), Ok(r#"{"a":22}"#.to_owned()));
        for text in ["~3\t1", "~3\tx=1", "~3\t2=1", "~3\t1=1\t0=\"b\"", "~3\t-1=4"] {
            assert!(row(text).is_err(), "{text}");
        }
        for text in ["~", "~x\t1=2", "~-4"] {
            assert_eq!(distance(text.as_bytes()), None, "{text}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,8}|[\"\\\\\t,:{}=~]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-c\"=]{0,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// A row with other texts, numbers and words in places, and perhaps another one built otherwise.
    fn varied(row: &Value) -> impl Strategy<Value = Value> + use<> {
        let (row, cuts) = (row.to_string(), any::<(prop::sample::Index, prop::sample::Index)>());
        let values = prop::sample::select(vec!["1", "12", "123", "\"a\"", "\"a\\\"\"", "\"\"", "null", "{}"]);
        proptest::collection::vec((cuts.prop_map(|(one, _)| one), values), 1..4).prop_map(move |changes| {
            let mut json = row.clone().into_bytes();
            for (place, value) in changes {
                let mut values = Vec::new();
                cut(&json, &mut values);
                if let Some(range) = (!values.is_empty()).then(|| place.get(&values).clone()) {
                    json.splice(range, value.bytes());
                }
            }
            serde_json::from_slice(&json).unwrap_or(Value::Null)
        })
    }

    /// The differences by cutting both, as the format says it.
    fn by_cutting(base: &[u8], json: &[u8]) -> Option<Vec<u8>> {
        let values = [base, json].map(|json| Base::new(json.to_vec()).values);
        let frame = |json: &[u8], values: &[Range<usize>]| {
            let mut frame = json.to_vec();
            values.iter().rev().for_each(|value| drop(frame.splice(value.clone(), *b"\0")));
            frame
        };
        if frame(base, &values[0]) != frame(json, &values[1]) {
            return None;
        }
        let mut text = Vec::new();
        for (index, (old, new)) in values[0].iter().zip(&values[1]).enumerate() {
            if base[old.clone()] != json[new.clone()] {
                text.extend_from_slice(format!("\t{index}=").as_bytes());
                text.extend_from_slice(&json[new.clone()]);
            }
        }
        Some(text)
    }

    proptest! {
        #[test]
        fn differences_are_those_of_values_that_stand_in_the_same_frame(
            (base, row) in any_json().prop_flat_map(|base| (Just(base.clone()), varied(&base))),
        ) {
            let [base, row] = [base, row].map(|json| json.to_string().into_bytes());
            let mut text = Vec::new();
            let found = Base::new(base.clone()).differences(&row, &mut text).then_some(text);
            prop_assert_eq!(found, by_cutting(&base, &row));
        }

        #[test]
        fn every_row_comes_back_as_it_was(rows in proptest::collection::vec(any_json(), 2..12)) {
            let mut shortener = RowShortener::default();
            let (mut at, mut known) = (0, KnownRows::default());
            let mut full = std::collections::BTreeMap::new();
            for row in rows.iter().chain(&rows) {
                let json = row.to_string();
                let text = shortener.shorten(json.as_bytes(), at, ROWS_IN_FULL).to_vec();
                if text[0] == MARK {
                    let base: &Base = &full[&(at - distance(&text).unwrap())];
                    let mut again = Vec::new();
                    base.row(&text, &mut again).unwrap();
                    prop_assert_eq!(std::str::from_utf8(&again).unwrap(), &json);
                    let distance = distance(&text).unwrap();
                    prop_assert_eq!(known.shorten(json.as_bytes(), at, distance), Some(text.clone()));
                } else {
                    prop_assert_eq!(&text, json.as_bytes());
                    known.add(&text, at);
                    full.insert(at, Base::new(text.clone()));
                }
                at += text.len() as u64;
            }
        }
    }
}
