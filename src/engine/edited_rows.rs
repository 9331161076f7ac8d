//! What edited rows need of the disk: outputs of versions that are not wanted move aside, and what a manifest goes back to
//! is taken up again.

use std::collections::HashSet;
use std::sync::Arc;

use crate::domain::ids::{BatchNo, Seq};
use crate::domain::job::{Job, JobSpec, OutputFile, State};
use crate::domain::row_versions::{RowVersions, VersionChange};
use crate::engine::scheduler::{AppliedVersions, EndedVersion, RenamedJob};
use crate::output::file_names::Layout;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::OutputDir;
use crate::store::spool::Lines;
use crate::store::{BatchRecord, Store, StoreError};

/// Versions that one effect goes back to, at most, so that its commit stays small.
const GONE_BACK_MAX: usize = 32;

/// A job of a row, and the byte where the row begins.
pub(super) type PlacedRow = (u64, JobSpec);

/// The other versions of the row of a job.
pub(super) fn others(store: &Store, no: BatchNo, spec: &JobSpec) -> Result<Vec<PlacedRow>, StoreError> {
    let Some(batch) = store.batch(no)? else { return Ok(Vec::new()) };
    let mut versions = store.versions_called(&batch, &spec.label, spec.variation)?;
    versions.retain(|(_, other)| other.seq != spec.seq);
    Ok(versions)
}

/// Versions of a row with what became of them.
pub(super) fn versions(
    store: &Store,
    no: BatchNo,
    placed: &[PlacedRow],
) -> Result<Vec<(JobSpec, Job)>, StoreError> {
    let Some(batch) = store.batch(no)? else { return Ok(Vec::new()) };
    with_jobs(store, &batch, placed)
}

fn with_jobs(
    store: &Store,
    batch: &BatchRecord,
    placed: &[PlacedRow],
) -> Result<Vec<(JobSpec, Job)>, StoreError> {
    let with_job = |(at, spec): &PlacedRow| Ok((spec.clone(), store.job_at(batch, *at, spec)?.job));
    placed.iter().map(with_job).collect()
}

/// What became of the other versions of a row whose wanted version was published.
pub(super) fn after_publishing(
    store: &Store,
    output_dir: &OutputDir,
    default: &Layout,
    no: BatchNo,
    others: Vec<PlacedRow>,
) -> Result<AppliedVersions, StoreError> {
    let as_of = store.batch(no)?.map_or(Ok(0), |batch| store.outcomes_bytes(&batch))?;
    let renamed = renamed(store, output_dir, default, no, others)?;
    Ok(AppliedVersions { renamed, as_of, ..AppliedVersions::none(no) })
}

/// What a manifest that edits rows changes. Read before the engine takes the manifest in, which does not wait for it.
#[derive(Debug)]
pub struct EditedRows {
    /// Which versions are wanted.
    pub(super) versions: RowVersions,
    /// The jobs that it changes the versions of, as far as they have ended without outputs or wait for a decision: whether
    /// they are wanted decides what they count as.
    pub(super) ended: Vec<EndedVersion>,
    /// All jobs that it changes the versions of.
    changed: HashSet<Seq>,
    /// Length of the batch's outcomes when they were read, in bytes.
    as_of: u64,
}

impl EditedRows {
    /// Of the changes to the batch's versions from byte `from` on; nothing where there are none.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn read(store: &Store, batch: &BatchRecord, from: u64) -> Result<Option<EditedRows>, StoreError> {
        if batch.versions_bytes <= from {
            return Ok(None);
        }
        // What ends from now on is read anew when the manifest is taken in.
        let as_of = store.outcomes_bytes(batch)?;
        let spool = store.spool(batch.no);
        let mut rows = spool.rows_scattered(0, batch.spool_bytes)?;
        let mut changes = spool.versions(from, batch.versions_bytes)?;
        let (mut ended, mut changed) = (Vec::new(), HashSet::new());
        while let Some((_, VersionChange { wanted, instead_of, .. })) = changes.next_line()? {
            for seq in [wanted, instead_of] {
                // The first variation of a version may stand in for others.
                if changed.insert(seq) {
                    ended.extend(ended_version(store, batch, seq, &mut rows)?);
                }
            }
        }
        Ok(Some(EditedRows { versions: store.row_versions(batch)?, ended, changed, as_of }))
    }

    /// Takes note of the jobs that have ended since they were read.
    pub(super) fn refresh(&mut self, store: &Store, batch: &BatchRecord) -> Result<(), StoreError> {
        let mut ended = HashSet::new();
        self.as_of = store.add_ended_since(batch, self.as_of, &mut ended)?;
        ended.retain(|seq| self.changed.contains(seq));
        if ended.is_empty() {
            return Ok(());
        }
        self.ended.retain(|version| !ended.contains(&version.seq));
        let mut rows = store.spool(batch.no).rows_scattered(0, batch.spool_bytes)?;
        for seq in ended {
            self.ended.extend(ended_version(store, batch, seq, &mut rows)?);
        }
        Ok(())
    }
}

/// A job as far as it has ended without outputs or waits for a decision.
fn ended_version(
    store: &Store,
    batch: &BatchRecord,
    seq: Seq,
    rows: &mut Lines,
) -> Result<Option<EndedVersion>, StoreError> {
    let Some(record) = store.outcome(batch, seq)? else { return Ok(None) };
    let awaits_review = record.job.awaits_review();
    if record.job.has_succeeded() && !awaits_review || record.job.is_in_doubt() {
        return Ok(None);
    }
    let JobSpec { order, .. } = rows.line_at(record.row_at)?;
    let state = record.job.state().clone();
    Ok(Some(EndedVersion { seq, kind: order.kind, state, awaits_review }))
}

/// Those jobs that have succeeded and whose outputs have other names than their outcomes say.
fn renamed(
    store: &Store,
    output_dir: &OutputDir,
    default: &Layout,
    no: BatchNo,
    jobs: Vec<PlacedRow>,
) -> Result<Vec<RenamedJob>, StoreError> {
    let mut renamed = Vec::new();
    let Some(batch) = store.batch(no)? else { return Ok(renamed) };
    let layout = Layout::of_batch(batch.layout(), default);
    for (at, spec) in jobs {
        let record = store.job_at(&batch, at, &spec)?;
        let State::Succeeded { files: known, .. } = record.job.state() else { continue };
        let output_spec = OutputSpec { batch: &batch.name, layout: &layout, spec: &spec, job: &record.job };
        let Some(files) = output_dir.named_outputs(output_spec) else { continue };
        if known.iter().map(OutputFile::on_disk).ne(files.iter().cloned()) {
            renamed.push(RenamedJob { spec: Arc::new(spec), record, files });
        }
    }
    Ok(renamed)
}

/// Takes note of what has become of jobs since they were read: one that has ended since is not queued again, and a new
/// name goes to its present outcome.
pub(super) fn refresh(store: &Store, applied: &mut AppliedVersions) -> Result<(), StoreError> {
    let Some(batch) = store.batch(applied.batch)? else { return Ok(()) };
    let mut changed = HashSet::new();
    applied.as_of = store.add_ended_since(&batch, applied.as_of, &mut changed)?;
    applied.queued.retain(|(_, record)| !changed.contains(&record.key.seq));
    for RenamedJob { spec, record, .. } in &mut applied.renamed {
        if changed.contains(&record.key.seq) {
            *record = store.job_at(&batch, record.row_at, spec)?;
        }
    }
    Ok(())
}

/// Takes up versions that a manifest went back to, from byte `from` of what says so on: those that were dropped unsent
/// are queued again, and published outputs get the plain name.
pub(super) fn go_back(
    store: &Store,
    output_dir: &OutputDir,
    default: &Layout,
    no: BatchNo,
    from: u64,
) -> Result<AppliedVersions, StoreError> {
    let Some(batch) = store.batch(no)? else { return Ok(AppliedVersions::none(no)) };
    let as_of = store.outcomes_bytes(&batch)?;
    let mut applied = AppliedVersions { as_of, ..AppliedVersions::none(no) };
    let (versions, layout) = (store.row_versions(&batch)?, Layout::of_batch(batch.layout(), default));
    let spool = store.spool(no);
    let mut rows = spool.rows_scattered(0, batch.spool_bytes)?;
    let mut changes = spool.versions(from, batch.versions_bytes)?;
    let (mut up_to, mut gone_back) = (from, 0);
    while gone_back < GONE_BACK_MAX
        && let Some((_, change)) = changes.next_line::<VersionChange>()?
    {
        up_to = changes.at();
        let Some(at) = change.row_at.filter(|_| !versions.is_superseded(change.wanted)) else { continue };
        gone_back += 1;
        let spec: JobSpec = rows.line_at(at)?;
        let record = store.job_at(&batch, at, &spec)?;
        match record.job.state() {
            state if state.is_replaced() => applied.queued.push((Arc::new(spec), record)),
            State::Succeeded { .. } => {
                let others = others(store, no, &spec)?;
                let versions = with_jobs(store, &batch, &others)?;
                let output_spec =
                    OutputSpec { batch: &batch.name, layout: &layout, spec: &spec, job: &record.job };
                if let Err(error) = output_dir.name_versions(output_spec, &versions) {
                    tracing::warn!(batch = %batch.name, job = spec.label, %error, "outputs keep their names");
                }
                let jobs = others.into_iter().chain([(at, spec)]).collect();
                applied.renamed.extend(renamed(store, output_dir, default, no, jobs)?);
            }
            // Its outputs get their names when they are published.
            _ => {}
        }
    }
    applied.up_to = Some(up_to);
    Ok(applied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{AttemptNo, JobKey};
    use crate::domain::request::Kind;
    use crate::domain::time::Timestamp;
    use crate::engine::scheduler::tests::spec;
    use crate::store::{Change, JobRecord, Segment};

    const NO: BatchNo = BatchNo(1);

    #[test]
    fn what_ends_between_reading_and_taking_in_is_counted_as_it_ended() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), "http://service.example", false).unwrap();
        let mut batch = BatchRecord::new(NO, "b".parse().unwrap(), Timestamp(0));
        let (_, mut rows) = store.append_rows(&batch).unwrap();
        let mut places = Vec::new();
        for seq in 0..4 {
            places.push(rows.bytes());
            rows.push(&*spec(seq, Kind::Image)).unwrap();
        }
        (batch.rows, batch.spool_bytes) = (4, rows.sync().unwrap());
        batch.segments.push(Segment::mixed(0, 0, batch.spool_bytes));
        store.commit(&[Change::Batch(Box::new(batch.clone()))]).unwrap();
        let end = |seq: u32, job: Job| {
            let (key, row_at) = (JobKey { batch: NO, seq: Seq(seq) }, places[seq as usize]);
            let record = JobRecord { key, id: spec(seq, Kind::Image).id, row_at, job };
            store.commit(&[Change::End(record)]).unwrap();
        };
        let ended = |state| Job::at(AttemptNo::FIRST, state);
        let told = |edited: &EditedRows| {
            let mut told: Vec<String> = (edited.ended.iter())
                .map(|version| format!("{} {}", version.seq.0, version.state.name()))
                .collect();
            told.sort();
            told.join(", ")
        };
        // A manifest without edits changes nothing.
        assert!(EditedRows::read(&store, &batch, 0).unwrap().is_none());
        end(0, ended(State::Expired));
        end(3, ended(State::Expired));
        let change = |wanted, instead_of| VersionChange {
            wanted: Seq(wanted),
            instead_of: Seq(instead_of),
            row_at: None,
        };
        batch.versions_bytes = store.append_versions(&batch, &[change(1, 0), change(2, 1)]).unwrap();
        let mut edited = EditedRows::read(&store, &batch, 0).unwrap().unwrap();
        assert_eq!(told(&edited), "0 expired", "the last one is not edited");
        assert!(edited.versions.is_superseded(Seq(1)) && !edited.versions.is_superseded(Seq(2)));
        edited.refresh(&store, &batch).unwrap();
        assert_eq!(told(&edited), "0 expired");
        end(1, ended(State::DROPPED));
        end(0, ended(State::DROPPED));
        end(3, ended(State::DROPPED));
        edited.refresh(&store, &batch).unwrap();
        assert_eq!(told(&edited), "0 canceled, 1 canceled");
        end(2, ended(State::Expired));
        edited.refresh(&store, &batch).unwrap();
        assert_eq!(told(&edited), "0 canceled, 1 canceled, 2 expired");
        // Only what this manifest changed.
        let before = batch.versions_bytes;
        batch.versions_bytes = store.append_versions(&batch, &[change(3, 3)]).unwrap();
        assert_eq!(told(&EditedRows::read(&store, &batch, before).unwrap().unwrap()), "3 canceled");
    }
}
