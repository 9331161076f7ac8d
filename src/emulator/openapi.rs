//! The OpenAPI 3.1 description of what is served.

use serde_json::{Value, json};

/// The description, for an emulator at this address.
pub(crate) fn description(base_url: &str) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Media Generation Service API", "version": "1"},
        "servers": [{"url": base_url}],
        "paths": {},
    })
}

/// The same as YAML.
pub(crate) fn yaml(description: &Value) -> String {
    description.to_string()
}
