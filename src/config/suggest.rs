//! What to do about a problem of the configuration: the nearest known word, and types in plain words.

/// Keys that had another name in an earlier version, and the present one.
const RENAMED: &[(&str, &str)] = &[
    ("archive_after", "list_finished_for"),
    ("keep", "min_balance"),
    ("late_poll", "overdue_poll"),
    ("late_window", "watch_overdue_for"),
    ("like", "inherit"),
    ("rejections", "pause_after_rejections"),
    ("slow_after", "slow_window"),
    ("slow_download", "min_download_rate"),
];

/// Adds the nearest known word to a message about an unknown one: a key, or a value of which there are a few. `key` is the
/// one that the message is about.
pub(super) fn with_suggestion(key: &str, message: &str) -> String {
    if matches!(key, "inbox" | "schedule") && message.starts_with("invalid type: map, expected a sequence") {
        return format!("found [{key}]; write [[{key}]], once for each");
    }
    if let Some(typed) = type_message(message) {
        return typed;
    }
    if let Some(found) = message.strip_prefix("relative URL without a base: ") {
        match key {
            "output.store" => {
                return format!(
                    "found {found}, expected an object store such as s3://bucket/prefix, gs://… or az://…, or a folder as \
                     file:///path/of/folder"
                );
            }
            "inputs.store" => {
                return format!(
                    "found {found}, expected an object store such as s3://bucket/prefix, gs://… or az://…"
                );
            }
            _ => {}
        }
        return format!("found {found}, expected an address such as https://service.example");
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let what = match message {
        _ if message.starts_with("unknown variant") => "unknown value",
        _ if message.starts_with("unknown") => "unknown key",
        _ => return message.to_owned(),
    };
    let Some(unknown) = quoted.next() else { return message.to_owned() };
    if let Some((_, name)) =
        RENAMED.iter().find(|(old, name)| *old == unknown && quoted.clone().any(|q| q == *name))
    {
        return format!("{what} `{unknown}`: it is called `{name}` now");
    }
    let nearest =
        quoted.max_by(|a, b| strsim::jaro_winkler(a, unknown).total_cmp(&strsim::jaro_winkler(b, unknown)));
    match nearest.filter(|name| strsim::jaro_winkler(name, unknown) > 0.75) {
        Some(name) => format!("{what} `{unknown}`: did you mean `{name}`?"),
        None => message.replacen("unknown field", what, 1).replacen("unknown variant", what, 1),
    }
}

/// `found "many", expected a whole number`, of a message about a type or a range.
fn type_message(message: &str) -> Option<String> {
    let rest = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let found = ["string ", "integer ", "floating point ", "boolean "]
        .into_iter()
        .find_map(|kind| found.strip_prefix(kind))
        .unwrap_or(found)
        .replace('`', "");
    let found = match found.as_str() {
        "sequence" => "a list",
        "map" => "a table",
        other => other,
    };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "a nonzero u32" => "a whole number, 1 or more",
        "i8" | "i32" | "i64" => "a whole number",
        "a boolean" => "true or false",
        "a string" | "path string" => "a text in quotes",
        "a sequence" => "a list, as [\"a\", \"b\"]",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    Some(format!("found {found}, expected {expected}"))
}
