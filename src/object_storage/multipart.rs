//! Large files: put into a store in parts, several at once. What is there already is written down, so that an upload which
//! broke off, or whose process was killed, continues with the missing parts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as ObjectPath;
use object_store::{Attributes, PutMultipartOptions, PutPayload};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::task::{JoinError, JoinSet};

use crate::domain::hex::hex;
use crate::failpoint;
use crate::object_storage::{Expected, PART_BYTES, PARTS_AT_ONCE};

/// Most parts of an object; Amazon takes no more.
const PARTS_MAX: u64 = 10_000;

/// What became of a part: its number, and what the store calls it.
type PutPart = Result<(usize, String), object_store::Error>;

/// Why an upload in parts did not become an object that may be completed.
#[derive(Debug)]
pub(super) enum PartsError {
    /// The file is not what it was.
    Changed(String),
    /// The store refuses or cannot be reached.
    Storage(object_store::Error),
}

/// An upload that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// Where the object is to be.
    address: String,
    sha256: String,
    bytes: u64,
    part_bytes: usize,
    /// Its name at the store.
    upload: String,
    /// What the store calls the parts that it has, by their numbers.
    parts: BTreeMap<usize, String>,
}

/// A file that goes into a store in parts.
pub(super) struct PartedUpload<'a> {
    pub(super) store: &'a Arc<dyn MultipartStore>,
    /// Where uploads are written down; nothing where they begin anew each time.
    pub(super) folder: Option<&'a Path>,
    pub(super) address: String,
    pub(super) path: &'a ObjectPath,
    pub(super) expected: Expected<'a>,
}

/// All parts are in the store; nothing is an object yet.
#[derive(Debug)]
pub(super) struct Parts {
    upload: String,
    ids: Vec<PartId>,
}

impl PartedUpload<'_> {
    /// Puts the parts that are missing into the store, and hashes the whole file on the way.
    ///
    /// # Errors
    /// [`PartsError`]. What is in the store is gone on with the next time.
    pub(super) async fn put_parts(
        &self,
        reader: &mut File,
        attributes: Attributes,
    ) -> Result<Parts, PartsError> {
        let mut progress = match self.begun().await {
            Some(progress) => {
                let (there, address) = (progress.parts.len(), &self.address);
                tracing::debug!(address, there, "an upload in parts is continued");
                progress
            }
            None => self.begin(attributes).await?,
        };
        let (mut hash, mut under_way, mut index) = (Sha256::new(), JoinSet::new(), 0);
        loop {
            let content = self.next_part(reader).await?;
            if content.is_empty() {
                break;
            }
            hash.update(&content);
            if !progress.parts.contains_key(&index) {
                while under_way.len() >= PARTS_AT_ONCE {
                    self.part_ended(under_way.join_next().await, &mut progress).await?;
                }
                let (store, path, upload) = (self.store.clone(), self.path.clone(), progress.upload.clone());
                under_way.spawn(async move {
                    let put = store.put_part(&path, &upload, index, PutPayload::from(content)).await;
                    put.map(|part| (index, part.content_id))
                });
            }
            index += 1;
        }
        while !under_way.is_empty() {
            self.part_ended(under_way.join_next().await, &mut progress).await?;
        }
        if hex(&hash.finalize()) != self.expected.sha256 {
            self.abort(&progress.upload).await;
            return Err(PartsError::Changed("changed since it was read".to_owned()));
        }
        let ids = progress.parts.into_values().map(|content_id| PartId { content_id }).collect();
        Ok(Parts { upload: progress.upload, ids })
    }

    /// Makes an object of the parts.
    ///
    /// # Errors
    /// The store refuses or cannot be reached.
    pub(super) async fn complete(&self, parts: Parts) -> Result<(), object_store::Error> {
        failpoint::hit("completing-parts");
        let completed = self.store.complete_multipart(self.path, &parts.upload, parts.ids).await;
        if completed.is_ok() || completed.as_ref().is_err_and(is_unknown) {
            self.forget().await;
        }
        completed.map(drop)
    }

    /// Gives an upload up.
    pub(super) async fn give_up(&self, parts: &Parts) {
        self.abort(&parts.upload).await;
    }

    async fn abort(&self, upload: &String) {
        // What is left of it the store's own rule for unfinished uploads removes.
        let _ = self.store.abort_multipart(self.path, upload).await;
        self.forget().await;
    }

    async fn begin(&self, attributes: Attributes) -> Result<Progress, PartsError> {
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let begun = self.store.create_multipart_opts(self.path, options).await;
        let progress = Progress {
            address: self.address.clone(),
            sha256: self.expected.sha256.to_owned(),
            bytes: self.expected.bytes,
            part_bytes: part_bytes(self.expected.bytes),
            upload: begun.map_err(PartsError::Storage)?,
            parts: BTreeMap::new(),
        };
        self.write_down(&progress).await;
        Ok(progress)
    }

    async fn part_ended(
        &self,
        ended: Option<Result<PutPart, JoinError>>,
        progress: &mut Progress,
    ) -> Result<(), PartsError> {
        match ended {
            Some(Ok(Ok((index, content_id)))) => {
                progress.parts.insert(index, content_id);
                self.write_down(progress).await;
                failpoint::hit("part-stored");
                Ok(())
            }
            Some(Ok(Err(error))) => {
                // The store knows nothing of it any more: the next one begins anew.
                if is_unknown(&error) {
                    self.forget().await;
                }
                Err(PartsError::Storage(error))
            }
            Some(Err(source)) => Err(PartsError::Storage(object_store::Error::JoinError { source })),
            None => Ok(()),
        }
    }

    async fn next_part(&self, reader: &mut File) -> Result<Vec<u8>, PartsError> {
        let mut content = Vec::new();
        let part_bytes = part_bytes(self.expected.bytes);
        let read = reader.take(part_bytes as u64).read_to_end(&mut content).await;
        read.map_err(|error| PartsError::Changed(format!("cannot be read any more: {error}")))?;
        Ok(content)
    }

    /// The file that an upload is written down in: one for each object and content.
    fn file(&self) -> Option<PathBuf> {
        let mut hash = Sha256::new();
        hash.update(self.address.as_bytes());
        hash.update(self.expected.sha256.as_bytes());
        Some(self.folder?.join(format!("{}.json", hex(&hash.finalize()))))
    }

    async fn begun(&self) -> Option<Progress> {
        let text = tokio::fs::read(self.file()?).await.ok()?;
        let progress: Progress = serde_json::from_slice(&text).ok()?;
        let is_this = progress.address == self.address
            && progress.sha256 == self.expected.sha256
            && progress.bytes == self.expected.bytes
            && progress.part_bytes == part_bytes(self.expected.bytes);
        is_this.then_some(progress)
    }

    /// Nothing waits for the device: what a power cut takes of it is uploaded once more.
    async fn write_down(&self, progress: &Progress) {
        let Some(file) = self.file() else { return };
        let write = || -> io::Result<()> {
            fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
            let draft = file.with_extension("draft");
            fs::write(&draft, serde_json::to_vec(progress)?)?;
            fs::rename(&draft, &file)
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "an upload in parts is not written down; it begins anew where it breaks off");
        }
    }

    async fn forget(&self) {
        if let Some(file) = self.file() {
            // It may never have been written.
            let _ = tokio::fs::remove_file(file).await;
        }
    }
}

/// Whether the store knows nothing of the upload any more: it was completed, given up or removed by a rule of the store.
fn is_unknown(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
        || super::error_text::code_of(error)
            .is_some_and(|code| code.starts_with("NoSuchUpload") || code == "InvalidPart")
}

/// How large a part is: as many as an object may have hold the file.
fn part_bytes(bytes: u64) -> usize {
    let least = usize::try_from(bytes.div_ceil(PARTS_MAX)).unwrap_or(usize::MAX);
    least.max(PART_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_very_large_file_has_no_more_parts_than_a_store_takes() {
        assert_eq!(part_bytes(20 << 20), PART_BYTES);
        let bytes = 200 << 30;
        assert!(bytes / part_bytes(bytes) as u64 <= PARTS_MAX && part_bytes(bytes) > PART_BYTES);
    }
}
