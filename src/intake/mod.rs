//! The one door through which every job enters: manifest in, batch and receipt out.
//!
//! [`accept`] reads, judges and spools a manifest; nothing counts until the batch it returns is
//! committed, and a crash before that leaves nothing but a file that the next accept cuts off.
//! Accepting the same manifest again finds every job there and adds nothing.

pub mod catalogs;
pub mod receipt;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::domain::credits::Credits;
use crate::domain::ids::{BadBatchName, BatchName, BatchNo, Fingerprint, JobId, Seq};
use crate::domain::job::{JobSpec, Order};
use crate::domain::label::label;
use crate::domain::manifest::row::{Header, Policy, ReadRow, Row};
use crate::domain::manifest::{self, Limits};
use crate::domain::problem::{Position, Problem};
use crate::domain::quote::{self, Catalog, Quote, Rules};
use crate::domain::time::Timestamp;
use crate::failpoint;
use crate::intake::receipt::Receipt;
use crate::output::layout::Layout;
use crate::store::draft::{Draft, DraftRow, Judged, Verdict, Wanted};
use crate::store::spool::{Appender, Lines};
use crate::store::{BatchRecord, Segment, Store, StoreError};

/// What decides about a manifest beside itself.
#[derive(Debug, Clone)]
pub struct Terms<'a> {
    /// The catalogs in force.
    pub catalog: &'a Catalog,
    /// What the catalogs do not carry.
    pub rules: &'a Rules,
    /// `service.key_namespace`.
    pub namespace: &'a str,
    /// Overrules the manifest's own name.
    pub batch: Option<BatchName>,
    /// Overrules the manifest's own policy, where it says something.
    pub policy: Policy,
    /// For what neither says.
    pub default_policy: Policy,
}

/// The manifest could not be taken in; nothing of it was.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The file cannot be read.
    #[error("failed to read {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a folder or a device.
    #[error("{} is not a file", .path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// Somebody was still writing.
    #[error("{} changed while it was read; nothing of it was accepted", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The batch cannot be called that.
    #[error(transparent)]
    BatchName(#[from] BadBatchName),
    /// The state refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A manifest that was taken in.
#[derive(Debug)]
pub struct Accepted {
    /// What to tell its owner.
    pub receipt: Receipt,
    /// The batch as it is with it: to be committed. Nothing when neither jobs nor terms are new.
    pub batch: Option<BatchRecord>,
}

/// Takes a manifest in.
///
/// # Errors
/// [`IntakeError`]. Problems of rows are no error: they stand in the receipt, and good rows go on.
pub fn accept(
    store: &Store,
    path: &Path,
    terms: &Terms<'_>,
    now: Timestamp,
) -> Result<Accepted, IntakeError> {
    let (file, fingerprint) = open(path)?;
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut receipt = Receipt::new(path);
    let source = BufReader::with_capacity(64 * 1024, file);
    let manifest = match manifest::open(&file_name, source, &Limits::default()) {
        Ok(manifest) => manifest,
        Err(problems) => {
            receipt.refuse_file(problems);
            return Ok(Accepted { receipt, batch: None });
        }
    };
    let header = manifest.header().clone();
    let name = batch_name(path, &header, terms)?;
    receipt.batch = Some(name.clone());
    let policy = resolve_policy(&terms.policy, &header.policy, &terms.default_policy);
    check_layout(&policy, &mut receipt);
    let known = store.batches()?;
    let batch = known.iter().find(|batch| batch.name == name).cloned();
    let batch = batch.unwrap_or_else(|| {
        let next = known.last().map_or(1, |last| last.no.0 + 1);
        BatchRecord::new(BatchNo(next), name.clone(), now)
    });
    let mut draft = store.begin_draft()?;
    note_existing(store, &batch, &mut draft)?;
    for read in manifest {
        match read {
            ReadRow::Good(row) => {
                receipt.rows += 1;
                if let Some(row) = draft_row(&row, &name, &policy, terms, &mut receipt) {
                    draft.push(&row)?;
                }
            }
            ReadRow::Bad(problems) => {
                receipt.rows += 1;
                receipt.refuse_row(problems);
            }
            ReadRow::Unreadable(problem) => receipt.refuse_rest(problem),
        }
    }
    if fingerprint != Identity::of(&fs::metadata(path).map_err(unreadable(path))?) {
        return Err(IntakeError::Changed { path: path.to_owned() });
    }
    failpoint::hit("accepting");
    let judged = draft.judge()?;
    count(&judged, &mut receipt)?;
    let refused = policy.strict == Some(true) && receipt.invalid > 0 || receipt.file_refused;
    receipt.refused = refused;
    if refused || receipt.new == 0 {
        // The same jobs on other terms: a higher budget lets go on what the lower one parked.
        let on_other_terms = !refused && receipt.have > 0 && batch.policy != policy;
        let batch = on_other_terms.then(|| BatchRecord { policy, ..batch });
        return Ok(Accepted { receipt, batch });
    }
    let batch = spool(store, batch, policy, &judged)?;
    Ok(Accepted { receipt, batch: Some(batch) })
}

/// What shows that a file is still the one that was opened.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(meta: &fs::Metadata) -> Identity {
        Identity { inode: meta.ino(), bytes: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) }
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> IntakeError + '_ {
    move |source| IntakeError::Unreadable { path: path.to_owned(), source }
}

fn open(path: &Path) -> Result<(File, Identity), IntakeError> {
    // Looked at first: opening a pipe that nobody writes to would wait for ever.
    let meta = fs::metadata(path).map_err(unreadable(path))?;
    if !meta.is_file() {
        return Err(IntakeError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(unreadable(path))?;
    let meta = file.metadata().map_err(unreadable(path))?;
    Ok((file, Identity::of(&meta)))
}

fn batch_name(path: &Path, header: &Header, terms: &Terms<'_>) -> Result<BatchName, BadBatchName> {
    match (&terms.batch, &header.batch) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(name)) => name.parse(),
        (None, None) => BatchName::from_file_stem(&path.file_stem().unwrap_or_default().to_string_lossy()),
    }
}

/// Flags over manifest over defaults, field by field.
fn resolve_policy(flags: &Policy, manifest: &Policy, defaults: &Policy) -> Policy {
    macro_rules! first {
        ($field:ident) => {
            flags.$field.clone().or_else(|| manifest.$field.clone()).or_else(|| defaults.$field.clone())
        };
    }
    Policy {
        budget: first!(budget),
        priority: first!(priority),
        deadline: first!(deadline),
        on_deadline: first!(on_deadline),
        expires: first!(expires),
        attempts: first!(attempts),
        strict: first!(strict),
        on_drift: first!(on_drift),
        layout: first!(layout),
    }
}

fn check_layout(policy: &Policy, receipt: &mut Receipt) {
    if let Some(Err(error)) = policy.layout.as_deref().map(Layout::parse) {
        let problem = Problem::new(Position::line(1), error.to_string()).in_field("policy.layout");
        receipt.refuse_file(vec![problem]);
    }
}

/// Tells the draft which jobs the batch has.
fn note_existing(store: &Store, batch: &BatchRecord, draft: &mut Draft) -> Result<(), StoreError> {
    let mut rows = Lines::open(&store.spool(batch.no).rows_path(), 0, batch.spool_bytes)?;
    while let Some((_, spec)) = rows.next_line::<JobSpec>()? {
        draft.note_existing(spec.fingerprint, spec.variation)?;
    }
    Ok(())
}

/// A row as the draft keeps it. One whose kind cannot be told has no identity and goes to the receipt
/// at once; one that the quote refuses is kept, because the batch may have it from a time when it was
/// valid.
fn draft_row(
    row: &Row,
    batch: &BatchName,
    policy: &Policy,
    terms: &Terms<'_>,
    receipt: &mut Receipt,
) -> Option<DraftRow> {
    let kind = match row.kind {
        Some(kind) => Ok(kind),
        None => quote::infer_kind(&row.request, terms.catalog, terms.rules),
    };
    let kind = match kind {
        Ok(kind) => kind,
        Err(finding) => {
            receipt.refuse_row(vec![place(row, finding)]);
            return None;
        }
    };
    let body = quote::canonical_body(kind, &row.request);
    let fingerprint = Fingerprint::derive(terms.namespace, batch, row.id.as_deref(), kind.endpoint(), &body);
    let quoted = quote::quote(Some(kind), &row.request, terms.catalog, terms.rules);
    let wanted = match quoted {
        Err(findings) => Wanted::Invalid(findings.into_iter().map(|finding| place(row, finding)).collect()),
        Ok(quote) => {
            for note in &quote.notes {
                receipt.note(row.place(&note.field), note);
            }
            order(row, quote, policy)
        }
    };
    Some(DraftRow { fingerprint, label: row.id.clone(), count: row.count, line: row.position.line, wanted })
}

fn place(row: &Row, finding: quote::Finding) -> Problem {
    let position = row.place(&finding.field);
    Problem { position, field: Some(finding.field), message: finding.message, hint: finding.hint }
}

fn order(row: &Row, quote: Quote, policy: &Policy) -> Wanted {
    let refuse = |message: String, hint: &str| {
        let problem = Problem::new(row.place("max_credits"), message).in_field("max_credits").hint(hint);
        Wanted::Invalid(vec![problem])
    };
    match (quote.price, row.max_credits) {
        (None, None) => {
            let message = format!("missing, and the price is not known: {}", quote.formula);
            return refuse(message, "give the most this row may cost in max_credits");
        }
        (Some(price), Some(most)) if price > most => {
            let message = format!("is {}, but the row costs {}: {}", most.0, price.0, quote.formula);
            return refuse(message, "raise max_credits, or ask for less");
        }
        _ => {}
    }
    let price = quote.price;
    let waivable = if quote.waivable.is_some() { price.unwrap_or_default() } else { Credits::ZERO };
    Wanted::Order(Box::new(Order {
        line: row.position.line,
        kind: quote.kind,
        model: quote.model,
        body: quote.body,
        price,
        formula: quote.formula,
        waivable,
        max_credits: row.max_credits,
        priority: row.priority.or(policy.priority).unwrap_or_default(),
        deadline: row.deadline.or(policy.deadline),
        meta: row.meta.clone(),
    }))
}

/// Counts new, existing and invalid jobs, and adds up the price of the new ones.
fn count(judged: &Judged, receipt: &mut Receipt) -> Result<(), StoreError> {
    for repeat in &judged.repeated {
        let message = format!("is already used at line {}; an id names one row", repeat.first_line);
        receipt.refuse_row(vec![Problem::new(Position::line(repeat.line), message).in_field("id")]);
    }
    let mut rows = judged.rows()?;
    while let Some((row, verdict)) = rows.next_row()? {
        let Verdict::Wanted { first, have } = verdict else { continue };
        let known = have.saturating_sub(first - 1).min(row.count);
        receipt.have += known;
        match &row.wanted {
            Wanted::Order(order) => {
                let new = row.count - known;
                receipt.new += new;
                let each = order.hold().unwrap_or_default();
                receipt.price = receipt.price + Credits(each.0.saturating_mul(u64::from(new)));
            }
            Wanted::Invalid(problems) if known < row.count => receipt.refuse_row(problems.clone()),
            // It was valid when it was accepted; it is collected all the same.
            Wanted::Invalid(_) => {}
        }
    }
    Ok(())
}

/// Appends the new jobs to the batch's spool, the most urgent first, and returns the batch that
/// knows of them. Places in the batch follow the manifest, whatever the priorities.
fn spool(
    store: &Store,
    mut batch: BatchRecord,
    policy: Policy,
    judged: &Judged,
) -> Result<BatchRecord, StoreError> {
    let mut rows_file = Appender::open(&store.spool(batch.no).rows_path(), batch.spool_bytes)?;
    let first_seq = batch.rows;
    for &priority in judged.priorities.iter().rev() {
        let start = rows_file.bytes();
        let mut seq = first_seq;
        let mut rows = judged.rows()?;
        while let Some((row, verdict)) = rows.next_row()? {
            let (Verdict::Wanted { first, have }, Wanted::Order(order)) = (verdict, row.wanted) else {
                continue;
            };
            for variation in first.max(have + 1)..first + row.count {
                if order.priority == priority {
                    let spec = spec(Seq(seq), row.fingerprint, variation, row.label.as_deref(), &order);
                    batch.planned = batch.planned + spec.order.hold().unwrap_or_default();
                    rows_file.push(&spec)?;
                }
                seq += 1;
            }
        }
        batch.rows = batch.rows.max(seq);
        let end = rows_file.bytes();
        if end > start {
            batch.segments.push(Segment { priority, cursor: start, end });
        }
    }
    batch.spool_bytes = rows_file.sync()?;
    batch.policy = policy;
    Ok(batch)
}

fn spec(seq: Seq, fingerprint: Fingerprint, variation: u32, row_id: Option<&str>, order: &Order) -> JobSpec {
    let id = JobId::derive(fingerprint, variation);
    let label = label(row_id, variation, order.text(), id);
    JobSpec { seq, id, fingerprint, variation, label, order: order.clone() }
}
