//! CSV. The columns of the original files are called `meta.NAME` here, since a manifest knows its columns; cells are
//! trimmed and empty ones are absent, which is what a manifest means by them.

use super::transcript;

struct Case {
    name: &'static str,
    text: &'static [u8],
    expected: &'static [&'static str],
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    // ---- csv-spectrum ----
    Case { name: "comma_in_quotes", text: b"meta.first,meta.last,meta.address,meta.city,meta.zip\nJohn,Doe,120 any st.,\"Anytown, WW\",08123\n",
        expected: &[r#"{"address":"120 any st.","city":"Anytown, WW","first":"John","last":"Doe","zip":"08123"}"#] },
    Case { name: "empty", text: b"meta.a,meta.b,meta.c\n1,\"\",\"\"\n2,3,4\n",
        expected: &[r#"{"a":"1"}"#, r#"{"a":"2","b":"3","c":"4"}"#] },
    Case { name: "empty_crlf", text: b"meta.a,meta.b,meta.c\r\n1,\"\",\"\"\r\n2,3,4\r\n",
        expected: &[r#"{"a":"1"}"#, r#"{"a":"2","b":"3","c":"4"}"#] },
    Case { name: "escaped_quotes", text: b"meta.a,meta.b\n1,\"ha \"\"ha\"\" ha\"\n3,4\n",
        expected: &[r#"{"a":"1","b":"ha \"ha\" ha"}"#, r#"{"a":"3","b":"4"}"#] },
    Case { name: "json", text: b"meta.key,meta.val\n1,\"{\"\"type\"\": \"\"Point\"\", \"\"coordinates\"\": [102.0, 0.5]}\"\n",
        expected: &[r#"{"key":"1","val":"{\"type\": \"Point\", \"coordinates\": [102.0, 0.5]}"}"#] },
    Case { name: "location_coordinates", text: "meta.Contact Phone Number,meta.Location Coordinates,meta.Cities\n5555555555,\"37°36'37.8\"\"N 121°2'17.9\"\"W\",\"a\nb\"\n".as_bytes(),
        expected: &[r#"{"Cities":"a\nb","Contact Phone Number":"5555555555","Location Coordinates":"37°36'37.8\"N 121°2'17.9\"W"}"#] },
    Case { name: "newlines", text: b"meta.a,meta.b,meta.c\n1,2,3\n\"Once upon \na time\",5,6\n7,8,9\n",
        expected: &[r#"{"a":"1","b":"2","c":"3"}"#, r#"{"a":"Once upon \na time","b":"5","c":"6"}"#, r#"{"a":"7","b":"8","c":"9"}"#] },
    Case { name: "newlines_crlf", text: b"meta.a,meta.b,meta.c\r\n1,2,3\r\n\"Once upon \r\na time\",5,6\r\n7,8,9\r\n",
        expected: &[r#"{"a":"1","b":"2","c":"3"}"#, r#"{"a":"Once upon \r\na time","b":"5","c":"6"}"#, r#"{"a":"7","b":"8","c":"9"}"#] },
    Case { name: "quotes_and_newlines", text: b"meta.a,meta.b\n1,\"ha \n\"\"ha\"\" \nha\"\n3,4\n",
        expected: &[r#"{"a":"1","b":"ha \n\"ha\" \nha"}"#, r#"{"a":"3","b":"4"}"#] },
    Case { name: "simple", text: b"meta.a,meta.b,meta.c\n1,2,3\n",
        expected: &[r#"{"a":"1","b":"2","c":"3"}"#] },
    Case { name: "simple_crlf", text: b"meta.a,meta.b,meta.c\r\n1,2,3\r\n",
        expected: &[r#"{"a":"1","b":"2","c":"3"}"#] },
    Case { name: "utf8", text: "meta.a,meta.b,meta.c\n1,2,3\n4,5,ʤ\n".as_bytes(),
        expected: &[r#"{"a":"1","b":"2","c":"3"}"#, r#"{"a":"4","b":"5","c":"ʤ"}"#] },
    // ---- the csv crate ----
    Case { name: "no newline at the end", text: b"meta.a,meta.b\n1,2", expected: &[r#"{"a":"1","b":"2"}"#] },
    Case { name: "empty lines between", text: b"\n\nmeta.a\n\n1\n\n\n2\n\n", expected: &[r#"{"a":"1"}"#, r#"{"a":"2"}"#] },
    Case { name: "carriage returns alone", text: b"meta.a,meta.b\r1,2\r3,4\r", expected: &[r#"{"a":"1","b":"2"}"#, r#"{"a":"3","b":"4"}"#] },
    Case { name: "a byte order mark before a quote", text: b"\xEF\xBB\xBF\"meta.a\",meta.b\n1,2\n", expected: &[r#"{"a":"1","b":"2"}"#] },
    Case { name: "quotes around the last cell, no newline", text: b"meta.a,meta.b\n1,\"2\"", expected: &[r#"{"a":"1","b":"2"}"#] },
    Case { name: "an empty cell at the end", text: b"meta.a,meta.b\n1,\n", expected: &[r#"{"a":"1"}"#] },
    Case { name: "a quote within a cell", text: b"meta.a,meta.b\nx\"y,5\"\n", expected: &[r#"{"a":"x\"y","b":"5\""}"#] },
    Case { name: "two quotes are an empty cell", text: b"meta.a,meta.b\n\"\",x\n", expected: &[r#"{"b":"x"}"#] },
    Case { name: "four quotes are one", text: b"meta.a,meta.b\n\"\"\"\",x\n", expected: &[r#"{"a":"\"","b":"x"}"#] },
    Case { name: "separators only within quotes", text: b"meta.a;meta.b\n\";\";\",\"\n", expected: &[r#"{"a":";","b":","}"#] },
    Case { name: "not UTF-8", text: b"meta.a,meta.b\n\xE9,x\ny,z\n", expected: &["bad 2:1: ", r#"{"a":"y","b":"z"}"#] },
    Case { name: "a row too long", text: b"meta.a,meta.b\n1,2,3\n4,5\n", expected: &["bad 2:5: found 3 cells, expected 2", r#"{"a":"4","b":"5"}"#] },
    Case { name: "a row too short", text: b"meta.a,meta.b\n1\n4,5\n", expected: &["bad 2:1: found 1 cell, expected 2", r#"{"a":"4","b":"5"}"#] },
    // ---- Python's csv module ----
    Case { name: "never closed", text: b"meta.a,meta.b\n1,\"2\n3,4\n", expected: &["unreadable 2:3: the quote that opens this cell is never closed"] },
    Case { name: "a lone quote at the end", text: b"meta.a,meta.b\n1,\"", expected: &["unreadable 2:3: the quote that opens this cell is never closed"] },
    Case { name: "text behind a closing quote", text: b"meta.a,meta.b\n\"x\"y,2\n3,4\n", expected: &["bad 2:", r#"{"a":"3","b":"4"}"#] },
    Case { name: "a space before a quote", text: b"meta.a,meta.b\n1, \"2\"\n", expected: &[r#"{"a":"1","b":"\"2\""}"#] },
    Case { name: "NUL", text: b"meta.a,meta.b\n1,x\0y\n3,4\n", expected: &["bad 2:", r#"{"a":"3","b":"4"}"#] },
    Case { name: "a vertical tab and a form feed stay", text: b"meta.a,meta.b\nx\x0by,x\x0cy\n", expected: &[r#"{"a":"x\u000by","b":"x\fy"}"#] },
    Case { name: "line separators of Unicode are none", text: "meta.a,meta.b\nx\u{2028}y,x\u{85}y\n".as_bytes(), expected: &["{\"a\":\"x\u{2028}y\",\"b\":\"x\u{85}y\"}"] },
    Case { name: "the same column twice", text: b"meta.a,meta.a\n1,2\n", expected: &["refused 1:8: meta.a: the column appears twice"] },
    Case { name: "a column without a name", text: b"meta.a,,meta.b\n1,2,3\n", expected: &["refused 1:8: "] },
    Case { name: "nothing", text: b"", expected: &["refused 1: the file is empty"] },
    Case { name: "newlines alone", text: b"\n\r\n\r", expected: &["refused 1"] },
];

#[test]
fn every_case_comes_out_as_it_must() {
    let mut wrong = Vec::new();
    for case in CASES {
        let found = transcript("a.csv", case.text);
        let fits = found.len() == case.expected.len()
            && found.iter().zip(case.expected).all(|(found, expected)| match expected.starts_with('{') {
                true => found == expected,
                false => found.starts_with(expected),
            });
        if !fits {
            wrong.push(format!("{}:\n  found    {found:?}\n  expected {:?}", case.name, case.expected));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
