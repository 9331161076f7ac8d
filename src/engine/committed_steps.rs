//! Which steps of the engine are durable. Downloads begin before the step that they follow from is committed, and wait for it
//! before they write anything to the disk.

use std::future::pending;

use tokio::sync::watch;

/// Counts the steps of an engine that are durable.
#[derive(Debug, Default)]
pub(super) struct CommittedSteps(watch::Sender<u64>);

impl CommittedSteps {
    /// The step that is decided and not durable yet.
    pub(super) fn next(&self) -> StepCommit {
        StepCommit { step: *self.0.borrow() + 1, committed: self.0.subscribe() }
    }

    /// The last step that is durable.
    pub(super) fn last(&self) -> StepCommit {
        StepCommit { step: *self.0.borrow(), committed: self.0.subscribe() }
    }

    /// The next step is durable.
    pub(super) fn advance(&self) {
        self.0.send_modify(|step| *step += 1);
    }
}

/// The commit of one step.
#[derive(Debug, Clone)]
pub(super) struct StepCommit {
    step: u64,
    committed: watch::Receiver<u64>,
}

impl StepCommit {
    /// Waits until it is durable: for ever where it never will be, since the engine ended.
    pub(super) async fn wait(&self) {
        if self.committed.clone().wait_for(|step| *step >= self.step).await.is_err() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    /// Whether that commit is durable now.
    async fn is_durable(commit: &StepCommit) -> bool {
        let mut wait = std::pin::pin!(commit.wait());
        std::future::poll_fn(|context| Poll::Ready(wait.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn a_step_is_waited_for_until_it_is_durable() {
        let steps = CommittedSteps::default();
        assert!(is_durable(&steps.last()).await, "nothing is awaited at the start");
        let first = steps.next();
        assert!(!is_durable(&first).await);
        steps.advance();
        assert!(is_durable(&first).await);
        assert!(is_durable(&steps.last()).await);
        let second = steps.next();
        assert!(!is_durable(&second).await);
        drop(steps);
        assert!(is_durable(&first).await, "it stays durable when the engine has ended");
        assert!(!is_durable(&second).await, "and what was not durable never is");
    }
}
