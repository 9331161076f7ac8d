//! What all finished batches come to, so that nothing need read each of them for it.
//!
//! It lies in the record of the state's totals, and is written by the commit by which a batch is done or goes on. It is
//! derived from the lines of finished batches, and never believed alone: where the totals do not add up with it, they are
//! read, and it is made anew.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use serde::{Deserialize, Deserializer, Serialize};

use crate::domain::budget_group::GroupTotals;
use crate::domain::credits::Credits;
use crate::domain::ids::BatchNo;
use crate::domain::ledger::Totals;
use crate::domain::request::Kind;
use crate::store::commit::Database;
use crate::store::{Ended, FinishedBatch, Store, StoreError, db_keys};

/// What all finished batches come to.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FinishedSums {
    /// How many there are.
    pub(super) count: u64,
    /// Their credits.
    pub(super) totals: Totals,
    /// How their jobs ended, by kind.
    kinds: BTreeMap<Kind, Ended>,
    /// The same of jobs that were accepted before kinds were counted.
    other: Ended,
    /// Those whose jobs may have been charged what nothing tells, by number, and how much, in credits.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "by_number")]
    pub(super) may_be_charged: Vec<(BatchNo, Credits)>,
}

/// They were stored in the order in which the batches had ended.
fn by_number<'de, D: Deserializer<'de>>(stored: D) -> Result<Vec<(BatchNo, Credits)>, D::Error> {
    let mut batches = Vec::deserialize(stored)?;
    batches.sort_unstable_by_key(|(no, _)| *no);
    Ok(batches)
}

impl FinishedSums {
    pub(super) fn of<'a>(lines: impl Iterator<Item = &'a FinishedBatch>) -> FinishedSums {
        let mut sums = FinishedSums::default();
        lines.for_each(|line| sums.replace(None, Some(line)));
        sums
    }

    fn replace(&mut self, before: Option<&FinishedBatch>, after: Option<&FinishedBatch>) {
        if let Some(line) = before {
            self.count = self.count.saturating_sub(1);
            self.totals = minus(self.totals, line.totals);
            self.count_jobs(line, Ended::minus);
            self.may_be_charged.retain(|(no, _)| *no != line.no);
        }
        if let Some(line) = after {
            self.count += 1;
            self.totals = self.totals + line.totals;
            self.count_jobs(line, Ended::plus);
            if !line.may_be_charged.is_zero() {
                let at = self.may_be_charged.partition_point(|(no, _)| *no < line.no);
                self.may_be_charged.insert(at, (line.no, line.may_be_charged));
            }
        }
    }

    fn count_jobs(&mut self, line: &FinishedBatch, by: fn(Ended, Ended) -> Ended) {
        for (kind, ended) in line.summary().ended_by_kind() {
            let sum = kind.map_or(&mut self.other, |kind| self.kinds.entry(kind).or_default());
            *sum = by(*sum, ended);
        }
        self.kinds.retain(|_, ended| ended.all() > 0);
    }

    /// How their jobs ended, by kind; nothing stands for those of which it was not counted.
    pub(super) fn ended_by_kind(&self) -> BTreeMap<Option<Kind>, Ended> {
        let kinds = self.kinds.iter().map(|(kind, ended)| (Some(*kind), *ended));
        kinds.chain((self.other.all() > 0).then_some((None, self.other))).collect()
    }
}

impl Store {
    /// How the jobs of all finished batches ended, by kind; nothing stands for those of which it was not counted.
    pub fn finished_jobs(&self) -> Result<BTreeMap<Option<Kind>, Ended>, StoreError> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(writer.total.finished.as_ref().map(FinishedSums::ended_by_kind).unwrap_or_default())
    }

    /// The finished batches whose jobs may have been charged what nothing tells, and how much, in credits.
    pub fn finished_may_be_charged(&self) -> Vec<(BatchNo, Credits)> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.total.finished.as_ref().map(|sums| sums.may_be_charged.clone()).unwrap_or_default()
    }
}

/// Sums that do not fit are noticed when the state is opened: see the module.
fn minus(totals: Totals, less: Totals) -> Totals {
    Totals {
        held: totals.held.saturating_sub(less.held),
        spent: totals.spent.saturating_sub(less.spent),
        waived: totals.waived.saturating_sub(less.waived),
        refunded: totals.refunded.saturating_sub(less.refunded),
    }
}

/// The totals of the whole state, as they are stored.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredTotal {
    #[serde(flatten)]
    pub(super) totals: Totals,
    /// What its finished batches come to; nothing of a state that was written before that was kept, or has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) finished: Option<FinishedSums>,
    /// What the groups that have budgets have held and spent; nothing where none have, and where the totals went on
    /// without them: then they are counted anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) groups: Option<GroupTotals>,
}

impl StoredTotal {
    pub(super) fn read(database: &Database) -> Result<StoredTotal, StoreError> {
        Ok(database.get(&db_keys::total())?.unwrap_or_default())
    }

    /// Of a state with these finished batches.
    pub(super) fn of<'a>(totals: Totals, lines: impl Iterator<Item = &'a FinishedBatch>) -> StoredTotal {
        let sums = FinishedSums::of(lines);
        StoredTotal { totals, finished: (sums.count > 0).then_some(sums), groups: None }
    }

    /// How many batches are finished.
    pub(super) fn finished_count(&self) -> u64 {
        self.finished.as_ref().map_or(0, |sums| sums.count)
    }

    /// A batch that was finished, or not, is finished as another line says, or goes on.
    pub(super) fn replace(&mut self, before: Option<&FinishedBatch>, after: Option<&FinishedBatch>) {
        let mut sums = self.finished.take().unwrap_or_default();
        sums.replace(before, after);
        self.finished = (sums.count > 0).then_some(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;
    use crate::store::BatchRecord;

    fn line(no: u32) -> FinishedBatch {
        let batch = BatchRecord::new(BatchNo(no), format!("batch-{no}").parse().unwrap(), Timestamp(0));
        FinishedBatch { may_be_charged: Credits(u64::from(no)), ..FinishedBatch::moved(&batch) }
    }

    /// After a rebuild, batches of which something may have been charged end in any order.
    #[test]
    fn sums_do_not_depend_on_the_order_in_which_batches_end() {
        let lines = [line(2), line(3), line(5)];
        let mut ended = FinishedSums::default();
        for line in [&lines[1], &lines[2], &lines[0]] {
            ended.replace(None, Some(line));
        }
        assert_eq!(ended, FinishedSums::of(lines.iter()));
        // As earlier versions stored them.
        let mut stored = serde_json::to_value(&ended).unwrap();
        let batches = stored["may_be_charged"].as_array_mut().unwrap();
        batches.reverse();
        assert_eq!(batches[0][0], 5);
        assert_eq!(serde_json::from_value::<FinishedSums>(stored).unwrap(), ended);
        ended.replace(Some(&lines[1]), None);
        assert_eq!(ended, FinishedSums::of([&lines[0], &lines[2]].into_iter()));
    }
}
