//! The files of outcomes that are open for more: of the batches that were written to last, as many as a process may well
//! have open. Thousands of batches may be under way at once.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::path::PathBuf;

use crate::domain::ids::BatchNo;
use crate::store::StoreError;
use crate::store::spool::Appender;

/// Files that stay open between commits, at most: a process mostly may have 1,024 of all kinds. A commit opens as many
/// more as it has batches.
const OPEN_MAX: usize = 64;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct OutcomeFiles {
    open: HashMap<BatchNo, OpenFile>,
    /// Batches whose files this process has opened: their names are on the device.
    named: HashSet<BatchNo>,
    /// Counts how often any was used.
    uses: u64,
}

#[derive(Debug)]
struct OpenFile {
    appender: Appender,
    used: u64,
}

impl OutcomeFiles {
    /// The file of a batch, to add to it. `place` tells where it lies and how many bytes of it count, where it is not open.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is shorter.
    pub(super) fn of(
        &mut self,
        no: BatchNo,
        place: impl FnOnce() -> Result<(PathBuf, u64), StoreError>,
    ) -> Result<&mut Appender, StoreError> {
        self.uses += 1;
        let file = match self.open.entry(no) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(free) => {
                let (path, committed) = place()?;
                let is_named = self.named.contains(&no);
                let open = if is_named { Appender::open_again } else { Appender::open };
                let appender = open(&path, committed)?;
                self.named.insert(no);
                free.insert(OpenFile { appender, used: 0 })
            }
        };
        file.used = self.uses;
        Ok(&mut file.appender)
    }

    /// Waits until what was added to the file of a batch is on the device. Returns its length, in bytes; nothing where it is
    /// not open.
    pub(super) fn sync(&mut self, no: BatchNo) -> Result<Option<u64>, StoreError> {
        self.open.get_mut(&no).map(|file| file.appender.sync()).transpose()
    }

    /// Closes those that were used longest ago, where too many are open. Everything added must have been synced.
    pub(super) fn close_oldest(&mut self) {
        if self.open.len() <= OPEN_MAX {
            return;
        }
        let mut used: Vec<u64> = self.open.values().map(|file| file.used).collect();
        used.sort_unstable();
        // Half of them: the next commits need not look for more.
        let kept_from = used[used.len() - OPEN_MAX / 2];
        self.open.retain(|_, file| file.used >= kept_from);
    }

    /// A batch is no longer written to: its file would stay open for as long as the process lives.
    pub(super) fn forget(&mut self, no: BatchNo) {
        self.open.remove(&no);
        self.named.remove(&no);
    }

    /// None is open any more; what was added and not committed counts for nothing.
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }

    /// How many are open.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
