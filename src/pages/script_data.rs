//! Data in script files: what a page from disk can load, since it may not fetch.
//!
//! A file is one call with JSON in a string: `callsheetPage(3,'{"id":...}');`. Parsed by `JSON.parse`, a key called
//! `__proto__` is a key like any other, and a large page is read several times as fast as a literal.

use serde::Serialize;

/// A file that calls `function` with a number and a value.
///
/// # Errors
/// When the value has no JSON.
pub fn call<T: Serialize + ?Sized>(function: &str, number: usize, value: &T) -> serde_json::Result<String> {
    Ok(call_with(function, number, &serde_json::to_string(value)?))
}

/// The same with a value that is JSON already.
pub fn call_with(function: &str, number: usize, json: &str) -> String {
    let mut file = String::with_capacity(json.len() + json.len() / 8 + function.len() + 16);
    file.push_str(function);
    file.push('(');
    file.push_str(&number.to_string());
    file.push_str(",'");
    push_escaped(json, &mut file);
    file.push_str("');\n");
    file
}

/// JSON as the inside of a script's string between apostrophes. Nothing in it ends the string, the line or a `script`
/// element, in whatever way the file is read.
fn push_escaped(json: &str, out: &mut String) {
    let mut rest = json;
    while let Some(at) = rest.find(['\\', '\'', '<', '\u{2028}', '\u{2029}', '\n', '\r']) {
        out.push_str(&rest[..at]);
        let mut after = rest[at..].chars();
        out.push_str(match after.next() {
            Some('\\') => "\\\\",
            Some('\'') => "\\'",
            Some('<') => "\\x3c",
            Some('\u{2028}') => "\\u2028",
            Some('\u{2029}') => "\\u2029",
            // White space between two values: JSON has neither inside of a string.
            _ => " ",
        });
        rest = after.as_str();
    }
    out.push_str(rest);
}

/// The JSON in a file that [`call`] made; nothing where it is not one.
pub fn json_of(file: &str) -> Option<String> {
    let text = file.strip_suffix("');\n")?;
    let mut rest = &text[text.find(",'")? + 2..];
    let mut json = String::with_capacity(rest.len());
    while let Some(at) = rest.find('\\') {
        json.push_str(&rest[..at]);
        let escaped = &rest[at + 1..];
        let (meant, bytes) = match escaped.as_bytes().first()? {
            b'\\' => ("\\", 1),
            b'\'' => ("'", 1),
            b'x' if escaped.starts_with("x3c") => ("<", 3),
            b'u' if escaped.starts_with("u2028") => ("\u{2028}", 5),
            b'u' if escaped.starts_with("u2029") => ("\u{2029}", 5),
            _ => return None,
        };
        json.push_str(meant);
        rest = &escaped[bytes..];
    }
    json.push_str(rest);
    Some(json)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_in_the_data_ends_its_string_or_its_script() {
        let hostile = "</script><script>alert(1)</script> ' \\' \" \\ \u{2028}\u{2029} \n <!-- \u{0} ${x} `";
        let file = call("callsheetPage", 3, &[hostile]).unwrap();
        assert!(file.starts_with("callsheetPage(3,'") && file.ends_with("');\n"), "{file}");
        let inside = &file["callsheetPage(3,'".len()..file.len() - "');\n".len()];
        assert!(!inside.contains(['<', '\u{2028}', '\u{2029}', '\n', '\0']), "{inside}");
        let unescaped = inside.replace("\\\\", "").replace("\\'", "");
        assert!(!unescaped.contains('\''), "{inside}");
        assert_eq!(json_of(&file), Some(serde_json::to_string(&[hostile]).unwrap()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(text in any::<String>()) {
            let file = call("f", 0, &text).unwrap();
            prop_assert_eq!(file.lines().count(), 1);
            prop_assert_eq!(serde_json::from_str::<String>(&json_of(&file).unwrap()).unwrap(), text);
        }
    }
}
