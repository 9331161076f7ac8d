//! The one entry point of a running daemon: inboxes, schedules and submissions all come in here, those of one batch one after the
//! other, and what comes in is durable when it is answered.

use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};

use crate::api::Service;
use crate::clock::Clock;
use crate::domain::budget::BudgetSetting;
use crate::domain::budget_group::{GroupLimits, GroupTotals};
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::ledger::Totals;
use crate::domain::quote::{AccountPlan, Catalog, Rules};
use crate::domain::time::{Millis, Now, Timestamp};
use crate::engine::input_store::InputStore;
use crate::engine::scheduler::{Command, CommandOutcome};
use crate::engine::{EngineGone, Handle, blocking, to_the_end};
use crate::failpoint;
use crate::ingest::batch_locks::{BatchLock, BatchLocks};
use crate::ingest::catalog_refresh::{self, CatalogError, Catalogs};
use crate::ingest::input_files::InputRules;
use crate::ingest::newer_catalog::{CATALOG_RECENT, NewerCatalog};
use crate::ingest::receipt::{LISTED_MAX, Receipt};
use crate::ingest::{self, Accepted, IngestContext, IngestOptions, ManifestError, read_references};
use crate::output::file_names::Layout;
use crate::store::staged_inputs::StagedInputs;
use crate::store::{Store, StoreError};

/// How long the catalogs are used without looking whether they are still fresh.
const CATALOG_RECHECK: Millis = Millis::from_secs(60);

/// How long the service is waited for that is asked for catalogs once more: its batch is held meanwhile.
const ASK_AGAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Manifests of at most so many bytes are read beside each other and beside a large one.
const SMALL_BYTES: u64 = 4 * 1024 * 1024;

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
    /// The budget of batches that nobody sets one of their own for.
    pub default_budget: Option<Credits>,
    /// The account's plan.
    pub plan: AccountPlan,
    /// Budgets by group.
    pub group_limits: GroupLimits,
    /// Which files manifests may name.
    pub inputs: InputRules,
    /// `output.layout`: a batch keeps the one that it begins with.
    pub layout: Layout,
}

impl IngestDefaults {
    /// What a manifest that comes in so is validated by.
    pub fn context<'a>(&'a self, catalog: &'a Catalog, options: IngestOptions) -> IngestContext<'a> {
        // What is changed of rows of a batch changes none of its terms.
        let default_budget = self.default_budget.filter(|_| options.amends.is_none());
        IngestContext {
            catalog,
            rules: &self.rules,
            namespace: &self.namespace,
            plan: self.plan,
            group_limits: &self.group_limits,
            inputs: &self.inputs,
            layout: Some(&self.layout),
            options: IngestOptions { default_budget, ..options },
            newer_catalog: None,
        }
    }
}

/// The manifest could not be taken in; nothing of it was, or it is not known whether it was, and then
/// handing it in again is harmless.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// See [`ManifestError`].
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Present are no catalogs to validate it by.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Its good rows were taken in, and others could not be validated, because a catalog was not available: the manifest
    /// has to come in again.
    #[error("{0}")]
    NotValidated(String),
    /// The engine does not take in its batch.
    #[error("{0}; nothing was accepted")]
    Refused(String),
    /// What the state keeps of rows does not tell how they are written.
    #[error("{}", unknown_rows(.0))]
    UnknownRows(Vec<String>),
    /// The engine has ended.
    #[error(transparent)]
    Gone(#[from] EngineGone),
}

/// Labels of rows that a message names.
const NAMED_MAX: usize = 10;

fn unknown_rows(labels: &[String]) -> String {
    let shown = labels.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = labels.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "an earlier version stored these rows without the text of their manifest: {shown}{more}; nothing was \
         accepted"
    )
}

#[derive(Debug)]
struct StoredCatalog {
    catalog: Arc<Catalog>,
    looked: Timestamp,
    /// When the service gave the oldest of them.
    fetched: Timestamp,
    /// It was loaded by the process itself, which has said what is missing.
    is_given: bool,
}

/// The receipt of a manifest all of whose rows could be validated.
///
/// # Errors
/// [`IngestError::NotValidated`].
pub fn in_full(receipt: Receipt) -> Result<Receipt, IngestError> {
    match receipt.why_not_validated() {
        Some(why) => Err(IngestError::NotValidated(why)),
        None => Ok(receipt),
    }
}

/// What is in force. Nobody waits for anything while it is locked.
#[derive(Debug)]
struct InForce {
    defaults: IngestDefaults,
    catalog: Option<StoredCatalog>,
    /// When the service was last asked once more, before rows were refused.
    asked_again: Option<Timestamp>,
    /// Counts reloads: a catalog that was asked for before one says nothing of the service that is asked now.
    reloads: u64,
    /// Where files that rows name are uploaded to.
    input_store: Option<InputStore>,
}

impl InForce {
    /// The catalogs that may be used without looking whether they are still fresh.
    fn catalog(&self, now: Timestamp) -> Option<Arc<Catalog>> {
        let known = self.catalog.as_ref().filter(|known| {
            known.looked <= now
                && now.since(known.looked) < CATALOG_RECHECK
                && (known.is_given || known.catalog.missing.is_empty())
        })?;
        Some(known.catalog.clone())
    }

    /// Where catalogs are older than they should be, the service was asked for others and has not given them.
    fn note_asked(&mut self, loaded: &Catalogs, looked: Timestamp) {
        if loaded.stale_because.is_some() {
            self.asked_again = Some(looked);
        }
    }

    /// Whether the service is asked once more before rows are refused for what the catalogs do not list.
    fn may_ask_again(&self, now: Timestamp) -> bool {
        let is_recent = |at| catalog_refresh::is_younger(at, now, CATALOG_RECENT);
        self.defaults.service.is_some()
            && !self.asked_again.is_some_and(is_recent)
            && !self.catalog.as_ref().is_some_and(|known| is_recent(known.fetched))
    }
}

/// What groups that have budgets have held and spent; nothing where that is not counted yet.
fn spent_by_group(store: &Store) -> Result<Option<GroupTotals>, StoreError> {
    let is_untouched = store.total()? == Totals::default();
    Ok(store.groups()?.or_else(|| is_untouched.then(GroupTotals::default)))
}

/// See the module's documentation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct IngestHandle {
    store: Arc<Store>,
    engine: Handle,
    clock: Clock,
    in_force: Arc<std::sync::Mutex<InForce>>,
    /// Held while the service is asked for catalogs: once for all who wait for them.
    loading: Arc<Mutex<()>>,
    /// Held while a manifest is read and until it is committed: one at a time for each batch.
    locks: BatchLocks,
    /// Held while a large manifest is read: one at a time, of all batches.
    large: Arc<Mutex<()>>,
    /// Held from when a batch takes its number until it is committed.
    publishing: Arc<Mutex<()>>,
}

impl IngestHandle {
    /// The entry point to a running engine and its state.
    pub fn new(store: Arc<Store>, engine: Handle, clock: Clock, defaults: IngestDefaults) -> IngestHandle {
        let in_force = InForce { defaults, catalog: None, asked_again: None, reloads: 0, input_store: None };
        IngestHandle {
            store,
            engine,
            clock,
            in_force: Arc::new(std::sync::Mutex::new(in_force)),
            loading: Arc::default(),
            locks: BatchLocks::default(),
            large: Arc::default(),
            publishing: Arc::default(),
        }
    }

    /// Has files that rows name uploaded to this store from now on.
    pub fn set_input_store(&self, input_store: Option<InputStore>) {
        self.in_force().input_store = input_store;
    }

    /// Forgets that these contents were uploaded where the object store does not have them any more. Returns whether any
    /// was forgotten.
    pub async fn forget_missing_inputs(&self, contents: Vec<String>) -> bool {
        let input_store = self.in_force().input_store.clone();
        match input_store {
            Some(input_store) => {
                input_store.forget_missing(&StagedInputs::of(self.store.dir()), contents).await
            }
            None => false,
        }
    }

    /// The state.
    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What time it is.
    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }

    fn in_force(&self) -> MutexGuard<'_, InForce> {
        // A panic ends the process: what is behind a poisoned lock is whole.
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `service.key_namespace`.
    pub(super) fn namespace(&self) -> String {
        self.in_force().defaults.namespace.clone()
    }

    /// Largest file that a row may name, in bytes.
    pub fn input_max_bytes(&self) -> u64 {
        self.in_force().defaults.inputs.max_bytes
    }

    /// Uses these catalogs, which were loaded just now, even where some are missing.
    pub fn use_catalog(&self, loaded: Catalogs) -> Arc<Catalog> {
        let looked = self.clock.now().wall;
        let mut in_force = self.in_force();
        in_force.note_asked(&loaded, looked);
        let (catalog, fetched) = (Arc::new(loaded.catalog), loaded.fetched);
        in_force.catalog = Some(StoredCatalog { catalog: catalog.clone(), looked, fetched, is_given: true });
        catalog
    }

    /// Whether no other catalogs took the place of those that it was told to use.
    pub fn still_uses(&self, catalog: &Arc<Catalog>) -> bool {
        self.in_force().catalog.as_ref().is_some_and(|stored| Arc::ptr_eq(&stored.catalog, catalog))
    }

    /// Other rules from now on.
    pub fn reload(&self, defaults: IngestDefaults) {
        let mut in_force = self.in_force();
        let reloads = in_force.reloads + 1;
        let input_store = in_force.input_store.take();
        *in_force = InForce { defaults, catalog: None, asked_again: None, reloads, input_store };
    }

    /// Takes a manifest in: on return its good rows are durable, and the engine works on them.
    ///
    /// # Errors
    /// [`IngestError`]. Diagnostics of rows are no error: they stand in the receipt.
    pub async fn accept(&self, path: &Path, options: IngestOptions) -> Result<Receipt, IngestError> {
        self.begin_to_accept(path, options, None).await
    }

    async fn begin_to_accept(
        &self,
        path: &Path,
        options: IngestOptions,
        held: Option<oneshot::Sender<()>>,
    ) -> Result<Receipt, IngestError> {
        // The client may disconnect meanwhile, by an interrupt for one: what is begun is finished, and nothing else is
        // taken in for its batch beside it.
        let (own, path) = (self.clone(), path.to_owned());
        to_the_end(async move { own.accept_to_the_end(path, options, held).await }).await
    }

    /// The same for a manifest that can come in again: where rows of it could not be validated now, its good rows are
    /// taken in and it is an error. `held` hears as soon as no other manifest can be taken in before it for its batch.
    ///
    /// # Errors
    /// [`IngestError`]. Diagnostics of rows are no error: they stand in the receipt.
    pub async fn accept_whole(
        &self,
        path: &Path,
        options: IngestOptions,
        held: Option<oneshot::Sender<()>>,
    ) -> Result<Receipt, IngestError> {
        in_full(self.begin_to_accept(path, options, held).await?)
    }

    async fn accept_to_the_end(
        &self,
        path: PathBuf,
        options: IngestOptions,
        held: Option<oneshot::Sender<()>>,
    ) -> Result<Receipt, IngestError> {
        let bytes = tokio::fs::metadata(&path).await.map_or(0, |found| found.len());
        let _turn = if is_large(bytes) { Some(self.large.lock().await) } else { None };
        let (catalog, defaults) = self.catalog().await?;
        let (store, locks) = (self.store.clone(), self.locks.clone());
        let now = self.clock.now().wall;
        let group_limits = defaults.group_limits.clone();
        let newer = self.newer_catalog(now);
        let prepare = move || {
            let tell_held = || {
                // Nobody may listen any more.
                let _ = held.map(|held| held.send(()));
            };
            let newer = newer.as_ref().map(|read| NewerCatalog::new(|| read(&catalog)));
            let context = defaults.context(&catalog, options);
            let context = IngestContext { newer_catalog: newer.as_ref(), ..context };
            ingest::prepare(&store, &path, &context, now, (&locks, tell_held))
        };
        let mut prepared = blocking(prepare).await?;
        if self.forget_missing_inputs(prepared.file_contents()).await {
            let store = self.store.clone();
            let stage = move || prepared.stage_files(&store).map(|()| prepared);
            prepared = blocking(stage).await?;
        }
        // Two at once could take the same number for a batch.
        let publishing = self.publishing.lock().await;
        let store = self.store.clone();
        let publish = move || {
            let mut accepted = prepared.publish(&store)?;
            let Receipt { by_group, group_budgets, .. } = &mut accepted.receipt;
            if !by_group.is_empty()
                && let Some(spent) = spent_by_group(&store)?
            {
                *group_budgets = spent.shortages(by_group, &group_limits, now.utc_day());
                group_budgets.truncate(LISTED_MAX);
            }
            Ok::<_, ManifestError>(accepted)
        };
        let Accepted { mut receipt, batch, edited, lock } = blocking(publish).await?;
        if let Some(batch) = batch {
            let (no, is_edited) = (batch.no, edited.is_some());
            // Its files may have been moved away just now: then nothing was taken in.
            if let Some(why) = self.engine.add_batch(Box::new(batch), edited).await?.refused {
                return Err(IngestError::Refused(why));
            }
            failpoint::hit("accepted");
            if is_edited {
                // Without what was replaced before it was sent; of many jobs the engine drops some now and the rest soon.
                receipt.budget = self.budget_in_force(no).await.or(receipt.budget);
            }
        }
        drop((publishing, lock));
        receipt.announce();
        Ok(receipt)
    }

    /// The budget of a batch as it is stored, in credits.
    async fn budget_in_force(&self, batch: BatchNo) -> Option<Credits> {
        let store = self.store.clone();
        blocking(move || store.batch(batch).ok().flatten().map(|batch| batch.budget())).await
    }

    /// What [`IngestHandle::accept`] would answer now, with what it would cost; nothing is taken in.
    ///
    /// # Errors
    /// [`IngestError`]. Diagnostics of rows are no error: they stand in the receipt.
    pub async fn plan(&self, path: &Path, options: IngestOptions) -> Result<Receipt, IngestError> {
        let (catalog, defaults) = self.catalog().await?;
        let (store, locks, path) = (self.store.clone(), self.locks.clone(), path.to_owned());
        let now = self.clock.now().wall;
        let newer = self.newer_catalog(now);
        let plan = move || {
            let newer = newer.as_ref().map(|read| NewerCatalog::new(|| read(&catalog)));
            let context = defaults.context(&catalog, options);
            let context = IngestContext { newer_catalog: newer.as_ref(), ..context };
            let mut receipt = ingest::plan(&store, &path, &context, now, &locks)?;
            if !receipt.by_group.is_empty()
                && let Some(spent) = spent_by_group(&store)?
            {
                receipt.group_budgets =
                    spent.shortages(&receipt.by_group, &defaults.group_limits, now.utc_day());
                receipt.group_budgets.truncate(LISTED_MAX);
            }
            Ok::<_, ManifestError>(receipt)
        };
        Ok(blocking(plan).await?)
    }

    /// Keeps manifests from being taken in for a batch; nothing where one is being read for it.
    pub fn try_hold(&self, batch: &BatchName) -> Option<BatchLock> {
        self.locks.try_hold(batch)
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
        let (store, locks) = (self.store.clone(), self.locks.clone());
        // One that is not known, or cannot be read, no manifest is taken in for: the engine says so.
        let hold = move || store.batch(batch).ok().flatten().map(|batch| locks.hold(&batch.name));
        let _held = blocking(hold).await;
        let default = self.in_force().defaults.default_budget;
        let command = match setting {
            BudgetSetting::Limit(budget) => Command::SetBudget(batch, budget),
            BudgetSetting::Default => Command::SetDefaultBudget(batch, default),
        };
        self.engine.execute(command).await
    }

    /// The catalogs in force, which the service is asked for where they are old, and what goes with them.
    async fn catalog(&self) -> Result<(Arc<Catalog>, IngestDefaults), CatalogError> {
        if let Some(known) = self.known_catalog() {
            return Ok(known);
        }
        let _one_at_a_time = self.loading.lock().await;
        if let Some(known) = self.known_catalog() {
            return Ok(known);
        }
        let (defaults, reloads) = {
            let in_force = self.in_force();
            (in_force.defaults.clone(), in_force.reloads)
        };
        let looked = self.clock.now().wall;
        let service = defaults.service.as_ref().map(|service| (service, defaults.identity.as_str()));
        let loaded = catalog_refresh::load(service, self.store.dir(), &self.clock).await?;
        Ok((self.keep_loaded(loaded, looked, reloads), defaults))
    }

    /// Puts catalogs in force that were loaded, where no reload came between.
    fn keep_loaded(&self, loaded: Catalogs, looked: Timestamp, reloads: u64) -> Arc<Catalog> {
        let fetched = loaded.fetched;
        if let Some(reason) = &loaded.stale_because {
            tracing::warn!(fetched = %loaded.fetched, reason, "using older catalogs");
        }
        for (part, why) in &loaded.catalog.missing {
            tracing::warn!(part = part.name(), why, "no catalog; rows that need it wait");
        }
        let mut in_force = self.in_force();
        let is_of_now = in_force.reloads == reloads;
        if is_of_now {
            in_force.note_asked(&loaded, looked);
        }
        let catalog = Arc::new(loaded.catalog);
        if is_of_now {
            in_force.catalog =
                Some(StoredCatalog { catalog: catalog.clone(), looked, fetched, is_given: false });
        }
        catalog
    }

    /// Reads newer catalogs than those that it is given, from a thread that may wait; nothing where these are recent, or were
    /// asked for a moment ago.
    fn newer_catalog(
        &self,
        now: Timestamp,
    ) -> Option<impl Fn(&Arc<Catalog>) -> Option<Arc<Catalog>> + Send + Sync + use<>> {
        self.in_force().may_ask_again(now).then(|| {
            let (own, runtime) = (self.clone(), tokio::runtime::Handle::current());
            move |known: &Arc<Catalog>| {
                let (sender, answer) = oneshot::channel();
                let (own, known) = (own.clone(), known.clone());
                runtime.spawn(async move {
                    let asked = tokio::time::timeout(ASK_AGAIN_TIMEOUT, own.ask_again(&known)).await;
                    let found = asked.unwrap_or_else(|_| {
                        tracing::warn!("failed to read the catalogs again: no answer in time");
                        None
                    });
                    drop(sender.send(found));
                });
                // At the end of the process nobody answers.
                answer.blocking_recv().ok().flatten()
            }
        })
    }

    /// Asks the service for catalogs that are not recent, though they may still be used, unless that was done a moment ago.
    /// Nothing where there are no others than `known`.
    async fn ask_again(&self, known: &Arc<Catalog>) -> Option<Arc<Catalog>> {
        let _one_at_a_time = self.loading.lock().await;
        let looked = self.clock.now().wall;
        let (defaults, reloads) = {
            let mut in_force = self.in_force();
            if !in_force.may_ask_again(looked) {
                let others = in_force.catalog.as_ref().map(|stored| stored.catalog.clone());
                return others.filter(|other| !Arc::ptr_eq(other, known));
            }
            in_force.asked_again = Some(looked);
            (in_force.defaults.clone(), in_force.reloads)
        };
        let service = defaults.service.as_ref().map(|service| (service, defaults.identity.as_str()));
        match catalog_refresh::load_within(CATALOG_RECENT, service, self.store.dir(), &self.clock).await {
            Ok(loaded) => Some(self.keep_loaded(loaded, looked, reloads)),
            Err(error) => {
                tracing::warn!(%error, "failed to read the catalogs again");
                None
            }
        }
    }

    fn known_catalog(&self) -> Option<(Arc<Catalog>, IngestDefaults)> {
        let in_force = self.in_force();
        Some((in_force.catalog(self.clock.now().wall)?, in_force.defaults.clone()))
    }
}

/// Whether a manifest of this length is read beside small ones only: some formats are held whole.
pub fn is_large(bytes: u64) -> bool {
    bytes > SMALL_BYTES
}

/// Whether a manifest of this length is read after those that came before it, also where one of these takes long: it is
/// large itself, or may name rows of theirs.
pub async fn has_to_follow(path: &Path, bytes: u64) -> bool {
    let read = path.to_owned();
    is_large(bytes) || blocking(move || read_references::file_may_have(&read)).await
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

/// Removes what a killed process left of manifests and files that came in as bytes: none of them was acknowledged.
///
/// # Errors
/// When it cannot be removed.
pub fn sweep_incoming(state: &Path) -> std::io::Result<()> {
    StagedInputs::of(state).sweep()?;
    match std::fs::remove_dir_all(state.join(INCOMING)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
