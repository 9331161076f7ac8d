//! Whatever the bytes are, reading ends; whatever the row is, the formats agree on it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::domain::credits::Credits;
use crate::domain::diagnostic::Position;
use crate::domain::manifest::Limits;
use crate::domain::manifest::row::{Deadline, FieldPlaces, ReadRow, Row};
use crate::domain::request::{Kind, Request};
use crate::domain::time::Millis;

use super::{limits, open};

const NAMES: [&str; 5] = ["a.csv", "a.json", "a.jsonl", "a.tsv", "a"];

/// Reads to the end; every row ends in a row or in problems.
fn read_all(name: &str, bytes: &[u8]) {
    match open(name, bytes, &limits()) {
        Ok(manifest) => {
            for row in manifest {
                assert!(!matches!(row, ReadRow::Bad(bad) if bad.problems.is_empty()));
            }
        }
        Err(refused) => assert!(!refused.problems.is_empty()),
    }
}

/// Pieces of which broken manifests are made.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        ",",
        ":",
        ";",
        "\t",
        "\n",
        "\r\n",
        "\r",
        "id",
        "prompt",
        "duration",
        "options",
        "options.a",
        "meta.b",
        "image_urls",
        "count",
        "jobs",
        "defaults",
        "policy",
        "null",
        "true",
        "7",
        "-1.5",
        "1e400",
        "\"id\":",
        "\"jobs\":[",
        "\"options\":{",
        "\\ud800",
        "\\u0000",
        "\0",
        "ü",
        "\u{feff}",
        "\u{2028}",
        " ",
    ])
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for name in NAMES {
            read_all(name, &bytes);
        }
    }

    #[test]
    fn any_pieces_are_read_to_an_end(pieces in prop::collection::vec(piece(), 0..80)) {
        let text = pieces.concat();
        for name in NAMES {
            read_all(name, text.as_bytes());
            read_all(name, format!("id,prompt,options.a\n{text}").as_bytes());
            read_all(name, format!("[{{\"prompt\":\"a\",{text}}}]").as_bytes());
        }
    }

    #[test]
    fn a_row_is_the_same_in_every_format(rows in prop::collection::vec(row(), 1..6)) {
        prop_assert_eq!(&read_back("a.csv", &as_csv(&rows)), &rows);
        prop_assert_eq!(&read_back("a.json", &as_json(&rows)), &rows);
        prop_assert_eq!(&read_back("a.jsonl", &as_lines(&rows)), &rows);
    }
}

/// The rows of a manifest, all of them good, without their places.
fn read_back(name: &str, bytes: &[u8]) -> Vec<Row> {
    let without_places = |row: ReadRow| match row {
        ReadRow::Good(row) => Row { position: Position::default(), places: FieldPlaces::default(), ..*row },
        bad => panic!("{name}: {bad:?}\n{}", String::from_utf8_lossy(bytes)),
    };
    open(name, bytes, &Limits::default()).unwrap().map(without_places).collect()
}

/// Text that means nothing but itself.
fn words() -> impl Strategy<Value = String> {
    "[a-zäß🎬][a-z ,;'\"\n\t🎬]{0,20}[a-z]"
}

fn url() -> impl Strategy<Value = String> {
    "https://[a-z]{1,8}/[a-z0-9,]{0,8}[a-z]"
}

/// Option values that a CSV cell can say.
fn option_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        words().prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..3).prop_map(Value::from),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let texts = (prop::option::of(words()), prop::option::of(words()), prop::option::of(words()));
    let options = prop::collection::btree_map("x[a-z]{0,3}", option_value(), 0..4);
    let urls = prop::collection::vec(url(), 0..3);
    (texts, options, urls, prop::option::of(0_u64..100)).prop_map(
        |((prompt, text, model), options, urls, seconds)| {
            let mut options: Map<String, Value> = options.into_iter().collect();
            options.extend(seconds.map(|seconds| ("duration".to_owned(), json!(seconds))));
            Request { prompt, text, model, image_urls: urls, options, ..Request::default() }
        },
    )
}

prop_compose! {
    fn row()(
        request in request(),
        kind in prop::option::of(prop::sample::select(&Kind::ALL[..])),
        id in "[a-z0-9]{1,8}",
        count in 1_u32..=1000,
        priority in prop::option::of(any::<i8>()),
        seconds in prop::option::of(1_u64..100_000),
        max_credits in prop::option::of(any::<u64>().prop_map(Credits)),
        review in prop::option::of(any::<bool>()),
        meta in prop::collection::btree_map("[a-z.]{1,4}", words(), 0..3),
    ) -> Row {
        let meta = meta.into_iter().map(|(name, text)| (name, Value::from(text))).collect();
        let deadline = seconds.map(|seconds| Deadline::After(Millis::from_secs(seconds)));
        Row { request, kind, id: Some(id), count, priority, deadline, max_credits, review, meta, ..Row::at(Position::default()) }
    }
}

/// The row as a JSON job.
fn job(row: &Row) -> Value {
    let mut job = serde_json::to_value(&row.request).unwrap();
    job["id"] = json!(row.id);
    job["count"] = json!(row.count);
    job["kind"] = json!(row.kind);
    job["priority"] = json!(row.priority);
    job["max_credits"] = json!(row.max_credits);
    job["review"] = json!(row.review);
    job["meta"] = Value::Object(row.meta.clone());
    if let Some(Deadline::After(span)) = row.deadline {
        job["deadline"] = json!(format!("{}ms", span.0));
    }
    job
}

fn as_json(rows: &[Row]) -> Vec<u8> {
    serde_json::to_vec_pretty(&rows.iter().map(job).collect::<Vec<_>>()).unwrap()
}

fn as_lines(rows: &[Row]) -> Vec<u8> {
    rows.iter().map(|row| format!("{}\n", job(row))).collect::<String>().into_bytes()
}

/// The row as cells by their columns.
fn cells(row: &Row) -> BTreeMap<String, String> {
    let mut cells = BTreeMap::new();
    let Value::Object(job) = job(row) else { panic!("a job is an object") };
    for (name, value) in job {
        match value {
            Value::Object(group) => {
                cells.extend(group.into_iter().map(|(key, value)| (format!("{name}.{key}"), cell(value))));
            }
            value => drop(cells.insert(name, cell(value))),
        }
    }
    cells
}

/// A JSON value as a cell says it.
fn cell(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn as_csv(rows: &[Row]) -> Vec<u8> {
    let rows: Vec<_> = rows.iter().map(cells).collect();
    let names: std::collections::BTreeSet<_> = rows.iter().flat_map(BTreeMap::keys).collect();
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(&names).unwrap();
    for row in &rows {
        writer.write_record(names.iter().map(|name| row.get(*name).map_or("", String::as_str))).unwrap();
    }
    writer.into_inner().unwrap()
}
