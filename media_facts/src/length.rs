//! How long a sound or a video is, by what its file says of itself; nothing is decoded.

use std::io::{BufReader, Read, Seek};
use std::time::Duration;

use lofty::config::ParseOptions;
use lofty::file::AudioFile;
use lofty::probe::Probe;

use crate::MediaError;
use crate::movie_length::movie_length;

/// How long a file lasts, to a millisecond.
///
/// # Errors
/// When it is no sound and no video, or does not tell.
pub(super) fn length(file: impl Read + Seek, content_type: &str) -> Result<Duration, MediaError> {
    let mut reader = BufReader::new(file);
    // One of a video that has no sound is not in any track of sound.
    if matches!(content_type, "video/mp4" | "video/quicktime" | "video/x-m4v") {
        return movie_length(&mut reader).ok_or_else(no_length);
    }
    let options = ParseOptions::new().read_tags(false).read_cover_art(false);
    let unreadable = |error: &dyn std::fmt::Display| MediaError::Undecodable(error.to_string());
    let probe = Probe::new(reader).options(options).guess_file_type()?;
    let found = probe.read().map_err(|error| unreadable(&error))?;
    Some(found.properties().duration()).filter(|length| !length.is_zero()).ok_or_else(no_length)
}

fn no_length() -> MediaError {
    MediaError::Undecodable("it does not say how long it is".to_owned())
}
