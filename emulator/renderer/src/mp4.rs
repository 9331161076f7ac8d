//! Video: H.264 in MP4, the task's picture with a bar that travels once across it.
//!
//! Every frame is a key frame of plain samples: the encoder needs no C, and a clip of five seconds stays below 600 KB.

use less_avc::ycbcr_image::{DataPlane, Planes, YCbCrImage};
use less_avc::{BitDepth, LessEncoder};
use muxide::api::{MuxerBuilder, VideoCodec};

use crate::canvas::{Canvas, accent, dimensions, portrait};
use crate::{RenderError, Subject};

const LONGEST: u32 = 240;
const FRAMES_PER_SECOND: u32 = 2;
/// The travelling bar.
const BAR_HEIGHT: u32 = 6;
/// Width and height of a macroblock, of which the encoder takes whole ones.
const BLOCK: u32 = 16;

pub(crate) fn render(subject: &Subject) -> Result<Vec<u8>, RenderError> {
    let size = dimensions(subject.ratio, LONGEST);
    let still = portrait(subject, size);
    let count = frame_count(subject.length_ms);
    let mut bytes = Vec::with_capacity(64 << 10);
    let mut muxer = MuxerBuilder::new(&mut bytes)
        .video(VideoCodec::H264, size.0, size.1, f64::from(FRAMES_PER_SECOND))
        .with_fast_start(true)
        .build()
        .map_err(RenderError::new)?;
    let mut encoder: Option<LessEncoder> = None;
    for n in 0..count {
        let picture = Yuv::of(&frame(&still, subject, n, count));
        let mut stream = Vec::new();
        if let Some(encoder) = &mut encoder {
            let unit = encoder.encode(&picture.image()).map_err(RenderError::new)?;
            stream.extend(unit.to_annex_b_data());
        } else {
            let (first, begun) = LessEncoder::new(&picture.image()).map_err(RenderError::new)?;
            first.into_iter().for_each(|unit| stream.extend(unit.to_annex_b_data()));
            encoder = Some(begun);
        }
        let at_seconds = f64::from(n) / f64::from(FRAMES_PER_SECOND);
        muxer.write_video(at_seconds, &stream, true).map_err(RenderError::new)?;
    }
    muxer.finish().map_err(RenderError::new)?;
    Ok(bytes)
}

fn frame_count(length_ms: u32) -> u32 {
    let frames = u64::from(length_ms) * u64::from(FRAMES_PER_SECOND);
    u32::try_from(frames.div_ceil(1_000)).unwrap_or(1).max(1)
}

fn frame(still: &Canvas, subject: &Subject, n: u32, count: u32) -> Canvas {
    let mut picture = still.clone();
    let travelled = still.width * (n + 1) / count;
    let top = still.height.saturating_sub(BAR_HEIGHT + 22);
    picture.fill((0, top), (travelled, BAR_HEIGHT), accent(subject.seed()));
    picture
}

/// A picture as the encoder takes it: brightness of each pixel, and two colour differences of each four (BT.601, full
/// range), in whole macroblocks.
struct Yuv {
    size: (u32, u32),
    stride: usize,
    luma: Vec<u8>,
    blue: Vec<u8>,
    red: Vec<u8>,
}

impl Yuv {
    fn of(picture: &Canvas) -> Yuv {
        let at = |number: u32| usize::try_from(number).unwrap_or(0);
        let stride = at(picture.width.next_multiple_of(BLOCK));
        let rows = at(picture.height.next_multiple_of(BLOCK));
        let (width, height) = (at(picture.width), at(picture.height));
        let mut luma = vec![0; stride * rows];
        let (mut blue, mut red) = (vec![128; stride * rows / 4], vec![128; stride * rows / 4]);
        for y in 0..height {
            for x in 0..width {
                let from = (y * width + x) * 3;
                let Some(&[r, g, b]) = picture.pixels.get(from..from + 3) else { continue };
                let (r, g, b) = (i32::from(r), i32::from(g), i32::from(b));
                luma[y * stride + x] = sample(77 * r + 150 * g + 29 * b);
                if x % 2 == 0 && y % 2 == 0 {
                    let colour = y / 2 * (stride / 2) + x / 2;
                    blue[colour] = sample(-43 * r - 85 * g + 128 * b + (128 << 8));
                    red[colour] = sample(128 * r - 107 * g - 21 * b + (128 << 8));
                }
            }
        }
        Yuv { size: (picture.width, picture.height), stride, luma, blue, red }
    }

    fn image(&self) -> YCbCrImage<'_> {
        let plane = |data, stride| DataPlane { data, stride, bit_depth: BitDepth::Depth8 };
        let half = self.stride / 2;
        let planes =
            (plane(&self.luma[..], self.stride), plane(&self.blue[..], half), plane(&self.red[..], half));
        YCbCrImage { planes: Planes::YCbCr(planes), width: self.size.0, height: self.size.1 }
    }
}

/// A sample, from 256 times its value.
fn sample(scaled: i32) -> u8 {
    u8::try_from((scaled >> 8).clamp(0, 255)).unwrap_or(u8::MAX)
}
