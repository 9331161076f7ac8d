//! Where a manifest goes when it was read: beside a receipt, into `accepted` or `rejected`.
//!
//! ```text
//! jobs/inbox/m.csv  ->  jobs/accepted/m.csv.receipt.json   written and synced first
//!                       jobs/accepted/m.csv                then the manifest, renamed
//! ```
//!
//! Nothing is ever overwritten: where a name is taken, both are called `m.2.csv` instead (`dispose_names.rs`). The same
//! manifest again, byte for byte, is not kept twice; its receipt is. A crash at any point leaves the
//! manifest in the inbox or filed, and a receipt that was already written is found by the hash in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::domain::time::Timestamp;
use crate::failpoint;
use crate::ingest::inbox::ReadyManifest;
use crate::ingest::inbox::dir::{InboxDir, draft_of};
use crate::ingest::inbox::dispose_names::{find_place, numbered};
use crate::ingest::manifest_file::Identity;
use crate::ingest::receipt::Receipt;
use crate::output::publish::hash;

/// An inbox, and where its manifests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// Where manifests are dropped.
    pub inbox: PathBuf,
    /// Where those go of which something was taken in.
    pub accepted: PathBuf,
    /// Where the others go.
    pub rejected: PathBuf,
}

impl Folders {
    /// The default inbox and its folders, all in `jobs`.
    pub fn in_jobs(jobs: &Path) -> Folders {
        Folders::of_inbox(&jobs.join("inbox"))
    }

    /// The folders of an inbox: beside it where it is called `inbox`, inside it otherwise, where two
    /// inboxes in one folder would share them.
    pub fn of_inbox(inbox: &Path) -> Folders {
        let is_called_inbox = inbox.file_name() == Some(OsStr::new("inbox"));
        let home = inbox.parent().filter(|_| is_called_inbox).unwrap_or(inbox);
        Folders { inbox: inbox.to_owned(), accepted: home.join("accepted"), rejected: home.join("rejected") }
    }
}

/// A manifest that was filed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filed {
    /// Where it lies now.
    pub manifest: PathBuf,
    /// Where its receipt lies.
    pub receipt: PathBuf,
}

/// A manifest could not be filed. It is still in its inbox.
#[derive(Debug, thiserror::Error)]
pub enum DisposeError {
    /// It is not the file that the receipt is about: it has to be read again.
    #[error("{} changed after it was read; reading it again", .path.display())]
    Changed {
        /// The manifest.
        path: PathBuf,
    },
    /// A folder or a file refuses.
    #[error("failed to move {} to {}: {source}", .path.display(), .folder.display())]
    Io {
        /// The manifest.
        path: PathBuf,
        /// Where it should go.
        folder: PathBuf,
        source: io::Error,
    },
}

/// What a receipt's file says beside the receipt.
#[derive(Debug, Serialize)]
struct WrittenReceipt<'a> {
    /// The name that the manifest is filed under.
    filed_as: String,
    accepted: bool,
    filed_at: String,
    bytes: u64,
    sha256: &'a str,
    #[serde(flatten)]
    receipt: &'a Receipt,
}

/// Files a manifest away, into `accepted` if something of it was taken in and into `rejected` if not.
/// On return its receipt and its new place are on the device. To be called once what the receipt says is
/// committed.
///
/// # Errors
/// [`DisposeError`]; the manifest is in its inbox as before. One that changed is to be put back; where a
/// folder refuses, the same may be tried again with the same receipt.
pub fn file_away(
    folders: &Folders,
    manifest: &ReadyManifest,
    receipt: &Receipt,
    now: Timestamp,
) -> Result<Filed, DisposeError> {
    let accepted = receipt.is_taken_in();
    let folder = if accepted { &folders.accepted } else { &folders.rejected };
    let path = &manifest.path;
    // A receipt without a reading is about the name alone: of a batch that cannot be called that.
    let is_read = receipt.read.is_none_or(|read| read == manifest.stat.identity);
    let filed = if is_read { file_into(folder, folders, manifest, receipt, now) } else { Ok(None) };
    match filed {
        Ok(Some(filed)) => Ok(filed),
        Ok(None) => Err(DisposeError::Changed { path: path.clone() }),
        Err(source) => Err(DisposeError::Io { path: path.clone(), folder: folder.clone(), source }),
    }
}

/// The same, into one of the folders. Nothing: the manifest is another one.
fn file_into(
    folder: &Path,
    folders: &Folders,
    manifest: &ReadyManifest,
    receipt: &Receipt,
    now: Timestamp,
) -> io::Result<Option<Filed>> {
    let inbox = InboxDir::open(&folders.inbox, true)?;
    // In an inbox, those who drop manifests can lay links; beside it, its owner does.
    let target = InboxDir::open(folder, folder.parent() != Some(&folders.inbox))?;
    let (name, identity) = (manifest.path.file_name().unwrap_or_default(), &manifest.stat.identity);
    let Some(sha256) = hash_of(&inbox, name, identity)? else { return Ok(None) };
    let place = loop {
        let place = find_place(&target, name, identity.bytes(), &sha256)?;
        let written = WrittenReceipt {
            filed_as: place.manifest.to_string_lossy().into_owned(),
            accepted: receipt.is_taken_in(),
            filed_at: now.to_string(),
            bytes: identity.bytes(),
            sha256: &sha256,
            receipt,
        };
        // False: one that came between the look and the writing. The next look finds it.
        if place.has_receipt || write_receipt(&target, &place.receipt, &written)? {
            break place;
        }
    };
    failpoint::hit("receipt-written");
    let is_moved = match place.has_manifest {
        true => discard(&inbox, name, &target, identity)?,
        false => relocate(&inbox, name, &target, &place.manifest, identity)?,
    };
    target.sync()?;
    inbox.sync()?;
    let filed = || Filed { manifest: folder.join(&place.manifest), receipt: folder.join(&place.receipt) };
    Ok(is_moved.then(filed))
}

/// The hash of a manifest, if it is what was read.
fn hash_of(inbox: &InboxDir, name: &OsStr, identity: &Identity) -> io::Result<Option<String>> {
    let Some(mut file) = inbox.read(name)? else { return Ok(None) };
    let sha256 = hash(&mut file)?;
    let is_same = Identity::of(&file.metadata()?) == *identity;
    Ok(is_same.then_some(sha256))
}

/// Writes a receipt that is whole whenever it is there. Returns false where the name is taken.
fn write_receipt(target: &InboxDir, name: &OsStr, written: &WrittenReceipt<'_>) -> io::Result<bool> {
    let draft = draft_of(name);
    let file = target.begin(&draft)?;
    match write_out(file, written).and_then(|()| target.take(target, &draft, name)) {
        Ok(true) => {
            target.sync()?;
            Ok(true)
        }
        // Half a receipt would only take room from others.
        other => {
            target.remove(&draft)?;
            other
        }
    }
}

fn write_out(file: File, written: &WrittenReceipt<'_>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    serde_json::to_writer_pretty(&mut file, written)?;
    file.write_all(b"\n")?;
    file.into_inner()?.sync_data()
}

/// Moves a manifest, whose name `to` was free a moment ago. Returns false where it turns out to be
/// another file than `identity`: it is where it was then.
fn relocate(
    inbox: &InboxDir,
    name: &OsStr,
    target: &InboxDir,
    to: &OsStr,
    identity: &Identity,
) -> io::Result<bool> {
    match target.take(inbox, name, to) {
        Ok(true) if target.holds(to, identity)? => Ok(true),
        // Somebody put another file in its place meanwhile, which nobody has read.
        Ok(true) if inbox.take(target, to, name)? => Ok(false),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            copy_over(inbox, name, target, to, identity)
        }
        Err(error) => Err(error),
    }
}

/// The same to another device.
fn copy_over(
    inbox: &InboxDir,
    name: &OsStr,
    target: &InboxDir,
    to: &OsStr,
    identity: &Identity,
) -> io::Result<bool> {
    let Some(mut file) = inbox.read(name)? else { return Ok(false) };
    let draft = draft_of(to);
    let mut copy = target.begin(&draft)?;
    if let Err(error) = io::copy(&mut file, &mut copy).and_then(|_| copy.sync_all()) {
        target.remove(&draft)?;
        return Err(error);
    }
    if Identity::of(&file.metadata()?) != *identity {
        target.remove(&draft)?;
        return Ok(false);
    }
    if !target.take(target, &draft, to)? {
        target.remove(&draft)?;
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    target.sync()?;
    // The copy is what was read. What may lie in the inbox instead by now stays there, and is read next.
    if inbox.holds(name, identity)? {
        inbox.remove(name)?;
    }
    Ok(true)
}

/// Removes a manifest that is kept already. Returns false where it is another file by now.
fn discard(inbox: &InboxDir, name: &OsStr, target: &InboxDir, identity: &Identity) -> io::Result<bool> {
    // Moved first, and looked at there: nothing can take its place between the look and the removal.
    let draft = draft_of(&numbered(name, 1));
    target.remove(&draft)?;
    match relocate(inbox, name, target, &draft, identity)? {
        true => target.remove(&draft).map(|()| true),
        false => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use rustix::fs::inotify;
    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;
    use crate::domain::diagnostic::{Diagnostic, Position};
    use crate::ingest::inbox::complete_manifest::FileStat;
    use crate::ingest::inbox::dispose_names::NAME_MAX_BYTES;

    struct TestFolders {
        _dir: TempDir,
        folders: Folders,
    }

    fn folders() -> TestFolders {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::in_jobs(dir.path());
        fs::create_dir(&folders.inbox).unwrap();
        TestFolders { _dir: dir, folders }
    }

    impl TestFolders {
        /// A complete manifest, and the receipt of its reading.
        fn drop_in(&self, name: impl AsRef<OsStr>, text: &str) -> (ReadyManifest, Receipt) {
            let path = self.folders.inbox.join(name.as_ref());
            fs::write(&path, text).unwrap();
            let stat = FileStat::of(&fs::metadata(&path).unwrap());
            let problem = Diagnostic::at(Position::line(2), "a bad row");
            let mut receipt = Receipt::of_refused(&path, problem);
            (receipt.read, receipt.refused, receipt.file_refused) = (Some(stat.identity), false, false);
            (receipt.rows, receipt.new, receipt.invalid) = (3, 2, 1);
            (ReadyManifest { path, stat }, receipt)
        }

        fn folders_of(&self) -> (InboxDir, InboxDir) {
            let open = |path| InboxDir::open(path, false).unwrap();
            (open(&self.folders.inbox), open(&self.folders.accepted))
        }

        fn file(&self, name: impl AsRef<OsStr>, text: &str) -> Filed {
            let (manifest, receipt) = self.drop_in(name, text);
            file_away(&self.folders, &manifest, &receipt, Timestamp(0)).unwrap()
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn read(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn folders_lie_beside_what_is_called_inbox_and_inside_anything_else() {
        let beside = Folders::of_inbox(Path::new("clients/a/inbox"));
        assert_eq!(beside.accepted, Path::new("clients/a/accepted"));
        assert_eq!(Folders::of_inbox(Path::new("inbox")).rejected, Path::new("rejected"));
        let inside = Folders::of_inbox(Path::new("clients/a"));
        assert_eq!(inside.accepted, Path::new("clients/a/accepted"));
        assert_eq!(inside.rejected, Path::new("clients/a/rejected"));
    }

    #[test]
    fn a_name_that_is_no_utf_8_is_filed_as_it_is() {
        let folders = folders();
        let filed = folders.file(OsStr::from_bytes(b"caf\xe9.csv"), "text");
        assert_eq!(filed.manifest, folders.folders.accepted.join(OsStr::from_bytes(b"caf\xe9.csv")));
        assert!(names(&folders.folders.inbox).is_empty());
        assert!(read(&filed.receipt)["file"].as_str().unwrap().ends_with("inbox/caf\u{fffd}.csv"));
    }

    #[test]
    fn a_manifest_goes_beside_its_receipt() {
        let folders = folders();
        let filed = folders.file("m.csv", "text");
        assert_eq!(fs::read_to_string(&filed.manifest).unwrap(), "text");
        assert_eq!(names(&folders.folders.accepted), ["m.csv", "m.csv.receipt.json"]);
        assert!(names(&folders.folders.inbox).is_empty());
        let receipt = read(&filed.receipt);
        let said =
            [&receipt["filed_as"], &receipt["filed_at"], &receipt["sha256"]].map(|v| v.as_str().unwrap());
        // SHA-256 of "text".
        let hash = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1";
        assert_eq!(said, ["m.csv", "1970-01-01T00:00:00.000Z", hash]);
        assert_eq!(
            (&receipt["new"], &receipt["bytes"], &receipt["accepted"]),
            (&2.into(), &4.into(), &true.into())
        );
        assert_eq!(receipt["problems"][0]["message"], "a bad row");
    }

    #[test]
    fn one_of_which_nothing_was_taken_in_is_rejected() {
        let folders = folders();
        for (refused, file_refused, new, have, folder) in [
            (false, false, 0, 3, &folders.folders.accepted),
            (false, false, 0, 0, &folders.folders.rejected),
            (true, false, 3, 0, &folders.folders.rejected),
            (false, true, 3, 0, &folders.folders.rejected),
        ] {
            let (manifest, mut receipt) = folders.drop_in("m.csv", "text");
            (receipt.refused, receipt.file_refused) = (refused, file_refused);
            (receipt.new, receipt.have) = (new, have);
            let filed = file_away(&folders.folders, &manifest, &receipt, Timestamp(0)).unwrap();
            assert_eq!(filed.receipt.parent().unwrap(), folder);
        }
    }

    #[test]
    fn nothing_is_overwritten() {
        let folders = folders();
        folders.file("m.csv", "one");
        folders.file("m.csv", "two");
        symlink("nowhere", folders.folders.accepted.join("m.3.csv")).unwrap();
        let filed = folders.file("m.csv", "three");
        assert_eq!(filed.manifest.file_name().unwrap(), "m.4.csv");
        let accepted = &folders.folders.accepted;
        for (name, text) in [("m.csv", "one"), ("m.2.csv", "two"), ("m.4.csv", "three")] {
            assert_eq!(fs::read_to_string(accepted.join(name)).unwrap(), text);
            assert_eq!(read(&accepted.join(format!("{name}.receipt.json")))["filed_as"], name);
        }
    }

    #[test]
    fn the_same_bytes_are_kept_once_with_a_receipt_for_each_reading() {
        let folders = folders();
        folders.file("m.csv", "one");
        folders.file("m.csv", "two");
        let filed = folders.file("m.csv", "one");
        assert_eq!(filed.manifest.file_name().unwrap(), "m.csv");
        assert_eq!(read(&filed.receipt)["filed_as"], "m.csv");
        assert_eq!(
            names(&folders.folders.accepted),
            ["m.2.csv", "m.2.csv.receipt.json", "m.3.csv.receipt.json", "m.csv", "m.csv.receipt.json"]
        );
        assert!(names(&folders.folders.inbox).is_empty());
    }

    #[test]
    fn what_disposing_reads_does_not_grow_with_what_was_disposed_before() {
        let folders = folders();
        folders.file("m.csv", "text of today 0000");
        let accepted = &folders.folders.accepted;
        let receipt = fs::read_to_string(accepted.join("m.csv.receipt.json")).unwrap();
        for number in 2..=3_000 {
            let name = format!("m.{number}.csv");
            fs::write(accepted.join(&name), format!("text of today {number:04}")).unwrap();
            let hash = format!("{number:064x}");
            let mut receipt: Value = serde_json::from_str(&receipt).unwrap();
            (receipt["filed_as"], receipt["sha256"]) = (name.as_str().into(), hash.into());
            fs::write(accepted.join(format!("{name}.receipt.json")), receipt.to_string()).unwrap();
        }
        let opened = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&opened, accepted, inotify::WatchFlags::OPEN).unwrap();
        let filed = folders.file("m.csv", "text of today 9999");
        assert_eq!(filed.manifest.file_name().unwrap(), "m.3001.csv");
        let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
        let mut events = inotify::Reader::new(&opened, &mut buffer);
        let opens = std::iter::from_fn(|| events.next().ok().map(drop)).count();
        assert!((1..60).contains(&opens), "{opens} files were opened");
    }

    #[test]
    fn the_same_bytes_again_and_again_are_kept_once() {
        let folders = folders();
        folders.file("m.csv", "one");
        for number in 2..40 {
            let filed = folders.file("m.csv", "one");
            assert_eq!(filed.manifest.file_name().unwrap(), "m.csv");
            assert_eq!(filed.receipt.file_name().unwrap(), format!("m.{number}.csv.receipt.json").as_str());
        }
        // What a receipt says is believed of files in its folder alone.
        fs::write(folders.folders.inbox.join("../secret"), "two").unwrap();
        let filed = folders.file("m.csv", "two");
        let text = fs::read_to_string(&filed.receipt).unwrap();
        fs::write(&filed.receipt, text.replace("\"m.40.csv\"", "\"../secret\"")).unwrap();
        assert_eq!(folders.file("m.csv", "two").manifest.file_name().unwrap(), "m.41.csv");
    }

    #[test]
    fn disposing_that_broke_off_after_the_receipt_is_ended_with_that_receipt() {
        let folders = folders();
        let filed = folders.file("m.csv", "one");
        // As a crash before the rename would have left it.
        fs::rename(&filed.manifest, folders.folders.inbox.join("m.csv")).unwrap();
        let first = fs::read(&filed.receipt).unwrap();
        fs::write(folders.folders.accepted.join(".m.csv.receipt.json.part"), "half a rec").unwrap();

        let (manifest, mut receipt) = folders.drop_in("m.csv", "one");
        (receipt.new, receipt.have) = (0, 2);
        let again = file_away(&folders.folders, &manifest, &receipt, Timestamp(9)).unwrap();
        assert_eq!(again, filed);
        assert_eq!(fs::read(&filed.receipt).unwrap(), first);
    }

    #[test]
    fn a_file_that_nobody_read_is_not_filed() {
        let folders = folders();
        // Replaced after the reading, before it was disposed.
        let (manifest, receipt) = folders.drop_in("m.csv", "one");
        fs::write(folders.folders.inbox.join("new"), "two").unwrap();
        fs::rename(folders.folders.inbox.join("new"), &manifest.path).unwrap();
        let error = file_away(&folders.folders, &manifest, &receipt, Timestamp(0)).unwrap_err();
        assert!(matches!(error, DisposeError::Changed { .. }), "{error}");
        // Another file was read under its name.
        let (_, receipt) = folders.drop_in("other.csv", "secret");
        let (manifest, _) = folders.drop_in("m.csv", "one");
        let error = file_away(&folders.folders, &manifest, &receipt, Timestamp(0)).unwrap_err();
        assert!(error.to_string().ends_with("m.csv changed after it was read; reading it again"), "{error}");
        assert!(!folders.folders.accepted.exists() || names(&folders.folders.accepted).is_empty());

        // Replaced in the moment of the rename: it is put back.
        let (manifest, _) = folders.drop_in("m.csv", "one");
        fs::write(&manifest.path, "another").unwrap();
        let (inbox, accepted) = folders.folders_of();
        let (name, identity) = (OsStr::new("m.csv"), &manifest.stat.identity);
        assert!(!relocate(&inbox, name, &accepted, name, identity).unwrap());
        assert!(!discard(&inbox, name, &accepted, identity).unwrap());
        assert_eq!(fs::read_to_string(&manifest.path).unwrap(), "another");
        assert!(names(&folders.folders.accepted).is_empty());
        // Gone altogether.
        fs::remove_file(&manifest.path).unwrap();
        assert!(!relocate(&inbox, name, &accepted, name, identity).unwrap());
    }

    #[test]
    fn a_manifest_crosses_devices() {
        let mut folders = folders();
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        folders.folders.accepted = elsewhere.path().join("accepted");
        let filed = folders.file("m.csv", "text");
        assert_eq!(fs::read_to_string(&filed.manifest).unwrap(), "text");
        assert_eq!(names(&folders.folders.accepted), ["m.csv", "m.csv.receipt.json"]);
        assert!(names(&folders.folders.inbox).is_empty());

        let (manifest, _) = folders.drop_in("n.csv", "one");
        fs::write(&manifest.path, "another").unwrap();
        let (inbox, accepted) = folders.folders_of();
        let name = OsStr::new("n.csv");
        assert!(!copy_over(&inbox, name, &accepted, name, &manifest.stat.identity).unwrap());
        assert!(manifest.path.exists());
        assert_eq!(names(&folders.folders.accepted), ["m.csv", "m.csv.receipt.json"]);
    }

    #[test]
    fn links_that_a_dropper_laid_lead_nowhere() {
        let mut folders = folders();
        let elsewhere = tempfile::tempdir().unwrap();
        // The folder itself, where those who drop manifests could have put it.
        folders.folders = Folders::of_inbox(&folders.folders.inbox.join("client"));
        fs::create_dir(&folders.folders.inbox).unwrap();
        symlink(elsewhere.path(), &folders.folders.accepted).unwrap();
        let (manifest, receipt) = folders.drop_in("m.csv", "text");
        let error = file_away(&folders.folders, &manifest, &receipt, Timestamp(0)).unwrap_err();
        assert!(error.to_string().ends_with("is a symbolic link; a directory is required"), "{error}");
        assert!(names(elsewhere.path()).is_empty() && manifest.path.exists());

        // The names of drafts in it.
        fs::remove_file(&folders.folders.accepted).unwrap();
        fs::create_dir(&folders.folders.accepted).unwrap();
        let victim = elsewhere.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        for draft in [".m.csv.receipt.json.part", ".m.csv.part"] {
            symlink(&victim, folders.folders.accepted.join(draft)).unwrap();
        }
        folders.file("m.csv", "text");
        folders.file("m.csv", "text");
        assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
    }

    #[test]
    fn an_owner_may_lead_accepted_elsewhere() {
        let folders = folders();
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        symlink(elsewhere.path(), &folders.folders.accepted).unwrap();
        folders.file("m.csv", "text");
        assert_eq!(names(elsewhere.path()), ["m.csv", "m.csv.receipt.json"]);
    }

    #[test]
    fn names_of_any_length_and_bytes_can_be_filed() {
        let folders = folders();
        let long = format!("{}.csv", "é".repeat(125));
        let filed = folders.file(&long, "text");
        assert_eq!(filed.manifest.file_name().unwrap(), format!("{}.csv", "é".repeat(98)).as_str());
        let endless = format!("m.{}", "x".repeat(240));
        assert_eq!(folders.file(&endless, "text").manifest.file_name().unwrap().len(), NAME_MAX_BYTES);
        let odd = OsStr::from_bytes(b"\xFF\xFE.csv");
        assert_eq!(numbered(odd, 2), OsStr::from_bytes(b"\xFF\xFE.2.csv"));
        assert_eq!(numbered(OsStr::new("m"), 3), "m.3");
    }
}
