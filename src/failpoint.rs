//! Places where a test can make the process die as if by `kill -9`.
//!
//! `CALLSHEET_FAILPOINT=posted:3` kills the process the third time it comes to `posted`. Only
//! builds with the profile `dev`, or one that inherits from it, contain them (`build.rs`); what people run does not.

/// The places of a job's life that every `run` and every daemon comes to, in its order. A name is one place in the code.
pub const OF_A_RUN: [&str; 19] = [
    "accepting",
    "taken",
    "flushed",
    "accepted",
    "admitted",
    "posted",
    "task-known",
    "read",
    "fetching",
    "downloaded",
    "sidecar-created",
    "part-written",
    "sidecar-written",
    "named",
    "published",
    "outcomes-written",
    "finishing",
    "ended",
    "reporting",
];

/// Places that only batches pass which were done before.
pub const OF_FINISHED: [&str; 1] = ["reopening"];

/// Places that only jobs pass that take outputs of other rows, or files.
pub const OF_REFERENCES: [&str; 1] = ["finding-inputs"];

/// Places that only jobs pass whose files are uploaded.
pub const OF_UPLOADS: [&str; 2] = ["uploading", "uploaded"];

/// Places that only outputs pass that are put into an object store.
pub const OF_STORED_OUTPUTS: [&str; 2] = ["storing", "stored"];

/// Places that only files pass whose store is not told their SHA-256, and which are read back.
pub const OF_FILES_READ_BACK: [&str; 1] = ["confirming"];

/// Places that only large files pass on their way into an object store.
pub const OF_LARGE_UPLOADS: [&str; 2] = ["part-stored", "completing-parts"];

/// Places that only outputs pass whose store is a folder.
pub const OF_FOLDERS: [&str; 1] = ["noted"];

/// Places that only outputs pass whose copies on disk are removed.
pub const OF_SCRATCH: [&str; 2] = ["freeing", "freed"];

/// Places that only outputs of edited rows pass, while another version takes their name.
pub const OF_EDITED_ROWS: [&str; 4] = ["moving", "moving-file", "moved", "versions-applied"];

/// Places that only a rebuild comes to.
pub const OF_REBUILDS: [&str; 1] = ["database-replaced"];

/// Places that only the daemon comes to, between `accepted` and `admitted`.
pub const OF_THE_DAEMON: [&str; 1] = ["receipt-written"];

/// Dies here, if this is the place and the time.
#[cfg(failpoints)]
pub fn hit(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static WANTED: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static HITS: AtomicU32 = AtomicU32::new(0);
    assert!(
        [
            &OF_A_RUN[..],
            &OF_THE_DAEMON,
            &OF_FINISHED,
            &OF_REFERENCES,
            &OF_UPLOADS,
            &OF_STORED_OUTPUTS,
            &OF_FILES_READ_BACK,
            &OF_LARGE_UPLOADS,
            &OF_FOLDERS,
            &OF_SCRATCH,
            &OF_EDITED_ROWS,
            &OF_REBUILDS,
        ]
        .iter()
        .any(|names| names.contains(&name)),
        "{name} is not in the list"
    );
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("CALLSHEET_FAILPOINT").ok()?;
        let (name, nth) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), nth.parse().ok()?))
    });
    if let Some((place, nth)) = wanted
        && place == name
        && HITS.fetch_add(1, Ordering::SeqCst) + 1 == *nth
    {
        // SIGKILL: no destructor, no flush, no last words.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

/// Nothing: this build has no failpoints.
#[cfg(not(failpoints))]
pub fn hit(_name: &'static str) {}
