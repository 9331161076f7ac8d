//! Results: real, small, cheap media, rendered from the task alone whenever somebody asks for them.
//!
//! The same task gives the same bytes each time, so nothing is stored, and a download may be resumed against
//! another rendering. How they look and sound is decided in `renderer/`.

use std::collections::VecDeque;
use std::sync::Mutex;

use axum::body::Bytes;
use callsheet_renderer::{Medium, Subject};
use uuid::Uuid;

use super::tasks::{Kind, Task};

/// What is rendered for a kind.
fn medium(kind: Kind) -> Medium {
    match kind {
        Kind::Video | Kind::ShortsStudio => Medium::Video,
        Kind::Image => Medium::Image,
        Kind::Music => Medium::Music,
        Kind::Speech => Medium::Speech,
        Kind::SoundEffect => Medium::SoundEffect,
    }
}

/// The subject of a task's n-th result.
pub(crate) fn subject(task: &Task, index: u16) -> Subject {
    let options: serde_json::Value = serde_json::from_str(&task.options).unwrap_or_default();
    let shown = ["resolution", "quality", "aspect_ratio", "size", "duration"];
    let options = shown.iter().filter_map(|name| options.get(name)?.as_str()).collect::<Vec<_>>().join(" ");
    Subject {
        id: task.id,
        index,
        medium: medium(task.kind),
        ratio: task.shape.ratio,
        pixels: task.shape.pixels,
        length_ms: task.shape.length_ms,
        model: task.model.to_string(),
        prompt: task.prompt.chars().take(600).collect(),
        options,
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
