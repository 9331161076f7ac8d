//! Sizes of files as people write them.

use std::fmt;

use bytesize::ByteSize;
use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// Reads a size: a number of bytes, or `500 MB`, `8 GiB`.
pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    deserializer.deserialize_any(SizeVisitor)
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"500 MB\", \"8 GiB\" or a number of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<ByteSize, E> {
        let size = u64::try_from(bytes).ok().map(ByteSize);
        size.ok_or_else(|| E::invalid_value(Unexpected::Signed(bytes), &self))
    }
}
