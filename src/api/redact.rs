//! The API key, taken out of what came back: answers end up in logs, histories and results.

/// Replaces the key.
const MASK: &[u8] = b"[API key]";
/// A shorter key is no secret, and would be found in everything.
const KEY_MIN_BYTES: usize = 8;

/// Masks every occurrence of `key`, as it is or as JSON may spell it: with backslashes, or with `\u002f` for a
/// character, also in JSON text within JSON text, and in JSON that is cut off. What is JSON stays JSON.
pub(super) fn all(body: &mut Vec<u8>, key: &str) {
    let key = key.as_bytes();
    if key.len() < KEY_MIN_BYTES || body.len() < key.len() {
        return;
    }
    // Catalogs and balances: where there is no backslash, there is one spelling.
    if memchr::memchr(b'\\', body).is_none() && memchr::memmem::find(body, key).is_none() {
        return;
    }
    let mut masked = Vec::new();
    let (mut copied, mut at) = (0, 0);
    // A spelling begins with the first character of the key, or with a backslash.
    while let Some(before) = body.get(at..).and_then(|rest| memchr::memchr2(key[0], b'\\', rest)) {
        at += before;
        let Some(length) = spelled(&body[at..], key) else {
            at += 1;
            continue;
        };
        // Backslashes before its first character belong to it: half an escape would be left.
        let escapes = body[copied..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        masked.extend_from_slice(&body[copied..at - escapes]);
        masked.extend_from_slice(MASK);
        at += length;
        copied = at;
    }
    if copied > 0 {
        masked.extend_from_slice(&body[copied..]);
        *body = masked;
    }
}

/// The same of a text.
pub(super) fn text(text: String, key: &str) -> String {
    let mut bytes = text.into_bytes();
    all(&mut bytes, key);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Length of a spelling of `key` that `text` begins with.
fn spelled(text: &[u8], key: &[u8]) -> Option<usize> {
    if text.starts_with(key) {
        return Some(key.len());
    }
    let mut at = 0;
    for (n, wanted) in key.iter().enumerate() {
        loop {
            let (said, length) = character(text.get(at..)?)?;
            at += length;
            match said {
                said if said == *wanted => break,
                b'\\' if n > 0 => {}
                _ => return None,
            }
        }
    }
    Some(at)
}

/// The first character of `text`, and the length of its spelling.
fn character(text: &[u8]) -> Option<(u8, usize)> {
    let by_number = text.strip_prefix(b"\\u00").and_then(|rest| rest.get(..2));
    let by_number = by_number.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
    by_number.map(|said| (said, 6)).or_else(|| text.first().map(|first| (*first, 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(body: &str, key: &str) -> String {
        let mut body = body.as_bytes().to_vec();
        all(&mut body, key);
        String::from_utf8(body).unwrap()
    }

    #[test]
    fn every_occurrence_is_masked_and_nothing_else() {
        assert_eq!(
            redacted("a: Bearer key-12345, b: key-12345", "key-12345"),
            "a: Bearer [API key], b: [API key]"
        );
        assert_eq!(redacted("key-12345", "key-12345"), "[API key]");
        for untouched in ["", "key-1234", "{\"data\": 1}"] {
            assert_eq!(redacted(untouched, "key-12345"), untouched);
        }
        assert_eq!(redacted("data", "data"), "data", "too short to be a secret");
    }

    #[test]
    fn a_spelling_of_json_is_masked_and_what_is_json_stays_json() {
        for spelling in [
            r#"sk/live+12=\""#,
            r#"sk\/live+12=\""#,
            r"sk\u002Flive\u002b12\u003d\u0022",
            r"\u0073\u006b\u002f\u006c\u0069\u0076\u0065\u002b\u0031\u0032\u003D\u0022",
            r#"sk\\\/live\\u002b12=\\\""#,
            r#"\\u0073k\\\\\/live\\\\u002b12=\\\""#,
        ] {
            let body = format!(r#"{{"said":"a \" {spelling}, \\{spelling}","b":"\u00e9"}}"#);
            let masked = redacted(&body, r#"sk/live+12=""#);
            let masked: serde_json::Value = serde_json::from_str(&masked).expect(&masked);
            assert_eq!(masked["said"], r#"a " [API key], [API key]"#, "{spelling}");
            assert_eq!(masked["b"], "\u{e9}");
        }
        let cut_off = redacted(r#"{"headers":{"authorization":"Bearer key\u002d1234\u0035"#, "key-12345");
        assert_eq!(cut_off, r#"{"headers":{"authorization":"Bearer [API key]"#);
        for untouched in [r"key\u002e12345", r"key\u01", r"key\\\\\\", r"\\\u00", r"key\u012d12345"] {
            assert_eq!(redacted(untouched, "key-12345"), untouched);
        }
    }
}
