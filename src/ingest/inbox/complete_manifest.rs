//! When a manifest in an inbox is complete: a decision about what was seen of it, and nothing else.
//!
//! No file system tells that a writer is done. What is seen is a sign, and each sign asks for another
//! span in which nothing about the file changes:
//!
//! | sign | wait | why |
//! |---|---|---|
//! | renamed in | none | the writer says so: this is the way that cannot go wrong |
//! | closed after writing | the inbox's: two seconds | a slow writer closes between rows: `echo row >> m.csv` |
//! | found by a scan | the same | nothing is known of the writer |
//! | the same, on a network file system | half a minute at least | other machines pass on what they write in bursts |
//!
//! A change without a sign begins the longest wait anew. Intake notices what changes after that, while
//! it reads, and the manifest comes back here.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use crate::domain::time::{Millis, Tick};
use crate::ingest::inbox::settle_time::SettleTimes;
use crate::ingest::manifest_file::Identity;

/// What shows that nobody touched a file between two looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Which file it is, how long, and when it was written.
    pub identity: Identity,
    /// The last change of content, times, name or rights: this clock cannot be set back by a writer.
    changed: (i64, i64),
    /// How many names it has.
    pub(super) links: u64,
}

impl FileStat {
    /// What a file's metadata show.
    pub(super) fn of(meta: &Metadata) -> FileStat {
        let changed = (meta.ctime(), meta.ctime_nsec());
        FileStat { identity: Identity::of(meta), changed, links: meta.nlink() }
    }
}

/// What drew attention to a file; a later one is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CompletionSign {
    /// It was in the folder.
    Found,
    /// Somebody closed it who could have written to it.
    Closed,
    /// It was renamed to its name.
    Renamed,
}

impl CompletionSign {
    fn settle(self, waits: SettleTimes) -> Millis {
        match self {
            CompletionSign::Found => waits.found,
            CompletionSign::Closed => waits.closed,
            CompletionSign::Renamed => Millis(0),
        }
    }
}

/// What is known of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) stat: FileStat,
    since: Tick,
    sign: CompletionSign,
}

impl FileState {
    /// A file that was not known.
    pub(super) fn first(stat: FileStat, sign: CompletionSign, now: Tick) -> FileState {
        FileState { stat, since: now, sign }
    }

    /// The same name, seen again. Returns whether it is another file, or was changed.
    pub(super) fn again(&mut self, stat: FileStat, sign: CompletionSign, now: Tick) -> bool {
        if self.stat != stat {
            *self = FileState::first(stat, sign, now);
            return true;
        }
        // The wait counts from the last close, whether or not something was written before it.
        if sign == CompletionSign::Closed && self.sign <= CompletionSign::Closed {
            self.since = now;
        }
        self.sign = self.sign.max(sign);
        false
    }

    /// When it counts, if nothing about it changes until then.
    pub(super) fn ready_at(&self, waits: SettleTimes) -> Tick {
        self.since.after(self.sign.settle(waits))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    /// Two that can be told apart.
    const WAITS: SettleTimes = SettleTimes { closed: Millis(500), found: Millis::from_secs(2) };
    const EXT4: i64 = 0xEF53;
    const NFS: i64 = 0x6969;

    /// A file, what is known of it, and a clock set by hand.
    struct Bench {
        dir: tempfile::TempDir,
        state: Option<FileState>,
    }

    impl Bench {
        fn new() -> Bench {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("m.csv"), "a\n").unwrap();
            Bench { dir, state: None }
        }

        fn append(&self) {
            let path = self.dir.path().join("m.csv");
            fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"b\n").unwrap();
        }

        /// Seen at `ms`; returns when it would count.
        fn seen(&mut self, sign: CompletionSign, ms: u64) -> u64 {
            self.seen_with(WAITS, sign, ms)
        }

        fn seen_with(&mut self, waits: SettleTimes, sign: CompletionSign, ms: u64) -> u64 {
            let stat = FileStat::of(&fs::metadata(self.dir.path().join("m.csv")).unwrap());
            match &mut self.state {
                Some(known) => {
                    known.again(stat, sign, Tick(ms));
                }
                None => self.state = Some(FileState::first(stat, sign, Tick(ms))),
            }
            self.state.unwrap().ready_at(waits).0
        }
    }

    #[test]
    fn a_rename_counts_at_once() {
        assert_eq!(Bench::new().seen(CompletionSign::Renamed, 100), 100);
    }

    #[test]
    fn what_a_scan_found_waits_longest_from_when_it_was_first_seen() {
        let mut bench = Bench::new();
        assert_eq!(bench.seen(CompletionSign::Found, 100), 2_100);
        assert_eq!(bench.seen(CompletionSign::Found, 900), 2_100);
    }

    #[test]
    fn on_a_network_file_system_a_rename_counts_at_once_and_nothing_else_does() {
        let mut bench = Bench::new();
        bench.seen(CompletionSign::Found, 100);
        let waits = SettleTimes::on(NFS, Millis::from_secs(2));
        assert_eq!(bench.state.unwrap().ready_at(waits), Tick(30_100));
        bench.seen(CompletionSign::Renamed, 100);
        assert_eq!(bench.state.unwrap().ready_at(waits), Tick(100));
    }

    #[test]
    fn a_writer_that_closes_after_each_row_is_waited_for() {
        let mut bench = Bench::new();
        let waits = SettleTimes::on(EXT4, Millis::from_secs(2));
        for closed in [0, 1_200, 2_400, 3_600] {
            let ready = bench.seen_with(waits, CompletionSign::Closed, closed);
            assert_eq!(ready, closed + 2_000, "the next row comes 1.2 s later");
            bench.append();
        }
    }

    #[test]
    fn a_better_sign_shortens_the_wait_and_a_worse_one_does_not_lengthen_it() {
        let mut bench = Bench::new();
        assert_eq!(bench.seen(CompletionSign::Found, 100), 2_100);
        assert_eq!(bench.seen(CompletionSign::Closed, 200), 700);
        assert_eq!(bench.seen(CompletionSign::Found, 300), 700);
        assert_eq!(bench.seen(CompletionSign::Renamed, 400), 200);
    }

    #[test]
    fn each_close_begins_the_wait_anew() {
        let mut bench = Bench::new();
        assert_eq!(bench.seen(CompletionSign::Closed, 100), 600);
        bench.append();
        assert_eq!(bench.seen(CompletionSign::Closed, 500), 1_000);
        assert_eq!(bench.seen(CompletionSign::Closed, 900), 1_400);
    }

    #[test]
    fn a_change_without_a_sign_asks_for_the_longest_wait() {
        let mut bench = Bench::new();
        assert_eq!(bench.seen(CompletionSign::Renamed, 100), 100);
        bench.append();
        assert_eq!(bench.seen(CompletionSign::Found, 200), 2_200);
    }

    #[test]
    fn a_file_put_in_the_place_of_another_is_another() {
        let mut bench = Bench::new();
        assert_eq!(bench.seen(CompletionSign::Found, 100), 2_100);
        let draft = bench.dir.path().join("draft");
        fs::write(&draft, "a\n").unwrap();
        fs::rename(&draft, bench.dir.path().join("m.csv")).unwrap();
        assert_eq!(bench.seen(CompletionSign::Found, 1_000), 3_000);
    }

    #[test]
    fn times_set_back_by_a_writer_do_not_hide_a_change() {
        let mut bench = Bench::new();
        let path = bench.dir.path().join("m.csv");
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(bench.seen(CompletionSign::Found, 100), 2_100);
        // Past the grain of the file system's clock.
        let changed = |path| FileStat::of(&fs::metadata(path).unwrap()).changed;
        let before = changed(&path);
        while changed(&path) == before {
            fs::write(&path, "z\n").unwrap();
            fs::File::open(&path).unwrap().set_modified(modified).unwrap();
        }
        assert_eq!(bench.seen(CompletionSign::Found, 1_000), 3_000);
    }
}
