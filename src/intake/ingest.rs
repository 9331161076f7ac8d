//! The one door of a running daemon: inboxes, schedules and submissions all come in here, one after the
//! other, and what comes in is durable when it is answered.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::api::Service;
use crate::clock::Clock;
use crate::domain::budget::BudgetSetting;
use crate::domain::ids::BatchNo;
use crate::domain::manifest::row::Policy;
use crate::domain::quote::{AccountPlan, Catalog, Rules};
use crate::domain::time::{Millis, Timestamp};
use crate::engine::scheduler::{Command, CommandOutcome};
use crate::engine::{EngineGone, Handle, blocking, to_the_end};
use crate::failpoint;
use crate::intake::catalog_refresh::{self, CatalogError};
use crate::intake::receipt::Receipt;
use crate::intake::{self, Accepted, IngestContext, IngestOptions, IntakeError};
use crate::store::Store;

/// How long the catalogs are used without looking whether they are still fresh.
const CATALOG_RECHECK: Millis = Millis::from_secs(60);

/// Folder of the state for manifests that come in as bytes.
const INCOMING: &str = "incoming";

/// What holds for every manifest, wherever it comes from.
#[derive(Debug, Clone)]
pub struct IngestDefaults {
    /// Where catalogs come from; nothing where no manifest is taken in.
    pub service: Option<Service>,
    /// The name that its state belongs to.
    pub identity: String,
    /// What the catalogs do not carry.
    pub rules: Rules,
    /// `service.key_namespace`.
    pub namespace: String,
    /// For what neither the manifest nor who brings it says.
    pub default_policy: Policy,
    /// The account's plan.
    pub plan: AccountPlan,
}

impl IngestDefaults {
    /// What a manifest that comes in so is validated by.
    pub fn context<'a>(&'a self, catalog: &'a Catalog, options: IngestOptions) -> IngestContext<'a> {
        let default_policy = options.default_policy.over(&self.default_policy);
        IngestContext {
            catalog,
            rules: &self.rules,
            namespace: &self.namespace,
            plan: self.plan,
            options: IngestOptions { default_policy, ..options },
        }
    }
}

/// The manifest could not be taken in; nothing of it was, or it is not known whether it was, and then
/// handing it in again is harmless.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// See [`IntakeError`].
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// Present are no catalogs to judge it by.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Its good rows were taken in, and others could not be judged, because a catalog was not available: the manifest
    /// has to come in again.
    #[error("{0}")]
    Unjudged(String),
    /// The engine has ended.
    #[error(transparent)]
    Gone(#[from] EngineGone),
}

#[derive(Debug)]
struct StoredCatalog {
    catalog: Arc<Catalog>,
    looked: Timestamp,
    /// It was loaded by the process itself, which has said what is missing.
    is_given: bool,
}

#[derive(Debug)]
struct Inside {
    defaults: IngestDefaults,
    catalog: Option<StoredCatalog>,
}

/// See the module's documentation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ingest {
    store: Arc<Store>,
    engine: Handle,
    clock: Clock,
    /// Held for as long as a manifest is taken in: two at once could take the same number for a batch.
    inside: Arc<Mutex<Inside>>,
}

impl Ingest {
    /// A door to a running engine and its state.
    pub fn new(store: Arc<Store>, engine: Handle, clock: Clock, defaults: IngestDefaults) -> Ingest {
        let inside = Arc::new(Mutex::new(Inside { defaults, catalog: None }));
        Ingest { store, engine, clock, inside }
    }

    /// Uses these catalogs, which were loaded just now, even where some are missing.
    pub async fn use_catalog(&self, catalog: Arc<Catalog>) {
        let looked = self.clock.now().wall;
        self.inside.lock().await.catalog = Some(StoredCatalog { catalog, looked, is_given: true });
    }

    /// Other rules from now on.
    pub async fn reload(&self, defaults: IngestDefaults) {
        *self.inside.lock().await = Inside { defaults, catalog: None };
    }

    /// Takes a manifest in: on return its good rows are durable, and the engine works on them.
    ///
    /// # Errors
    /// [`IngestError`]. Diagnostics of rows are no error: they stand in the receipt.
    pub async fn accept(&self, path: &Path, options: IngestOptions) -> Result<Receipt, IngestError> {
        // The client may disconnect meanwhile, by an interrupt for one: what is begun is finished, and
        // nothing else is taken in beside it.
        let (own, path) = (self.clone(), path.to_owned());
        to_the_end(async move {
            let mut inside = own.inside.lock().await;
            own.accept_alone(&mut inside, &path, options).await
        })
        .await
    }

    /// The same for a manifest that can come in again: where rows of it could not be judged now, its good rows are
    /// taken in and it is an error.
    ///
    /// # Errors
    /// [`IngestError`]. Diagnostics of rows are no error: they stand in the receipt.
    pub async fn accept_whole(&self, path: &Path, options: IngestOptions) -> Result<Receipt, IngestError> {
        let receipt = self.accept(path, options).await?;
        match receipt.why_unjudged() {
            Some(why) => Err(IngestError::Unjudged(why)),
            None => Ok(receipt),
        }
    }

    async fn accept_alone(
        &self,
        inside: &mut Inside,
        path: &Path,
        options: IngestOptions,
    ) -> Result<Receipt, IngestError> {
        let catalog = self.catalog(inside).await?;
        let (store, path, defaults) = (self.store.clone(), path.to_owned(), inside.defaults.clone());
        let now = self.clock.now().wall;
        let take_in = move || intake::accept(&store, &path, &defaults.context(&catalog, options), now);
        let Accepted { receipt, batch } = blocking(take_in).await?;
        if let Some(batch) = batch {
            self.engine.execute(Command::AddBatch(Box::new(batch))).await?;
            failpoint::hit("accepted");
        }
        receipt.announce();
        Ok(receipt)
    }

    /// Sets the budget of a batch, while no manifest for it is taken in: a limit, or the default of the
    /// configuration.
    ///
    /// # Errors
    /// When the engine has ended.
    pub async fn set_budget(
        &self,
        batch: BatchNo,
        setting: BudgetSetting,
    ) -> Result<CommandOutcome, EngineGone> {
        let inside = self.inside.lock().await;
        let budget = setting.limit().or(inside.defaults.default_policy.budget);
        self.engine.execute(Command::SetBudget(batch, budget)).await
    }

    async fn catalog(&self, inside: &mut Inside) -> Result<Arc<Catalog>, CatalogError> {
        let now = self.clock.now().wall;
        if let Some(known) = &inside.catalog
            && known.looked <= now
            && now.since(known.looked) < CATALOG_RECHECK
            && (known.is_given || known.catalog.missing.is_empty())
        {
            return Ok(known.catalog.clone());
        }
        let service =
            inside.defaults.service.as_ref().map(|service| (service, inside.defaults.identity.as_str()));
        let loaded = catalog_refresh::load(service, self.store.dir(), &self.clock).await?;
        if let Some(reason) = &loaded.stale_because {
            tracing::warn!(fetched = %loaded.fetched, reason, "using older catalogs");
        }
        for (part, why) in &loaded.catalog.missing {
            tracing::warn!(part = part.name(), why, "no catalog; rows that need it wait");
        }
        let catalog = Arc::new(loaded.catalog);
        inside.catalog = Some(StoredCatalog { catalog: catalog.clone(), looked: now, is_given: false });
        Ok(catalog)
    }
}

/// A folder of its own for a manifest that comes in as bytes, so that it keeps its name. It goes with its contents, and
/// the folder of all of them with the last one.
#[derive(Debug)]
pub struct IncomingDir {
    /// Nothing once it is removed.
    own: Option<tempfile::TempDir>,
    path: PathBuf,
}

impl IncomingDir {
    /// Makes one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(state: &Path) -> std::io::Result<IncomingDir> {
        let all = state.join(INCOMING);
        loop {
            std::fs::create_dir_all(&all)?;
            match tempfile::tempdir_in(&all) {
                // The last of the others has just removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && state.is_dir() => {}
                made => {
                    let own = made?;
                    return Ok(IncomingDir { path: own.path().to_owned(), own: Some(own) });
                }
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for IncomingDir {
    fn drop(&mut self) {
        // What is left is removed at the next start.
        drop(self.own.take());
        if let Some(all) = self.path.parent() {
            let _ = std::fs::remove_dir(all);
        }
    }
}

/// Removes what a killed process left of manifests that came in as bytes: none of them was acknowledged.
///
/// # Errors
/// When it cannot be removed.
pub fn sweep_incoming(state: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(state.join(INCOMING)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
