//! A prefix of a bucket of Amazon, Google or Azure, or of what speaks their protocols.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{
    GcpSigningCredentialProvider, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey,
};
use object_store::multipart::MultipartStore;
use object_store::path::Path as ObjectPath;
use object_store::signer::{Method, Signer};
use object_store::{
    Attributes, ClientOptions, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, RetryConfig, UpdateVersion, WriteMultipart,
};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use url::Url;

use crate::domain::hex::hex;
use crate::domain::time::{Millis, Timestamp};
use crate::domain::url_policy::is_loopback;
use crate::failpoint;
use crate::object_storage::aws_credentials::{
    CredentialLife, CredentialWatch, ProfileCredentials, ProfileFiles, end_in,
};
use crate::object_storage::error_text::{
    code_of, is_bucket_missing, is_metadata_unreadable, is_there_but_denied,
};
use crate::object_storage::multipart::{PartedUpload, PartsError};
use crate::object_storage::object_metadata::{Metadata, attributes_of, metadata_in};
use crate::object_storage::object_reader::ObjectReader;
use crate::object_storage::store_variables::{check_endpoint, check_environment, check_name, set_variables};
use crate::object_storage::transfer_limits::{LimitedConnector, TransferLimits};
use crate::object_storage::{
    Environment, Expected, FoundObject, LINK_MAX, PART_BYTES, PARTS_AT_ONCE, Replaces,
};

/// How long a link is valid for certain that Google signs for an account whose key is not here: its own keys change.
const SIGNED_BY_GOOGLE_FOR: Millis = Millis::from_secs(12 * 3600);

/// See the module's documentation.
pub(super) struct Bucket {
    prefix: ObjectPath,
    store: Arc<dyn ObjectStore>,
    signer: Arc<dyn Signer>,
    /// Where uploads in parts can be continued.
    parts: Option<Arc<dyn MultipartStore>>,
    /// Where they are noted.
    unfinished: Option<PathBuf>,
    aws: Option<AwsCredentials>,
    google: Option<GcpSigningCredentialProvider>,
    /// Names of metadata are identifiers there.
    is_azure: bool,
    /// The store is not given the SHA-256 of what it is sent: an object is read once to confirm it.
    reads_back: bool,
}

/// Where credentials of Amazon's protocol come from.
struct AwsCredentials {
    provider: AwsCredentialProvider,
    profile: Option<Arc<ProfileCredentials>>,
    /// The end of those of the environment.
    end: Option<Timestamp>,
    watch: CredentialWatch,
}

/// Why a file was not put into a bucket.
#[derive(Debug)]
pub(super) enum Refused {
    Changed(String),
    Taken,
    /// What is there now is not what was sent.
    Different,
    Storage(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        match error {
            Error::AlreadyExists { .. } | Error::Precondition { .. } => Refused::Taken,
            other => Refused::Storage(other),
        }
    }
}

impl Bucket {
    pub(super) fn open(
        url: &Url,
        environment: Environment<'_>,
        unfinished: Option<PathBuf>,
        limits: TransferLimits,
    ) -> Result<Bucket, String> {
        let name = url.host_str().filter(|bucket| !bucket.is_empty());
        let name = name.ok_or("has no bucket; write it as s3://bucket/prefix")?;
        let prefix = ObjectPath::from_url_path(url.path()).map_err(|error| error.to_string())?;
        let refused = |error: Error| super::error_text::explained(&error);
        let environment: Environment<'_> = &|name| environment(name).filter(|value| !value.is_empty());
        check_environment(url.scheme(), environment)?;
        let retry = RetryConfig { max_retries: 5, retry_timeout: limits.retry_for, ..RetryConfig::default() };
        let client = ClientOptions::new();
        // A store on this very machine needs no TLS.
        let client_for = |endpoint: Option<String>| {
            let endpoint = endpoint.and_then(|endpoint| Url::parse(&endpoint).ok());
            client.clone().with_allow_http(endpoint.as_ref().is_some_and(is_loopback))
        };
        match url.scheme() {
            "s3" => {
                let watch = CredentialWatch::of(environment, limits);
                let (builder, profile) = amazon(environment)?;
                let keys = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
                let endpoint = keys.iter().find_map(|key| builder.get_config_value(key));
                let builder =
                    builder.with_bucket_name(name).with_retry(retry).with_http_connector(watch.clone());
                let builder = builder.with_client_options(client_for(endpoint));
                let store = builder.with_checksum_algorithm(Checksum::SHA256).build().map_err(refused)?;
                let aws = AwsCredentials {
                    provider: AmazonS3::credentials(&store).clone(),
                    profile,
                    end: environment("AWS_SESSION_TOKEN").and_then(|_| end_in(environment)),
                    watch,
                };
                let store = Arc::new(store);
                let parts = Some(store.clone() as Arc<dyn MultipartStore>);
                let (aws, google, is_azure, reads_back) = (Some(aws), None, false, false);
                let signer = store.clone();
                Ok(Bucket { prefix, store, signer, parts, unfinished, aws, google, is_azure, reads_back })
            }
            "gs" => {
                let account = environment("SERVICE_ACCOUNT");
                let builder = account.into_iter().fold(
                    GoogleCloudStorageBuilder::new(),
                    GoogleCloudStorageBuilder::with_service_account_path,
                );
                let builder = set_variables("GOOGLE_")
                    .fold(builder, |builder, (key, value)| builder.with_config(key, value));
                let builder = builder.with_bucket_name(name).with_retry(retry);
                let builder = builder.with_http_connector(LimitedConnector(limits));
                let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
                let store = builder.with_client_options(client_for(endpoint)).build().map_err(refused)?;
                let google = Some(GoogleCloudStorage::signing_credentials(&store).clone());
                let store = Arc::new(store);
                let parts = Some(store.clone() as Arc<dyn MultipartStore>);
                let (aws, signer, is_azure, reads_back) = (None, store.clone(), false, true);
                Ok(Bucket { prefix, store, signer, parts, unfinished, aws, google, is_azure, reads_back })
            }
            "az" => {
                let builder = set_variables("AZURE_")
                    .fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| {
                        builder.with_config(key, value)
                    });
                let identity = environment("IDENTITY_ENDPOINT");
                let builder = identity.into_iter().fold(builder, MicrosoftAzureBuilder::with_msi_endpoint);
                // Where both are set, the latter.
                let endpoints =
                    ["AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"].into_iter().filter_map(environment);
                let builder = endpoints.fold(builder, MicrosoftAzureBuilder::with_endpoint);
                let builder = builder.with_container_name(name).with_retry(retry);
                let builder = builder.with_http_connector(LimitedConnector(limits));
                let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
                let store = builder.with_client_options(client_for(endpoint)).build().map_err(refused)?;
                let store = Arc::new(store);
                // What is said of an object comes with its completion there, which an upload that is continued cannot say.
                let (aws, google, parts, is_azure, reads_back) = (None, None, None, true, true);
                let signer = store.clone();
                Ok(Bucket { prefix, store, signer, parts, unfinished, aws, google, is_azure, reads_back })
            }
            other => Err(format!("{other}: is not a store; s3:, gs: and az: are, and file: for outputs")),
        }
    }

    /// What the keys of all its objects begin with, without a slash at its end.
    pub(super) fn prefix(&self) -> &str {
        self.prefix.as_ref()
    }

    /// The key is the name as it is.
    fn path_of(&self, name: &str) -> Result<ObjectPath, Error> {
        let name = ObjectPath::parse(name)?;
        Ok(self.prefix.parts().chain(name.parts()).collect())
    }

    /// The name under which older versions put an object, where that is another one: they wrote `#`, `~`, `%` and what is not
    /// ASCII as `%XX`.
    pub(super) fn former_name(name: &str) -> Option<String> {
        Some(String::from(ObjectPath::from(name))).filter(|former| former != name)
    }

    pub(super) async fn check(&self) -> Result<(), Error> {
        match self.store.get(&self.path_of("inputs/none")?).await {
            Ok(_) => Ok(()),
            Err(error @ Error::NotFound { .. }) if !is_bucket_missing(&error) => Ok(()),
            // Who may only put objects there is denied this.
            Err(error) if is_there_but_denied(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks to replace an object that is not there.
    pub(super) async fn check_writing(&self) -> Result<(), Error> {
        let path = self.path_of("inputs/none")?;
        let (e_tag, version) = (Some(format!("\"{:032}\"", 0)), Some("1".to_owned()));
        let mode = PutMode::Update(UpdateVersion { e_tag, version });
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.store.put_opts(&path, PutPayload::new(), options).await {
            Err(error @ (Error::Precondition { .. } | Error::NotFound { .. }))
                if !is_bucket_missing(&error) =>
            {
                Ok(())
            }
            Err(Error::AlreadyExists { .. }) => Ok(()),
            // Without the right to list a bucket, a missing object is reported as denied. An upload in parts that is not
            // completed makes no object.
            Err(Error::PermissionDenied { .. }) if self.hides_what_is_missing().await => {
                let Some(parts) = &self.parts else { return Ok(()) };
                let upload = parts.create_multipart(&path).await?;
                // What is left of it the store's own rule for unfinished uploads removes.
                let _ = parts.abort_multipart(&path, &upload).await;
                Ok(())
            }
            Err(error) => Err(error),
            // It checks no conditions.
            Ok(_) => self.remove("inputs/none").await,
        }
    }

    async fn hides_what_is_missing(&self) -> bool {
        let Ok(path) = self.path_of("inputs/none") else { return false };
        let found = self.store.get(&path).await;
        found.is_err_and(|error| code_of(&error).as_deref() == Some("AccessDenied"))
    }

    pub(super) async fn size_of(&self, name: &str) -> Result<Option<u64>, Error> {
        match self.store.head(&self.path_of(name)?).await {
            Ok(found) => Ok(Some(found.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), Error> {
        match self.store.delete(&self.path_of(name)?).await {
            Err(error @ Error::NotFound { .. }) if !is_bucket_missing(&error) => Ok(()),
            removed => removed,
        }
    }

    pub(super) async fn find(&self, name: &str) -> Result<Option<FoundObject>, Error> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = match self.store.get_opts(&self.path_of(name)?, options).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            // Nothing says that it is ours, and its size is not told.
            Err(error) if is_metadata_unreadable(&error) => return Ok(Some(FoundObject::of_others())),
            Err(error) => return Err(error),
        };
        let metadata = metadata_in(&found.attributes, self.is_azure);
        let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
        let version = UpdateVersion { e_tag, version };
        Ok(Some(FoundObject { bytes: found.meta.size, metadata, version }))
    }

    pub(super) async fn put(
        &self,
        (name, address): (&str, String),
        file: &Path,
        expected: Expected<'_>,
        metadata: &Metadata<'_>,
        replaces: Replaces<'_>,
    ) -> Result<(), Refused> {
        let unread = |error: std::io::Error| Refused::Changed(format!("cannot be read any more: {error}"));
        let mut reader = File::open(file).await.map_err(unread)?;
        let attributes = attributes_of(metadata, expected.content_type, self.is_azure);
        if expected.bytes <= PART_BYTES as u64 {
            let mut content = Vec::new();
            let limit = expected.bytes.saturating_add(1);
            reader.take(limit).read_to_end(&mut content).await.map_err(unread)?;
            is_as_it_was(Sha256::new_with_prefix(&content), expected)?;
            let mode = match replaces {
                Replaces::Any => PutMode::Overwrite,
                Replaces::Nothing => PutMode::Create,
                Replaces::This(found) => PutMode::Update(found.version.clone()),
            };
            let options = PutOptions { mode, attributes, ..PutOptions::default() };
            self.store.put_opts(&self.path_of(name)?, PutPayload::from(content), options).await?;
        } else if let Some(parts) = &self.parts {
            let path = self.path_of(name)?;
            let folder = self.unfinished.as_deref();
            let upload = PartedUpload { store: parts, folder, address, path: &path, expected };
            let there = upload.put_parts(&mut reader, attributes).await.map_err(|error| match error {
                PartsError::Changed(why) => Refused::Changed(why),
                PartsError::Storage(error) => Refused::Storage(error),
            })?;
            match self.may_replace(name, replaces).await {
                Err(Refused::Taken) => {
                    upload.give_up(&there).await;
                    return Err(Refused::Taken);
                }
                may => may?,
            }
            upload.complete(there).await?;
        } else {
            self.put_as_a_whole(name, &mut reader, attributes, expected, replaces).await?;
        }
        if self.reads_back {
            failpoint::hit("confirming");
        }
        if !self.holds(name, expected).await? {
            // A name that says what it holds must not lie. Any other may be of somebody else by now, and is looked at again.
            if matches!(replaces, Replaces::Any) {
                self.remove(name).await?;
            }
            return Err(Refused::Different);
        }
        Ok(())
    }

    /// A large file, in parts that are lost where the upload breaks off.
    async fn put_as_a_whole(
        &self,
        name: &str,
        reader: &mut File,
        attributes: Attributes,
        expected: Expected<'_>,
        replaces: Replaces<'_>,
    ) -> Result<(), Refused> {
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let upload = self.store.put_multipart_opts(&self.path_of(name)?, options).await?;
        let mut writer = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        let (mut buffer, mut hash) = (vec![0; 256 * 1024], Sha256::new());
        let read = loop {
            let read = match reader.read(&mut buffer).await {
                Ok(0) => break Ok(()),
                Ok(read) => buffer.get(..read).unwrap_or_default(),
                Err(error) => break Err(Refused::Changed(format!("cannot be read any more: {error}"))),
            };
            hash.update(read);
            if let Err(error) = writer.wait_for_capacity(PARTS_AT_ONCE).await {
                break Err(error.into());
            }
            writer.write(read);
        };
        let read = match read.and_then(|()| is_as_it_was(hash, expected)) {
            Ok(()) => self.may_replace(name, replaces).await,
            changed => changed,
        };
        if let Err(error) = read {
            // What is left of it the store's own rule for unfinished uploads removes.
            let _ = writer.abort().await;
            return Err(error);
        }
        writer.finish().await?;
        Ok(())
    }

    async fn may_replace(&self, name: &str, replaces: Replaces<'_>) -> Result<(), Refused> {
        let found = match replaces {
            Replaces::Any => return Ok(()),
            _ => match self.find(name).await {
                // It may be missing: who may not list a bucket is not told.
                Err(Error::PermissionDenied { .. }) => None,
                found => found?,
            },
        };
        let may = match replaces {
            Replaces::Any => true,
            Replaces::Nothing => found.is_none(),
            Replaces::This(before) => found.as_ref() == Some(before),
        };
        if may { Ok(()) } else { Err(Refused::Taken) }
    }

    /// Whether an object that says that it holds this does. A store that was given its SHA-256 is not asked.
    pub(super) async fn holds(&self, name: &str, expected: Expected<'_>) -> Result<bool, Error> {
        Ok(!self.reads_back || self.sha256_of(name).await? == expected.sha256)
    }

    pub(super) async fn get(&self, name: &str) -> Result<ObjectReader, Error> {
        ObjectReader::open(&self.store, self.path_of(name)?).await
    }

    async fn sha256_of(&self, name: &str) -> Result<String, Error> {
        let mut content = self.get(name).await?;
        let mut hash = Sha256::new();
        while let Some(chunk) = content.next().await? {
            hash.update(&chunk);
        }
        Ok(hex(&hash.finalize()))
    }

    pub(super) async fn signed_link(&self, name: &str, valid_for: Duration) -> Result<String, Error> {
        let signed = self.signer.signed_url(Method::GET, &self.path_of(name)?, valid_for.min(LINK_MAX)).await;
        signed.map(String::from)
    }

    pub(super) async fn credential_life(&self) -> Result<CredentialLife, Error> {
        if let Some(google) = &self.google {
            return Ok(match google.get_credential().await?.private_key {
                Some(_) => CredentialLife::Lasting,
                None => CredentialLife::EachLink(SIGNED_BY_GOOGLE_FOR),
            });
        }
        let Some(aws) = &self.aws else { return Ok(CredentialLife::Lasting) };
        let credential = aws.provider.get_credential().await?;
        if credential.token.as_ref().is_none_or(String::is_empty) {
            return Ok(CredentialLife::Lasting);
        }
        let given = match &aws.profile {
            Some(profile) => profile.end(),
            None => aws.end,
        };
        Ok(match (given, aws.watch.seen()) {
            (Some(end), _) => CredentialLife::Until { end, renewed_for: None },
            (None, Some((end, life))) => CredentialLife::Until { end, renewed_for: Some(life) },
            (None, None) => CredentialLife::Unknown,
        })
    }
}

fn is_as_it_was(hash: Sha256, expected: Expected<'_>) -> Result<(), Refused> {
    match hex(&hash.finalize()) == expected.sha256 {
        true => Ok(()),
        false => Err(Refused::Changed("changed since it was read".to_owned())),
    }
}

/// What the environment and a profile say of a store of Amazon's protocol, and the profile where the credentials are its.
fn amazon(
    environment: Environment<'_>,
) -> Result<(AmazonS3Builder, Option<Arc<ProfileCredentials>>), String> {
    let builder = set_variables("AWS_")
        .fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value));
    // Where both are set, the latter; that of S3 alone before them.
    let endpoints = ["AWS_ENDPOINT", "AWS_ENDPOINT_URL"].into_iter().filter_map(environment);
    let mut builder = endpoints.fold(builder, AmazonS3Builder::with_endpoint);
    let has = |name: &str| environment(name).is_some_and(|value| !value.is_empty());
    let has_others = has("AWS_ACCESS_KEY_ID")
        || has("AWS_SECRET_ACCESS_KEY")
        || has("AWS_WEB_IDENTITY_TOKEN_FILE") && has("AWS_ROLE_ARN");
    let files = ProfileFiles::of(environment);
    let profile = match files.read() {
        Err(_) if has_others => None,
        read => read?,
    };
    let Some(profile) = profile else { return Ok((builder, None)) };
    let of_profile = |key: &str| format!("{key} of the profile {}", profile.name());
    if let Some(region) = profile
        .region()
        .filter(|region| !region.is_empty() && !has("AWS_REGION") && !has("AWS_DEFAULT_REGION"))
    {
        check_name(&of_profile("region"), region)?;
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = profile
        .endpoint()
        .filter(|_| !has("AWS_ENDPOINT_URL") && !has("AWS_ENDPOINT_URL_S3") && !has("AWS_ENDPOINT"))
    {
        check_endpoint(&of_profile("endpoint_url"), endpoint)?;
        builder = builder.with_endpoint(endpoint);
    }
    if has_others || profile.credential()?.is_none() {
        return Ok((builder, None));
    }
    let credentials = Arc::new(ProfileCredentials(files));
    Ok((builder.with_credentials(credentials.clone()), Some(credentials)))
}
