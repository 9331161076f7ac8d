//! Jobs that had ended unpaid when a state was exported, or in doubt: after that they may have been asked for again, and sent.

use std::collections::BTreeMap;

use crate::domain::ids::{BatchNo, JobKey, Seq};
use crate::domain::job::State;
use crate::domain::remedy::could_only_expire;
use crate::domain::time::Timestamp;
use crate::store::unopened_state::NewState;
use crate::store::{JobRecord, Snapshot, StoreError};

/// Outcomes that are written at once.
const WRITTEN_MAX: usize = 10_000;

/// Marks in all batches of an export, done or not, what failed, was canceled or has expired without a charge as something that
/// may have been sent since, and what was in doubt as something that may have been resolved and followed by another attempt.
/// Its outcome is written once more.
pub(super) fn mark_all(state: &NewState, records: &mut Snapshot, now: Timestamp) -> Result<(), StoreError> {
    let batches: Vec<BatchNo> = records.batches.iter().map(|batch| batch.no).collect();
    for no in batches {
        let unpaid = unpaid_of(state, records, no)?;
        let mut marked = Vec::new();
        for mut record in unpaid {
            if matches!(record.job.state(), State::InDoubt { .. }) {
                record.job.mark_may_have_gone_on();
                marked.push(record);
            // A retry is refused otherwise: it was not sent after its deadline, and is not now.
            } else if !could_only_expire(&state.spec_of(&record)?.order, &record.job, now) {
                record.job.mark_may_have_been_sent();
                marked.push(record);
            }
        }
        for marked in marked.chunks(WRITTEN_MAX) {
            state.add_outcomes(no, marked, records)?;
        }
    }
    Ok(())
}

/// The last outcomes of a batch's jobs, where a retry would take them up and another state may have done so.
fn unpaid_of(state: &NewState, records: &Snapshot, no: BatchNo) -> Result<Vec<JobRecord>, StoreError> {
    let bytes = records.outcomes_bytes.get(&no).copied().unwrap_or_default();
    let mut unpaid: BTreeMap<Seq, JobRecord> = BTreeMap::new();
    let mut lines = state.spool(no).outcomes(0, bytes)?;
    while let Some((_, record)) = lines.next_line::<JobRecord>()? {
        let may_go_on = match record.job.state() {
            State::Failed { .. } | State::Canceled { .. } | State::Expired => {
                !record.job.is_paid() && !record.job.may_have_been_sent()
            }
            State::InDoubt { .. } => true,
            _ => false,
        };
        let seq = record.key.seq;
        if may_go_on {
            unpaid.insert(seq, record);
        } else {
            unpaid.remove(&seq);
        }
    }
    unpaid.retain(|seq, _| records.open_job(JobKey { batch: no, seq: *seq }).is_none());
    Ok(unpaid.into_values().collect())
}
