//! The new rows of a manifest, written into their batch.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::domain::ids::{Fingerprint, JobId, Seq};
use crate::domain::job_label::label;
use crate::domain::queue_class::{Division, QueueClass};
use crate::domain::row_versions::VersionChange;
use crate::domain::time::Timestamp;
use crate::ingest::row_pipeline::{self, Chunks};
use crate::store::new_row::NewRow;
use crate::store::row_lines::RowLines;
use crate::store::rows_folder::JobIndexWriter;
use crate::store::rows_folder::RowsFolder;
use crate::store::spool::Appender;
use crate::store::staging::{
    RowRequest, StagedManifest, StagedOrder, StagedRow, StagedRows, VariationChange, Verdict,
};
use crate::store::{BatchRecord, Segment, Store, StoreError};

/// Most rows that one thread makes into lines at a time. The first of them stand in full.
const WRITTEN_ROWS: usize = 512;

/// What is ordered by a row, with the jobs that are new of it.
struct RowToWrite {
    fingerprint: Fingerprint,
    label: Option<String>,
    apart: bool,
    order: Box<StagedOrder>,
    /// The variations that are new, in their order.
    variations: Vec<u32>,
    /// The place in the batch of the first of them.
    first_seq: u32,
}

impl RowToWrite {
    /// The places of its jobs among those that are new of it.
    fn places(&self) -> Range<u32> {
        0..u32::try_from(self.variations.len()).unwrap_or(u32::MAX)
    }

    /// Writes one of its jobs, by its place among those that are new.
    fn write<T>(&self, place: u32, write: impl FnOnce(&NewRow<'_>) -> T) -> T {
        let RowToWrite { fingerprint, apart, ref order, ref variations, first_seq, .. } = *self;
        // Every place is one of theirs.
        let variation = variations.get(place as usize).copied().unwrap_or_default();
        let (id, seq) = (JobId::derive(fingerprint, variation), Seq(first_seq + place));
        let label = label(self.label.as_deref(), variation, || &order.text, id);
        write(&NewRow { seq, id, fingerprint, variation, label: &label, apart, order })
    }
}

/// The rows of a manifest that new jobs come of, one by one, and what is counted of them meanwhile.
struct RowsToWrite<'a, F> {
    rows: StagedRows<'a>,
    is_first: F,
    division: Division,
    batch: BatchRecord,
    /// The parts of the batch's rows, by what is sent first: numbered as they are found.
    parts: BTreeMap<(bool, i8, QueueClass), usize>,
    changes: Vec<VersionChange>,
}

impl<F: Fn(&StagedRow) -> bool> RowsToWrite<'_, F> {
    /// The next one, with the number of its part.
    fn next_row(&mut self) -> Result<Option<(RowToWrite, usize)>, StoreError> {
        while let Some(mut read) = self.rows.next_row()? {
            let Verdict::Wanted { .. } = read.verdict else { continue };
            let seq = self.batch.rows;
            let variations: Vec<u32> = read.new_variations().collect();
            let changes = std::mem::take(&mut read.changes);
            let row = read.row;
            let new_ones = matches!(row.wanted, RowRequest::Order(_)).then_some((seq, &*variations));
            self.changes.extend(changes.into_iter().filter_map(|change| version_change(change, new_ones)));
            let is_first = (self.is_first)(&row);
            let StagedRow { fingerprint, label, apart, wanted, .. } = row;
            let RowRequest::Order(order) = wanted else { continue };
            let next = self.parts.len();
            let class = (is_first, order.priority, self.division.of(&order.classes));
            let part = *self.parts.entry(class).or_insert(next);
            for _ in &variations {
                self.batch.planned = self.batch.planned + order.hold.unwrap_or_default();
                self.batch.count_accepted(order.kind);
                self.batch.rows += 1;
            }
            let row = RowToWrite { fingerprint, label, apart, order, variations, first_seq: seq };
            return Ok(Some((row, part)));
        }
        Ok(None)
    }
}

/// What the versions of an edited row are told. `new_ones` are the variations of the row that are new, with the place in the
/// batch of the first of them; nothing where the row orders none.
fn version_change(change: VariationChange, new_ones: Option<(u32, &[u32])>) -> Option<VersionChange> {
    let VariationChange { variation, instead_of, back_to, is_dropped, .. } = change;
    if let Some((wanted, at)) = back_to {
        return Some(VersionChange { wanted, instead_of, row_at: Some(at).filter(|_| !is_dropped) });
    }
    let (first_seq, variations) = new_ones?;
    // One that is dropped is replaced by the first variation, which is new.
    let place = if is_dropped { 0 } else { variations.binary_search(&variation).ok()? };
    Some(VersionChange { wanted: Seq(first_seq + u32::try_from(place).ok()?), instead_of, row_at: None })
}

/// Appends the new jobs to the batch's rows, the most urgent first and those that need the same together, and returns
/// the batch that knows of them. Places in the batch follow the manifest, whatever lies where.
pub(super) fn write_rows(
    store: &Store,
    mut batch: BatchRecord,
    staged: &StagedManifest,
    is_first: impl Fn(&StagedRow) -> bool + Sync + Send,
    now: Timestamp,
    (folder, mut rows_file): (&RowsFolder, Appender),
) -> Result<BatchRecord, StoreError> {
    if batch.segments.iter().all(Segment::is_through) {
        batch.waiting_since = Some(now);
    }
    batch.join_segments();
    let division = staged.census.division();
    // Rows that all need the same lie as they come.
    let is_one = staged.census.classes(division) <= 1 && batch.pilot.is_none();
    let start = rows_file.bytes();
    let (rows, parts) = (staged.rows()?, BTreeMap::new());
    let mut to_write = RowsToWrite { rows, is_first, division, batch, parts, changes: Vec::new() };
    let mut parts = staged.parts();
    let mut index = None;
    if is_one {
        index = folder.begin_index(start)?;
        write_in_order(&mut to_write, &mut rows_file, index.as_mut())?;
    } else {
        while let Some((row, part)) = to_write.next_row()? {
            for place in row.places() {
                row.write(place, |row| parts.push(part, row))?;
            }
        }
    }
    let RowsToWrite { mut batch, changes, parts: found, .. } = to_write;
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|((pilot, priority, _), part)| (Reverse(*pilot), Reverse(*priority), *part));
    let mut cursor = start;
    for ((pilot, priority, class), part) in found {
        parts.append_to(part, &mut rows_file)?;
        let end = rows_file.bytes();
        if end > cursor {
            batch.segments.push(Segment { priority, class, cursor, end, pilot });
        }
        cursor = end;
    }
    batch.spool_bytes = rows_file.sync()?;
    if !changes.is_empty() {
        if changes.iter().any(|change| change.row_at.is_some()) {
            batch.versions_pending = batch.versions_pending.or(Some(batch.versions_bytes));
        }
        batch.versions_bytes = store.append_versions(&batch, &changes)?;
    }
    match index {
        Some(index) => index.finish(batch.spool_bytes)?,
        None => folder.index(batch.spool_bytes)?,
    }
    // More of it is wanted anew.
    batch.canceled = false;
    batch.announced = false;
    batch.finished = None;
    Ok(batch)
}

/// Writes rows of one part as they come: several threads make the lines.
fn write_in_order<F: Fn(&StagedRow) -> bool + Send>(
    to_write: &mut RowsToWrite<'_, F>,
    rows_file: &mut Appender,
    mut index: Option<&mut JobIndexWriter>,
) -> Result<(), StoreError> {
    let first_seq = to_write.batch.rows;
    let mut unread = None;
    let rows = std::iter::from_fn(|| match to_write.next_row() {
        Ok(row) => row.map(|(row, _)| row),
        Err(error) => {
            unread = Some(error);
            None
        }
    });
    // A row may ask for many variations: their lines are not held all at once.
    let jobs = rows.fuse().flat_map(|row| {
        let row = Arc::new(row);
        row.places().map(move |place| (row.clone(), place))
    });
    let weigh = |(row, _): &(Arc<RowToWrite>, u32)| row.order.json.len();
    let as_lines = || {
        |jobs: &mut [(Arc<RowToWrite>, u32)]| -> Result<RowLines, StoreError> {
            let mut lines = RowLines::default();
            let mut push = |row: &NewRow<'_>| lines.push(row, u64::from(row.seq.0 - first_seq));
            jobs.iter().try_for_each(|(row, place)| row.write(*place, &mut push))?;
            Ok(lines)
        }
    };
    row_pipeline::for_each(Chunks { rows: jobs, most_rows: WRITTEN_ROWS, weigh }, as_lines, |lines| {
        lines?.append_to(rows_file, index.as_deref_mut())
    })?;
    unread.map_or(Ok(()), Err)
}
