//! The schema of manifests against the reader: both accept and refuse the same.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use boon::{Compiler, Draft, SchemaIndex, Schemas};
use callsheet::domain::manifest::row::ReadRow;
use callsheet::domain::manifest::{self, Limits, schema};
use serde_json::Value;

/// The schema of manifests, compiled: this fails if it is none.
struct Schema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Schema {
    fn of_manifests() -> Schema {
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler.set_default_draft(Draft::V2020_12);
        compiler.add_resource("manifest.json", schema::manifest()).unwrap();
        let index = compiler.compile("manifest.json", &mut schemas).unwrap();
        Schema { schemas, index }
    }

    /// Or what is wrong with it, for a person to read.
    fn validate(&self, manifest: &Value) -> Result<(), String> {
        self.schemas.validate(manifest, self.index).map_err(|error| error.to_string())
    }
}

/// Whether the reader takes every row of a JSON manifest.
fn reader_accepts(text: &str) -> bool {
    match manifest::open("m.json", text.as_bytes(), &Limits::default(), &mut |_| Err("no table".to_owned())) {
        Ok(rows) => rows.into_iter().all(|row| matches!(row, ReadRow::Good(row) if row.mistyped.is_empty())),
        Err(_) => false,
    }
}

#[test]
fn it_is_a_schema_of_the_2020_12_draft() {
    Schema::of_manifests();
    assert_eq!(schema::manifest()["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn schema_and_reader_agree() {
    let schema = Schema::of_manifests();
    let jobs = |job: &str| format!("[{job}]");
    let policy = |policy: &str| format!(r#"{{"policy": {policy}, "jobs": [{{"prompt": "x"}}]}}"#);
    let accepted = [
        jobs(r#"{"id": "a", "kind": "video", "model": "m", "prompt": "x"}"#),
        jobs(r#"{"id": 7, "prompt": "x"}"#),
        jobs(r#"{"id": null, "prompt": "x", "count": 1000, "priority": -128, "max_credits": 0}"#),
        jobs(r#"{"prompt": "x", "review": true}"#),
        jobs(r#"{"prompt": "x", "duration": 8}"#),
        jobs(r#"{"prompt": "x", "duration": "8s"}"#),
        jobs(r#"{"prompt": "x", "audio": true, "image_urls": ["http://a/1", "http://a/2"]}"#),
        jobs(r#"{"prompt": "x", "image_urls": "http://a/1 http://a/2"}"#),
        jobs(r#"{"prompt": "x", "options": {"seed": 4, "anything": [1, {"a": null}]}}"#),
        jobs(r#"{"prompt": "x", "meta": {"sku": 1, "nested": {"a": []}}}"#),
        jobs(r#"{"prompt": "x", "options": null, "meta": null, "kind": null}"#),
        jobs(r#"{"prompt": "x", "deadline": "30m"}"#),
        jobs(r#"{"prompt": "x", "deadline": "2026-12-01T08:00:00Z"}"#),
        jobs(r#"{"prompt": "x", "speed": 0.5, "duration_seconds": 20}"#),
        jobs(r#"{"kind": "video", "options": {"style": {"id": 3}, "quality": 2, "duration": 8}}"#),
        jobs(
            r#"{"kind": "shorts-studio", "options": {"style": {"id": 3}, "duration": {"min": 3}}, "audio": 1}"#,
        ),
        r#"{"batch": "b", "defaults": {"kind": "image", "count": 2}, "jobs": [{"prompt": "x"}]}"#.to_owned(),
        r#"{"matrix": {"n": [1, 2]}, "matrix_max": 5, "jobs": [{"prompt": "x {{ n }}", "count": "{{ n }}"}]}"#.to_owned(),
        r#"{"matrix": {"t": "a.csv"}, "tables": {"a.csv": [{"b": 1}]}, "jobs": [{"id": "{{ t.b }}", "prompt": "x"}]}"#.to_owned(),
        policy(
            r#"{"budget": 100, "priority": 1, "deadline": "1h", "on_deadline": "watch", "expires": "2h"}"#,
        ),
        policy(
            r#"{"attempts": 3, "strict": true, "allow_unknown_options": false, "on_drift": "pause", "review": true, "layout": "{batch}/{job}.{ext}"}"#,
        ),
        policy("{}"),
    ];
    let refused = [
        "[]".to_owned(),
        "{}".to_owned(),
        "7".to_owned(),
        r#"{"jobs": []}"#.to_owned(),
        r#"{"jobs": {"prompt": "x"}}"#.to_owned(),
        r#"{"jobs": [{"prompt": "x"}], "job": 1}"#.to_owned(),
        r#"{"defaults": {"id": "a"}, "jobs": [{"prompt": "x"}]}"#.to_owned(),
        r#"{"batch": 7, "jobs": [{"prompt": "x"}]}"#.to_owned(),
        jobs("7"),
        jobs(r#"{"promt": "x"}"#),
        jobs(r#"{"prompt": 7}"#),
        jobs(r#"{"kind": "vidoe"}"#),
        jobs(r#"{"kind": 7}"#),
        jobs(r#"{"id": true}"#),
        jobs(r#"{"id": "a\nb"}"#),
        jobs(&format!(r#"{{"id": "{}"}}"#, "x".repeat(201))),
        jobs(r#"{"count": 0}"#),
        jobs(r#"{"count": 1001}"#),
        jobs(r#"{"count": "3"}"#),
        jobs(r#"{"priority": 128}"#),
        jobs(r#"{"max_credits": -1}"#),
        jobs(r#"{"max_credits": 1.5}"#),
        jobs(r#"{"review": "yes"}"#),
        jobs(r#"{"duration": 8.5}"#),
        jobs(r#"{"duration": true}"#),
        jobs(r#"{"audio": "true"}"#),
        jobs(r#"{"speed": "fast"}"#),
        jobs(r#"{"image_urls": [7]}"#),
        jobs(r#"{"image_urls": [" "]}"#),
        jobs(r#"{"image_urls": {"a": 1}}"#),
        jobs(r#"{"options": [1]}"#),
        jobs(r#"{"options": {" ": 1}}"#),
        jobs(r#"{"options": {"audio": 1}}"#),
        jobs(r#"{"kind": "video", "options": {"audio": 1}}"#),
        jobs(r#"{"kind": "music", "options": {"style": {"id": 3}}}"#),
        jobs(r#"{"kind": "image", "quality": 2}"#),
        policy(r#"{"allow_unknown_options": "yes"}"#),
        jobs(r#"{"meta": {"": 1}}"#),
        jobs(r#"{"meta": "x"}"#),
        jobs(r#"{"deadline": "soon"}"#),
        policy("[]"),
        policy(r#"{"budgte": 1}"#),
        policy(r#"{"attempts": 0}"#),
        policy(r#"{"attempts": 101}"#),
        policy(r#"{"on_drift": "stop"}"#),
        policy(r#"{"strict": "yes"}"#),
        policy(r#"{"layout": 1}"#),
    ];
    for (texts, expected) in [(accepted.as_slice(), true), (refused.as_slice(), false)] {
        for text in texts {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(reader_accepts(text), expected, "the reader on {text}");
            assert_eq!(schema.validate(&value).is_ok(), expected, "the schema on {text}");
        }
    }
}

#[test]
fn every_sample_follows_it() {
    let schema = Schema::of_manifests();
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("jobs");
    let mut seen = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = || fs::read_to_string(&path).unwrap();
        let manifest: Value = match path.extension().and_then(|ext| ext.to_str()) {
            Some("json") => serde_json::from_str(&text()).unwrap(),
            Some("jsonl") => {
                text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect()
            }
            _ => continue,
        };
        seen += 1;
        schema.validate(&manifest).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    assert!(seen >= 4, "the samples were not found");
}
