//! What reading a manifest gives, as transcripts: bytes in, one line for each row or problem out.

use std::io::Read;

use serde_json::{Map, Value, json};

use super::row::{ReadRow, Row};
use super::{Limits, Manifest, RefusedManifest};

mod csv;
mod json;
mod jsonl;
mod matrix;
mod properties;
mod typing;

/// Small enough to be reached by a test.
fn limits() -> Limits {
    Limits { max_line_bytes: 500, max_json_bytes: 2000, max_count: 1000 }
}

/// Opens a manifest that names no table.
fn open<R: Read>(name: &str, source: R, limits: &Limits) -> Result<Manifest<R>, RefusedManifest<R>> {
    super::open(name, source, limits, &mut |table| Err(format!("there is no {table}")))
}

/// Reads the file `name`. One line each: `2:1 {...}` for a good row, `bad ...` for each problem of a
/// bad one, `refused ...` for a file that cannot be opened, `unreadable ...` where it breaks off.
fn transcript(name: &str, bytes: &[u8]) -> Vec<String> {
    let manifest = match open(name, bytes, &limits()) {
        Ok(manifest) => manifest,
        Err(refused) => return refused.problems.iter().map(|problem| format!("refused {problem}")).collect(),
    };
    manifest.flat_map(told).collect()
}

fn told(row: ReadRow) -> Vec<String> {
    match row {
        // Of no kind yet: what some kind would refuse.
        ReadRow::Good(row) if !row.mistyped.is_empty() => {
            row.mistyped.values().map(|mistyped| format!("bad {}", mistyped.problem)).collect()
        }
        ReadRow::Good(row) => {
            vec![format!("{}:{} {}", row.position.line, row.position.column.unwrap(), shown(&row))]
        }
        ReadRow::Bad(bad) => bad.problems.iter().map(|problem| format!("bad {problem}")).collect(),
        ReadRow::Unreadable(problem) => vec![format!("unreadable {problem}")],
    }
}

/// The fields of a row that are given, as JSON.
fn shown(row: &Row) -> String {
    let mut fields = match serde_json::to_value(&row.request).unwrap() {
        Value::Object(fields) => fields,
        other => panic!("a request is an object, not {other}"),
    };
    let mut add = |name: &str, value: Value| {
        if !value.is_null() && value != json!({}) {
            fields.insert(name.to_owned(), value);
        }
    };
    add("id", json!(row.id));
    add("kind", json!(row.kind));
    add("count", json!(Some(row.count).filter(|count| *count != 1)));
    add("priority", json!(row.priority));
    add("deadline", json!(row.deadline));
    add("max_credits", json!(row.max_credits));
    add("review", json!(row.review));
    add("meta", Value::Object(row.meta.clone()));
    Value::Object(fields.into_iter().collect::<Map<_, _>>()).to_string()
}

/// Reading `text` as the file `name` gives exactly these lines.
#[track_caller]
fn check(name: &str, text: &str, expected: &[&str]) {
    let found = transcript(name, text.as_bytes());
    assert_eq!(found, expected, "\nfound:\n{}\n", found.join("\n"));
}

#[test]
fn a_manifest_without_a_row_is_unreadable() {
    let told = ["unreadable 1: there is no job in the file, expected at least one"];
    check("a.csv", "id,prompt\n", &told);
    check("a.csv", "id,prompt\n\n,\n  \n", &told);
    check("a.json", "[]", &told);
    check("a.json", "{\"jobs\": [ ]}", &told);
    check("a.txt", "[\n]", &told);
}

#[test]
fn what_is_no_text_is_refused() {
    let refused = |bytes: &[u8], part: &str| {
        for name in ["a.csv", "a.json", "a.jsonl", "a"] {
            let found = transcript(name, bytes);
            assert!(
                found.len() == 1 && found[0].starts_with("refused 1: ") && found[0].contains(part),
                "{found:?}"
            );
        }
    };
    refused(b"", "the file is empty");
    refused(b"\xEF\xBB\xBF", "the file is empty");
    refused(b"\xFF\xFE\"\0i\0d\0", "UTF-16 text, expected UTF-8 text");
    refused(b"PK\x03\x04\x14\0\x06\0", "a workbook");
}

#[test]
fn a_read_error_ends_the_rows() {
    #[derive(Debug)]
    struct Breaks;
    impl Read for Breaks {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let refused = open("a.csv", "prompt\na\n".as_bytes().chain(Breaks), &limits()).unwrap_err();
    assert_eq!(refused.problems[0].to_string(), "1: the file cannot be read further: the disk is gone");

    let check = |name, text: &str, expected: &str| {
        let rows: Vec<_> = open(name, text.as_bytes().chain(Breaks), &limits()).unwrap().collect();
        assert_eq!(told(rows[5000].clone()), [expected]);
        assert_eq!(rows.len(), 5001);
    };
    let csv = format!("prompt\n{}", "x\n".repeat(5000));
    check("a.csv", &csv, "unreadable 5002:1: the file cannot be read further: the disk is gone");
    let lines = "{\"prompt\":\"x\"}\n".repeat(5000);
    check("a.jsonl", &lines, "unreadable 5001: the file cannot be read further: the disk is gone");
}
