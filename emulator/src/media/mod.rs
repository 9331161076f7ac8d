//! Results: real, small, cheap media, rendered from the task alone whenever somebody asks for them.
//!
//! The same task gives the same bytes each time, so nothing is stored, and a download may be resumed against
//! another rendering. Different tasks give different bytes.

mod canvas;
mod mp4;
mod png;
mod wav;

use std::collections::VecDeque;
use std::sync::Mutex;

use axum::body::Bytes;
use uuid::Uuid;

use super::tasks::{Kind, Shape, Task};

/// What is drawn and played.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) id: Uuid,
    /// Which of the task's results.
    pub(crate) index: u16,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) model: String,
    pub(crate) prompt: String,
    /// The options, as one line.
    pub(crate) options: String,
}

impl Subject {
    /// The subject of a task's n-th result.
    pub(crate) fn of(task: &Task, index: u16) -> Self {
        let options: serde_json::Value = serde_json::from_str(&task.options).unwrap_or_default();
        let shown = ["resolution", "quality", "aspect_ratio", "size", "duration"];
        let options =
            shown.iter().filter_map(|name| options.get(name)?.as_str()).collect::<Vec<_>>().join(" ");
        Self {
            id: task.id,
            index,
            kind: task.kind,
            shape: task.shape,
            model: task.model.to_string(),
            prompt: task.prompt.chars().take(600).collect(),
            options,
        }
    }

    /// A number that differs from result to result.
    fn seed(&self) -> u64 {
        let (high, low) = self.id.as_u64_pair();
        high ^ low.rotate_left(17) ^ (u64::from(self.index) << 40)
    }
}

/// The content type of a kind's results.
pub(crate) fn content_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Video | Kind::ShortsStudio => "video/mp4",
        Kind::Image => "image/png",
        Kind::Music | Kind::Speech | Kind::SoundEffect => "audio/wav",
    }
}

/// Why there are no bytes: a codec refused. It never happens with the sizes used here.
#[derive(Debug, thiserror::Error)]
#[error("could not render: {0}")]
pub(crate) struct RenderError(String);

impl RenderError {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Render a result. Takes milliseconds of CPU; call it where blocking is allowed.
pub(crate) fn render(subject: &Subject) -> Result<Vec<u8>, RenderError> {
    match subject.kind {
        Kind::Image => png::render(subject),
        Kind::Video | Kind::ShortsStudio => mp4::render(subject),
        Kind::Music | Kind::Speech | Kind::SoundEffect => wav::render(subject),
    }
}

/// The last results rendered, by task and index, bounded in bytes.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    held: Mutex<CacheEntries>,
}

#[derive(Debug, Default)]
struct CacheEntries {
    entries: VecDeque<((Uuid, u16), Bytes)>,
    bytes: usize,
}

const CACHE_BYTES: usize = 24 << 20;

impl Cache {
    /// The bytes of a result, if they were rendered lately.
    pub(crate) fn get(&self, key: (Uuid, u16)) -> Option<Bytes> {
        let held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held.entries.iter().find(|(known, _)| *known == key).map(|(_, bytes)| bytes.clone())
    }

    /// Keep a result for a while.
    pub(crate) fn put(&self, key: (Uuid, u16), bytes: Bytes) {
        let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if bytes.len() > CACHE_BYTES / 2 || held.entries.iter().any(|(known, _)| *known == key) {
            return;
        }
        held.bytes += bytes.len();
        held.entries.push_back((key, bytes));
        while held.bytes > CACHE_BYTES || held.entries.len() > 512 {
            let Some((_, dropped)) = held.entries.pop_front() else { return };
            held.bytes -= dropped.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn subject(kind: Kind, n: u128) -> Subject {
        Subject {
            id: Uuid::from_u128(n),
            index: 0,
            kind,
            shape: Shape { ratio: (16, 9), pixels: None, length_ms: 2_000 },
            model: "house-c1/text-to-video".into(),
            prompt: "a small boat, in the wind \u{1F6A4} über".into(),
            options: "768P 16:9 2s".into(),
        }
    }

    #[test]
    fn the_same_task_gives_the_same_bytes_and_another_task_others() {
        for kind in [Kind::Image, Kind::Video, Kind::Music, Kind::Speech, Kind::SoundEffect] {
            let first = render(&subject(kind, 1)).unwrap();
            assert_eq!(first, render(&subject(kind, 1)).unwrap(), "{kind:?}");
            assert_ne!(first, render(&subject(kind, 2)).unwrap(), "{kind:?}");
            let second_output = Subject { index: 1, ..subject(kind, 1) };
            assert_ne!(first, render(&second_output).unwrap(), "{kind:?}");
        }
    }

    #[test]
    fn the_cache_stays_within_its_bytes() {
        let cache = Cache::default();
        for n in 0..100 {
            cache.put((Uuid::from_u128(n), 0), Bytes::from(vec![0; 1 << 20]));
        }
        assert!(cache.get((Uuid::from_u128(0), 0)).is_none());
        assert!(cache.get((Uuid::from_u128(99), 0)).is_some());
        assert!(cache.held.lock().unwrap().bytes <= CACHE_BYTES);
    }
}
