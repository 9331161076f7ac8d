//! Downloads that are ready to be published: those that are ready at the same time land together and share their syncs.
//!
//! One group lands at a time. A lone job does not wait; jobs that arrive while a group lands are of the next group.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::domain::job::OutputFile;
use crate::domain::time::Timestamp;
use crate::engine::scheduler::FetchOrder;
use crate::output::layout::Layout;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::{OutputDir, Part, Publication};

/// Most jobs of a group: those that came first do not wait for all others.
const GROUP_MAX: usize = 128;

type Outcome = std::io::Result<Vec<OutputFile>>;

/// A job whose parts are whole.
#[derive(Debug)]
pub(super) struct Landing {
    pub(super) output_dir: OutputDir,
    pub(super) order: Arc<FetchOrder>,
    pub(super) layout: Layout,
    pub(super) parts: Vec<Part>,
    pub(super) now: Timestamp,
}

impl Landing {
    fn publication(&self) -> Publication<'_> {
        let FetchOrder { batch, spec, job, .. } = &*self.order;
        let output_spec = OutputSpec { batch, layout: &self.layout, spec, job };
        Publication { output_spec, parts: &self.parts, now: self.now }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Landings {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(Landing, oneshot::Sender<Outcome>)>,
    /// A thread lands groups until nobody waits.
    is_landing: bool,
}

impl Landings {
    /// Publishes the parts of a job.
    ///
    /// # Errors
    /// As [`OutputDir::publish_all`].
    pub(super) async fn land(self: &Arc<Self>, landing: Landing) -> Outcome {
        let (sender, outcome) = oneshot::channel();
        let begins = {
            let mut queue = self.lock();
            queue.waiting.push((landing, sender));
            !std::mem::replace(&mut queue.is_landing, true)
        };
        if begins {
            let landings = self.clone();
            tokio::task::spawn_blocking(move || while landings.land_group() {});
        }
        outcome
            .await
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread that publishes outputs ended")))
    }

    /// Lands who waits. False: nobody did.
    fn land_group(&self) -> bool {
        let group = {
            let mut queue = self.lock();
            // A configuration that was read anew may have other settings for outputs.
            let is_alike = |(landing, _): &&(Landing, _)| {
                queue.waiting.first().is_some_and(|(first, _)| first.output_dir == landing.output_dir)
            };
            let size = queue.waiting.iter().take(GROUP_MAX).take_while(is_alike).count();
            queue.is_landing = size > 0;
            queue.waiting.drain(..size).collect::<Vec<_>>()
        };
        let Some((first, _)) = group.first() else { return false };
        let publications: Vec<Publication<'_>> =
            group.iter().map(|(landing, _)| landing.publication()).collect();
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
