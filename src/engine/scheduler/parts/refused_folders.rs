//! Batches whose output folders cannot be written to, although the output disk can: a link in the place of a folder,
//! another owner, a network file system that went away. Nothing more is bought for them until they can.

use std::collections::BTreeSet;

use crate::domain::ids::BatchNo;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct RefusedFolders {
    batches: BTreeSet<BatchNo>,
}

impl RefusedFolders {
    /// The folder of a batch cannot be written to. True: that is new.
    pub fn refuse(&mut self, batch: BatchNo) -> bool {
        self.batches.insert(batch)
    }

    /// The folder of a batch can be written to again. True: it could not before.
    pub fn take(&mut self, batch: BatchNo) -> bool {
        self.batches.remove(&batch)
    }

    /// Whether the folder of a batch cannot be written to.
    pub fn contains(&self, batch: BatchNo) -> bool {
        self.batches.contains(&batch)
    }

    /// Whether all of them can.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Those that cannot, oldest batch first.
    pub fn iter(&self) -> impl Iterator<Item = BatchNo> {
        self.batches.iter().copied()
    }
}
