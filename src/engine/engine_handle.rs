//! Reaching an engine while it runs.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::domain::budget::BudgetShortage;
use crate::domain::ids::{BatchName, BatchNo, JobKey};
use crate::domain::job::JobSpec;
use crate::domain::parked_reason::Parked;
use crate::domain::time::Now;
use crate::engine::scheduler::{
    AccountOverview, BatchOverview, Command, CommandOutcome, PlannedStep, Scheduler, Settings, Withheld,
};
use crate::engine::{EditedRows, EngineDeps};
use crate::store::{BatchRecord, JobRecord};

/// Messages that may wait for the loop; a further sender waits.
const MESSAGES_WAITING: usize = 64;

/// Where the answer to a command goes.
pub(super) type Reply = oneshot::Sender<CommandOutcome>;

/// What a running engine can be told to do. It may have to wait: for the disk of the state, say.
#[derive(Debug)]
pub(super) enum Message {
    /// With how many bytes the outcomes of the batch had when the command's jobs were read, where they were read.
    Command(Command, Option<u64>, Reply),
    /// A batch that a manifest began or adds to.
    AddBatch(Box<BatchRecord>, Option<Box<EditedRows>>, Reply),
    EngineDeps(Box<EngineDeps>),
}

/// What is answered from memory at any time.
#[derive(Debug)]
pub(super) enum Question {
    Overview(oneshot::Sender<Vec<BatchOverview>>),
    WaitingForPeople(oneshot::Sender<Option<Vec<BatchNo>>>),
    Batches(Option<BatchName>, oneshot::Sender<Vec<BatchSnapshot>>),
    Standing(BatchNo, usize, oneshot::Sender<Option<BatchStanding>>),
    Account(oneshot::Sender<AccountOverview>),
    GroupShortage(JobKey, Arc<JobSpec>, oneshot::Sender<Option<(Parked, BudgetShortage)>>),
    Withheld(JobKey, Arc<JobSpec>, oneshot::Sender<Option<Withheld>>),
    PlannedStep(JobKey, oneshot::Sender<Option<PlannedStep>>),
}

/// A batch as the engine has it, and in numbers.
pub type BatchSnapshot = (BatchRecord, BatchOverview);

/// The same, with some of its open jobs.
pub(super) type BatchStanding = (BatchRecord, BatchOverview, Vec<JobRecord>);

impl Question {
    /// Answers it. The client may have disconnected meanwhile.
    pub(super) fn answer(self, scheduler: &Scheduler, now: Now) {
        match self {
            Question::Overview(reply) => drop(reply.send(scheduler.overview())),
            Question::WaitingForPeople(reply) => drop(reply.send(scheduler.waiting_for_people())),
            Question::Batches(name, reply) => drop(reply.send(scheduler.batch_snapshots(name.as_ref()))),
            Question::Standing(no, most, reply) => drop(reply.send(scheduler.batch_standing(no, most))),
            Question::Account(reply) => drop(reply.send(scheduler.account_overview(now))),
            Question::GroupShortage(key, spec, reply) => {
                drop(reply.send(scheduler.group_shortage_of(key, &spec.order)));
            }
            Question::Withheld(key, spec, reply) => drop(reply.send(scheduler.withheld(key, &spec, now))),
            Question::PlannedStep(key, reply) => drop(reply.send(scheduler.planned_step(key, now))),
        }
    }
}

/// The engine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the engine has ended")]
pub struct EngineGone;

/// Speaks to a running engine; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    sender: mpsc::Sender<Message>,
    questions: mpsc::Sender<Question>,
    works: bool,
    works_on_all: bool,
}

impl Handle {
    pub(super) fn new(
        works: bool,
        works_on_all: bool,
    ) -> (Handle, mpsc::Receiver<Message>, mpsc::Receiver<Question>) {
        let (sender, messages) = mpsc::channel(MESSAGES_WAITING);
        let (ask, questions) = mpsc::channel(MESSAGES_WAITING);
        (Handle { sender, questions: ask, works, works_on_all }, messages, questions)
    }

    /// Whether the engine knows every batch of the state that is not done.
    pub(super) fn works_on_all(&self) -> bool {
        self.works_on_all
    }

    /// Whether the engine works on the jobs. One that only answers and notes commands leaves them as they are.
    pub fn works(&self) -> bool {
        self.works
    }

    /// Has a command executed: on return it is durable.
    ///
    /// # Errors
    /// [`EngineGone`]; whether the command was executed then is for the state to tell.
    pub async fn execute(&self, command: Command) -> Result<CommandOutcome, EngineGone> {
        self.send(command, None).await
    }

    /// The same of a command on jobs that were found when the outcomes of their batch were `as_of` bytes long. Those that
    /// have ended since then are left out: they are not what they were found to be.
    ///
    /// # Errors
    /// [`EngineGone`], as above.
    pub async fn execute_on_found(&self, command: Command, as_of: u64) -> Result<CommandOutcome, EngineGone> {
        self.send(command, Some(as_of)).await
    }

    async fn send(&self, command: Command, as_of: Option<u64>) -> Result<CommandOutcome, EngineGone> {
        self.ask(|reply| Message::Command(command, as_of, reply)).await
    }

    /// Takes in a batch that a manifest began or adds to, with the rows that it edits: on return it is durable.
    ///
    /// # Errors
    /// [`EngineGone`], as above.
    pub async fn add_batch(
        &self,
        batch: Box<BatchRecord>,
        edited: Option<Box<EditedRows>>,
    ) -> Result<CommandOutcome, EngineGone> {
        self.ask(|reply| Message::AddBatch(batch, edited, reply)).await
    }

    async fn ask(&self, message: impl FnOnce(Reply) -> Message) -> Result<CommandOutcome, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(message(reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// Every batch in numbers, with what keeps it from going on.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn overview(&self) -> Result<Vec<BatchOverview>, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(Question::Overview(reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// The batches of which nothing is in flight, and all that is left waits for rows that a person has to see to; nothing
    /// while that is being looked up, as after a start.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn waiting_for_people(&self) -> Result<Option<Vec<BatchNo>>, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(Question::WaitingForPeople(reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// Every batch as the engine has it, oldest first, or the one called so.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn batches(&self, name: Option<&BatchName>) -> Result<Vec<BatchSnapshot>, EngineGone> {
        let (reply, answer) = oneshot::channel();
        let question = Question::Batches(name.cloned(), reply);
        self.questions.send(question).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// Budgets, the balance and the queue.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn account(&self) -> Result<AccountOverview, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(Question::Account(reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// What is missing of the budgets of its own groups for a job that waits; nothing where it fits into them.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn group_shortage(
        &self,
        key: JobKey,
        spec: Arc<JobSpec>,
    ) -> Result<Option<(Parked, BudgetShortage)>, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(Question::GroupShortage(key, spec, reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// Why a queued job that may have been sent by a state that is gone is not sent now; nothing where it may be, and where
    /// the engine does not have its batch.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn withheld(&self, key: JobKey, spec: Arc<JobSpec>) -> Result<Option<Withheld>, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(Question::Withheld(key, spec, reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// When a job goes on by itself; nothing where it waits for no instant.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn planned_step(&self, key: JobKey) -> Result<Option<PlannedStep>, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(Question::PlannedStep(key, reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// A batch as the engine has it, with at most so many of its open jobs; nothing where the engine does not have it.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub(super) async fn standing(
        &self,
        no: BatchNo,
        most: usize,
    ) -> Result<Option<BatchStanding>, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(Question::Standing(no, most, reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// Puts other settings in force, and reaches the outside in another way from now on. What is under way
    /// ends as it began. Returns why the settings are not in force; nothing where they are.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn reload(&self, settings: Settings, deps: EngineDeps) -> Result<Option<String>, EngineGone> {
        self.sender.send(Message::EngineDeps(Box::new(deps))).await.map_err(|_| EngineGone)?;
        Ok(self.execute(Command::Reload(Box::new(settings))).await?.refused)
    }
}
