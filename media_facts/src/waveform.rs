//! How long a WAV file is, and how loud each part of it.

use std::io::{self, Read};

use crate::{MediaError, MediaFacts, undecodable};

/// Bars of a waveform.
pub(super) const BARS: usize = 96;
/// Bytes of a sound that are looked at, at most.
const SOUND_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The samples of a WAV file.
#[derive(Debug, Clone, Copy)]
struct WavFormat {
    is_float: bool,
    bytes_per_sample: usize,
    bytes_per_second: u32,
    frame_bytes: usize,
}

/// Length and loudness of a WAV file.
///
/// # Errors
/// When it is something else, or is cut off.
pub(super) fn of_wav(mut reader: impl Read) -> Result<MediaFacts, MediaError> {
    let mut head = [0; 12];
    reader.read_exact(&mut head)?;
    if &head[..4] != b"RIFF" || &head[8..] != b"WAVE" {
        return Err(undecodable("it is not a WAV file"));
    }
    let mut format = None;
    loop {
        let mut chunk = [0; 8];
        reader.read_exact(&mut chunk)?;
        let [a, b, c, d, sizes @ ..] = chunk;
        let bytes = u64::from(u32::from_le_bytes(sizes));
        match (&[a, b, c, d], format) {
            (b"fmt ", _) => format = Some(wav_format(&mut reader, bytes)?),
            (b"data", Some(format)) => return loudness(&mut reader, bytes, format),
            _ => drop(io::copy(&mut reader.by_ref().take(bytes + bytes % 2), &mut io::sink())?),
        }
    }
}

fn wav_format(reader: &mut impl Read, bytes: u64) -> Result<WavFormat, MediaError> {
    let mut chunk = Vec::new();
    reader.take((bytes + bytes % 2).min(4096)).read_to_end(&mut chunk)?;
    let number = |at: usize| chunk.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    let second = chunk.get(8..12).map_or(0, |four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    let kind = if number(0) == 0xfffe { number(24) } else { number(0) };
    let bytes_per_sample = usize::from(number(14)) / 8;
    let frame_bytes = usize::from(number(12));
    let is_known = matches!((kind, bytes_per_sample), (1, 1..=4) | (3, 4));
    if !is_known || second == 0 || frame_bytes == 0 || !frame_bytes.is_multiple_of(bytes_per_sample) {
        return Err(undecodable("its samples are of an unknown kind"));
    }
    Ok(WavFormat { is_float: kind == 3, bytes_per_sample, bytes_per_second: second, frame_bytes })
}

fn loudness(reader: &mut impl Read, bytes: u64, format: WavFormat) -> Result<MediaFacts, MediaError> {
    // One that was streamed does not tell its length: what is there counts.
    let bytes = bytes.min(SOUND_BYTES_MAX);
    let frame = format.frame_bytes as u64;
    let mut loudest = vec![0.0_f32; BARS];
    let mut buffer = vec![0; format.frame_bytes * 4096];
    let (mut read, mut peaks) = (0_u64, Vec::new());
    // A bar for each so many bytes of what the file says that it has; of one that does not, as it goes.
    let part = (bytes / BARS as u64 / frame).max(1) * frame;
    loop {
        let wanted = buffer.len().min(usize::try_from(bytes - read).unwrap_or(usize::MAX));
        let got = read_full(reader, &mut buffer[..wanted])?;
        for sample in buffer[..got].chunks_exact(format.bytes_per_sample) {
            let bar = usize::try_from(read / part).unwrap_or(usize::MAX).min(BARS - 1);
            loudest[bar] = loudest[bar].max(amplitude(sample, format.is_float));
            read += format.bytes_per_sample as u64;
        }
        if got < wanted || read >= bytes || got == 0 {
            break;
        }
    }
    let seconds = read as f64 / f64::from(format.bytes_per_second);
    let most = loudest.iter().copied().fold(0.0, f32::max);
    if most > 0.0 {
        // A quiet sound is drawn as large as a loud one: its shape is what tells.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 255")]
        let bar = |loud: &f32| (loud / most * 255.0).clamp(0.0, 255.0) as u8;
        peaks = loudest.iter().map(bar).collect();
    }
    Ok(MediaFacts { seconds: Some((seconds * 1000.0).round() / 1000.0), peaks, ..MediaFacts::default() })
}

/// Fills a buffer as far as there is something.
fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// How far a sample is from silence, from 0 to 1.
fn amplitude(sample: &[u8], is_float: bool) -> f32 {
    match *sample {
        [unsigned] => (f32::from(unsigned) - 128.0).abs() / 128.0,
        [a, b] => f32::from(i16::from_le_bytes([a, b])).abs() / 32_768.0,
        [_, b, c] => f32::from(i16::from_le_bytes([b, c])).abs() / 32_768.0,
        [a, b, c, d] if is_float => {
            let sample = f32::from_le_bytes([a, b, c, d]).abs();
            if sample.is_finite() { sample.min(1.0) } else { 0.0 }
        }
        [_, _, c, d] => f32::from(i16::from_le_bytes([c, d])).abs() / 32_768.0,
        _ => 0.0,
    }
}
