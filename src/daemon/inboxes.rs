//! Every inbox: what is complete in it is taken in, and filed away with its receipt.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::config::InboxConfig;
use crate::daemon::DaemonError;
use crate::domain::batch_origin::SourcePlace;
use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::manifest::row::Policy;
use crate::domain::time::Millis;
use crate::engine::{blocking, to_the_end};
use crate::ingest::inbox::dispose::{self, DisposeError, Filed, Folders};
use crate::ingest::inbox::folder_lock::{FolderLock, FolderLockError};
use crate::ingest::inbox::{FileStat, Inbox, ReadyManifest, WatchOptions};
use crate::ingest::ingest_handle::{self, IngestError, IngestHandle};
use crate::ingest::receipt::Receipt;
use crate::ingest::{IngestOptions, ManifestError, manifest_file};

/// How long a locked inbox is waited for: a daemon that ends may hold its inboxes a little longer than its state.
const LOCK_TRIES: u32 = 20;
const LOCK_TRY_INTERVAL: Duration = Duration::from_millis(100);
/// Before a manifest that was being written is read again.
const WRITER_RETRY_INTERVAL: Millis = Millis::from_secs(2);
/// The first wait before a retry of something that a person or the service has to fix...
const RETRY_INTERVAL_MIN: Millis = Millis::from_secs(2);
/// ...and, twice as long after every try, at most.
const RETRY_INTERVAL_MAX: Millis = Millis::from_secs(30);
/// Most receipts that are kept for another try: each may hold a thousand diagnostics.
const UNFILED_MAX: usize = 256;
/// Manifests whose last error is remembered, at most.
const LAST_ERRORS_MAX: usize = 50_000;

/// An inbox with the terms of what comes in by it.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxSettings {
    pub place: InboxPlace,
    /// A reload changes them, for manifests that come later.
    pub terms: Arc<InboxTerms>,
}

/// What of an inbox only a restart changes.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxPlace {
    /// Where manifests are dropped, and where they go.
    pub folders: Folders,
    /// What its batches are called after; nothing for the inbox of the jobs folder, whose batches are called after
    /// their manifests alone.
    pub name: Option<String>,
    /// How long one that is written there in place has to stay unchanged.
    pub settle: Millis,
}

/// What an inbox says of the manifests that come in by it.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct InboxTerms {
    /// For what they do not say. Its budget is the most that any of them may allow.
    pub policy: Policy,
    /// Values of `meta` that every row has, whatever it says itself.
    pub meta: BTreeMap<String, String>,
}

impl From<&InboxConfig> for InboxSettings {
    fn from(config: &InboxConfig) -> InboxSettings {
        let (policy, meta) = (config.policy.clone(), config.meta.clone());
        InboxSettings {
            place: InboxPlace {
                folders: Folders::of_inbox(&config.path),
                name: config.name(),
                settle: config.settle.0,
            },
            terms: Arc::new(InboxTerms { policy, meta }),
        }
    }
}

/// An inbox that is watched, for the terms that a reload gives it.
pub(super) struct WatchedInbox {
    folder: PathBuf,
    terms: watch::Sender<Arc<InboxTerms>>,
}

impl WatchedInbox {
    /// Takes over the terms that a new configuration gives it, for manifests that come later. Where that has it no more they
    /// stay as they are: it is watched until a restart.
    pub(super) fn take_over(&self, configured: &[InboxSettings]) {
        let of_it = |inbox: &&InboxSettings| inbox.place.folders.inbox == self.folder;
        let Some(InboxSettings { terms, .. }) = configured.iter().find(of_it) else { return };
        let before = self.terms.send_replace(terms.clone());
        if before.policy.budget.is_some() && terms.policy.budget.is_none() {
            let inbox = self.folder.display();
            tracing::warn!(%inbox, "the new configuration lifts the upper limit that this inbox had: policy.budget");
        }
    }
}

/// Locks an inbox before it is watched. One that cannot be opened is retried, and reported, by those who watch it.
///
/// # Errors
/// [`DaemonError::InboxTaken`]: another process watches it.
pub(super) async fn lock(place: &InboxPlace) -> Result<Option<FolderLock>, DaemonError> {
    let mut tries = 0;
    loop {
        let folder = place.folders.inbox.clone();
        let take = move || {
            fs::create_dir_all(&folder)?;
            FolderLock::take(&folder)
        };
        tries += 1;
        match blocking(take).await {
            Ok(lock) => return Ok(Some(lock)),
            Err(FolderLockError::Io(_)) => return Ok(None),
            Err(FolderLockError::Taken(holder)) if tries == LOCK_TRIES => {
                let (inbox, is_of_jobs) = (place.folders.inbox.clone(), place.name.is_none());
                return Err(DaemonError::InboxTaken { inbox, holder, is_of_jobs });
            }
            Err(FolderLockError::Taken(_)) => tokio::time::sleep(LOCK_TRY_INTERVAL).await,
        }
    }
}

/// Begins to watch an inbox. What it comes to an end by is told to `broken`.
pub(super) fn watch(
    (InboxSettings { place, terms }, lock): (InboxSettings, Option<FolderLock>),
    ingest: IngestHandle,
    clock: Clock,
    broken: mpsc::Sender<String>,
) -> WatchedInbox {
    let folder = place.folders.inbox.clone();
    let (sender, terms) = watch::channel(terms);
    let watched = WatchedInbox { folder: folder.clone(), terms: sender };
    let worker = InboxWorker {
        place: Arc::new(place),
        terms,
        ingest,
        clock,
        unfiled: HashMap::new(),
        refused: None,
        last_errors: HashMap::new(),
    };
    tokio::spawn(async move {
        let inbox = Inbox::open(&folder, lock, WatchOptions::settling(worker.place.settle), clock);
        if worker.run(inbox).await.is_ok() {
            // The receiver ends the process, so that a restart watches it again.
            let _ = broken.send(format!("the inbox {} is no longer watched", folder.display())).await;
        }
    });
    watched
}

/// The daemon is stopping.
struct Stopping;

/// Why a manifest stays where it is.
enum IngestFailure {
    /// It is tried again after this time.
    RetryAfter(Millis),
    Stopping,
}

/// A manifest that is being taken in and filed away.
type Work = Pin<Box<dyn Future<Output = Worked> + Send>>;

/// What came of it.
enum Worked {
    /// It was not taken in.
    Failed(WorkError),
    /// It was, or is refused as a whole; and whether it could be filed.
    Read(Arc<Receipt>, Result<Filed, DisposeError>),
}

/// Why a manifest was not taken in.
enum WorkError {
    Ingest(IngestError),
    /// It is not known where it comes from.
    Place(ManifestError),
}

/// A large manifest that is being read, while smaller ones are taken in.
struct LargeManifest {
    manifest: ReadyManifest,
    work: Work,
}

/// Before the next try, after the last wait.
fn longer(wait: Option<Millis>) -> Millis {
    wait.map_or(RETRY_INTERVAL_MIN, |wait| Millis(wait.0 * 2)).min(RETRY_INTERVAL_MAX)
}

struct InboxWorker {
    place: Arc<InboxPlace>,
    terms: watch::Receiver<Arc<InboxTerms>>,
    ingest: IngestHandle,
    clock: Clock,
    /// What was taken in and cannot be filed yet.
    unfiled: HashMap<PathBuf, Unfiled>,
    /// What kept the last manifest from being taken in: it is not said again for every one.
    refused: Option<Refused>,
    /// The last error of each that cannot be filed: it is logged once.
    last_errors: HashMap<PathBuf, String>,
}

/// Why nothing is taken in.
struct Refused {
    said: String,
    /// Before the next look at what it kept out.
    wait: Millis,
}

/// A manifest that was taken in, and stays in the inbox for as long as the folder or the disk that it should go to
/// takes nothing.
struct Unfiled {
    /// What it looked like when it was read: another file under its name is another manifest.
    stat: FileStat,
    receipt: Arc<Receipt>,
    /// Before disposing is tried again.
    wait: Millis,
}

impl InboxWorker {
    /// Takes in what comes, in the order in which it was dropped, for as long as the folder is watched. Once a large
    /// manifest has its turn in its batch, small ones are taken in while it is read, but for those that may name rows of
    /// it.
    async fn run(mut self, mut inbox: Inbox) -> Result<(), Stopping> {
        let mut large: Option<LargeManifest> = None;
        loop {
            let next = match &mut large {
                None => inbox.next().await,
                Some(LargeManifest { manifest, work }) => tokio::select! {
                    worked = work => {
                        self.finish(&inbox, manifest, worked)?;
                        large = None;
                        continue;
                    }
                    next = inbox.next() => next,
                },
            };
            let Some(manifest) = next else { return Ok(()) };
            let bytes = manifest.stat.identity.bytes();
            if large.is_some()
                && ingest_handle::has_to_follow(&manifest.path, bytes).await
                && let Some(LargeManifest { manifest, work }) = large.take()
            {
                let worked = work.await;
                self.finish(&inbox, &manifest, worked)?;
            }
            let (held, is_held) = oneshot::channel();
            let mut work = self.work(&manifest, held);
            if ingest_handle::is_large(bytes) {
                tokio::select! {
                    worked = &mut work => self.finish(&inbox, &manifest, worked)?,
                    _ = is_held => large = Some(LargeManifest { manifest, work }),
                }
            } else {
                let worked = work.await;
                self.finish(&inbox, &manifest, worked)?;
            }
        }
    }

    /// Takes a manifest in and files it away, as soon as that is waited for. `held` hears when no manifest that comes
    /// later can be taken in before it for the same batch.
    fn work(&self, manifest: &ReadyManifest, held: oneshot::Sender<()>) -> Work {
        let (place, terms) = (self.place.clone(), self.terms.borrow().clone());
        let (ingest, clock) = (self.ingest.clone(), self.clock);
        // It is taken in already: reading it again would only lose what its receipt says.
        let unfiled = self.unfiled.get(&manifest.path).filter(|unfiled| unfiled.stat == manifest.stat);
        let (known, manifest) = (unfiled.map(|unfiled| unfiled.receipt.clone()), manifest.clone());
        // It goes on while this worker takes in another one.
        Box::pin(to_the_end(async move {
            let receipt = match known {
                Some(receipt) => receipt,
                None => match accept(&place, &terms, &ingest, &manifest, held).await {
                    Ok(receipt) => Arc::new(receipt),
                    Err(error) => return Worked::Failed(error),
                },
            };
            let (said, now) = (receipt.clone(), clock.now().wall);
            let file = move || dispose::file_away(&place.folders, &manifest, &said, now);
            Worked::Read(receipt, blocking(file).await)
        }))
    }

    /// Notes what came of a manifest; one that stays where it is comes again.
    fn finish(&mut self, inbox: &Inbox, manifest: &ReadyManifest, worked: Worked) -> Result<(), Stopping> {
        let noted = match worked {
            Worked::Failed(error) => Err(self.not_taken_in(error)),
            Worked::Read(receipt, filed) => self.taken_in(manifest, receipt, filed),
        };
        match noted {
            Ok(()) => Ok(()),
            Err(IngestFailure::RetryAfter(wait)) => {
                inbox.put_back(manifest, wait);
                Ok(())
            }
            Err(IngestFailure::Stopping) => Err(Stopping),
        }
    }

    fn not_taken_in(&mut self, error: WorkError) -> IngestFailure {
        match error {
            WorkError::Ingest(IngestError::Gone(_)) => IngestFailure::Stopping,
            WorkError::Ingest(IngestError::Manifest(ManifestError::Changed { .. })) => {
                IngestFailure::RetryAfter(WRITER_RETRY_INTERVAL)
            }
            WorkError::Ingest(error) => self.refused(&error.to_string()),
            WorkError::Place(error) => self.refused(&error.to_string()),
        }
    }

    /// Something else has to be fixed before any manifest is accepted.
    fn refused(&mut self, said: &str) -> IngestFailure {
        let last = self.refused.take();
        if last.as_ref().is_none_or(|last| last.said != said) {
            self.say(said);
        }
        let wait = longer(last.map(|last| last.wait));
        self.refused = Some(Refused { said: said.to_owned(), wait });
        IngestFailure::RetryAfter(wait)
    }

    fn taken_in(
        &mut self,
        manifest: &ReadyManifest,
        receipt: Arc<Receipt>,
        filed: Result<Filed, DisposeError>,
    ) -> Result<(), IngestFailure> {
        let last = self.unfiled.remove(&manifest.path);
        // One that was taken in before says nothing of those that could not be.
        if last.is_none() {
            self.refused = None;
        }
        match filed {
            Ok(filed) => {
                let (filed, receipt_file) = (filed.manifest.display(), filed.receipt.display());
                if receipt.is_taken_in() {
                    tracing::info!(manifest = %filed, "filed");
                } else {
                    tracing::warn!(manifest = %filed, receipt = %receipt_file, "manifest rejected");
                }
                self.last_errors.remove(&manifest.path);
                Ok(())
            }
            Err(DisposeError::Changed { .. }) => Err(IngestFailure::RetryAfter(WRITER_RETRY_INTERVAL)),
            Err(error) => {
                self.report_once(manifest, error.to_string());
                let wait = longer(last.map(|last| last.wait));
                self.keep_receipt(manifest, Unfiled { stat: manifest.stat, receipt, wait });
                Err(IngestFailure::RetryAfter(wait))
            }
        }
    }

    /// Keeps a receipt for the next try. Where there are too many, the manifest is read again instead, which finds
    /// every job there.
    fn keep_receipt(&mut self, manifest: &ReadyManifest, unfiled: Unfiled) {
        if self.unfiled.len() >= UNFILED_MAX {
            self.unfiled.retain(|path, _| path.exists());
        }
        if self.unfiled.len() < UNFILED_MAX {
            self.unfiled.insert(manifest.path.clone(), unfiled);
        }
    }

    /// Says once what keeps a manifest from being filed.
    fn report_once(&mut self, manifest: &ReadyManifest, trouble: String) {
        if self.last_errors.get(&manifest.path) == Some(&trouble) {
            return tracing::debug!(manifest = %manifest.path.display(), trouble, "cannot be moved yet");
        }
        self.say(&trouble);
        if self.last_errors.len() >= LAST_ERRORS_MAX {
            self.last_errors.retain(|path, _| path.exists());
        }
        if self.last_errors.len() < LAST_ERRORS_MAX {
            self.last_errors.insert(manifest.path.clone(), trouble);
        }
    }

    fn say(&self, trouble: &str) {
        let inbox = self.place.folders.inbox.display();
        tracing::warn!(%inbox, "{trouble}; the files stay in place and are retried");
    }
}

/// Takes a manifest in. One whose batch cannot be called so is refused as a whole.
async fn accept(
    inbox: &InboxPlace,
    terms: &InboxTerms,
    ingest: &IngestHandle,
    manifest: &ReadyManifest,
    held: oneshot::Sender<()>,
) -> Result<Receipt, WorkError> {
    let place = match &inbox.name {
        Some(name) => SourcePlace::Inbox(name.clone()),
        None => manifest_file::place_of(&manifest.path).map_err(WorkError::Place)?,
    };
    let options = IngestOptions {
        default_policy: terms.policy.clone(),
        ceiling: terms.policy.budget,
        place,
        expected: Some(manifest.stat.identity),
        meta: terms.meta.clone(),
        ..IngestOptions::default()
    };
    match ingest.accept_whole(&manifest.path, options, Some(held)).await {
        Err(IngestError::Manifest(error @ ManifestError::BatchName(_))) => {
            Ok(Receipt::of_refused(&manifest.path, Diagnostic::at(Position::line(1), error.to_string())))
        }
        other => other.map_err(WorkError::Ingest),
    }
}
