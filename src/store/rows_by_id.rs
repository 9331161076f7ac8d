//! Rows of an accepted batch by their ids: for manifests that refer to them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;

use crate::domain::ids::{BatchName, Fingerprint, JobId, Seq};
use crate::domain::job_label::row_id;
use crate::domain::job_reference::{JobInput, ReferredRow};
use crate::domain::json_object::JsonObject;
use crate::domain::reference_graph::ReferenceGraph;
use crate::domain::request::Kind;
use crate::domain::row_versions::RowVersions;
use crate::store::spool::Lines;
use crate::store::{BatchRecord, Store, StoreError};

/// What is looked at of an accepted row.
#[derive(Deserialize)]
struct Row {
    seq: Seq,
    id: JobId,
    fingerprint: Fingerprint,
    variation: u32,
    label: String,
    order: RowOrder,
}

#[derive(Deserialize)]
struct RowOrder {
    kind: Kind,
    body: JsonObject,
    #[serde(default)]
    inputs: Vec<JobInput>,
}

/// The rows with these ids in a file of rows, up to so many bytes: of each the version that is wanted. `graph` is told what
/// each row is made from, other versions included.
pub(super) fn find(
    (path, bytes): (&Path, u64),
    versions: &RowVersions,
    ids: &HashSet<String>,
    mut graph: Option<&mut ReferenceGraph>,
) -> Result<HashMap<String, ReferredRow>, StoreError> {
    let mut found: HashMap<String, ReferredRow> = HashMap::new();
    let mut lines = Lines::open(path, 0, bytes)?;
    while let Some((_, row)) = lines.next_line::<Row>()? {
        let Row { seq, id, fingerprint, variation, label, order } = row;
        if let Some(graph) = &mut graph {
            graph.add(fingerprint, &order.inputs);
        }
        // Labels of rows without an `id` end so.
        let has_id = !label.ends_with(&format!("-{}", id.short()));
        let wanted = row_id(&label, variation).filter(|name| has_id && ids.contains(*name));
        let Some(name) = wanted.filter(|_| !versions.is_superseded(seq)) else { continue };
        let row = || ReferredRow::new(fingerprint, order.kind, variation, &order.body.fields());
        let known = found.entry(name.to_owned()).or_insert_with(row);
        known.count = known.count.max(variation);
    }
    Ok(found)
}

/// The other batches that rows in a file of rows name, up to so many bytes.
pub(super) fn referred_batches((path, bytes): (&Path, u64)) -> Result<BTreeSet<BatchName>, StoreError> {
    let mut found = BTreeSet::new();
    let mut lines = Lines::open(path, 0, bytes)?;
    while let Some((_, row)) = lines.next_line::<Row>()? {
        found.extend(row.order.inputs.into_iter().filter_map(|input| input.batch.map(|batch| batch.name)));
    }
    Ok(found)
}

impl Store {
    /// The rows of a batch that have these ids. `graph` is told what each of its rows is made from.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub fn rows_by_id(
        &self,
        batch: &BatchRecord,
        ids: &HashSet<String>,
        graph: Option<&mut ReferenceGraph>,
    ) -> Result<HashMap<String, ReferredRow>, StoreError> {
        let rows = self.spool(batch.no).rows_path();
        find((&rows, batch.spool_bytes), &self.row_versions(batch)?, ids, graph)
    }

    /// The other batches that rows of a batch may name. Its rows are read where its record does not tell.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub fn referred_batches(&self, batch: &BatchRecord) -> Result<BTreeSet<BatchName>, StoreError> {
        match &batch.refers_to {
            Some(batches) => Ok(batches.clone()),
            None => referred_batches((&self.spool(batch.no).rows_path(), batch.spool_bytes)),
        }
    }
}
