//! JSON. `y_` must be read, `n_` must be refused, and for `i_`, which the grammar leaves open, the case says which. Each
//! case is the value of a `meta` entry, in a document and in a line of JSON Lines, where a good row follows that must
//! survive; some are whole documents.

use super::transcript;

/// What must come of a value: itself, another spelling, or a refusal.
enum Must {
    Same,
    Be(&'static str),
    Fail,
}
use Must::{Be, Fail, Same};

#[rustfmt::skip]
const VALUES: &[(&str, &[u8], Must)] = &[
    ("y_array_empty", b"[]", Same),
    ("y_array_with_null", b"[1,null,2]", Same),
    ("y_array_spaces", b"[ ]", Be("[]")),
    ("y_array_nested", b"[[[1]]]", Same),
    ("y_number_0e1", b"0e1", Be("0.0")),
    ("y_number_int", b"123", Same),
    ("y_number_negative", b"-123", Same),
    ("y_number_real", b"123.5", Same),
    ("y_number_exponent", b"1E+2", Be("100.0")),
    ("y_number_exponent_small", b"1e-2", Be("0.01")),
    ("y_number_u64_max", b"18446744073709551615", Same),
    ("y_number_i64_min", b"-9223372036854775808", Same),
    ("y_object_empty", b"{}", Same),
    ("y_object_empty_key", b"{\"\":0}", Same),
    ("y_object_spaces", b"{ \"a\" : 1 }", Be("{\"a\":1}")),
    ("y_string_escapes", b"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", Be("\"\\\"\\\\/\\b\\f\\n\\r\\t\"")),
    ("y_string_unicode_escape", b"\"\\u00e9\"", Be("\"\u{e9}\"")),
    ("y_string_surrogate_pair", b"\"\\ud83e\\udd8a\"", Be("\"\u{1f98a}\"")),
    ("y_string_noncharacter", b"\"\\uffff\"", Be("\"\u{ffff}\"")),
    ("y_string_utf8", b"\"\xe2\x82\xac\"", Same),
    ("y_string_u2028", b"\"\xe2\x80\xa8\"", Same),
    ("y_string_del", b"\"\x7f\"", Same),
    ("y_true", b"true", Same),
    ("y_false", b"false", Same),
    ("n_array_trailing_comma", b"[1,]", Fail),
    ("n_array_double_comma", b"[1,,2]", Fail),
    ("n_array_leading_comma", b"[,1]", Fail),
    ("n_array_colon", b"[1:2]", Fail),
    ("n_array_unclosed", b"[1", Fail),
    ("n_array_closed_twice", b"[1]]", Fail),
    ("n_array_closed_by_brace", b"[1}", Fail),
    ("n_array_star", b"[*]", Fail),
    ("n_object_trailing_comma", b"{\"a\":1,}", Fail),
    ("n_object_no_value", b"{\"a\"}", Fail),
    ("n_object_no_colon", b"{\"a\" 1}", Fail),
    ("n_object_unquoted_key", b"{a:1}", Fail),
    ("n_object_single_quotes", b"{'a':1}", Fail),
    ("n_object_number_key", b"{1:1}", Fail),
    ("n_object_double_colon", b"{\"a\"::1}", Fail),
    ("n_object_comment", b"{\"a\":1/* c */}", Fail),
    ("n_object_line_comment", b"1//c", Fail),
    ("n_number_plus", b"+1", Fail),
    ("n_number_leading_zero", b"01", Fail),
    ("n_number_minus_leading_zero", b"-01", Fail),
    ("n_number_dot", b".5", Fail),
    ("n_number_trailing_dot", b"1.", Fail),
    ("n_number_exponent_alone", b"1e", Fail),
    ("n_number_exponent_sign_alone", b"1e+", Fail),
    ("n_number_hex", b"0x1F", Fail),
    ("n_number_underscore", b"1_000", Fail),
    ("n_number_nan", b"NaN", Fail),
    ("n_number_infinity", b"Infinity", Fail),
    ("n_number_minus_infinity", b"-Infinity", Fail),
    ("n_number_minus_alone", b"-", Fail),
    ("n_number_fullwidth", "\u{ff11}".as_bytes(), Fail),
    ("n_string_single_quote", b"'a'", Fail),
    ("n_string_unclosed", b"\"a", Fail),
    ("n_string_newline", b"\"a\nb\"", Fail),
    ("n_string_tab", b"\"a\tb\"", Fail),
    ("n_string_control", b"\"a\x1bb\"", Fail),
    ("n_string_raw_nul", b"\"a\0b\"", Fail),
    ("n_string_bad_escape", b"\"\\x41\"", Fail),
    ("n_string_escape_alone", b"\"\\\"", Fail),
    ("n_string_short_unicode", b"\"\\u00e\"", Fail),
    ("n_string_bad_unicode", b"\"\\u00eg\"", Fail),
    ("n_literal_capital", b"True", Fail),
    ("n_literal_cut", b"tru", Fail),
    ("n_literal_nul", b"nul", Fail),
    ("n_undefined", b"undefined", Fail),
    ("n_nothing", b"", Fail),
    // Left open by the grammar. Whatever could mean two things is refused.
    ("i_string_lone_high_surrogate", b"\"\\ud800\"", Fail),
    ("i_string_lone_low_surrogate", b"\"\\udc00\"", Fail),
    ("i_string_surrogates_swapped", b"\"\\udd8a\\ud83e\"", Fail),
    ("i_string_invalid_utf8", b"\"\xff\"", Fail),
    ("i_string_overlong_utf8", b"\"\xc0\xaf\"", Fail),
    ("i_string_utf8_surrogate", b"\"\xed\xa0\x80\"", Fail),
    ("i_string_cut_utf8", b"\"\xe2\x82\"", Fail),
    ("i_number_huge_exponent", b"1e400", Fail),
    ("i_number_huge_negative", b"-1e400", Fail),
    ("i_number_very_huge_exponent", b"0.4e00669999999999999999999999999999999999", Fail),
    ("i_number_too_big_int", b"18446744073709551616", Fail),
    // A fraction is rounded as everywhere; an integer never is.
    ("i_number_too_many_fraction_digits", b"1.00000000000000000001", Be("1.0")),
    // Valid, and refused: no integer keeps its sign.
    ("i_number_minus_zero", b"-0", Be("0")),
    ("i_object_duplicate_key", b"{\"a\":1,\"a\":2}", Fail),
    ("i_object_duplicate_key_escaped", b"{\"a\":1,\"\\u0061\":1}", Fail),
];

/// The same text as it is told.
fn told(text: &[u8]) -> String {
    format!("{{\"v\":{}}}", String::from_utf8_lossy(text))
}

#[test]
fn every_value_comes_out_as_it_must() {
    let mut wrong = Vec::new();
    for (name, value, must) in VALUES {
        let job = [b"{\"meta\":{\"v\":", *value, b"}}"].concat();
        let follower = b"{\"meta\":{\"v\":\"next\"}}";
        let next = "{\"v\":\"next\"}";
        let document = [b"[", job.as_slice(), b",", follower, b"]"].concat();
        let lines = [job.as_slice(), b"\n", follower, b"\n"].concat();
        for (file, bytes) in [("a.json", document), ("a.jsonl", lines)] {
            let found = transcript(file, &bytes);
            let fits = match must {
                Same => found == [told(value), next.to_owned()],
                Be(other) => found == [told(other.as_bytes()), next.to_owned()],
                // A document that is no JSON is refused whole; of lines, the bad ones alone.
                Fail if file == "a.json" => {
                    !found.iter().any(|line| line.starts_with("{\"v\":") && line != next)
                }
                Fail => {
                    let (last, bad) = found.split_last().unwrap();
                    last == next && !bad.is_empty() && bad.iter().all(|line| line.starts_with("bad "))
                }
            };
            let is_fail_told = !matches!(must, Fail) || found.iter().any(|line| !line.starts_with('{'));
            if !(fits && is_fail_told) {
                wrong.push(format!("{name} in {file}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn whole_documents() {
    let good = "{\"v\":1}";
    let row = "{\"meta\":{\"v\":1}}";
    let deep =
        |levels: usize| format!("[{{\"meta\":{{\"v\":{}1{}}}}}]", "[".repeat(levels), "]".repeat(levels));
    let read = |bytes: &[u8]| transcript("a.json", bytes);
    assert_eq!(read(format!("\u{feff}[{row}]").as_bytes()), [good], "a byte order mark");
    assert_eq!(read(format!(" \r\n\t[ {row} ] \n").as_bytes()), [good], "white space around");
    assert_eq!(read(deep(100).as_bytes()).len(), 1);
    assert!(read(deep(100).as_bytes())[0].starts_with("{\"v\":[[["), "a hundred levels");
    for (name, text) in [
        ("deep arrays", deep(100_000)),
        ("deep arrays, not closed", "[".repeat(100_000)),
        ("deep objects, not closed", "{\"a\":".repeat(100_000)),
        ("junk behind", format!("[{row}] x")),
        ("two documents", format!("[{row}][{row}]")),
        ("a comma behind", format!("[{row},]")),
        ("a scalar", "1".to_owned()),
        ("a string", "\"[]\"".to_owned()),
        ("null", "null".to_owned()),
        ("two byte order marks", format!("\u{feff}\u{feff}[{row}]")),
        ("nothing", String::new()),
        ("white space", " \n ".to_owned()),
        ("NUL behind", format!("[{row}]\0")),
        ("a form feed", format!("\u{c}[{row}]")),
        ("a no-break space", format!("\u{a0}[{row}]")),
    ] {
        let found = read(text.as_bytes());
        assert!(!found.is_empty() && found.iter().all(|line| !line.starts_with('{')), "{name}: {found:?}");
    }
    // Cut off after any byte, nothing of it is believed.
    let whole = format!("[{row}, {row}]");
    for end in 0..whole.len() {
        let found = read(&whole.as_bytes()[..end]);
        assert!(!found.is_empty() && found.iter().all(|line| !line.starts_with('{')), "{end}: {found:?}");
    }
    for bytes in [b"[\xff]".as_slice(), b"\xff\xfe[\0]\0", b"\0[\0]", b"[\"\xc3\"]"] {
        let found = read(bytes);
        assert!(!found.is_empty() && found.iter().all(|line| !line.starts_with('{')), "{bytes:?}: {found:?}");
    }
}
