//! Composing bodies as the service takes them.

use serde_json::{Map, Value};

/// A body of the fields that are there, with `options` when there are any.
pub(super) fn body<const N: usize>(
    fields: [(&str, Option<Value>); N],
    options: Map<String, Value>,
) -> Map<String, Value> {
    let present = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let mut body: Map<String, Value> = present.collect();
    if !options.is_empty() {
        body.insert("options".to_owned(), Value::Object(options));
    }
    body
}

/// A list, unless it is empty.
pub(super) fn list(items: &[String]) -> Option<Value> {
    (!items.is_empty()).then(|| items.iter().map(String::as_str).collect())
}
