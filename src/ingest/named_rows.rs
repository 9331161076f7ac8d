//! The rows of a manifest that its other rows name: some 70 bytes for each, found by the hash of its id.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::domain::job_reference::ReferredRow;

/// The first half of the SHA-256 of an id: no manifest has two ids with the same one.
type IdHash = [u8; 16];

/// A row that is named by another.
#[derive(Debug)]
pub(super) struct NamedRow {
    pub(super) line: u64,
    /// Who it is, or why nothing can be made from it.
    pub(super) meant: Result<ReferredRow, Box<str>>,
}

/// See the module's documentation. A name may be known before its row is.
#[derive(Debug, Default)]
pub(super) struct NamedRows(HashMap<IdHash, Option<NamedRow>>);

impl NamedRows {
    /// A row names this one.
    pub(super) fn name(&mut self, id: &str) {
        self.0.entry(hash(id)).or_default();
    }

    /// Whether a row names this one.
    pub(super) fn is_named(&self, id: &str) -> bool {
        self.0.contains_key(&hash(id))
    }

    /// Whether no row is named.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is known of a row that is named.
    pub(super) fn get(&self, id: &str) -> Option<&NamedRow> {
        self.0.get(&hash(id))?.as_ref()
    }

    /// Nothing is known any more of the rows that are named.
    pub(super) fn forget(&mut self) {
        self.0.values_mut().for_each(|row| *row = None);
    }

    /// What a row that is named comes to. The first row of an id counts.
    pub(super) fn insert(&mut self, id: &str, row: NamedRow) {
        self.0.entry(hash(id)).or_default().get_or_insert(row);
    }
}

fn hash(id: &str) -> IdHash {
    let mut half = IdHash::default();
    half.iter_mut().zip(Sha256::digest(id)).for_each(|(to, from)| *to = from);
    half
}
