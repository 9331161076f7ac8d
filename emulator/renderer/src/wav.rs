//! Music, speech and sound effects: tones that anyone can hear, and that differ by task.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "samples are numbers in -1..1 and counters far below the limits of their types"
)]

use std::f32::consts::TAU;
use std::io::Cursor;

use crate::{Medium, RenderError, Subject};

const SAMPLES_PER_SECOND: u32 = 8_000;
/// A pentatonic scale: any two notes of it get along.
const SCALE: [f32; 5] = [1.0, 1.125, 1.25, 1.5, 1.6667];

pub(crate) fn render(subject: &Subject) -> Result<Vec<u8>, RenderError> {
    let count = u64::from(subject.length_ms) * u64::from(SAMPLES_PER_SECOND) / 1_000;
    let count = u32::try_from(count).unwrap_or(0).max(1);
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: SAMPLES_PER_SECOND,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut bytes = Vec::with_capacity(44 + 2 * count as usize);
    let mut writer = hound::WavWriter::new(Cursor::new(&mut bytes), spec).map_err(RenderError::new)?;
    let mut fast = writer.get_i16_writer(count);
    let voice = Voice::new(subject, count);
    for n in 0..count {
        fast.write_sample((voice.sample(n) * 24_000.0) as i16);
    }
    fast.flush().map_err(RenderError::new)?;
    writer.finalize().map_err(RenderError::new)?;
    Ok(bytes)
}

struct Voice {
    medium: Medium,
    seed: u64,
    base_hz: f32,
    /// Samples per note or syllable.
    step: u32,
    count: u32,
}

impl Voice {
    fn new(subject: &Subject, count: u32) -> Self {
        let seed = subject.seed();
        let spread = (seed % 1_000) as f32 / 1_000.0;
        let (base_hz, step) = match subject.medium {
            Medium::Speech => (110.0 + 120.0 * spread, SAMPLES_PER_SECOND / 5),
            Medium::SoundEffect => (180.0 + 400.0 * spread, SAMPLES_PER_SECOND),
            _ => (220.0 + 110.0 * spread, SAMPLES_PER_SECOND / 4),
        };
        Self { medium: subject.medium, seed, base_hz, step, count }
    }

    fn sample(&self, n: u32) -> f32 {
        let edge = n.min(self.count - 1 - n) as f32 / 160.0;
        edge.min(1.0)
            * match self.medium {
                Medium::Speech => self.syllable(n),
                Medium::SoundEffect => self.sweep(n),
                _ => self.note(n),
            }
    }

    fn digit(&self, n: u32) -> u64 {
        (self.seed.rotate_left(n.wrapping_mul(7) % 64) ^ u64::from(n)) % 10
    }

    /// A plucked note of the scale, with its octave.
    fn note(&self, n: u32) -> f32 {
        let (index, into) = (n / self.step, n % self.step);
        let digit = self.digit(index) as usize;
        let hz = self.base_hz * SCALE[digit % SCALE.len()] * if digit > 4 { 2.0 } else { 1.0 };
        let fade = 1.0 - into as f32 / self.step as f32;
        let turn = TAU * hz * (into as f32 / SAMPLES_PER_SECOND as f32);
        fade * (0.7 * turn.sin() + 0.3 * (2.0 * turn).sin())
    }

    /// A hum that opens and closes like a mouth.
    fn syllable(&self, n: u32) -> f32 {
        let (index, into) = (n / self.step, n % self.step);
        let place = into as f32 / self.step as f32;
        let mouth = (TAU / 2.0 * place).sin();
        let digit = self.digit(index) as f32;
        if digit < 1.0 {
            return 0.0;
        }
        let turn = TAU * self.base_hz * (1.0 + digit / 40.0) * (into as f32 / SAMPLES_PER_SECOND as f32);
        mouth * (0.5 * turn.sin() + 0.3 * (3.0 * turn).sin() + 0.2 * (5.0 * turn).sin())
    }

    /// A tone that rises, with a rustle.
    fn sweep(&self, n: u32) -> f32 {
        let into = (n % self.step) as f32 / SAMPLES_PER_SECOND as f32;
        let turn = TAU * self.base_hz * (into + 0.5 * into * into);
        let rustle = (self.seed ^ u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15)).rotate_left(23) & 0xFFFF;
        0.7 * turn.sin() + 0.2 * (rustle as f32 / 32_768.0 - 1.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::tests::subject;

    #[test]
    fn sound_has_the_asked_length_and_can_be_heard() {
        for medium in [Medium::Music, Medium::Speech, Medium::SoundEffect] {
            let bytes = render(&subject(medium, 5)).unwrap();
            let mut reader = hound::WavReader::new(Cursor::new(bytes)).unwrap();
            assert_eq!(reader.duration(), 2 * SAMPLES_PER_SECOND);
            let loudest = reader.samples::<i16>().map(|s| s.unwrap().unsigned_abs()).max().unwrap();
            assert!(loudest > 8_000, "{medium:?}: {loudest}");
        }
    }
}
