//! Reading the catalogs once more before a row is refused that they may list by now: a model that was just released works at
//! once, and not only when the stored catalogs are an hour old.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::domain::quote::{Catalog, CatalogPart};
use crate::domain::request::{Kind, Request};
use crate::domain::time::Millis;

/// A catalog that is older than this is read once more before a row is refused for what it does not list, and not more often
/// either: whatever a manifest has of misspelt rows, it costs the service a few requests a minute at most.
pub const CATALOG_RECENT: Millis = Millis::from_secs(60);

/// Reads the catalogs again; nothing where there are no others.
type ReadAgain<'a> = Box<dyn Fn() -> Option<Arc<Catalog>> + Send + Sync + 'a>;

/// Notes while a manifest is validated that newer catalogs may accept more of it, and reads them.
#[derive(Default)]
pub struct NewerCatalog<'a> {
    is_wanted: AtomicBool,
    read: Option<ReadAgain<'a>>,
}

impl fmt::Debug for NewerCatalog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewerCatalog").field("is_wanted", &self.is_wanted).finish_non_exhaustive()
    }
}

impl<'a> NewerCatalog<'a> {
    /// Reads them with `read`, where they are wanted.
    pub fn new(read: impl Fn() -> Option<Arc<Catalog>> + Send + Sync + 'a) -> NewerCatalog<'a> {
        NewerCatalog { is_wanted: AtomicBool::new(false), read: Some(Box::new(read)) }
    }

    /// A row is refused that they may accept.
    pub(super) fn want(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether such a row was refused.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// The catalogs as they are by now, where they are wanted and there are others.
    pub(super) fn read_if_wanted(&self) -> Option<Arc<Catalog>> {
        let read = self.read.as_ref().filter(|_| self.is_wanted())?;
        read()
    }
}

/// Whether the catalog that a request of a kind needs is there and does not list its model, or its voice.
pub(super) fn is_unlisted(kind: Kind, request: &Request, catalog: &Catalog) -> bool {
    let Some(part) = CatalogPart::needed_by(kind).filter(|part| catalog.why_missing(*part).is_none()) else {
        return false;
    };
    let is_asked_for = |id: &Option<String>, is_listed: &dyn Fn(&str) -> bool| {
        id.as_deref().is_some_and(|id| !is_listed(id))
    };
    match part {
        CatalogPart::Video => is_asked_for(&request.model, &|id| catalog.video.get(id).is_some()),
        CatalogPart::Image => is_asked_for(&request.model, &|id| catalog.image.get(id).is_some()),
        CatalogPart::Music => is_asked_for(&request.model, &|id| catalog.music.get(id).is_some()),
        CatalogPart::Voices => is_asked_for(&request.voice_id, &|id| catalog.voices.voices.get(id).is_some()),
    }
}

/// The same of a request whose kind is not known: no catalog of models lists its model.
pub(super) fn is_of_unlisted_model(request: &Request, catalog: &Catalog) -> bool {
    let kinds = [Kind::Video, Kind::Image, Kind::Music];
    request.model.is_some() && kinds.into_iter().all(|kind| is_unlisted(kind, request, catalog))
}
