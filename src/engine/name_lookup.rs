//! What a name means: a batch, or a job by its label, its identity, or `BATCH/JOB`. Reading writes nothing.
//!
//! A row that was edited is another job of the same label. Its label means the version that is wanted, that of the
//! manifest that came last; `LABEL@1` means the version that was accepted first, `LABEL@2` the second.

use std::collections::{BTreeMap, HashSet};

use crate::domain::ids::{BatchName, BatchNo, JobId};
use crate::domain::job::JobSpec;
use crate::engine::EngineError;
use crate::store::{BatchRecord, FinishedBatch, JobRecord, Store, StoreError};

/// Finished batches that a job's name without its batch is looked for in: those that finished last. So the cost of a look
/// does not grow with what is finished.
const SEARCHED_MAX: usize = 100;
/// Names of batches that are listed when an unknown one is asked for.
const LISTED_MAX: usize = 8;

/// What `BATCH|JOB` names.
#[derive(Debug, Clone)]
pub enum Target {
    /// A batch.
    Batch(Box<BatchRecord>),
    /// One job of a batch.
    Job(Box<NamedJob>),
}

/// A job that was named, as it was found.
#[derive(Debug, Clone)]
pub struct NamedJob {
    /// Its batch.
    pub batch: BatchRecord,
    /// Its row.
    pub spec: JobSpec,
    /// What has become of it.
    pub record: JobRecord,
    /// How many bytes the outcomes of the batch had before the record was read.
    pub(super) as_of: u64,
}

impl Target {
    /// The batch, or the job's.
    pub fn batch(&self) -> &BatchRecord {
        match self {
            Target::Batch(batch) => batch,
            Target::Job(named) => &named.batch,
        }
    }

    /// The job, where one is named.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Target::Batch(_) => None,
            Target::Job(named) => Some(named.spec.id),
        }
    }
}

/// Nothing, or too much, is called so.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No batch.
    #[error("no batch is called {name}; {}", listed(.newest, *.count))]
    NoBatch {
        /// What was asked for.
        name: String,
        /// Those of the newest that are said.
        newest: Vec<String>,
        /// How many there are.
        count: u64,
    },
    /// Neither batch nor job.
    #[error("no batch or job is called {text}{}", older(*.not_searched))]
    Nothing {
        /// What was asked for.
        text: String,
        /// Finished batches in which a job was not looked for, since it was not said which of them has it.
        not_searched: u64,
    },
    /// Several jobs.
    #[error("{count} jobs are called {text}; one of them is {example}")]
    Several {
        /// What was asked for.
        text: String,
        /// How many there are.
        count: usize,
        /// A name that means one of them alone.
        example: String,
        /// The batch, where several of one are called so.
        batch: Option<BatchName>,
    },
    /// The state refuses.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What was not searched, and how a job of it is named.
fn older(not_searched: u64) -> String {
    match not_searched {
        0 => String::new(),
        many => format!(
            "; the jobs of {many} older finished batches were not searched: name one of them as BATCH/JOB"
        ),
    }
}

/// `there are a, b`; of many, the newest.
fn listed(newest: &[String], count: u64) -> String {
    match newest {
        [] => "there is none".to_owned(),
        newest if newest.len() as u64 >= count => format!("there are {}", newest.join(", ")),
        newest => format!("of {count} the newest are {}", newest.join(", ")),
    }
}

/// The batch called so, done or not; without a name those that are not done and the finished ones that are listed,
/// oldest first.
pub(super) fn batches(store: &Store, name: Option<&BatchName>) -> Result<Vec<BatchRecord>, FindError> {
    let Some(name) = name else { return Ok(store.listed_batches().map_err(EngineError::from)?) };
    match store.batch_named(name).map_err(EngineError::from)? {
        Some(found) => Ok(vec![found]),
        None => Err(unknown_batch(store, name).map_err(EngineError::from)?),
    }
}

/// That no batch is called so, with the names of the newest: found without reading what else is finished.
fn unknown_batch(store: &Store, name: &BatchName) -> Result<FindError, StoreError> {
    let (unfinished, finished) = (store.batches()?, store.newest_finished(LISTED_MAX)?);
    let count = unfinished.len() as u64 + store.finished_count();
    let mut names: BTreeMap<BatchNo, BatchName> = BTreeMap::new();
    names.extend(unfinished.into_iter().map(|batch| (batch.no, batch.name)));
    names.extend(finished.into_iter().map(|line| (line.no, line.name)));
    let left_out = names.len().saturating_sub(LISTED_MAX);
    let newest = names.into_values().skip(left_out).map(|name| name.to_string()).collect();
    Ok(FindError::NoBatch { name: name.to_string(), newest, count })
}

/// What is called so: a batch first, then a job by its label, its identity, or `BATCH/JOB`.
///
/// # Errors
/// [`FindError`].
pub fn target(store: &Store, text: &str) -> Result<Target, FindError> {
    // `BATCH` or `BATCH/JOB`
    let first = text.split_once('/').map_or(text, |(batch, _)| batch);
    let named = match first.parse() {
        Ok(name) => store.batch_named(&name).map_err(EngineError::from)?,
        Err(_) => None,
    };
    match named {
        Some(batch) if first == text => Ok(Target::Batch(Box::new(batch))),
        named => job(store, text, named),
    }
}

/// What is called so where a job is wanted: a job first, that of a batch with the same name among them, then a batch.
///
/// # Errors
/// [`FindError`].
pub(super) fn job_target(store: &Store, text: &str) -> Result<Target, FindError> {
    let batch = match target(store, text)? {
        Target::Batch(batch) => batch,
        found @ Target::Job(_) => return Ok(found),
    };
    let named = format!("{text}/{text}");
    for (text, batch) in [(text, None), (&named, Some((*batch).clone()))] {
        match job(store, text, batch) {
            // Finished batches that are not searched without their name are searched by it.
            Err(FindError::Nothing { .. }) => {}
            found => return found,
        }
    }
    Ok(Target::Batch(batch))
}

/// `named` is the batch before the slash, where there is one. A name without a batch is looked for in the batches that
/// are not done, then in the listed ones that finished last.
fn job(store: &Store, text: &str, named: Option<BatchRecord>) -> Result<Target, FindError> {
    let is_named = named.is_some();
    let (mut found, searched) = jobs(store, text, named).map_err(EngineError::from)?;
    let not_searched = if is_named { 0 } else { store.finished_count().saturating_sub(searched) };
    match found.len() {
        0 => Err(FindError::Nothing { text: text.to_owned(), not_searched }),
        1 => Ok(Target::Job(Box::new(found.remove(0)))),
        count => {
            let NamedJob { batch, spec, .. } = &found[0];
            let same_batch = found.iter().filter(|other| other.batch.no == batch.no).count() > 1;
            let by_batch = format!("{}/{}", batch.name, spec.label);
            // A label may have a slash itself, and look like the name of a job of another batch.
            let example = if same_batch || by_batch == text { spec.id.to_string() } else { by_batch };
            let batch = same_batch.then(|| batch.name.clone());
            Err(FindError::Several { text: text.to_owned(), count, example, batch })
        }
    }
}

/// Every job called so, and in how many finished batches it was looked for.
fn jobs(store: &Store, text: &str, named: Option<BatchRecord>) -> Result<(Vec<NamedJob>, u64), StoreError> {
    let (mut found, mut searched) = (Vec::new(), 0);
    if let Some((batch, (_, job))) = named.zip(text.split_once('/')) {
        add_called(store, &batch, job, &mut found)?;
    }
    for batch in store.batches()? {
        add_called(store, &batch, text, &mut found)?;
    }
    if found.is_empty() {
        let label = version_of(text).map(|(label, _)| label);
        let may_have = |line: &&FinishedBatch| {
            store.may_have_job(line, text) || label.is_some_and(|label| store.may_have_job(line, label))
        };
        let newest = store.newest_finished(SEARCHED_MAX)?;
        searched = newest.len() as u64;
        for line in newest.iter().filter(may_have) {
            match store.batch(line.no) {
                Ok(batch) => batch.map_or(Ok(()), |batch| add_called(store, &batch, text, &mut found))?,
                Err(StoreError::BatchMoved { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok((found, searched))
}

/// Adds the jobs of a batch that are called so.
fn add_called(
    store: &Store,
    batch: &BatchRecord,
    text: &str,
    found: &mut Vec<NamedJob>,
) -> Result<(), StoreError> {
    let mut rows = store.rows_called(batch, text)?;
    if rows.is_empty()
        && let Some((label, version)) = version_of(text)
    {
        rows = store.rows_called(batch, label)?;
        rows.retain(|(_, spec)| spec.label == label);
        rows.sort_by_key(|(_, spec)| (spec.variation, spec.seq));
        rows = rows
            .chunk_by(|(_, one), (_, other)| one.variation == other.variation)
            .filter_map(|versions| versions.get(version.checked_sub(1)?).cloned())
            .collect();
    }
    // Of the versions of one row the one that is wanted; of several, or where none is, the last.
    let versions = store.row_versions(batch)?;
    let wanted = rows.iter().filter(|(_, spec)| !versions.is_superseded(spec.seq));
    let wanted: HashSet<(String, u32)> =
        wanted.map(|(_, spec)| (spec.label.clone(), spec.variation)).collect();
    rows.retain(|(_, spec)| {
        spec.label != text
            || !versions.is_superseded(spec.seq)
            || !wanted.contains(&(spec.label.clone(), spec.variation))
    });
    let newest = |(_, spec): &(u64, JobSpec)| {
        spec.label != text
            || rows.iter().all(|(_, other)| {
                (&other.label, other.variation) != (&spec.label, spec.variation) || other.seq <= spec.seq
            })
    };
    for (at, spec) in rows.iter().filter(|row| newest(row)) {
        let as_of = store.outcomes_bytes(batch)?;
        let record = store.job_at(batch, *at, spec)?;
        found.push(NamedJob { batch: batch.clone(), spec: spec.clone(), record, as_of });
    }
    Ok(())
}

/// `LABEL@2`: which label, and which of its versions.
fn version_of(text: &str) -> Option<(&str, usize)> {
    let (label, version) = text.rsplit_once('@')?;
    Some((label, version.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::domain::ids::{Fingerprint, JobKey, Seq};
    use crate::domain::job::{Job, Order};
    use crate::domain::time::Timestamp;
    use crate::store::{Change, Ended, Segment};

    const MANY: u32 = 200;

    fn order(line: u64) -> Order {
        let order = serde_json::json!({ "line": line, "kind": "image", "body": { "prompt": "a gull" }, "priority": 0 });
        serde_json::from_value(order).unwrap()
    }

    fn row(batch: u32, seq: u32) -> JobSpec {
        let id = JobId(
            u128::from(batch * 1_000 + seq)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                .to_be_bytes(),
        );
        let (fingerprint, label) = (Fingerprint(id.0), format!("row-{seq}-of-{batch}"));
        JobSpec {
            seq: Seq(seq),
            id,
            fingerprint,
            variation: 1,
            label,
            apart: false,
            order: order(u64::from(seq) + 2),
        }
    }

    /// A batch of three rows; those of finished ones were dropped.
    fn add(store: &Store, no: u32, is_done: bool) {
        add_rows(store, no, is_done, &|seq| row(no, seq));
    }

    fn add_rows(store: &Store, no: u32, is_done: bool, row: &dyn Fn(u32) -> JobSpec) {
        let mut batch = BatchRecord::new(BatchNo(no), format!("batch-{no}").parse().unwrap(), Timestamp(0));
        let (folder, mut rows) = store.append_rows(&batch).unwrap();
        let mut changes = Vec::new();
        for seq in 0..3 {
            let (spec, key) = (row(seq), JobKey { batch: BatchNo(no), seq: Seq(seq) });
            let row_at = rows.push(&spec).unwrap();
            if is_done {
                changes.push(Change::End(JobRecord { key, id: spec.id, row_at, job: Job::queued() }));
            }
        }
        batch.spool_bytes = rows.sync().unwrap();
        let cursor = if is_done { batch.spool_bytes } else { 0 };
        batch.segments.push(Segment::mixed(0, cursor, batch.spool_bytes));
        batch.rows = 3;
        batch.ended = Ended { canceled: if is_done { 3 } else { 0 }, ..Ended::default() };
        folder.index(batch.spool_bytes).unwrap();
        changes.push(Change::Batch(Box::new(batch)));
        store.commit(&changes).unwrap();
    }

    fn found(store: &Store, text: &str) -> String {
        match target(store, text) {
            Ok(Target::Job(named)) => {
                assert_eq!((named.record.id, named.record.key.seq), (named.spec.id, named.spec.seq));
                format!("{}/{}", named.batch.name, named.spec.label)
            }
            Ok(Target::Batch(batch)) => batch.name.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn found_batch(store: &Store, name: &str) -> String {
        batches(store, Some(&name.parse().unwrap())).unwrap_err().to_string()
    }

    fn spoil(store: &Store, no: u32) {
        let path = store.spool(BatchNo(no)).dir().join("rows");
        fs::write(&path, "x".repeat(usize::try_from(fs::metadata(&path).unwrap().len()).unwrap())).unwrap();
    }

    fn state(dir: &Path, finished: u32) -> Store {
        let store = Store::open(dir, "https://media.example", false).unwrap();
        (1..=finished).for_each(|no| add(&store, no, true));
        add(&store, finished + 1, false);
        store
    }

    #[test]
    fn a_job_is_found_without_reading_a_row_of_another_batch() {
        let dir = tempfile::tempdir().unwrap();
        let store = state(dir.path(), MANY);
        // A lookup that read a row of another batch would find it damaged.
        let (wanted, open) = (MANY - 50, MANY + 1);
        (1..=MANY).filter(|no| *no != wanted).for_each(|no| spoil(&store, no));
        let name = format!("batch-{wanted}/row-1-of-{wanted}");
        let id = row(wanted, 1).id.to_string();
        for text in
            [&name, &format!("row-1-of-{wanted}"), &id, &id[..8], &format!("batch-{wanted}/{}", &id[..12])]
        {
            assert_eq!(found(&store, text), name, "{text}");
        }
        let waiting = format!("batch-{open}/row-2-of-{open}");
        assert_eq!(found(&store, &waiting), waiting);
        assert_eq!(found(&store, &format!("row-2-of-{open}")), waiting);
        assert_eq!(found(&store, &row(open, 2).id.to_string()[..9]), waiting);
        assert_eq!(found(&store, &format!("batch-{wanted}")), format!("batch-{wanted}"));
        let older = "no batch or job is called row-1-of-2; the jobs of 100 older finished batches were not searched: name one of \
                     them as BATCH/JOB";
        assert_eq!(found(&store, "row-1-of-2"), older);
        assert_eq!(found(&store, "batch-1/row-9-of-1"), "no batch or job is called batch-1/row-9-of-1");
        // One that is not listed is found by its batch.
        store.list_finished_since(Timestamp(1));
        assert_eq!(found(&store, &name), name);
        assert_eq!(
            found(&store, &id),
            format!(
                "no batch or job is called {id}; the jobs of 200 older finished batches were not searched: name one of them as BATCH/JOB"
            )
        );
    }

    #[test]
    fn an_index_that_is_missing_cut_off_or_of_other_rows_hides_no_job() {
        let dir = tempfile::tempdir().unwrap();
        let store = state(dir.path(), 2);
        let index = store.spool(BatchNo(1)).dir().join("jobs");
        let whole = fs::read(&index).unwrap();
        let (name, id) = ("batch-1/row-2-of-1", row(1, 2).id.to_string());
        for bytes in [&whole[..], &whole[..20], &[], &[0; 200], &whole[..whole.len() - 1]] {
            fs::write(&index, bytes).unwrap();
            for text in [name, "row-2-of-1", &id] {
                assert_eq!(found(&store, text), name, "{} bytes", bytes.len());
            }
        }
        fs::remove_file(&index).unwrap();
        assert_eq!(found(&store, "row-2-of-1"), name);
        assert!(!index.exists(), "looking writes nothing");
        // Rows that were never acknowledged are cut off, and with them what was indexed of them.
        let batch = store.batch(BatchNo(3)).unwrap().unwrap();
        let longer = |text: &str| {
            let (folder, mut rows) = store.append_rows(&batch).unwrap();
            rows.push(&JobSpec { label: text.to_owned(), ..row(3, 3) }).unwrap();
            let longer = BatchRecord { rows: 4, spool_bytes: rows.sync().unwrap(), ..batch.clone() };
            folder.index(longer.spool_bytes).unwrap();
            longer
        };
        longer("lost");
        assert_eq!(found(&store, "lost"), "no batch or job is called lost");
        assert_eq!(found(&store, "row-2-of-3"), "batch-3/row-2-of-3");
        let mut kept = longer("kept");
        kept.segments.push(Segment::mixed(0, batch.spool_bytes, kept.spool_bytes));
        store.commit(&[Change::Batch(Box::new(kept))]).unwrap();
        assert_eq!(found(&store, "kept"), "batch-3/kept");
        assert_eq!(found(&store, "lost"), "no batch or job is called lost");
        assert_eq!(found(&store, "row-0-of-3"), "batch-3/row-0-of-3");
    }

    #[test]
    fn a_label_means_the_version_accepted_last_and_a_number_an_older_one() {
        for is_done in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), "https://media.example", false).unwrap();
            let gulls = |seq| JobSpec { label: "gull".to_owned(), ..row(1, seq) };
            add_rows(&store, 1, is_done, &gulls);
            let seq = |text: &str| match target(&store, text) {
                Ok(Target::Job(named)) => named.spec.seq.0.to_string(),
                Ok(Target::Batch(_)) => "a batch".to_owned(),
                Err(error) => error.to_string(),
            };
            let id = row(1, 0).id.to_string();
            for (text, expected) in [
                ("gull", "2"),
                ("batch-1/gull", "2"),
                ("gull@1", "0"),
                ("batch-1/gull@2", "1"),
                ("gull@3", "2"),
                ("gull@4", "no batch or job is called gull@4"),
                ("gull@0", "no batch or job is called gull@0"),
                (&id, "0"),
            ] {
                assert_eq!(seq(text), expected, "{text}");
            }
        }
    }

    #[test]
    fn where_a_job_is_wanted_it_goes_before_a_batch_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let store = state(dir.path(), 1);
        add_rows(&store, 3, true, &|seq| match seq {
            0 => JobSpec { label: "batch-3".to_owned(), ..row(3, seq) },
            1 => JobSpec { label: "batch-1".to_owned(), ..row(3, seq) },
            _ => row(3, seq),
        });
        let found = |text: &str| match job_target(&store, text) {
            Ok(Target::Job(named)) => format!("{}/{}", named.batch.name, named.spec.label),
            Ok(Target::Batch(batch)) => format!("the batch {}", batch.name),
            Err(error) => error.to_string(),
        };
        assert_eq!(found("batch-3"), "batch-3/batch-3");
        assert_eq!(found("batch-1"), "batch-3/batch-1");
        assert_eq!(found("batch-2"), "the batch batch-2");
        assert_eq!(found("row-2-of-3"), "batch-3/row-2-of-3");
        assert_eq!(found("nowhere"), "no batch or job is called nowhere");
        // One that is not listed is found by the name that it has in common with its batch.
        store.list_finished_since(Timestamp(1));
        assert_eq!(found("batch-3"), "batch-3/batch-3");
    }

    #[test]
    fn of_thousands_of_batches_the_newest_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let unknown = |store: &Store| found_batch(store, "nowhere");
        assert_eq!(unknown(&state(dir.path(), 0)), "no batch is called nowhere; there are batch-1");
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            unknown(&state(dir.path(), 30)),
            "no batch is called nowhere; of 31 the newest are batch-24, batch-25, batch-26, batch-27, batch-28, \
             batch-29, batch-30, batch-31"
        );
        assert_eq!(listed(&[], 0), "there is none");
    }
}
