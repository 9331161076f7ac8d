//! The catalogs in force: from the service when it answers, else as they were last seen.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Service, ServiceError};
use crate::clock::Clock;
use crate::domain::quote::catalog::CatalogPart;
use crate::domain::quote::{Catalog, Surcharges};
use crate::domain::retry::Backoff;
use crate::domain::time::{Millis, Timestamp};
use crate::engine::{CatalogSource, Renewing};
use crate::store::catalogs::{self, Kept};
use crate::store::{StoreError, surcharges};

/// How long a catalog may be used without asking again (Catalog caching).
const FRESH_FOR: Millis = Millis::from_secs(3600);
/// How often the catalogs are asked for before a run without any is given up.
const TRIES: u32 = 4;
/// The waits in between.
const BACKOFF: Backoff = Backoff { base: Millis(500), max: Millis(4_000) };
/// After so long they are not asked for again.
const PATIENCE: Millis = Millis::from_secs(30);

/// Catalogs, and how old they are.
#[derive(Debug)]
pub struct Catalogs {
    /// Read and typed.
    pub catalog: Catalog,
    /// As the service gave them: `video`, `image`, `music`, `voices`.
    pub raw: Value,
    /// When the service gave them.
    pub fetched: Timestamp,
    /// Why they could not be renewed, when they are older than they should be.
    pub stale_because: Option<String>,
}

impl Catalogs {
    fn of(fetched: Timestamp, raw: Value, stale_because: Option<String>) -> Catalogs {
        let catalog = Catalog::of(&raw["video"], &raw["image"], &raw["music"], &raw["voices"]);
        Catalogs { catalog, raw, fetched, stale_because }
    }

    /// With what was charged above their prices.
    fn with_surcharges(mut self, state: &Path, service: &str) -> Catalogs {
        match surcharges::read(state, service) {
            Ok(known) => self.catalog.surcharges = known,
            Err(error) => {
                tracing::warn!(%error, "what was charged above the catalog's prices cannot be read")
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
    #[error("no catalog: no service is configured, and none was kept from an earlier time")]
    NoService,
    /// The state refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Loads the catalogs: kept ones while they are fresh, else the service's, else kept ones. `service`
/// goes with the name that its state belongs to; without one, whatever was kept last is taken.
///
/// # Errors
/// [`CatalogError`] when there are none.
pub async fn load(
    service: Option<(&Service, &str)>,
    state: &Path,
    clock: &Clock,
) -> Result<Catalogs, CatalogError> {
    let kept = catalogs::read(state)?;
    let kept = kept.filter(|kept| service.is_none_or(|(_, identity)| kept.service == identity));
    let now = clock.now().wall;
    let Some((service, identity)) = service else {
        let Kept { service, fetched, data } = kept.ok_or(CatalogError::NoService)?;
        let reason = format!("no service is configured, and these came from {service}");
        return Ok(Catalogs::of(fetched, data, Some(reason)).with_surcharges(state, &service));
    };
    let loaded = match kept {
        Some(kept) if now.since(kept.fetched) < FRESH_FOR && kept.fetched <= now => {
            Catalogs::of(kept.fetched, kept.data, None)
        }
        kept => renewed(service, identity, kept, state, clock).await?,
    };
    Ok(loaded.with_surcharges(state, identity))
}

/// Asks the service for the catalogs, however young the kept ones are, and goes on with those where it does not answer.
///
/// # Errors
/// [`CatalogError`] when there are none.
pub async fn renew(
    service: &Service,
    identity: &str,
    state: &Path,
    clock: &Clock,
) -> Result<Catalogs, CatalogError> {
    let kept = catalogs::read(state)?.filter(|kept| kept.service == identity);
    Ok(renewed(service, identity, kept, state, clock).await?.with_surcharges(state, identity))
}

async fn renewed(
    service: &Service,
    identity: &str,
    kept: Option<Kept>,
    state: &Path,
    clock: &Clock,
) -> Result<Catalogs, CatalogError> {
    match fetch_for(service, kept.is_some(), clock).await {
        Ok(data) => {
            let kept = Kept { service: identity.to_owned(), fetched: clock.now().wall, data };
            if let Err(error) = catalogs::keep(state, &kept) {
                // Good enough for this time; the next one asks again.
                tracing::warn!("failed to keep the catalogs: {error}");
            }
            Ok(Catalogs::of(kept.fetched, kept.data, None))
        }
        Err(error) => match kept {
            Some(kept) => Ok(Catalogs::of(kept.fetched, kept.data, Some(error.to_string()))),
            None => Err(error.into()),
        },
    }
}

/// The catalogs that a running engine prices by: see [`CatalogSource`].
#[derive(Debug)]
pub struct ServiceCatalogs {
    /// The service.
    pub service: Service,
    /// The name that its state belongs to.
    pub identity: String,
    /// Where they are kept.
    pub state: PathBuf,
    /// Tells how old they are.
    pub clock: Clock,
}

impl CatalogSource for ServiceCatalogs {
    fn renew(&self) -> Renewing<'_> {
        Box::pin(async {
            let renewed = renew(&self.service, &self.identity, &self.state, &self.clock).await;
            let renewed = renewed.map_err(|error| error.to_string())?;
            if let Some(reason) = &renewed.stale_because {
                tracing::warn!(fetched = %renewed.fetched, reason, "using older catalogs to price what is sent");
            }
            Ok(Arc::new(renewed.catalog))
        })
    }

    fn keep(&self, cells: &Surcharges) -> Result<(), StoreError> {
        surcharges::keep(&self.state, &self.identity, cells)
    }
}

/// Where nothing was kept, a single broken answer is not the end of a first run: the service is asked again a few
/// times. Where there is something to go by, nobody waits.
async fn fetch_for(service: &Service, has_kept: bool, clock: &Clock) -> Result<Value, ServiceError> {
    let began = clock.now().tick;
    let mut tried = 0;
    loop {
        let error = match fetch(service).await {
            Err(error @ ServiceError::Unreachable { .. }) if !has_kept => error,
            outcome => return outcome,
        };
        let wait = BACKOFF.wait(tried, fastrand::f64(), None);
        tried += 1;
        if tried >= TRIES || clock.now().tick.since(began) >= PATIENCE {
            return Err(error);
        }
        tracing::info!(%error, wait_ms = wait.0, "no catalog yet, asking again");
        tokio::time::sleep(Duration::from_millis(wait.0)).await;
    }
}

/// Asks the service for all four, and keeps nothing.
///
/// # Errors
/// [`ServiceError`] of the first that is not answered.
pub async fn fetch(service: &Service) -> Result<Value, ServiceError> {
    Ok(json!({
        "video": service.catalog(CatalogPart::Video).await?,
        "image": service.catalog(CatalogPart::Image).await?,
        "music": service.catalog(CatalogPart::Music).await?,
        "voices": service.catalog(CatalogPart::Voices).await?,
    }))
}
