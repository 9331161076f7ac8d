//! The catalogs in force: from the service when it answers, else as they were last seen. Each of the four stands
//! alone: one that is away keeps none of the others back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::response::CatalogAnswer;
use crate::api::{Service, ServiceError};
use crate::clock::Clock;
use crate::domain::quote::catalog::{CATALOG_MAX_AGE, CatalogPart, NEW_BATCH_MAX_AGE};
use crate::domain::quote::{Catalog, Surcharges};
use crate::domain::retry_delay::Backoff;
use crate::domain::time::{Millis, Tick, Timestamp};
use crate::engine::{CatalogRefresh, CatalogSource};
use crate::store::catalog_cache::{self, CachedCatalogs};
use crate::store::{StoreError, surcharge_file};

/// How often the catalogs are asked for before a run without any is given up.
const TRIES: u32 = 4;
/// The waits in between.
const BACKOFF: Backoff = Backoff { base: Millis(500), max: Millis(4_000) };
/// After so long they are not asked for again.
const PATIENCE: Millis = Millis::from_secs(30);

/// Parts that the service gave just now, read.
type GivenCatalogs = BTreeMap<CatalogPart, Value>;

/// Catalogs, and how old they are.
#[derive(Debug)]
pub struct Catalogs {
    /// Read and typed.
    pub catalog: Catalog,
    /// As the service gave them: `video`, `image`, `music`, `voices`.
    pub raw: Value,
    /// When the service gave the oldest of them.
    pub fetched: Timestamp,
    /// Why some could not be renewed, when they are older than they should be.
    pub stale_because: Option<String>,
    /// All of them were fetched from the service by this very reading.
    pub just_fetched: bool,
}

impl Catalogs {
    /// Those that are kept, of which some were `given_now` and `failed` could not be had. Of these the ones that are used
    /// are told by when they were given; the others are missing.
    fn of(
        kept: &CachedCatalogs,
        mut given_now: GivenCatalogs,
        failed: &[(CatalogPart, ServiceError)],
        is_used: impl Fn(Timestamp) -> bool,
    ) -> Catalogs {
        let just_fetched = given_now.len() == CatalogPart::ALL.len();
        let (mut catalog, mut raw) = (Catalog::default(), Map::new());
        let mut stale = Vec::new();
        let mut fetched = kept.fetched;
        for part in CatalogPart::ALL {
            let error = failed.iter().find(|(of, _)| *of == part).map(|(_, error)| error.to_string());
            match (kept.part(part), error) {
                (Some((_, given)), Some(error)) if !is_used(given) => {
                    catalog.missing.push((part, format!("{error}; the stored copy is of {given}")));
                }
                (Some((text, given)), error) => {
                    // It is JSON: it was taken out of the file of kept ones.
                    let read = || serde_json::from_str(text.get()).unwrap_or_default();
                    let data = given_now.remove(&part).unwrap_or_else(read);
                    catalog.read(part, &data);
                    raw.insert(part.name().to_owned(), data);
                    fetched = fetched.min(given);
                    stale.extend(error);
                }
                (None, error) => {
                    let why = error.unwrap_or_else(|| "none was kept".to_owned());
                    catalog.missing.push((part, why));
                }
            }
        }
        let more = stale.len().saturating_sub(1);
        let stale_because = stale.into_iter().next().map(|first| match more {
            0 => first,
            1 => format!("{first}; and so 1 other"),
            more => format!("{first}; and so {more} others"),
        });
        Catalogs { catalog, raw: Value::Object(raw), fetched, stale_because, just_fetched }
    }

    /// With what was charged above their prices.
    fn with_surcharges(mut self, state: &Path, service: &str) -> Catalogs {
        match surcharge_file::read(state, service) {
            Ok(known) => self.catalog.surcharges = known,
            Err(error) => {
                tracing::warn!(%error, "failed to read the surcharges");
            }
        }
        self
    }
}

/// There are no catalogs at all.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The service does not answer, and none were kept.
    #[error("no catalog: {0}")]
    Service(#[from] ServiceError),
    /// There is no service to ask, and none were kept.
    #[error("no catalog: no service is configured, and no copy is stored")]
    NoService,
    /// The state refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Loads the catalogs, each on its own: the kept one while it is fresh, else the service's, else the kept one.
/// `service` goes with the name that its state belongs to; without one, whatever was kept last is taken. What cannot
/// be had is missing in the catalog.
///
/// # Errors
/// [`CatalogError`] when there are none at all.
pub async fn load(
    service: Option<(&Service, &str)>,
    state: &Path,
    clock: &Clock,
) -> Result<Catalogs, CatalogError> {
    load_within(CATALOG_MAX_AGE, service, state, clock).await
}

/// The same, where kept ones count as fresh that are younger than `fresh_for`.
///
/// # Errors
/// [`CatalogError`] when there are none at all.
pub async fn load_within(
    fresh_for: Millis,
    service: Option<(&Service, &str)>,
    state: &Path,
    clock: &Clock,
) -> Result<Catalogs, CatalogError> {
    let kept = catalog_cache::read(state)?;
    let kept = kept.filter(|kept| service.is_none_or(|(_, identity)| kept.service == identity));
    let Some((service, identity)) = service else {
        let kept = kept.ok_or(CatalogError::NoService)?;
        let from = kept.service.clone();
        let reason = format!("no service was asked; the stored copy came from {from}");
        let catalogs = Catalogs {
            stale_because: Some(reason),
            ..Catalogs::of(&kept, GivenCatalogs::new(), &[], |_| true)
        };
        return Ok(catalogs.with_surcharges(state, &from));
    };
    let kept = kept.unwrap_or_else(|| CachedCatalogs::none(identity));
    let now = clock.now().wall;
    let mut wanted = CatalogPart::ALL.to_vec();
    wanted.retain(|part| !kept.part(*part).is_some_and(|(_, given)| is_younger(given, now, fresh_for)));
    renewed(service, kept, wanted, state, clock, |_| true).await
}

/// Whether a catalog that was given then may be used without asking again.
fn is_fresh(given: Timestamp, now: Timestamp) -> bool {
    is_younger(given, now, CATALOG_MAX_AGE)
}

/// Whether a catalog that was given then is younger than `age`. One that seems to come from the future is of unknown age.
pub(crate) fn is_younger(given: Timestamp, now: Timestamp, age: Millis) -> bool {
    now.since(given) < age && given <= now
}

/// Asks the service for the catalogs that jobs are sent by, however young the kept ones are. Of those that it does not
/// give the kept ones count while they are fresh: their prices may have changed since.
///
/// # Errors
/// [`CatalogError`] when there are none at all.
pub async fn renew(
    service: &Service,
    identity: &str,
    state: &Path,
    clock: &Clock,
) -> Result<Catalogs, CatalogError> {
    let kept = catalog_cache::read(state)?.filter(|kept| kept.service == identity);
    let kept = kept.unwrap_or_else(|| CachedCatalogs::none(identity));
    let is_used = |given| is_fresh(given, clock.now().wall);
    renewed(service, kept, CatalogPart::ALL.to_vec(), state, clock, is_used).await
}

/// The kept catalogs, with those of the `wanted` parts that the service gives in their place. Of the others of these,
/// `is_used` tells by when they were given whether they count.
async fn renewed(
    service: &Service,
    mut kept: CachedCatalogs,
    wanted: Vec<CatalogPart>,
    state: &Path,
    clock: &Clock,
    is_used: impl Fn(Timestamp) -> bool,
) -> Result<Catalogs, CatalogError> {
    let asked = wanted.len();
    let (given, failed) = ask(service, &mut kept, wanted, clock).await;
    if failed.len() < asked
        && let Err(error) = catalog_cache::keep(state, &kept)
    {
        // Good enough for this time; the next one asks again.
        tracing::warn!("failed to store the catalogs: {error}");
    }
    let catalogs = Catalogs::of(&kept, given, &failed, is_used);
    match failed.into_iter().next() {
        Some((_, error)) if kept.is_empty() => Err(error.into()),
        _ => Ok(catalogs.with_surcharges(state, &kept.service)),
    }
}

/// The catalogs that a running engine prices by: see [`CatalogSource`].
#[derive(Debug)]
pub struct ServiceCatalogs {
    pub service: Service,
    /// The name that its state belongs to.
    pub identity: String,
    /// Where they are kept.
    pub state: PathBuf,
    /// Tells how old they are.
    pub clock: Clock,
}

impl CatalogSource for ServiceCatalogs {
    fn renew(&self) -> CatalogRefresh<'_> {
        Box::pin(async {
            let renewed = renew(&self.service, &self.identity, &self.state, &self.clock).await;
            let renewed = renewed.map_err(|error| error.to_string())?;
            if let Some(reason) = &renewed.stale_because {
                tracing::warn!(fetched = %renewed.fetched, reason, "using older catalogs to price what is sent");
            }
            for (part, why) in &renewed.catalog.missing {
                tracing::warn!(
                    part = part.name(),
                    why,
                    "no catalog to price jobs of this kind by: they wait"
                );
            }
            Ok(Arc::new(renewed.catalog))
        })
    }

    fn keep(&self, cells: &Surcharges) -> Result<(), StoreError> {
        surcharge_file::keep(&self.state, &self.identity, cells)
    }
}

/// A source for an engine that begins right after its manifests were validated: the first catalogs it gives are those that were just
/// fetched to validate them, if they are younger than [`NEW_BATCH_MAX_AGE`]. The engine counts their age from then on.
#[derive(Debug)]
pub struct JustReadCatalogs {
    /// Those, and when they were asked for, until first used.
    read: Mutex<Option<(Arc<Catalog>, Tick)>>,
    /// Where all others come from.
    fallback: Arc<dyn CatalogSource>,
    clock: Clock,
}

impl JustReadCatalogs {
    /// Begins with catalogs that were `asked` for then, by the same `clock`.
    pub fn new(
        catalog: Arc<Catalog>,
        asked: Tick,
        fallback: Arc<dyn CatalogSource>,
        clock: Clock,
    ) -> JustReadCatalogs {
        JustReadCatalogs { read: Mutex::new(Some((catalog, asked))), fallback, clock }
    }
}

/// Whether catalogs that were asked for then are what a new batch may be priced by.
fn is_just_read(asked: Tick, now: Tick) -> bool {
    now.since(asked) < NEW_BATCH_MAX_AGE
}

impl CatalogSource for JustReadCatalogs {
    fn renew(&self) -> CatalogRefresh<'_> {
        // Nothing panics while it is held.
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner).take();
        let now = self.clock.now().tick;
        match read.filter(|(_, asked)| is_just_read(*asked, now)) {
            Some((catalog, _)) => Box::pin(std::future::ready(Ok(catalog))),
            None => self.fallback.renew(),
        }
    }

    fn keep(&self, surcharges: &Surcharges) -> Result<(), StoreError> {
        self.fallback.keep(surcharges)
    }
}

/// Asks for the `wanted` parts and keeps those that come. They are returned, and why the others did not come. Where
/// nothing was kept, a single broken answer is not the end of a first run: the service is asked again a few times. Where
/// there is something to go by, nobody waits.
async fn ask(
    service: &Service,
    kept: &mut CachedCatalogs,
    mut wanted: Vec<CatalogPart>,
    clock: &Clock,
) -> (GivenCatalogs, Vec<(CatalogPart, ServiceError)>) {
    let mut given = GivenCatalogs::new();
    let is_patient = kept.is_empty();
    let now = clock.now();
    let mut tried = 0;
    loop {
        let mut failed = Vec::new();
        for (part, answer) in fetch(service, &wanted).await {
            match answer {
                Ok(answer) => {
                    kept.put(part, answer.text, now.wall);
                    given.insert(part, answer.data);
                }
                Err(error) => failed.push((part, error)),
            }
        }
        let may_pass = failed.iter().any(|(_, error)| matches!(error, ServiceError::Unreachable { .. }));
        let wait = BACKOFF.wait(tried, fastrand::f64(), None);
        tried += 1;
        let is_over = tried >= TRIES || clock.now().tick.since(now.tick) >= PATIENCE;
        if !is_patient || !may_pass || is_over {
            return (given, failed);
        }
        wanted = failed.iter().map(|(part, _)| *part).collect();
        let missing: Vec<&str> = wanted.iter().map(|part| part.name()).collect();
        tracing::info!(missing = missing.join(", "), wait_ms = wait.0, "no catalog yet, retrying");
        tokio::time::sleep(Duration::from_millis(wait.0)).await;
    }
}

/// Asks the service for parts, one after the other since each answer may be large, and keeps nothing.
pub async fn fetch(
    service: &Service,
    parts: &[CatalogPart],
) -> Vec<(CatalogPart, Result<CatalogAnswer, ServiceError>)> {
    let mut answers = Vec::new();
    for part in parts {
        answers.push((*part, service.catalog(*part).await));
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Counts how often it is asked.
    #[derive(Debug, Default)]
    struct Counted(AtomicU32);

    impl CatalogSource for Counted {
        fn renew(&self) -> CatalogRefresh<'_> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(Ok(Arc::default())))
        }

        fn keep(&self, _: &Surcharges) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_was_just_read_is_used_once() {
        let (clock, counted) = (Clock::start(), Arc::new(Counted::default()));
        let mut catalog = Catalog::default();
        catalog.read(CatalogPart::Image, &serde_json::json!([{ "id": "just-read" }]));
        let catalog = Arc::new(catalog);
        let source = JustReadCatalogs::new(catalog.clone(), clock.now().tick, counted.clone(), clock);
        assert!(Arc::ptr_eq(&source.renew().await.unwrap(), &catalog));
        assert_eq!(counted.0.load(Ordering::Relaxed), 0);
        assert!(source.renew().await.unwrap().image.is_empty());
        assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_was_read_for_a_batch_is_old_after_five_seconds() {
        assert!(is_just_read(Tick(1_000), Tick(5_999)));
        assert!(!is_just_read(Tick(1_000), Tick(6_000)));
    }
}
