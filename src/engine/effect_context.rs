//! What all effects of an engine share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::engine::publish_queue::PublishQueue;
use crate::engine::suspended_downloads::SuspendedDownloads;
use crate::store::Store;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct EffectContext {
    pub(super) store: Arc<Store>,
    /// Tasks and links that may be read at once for the inputs of jobs.
    pub(super) exchanges: Semaphore,
    pub(super) publish_queue: Arc<PublishQueue>,
    pub(super) suspended_downloads: SuspendedDownloads,
    pub(super) clock: Clock,
}
