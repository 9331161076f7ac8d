//! The OpenAPI 3.1 description of what is served, as JSON and as YAML.

use std::fmt::Write;

use serde_json::{Value, json};

/// The description, for an emulator at this address.
pub(crate) fn description(base_url: &str) -> Value {
    // A test reads the same text, so a mistake in it never ships.
    let mut description: Value = serde_json::from_str(include_str!("service.json")).unwrap_or_default();
    description["servers"] = json!([{"url": base_url}]);
    description
}

/// A JSON value as YAML: block style, every string in JSON's quotes, which YAML reads the same way.
pub(crate) fn yaml(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, depth: usize, out: &mut String) {
    let start = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                entry(&format!("{start}{}:", Value::from(name.as_str())), value, depth, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                entry(&format!("{start}-"), item, depth, out);
            }
        }
        scalar => line(out, &format!("{start}{scalar}")),
    }
}

fn entry(head: &str, value: &Value, depth: usize, out: &mut String) {
    let nested = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if nested {
        line(out, head);
        block(value, depth + 1, out);
    } else {
        line(out, &format!("{head} {value}"));
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_openapi_3_1_and_every_reference_leads_somewhere() {
        let description = description("http://here");
        assert_eq!(description["openapi"], "3.1.0");
        assert_eq!(description["servers"][0]["url"], "http://here");
        let text = description.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(description.pointer(pointer).is_some(), "{pointer}");
        }
    }

    #[test]
    fn yaml_nests_by_indentation() {
        let value = json!({"a": {"b": [1, "x: y", {"c": []}]}, "d": null});
        let expected = "\"a\":\n  \"b\":\n    - 1\n    - \"x: y\"\n    -\n      \"c\": []\n\"d\": null\n";
        assert_eq!(yaml(&value), expected);
    }
}
