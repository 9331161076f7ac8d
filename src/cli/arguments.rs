//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use url::Url;

#[cfg(feature = "emulator")]
use crate::cli::emulator::EmulatorCommand;
use crate::cli::{examples, exit};
use crate::config::check_log_level;
use crate::domain::budget::BudgetSetting;
use crate::domain::ids::BatchName;

/// Turns manifests into finished media files, and pays for each once.
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
#[command(next_help_heading = "Options of every command")]
pub(super) struct Global {
    /// Configuration file [default: ./callsheet.toml, then /etc/callsheet/callsheet.toml]
    #[arg(long, global = true, env = "CALLSHEET_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Base address of the service
    #[arg(long, global = true, env = "CALLSHEET_BASE_URL", hide_env_values = true, value_name = "URL")]
    pub(super) base_url: Option<Url>,
    /// Where the state lies [default: state]
    #[arg(long, global = true, env = "CALLSHEET_STATE", hide_env_values = true, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// Where outputs go [default: output]
    #[arg(long, global = true, env = "CALLSHEET_OUTPUT", hide_env_values = true, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Where manifests lie: inbox, accepted and rejected are in it [default: jobs]
    #[arg(long, global = true, env = "CALLSHEET_JOBS", hide_env_values = true, value_name = "DIR")]
    pub(super) jobs: Option<PathBuf>,
    /// The daemon's control socket [default: callsheet.sock in the state]
    #[arg(long, global = true, env = "CALLSHEET_SOCKET", hide_env_values = true, value_name = "FILE")]
    pub(super) socket: Option<PathBuf>,
    /// Data as JSON on stdout
    #[arg(long, global = true, env = "CALLSHEET_JSON", hide_env_values = true)]
    pub(super) json: bool,
    /// What is logged to stderr: error, warn, info, debug or trace
    #[arg(long, global = true, env = "CALLSHEET_LOG_LEVEL", hide_env_values = true, value_name = "LEVEL", value_parser = log_level)]
    pub(super) log_level: Option<String>,
}

/// A level, or a filter that is made of levels.
fn log_level(text: &str) -> Result<String, String> {
    check_log_level(text).map(|()| text.to_owned())
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Plan manifests, run them to the end with progress, and exit
    ///
    /// Reads the manifests, makes every row's intent durable, submits, polls, downloads, and leaves one
    /// finished file a row in the output folder. Running the same command again resumes what is not
    /// finished and pays for nothing twice.
    Run(RunCommand),
    /// Show what manifests would do and cost; send nothing that charges
    ///
    /// Validates every row as the service would, fills its defaults, and prices it from the catalogs in
    /// force. Reads the state and does not change it, so it works beside a running process; without the
    /// service it works from the catalogs kept last.
    Plan(PlanCommand),
    /// Serve: take manifests in from inboxes, schedules and submissions, for as long as it is let
    ///
    /// Works on every batch of the state, and on what its inboxes, schedules and socket bring. SIGTERM ends it
    /// with exit code 0, SIGHUP makes it read its configuration anew.
    Daemon(DaemonCommand),
    /// Hand manifests to the running daemon
    ///
    /// On return the good rows are durable, and the daemon works on them. Handing the same manifest in again
    /// changes nothing.
    Submit(SubmitCommand),
    /// Show every batch in numbers
    Status(StatusCommand),
    /// List jobs
    ///
    /// Lists jobs in manifest order. With --json one object a line, as in results.jsonl.
    ///
    /// `--state failed`, or another state's name, lists only such jobs; the state's folder is then named by
    /// CALLSHEET_STATE or the configuration.
    Jobs(JobsCommand),
    /// Tell a job's whole story, and what comes next
    Explain(JobArgument),
    /// Send nothing more of a batch; what is at the service goes on
    Pause(BatchArgument),
    /// Lift a pause
    Resume(BatchArgument),
    /// Drop what is not sent yet; what is at the service cannot be recalled
    Cancel(NameArgument),
    /// Queue failed, canceled and expired jobs again, under new keys
    Retry(RetryCommand),
    /// Tell what a job in doubt was charged, as a person found out
    ///
    /// A job is in doubt when it may have been charged and nothing the service offers can tell: its credits stay
    /// counted until a person looks at the account. Once told that nothing was charged, `callsheet retry` may send it
    /// again.
    Resolve(ResolveCommand),
    /// Set the most a batch may spend
    ///
    /// Its manifest is not needed. The limit holds until another is given, here or with a manifest; none goes back to
    /// the default: budget.per_batch of the configuration, or what the plans come to.
    Budget(BudgetCommand),
    /// Fetch outputs again, free of charge
    ///
    /// Reads the tasks of what is paid for and downloads what is not on disk as it was. Sends no creating
    /// request.
    Download(DownloadCommand),
    /// List every hold, charge and refund
    ///
    /// Lists movements job by job, in manifest order. Held, charged and waived add up to the books.
    Ledger(LedgerCommand),
    /// List models with their modes, limits and prices
    ///
    /// Lists what a manifest may ask for. With --json: the catalogs as the service gave them, which
    /// `callsheet emulator --catalog FILE` serves again.
    Models(ModelsCommand),
    /// List voices
    Voices(VoicesCommand),
    /// Show the records of tasks, whoever made them
    ///
    /// Reads tasks of the account by their ids: those of this program, of its web application and of other clients. With
    /// --json one record a line, as the service gave it. Costs nothing. Shorts Studio's tasks are not among them.
    Tasks(TasksCommand),
    /// Show the balance of the account
    ///
    /// Shows the balance, which all keys of the account, its web app and its other clients share.
    Credits(CreditsCommand),
    /// List schedules, show when they fire next, or run one now
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Export, import, verify or rebuild the state
    #[command(subcommand)]
    State(StateCommand),
    /// Print the JSON Schema of manifests
    Schema,
    /// Say what is wrong here, and what to do about it
    ///
    /// Looks at configuration, key, service, certificates, clock, balance, catalogs, state, disks, folders, socket
    /// and unit, and says of each what was found and what to do. Sends nothing that charges, never shows the key.
    Doctor(DoctorCommand),
    /// The whole service, offline, on a loopback port
    ///
    /// Serves the service's API with an imaginary account and real, small media, for newcomers, pipelines and
    /// tests. `callsheet run --emulator` starts one by itself; this command is for other clients.
    #[cfg(feature = "emulator")]
    Emulator(EmulatorCommand),
    /// The manual: the page of all commands, or every page into a folder
    Man(ManCommand),
    /// Print what a shell needs to complete commands and options
    Completions(CompletionsCommand),
}

/// What `run` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::RUN))]
pub(super) struct RunCommand {
    /// Manifests: .csv, .json, .jsonl or .ndjson
    #[arg(required = true, value_name = "MANIFEST")]
    pub(super) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) source: EmulatorArguments,
    #[command(flatten)]
    pub(super) terms: ManifestArguments,
    /// Hand a state over that was begun with another service
    #[arg(long)]
    pub(super) adopt_state: bool,
}

/// Whether this build has no emulator. `--emulator` is then taken all the same, and refused: in an environment it must
/// not be passed over, and the command go to the service.
const NO_EMULATOR: bool = cfg!(not(feature = "emulator"));

/// Whom a command works with that may charge.
#[derive(Debug, Args)]
pub(super) struct EmulatorArguments {
    /// Work offline against the built-in emulator of the service
    #[arg(long, env = "CALLSHEET_EMULATOR", hide_env_values = true, conflicts_with = "base_url", hide = NO_EMULATOR)]
    pub(super) emulator: bool,
    /// How much faster than real time the emulator works
    #[arg(long, default_value_t = 5.0, value_name = "FACTOR", requires = "emulator", value_parser = speed, hide = NO_EMULATOR)]
    pub(super) emulator_speed: f64,
}

/// What `daemon` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::DAEMON))]
pub(super) struct DaemonCommand {
    #[command(flatten)]
    pub(super) source: EmulatorArguments,
    /// Hand a state over that was begun with another service
    #[arg(long)]
    pub(super) adopt_state: bool,
}

/// What `submit` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::SUBMIT))]
pub(super) struct SubmitCommand {
    /// Manifests: .csv, .json, .jsonl or .ndjson
    #[arg(required = true, value_name = "MANIFEST")]
    pub(super) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) terms: ManifestArguments,
    /// Follow their batches to the end, and exit as `run` does
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
    /// Show it again whenever it changes, until the batch is done
    #[arg(long)]
    pub(super) watch: bool,
}

/// A job.
#[derive(Debug, Args)]
pub(super) struct JobArgument {
    /// Its label, BATCH/LABEL, or the beginning of its identity
    #[arg(value_name = "JOB")]
    pub(super) job: String,
}

/// A batch or a job.
#[derive(Debug, Args)]
pub(super) struct NameArgument {
    /// Name of a batch, or of a job: its label, BATCH/LABEL, or the beginning of its identity
    #[arg(value_name = "BATCH|JOB")]
    pub(super) name: String,
}

/// What `retry` takes.
#[derive(Debug, Args)]
pub(super) struct RetryCommand {
    #[command(flatten)]
    pub(super) named: NameArgument,
    /// What each of its jobs may cost from now on, whatever its row says
    #[arg(long, value_name = "CREDITS")]
    pub(super) max_credits: Option<u64>,
}

/// What `resolve` takes.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("found").required(true))]
pub(super) struct ResolveCommand {
    /// Its label, BATCH/LABEL, or the beginning of its identity
    #[arg(value_name = "JOB")]
    pub(super) job: String,
    /// It was charged so many credits
    #[arg(long, value_name = "CREDITS", group = "found")]
    pub(super) charged: Option<u64>,
    /// It was charged nothing
    #[arg(long, group = "found")]
    pub(super) not_charged: bool,
    /// It was charged more than was set aside for it, which is refused otherwise
    #[arg(long, requires = "charged")]
    pub(super) above_hold: bool,
}

/// What `budget` takes.
#[derive(Debug, Args)]
pub(super) struct BudgetCommand {
    /// Name of the batch
    #[arg(value_name = "BATCH")]
    pub(super) batch: BatchName,
    /// The most it may spend, in credits, or none for the default
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
    /// Name of a batch, or of a job: its label, BATCH/LABEL, or the beginning of its identity
    #[arg(value_name = "BATCH|JOB")]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) source: SourceArguments,
}

/// What `ledger` takes.
#[derive(Debug, Args)]
pub(super) struct LedgerCommand {
    /// Name of the batch [default: all]
    #[arg(value_name = "BATCH")]
    pub(super) batch: Option<BatchName>,
    /// As CSV, for a spreadsheet
    #[arg(long)]
    pub(super) csv: bool,
}

/// The terms of a batch, over what its manifest and the configuration say.
#[derive(Debug, Args)]
pub(super) struct ManifestArguments {
    /// Name of the batch [default: what the manifest says, or its file name]
    #[arg(long, env = "CALLSHEET_BATCH", hide_env_values = true, value_name = "NAME")]
    pub(super) batch: Option<BatchName>,
    /// The most the batch may spend, in credits; none goes back to the default. What was set stays until another is
    /// given [default: what its plan comes to]
    #[arg(long, env = "CALLSHEET_BUDGET", hide_env_values = true, value_name = "CREDITS|none")]
    pub(super) budget: Option<BudgetSetting>,
    /// The most one job may cost: a row that costs more, or cannot be priced, is not valid
    #[arg(long, env = "CALLSHEET_MAX_CREDITS", hide_env_values = true, value_name = "CREDITS")]
    pub(super) max_credits: Option<u64>,
    /// One bad row refuses the whole manifest
    #[arg(long, env = "CALLSHEET_STRICT", hide_env_values = true)]
    pub(super) strict: bool,
    /// Send options that look like misspelt ones as they are
    #[arg(long, env = "CALLSHEET_ALLOW_UNKNOWN_OPTIONS", hide_env_values = true)]
    pub(super) allow_unknown_options: bool,
}

/// What `plan` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::PLAN))]
pub(super) struct PlanCommand {
    /// Manifests: .csv, .json, .jsonl or .ndjson
    #[arg(required = true, value_name = "MANIFEST")]
    pub(super) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) source: SourceArguments,
    #[command(flatten)]
    pub(super) terms: ManifestArguments,
    /// List every row, however many there are
    #[arg(long)]
    pub(super) rows: bool,
}

/// Whom a command asks that sends nothing that charges.
#[derive(Debug, Args)]
pub(super) struct SourceArguments {
    /// Ask the built-in emulator of the service
    #[arg(long, env = "CALLSHEET_EMULATOR", hide_env_values = true, conflicts_with = "base_url", hide = NO_EMULATOR)]
    pub(super) emulator: bool,
}

/// What `models` takes.
#[derive(Debug, Args)]
pub(super) struct ModelsCommand {
    /// Only those whose id, label, vendor or mode holds this
    #[arg(value_name = "FILTER")]
    pub(super) filter: Option<String>,
    /// Only models of this type
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(super) media: Option<MediaType>,
    #[command(flatten)]
    pub(super) source: SourceArguments,
}

/// Lists voices for speech.
#[derive(Debug, Args)]
pub(super) struct VoicesCommand {
    /// Only those in whose id, name or description this occurs
    #[arg(value_name = "FILTER")]
    pub(super) filter: Option<String>,
    /// Only voices that speak this language
    #[arg(long, value_name = "LANGUAGE")]
    pub(super) language: Option<String>,
    #[command(flatten)]
    pub(super) source: SourceArguments,
}

/// What `tasks` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::and_exit_codes(examples::TASKS))]
pub(super) struct TasksCommand {
    /// Ids of tasks, as `task_id` in the results has them
    #[arg(required = true, value_name = "ID", value_parser = task_id)]
    pub(super) tasks: Vec<String>,
    #[command(flatten)]
    pub(super) source: SourceArguments,
}

/// What can be the id of a task.
fn task_id(text: &str) -> Result<String, String> {
    let is_id = (1..=256).contains(&text.len()) && text != "." && text != "..";
    is_id
        .then(|| text.to_owned())
        .ok_or_else(|| String::from("an id has 1 to 256 bytes, as in task_id of the results"))
}

/// What `credits` takes.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(super) struct CreditsCommand {
    #[command(flatten)]
    pub(super) source: SourceArguments,
}

/// What fires by itself: `[[schedule]]` in the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ScheduleCommand {
    /// List every schedule with its next and its last run
    List,
    /// Show when one fires next, by its own clock and in UTC
    Next(ScheduleNextCommand),
    /// Have the running daemon run one now, out of turn
    Run(ScheduleNameArgument),
}

/// Reads the configuration alone: no daemon is needed.
#[derive(Debug, Args)]
pub(super) struct ScheduleNextCommand {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// How many
    #[arg(short, long, default_value_t = 10, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) number: u16,
}

/// The run is a batch of its own, named after this second; what is due later stays due.
#[derive(Debug, Args)]
pub(super) struct ScheduleNameArgument {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub(super) name: String,
}

/// What is done to a whole state.
#[derive(Debug, Subcommand)]
pub(super) enum StateCommand {
    /// Write the whole state as one file of JSON Lines
    ///
    /// Batches, rows, outcomes, open jobs and totals: everything that a state can be made of again. From a running
    /// daemon, too; a `run` has to end first.
    Export(StateExport),
    /// Make a state from an export, in the empty folder that --state names
    ///
    /// What is not finished comes back paused: keys may have been used since the export. After callsheet resume, each
    /// job goes on under the key that it had.
    Import(StateImport),
    /// Read the whole state and tell everything that does not fit
    Verify,
    /// Set a damaged database aside and build it anew from what is readable
    ///
    /// Reads the accepted rows and outcomes beside the database, what the database still tells, the sidecars in the
    /// output folder and, if one is given, an export. The damaged database is moved to `aside` in the state, never
    /// deleted. What is not finished comes back paused: sending a key that was used gives its task again, but one that
    /// was never used buys.
    Rebuild(StateRebuild),
}

/// What `state export` takes.
#[derive(Debug, Args)]
pub(super) struct StateExport {
    /// Where to; it must not exist [default: standard output]
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

/// What `state import` takes.
#[derive(Debug, Args)]
pub(super) struct StateImport {
    /// The export, or - for standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

/// What `state rebuild` takes.
#[derive(Debug, Args)]
pub(super) struct StateRebuild {
    /// An export of this state, however old
    #[arg(long, value_name = "FILE")]
    pub(super) export: Option<PathBuf>,
}

/// What `doctor` takes.
#[derive(Debug, Args)]
#[command(after_help = examples::DOCTOR)]
pub(super) struct DoctorCommand {
    #[command(flatten)]
    pub(super) source: SourceArguments,
    /// Look at the configuration file alone, before a daemon is asked to read it anew
    #[arg(long)]
    pub(super) config_only: bool,
}

/// Made from the same texts as --help.
#[derive(Debug, Args)]
#[command(after_help = examples::MAN)]
pub(super) struct ManCommand {
    /// Where all pages go, one file a command [default: the page of all commands goes to stdout]
    #[arg(value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
}

/// Commands, options and their values; files where files are meant.
#[derive(Debug, Args)]
#[command(after_help = examples::COMPLETIONS)]
pub(super) struct CompletionsCommand {
    /// Of which shell
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
pub(super) enum MediaType {
    Video,
    Image,
    Music,
}

/// A factor that time can be divided by.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|factor| *factor > 0.0)
        .ok_or_else(|| String::from("a factor is a number above 0, such as 20, or inf"))
}
