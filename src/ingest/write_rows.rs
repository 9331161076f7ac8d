//! The new rows of a manifest, written into their batch.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::domain::ids::{Fingerprint, JobId, Seq};
use crate::domain::job_label::label;
use crate::domain::queue_class::QueueClass;
use crate::domain::row_versions::VersionChange;
use crate::domain::time::Timestamp;
use crate::ingest::row_pipeline::{self, Chunks};
use crate::store::new_row::NewRow;
use crate::store::row_lines::RowLines;
use crate::store::rows_folder::RowsFolder;
use crate::store::spool::Appender;
use crate::store::staging::{
    RowRequest, RowWithVerdict, StagedManifest, StagedOrder, StagedRow, VariationChange, Verdict,
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

/// Appends the new jobs to the batch's rows, the most urgent first and those that need the same together, and returns
/// the batch that knows of them. Places in the batch follow the manifest, whatever lies where.
pub(super) fn write_rows(
    store: &Store,
    mut batch: BatchRecord,
    staged: &StagedManifest,
    is_first: impl Fn(&StagedRow) -> bool + Sync,
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
    let (start, first_seq) = (rows_file.bytes(), batch.rows);
    let mut index = if is_one { folder.begin_index(start)? } else { None };
    let mut parts = staged.parts();
    let mut found: BTreeMap<(bool, i8, QueueClass), usize> = BTreeMap::new();
    let mut changes = Vec::new();
    let mut rows = staged.rows()?;
    let mut to_write = || -> Result<Option<(RowToWrite, usize)>, StoreError> {
        while let Some(mut read) = rows.next_row()? {
            let Verdict::Wanted { .. } = read.verdict else { continue };
            let seq = batch.rows;
            let variations: Vec<u32> = read.new_variations().collect();
            let of_row = std::mem::take(&mut read.changes);
            let RowWithVerdict { row, .. } = read;
            let is_order = matches!(row.wanted, RowRequest::Order(_));
            changes.extend(of_row.into_iter().filter_map(|change| {
                let VariationChange { variation, instead_of, back_to, is_dropped, .. } = change;
                match back_to {
                    Some((wanted, at)) => {
                        let row_at = Some(at).filter(|_| !is_dropped);
                        Some(VersionChange { wanted, instead_of, row_at })
                    }
                    // Its first variation is new.
                    None if is_order && is_dropped => {
                        Some(VersionChange { wanted: Seq(seq), instead_of, row_at: None })
                    }
                    None if is_order => {
                        let place = variations.binary_search(&variation).ok()?;
                        let wanted = Seq(seq + u32::try_from(place).ok()?);
                        Some(VersionChange { wanted, instead_of, row_at: None })
                    }
                    None => None,
                }
            }));
            let is_first = is_first(&row);
            let StagedRow { fingerprint, label, apart, wanted, .. } = row;
            let RowRequest::Order(order) = wanted else { continue };
            let next = found.len();
            let class = (is_first, order.priority, division.of(&order.classes));
            let part = *found.entry(class).or_insert(next);
            for _ in &variations {
                batch.planned = batch.planned + order.hold.unwrap_or_default();
                batch.count_accepted(order.kind);
                batch.rows += 1;
            }
            let row = RowToWrite { fingerprint, label, apart, order, variations, first_seq: seq };
            return Ok(Some((row, part)));
        }
        Ok(None)
    };
    if is_one {
        let mut unread = None;
        let rows = std::iter::from_fn(|| match to_write() {
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
            lines?.append_to(&mut rows_file, index.as_mut())
        })?;
        if let Some(error) = unread {
            return Err(error);
        }
    } else {
        while let Some((row, part)) = to_write()? {
            for place in row.places() {
                row.write(place, |row| parts.push(part, row))?;
            }
        }
    }
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
