//! A folder as a store: a network share or another disk.
//!
//! A folder says nothing of its files beside their content, so that stands in a file of its own: `.NAME.HASH.object.json` of
//! an object NAME with a content of that hash. Who replaces an object writes that of the new content first. Whatever is
//! found, its hash is taken of the content as it lies there.
//!
//! A file is written under the name of a draft that follows from its own, `.callsheet-HASH.part`: what a killed upload left is
//! replaced by the next one of the same object.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use object_store::UpdateVersion;
use rustix::fs::{FlockOperation, RenameFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::{NamedTempFile, TempPath};

use crate::domain::hex::hex;
use crate::failpoint;
use crate::file_system::{FileId, Gone, KnownFolder, rename};
use crate::object_storage::object_metadata::Metadata;
use crate::object_storage::{Expected, FoundObject, GetError, OwnedReplaces, PutError, StorageError};

/// What is known of an object beside its content.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    content_type: String,
    metadata: BTreeMap<String, String>,
}

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    root: PathBuf,
    known: KnownFolder,
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Folder {
        Folder { root, known: KnownFolder::default() }
    }

    /// The same, as what takes the place of `before` in this process.
    pub(super) fn in_place_of(self, before: &Folder) -> Folder {
        let known = if self.root == before.root { before.known.clone() } else { self.known };
        Folder { known, ..self }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder itself is not made: one that is missing is a disk that is not mounted.
    pub(super) fn check(&self) -> Result<(), StorageError> {
        let draft = self.check_root().and_then(|()| tempfile::tempfile_in(&self.root));
        draft.map(drop).map_err(|error| self.error(&error))
    }

    /// Checks that the folder is there, and is not the mount point of a disk that was mounted there before.
    fn check_root(&self) -> io::Result<()> {
        match self.known.gone(&self.root) {
            Some(Gone::Unmounted) => {
                let why = "its disk is not mounted any more; mount it again, or restart callsheet to use the folder without it";
                Err(io::Error::new(ErrorKind::NotFound, why))
            }
            Some(Gone::Missing) | None => match self.root.metadata()?.is_dir() {
                true => Ok(()),
                false => Err(ErrorKind::NotADirectory.into()),
            },
        }
    }

    /// Where an object is. A name that leads out of the folder is refused.
    fn path_of(&self, name: &str) -> io::Result<PathBuf> {
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        match name.split('/').all(is_plain) {
            true => Ok(self.root.join(name)),
            false => {
                Err(io::Error::new(ErrorKind::InvalidInput, format!("{name} is not a name of an object")))
            }
        }
    }

    pub(super) fn size_of(&self, name: &str) -> Result<Option<u64>, StorageError> {
        let found = self.path_of(name).and_then(|path| opened(&path));
        let size = found.and_then(|file| file.map(|file| file.metadata().map(|meta| meta.len())).transpose());
        size.map_err(|error| self.error(&error))
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), StorageError> {
        let removed = self.path_of(name).and_then(|path| match opened(&path)? {
            Some(mut file) => {
                let (_, sha256) = copied(&mut file, &mut io::sink())?;
                fs::remove_file(&path)?;
                // It may never have had one.
                let _ = fs::remove_file(note_path(&path, &sha256));
                Ok(())
            }
            None => Ok(()),
        });
        removed.map_err(|error| self.error(&error))
    }

    pub(super) fn find(&self, name: &str) -> Result<Option<FoundObject>, StorageError> {
        self.found(name).map_err(|error| self.error(&error))
    }

    fn found(&self, name: &str) -> io::Result<Option<FoundObject>> {
        self.check_root()?;
        let path = self.path_of(name)?;
        let Some(mut file) = opened(&path)? else { return Ok(None) };
        let (bytes, sha256) = copied(&mut file, &mut io::sink())?;
        let note = fs::read(note_path(&path, &sha256)).ok();
        let note = note.and_then(|note| serde_json::from_slice::<Note>(&note).ok());
        let metadata = note.map(|note| note.metadata).unwrap_or_default();
        let version = UpdateVersion { e_tag: Some(sha256), version: None };
        Ok(Some(FoundObject { bytes, metadata, version }))
    }

    pub(super) fn put(
        &self,
        name: &str,
        file: &Path,
        expected: Expected<'_>,
        metadata: &Metadata<'_>,
        replaces: &OwnedReplaces,
    ) -> Result<(), PutError> {
        let changed = |why: String| PutError::Changed(format!("{} {why}", file.display()));
        let mut source =
            File::open(file).map_err(|error| changed(format!("cannot be read any more: {error}")))?;
        let mut put = || -> io::Result<Put> {
            self.check_root()?;
            let path = self.path_of(name)?;
            let dir = self.make_folders(&path)?;
            let mut draft = draft_of(&path)?;
            let (bytes, sha256) = copied(&mut source, draft.as_file_mut())?;
            if bytes != expected.bytes || sha256 != expected.sha256 {
                return Ok(Put::Changed);
            }
            draft.as_file().sync_data()?;
            let metadata = metadata.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let note = Note { content_type: expected.content_type.to_owned(), metadata: metadata.collect() };
            let note_of_new = note_path(&path, &sha256);
            let mut note_draft = draft_of(&note_of_new)?;
            note_draft.write_all(&serde_json::to_vec(&note)?)?;
            note_draft.as_file().sync_data()?;
            give_name(note_draft, &note_of_new, RenameFlags::empty())?;
            failpoint::hit("noted");
            let replaced = match replaces {
                OwnedReplaces::Nothing => match give_name(draft, &path, RenameFlags::NOREPLACE) {
                    Ok(()) => None,
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Put::Taken),
                    Err(error) => return Err(error),
                },
                OwnedReplaces::Any => give_name(draft, &path, RenameFlags::empty()).map(|()| None)?,
                OwnedReplaces::This(before) => {
                    if self.found(name)?.as_ref() != Some(before) {
                        return Ok(Put::Taken);
                    }
                    give_name(draft, &path, RenameFlags::empty())?;
                    before.version.e_tag.clone().filter(|before| *before != sha256)
                }
            };
            File::open(&dir)?.sync_all()?;
            if let Some(before) = replaced {
                // Nothing has this content under this name any more.
                let _ = fs::remove_file(note_path(&path, &before));
            }
            Ok(Put::Done)
        };
        match put().map_err(|error| self.error(&error))? {
            Put::Done => Ok(()),
            Put::Taken => Err(PutError::Taken),
            Put::Changed => Err(changed("changed since it was read".to_owned())),
        }
    }

    /// Makes the folders that lead to an object; each name is on the device on return. None of them may be a link.
    fn make_folders(&self, path: &Path) -> io::Result<PathBuf> {
        let dir = path.parent().unwrap_or(&self.root).to_owned();
        let mut present = self.root.clone();
        for part in dir.strip_prefix(&self.root).unwrap_or(Path::new("")) {
            let above = present.clone();
            present.push(part);
            match fs::create_dir(&present) {
                Ok(()) => File::open(&above)?.sync_all()?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            if !present.symlink_metadata()?.is_dir() {
                let why = format!("{} is not a folder", present.display());
                return Err(io::Error::new(ErrorKind::NotADirectory, why));
            }
        }
        Ok(dir)
    }

    pub(super) fn get(&self, name: &str, to: &Path, expected: Expected<'_>) -> Result<(), GetError> {
        let changed = || GetError::Changed(self.root.join(name).display().to_string());
        let found = self.path_of(name).and_then(|path| opened(&path)).map_err(|error| self.error(&error))?;
        let mut source = found.ok_or_else(changed)?;
        let mut writer = File::create(to)?;
        let (bytes, sha256) = copied(&mut source, &mut writer)?;
        writer.sync_data()?;
        match bytes == expected.bytes && sha256 == expected.sha256 {
            true => Ok(()),
            false => Err(changed()),
        }
    }

    fn error(&self, error: &io::Error) -> StorageError {
        let text = match error.kind() {
            ErrorKind::NotFound if !self.root.exists() => {
                format!("{} does not exist; mount or create it", self.root.display())
            }
            _ => format!("{}: {error}", self.root.display()),
        };
        let is_full = matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem
        );
        StorageError { text, is_denied: false, is_full, is_cut: false }
    }
}

enum Put {
    Done,
    Taken,
    Changed,
}

/// `.poster.png.9f2c….object.json`
fn note_path(path: &Path, sha256: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.object.json", sha256.get(..16).unwrap_or(sha256)))
}

/// A file to be renamed to a path. One that a killed process left in its place is removed; beside one that another process
/// writes, or that may be, it has a name of its own.
fn draft_of(path: &Path) -> io::Result<NamedTempFile> {
    let hash = hex(&Sha256::digest(path.file_name().unwrap_or_default().as_encoded_bytes()));
    let draft = path.with_file_name(format!(".callsheet-{}.part", hash.get(..16).unwrap_or(&hash)));
    let create = |draft: &Path| File::create_new(draft);
    let file = match create(&draft) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            remove_left(&draft);
            create(&draft)
        }
        other => other,
    };
    match file {
        Ok(file) => {
            // Where there are no locks it is left to its process.
            let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            Ok(NamedTempFile::from_parts(file, TempPath::try_from_path(draft)?))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mut names = tempfile::Builder::new();
            names.prefix(".callsheet-").suffix(".part");
            names.make_in(path.parent().unwrap_or(Path::new("")), create)
        }
        Err(error) => Err(error),
    }
}

/// Removes a draft whose process has ended, which its lock tells.
fn remove_left(draft: &Path) {
    let Ok(file) = File::options().append(true).open(draft) else { return };
    let is_left = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    // It may have its final name by now, and another draft be in its place.
    if is_left && is_at(&file, draft) {
        let _ = fs::remove_file(draft);
    }
}

/// Gives a draft its name. One that another process took for a draft that was left is not there any more: locks may reach no
/// other machine.
fn give_name(draft: NamedTempFile, path: &Path, flags: RenameFlags) -> io::Result<()> {
    if !is_at(draft.as_file(), draft.path()) {
        let why = format!("{} was removed by another process", draft.path().display());
        return Err(io::Error::new(ErrorKind::NotFound, why));
    }
    rename(draft.path(), path, flags)?;
    draft.into_temp_path().keep().map(drop).map_err(|error| error.error)
}

fn is_at(file: &File, path: &Path) -> bool {
    let id = |found: io::Result<fs::Metadata>| found.map(|found| FileId::of(&found)).ok();
    id(file.metadata()).is_some_and(|own| id(path.symlink_metadata()) == Some(own))
}

/// A file for reading; nothing where there is none.
fn opened(path: &Path) -> io::Result<Option<File>> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_file() => File::open(path).map(Some),
        Ok(_) => Err(io::Error::new(ErrorKind::InvalidInput, format!("{} is not a file", path.display()))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Copies a file, and returns its size and its SHA-256 in lowercase hex.
fn copied(from: &mut File, to: &mut impl Write) -> io::Result<(u64, String)> {
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0_u64, vec![0; 64 * 1024]);
    loop {
        let read = from.read(&mut buffer)?;
        let content = buffer.get(..read).unwrap_or_default();
        if content.is_empty() {
            return Ok((bytes, hex(&hash.finalize())));
        }
        hash.update(content);
        to.write_all(content)?;
        bytes += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &Metadata<'_> = &[("callsheet-job", "one")];

    fn expected<'a>(content: &[u8], sha256: &'a mut String) -> Expected<'a> {
        *sha256 = hex(&Sha256::digest(content));
        Expected { bytes: content.len() as u64, sha256, content_type: "text/plain" }
    }

    #[test]
    fn a_draft_that_was_left_is_replaced_and_one_that_is_written_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let object = dir.path().join("a.png");
        let drafts = || fs::read_dir(dir.path()).unwrap().count();
        // As a process leaves it that is killed.
        let (file, left) = draft_of(&object).unwrap().keep().unwrap();
        fs::write(&left, "half").unwrap();
        drop(file);
        let mut first = draft_of(&object).unwrap();
        assert_eq!((first.path(), fs::read(&left).unwrap().len(), drafts()), (left.as_path(), 0, 1));
        let second = draft_of(&object).unwrap();
        assert_ne!(second.path(), first.path());
        first.write_all(b"whole").unwrap();
        drop(second);
        give_name(first, &object, RenameFlags::NOREPLACE).unwrap();
        assert_eq!((fs::read(&object).unwrap(), drafts()), (b"whole".to_vec(), 1));
        let lost = draft_of(&object).unwrap();
        fs::remove_file(&left).unwrap();
        fs::write(&left, "of another").unwrap();
        let refused = give_name(lost, &object, RenameFlags::empty()).unwrap_err();
        assert_eq!((refused.kind(), fs::read(&object).unwrap()), (ErrorKind::NotFound, b"whole".to_vec()));
    }

    #[test]
    fn an_object_is_whole_and_replaces_what_it_may_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, source) = (Folder::new(dir.path().join("share")), dir.path().join("source"));
        fs::write(&source, "one").unwrap();
        let mut sha256 = String::new();
        let one = expected(b"one", &mut sha256);
        let refused = folder.put("a/b.txt", &source, one, EMPTY, &OwnedReplaces::Nothing).unwrap_err();
        assert!(refused.to_string().contains("mount or create it"), "{refused}");
        fs::create_dir(folder.root()).unwrap();
        folder.put("a/b.txt", &source, one, EMPTY, &OwnedReplaces::Nothing).unwrap();
        let found = folder.find("a/b.txt").unwrap().unwrap();
        assert_eq!((found.bytes, found.metadata("callsheet-job")), (3, Some("one")));
        let taken = folder.put("a/b.txt", &source, one, EMPTY, &OwnedReplaces::Nothing).unwrap_err();
        assert_eq!(taken, PutError::Taken);
        // Somebody writes over it: it is theirs.
        fs::write(folder.root().join("a/b.txt"), "two").unwrap();
        let theirs = folder.find("a/b.txt").unwrap().unwrap();
        assert_eq!(theirs.metadata("callsheet-job"), None);
        let other = folder.put("a/b.txt", &source, one, EMPTY, &OwnedReplaces::This(found)).unwrap_err();
        assert_eq!(
            (other, fs::read(folder.root().join("a/b.txt")).unwrap()),
            (PutError::Taken, b"two".to_vec())
        );
        folder.put("a/b.txt", &source, one, EMPTY, &OwnedReplaces::This(theirs)).unwrap();
        let back = dir.path().join("back");
        folder.get("a/b.txt", &back, one).unwrap();
        assert_eq!(fs::read(back).unwrap(), b"one");
        let mut wrong = String::new();
        let wrong = expected(b"other", &mut wrong);
        assert!(matches!(
            folder.put("c", &source, wrong, EMPTY, &OwnedReplaces::Nothing),
            Err(PutError::Changed(_))
        ));
        assert!(folder.find("c").unwrap().is_none() && folder.find("../source").is_err());
    }
}
