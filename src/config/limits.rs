//! `[limits]`: how much at once, and how fast.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use bytesize::ByteSize;
use serde::Deserialize;

use super::read::Positions;
use super::span::{Span, secs};
use crate::config::size::size;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::request::Kind;

/// `[limits]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Jobs in flight at once.
    pub in_flight: u32,
    /// Jobs of a kind in flight at once.
    pub in_flight_per_kind: BTreeMap<Kind, u32>,
    /// Jobs of a model in flight at once, by model id.
    pub in_flight_per_model: BTreeMap<String, u32>,
    /// Creating POSTs a second.
    pub submits_per_second: Option<NonZeroU32>,
    pub polls_per_second: Option<NonZeroU32>,
    /// Jobs whose outputs are downloaded at once.
    pub downloads: usize,
    /// Files that are put into object stores at once.
    pub uploads: usize,
    /// A download that is slower, in bytes a second, is suspended while another waits.
    #[serde(deserialize_with = "size")]
    pub min_download_rate: ByteSize,
    /// Time over which the rate of a download is measured.
    pub slow_window: Span,
    /// Whether the number of jobs in flight follows what the service takes, up to `in_flight`.
    pub adaptive: bool,
    /// Rejected prompts in a row that pause a batch, or failed downloads of paid outputs in a row.
    pub pause_after_rejections: u32,
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig {
            in_flight: 16,
            in_flight_per_kind: BTreeMap::new(),
            in_flight_per_model: BTreeMap::new(),
            submits_per_second: None,
            polls_per_second: None,
            downloads: 4,
            uploads: 4,
            min_download_rate: ByteSize::kib(1),
            slow_window: secs(30),
            adaptive: true,
            pause_after_rejections: 5,
        }
    }
}

impl LimitsConfig {
    /// Values that are out of their range.
    pub(super) fn problems(&self, positions: &Positions<'_>) -> Vec<Diagnostic> {
        // A limit of none would leave its jobs waiting for ever.
        let nones = [
            ("limits.in_flight", self.in_flight == 0),
            ("limits.in_flight_per_kind", self.in_flight_per_kind.values().any(|limit| *limit == 0)),
            ("limits.in_flight_per_model", self.in_flight_per_model.values().any(|limit| *limit == 0)),
            ("limits.downloads", self.downloads == 0),
            ("limits.uploads", self.uploads == 0),
            ("limits.pause_after_rejections", self.pause_after_rejections == 0),
        ];
        let nones = nones.into_iter().filter(|(_, is_none)| *is_none);
        let mut problems: Vec<Diagnostic> =
            nones.map(|(key, _)| positions.problem(key, 0, "must be at least 1")).collect();
        if self.slow_window.0.0 == 0 {
            problems.push(positions.problem("limits.slow_window", 0, "must be greater than 0"));
        }
        problems
    }
}
