//! What a page shows of an output without opening it: a small picture and its size, the length of a sound and how loud it is.
//!
//! Outputs come from elsewhere, and decoders have had bugs: the program has this done by a process of its own
//! (`src/pages/decoder_process.rs`), which may die of a file. Memory is bounded by the pixels that are accepted, and by the
//! process's limit.
//!
//! A crate of its own, since it takes time for every picture: tests optimise it, and nothing else of the program.

#![warn(missing_docs)]

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

#[cfg(test)]
mod tests {
    use zune_jpeg::JpegDecoder;

    use super::*;

    fn ask(bytes: &[u8], content_type: &str) -> (Result<MediaFacts, MediaError>, Option<Vec<u8>>) {
        let dir = tempfile::tempdir().unwrap();
        let (path, thumbnail) = (dir.path().join("file"), dir.path().join("thumbnail.jpg"));
        std::fs::write(&path, bytes).unwrap();
        let question = MediaQuestion {
            path,
            bytes: bytes.len() as u64,
            content_type: content_type.to_owned(),
            thumbnail: thumbnail.clone(),
            length_only: false,
        };
        (find_out(&question), std::fs::read(thumbnail).ok())
    }

    fn png(width: u32, height: u32, colour: png::ColorType, pixel: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(colour);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&pixel.repeat((width * height) as usize)).unwrap();
        writer.finish().unwrap();
        bytes
    }

    /// Size and first pixel of a thumbnail.
    fn decoded(jpeg: &[u8]) -> (u32, u32, [u8; 3]) {
        let mut decoder = JpegDecoder::new(std::io::Cursor::new(jpeg));
        let pixels = decoder.decode().unwrap();
        let info = decoder.info().unwrap();
        (u32::from(info.width), u32::from(info.height), [pixels[0], pixels[1], pixels[2]])
    }

    #[test]
    fn a_large_picture_gets_a_small_one() {
        let (facts, thumbnail) = ask(&png(2000, 1000, png::ColorType::Rgb, &[200, 40, 40]), "image/png");
        let facts = facts.unwrap();
        assert_eq!((facts.width, facts.height, facts.thumb), (Some(2000), Some(1000), true));
        let (width, height, colour) = decoded(&thumbnail.unwrap());
        assert_eq!((width, height), (480, 240));
        assert!(
            colour.iter().zip([200, 40, 40]).all(|(found, there)| found.abs_diff(there) < 4),
            "{colour:?}"
        );
        // What is behind a transparent one is not black.
        let (_, thumbnail) = ask(&png(600, 600, png::ColorType::Rgba, &[0, 0, 0, 0]), "image/png");
        assert!(decoded(&thumbnail.unwrap()).2[0] > 220);
        let (facts, thumbnail) = ask(&png(300, 200, png::ColorType::Grayscale, &[9]), "image/png");
        assert!(!facts.unwrap().thumb && thumbnail.is_none(), "it is small itself");
    }

    #[test]
    fn a_jpeg_gets_one_too() {
        let mut jpeg = Vec::new();
        let encoder = jpeg_encoder::Encoder::new(&mut jpeg, 90);
        encoder.encode(&[10, 200, 10].repeat(700 * 900), 700, 900, jpeg_encoder::ColorType::Rgb).unwrap();
        let (facts, thumbnail) = ask(&jpeg, "image/jpeg");
        assert_eq!((facts.unwrap().height, decoded(&thumbnail.unwrap()).1), (Some(900), 480));
        // Held upright by a camera that notes a quarter turn.
        let mut exif = b"Exif\0\0".to_vec();
        exif.extend(orientation::tests::exif(6, true));
        let mut turned = jpeg[..2].to_vec();
        turned.extend([0xff, 0xe1]);
        turned.extend(u16::try_from(exif.len() + 2).unwrap().to_be_bytes());
        turned.extend(exif);
        turned.extend(&jpeg[2..]);
        let (facts, thumbnail) = ask(&turned, "image/jpeg");
        let facts = facts.unwrap();
        assert_eq!((facts.width, facts.height, decoded(&thumbnail.unwrap()).0), (Some(900), Some(700), 480));
        let mut webp = Vec::new();
        let pixels = [10, 200, 10].repeat(500 * 600);
        image_webp::WebPEncoder::new(&mut webp)
            .encode(&pixels, 500, 600, image_webp::ColorType::Rgb8)
            .unwrap();
        let (facts, thumbnail) = ask(&webp, "image/webp");
        assert_eq!((facts.unwrap().width, decoded(&thumbnail.unwrap()).0), (Some(500), 400));
    }

    #[test]
    fn what_is_broken_or_too_large_is_refused() {
        let whole = png(2000, 1000, png::ColorType::Rgb, &[200, 40, 40]);
        for (bytes, content_type) in [
            (&whole[..whole.len() / 2], "image/png"),
            (&whole[..], "image/jpeg"),
            (&whole[..], "image/webp"),
            (&whole[..], "audio/wav"),
            (&b"RIFF\xff\xff\xff\xffWAVEfmt \xff\xff\xff\xff"[..], "audio/wav"),
            (&b""[..], "image/png"),
        ] {
            let (facts, thumbnail) = ask(bytes, content_type);
            assert!(facts.is_err() && thumbnail.is_none(), "{content_type}: {facts:?}");
        }
        // 60,000 x 60,000 pixels in its header, and nothing behind.
        let mut bomb = whole;
        bomb[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
        let checksum = crc32fast::hash(&bomb[12..29]).to_be_bytes();
        bomb[29..33].copy_from_slice(&checksum);
        let (refused, _) = ask(&bomb, "image/png");
        assert!(refused.unwrap_err().to_string().contains("60000 x 60000"));
    }

    #[test]
    fn a_sound_has_a_length_and_a_shape() {
        let spec = hound::WavSpec {
            channels: 2,
            sample_rate: 8000,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut bytes = std::io::Cursor::new(Vec::new());
        let mut writer = hound::WavWriter::new(&mut bytes, spec).unwrap();
        for at in 0..16_000 {
            let sample = if at < 8_000 { 0 } else { 16_000 };
            writer.write_sample::<i16>(sample).unwrap();
            writer.write_sample::<i16>(-sample).unwrap();
        }
        writer.finalize().unwrap();
        let facts = ask(bytes.get_ref(), "audio/wav").0.unwrap();
        assert_eq!((facts.seconds, facts.peaks.len()), (Some(2.0), waveform::BARS));
        assert_eq!((facts.peaks[10], facts.peaks[80]), (0, 255));
    }
}
