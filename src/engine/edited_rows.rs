//! What edited rows need of the disk: outputs of versions that are not wanted move aside, and what a manifest goes back to
//! is taken up again.

use std::collections::HashSet;
use std::sync::Arc;

use crate::domain::ids::BatchNo;
use crate::domain::job::{JobSpec, OutputFile, State};
use crate::domain::row_versions::VersionChange;
use crate::engine::scheduler::{AppliedVersions, EndedVersion, RenamedJob};
use crate::output::file_names::Layout;
use crate::output::publish::OutputDir;
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

/// The jobs that a manifest changes the versions of, from byte `from` of what says so on, as far as they have ended without
/// outputs or wait for a decision: whether they are wanted decides what they count as.
pub(super) fn ended(store: &Store, batch: &BatchRecord, from: u64) -> Result<Vec<EndedVersion>, StoreError> {
    let spool = store.spool(batch.no);
    let mut rows = spool.rows_scattered(0, batch.spool_bytes)?;
    let mut changes = spool.versions(from, batch.versions_bytes)?;
    let (mut ended, mut seen) = (Vec::new(), HashSet::new());
    while let Some((_, VersionChange { wanted, instead_of, .. })) = changes.next_line()? {
        for seq in [wanted, instead_of] {
            // The first variation of a version may stand in for others.
            if !seen.insert(seq) {
                continue;
            }
            let Some(record) = store.outcome(batch, seq)? else { continue };
            let awaits_review = record.job.awaits_review();
            if record.job.has_succeeded() && !awaits_review || record.job.is_in_doubt() {
                continue;
            }
            let JobSpec { order, .. } = rows.line_at(record.row_at)?;
            ended.push(EndedVersion {
                seq,
                kind: order.kind,
                state: record.job.state().clone(),
                awaits_review,
            });
        }
    }
    Ok(ended)
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
    let layout = layout_of(&batch, default);
    for (at, spec) in jobs {
        let record = store.job_at(&batch, at, &spec)?;
        let State::Succeeded { files: known, task } = record.job.state() else { continue };
        let named = output_dir.named_outputs(&batch.name, &layout, &spec, Some(task));
        let Some(files) = named else { continue };
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
    let (versions, layout) = (store.row_versions(&batch)?, layout_of(&batch, default));
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
                let specs: Vec<JobSpec> = others.iter().map(|(_, spec)| spec.clone()).collect();
                if let Err(error) = output_dir.name_versions(&batch.name, &layout, &spec, &specs) {
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

fn layout_of(batch: &BatchRecord, default: &Layout) -> Layout {
    let own = batch.policy.layout.as_deref().and_then(|text| Layout::parse(text).ok());
    own.unwrap_or_else(|| default.clone())
}
