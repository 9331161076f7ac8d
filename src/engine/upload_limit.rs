//! Files under way to object stores: no more at once than `limits.uploads`, measured as the exchange that they are.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::metrics::{Answer, Endpoint, Metrics};

/// Shared by all stores of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Uploads {
    slots: Arc<Semaphore>,
    metrics: Metrics,
}

impl Uploads {
    /// With room for `most` files at once.
    pub fn new(most: usize, metrics: Metrics) -> Uploads {
        Uploads { slots: Arc::new(Semaphore::new(most)), metrics }
    }

    /// The same slots, counted elsewhere.
    pub(super) fn counted_by(&self, metrics: &Metrics) -> Uploads {
        Uploads { slots: self.slots.clone(), metrics: metrics.clone() }
    }

    /// Where uploads are counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Waits for a slot. Nothing only when the program ends.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        self.slots.acquire().await.ok()
    }

    /// A file was put into a store, or was not.
    pub(super) fn ended(&self, bytes: Option<u64>, took: Duration) {
        let answer = if bytes.is_some() { Answer::Ok } else { Answer::Error };
        self.metrics.request(Endpoint::Store, answer, took);
        self.metrics.uploaded(bytes.unwrap_or_default());
    }
}
