//! What can be typed.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use url::Url;

#[cfg(feature = "emulator")]
use crate::cli::emulator::arguments::EmulatorCommand;
use crate::cli::speed_factor::speed;
use crate::cli::{examples, exit};
use crate::config::check_log_level;
use crate::domain::budget::BudgetSetting;
use crate::domain::ids::BatchName;
use crate::domain::report_group::{GroupBy, Since};
use crate::domain::row_selection::{FieldFilter, RowSelection};

/// Turns manifests into finished media files and pays for each job only once.
#[derive(Debug, Parser)]
#[command(name = "callsheet", version, after_help = exit::HELP, subcommand_required = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct Global {
    /// Configuration file [default: ./callsheet.toml, then /etc/callsheet/callsheet.toml]
    #[arg(long, global = true, env = "CALLSHEET_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Base address of the service
    #[arg(long, global = true, env = "CALLSHEET_BASE_URL", hide_env_values = true, value_name = "URL")]
    pub(super) base_url: Option<Url>,
    /// Work offline with the built-in emulator of the service, on the state that it keeps
    #[arg(long, global = true, env = "CALLSHEET_EMULATOR", hide_env_values = true, value_parser = BoolishValueParser::new(), conflicts_with = "base_url", hide = NO_EMULATOR)]
    pub(super) emulator: bool,
    /// State directory [default: state, or state/emulator with --emulator]
    #[arg(long, global = true, env = "CALLSHEET_STATE", hide_env_values = true, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// Output directory [default: output, or output/emulator with --emulator]
    #[arg(long, global = true, env = "CALLSHEET_OUTPUT", hide_env_values = true, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Manifest directory, with inbox, accepted and rejected in it [default: jobs]
    #[arg(long, global = true, env = "CALLSHEET_JOBS", hide_env_values = true, value_name = "DIR")]
    pub(super) jobs: Option<PathBuf>,
    /// Control socket of the daemon [default: callsheet.sock in the state directory]
    #[arg(long, global = true, env = "CALLSHEET_SOCKET", hide_env_values = true, value_name = "FILE")]
    pub(super) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true, env = "CALLSHEET_JSON", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub(super) json: bool,
    /// Log level on stderr: error, warn, info, debug or trace
    #[arg(long, global = true, env = "CALLSHEET_LOG_LEVEL", hide_env_values = true, value_name = "LEVEL", value_parser = log_level)]
    pub(super) log_level: Option<String>,
}

/// A level, or a filter that is made of levels.
fn log_level(text: &str) -> Result<String, String> {
    check_log_level(text).map(|()| text.to_owned())
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run manifests to the end, with progress
    ///
    /// Validates the manifests, stores every row durably, submits the jobs, polls their tasks and downloads the
    /// outputs into the output directory. Run the same command again to resume unfinished jobs; no job is paid for
    /// twice.
    Run(RunCommand),
    /// Show what manifests would cost, without running them
    ///
    /// Validates every row by the service's rules, fills in defaults and computes the price from the current
    /// catalogs. Reads the state without changing it, so it works beside a running process. Offline it uses the
    /// catalogs last stored in the state. Sends no request that charges.
    Plan(PlanCommand),
    /// Run the service: accept manifests from inboxes, schedules and the control socket
    ///
    /// Works on all unfinished batches of the state and on new manifests. SIGTERM stops it with exit code 0; SIGHUP
    /// reloads the configuration.
    Daemon(DaemonCommand),
    /// Submit manifests to the running daemon
    ///
    /// When the command returns, the valid rows are stored durably and the daemon works on them. Submitting the same
    /// manifest again changes nothing.
    Submit(SubmitCommand),
    /// Show the status of batches
    Status(StatusCommand),
    /// List jobs
    ///
    /// Lists jobs in manifest order. With --json prints one object per line, as in results.jsonl.
    ///
    /// `--state failed`, or another job state, lists only jobs in that state; the state directory is then taken from
    /// CALLSHEET_STATE or the configuration.
    Jobs(JobsCommand),
    /// Show a job's history and its next step
    Explain(JobArgument),
    /// Pause a batch: submit no more jobs; jobs in flight finish
    Pause(BatchArgument),
    /// Resume a paused batch
    Resume(BatchArgument),
    /// Cancel jobs that are not submitted yet; submitted jobs cannot be canceled
    Cancel(NameArgument),
    /// Retry failed, canceled and expired jobs
    Retry(RetryCommand),
    /// Record the actual charge of a job in doubt
    ///
    /// A job is in doubt when it may have been charged and the service offers no way to find out. Its credits count
    /// as spent until you check the account and record the charge. A job that was not charged can be sent again with
    /// `callsheet retry`.
    Resolve(ResolveCommand),
    /// Set the budget of a batch
    ///
    /// Sets the most the batch may spend, until another budget is set here or with a manifest. `none` restores the
    /// default: budget.per_batch of the configuration, or the planned cost of the batch.
    Budget(BudgetCommand),
    /// Download outputs again, free of charge
    ///
    /// Reads the tasks of paid jobs and downloads outputs that are missing or changed on disk. Creates no task.
    Download(DownloadCommand),
    /// List holds, charges and refunds
    ///
    /// Lists the ledger entries of every job, in manifest order.
    Ledger(LedgerCommand),
    /// Adds up charges, waived credits, refunds, holds, files and failures by client, kind, model, batch or day.
    Report(ReportCommand),
    /// List models with their modes, limits and prices
    ///
    /// Lists the models and options that a manifest can use. With --json prints the service's catalogs unchanged, which
    /// `callsheet emulator --catalog FILE` can serve.
    Models(ModelsCommand),
    /// List voices
    Voices(VoicesCommand),
    /// Show the service's records of tasks
    ///
    /// Reads tasks of the account by id, including those of the service's web application and of other clients. With
    /// --json prints one record per line, as the service returned it. Free of charge. Shorts Studio tasks are not
    /// available.
    Tasks(TasksCommand),
    /// Show the balance of the account
    ///
    /// Shows the balance, which all API keys, the web application and other clients of the account share.
    Credits(CreditsCommand),
    /// List schedules, show when they fire next, or run one now
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Export, import, verify or rebuild the state
    #[command(subcommand)]
    State(StateCommand),
    /// Print the JSON Schema of manifests
    Schema,
    /// Check this installation and suggest fixes
    ///
    /// Checks the configuration, API key, service, certificates, clock, balance, catalogs, state, disks, directories,
    /// control socket and systemd unit, and reports each result with a fix. Sends no request that charges and never
    /// prints the key.
    Doctor(DoctorCommand),
    /// Run an offline emulator of the service on a loopback port
    ///
    /// Serves the service's API with an imaginary account and real, small media files, for trying out, pipelines and
    /// tests. `callsheet run --emulator` starts one by itself; use this command for other clients.
    #[cfg(feature = "emulator")]
    Emulator(EmulatorCommand),
    /// Print the manual page, or write all pages into a directory
    Man(ManCommand),
    /// Print a shell completion script
    Completions(CompletionsCommand),
}

/// What `run` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::RUN))]
pub(super) struct RunCommand {
    /// Manifests: .csv, .json, .jsonl or .ndjson, or - for standard input
    #[arg(required = true, value_name = "MANIFEST")]
    pub(super) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) emulator: EmulatorArguments,
    #[command(flatten)]
    pub(super) terms: ManifestArguments,
    /// Use a state that was created for another service
    #[arg(long)]
    pub(super) adopt_state: bool,
}

/// Whether this build has no emulator. `--emulator` is then taken all the same, and refused: in an environment it must
/// not be passed over, and the command go to the service.
const NO_EMULATOR: bool = cfg!(not(feature = "emulator"));

/// How fast the emulator works that a command starts.
#[derive(Debug, Args)]
pub(super) struct EmulatorArguments {
    /// Speed of the emulator, as a multiple of real time
    #[arg(long, default_value_t = 5.0, value_name = "FACTOR", requires = "emulator", value_parser = speed, hide = NO_EMULATOR)]
    pub(super) emulator_speed: f64,
}

/// What `daemon` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::DAEMON))]
pub(super) struct DaemonCommand {
    #[command(flatten)]
    pub(super) emulator: EmulatorArguments,
    /// Use a state that was created for another service
    #[arg(long)]
    pub(super) adopt_state: bool,
}

/// What `submit` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::SUBMIT))]
pub(super) struct SubmitCommand {
    /// Manifests: .csv, .json, .jsonl or .ndjson, or - for standard input
    #[arg(required = true, value_name = "MANIFEST")]
    pub(super) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) terms: ManifestArguments,
    /// Wait until the batches are done, and exit as `run` does
    #[arg(long)]
    pub(super) wait: bool,
}

/// A batch, or all of them.
#[derive(Debug, Args)]
pub(super) struct BatchArgument {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
}

/// Shows every batch in numbers.
#[derive(Debug, Args)]
pub(super) struct StatusCommand {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
    /// List every finished batch, as far back as retention.list_finished_for; otherwise the 20 that finished last
    #[arg(long, conflicts_with = "batch")]
    pub(super) all: bool,
    /// Show the status again whenever it changes, until the batch is done
    #[arg(long)]
    pub(super) watch: bool,
}

/// A job.
#[derive(Debug, Args)]
pub(super) struct JobArgument {
    /// Label of the job, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "JOB")]
    pub(super) job: String,
}

/// A batch or a job.
#[derive(Debug, Args)]
pub(super) struct NameArgument {
    /// Name of a batch, or a job: its label, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "BATCH|JOB")]
    pub(super) name: String,
}

/// What `retry` takes.
#[derive(Debug, Args)]
pub(super) struct RetryCommand {
    #[command(flatten)]
    pub(super) named: NameArgument,
    /// New price limit of each job, in place of its row's
    #[arg(long, value_name = "CREDITS")]
    pub(super) max_credits: Option<u64>,
}

/// What `resolve` takes.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("found").required(true))]
pub(super) struct ResolveCommand {
    /// Label of the job, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "JOB")]
    pub(super) job: String,
    /// The job was charged this many credits
    #[arg(long, value_name = "CREDITS", group = "found")]
    pub(super) charged: Option<u64>,
    /// The job was not charged
    #[arg(long, group = "found")]
    pub(super) not_charged: bool,
    /// Number of the attempt, where several are in doubt
    #[arg(long, value_name = "N")]
    pub(super) attempt: Option<u32>,
    /// Accept a charge above the credits held for the job
    #[arg(long, requires = "charged")]
    pub(super) above_hold: bool,
}

/// What `budget` takes.
#[derive(Debug, Args)]
pub(super) struct BudgetCommand {
    /// Name of the batch
    #[arg(value_name = "BATCH")]
    pub(super) batch: BatchName,
    /// Budget in credits, or none for the default
    #[arg(value_name = "CREDITS|none")]
    pub(super) budget: BudgetSetting,
}

/// What `jobs` takes.
#[derive(Debug, Args)]
pub(super) struct JobsCommand {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
}

/// What `download` takes.
#[derive(Debug, Args)]
pub(super) struct DownloadCommand {
    /// Name of a batch, or a job: its label, BATCH/LABEL, or the beginning of its id
    #[arg(value_name = "BATCH|JOB")]
    pub(super) name: String,
}

/// What `ledger` takes.
#[derive(Debug, Args)]
pub(super) struct LedgerCommand {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
    /// Print CSV
    #[arg(long)]
    pub(super) csv: bool,
}

/// What `report` takes.
#[derive(Debug, Args)]
pub(super) struct ReportCommand {
    /// Names of batches [default: all that are listed]
    #[arg(value_name = "BATCH")]
    pub(super) batches: Vec<BatchName>,
    /// What the groups are: batch, kind, model, day (UTC), or meta.NAME such as meta.client
    #[arg(long, value_name = "KEY", default_value = "batch")]
    pub(super) by: GroupBy,
    /// Only charges, refunds, files and failures from this time on: 2026-11-01, 2026-11-01T08:00:00Z or 7d. Holds are
    /// those of now
    #[arg(long, value_name = "TIME")]
    pub(super) since: Option<Since>,
    /// Print CSV
    #[arg(long)]
    pub(super) csv: bool,
}

/// The terms of a batch, over what its manifest and the configuration say.
#[derive(Debug, Args)]
pub(super) struct ManifestArguments {
    /// Name of the batch [default: from the manifest, or its file name]
    #[arg(
        long,
        visible_alias = "name",
        env = "CALLSHEET_BATCH",
        hide_env_values = true,
        value_name = "NAME"
    )]
    pub(super) batch: Option<BatchName>,
    /// Format of standard input [default: recognized from its content]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(super) format: Option<ManifestFormat>,
    /// Budget of the batch in credits, kept until another is set; none restores the default [default: the planned
    /// cost]
    #[arg(long, env = "CALLSHEET_BUDGET", hide_env_values = true, value_name = "CREDITS|none")]
    pub(super) budget: Option<BudgetSetting>,
    /// Price limit of a job: rows that cost more or cannot be priced are rejected
    #[arg(long, env = "CALLSHEET_MAX_CREDITS", hide_env_values = true, value_name = "CREDITS")]
    pub(super) max_credits: Option<u64>,
    /// Reject the whole manifest if a row is invalid
    #[arg(long, env = "CALLSHEET_STRICT", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub(super) strict: bool,
    /// Accept unknown options that look misspelt
    #[arg(long, env = "CALLSHEET_ALLOW_UNKNOWN_OPTIONS", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub(super) allow_unknown_options: bool,
    /// Only the first N rows; a later run of the whole manifest adds the rest
    #[arg(long, value_name = "N", conflicts_with = "random", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) first: Option<u32>,
    /// Only N rows, drawn by their identity: the same rows every time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) random: Option<u32>,
    /// Only rows with these ids
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// Only rows with this value in a field, as meta.client=acme; repeat it for several fields
    #[arg(long = "where", value_name = "FIELD=VALUE")]
    pub(super) filters: Vec<FieldFilter>,
}

impl ManifestArguments {
    /// The part of each manifest that is handed in.
    pub(super) fn selection(&self) -> RowSelection {
        let trimmed = self.only.iter().map(|id| id.trim().to_owned());
        RowSelection {
            first: self.first,
            random: self.random,
            only: trimmed.filter(|id| !id.is_empty()).collect(),
            filters: self.filters.clone(),
        }
    }
}

/// What `plan` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::PLAN))]
pub(super) struct PlanCommand {
    /// Manifests: .csv, .json, .jsonl or .ndjson, or - for standard input
    #[arg(required = true, value_name = "MANIFEST")]
    pub(super) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) terms: ManifestArguments,
    /// List every row
    #[arg(long)]
    pub(super) rows: bool,
}

/// What `models` takes.
#[derive(Debug, Args)]
pub(super) struct ModelsCommand {
    /// Only models whose id, label, vendor or mode contains this text
    #[arg(value_name = "FILTER")]
    pub(super) filter: Option<String>,
    /// Only models of this type
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(super) media: Option<MediaType>,
}

/// Lists voices for speech.
#[derive(Debug, Args)]
pub(super) struct VoicesCommand {
    /// Only voices whose id, name or description contains this text
    #[arg(value_name = "FILTER")]
    pub(super) filter: Option<String>,
    /// Only voices that speak this language
    #[arg(long, value_name = "LANGUAGE")]
    pub(super) language: Option<String>,
}

/// What `tasks` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::TASKS))]
pub(super) struct TasksCommand {
    /// Task ids, from task_id in results.jsonl
    #[arg(required = true, value_name = "ID", value_parser = task_id)]
    pub(super) tasks: Vec<String>,
}

/// What can be the id of a task.
fn task_id(text: &str) -> Result<String, String> {
    let is_id = (1..=256).contains(&text.len()) && text != "." && text != "..";
    is_id
        .then(|| text.to_owned())
        .ok_or_else(|| String::from("a task id has 1 to 256 bytes, see task_id in results.jsonl"))
}

/// What `credits` takes.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(super) struct CreditsCommand {}

/// What fires by itself: `[[schedule]]` in the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ScheduleCommand {
    /// List schedules with their next and last runs
    List,
    /// Show the next runs of a schedule, in its time zone and in UTC
    Next(ScheduleNextCommand),
    /// Run a schedule now
    Run(ScheduleNameArgument),
}

/// Works without a running daemon.
#[derive(Debug, Args)]
pub(super) struct ScheduleNextCommand {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// Number of runs
    #[arg(short, long, default_value_t = 10, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) number: u16,
}

/// The running daemon starts a batch of its own, named after the current time; later runs stay scheduled.
#[derive(Debug, Args)]
pub(super) struct ScheduleNameArgument {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub(super) name: String,
}

/// What is done to a whole state.
#[derive(Debug, Subcommand)]
pub(super) enum StateCommand {
    /// Export the state as JSON Lines
    ///
    /// Exports batches, rows, outcomes, open jobs and totals, from which `callsheet state import` restores the state.
    /// Works beside a running daemon; a `run` has to end first.
    Export(StateExport),
    /// Create a state from an export, in the empty directory given by --state
    ///
    /// Unfinished batches are paused, since their keys may have been used after the export. After callsheet resume
    /// each job continues under its old key.
    Import(StateImport),
    /// Check the state for inconsistencies
    Verify,
    /// Rebuild a damaged database from all readable data
    ///
    /// Reads the accepted rows and outcomes beside the database, readable records of the database, the sidecars in the
    /// output directory and, if given, an export. Moves the damaged database to `aside` in the state directory and
    /// deletes nothing. Unfinished batches are paused: a key that was used returns its task, but a key that was never
    /// used buys.
    Rebuild(StateRebuild),
}

/// What `state export` takes.
#[derive(Debug, Args)]
pub(super) struct StateExport {
    /// File to create; must not exist [default: standard output]
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

/// What `state import` takes.
#[derive(Debug, Args)]
pub(super) struct StateImport {
    /// Export file, or - for standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

/// What `state rebuild` takes.
#[derive(Debug, Args)]
pub(super) struct StateRebuild {
    /// An export of this state, of any age
    #[arg(long, value_name = "FILE")]
    pub(super) export: Option<PathBuf>,
}

/// What `doctor` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::DOCTOR)]
pub(super) struct DoctorCommand {
    /// Check only the configuration file, before reloading a daemon
    #[arg(long)]
    pub(super) config_only: bool,
}

/// The pages hold the same texts as --help.
#[derive(Debug, Args)]
#[command(after_help = examples::MAN)]
pub(super) struct ManCommand {
    /// Directory for the pages of all commands [default: print the main page to stdout]
    #[arg(value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
}

/// Completes commands, options, their values and file names.
#[derive(Debug, Args)]
#[command(after_help = examples::COMPLETIONS)]
pub(super) struct CompletionsCommand {
    /// Shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(super) shell: ShellName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ShellName {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ManifestFormat {
    Csv,
    Json,
    Jsonl,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MediaType {
    Video,
    Image,
    Music,
}
