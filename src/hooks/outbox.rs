//! Messages of hooks, durable from the moment a batch is done until they are delivered or given up.
//!
//! ```text
//! hooks/000007.json          a message that is not delivered everywhere yet
//! hooks/failed/000005.json   one that was given up
//! hooks/told/DIGEST.json     the last message about a batch, by half the SHA-256 of its name, so that it is not sent twice
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::domain::time::{Now, Tick, Timestamp};
use crate::hooks::event::{BatchDone, short_hash};

/// Format of the files.
const FORMAT: u32 = 1;

/// Where a message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Command,
    Webhook,
}

/// State of a message on one channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DeliveryState {
    Pending,
    Delivered,
    GivenUp { reason: String },
}

/// A message and its state on each channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OutboxEntry {
    format: u32,
    pub(super) id: String,
    pub(super) batch: String,
    pub(super) since: Timestamp,
    pub(super) body: String,
    command: DeliveryState,
    webhook: DeliveryState,
    #[serde(skip)]
    tries: [Tries; 2],
}

/// Tries on one channel since the process began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tries {
    count: u32,
    due: Tick,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DueMessage {
    pub(super) number: u64,
    pub(super) at: Tick,
    pub(super) tries: u32,
    pub(super) entry: OutboxEntry,
}

#[derive(Debug, Serialize, Deserialize)]
struct Delivered {
    batch: String,
    id: String,
}

/// The messages that are not delivered everywhere yet, and their files.
#[derive(Debug)]
pub(super) struct Outbox {
    dir: PathBuf,
    entries: BTreeMap<u64, OutboxEntry>,
    next: u64,
}

impl OutboxEntry {
    fn delivery_state(&mut self, channel: Channel) -> &mut DeliveryState {
        match channel {
            Channel::Command => &mut self.command,
            Channel::Webhook => &mut self.webhook,
        }
    }

    fn is_pending(&self, channel: Channel) -> bool {
        let delivery_state = match channel {
            Channel::Command => &self.command,
            Channel::Webhook => &self.webhook,
        };
        *delivery_state == DeliveryState::Pending
    }
}

impl Outbox {
    /// Loads the messages of earlier processes. A file that is no message is moved to `failed`.
    pub(super) fn open(dir: &Path) -> io::Result<Outbox> {
        for folder in [dir.to_owned(), dir.join("failed"), dir.join("told")] {
            fs::create_dir_all(folder)?;
        }
        for folder in [Some(dir), dir.parent()].into_iter().flatten() {
            File::open(folder)?.sync_all()?;
        }
        let mut outbox = Outbox { dir: dir.to_owned(), entries: BTreeMap::new(), next: 1 };
        for folder in [dir.join("failed"), dir.to_owned()] {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                let Some(number) = number_of(&path) else { continue };
                outbox.next = outbox.next.max(number + 1);
                if folder != outbox.dir {
                    continue;
                }
                match serde_json::from_slice::<OutboxEntry>(&fs::read(&path)?) {
                    Ok(entry) if entry.format == FORMAT => {
                        outbox.entries.insert(number, entry);
                    }
                    _ => {
                        let aside = outbox.path_of_failed(number);
                        fs::rename(&path, &aside)?;
                        tracing::error!(
                            "{} is not a message of this version; moved to {}",
                            path.display(),
                            aside.display()
                        );
                    }
                }
            }
        }
        Ok(outbox)
    }

    /// Whether the message was delivered, or is stored.
    pub(super) fn contains(&self, event: &BatchDone) -> io::Result<bool> {
        if self.entries.values().any(|entry| entry.id == event.id) {
            return Ok(true);
        }
        let delivered = match fs::read(self.path_of_delivered(event.batch.as_str())) {
            Ok(bytes) => serde_json::from_slice::<Delivered>(&bytes).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(delivered.is_some_and(|delivered| delivered.id == event.id))
    }

    /// Stores a message durably. It is due now, after those that were due before.
    pub(super) fn push(&mut self, event: &BatchDone, now: Now) -> io::Result<()> {
        let entry = OutboxEntry {
            format: FORMAT,
            id: event.id.clone(),
            batch: event.batch.to_string(),
            since: now.wall,
            body: event.body().to_owned(),
            command: DeliveryState::Pending,
            webhook: DeliveryState::Pending,
            tries: [Tries { count: 0, due: now.tick }; 2],
        };
        write(&self.path_of(self.next), &entry)?;
        self.entries.insert(self.next, entry);
        self.next += 1;
        Ok(())
    }

    /// The next message on a channel, due or not.
    pub(super) fn next(&self, channel: Channel) -> Option<DueMessage> {
        let pending = self.entries.iter().filter(|(_, entry)| entry.is_pending(channel));
        let due = |entry: &OutboxEntry| entry.tries[channel as usize].due;
        let (number, entry) = pending.min_by_key(|(number, entry)| (due(entry), **number))?;
        let Tries { count, due } = entry.tries[channel as usize];
        Some(DueMessage { number: *number, at: due, tries: count, entry: entry.clone() })
    }

    /// A try failed; the next is due at `due`.
    pub(super) fn postpone(&mut self, number: u64, channel: Channel, due: Tick) {
        if let Some(entry) = self.entries.get_mut(&number) {
            let tries = &mut entry.tries[channel as usize];
            *tries = Tries { count: tries.count.saturating_add(1), due };
        }
    }

    /// Ends the delivery on a channel. A message that is delivered on all channels is deleted, one that was given up on
    /// any is moved to `failed`.
    pub(super) fn end(
        &mut self,
        number: u64,
        channel: Channel,
        delivery_state: DeliveryState,
    ) -> io::Result<()> {
        let path = self.path_of(number);
        let Some(entry) = self.entries.get_mut(&number) else { return Ok(()) };
        *entry.delivery_state(channel) = delivery_state;
        write(&path, entry)?;
        if entry.is_pending(Channel::Command) || entry.is_pending(Channel::Webhook) {
            return Ok(());
        }
        let is_delivered =
            entry.command == DeliveryState::Delivered && entry.webhook == DeliveryState::Delivered;
        let (batch, id) = (entry.batch.clone(), entry.id.clone());
        self.record_delivered(&batch, &id)?;
        if is_delivered {
            fs::remove_file(&path)?;
        } else {
            fs::rename(&path, self.path_of_failed(number))?;
            File::open(self.dir.join("failed"))?.sync_all()?;
        }
        File::open(&self.dir)?.sync_all()?;
        self.entries.remove(&number);
        Ok(())
    }

    /// Records the last message about a batch as delivered.
    pub(super) fn record_delivered(&self, batch: &str, id: &str) -> io::Result<()> {
        write(&self.path_of_delivered(batch), &Delivered { batch: batch.to_owned(), id: id.to_owned() })
    }

    /// The batches of which an end was told.
    pub(super) fn delivered(&self) -> io::Result<Vec<String>> {
        let mut batches = Vec::new();
        for entry in fs::read_dir(self.dir.join("told"))? {
            // A draft, or one that was just removed.
            let read = fs::read(entry?.path()).ok();
            let delivered = read.and_then(|bytes| serde_json::from_slice::<Delivered>(&bytes).ok());
            batches.extend(delivered.map(|delivered| delivered.batch));
        }
        Ok(batches)
    }

    /// Forgets the last end of a batch that was told.
    pub(super) fn forget(&self, batch: &str) -> io::Result<()> {
        match fs::remove_file(self.path_of_delivered(batch)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn path_of(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:06}.json"))
    }

    /// Path of a message that was given up.
    pub(super) fn path_of_failed(&self, number: u64) -> PathBuf {
        self.dir.join("failed").join(format!("{number:06}.json"))
    }

    /// Named by a hash: a batch's name may be longer than a file's.
    fn path_of_delivered(&self, batch: &str) -> PathBuf {
        self.dir.join("told").join(format!("{}.json", short_hash(batch)))
    }
}

/// The number in `000007.json`.
fn number_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()
}

/// Writes a file atomically and durably.
fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let draft = path.with_extension("part");
    // In one piece: printed to a file it would take a call for each word.
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    let mut file = File::create(&draft)?;
    file.write_all(&text)?;
    file.sync_data()?;
    fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
