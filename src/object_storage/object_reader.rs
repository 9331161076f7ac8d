//! An object, read from its beginning to its end: where the transfer breaks off, it goes on from there.

use std::sync::Arc;

use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use hyper::body::Bytes;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, ObjectStore};

/// See the module's documentation.
pub(super) struct ObjectReader {
    store: Arc<dyn ObjectStore>,
    path: Path,
    bytes: u64,
    e_tag: Option<String>,
    content: BoxStream<'static, Result<Bytes, Error>>,
    /// How much has come.
    came: u64,
    /// How much had come when it was last asked for.
    asked_at: u64,
}

impl ObjectReader {
    /// Asks for an object.
    ///
    /// # Errors
    /// The store refuses or cannot be reached, or has no such object.
    pub(super) async fn open(store: &Arc<dyn ObjectStore>, path: Path) -> Result<ObjectReader, Error> {
        let found = store.get_opts(&path, GetOptions::default()).await?;
        let (bytes, e_tag) = (found.meta.size, found.meta.e_tag.clone());
        let (store, content) = (store.clone(), found.into_stream());
        Ok(ObjectReader { store, path, bytes, e_tag, content, came: 0, asked_at: 0 })
    }

    /// Its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What comes next; nothing at its end.
    ///
    /// # Errors
    /// The transfer broke off before anything more came, or the object is not the same any more.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.content.try_next().await {
                Ok(Some(chunk)) => {
                    self.came = self.came.saturating_add(chunk.len() as u64);
                    return Ok(Some(chunk));
                }
                Ok(None) => return Ok(None),
                Err(error) => match self.rest(&error).await? {
                    Some(rest) => self.content = rest.into_stream(),
                    None => return Err(error),
                },
            }
        }
    }

    /// What is left, asked for again; nothing where that is of no use.
    async fn rest(&mut self, error: &Error) -> Result<Option<GetResult>, Error> {
        if self.e_tag.is_none() || self.came == self.asked_at || self.came >= self.bytes {
            return Ok(None);
        }
        tracing::debug!(%error, came = self.came, of = self.bytes, "a transfer from the store goes on");
        self.asked_at = self.came;
        let range = Some(GetRange::Offset(self.came));
        let options = GetOptions { range, if_match: self.e_tag.clone(), ..GetOptions::default() };
        match self.store.get_opts(&self.path, options).await {
            Err(Error::Precondition { .. }) => Ok(None),
            found => found.map(Some),
        }
    }
}
