//! Files of this machine that jobs take as inputs: in the object store before their job is sent, and a link to each for the
//! service.
//!
//! An object is called by its content, so it is uploaded once for all jobs and batches. Its address is recorded with the
//! attempt; a link is signed anew each time a request is sent, and stored nowhere.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::{TryStreamExt, stream};
use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::domain::gone_input::INPUT_GONE;
use crate::domain::input_file::InputFile;
use crate::domain::job::Order;
use crate::domain::manifest::row::Deadline;
use crate::domain::request::Kind;
use crate::domain::task::{Fault, STORE_FAULT};
use crate::domain::time::{Millis, Tick};
use crate::engine::blocking;
use crate::engine::scheduler::InputFault;
use crate::engine::signed_link_lifetime::{LinkLife, lifetime, link_life};
use crate::engine::upload_limit::Uploads;
use crate::failpoint;
use crate::metrics::Metrics;
use crate::object_storage::{Expected, ObjectStorage, PutError, Replaces, StorageError};
use crate::store::staged_inputs::StagedInputs;

/// Code of a job whose file is not what it was when its manifest was accepted.
const FILE_CHANGED: &str = "input_changed";
/// Code of a job that names a file where there is no store.
const NO_STORE: &str = "no_input_store";
/// Code of a job whose deadline is after the end of the store's credentials.
const CREDENTIALS_TOO_SHORT: &str = "credentials_too_short";
/// How long an object that was seen is taken to be there.
const SEEN_FOR: Millis = Millis::from_secs(600);
/// Objects that are remembered as seen.
const SEEN_MAX: usize = 100_000;

/// Objects that are looked for at once before files are handed over, and for how long.
const LOOKED_FOR_AT_ONCE: usize = 16;
const LOOK_FOR_MAX: Duration = Duration::from_secs(30);

/// When an object was last seen in the store. Held while it is looked for and uploaded: nobody else does so then.
type Seen = Arc<Mutex<Option<Tick>>>;

/// See the module's documentation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct InputStore(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    storage: ObjectStorage,
    /// Deadlines of jobs whose rows say none.
    deadlines: BTreeMap<Kind, Millis>,
    clock: Clock,
    uploads: Uploads,
    /// When each object was seen in the store, or is being looked for.
    seen: Arc<std::sync::Mutex<HashMap<String, Seen>>>,
}

impl InputStore {
    /// One that puts files into this store.
    pub fn new(
        storage: ObjectStorage,
        deadlines: BTreeMap<Kind, Millis>,
        uploads: Uploads,
        clock: Clock,
    ) -> InputStore {
        InputStore(Arc::new(Inside { storage, deadlines, clock, uploads, seen: Arc::default() }))
    }

    /// The same store, whose uploads are counted elsewhere.
    pub(super) fn counted_by(&self, metrics: &Metrics) -> InputStore {
        let Inside { storage, deadlines, clock, uploads, seen } = &*self.0;
        let (storage, deadlines, seen) = (storage.clone(), deadlines.clone(), seen.clone());
        let uploads = uploads.counted_by(metrics);
        InputStore(Arc::new(Inside { storage, deadlines, clock: *clock, uploads, seen }))
    }

    /// Whether the store answers and its credentials sign links. Nothing is changed. Returns what is to be known of the
    /// credentials: that they end before most deadlines, for one.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn check(&self) -> Result<Option<String>, StorageError> {
        let Inside { storage, deadlines, .. } = &*self.0;
        storage.check().await?;
        storage.signed_link("inputs/none", Duration::from_secs(60)).await?;
        let longest = deadlines.values().copied().max().unwrap_or_default();
        Ok(match self.life_for(longest).await? {
            LinkLife::LongEnough => None,
            LinkLife::TooShort(why) | LinkLife::UntilRenewed(why) => Some(why),
        })
    }

    /// Whether a link can be signed that outlives the deadline of a job.
    ///
    /// # Errors
    /// Why not, and whether that may pass.
    async fn check_life(&self, order: &Order) -> Result<(), InputFault> {
        match self.life_for(self.until_deadline(order)).await.map_err(|error| passing(&error))? {
            LinkLife::LongEnough => Ok(()),
            LinkLife::UntilRenewed(why) => Err(InputFault::Store(Fault::new(STORE_FAULT, why))),
            LinkLife::TooShort(why) => Err(lasting(CREDENTIALS_TOO_SHORT, &why)),
        }
    }

    /// Whether links that are signed now are valid for so long.
    async fn life_for(&self, needed: Millis) -> Result<LinkLife, StorageError> {
        let Inside { storage, clock, .. } = &*self.0;
        Ok(link_life(storage.credential_life().await?, needed, clock.now().wall))
    }

    /// The address of a file in the store for a job, where it is on return, and can be linked to until the deadline.
    ///
    /// # Errors
    /// Why it is not there, and whether that may pass.
    pub(super) async fn upload_for(
        &self,
        order: &Order,
        staged: &StagedInputs,
        file: &InputFile,
    ) -> Result<String, InputFault> {
        self.check_life(order).await?;
        self.upload(staged, file).await
    }

    async fn upload(&self, staged: &StagedInputs, file: &InputFile) -> Result<String, InputFault> {
        let Inside { storage, clock, uploads, .. } = &*self.0;
        let name = file.content.object_name();
        let seen = self.seen(&name);
        let mut seen = seen.lock().await;
        let now = clock.now().tick;
        if seen.is_none_or(|at| now.since(at) > SEEN_FOR) {
            *seen = None;
            let _slot = uploads.slot().await;
            if let Err(fault) = self.put(&name, staged, file).await {
                return Err(self.whose_fault(&name, fault).await);
            }
            *seen = Some(now);
        }
        Ok(storage.address_of(&name))
    }

    /// Forgets that these contents were uploaded where the store does not have them any more, so that they are handed over
    /// again. What cannot be looked for in time stays known. Returns whether any was forgotten.
    pub async fn forget_missing(&self, staged: &StagedInputs, contents: Vec<String>) -> bool {
        let known = staged.clone();
        let look = move || -> Vec<(String, String)> {
            let object_of = |sha256: String| known.object_of(&sha256).map(|object| (sha256, object));
            contents.into_iter().filter_map(object_of).collect()
        };
        let marks = stream::iter(blocking(look).await.into_iter().map(Ok::<_, StorageError>));
        let forgotten = AtomicBool::new(false);
        let look = marks.try_for_each_concurrent(LOOKED_FOR_AT_ONCE, |(sha256, object)| {
            let (staged, forgotten) = (staged.clone(), &forgotten);
            async move {
                if self.forget_if_missing(&staged, sha256, &object).await? {
                    forgotten.store(true, Ordering::Relaxed);
                }
                Ok(())
            }
        });
        match tokio::time::timeout(LOOK_FOR_MAX, look).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the object store does not say what it has"),
            Err(_) => tracing::debug!("the object store is slow to say what it has"),
        }
        forgotten.into_inner()
    }

    async fn forget_if_missing(
        &self,
        staged: &StagedInputs,
        sha256: String,
        object: &str,
    ) -> Result<bool, StorageError> {
        let seen = self.seen(object);
        // One that is being uploaded is on its way there.
        let Ok(mut seen) = seen.try_lock() else { return Ok(false) };
        match self.0.storage.size_in_bucket(object).await {
            Ok(Some(_)) => return Ok(false),
            Ok(None) => {}
            // It may be missing: who may not list a bucket is not told.
            Err(error) if error.is_denied() => {}
            Err(error) => return Err(error),
        }
        *seen = None;
        let staged = staged.clone();
        Ok(blocking(move || staged.is_gone(&sha256)).await.is_ok())
    }

    /// Whether the store is at fault, or an object alone: the store is asked whether it takes anything.
    async fn whose_fault(&self, name: &str, why: NotUploaded) -> InputFault {
        let storage = &self.0.storage;
        let error = match why {
            NotUploaded::Storage(error) => error,
            NotUploaded::Other(fault) => return fault,
        };
        if storage.check_writing().await.is_err() {
            return passing(&error);
        }
        let address = storage.address_of(name);
        let text = match error.is_cut() {
            true => format!("the transfer of {address} broke off, while the store answers: {error}"),
            false => format!(
                "{address} is not taken, while the store takes other objects: {error}; if that does not pass, see whether \
                 a policy, a retention or a lock of the bucket forbids this name"
            ),
        };
        InputFault::Passing(Fault::new(STORE_FAULT, text))
    }

    /// Removes an object. One that is not there is removed.
    ///
    /// # Errors
    /// [`StorageError`].
    pub(super) async fn remove(&self, name: &str) -> Result<(), StorageError> {
        let seen = self.seen(name);
        let mut seen = seen.lock().await;
        *seen = None;
        self.0.storage.remove(name).await
    }

    fn seen(&self, name: &str) -> Seen {
        let mut all = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > SEEN_MAX {
            all.retain(|_, seen| Arc::strong_count(seen) > 1);
        }
        all.entry(name.to_owned()).or_default().clone()
    }

    async fn put(&self, name: &str, staged: &StagedInputs, file: &InputFile) -> Result<(), NotUploaded> {
        let storage = &self.0.storage;
        let content = &file.content;
        let sha256 = content.sha256.clone();
        let (looked, wanted) = (staged.clone(), sha256.clone());
        let path = blocking(move || looked.content(&wanted)).await;
        let found = match &path {
            Some(_) => storage.size_of(name).await,
            None => storage.size_in_bucket(name).await,
        };
        let there = match found {
            // It may be missing: who may not list a bucket is not told.
            Err(error) if error.is_denied() => None,
            found => found?,
        };
        let expected = Expected {
            bytes: content.bytes,
            sha256: &content.sha256,
            content_type: content.media.content_type(),
        };
        // While its copy is here, nothing confirmed yet what is there.
        let is_there =
            there == Some(content.bytes) && (path.is_none() || storage.holds(name, expected).await?);
        if is_there {
            let (staged, object) = (staged.clone(), name.to_owned());
            let noted = blocking(move || staged.uploaded(&sha256, &object)).await;
            return noted.map_err(|error| state_fault(&error).into());
        }
        let Some(path) = path else {
            let staged = staged.clone();
            blocking(move || staged.is_gone(&sha256)).await.map_err(|error| state_fault(&error))?;
            return Err(lasting(
                INPUT_GONE,
                &format!(
                    "{} is neither in the state nor at {} any more; submit its manifest again, then retry the job",
                    file.name,
                    storage.address_of(name)
                ),
            )
            .into());
        };
        failpoint::hit("uploading");
        let begun = self.0.clock.elapsed();
        let put = storage.put(name, &path, expected, &[], Replaces::Any).await;
        let took = self.0.clock.elapsed().saturating_sub(begun);
        self.0.uploads.ended(put.is_ok().then_some(content.bytes), took);
        match put {
            Ok(()) => {}
            Err(PutError::Storage(error)) => return Err(error.into()),
            // It is looked for below: one of its name holds the same.
            Err(PutError::Taken) => {}
            Err(PutError::Changed(why)) => {
                // So that it is handed over again.
                let staged = staged.clone();
                blocking(move || staged.remove(&sha256)).await.map_err(|error| state_fault(&error))?;
                let text = format!("{}: {why}; submit its manifest again", file.name);
                return Err(lasting(FILE_CHANGED, &text).into());
            }
        }
        failpoint::hit("uploaded");
        match storage.size_of(name).await? {
            Some(found) if found == content.bytes => {
                tracing::info!(file = file.name, object = name, bytes = found, "input uploaded");
                let (staged, object) = (staged.clone(), name.to_owned());
                let noted = blocking(move || staged.uploaded(&sha256, &object)).await;
                noted.map_err(|error| state_fault(&error).into())
            }
            found => {
                let found = found.map_or("is not there".to_owned(), |found| format!("has {found} bytes"));
                let text = format!("{} was uploaded and {found}", storage.address_of(name));
                Err(InputFault::Passing(Fault::new(STORE_FAULT, text)).into())
            }
        }
    }

    /// The addresses as they are sent: those of objects as signed links.
    ///
    /// # Errors
    /// When one cannot be signed.
    async fn signed(&self, order: &Order, addresses: Vec<String>) -> Result<Vec<String>, Fault> {
        let Inside { storage, .. } = &*self.0;
        let valid_for = lifetime(self.until_deadline(order));
        let mut signed = Vec::with_capacity(addresses.len());
        for address in addresses {
            let Some(name) = storage.name_in(&address) else {
                signed.push(public(address)?);
                continue;
            };
            let link = storage.signed_link(name, valid_for).await;
            signed.push(link.map_err(|error| Fault::new(STORE_FAULT, error.to_string()))?);
        }
        Ok(signed)
    }

    /// How far off the deadline of a job is that is sent now.
    fn until_deadline(&self, order: &Order) -> Millis {
        let Inside { deadlines, clock, .. } = &*self.0;
        match order.deadline {
            Some(Deadline::After(span)) => span,
            Some(Deadline::At(at)) => at.since(clock.now().wall),
            None => deadlines.get(&order.kind).copied().unwrap_or_default(),
        }
    }
}

/// Puts the files of a job into the store. Returns their addresses, in their order.
///
/// # Errors
/// Why one is not there, and whether that may pass.
pub(super) async fn upload_all(
    inputs: Option<&InputStore>,
    staged: &StagedInputs,
    order: &Order,
) -> Result<Vec<String>, InputFault> {
    let files = &order.files;
    let mut addresses = Vec::with_capacity(files.len());
    if let Some(store) = inputs.filter(|_| !files.is_empty()) {
        store.check_life(order).await?;
    }
    for file in files {
        let Some(store) = inputs else { return Err(InputFault::Lasting(no_store())) };
        addresses.push(store.upload(staged, file).await?);
    }
    Ok(addresses)
}

/// The addresses of an attempt as they are sent: those of objects as links that are signed now.
///
/// # Errors
/// When a file of the job cannot be linked to.
pub(super) async fn sign_all(
    inputs: Option<&InputStore>,
    order: &Order,
    addresses: Vec<String>,
) -> Result<Vec<String>, Fault> {
    match inputs {
        Some(store) => store.signed(order, addresses).await,
        None => addresses.into_iter().map(public).collect(),
    }
}

/// What is sent as it was found: a result link, or a length.
///
/// # Errors
/// It is an object of a store that is not the one of the configuration.
fn public(found: String) -> Result<String, Fault> {
    if !["s3://", "gs://", "az://"].iter().any(|scheme| found.starts_with(scheme)) {
        return Ok(found);
    }
    let text =
        format!("{found} is not in inputs.store; set it back to the store that the file was uploaded to");
    Err(Fault::new(STORE_FAULT, text))
}

fn no_store() -> Fault {
    Fault::new(
        NO_STORE,
        "the row names a file of this machine; set inputs.store in the configuration, then retry",
    )
}

/// Why a file is not in the store.
enum NotUploaded {
    /// What the store said.
    Storage(StorageError),
    Other(InputFault),
}

impl From<StorageError> for NotUploaded {
    fn from(error: StorageError) -> NotUploaded {
        NotUploaded::Storage(error)
    }
}

impl From<InputFault> for NotUploaded {
    fn from(fault: InputFault) -> NotUploaded {
        NotUploaded::Other(fault)
    }
}

fn passing(error: &StorageError) -> InputFault {
    InputFault::Store(Fault::new(STORE_FAULT, error.to_string()))
}

/// The state cannot be read or written: that may pass.
pub(super) fn state_fault(error: &impl std::fmt::Display) -> InputFault {
    InputFault::Passing(Fault::new("state", error.to_string()))
}

fn lasting(code: &str, text: &str) -> InputFault {
    InputFault::Lasting(Fault::new(code, format!("{text}; nothing was charged")))
}
