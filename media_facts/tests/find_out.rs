//! What is found out of pictures, sounds and videos, asked as the program asks.
//!
//! Tests of a crate of their own: the decoders are generic, and would be compiled and optimised once more beside unit tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::Cursor;

use callsheet_media_facts::{MediaError, MediaFacts, MediaQuestion, find_out, jpeg};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Bars of a waveform.
const BARS: usize = 96;
/// Longest edge of a thumbnail, in pixels.
const THUMBNAIL_EDGE: u32 = 480;

type Answer = Result<MediaFacts, MediaError>;

/// Asks about a file of these bytes. With the answer comes its thumbnail, if it got one.
fn ask_about(bytes: &[u8], content_type: &str, length_only: bool) -> (Answer, Option<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let (path, thumbnail) = (dir.path().join("file"), dir.path().join("thumbnail.jpg"));
    std::fs::write(&path, bytes).unwrap();
    let question = MediaQuestion {
        path,
        bytes: bytes.len() as u64,
        content_type: content_type.to_owned(),
        thumbnail: thumbnail.clone(),
        length_only,
    };
    (find_out(&question), std::fs::read(thumbnail).ok())
}

fn ask(bytes: &[u8], content_type: &str) -> (Answer, Option<Vec<u8>>) {
    ask_about(bytes, content_type, false)
}

/// How long a file says that it lasts, in milliseconds.
fn length_ms(bytes: &[u8], content_type: &str) -> Option<u64> {
    let (answer, thumbnail) = ask_about(bytes, content_type, true);
    assert!(thumbnail.is_none());
    let facts = answer.ok()?;
    assert_eq!(facts, MediaFacts { seconds: facts.seconds, ..MediaFacts::default() }, "nothing else");
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the files here last seconds"
    )]
    facts.seconds.map(|seconds| (seconds * 1000.0).round() as u64)
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

fn jpeg(width: u16, height: u16, pixels: &[u8]) -> Vec<u8> {
    jpeg::encode(pixels, width, height, 90).unwrap()
}

fn webp(width: u32, height: u32, pixels: &[u8]) -> Vec<u8> {
    let mut webp = Vec::new();
    let encoder = image_webp::WebPEncoder::new(&mut webp);
    encoder.encode(pixels, width, height, image_webp::ColorType::Rgb8).unwrap();
    webp
}

/// A decoded thumbnail.
struct Thumbnail {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Thumbnail {
    fn decoded(jpeg: Option<Vec<u8>>) -> Thumbnail {
        let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(Cursor::new(jpeg.unwrap()), options);
        let pixels = decoder.decode().unwrap();
        let info = decoder.info().unwrap();
        Thumbnail { width: info.width.into(), height: info.height.into(), pixels }
    }

    fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn pixel(&self, x: u32, y: u32) -> [u8; 3] {
        let at = ((y * self.width + x) * 3) as usize;
        [self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]]
    }
}

#[track_caller]
fn same_colour(found: [u8; 3], there: [u8; 3]) {
    assert!(
        found.iter().zip(there).all(|(found, there)| found.abs_diff(there) < 4),
        "{found:?}, not {there:?}"
    );
}

#[test]
fn a_large_picture_gets_a_small_one() {
    let (facts, thumbnail) = ask(&png(2000, 1000, png::ColorType::Rgb, &[200, 40, 40]), "image/png");
    let facts = facts.unwrap();
    assert_eq!((facts.width, facts.height, facts.thumb), (Some(2000), Some(1000), true));
    let thumbnail = Thumbnail::decoded(thumbnail);
    assert_eq!(thumbnail.size(), (480, 240));
    same_colour(thumbnail.pixel(0, 0), [200, 40, 40]);
    // What is behind a transparent one is not black.
    let (_, thumbnail) = ask(&png(600, 600, png::ColorType::Rgba, &[0, 0, 0, 0]), "image/png");
    assert!(Thumbnail::decoded(thumbnail).pixel(0, 0)[0] > 220);
    let (facts, thumbnail) = ask(&png(300, 200, png::ColorType::Grayscale, &[9]), "image/png");
    assert!(!facts.unwrap().thumb && thumbnail.is_none(), "it is small itself");
}

#[test]
fn a_jpeg_and_a_webp_get_one_too() {
    let (facts, thumbnail) = ask(&jpeg(700, 900, &[10, 200, 10].repeat(700 * 900)), "image/jpeg");
    let thumbnail = Thumbnail::decoded(thumbnail);
    assert_eq!((facts.unwrap().height, thumbnail.height), (Some(900), 480));
    same_colour(thumbnail.pixel(100, 100), [10, 200, 10]);
    let (facts, thumbnail) = ask(&webp(500, 600, &[10, 200, 10].repeat(500 * 600)), "image/webp");
    assert_eq!((facts.unwrap().width, Thumbnail::decoded(thumbnail).width), (Some(500), 400));
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

/// The tag of an orientation in EXIF data, and the type of a number of two bytes.
const ORIENTATION: u16 = 0x0112;
const SHORT: u16 = 3;

/// EXIF data that tell nothing but an orientation.
fn exif(orientation: u8, is_little: bool) -> Vec<u8> {
    let two = |n: u16| if is_little { n.to_le_bytes() } else { n.to_be_bytes() };
    let four = |n: u32| if is_little { n.to_le_bytes() } else { n.to_be_bytes() };
    let mut exif = if is_little { b"II".to_vec() } else { b"MM".to_vec() };
    exif.extend(two(42));
    exif.extend(four(8));
    exif.extend(two(2));
    for (tag, kind, value) in [(0x0100, SHORT, 9), (ORIENTATION, SHORT, u16::from(orientation))] {
        exif.extend(two(tag));
        exif.extend(two(kind));
        exif.extend(four(1));
        exif.extend(two(value));
        exif.extend(two(0));
    }
    exif.extend(four(0));
    exif
}

/// A JPEG with EXIF data, as a camera writes it.
fn with_exif(jpeg: &[u8], exif: &[u8]) -> Vec<u8> {
    let segment = [b"Exif\0\0", exif].concat();
    let length = u16::try_from(segment.len() + 2).unwrap().to_be_bytes();
    [&jpeg[..2], &[0xff, 0xe1], &length, &segment, &jpeg[2..]].concat()
}

/// A JPEG of 2 x 3 or 3 x 2 fields, each 256 pixels wide and high, in shades of grey by their numbers from 1 to 6.
fn fields(columns: u16, numbers: [u8; 6]) -> Vec<u8> {
    let field = 256;
    let (width, height) = (columns * field, 6 / columns * field);
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let number = numbers[usize::from(y / field * columns + x / field)];
            pixels.extend([shade(number); 3]);
        }
    }
    jpeg(width, height, &pixels)
}

fn shade(number: u8) -> u8 {
    number * 40
}

#[test]
fn every_orientation_shows_the_same_picture() {
    // Two columns and three rows of fields, as a camera stores them in each orientation.
    for (orientation, columns, stored) in [
        (1, 2, [1, 2, 3, 4, 5, 6]),
        (2, 2, [2, 1, 4, 3, 6, 5]),
        (3, 2, [6, 5, 4, 3, 2, 1]),
        (4, 2, [5, 6, 3, 4, 1, 2]),
        (5, 3, [1, 3, 5, 2, 4, 6]),
        (6, 3, [2, 4, 6, 1, 3, 5]),
        (7, 3, [6, 4, 2, 5, 3, 1]),
        (8, 3, [5, 3, 1, 6, 4, 2]),
    ] {
        let stored = fields(columns, stored);
        for is_little in [true, false] {
            let (facts, thumbnail) = ask(&with_exif(&stored, &exif(orientation, is_little)), "image/jpeg");
            let facts = facts.unwrap();
            assert_eq!((facts.width, facts.height), (Some(512), Some(768)), "{orientation}");
            let thumbnail = Thumbnail::decoded(thumbnail);
            assert_eq!(thumbnail.size(), (320, THUMBNAIL_EDGE), "{orientation}");
            for number in 1..=6 {
                let at = u32::from(number) - 1;
                let (x, y) = (at % 2 * 160 + 80, at / 2 * 160 + 80);
                same_colour(thumbnail.pixel(x, y), [shade(number); 3]);
            }
        }
    }
}

#[test]
fn a_picture_whose_exif_data_are_damaged_is_upright_or_turned() {
    let stored = jpeg(600, 400, &[90; 600 * 400 * 3]);
    let size = |exif: &[u8]| {
        let facts = ask(&with_exif(&stored, exif), "image/jpeg").0.unwrap();
        (facts.width.unwrap(), facts.height.unwrap())
    };
    let whole = exif(6, true);
    assert_eq!(size(&whole), (400, 600));
    for end in 0..whole.len() {
        assert!([(600, 400), (400, 600)].contains(&size(&whole[..end])), "{end}");
    }
    for (at, byte) in [(4, 0xff), (0, b'X'), (8, 0xff), (12, 7)] {
        let mut damaged = whole.clone();
        damaged[at] = byte;
        assert!([(600, 400), (400, 600)].contains(&size(&damaged)), "{at}");
    }
    for number in [0, 9, 255] {
        assert_eq!(size(&exif(number, false)), (600, 400), "{number}");
    }
}

fn wav(channels: u16, samples: impl IntoIterator<Item = i16>) -> Vec<u8> {
    let format = hound::WavSpec {
        channels,
        sample_rate: 8000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut bytes, format).unwrap();
    samples.into_iter().for_each(|sample| writer.write_sample(sample).unwrap());
    writer.finalize().unwrap();
    bytes.into_inner()
}

#[test]
fn a_sound_has_a_length_and_a_shape() {
    let sample = |at| if at < 8_000 { 0 } else { 16_000 };
    let sound = wav(2, (0..16_000).flat_map(|at| [sample(at), -sample(at)]));
    let facts = ask(&sound, "audio/wav").0.unwrap();
    assert_eq!((facts.seconds, facts.peaks.len()), (Some(2.0), BARS));
    assert_eq!((facts.peaks[10], facts.peaks[80]), (0, 255));
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
    assert_eq!(length_ms(&wav(1, vec![7; 8000 * 4 + 3 * 8]), "audio/x-wav"), Some(4003));
    // 0.026122 s a frame; without a header of its own the length follows from the rate of the bytes.
    let ms = length_ms(&mp3(100), "audio/mpeg").unwrap();
    assert!((2600..=2625).contains(&ms), "{ms}");
    assert_eq!(length_ms(b"not a sound at all, whatever it is called", "audio/mpeg"), None);
    assert_eq!(length_ms(&wav(1, []), "audio/x-wav"), None);
}

#[test]
fn a_video_without_sound_tells_it_too() {
    assert_eq!(length_ms(&movie_of(0, 600, 1501), "video/mp4"), Some(2501));
    assert_eq!(length_ms(&movie_of(1, 90_000, 450_000), "video/quicktime"), Some(5000));
    assert_eq!(length_ms(&movie_of(0, 600, u32::MAX.into()), "video/mp4"), None, "it is not known");
    assert_eq!(length_ms(&movie_of(0, 0, 5), "video/mp4"), None);
    let whole = movie_of(0, 600, 600);
    for end in 0..whole.len() {
        assert_eq!(length_ms(&whole[..end], "video/mp4"), None, "cut at {end}");
    }
}
