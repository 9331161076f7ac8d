//! Every inbox: what is complete in it is taken in, and filed away with its receipt.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::config::InboxConfig;
use crate::domain::manifest::row::Policy;
use crate::domain::problem::{Position, Problem};
use crate::domain::time::Millis;
use crate::engine::blocking;
use crate::intake::IntakeError;
use crate::intake::inbox::filing::{self, FilingError, Folders};
use crate::intake::inbox::{Inbox, ReadyManifest, Watch};
use crate::intake::receipt::Receipt;
use crate::intake::reception::{Manner, Reception, ReceptionError};

/// Before a manifest that was being written is read again.
const WRITER_PATIENCE: Millis = Millis::from_secs(2);
/// Before something that a person or the service has to mend is tried again.
const MENDING_PATIENCE: Millis = Millis::from_secs(30);

/// An inbox with the terms of what comes in by it.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxTerms {
    /// Where manifests are dropped, and where they go.
    pub folders: Folders,
    /// For what they do not say.
    pub policy: Policy,
}

impl From<&InboxConfig> for InboxTerms {
    fn from(config: &InboxConfig) -> InboxTerms {
        InboxTerms { folders: Folders::of_inbox(&config.path), policy: config.policy.clone() }
    }
}

/// Begins to watch an inbox. What it comes to an end by is told to `broken`.
pub(super) fn keep(terms: InboxTerms, reception: Reception, clock: Clock, broken: mpsc::Sender<String>) {
    let mut keeper = Keeper { terms: Arc::new(terms), reception, clock, last_trouble: None };
    tokio::spawn(async move {
        let mut inbox = Inbox::open(&keeper.terms.folders.inbox, Watch::default(), clock);
        while let Some(manifest) = inbox.next().await {
            match keeper.take_in(&manifest).await {
                Ok(()) => {}
                Err(Setback::Wait(wait)) => inbox.put_back(&manifest, wait),
                Err(Setback::Stop) => return,
            }
        }
        let folder = keeper.terms.folders.inbox.display().to_string();
        // Whoever is told ends the process, so that a restart watches it again.
        let _ = broken.send(format!("the inbox {folder} is not watched any more")).await;
    });
}

/// Why a manifest stays where it is.
enum Setback {
    /// It is looked at again.
    Wait(Millis),
    /// The daemon is ending.
    Stop,
}

struct Keeper {
    terms: Arc<InboxTerms>,
    reception: Reception,
    clock: Clock,
    /// What was said last about something that stays: it is not said again at every look.
    last_trouble: Option<String>,
}

impl Keeper {
    async fn take_in(&mut self, manifest: &ReadyManifest) -> Result<(), Setback> {
        let manner = Manner {
            default_policy: self.terms.policy.clone(),
            expected: Some(manifest.look.identity),
            ..Manner::default()
        };
        let receipt = match self.reception.accept(&manifest.path, manner).await {
            Ok(receipt) => receipt,
            Err(ReceptionError::Gone(_)) => return Err(Setback::Stop),
            Err(ReceptionError::Intake(IntakeError::Changed { .. })) => {
                return Err(Setback::Wait(WRITER_PATIENCE));
            }
            Err(ReceptionError::Intake(error @ IntakeError::BatchName(_))) => {
                Receipt::of_refused(&manifest.path, Problem::new(Position::line(1), error.to_string()))
            }
            Err(error) => return Err(self.trouble(error.to_string())),
        };
        self.file_away(manifest, receipt).await
    }

    async fn file_away(&mut self, manifest: &ReadyManifest, receipt: Receipt) -> Result<(), Setback> {
        let (terms, manifest, now) = (self.terms.clone(), manifest.clone(), self.clock.now().wall);
        let file = move || filing::file_away(&terms.folders, &manifest, &receipt, now);
        match blocking(file).await {
            Ok(filed) => {
                tracing::info!(manifest = %filed.manifest.display(), "filed");
                self.last_trouble = None;
                Ok(())
            }
            Err(FilingError::Changed { .. }) => Err(Setback::Wait(WRITER_PATIENCE)),
            Err(error) => Err(self.trouble(error.to_string())),
        }
    }

    /// Says once what is in the way.
    fn trouble(&mut self, trouble: String) -> Setback {
        if self.last_trouble.as_ref() != Some(&trouble) {
            tracing::warn!(
                inbox = %self.terms.folders.inbox.display(),
                "{trouble}; what lies there stays, and is tried again"
            );
            self.last_trouble = Some(trouble);
        }
        Setback::Wait(MENDING_PATIENCE)
    }
}
