//! What a row asks for otherwise than the row of the same `id` that its batch has.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::input_file::InputFile;
use crate::domain::job::Order;
use crate::domain::job_reference::JobInput;

/// Longest value that is quoted, in characters.
const QUOTED_MAX_CHARS: usize = 40;

/// One field that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The field by its canonical name (`prompt`, `options.duration`).
    pub field: String,
    pub message: String,
}

/// Every field that differs, in the order of their names. Where nothing that is sent differs, the row spells out a
/// default, or no longer does, or writes a value otherwise.
pub fn differences(before: &Order, now: &Order) -> Vec<FieldChange> {
    let mut found = Vec::new();
    if before.kind != now.kind {
        let message = format!("was {}, is {}", before.kind, now.kind);
        found.push(FieldChange { field: "kind".to_owned(), message });
    }
    compare("", &before.body.fields(), &now.body.fields(), &mut found);
    let changed_files = now.files.iter().filter(|file| {
        let same_place = |other: &&InputFile| (other.field, other.place) == (file.field, file.place);
        let before = before.files.iter().find(same_place);
        before.is_some_and(|before| before.name == file.name && before.identity() != file.identity())
    });
    found.extend(changed_files.map(|file| FieldChange {
        field: file.field.name().to_owned(),
        message: format!("the content of {} changed", file.name),
    }));
    let changed_inputs = now.inputs.iter().filter_map(|input| {
        let same_place = |other: &&JobInput| (other.field, other.place) == (input.field, input.place);
        input_change(before.inputs.iter().find(same_place)?, input)
    });
    let changed_inputs: Vec<FieldChange> =
        changed_inputs.filter(|change| found.iter().all(|found| found.field != change.field)).collect();
    found.extend(changed_inputs);
    if found.is_empty() {
        let message = "the same is sent: a default is spelled out, or is no longer, or a value is written otherwise; \
                       that makes another job";
        found.push(FieldChange { field: "options".to_owned(), message: message.to_owned() });
    }
    found
}

/// In what an input differs that is the output of a row.
fn input_change(before: &JobInput, now: &JobInput) -> Option<FieldChange> {
    if before.identity() == now.identity() {
        return None;
    }
    let message = match before.fingerprint == now.fingerprint {
        true => format!("takes {} now, took {}", now.shown(), before.shown()),
        false => format!("the row {} changed, and is another job now", now.shown()),
    };
    let field = format!("{}{}", if now.field.is_length() { "options." } else { "" }, now.field.name());
    Some(FieldChange { field, message })
}

fn compare(
    prefix: &str,
    before: &Map<String, Value>,
    now: &Map<String, Value>,
    found: &mut Vec<FieldChange>,
) {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for name in names {
        let field = format!("{prefix}{name}");
        match (before.get(name), now.get(name)) {
            (one, other) if one == other => {}
            (Some(Value::Object(before)), Some(Value::Object(now))) if prefix.is_empty() => {
                compare(&format!("{field}."), before, now, found);
            }
            (None, Some(Value::Object(now))) if prefix.is_empty() => {
                compare(&format!("{field}."), &Map::new(), now, found);
            }
            (Some(Value::Object(before)), None) if prefix.is_empty() => {
                compare(&format!("{field}."), before, &Map::new(), found);
            }
            (one, other) => found.push(FieldChange { field, message: how(one, other) }),
        }
    }
}

fn how(before: Option<&Value>, now: Option<&Value>) -> String {
    match (before, now) {
        (Some(Value::String(before)), Some(Value::String(now))) if with_lf(before) == with_lf(now) => {
            let ends = |text: &str| if text.contains('\r') { "CRLF" } else { "LF" };
            format!(
                "differs in line ends alone, was {}, is {}: save the manifest with the line ends that it had",
                ends(before),
                ends(now)
            )
        }
        (Some(Value::String(before)), Some(Value::String(now))) if folded(before) == folded(now) => {
            "differs in case or spaces alone".to_owned()
        }
        (before, now) => format!("was {}, is {}", quoted(before), quoted(now)),
    }
}

fn with_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

fn quoted(value: Option<&Value>) -> String {
    let Some(value) = value else { return "not given".to_owned() };
    let text = value.to_string();
    if text.chars().count() <= QUOTED_MAX_CHARS {
        return text;
    }
    text.chars().take(QUOTED_MAX_CHARS).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::ids::Fingerprint;
    use crate::domain::job_reference::InputField;

    #[allow(clippy::needless_pass_by_value, reason = "a literal reads best as it is")]
    fn order(kind: &str, body: Value) -> Order {
        serde_json::from_value(json!({"line": 2, "kind": kind, "body": body})).unwrap()
    }

    fn shown(before: &Order, now: &Order) -> Vec<String> {
        differences(before, now)
            .into_iter()
            .map(|found| format!("{}: {}", found.field, found.message))
            .collect()
    }

    #[test]
    fn the_field_is_named_and_how_it_differs() {
        let before =
            order("image", json!({"model": "m", "prompt": "A red fox", "options": {"quality": "1K"}}));
        let now = order("image", json!({"model": "m", "prompt": "a red  Fox", "options": {"quality": "2K"}}));
        assert_eq!(
            shown(&before, &now),
            ["options.quality: was \"1K\", is \"2K\"", "prompt: differs in case or spaces alone"]
        );
        let [lf, crlf] = ["A fox\nin snow", "A fox\r\nin snow"]
            .map(|prompt| order("image", json!({"model": "m", "prompt": prompt})));
        let told = "prompt: differs in line ends alone, was LF, is CRLF: save the manifest with the line ends that it had";
        assert_eq!(shown(&lf, &crlf), [told]);
        let other = order("image", json!({"model": "m", "prompt": "A wolf ".repeat(9)}));
        assert_eq!(
            shown(&before, &other),
            [
                "options.quality: was \"1K\", is not given",
                "prompt: was \"A red fox\", is \"A wolf A wolf A wolf A wolf A wolf A wo…"
            ]
        );
    }

    #[test]
    fn a_row_that_takes_an_output_of_another_is_told_that_that_one_changed() {
        let with_input = |fingerprint: u8| {
            let mut order = order("video", json!({"prompt": "go", "image_urls": ["job:still"]}));
            order.inputs.push(JobInput {
                field: InputField::ImageUrls,
                place: 0,
                batch: None,
                row: "still".to_owned(),
                fingerprint: Fingerprint([fingerprint; 16]),
                takes: 1,
                variation: None,
                output: 1,
            });
            order
        };
        assert_eq!(
            shown(&with_input(1), &with_input(2)),
            ["image_urls: the row still changed, and is another job now"]
        );
        let with_take = |take: Option<u32>| {
            let mut order = with_input(1);
            order.inputs[0].variation = take;
            order
        };
        // A person picked another take of it.
        assert_eq!(
            shown(&with_take(Some(1)), &with_take(Some(2))),
            ["image_urls: takes still-v2 now, took still-v1"]
        );
    }

    #[test]
    fn a_default_that_is_spelled_out_is_told_as_that() {
        let one = order("video", json!({"prompt": "x", "options": {"duration": "5s"}}));
        assert_eq!(
            shown(&one, &one.clone()),
            [
                "options: the same is sent: a default is spelled out, or is no longer, or a value is written otherwise; \
                 that makes another job"
            ]
        );
        let sound = order("sound-effect", json!({"prompt": "x", "options": {"duration": "5s"}}));
        assert_eq!(shown(&one, &sound), ["kind: was video, is sound-effect"]);
    }
}
