//! The commands, with what their help says first. The flags of each stand in its own file.

use clap::{Parser, Subcommand};

use crate::cli::budget::BudgetCommand;
use crate::cli::completions::CompletionsCommand;
use crate::cli::continue_pilot::ContinueCommand;
use crate::cli::credits::CreditsCommand;
use crate::cli::daemon::DaemonCommand;
use crate::cli::doctor::DoctorCommand;
use crate::cli::download::DownloadCommand;
#[cfg(feature = "emulator")]
use crate::cli::emulator::arguments::EmulatorCommand;
use crate::cli::global_flags::Global;
use crate::cli::init::InitCommand;
use crate::cli::jobs::JobsCommand;
use crate::cli::ledger::LedgerCommand;
use crate::cli::man::ManCommand;
use crate::cli::models::ModelsCommand;
use crate::cli::name_arguments::{BatchArgument, JobArgument, NameArgument};
use crate::cli::open::OpenCommand;
use crate::cli::outputs::OutputsCommand;
use crate::cli::plan::PlanCommand;
use crate::cli::report::ReportCommand;
use crate::cli::resolve::ResolveCommand;
use crate::cli::retry::RetryCommand;
use crate::cli::review::ReviewCommand;
use crate::cli::run::RunCommand;
use crate::cli::schedule::ScheduleCommand;
use crate::cli::state::StateCommand;
use crate::cli::status::StatusCommand;
use crate::cli::submit::SubmitCommand;
use crate::cli::tasks::TasksCommand;
use crate::cli::voices::VoicesCommand;
use crate::domain::exit_code;

/// Turns manifests into finished media files and pays for each job only once.
#[derive(Debug, Parser)]
#[command(name = "callsheet", version, after_help = exit_code::HELP, subcommand_required = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
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
    /// Open the gallery of a batch in a browser
    ///
    /// Updates the page of the batch, `output/BATCH/index.html`, or the list of batches, and opens it with $BROWSER or
    /// the default browser of the desktop. The page needs no server. If no browser is found, the path is printed.
    Open(OpenCommand),
    /// Show a job's history and its next step
    Explain(JobArgument),
    /// List outputs that wait for a decision, and decide about them
    ///
    /// Lists the outputs of rows with `review` that wait for a decision, or with --all every output. A batch is done
    /// when each output is approved or rejected or, among several takes of a row, picked. Decisions cost nothing, are
    /// stored in the state with name and time, and can be changed later; no file is changed or deleted. To decide in a
    /// spreadsheet, export a file, fill in its column `decision` and import it.
    Review(ReviewCommand),
    /// Pause a batch: submit no more jobs; jobs in flight finish
    Pause(BatchArgument),
    /// Resume a paused batch
    Resume(BatchArgument),
    /// Submit the rows of a batch that wait after its pilot
    ///
    /// `run` and `submit` with --pilot run some rows first. The other rows are accepted and wait until you give this
    /// command. Look at the outputs of the pilot first (`callsheet open BATCH`, `callsheet status BATCH`).
    Continue(ContinueCommand),
    /// Cancel jobs that are not submitted yet; submitted jobs cannot be canceled
    Cancel(NameArgument),
    /// Retry failed, canceled and expired jobs
    ///
    /// With --set the jobs are not sent again unchanged. Instead their rows are submitted again with the given fields,
    /// as if they had been edited in the manifest. This applies to all variations of a row, and rows that take its
    /// outputs become new jobs, too. The plan is shown first; if a row is not valid, nothing is accepted.
    Retry(RetryCommand),
    /// Record the actual charge of a job in doubt, or of an overdue one
    ///
    /// A job is in doubt when it may have been charged and no answer of the service told how much. Its credits count
    /// as spent until you look the charge up (`callsheet tasks ID`, if its task is known, or the account) and record it. The
    /// same command ends an overdue job whose request or task never finishes. A job that was not charged can be sent again
    /// with `callsheet retry`. If no task of a job is known, its outputs are not downloaded after --charged: see
    /// `callsheet explain JOB` first.
    Resolve(ResolveCommand),
    /// Set the budget of a batch
    ///
    /// Sets the most the batch may spend, until another budget is set here or with a manifest. `none` restores the
    /// default: the upper limit of its inbox or schedule, budget.per_batch of the configuration, or the planned cost of the batch.
    Budget(BudgetCommand),
    /// Download outputs again, free of charge
    ///
    /// Reads the tasks of paid jobs and downloads outputs that are missing or changed on disk. Creates no task.
    Download(DownloadCommand),
    /// Compare outputs on disk with the object store, and copy missing outputs in both directions
    Outputs(OutputsCommand),
    /// List holds, charges and refunds
    ///
    /// Lists the ledger entries of every job, in manifest order.
    Ledger(LedgerCommand),
    /// Add up charges, waived credits, refunds, holds, files and failures by client, kind, model, batch or day
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
    /// Write a commented configuration and a sample manifest to begin with
    ///
    /// Writes callsheet.toml, with every key and its default as a comment, and jobs/sample.csv, and says what to do next.
    /// Files that exist are left as they are. With --base-url the address of the service is filled in.
    Init(InitCommand),
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
    /// Serves the service's API with an imaginary account and real, small media files, to try callsheet and to test
    /// pipelines. `callsheet run --emulator` starts its own emulator; use this command for other clients.
    #[cfg(feature = "emulator")]
    Emulator(EmulatorCommand),
    /// Print the manual page, or write all pages into a directory
    Man(ManCommand),
    /// Print a shell completion script
    Completions(CompletionsCommand),
}
