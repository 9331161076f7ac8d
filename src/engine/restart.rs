//! Resuming after a stop or a crash: what the scheduler is told of the state, at the start, and when a batch or a day is needed that it does not know.

use crate::domain::ids::BatchNo;
use crate::domain::time::Now;
use crate::domain::utc_day::UtcDay;
use crate::engine::group_history::group_history;
use crate::engine::row_reader;
use crate::engine::scheduler::{CommandOutcome, Scheduler, Settings};
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
    let places: Vec<(BatchNo, u64)> = open.iter().map(|record| (record.key.batch, record.row_at)).collect();
    let chunks: Vec<&[(BatchNo, u64)]> = places.chunks(CHUNK_ROWS).collect();
    // Their rows are read by other threads meanwhile, which takes longer than taking them up: each reads every so many-th
    // chunk.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(READERS_MAX);
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for first in 0..threads.min(chunks.len()) {
            let (send, specs) = std::sync::mpsc::sync_channel(CHUNKS_AHEAD);
            let own = chunks.iter().skip(first).step_by(threads);
            scope.spawn(move || {
                let mut rows = row_reader::RowReader::new(store);
                for chunk in own {
                    let read = chunk.iter().map(|(batch, at)| rows.spec_at(*batch, *at));
                    let read = read.collect::<Result<Vec<_>, _>>();
                    // Nobody waits for more after a fault.
                    if send.send(read).is_err() {
                        return;
                    }
                }
            });
            readers.push(specs);
        }
        let mut open = open.into_iter();
        let in_turn = readers.iter().cycle().take(chunks.len());
        for chunk in in_turn.map_while(|reader| reader.recv().ok()) {
            let chunk = chunk?;
            for (record, spec) in open.by_ref().take(chunk.len()).zip(chunk) {
                for day in record.job.days() {
                    if !scheduler.has_day(day) {
                        scheduler.set_day(day, store.day(day)?);
                    }
                }
                scheduler.resume_job(record, spec, now);
            }
        }
        Ok(())
    })
}

/// Tells the scheduler the totals of days that it does not know yet.
pub(super) fn load_days(scheduler: &mut Scheduler, store: &Store, days: &[UtcDay]) -> Result<(), StoreError> {
    for day in days {
        if !scheduler.has_day(*day) {
            scheduler.set_day(*day, store.day(*day)?);
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
