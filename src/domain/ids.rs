//! What makes a job the same job, and the keys that follow from it.
//!
//! Architecture invariant: an idempotency key is derived, never drawn. Whoever holds the manifest
//! and the configuration can compute every key again, so a lost state directory costs nothing. The
//! golden vectors in the tests below pin the derivation: a release that changed one would buy
//! everything again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Number of a batch inside one state directory; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchNo(pub u32);

/// Place of a job in its batch, in manifest order, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u32);

/// Where a job lives in one state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// Its batch.
    pub batch: BatchNo,
    /// Its place in the batch.
    pub seq: Seq,
}

/// Name of a batch: also the name of its output folder, so it is safe on any file system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BatchName(String);

/// Longest batch name, in bytes.
const BATCH_NAME_MAX_BYTES: usize = 100;

/// The text cannot name a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" cannot name a batch; 1 to 100 letters, digits, dots, dashes and underscores are \
     accepted, beginning with a letter or a digit"
)]
pub struct BadBatchName(String);

impl BatchName {
    /// The nearest name that is valid: a manifest called `Spring sale!.csv` makes the batch
    /// `Spring-sale`.
    pub fn from_file_stem(stem: &str) -> Result<BatchName, BadBatchName> {
        let mapped: String =
            stem.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
        let mut name = mapped.trim_matches(|c| "._-".contains(c)).to_owned();
        while name.len() > BATCH_NAME_MAX_BYTES {
            name.pop();
        }
        name.parse().map_err(|_| BadBatchName(stem.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BatchName {
    type Err = BadBatchName;
    fn from_str(text: &str) -> Result<BatchName, BadBatchName> {
        let fits = !text.is_empty() && text.len() <= BATCH_NAME_MAX_BYTES;
        let starts_well = text.chars().next().is_some_and(char::is_alphanumeric);
        let ends_well = !text.ends_with('.');
        if fits && starts_well && ends_well && text.chars().all(|c| c.is_alphanumeric() || "._-".contains(c))
        {
            Ok(BatchName(text.to_owned()))
        } else {
            Err(BadBatchName(text.to_owned()))
        }
    }
}

impl TryFrom<String> for BatchName {
    type Error = BadBatchName;
    fn try_from(text: String) -> Result<BatchName, BadBatchName> {
        text.parse()
    }
}

impl From<BatchName> for String {
    fn from(name: BatchName) -> String {
        name.0
    }
}

impl fmt::Display for BatchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A task's id as the service gave it. Not parsed: an id that is no UUID is carried as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub String);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Number of an attempt at a job, from 1. A new attempt has a new idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The first.
    pub const FIRST: Attempt = Attempt(1);

    /// The one after this.
    #[must_use]
    pub fn next(self) -> Attempt {
        Attempt(self.0.saturating_add(1))
    }
}

/// 128 bits of SHA-256, shown as 32 hexadecimal digits.
macro_rules! short_hash {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl From<$name> for String {
            fn from(hash: $name) -> String {
                hash.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAHash;
            fn try_from(text: String) -> Result<$name, NotAHash> {
                parse_hash(&text).map($name).ok_or(NotAHash)
            }
        }
    };
}

/// The text is not 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 32 hexadecimal digits")]
pub struct NotAHash;

short_hash! {
    /// What a row wants, whichever of its variations: namespace, batch, the row's `id` if it has
    /// one, endpoint and canonical body. Row order, row numbers and catalogs are not part of it.
    Fingerprint
}

short_hash! {
    /// One wanted generation: a fingerprint and the number of the variation.
    JobId
}

fn parse_hash(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

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
        let body = Value::Object(body.clone()).to_string();
        let (has_id, id) = (if id.is_some() { "id" } else { "body" }, id.unwrap_or_default());
        let parts = ["callsheet job", namespace, batch.as_str(), has_id, id, endpoint, &body];
        Fingerprint(digest(&parts.map(str::as_bytes)))
    }
}

impl JobId {
    /// The job of a fingerprint's `variation`, counted from 1: the n-th of `count`, or the n-th row
    /// of a manifest that asks for the same thing.
    pub fn derive(fingerprint: Fingerprint, variation: u32) -> JobId {
        JobId(digest(&[b"callsheet variation", &fingerprint.0, &variation.to_be_bytes()]))
    }

    /// The first 8 digits: enough to tell the jobs of a batch apart by eye.
    pub fn short(self) -> String {
        let mut text = self.to_string();
        text.truncate(8);
        text
    }
}

/// Value of the `Idempotency-Key` header: visible ASCII, at most 200 characters (Idempotency,
/// rule 1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key of one attempt at one job. All resends of the attempt carry it; no other attempt does.
    pub fn derive(job: JobId, attempt: Attempt) -> IdempotencyKey {
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
        IdempotencyKey::derive(JobId::derive(fingerprint, n), Attempt(attempt)).to_string()
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

    #[test]
    fn a_file_stem_becomes_a_batch_name() {
        let name = |stem| BatchName::from_file_stem(stem).map(|n| n.to_string()).ok();
        assert_eq!(name("spring"), Some("spring".into()));
        assert_eq!(name("Spring sale!"), Some("Spring-sale".into()));
        assert_eq!(name("../../etc"), Some("etc".into()));
        assert_eq!(name("春"), Some("春".into()));
        assert_eq!(name("..."), None);
        assert_eq!(name(&"x".repeat(300)), Some("x".repeat(100)));
    }

    #[test]
    fn a_batch_name_never_leaves_its_folder() {
        for bad in ["", ".", "..", "a/b", "a\\b", "-a", ".hidden", "a b", "a\0b", "a."] {
            assert!(bad.parse::<BatchName>().is_err(), "{bad:?}");
        }
    }
}
