//! Small, cheap, real media: pictures, videos and sounds that show what they were rendered from.
//!
//! A crate of its own, since it is what takes time in every run with the emulator: tests optimise it and nothing else
//! of ours. The same [`Subject`] gives the same bytes each time, and different ones give different bytes.

#![warn(missing_docs)]

mod canvas;
mod mp4;
mod png;
mod wav;

use uuid::Uuid;

/// What is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A PNG picture.
    Image,
    /// H.264 in MP4.
    Video,
    /// A tune, as WAV.
    Music,
    /// Syllables of one voice, as WAV.
    Speech,
    /// A sweep, as WAV.
    SoundEffect,
}

impl Medium {
    /// The content type of what is rendered.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Video => "video/mp4",
            Self::Image => "image/png",
            Self::Music | Self::Speech | Self::SoundEffect => "audio/wav",
        }
    }
}

/// What is drawn and played.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Whose result it is: drawn on pictures, and the seed of colours and tones.
    pub id: Uuid,
    /// Which of its results, from 0.
    pub index: u16,
    /// What is rendered.
    pub medium: Medium,
    /// Width to height of pictures.
    pub ratio: (u32, u32),
    /// The exact width and height of an image in pixels; without it the ratio decides.
    pub pixels: Option<(u32, u32)>,
    /// Length of video and sound, in milliseconds.
    pub length_ms: u32,
    /// Drawn on pictures.
    pub model: String,
    /// Drawn on pictures.
    pub prompt: String,
    /// Drawn on pictures: the options, as one line.
    pub options: String,
}

impl Subject {
    /// A number that differs from result to result.
    fn seed(&self) -> u64 {
        let (high, low) = self.id.as_u64_pair();
        high ^ low.rotate_left(17) ^ (u64::from(self.index) << 40)
    }
}

/// Why there are no bytes: a codec refused. It never happens with the sizes that the service takes.
#[derive(Debug, thiserror::Error)]
#[error("could not render: {0}")]
pub struct RenderError(String);

impl RenderError {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Renders a subject into a whole file. Takes milliseconds of processor time: call it where blocking is allowed.
///
/// # Errors
///
/// What a codec says that refuses the subject.
pub fn render(subject: &Subject) -> Result<Vec<u8>, RenderError> {
    match subject.medium {
        Medium::Image => png::render(subject),
        Medium::Video => mp4::render(subject),
        Medium::Music | Medium::Speech | Medium::SoundEffect => wav::render(subject),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    pub(super) fn subject(medium: Medium, n: u128) -> Subject {
        Subject {
            id: Uuid::from_u128(n),
            index: 0,
            medium,
            ratio: (16, 9),
            pixels: None,
            length_ms: 2_000,
            model: "house-c1/text-to-video".into(),
            prompt: "a small boat, in the wind \u{1F6A4} über".into(),
            options: "768P 16:9 2s".into(),
        }
    }

    #[test]
    fn the_same_subject_gives_the_same_bytes_and_another_one_others() {
        for medium in [Medium::Image, Medium::Video, Medium::Music, Medium::Speech, Medium::SoundEffect] {
            let first = render(&subject(medium, 1)).unwrap();
            assert_eq!(first, render(&subject(medium, 1)).unwrap(), "{medium:?}");
            assert_ne!(first, render(&subject(medium, 2)).unwrap(), "{medium:?}");
            let second_output = Subject { index: 1, ..subject(medium, 1) };
            assert_ne!(first, render(&second_output).unwrap(), "{medium:?}");
        }
    }
}
