//! What somebody asks of the running engine: commands, batches that manifests begin or add to, and other settings.

use std::collections::HashSet;
use std::sync::Arc;

use crate::engine::disk::TakenBatch;
use crate::engine::edited_rows::EditedRows;
use crate::engine::engine_handle::{Message, Reply};
use crate::engine::group_history::group_history;
use crate::engine::restart::{load_days, take_up_batch, take_up_finished};
use crate::engine::scheduler::{Command, CommandOutcome};
use crate::engine::{Engine, EngineError, MESSAGES_MAX, Received, blocking};
use crate::failpoint;
use crate::store::{BatchRecord, StoreError};

/// Why a command about a batch is refused that the manifests of a run do not name.
const LEFT_ALONE: &str = "a run that works on other batches has this state open; nothing was changed, repeat the command when the run has ended";

impl Engine {
    /// Takes in a message, now, when all that was decided is durable; and what else came in meanwhile, which shares the
    /// commit.
    pub(super) async fn handle_messages(
        &mut self,
        message: Message,
        received: &mut Received,
    ) -> Result<(), EngineError> {
        let Received { taken, outcomes, waiting, .. } = received;
        match self.count_groups(&message).await {
            Ok(()) => outcomes.extend(self.handle_message(message, taken)?),
            Err(error) => outcomes.extend(refused(message, &error)),
        }
        while outcomes.len() < MESSAGES_MAX
            && let Ok(message) = self.messages.try_recv()
        {
            if self.lacks_groups(&message) {
                waiting.push_back(message);
                break;
            }
            outcomes.extend(self.handle_message(message, taken)?);
        }
        Ok(())
    }

    /// Whether a message puts budgets of groups in force whose totals are not counted.
    fn lacks_groups(&self, message: &Message) -> bool {
        match message {
            Message::Command(Command::Reload(settings), ..) => {
                self.scheduler.lacks_groups(&settings.group_limits)
            }
            Message::Command(..) | Message::AddBatch(..) | Message::EngineDeps(_) => false,
        }
    }

    /// Counts what the groups have held and spent that a message puts budgets in force for.
    async fn count_groups(&mut self, message: &Message) -> Result<(), StoreError> {
        if let Message::Command(Command::Reload(settings), ..) = message
            && self.lacks_groups(message)
        {
            let (store, limits) = (self.store.clone(), settings.group_limits.clone());
            let groups = blocking(move || group_history(&store, &limits)).await?;
            self.scheduler.set_groups(groups.totals, groups.is_new);
        }
        Ok(())
    }

    /// Takes in what somebody asks of the running engine.
    fn handle_message(
        &mut self,
        message: Message,
        taken: &mut Vec<TakenBatch>,
    ) -> Result<Option<(Reply, CommandOutcome)>, EngineError> {
        match message {
            Message::Command(_, _, reply) | Message::AddBatch(_, _, reply) if self.is_read_only => {
                Ok(Some((reply, CommandOutcome::refused("this process only reads the state".to_owned()))))
            }
            Message::AddBatch(batch, edited, reply) => {
                Ok(Some((reply, self.add_batch(batch, edited, taken)?)))
            }
            Message::Command(mut command, Some(as_of), reply) => {
                let batch = command.batch().map_or(Ok(None), |no| self.store.batch(no));
                match batch {
                    Ok(Some(batch)) => {
                        let mut changed = HashSet::new();
                        self.store.add_ended_since(&batch, as_of, &mut changed)?;
                        if let Some(refused) = command.leave_out(&changed) {
                            return Ok(Some((reply, refused)));
                        }
                    }
                    // It is refused where the batch is taken up.
                    Ok(None) | Err(StoreError::BatchMoved { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                self.handle_message(Message::Command(command, None, reply), taken)
            }
            Message::Command(command, None, reply) => {
                let now = self.clock.now();
                load_days(&mut self.scheduler, &self.store, [now.wall.utc_day()])?;
                load_days(&mut self.scheduler, &self.store, command.days())?;
                let refused = match self.left_alone(&command)? {
                    Some(refused) => Some(refused),
                    None => take_up_finished(&mut self.scheduler, &self.store, command.batch())?,
                };
                let outcome = refused.map_or_else(|| self.scheduler.execute(command, now), Ok)?;
                Ok(Some((reply, outcome)))
            }
            Message::EngineDeps(deps) => {
                self.deps = self.deps.take().map(|_| Arc::new(*deps));
                self.check_output_store();
                Ok(None)
            }
        }
    }

    /// Refuses a command about a batch that is not done and that this engine does not work on: what it changed would not be
    /// known here.
    fn left_alone(&self, command: &Command) -> Result<Option<CommandOutcome>, StoreError> {
        // Where objects of outputs are changes no count.
        if matches!(command, Command::NoteStored(_)) {
            return Ok(None);
        }
        let Some(no) = command.batch().filter(|no| self.scheduler.batch(*no).is_none()) else {
            return Ok(None);
        };
        let is_left_alone = !self.handle.works_on_all() && self.store.unfinished_batch(no)?.is_some();
        let refused = || CommandOutcome { left_alone: true, ..CommandOutcome::refused(LEFT_ALONE) };
        Ok(is_left_alone.then(refused))
    }

    /// Takes in a batch that a manifest began or adds to, with the rows that it edits.
    fn add_batch(
        &mut self,
        batch: Box<BatchRecord>,
        mut edited: Option<Box<EditedRows>>,
        taken: &mut Vec<TakenBatch>,
    ) -> Result<CommandOutcome, EngineError> {
        let (no, now) = (batch.no, self.clock.now());
        if self.scheduler.batch(no).is_none() {
            let name = batch.name.clone();
            // It may be one that was not in the scope.
            take_up_batch(&mut self.scheduler, &self.store, no, now)?;
            let is_unfinished = self.scheduler.batch(no).is_some();
            if let Some(refused) = take_up_finished(&mut self.scheduler, &self.store, Some(no))? {
                return Ok(refused);
            }
            let was_finished = !is_unfinished && self.scheduler.batch(no).is_some();
            taken.push(TakenBatch { no, name, was_finished });
        }
        load_days(&mut self.scheduler, &self.store, [now.wall.utc_day()])?;
        if let Some(edited) = &mut edited {
            edited.refresh(&self.store, &batch)?;
        }
        let outcome = self.scheduler.execute(Command::AddBatch(batch), now)?;
        if let Some(edited) = edited {
            self.scheduler.change_versions(no, edited.versions, &edited.ended);
        }
        failpoint::hit("taken");
        Ok(outcome)
    }
}

/// The answer to a command that is not carried out.
fn refused(message: Message, why: &StoreError) -> Option<(Reply, CommandOutcome)> {
    match message {
        Message::Command(_, _, reply) | Message::AddBatch(_, _, reply) => {
            Some((reply, CommandOutcome::refused(why.to_string())))
        }
        Message::EngineDeps(_) => None,
    }
}
