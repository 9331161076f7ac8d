//! Where fuzzing enters: one function for each reader of text from outside, with what must hold whatever the text
//! is. Shared by the targets of cargo-fuzz and by `tests/faults/fuzz_smoke.rs`.

use std::path::Path;
use std::sync::OnceLock;

use callsheet::api::{RawResponse, response, shorts_studio};
use callsheet::config::Config;
use callsheet::domain::ids::TaskId;
use callsheet::domain::manifest::row::ReadRow;
use callsheet::domain::manifest::{Limits, open};
use callsheet::domain::quote::catalog::CatalogPart;
use callsheet::domain::quote::{Catalog, Rules, quote};
use callsheet::domain::request::{Kind, Request};
use callsheet::domain::task::{PostAnswer, ReadAnswer, TaskReading};
use callsheet::ingest::receipt::Receipt;
use callsheet::output::{detect_media_type, is_truncated};
use callsheet::server::protocol::{
    CancelRequest, PauseRequest, ResolveRequest, RetryRequest, Status, Submission,
};
use serde_json::Value;

/// Read once: they are the same for every text.
static RULES: OnceLock<Rules> = OnceLock::new();

pub fn csv(data: &[u8]) {
    read_all("a.csv", data);
}

pub fn json(data: &[u8]) {
    read_all("a.json", data);
}

pub fn jsonl(data: &[u8]) {
    read_all("a.jsonl", data);
}

/// Reading ends, and every row is a row or is told about.
fn read_all(name: &str, data: &[u8]) {
    let limits = Limits { max_line_bytes: 4096, max_json_bytes: 64 * 1024, max_count: 100 };
    let mut read_table = |_: &str| Ok(b"sku,name\nA-1,mug\nB-2,bowl\n".to_vec());
    match open(name, data, &limits, &mut read_table) {
        Err(refused) => assert!(!refused.problems.is_empty()),
        Ok(manifest) => {
            let mut ended = false;
            for row in manifest {
                assert!(!ended, "nothing follows what is unreadable");
                match row {
                    ReadRow::Good(row) => assert!(row.count <= limits.max_count),
                    ReadRow::Bad(bad) => assert!(!bad.problems.is_empty()),
                    ReadRow::Unreadable(_) => ended = true,
                }
            }
        }
    }
}

/// A configuration that is taken can be used.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse(text, Path::new("callsheet.toml")) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(config) => {
            assert!(config.layout().is_ok() && config.rules().is_ok());
            assert!(config.limits.in_flight > 0 && config.poll.min.0 <= config.poll.max.0);
        }
    }
}

/// What a control client or a daemon may be sent; a status that is read is written and read the same.
pub fn control(data: &[u8]) {
    let read = [
        serde_json::from_slice::<PauseRequest>(data).map(drop),
        serde_json::from_slice::<CancelRequest>(data).map(drop),
        serde_json::from_slice::<RetryRequest>(data).map(drop),
        serde_json::from_slice::<ResolveRequest>(data).map(drop),
        serde_json::from_slice::<Submission>(data).map(drop),
        serde_json::from_slice::<Receipt>(data).map(drop),
    ];
    for error in read.into_iter().filter_map(Result::err) {
        assert!(!error.to_string().is_empty());
    }
    if let Ok(status) = serde_json::from_slice::<Status>(data) {
        let text = serde_json::to_vec(&status).unwrap_or_default();
        assert!(serde_json::from_slice::<Status>(&text).is_ok_and(|again| again == status));
    }
}

/// Any answer comes to something, and nothing endless or impossible comes of it, whatever was asked for. The first two
/// bytes are the status, the third the length of `Retry-After`.
pub fn answers(data: &[u8]) {
    let [high, low, wait, rest @ ..] = data else { return };
    let status = 100 + u16::from_be_bytes([*high, *low]) % 500;
    let (wait, body) = rest.split_at(usize::from(*wait % 32).min(rest.len()));
    let retry_after = std::str::from_utf8(wait).ok().map(str::to_owned);
    let raw = RawResponse {
        status,
        retry_after,
        date: Some("Sun, 06 Nov 1994 12:00:00 GMT".to_owned()),
        redirect: None,
        body: body.to_vec(),
    };
    let asked = TaskId("asked".into());
    for posted in [response::classify_post(&raw, Kind::Video), shorts_studio::classify_post(&raw)] {
        match posted {
            PostAnswer::Task(reading) => is_possible(&reading),
            PostAnswer::TaskNamed(task, _) => assert!((1..=256).contains(&task.0.len())),
            PostAnswer::Refused(fault) => assert!(fault.message.chars().count() <= 2_000),
            _ => {}
        }
    }
    if let ReadAnswer::Task(reading) = response::classify_read(&raw).about(&asked) {
        is_possible(&reading);
        assert_eq!(reading.id, asked);
    }
    if let ReadAnswer::Task(reading) = shorts_studio::classify_read(&raw, &asked) {
        is_possible(&reading);
    }
    match response::parse_balance(&raw) {
        Ok(left) => assert!(status == 200, "{left}"),
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
    for part in [CatalogPart::Video, CatalogPart::Image, CatalogPart::Music, CatalogPart::Voices] {
        match response::parse_catalog(&raw, part) {
            Ok(answer) => is_a_catalog(part, &answer.data),
            Err(fault) => assert!(!fault.to_string().is_empty()),
        }
    }
}

/// By a catalog that is taken every request can be judged.
fn is_a_catalog(part: CatalogPart, data: &Value) {
    let mut catalog = Catalog::default();
    catalog.read(part, data);
    let first = [
        catalog.video.iter().next().map(|model| (Kind::Video, &model.about.id)),
        catalog.image.iter().next().map(|model| (Kind::Image, &model.about.id)),
        catalog.music.iter().next().map(|model| (Kind::Music, &model.about.id)),
        catalog.voices.voices.iter().next().map(|voice| (Kind::Speech, &voice.id)),
    ];
    let rules = RULES.get_or_init(Rules::builtin);
    for (kind, id) in first.into_iter().flatten() {
        let of = |wanted: Kind, said: &str| (kind == wanted).then(|| said.to_owned());
        let request = Request {
            model: (kind != Kind::Speech).then(|| id.clone()),
            prompt: (kind != Kind::Speech).then(|| "a harbour".to_owned()),
            text: of(Kind::Speech, "a harbour"),
            voice_id: of(Kind::Speech, id),
            ..Request::default()
        };
        match quote(Some(kind), &request, &catalog, rules) {
            Ok(quote) => assert!(!quote.formula.is_empty()),
            Err(findings) => assert!(!findings.is_empty()),
        }
    }
}

fn is_possible(reading: &TaskReading) {
    assert!((1..=300).contains(&reading.id.0.len()));
    assert!([reading.charged, reading.waived].into_iter().flatten().all(|told| told.0 <= 1_000_000_000_000));
    assert!(reading.model.as_ref().is_none_or(|model| model.len() <= 256));
}

/// A download of any content is named or refused; looking for its end ends. The first byte picks the kind.
pub fn outputs(data: &[u8]) {
    let [pick, rest @ ..] = data else { return };
    let kind = Kind::ALL[usize::from(*pick) % Kind::ALL.len()];
    let declared = ["image/png", "video/mp4; a=b", "audio/wav", "", "text/html"][usize::from(*pick) % 5];
    let head = &rest[..rest.len().min(4096)];
    let found = detect_media_type(kind, head, Some(declared), "https://results.test/1").map(|media| {
        assert!(!media.ext.is_empty());
        media.content_type
    });
    let types = ["image/png", "audio/wav", "image/webp", "video/mp4"].map(str::to_owned);
    for content_type in types.into_iter().chain(found.ok()) {
        assert!(is_truncated(std::io::Cursor::new(rest), &content_type).is_ok());
    }
}
