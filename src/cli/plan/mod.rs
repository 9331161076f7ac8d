//! `callsheet plan`: what manifests would do and cost, row by row, before anything is sent.
//!
//! Rows are staged on disk and read one by one, so a million of them fit. The state is read without being opened: a
//! plan changes nothing in it, and works beside a running process. A daemon is asked which jobs were sent; beside a
//! `run` that is not known, and the plan says so.

mod budgets;
mod graph;
mod json;
mod plan_row;
mod text;
mod totals;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::api::ServiceError;
use crate::cli::examples;
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::invocation::Invocation;
use crate::cli::manifest_arguments::ManifestArguments;
use crate::cli::manifest_input::{self, ManifestInput};
use crate::cli::plan::budgets::Budgets;
use crate::cli::plan::plan_row::PlanRow;
use crate::cli::plan::totals::Totals;
use crate::cli::service_target::{self, CatalogSource};
use crate::cli::terminal::say;
use crate::cli::{build, daemon_discovery, printable, submit, summary, written};
use crate::clock::Clock;
use crate::config::Config;
use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::ids::{BatchName, BatchNo, Fingerprint, JobId};
use crate::domain::job_reference::DecidedTake;
use crate::domain::quote::{AccountPlan, Catalog};
use crate::domain::reference_graph::ReferenceGraph;
use crate::domain::time::Timestamp;
use crate::ingest::catalog_refresh::Catalogs;
use crate::ingest::newer_catalog::NewerCatalog;
use crate::ingest::receipt::Receipt;
use crate::ingest::{
    self, Batches, IngestContext, IngestOptions, ManifestError, Present, ReferredBatch, Validated,
};
use crate::server::protocol::OpenJobsRequest;
use crate::store::read_only::ReadOnlyBatch;
use crate::store::read_only::{ReadOnlyState, SeenJobs, Visibility};
use crate::store::staging::Staging;
use crate::store::{OpenJobStatus, StoreError};

/// What `plan` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::PLAN))]
pub(in crate::cli) struct PlanCommand {
    /// Manifests: .csv, .json, .jsonl or .ndjson, or - for standard input
    #[arg(required = true, value_name = "MANIFEST")]
    pub(in crate::cli) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) terms: ManifestArguments,
    /// List every row
    #[arg(long)]
    pub(in crate::cli) rows: bool,
    /// Print which rows take outputs of which, as a graph in DOT (for Graphviz)
    #[arg(long, conflicts_with = "rows")]
    pub(in crate::cli) graph: bool,
}

pub(super) async fn run(command: &PlanCommand, global: &Global) -> Result<Exit, Failure> {
    let clock = Clock::start();
    let config = service_target::config(global)?;
    let manifests = manifest_input::open_all(&command.manifests, &command.terms, &config).await?;
    let asked = service_target::catalog_source(&config, global).await?;
    let outcome = plan(&asked, &manifests, command, global, &config, clock).await;
    asked.end().await;
    outcome
}

async fn plan(
    asked: &CatalogSource,
    manifests: &[ManifestInput],
    command: &PlanCommand,
    global: &Global,
    config: &Config,
    clock: Clock,
) -> Result<Exit, Failure> {
    let state = ReadOnlyState::at(&asked.state)?;
    if let Some((_, identity)) = asked.service() {
        state.belongs_to(identity)?;
    }
    let mut catalogs = asked.catalogs(&clock).await?;
    let balance = balance(asked).await;
    let open = open_jobs(&state, global, config, global.emulator).await?;
    let now = clock.now().wall;
    refuse_damage(&state)?;
    let newer = NewerCatalog::default();
    let given = (&catalogs.catalog, Some(&newer));
    let mut validation = validate_all(&state, open.as_deref(), manifests, config, given, now)?;
    if newer.is_wanted()
        && let Some(read) = asked.newer_catalogs(&catalogs, &clock).await?
    {
        catalogs = read;
        let given = (&catalogs.catalog, None);
        validation = validate_all(&state, open.as_deref(), manifests, config, given, now)?;
    }
    let Validation { validated, seen, committed } = validation;
    let budgets = Budgets::read(&state, global, config, now).await?;
    let (plan, invocation) = (config.service.plan, Invocation::of("run", global));
    let report = PlanReport { validated, committed, balance, catalogs, plan, seen, budgets, invocation };
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if global.json {
        written(report.write_json(&mut out))?;
    } else {
        for validated in &report.validated {
            summary::problems(&validated.receipt);
        }
        written(match command.graph {
            true => report.write_graph(&mut out),
            false => report.write_text(&mut out, command.rows),
        })?;
    }
    written(out.flush())?;
    let receipts = || report.validated.iter().map(|validated| &validated.receipt);
    let exit = if receipts().any(|receipt| receipt.not_validated > 0) {
        Exit::Unreachable
    } else if receipts().any(Receipt::has_problems) {
        Exit::Usage
    } else {
        Exit::Success
    };
    if global.json {
        submit::report_problems(receipts(), exit);
    }
    Ok(exit)
}

/// The balance, where it can be asked for. Not knowing it stops no plan.
async fn balance(asked: &CatalogSource) -> Option<Credits> {
    let (service, _) = asked.service()?;
    if !asked.has_key {
        return None;
    }
    match service.credits().await {
        Ok(balance) => Some(balance),
        Err(error) => {
            let what = match &error {
                ServiceError::Unauthorised(_) => "the balance is not known".to_owned(),
                ServiceError::Unreachable { .. } => "failed to read the balance".to_owned(),
            };
            say!("warning: {what}: {}", printable(&error.to_string()));
            None
        }
    }
}

/// What the daemon that works on the state says of jobs that have begun; nothing where none does, or where it does not
/// say.
async fn open_jobs(
    state: &ReadOnlyState,
    global: &Global,
    config: &Config,
    is_emulated: bool,
) -> Result<Option<Vec<OpenJobStatus>>, Failure> {
    if state.holder()?.is_none() {
        return Ok(None);
    }
    let Ok(Some(met)) = daemon_discovery::find_daemon(global, config, is_emulated).await else {
        return Ok(None);
    };
    let mut open = Vec::new();
    let mut keep = |line: &[u8]| {
        open.push(serde_json::from_slice(line)?);
        Ok(())
    };
    // An older daemon does not know the question.
    let is_told = met.client.lines(&OpenJobsRequest {}, &mut keep).await.is_ok();
    Ok(is_told.then_some(open))
}

/// Validates the manifests in their order: what one of them would add, the next finds in the state.
fn validate_all(
    state: &ReadOnlyState,
    open: Option<&[OpenJobStatus]>,
    manifests: &[ManifestInput],
    config: &Config,
    (catalog, newer_catalog): (&Catalog, Option<&NewerCatalog<'_>>),
    now: Timestamp,
) -> Result<Validation, Failure> {
    let defaults = build::ingest_defaults(config, None)?;
    let mut validated: Vec<Validated> = Vec::with_capacity(manifests.len());
    let (mut seen, mut committed) = (Visibility::All, BTreeMap::new());
    for input in manifests {
        let files = Some(Arc::new(input.files.handed.clone())).filter(|files| !files.0.is_empty());
        let options = IngestOptions { files, ..input.submission.clone().into() };
        let context = IngestContext { newer_catalog, ..defaults.context(catalog, options) };
        let mut batches = PlannedBatches { state, open, validated: &validated, now, seen: None };
        let mut manifest = ingest::validate(Staging::apart()?, &input.path, &context, now, &mut batches)?;
        manifest.receipt.file.clone_from(&input.shown);
        if let Some(jobs) = batches.seen {
            if jobs.visibility == Visibility::SentUnknown {
                seen = Visibility::SentUnknown;
            }
            committed.extend(manifest.receipt.batch.clone().map(|batch| (batch, jobs.committed)));
        }
        validated.push(manifest);
    }
    Ok(Validation { validated, seen, committed })
}

/// What the manifests of a plan come to.
struct Validation {
    validated: Vec<Validated>,
    /// How much could be seen of the jobs that their batches have.
    seen: Visibility,
    /// What is set aside and charged for those.
    committed: BTreeMap<BatchName, Credits>,
}

/// The batches of a state as they would be with the manifests that were validated so far.
struct PlannedBatches<'a> {
    state: &'a ReadOnlyState,
    /// What the process that holds the state says of jobs that have begun.
    open: Option<&'a [OpenJobStatus]>,
    validated: &'a [Validated],
    now: Timestamp,
    /// What was seen of the jobs of the batch; nothing before it was looked for.
    seen: Option<SeenJobs>,
}

impl PlannedBatches<'_> {
    fn batch(&self, name: &BatchName) -> Result<Option<Present>, StoreError> {
        let found = self.state.batch(name)?;
        let mut present = found.map(|found| {
            let ReadOnlyBatch { origin, terms, created, pilot, pilot_rows, .. } = found;
            Present { origin, terms, created, pilot, pilot_rows }
        });
        for earlier in self.validated.iter().filter(|earlier| earlier.would_be_in(name)) {
            let origin = present.as_ref().and_then(|present| present.origin.clone());
            let created = present.map_or(self.now, |present| present.created);
            let origin = origin.or_else(|| earlier.origin.clone());
            let pilot = earlier.receipt.pilot;
            let pilot_rows = Vec::new();
            present = Some(Present { origin, terms: earlier.terms.clone(), created, pilot, pilot_rows });
        }
        Ok(present)
    }
}

impl Batches for PlannedBatches<'_> {
    fn take_up(&mut self, name: &BatchName, draft: &mut Staging) -> Result<Option<Present>, ManifestError> {
        self.seen = Some(self.state.note_jobs_of(name, self.open, draft)?);
        self.validated.iter().try_for_each(|earlier| earlier.note_in(draft))?;
        Ok(self.batch(name)?)
    }

    fn rows_by_id(
        &mut self,
        name: &BatchName,
        ids: &HashSet<String>,
        mut graph: Option<&mut ReferenceGraph>,
    ) -> Result<Option<ReferredBatch>, ManifestError> {
        let found = self.state.batch(name)?;
        let mut batch = match found {
            Some(found) => {
                let rows = self.state.rows_by_id(&found, ids, graph.as_deref_mut())?;
                let takes = if ids.is_empty() {
                    HashMap::new()
                } else {
                    self.state.decided_takes(&found, self.open)?
                };
                Some(ReferredBatch { no: found.no, origin: found.origin, rows, takes })
            }
            None => None,
        };
        for earlier in self.validated.iter().filter(|earlier| earlier.would_be_in(name)) {
            // It gets its number when it is accepted.
            let batch = batch.get_or_insert_with(|| ReferredBatch {
                no: BatchNo(0),
                origin: earlier.origin.clone(),
                rows: HashMap::new(),
                takes: HashMap::new(),
            });
            batch.rows.extend(earlier.rows_by_id(ids, graph.as_deref_mut())?);
        }
        Ok(batch)
    }

    fn referred_batches(&mut self, name: &BatchName) -> Result<BTreeSet<BatchName>, ManifestError> {
        let found = self.state.batch(name)?;
        let mut batches =
            found.map_or_else(|| Ok(BTreeSet::new()), |found| self.state.referred_batches(&found))?;
        for earlier in self.validated.iter().filter(|earlier| earlier.would_be_in(name)) {
            batches.extend(earlier.refers_to.iter().cloned());
        }
        Ok(batches)
    }

    fn decided_takes(&mut self, name: &BatchName) -> Result<HashMap<JobId, DecidedTake>, ManifestError> {
        let Some(batch) = self.state.batch(name)? else { return Ok(HashMap::new()) };
        Ok(self.state.decided_takes(&batch, self.open)?)
    }

    fn look_at(
        &mut self,
        name: &BatchName,
        tell: &mut dyn FnMut(Fingerprint),
    ) -> Result<Option<Present>, ManifestError> {
        self.state.accepted(|fingerprint, _| {
            tell(fingerprint);
            Ok(())
        })?;
        Ok(self.batch(name)?)
    }
}

/// Refuses a state that could not be opened: what a run would buy cannot be told from it. Beside a process that has it open
/// nothing is checked.
fn refuse_damage(state: &ReadOnlyState) -> Result<(), Failure> {
    if state.holder()?.is_some() {
        return Ok(());
    }
    match state.could_be_opened() {
        // It may have been opened meanwhile.
        Err(error) if state.holder()?.is_none() => Err(error.into()),
        Ok(Some(not_copied)) => {
            say!(
                "the database of the state was not checked: {not_copied}; set TMPDIR to a directory with more free space"
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Everything that a plan shows.
struct PlanReport {
    validated: Vec<Validated>,
    balance: Option<Credits>,
    catalogs: Catalogs,
    plan: AccountPlan,
    seen: Visibility,
    /// What is set aside and charged for the jobs that the batches have.
    committed: BTreeMap<BatchName, Credits>,
    budgets: Budgets,
    invocation: Invocation,
}

impl PlanReport {
    /// Batches that several of its manifests go into.
    fn shared_batches(&self) -> BTreeSet<&BatchName> {
        let taken = self.validated.iter().filter(|validated| !validated.is_refused());
        let mut seen = BTreeSet::new();
        taken
            .filter_map(|validated| validated.receipt.batch.as_ref())
            .filter(|name| !seen.insert(*name))
            .collect()
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let mut writer = json::JsonWriter::begin(out)?;
        let totals = self.for_each_row(|row| writer.add_row(row))?;
        writer.finish(self, &totals)
    }

    fn write_graph(&self, out: &mut impl Write) -> io::Result<()> {
        let mut writer = graph::GraphWriter::begin(out)?;
        self.for_each_row(|row| writer.add_row(row))?;
        writer.finish()
    }

    fn write_text(&self, out: &mut impl Write, all_rows: bool) -> io::Result<()> {
        let mut listing = text::RowListing::new(all_rows);
        let totals = self.for_each_row(|row| listing.add_row(out, row))?;
        listing.finish(out)?;
        text::totals(out, self, &totals)
    }

    /// Calls `see` with every job and invalid row of every manifest, and adds them up.
    fn for_each_row(&self, mut see: impl FnMut(&PlanRow<'_>) -> io::Result<()>) -> io::Result<Totals> {
        let mut totals = Totals::by_group(self.budgets.no_sums());
        for validated in &self.validated {
            totals.begin(validated, &self.committed);
            let file = validated.receipt.file.as_path();
            let batch = validated.receipt.batch.as_ref();
            let mut rows = validated.rows().map_err(other)?;
            while let Some(row) = rows.next_row().map_err(other)? {
                plan_row::for_each(file, batch, &row, |row| {
                    totals.add(row, validated.batch_origin.as_ref());
                    see(row)
                })?;
            }
        }
        Ok(totals)
    }
}

fn other(error: StoreError) -> io::Error {
    io::Error::other(error)
}

/// A path as people and scripts are shown it.
fn shown(file: &Path) -> String {
    file.display().to_string()
}
