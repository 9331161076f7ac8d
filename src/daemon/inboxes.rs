//! Every inbox: what is complete in it is taken in, and filed away with its receipt.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::config::InboxConfig;
use crate::domain::batch_origin::SourcePlace;
use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::manifest::row::Policy;
use crate::domain::time::Millis;
use crate::engine::blocking;
use crate::ingest::inbox::dispose::{self, DisposeError, Folders};
use crate::ingest::inbox::{FileStat, Inbox, ReadyManifest, WatchOptions};
use crate::ingest::ingest_handle::{IngestError, IngestHandle};
use crate::ingest::receipt::Receipt;
use crate::ingest::{IngestOptions, ManifestError, manifest_file};

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
    /// Where manifests are dropped, and where they go.
    pub folders: Folders,
    /// What its batches are called after; nothing for the inbox of the jobs folder, whose batches are called after
    /// their manifests alone.
    pub name: Option<String>,
    /// For what they do not say. Its budget is the most that any of them may allow.
    pub policy: Policy,
    /// How long one that is written there in place has to stay unchanged.
    pub settle: Millis,
    /// Values of `meta` that every row has, whatever it says itself.
    pub meta: BTreeMap<String, String>,
}

impl From<&InboxConfig> for InboxSettings {
    fn from(config: &InboxConfig) -> InboxSettings {
        InboxSettings {
            folders: Folders::of_inbox(&config.path),
            name: config.name(),
            policy: config.policy.clone(),
            settle: config.settle.0,
            meta: config.meta.clone(),
        }
    }
}

/// Begins to watch an inbox. What it comes to an end by is told to `broken`.
pub(super) fn watch(terms: InboxSettings, ingest: IngestHandle, clock: Clock, broken: mpsc::Sender<String>) {
    let mut worker = InboxWorker {
        terms: Arc::new(terms),
        ingest,
        clock,
        unfiled: HashMap::new(),
        refused: None,
        last_errors: HashMap::new(),
    };
    tokio::spawn(async move {
        let watch = WatchOptions::settling(worker.terms.settle);
        let mut inbox = Inbox::open(&worker.terms.folders.inbox, watch, clock);
        while let Some(manifest) = inbox.next().await {
            match worker.take_in(&manifest).await {
                Ok(()) => {}
                Err(IngestFailure::RetryAfter(wait)) => inbox.put_back(&manifest, wait),
                Err(IngestFailure::Stopping) => return,
            }
        }
        let folder = worker.terms.folders.inbox.display().to_string();
        // The receiver ends the process, so that a restart watches it again.
        let _ = broken.send(format!("the inbox {folder} is no longer watched")).await;
    });
}

/// Why a manifest stays where it is.
enum IngestFailure {
    /// It is tried again after this time.
    RetryAfter(Millis),
    /// The daemon is stopping.
    Stopping,
}

/// Before the next try, after the last wait.
fn longer(wait: Option<Millis>) -> Millis {
    wait.map_or(RETRY_INTERVAL_MIN, |wait| Millis(wait.0 * 2)).min(RETRY_INTERVAL_MAX)
}

struct InboxWorker {
    terms: Arc<InboxSettings>,
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
    async fn take_in(&mut self, manifest: &ReadyManifest) -> Result<(), IngestFailure> {
        let receipt = match self.unfiled.get(&manifest.path) {
            // It is taken in already: reading it again would only lose what its receipt says.
            Some(unfiled) if unfiled.stat == manifest.stat => unfiled.receipt.clone(),
            _ => Arc::new(self.accept(manifest).await?),
        };
        self.file_away(manifest, receipt).await
    }

    async fn accept(&mut self, manifest: &ReadyManifest) -> Result<Receipt, IngestFailure> {
        let place = match &self.terms.name {
            Some(name) => Ok(SourcePlace::Inbox(name.clone())),
            None => manifest_file::place_of(&manifest.path),
        };
        let place = match place {
            Ok(place) => place,
            Err(error) => return Err(self.refused(&error.to_string())),
        };
        let options = IngestOptions {
            default_policy: self.terms.policy.clone(),
            ceiling: self.terms.policy.budget,
            place,
            expected: Some(manifest.stat.identity),
            meta: self.terms.meta.clone(),
            ..IngestOptions::default()
        };
        match self.ingest.accept_whole(&manifest.path, options).await {
            Ok(receipt) => {
                self.refused = None;
                Ok(receipt)
            }
            Err(IngestError::Gone(_)) => Err(IngestFailure::Stopping),
            Err(IngestError::Manifest(ManifestError::Changed { .. })) => {
                Err(IngestFailure::RetryAfter(WRITER_RETRY_INTERVAL))
            }
            Err(IngestError::Manifest(error @ ManifestError::BatchName(_))) => {
                Ok(Receipt::of_refused(&manifest.path, Diagnostic::at(Position::line(1), error.to_string())))
            }
            Err(error) => Err(self.refused(&error.to_string())),
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

    async fn file_away(
        &mut self,
        manifest: &ReadyManifest,
        receipt: Arc<Receipt>,
    ) -> Result<(), IngestFailure> {
        let (terms, found, now) = (self.terms.clone(), manifest.clone(), self.clock.now().wall);
        let said = receipt.clone();
        let filed = blocking(move || dispose::file_away(&terms.folders, &found, &said, now)).await;
        let last = self.unfiled.remove(&manifest.path);
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
        let inbox = self.terms.folders.inbox.display();
        tracing::warn!(%inbox, "{trouble}; the files stay in place and are retried");
    }
}
