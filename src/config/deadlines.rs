//! `[deadlines]`: the default deadline of each kind, and how long an overdue task is watched.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::read::Positions;
use super::span::{Span, secs, zero_problems};
use crate::domain::diagnostic::Diagnostic;
use crate::domain::request::Kind;
use crate::domain::time::Millis;

/// `[deadlines]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Deadlines {
    /// Deadline of videos, and of Shorts Studio.
    pub video: Span,
    /// Deadline of images.
    pub image: Span,
    pub music: Span,
    pub speech: Span,
    pub sound_effect: Span,
    /// How long the task of an overdue job is still watched.
    pub watch_overdue_for: Span,
    /// Poll interval of the task of an overdue job.
    pub overdue_poll: Span,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            video: secs(30 * 60),
            image: secs(10 * 60),
            music: secs(15 * 60),
            speech: secs(10 * 60),
            sound_effect: secs(10 * 60),
            watch_overdue_for: secs(24 * 3600),
            overdue_poll: secs(5 * 60),
        }
    }
}

impl Deadlines {
    /// Values that are out of their range.
    pub(super) fn problems(&self, positions: &Positions<'_>) -> Vec<Diagnostic> {
        let spans = [
            ("deadlines.video", self.video),
            ("deadlines.image", self.image),
            ("deadlines.music", self.music),
            ("deadlines.speech", self.speech),
            ("deadlines.sound_effect", self.sound_effect),
            ("deadlines.watch_overdue_for", self.watch_overdue_for),
            ("deadlines.overdue_poll", self.overdue_poll),
        ];
        zero_problems(spans, positions)
    }

    pub fn by_kind(&self) -> BTreeMap<Kind, Millis> {
        BTreeMap::from([
            (Kind::Video, self.video.0),
            (Kind::Image, self.image.0),
            (Kind::Music, self.music.0),
            (Kind::Speech, self.speech.0),
            (Kind::SoundEffect, self.sound_effect.0),
            (Kind::ShortsStudio, self.video.0),
        ])
    }
}
