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

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn told(bytes: &[u8], content_type: &str) -> Option<u64> {
        let found = length(Cursor::new(bytes), content_type).ok()?;
        Some(u64::try_from(found.as_millis()).unwrap())
    }

    fn wav(samples: u32) -> Vec<u8> {
        let format = hound::WavSpec {
            channels: 1,
            sample_rate: 8000,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut bytes = Cursor::new(Vec::new());
        let mut writer = hound::WavWriter::new(&mut bytes, format).unwrap();
        (0..samples).for_each(|_| writer.write_sample::<i16>(7).unwrap());
        writer.finalize().unwrap();
        bytes.into_inner()
    }

    /// Frames of MPEG 1 layer III, 128 kbit/s at 44.1 kHz: 417 bytes and 1,152 samples each.
    fn mp3(frames: usize) -> Vec<u8> {
        let mut frame = vec![0xff, 0xfb, 0x90, 0xc0];
        frame.resize(417, 0);
        frame.repeat(frames)
    }

    fn movie_of(version: u8, scale: u32, units: u64) -> Vec<u8> {
        let times = if version == 1 { 16 } else { 8 };
        let mut header = vec![version, 0, 0, 0];
        header.extend(vec![0; times]);
        header.extend(scale.to_be_bytes());
        match version {
            1 => header.extend(units.to_be_bytes()),
            _ => header.extend(u32::try_from(units).unwrap().to_be_bytes()),
        }
        let boxed = |name: &[u8], inner: &[u8]| {
            let size = u32::try_from(inner.len() + 8).unwrap();
            [&size.to_be_bytes(), name, inner].concat()
        };
        let long = [&1_u32.to_be_bytes()[..], b"mdat", &18_u64.to_be_bytes(), b"xx"].concat();
        [boxed(b"ftyp", b"isom"), long, boxed(b"moov", &boxed(b"mvhd", &header))].concat()
    }

    #[test]
    fn sounds_tell_how_long_they_are() {
        assert_eq!(told(&wav(8000 * 4 + 3 * 8), "audio/x-wav"), Some(4003));
        // 0.026122 s a frame; without a header of its own the length follows from the rate of the bytes.
        let ms = told(&mp3(100), "audio/mpeg").unwrap();
        assert!((2600..=2625).contains(&ms), "{ms}");
        assert_eq!(told(b"not a sound at all, whatever it is called", "audio/mpeg"), None);
        assert_eq!(told(&wav(0), "audio/x-wav"), None);
    }

    #[test]
    fn a_video_without_sound_tells_it_too() {
        assert_eq!(told(&movie_of(0, 600, 1501), "video/mp4"), Some(2501));
        assert_eq!(told(&movie_of(1, 90_000, 450_000), "video/quicktime"), Some(5000));
        assert_eq!(told(&movie_of(0, 600, u32::MAX.into()), "video/mp4"), None, "it is not known");
        assert_eq!(told(&movie_of(0, 0, 5), "video/mp4"), None);
        let whole = movie_of(0, 600, 600);
        for end in 0..whole.len() {
            assert_eq!(told(&whole[..end], "video/mp4"), None, "cut at {end}");
        }
    }
}
