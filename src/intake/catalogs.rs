//! The catalogs in force: from the service when it answers, else as they were last seen.

use serde_json::{Value, json};

use crate::api::{Service, ServiceError};
use crate::clock::Clock;
use crate::domain::quote::Catalog;
use crate::domain::time::{Millis, Timestamp};
use crate::store::{Store, StoreError};

/// How long a catalog may be used without asking again (Catalog caching).
const FRESH_FOR: Millis = Millis::from_secs(3600);

/// Catalogs, and how old they are.
#[derive(Debug)]
pub struct Catalogs {
    /// Read and typed.
    pub catalog: Catalog,
    /// When the service gave them.
    pub fetched: Timestamp,
    /// Why they could not be renewed, when they are older than they should be.
    pub stale_because: Option<String>,
}

/// There are no catalogs at all.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The service does not answer, and none were kept.
    #[error("no catalog: {0}")]
    Service(#[from] ServiceError),
    /// The state refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Loads the catalogs: kept ones while they are fresh, else the service's, else kept ones.
///
/// # Errors
/// [`CatalogError`] when there are none.
pub async fn load(service: &Service, store: &Store, clock: &Clock) -> Result<Catalogs, CatalogError> {
    let kept = store.kept_catalogs()?;
    let now = clock.now().wall;
    if let Some((fetched, raw)) = &kept
        && now.since(*fetched) < FRESH_FOR
        && *fetched <= now
    {
        return Ok(Catalogs { catalog: read(raw), fetched: *fetched, stale_because: None });
    }
    match fetch(service).await {
        Ok(raw) => {
            store.keep_catalogs(now, &raw)?;
            Ok(Catalogs { catalog: read(&raw), fetched: now, stale_because: None })
        }
        Err(error) => match kept {
            Some((fetched, raw)) => {
                Ok(Catalogs { catalog: read(&raw), fetched, stale_because: Some(error.to_string()) })
            }
            None => Err(error.into()),
        },
    }
}

async fn fetch(service: &Service) -> Result<Value, ServiceError> {
    Ok(json!({
        "video": service.models("video").await?,
        "image": service.models("image").await?,
        "music": service.models("music").await?,
        "voices": service.voices().await?,
    }))
}

fn read(raw: &Value) -> Catalog {
    Catalog::of(&raw["video"], &raw["image"], &raw["music"], &raw["voices"])
}
