//! Video: H.264 in MP4, the task's picture with a bar that travels once across it.

use muxide::api::{MuxerBuilder, VideoCodec};
use openh264::OpenH264API;
use openh264::encoder::{
    BitRate, Complexity, Encoder, EncoderConfig, FrameRate, FrameType, IntraFramePeriod, RateControlMode,
    UsageType,
};
use openh264::formats::{RgbSliceU8, YUVBuffer};

use super::canvas::{Canvas, accent, dimensions, portrait};
use super::{RenderError, Subject};

const LONGEST: u32 = 320;
const FRAMES_PER_SECOND: u32 = 6;
/// The travelling bar.
const BAR_HEIGHT: u32 = 6;

pub(super) fn render(subject: &Subject) -> Result<Vec<u8>, RenderError> {
    let size = dimensions(subject.shape.ratio, LONGEST);
    let still = portrait(subject, size);
    let count = frame_count(subject.shape.length_ms);
    let mut encoder =
        Encoder::with_api_config(OpenH264API::from_source(), config()).map_err(RenderError::new)?;
    let mut bytes = Vec::with_capacity(64 << 10);
    let mut muxer = MuxerBuilder::new(&mut bytes)
        .video(VideoCodec::H264, size.0, size.1, f64::from(FRAMES_PER_SECOND))
        .with_fast_start(true)
        .build()
        .map_err(RenderError::new)?;
    let dimensions = (usize::try_from(size.0).unwrap_or(0), usize::try_from(size.1).unwrap_or(0));
    for n in 0..count {
        let picture = frame(&still, subject, n, count);
        let yuv = YUVBuffer::from_rgb8_source(RgbSliceU8::new(&picture.pixels, dimensions));
        let stream = encoder.encode(&yuv).map_err(RenderError::new)?;
        let key = matches!(stream.frame_type(), FrameType::IDR | FrameType::I);
        let at_seconds = f64::from(n) / f64::from(FRAMES_PER_SECOND);
        muxer.write_video(at_seconds, &stream.to_vec(), key).map_err(RenderError::new)?;
    }
    muxer.finish().map_err(RenderError::new)?;
    Ok(bytes)
}

fn frame_count(length_ms: u32) -> u32 {
    let frames = u64::from(length_ms) * u64::from(FRAMES_PER_SECOND);
    u32::try_from(frames.div_ceil(1_000)).unwrap_or(1).max(1)
}

fn config() -> EncoderConfig {
    EncoderConfig::new()
        .usage_type(UsageType::ScreenContentRealTime)
        .max_frame_rate(FrameRate::from_hz(6.0))
        .bitrate(BitRate::from_bps(200_000))
        .rate_control_mode(RateControlMode::Off)
        .complexity(Complexity::Low)
        .skip_frames(false)
        .scene_change_detect(true)
        .adaptive_quantization(false)
        .background_detection(false)
        .intra_frame_period(IntraFramePeriod::from_num_frames(FRAMES_PER_SECOND * 5))
        .num_threads(1)
}

fn frame(still: &Canvas, subject: &Subject, n: u32, count: u32) -> Canvas {
    let mut picture = still.clone();
    let travelled = still.width * (n + 1) / count;
    let top = still.height.saturating_sub(BAR_HEIGHT + 22);
    picture.fill((0, top), (travelled, BAR_HEIGHT), accent(subject.seed()));
    picture
}
