//! What a page shows of an output without opening it: a small picture and its size, the length of a sound and how loud it is.
//!
//! Outputs come from elsewhere, and decoders have had bugs: this is done by a process of its own (`media_process.rs`), which
//! may die of a file. Memory is bounded by the pixels that are accepted, and by the process's limit.

mod length;
mod orientation;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::pages::media_facts::orientation::Orientation;

/// Longest edge of a thumbnail, in pixels.
const THUMBNAIL_EDGE: u32 = 480;
/// Quality of a thumbnail, of 100.
const THUMBNAIL_QUALITY: u8 = 76;
/// A picture that is no larger than a thumbnail, and of so many bytes at most, needs none.
const SMALL_BYTES: u64 = 64 * 1024;
/// Pixels of a picture that is decoded as a whole, at most: 4 bytes each.
const WHOLE_PIXELS_MAX: u64 = 40_000_000;
/// The same of one that is read line by line.
const LINES_PIXELS_MAX: u64 = 400_000_000;
/// What lies behind the transparent parts of a picture.
const BACKGROUND: u32 = 238;
/// Bars of a waveform.
const BARS: usize = 96;
/// Bytes of a sound that are looked at, at most.
const SOUND_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// What there is to find out, and where its thumbnail goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaQuestion {
    pub path: PathBuf,
    /// Length that the file has unless somebody changed it, in bytes.
    pub bytes: u64,
    pub content_type: String,
    pub thumbnail: PathBuf,
    /// Nothing but its length is asked for.
    #[serde(default)]
    pub length_only: bool,
}

/// What was found out; nothing of what cannot be told. The names are those that `gallery_media.js` reads.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct MediaFacts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// There is a thumbnail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thumb: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The loudest sample of each part, from 0 to 255.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peaks: Vec<u8>,
}

/// Why nothing was found out.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    #[error("{0}")]
    Io(#[from] io::Error),
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
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let picture = match question.content_type.as_str() {
        "image/png" => png_picture(reader)?,
        "image/jpeg" => jpeg_picture(reader)?,
        "image/webp" => webp_picture(reader)?,
        _ => return sound(&mut reader),
    };
    let (width, height) = match picture.orientation.is_sideways() {
        true => (picture.height, picture.width),
        false => (picture.width, picture.height),
    };
    let facts = MediaFacts { width: Some(width), height: Some(height), ..MediaFacts::default() };
    if picture.width.max(picture.height) <= THUMBNAIL_EDGE && question.bytes <= SMALL_BYTES {
        return Ok(facts);
    }
    write_thumbnail(&picture, &question.thumbnail)?;
    Ok(MediaFacts { thumb: true, ..facts })
}

/// A picture on its way to its thumbnail: each pixel is added to the one that it becomes a part of.
struct Picture {
    width: u32,
    height: u32,
    small_width: u32,
    small_height: u32,
    /// Red, green, blue and the number of pixels, for each of the thumbnail's.
    sums: Vec<[u32; 4]>,
    /// Which column of the thumbnail each column becomes a part of.
    columns: Vec<usize>,
    /// How it is held.
    orientation: Orientation,
}

impl Picture {
    fn new(width: u32, height: u32, pixels_max: u64) -> Result<Picture, MediaError> {
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 || pixels > pixels_max {
            return Err(MediaError::Undecodable(format!("it has {width} x {height} pixels")));
        }
        let edge = width.max(height);
        let small = |side: u32| {
            let scaled = u64::from(side) * u64::from(THUMBNAIL_EDGE.min(edge)) / u64::from(edge);
            u32::try_from(scaled).unwrap_or(THUMBNAIL_EDGE).max(1)
        };
        let (small_width, small_height) = (small(width), small(height));
        let sums = vec![[0; 4]; (small_width * small_height) as usize];
        let columns = (0..width).map(|x| scaled(x, small_width, width)).collect();
        let orientation = Orientation::default();
        Ok(Picture { width, height, small_width, small_height, sums, columns, orientation })
    }

    /// Adds line `y`: 1 to 4 bytes a pixel, for grey, grey and alpha, colours, colours and alpha.
    fn add_line(&mut self, y: u32, line: &[u8], bytes_per_pixel: usize) {
        let row = scaled(y, self.small_height, self.height);
        let first = row * self.small_width as usize;
        let Some(sums) = self.sums.get_mut(first..first + self.small_width as usize) else { return };
        for (pixel, column) in line.chunks_exact(bytes_per_pixel).zip(&self.columns) {
            let (colours, alpha) = match *pixel {
                [grey] => ([grey; 3], 255),
                [grey, alpha] => ([grey; 3], alpha),
                [red, green, blue] => ([red, green, blue], 255),
                [red, green, blue, alpha] => ([red, green, blue], alpha),
                _ => return,
            };
            let Some(sum) = sums.get_mut(*column) else { return };
            let alpha = u32::from(alpha);
            for (sum, colour) in sum.iter_mut().zip(colours) {
                let colour = u32::from(colour);
                let seen =
                    if alpha == 255 { colour } else { (colour * alpha + BACKGROUND * (255 - alpha)) / 255 };
                *sum = sum.saturating_add(seen);
            }
            sum[3] = sum[3].saturating_add(1);
        }
    }

    fn add_whole(mut self, pixels: &[u8], bytes_per_pixel: usize) -> Picture {
        let line_bytes = self.width as usize * bytes_per_pixel;
        for (y, line) in (0..self.height).zip(pixels.chunks_exact(line_bytes)) {
            self.add_line(y, line, bytes_per_pixel);
        }
        self
    }

    /// The thumbnail, 3 bytes a pixel.
    fn small(&self) -> Vec<u8> {
        let mean = |sum: u32, count: u32| u8::try_from(sum / count.max(1)).unwrap_or(u8::MAX);
        self.sums
            .iter()
            .flat_map(|[red, green, blue, count]| [red, green, blue].map(|sum| mean(*sum, *count)))
            .collect()
    }
}

/// Which of `small` parts place `at` of `large` is in.
fn scaled(at: u32, small: u32, large: u32) -> usize {
    usize::try_from(u64::from(at) * u64::from(small) / u64::from(large)).unwrap_or(usize::MAX)
}

fn undecodable(error: impl std::fmt::Display) -> MediaError {
    MediaError::Undecodable(error.to_string())
}

fn png_picture(reader: BufReader<File>) -> Result<Picture, MediaError> {
    let mut decoder = png::Decoder::new_with_limits(reader, png::Limits { bytes: 64 * 1024 * 1024 });
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    let mut reader = decoder.read_info().map_err(undecodable)?;
    let (width, height, interlaced) = {
        let info = reader.info();
        (info.width, info.height, info.interlaced)
    };
    let bytes_per_pixel = reader.output_color_type().0.samples();
    if interlaced {
        let picture = Picture::new(width, height, WHOLE_PIXELS_MAX)?;
        let bytes = reader.output_buffer_size().ok_or_else(|| undecodable("it is too large"))?;
        let mut pixels = vec![0; bytes];
        reader.next_frame(&mut pixels).map_err(undecodable)?;
        return Ok(picture.add_whole(&pixels, bytes_per_pixel));
    }
    let mut picture = Picture::new(width, height, LINES_PIXELS_MAX)?;
    for y in 0..height {
        let row = reader.next_row().map_err(undecodable)?;
        let Some(row) = row else { return Err(undecodable("it is cut off")) };
        picture.add_line(y, row.data(), bytes_per_pixel);
    }
    Ok(picture)
}

fn jpeg_picture(reader: BufReader<File>) -> Result<Picture, MediaError> {
    let options = DecoderOptions::default()
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(reader, options);
    decoder.decode_headers().map_err(|error| undecodable(format!("{error:?}")))?;
    let info = decoder.info().ok_or_else(|| undecodable("it has no size"))?;
    let mut picture = Picture::new(u32::from(info.width), u32::from(info.height), WHOLE_PIXELS_MAX)?;
    let pixels = decoder.decode().map_err(|error| undecodable(format!("{error:?}")))?;
    // A browser turns the picture, and nothing tells it to turn the thumbnail.
    picture.orientation = decoder.exif().map(|exif| Orientation::of_exif(exif)).unwrap_or_default();
    Ok(picture.add_whole(&pixels, 3))
}

fn webp_picture(reader: BufReader<File>) -> Result<Picture, MediaError> {
    let mut decoder = image_webp::WebPDecoder::new(reader).map_err(undecodable)?;
    let (width, height) = decoder.dimensions();
    let picture = Picture::new(width, height, WHOLE_PIXELS_MAX)?;
    let bytes = decoder.output_buffer_size().ok_or_else(|| undecodable("it is too large"))?;
    let mut pixels = vec![0; bytes];
    decoder.read_image(&mut pixels).map_err(undecodable)?;
    let bytes_per_pixel = if decoder.has_alpha() { 4 } else { 3 };
    Ok(picture.add_whole(&pixels, bytes_per_pixel))
}

fn write_thumbnail(picture: &Picture, path: &Path) -> Result<(), MediaError> {
    let mut jpeg = Vec::new();
    let (small, width, height) =
        picture.orientation.turn(&picture.small(), picture.small_width, picture.small_height);
    let side = |side: u32| u16::try_from(side).map_err(undecodable);
    let (width, height) = (side(width)?, side(height)?);
    jpeg_encoder::Encoder::new(&mut jpeg, THUMBNAIL_QUALITY)
        .encode(&small, width, height, jpeg_encoder::ColorType::Rgb)
        .map_err(undecodable)?;
    // Under its name it is whole: nobody makes the same thumbnail at the same time.
    let draft = path.with_extension("draft");
    std::fs::write(&draft, jpeg)?;
    Ok(std::fs::rename(&draft, path)?)
}

/// The samples of a WAV file.
#[derive(Debug, Clone, Copy)]
struct WavFormat {
    is_float: bool,
    bytes_per_sample: usize,
    bytes_per_second: u32,
    frame_bytes: usize,
}

/// Length and loudness of a WAV file.
fn sound(reader: &mut impl Read) -> Result<MediaFacts, MediaError> {
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
            (b"fmt ", _) => format = Some(wav_format(reader, bytes)?),
            (b"data", Some(format)) => return loudness(reader, bytes, format),
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

#[cfg(test)]
mod tests {
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
        assert_eq!((facts.seconds, facts.peaks.len()), (Some(2.0), BARS));
        assert_eq!((facts.peaks[10], facts.peaks[80]), (0, 255));
    }
}
