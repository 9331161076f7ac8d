//! Paths in JSON. A name of a file need not be UTF-8, and no answer may fail for that.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// For people and scripts: bytes that are not UTF-8 are replaced.
///
/// # Errors
/// Those of the serializer.
pub fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// The same for a path that there may be.
///
/// # Errors
/// Those of the serializer.
pub fn shown_if_any<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(serializer)
}

/// A path that another process is to find: a text, or an array of its bytes where it is not UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExactPath(pub PathBuf);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum TextOrBytes {
    Text(String),
    Bytes(Vec<u8>),
}

impl Serialize for ExactPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => TextOrBytes::Bytes(self.0.as_os_str().as_bytes().to_vec()).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ExactPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ExactPath, D::Error> {
        Ok(ExactPath(match TextOrBytes::deserialize(deserializer)? {
            TextOrBytes::Text(text) => text.into(),
            TextOrBytes::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }))
    }
}

/// [`ExactPath`] for a field that is a path.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    ExactPath(path.to_owned()).serialize(serializer)
}

/// [`ExactPath`] for a field that is a path.
///
/// # Errors
/// When it is neither a text nor an array of bytes.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    ExactPath::deserialize(deserializer).map(|ExactPath(path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_back_as_it_was() {
        for (bytes, json) in [(&b"/srv/a"[..], "\"/srv/a\""), (b"x\xff", "[120,255]")] {
            let path = ExactPath(OsString::from_vec(bytes.to_vec()).into());
            assert_eq!(serde_json::to_string(&path).unwrap(), json);
            assert_eq!(serde_json::from_str::<ExactPath>(json).unwrap(), path);
        }
    }
}
