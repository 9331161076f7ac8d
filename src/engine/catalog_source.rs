//! Where the engine gets the catalogs in force.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use crate::domain::quote::{Catalog, Surcharges};
use crate::store::StoreError;

/// The catalogs that are on their way, or why there are none.
pub type CatalogRefresh<'a> = Pin<Box<dyn Future<Output = Result<Arc<Catalog>, String>> + Send + 'a>>;

/// Where the engine gets the catalogs in force.
pub trait CatalogSource: Debug + Send + Sync {
    /// Asks the service, however young the kept catalogs are; only the first time may those be given that were just fetched for
    /// this process. Where it does not answer, the kept ones go on; why there are none is the error.
    fn renew(&self) -> CatalogRefresh<'_>;

    /// Keeps what was charged above the catalogs' prices for later plans.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    fn keep(&self, surcharges: &Surcharges) -> Result<(), StoreError>;
}
