//! Downloads that are ready to be published: those that are ready at the same time are published together and share
//! their syncs.
//!
//! One group is published at a time. A lone job does not wait; jobs that arrive meanwhile are of the next group. Small ones
//! give up the slot of their download meanwhile: groups may be larger than the number of downloads at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit};
use tokio::sync::{mpsc, oneshot};

use crate::domain::job::OutputFile;
use crate::domain::time::Timestamp;
use crate::engine::scheduler::{FetchOrder, Input};
use crate::output::file_names::Layout;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::{OutputDir, Part, Publication};

/// Most jobs of a group: those that came first do not wait for all others.
const GROUP_MAX: usize = 128;
/// Most files of a group.
const GROUP_FILES_MAX: usize = 256;
/// Jobs that wait here up to which a job that comes gives up the slot of its download.
const RELEASED_MAX: usize = 128;
/// The same in bytes of outputs in memory.
const RELEASED_MAX_BYTES: usize = 2 * 1024 * 1024;

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

    /// Bytes of its parts that wait in memory.
    fn bytes_in_memory(&self) -> usize {
        self.parts.iter().filter_map(|part| part.unwritten.as_ref()).map(Vec::len).sum()
    }

    /// Files that are open while it is published: those of its parts and of its sidecar.
    fn files(&self) -> usize {
        self.parts.len() + 1
    }
}

/// How many files of a group are open at once, until they are on the device, in a process that may have so many open. Those
/// of one job may be more.
pub fn files_at_once(open_files: usize) -> usize {
    (open_files / 8).clamp(4, GROUP_FILES_MAX)
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct PublishQueue {
    queue: Mutex<Queue>,
    /// Most files of a group.
    files_max: usize,
    /// The engine, which hears whose slot is free.
    sender: mpsc::Sender<Input>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(QueuedPublication, oneshot::Sender<Outcome>)>,
    /// Bytes of outputs in memory, of those that wait and of those that are being published.
    bytes: usize,
    /// A thread publishes groups until nobody waits.
    is_publishing: bool,
}

impl Queue {
    /// How many of those that wait are published next.
    fn next_group(&self, files_max: usize) -> usize {
        let Some((first, _)) = self.waiting.front() else { return 0 };
        let mut files = 0;
        let fits = |(publication, _): &&(QueuedPublication, _)| {
            files += publication.files();
            // A configuration that was read anew may have other settings for outputs.
            files <= files_max && first.output_dir == publication.output_dir
        };
        self.waiting.iter().take(GROUP_MAX).take_while(fits).count().max(1)
    }
}

impl PublishQueue {
    pub(super) fn new(sender: mpsc::Sender<Input>) -> PublishQueue {
        let open_files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
        let files_max = files_at_once(open_files.unwrap_or(usize::MAX));
        PublishQueue { queue: Mutex::default(), files_max, sender }
    }

    /// Publishes the parts of a job. `gives_up_slot`: meanwhile others can be downloaded, unless much waits here already.
    ///
    /// # Errors
    /// As [`OutputDir::publish_all`].
    pub(super) async fn publish(
        self: &Arc<Self>,
        publication: QueuedPublication,
        gives_up_slot: bool,
    ) -> Outcome {
        let (sender, outcome) = oneshot::channel();
        let (key, attempt) = (publication.order.key, publication.order.attempt);
        let (begins, has_room) = {
            let mut queue = self.lock();
            queue.bytes += publication.bytes_in_memory();
            queue.waiting.push_back((publication, sender));
            let has_room = queue.waiting.len() <= RELEASED_MAX && queue.bytes <= RELEASED_MAX_BYTES;
            (!std::mem::replace(&mut queue.is_publishing, true), has_room)
        };
        if gives_up_slot && has_room {
            // Where too much waits for the loop, the slot is free when the outputs are published.
            let _ = self.sender.try_send(Input::Received(key, attempt));
        }
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
            let size = queue.next_group(self.files_max);
            queue.is_publishing = size > 0;
            queue.waiting.drain(..size).collect::<Vec<_>>()
        };
        let Some((first, _)) = group.first() else { return false };
        let publications: Vec<Publication<'_>> =
            group.iter().map(|(publication, _)| publication.publication()).collect();
        let outcomes = first.output_dir.publish_all(&publications);
        self.lock().bytes -=
            group.iter().map(|(publication, _)| publication.bytes_in_memory()).sum::<usize>();
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
