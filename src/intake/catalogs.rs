//! The catalogs in force: from the service when it answers, else as they were last seen.

use std::path::Path;

use serde_json::{Value, json};

use crate::api::{Service, ServiceError};
use crate::clock::Clock;
use crate::domain::quote::Catalog;
use crate::domain::time::{Millis, Timestamp};
use crate::store::StoreError;
use crate::store::catalogs::{self, Kept};

/// How long a catalog may be used without asking again (Catalog caching).
const FRESH_FOR: Millis = Millis::from_secs(3600);

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
        return Ok(Catalogs::of(fetched, data, Some(reason)));
    };
    match kept {
        Some(kept) if now.since(kept.fetched) < FRESH_FOR && kept.fetched <= now => {
            Ok(Catalogs::of(kept.fetched, kept.data, None))
        }
        kept => match fetch(service).await {
            Ok(data) => {
                let kept = Kept { service: identity.to_owned(), fetched: now, data };
                if let Err(error) = catalogs::keep(state, &kept) {
                    // Good enough for this time; the next one asks again.
                    tracing::warn!("failed to keep the catalogs: {error}");
                }
                Ok(Catalogs::of(now, kept.data, None))
            }
            Err(error) => match kept {
                Some(kept) => Ok(Catalogs::of(kept.fetched, kept.data, Some(error.to_string()))),
                None => Err(error.into()),
            },
        },
    }
}

/// Asks the service for all four, and keeps nothing.
///
/// # Errors
/// [`ServiceError`] of the first that is not answered.
pub async fn fetch(service: &Service) -> Result<Value, ServiceError> {
    Ok(json!({
        "video": service.models("video").await?,
        "image": service.models("image").await?,
        "music": service.models("music").await?,
        "voices": service.voices().await?,
    }))
}
