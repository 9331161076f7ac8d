//! Thousands of batches at once: whose turn it is, and what a step costs.

use super::*;

const BATCHES: u32 = 1_500;
/// More than a window holds.
const ROWS: u32 = 100;
const NOW: Now = Now { wall: Timestamp(1_000_000), tick: Tick(0) };

/// So many batches, and what was sent of them.
struct Crowd {
    scheduler: Scheduler,
    urgent: Vec<BatchNo>,
}

impl Crowd {
    fn new() -> Crowd {
        let mut crowd =
            Crowd { scheduler: Scheduler::new(settings(), Totals::default()), urgent: Vec::new() };
        (1..=BATCHES).for_each(|no| crowd.scheduler.add_batch(record(no, 0, ROWS)));
        crowd
    }

    /// One step, whose effects are answered until nothing but POSTs is to be done. Returns their batches.
    fn step(&mut self, mut inputs: Vec<Input>) -> Vec<u32> {
        let mut sent = Vec::new();
        loop {
            let step = self.scheduler.step(std::mem::take(&mut inputs), NOW).unwrap();
            assert!(self.scheduler.batches.are_sorted(), "every batch is found by what it needs");
            for effect in step.effects {
                match effect {
                    Effect::LoadRows { batch, from, end, most } => {
                        let rows = (from..end).take(most).map(|at| self.row(batch, at)).collect();
                        inputs.push(Input::Rows { batch, from, rows });
                    }
                    Effect::Post { key, .. } => sent.push(key),
                    Effect::Fetch(order) => {
                        inputs.push(Input::Fetched(order.key, AttemptNo::FIRST, Ok(files())));
                    }
                    other => panic!("{other:?}"),
                }
            }
            if inputs.is_empty() {
                return sent.iter().map(|key| key.batch.0).collect();
            }
        }
    }

    fn row(&self, batch: BatchNo, at: u64) -> SpooledRow {
        let mut spec = (*spec(u32::try_from(at).unwrap(), Kind::Video)).clone();
        spec.order.terms_mut().priority = if self.urgent.contains(&batch) { 5 } else { 0 };
        SpooledRow { at, end: at + 1, spec: Arc::new(spec) }
    }

    /// All that was sent succeeds. Returns the batches of what is sent in its place.
    fn succeed(&mut self) -> Vec<u32> {
        let sent: Vec<JobKey> = self.scheduler.open_jobs().map(|record| record.key).collect();
        let made = |(n, key): (usize, JobKey)| {
            let task = TaskReading {
                id: TaskId(format!("{n}-{}-{}", key.batch.0, key.seq.0).into()),
                ..reading("success")
            };
            Input::Posted(key, AttemptNo::FIRST, PostAnswer::Task(task))
        };
        self.step(sent.into_iter().enumerate().map(made).collect())
    }
}

fn record(no: u32, priority: i8, rows: u32) -> BatchRecord {
    let mut record = BatchRecord::new(BatchNo(no), format!("b{no}").parse().unwrap(), Timestamp(0));
    (record.rows, record.spool_bytes) = (rows, u64::from(rows));
    record.planned = Credits(PRICE * u64::from(rows));
    record.segments.push(Segment { priority, ..Segment::mixed(0, 0, u64::from(rows)) });
    record
}

#[test]
fn every_batch_has_its_turn_and_all_together_keep_few_rows_in_memory() {
    let mut crowd = Crowd::new();
    assert_eq!(crowd.step(vec![]), (1..=16).collect::<Vec<_>>());
    assert_eq!(crowd.succeed(), (17..=32).collect::<Vec<_>>());
    let rows: usize = crowd.scheduler.batches.iter().map(|active| active.rows().count()).sum();
    assert!(rows <= 32 * 1024, "{rows}");
}

#[test]
fn the_urgent_one_goes_first_whenever_it_came() {
    let mut crowd = Crowd::new();
    crowd.step(vec![]);
    crowd.urgent.push(BatchNo(BATCHES + 1));
    crowd.scheduler.add_batch(record(BATCHES + 1, 5, 3));
    crowd.step(vec![]);
    let sent = crowd.succeed();
    assert_eq!(sent[..5], [BATCHES + 1, BATCHES + 1, BATCHES + 1, 17, 18]);
}

#[test]
fn batches_that_wait_for_a_budget_stand_in_nobodys_way_and_go_once_they_have_one() {
    let mut crowd = Crowd::new();
    for no in 1..=1_000 {
        let budget = Command::SetBudget(BatchNo(no), Credits(0));
        crowd.scheduler.execute(budget, NOW).unwrap();
    }
    assert_eq!(crowd.step(vec![]), (1_001..=1_016).collect::<Vec<_>>());
    let parked = |crowd: &Crowd, no: u32| crowd.scheduler.batches.get(&BatchNo(no)).unwrap().parked();
    assert_eq!(parked(&crowd, 1_000), Some(Parked::BatchBudget));
    let budget = Command::SetBudget(BatchNo(7), Credits(PRICE));
    crowd.scheduler.execute(budget, NOW).unwrap();
    let others = (BATCHES - 1_016) as usize / 16;
    let turn = (0..=others).position(|_| crowd.succeed().contains(&7));
    assert_eq!(turn, Some(others), "its turn comes after all others that can go");
    assert_eq!((parked(&crowd, 7), parked(&crowd, 8)), (None, Some(Parked::BatchBudget)));
}
