//! The exit code of a command that submits manifests, by what became of their batches.

use crate::domain::exit_code::Exit;
use crate::domain::job_state::JobState;
use crate::ingest::receipt::Receipt;
use crate::server::protocol::BatchStatus;

/// Whether no job of any manifest is in its batch.
pub(super) fn has_nothing(receipts: &[Receipt]) -> bool {
    receipts.iter().all(|receipt| receipt.added() == 0 && receipt.have == 0)
}

/// What a command ends with whose manifests give nothing to do.
pub(super) fn nothing_exit(receipts: &[Receipt]) -> Exit {
    let waits = receipts.iter().any(|receipt| receipt.not_validated > 0);
    if waits { Exit::Unreachable } else { Exit::Usage }
}

/// What a command ends with when all that it waited for has ended.
pub(super) fn done_exit(receipts: &[Receipt], batches: &[BatchStatus]) -> Exit {
    let count = |state| batches.iter().map(|batch| batch.in_state(state)).sum::<u32>();
    if receipts.iter().any(|receipt| receipt.not_validated > 0) {
        Exit::Unreachable
    } else if receipts.iter().any(Receipt::has_problems) {
        Exit::Usage
    } else if batches.iter().any(|batch| batch.waiting_for_review > 0 || batch.overdue > 0) {
        Exit::Unfinished
    } else if count(JobState::Failed) + count(JobState::Canceled) + count(JobState::Expired) > 0 {
        Exit::SomeFailed
    } else if count(JobState::InDoubt) > 0
        || batches.iter().any(|batch| batch.held_for_earlier_attempts() > 0)
    {
        Exit::Unfinished
    } else {
        Exit::Success
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is held for an earlier attempt in doubt is not settled, though its job has succeeded.
    #[test]
    fn a_batch_that_holds_credits_for_earlier_attempts_is_not_finished() {
        let exit = |state: &str, held: u64| {
            let status = json!({
                "name": "spring", "state": state, "parked_by": null, "jobs": 1, "planned_credits": 8,
                "budget_credits": 16, "held_credits": held, "charged_credits": 8, "waived_credits": 0,
                "refunded_credits": 0, "succeeded": 1,
            });
            done_exit(&[], &[serde_json::from_value(status).unwrap()])
        };
        assert_eq!((exit("done", 0), exit("done", 8)), (Exit::Success, Exit::Unfinished));
        assert_eq!(exit("active", 8), Exit::Success, "it is held for what is under way");
    }
}
