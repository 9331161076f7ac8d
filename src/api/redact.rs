//! The API key, taken out of what came back: answers end up in logs, histories and results.

/// What stands where the key stood.
const MASK: &[u8] = b"[API key]";
/// A shorter key is no secret, and would be found in everything.
const KEY_MIN_BYTES: usize = 8;

/// Masks every occurrence of `key`.
pub(super) fn all(body: &mut Vec<u8>, key: &str) {
    let key = key.as_bytes();
    if key.len() < KEY_MIN_BYTES || body.len() < key.len() {
        return;
    }
    let found = |rest: &[u8]| rest.windows(key.len()).position(|window| window == key);
    let Some(mut at) = found(body) else { return };
    let mut masked = Vec::with_capacity(body.len());
    let mut rest = body.as_slice();
    loop {
        masked.extend_from_slice(&rest[..at]);
        masked.extend_from_slice(MASK);
        rest = &rest[at + key.len()..];
        match found(rest) {
            Some(next) => at = next,
            None => break,
        }
    }
    masked.extend_from_slice(rest);
    *body = masked;
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
}
