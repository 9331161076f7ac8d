//! Downloads that are ready to be published: those that are ready at the same time are published together and share
//! their syncs.
//!
//! A lone job does not wait; jobs that arrive while a group is published are of the next one, which begins when the first has
//! ended, or is large and has only the device to wait for. Small ones give up the slot of their download meanwhile: groups may
//! be larger than the number of downloads at once.

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
/// Groups that are published at once: one is written while another is brought to the device.
const GROUPS_MAX: usize = 2;
/// Jobs that wait from which on a group begins while another is brought to the device.
const EARLY_MIN: usize = 64;
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
    groups: Groups,
}

/// The groups that are being published.
#[derive(Debug, Default)]
struct Groups {
    count: usize,
    /// One of them is not written yet.
    is_writing: bool,
}

impl Groups {
    /// Whether a group of those that wait begins now.
    fn begin(&mut self, waiting: usize) -> bool {
        let least = if self.count == 0 { 1 } else { EARLY_MIN };
        let begins = !self.is_writing && self.count < GROUPS_MAX && waiting >= least;
        if begins {
            self.count += 1;
            self.is_writing = true;
        }
        begins
    }

    /// The one that was not written yet is written.
    fn written(&mut self) {
        self.is_writing = false;
    }

    /// One of them has ended, written or not.
    fn end(&mut self, is_written: bool) {
        self.count -= 1;
        self.is_writing &= is_written;
    }
}

impl Queue {
    /// Whether a group begins now.
    fn begin_group(&mut self) -> bool {
        self.groups.begin(self.waiting.len())
    }

    /// A group is written. Whether the next one begins.
    fn end_writing(&mut self) -> bool {
        self.groups.written();
        self.begin_group()
    }

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
            (queue.begin_group(), has_room)
        };
        if gives_up_slot && has_room {
            // Where too much waits for the loop, the slot is free when the outputs are published.
            let _ = self.sender.try_send(Input::Received(key, attempt));
        }
        if begins {
            self.begin();
        }
        outcome
            .await
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread that publishes outputs ended")))
    }

    /// A thread publishes the group that begins, and those that follow it.
    fn begin(self: &Arc<Self>) {
        let publish_queue = self.clone();
        tokio::task::spawn_blocking(move || {
            publish_queue.publish_group();
            while publish_queue.lock().begin_group() {
                publish_queue.publish_group();
            }
        });
    }

    /// Publishes a group of those that wait.
    fn publish_group(self: &Arc<Self>) {
        let group = {
            let mut queue = self.lock();
            let size = queue.next_group(self.files_max);
            queue.waiting.drain(..size).collect::<Vec<_>>()
        };
        let publications: Vec<Publication<'_>> =
            group.iter().map(|(publication, _)| publication.publication()).collect();
        let mut is_written = false;
        let are_written = || {
            if !std::mem::replace(&mut is_written, true) && self.lock().end_writing() {
                self.begin();
            }
        };
        let outcomes = match group.first() {
            Some((first, _)) => first.output_dir.publish_all(&publications, are_written),
            None => Vec::new(),
        };
        {
            let mut queue = self.lock();
            queue.bytes -= group.iter().map(|(publication, _)| publication.bytes_in_memory()).sum::<usize>();
            queue.groups.end(is_written);
        }
        for ((_, sender), outcome) in group.into_iter().zip(outcomes) {
            // Its download may have been given up.
            let _ = sender.send(outcome);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic while it is held leaves a queue that is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::domain::ids::{AttemptNo, BatchName, BatchNo, Fingerprint, JobId, JobKey, Seq, TaskId};
    use crate::domain::job::{Job, JobSpec, State};
    use crate::output::{Media, OutputOptions};

    /// A job of that number, whose only output says so.
    fn publication(output_dir: &OutputDir, no: u32) -> QueuedPublication {
        let order = serde_json::json!({
            "line": no + 2, "kind": "image", "body": { "prompt": "a fox" }, "priority": 0, "meta": {},
        });
        let spec = JobSpec {
            seq: Seq(no),
            id: JobId(u128::from(no).to_be_bytes()),
            fingerprint: Fingerprint([1; 16]),
            variation: 1,
            label: format!("fox-{no}"),
            apart: false,
            order: serde_json::from_value(order).unwrap(),
        };
        let batch: BatchName = "foxes".parse().unwrap();
        let content = no.to_string().into_bytes();
        let part = Part {
            path: output_dir.part_path(&batch, spec.id, 1),
            bytes: content.len() as u64,
            unwritten: Some(content),
            sha256: format!("{no:064x}"),
            media: Media { ext: "png".into(), content_type: "image/png".into() },
        };
        let fetching =
            State::Fetching { task: TaskId("t".into()), urls: Default::default(), files: Default::default() };
        let order = FetchOrder {
            key: JobKey { batch: BatchNo(1), seq: spec.seq },
            attempt: AttemptNo::FIRST,
            batch,
            layout: None,
            spec: Arc::new(spec),
            job: Job::at(AttemptNo::FIRST, fetching),
            urls: Vec::new(),
            takes_name: false,
            is_superseded: false,
        };
        QueuedPublication {
            output_dir: output_dir.clone(),
            order: Arc::new(order),
            layout: Layout::default(),
            parts: vec![part],
            now: Timestamp(5_000),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_of_a_crowd_are_published() {
        let dir = tempfile::tempdir().unwrap();
        let output_dir = OutputDir::new(dir.path(), OutputOptions::default());
        output_dir.prepare(&"foxes".parse().unwrap()).unwrap();
        let (sender, mut released) = mpsc::channel(4096);
        let queue = Arc::new(PublishQueue::new(sender));
        let crowd = (0..1_000).map(|no| {
            let (queue, publication) = (queue.clone(), publication(&output_dir, no));
            tokio::spawn(async move { queue.publish(publication, true).await })
        });
        let crowd: Vec<_> = crowd.collect();
        for (no, published) in join_all(crowd).await.into_iter().enumerate() {
            let files = published.unwrap().unwrap();
            let content = std::fs::read_to_string(dir.path().join("foxes").join(&files[0].path)).unwrap();
            assert_eq!((content, files.len()), (no.to_string(), 1));
        }
        assert!(released.try_recv().is_ok(), "slots are given up meanwhile");
        let queue = queue.lock();
        assert_eq!((queue.waiting.len(), queue.bytes, queue.groups.count), (0, 0, 0));
        assert!(!queue.groups.is_writing);
    }

    #[test]
    fn a_large_group_begins_while_another_is_brought_to_the_device() {
        let mut groups = Groups::default();
        assert!(!groups.begin(0));
        assert!(groups.begin(1), "a lone job does not wait");
        assert!(!groups.begin(EARLY_MIN), "one group is written at a time");
        groups.written();
        assert!(!groups.begin(EARLY_MIN - 1), "a small one waits for the device");
        assert!(groups.begin(EARLY_MIN));
        groups.written();
        assert!(!groups.begin(EARLY_MIN), "two are enough");
        groups.end(true);
        assert!(groups.begin(EARLY_MIN));
        groups.end(true);
        assert!(!groups.begin(EARLY_MIN), "the third is still written");
        groups.end(false);
        assert!(groups.begin(1), "none is left, and one that could not be written keeps nobody back");
    }
}
