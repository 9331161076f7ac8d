//! The rows of jobs that are retried with other fields, written as a manifest together with the rows that they name and
//! the rows that name them: a row that takes an output of an edited one is another job, too.
//!
//! The batch is read twice. Memory: what jobs with references name, and the identities of the rows that are written.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use crate::domain::ids::{BatchName, Fingerprint, JobId};
use crate::domain::job::{JobSpec, State};
use crate::domain::job_label::row_id;
use crate::domain::manifest::Limits;
use crate::domain::time::Now;
use crate::engine::job_iter::JobIter;
use crate::engine::scheduler::is_paid_for;
use crate::ingest::accepted_row::{self, AcceptedRow};
use crate::ingest::input_files::HandedFiles;
use crate::store::{BatchRecord, Store, StoreError};

/// Labels that are kept for messages.
const LABELS_MAX: usize = 1000;

/// Which jobs of a batch are retried with other fields.
#[derive(Debug, Default, Clone, Copy)]
pub struct JobChoice {
    /// This one alone.
    pub job: Option<JobId>,
    /// Those that failed, and not those that were canceled or expired.
    pub only_failed: bool,
}

/// A manifest that was written, and what is in it.
#[derive(Debug, Default)]
pub struct RetryManifest {
    /// Jobs that were chosen.
    pub jobs: u64,
    /// The lines of the rows that they came from.
    pub lines: HashSet<u64>,
    /// What the rows are called, by line.
    pub labels: HashMap<u64, String>,
    /// Variations of rows of chosen jobs that are not chosen themselves, and are made anew with them.
    pub other_variations: u64,
    /// Jobs that take outputs of these rows, or of such jobs: they are new, too.
    pub dependent_jobs: u64,
    /// Jobs whose row has no `id`, so that no other takes their place: they are not chosen.
    pub without_id: Vec<String>,
    /// Jobs that are paid for and only were not downloaded: they are not chosen.
    pub paid: Vec<String>,
    /// Jobs that are older versions of edited rows: they are not chosen.
    pub superseded: Vec<String>,
    /// Jobs whose rows cannot be told from what the state keeps, or name a file that another row has under the same name
    /// with another content.
    pub unknown: Vec<String>,
    /// What the files held that its rows name.
    pub files: HandedFiles,
}

/// Writes the manifest.
///
/// # Errors
/// When the state cannot be read, or the manifest not be written.
pub fn write(
    store: &Store,
    batch: &BatchRecord,
    choice: JobChoice,
    namespace: &str,
    now: Now,
    out: &mut impl Write,
) -> Result<RetryManifest, StoreError> {
    let mut manifest = RetryManifest::default();
    let needed = choose(store, batch, choice, now, &mut manifest)?;
    if manifest.jobs == 0 {
        return Ok(manifest);
    }
    let mut writer = RowWriter { out, name: &batch.name, namespace, line: 0, manifest };
    let mut written = HashSet::new();
    let mut jobs = JobIter::open(store, batch)?;
    while let Some((spec, _)) = jobs.next_job()? {
        if jobs.versions().is_superseded(spec.seq) || !needed.has(&spec) || !written.insert(spec.fingerprint)
        {
            continue;
        }
        writer.write(&spec, &needed).map_err(StoreError::io(store.dir()))?;
    }
    let RowWriter { manifest, out, .. } = writer;
    out.flush().map_err(StoreError::io(store.dir()))?;
    Ok(manifest)
}

/// The rows that are written.
#[derive(Debug, Default)]
struct NeededRows {
    /// How many jobs of a row are chosen.
    chosen: HashMap<Fingerprint, u32>,
    /// Rows that take outputs of those, at any distance.
    children: HashSet<Fingerprint>,
    /// Ids of the rows that all these name, at any distance.
    parents: HashSet<String>,
    /// Variations of rows that have several.
    variations: HashMap<Fingerprint, u32>,
}

impl NeededRows {
    fn has(&self, spec: &JobSpec) -> bool {
        self.chosen.contains_key(&spec.fingerprint)
            || self.children.contains(&spec.fingerprint)
            || row_id(&spec.label, spec.variation).is_some_and(|id| self.parents.contains(id))
    }
}

fn choose(
    store: &Store,
    batch: &BatchRecord,
    choice: JobChoice,
    now: Now,
    manifest: &mut RetryManifest,
) -> Result<NeededRows, StoreError> {
    let mut needed = NeededRows::default();
    // By the id of a row the rows that name it, and by row what it is called and whom it names.
    let mut children: HashMap<String, Vec<Fingerprint>> = HashMap::new();
    let mut names: HashMap<Fingerprint, (String, Vec<String>)> = HashMap::new();
    let mut open: Vec<String> = Vec::new();
    let mut jobs = JobIter::open(store, batch)?;
    while let Some((spec, record)) = jobs.next_job()? {
        let fingerprint = spec.fingerprint;
        let is_chosen = choice.job.is_none_or(|job| job == spec.id)
            && match record.job.state() {
                State::Failed { .. } => true,
                State::Canceled { .. } | State::Expired => !choice.only_failed,
                _ => false,
            };
        if jobs.versions().is_superseded(spec.seq) {
            // Of a batch those that were replaced are no news.
            if is_chosen && choice.job.is_some() {
                keep(&mut manifest.superseded, &spec.label);
            }
            continue;
        }
        let id = row_id(&spec.label, spec.variation).unwrap_or(&spec.label);
        if spec.variation > 1 {
            let most = needed.variations.entry(fingerprint).or_default();
            *most = spec.variation.max(*most);
        }
        if !spec.order.inputs.is_empty() && !names.contains_key(&fingerprint) {
            let own = spec.order.inputs.iter().filter(|input| input.batch.is_none());
            let named: Vec<String> = own.map(|input| input.row.clone()).collect();
            for name in &named {
                children.entry(name.clone()).or_default().push(fingerprint);
            }
            names.insert(fingerprint, (id.to_owned(), named));
        }
        if !is_chosen {
            continue;
        }
        if is_paid_for(&spec, &record, now) {
            keep(&mut manifest.paid, &spec.label);
            continue;
        }
        manifest.jobs += 1;
        *needed.chosen.entry(fingerprint).or_default() += 1;
        open.push(id.to_owned());
    }
    let mut seen: HashSet<String> = open.iter().cloned().collect();
    while let Some(id) = open.pop() {
        for child in children.get(&id).into_iter().flatten() {
            needed.children.insert(*child);
            if let Some((id, _)) = names.get(child)
                && seen.insert(id.clone())
            {
                open.push(id.clone());
            }
        }
    }
    let by_id: HashMap<&str, &Vec<String>> = names.values().map(|(id, named)| (id.as_str(), named)).collect();
    let rows = needed.chosen.keys().chain(&needed.children).filter_map(|row| names.get(row));
    let mut open: Vec<&String> = rows.flat_map(|(_, named)| named).collect();
    while let Some(id) = open.pop() {
        if needed.parents.insert(id.clone()) {
            open.extend(by_id.get(id.as_str()).copied().into_iter().flatten());
        }
    }
    Ok(needed)
}

fn keep(labels: &mut Vec<String>, label: &str) {
    if labels.len() < LABELS_MAX {
        labels.push(label.to_owned());
    }
}

struct RowWriter<'a, W> {
    out: &'a mut W,
    name: &'a BatchName,
    namespace: &'a str,
    /// The last line that was written.
    line: u64,
    manifest: RetryManifest,
}

impl<W: Write> RowWriter<'_, W> {
    fn write(&mut self, spec: &JobSpec, needed: &NeededRows) -> io::Result<()> {
        let row = AcceptedRow::of(spec, self.name, self.namespace);
        let Some(row) = row.filter(|_| self.manifest.files.add(&spec.order.files)) else {
            keep(&mut self.manifest.unknown, &spec.label);
            return Ok(());
        };
        let chosen = needed.chosen.get(&spec.fingerprint).copied().unwrap_or_default();
        let all = needed.variations.get(&spec.fingerprint).copied().unwrap_or(1);
        if row.id.is_none() && chosen > 0 {
            self.manifest.jobs = self.manifest.jobs.saturating_sub(u64::from(chosen));
            keep(&mut self.manifest.without_id, &spec.label);
        }
        // All variations of a row are edited with it.
        let (edited, rest) = match row.id {
            Some(_) if chosen > 0 => (all, 0),
            None if !needed.children.contains(&spec.fingerprint) => (0, 0),
            _ => (0, all),
        };
        self.manifest.other_variations += u64::from(edited.saturating_sub(chosen));
        if needed.children.contains(&spec.fingerprint) {
            self.manifest.dependent_jobs += u64::from(rest);
        }
        for (count, is_edited) in [(edited, true), (rest, false)] {
            let mut left = count;
            while left > 0 {
                let count = left.min(Limits::default().max_count);
                left -= count;
                self.line(spec, &row, count, is_edited)?;
            }
        }
        Ok(())
    }

    /// Writes a row where it stood in its manifest, where nothing stands there.
    fn line(&mut self, spec: &JobSpec, row: &AcceptedRow, count: u32, is_edited: bool) -> io::Result<()> {
        self.line = accepted_row::begin_line(self.out, self.line, spec.order.line)?;
        writeln!(self.out, "{}", row.line(&spec.order, count))?;
        self.manifest.labels.insert(self.line, row.id.clone().unwrap_or_else(|| spec.label.clone()));
        if is_edited {
            self.manifest.lines.insert(self.line);
        }
        Ok(())
    }
}
