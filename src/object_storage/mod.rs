//! Object stores (Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage, a folder): files are put
//! into a bucket, and links are signed by which others can fetch them.
//!
//! Architecture invariant: the only user of the `object_store` crate, which has an HTTP client and retries of its own. The
//! service's API key never comes here, and the store's credentials leave this module in no value: a signed link is sent to
//! the service and stored nowhere.

mod aws_credentials;
mod bucket;
mod error_text;
mod folder;
mod multipart;
pub mod object_metadata;
mod object_reader;
mod store_variables;
mod transfer_limits;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::UpdateVersion;
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use url::Url;

pub use self::aws_credentials::CredentialLife;
use self::bucket::{Bucket, Refused};
use self::folder::Folder;
use self::object_metadata::Metadata;
use self::transfer_limits::TransferLimits;
use crate::domain::hex::hex;

/// Files up to this size go in one request; a part of a larger one is as large, in bytes.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Parts of a file that are under way at once.
const PARTS_AT_ONCE: usize = 4;
/// Longest that a link of S3 can be valid; the others are held to it, too.
pub const LINK_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The variables of the environment by their names.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The store of a configuration cannot be used as it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadStore(String);

/// The store did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct StorageError {
    text: String,
    /// The credentials may not do that.
    is_denied: bool,
    /// There is no room for anything more.
    is_full: bool,
    /// The transfer broke off.
    is_cut: bool,
}

impl StorageError {
    /// Whether the credentials may not do that.
    pub fn is_denied(&self) -> bool {
        self.is_denied
    }

    /// Whether the store has no room for anything more, whatever it is called.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether the store refused nothing: the connection broke off, or was silent for too long.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// A file was not put into the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// It is not what it was when it was read before.
    #[error("{0}")]
    Changed(String),
    /// An object that may not be replaced has the name, or took it meanwhile.
    #[error("the name is taken by another object")]
    Taken,
    /// The store refuses, or cannot be reached.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// An object was not copied to a file.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// It does not hold what it should.
    #[error("the content of the object at {0} differs from what was uploaded")]
    Changed(String),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The store refuses, or cannot be reached.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// An object as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundObject {
    /// Size in bytes.
    pub bytes: u64,
    metadata: BTreeMap<String, String>,
    version: UpdateVersion,
}

impl FoundObject {
    /// One of which nothing is known.
    fn of_others() -> FoundObject {
        FoundObject {
            bytes: 0,
            metadata: BTreeMap::new(),
            version: UpdateVersion { e_tag: None, version: None },
        }
    }

    /// What was said of it under a name when it was put there.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata.get(name).map(String::as_str)
    }
}

/// Which object a file may replace.
#[derive(Debug, Clone, Copy)]
pub enum Replaces<'a> {
    /// Any: the name says what it holds.
    Any,
    /// None: there must be none of the name.
    Nothing,
    /// This one, as it was found.
    This(&'a FoundObject),
}

/// What a file has to hold for it to be put into the store.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in lowercase hex.
    pub sha256: &'a str,
    /// Media type that the object gets.
    pub content_type: &'a str,
}

/// Which object a file may replace, without borrowing it.
#[derive(Debug, Clone)]
enum OwnedReplaces {
    Any,
    Nothing,
    This(FoundObject),
}

/// A prefix of a bucket, or a folder. Cheap to clone.
#[derive(Clone)]
pub struct ObjectStorage {
    /// The address of its objects without their names and a slash at its end: in it the prefix is as it is in their keys.
    address: String,
    /// What older versions wrote in its place, where that is something else: the prefix as it stands in a URL.
    former_address: Option<String>,
    backend: Backend,
}

#[derive(Clone)]
enum Backend {
    Bucket(Arc<Bucket>),
    Folder(Folder),
}

impl fmt::Debug for ObjectStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStorage").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ObjectStorage {
    /// The store at the address that a key of the configuration gives, `inputs.store` for one. Credentials come from where
    /// the command line clients of the stores take them: environment, profile files, files of workload identity, metadata of
    /// the machine. Large uploads that broke off are continued where `unfinished` is a folder to note them in.
    ///
    /// # Errors
    /// What is wrong with the address, or with settings of the environment.
    pub fn open(
        key: &'static str,
        url: &Url,
        environment: Environment<'_>,
        unfinished: Option<PathBuf>,
    ) -> Result<ObjectStorage, BadStore> {
        let bad = |why: String| BadStore(format!("{key}: {url}: {why}"));
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            let why = "holds more than a bucket and a prefix; credentials come from the environment";
            return Err(BadStore(format!("{key}: {why}")));
        }
        if url.fragment().is_some() {
            return Err(bad("write # as %23, and % as %25".to_owned()));
        }
        let as_url = url.as_str().trim_end_matches('/').to_owned();
        if url.scheme() == "file" {
            let path = url.to_file_path().map_err(|()| bad("is not a folder of this machine".to_owned()))?;
            let backend = Backend::Folder(Folder::new(path));
            return Ok(ObjectStorage { address: as_url, former_address: None, backend });
        }
        let bucket = Bucket::open(url, environment, unfinished, TransferLimits::default()).map_err(bad)?;
        let place = format!("{}://{}/{}", url.scheme(), url.host_str().unwrap_or_default(), bucket.prefix());
        let address = place.trim_end_matches('/').to_owned();
        let former_address = (as_url != address).then_some(as_url);
        Ok(ObjectStorage { address, former_address, backend: Backend::Bucket(Arc::new(bucket)) })
    }

    /// The same store, as what takes the place of `before` in this process: of the same folder it is known how it was found.
    #[must_use]
    pub fn in_place_of(self, before: &ObjectStorage) -> ObjectStorage {
        match (self.backend, &before.backend) {
            (Backend::Folder(folder), Backend::Folder(before)) => {
                ObjectStorage { backend: Backend::Folder(folder.in_place_of(before)), ..self }
            }
            (backend, _) => ObjectStorage { backend, ..self },
        }
    }

    /// The folder that it is, where it is one.
    pub fn folder(&self) -> Option<&Path> {
        match &self.backend {
            Backend::Bucket(_) => None,
            Backend::Folder(folder) => Some(folder.root()),
        }
    }

    /// Where an object lies: `s3://bucket/prefix/NAME`.
    pub fn address_of(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// The name of the object at an address of this store; nothing for one of another.
    pub fn name_in<'a>(&self, address: &'a str) -> Option<&'a str> {
        let below = |prefix: &str| address.strip_prefix(prefix)?.strip_prefix('/');
        below(&self.address).or_else(|| below(self.former_address.as_deref()?))
    }

    /// The name under which older versions put an object of this name, where that is another one. It may still be there.
    pub fn former_name(&self, name: &str) -> Option<String> {
        match &self.backend {
            Backend::Bucket(_) => Bucket::former_name(name),
            Backend::Folder(_) => None,
        }
    }

    /// Asks for an object that is not there. Nothing is changed.
    ///
    /// # Errors
    /// [`StorageError`]: the store cannot be reached, refuses the credentials, or has no such bucket. Credentials that may
    /// only read and write what is there are told of no missing object; that is enough.
    pub async fn check(&self) -> Result<(), StorageError> {
        match &self.backend {
            Backend::Bucket(bucket) => bucket.check().await.map_err(|error| self.error(&error)),
            Backend::Folder(folder) => in_folder(folder, Folder::check).await?,
        }
    }

    /// Whether the store takes objects at all: it is asked to replace one that is not there. Nothing is changed.
    ///
    /// # Errors
    /// [`StorageError`]: as with [`ObjectStorage::check`], or the credentials may not write.
    pub async fn check_writing(&self) -> Result<(), StorageError> {
        match &self.backend {
            Backend::Bucket(bucket) => bucket.check_writing().await.map_err(|error| self.error(&error)),
            // That makes a file.
            Backend::Folder(_) => self.check().await,
        }
    }

    /// The size of an object in bytes; nothing where there is none. Credentials that may not list a bucket are refused
    /// where there is none.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn size_of(&self, name: &str) -> Result<Option<u64>, StorageError> {
        match &self.backend {
            Backend::Bucket(bucket) => bucket.size_of(name).await.map_err(|error| self.error(&error)),
            Backend::Folder(folder) => {
                let name = name.to_owned();
                in_folder(folder, move |folder| folder.size_of(&name)).await?
            }
        }
    }

    /// The same, where nothing means that the object is missing in a bucket that is there. It is looked for twice: the bucket
    /// may have come back in between.
    ///
    /// # Errors
    /// [`StorageError`]: there is no such bucket, for one.
    pub async fn size_in_bucket(&self, name: &str) -> Result<Option<u64>, StorageError> {
        match self.size_of(name).await? {
            None => {
                self.check().await?;
                self.size_of(name).await
            }
            found => Ok(found),
        }
    }

    /// Removes an object. One that is not there is removed.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn remove(&self, name: &str) -> Result<(), StorageError> {
        match &self.backend {
            Backend::Bucket(bucket) => bucket.remove(name).await.map_err(|error| self.error(&error)),
            Backend::Folder(folder) => {
                let name = name.to_owned();
                in_folder(folder, move |folder| folder.remove(&name)).await?
            }
        }
    }

    /// An object with what was said of it; nothing where there is none.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn find(&self, name: &str) -> Result<Option<FoundObject>, StorageError> {
        match &self.backend {
            Backend::Bucket(bucket) => bucket.find(name).await.map_err(|error| self.error(&error)),
            Backend::Folder(folder) => {
                let name = name.to_owned();
                in_folder(folder, move |folder| folder.find(&name)).await?
            }
        }
    }

    /// Puts a file into the store, hashed once more on its way: one that changed since does not become an object. What
    /// became of it is confirmed on return: the store was given its SHA-256 to check, or was asked for all of it again.
    ///
    /// A file of one request replaces what it may by a condition that the store checks. For a larger one the object is
    /// looked at again right before it is completed.
    ///
    /// # Errors
    /// [`PutError`].
    pub async fn put(
        &self,
        name: &str,
        file: &Path,
        expected: Expected<'_>,
        metadata: &Metadata<'_>,
        replaces: Replaces<'_>,
    ) -> Result<(), PutError> {
        match &self.backend {
            Backend::Bucket(bucket) => {
                let put = bucket.put((name, self.address_of(name)), file, expected, metadata, replaces).await;
                put.map_err(|refused| match refused {
                    Refused::Changed(why) => PutError::Changed(format!("{} {why}", file.display())),
                    Refused::Taken => PutError::Taken,
                    Refused::Storage(error) => PutError::Storage(self.error(&error)),
                    Refused::Different => {
                        let text = format!("{} was uploaded, but its content differs", self.address_of(name));
                        PutError::Storage(StorageError {
                            text,
                            is_denied: false,
                            is_full: false,
                            is_cut: false,
                        })
                    }
                })
            }
            Backend::Folder(folder) => {
                let (name, file) = (name.to_owned(), file.to_owned());
                let (bytes, sha256) = (expected.bytes, expected.sha256.to_owned());
                let content_type = expected.content_type.to_owned();
                let metadata: Vec<_> =
                    metadata.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
                let replaces = match replaces {
                    Replaces::Any => OwnedReplaces::Any,
                    Replaces::Nothing => OwnedReplaces::Nothing,
                    Replaces::This(found) => OwnedReplaces::This(found.clone()),
                };
                in_folder(folder, move |folder| {
                    let expected = Expected { bytes, sha256: &sha256, content_type: &content_type };
                    let metadata: Vec<_> =
                        metadata.iter().map(|(name, value)| (*name, value.as_str())).collect();
                    folder.put(&name, &file, expected, &metadata, &replaces)
                })
                .await?
            }
        }
    }

    /// Whether an object holds what it says that it holds, where nothing confirmed that since it was put there: whose upload
    /// was killed or not answered may have put something else. A store that checks the SHA-256 of what it is sent is not asked.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn holds(&self, name: &str, expected: Expected<'_>) -> Result<bool, StorageError> {
        match &self.backend {
            Backend::Bucket(bucket) => bucket.holds(name, expected).await.map_err(|error| self.error(&error)),
            // Whatever is found there, its hash is that of its content.
            Backend::Folder(_) => Ok(true),
        }
    }

    /// Copies an object to a file that it makes, and checks that it holds what it should. The file is on the device on
    /// return.
    ///
    /// # Errors
    /// [`GetError`]; what came of the file may then be there.
    pub async fn get(&self, name: &str, file: &Path, expected: Expected<'_>) -> Result<(), GetError> {
        let bucket = match &self.backend {
            Backend::Bucket(bucket) => bucket,
            Backend::Folder(folder) => {
                let (name, file) = (name.to_owned(), file.to_owned());
                let (bytes, sha256) = (expected.bytes, expected.sha256.to_owned());
                return in_folder(folder, move |folder| {
                    let expected = Expected { bytes, sha256: &sha256, content_type: "" };
                    folder.get(&name, &file, expected)
                })
                .await?;
            }
        };
        let storage = |error: object_store::Error| GetError::Storage(self.error(&error));
        let mut content = bucket.get(name).await.map_err(storage)?;
        let changed = || GetError::Changed(self.address_of(name));
        if content.bytes() != expected.bytes {
            return Err(changed());
        }
        let mut hash = Sha256::new();
        let mut writer = File::create(file).await?;
        while let Some(chunk) = content.next().await.map_err(storage)? {
            hash.update(&chunk);
            writer.write_all(&chunk).await?;
        }
        writer.flush().await?;
        writer.sync_data().await?;
        match hex(&hash.finalize()) == expected.sha256 {
            true => Ok(()),
            false => Err(changed()),
        }
    }

    /// A link by which anybody can fetch an object, for at most [`LINK_MAX`].
    ///
    /// # Errors
    /// [`StorageError`]: where no credentials are to be found, or they can sign nothing.
    pub async fn signed_link(&self, name: &str, valid_for: Duration) -> Result<String, StorageError> {
        match &self.backend {
            Backend::Bucket(bucket) => {
                bucket.signed_link(name, valid_for).await.map_err(|error| self.error(&error))
            }
            Backend::Folder(_) => {
                let text = format!("{}: nobody else can fetch from a folder of this machine", self.address);
                Err(StorageError { text, is_denied: false, is_full: false, is_cut: false })
            }
        }
    }

    /// How long links can be valid that are signed now.
    ///
    /// # Errors
    /// [`StorageError`]: where no credentials are to be found.
    pub async fn credential_life(&self) -> Result<CredentialLife, StorageError> {
        match &self.backend {
            Backend::Bucket(bucket) => bucket.credential_life().await.map_err(|error| self.error(&error)),
            Backend::Folder(_) => Ok(CredentialLife::Lasting),
        }
    }

    fn error(&self, error: &object_store::Error) -> StorageError {
        let is_denied = matches!(error, object_store::Error::PermissionDenied { .. });
        let text = format!("{}: {}", self.address, error_text::explained(error));
        let (is_full, is_cut) = (error_text::is_full(error), error_text::is_cut(error));
        StorageError { text, is_denied, is_full, is_cut }
    }
}

/// Does something in a folder, off the runtime's threads.
async fn in_folder<T: Send + 'static>(
    folder: &Folder,
    does: impl FnOnce(&Folder) -> T + Send + 'static,
) -> Result<T, StorageError> {
    let folder = folder.clone();
    let done = tokio::task::spawn_blocking(move || does(&folder)).await;
    done.map_err(|error| StorageError {
        text: error.to_string(),
        is_denied: false,
        is_full: false,
        is_cut: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(url: &str) -> Result<ObjectStorage, BadStore> {
        crate::api::install_tls_provider();
        ObjectStorage::open("output.store", &Url::parse(url).unwrap(), &|_| None, None)
    }

    #[test]
    fn addresses_hold_the_keys_of_objects_and_lead_back_to_their_names() {
        for (url, address) in [
            ("s3://media/out/", "s3://media/out/a b/1.png"),
            ("s3://media", "s3://media/a b/1.png"),
            ("s3://media/Fr\u{fc}hling 1", "s3://media/Fr\u{fc}hling 1/a b/1.png"),
            ("s3://media/Fr%C3%BChling%20%231", "s3://media/Fr\u{fc}hling #1/a b/1.png"),
            ("s3://media/100%25", "s3://media/100%/a b/1.png"),
        ] {
            let store = opened(url).unwrap();
            assert_eq!(store.address_of("a b/1.png"), address, "{url}");
            assert_eq!(store.name_in(address), Some("a b/1.png"), "{url}");
            assert_eq!(store.name_in("s3://media-2/out/a b/1.png"), None);
        }
        let store = opened("s3://media/Fr\u{fc}hling").unwrap();
        let former = "s3://media/Fr%C3%BChling/a b/1.png";
        assert_eq!(store.name_in(former), Some("a b/1.png"), "older versions wrote it");
        for url in ["s3://media/out#1", "file:///srv/out#1"] {
            let said = opened(url).unwrap_err().to_string();
            assert_eq!(said, format!("output.store: {url}: write # as %23, and % as %25"));
        }
    }
}
