//! A row that a batch has, as a manifest writes it: made from what the state keeps of it.
//!
//! The state keeps what is sent, with the defaults that were filled in, and who the row is. The fields that the manifest
//! gave are those from which the same identity follows: they are tried, and what does not lead to it is not used. Where
//! what is sent does not tell them, `written` keeps them.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::domain::ids::{BatchName, Fingerprint};
use crate::domain::job::{JobSpec, Order};
use crate::domain::job_label::row_id;
use crate::domain::job_reference::{InputField, is_reference};
use crate::domain::manifest::row::Deadline;
use crate::domain::quote::kind_fields::documented_options;
use crate::domain::quote::{self, canonical_body};
use crate::domain::request::{Kind, Request};
use crate::ingest::row_references::with_identities;

/// Options of a row that are tried as defaults that it did not give.
const DEFAULTS_MAX: usize = 12;

/// Empty lines that a row is moved down by, at most, to stand where it stood in its manifest.
const EMPTY_LINES_MAX: u64 = 1 << 20;

/// Writes empty lines after the line `last`, so that the next row stands at line `wanted` where it stood in its manifest, and
/// returns the number of its line. It follows at once where
/// something stands at that line, or the line is too far down.
///
/// # Errors
/// As writing to `out`.
pub(super) fn begin_line(out: &mut impl Write, last: u64, wanted: u64) -> io::Result<u64> {
    let empty = wanted.saturating_sub(last + 1);
    let empty = if empty <= EMPTY_LINES_MAX { empty } else { 0 };
    for _ in 0..empty {
        out.write_all(b"\n")?;
    }
    Ok(last + 1 + empty)
}

/// A row that a batch has.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedRow {
    /// Its `id`.
    pub id: Option<String>,
    kind: Kind,
    request: Request,
}

impl AcceptedRow {
    /// The row of a job; nothing where no fields are found from which its identity follows: a value was read otherwise
    /// than it was written.
    pub fn of(spec: &JobSpec, batch: &BatchName, namespace: &str) -> Option<AcceptedRow> {
        let order = &spec.order;
        let kind = order.kind;
        let request = sent(order)?;
        let ids = [row_id(&spec.label, spec.variation), None];
        let defaults: Vec<&str> = match kind {
            Kind::ShortsStudio => Vec::new(),
            kind => documented_options(kind)
                .iter()
                .filter(|name| request.options.contains_key(**name))
                .take(DEFAULTS_MAX)
                .copied()
                .collect(),
        };
        let mut left_out: Vec<u32> = (0..1 << defaults.len()).collect();
        left_out.sort_by_key(|left_out| left_out.count_ones());
        for left_out in left_out {
            let mut request = request.clone();
            for (at, name) in defaults.iter().enumerate() {
                if left_out & (1 << at) != 0 {
                    request.options.remove(*name);
                }
            }
            let body = canonical_body(kind, &with_identities(&request, &order.inputs, &order.files));
            let leads_to_it = |id: &Option<&str>| {
                Fingerprint::derive(namespace, batch, *id, kind.endpoint(), &body) == spec.fingerprint
            };
            if let Some(id) = ids.into_iter().find(leads_to_it) {
                let request = without_derived(kind, request);
                return Some(AcceptedRow { id: id.map(str::to_owned), kind, request });
            }
        }
        None
    }

    /// The row as a line of a JSON Lines manifest, asking for `count` variations. What does not belong to its identity
    /// is written as in `order`: the terms of the batch may have changed since.
    pub fn line(&self, order: &Order, count: u32) -> Value {
        let mut line = match serde_json::to_value(&self.request) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        line.insert("kind".to_owned(), json!(self.kind));
        if let Some(id) = &self.id {
            line.insert("id".to_owned(), json!(id));
        }
        if count != 1 {
            line.insert("count".to_owned(), json!(count));
        }
        line.insert("priority".to_owned(), json!(order.priority));
        if let Some(deadline) = order.deadline {
            let text = match deadline {
                Deadline::After(span) => format!("{}ms", span.0),
                Deadline::At(at) => at.to_string(),
            };
            line.insert("deadline".to_owned(), json!(text));
        }
        if let Some(most) = order.max_credits {
            line.insert("max_credits".to_owned(), json!(most.0));
        }
        line.insert("review".to_owned(), json!(order.review));
        if !order.meta.is_empty() {
            line.insert("meta".to_owned(), Value::Object(order.meta.fields()));
        }
        Value::Object(line)
    }
}

/// What a row asks for as it is written; nothing where what is sent tells it, but for defaults that it did not give.
/// `identity` is its canonical body, and `sent` the body of the POST.
pub(super) fn written(
    request: &Request,
    kind: Kind,
    identity: &Map<String, Value>,
    sent: &Map<String, Value>,
) -> Option<Box<Request>> {
    /// In the identity they name who makes them.
    const ADDRESSES: [&str; 2] = ["image_urls", "video_urls"];
    const OPTIONS: &str = "options";
    if kind == Kind::ShortsStudio {
        return None;
    }
    let has_option = |name: &str| identity.get(OPTIONS).and_then(|given| given.get(name)).is_some();
    let is_length = |name: &str, sent: &Value| {
        InputField::lengths_of(kind).iter().any(|length| length.name() == name)
            && sent.as_str().is_some_and(is_reference)
    };
    let is_told = identity.iter().all(|(name, value)| match (name.as_str(), value) {
        (OPTIONS, Value::Object(written)) => written.iter().all(|(name, value)| {
            sent.get(OPTIONS)
                .and_then(|sent| sent.get(name))
                .is_some_and(|sent| is_length(name, sent) || quote::tells_option(kind, name, sent, value))
        }),
        (name, _) if ADDRESSES.contains(&name) => sent.contains_key(name),
        (name, value) => sent.get(name) == Some(value),
    });
    if is_told {
        return None;
    }
    let mut request = request.clone();
    // Options that were filled in later are left out.
    request.options.retain(|name, _| has_option(name));
    Some(Box::new(request))
}

/// The request of a row, with references in the place of addresses, and perhaps with defaults that it did not give.
fn sent(order: &Order) -> Option<Request> {
    if let Some(written) = &order.written {
        return Some(Request::clone(written));
    }
    if order.kind == Kind::ShortsStudio {
        return Some(Request { options: order.body.fields(), ..Request::default() });
    }
    serde_json::from_str(order.body.as_str()).ok()
}

/// A request without a mode or scene that follows from its inputs: other inputs would then want another.
fn without_derived(kind: Kind, request: Request) -> Request {
    let bare = Request { mode: None, scene: None, ..request.clone() };
    if canonical_body(kind, &bare) == canonical_body(kind, &request) { bare } else { request }
}
