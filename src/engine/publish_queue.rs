//! Downloads that are ready to be published: those that are ready at the same time are published together and share
//! their syncs.
//!
//! One group is published at a time. A lone job does not wait; jobs that arrive meanwhile are of the next group.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::domain::job::OutputFile;
use crate::domain::time::Timestamp;
use crate::engine::scheduler::FetchOrder;
use crate::output::file_names::Layout;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::{OutputDir, Part, Publication};

/// Most jobs of a group: those that came first do not wait for all others.
const GROUP_MAX: usize = 128;

type Outcome = std::io::Result<Vec<OutputFile>>;

/// A job whose parts are whole, and which waits to be published.
#[derive(Debug)]
pub(super) struct QueuedPublication {
    pub(super) output_dir: OutputDir,
    pub(super) order: Arc<FetchOrder>,
    pub(super) layout: Layout,
    pub(super) parts: Vec<Part>,
    pub(super) now: Timestamp,
}

impl QueuedPublication {
    fn publication(&self) -> Publication<'_> {
        let FetchOrder { batch, spec, job, .. } = &*self.order;
        let output_spec = OutputSpec { batch, layout: &self.layout, spec, job };
        Publication { output_spec, parts: &self.parts, now: self.now }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct PublishQueue {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(QueuedPublication, oneshot::Sender<Outcome>)>,
    /// A thread publishes groups until nobody waits.
    is_publishing: bool,
}

impl PublishQueue {
    /// Publishes the parts of a job.
    ///
    /// # Errors
    /// As [`OutputDir::publish_all`].
    pub(super) async fn publish(self: &Arc<Self>, publication: QueuedPublication) -> Outcome {
        let (sender, outcome) = oneshot::channel();
        let begins = {
            let mut queue = self.lock();
            queue.waiting.push((publication, sender));
            !std::mem::replace(&mut queue.is_publishing, true)
        };
        if begins {
            let publish_queue = self.clone();
            tokio::task::spawn_blocking(move || while publish_queue.publish_group() {});
        }
        outcome
            .await
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread that publishes outputs ended")))
    }

    /// Publishes what waits. False: nobody did.
    fn publish_group(&self) -> bool {
        let group = {
            let mut queue = self.lock();
            // A configuration that was read anew may have other settings for outputs.
            let is_alike = |(publication, _): &&(QueuedPublication, _)| {
                queue.waiting.first().is_some_and(|(first, _)| first.output_dir == publication.output_dir)
            };
            let size = queue.waiting.iter().take(GROUP_MAX).take_while(is_alike).count();
            queue.is_publishing = size > 0;
            queue.waiting.drain(..size).collect::<Vec<_>>()
        };
        let Some((first, _)) = group.first() else { return false };
        let publications: Vec<Publication<'_>> =
            group.iter().map(|(publication, _)| publication.publication()).collect();
        let outcomes = first.output_dir.publish_all(&publications);
        for ((_, sender), outcome) in group.into_iter().zip(outcomes) {
            // Its download may have been given up.
            let _ = sender.send(outcome);
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic while it is held leaves a queue that is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
