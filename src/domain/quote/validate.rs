//! Checks that several kinds share, and how values are shown in messages.

use serde_json::{Map, Value};
use url::{Host, Url};

use super::model_rules::Rules;

use crate::domain::diagnostic::{Diagnostic, Diagnostics};
use crate::domain::input_file::is_file_name;
use crate::domain::job_reference::is_reference;
use crate::domain::url_policy::address_class;

/// The prompt as it is sent: trimmed, and not empty.
pub(super) fn prompt(
    field: &str,
    given: Option<&str>,
    rules: &Rules,
    diagnostics: &mut Diagnostics,
) -> String {
    let text = given.unwrap_or_default().trim();
    match given {
        None => diagnostics.refuse(field, "is missing, and the service needs one"),
        Some(_) if text.is_empty() => diagnostics.refuse(field, "is empty, and the service needs one"),
        Some(_) => {}
    }
    prohibited_words(field, text, rules, diagnostics);
    text.to_owned()
}

/// Says where a text has wording that the service refuses.
pub(super) fn prohibited_words(field: &str, text: &str, rules: &Rules, diagnostics: &mut Diagnostics) {
    if let Some(said) = rules.prohibited_in(text) {
        let said = shorten(&said);
        let message = format!("says \"{said}\": the service refuses such wording, even where it is negated");
        diagnostics.note(field, message);
    }
}

/// Addresses that the service can fetch: http or https, with a host, from outside and without a password.
pub(super) fn urls(field: &str, urls: &[String], diagnostics: &mut Diagnostics) {
    let mut far = urls.iter().enumerate().filter_map(|(index, text)| Some((index, out_of_reach(text)?)));
    if let Some((index, why)) = far.next() {
        let which = if urls.len() == 1 { String::new() } else { format!("address {}: ", index + 1) };
        let more = match far.count() {
            0 => String::new(),
            more => format!("; and so {more} more"),
        };
        diagnostics.note(field, format!("{which}{why}{more}"));
    }
    for (index, text) in urls.iter().enumerate() {
        let which = if urls.len() == 1 { String::new() } else { format!("address {}: ", index + 1) };
        if let Some(why) = unfit(text) {
            let found = shorten(text);
            let message = format!(
                "{which}\"{found}\" {why}; an address begins with http:// or https://, a file of this machine with ./ or /"
            );
            diagnostics.refuse(field, message);
        }
    }
}

/// Names that are resolved on the spot only.
const LOCAL_NAMES: [&str; 6] = [".localhost", ".local", ".lan", ".internal", ".intranet", ".home.arpa"];

/// Why the service cannot fetch an address, which it does from the internet and without a password. What is secret
/// in the address is not shown.
fn out_of_reach(text: &str) -> Option<String> {
    if is_file_name(text) {
        return None;
    }
    let url = Url::parse(text).ok()?;
    if url.password().is_some() || !url.username().is_empty() {
        let host = shorten(url.host_str().unwrap_or_default());
        return Some(format!(
            "the address on {host} carries a user name or password; the service fetches without"
        ));
    }
    let (host, what) = match url.host()? {
        Host::Ipv4(ip) => (ip.to_string(), address_class(ip.into())?.to_string()),
        Host::Ipv6(ip) => (ip.to_string(), address_class(ip.into())?.to_string()),
        Host::Domain(name) => {
            let bare = name.trim_end_matches('.');
            let is_local = !bare.contains('.') || LOCAL_NAMES.iter().any(|end| bare.ends_with(end));
            (shorten(name), is_local.then(|| "a name of this network only".to_owned())?)
        }
    };
    Some(format!("{host} is {what}, which the service cannot reach"))
}

fn unfit(text: &str) -> Option<String> {
    // What they mean is validated by those who know the other rows, and the files.
    if is_reference(text) || is_file_name(text) {
        return None;
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Some("holds white space".to_owned());
    }
    let lower = text.to_ascii_lowercase();
    if lower.contains("|http://") || lower.contains("|https://") {
        return Some("is more than one address; put white space between them".to_owned());
    }
    match Url::parse(text) {
        Err(error) => Some(format!("is not an address ({error})")),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            Some(format!("is a {}: address", url.scheme()))
        }
        // The parser repairs what the service does not: `https:example.com`.
        Ok(_) if !has_slashes(text) => Some("has no // after its scheme".to_owned()),
        Ok(_) => None,
    }
}

fn has_slashes(text: &str) -> bool {
    text.split_once(':').is_some_and(|(_, rest)| rest.starts_with("//"))
}

/// Options without nulls and empty lists, which mean the same as leaving them out.
pub(super) fn present(options: &Map<String, Value>) -> Map<String, Value> {
    let absent = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let mut present = options.clone();
    present.retain(|_, value| !absent(value));
    present
}

/// An option that must be true or false.
pub(super) fn boolean(
    options: &Map<String, Value>,
    name: &str,
    diagnostics: &mut Diagnostics,
) -> Option<bool> {
    let value = options.get(name)?;
    let flag = value.as_bool();
    if flag.is_none() {
        diagnostics.refuse(&option(name), format!("found {}; true or false is accepted", found(value)));
    }
    flag
}

/// An option that must be a text.
pub(super) fn text<'a>(
    options: &'a Map<String, Value>,
    name: &str,
    diagnostics: &mut Diagnostics,
) -> Option<&'a str> {
    let value = options.get(name)?;
    let text = value.as_str();
    if text.is_none() {
        diagnostics.refuse(&option(name), format!("found {}; a text is accepted", found(value)));
    }
    text
}

/// An option that must be a JSON number.
pub(super) fn number(options: &Map<String, Value>, name: &str, diagnostics: &mut Diagnostics) -> Option<f64> {
    let value = options.get(name)?;
    let number = value.as_f64();
    if number.is_none() {
        diagnostics.refuse(&option(name), format!("found {}; a number is accepted", found(value)));
    }
    number
}

/// An option that must be a JSON number from `least` to `most`.
pub(super) fn number_within(
    options: &Map<String, Value>,
    name: &str,
    (least, most): (f64, f64),
    diagnostics: &mut Diagnostics,
) {
    let Some(value) = options.get(name) else { return };
    if !value.as_f64().is_some_and(|number| (least..=most).contains(&number)) {
        let message = format!("found {}; a number from {least} to {most} is accepted", found(value));
        diagnostics.refuse(&option(name), message);
    }
}

/// Says what a number becomes that the service clamps.
pub(super) fn clamped(
    options: &Map<String, Value>,
    name: &str,
    (least, most): (f64, f64),
    diagnostics: &mut Diagnostics,
) {
    let Some(number) = number(options, name, diagnostics) else { return };
    if !(least..=most).contains(&number) {
        let becomes = number.clamp(least, most);
        let message = format!("{number} is outside {least} to {most}; the service makes it {becomes}");
        diagnostics.note(&option(name), message);
    }
}

/// `options.NAME`, as diagnostics and manifests call it.
pub(super) fn option(name: &str) -> String {
    format!("options.{name}")
}

/// A value as it was found, not too long.
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", shorten(text)),
        other => shorten(&other.to_string()),
    }
}

/// At most 60 characters.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// `a`, `a or b`, `a, b or c`.
pub(super) fn either<S: AsRef<str>>(words: &[S]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => (*only).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// A word longer than this many characters is nobody's slip of the pen: comparing takes its length times that of every
/// candidate.
const COMPARED_CHARS: usize = 128;

/// The candidates nearest to `wanted`, best first, three at most.
pub(super) fn nearest<'a>(wanted: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    if wanted.chars().nth(COMPARED_CHARS).is_some() {
        return Vec::new();
    }
    let wanted = wanted.to_lowercase();
    let scored = candidates.map(|word| (strsim::jaro_winkler(&wanted, &word.to_lowercase()), word));
    let mut near: Vec<(f64, &str)> = scored.filter(|(score, _)| *score > 0.85).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().take(3).map(|(_, word)| word).collect()
}

/// An error about a word that is none of those allowed.
pub(super) fn not_one_of(field: &str, given: &str, allowed: &[&str]) -> Diagnostic {
    let near = nearest(given, allowed.iter().copied());
    let hint = (!near.is_empty()).then(|| format!("did you mean {}?", either(&near)));
    let message = format!("found \"{}\"; {} is accepted", shorten(given), either(allowed));
    Diagnostic { hint, ..Diagnostic::new(message).in_field(field) }
}
