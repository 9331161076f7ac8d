//! Why queued work is not sent, in the words that people read, with what lifts it.

use serde::{Deserialize, Serialize};

use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;

/// Why a queued job is not sent. Each lifts by itself, or by what its text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parked {
    /// What is left of the batch's own budget is too little for the next job.
    BatchBudget,
    /// The day's budget is used up.
    DayBudget,
    /// The total budget is used up.
    TotalBudget,
    /// What a group of rows may spend in total, by a meta column or by inbox, is used up.
    GroupBudget,
    /// What it may spend on one day is.
    GroupDayBudget,
    /// The balance would fall below what must stay on the account.
    #[serde(alias = "keep")]
    MinBalance,
    /// The account's balance does not cover it (402).
    Credits,
    /// The API key does not work (401).
    Key,
    /// The batch is paused: by its owner, by rejected prompts in a row, or by a charge that differs.
    Paused,
    /// The catalog in force has no price for the next jobs, and nothing says that they may cost what they might.
    NoPrice,
    /// The output disk has too little room or takes nothing more, or the state's disk is full.
    Disk,
    /// The object store of files or outputs refuses, or cannot be reached.
    Store,
    /// Outputs that are not in the object store yet take all of the room that they may have on disk.
    Scratch,
    /// So many outputs wait for result hosts that are not available that no more are bought.
    ResultHost,
    /// What is left needs outputs of rows that have ended without, or that wait for a decision, for the end of a pilot, or
    /// with their batch, which is paused, parked or not part of the run.
    Inputs,
    /// The inputs of what is left cannot be had just now: each job tries again by itself.
    InputsUnavailable,
    /// The pilot of the batch is done, and nobody has continued.
    Pilot,
    /// What is left may have been sent by a state that is gone, and its time has passed, or it costs more than it may: it is
    /// neither sent nor dropped.
    PerhapsSent,
    /// No process works on the state. Found by a command that reads it, never by an engine.
    NoProcess,
    /// A run works on other batches of the state, and leaves this one alone. Found by a command that asks it.
    AnotherRun,
}

impl Parked {
    /// The exit code of a command that ends because of it.
    pub fn exit(self) -> Exit {
        match self {
            Parked::Key => Exit::Unauthorised,
            Parked::Disk => Exit::Disk,
            Parked::Store | Parked::Scratch | Parked::ResultHost | Parked::InputsUnavailable => {
                Exit::Unreachable
            }
            Parked::Paused
            | Parked::NoPrice
            | Parked::Inputs
            | Parked::Pilot
            | Parked::PerhapsSent
            | Parked::NoProcess
            | Parked::AnotherRun => Exit::Unfinished,
            Parked::BatchBudget
            | Parked::DayBudget
            | Parked::TotalBudget
            | Parked::GroupBudget
            | Parked::GroupDayBudget
            | Parked::MinBalance
            | Parked::Credits => Exit::OutOfFunds,
        }
    }

    /// The name in everything machines read.
    pub fn name(self) -> &'static str {
        match self {
            Parked::BatchBudget => "batch_budget",
            Parked::DayBudget => "day_budget",
            Parked::TotalBudget => "total_budget",
            Parked::GroupBudget => "group_budget",
            Parked::GroupDayBudget => "group_day_budget",
            Parked::MinBalance => "min_balance",
            Parked::Credits => "credits",
            Parked::Key => "key",
            Parked::Paused => "paused",
            Parked::NoPrice => "no_price",
            Parked::Disk => "disk",
            Parked::Store => "store",
            Parked::Scratch => "scratch",
            Parked::ResultHost => "result_host",
            Parked::Inputs => "inputs",
            Parked::InputsUnavailable => "inputs_unavailable",
            Parked::Pilot => "pilot",
            Parked::PerhapsSent => "perhaps_sent",
            Parked::NoProcess => "no_process",
            Parked::AnotherRun => "another_run",
        }
    }

    /// What it is and what lifts it, in commands that name the batch.
    pub fn explain_for(self, batch: &BatchName) -> String {
        self.explain().replace("BATCH", batch.as_str())
    }

    /// What it is and what lifts it.
    pub fn explain(self) -> &'static str {
        match self {
            Parked::BatchBudget => {
                "the next job does not fit into the rest of the batch's budget, where prices count in full, even if \
                 an allowance may cover them; to raise it: callsheet budget BATCH N"
            }
            Parked::DayBudget => {
                "the day's budget, where prices count in full, is used up; it continues at UTC midnight, if the \
                 budget of a whole day covers the next job, or with a higher budget.per_day"
            }
            Parked::TotalBudget => {
                "the total budget, where prices count in full, is used up; raise budget.total"
            }
            Parked::GroupBudget => {
                "the budget of a client or another group of rows, where prices count in full, is used up; raise its \
                 limit in [budget.by]"
            }
            Parked::GroupDayBudget => {
                "the day's budget of a client or another group of rows, where prices count in full, is used up; it \
                 continues at UTC midnight, if the budget of a whole day covers the next job, or with a higher limit in \
                 [budget.by]"
            }
            Parked::MinBalance => {
                "the balance would fall below budget.min_balance, against which prices count in full, even if an \
                 allowance may cover them; add credits or lower budget.min_balance"
            }
            Parked::Credits => {
                "the account's balance does not cover the next job, and no allowance is known that does; add credits"
            }
            Parked::Key => {
                "the service refuses the API key; set a valid key where the process reads it (CALLSHEET_API_KEY, \
                 service.api_key_file, or /etc/callsheet/api-key of the systemd unit), then restart the process"
            }
            Parked::Paused => "the batch is paused; to continue: callsheet resume BATCH",
            Parked::NoPrice => {
                "the catalog has no price for it now; wait for a catalog that has one, or, if the model is still \
                 listed, set a limit: callsheet retry JOB --max-credits N; to give it up: callsheet cancel JOB"
            }
            Parked::Disk => {
                "the output disk is full, has less free space than output.min_free or is not writable, or the state's \
                 disk is full; see the log, or: callsheet doctor"
            }
            Parked::Store => {
                "the object store refuses files or cannot be reached; it is tried again with increasing delays; \
                 see the log, or: callsheet doctor"
            }
            Parked::Scratch => {
                "outputs that are not in the object store yet take as much of the disk as output.scratch_max allows; it \
                 continues when they are there; to see what uploads take: callsheet status"
            }
            Parked::ResultHost => {
                "a result host does not answer, and no more is bought while this many outputs that are paid for wait for it; \
                 each is tried again with increasing delays, for up to a day; see the log for the host's answer"
            }
            Parked::Inputs => {
                "what is left refers to rows that failed, were canceled, or wait for a decision, with the rest after a \
                 pilot, or with their batch, which is paused, parked or not part of this run; to see which, and the command \
                 that helps: callsheet explain JOB"
            }
            Parked::InputsUnavailable => {
                "a result host does not answer, or the object store refuses single files that rows need; each row is tried \
                 again with increasing delays, for up to a day; to see why: callsheet explain JOB"
            }
            Parked::Pilot => {
                "the pilot is done, the other rows wait; look at its outputs with callsheet open BATCH, then: callsheet \
                 continue BATCH"
            }
            Parked::PerhapsSent => {
                "what is left may have been sent before the state was rebuilt or imported, and is not sent now, since its \
                 deadline or policy.expires has passed or its price is above max_credits; to see which: callsheet explain \
                 JOB; to end it: callsheet resolve JOB --charged N or --not-charged, as the account shows"
            }
            Parked::NoProcess => {
                "no process works on this state; to continue: callsheet daemon, or, with the manifest as it was last \
                 accepted: callsheet run MANIFEST --batch BATCH"
            }
            Parked::AnotherRun => {
                "a run that works on other batches has this state open; to continue when it has ended: callsheet daemon, or, \
                 with the manifest as it was last accepted: callsheet run MANIFEST --batch BATCH"
            }
        }
    }
}
