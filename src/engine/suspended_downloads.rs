//! What downloads share: whether another waits for a slot, and how far those came that gave theirs up.

use std::collections::HashMap;
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
}

/// The downloads of a job as far as they came.
#[derive(Debug)]
pub(super) struct SuspendedDownload {
    /// The links they came from. Whatever others lead to may be another file.
    pub(super) urls: Vec<String>,
    /// Outputs that are whole.
    pub(super) done: Vec<Part>,
    /// The one after them.
    pub(super) partial: PartialDownload,
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
}

impl PartialDownload {
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

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<JobKey, SuspendedDownload>> {
        // Each change is a single call, so that one that panicked left nothing half done.
        self.suspended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
