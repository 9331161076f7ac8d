//! Inboxes on real folders: first what the index decides, by a clock set by hand, then whole inboxes with
//! the kernel's events.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode};
use serde_json::Value;
use tempfile::TempDir;

use super::complete_manifest::CompletionSign;
use super::dispose::{DisposeError, Folders, file_away};
use super::folder_lock::FolderLockError;
use super::*;
use crate::domain::quote::Rules;
use crate::domain::time::Timestamp;
use crate::ingest::tests::catalog;
use crate::ingest::{Accepted, IngestContext, IngestOptions, accept};
use crate::store::{Change, Store};

/// Longest wait for anything: a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// A time at which every wait is over.
const LATER: Tick = Tick(1_000_000);
/// What an inbox waits unless it is told otherwise.
const SETTLE: Millis = Millis::from_secs(2);

struct Folder {
    dir: TempDir,
    index: FileIndex,
}

impl Folder {
    fn new() -> Folder {
        let dir = tempfile::tempdir().unwrap();
        let index = FileIndex::new(&dir.path().join("inbox"), None, SETTLE);
        fs::create_dir(dir.path().join("inbox")).unwrap();
        Folder { dir, index }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("inbox").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Everything that is handed out at `now`, in order.
    fn ready(&mut self, now: Tick) -> Vec<String> {
        self.index.settle(now);
        let mut names = Vec::new();
        while let Some(manifest) = self.index.hand_out(now) {
            names.push(manifest.path.file_name().unwrap().to_string_lossy().into_owned());
        }
        names
    }

    /// The same after a look at the whole folder and time for everything to settle.
    fn found(&mut self) -> Vec<String> {
        self.index.scan(Tick(0));
        self.ready(LATER)
    }
}

#[test]
fn only_manifests_are_handed_out_and_links_and_pipes_are_reported_once() {
    let mut folder = Folder::new();
    folder.write("m.csv", "x");
    for name in [".hidden.csv", "m.csv.tmp", "m.csv.part", "m.csv~", "#m.csv#", "m.csv.receipt.json"] {
        folder.write(name, "x");
    }
    fs::create_dir(folder.path("accepted")).unwrap();
    folder.write("accepted/old.csv", "x");
    symlink(folder.path("m.csv"), folder.path("link.csv")).unwrap();
    symlink("nowhere", folder.path("dangling.csv")).unwrap();
    rustix::fs::mknodat(CWD, folder.path("pipe.csv"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let _socket = UnixListener::bind(folder.path("socket.csv")).unwrap();

    assert_eq!(folder.found(), ["m.csv"]);
    let later = Tick(LATER.0 + 1);
    for name in ["link.csv", "pipe.csv", "accepted", ".hidden.csv"] {
        folder.index.note(OsStr::new(name), CompletionSign::Renamed, later);
    }
    assert!(folder.ready(later).is_empty());
    folder.index.scan(later);
    let mut reports = folder.index.take_reports();
    reports.sort();
    let expected = [
        ("dangling.csv", "a symbolic link"),
        ("link.csv", "a symbolic link"),
        ("pipe.csv", "not a regular file"),
        ("socket.csv", "not a regular file"),
    ];
    assert_eq!(reports.len(), expected.len(), "each is reported once: {reports:?}");
    for (report, (name, kind)) in reports.iter().zip(expected) {
        let said =
            format!("{} is {kind}: it is ignored; to submit the manifest, copy", folder.path(name).display());
        assert!(report.starts_with(&said), "{report}");
    }
}

#[test]
fn the_file_that_was_written_first_comes_first() {
    let mut folder = Folder::new();
    for (name, age) in [("c.csv", 30), ("a.csv", 10), ("b.csv", 20)] {
        let file = File::create(folder.path(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000 - age)).unwrap();
    }
    assert_eq!(folder.found(), ["c.csv", "b.csv", "a.csv"]);
}

#[test]
fn a_file_is_handed_out_once_until_it_changes_or_is_put_back() {
    let mut folder = Folder::new();
    folder.write("m.csv", "x");
    assert_eq!(folder.found(), ["m.csv"]);
    assert!(folder.found().is_empty());
    folder.index.note(OsStr::new("m.csv"), CompletionSign::Closed, LATER);
    assert!(folder.ready(Tick(LATER.0 + 10_000)).is_empty());

    folder.write("m.csv", "longer");
    assert_eq!(folder.found(), ["m.csv"]);

    folder.index.put_back(OsStr::new("m.csv"), Millis(5_000), LATER);
    folder.index.scan(LATER);
    assert!(folder.ready(Tick(LATER.0 + 4_999)).is_empty());
    assert_eq!(folder.ready(Tick(LATER.0 + 5_000)), ["m.csv"]);

    fs::remove_file(folder.path("m.csv")).unwrap();
    assert!(folder.found().is_empty());
    folder.write("m.csv", "longer");
    assert_eq!(folder.found(), ["m.csv"]);
}

#[test]
fn a_file_that_changes_just_before_it_is_handed_out_waits() {
    let mut folder = Folder::new();
    folder.write("m.csv", "x");
    folder.index.note(OsStr::new("m.csv"), CompletionSign::Renamed, Tick(0));
    folder.index.settle(Tick(0));
    assert!(folder.index.has_ready());
    folder.write("m.csv", "longer");
    assert!(folder.ready(Tick(1)).is_empty());
    assert_eq!(folder.ready(Tick(1 + SETTLE.0)), ["m.csv"]);
}

#[test]
fn a_file_that_is_written_in_place_is_left_alone_for_as_long_as_the_inbox_says() {
    let mut folder = Folder::new();
    folder.index = FileIndex::new(&folder.dir.path().join("inbox"), None, Millis(700));
    folder.write("m.csv", "x");
    folder.index.note(OsStr::new("m.csv"), CompletionSign::Closed, Tick(0));
    assert!(folder.ready(Tick(699)).is_empty());
    assert_eq!(folder.ready(Tick(700)), ["m.csv"]);
    folder.write("n.csv", "x");
    folder.index.scan(Tick(1_000));
    assert!(folder.ready(Tick(1_699)).is_empty());
    assert_eq!(folder.ready(Tick(1_700)), ["n.csv"]);
}

#[test]
fn a_hard_link_is_said_once_and_counts_when_its_other_name_is_gone() {
    let mut folder = Folder::new();
    let other = folder.dir.path().join("other.csv");
    fs::write(&other, "x").unwrap();
    fs::hard_link(&other, folder.path("m.csv")).unwrap();
    assert!(folder.found().is_empty());
    assert!(folder.found().is_empty());
    let reports = folder.index.take_reports();
    assert!(reports.len() == 1 && reports[0].contains("m.csv has 2 names (hard links)"), "{reports:?}");
    fs::remove_file(other).unwrap();
    assert_eq!(folder.found(), ["m.csv"]);
}

/// Root may read everything, so the rights that make it so are laid down, by this thread alone.
pub(crate) fn without_roots_rights(test: impl FnOnce() + Send + 'static) {
    let test = move || {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, sets).unwrap();
        test();
    };
    std::thread::spawn(test).join().unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn an_unreadable_file_stays_is_said_once_and_counts_when_it_can_be_read() {
    without_roots_rights(|| {
        let mut folder = Folder::new();
        folder.write("m.csv", "x");
        folder.write("n.csv", "x");
        chmod(&folder.path("m.csv"), 0o000);
        assert_eq!(folder.found(), ["n.csv"]);
        assert!(folder.found().is_empty());
        let reports = folder.index.take_reports();
        assert!(reports.len() == 1, "{reports:?}");
        assert!(reports[0].contains("m.csv cannot be read: Permission denied"), "{reports:?}");
        assert!(reports[0].contains("give the user that runs callsheet the right to read it"), "{reports:?}");
        chmod(&folder.path("m.csv"), 0o644);
        assert_eq!(folder.found(), ["m.csv"]);
    });
}

#[test]
fn an_unreadable_folder_is_said_once_and_tried_again() {
    without_roots_rights(|| {
        let mut folder = Folder::new();
        folder.write("m.csv", "x");
        let inbox = folder.dir.path().join("inbox");
        // Neither list nor enter, then list without entering.
        for mode in [0o000, 0o000, 0o400, 0o400] {
            chmod(&inbox, mode);
            assert!(folder.found().is_empty());
        }
        let reports = folder.index.take_reports();
        assert!(
            reports.len() == 1 && reports[0].contains("cannot be read: Permission denied"),
            "{reports:?}"
        );
        chmod(&inbox, 0o700);
        assert_eq!(folder.found(), ["m.csv"]);
        assert!(folder.index.take_reports()[0].contains("can be read again"));
    });
}

#[test]
fn copies_beside_a_manifest_are_left_alone_and_reported_once() {
    let mut folder = Folder::new();
    for name in ["spring.csv", "spring.csv.bak", "spring.csv.filepart", "~$spring.csv", "README"] {
        folder.write(name, "x");
    }
    folder.index.note(OsStr::new("spring.csv.bak"), CompletionSign::Renamed, Tick(0));
    assert_eq!(folder.found(), ["spring.csv"]);
    folder.index.scan(Tick(LATER.0 + 1));
    let mut reports = folder.index.take_reports();
    reports.sort();
    assert_eq!(reports.len(), 3, "{reports:?}");
    for (report, name) in reports.iter().zip(["README", "spring.csv.bak", "spring.csv.filepart"]) {
        assert!(report.contains(&format!("{name} is ignored")), "{report}");
    }
}

#[test]
fn what_is_too_much_at_once_waits_until_there_is_room() {
    let mut folder = Folder::new();
    folder.index.known_max = 2;
    for name in ["a.csv", "b.csv", "c.csv"] {
        folder.write(name, "x");
    }
    let mut names = folder.found();
    assert_eq!(names.len(), 2);
    assert!(folder.found().is_empty());
    let reports = folder.index.take_reports();
    assert!(reports.len() == 1 && reports[0].contains("more than 2 files; the rest waits"), "{reports:?}");
    fs::remove_file(folder.path(&names[0])).unwrap();
    // The first scan finds that there is room, the next one what takes it.
    names.extend(folder.found());
    names.extend(folder.found());
    names.sort();
    assert_eq!(names, ["a.csv", "b.csv", "c.csv"]);
}

#[test]
fn ten_thousand_files_at_once_come_in_order_and_once_each() {
    let mut folder = Folder::new();
    for n in 0..10_000 {
        folder.write(&format!("m{n:05}.csv"), "");
    }
    let names = folder.found();
    assert_eq!(names.len(), 10_000);
    assert!(names.is_sorted());
    assert!(folder.found().is_empty());
}

#[test]
fn what_another_process_watches_is_left_to_it_until_it_ends() {
    let mut folder = Folder::new();
    let inbox = folder.dir.path().join("inbox");
    let held = FolderLock::take(&inbox).unwrap();
    folder.write("m.csv", "x");
    assert!(folder.found().is_empty());
    folder.index.note(OsStr::new("m.csv"), CompletionSign::Renamed, LATER);
    assert!(folder.ready(LATER).is_empty() && folder.found().is_empty());
    let reports = folder.index.take_reports();
    assert!(reports.len() == 1 && reports[0].contains("inbox is watched by another daemon"), "{reports:?}");
    drop(held);
    assert_eq!(folder.found(), ["m.csv"]);
    assert!(folder.index.take_reports()[0].contains("can be read again"));
    assert!(matches!(FolderLock::take(&inbox), Err(FolderLockError::Taken(_))));
}

#[test]
fn a_folder_that_takes_the_place_of_a_locked_one_is_locked_anew() {
    let mut folder = Folder::new();
    let inbox = folder.dir.path().join("inbox");
    folder.write("m.csv", "x");
    folder.index.scan(Tick(0));
    folder.index.settle(LATER);
    assert!(folder.index.has_ready());
    // Between two scans, and another process was faster.
    fs::rename(&inbox, folder.dir.path().join("away")).unwrap();
    fs::create_dir(&inbox).unwrap();
    folder.write("m.csv", "x");
    let held = FolderLock::take(&inbox).unwrap();
    assert!(folder.ready(LATER).is_empty() && folder.found().is_empty());
    drop(held);
    assert_eq!(folder.found(), ["m.csv"]);
    assert!(FolderLock::take(&inbox).is_err());
    drop(folder.index);
    FolderLock::take(&inbox).unwrap();
}

/// An open inbox, and a folder beside it to write files in.
struct InboxTest {
    dir: TempDir,
    inbox: Inbox,
}

/// Scans that no test waits for, and a short wait after a close.
const RARELY: WatchOptions =
    WatchOptions { rescan: Millis::from_secs(3600), events: true, settle: Millis(500) };
/// No events, as on a network file system.
const BY_SCAN: WatchOptions = WatchOptions { rescan: Millis(50), events: false, settle: SETTLE };

impl InboxTest {
    /// An inbox whose folder is watched already.
    async fn open(watch: WatchOptions) -> InboxTest {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inbox")).unwrap();
        let inbox = Inbox::open(&dir.path().join("inbox"), None, watch, Clock::start());
        let mut test = InboxTest { dir, inbox };
        if !watch.events {
            return test;
        }
        // Heard at once when events are, so what is not heard came too early.
        for n in 0.. {
            let (draft, path) = (test.draft("x"), test.path(&format!("first-{n}.csv")));
            fs::rename(draft, &path).unwrap();
            let heard = async { while test.inbox.next().await.unwrap().path != path {} };
            let is_heard = tokio::time::timeout(Duration::from_millis(100), heard).await.is_ok();
            fs::remove_file(path).unwrap();
            if is_heard {
                break;
            }
        }
        test
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("inbox").join(name)
    }

    fn draft(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("draft");
        fs::write(&path, text).unwrap();
        path
    }

    async fn next_ready(&mut self) -> ReadyManifest {
        tokio::time::timeout(PATIENCE, self.inbox.next()).await.unwrap().unwrap()
    }

    async fn next(&mut self) -> String {
        self.next_ready().await.path.file_name().unwrap().to_string_lossy().into_owned()
    }
}

#[tokio::test]
async fn a_rename_is_heard_at_once_and_the_last_of_several_names_counts() {
    let mut test = InboxTest::open(WatchOptions { settle: SETTLE, ..RARELY }).await;
    let draft = test.draft("x");
    let began = Clock::start();
    fs::rename(&draft, test.path("m.csv.tmp")).unwrap();
    fs::rename(test.path("m.csv.tmp"), test.path("m.csv")).unwrap();
    assert_eq!(test.next().await, "m.csv");
    assert!(began.now().tick.0 < SETTLE.0, "waited for a file that was renamed in");
}

#[tokio::test]
async fn an_editors_save_is_read_as_it_ends() {
    let mut test = InboxTest::open(RARELY).await;
    // As an editor saves: a test file, a backup, the new text under a name of its own, then renamed.
    fs::write(test.path("4913"), "").unwrap();
    fs::remove_file(test.path("4913")).unwrap();
    fs::write(test.path("m.csv"), "old").unwrap();
    fs::rename(test.path("m.csv"), test.path("m.csv~")).unwrap();
    fs::write(test.path(".m.csv.new"), "the new text").unwrap();
    fs::rename(test.path(".m.csv.new"), test.path("m.csv")).unwrap();
    let manifest = test.next_ready().await;
    assert_eq!(fs::read_to_string(manifest.path).unwrap(), "the new text");
    // And again over the one that was handed out.
    let draft = test.draft("newer still");
    fs::rename(&draft, test.path("m.csv")).unwrap();
    let manifest = test.next_ready().await;
    assert_eq!(manifest.stat.identity.bytes(), "newer still".len() as u64);
}

#[tokio::test]
async fn a_slow_writer_is_waited_for() {
    let mut test = InboxTest::open(RARELY).await;
    let path = test.path("m.csv");
    let writer = tokio::spawn(async move {
        // Opened anew for every piece, with pauses below the wait after a close.
        for n in 0..60 {
            let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
            writeln!(file, "row {n}").unwrap();
            drop(file);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let manifest = test.next_ready().await;
    assert_eq!(fs::read_to_string(&manifest.path).unwrap().lines().count(), 60);
    writer.await.unwrap();
}

#[tokio::test]
async fn a_file_that_stays_open_is_waited_for() {
    let mut test = InboxTest::open(WatchOptions { rescan: Millis(50), settle: SETTLE, ..RARELY }).await;
    let mut file = File::create(test.path("m.csv")).unwrap();
    let writer = tokio::spawn(async move {
        for n in 0..15 {
            writeln!(file, "row {n}").unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let manifest = test.next_ready().await;
    assert_eq!(fs::read_to_string(&manifest.path).unwrap().lines().count(), 15);
    writer.await.unwrap();
}

#[tokio::test]
async fn a_copy_of_a_large_file_is_taken_whole() {
    let mut test = InboxTest::open(RARELY).await;
    let text = vec![b'x'; 64 * 1024 * 1024];
    let (from, to) = (test.dir.path().join("large"), test.path("large.csv"));
    fs::write(&from, &text).unwrap();
    let copied = tokio::process::Command::new("cp").arg(&from).arg(&to).status();
    let (copied, manifest) = tokio::join!(copied, test.next_ready());
    assert!(copied.unwrap().success());
    assert_eq!(manifest.stat.identity.bytes(), text.len() as u64);
}

#[tokio::test]
async fn without_events_scans_find_everything() {
    let mut test = InboxTest::open(BY_SCAN).await;
    let draft = test.draft("x");
    fs::rename(&draft, test.path("a.csv")).unwrap();
    assert_eq!(test.next().await, "a.csv");
    fs::remove_file(test.path("a.csv")).unwrap();
    fs::write(test.path("b.csv"), "x").unwrap();
    assert_eq!(test.next().await, "b.csv");
}

#[tokio::test]
async fn a_folder_that_was_deleted_is_made_again_and_watched() {
    let mut test = InboxTest::open(RARELY).await;
    let inbox = test.dir.path().join("inbox");
    fs::remove_dir_all(&inbox).unwrap();
    // By events alone: the next scan is an hour away.
    let made_again = async {
        while !inbox.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, made_again).await.unwrap();
    let draft = test.draft("x");
    fs::rename(&draft, test.path("m.csv")).unwrap();
    assert_eq!(test.next().await, "m.csv");
}

#[tokio::test]
async fn a_folder_put_in_the_place_of_another_is_watched_in_its_stead() {
    let mut test = InboxTest::open(RARELY).await;
    let (inbox, other) = (test.dir.path().join("inbox"), test.dir.path().join("other"));
    fs::create_dir(&other).unwrap();
    fs::write(other.join("there-before.csv"), "x").unwrap();
    fs::rename(&inbox, test.dir.path().join("away")).unwrap();
    // Either the empty folder that was made at once gives way, or there is none yet.
    while let Err(error) = fs::rename(&other, &inbox) {
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
    }
    assert_eq!(test.next().await, "there-before.csv");
    let draft = test.draft("x");
    fs::rename(&draft, test.path("m.csv")).unwrap();
    assert_eq!(test.next().await, "m.csv");
}

#[tokio::test]
async fn ten_thousand_renames_at_once_are_each_handed_out_once() {
    let mut test = InboxTest::open(WatchOptions { rescan: Millis(500), ..RARELY }).await;
    let drafts = test.dir.path().join("drafts");
    fs::create_dir(&drafts).unwrap();
    let names: Vec<String> = (0..10_000).map(|n| format!("m{n:05}.csv")).collect();
    names.iter().for_each(|name| fs::write(drafts.join(name), "").unwrap());
    names.iter().for_each(|name| fs::rename(drafts.join(name), test.path(name)).unwrap());
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < names.len() {
        let manifest = test.next_ready().await;
        fs::remove_file(&manifest.path).unwrap();
        assert!(seen.insert(manifest.path.clone()), "{} came twice", manifest.path.display());
    }
}

#[tokio::test]
async fn what_an_overrun_queue_of_events_lost_is_found() {
    let mut test = InboxTest::open(RARELY).await;
    let queue = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queue: usize = queue.trim().parse().unwrap();
    let names = [test.path("one.csv.tmp"), test.path("two.csv.tmp")];
    fs::write(&names[0], "x").unwrap();
    let draft = test.draft("x");
    // The queue fills before it is read: the reader of the first sign has to wait for the notes.
    let events = Arc::clone(&test.inbox.events);
    let pending = events.pending();
    // Two events each.
    for n in 0..queue {
        fs::rename(&names[n % 2], &names[(n + 1) % 2]).unwrap();
    }
    fs::rename(&draft, test.path("lost.csv")).unwrap();
    drop(pending);
    // The next scan by the clock is an hour away.
    assert_eq!(test.next().await, "lost.csv");
}

#[tokio::test]
async fn a_manifest_that_changed_while_it_was_read_comes_again() {
    let mut test = InboxTest::open(RARELY).await;
    let draft = test.draft("x");
    fs::rename(&draft, test.path("m.csv")).unwrap();
    let manifest = test.next_ready().await;
    test.inbox.put_back(&manifest, Millis(10));
    assert_eq!(test.next_ready().await, manifest);
}

/// Reads a manifest as the daemon does.
fn read_in(store: &Store, path: &Path) -> Accepted {
    accept(
        store,
        path,
        &IngestContext::new(&catalog(), &Rules::builtin(), IngestOptions::default()),
        Timestamp(0),
    )
    .unwrap()
}

const TWO_GOOD_ROWS_OF_THREE: &str =
    "id,kind,model,prompt\na,image,flat,fox\nb,image,nope,owl\nc,image,flat,hen\n";

#[tokio::test]
async fn a_crash_between_commit_and_disposal_leads_to_a_second_reading_that_adds_nothing() {
    let mut test = InboxTest::open(RARELY).await;
    let store = Store::open(&test.dir.path().join("state"), "s", false).unwrap();
    let draft = test.draft(TWO_GOOD_ROWS_OF_THREE);
    fs::rename(&draft, test.path("m.csv")).unwrap();
    let manifest = test.next_ready().await;
    let accepted = read_in(&store, &manifest.path);
    assert_eq!(accepted.receipt.read, Some(manifest.stat.identity));
    store.commit(&[Change::Batch(Box::new(accepted.batch.unwrap()))]).unwrap();

    // Nothing is filed: the next process finds the manifest where it was.
    let soon = WatchOptions { rescan: Millis(50), ..RARELY };
    test.inbox = Inbox::open(&test.dir.path().join("inbox"), None, soon, Clock::start());
    let manifest = test.next_ready().await;
    let Accepted { receipt, batch, .. } = read_in(&store, &manifest.path);
    assert!(batch.is_none());
    assert_eq!(receipt.read, Some(manifest.stat.identity));
    let folders = Folders::in_jobs(test.dir.path());
    let filed = file_away(&folders, &manifest, &receipt, Timestamp(0)).unwrap();
    assert_eq!(filed.manifest, folders.accepted.join("m.csv"));
    let written: Value = serde_json::from_slice(&fs::read(filed.receipt).unwrap()).unwrap();
    let counts = ["rows", "new", "have", "invalid"].map(|name| written[name].as_u64().unwrap());
    assert_eq!(counts, [3, 0, 2, 1]);
    assert_eq!(written["problems"][0]["field"], "model");
}

#[tokio::test]
async fn what_took_a_manifests_name_for_a_moment_is_neither_committed_nor_filed() {
    let mut test = InboxTest::open(RARELY).await;
    let store = Store::open(&test.dir.path().join("state"), "s", false).unwrap();
    let draft = test.draft(TWO_GOOD_ROWS_OF_THREE);
    fs::rename(&draft, test.path("m.csv")).unwrap();
    let manifest = test.next_ready().await;
    let secret = test.draft("id,kind,model,prompt\nsecret,image,flat,x\n");
    fs::rename(&manifest.path, test.path(".m.csv")).unwrap();
    symlink(secret, &manifest.path).unwrap();
    let Accepted { receipt, .. } = read_in(&store, &manifest.path);
    fs::rename(test.path(".m.csv"), &manifest.path).unwrap();

    assert_ne!(receipt.read, Some(manifest.stat.identity));
    let folders = Folders::in_jobs(test.dir.path());
    let error = file_away(&folders, &manifest, &receipt, Timestamp(0)).unwrap_err();
    assert!(matches!(error, DisposeError::Changed { .. }), "{error}");
}
