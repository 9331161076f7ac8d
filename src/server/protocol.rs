//! The requests of the control API and their responses. Fields may be added, not renamed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use axum::http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

use crate::domain::batch_origin::SourcePlace;
use crate::domain::budget::{BudgetSetting, StateTotals};
use crate::domain::budget_group::GroupTotals;
use crate::domain::charge_drift::Drift;
use crate::domain::credits::Credits;
use crate::domain::default_fields::is_default;
use crate::domain::exit_code::Exit;
use crate::domain::ids::{BatchName, JobId};
use crate::domain::job::{Job, JobSpec, OutputFile, RecordView};
use crate::domain::manifest::FieldEdit;
use crate::domain::manifest::row::Policy;
use crate::domain::parked_reason::Parked;
use crate::domain::path_text::{self, ExactPath};
use crate::domain::pilot::PilotRows;
use crate::domain::row_selection::RowSelection;
use crate::domain::task::Fault;
use crate::domain::time::{Millis, Timestamp};
use crate::engine::output_sync::RefusedOutputs;
use crate::engine::scheduler::CommandOutcome;
use crate::ingest::IngestOptions;
use crate::ingest::another_take::AnotherTake;
use crate::ingest::receipt::Receipt;
use crate::ingest::retry_edited::EditedRetry;
pub use crate::server::batch_status::{BatchState, BatchStatus, TransferTotals, Transfers};
pub use crate::server::error_body::{ErrorBody, Refusal};
pub use crate::server::ledger_entry::LedgerEntry;
pub use crate::server::review_protocol::{
    AnotherTakeRequest, DecideRequest, DecisionOutcome, DecisionRequest, Decisions, ReviewRequest,
};

/// Media type of answers that are one object a line.
pub const NDJSON: &str = "application/x-ndjson";

/// Header of a response of many lines: how many finished batches are not among them, where it is not 0. Each is found
/// by its name.
pub const NOT_LISTED: &str = "callsheet-not-listed";

/// A request of the control API: where it goes and what it is answered with. A GET carries its fields as the query,
/// a POST as a JSON body.
pub trait Request: Serialize {
    /// GET asks, and changes nothing; POST is a command.
    const METHOD: Method;
    /// The route; `{name}` in it stands for a field.
    const PATH: &'static str;
    /// The body of the response.
    type Response: DeserializeOwned;

    /// The route with its fields filled in.
    fn path(&self) -> String {
        Self::PATH.to_owned()
    }
}

/// Response of as many lines of JSON as there are.
#[derive(Debug, Deserialize)]
pub enum Lines {}

macro_rules! requests {
    ($($request:ident: $method:ident $path:literal -> $response:ty;)*) => {
        $(impl Request for $request {
            const METHOD: Method = Method::$method;
            const PATH: &'static str = $path;
            type Response = $response;
        })*
    };
}

requests! {
    HealthRequest: GET "/v1/health" -> Health;
    StatusRequest: GET "/v1/status" -> Status;
    JobsRequest: GET "/v1/jobs" -> Lines;
    OpenJobsRequest: GET "/v1/open" -> Lines;
    ReviewRequest: GET "/v1/review" -> Lines;
    DecideRequest: POST "/v1/review" -> Decisions;
    TotalsRequest: GET "/v1/totals" -> StateTotals;
    GroupTotalsRequest: GET "/v1/groups" -> Option<GroupTotals>;
    ExplainRequest: GET "/v1/explain" -> Explanation;
    LedgerRequest: GET "/v1/ledger" -> Lines;
    ExportRequest: GET "/v1/state" -> Lines;
    SchedulesRequest: GET "/v1/schedules" -> Schedules;
    PauseRequest: POST "/v1/pause" -> BatchOutcomes;
    ResumeRequest: POST "/v1/resume" -> BatchOutcomes;
    ContinueRequest: POST "/v1/continue" -> BatchOutcomes;
    CancelRequest: POST "/v1/cancel" -> BatchOutcomes;
    RetryRequest: POST "/v1/retry" -> BatchOutcomes;
    RetryEditedRequest: POST "/v1/retry/edited" -> EditedRetry;
    AnotherTakeRequest: POST "/v1/review/take" -> AnotherTake;
    DownloadRequest: POST "/v1/download" -> BatchOutcomes;
    SyncOutputsRequest: POST "/v1/outputs/sync" -> SyncedOutputs;
    ResolveRequest: POST "/v1/resolve" -> BatchOutcomes;
    BudgetRequest: POST "/v1/budget" -> BudgetSet;
    GalleryRequest: POST "/v1/gallery" -> GalleryPage;
    MissingInputsRequest: POST "/v1/inputs" -> MissingInputs;
}

impl Request for RunScheduleRequest {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/schedules/{name}/run";
    type Response = Receipt;

    fn path(&self) -> String {
        Self::PATH.replace("{name}", &self.name)
    }
}

/// The route that takes manifests: the query is a [`Submission`], the body the manifest, the response its receipt.
pub const MANIFESTS_PATH: &str = "/v1/manifests";

/// The route that takes the contents of files that rows name: a PUT to `/v1/inputs/SHA256`.
pub const INPUT_PATH: &str = "/v1/inputs/{sha256}";

/// Asks which contents of files that rows name have to be handed over before their manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissingInputsRequest {
    /// Their SHA-256 in lowercase hex.
    pub sha256: Vec<String>,
}

/// The contents that are neither in the state nor in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingInputs {
    /// Their SHA-256 in lowercase hex.
    pub missing: Vec<String>,
}

/// Asks who answers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct HealthRequest {}

/// Asks for the jobs that have begun and not ended.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OpenJobsRequest {}

/// Asks what the whole state has held and spent.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TotalsRequest {}

/// Asks what the groups that have budgets have held and spent; nothing where none have.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct GroupTotalsRequest {}

/// Asks for the whole state as a dump.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ExportRequest {}

/// Asks for the schedules that are carried out.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SchedulesRequest {}

/// Runs a schedule out of turn.
#[derive(Debug, Clone, Serialize)]
pub struct RunScheduleRequest {
    /// The schedule's name: letters, digits, `-`, `_` and `.`.
    #[serde(skip)]
    pub name: String,
}

/// Asks for one batch in numbers, or for all.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusRequest {
    /// The batch; none means those that are not done, and some that finished last (`status_list.rs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchName>,
    /// Every finished batch that is listed (`retention.list_finished_for`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

/// Asks for the result of every job.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsRequest {
    /// The batch; none means all that are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchName>,
    /// Only jobs in this state, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// Asks for every movement of credits.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerRequest {
    /// The batch; none means all that are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchName>,
}

/// Asks for the whole story of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The job's label, `BATCH/LABEL`, or the beginning of its identity.
    pub job: String,
}

/// Every batch in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Oldest first.
    pub batches: Vec<BatchStatus>,
    /// Finished batches that are not among them: each is found by its name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub not_listed: u64,
    /// What downloads and uploads took, where the process that answers puts files into an object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfers: Option<Transfers>,
}

/// A line of the response to [`JobsRequest`], and of `results.jsonl`, as far as a list of jobs needs it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct JobSummary {
    /// The job's label.
    pub id: String,
    /// Its batch.
    pub batch: BatchName,
    /// Its state.
    pub state: String,
    /// What is generated.
    pub kind: String,
    /// What it has cost.
    pub charged_credits: Credits,
    /// The rows whose outputs it takes.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// The length that was sent, where it is that of one of them.
    #[serde(default)]
    pub sent_length: Option<String>,
    /// What went wrong.
    pub error: Option<Fault>,
    /// Its outputs.
    #[serde(default)]
    pub files: Vec<OutputFile>,
    /// What it is to show or to say.
    #[serde(default)]
    pub prompt: String,
    /// Its line in the manifest.
    #[serde(default)]
    pub line: u64,
    /// Its identity.
    #[serde(default)]
    pub job: String,
    /// Another version of its row is wanted.
    #[serde(default)]
    pub superseded: bool,
}

/// The whole story of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Its batch.
    pub batch: BatchName,
    /// What is wanted.
    pub spec: JobSpec,
    /// What became of it: as [`RecordView`] shows it.
    #[serde(serialize_with = "job_view")]
    pub job: Job,
    /// Where its task differs from what was planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<Drift>,
    /// The key of the present attempt; none where the endpoint honours none.
    pub idempotency_key: Option<String>,
    /// What keeps it from going on, if something does.
    #[serde(default)]
    pub parked_by: Option<Parked>,
    /// Another version of its row is wanted.
    #[serde(default)]
    pub superseded: bool,
    /// The versions of its row, in the order in which they were accepted; nothing where the row was not edited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<RowVersion>,
    /// Its inputs that are outputs of other rows, in the order of its references, and then those that are files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputView>,
    /// What comes next, in plain words.
    pub next: String,
}

/// An input of a job that is an output of another row, or a file of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputView {
    /// Where it stands in the request: `image_urls[0]`, `duration`.
    pub field: String,
    /// Which output of which row: `still-07`, `still-07-v2#3`.
    pub reference: String,
    /// It is a file of this machine, and `reference` its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_file: bool,
    /// Whether it is there, or what it waits for and the command that helps; of a file what it holds.
    pub state: String,
    /// The address, or the length, that the present attempt sends, once it was found; of a file its address in the object
    /// store, without the signature with which it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// How long the output is, in milliseconds, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_ms: Option<Millis>,
}

/// A version of an edited row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowVersion {
    /// The name that means it: `LABEL@1`.
    pub name: String,
    /// The job's identity.
    pub job: JobId,
    /// Another version is wanted.
    pub superseded: bool,
}

fn job_view<S: Serializer>(job: &Job, serializer: S) -> Result<S::Ok, S::Error> {
    RecordView::of(job).serialize(serializer)
}

/// The schedules that a daemon carries out.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedules {
    /// In the order of its configuration.
    pub schedules: Vec<ActiveSchedule>,
}

/// A schedule that a daemon carries out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveSchedule {
    /// Its name.
    pub name: String,
    /// When it fires, as configured.
    pub cron: String,
    /// Where its clock hangs, as an IANA name.
    pub timezone: String,
}

/// Sends nothing more of a batch, or of all that are unfinished.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// The batch; none means all that are unfinished. `null` is refused: a program that has no name wants none of them.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchName>,
}

/// A value that may be left out, and not be `null`.
fn not_null<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// Lifts the pause of a batch, or of all that are unfinished.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeRequest {
    /// The batch; none means all that are unfinished. `null` is refused: a program that has no name wants none of them.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchName>,
}

/// Sends what waits after the pilot of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContinueRequest {
    /// The batch.
    pub batch: BatchName,
}

/// Drops what is not sent yet of a batch, or one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// A batch's name, a job's label, `BATCH/LABEL`, or the beginning of a job's identity.
    pub name: String,
}

/// Downloads outputs again that are paid for and not on disk as they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DownloadRequest {
    /// A batch's name, a job's label, `BATCH/LABEL`, or the beginning of a job's identity.
    pub name: String,
}

/// Brings outputs to where they are not: from disk into the object store, or back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncOutputsRequest {
    /// A batch's name, a job's label, `BATCH/LABEL`, or the beginning of a job's identity.
    pub name: String,
}

/// What was brought over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncedOutputs {
    /// The batch.
    pub batch: BatchName,
    /// Jobs whose outputs are on disk and in the store now.
    pub jobs: u32,
    /// Jobs of which something was put into the store.
    pub uploaded: u32,
    /// Jobs whose outputs were brought back to disk.
    pub restored: u32,
    /// Jobs whose outputs are neither on disk nor in the store.
    pub missing: u32,
    /// Some of these by their labels.
    pub missing_jobs: Vec<String>,
    /// Jobs of which the store or the disk refuses an output, while it takes others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedOutputs>,
    /// Why it stopped before its end: the store cannot be used, or the disk is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// Queues failed, canceled and expired jobs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryRequest {
    /// A batch's name, a job's label, `BATCH/LABEL`, or the beginning of a job's identity.
    pub name: String,
    /// What each of its jobs may cost, whatever its row says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_credits: Option<u64>,
    /// Only failed ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// Takes the rows of failed, canceled and expired jobs anew with other fields, as if they had been edited in their
/// manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryEditedRequest {
    /// A batch's name, a job's label, `BATCH/LABEL`, or the beginning of a job's identity.
    pub name: String,
    /// What is set in the rows: `["model=house-c1", "options.duration=5s"]`. An empty value removes a field.
    pub set: Vec<FieldEdit>,
    /// What each of the jobs may cost, whatever its row says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_credits: Option<u64>,
    /// Only rows of failed ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Nothing is accepted: the response says what would be, and what it would cost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan: bool,
}

impl RetryEditedRequest {
    /// Everything that is set.
    ///
    /// # Errors
    /// Why that is nothing, or not one value for each field.
    pub fn edits(&self) -> Result<Vec<FieldEdit>, String> {
        let mut edits = self.set.clone();
        if edits.is_empty() {
            return Err("set: found nothing, expected fields to set, such as \"model=house-c1\"".to_owned());
        }
        if let Some(most) = self.max_credits {
            edits.extend(format!("max_credits={most}").parse::<FieldEdit>());
        }
        let mut seen = BTreeSet::new();
        match edits.iter().map(FieldEdit::field).find(|field| !seen.insert(field.clone())) {
            Some(field) => Err(format!("{field} is set twice; keep one")),
            None => Ok(edits),
        }
    }
}

/// Records what a job in doubt was charged, as the account shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    /// The job's label, `BATCH/LABEL`, or the beginning of its identity.
    pub name: String,
    /// What it was charged, in credits; 0 when nothing was.
    pub charged: u64,
    /// Which attempt, by its number; nothing for the only one in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// It was charged more than was set aside for it, which is refused otherwise.
    #[serde(default)]
    pub above_hold: bool,
}

/// Sets the budget of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetRequest {
    /// Its name.
    pub batch: BatchName,
    /// A number of credits, or `"none"` for the default.
    pub budget: BudgetSetting,
}

/// What the budget of a batch is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetSet {
    /// The batch.
    pub batch: BatchName,
    /// The most it might spend before, in credits.
    pub before_credits: u64,
    /// The most it may spend now, in credits.
    pub budget_credits: u64,
    /// It is what its plans come to: no other limit is set.
    pub is_default: bool,
    /// Held and charged so far, less refunds, in credits.
    pub committed_credits: u64,
}

/// Makes the gallery of a batch current, or the list of batches.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GalleryRequest {
    /// The batch; none means the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchName>,
}

/// Where its page is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GalleryPage {
    /// Path of the page, from the root; none where galleries are switched off.
    pub page: Option<ExactPath>,
}

/// What a command came to for a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchOutcome {
    /// The batch.
    pub batch: BatchName,
    /// What came of it.
    #[serde(flatten)]
    pub result: CommandOutcome,
}

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchOutcomes {
    /// Batch by batch.
    pub batches: Vec<BatchOutcome>,
}

/// The terms of a manifest that is handed in: query of `POST /v1/manifests`, whose body is the manifest.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// File name: tells the format, and the batch's name where nothing else does.
    pub file: String,
    /// Name of the batch, over what the manifest says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchName>,
    /// The folder that the file lies in, absolute and without links: a batch belongs to the folder that it was
    /// begun from. All manifests that name none are from one source, the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The most the batch may spend; `none` for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetSetting>,
    /// The most one job may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_credits: Option<u64>,
    /// One bad row refuses the whole manifest.
    #[serde(default)]
    pub strict: bool,
    /// Options that look like misspelt ones are sent as they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_unknown_options: bool,
    /// Outputs wait for a decision, unless their row says otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub review: bool,
    /// Rows that are done first, while the rest waits for a person to continue: `3`, `random:3`, `cells`, `entries`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<PilotRows>,
    /// SHA-256 of the list of files that the rows name, which was handed over like a file: `{"./logo.png": {"content":
    /// {"sha256": …, "bytes": …, "media": "png"}}}`, or `{"problem": …}`. Without one the daemon reads them itself, below
    /// `inputs.roots`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// The part of the manifest that is handed in, as JSON: `{"first":3,"only":["poster"],"where":["meta.client=acme"]}`.
    #[serde(default, with = "json_text", skip_serializing_if = "RowSelection::is_whole")]
    pub selection: RowSelection,
}

/// A value of a query that is JSON.
mod json_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _, ser::Error as _};

    use crate::domain::row_selection::RowSelection;

    pub(super) fn serialize<S: Serializer>(value: &RowSelection, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&serde_json::to_string(value).map_err(S::Error::custom)?)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RowSelection, D::Error> {
        serde_json::from_str(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl From<Submission> for IngestOptions {
    fn from(submission: Submission) -> IngestOptions {
        IngestOptions {
            batch: submission.batch,
            policy: Policy {
                budget: submission.budget.and_then(BudgetSetting::limit),
                strict: submission.strict.then_some(true),
                allow_unknown_options: submission.allow_unknown_options.then_some(true),
                review: submission.review.then_some(true),
                ..Policy::default()
            },
            is_default_budget: submission.budget == Some(BudgetSetting::Default),
            place: submission.folder.map_or(SourcePlace::Socket, SourcePlace::Folder),
            max_credits: submission.max_credits.map(Credits),
            selection: submission.selection,
            pilot: submission.pilot,
            ..IngestOptions::default()
        }
    }
}

/// The process that answers, and what it works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// What the process does.
    #[serde(default)]
    pub process: ProcessKind,
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Since when it works.
    pub since: Timestamp,
    /// The service it works with.
    pub service: String,
    /// The output folder; absolute.
    #[serde(with = "path_text")]
    pub output: PathBuf,
    /// The state folder; absolute and without links.
    #[serde(default, with = "path_text")]
    pub state: PathBuf,
}

impl Health {
    /// Why a process that is no daemon takes no manifests.
    pub fn refuse_manifests(&self) -> Refusal {
        let (state, pid) = (self.state.display(), self.pid);
        Refusal::new(Exit::Usage, format!("a run works on {state} (process {pid}) and takes no more manifests"))
            .hint("wait for that process to end, or choose another state with --state; callsheet daemon takes manifests at any time")
    }
}

/// What the process does that answers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    /// It serves until it is stopped.
    #[default]
    Daemon,
    /// It ends with its batches, and takes no more manifests.
    Run,
}

impl ProcessKind {
    /// `the daemon` or `the run`.
    pub fn name(self) -> &'static str {
        match self {
            ProcessKind::Daemon => "the daemon",
            ProcessKind::Run => "the run",
        }
    }
}
