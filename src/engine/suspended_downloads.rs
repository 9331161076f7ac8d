//! What downloads share: whether another waits for a slot, how far those came that gave theirs up, and what those tell the
//! next one that failed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use sha2::Sha256;

use crate::api::Version;
use crate::domain::ids::JobKey;
use crate::domain::time::Tick;
use crate::output::publish::Part;

/// See the module's documentation. A restart begins its downloads anew, so nothing of this is durable.
#[derive(Debug, Default)]
pub(super) struct SuspendedDownloads {
    is_waiting: AtomicBool,
    suspended: Mutex<HashMap<JobKey, SuspendedDownload>>,
    failed: Mutex<HashMap<JobKey, FailedDownload>>,
}

/// Most jobs of which something is kept after a download failed: of others it begins anew.
const FAILED_MAX: usize = 1024;

/// What the downloads of a job that failed leave to the next one.
#[derive(Debug, Default)]
pub(super) struct FailedDownload {
    /// The links they came from.
    pub(super) urls: Vec<String>,
    /// Of each link whose file never came whole: how long its host said that it is, and of which version.
    pub(super) lengths: BTreeMap<usize, KnownLength>,
    /// Outputs that are whole, by their places among the links.
    pub(super) whole: BTreeMap<usize, Part>,
}

/// How long a file is by what its host said, in bytes, and which version of it.
pub(super) type KnownLength = (u64, Version);

/// The downloads of a job as far as they came.
#[derive(Debug)]
pub(super) struct SuspendedDownload {
    /// The links they came from. Whatever others lead to may be another file.
    pub(super) urls: Vec<String>,
    /// Outputs that are whole, by their places among the links.
    pub(super) done: BTreeMap<usize, Part>,
    /// The one that gave its slot up, and its place.
    pub(super) partial: (usize, PartialDownload),
}

/// A file that has come in part.
#[derive(Debug)]
pub(super) struct PartialDownload {
    pub(super) bytes: u64,
    pub(super) hasher: Sha256,
    /// Its first bytes, to recognise the content.
    pub(super) head: Vec<u8>,
    pub(super) version: Version,
    pub(super) content_type: Option<String>,
    /// When its first request left.
    pub(super) began: Tick,
    /// How often in a row it was asked for the rest and nothing came.
    pub(super) empty_resumes: u32,
    /// How many bytes the whole file has, as far as its host ever said for this version.
    pub(super) total: Option<u64>,
}

impl PartialDownload {
    /// A file of which nothing has come, and whose length is known where an earlier download was told.
    pub(super) fn of_length(began: Tick, known: Option<KnownLength>) -> PartialDownload {
        let nothing = PartialDownload::nothing(began);
        match known {
            Some((total, version)) => PartialDownload { total: Some(total), version, ..nothing },
            None => nothing,
        }
    }

    /// How long the whole file is, as far as its host ever said.
    pub(super) fn known_length(&self) -> Option<KnownLength> {
        Some((self.total?, self.version.clone()))
    }

    /// A file of which nothing has come.
    pub(super) fn nothing(began: Tick) -> PartialDownload {
        PartialDownload {
            bytes: 0,
            hasher: Sha256::default(),
            head: Vec::new(),
            version: Version::default(),
            content_type: None,
            began,
            empty_resumes: 0,
            total: None,
        }
    }
}

impl SuspendedDownloads {
    /// Notes whether a download waits for a slot.
    pub(super) fn set_waiting(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
    }

    /// Whether a download waits for a slot.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Keeps how far the downloads of a job came.
    pub(super) fn suspend(&self, job: JobKey, suspended: SuspendedDownload) {
        self.lock().insert(job, suspended);
    }

    /// How far the downloads of a job came from these links, if they were halted.
    pub(super) fn resume(&self, job: JobKey, urls: &[String]) -> Option<SuspendedDownload> {
        self.lock().remove(&job).filter(|suspended| suspended.urls == urls)
    }

    /// Keeps what a download that failed leaves to the next one.
    pub(super) fn note_failed(&self, job: JobKey, failed: FailedDownload) {
        let mut all = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= FAILED_MAX
            && let Some(other) = all.keys().next().copied()
        {
            all.remove(&other);
        }
        all.insert(job, failed);
    }

    /// What an earlier download of a job left, as far as these links lead to the same files.
    pub(super) fn take_failed(&self, job: JobKey, urls: &[String]) -> FailedDownload {
        let found = self.failed.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
        let Some(mut failed) = found.filter(|failed| failed.urls.len() == urls.len()) else {
            return FailedDownload::default();
        };
        let before = std::mem::take(&mut failed.urls);
        let is_same = |index: &usize| lead_to_the_same(&before, urls, *index);
        failed.lengths.retain(|index, _| is_same(index));
        failed.whole.retain(|index, _| is_same(index));
        failed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<JobKey, SuspendedDownload>> {
        // Each change is a single call, so that one that panicked left nothing half done.
        self.suspended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a link of a task leads to the same file as at an earlier reading. Each reading may sign its links anew, in their
/// query; they are told apart by what comes before it, where that differs among the links of the task.
fn lead_to_the_same(before: &[String], now: &[String], index: usize) -> bool {
    let (Some(one), Some(other)) = (before.get(index), now.get(index)) else { return false };
    let is_alone = |urls: &[String]| urls.iter().filter(|url| unsigned(url) == unsigned(one)).count() == 1;
    one == other || unsigned(one) == unsigned(other) && is_alone(before) && is_alone(now)
}

/// A link without its query.
fn unsigned(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(links: &[&str]) -> Vec<String> {
        links.iter().map(|link| (*link).to_owned()).collect()
    }

    #[test]
    fn a_link_that_is_signed_anew_leads_to_the_same_file_where_its_path_tells() {
        let same = |before: &[&str], now: &[&str]| lead_to_the_same(&links(before), &links(now), 1);
        assert!(same(&["h/1?s=a", "h/2?s=a"], &["h/1?s=b", "h/2?s=b"]));
        assert!(!same(&["h/1?s=a", "h/2?s=a"], &["h/1?s=b", "h/3?s=b"]));
        // Here the query says which file it is.
        assert!(!same(&["h/get?id=1", "h/get?id=2"], &["h/get?id=3", "h/get?id=4"]));
        assert!(same(&["h/get?id=1", "h/get?id=2"], &["h/get?id=3", "h/get?id=2"]));
    }
}
