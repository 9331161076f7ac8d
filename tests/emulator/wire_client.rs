//! The wire fixtures, read from the client's side: what the service accepts is quoted at the price it
//! charges, what it refuses is refused beforehand wherever a rule can be known, and every answer is
//! understood. `tests/emulator/wire.rs` holds the emulator to the same folder.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;

use callsheet::api::{RawResponse, response};
use callsheet::domain::credits::Credits;
use callsheet::domain::input_file::is_file_name;
use callsheet::domain::quote::{Catalog, Rules, quote};
use callsheet::domain::request::{Kind, Request};
use callsheet::domain::task::{PostAnswer, ReadAnswer};
use serde_json::{Value, json};

/// Refused by the service for reasons that are no rule of a row, or that only it can tell.
const NOT_KNOWABLE: [&str; 2] = ["prohibited wording", "prohibited wording comes before the model"];

/// Accepted by the service and refused by the plan, on purpose: it would silently make something else,
/// or fail after it was charged.
const REFUSED_FOR_SAFETY: [&str; 4] = [
    "others replace an unrecognised quality",
    "others replace an unrecognised aspect ratio",
    "a source longer than model-g-omni takes fails at the provider and is refunded",
    "a source longer than model-g-omni-video takes fails at the provider and is refunded",
];

/// Refused by the service for its spelling alone, which is put right before it is sent.
const RESPELLED: [&str; 1] = ["aspect_ratio does not ignore case"];

/// Accepted without a price: nothing in the document says what exact pixels cost.
const UNPRICED: &str = "size ";

struct Fixture {
    file: String,
    name: String,
    steps: Vec<Value>,
}

fn fixtures() -> Vec<Fixture> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/wire");
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let listed: Vec<Value> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        found.extend(listed.into_iter().map(|fixture| Fixture {
            file: file.clone(),
            name: fixture["name"].as_str().unwrap().to_owned(),
            steps: fixture["steps"].as_array().unwrap().clone(),
        }));
    }
    assert!(found.len() > 400, "the fixtures were not found");
    found
}

fn catalog() -> Catalog {
    let read = |name: &str| -> Value {
        let path = format!("{}/emulator/src/catalog/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    Catalog::of(&read("video"), &read("image"), &read("music"), &read("voices"))
}

fn kind_of(path: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.endpoint() == path)
}

/// A creating POST whose body is an object of the right shape: what a manifest could have produced.
fn order(step: &Value) -> Option<(Kind, Request)> {
    let request = &step["request"];
    let is_post = request["method"] == "POST" && request["key"] != false;
    let kind = kind_of(request["path"].as_str()?).filter(|_| is_post)?;
    Some((kind, serde_json::from_value(request.get("body")?.clone()).ok()?))
}

#[test]
fn what_the_service_accepts_is_quoted_at_what_it_charges() {
    let (catalog, rules) = (catalog(), Rules::builtin());
    let mut quoted = 0;
    for Fixture { file, name, steps } in fixtures() {
        if REFUSED_FOR_SAFETY.contains(&name.as_str()) || file == "idempotency" || file == "failures" {
            continue;
        }
        for step in &steps {
            let Some((kind, request)) = order(step) else { continue };
            if step["response"]["status"] != 200 {
                continue;
            }
            let offer = quote(Some(kind), &request, &catalog, &rules)
                .unwrap_or_else(|findings| panic!("{file}: {name}: {findings:#?}"));
            quoted += 1;
            let data = &step["response"]["body"]["data"];
            // A task that cost nothing was waived, and tells its price only where it tells that.
            let charged = data["costCredits"].as_u64();
            let waived = data["waivedCredits"].as_u64().unwrap_or(0);
            let full = charged.map(|charged| charged + waived).filter(|full| *full > 0);
            if let Some(full) = full.filter(|_| !name.starts_with(UNPRICED)) {
                let price = offer.price.map(|price| price.0);
                assert_eq!(price, Some(full), "{file}: {name}: {}", offer.formula);
            }
        }
    }
    assert!(quoted > 140, "only {quoted} fixtures were quoted");
}

#[test]
fn what_the_service_refuses_is_refused_beforehand() {
    let (catalog, rules) = (catalog(), Rules::builtin());
    let mut refused = 0;
    for Fixture { file, name, steps } in fixtures() {
        if NOT_KNOWABLE.contains(&name.as_str()) || file == "idempotency" || file == "failures" {
            continue;
        }
        for step in &steps {
            let Some((kind, request)) = order(step) else { continue };
            if step["response"]["status"] != 400 {
                continue;
            }
            refused += 1;
            let addresses = || request.image_urls.iter().chain(&request.video_urls);
            // A file of this machine is not sent as an address: see tests/cli/input_files.rs.
            if addresses().any(|address| is_file_name(address)) {
                continue;
            }
            let offer = quote(Some(kind), &request, &catalog, &rules);
            if RESPELLED.contains(&name.as_str()) {
                let sent = Request { options: options_of(&offer.unwrap().body), ..request.clone() };
                assert_ne!(sent.options, request.options, "{file}: {name}: it is sent as it was refused");
                let again = quote(Some(kind), &sent, &catalog, &rules).unwrap();
                assert_eq!(
                    options_of(&again.body),
                    sent.options,
                    "{file}: {name}: it is in the catalog's spelling"
                );
                continue;
            }
            assert!(offer.is_err(), "{file}: {name}: {offer:#?}");
        }
    }
    assert!(refused > 150, "only {refused} fixtures were refused");
}

#[test]
fn what_is_refused_for_safety_is_refused() {
    let (catalog, rules) = (catalog(), Rules::builtin());
    let all = fixtures();
    for name in REFUSED_FOR_SAFETY {
        let fixture = all.iter().find(|fixture| fixture.name == name).unwrap();
        let (kind, request) = order(&fixture.steps[0]).unwrap();
        assert!(quote(Some(kind), &request, &catalog, &rules).is_err(), "{name}");
    }
}

/// An answer as the service may give it: words become values, and a task has all its fields.
fn example(expected: &Value) -> Value {
    match expected {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| **value != "<absent>")
            .map(|(name, value)| (name.clone(), example(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(example).collect(),
        Value::String(word) => match word.as_str() {
            "<integer>" => json!(7),
            "<array>" => json!([]),
            "<uuid>" => json!("0d5f6a3e-4b7c-4e19-9d0a-1f2e3d4c5b6a"),
            "<timestamp>" => json!("2026-01-01T00:00:00.000Z"),
            "<url>" => json!("https://results.example/1"),
            other => {
                let known = ["<json> ", "<starts> ", "<contains> ", "<other> "];
                let text = known.iter().find_map(|word| other.strip_prefix(word));
                json!(text.unwrap_or(other))
            }
        },
        other => other.clone(),
    }
}

fn raw(response: &Value) -> RawResponse {
    let status = u16::try_from(response["status"].as_u64().unwrap()).unwrap();
    let mut body = example(&response["body"]);
    // A fixture says of the envelope what it is about.
    if let Some(envelope) = body.as_object_mut() {
        envelope.entry("code").or_insert_with(|| if status == 200 { json!(0) } else { json!(-1) });
    }
    if status == 200 && response["body"]["data"].is_object() {
        let mut task = json!({
            "id": "0d5f6a3e-4b7c-4e19-9d0a-1f2e3d4c5b6a", "status": "pending", "costCredits": 7,
            "waivedCredits": 0, "taskUrls": [], "options": "{}", "model": "m",
        });
        task.as_object_mut().unwrap().extend(body["data"].as_object().unwrap().clone());
        body["data"] = task;
    }
    let bytes = if response["empty"] == true { Vec::new() } else { body.to_string().into_bytes() };
    RawResponse { status, retry_after: None, date: None, redirect: None, body: bytes }
}

#[test]
fn every_answer_to_a_post_is_understood() {
    let mut seen = 0;
    for Fixture { file, name, steps } in fixtures() {
        for step in &steps {
            let request = &step["request"];
            let kind = kind_of(request["path"].as_str().unwrap());
            let Some(kind) = kind.filter(|_| request["method"] == "POST") else { continue };
            seen += 1;
            let response = &step["response"];
            let named = response["body"]["error"].get("task_id").is_some_and(|id| id != "<absent>");
            let understood = response::classify_post(&raw(response), kind);
            let fits = match (response["status"].as_u64().unwrap(), &understood) {
                (200, PostAnswer::Task(task)) => {
                    let data = &response["body"]["data"];
                    data["costCredits"].as_u64().is_none_or(|cost| task.charged == Some(Credits(cost)))
                        && data["waivedCredits"]
                            .as_u64()
                            .is_none_or(|waived| task.waived == Some(Credits(waived)))
                }
                // Under a key that another kind has used: never one of ours, and not the answer to this request.
                (200, PostAnswer::Again { may_have_run: true, .. }) => {
                    name == "keys are shared by all creating endpoints"
                }
                (400 | 500, PostAnswer::TaskNamed(..)) => named,
                (400 | 404, PostAnswer::Refused(_)) => !named,
                (405, PostAnswer::Again { may_have_run, .. }) => !may_have_run,
                (401, PostAnswer::Unauthorised(_)) | (402, PostAnswer::OutOfCredits(_)) => true,
                (500, PostAnswer::Again { may_have_run, .. }) => !named && *may_have_run,
                (503, PostAnswer::Again { may_have_run, .. }) => !may_have_run,
                _ => false,
            };
            assert!(fits, "{file}: {name}: {understood:?}");
        }
    }
    assert!(seen > 400, "only {seen} answers were seen");
}

#[test]
fn every_answer_to_a_poll_is_understood() {
    let mut seen = 0;
    for Fixture { file, name, steps } in fixtures() {
        for step in &steps {
            let path = step["request"]["path"].as_str().unwrap();
            if step["request"]["method"] != "GET" || !path.starts_with("/api/v1/tasks/") {
                continue;
            }
            seen += 1;
            let understood = response::classify_read(&raw(&step["response"]));
            let fits = match (step["response"]["status"].as_u64().unwrap(), &understood) {
                (200, ReadAnswer::Task(task)) => {
                    let info = step["response"]["body"]["data"]["taskInfo"].as_str().unwrap_or_default();
                    let is_error =
                        info.strip_prefix("<json> ").is_some_and(|text| text.contains("errorCode"));
                    !is_error || task.fault.is_some()
                }
                (404, ReadAnswer::Missing(_)) => true,
                _ => false,
            };
            assert!(fits, "{file}: {name}: {understood:?}");
        }
    }
    assert!(seen > 10, "only {seen} polls were seen");
}

fn options_of(body: &serde_json::Map<String, Value>) -> serde_json::Map<String, Value> {
    body["options"].as_object().unwrap().clone()
}
