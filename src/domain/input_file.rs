//! Files of this machine that a row names where the service takes an address: `./ref/logo.png`.
//!
//! The service fetches its inputs from public addresses alone. So such a file is put into an object store, and the service
//! is sent a link to it. Which job a row is follows from the content of its files, never from their names.

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::domain::job_reference::InputField;

/// Whether a text is meant as a file.
pub fn is_file_name(text: &str) -> bool {
    text.starts_with("./") || text.starts_with("../") || text.starts_with('/') || is_file_address(text)
}

fn is_file_address(text: &str) -> bool {
    text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"))
}

/// The path that a text means: absolute, or relative to the folder of the manifest.
///
/// # Errors
/// What is wrong with it, as a sentence without its subject.
pub fn path_of(text: &str) -> Result<String, String> {
    if text.contains('\0') {
        return Err("has a zero byte".to_owned());
    }
    if !is_file_address(text) {
        return Ok(text.to_owned());
    }
    let rest = text.get(5..).unwrap_or_default();
    // A host is none, or this one.
    let path = rest.strip_prefix("//localhost/").or_else(|| rest.strip_prefix("///"));
    let Some(path) = path else {
        return Err(
            "is not an address of a file on this machine; write it as file:///srv/ref/logo.png".to_owned()
        );
    };
    let path = percent_decode_str(path).decode_utf8();
    let path = path.map_err(|_| "is not UTF-8 once its % signs are read".to_owned())?;
    if path.contains('\0') { Err("has a zero byte".to_owned()) } else { Ok(format!("/{path}")) }
}

/// What a file holds, told by its first bytes. Which types of each field are taken is our own limit: the service's
/// document names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputMedia {
    Png,
    Jpeg,
    Webp,
    Gif,
    Mp4,
    Mov,
    Webm,
}

impl InputMedia {
    /// All of them.
    pub const ALL: [InputMedia; 7] = [
        InputMedia::Png,
        InputMedia::Jpeg,
        InputMedia::Webp,
        InputMedia::Gif,
        InputMedia::Mp4,
        InputMedia::Mov,
        InputMedia::Webm,
    ];

    /// The type of that media type (`image/png`).
    pub fn of_content_type(content_type: &str) -> Option<InputMedia> {
        InputMedia::ALL.into_iter().find(|media| media.content_type() == content_type)
    }

    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            InputMedia::Png => "image/png",
            InputMedia::Jpeg => "image/jpeg",
            InputMedia::Webp => "image/webp",
            InputMedia::Gif => "image/gif",
            InputMedia::Mp4 => "video/mp4",
            InputMedia::Mov => "video/quicktime",
            InputMedia::Webm => "video/webm",
        }
    }

    /// The ending of a file's name, without a dot.
    pub fn extension(self) -> &'static str {
        match self {
            InputMedia::Png => "png",
            InputMedia::Jpeg => "jpg",
            InputMedia::Webp => "webp",
            InputMedia::Gif => "gif",
            InputMedia::Mp4 => "mp4",
            InputMedia::Mov => "mov",
            InputMedia::Webm => "webm",
        }
    }

    /// The field that takes it.
    pub fn field(self) -> InputField {
        match self {
            InputMedia::Png | InputMedia::Jpeg | InputMedia::Webp | InputMedia::Gif => InputField::ImageUrls,
            InputMedia::Mp4 | InputMedia::Mov | InputMedia::Webm => InputField::VideoUrls,
        }
    }

    /// The types that a field takes, for messages.
    pub fn accepted_by(field: InputField) -> String {
        let taken = InputMedia::ALL.into_iter().filter(|media| media.field() == field);
        taken.map(InputMedia::extension).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a text is a SHA-256 in lowercase hex.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The content of a file, as it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputContent {
    /// SHA-256 in lowercase hex.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// What it is.
    pub media: InputMedia,
    /// How long a video is, in seconds; nothing where its container does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl InputContent {
    /// What it is called in the object store, below the prefix of the configuration: `inputs/<sha256>.png`.
    pub fn object_name(&self) -> String {
        format!("inputs/{}.{}", self.sha256, self.media.extension())
    }
}

/// A file that a job takes as an input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputFile {
    /// The field of the body in which it stands.
    pub field: InputField,
    /// Its place in that list, from 0.
    pub place: u32,
    /// How the row names it.
    pub name: String,
    /// What it holds.
    #[serde(flatten)]
    pub content: InputContent,
}

impl InputFile {
    /// What stands in its place when identities are derived: the content, wherever it lies and whatever it is called.
    pub fn identity(&self) -> String {
        format!("file:sha256:{}", self.content.sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_as_people_name_them() {
        for (text, path) in [
            ("./logo.png", "./logo.png"),
            ("../a b/logo.png", "../a b/logo.png"),
            ("/srv/x.png", "/srv/x.png"),
            ("file:///srv/a%20b.png", "/srv/a b.png"),
            ("FILE://localhost/srv/x.png", "/srv/x.png"),
        ] {
            assert!(is_file_name(text), "{text}");
            assert_eq!(path_of(text).as_deref(), Ok(path));
        }
        for bad in ["file:logo.png", "file://server/logo.png", "file:///%ff", "file:///a%00", "./a\0"] {
            assert!(is_file_name(bad) && path_of(bad).is_err(), "{bad}");
        }
        for other in ["https://example.com/a.png", "job:a", "logo.png", "ref/logo.png", "c:/logo.png", ""] {
            assert!(!is_file_name(other), "{other}");
        }
    }

    #[test]
    fn an_object_is_called_by_its_content() {
        let content =
            InputContent { sha256: "ab".to_owned(), bytes: 3, media: InputMedia::Jpeg, seconds: None };
        assert_eq!(content.object_name(), "inputs/ab.jpg");
        assert_eq!(InputMedia::accepted_by(InputField::VideoUrls), "mp4, mov, webm");
        for media in InputMedia::ALL {
            assert_eq!(InputMedia::of_content_type(media.content_type()), Some(media));
        }
    }
}
