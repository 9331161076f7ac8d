//! What a page shows of an output without opening it: a small picture and its size, the length of a sound and how loud it is.
//!
//! Outputs come from elsewhere, and decoders have had bugs: the program has this done by a process of its own
//! (`src/pages/decoder_process.rs`), which may die of a file. Memory is bounded by the pixels that are accepted, and by the
//! process's limit.
//!
//! A crate of its own, since it takes time for every picture: tests optimise it, and nothing else of the program.

#![warn(missing_docs)]

pub mod jpeg;
mod length;
mod movie_length;
mod orientation;
mod thumbnail;
mod waveform;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::movie_length::movie_length;
use crate::thumbnail::Picture;

/// What there is to find out, and where its thumbnail goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaQuestion {
    /// The file that is asked about.
    pub path: PathBuf,
    /// Length that the file has unless somebody changed it, in bytes.
    pub bytes: u64,
    /// What it is, by its first bytes.
    pub content_type: String,
    /// Where its thumbnail goes.
    pub thumbnail: PathBuf,
    /// Nothing but its length is asked for.
    #[serde(default)]
    pub length_only: bool,
}

/// What was found out; nothing of what cannot be told. The names are those that `gallery_players.js` reads.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct MediaFacts {
    /// Pixels from left to right, as it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Pixels from top to bottom, as it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// There is a thumbnail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thumb: bool,
    /// How long it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The loudest sample of each part, from 0 to 255.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peaks: Vec<u8>,
}

/// Why nothing was found out.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// It cannot be read, or its thumbnail cannot be written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is something else than it is said to be, damaged, or too large.
    #[error("{0}")]
    Undecodable(String),
}

/// Whether anything can be found out of files of this type.
pub fn is_readable(content_type: &str) -> bool {
    matches!(content_type, "image/png" | "image/jpeg" | "image/webp" | "audio/wav" | "audio/x-wav")
}

/// Finds out what there is to tell of a file, and writes its thumbnail.
///
/// # Errors
/// When the file is not there, is another one, or cannot be decoded.
pub fn find_out(question: &MediaQuestion) -> Result<MediaFacts, MediaError> {
    let file = File::open(&question.path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() != question.bytes {
        return Err(MediaError::Undecodable("it was changed".to_owned()));
    }
    if question.length_only {
        let seconds = length::length(file, &question.content_type)?.as_secs_f64();
        return Ok(MediaFacts { seconds: Some(seconds), ..MediaFacts::default() });
    }
    let reader = BufReader::with_capacity(64 * 1024, file);
    if question.content_type.starts_with("audio/") {
        return waveform::of_wav(reader);
    }
    let picture = Picture::read(reader, &question.content_type)?;
    let (width, height) = match picture.orientation.is_sideways() {
        true => (picture.height, picture.width),
        false => (picture.width, picture.height),
    };
    let facts = MediaFacts { width: Some(width), height: Some(height), ..MediaFacts::default() };
    if picture.is_small(question.bytes) {
        return Ok(facts);
    }
    picture.write_thumbnail(&question.thumbnail)?;
    Ok(MediaFacts { thumb: true, ..facts })
}

fn undecodable(error: impl std::fmt::Display) -> MediaError {
    MediaError::Undecodable(error.to_string())
}
