//! A row of which another take is wanted, written as a manifest that asks for one variation more than its batch has,
//! together with the rows that it names.
//!
//! The batch is read once, and once more for a row that takes outputs of others. Memory: what rows with references name.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, Fingerprint};
use crate::domain::job::JobSpec;
use crate::domain::job_label::row_id;
use crate::engine::job_iter::JobIter;
use crate::ingest::accepted_row::{self, AcceptedRow};
use crate::ingest::input_files::HandedFiles;
use crate::store::{BatchRecord, Store, StoreError};

/// A manifest that was written, and what it asks for.
#[derive(Debug)]
pub struct TakeManifest {
    /// Which variation of its row the next take is.
    pub take: u32,
    /// The `id` of the row.
    pub id: Option<String>,
    /// What the files held that its rows name.
    pub files: HandedFiles,
}

/// Why no manifest of another take can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTake {
    /// Another version of the row is wanted.
    Superseded,
    /// What the state keeps does not tell how the row, or one that it names, is written; or two of them name a file by the
    /// same name that holds something else.
    Unknown,
}

/// Writes the manifest of the next take of a job's row. `most` is what that take may cost at most, whatever its row allows.
///
/// # Errors
/// When the state cannot be read, or the manifest not be written.
pub fn write(
    store: &Store,
    batch: &BatchRecord,
    of: &JobSpec,
    most: Option<Credits>,
    namespace: &str,
    out: &mut impl Write,
) -> Result<Result<TakeManifest, NoTake>, StoreError> {
    let rows = Rows::read(store, batch, of)?;
    if rows.is_superseded {
        return Ok(Err(NoTake::Superseded));
    }
    let take = rows.takes(of.fingerprint) + 1;
    let mut writer = RowWriter { out, batch: &batch.name, namespace, line: 0, files: HandedFiles::default() };
    let failed = StoreError::io(store.dir());
    let Some(id) = writer.row(of, take, most).map_err(failed)? else { return Ok(Err(NoTake::Unknown)) };
    if !rows.named.is_empty() {
        let mut written = HashSet::new();
        let mut jobs = JobIter::open(store, batch)?;
        while let Some((spec, _)) = jobs.next_job()? {
            let id = row_id(&spec.label, spec.variation);
            let is_needed =
                id.is_some_and(|id| rows.named.contains(id)) && spec.fingerprint != of.fingerprint;
            if !is_needed || jobs.versions().is_superseded(spec.seq) || !written.insert(spec.fingerprint) {
                continue;
            }
            let count = rows.takes(spec.fingerprint);
            if writer.row(&spec, count, None).map_err(StoreError::io(store.dir()))?.is_none() {
                return Ok(Err(NoTake::Unknown));
            }
        }
    }
    writer.out.flush().map_err(StoreError::io(store.dir()))?;
    Ok(Ok(TakeManifest { take, id, files: writer.files }))
}

/// What has to be known of the rows of a batch.
struct Rows {
    /// Variations of rows that have several.
    variations: HashMap<Fingerprint, u32>,
    /// Ids of the rows that the one that is meant names, at any distance.
    named: HashSet<String>,
    is_superseded: bool,
}

impl Rows {
    fn read(store: &Store, batch: &BatchRecord, of: &JobSpec) -> Result<Rows, StoreError> {
        let mut rows = Rows { variations: HashMap::new(), named: HashSet::new(), is_superseded: false };
        let own = |spec: &JobSpec| -> Vec<String> {
            let own = spec.order.inputs.iter().filter(|input| input.batch.is_none());
            own.map(|input| input.row.clone()).collect()
        };
        let mut open = own(of);
        let mut names: HashMap<String, Vec<String>> = HashMap::new();
        let mut jobs = JobIter::open(store, batch)?;
        while let Some((spec, _)) = jobs.next_job()? {
            if jobs.versions().is_superseded(spec.seq) {
                rows.is_superseded |= spec.id == of.id;
                continue;
            }
            if spec.variation > 1 {
                let most = rows.variations.entry(spec.fingerprint).or_default();
                *most = spec.variation.max(*most);
            }
            if !open.is_empty() && !spec.order.inputs.is_empty() {
                let id = row_id(&spec.label, spec.variation).unwrap_or(&spec.label);
                names.entry(id.to_owned()).or_insert_with(|| own(&spec));
            }
        }
        while let Some(id) = open.pop() {
            let further = names.get(&id).cloned().unwrap_or_default();
            if rows.named.insert(id) {
                open.extend(further);
            }
        }
        Ok(rows)
    }

    fn takes(&self, row: Fingerprint) -> u32 {
        self.variations.get(&row).copied().unwrap_or(1)
    }
}

struct RowWriter<'a, W> {
    out: &'a mut W,
    batch: &'a BatchName,
    namespace: &'a str,
    /// The last line that was written.
    line: u64,
    files: HandedFiles,
}

impl<W: Write> RowWriter<'_, W> {
    /// Writes a row that asks for `count` variations, and returns its `id`; nothing where how it is written is not known.
    #[allow(clippy::option_option, reason = "a row that is known may have no id")]
    fn row(
        &mut self,
        spec: &JobSpec,
        count: u32,
        most: Option<Credits>,
    ) -> io::Result<Option<Option<String>>> {
        let row = AcceptedRow::of(spec, self.batch, self.namespace);
        let Some(row) = row.filter(|_| self.files.add(&spec.order.files)) else { return Ok(None) };
        let mut line = row.line(&spec.order, count);
        if let (Some(most), Value::Object(fields)) = (most, &mut line) {
            let most = spec.order.max_credits.map_or(most, |limit| limit.min(most));
            fields.insert("max_credits".to_owned(), json!(most.0));
        }
        self.line = accepted_row::begin_line(self.out, self.line, spec.order.line)?;
        writeln!(self.out, "{line}")?;
        Ok(Some(row.id))
    }
}
