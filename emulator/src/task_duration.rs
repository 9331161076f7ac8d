//! How long a task takes, by its kind and length.

use super::tasks::{Kind, Shape};

/// Pending and render time in milliseconds at speed 1.
pub(crate) fn task_duration(kind: Kind, shape: Shape) -> (u32, u32) {
    let length_ms = shape.length_ms;
    match kind {
        Kind::Video | Kind::ShortsStudio => (3_000, 20_000 + length_ms.saturating_mul(4)),
        Kind::Image => (1_000, 7_000),
        Kind::Music => (0, 6_000 + length_ms / 20),
        Kind::Speech => (0, 700 + length_ms / 20),
        Kind::SoundEffect => (0, 2_500),
    }
}
