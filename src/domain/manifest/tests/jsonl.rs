//! JSON Lines, read as transcripts.

use crate::domain::manifest::row::ReadRow;

use super::{limits, open, transcript};

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    super::check("a.jsonl", text, expected);
}

#[test]
fn one_job_a_line() {
    check(
        "\u{feff}{\"prompt\":\"a\"}\r\n\n  \n  {\"prompt\": \"b\", \"count\": 3}",
        &[r#"1:1 {"prompt":"a"}"#, r#"4:3 {"count":3,"prompt":"b"}"#],
    );
}

#[test]
fn a_broken_line_is_bad_alone() {
    check(
        "{\"prompt\":\"a\"\n{\"prompt\":\"b\"} {}\n[1]\n7\nprompt\n{\"prompt\":\"c\"}\n",
        &[
            "bad 1:13: not JSON: the text ends while parsing an object (hint: each line is one whole job object)",
            "bad 2:16: not JSON: trailing characters (hint: each line is one whole job object)",
            r#"bad 3:1: found [1], expected a job: an object such as {"prompt": "..."}"#,
            r#"bad 4:1: found 7, expected a job: an object such as {"prompt": "..."}"#,
            "bad 5:1: not JSON: expected value (hint: each line is one whole job object)",
            r#"6:1 {"prompt":"c"}"#,
        ],
    );
}

#[test]
fn bytes_that_are_no_text() {
    assert_eq!(
        transcript("a.jsonl", b"{\"prompt\":\"\xFC\"}\n{\"prompt\":\"b\"}"),
        [
            "bad 1:12: found the byte 0xFC, expected UTF-8 (hint: save the file as UTF-8; a spreadsheet calls it \"CSV UTF-8\")",
            r#"2:1 {"prompt":"b"}"#,
        ]
    );
}

#[test]
fn a_long_line_is_bad_alone() {
    let long = "x".repeat(limits().max_line_bytes + 1);
    check(
        &format!("{{\"prompt\":\"{long}\"}}\n{{\"prompt\":\"b\"}}\n{long}"),
        &[
            "bad 1: the line is longer than 500 bytes",
            r#"2:1 {"prompt":"b"}"#,
            "bad 3: the line is longer than 500 bytes",
        ],
    );
}

#[test]
fn an_endless_line_is_never_held() {
    let endless = std::io::Read::take(std::io::repeat(b'['), 20 << 20);
    let source = std::io::Read::chain("{\"prompt\":\"a\"}\n{\"prompt\":".as_bytes(), endless);
    let rows: Vec<_> = open("a.jsonl", source, &limits()).unwrap().collect();
    assert!(matches!(&rows[..], [ReadRow::Good(_), ReadRow::Bad(_)]), "{rows:?}");
}

#[test]
fn a_file_of_no_known_name_is_told_by_its_bytes() {
    super::check("-", "{\"prompt\":\"a\"}\n", &[r#"1:1 {"prompt":"a"}"#]);
}
