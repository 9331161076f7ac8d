//! Composing bodies as the service takes them.

use serde_json::{Map, Value};

/// A body of the fields that are there, with `options` when there are any.
pub(super) fn body<const N: usize>(
    fields: [(&str, Option<Value>); N],
    options: Map<String, Value>,
) -> Map<String, Value> {
    // Collected, they would be sorted first, in a list of their own.
    let mut body = Map::new();
    for (name, value) in fields {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    }
    if !options.is_empty() {
        body.insert("options".to_owned(), Value::Object(options));
    }
    body
}

/// A list, unless it is empty.
pub(super) fn list(items: &[String]) -> Option<Value> {
    (!items.is_empty()).then(|| items.iter().map(String::as_str).collect())
}
