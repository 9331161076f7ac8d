//! What makes a job the same job, and the idempotency keys that follow from it.
//!
//! Architecture invariant: an idempotency key is derived, never drawn. From the manifest and the
//! configuration every key can be computed again, so a lost state directory costs nothing. The
//! golden vectors in the tests below pin the derivation: a release that changed one would buy
//! everything again.

use std::fmt;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::domain::ids::{AttemptNo, BatchName, Fingerprint, JobId};

/// SHA-256 over length-prefixed parts, so that no two lists of parts share an image.
fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let full = hasher.finalize();
    let mut short = [0; 16];
    short.copy_from_slice(&full[..16]);
    short
}

impl Fingerprint {
    /// Derives a row's fingerprint.
    ///
    /// `body` is the canonical body (`domain::quote::canonical_body`), never the body with a
    /// catalog's defaults in it: a changed catalog must not make a job another job.
    pub fn derive(
        namespace: &str,
        batch: &BatchName,
        id: Option<&str>,
        endpoint: &str,
        body: &Map<String, Value>,
    ) -> Fingerprint {
        // A map of JSON values always prints: its keys are strings. serde_json sorts them.
        let body = serde_json::to_string(body).unwrap_or_default();
        Fingerprint::of_json(namespace, batch, id, endpoint, &body)
    }

    /// The same of a canonical body that is printed already: without white space, and with sorted keys.
    pub fn of_json(
        namespace: &str,
        batch: &BatchName,
        id: Option<&str>,
        endpoint: &str,
        body: &str,
    ) -> Fingerprint {
        let (has_id, id) = (if id.is_some() { "id" } else { "body" }, id.unwrap_or_default());
        let parts = ["callsheet job", namespace, batch.as_str(), has_id, id, endpoint, body];
        Fingerprint(digest(&parts.map(str::as_bytes)))
    }
}

impl JobId {
    /// The job of a fingerprint's `variation`, counted from 1: the n-th of `count`, or the n-th row
    /// of a manifest that asks for the same thing.
    pub fn derive(fingerprint: Fingerprint, variation: u32) -> JobId {
        JobId(digest(&[b"callsheet variation", &fingerprint.0, &variation.to_be_bytes()]))
    }
}

/// Value of the `Idempotency-Key` header: visible ASCII, at most 200 characters (Idempotency,
/// rule 1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key of one attempt at one job. All resends of the attempt carry it; no other attempt does.
    pub fn derive(job: JobId, attempt: AttemptNo) -> IdempotencyKey {
        IdempotencyKey(format!("cs1-{job}-{}", attempt.0))
    }

    /// The header's value.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    fn key(namespace: &str, batch: &str, id: Option<&str>, json: &str, n: u32, attempt: u32) -> String {
        let batch = batch.parse().unwrap();
        let fingerprint = Fingerprint::derive(namespace, &batch, id, "/api/v1/videos", &body(json));
        IdempotencyKey::derive(JobId::derive(fingerprint, n), AttemptNo(attempt)).to_string()
    }

    /// Never edit an expected value here: each is a key that somebody has already paid under.
    #[test]
    fn golden_keys() {
        let fox = r#"{"model":"house-c1","prompt":"a fox"}"#;
        assert_eq!(key("", "spring", None, fox, 1, 1), "cs1-5285cafc073c4946a755709341c27c56-1");
        assert_eq!(key("", "spring", None, fox, 1, 2), "cs1-5285cafc073c4946a755709341c27c56-2");
        assert_eq!(key("", "spring", None, fox, 2, 1), "cs1-07518896427e54e71e82cef6eca48a69-1");
        assert_eq!(key("", "spring", Some("hero"), fox, 1, 1), "cs1-6feee9c8ab21c41d16130f6f65141a2a-1");
        assert_eq!(
            key("client-a", "spring", Some("hero"), fox, 1, 1),
            "cs1-def37d6cd0caef1299ca1a0055d55579-1"
        );
        assert_eq!(
            key("", "Größe-2", None, r#"{"prompt":"né"}"#, 1, 1),
            "cs1-e0d9337710e06a594d07487c2a8c2296-1"
        );
    }

    #[test]
    fn field_order_is_not_part_of_the_key() {
        let one = key("", "b", None, r#"{"model":"m","prompt":"p"}"#, 1, 1);
        assert_eq!(one, key("", "b", None, r#"{"prompt":"p","model":"m"}"#, 1, 1));
    }

    #[test]
    fn neighbouring_parts_do_not_run_together() {
        let json = "{}";
        assert_ne!(key("a", "bc", None, json, 1, 1), key("ab", "c", None, json, 1, 1));
        assert_ne!(key("", "b", None, json, 1, 1), key("", "b", Some(""), json, 1, 1));
    }

    #[test]
    fn a_key_is_visible_ascii_within_the_documents_bounds() {
        let key = key("", "b", None, "{}", u32::MAX, u32::MAX);
        assert!(key.len() <= 200 && key.bytes().all(|b| b.is_ascii_graphic()), "{key}");
    }
}
