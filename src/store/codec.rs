//! Records as bytes: a format version, a checksum, JSON.
//!
//! The checksum is ours because the database's own did not notice every flipped bit (measured).

use serde::{Deserialize, Serialize};

/// Version of the record format. Of version 1 a job's record alone differs: see `domain::job::record_format`, which
/// reads both.
const VERSION: u8 = 2;
/// The oldest version that is read.
const OLDEST: u8 = 1;
/// Bytes before the JSON: version and CRC-32.
const HEADER_BYTES: usize = 5;

/// The bytes are not a record that was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("it is only {0} bytes long")]
    Short(usize),
    #[error("it has record version {0}, this version reads {OLDEST} to {VERSION}")]
    Version(u8),
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it cannot be read: {0}")]
    Content(String),
}

/// The bytes of a record.
pub(super) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    let mut bytes = vec![VERSION, 0, 0, 0, 0];
    // Records are plain structs with string keys: they always print. Should one not, decoding
    // refuses the empty content instead of taking it for data.
    if serde_json::to_writer(&mut bytes, record).is_err() {
        bytes.truncate(HEADER_BYTES);
    }
    let checksum = crc32fast::hash(&bytes[HEADER_BYTES..]).to_be_bytes();
    bytes[1..HEADER_BYTES].copy_from_slice(&checksum);
    bytes
}

/// The record in the bytes.
pub(super) fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, DecodeError> {
    let Some((header, json)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(DecodeError::Short(bytes.len()));
    };
    if !(OLDEST..=VERSION).contains(&header[0]) {
        return Err(DecodeError::Version(header[0]));
    }
    if header[1..] != crc32fast::hash(json).to_be_bytes() {
        return Err(DecodeError::Checksum);
    }
    json_value(json).map_err(DecodeError::Content)
}

/// What JSON says. That it is UTF-8 is found out once, and not for every name and text in it.
pub(super) fn json_value<T: for<'de> Deserialize<'de>>(json: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(json).map_err(|error| error.to_string())?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back() {
        assert_eq!(decode(&encode(&vec![1, 2, 3])), Ok(vec![1, 2, 3]));
    }

    #[test]
    fn a_record_of_version_1_is_read_and_one_of_another_is_not() {
        let mut bytes = encode(&vec![1, 2, 3]);
        bytes[0] = 1;
        assert_eq!(decode(&bytes), Ok(vec![1, 2, 3]));
        bytes[0] = 3;
        assert_eq!(decode::<Vec<u8>>(&bytes), Err(DecodeError::Version(3)));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = encode(&"twelve credits".to_owned());
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(decode::<String>(&flipped).is_err(), "bit {at}");
        }
        assert_eq!(decode::<String>(&bytes[..3]), Err(DecodeError::Short(3)));
    }
}
