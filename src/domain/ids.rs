//! Names and numbers of batches, jobs, attempts and tasks; keys are derived in `idempotency_key`.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::domain::text_prefix::text_prefix;

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
    pub batch: BatchNo,
    /// Its place in the batch.
    pub seq: Seq,
}

/// Name of a batch: also the name of its output folder, so it is safe on any file system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BatchName(String);

/// The list of batches lies beside their folders, under this name.
const LIST_OF_BATCHES: &str = "index.html";
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
    /// `Spring-sale`. One that is reserved is followed by `_`.
    pub fn from_file_stem(stem: &str) -> Result<BatchName, BadBatchName> {
        let name = valid_characters(stem);
        match text_prefix(&name, BATCH_NAME_MAX_BYTES).parse() {
            Ok(BatchName(reserved)) if is_reserved(&reserved) => Ok(BatchName(format!("{reserved}_"))),
            other => other.map_err(|_| BadBatchName(stem.to_owned())),
        }
    }

    /// The same for a text that is made of a name, `whole`. Where it is too long, a hash of `whole` takes the place of its end:
    /// names that differ only there stay different.
    pub fn from_name(text: &str, whole: &str) -> Result<BatchName, BadBatchName> {
        let name = valid_characters(text);
        if name.len() <= BATCH_NAME_MAX_BYTES {
            return BatchName::from_file_stem(text);
        }
        let digest = Sha256::digest(whole);
        let [a, b, c, d, ..] = digest[..] else { return Err(BadBatchName(text.to_owned())) };
        let suffix = format!("-{:08x}", u32::from_be_bytes([a, b, c, d]));
        let kept = text_prefix(&name, BATCH_NAME_MAX_BYTES - suffix.len());
        format!("{kept}{suffix}").parse().map_err(|_| BadBatchName(text.to_owned()))
    }

    /// Whether the folder of a batch of this name would take the place of a file of ours. Older versions accepted it.
    pub fn is_reserved(&self) -> bool {
        is_reserved(&self.0)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What no batch name may have is replaced, and left out at both ends.
fn valid_characters(text: &str) -> String {
    let mapped: String =
        text.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
    mapped.trim_matches(|c| "._-".contains(c)).to_owned()
}

/// On some file systems names are the same whose letters differ in their case.
fn is_reserved(name: &str) -> bool {
    name.eq_ignore_ascii_case(LIST_OF_BATCHES)
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
pub struct TaskId(pub Box<str>);

impl TaskId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Number of an attempt at a job, from 1. A new attempt has a new idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptNo(pub u32);

impl AttemptNo {
    pub const FIRST: AttemptNo = AttemptNo(1);

    /// The one after this.
    #[must_use]
    pub fn next(self) -> AttemptNo {
        AttemptNo(self.0.saturating_add(1))
    }
}

/// 128 bits of SHA-256, shown as 32 hexadecimal digits.
macro_rules! short_hash {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                deserializer.deserialize_str(HashVisitor).map($name)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(HEXLOWER.encode_mut_str(&self.0, &mut [0; 32]))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(HEXLOWER.encode_mut_str(&self.0, &mut [0; 32]))
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

/// Reads the digits where they lie: there are some for each row, and for each job.
struct HashVisitor;

impl Visitor<'_> for HashVisitor {
    type Value = [u8; 16];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("32 hexadecimal digits")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<[u8; 16], E> {
        parse_hash(text).ok_or_else(|| E::custom(NotAHash))
    }
}

fn parse_hash(text: &str) -> Option<[u8; 16]> {
    let digits: &[u8; 32] = text.as_bytes().try_into().ok()?;
    let mut hash = [0; 16];
    let mut seen = 0;
    for (byte, [high, low]) in hash.iter_mut().zip(digits.as_chunks::<2>().0) {
        let (high, low) = (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]);
        seen |= high | low;
        *byte = high << 4 | low;
    }
    (seen != NO_DIGIT).then_some(hash)
}

/// In the place of a byte that is no hexadecimal digit: no digit has its highest bit.
const NO_DIGIT: u8 = 0xff;

/// What a byte says as a hexadecimal digit.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        let lower = b"0123456789abcdef"[value as usize];
        digits[lower as usize] = value;
        digits[lower.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    digits
};

impl JobId {
    /// The first 8 digits: enough to tell the jobs of a batch apart by eye.
    pub fn short(self) -> String {
        let mut text = self.to_string();
        text.truncate(8);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stem_becomes_a_batch_name() {
        let name = |stem| BatchName::from_file_stem(stem).map(|n| n.to_string()).ok();
        assert_eq!(name("spring"), Some("spring".into()));
        assert_eq!(name("Spring sale!"), Some("Spring-sale".into()));
        assert_eq!(name("../../etc"), Some("etc".into()));
        assert_eq!(name("春"), Some("春".into()));
        assert_eq!(name("index.html"), Some("index.html_".into()));
        assert_eq!(name("Index.HTML"), Some("Index.HTML_".into()));
        assert_eq!(name("..."), None);
        assert_eq!(name(&"x".repeat(300)), Some("x".repeat(100)));
    }

    #[test]
    fn names_that_are_made_of_long_ones_stay_different() {
        let name = |text: &str, whole: &str| BatchName::from_name(text, whole).unwrap().to_string();
        assert_eq!((name("x-y-2", "$(x y)"), name("-x y-", "x y")), ("x-y-2".into(), "x-y".into()));
        let long = ["a", "b"].map(|end| format!("{}{end}", "é".repeat(50)));
        let [of_a, of_b] = long.each_ref().map(|stem| {
            let cut = BatchName::from_file_stem(stem).unwrap();
            assert_eq!(cut.as_str(), "é".repeat(50));
            name(&format!("{cut}-2"), stem)
        });
        assert!(of_a != of_b && of_a.starts_with(&"é".repeat(45)) && of_a.len() == 99, "{of_a} {of_b}");
        assert!(BatchName::from_name("...", "...").is_err());
    }

    #[test]
    fn a_hash_is_read_as_it_is_shown_and_nothing_else_is_one() {
        let hash = JobId([0x00, 0x1f, 0xa0, 0xff, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0xab, 0xcd]);
        let text = hash.to_string();
        assert_eq!(text, "001fa0ff09080706050403020100abcd");
        let read = |text: &str| JobId::try_from(text.to_owned()).ok();
        assert_eq!((read(&text), read(&text.to_uppercase())), (Some(hash), Some(hash)));
        for at in [0, 1, 30, 31] {
            for wrong in ["g", "/", ":", "@", "`", "G", " "] {
                let mut text = text.clone();
                text.replace_range(at..=at, wrong);
                assert_eq!(read(&text), None, "{text}");
            }
        }
        assert_eq!((read(&text[1..]), read("")), (None, None));
    }

    #[test]
    fn a_batch_name_never_leaves_its_folder() {
        for bad in ["", ".", "..", "a/b", "a\\b", "-a", ".hidden", "a b", "a\0b", "a."] {
            assert!(bad.parse::<BatchName>().is_err(), "{bad:?}");
        }
    }
}
