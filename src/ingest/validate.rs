//! What a manifest comes to, row by row, before any of it counts: the one path that planning and
//! accepting share, so that a plan can never differ from what a run does.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use crate::domain::batch_origin::{Origin, SourcePlace};
use crate::domain::batch_terms::{self, BatchTerms, TermSources};
use crate::domain::budget_group::GroupTotals;
use crate::domain::diagnostic::{Diagnostic, Position};
use crate::domain::ids::{BadBatchName, BatchName, Fingerprint, JobId};
use crate::domain::job_reference::DecidedTake;
use crate::domain::manifest::row::{BadRow, Deadline, Header, Policy, ReadRow};
use crate::domain::manifest::{self, Limits, Manifest, RefusedManifest, RowEdits};
use crate::domain::pilot::Pilot;
use crate::domain::reference_graph::ReferenceGraph;
use crate::domain::shell_word::{job_argument, shell_word};
use crate::domain::time::Timestamp;
use crate::failpoint;
use crate::ingest::input_files::{FoundFile, InputFiles};
use crate::ingest::manifest_file::Identity;
use crate::ingest::pilot_choice::{self, PilotPlan, PilotTerms};
use crate::ingest::read_references::{self, AcceptedBatches};
use crate::ingest::receipt::Receipt;
use crate::ingest::row_chooser::{self, RowChooser};
use crate::ingest::row_pipeline::{self, Chunks};
use crate::ingest::row_references::{ReferredBatch, RowReferences};
use crate::ingest::row_result::{LeftOut, LeftOutRow, RowResult};
use crate::ingest::row_validator::{RowRules, RowValidator};
use crate::ingest::table_files::{self, Roots};
use crate::ingest::validated_rows::Rows;
use crate::ingest::validation_cache::ValidationCache;
use crate::ingest::{IngestContext, IngestOptions, ManifestError, count_jobs, manifest_file, take_check};
use crate::output::file_names::Layout;
use crate::store::StoreError;
use crate::store::staging::{StagedManifest, Staging};

/// A manifest that was read and validated. Nothing of it counts yet, and its rows lie in a file that goes
/// with it.
#[derive(Debug)]
pub struct Validated {
    /// The counts, and what to tell its owner.
    pub receipt: Receipt,
    /// The terms of its batch once it is taken in.
    pub terms: BatchTerms,
    /// Where it comes from; nothing of one that could not be read so far.
    pub origin: Option<Origin>,
    /// Where its batch was begun from, which may be elsewhere: budgets of inboxes go by that.
    pub batch_origin: Option<Origin>,
    /// Why nothing of it is taken in, although rows of it are good.
    refusal: Option<Diagnostic>,
    /// Why no job of it that is new is taken in.
    expired: Option<Diagnostic>,
    pub(super) staged: StagedManifest,
    /// What of its batch is done first.
    pub(super) pilot: Option<PilotPlan>,
    /// The files that its rows name, where they were read here.
    pub(super) files: Vec<FoundFile>,
    /// The other batches that its rows name.
    pub refers_to: BTreeSet<BatchName>,
}

/// A batch that is there already, as far as validation has to know it.
#[derive(Debug, Clone, PartialEq)]
pub struct Present {
    /// Where it was begun from, where that is known.
    pub origin: Option<Origin>,
    /// Its terms.
    pub terms: BatchTerms,
    /// When its first manifest was accepted.
    pub created: Timestamp,
    /// Its pilot, after which a person has not continued.
    pub pilot: Option<Pilot>,
    /// Where the rows of that lie: the byte of the first one and the byte after the last one of each part.
    pub pilot_rows: Vec<(u64, u64)>,
}

/// The batches that are there already.
pub trait Batches {
    /// The rows of the batch of that name that have these ids; nothing where there is no such batch. `graph` is told what
    /// each of its rows is made from.
    ///
    /// # Errors
    /// When they cannot be read.
    fn rows_by_id(
        &mut self,
        name: &BatchName,
        ids: &HashSet<String>,
        graph: Option<&mut ReferenceGraph>,
    ) -> Result<Option<ReferredBatch>, ManifestError>;

    /// The other batches that rows of the batch of that name may name.
    ///
    /// # Errors
    /// When its rows had to be read and cannot be.
    fn referred_batches(&mut self, name: &BatchName) -> Result<BTreeSet<BatchName>, ManifestError>;

    /// What was decided about the takes of the batch of that name, and of which takes its children were made.
    ///
    /// # Errors
    /// When that cannot be read.
    fn decided_takes(&mut self, name: &BatchName) -> Result<HashMap<JobId, DecidedTake>, ManifestError>;

    /// The batch of that name, whose jobs the draft is told of; nothing where there is none.
    ///
    /// # Errors
    /// When its rows cannot be read, or the draft not be written.
    fn take_up(&mut self, name: &BatchName, draft: &mut Staging) -> Result<Option<Present>, ManifestError>;

    /// The same batch, which the manifest may not be for: nothing of the draft is told. `tell` hears of every row.
    ///
    /// # Errors
    /// When its rows cannot be read.
    fn look_at(
        &mut self,
        name: &BatchName,
        tell: &mut dyn FnMut(Fingerprint),
    ) -> Result<Option<Present>, ManifestError>;
}

impl Validated {
    /// The rows, in manifest order.
    ///
    /// # Errors
    /// When the file that holds them cannot be read.
    pub fn rows(&self) -> Result<Rows<'_>, StoreError> {
        Ok(Rows { rows: self.staged.rows()?, refusal: self.refusal.as_ref(), expired: self.expired.as_ref() })
    }

    /// Whether nothing of the manifest would be taken in, although rows of it are good.
    pub fn is_refused(&self) -> bool {
        self.receipt.file_refused || (self.terms.policy.strict == Some(true) && self.receipt.invalid > 0)
    }
}

/// Reads and validates a manifest into `draft`, which is told by `batches` which jobs there are, once the batch has a
/// name.
///
/// # Errors
/// [`ManifestError`]. Diagnostics of rows are no error: they stand in the receipt, and good rows go on.
pub fn validate(
    draft: Staging,
    path: &Path,
    context: &IngestContext<'_>,
    now: Timestamp,
    batches: &mut dyn Batches,
) -> Result<Validated, ManifestError> {
    validate_opened(draft, path, manifest_file::open(path)?, context, now, batches)
}

/// The same for a manifest that is open, and was as `identity` says when it was opened.
pub(super) fn validate_opened(
    mut draft: Staging,
    path: &Path,
    (file, identity): (File, Identity),
    context: &IngestContext<'_>,
    now: Timestamp,
    batches: &mut dyn Batches,
) -> Result<Validated, ManifestError> {
    let options = &context.options;
    if options.expected.is_some_and(|expected| expected != identity) {
        return Err(ManifestError::Changed { path: path.to_owned() });
    }
    let mut receipt = Receipt::new(path);
    receipt.read = Some(identity);
    let opened =
        open_manifest(path, file, context).and_then(|manifest| match bad_name(manifest.header(), options) {
            Some(problem) => Err(RefusedManifest { problems: vec![problem], rows: Some(Box::new(manifest)) }),
            None => Ok(manifest),
        });
    let manifest = match opened {
        Ok(manifest) => manifest,
        Err(refused) => {
            refuse_manifest(refused, context, now, &mut receipt, &mut draft)?;
            // One that is still being written is not refused for what is missing of it.
            identity.check(path)?;
            let terms = resolve(options, &Header::default(), None);
            return Ok(Validated::new(receipt, terms, draft.classify()?));
        }
    };
    let header = manifest.header().clone();
    let Named { mut name, formerly, stem } = named(path, &header, options)?;
    if let Some(formerly) = formerly
        && keeps_name((path, identity), context, &formerly, now, batches)?
    {
        name = formerly;
    }
    receipt.batch = Some(name.clone());
    let present = batches.take_up(&name, &mut draft)?;
    let mut terms = resolve(options, &header, present.as_ref());
    let of_whole = [
        reserved_name(&name, present.as_ref()),
        layout_problem(&terms.policy),
        pilot_problem(options, &manifest),
    ];
    for problem in of_whole.into_iter().flatten() {
        refuse_file(vec![problem], &mut receipt, &mut draft)?;
    }
    let expired = expired(&mut terms, present.as_ref(), now);
    let files = InputFiles::new(options.files.as_deref(), folder_of(path), context.inputs);
    let rules = RowRules { policy: &terms.policy, context, files: &files, now };
    let no_references = RowReferences::default();
    let validator = RowValidator { batch: &name, rules, references: &no_references };
    let drawn = drawn_rows(path, identity, &validator)?;
    let references = references(path, identity, &validator, drawn.as_ref(), present.is_some(), batches)?;
    let validator = RowValidator { references: &references, ..validator };
    // What is left out is read for its identity alone: its files are none of the part's.
    let files_beside = InputFiles::new(options.files.as_deref(), folder_of(path), context.inputs);
    let beside = RowValidator { rules: RowRules { files: &files_beside, ..rules }, ..validator };
    stage_rows(manifest, drawn, (&validator, &beside), &mut receipt, &mut draft)?;
    identity.check(path)?;
    failpoint::hit("accepting");
    let mut validated = Validated {
        origin: Some(Origin { place: options.place.clone(), stem }),
        expired,
        refers_to: references.batches.keys().filter(|batch| **batch != name).cloned().collect(),
        ..Validated::new(receipt, terms, draft.classify()?)
    };
    validated.conclude((path, &name), context, present.as_ref(), !references.rows.is_empty())?;
    validated.files = files.into_read();
    Ok(validated)
}

/// Validates the rows of a manifest that are in the chosen part, on all processors, and puts them into the draft in their
/// order. The others are identified by the second validator, so that they do not count as absent.
fn stage_rows(
    manifest: Manifest<ManifestFile>,
    drawn: Option<BTreeSet<u64>>,
    (validator, beside): (&RowValidator<'_>, &RowValidator<'_>),
    receipt: &mut Receipt,
    draft: &mut Staging,
) -> Result<(), ManifestError> {
    let RowValidator { batch, rules, references } = *validator;
    let mut chooser = RowChooser::new(&rules.context.options.selection, drawn);
    let is_needed = |read: &ReadRow| match read {
        ReadRow::Good(row) => row.id.as_deref().is_some_and(|id| references.needs(id)),
        ReadRow::Bad(_) | ReadRow::Unreadable(_) => false,
    };
    let chosen = manifest.map(|read| {
        if chooser.takes(&read, rules) {
            return Ok(read);
        }
        // A row that is in the part for the sake of another is one of it, too.
        if is_needed(&read) {
            chooser.take_for_another();
            return Ok(read);
        }
        Err(LeftOutRow { read, is_counted: chooser.may_take_unnamed() })
    });
    let validator_of_thread = || {
        let mut cache = ValidationCache::new(batch, rules.context);
        move |rows: &mut [Result<ReadRow, LeftOutRow>]| -> Vec<RowResult> {
            rows.iter_mut().map(|chosen| RowResult::of(chosen, validator, beside, &mut cache)).collect()
        }
    };
    let weigh = |chosen: &Result<ReadRow, LeftOutRow>| {
        row_pipeline::weight(chosen.as_ref().unwrap_or_else(|left_out| &left_out.read))
    };
    let chunks = Chunks { rows: chosen, most_rows: row_pipeline::CHUNK_ROWS, weigh };
    row_pipeline::for_each(chunks, validator_of_thread, |results| {
        results.into_iter().try_for_each(|result| match result {
            RowResult::Row(row, notes) => {
                receipt.rows += 1;
                receipt.note(notes);
                draft.push(&row?)
            }
            RowResult::Unread { line, id, problems, notes, is_row } => {
                receipt.rows += u64::from(is_row);
                receipt.note(notes);
                draft.push_unread(line, id.as_deref(), problems)
            }
            RowResult::LeftOut(LeftOut::Label(id, line)) => draft.leave_out(&id, line),
            RowResult::LeftOut(LeftOut::Occurrence(row, count)) => draft.leave_out_occurrence(row, count),
            RowResult::LeftOut(LeftOut::Nothing) => Ok(()),
        })
    })?;
    receipt.left_out = chooser.left_out;
    receipt.report(chooser.problems());
    Ok(())
}

impl Validated {
    /// Of a manifest whose rows are staged and not counted.
    fn new(receipt: Receipt, terms: BatchTerms, staged: StagedManifest) -> Validated {
        Validated {
            receipt,
            terms,
            origin: None,
            batch_origin: None,
            refusal: None,
            expired: None,
            staged,
            pilot: None,
            files: Vec::new(),
            refers_to: BTreeSet::new(),
        }
    }

    /// Counts the staged rows, and decides what depends on all of them: whether the manifest is refused, which rows of its
    /// batch it does not name, and what is done first.
    fn conclude(
        &mut self,
        (path, name): (&Path, &BatchName),
        context: &IngestContext<'_>,
        present: Option<&Present>,
        has_references: bool,
    ) -> Result<(), ManifestError> {
        let options = &context.options;
        self.receipt.terms = self.terms.policy.clone();
        self.receipt.by_group = GroupTotals::of_keys(context.group_limits.keys());
        self.batch_origin =
            present.and_then(|present| present.origin.clone()).or_else(|| self.origin.clone());
        let origin = self.batch_origin.as_ref();
        count_jobs::count(&self.staged, self.expired.as_ref(), origin, &mut self.receipt)?;
        if let Some(expected) = options.take.filter(|_| !self.is_refused())
            && let Some(problem) = take_check::problem(&self.staged, expected)?
        {
            self.refuse(problem);
        }
        if options.selection.is_whole() && options.amends.is_none() && !self.is_refused() {
            let command = |job: &str| format!("callsheet cancel {}", job_argument(name, job));
            self.receipt.absent = self.staged.absent(command)?;
            if let Some((line, unspent)) = self.staged.untold_absent() {
                self.receipt.note_untold_absent(line, unspent);
            }
        }
        if !self.is_refused() && self.expired.is_none() {
            let standing = present.and_then(|present| present.pilot);
            let standing_rows = present.map(|present| present.pilot_rows.as_slice()).unwrap_or_default();
            let terms = PilotTerms { asked: options.pilot, standing, standing_rows, has_references };
            self.pilot = pilot_choice::choose(&self.staged, terms, &self.receipt)?;
            let waits = |pilot: &Pilot| pilot.rest_jobs > 0;
            self.receipt.pilot = self.pilot.as_ref().map(|plan| plan.pilot).filter(waits);
        }
        if let Some(present) = present {
            let own = self.origin.as_ref().filter(|_| options.batch.is_none());
            if let Some(problem) =
                own.and_then(|own| foreign((path, options), name, own, present, &self.receipt))
            {
                self.refuse(problem);
            }
            self.receipt.changes = batch_terms::differences(&present.terms.policy, &self.terms.policy);
        }
        Ok(())
    }

    /// Nothing of it is taken in, although rows of it are good.
    fn refuse(&mut self, problem: Diagnostic) {
        self.receipt.refuse_whole(problem.clone());
        self.refusal = Some(problem);
    }
}

/// The folder that names of files in a manifest are relative to.
fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

type ManifestFile = BufReader<File>;

fn open_manifest(
    path: &Path,
    file: File,
    context: &IngestContext<'_>,
) -> Result<Manifest<ManifestFile>, RefusedManifest<ManifestFile>> {
    let folder = folder_of(path);
    let mut read_table = |name: &str| table_files::read(folder, Roots::Below(&context.inputs.roots), name);
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = BufReader::with_capacity(64 * 1024, file);
    let manifest = manifest::open(&file_name, file, &Limits::default(), &mut read_table)?;
    Ok(match &context.options.edits {
        Some(edits) => manifest.with_edits(edits.clone()),
        None => manifest,
    })
}

/// The rows of a random part; nothing where no part is drawn.
fn drawn_rows(
    path: &Path,
    identity: Identity,
    validator: &RowValidator<'_>,
) -> Result<Option<BTreeSet<u64>>, ManifestError> {
    let selection = &validator.rules.context.options.selection;
    if selection.random.is_none() {
        return Ok(None);
    }
    let (file, opened) = manifest_file::open(path)?;
    let drawn = open_manifest(path, file, validator.rules.context)
        .ok()
        .and_then(|rows| row_chooser::draw(rows, selection, validator));
    if opened == identity { Ok(drawn) } else { Err(ManifestError::Changed { path: path.to_owned() }) }
}

/// Whom the rows of a manifest mean by their references. Most manifests have none, and are not read for them.
fn references(
    path: &Path,
    identity: Identity,
    validator: &RowValidator<'_>,
    drawn: Option<&BTreeSet<u64>>,
    is_present: bool,
    batches: &mut dyn Batches,
) -> Result<RowReferences, ManifestError> {
    let RowValidator { batch, rules, .. } = *validator;
    let edits = rules.context.options.edits.as_ref();
    if !edits.is_some_and(RowEdits::may_name_rows) && !read_references::file_may_have(path) {
        return Ok(RowReferences::default());
    }
    let selection = &rules.context.options.selection;
    let chooser = (!selection.is_whole()).then(|| RowChooser::new(selection, drawn.cloned()));
    let open = || {
        let (file, opened) = manifest_file::open(path)?;
        if opened != identity {
            return Err(ManifestError::Changed { path: path.to_owned() });
        }
        Ok(open_manifest(path, file, rules.context).ok())
    };
    let own = &rules.context.options.place;
    let is_shared = |place: &SourcePlace| rules.context.inputs.shared_sources.contains(place);
    let batches = std::cell::RefCell::new(batches);
    let takes = || batches.borrow_mut().decided_takes(batch);
    let refers_to = |other: &BatchName| match is_present {
        true => batches.borrow_mut().referred_batches(other),
        // No row names one of a batch that is not there yet.
        false => Ok(BTreeSet::new()),
    };
    let look_up = |other: &BatchName, ids: &HashSet<String>, graph: Option<&mut ReferenceGraph>| {
        let Some(found) = batches.borrow_mut().rows_by_id(other, ids, graph)? else {
            return Ok(Err("which does not exist; submit its manifest first, or put the folder of the batch back if it was moved away".to_owned()));
        };
        Ok(match &found.origin {
            Some(origin) if origin.place == *own || other == batch || is_shared(&origin.place) => Ok(found),
            Some(origin) => Err(format!(
                "which belongs to {origin}; a manifest can name rows of batches of its own folder or inbox, and of \
                 those that inputs.shared_sources names"
            )),
            None if other == batch => Ok(found),
            None => Err("whose folder or inbox is not known".to_owned()),
        })
    };
    read_references::read(open, AcceptedBatches { look_up, refers_to, takes }, batch, rules, chooser)
}

/// Why a manifest does not belong to the batch whose name it would take: the batch came from elsewhere, and they
/// have no row in common.
fn foreign(
    (path, options): (&Path, &IngestOptions),
    name: &BatchName,
    own: &Origin,
    batch: &Present,
    receipt: &Receipt,
) -> Option<Diagnostic> {
    let owner = batch.origin.as_ref().filter(|owner| !owner.covers(own))?;
    if receipt.have > 0 || receipt.added() == 0 {
        return None;
    }
    let message = format!(
        "the batch {name} belongs to {owner}, and no row of this manifest is in it: the manifest was rejected"
    );
    // One that was dropped is moved away, and no flag was given with it.
    let is_dropped = options.expected.is_some();
    let hint = if is_dropped { hint_of_dropped(name, own) } else { hint_of_named(path, name, own, owner) };
    Some(Diagnostic::at(Position::line(1), message).hint(hint))
}

fn hint_of_dropped(name: &BatchName, own: &Origin) -> String {
    let other = match own.stem {
        Some(_) => "drop it again under another name",
        None => "change batch in it and drop it again",
    };
    format!(
        "for a batch of its own, {other}; to add it to that one, submit the file beside this receipt: callsheet submit FILE \
         --batch {name}"
    )
}

fn hint_of_named(path: &Path, name: &BatchName, own: &Origin, owner: &Origin) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let (file, beside) = match &own.place {
        SourcePlace::Folder(folder) => {
            let parent = Path::new(folder).file_name().unwrap_or_default().to_string_lossy().into_owned();
            (Path::new(folder).join(&*file).display().to_string(), parent)
        }
        SourcePlace::Inbox(inbox) => (file.into_owned(), inbox.clone()),
        SourcePlace::Schedule(_) | SourcePlace::Socket => (file.into_owned(), "socket".to_owned()),
    };
    let stem = own.stem.as_deref().unwrap_or(name.as_str());
    // Of two files of one folder, neither is told apart by the folder.
    let names = [format!("{beside}-{name}"), format!("{name}-2")];
    let names = names.iter().skip(usize::from(owner.place == own.place));
    let another = names.filter_map(|text| BatchName::from_name(text, stem).ok()).find(|other| other != name);
    let of_its_own = another.map(|other| {
        format!("for a batch of its own: callsheet run {} --batch {other}; ", shell_word(&file))
    });
    format!("{}to add it to that one: --batch {name}", of_its_own.unwrap_or_default())
}

/// Why nothing may be added to the batch: its time was over before. An end that is over as it is given does not
/// take the place of the one in force: what waits would be dropped for a slip of the pen.
fn expired(terms: &mut BatchTerms, batch: Option<&Present>, now: Timestamp) -> Option<Diagnostic> {
    let expires = terms.policy.expires?;
    let at = expires.instant(batch.map_or(now, |batch| batch.created));
    if at > now {
        return None;
    }
    if let Some(batch) = batch {
        terms.policy.expires = batch.terms.policy.expires;
        let BatchTerms { said: last, said_by_defaults: last_by_defaults, .. } = &batch.terms;
        for (said, last) in [(&mut terms.said, last), (&mut terms.said_by_defaults, last_by_defaults)] {
            if let Some(said) = said {
                said.expires = last.as_ref().and_then(|last| last.expires);
            }
        }
    }
    let message = match expires {
        Deadline::At(_) => format!("is {at}, which has passed: nothing new would be sent"),
        Deadline::After(_) => {
            format!("ended at {at}, counted from when its batch began: nothing new would be sent")
        }
    };
    Some(Diagnostic::at(Position::line(1), message).in_field("policy.expires").hint(
        "set a later policy.expires in the manifest or in the configuration of its inbox or schedule, or start \
         another batch with --batch",
    ))
}

/// A problem of the whole file takes a place among its rows, too, so that every reader of them sees it.
fn refuse_file(
    problems: Vec<Diagnostic>,
    receipt: &mut Receipt,
    draft: &mut Staging,
) -> Result<(), StoreError> {
    let line = problems.first().map_or(1, Diagnostic::line);
    draft.push_unread(line, None, problems.clone())?;
    receipt.refuse_file(problems);
    Ok(())
}

/// Tells what is wrong with a file of which nothing may be accepted, and with its rows, where it has some.
fn refuse_manifest(
    RefusedManifest { problems, rows }: RefusedManifest<ManifestFile>,
    context: &IngestContext<'_>,
    now: Timestamp,
    receipt: &mut Receipt,
    draft: &mut Staging,
) -> Result<(), StoreError> {
    refuse_file(problems, receipt, draft)?;
    rows.map_or(Ok(()), |rows| check_rows(*rows, context, now, receipt, draft))
}

/// Checks the rows of a file of which nothing may be accepted, so that all that is wrong with it is said at once.
fn check_rows(
    rows: Manifest<ManifestFile>,
    context: &IngestContext<'_>,
    now: Timestamp,
    receipt: &mut Receipt,
    draft: &mut Staging,
) -> Result<(), StoreError> {
    let policy = rows.header().policy.clone();
    // The rows have no identity here, so their files are not read.
    let files = InputFiles::new(None, Path::new(""), context.inputs);
    let rules = RowRules { policy: &policy, context, files: &files, now };
    for read in rows {
        let bad = match read {
            ReadRow::Good(row) => BadRow { problems: Vec::new(), row: Some(row), has_unknown_fields: true },
            // What the header lacks may be what seems to be missing.
            ReadRow::Bad(bad) => BadRow { has_unknown_fields: true, ..bad },
            ReadRow::Unreadable(problem) => BadRow::unread(problem),
        };
        receipt.rows += 1;
        let position = bad.row.as_ref().map(|row| row.position);
        let problems = rules.all_problems(bad);
        if let Some(first) = problems.first() {
            let line = position.map_or_else(|| first.line(), |at| at.line);
            draft.push_unread(line, None, problems.clone())?;
            receipt.refuse_row(problems);
        }
    }
    Ok(())
}

/// What is wrong with the name that a manifest gives its batch, where that counts.
fn bad_name(header: &Header, options: &IngestOptions) -> Option<Diagnostic> {
    let name = header.batch.as_ref().filter(|_| options.batch.is_none())?;
    let bad = name.parse::<BatchName>().err()?;
    Some(Diagnostic::at(Position::line(1), bad.to_string()).in_field("batch"))
}

/// Why no new batch can have the name.
fn reserved_name(name: &BatchName, batch: Option<&Present>) -> Option<Diagnostic> {
    if batch.is_some() || !name.is_reserved() {
        return None;
    }
    let message =
        format!("{name} cannot name a batch: the list of batches has that name in the output directory");
    let hint = "choose another name, in the manifest as `batch` or as in --batch index-html";
    Some(Diagnostic::at(Position::line(1), message).hint(hint))
}

/// What a manifest's batch is called.
struct Named {
    name: BatchName,
    /// What it would have been called before batches of an inbox carried the inbox's name, and before names were reserved.
    formerly: Option<BatchName>,
    /// The file's stem, where the batch is called after it.
    stem: Option<String>,
}

fn named(path: &Path, header: &Header, options: &IngestOptions) -> Result<Named, BadBatchName> {
    if let Some(name) = &options.batch {
        return Ok(Named { name: name.clone(), formerly: None, stem: None });
    }
    let (plain, stem): (BatchName, _) = match &header.batch {
        Some(name) => (name.parse()?, None),
        None => {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (BatchName::from_file_stem(&stem)?, Some(stem))
        }
    };
    let reserved = stem.as_deref().and_then(|stem| stem.parse().ok()).filter(BatchName::is_reserved);
    let SourcePlace::Inbox(inbox) = &options.place else {
        return Ok(Named { name: plain, formerly: reserved, stem });
    };
    let full = format!("{inbox}--{plain}");
    // One that was written out is refused rather than cut.
    let name = if stem.is_some() { BatchName::from_file_stem(&full)? } else { full.parse()? };
    Ok(Named { name, formerly: Some(reserved.unwrap_or(plain)), stem })
}

/// Whether a manifest of an inbox keeps to the batch that it made before batches of an inbox carried the inbox's
/// name: under another name its rows would be other jobs, and bought again.
fn keeps_name(
    (path, identity): (&Path, Identity),
    context: &IngestContext<'_>,
    formerly: &BatchName,
    now: Timestamp,
    batches: &mut dyn Batches,
) -> Result<bool, ManifestError> {
    let mut rows = HashSet::new();
    let Some(batch) = batches.look_at(formerly, &mut |row| _ = rows.insert(row))? else { return Ok(false) };
    let is_own = |place: &SourcePlace| *place == context.options.place;
    match batch.origin.map(|origin| origin.place) {
        Some(place) if is_own(&place) => return Ok(true),
        // It was an inbox without a name of its own.
        Some(place) if place == manifest_file::place_of(path)? => {}
        Some(_) => return Ok(false),
        None => {}
    }
    let (file, opened) = manifest_file::open(path)?;
    let Ok(manifest) = open_manifest(path, file, context) else { return Ok(false) };
    let policy = Policy::default();
    let files = InputFiles::new(context.options.files.as_deref(), folder_of(path), context.inputs);
    let rules = RowRules { policy: &policy, context, files: &files, now };
    // Rows with references came later than such batches.
    let references = RowReferences::default();
    let validator = RowValidator { batch: formerly, rules, references: &references };
    let is_there = |read: ReadRow| match read {
        ReadRow::Good(mut row) => {
            validator.identify(&mut row).is_ok_and(|found| rows.contains(&found.fingerprint))
        }
        ReadRow::Bad(_) | ReadRow::Unreadable(_) => false,
    };
    let has_one = manifest.into_iter().any(is_there);
    if opened == identity { Ok(has_one) } else { Err(ManifestError::Changed { path: path.to_owned() }) }
}

/// What is said now, over what holds already.
fn resolve(options: &IngestOptions, header: &Header, batch: Option<&Present>) -> BatchTerms {
    let said = TermSources {
        flags: &options.policy,
        is_default_budget: options.is_default_budget,
        manifest: &header.policy,
        defaults: &options.default_policy,
        default_budget: options.default_budget,
        ceiling: options.ceiling,
    };
    batch_terms::resolve(said, batch.map(|batch| &batch.terms))
}

fn layout_problem(policy: &Policy) -> Option<Diagnostic> {
    let error = policy.layout.as_deref().map(Layout::parse)?.err()?;
    Some(Diagnostic::at(Position::line(1), error.to_string()).in_field("policy.layout"))
}

/// A pilot of one row for each value of a matrix is asked for, and there is no matrix.
fn pilot_problem(options: &IngestOptions, manifest: &Manifest<ManifestFile>) -> Option<Diagnostic> {
    let pilot = options.pilot.filter(|pilot| pilot.needs_matrix() && !manifest.has_matrix())?;
    let message = format!("--pilot {pilot} is for a manifest with a matrix, and this one has none");
    let problem = Diagnostic::at(Position::line(1), message);
    Some(problem.hint("a number of rows is accepted for every manifest: --pilot 3"))
}
