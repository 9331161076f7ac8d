//! What the page of a batch reads first: how the batch stands, which pages of data there are, and the jobs that are worth
//! showing although they have not ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::ids::BatchName;
use crate::domain::job_state::JobStateCounts;
use crate::domain::parked_reason::Parked;
use crate::pages::gallery_job::GalleryJob;
use crate::pages::script_data;

/// Jobs on a page of data. One that is full never changes.
pub const PAGE_JOBS: usize = 500;
/// Jobs that have not ended and are shown all the same, at most.
pub const OPEN_MAX: usize = 200;
/// Format of the data; another one is written anew.
pub const FORMAT: u32 = 1;

/// The index of a gallery. The names are those that `gallery_data.js` reads.
#[derive(Debug, Serialize)]
pub struct GalleryIndex<'a> {
    pub batch: &'a BatchName,
    /// Flags that commands need so that they work on this state, as `--emulator`.
    pub flags: &'a str,
    /// Milliseconds since 1970.
    pub created: i64,
    /// When this was written, likewise.
    pub written: i64,
    pub jobs: u32,
    pub done: bool,
    /// Jobs by state; those without jobs are left out.
    pub states: BTreeMap<&'static str, u32>,
    pub planned: u64,
    pub budget: u64,
    pub charged: u64,
    pub held: u64,
    pub waived: u64,
    pub refunded: u64,
    pub parked: Option<ParkedNote>,
    /// Pages of data, from 0.
    pub pages: usize,
    /// Jobs on the last of them.
    pub last: usize,
    pub page_jobs: usize,
    /// How many outputs of each page have their facts: thumbnail, size, length.
    pub media: &'a [u32],
    pub open: Vec<GalleryJob<'a>>,
    /// Places of jobs of which another version of their row is wanted.
    pub superseded: Vec<u32>,
    /// Keys of outputs that were not on disk when it was last looked for them.
    pub missing: &'a [String],
}

/// Why nothing more of the batch is sent.
#[derive(Debug, Serialize)]
pub struct ParkedNote {
    reason: &'static str,
    text: String,
}

impl ParkedNote {
    /// In the words of commands, which name the batch.
    pub fn new(parked: Parked, batch: &BatchName) -> ParkedNote {
        ParkedNote { reason: parked.name(), text: parked.explain_for(batch) }
    }
}

/// Jobs by state, for people; the ones that were never sent, since a newer version of their row came, apart.
pub fn states(counts: &JobStateCounts, replaced: u32) -> BTreeMap<&'static str, u32> {
    let mut states: BTreeMap<&'static str, u32> =
        counts.iter().map(|(state, count)| (state.name(), *count)).collect();
    if let Some(canceled) = states.get_mut("canceled") {
        *canceled = canceled.saturating_sub(replaced);
    }
    states.insert("replaced", replaced);
    states.retain(|_, count| *count > 0);
    states
}

/// How far the pages of data go: where writing them is taken up again. Lost or wrong, they are written anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GalleryStamp {
    pub format: u32,
    /// Tells a batch from one of the same name and number in another state: when it was created.
    pub created: i64,
    /// Byte of the outcomes up to which they were read.
    pub end: u64,
    /// Full pages.
    pub pages: Vec<PageStamp>,
    /// Facts of outputs on each page, the last one included.
    pub media: Vec<u32>,
    /// Byte of the outcomes up to which nothing more is to be found out of the outputs of each page.
    pub media_done: Vec<u64>,
    /// Keys of outputs that were missing.
    pub missing: Vec<String>,
}

/// A full page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageStamp {
    /// Bytes of the outcomes where its last one begins and ends.
    pub last: u64,
    pub end: u64,
    /// Length of its file, in bytes.
    pub bytes: u64,
}

/// The index as a file: the stamp in a comment, and the data.
///
/// # Errors
/// When they have no JSON.
pub fn index_file(stamp: &GalleryStamp, index: &GalleryIndex<'_>) -> serde_json::Result<String> {
    // Nothing in it but numbers and hexadecimal digits.
    let stamp = serde_json::to_string(stamp)?;
    Ok(format!("//{stamp}\n{}", script_data::call("callsheetBatch", 0, index)?))
}

/// The stamp of a file that [`index_file`] made; nothing where it is not one of this format.
pub fn stamp_of(file: &str) -> Option<GalleryStamp> {
    let stamp: GalleryStamp = serde_json::from_str(file.lines().next()?.strip_prefix("//")?).ok()?;
    (stamp.format == FORMAT).then_some(stamp)
}
