//! Resuming after a stop or a crash: what the scheduler is told of the state, at the start, and when a batch or a day is needed that it does not know.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::vec::IntoIter;

use crate::domain::ids::BatchNo;
use crate::domain::job::RanWith;
use crate::domain::time::Now;
use crate::domain::utc_day::UtcDay;
use crate::engine::group_history::group_history;
use crate::engine::row_reader::RowReader;
use crate::engine::scheduler::{BegunJob, CommandOutcome, Scheduler, Settings};
use crate::engine::shared_values::SharedValues;
use crate::store::{BatchRecord, JobRecord, Store, StoreError};

/// Rows of open jobs that are read at once, chunks of them that wait to be taken up, and threads that read.
const CHUNK_ROWS: usize = 512;
const CHUNKS_AHEAD: usize = 4;
const READERS_MAX: usize = 4;

/// A scheduler that knows what the state knows of the batches that are `ours`: a restart is not a
/// special path.
pub(super) fn resume_scheduler(
    store: &Store,
    settings: Settings,
    ours: impl Fn(BatchNo) -> bool,
    now: Now,
) -> Result<Scheduler, StoreError> {
    let groups = group_history(store, &settings.group_limits)?;
    let mut scheduler = Scheduler::new(settings, store.total()?);
    scheduler.set_groups(groups.totals, groups.is_new);
    scheduler.set_account_block(store.account()?);
    scheduler.set_finished_jobs(store.finished_jobs()?);
    let (batches, others): (Vec<BatchRecord>, Vec<BatchRecord>) =
        store.batches()?.into_iter().partition(|batch| ours(batch.no));
    let charged = others.iter().map(|batch| (batch.no, batch.may_be_charged));
    let charged = charged.chain(store.finished_may_be_charged());
    scheduler.set_may_be_charged(charged.filter(|(_, credits)| !credits.is_zero()).collect());
    let open = store.open_jobs()?.into_iter().filter(|record| ours(record.key.batch));
    take_up(&mut scheduler, store, batches, open.collect(), now)?;
    Ok(scheduler)
}

/// Tells the scheduler of a batch that it may not know, as the state knows it; whatever else is open costs nothing.
pub(super) fn take_up_batch(
    scheduler: &mut Scheduler,
    store: &Store,
    no: BatchNo,
    now: Now,
) -> Result<(), StoreError> {
    match store.unfinished_batch(no)? {
        Some(batch) => take_up(scheduler, store, vec![batch], store.open_jobs_of(no)?, now),
        None => Ok(()),
    }
}

/// Tells the scheduler of batches and of their open jobs.
fn take_up(
    scheduler: &mut Scheduler,
    store: &Store,
    batches: Vec<BatchRecord>,
    open: Vec<JobRecord>,
    now: Now,
) -> Result<(), StoreError> {
    for batch in batches {
        let (no, versions) = (batch.no, store.row_versions(&batch)?);
        scheduler.add_batch(batch);
        scheduler.set_versions(no, versions);
    }
    scheduler.expect_jobs(open.len());
    // Their rows are read by other threads meanwhile, which takes longer than taking them up. What a job needs of memory is
    // allocated there, too: threads that share an allocator's lists wait for each other.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(READERS_MAX);
    let threads = threads.min(open.len().div_ceil(CHUNK_ROWS));
    let chunks = RecordChunks(Mutex::new((0, open.into_iter())));
    std::thread::scope(|scope| {
        let (send, read) = std::sync::mpsc::sync_channel(CHUNKS_AHEAD * threads);
        for _ in 0..threads {
            let (send, chunks) = (send.clone(), &chunks);
            scope.spawn(move || {
                let (mut rows, mut ran_with) = (RowReader::new(store), SharedValues::default());
                while let Some((place, records)) = chunks.next() {
                    // Nobody waits for more after a fault.
                    if send.send((place, begin_jobs(&mut rows, &mut ran_with, records))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        // Readers differ in speed; jobs are taken up in the order of their records.
        let (mut next, mut early) = (0, BTreeMap::new());
        for (place, begun) in read {
            early.insert(place, begun);
            while let Some(begun) = early.remove(&next) {
                next += 1;
                for job in begun? {
                    load_days(scheduler, store, job.days())?;
                    scheduler.resume_job(job, now);
                }
            }
        }
        Ok(())
    })
}

/// The jobs of these records, with their rows.
fn begin_jobs(
    rows: &mut RowReader<'_>,
    ran_with: &mut SharedValues<RanWith>,
    records: Vec<JobRecord>,
) -> Result<Vec<BegunJob>, StoreError> {
    // Collected, they would keep the memory of the records.
    let mut begun = Vec::with_capacity(records.len());
    for mut record in records {
        record.job.share_ran_with(|value| ran_with.share(value));
        let spec = rows.spec_at(record.key.batch, record.row_at)?;
        begun.push(BegunJob::new(record, spec));
    }
    Ok(begun)
}

/// Records that several threads take up, a chunk at a time, and the place of the next chunk.
struct RecordChunks(Mutex<(usize, IntoIter<JobRecord>)>);

impl RecordChunks {
    /// The next chunk with its place among all.
    fn next(&self) -> Option<(usize, Vec<JobRecord>)> {
        // A panic while it is held ends the process.
        let mut rest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (place, records) = &mut *rest;
        let chunk: Vec<JobRecord> = records.by_ref().take(CHUNK_ROWS).collect();
        *place += 1;
        (!chunk.is_empty()).then(|| (*place - 1, chunk))
    }
}

/// Tells the scheduler the totals of days that it does not know yet.
pub(super) fn load_days(
    scheduler: &mut Scheduler,
    store: &Store,
    days: impl IntoIterator<Item = UtcDay>,
) -> Result<(), StoreError> {
    for day in days {
        if !scheduler.has_day(day) {
            scheduler.set_day(day, store.day(day)?);
        }
    }
    Ok(())
}

/// Takes up the batch of a command, where it is done. Returns why not, where somebody moved its folder away.
pub(super) fn take_up_finished(
    scheduler: &mut Scheduler,
    store: &Store,
    batch: Option<BatchNo>,
) -> Result<Option<CommandOutcome>, StoreError> {
    let Some(no) = batch.filter(|no| scheduler.batch(*no).is_none()) else { return Ok(None) };
    match store.finished_batch(no) {
        Ok(found) => {
            if let Some(record) = found {
                let versions = store.row_versions(&record)?;
                scheduler.add_finished_batch(record);
                scheduler.set_versions(no, versions);
            }
            Ok(None)
        }
        Err(moved @ StoreError::BatchMoved { .. }) => Ok(Some(CommandOutcome::refused(moved.to_string()))),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{JobId, JobKey, Seq};
    use crate::domain::job::Job;

    #[test]
    fn every_record_is_in_one_chunk_and_the_places_of_chunks_are_theirs() {
        let record = |seq| JobRecord {
            key: JobKey { batch: BatchNo(1), seq: Seq(seq) },
            id: JobId([0; 16]),
            row_at: 0,
            job: Job::queued(),
        };
        let count = u32::try_from(2 * CHUNK_ROWS + 76).unwrap();
        let chunks = RecordChunks(Mutex::new((0, (0..count).map(record).collect::<Vec<_>>().into_iter())));
        let taken: Vec<_> = std::iter::from_fn(|| chunks.next()).collect();
        assert_eq!(
            taken.iter().map(|(place, records)| (*place, records.len())).collect::<Vec<_>>(),
            [(0, CHUNK_ROWS), (1, CHUNK_ROWS), (2, 76)]
        );
        let seqs = taken.iter().flat_map(|(_, records)| records).map(|record| record.key.seq.0);
        assert!(seqs.eq(0..count));
        assert!(chunks.next().is_none());
    }
}
