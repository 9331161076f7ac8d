//! Everything that can happen to a job.

use crate::domain::credit_hold::Hold;
use crate::domain::credits::Credits;
use crate::domain::job::OutputFile;
use crate::domain::job_reference::FoundInput;
use crate::domain::task::{Fault, PostAnswer, TaskReading};
use crate::domain::utc_day::UtcDay;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It is about to be let out at this price.
    Price {
        /// What will be held for it, and why so much.
        hold: Hold,
        /// What was planned or held for it before, where that is another amount.
        was: Option<Credits>,
    },
    /// It must not be sent as things are: it costs more than it may. Nothing was charged.
    Refuse(Fault),
    /// What is held for it counts for a day that is over: it is given back before it is held anew.
    ReleaseHold,
    /// Admission chose it: `hold` credits are set aside on `day`, and its POST may leave.
    Admit {
        /// Credits to set aside.
        hold: Credits,
        /// The day they count for.
        day: UtcDay,
    },
    /// Its inputs that are outputs of other jobs lie at these addresses now, or are so long. Nothing is sent before.
    InputsFound(Vec<FoundInput>),
    /// Its length is known, and with it its price: what is held for it is the most that it could have come to.
    PriceKnown(Credits),
    /// It was let out, and before anything of it was sent an input of it was decided against.
    InputsLost(Fault),
    /// It may have been sent by a process whose state was lost, and cannot be sent again: what it takes does not fit.
    InputsUnfit(Fault),
    /// Another attempt has succeeded, and this one's request, of which none is on its way, waits for the account's owner.
    NotNeeded,
    /// Its creating POST was answered, or was not.
    Posted(PostAnswer),
    /// It is to be sent again, no task was made of it so far, and it would not be admitted as it was: its price, its day, a
    /// limit or what its owner wants is another one now.
    Requeue,
    /// Its task was read.
    Read(TaskReading),
    /// The service does not know its task, and was asked often enough.
    TaskMissing(Fault),
    /// Its deadline passed while it was in flight.
    Overdue,
    /// Its deadline passed, and its policy asks for another attempt then. Where none can be made it is merely
    /// overdue.
    Resubmit,
    /// Its task was watched for as long as the policy asks, and never ended.
    WatchExpired(Fault),
    /// All outputs are on disk.
    Fetched(Vec<OutputFile>),
    /// Its outputs have other names now: another version of its row took theirs, or theirs became free.
    Renamed(Vec<OutputFile>),
    /// Its outputs were found in the object store: the files with their objects.
    Stored(Vec<OutputFile>),
    /// Downloading its outputs was given up.
    FetchAbandoned(Fault),
    /// Its owner dropped it. One that was submitted goes on, and gets no further attempt.
    Cancel,
    /// A newer version of its row is wanted.
    Replace,
    /// Its batch's time ran out.
    Expire,
    /// Its owner wants another attempt.
    Retry,
    /// Its owner wants its outputs downloaded again.
    FetchAgain,
    /// A person found out what a job in doubt was charged: so much, or nothing. Once more: it turned out otherwise.
    Resolve(Credits),
}

impl Event {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Event::Price { .. } => "price",
            Event::Refuse(_) => "refuse",
            Event::ReleaseHold => "release hold",
            Event::Admit { .. } => "admit",
            Event::InputsFound(_) => "inputs found",
            Event::PriceKnown(_) => "price known",
            Event::InputsLost(_) => "inputs lost",
            Event::InputsUnfit(_) => "inputs unfit",
            Event::NotNeeded => "not needed",
            Event::Posted(_) => "posted",
            Event::Requeue => "requeue",
            Event::Read(_) => "read",
            Event::TaskMissing(_) => "task missing",
            Event::Overdue => "overdue",
            Event::Resubmit => "resubmit",
            Event::WatchExpired(_) => "watch over",
            Event::Fetched(_) => "fetched",
            Event::Renamed(_) => "renamed",
            Event::Stored(_) => "stored",
            Event::FetchAbandoned(_) => "fetch abandoned",
            Event::Cancel => "cancel",
            Event::Replace => "replace",
            Event::Expire => "expire",
            Event::Retry => "retry",
            Event::FetchAgain => "fetch again",
            Event::Resolve(_) => "resolve",
        }
    }
}
