//! Durable state: the only user of the database.
//!
//! One directory belongs to one process at a time and to one service:
//!
//! ```text
//! state/
//!   callsheet-state.json   format version and the service it was begun with
//!   lock                   held by the process that uses it; names its pid
//!   db/                    sled: unfinished batches, a line for each finished one, open jobs, totals. Small: what
//!                          has not begun and what has ended live in the spool
//!   spool/000001/          rows: what was accepted; outcomes: what became of it; finished: the record of a batch
//!                          that is done
//!   spool/000001/batch.json what a rebuilt database must know of the batch
//!   catalogs.json          the service's catalogs as last seen; a plan keeps them, too
//!   surcharges.json        what was charged above the catalogs' prices
//!   schedules.json         how far each schedule was handled; losing it fires nothing
//!   commits                the number of the last commit, to notice an old database that came back
//!   closed                 checksums of a database that was closed in order
//!   reserve                room for the database's last words on a full disk
//!   aside/                 what was damaged: set aside, never deleted
//! ```
//!
//! A reader looks for one of these:
//!
//! - **opening**: `open`, and what guards it: `state_format`, `process_lock`, `disk_reserve`, `clean_shutdown`, `open_check`,
//!   `child_reader`, `set_aside`, `commit_count`, `verify`; after root had it open, `file_owner`;
//! - **commit**: `commit` is the single write path. It returns once everything in it is on the device; no effect may begin
//!   before that. `sled_files`, `batch_backup` and `write_atomic` are what it takes;
//! - **load**: `load` reads what is not finished, `finished` what is, `snapshot` all at once, `spool` rows and outcomes, `job_record` the record of a job,
//!   `read_only` a state that another process may hold;
//! - **index**: `batch_index` names of batches, `job_index` names of jobs, `job_statuses` where the jobs of a batch stand,
//!   `finished_sums` what finished batches come to, and `finished_tally` whether their records fit together;
//! - **taking in**: `staging`, `row_partitions` and `row_lines`, a manifest on its way;
//! - **recovery**: `unopened_state`, the parts of a state whose database is not open; `dump`, the format of exports;
//! - **beside it**: `catalog_cache`, `surcharge_file`, `schedule_progress`.
//!
//! The store decides nothing about jobs, and no type of the database leaves it.

mod batch;
mod batch_backup;
mod batch_index;
pub mod catalog_cache;
pub mod child_reader;
mod clean_shutdown;
mod codec;
mod commit;
mod commit_count;
mod counters;
mod db_keys;
mod decided_takes;
mod disk_reserve;
pub mod dump;
mod ended_counts;
mod error;
pub mod file_owner;
mod finished;
mod finished_sums;
mod finished_tally;
mod job_index;
mod job_record;
mod job_statuses;
mod load;
pub mod new_row;
mod open;
mod open_check;
pub mod open_records;
mod outcome_files;
mod outcome_index;
mod parallel_map;
mod process_lock;
pub mod read_only;
mod row_delta;
pub mod row_lines;
mod row_partitions;
mod rows_by_id;
pub mod rows_folder;
pub mod schedule_progress;
mod set_aside;
mod sled_files;
mod snapshot;
pub mod spool;
pub mod staged_inputs;
pub mod staging;
mod state_folders;
mod state_format;
pub mod surcharge_file;
#[cfg(test)]
mod tests;
pub mod unopened_state;
mod verify;
mod version_file;
mod write_atomic;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

// What is committed.
pub use crate::store::batch::{AwaitedByHooks, BatchRecord, Pause, Segment};
pub use crate::store::commit::{COMMIT_MAX_JOBS, Change};
pub use crate::store::ended_counts::{Ended, KindCounts};
pub use crate::store::job_record::{JobRecord, OutcomeOutline};
// What is loaded.
pub use crate::store::error::StoreError;
pub use crate::store::finished::FinishedBatch;
pub use crate::store::snapshot::Snapshot;
pub use crate::store::state_format::EMULATOR_IDENTITY;
pub use crate::store::verify::{Inconsistency, VerifyReport};
// What is found.
pub use crate::store::job_statuses::OpenJobStatus;

use crate::store::batch_index::BatchIndex;
use crate::store::commit::{Database, Writer};
use crate::store::open_check::CopyRemoval;
use crate::store::outcome_index::OutcomeIndexes;
use crate::store::process_lock::Lock;

/// The state directory of one process.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// Nothing while it is opened anew.
    database: RwLock<Option<Database>>,
    writer: Mutex<Writer>,
    batch_index: BatchIndex,
    outcome_indexes: Mutex<OutcomeIndexes>,
    /// The open jobs as they were read when the state was opened: for the first who asks, unless a commit was made since.
    jobs_at_open: Mutex<Option<Vec<JobRecord>>>,
    /// Finished batches are listed whose last job ended at this time or later, in milliseconds since 1970.
    listed_since: AtomicI64,
    /// The disk was full, and the reserve is given up.
    is_short: AtomicBool,
    /// A commit failed: the database is not as it should be left.
    is_broken: AtomicBool,
    /// Over before the lock is given up: the next process sweeps copies.
    _copy_removal: Option<CopyRemoval>,
    _lock: Lock,
}

impl Store {
    /// Whether there is a state in a directory. Nothing in it is read.
    pub fn is_at(dir: &Path) -> bool {
        dir.join(state_format::FILE_NAME).is_file()
    }

    /// The service that the state in `dir` belongs to; nothing where there is no state, or none that this version reads.
    pub fn service_at(dir: &Path) -> Option<String> {
        state_format::service(dir).ok().flatten()
    }

    /// The state directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let database = self.database.get_mut().unwrap_or_else(PoisonError::into_inner);
        let was_open = database.take().is_some();
        if was_open && !self.is_broken.load(Ordering::Relaxed) {
            clean_shutdown::mark(&self.dir);
        }
    }
}
