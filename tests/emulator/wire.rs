//! The emulator against the shared wire fixtures (`tests/fixtures/wire/README.md` has the format).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::path::Path;

use crate::emulator::process::http_client;
use callsheet_emulator::{DEFAULT_API_KEY, FaultPlan, Options, Plan, start};
use reqwest::{Client, Method};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixture {
    name: String,
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    account: Account,
    faults: Option<FaultPlan>,
    steps: Vec<Step>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Account {
    credits: Option<u64>,
    #[serde(default)]
    plan: Plan,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    request: Request,
    response: Response,
    #[serde(default)]
    capture: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    raw: Option<String>,
    #[serde(default = "yes")]
    key: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Response {
    status: u16,
    body: Option<Value>,
    #[serde(default)]
    empty: bool,
}

type Captured = BTreeMap<String, String>;

fn filled(text: &str, captured: &Captured) -> String {
    captured.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// Every way in which an answer is not as expected.
fn differences(
    at: &str,
    expected: &Value,
    found: Option<&Value>,
    captured: &Captured,
    out: &mut Vec<String>,
) {
    let Some(found) = found else {
        if expected != "<absent>" {
            out.push(format!("{at} is missing"));
        }
        return;
    };
    match (expected, found) {
        (Value::Object(wanted), Value::Object(fields)) => {
            for (name, value) in wanted {
                differences(&format!("{at}.{name}"), value, fields.get(name), captured, out);
            }
        }
        (Value::Array(wanted), Value::Array(items)) if wanted.len() == items.len() => {
            for (n, (value, item)) in wanted.iter().zip(items).enumerate() {
                differences(&format!("{at}[{n}]"), value, Some(item), captured, out);
            }
        }
        (Value::String(word), _) if matches(&filled(word, captured), found) => {}
        _ if expected == found => {}
        _ => out.push(format!("{at} is {found}, expected {expected}")),
    }
}

fn matches(word: &str, found: &Value) -> bool {
    let text = found.as_str();
    if let Some((kind, rest)) = word.split_once(' ') {
        match kind {
            "<starts>" => return text.is_some_and(|text| text.starts_with(rest)),
            "<contains>" => return text.is_some_and(|text| text.contains(rest)),
            "<other>" => return text.is_some_and(|text| text != rest),
            "<json>" => {
                let inner = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
                let expected: Value = serde_json::from_str(rest).unwrap();
                return inner.is_some_and(|inner| same_keys(&expected, &inner));
            }
            _ => {}
        }
    }
    match word {
        "<string>" => text.is_some(),
        "<integer>" => found.is_i64(),
        "<array>" => found.is_array(),
        "<uuid>" => text.is_some_and(|text| uuid::Uuid::parse_str(text).is_ok()),
        "<timestamp>" => text.is_some_and(|text| chrono::DateTime::parse_from_rfc3339(text).is_ok()),
        "<url>" => text.is_some_and(|text| url::Url::parse(text).is_ok()),
        plain => text == Some(plain),
    }
}

fn same_keys(expected: &Value, found: &Value) -> bool {
    let mut out = Vec::new();
    differences("", expected, Some(found), &Captured::new(), &mut out);
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    out.is_empty() && keys(expected) == keys(found)
}

async fn play(client: &Client, fixture: Fixture) -> Result<(), String> {
    let emulator = start(Options {
        speed: f64::INFINITY,
        credits: fixture.account.credits.unwrap_or(100_000),
        plan: fixture.account.plan,
        faults: fixture.faults,
        ..Options::default()
    })
    .await
    .map_err(|error| error.to_string())?;
    let mut captured = Captured::new();
    for (n, step) in fixture.steps.into_iter().enumerate() {
        exchange(client, &emulator.base_url(), step, &mut captured)
            .await
            .map_err(|error| format!("step {}: {error}", n + 1))?;
    }
    Ok(())
}

async fn exchange(client: &Client, base: &str, step: Step, captured: &mut Captured) -> Result<(), String> {
    let Request { method, path, headers, body, raw, key } = step.request;
    let address = format!("{base}{}", filled(&path, captured));
    let mut request = client.request(Method::from_bytes(method.as_bytes()).unwrap(), address);
    if key {
        request = request.bearer_auth(DEFAULT_API_KEY);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if let Some(body) = body {
        request = request.json(&body);
    }
    if let Some(raw) = raw {
        request = request.body(raw);
    }
    let answer = request.send().await.map_err(|error| error.to_string())?;
    let status = answer.status().as_u16();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    if status != step.response.status {
        return Err(format!("status {status}, expected {}: {text}", step.response.status));
    }
    if step.response.empty && !text.is_empty() {
        return Err(format!("a body where there should be none: {text}"));
    }
    let found: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut out = Vec::new();
    if let Some(expected) = &step.response.body {
        differences("body", expected, Some(&found), captured, &mut out);
    }
    for (name, pointer) in step.capture {
        match found.pointer(&pointer).and_then(Value::as_str) {
            Some(value) => drop(captured.insert(name, value.to_owned())),
            None => out.push(format!("{pointer} is not there to be captured")),
        }
    }
    if out.is_empty() { Ok(()) } else { Err(out.join("; ")) }
}

#[tokio::test]
async fn every_fixture_is_answered_as_the_document_says() {
    let client = http_client().pool_max_idle_per_host(0).build().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/wire");
    let (mut count, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let fixtures: Vec<Fixture> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        for fixture in fixtures {
            count += 1;
            let name = format!("{file}: {}", fixture.name);
            if let Err(error) = play(&client, fixture).await {
                wrong.push(format!("{name}\n    {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} fixtures:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 400, "only {count} fixtures were found");
}
