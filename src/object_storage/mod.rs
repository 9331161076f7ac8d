//! Object stores (Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage): files are put into a
//! bucket, and links are signed by which others can fetch them.
//!
//! Architecture invariant: the only user of the `object_store` crate, which has an HTTP client and retries of its own. The
//! service's API key never comes here, and the store's credentials leave this module in no value: a signed link is sent to
//! the service and stored nowhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as ObjectPath;
use object_store::signer::{Method, Signer};
use object_store::{
    Attribute, AttributeValue, Attributes, ClientOptions, GetOptions, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, RetryConfig, UpdateVersion, WriteMultipart,
};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::{Host, Url};

/// Files up to this size go in one request; a part of a larger one is as large, in bytes.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Parts of a file that are under way at once.
const PARTS_AT_ONCE: usize = 4;
/// How long one request is repeated by itself, with its waits.
const RETRY_FOR: Duration = Duration::from_secs(30);
/// Timeout of one request with its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest that a link of S3 can be valid; the others are held to it, too.
pub const LINK_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

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
}

impl StorageError {
    /// Whether the credentials may not do that.
    pub fn is_denied(&self) -> bool {
        self.is_denied
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
    #[error("the object at {0} does not hold what was put there")]
    Changed(String),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The store refuses, or cannot be reached.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What is said of an object beside its content.
pub type Metadata<'a> = [(&'static str, &'a str)];

/// An object as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundObject {
    /// Size in bytes.
    pub bytes: u64,
    metadata: BTreeMap<String, String>,
    version: UpdateVersion,
}

impl FoundObject {
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

/// A prefix of a bucket. Cheap to clone.
#[derive(Clone)]
pub struct ObjectStorage {
    /// As it is configured, without a slash at its end.
    url: String,
    prefix: ObjectPath,
    store: Arc<dyn ObjectStore>,
    signer: Arc<dyn Signer>,
}

impl fmt::Debug for ObjectStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStorage").field("url", &self.url).finish_non_exhaustive()
    }
}

impl ObjectStorage {
    /// The store at the address that a key of the configuration gives, `inputs.store` for one. Credentials come from where the command line clients of the stores take them:
    /// environment, files of workload identity, metadata of the machine.
    ///
    /// # Errors
    /// What is wrong with the address, or with settings of the environment.
    pub fn open(key: &'static str, url: &Url) -> Result<ObjectStorage, BadStore> {
        let bad = |why: String| BadStore(format!("{key}: {url}: {why}"));
        let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
        let bucket = bucket.ok_or_else(|| bad("has no bucket; write it as s3://bucket/prefix".to_owned()))?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            let why = "holds more than a bucket and a prefix; credentials come from the environment";
            return Err(BadStore(format!("{key}: {why}")));
        }
        let prefix = ObjectPath::from_url_path(url.path()).map_err(|error| bad(error.to_string()))?;
        let refused = |error: object_store::Error| bad(told(&error));
        let retry = RetryConfig { max_retries: 5, retry_timeout: RETRY_FOR, ..RetryConfig::default() };
        let client = ClientOptions::new().with_timeout(REQUEST_TIMEOUT);
        let (store, signer): (Arc<dyn ObjectStore>, Arc<dyn Signer>) = match url.scheme() {
            "s3" => {
                let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
                let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
                // A store on this very machine needs no TLS.
                let client = client.with_allow_http(endpoint.as_deref().is_some_and(is_loopback));
                let builder = builder.with_client_options(client).with_checksum_algorithm(Checksum::SHA256);
                both(builder.build().map_err(refused)?)
            }
            "gs" => {
                let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
                both(builder.with_retry(retry).with_client_options(client).build().map_err(refused)?)
            }
            "az" => {
                let builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket);
                both(builder.with_retry(retry).with_client_options(client).build().map_err(refused)?)
            }
            other => return Err(bad(format!("{other}: is not a store; s3:, gs: and az: are"))),
        };
        Ok(ObjectStorage { url: url.as_str().trim_end_matches('/').to_owned(), prefix, store, signer })
    }

    /// Where an object lies: `s3://bucket/prefix/NAME`.
    pub fn address_of(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// The name of the object at an address of this store; nothing for one of another.
    pub fn name_in<'a>(&self, address: &'a str) -> Option<&'a str> {
        address.strip_prefix(self.url.as_str())?.strip_prefix('/')
    }

    fn path_of(&self, name: &str) -> ObjectPath {
        self.prefix.parts().chain(ObjectPath::from(name).parts()).collect()
    }

    /// Asks for an object that is not there. Nothing is changed.
    ///
    /// # Errors
    /// [`StorageError`]: the store cannot be reached, or refuses the credentials. Credentials that may only read and
    /// write what is there are told of no missing object; that is enough.
    pub async fn check(&self) -> Result<(), StorageError> {
        match self.store.get(&self.path_of("inputs/none")).await {
            Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) if error.to_string().contains("<Code>AccessDenied</Code>") => Ok(()),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// The size of an object in bytes; nothing where there is none. Credentials that may not list a bucket are refused
    /// where there is none.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn size_of(&self, name: &str) -> Result<Option<u64>, StorageError> {
        match self.store.head(&self.path_of(name)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// Removes an object. One that is not there is removed.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn remove(&self, name: &str) -> Result<(), StorageError> {
        match self.store.delete(&self.path_of(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// An object with what was said of it; nothing where there is none.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn find(&self, name: &str) -> Result<Option<FoundObject>, StorageError> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = match self.store.get_opts(&self.path_of(name), options).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.error(&error)),
        };
        let metadata = found.attributes.iter().filter_map(|(attribute, value)| match attribute {
            Attribute::Metadata(name) => Some((name.to_string(), value.to_string())),
            _ => None,
        });
        let metadata = metadata.collect();
        let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
        let version = UpdateVersion { e_tag, version };
        Ok(Some(FoundObject { bytes: found.meta.size, metadata, version }))
    }

    /// Puts a file into the store, hashed once more on its way: one that changed since does not become an object.
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
        let changed = |why: String| PutError::Changed(format!("{} {why}", file.display()));
        let unread = |error: std::io::Error| changed(format!("cannot be read any more: {error}"));
        let mut reader = File::open(file).await.map_err(unread)?;
        let said = metadata.iter().map(|(name, value)| {
            (Attribute::Metadata((*name).into()), AttributeValue::from((*value).to_owned()))
        });
        let content_type = AttributeValue::from(expected.content_type.to_owned());
        let attributes: Attributes = said.chain([(Attribute::ContentType, content_type)]).collect();
        let path = self.path_of(name);
        let mut hash = Sha256::new();
        let is_as_it_was = |hash: Sha256| format!("{:x}", HexOf(&hash.finalize())) == expected.sha256;
        if expected.bytes <= PART_BYTES as u64 {
            let mut content = Vec::new();
            let limit = expected.bytes.saturating_add(1);
            reader.take(limit).read_to_end(&mut content).await.map_err(unread)?;
            hash.update(&content);
            if !is_as_it_was(hash) {
                return Err(changed("changed since it was read".to_owned()));
            }
            let mode = match replaces {
                Replaces::Any => PutMode::Overwrite,
                Replaces::Nothing => PutMode::Create,
                Replaces::This(found) => PutMode::Update(found.version.clone()),
            };
            let options = PutOptions { mode, attributes, ..PutOptions::default() };
            let put = self.store.put_opts(&path, PutPayload::from(content), options).await;
            return put.map(drop).map_err(|error| match error {
                object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => {
                    PutError::Taken
                }
                other => self.error(&other).into(),
            });
        }
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let upload = self.store.put_multipart_opts(&path, options).await;
        let upload = upload.map_err(|error| self.error(&error))?;
        let mut writer = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        let mut buffer = vec![0; 256 * 1024];
        let read = loop {
            let read = match reader.read(&mut buffer).await {
                Ok(0) => break Ok(()),
                Ok(read) => buffer.get(..read).unwrap_or_default(),
                Err(error) => break Err(unread(error)),
            };
            hash.update(read);
            if let Err(error) = writer.wait_for_capacity(PARTS_AT_ONCE).await {
                break Err(self.error(&error).into());
            }
            writer.write(read);
        };
        let read = match read {
            Ok(()) if !is_as_it_was(hash) => Err(changed("changed since it was read".to_owned())),
            Ok(()) => self.may_replace(name, replaces).await,
            other => other,
        };
        if let Err(error) = read {
            // What is left of it the store's own rule for unfinished uploads removes.
            let _ = writer.abort().await;
            return Err(error);
        }
        writer.finish().await.map(drop).map_err(|error| self.error(&error).into())
    }

    async fn may_replace(&self, name: &str, replaces: Replaces<'_>) -> Result<(), PutError> {
        let may = match replaces {
            Replaces::Any => true,
            Replaces::Nothing => self.find(name).await?.is_none(),
            Replaces::This(before) => self.find(name).await?.as_ref() == Some(before),
        };
        if may { Ok(()) } else { Err(PutError::Taken) }
    }

    /// Copies an object to a file that it makes, and checks that it holds what it should. The file is on the device on
    /// return.
    ///
    /// # Errors
    /// [`GetError`]; what came of the file may then be there.
    pub async fn get(&self, name: &str, file: &Path, expected: Expected<'_>) -> Result<(), GetError> {
        let storage = |error: object_store::Error| GetError::Storage(self.error(&error));
        let found = self.store.get(&self.path_of(name)).await.map_err(storage)?;
        let changed = || GetError::Changed(self.address_of(name));
        if found.meta.size != expected.bytes {
            return Err(changed());
        }
        let mut content = found.into_stream();
        let mut hash = Sha256::new();
        let mut writer = File::create(file).await?;
        while let Some(chunk) = content.try_next().await.map_err(storage)? {
            hash.update(&chunk);
            writer.write_all(&chunk).await?;
        }
        writer.flush().await?;
        writer.sync_data().await?;
        match format!("{:x}", HexOf(&hash.finalize())) == expected.sha256 {
            true => Ok(()),
            false => Err(changed()),
        }
    }

    /// A link by which anybody can fetch an object, for at most [`LINK_MAX`].
    ///
    /// # Errors
    /// [`StorageError`]: where no credentials are to be found.
    pub async fn signed_link(&self, name: &str, valid_for: Duration) -> Result<String, StorageError> {
        let signed = self.signer.signed_url(Method::GET, &self.path_of(name), valid_for.min(LINK_MAX)).await;
        signed.map(String::from).map_err(|error| self.error(&error))
    }

    fn error(&self, error: &object_store::Error) -> StorageError {
        let is_denied = matches!(error, object_store::Error::PermissionDenied { .. });
        StorageError { text: format!("{}: {}", self.url, told(error)), is_denied }
    }
}

fn both<T: ObjectStore + Signer>(store: T) -> (Arc<dyn ObjectStore>, Arc<dyn Signer>) {
    let store = Arc::new(store);
    (store.clone(), store)
}

/// Bytes in lowercase hex.
struct HexOf<'a>(&'a [u8]);

impl fmt::LowerHex for HexOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn is_loopback(endpoint: &str) -> bool {
    let url = Url::parse(endpoint).ok();
    url.is_some_and(|url| match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    })
}

/// What a store says, with what to do about it where that is known.
fn told(error: &object_store::Error) -> String {
    use object_store::Error;
    match error {
        Error::Unauthenticated { .. } => {
            "the store does not accept the credentials; see those of the environment".to_owned()
        }
        Error::PermissionDenied { .. } => {
            "the store refuses the credentials, or they may not do that there; see docs/inputs.md".to_owned()
        }
        other => {
            let mut text = other.to_string();
            let mut source = std::error::Error::source(other);
            while let Some(error) = source {
                let said = error.to_string();
                if !text.contains(&said) {
                    text = format!("{text}: {said}");
                }
                source = error.source();
            }
            text
        }
    }
}
