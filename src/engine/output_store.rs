//! Outputs in an object store: each published file and its sidecar become an object under the name that they have on disk.
//!
//! A job has succeeded when its objects are there with the size and the checksum of its files. An object says whose it is,
//! and only those of the job and of other versions of its row are replaced; where another one has the name, the object is
//! called after the job's identity, too.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::clock::Clock;
use crate::domain::ids::{BatchName, JobId};
use crate::domain::job::{Job, JobSpec, OutputFile};
use crate::domain::task::{DISK_FAULT, Fault, STORE_FAULT};
use crate::domain::time::Timestamp;
use crate::engine::blocking;
use crate::engine::upload_limit::Uploads;
use crate::failpoint;
use crate::metrics::Metrics;
use crate::object_storage::object_metadata::{BATCH, JOB, PRICE, SHA256};
use crate::object_storage::{
    Expected, FoundObject, GetError, ObjectStorage, PutError, Replaces, StorageError,
};
use crate::output::Media;
use crate::output::file_names::Layout;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::{OutputDir, Part, hash_file, is_disk_error};

/// How often an object is put anew that others change meanwhile.
const ROUNDS_MAX: u32 = 4;

/// A job whose outputs are on disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredJob<'a> {
    pub(super) batch: &'a BatchName,
    pub(super) layout: &'a Layout,
    pub(super) spec: &'a JobSpec,
    pub(super) job: &'a Job,
    /// Other versions of its row, whose objects may be replaced.
    pub(super) versions: &'a [JobId],
}

/// Why outputs are not in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeepFault {
    /// The store refuses or cannot be reached: it is waited for.
    Store(Fault),
    /// The store takes other objects, and not this one: it alone is waited for.
    Object(Fault),
    /// A file is not on disk any more as it was published.
    File(Fault),
    /// The output disk takes nothing more.
    Disk {
        /// What the disk said.
        fault: Fault,
        /// How large the file is that it refused, in bytes.
        wanted_bytes: u64,
    },
}

impl KeepFault {
    /// In words.
    pub(super) fn fault(&self) -> &Fault {
        let (KeepFault::Store(fault)
        | KeepFault::Object(fault)
        | KeepFault::File(fault)
        | KeepFault::Disk { fault, .. }) = self;
        fault
    }

    /// A file of so many bytes could not be written.
    fn of_disk(error: &io::Error, wanted_bytes: u64) -> KeepFault {
        let fault = Fault::new(DISK_FAULT, error.to_string());
        if is_disk_error(error) { KeepFault::Disk { fault, wanted_bytes } } else { KeepFault::File(fault) }
    }
}

/// What came of an object, before it is known whether that is the store's fault.
#[derive(Debug)]
enum Unkept {
    /// The store refused something about the object at this address, or could not be reached.
    Refused(String, StorageError),
    /// The same of an object that was to be read.
    Unread(String, StorageError),
    /// The store has other ideas of the object than it should; in words.
    Object(String),
    File(Fault),
}

/// Outputs of a job that are in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// The files with their objects.
    pub(super) files: Vec<OutputFile>,
    /// Whether any of them was not there before.
    pub(super) is_new: bool,
    /// Whether each of them was read from disk, and has the content that is known of it.
    pub(super) is_read: bool,
}

/// See the module's documentation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct OutputStore(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    storage: ObjectStorage,
    uploads: Uploads,
    clock: Clock,
}

impl OutputStore {
    /// One that puts outputs into this store.
    pub fn new(storage: ObjectStorage, uploads: Uploads) -> OutputStore {
        OutputStore(Arc::new(Inside { storage, uploads, clock: Clock::start() }))
    }

    /// The same store, as what takes the place of `before`: its uploads are counted elsewhere, and of the same folder it is known
    /// how it was found.
    pub(super) fn in_place_of(&self, before: Option<&OutputStore>, metrics: &Metrics) -> OutputStore {
        let storage = self.0.storage.clone();
        let storage = match before {
            Some(before) => storage.in_place_of(&before.0.storage),
            None => storage,
        };
        OutputStore::new(storage, self.0.uploads.counted_by(metrics))
    }

    /// Whether the store answers. Nothing is changed.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn check(&self) -> Result<(), StorageError> {
        self.0.storage.check().await
    }

    /// Puts the published files of a job, and its sidecar, into the store. Returns the files with their objects, which
    /// were found there with their size and checksum.
    ///
    /// # Errors
    /// [`KeepFault`].
    pub(super) async fn keep(
        &self,
        output_dir: &OutputDir,
        job: StoredJob<'_>,
        files: Vec<OutputFile>,
    ) -> Result<Kept, KeepFault> {
        let dir = output_dir.batch_dir(job.batch);
        let mut kept = Kept { files: Vec::with_capacity(files.len()), is_new: false, is_read: true };
        for file in files {
            let expected =
                Expected { bytes: file.bytes, sha256: &file.sha256, content_type: &file.content_type };
            let known = job.job.outputs();
            let was_confirmed = |address: &str| {
                let mut same = known.iter().filter(|known| known.sha256 == file.sha256);
                same.any(|known| known.object.as_deref() == Some(address))
            };
            let on_disk = dir.join(&file.path);
            let (object, is_new) = self.put(job, &file.path, &on_disk, expected, was_confirmed).await?;
            kept.is_new |= is_new;
            kept.is_read &= is_new;
            kept.files.push(OutputFile { object: Some(object), ..file });
        }
        let (sidecars, batch, layout, spec) =
            (output_dir.clone(), job.batch.clone(), job.layout.clone(), job.spec.clone());
        let (record, files) = (job.job.clone(), kept.files.clone());
        let sidecar = blocking(move || {
            let output_spec = OutputSpec { batch: &batch, layout: &layout, spec: &spec, job: &record };
            let path = sidecars.sidecar_of(output_spec, &files)?;
            let bytes = path.metadata().ok()?.len();
            let sha256 = hash_file(&path).ok()?;
            Some((path, bytes, sha256))
        });
        // The record says which files are the job's: one whose sidecar somebody removed is stored without it.
        let Some((path, bytes, sha256)) = sidecar.await else { return Ok(kept) };
        let Some(name) = path.strip_prefix(&dir).ok().and_then(Path::to_str).map(str::to_owned) else {
            return Ok(kept);
        };
        let expected = Expected { bytes, sha256: &sha256, content_type: "application/json" };
        let was_confirmed = kept.files == job.job.outputs();
        self.put(job, &name, &path, expected, |_| was_confirmed).await?;
        Ok(kept)
    }

    /// The address of the object that a file is in, which is there on return, and whether it was not before. One that
    /// was confirmed to hold what it says is not read once more.
    async fn put(
        &self,
        job: StoredJob<'_>,
        path: &str,
        file: &Path,
        expected: Expected<'_>,
        was_confirmed: impl Fn(&str) -> bool,
    ) -> Result<(String, bool), KeepFault> {
        match self.try_to_put(job, path, file, expected, was_confirmed).await {
            Ok(put) => Ok(put),
            Err(unkept) => Err(self.fault_of(unkept).await),
        }
    }

    /// Whether the store is at fault, or the object alone: the store is asked whether it takes anything.
    async fn fault_of(&self, unkept: Unkept) -> KeepFault {
        let (text, of_store) = match unkept {
            Unkept::File(fault) => return KeepFault::File(fault),
            Unkept::Object(text) => (text.clone(), text),
            Unkept::Refused(_, error) if error.is_full() => return store_fault(&error),
            Unkept::Refused(address, error) | Unkept::Unread(address, error) if error.is_cut() => {
                let text = format!("the transfer of {address} broke off, while the store answers: {error}");
                (text, error.to_string())
            }
            Unkept::Unread(address, error) => {
                let text = format!(
                    "{address} cannot be read, while the store takes other objects: {error}; see whether a policy of \
                     the bucket forbids it"
                );
                (text, error.to_string())
            }
            Unkept::Refused(address, error) => {
                let text = format!(
                    "{address} was refused, while the store takes other objects: {error}; see whether a policy, a \
                     retention or a lock of the bucket forbids this name; it is tried again with increasing delays"
                );
                (text, error.to_string())
            }
        };
        match self.0.storage.check_writing().await {
            Ok(()) => KeepFault::Object(Fault::new(STORE_FAULT, text)),
            Err(error) => {
                tracing::debug!(%error, "the object store takes nothing");
                KeepFault::Store(Fault::new(STORE_FAULT, of_store))
            }
        }
    }

    async fn try_to_put(
        &self,
        job: StoredJob<'_>,
        path: &str,
        file: &Path,
        expected: Expected<'_>,
        was_confirmed: impl Fn(&str) -> bool,
    ) -> Result<(String, bool), Unkept> {
        let Inside { storage, uploads, clock } = &*self.0;
        let own = job.spec.id.to_string();
        let versions: Vec<String> = job.versions.iter().map(JobId::to_string).collect();
        let price = job.job.all_books().charged.0.to_string();
        let metadata =
            [(JOB, own.as_str()), (BATCH, job.batch.as_str()), (PRICE, &price), (SHA256, expected.sha256)];
        let plain = format!("{}/{path}", job.batch);
        let is_ours = |object: &FoundObject| {
            object.metadata(JOB).is_some_and(|id| id == own || versions.iter().any(|version| version == id))
        };
        let is_whole = |object: &FoundObject| {
            object.bytes == expected.bytes
                && object.metadata(SHA256) == Some(expected.sha256)
                && object.metadata(JOB) == Some(&own)
        };
        let _slot = uploads.slot().await;
        let mut is_new = false;
        let names = [plain.clone(), named_apart(&plain, job.spec.id)];
        let mut why = None;
        for name in &names {
            let name = name.as_str();
            let refused = |error: StorageError| Unkept::Refused(storage.address_of(name), error);
            let (mut is_put, mut is_taken, mut denied, mut seen) = (false, false, None, None);
            for round in 0..ROUNDS_MAX {
                let found = match storage.find(name).await {
                    // It may be missing: who may not list a bucket is not told.
                    Err(error) if error.is_denied() && !is_put => {
                        denied = Some(error);
                        None
                    }
                    found => found.map_err(refused)?,
                };
                seen = found.as_ref().map(|object| object.bytes);
                // What an older version put under its own name stays there.
                if round == 0
                    && !found.as_ref().is_some_and(is_whole)
                    && let Some(former) = storage.former_name(name)
                    && let Ok(Some(object)) = storage.find(&former).await
                    && is_whole(&object)
                {
                    let address = storage.address_of(&former);
                    let holds =
                        was_confirmed(&address) || storage.holds(&former, expected).await.map_err(refused)?;
                    if holds {
                        return Ok((address, is_new));
                    }
                }
                let replaces = match &found {
                    Some(object) if is_whole(object) => {
                        let address = storage.address_of(name);
                        let holds = is_put
                            || was_confirmed(&address)
                            || storage.holds(name, expected).await.map_err(refused)?;
                        if holds {
                            return Ok((address, is_new));
                        }
                        Replaces::This(object)
                    }
                    Some(object) if is_ours(object) => Replaces::This(object),
                    Some(_) => {
                        is_taken = true;
                        break;
                    }
                    None => Replaces::Nothing,
                };
                failpoint::hit("storing");
                let begun = clock.elapsed();
                let put = storage.put(name, file, expected, &metadata, replaces).await;
                let took = clock.elapsed().saturating_sub(begun);
                uploads.ended(put.is_ok().then_some(expected.bytes), took);
                match put {
                    Ok(()) => {
                        failpoint::hit("stored");
                        (is_new, is_put) = (true, true);
                        tracing::debug!(object = name, bytes = expected.bytes, "output stored");
                    }
                    // Looked at again, unless whose it is cannot be seen.
                    Err(PutError::Taken) => {
                        if let (None, Some(error)) = (&found, denied.take()) {
                            return Err(refused(error));
                        }
                    }
                    Err(PutError::Storage(error)) => return Err(refused(error)),
                    Err(PutError::Changed(why)) => return Err(Unkept::File(Fault::new(DISK_FAULT, why))),
                }
            }
            if !is_taken {
                why = Some((storage.address_of(name), is_put, seen));
            }
        }
        let text = match why {
            None => format!(
                "{} and {} are objects of others, which are not replaced; move one of them away, and it is tried again by \
                 itself",
                storage.address_of(&names[0]),
                storage.address_of(&names[1])
            ),
            Some((address, true, Some(bytes))) => {
                format!(
                    "{address} was uploaded, but has {bytes} bytes, not {}, or others changed it",
                    expected.bytes
                )
            }
            Some((address, true, None)) => format!("{address} was uploaded, but the store does not find it"),
            Some((address, false, _)) => {
                format!("others change {address} each time it is to be put there; see who else writes to it")
            }
        };
        Err(Unkept::Object(text))
    }

    /// Brings the outputs of a job back to disk. Nothing where the store does not have all of them.
    ///
    /// # Errors
    /// [`KeepFault`].
    pub(super) async fn restore(
        &self,
        output_dir: &OutputDir,
        job: StoredJob<'_>,
        files: &[OutputFile],
        now: Timestamp,
    ) -> Result<Option<Vec<OutputFile>>, KeepFault> {
        let Inside { storage, uploads, .. } = &*self.0;
        let wanted_bytes = files.iter().map(|file| file.bytes).sum();
        let disk = |error: &io::Error| KeepFault::of_disk(error, wanted_bytes);
        let (made, batch) = (output_dir.clone(), job.batch.clone());
        blocking(move || made.make_batch_dir(&batch)).await.map_err(|error| disk(&error))?;
        let _slot = uploads.slot().await;
        let mut parts = Vec::with_capacity(files.len());
        let mut is_whole = !files.is_empty();
        for (index, file) in files.iter().enumerate() {
            let known = file.object.as_deref().and_then(|address| storage.name_in(address));
            let name = known.map_or_else(|| format!("{}/{}", job.batch, file.path), str::to_owned);
            let path = output_dir.part_path(job.batch, job.spec.id, index + 1);
            let expected =
                Expected { bytes: file.bytes, sha256: &file.sha256, content_type: &file.content_type };
            let copied = copy_out(storage, &name, &path, expected).await;
            let ext = file.path.rsplit('.').next().unwrap_or_default().to_owned();
            let (bytes, sha256) = (file.bytes, file.sha256.clone());
            let media = Media { content_type: file.content_type.clone(), ext };
            parts.push(Part { path, unwritten: None, bytes, sha256, media });
            match copied {
                Ok(true) => {}
                Ok(false) | Err(GetError::Changed(_)) => {
                    is_whole = false;
                    break;
                }
                Err(GetError::Storage(error)) => {
                    remove(&parts).await;
                    return Err(self.fault_of(Unkept::Unread(storage.address_of(&name), error)).await);
                }
                Err(GetError::File(error)) => {
                    remove(&parts).await;
                    return Err(disk(&error));
                }
            }
        }
        if !is_whole {
            remove(&parts).await;
            return Ok(None);
        }
        let (published, batch, layout) = (output_dir.clone(), job.batch.clone(), job.layout.clone());
        let (spec, record) = (job.spec.clone(), job.job.clone());
        let publish = move || {
            let output_spec = OutputSpec { batch: &batch, layout: &layout, spec: &spec, job: &record };
            published.publish(output_spec, &parts, now)
        };
        blocking(publish).await.map(Some).map_err(|error| disk(&error))
    }

    /// Brings a file back that is not on disk, as it was stored under an address: to its path in the folder of its batch,
    /// where nothing may be. False: it is there already, or the store has no such object any more.
    ///
    /// # Errors
    /// [`KeepFault`].
    pub(super) async fn bring_back(
        &self,
        output_dir: &OutputDir,
        (batch, job): (&BatchName, JobId),
        address: &str,
        file: &OutputFile,
    ) -> Result<bool, KeepFault> {
        let to = output_dir.batch_dir(batch).join(&file.path);
        if tokio::fs::symlink_metadata(&to).await.is_ok() {
            return Ok(false);
        }
        let part = output_dir.part_path(batch, job, 1);
        if !self.copy_to(address, &part, file).await? {
            return Ok(false);
        }
        let named = tokio::fs::rename(&part, &to).await;
        if named.is_err() {
            // What stays is swept at the next start.
            let _ = tokio::fs::remove_file(&part).await;
        }
        named.map(|()| true).map_err(|error| KeepFault::of_disk(&error, file.bytes))
    }

    /// Whether there is an object at an address. True where the store does not say.
    pub(super) async fn may_have(&self, address: &str) -> bool {
        let storage = &self.0.storage;
        match storage.name_in(address) {
            Some(name) => !matches!(storage.size_in_bucket(name).await, Ok(None)),
            None => false,
        }
    }

    /// Copies an object to a file that it makes. False: the store does not have it any more. Nothing stays of one that was not
    /// copied whole.
    ///
    /// # Errors
    /// [`KeepFault`].
    pub(super) async fn copy_to(
        &self,
        address: &str,
        to: &Path,
        file: &OutputFile,
    ) -> Result<bool, KeepFault> {
        let storage = &self.0.storage;
        let Some(name) = storage.name_in(address) else { return Ok(false) };
        let expected = Expected { bytes: file.bytes, sha256: &file.sha256, content_type: &file.content_type };
        let copied = copy_out(storage, name, to, expected).await;
        if !matches!(copied, Ok(true)) {
            // Nothing of what came is wanted; mostly nothing did.
            let _ = tokio::fs::remove_file(to).await;
        }
        match copied {
            Ok(true) => Ok(true),
            Ok(false) | Err(GetError::Changed(_)) => Ok(false),
            Err(GetError::Storage(error)) => {
                Err(self.fault_of(Unkept::Unread(address.to_owned(), error)).await)
            }
            Err(GetError::File(error)) => Err(KeepFault::of_disk(&error, file.bytes)),
        }
    }

    /// The files of a job that are on disk as they were published; nothing where one is not. `by_size`: for one who reads
    /// their contents anyway.
    pub(super) async fn on_disk(
        &self,
        output_dir: &OutputDir,
        job: StoredJob<'_>,
        by_size: bool,
    ) -> Option<Vec<OutputFile>> {
        let (output_dir, batch, layout) = (output_dir.clone(), job.batch.clone(), job.layout.clone());
        let (spec, record) = (job.spec.clone(), job.job.clone());
        let look = move || {
            let output_spec = OutputSpec { batch: &batch, layout: &layout, spec: &spec, job: &record };
            match by_size {
                true => output_dir.published_by_size(output_spec),
                false => output_dir.published(output_spec),
            }
        };
        blocking(look).await
    }
}

/// The name of an object where another one has the plain name: with the identity of its job.
fn named_apart(name: &str, job: JobId) -> String {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let (stem, ext) = file.rsplit_once('.').unwrap_or((file, ""));
    let dot = if ext.is_empty() { "" } else { "." };
    format!("{folder}/{stem}-{job}{dot}{ext}")
}

/// Copies an object to a file, be it under its name or the one that an older version gave it. False: neither is there with
/// what it should hold.
///
/// # Errors
/// [`GetError`], where no other name has it.
async fn copy_out(
    storage: &ObjectStorage,
    name: &str,
    to: &Path,
    expected: Expected<'_>,
) -> Result<bool, GetError> {
    let copy = async |name: &str| match storage.size_in_bucket(name).await? {
        Some(_) => match storage.get(name, to, expected).await {
            Err(GetError::Changed(_)) => Ok(false),
            copied => copied.map(|()| true),
        },
        None => Ok(false),
    };
    let copied = copy(name).await;
    match storage.former_name(name) {
        Some(former) if !matches!(copied, Ok(true)) && matches!(copy(&former).await, Ok(true)) => Ok(true),
        _ => match copied {
            // It may be missing: who may not list a bucket is not told.
            Err(GetError::Storage(error)) if error.is_denied() => match storage.check_writing().await {
                Ok(()) => Ok(false),
                Err(_) => Err(GetError::Storage(error)),
            },
            copied => copied,
        },
    }
}

/// Removes what came of copies that are not needed.
async fn remove(parts: &[Part]) {
    for part in parts {
        // One that was not begun is not there.
        let _ = tokio::fs::remove_file(&part.path).await;
    }
}

fn store_fault(error: &StorageError) -> KeepFault {
    KeepFault::Store(Fault::new(STORE_FAULT, error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use sha2::{Digest, Sha256};
    use url::Url;

    use super::*;
    use crate::domain::hex::hex;
    use crate::engine::scheduler::FetchFault;
    use crate::output::OutputOptions;

    #[tokio::test]
    async fn an_output_that_comes_back_to_a_full_disk_waits_for_it_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let share = dir.path().join("share");
        fs::create_dir_all(share.join("b")).unwrap();
        fs::write(share.join("b/a.png"), "boat").unwrap();
        let url = Url::from_directory_path(&share).unwrap();
        let storage = ObjectStorage::open("output.store", &url, &|_| None, None).unwrap();
        let file = OutputFile {
            path: "a.png".to_owned(),
            bytes: 4,
            sha256: hex(&Sha256::digest("boat")),
            content_type: "image/png".to_owned(),
            edited: None,
            object: Some(storage.address_of("b/a.png")),
        };
        let store = OutputStore::new(storage, Uploads::new(1, Metrics::new()));
        let output_dir = OutputDir::new(&dir.path().join("output"), OutputOptions::default());
        let (batch, job): (BatchName, _) = ("b".parse().unwrap(), JobId([1; 16]));
        output_dir.prepare(&batch).unwrap();
        let part = output_dir.part_path(&batch, job, 1);
        symlink("/dev/full", &part).unwrap();
        let back = async || {
            store.bring_back(&output_dir, (&batch, job), file.object.as_deref().unwrap(), &file).await
        };
        let refused = back().await.unwrap_err();
        assert!(matches!(refused, KeepFault::Disk { wanted_bytes: 4, .. }), "{refused:?}");
        assert!(matches!(FetchFault::from(refused), FetchFault::DiskRefuses { wanted_bytes: 4, .. }));
        assert!(part.symlink_metadata().is_err());
        assert_eq!(back().await, Ok(true));
        assert_eq!(fs::read(output_dir.batch_dir(&batch).join("a.png")).unwrap(), b"boat");
        // It cannot have its name: nothing is left then, either.
        fs::remove_dir_all(output_dir.batch_dir(&batch)).unwrap();
        output_dir.prepare(&batch).unwrap();
        let named = OutputFile { path: "none/a.png".to_owned(), ..file.clone() };
        let refused =
            store.bring_back(&output_dir, (&batch, job), file.object.as_deref().unwrap(), &named).await;
        assert!(matches!(refused, Err(KeepFault::File(_))), "{refused:?}");
        assert!(part.symlink_metadata().is_err());
    }
}
