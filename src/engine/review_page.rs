//! Rows of a batch whose outputs wait for a decision, each with all its takes: what a page shows at once.

use std::collections::{HashMap, HashSet};

use crate::domain::ids::Fingerprint;
use crate::engine::job_iter::JobIter;
use crate::engine::row_takes::row_takes;
use crate::output::decisions_csv::{ReviewLine, ReviewResult};
use crate::store::{BatchRecord, Store, StoreError};

/// Some rows of a batch, in manifest order.
#[derive(Debug, Default)]
pub struct ReviewPage {
    /// The takes of each row that have outputs, the first one first.
    pub rows: Vec<Vec<ReviewLine>>,
    /// The `seq` behind which the next page begins; nothing at the end.
    pub next: Option<u32>,
}

/// At most `most` rows of a batch with a take that waits for a decision; with `all` those with a decided one, too. A row
/// stands where the first of these takes does, and `after` leaves out those up to that `seq`.
///
/// # Errors
/// [`StoreError`] when the state cannot be read.
pub fn review_page(
    store: &Store,
    batch: &BatchRecord,
    after: Option<u32>,
    all: bool,
    most: usize,
) -> Result<ReviewPage, StoreError> {
    let mut page = ReviewPage::default();
    // Nothing is read of a batch of which nothing waits.
    if !all && batch.unreviewed == 0 {
        return Ok(page);
    }
    let mut known: HashSet<Fingerprint> = HashSet::new();
    let mut places: HashMap<Fingerprint, usize> = HashMap::new();
    let mut last = None;
    let mut jobs = JobIter::open(store, batch)?;
    while let Some((spec, record)) = jobs.next_job()? {
        let is_superseded = jobs.versions().is_superseded(spec.seq);
        let is_listed = match all {
            true => ReviewResult::of(&record.job, is_superseded).is_some(),
            false => record.job.awaits_review() && !is_superseded,
        };
        if !is_listed || !known.insert(spec.fingerprint) || after.is_some_and(|after| spec.seq.0 <= after) {
            continue;
        }
        if places.len() == most {
            page.next = last;
            break;
        }
        places.insert(spec.fingerprint, places.len());
        last = Some(spec.seq.0);
    }
    page.rows.resize_with(places.len(), Vec::new);
    if places.is_empty() {
        return Ok(page);
    }
    for (fingerprint, offsets) in row_takes(store, batch, |row| places.contains_key(row))? {
        let Some(takes) = places.get(&fingerprint).and_then(|at| page.rows.get_mut(*at)) else { continue };
        for at in offsets {
            let (spec, record) = jobs.job_at(at)?;
            let is_superseded = jobs.versions().is_superseded(spec.seq);
            let line = ReviewLine::of(&batch.name, &spec, &record.job, is_superseded);
            takes.extend(line.filter(|line| line.is_reviewed() || !is_superseded));
        }
    }
    for takes in &mut page.rows {
        takes.sort_by_key(|take| (take.take, take.seq));
    }
    // One that was decided between both readings may be gone.
    page.rows.retain(|takes| !takes.is_empty());
    Ok(page)
}
