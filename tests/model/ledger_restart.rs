//! Random lives of a few jobs, booked on a real state that is closed and opened at random points: the
//! totals that are read back are those of the jobs that are read back, and of the last commit.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use callsheet::domain::credits::Credits;
use callsheet::domain::ids::{AttemptNo, BatchNo, JobId, JobKey, Seq, TaskId};
use callsheet::domain::job::{Books, Job, State};
use callsheet::domain::ledger::Totals;
use callsheet::domain::lifecycle::{self, AttemptRules, Event};
use callsheet::domain::task::{Fault, PostAnswer, TaskReading, TaskStatus};
use callsheet::domain::time::Timestamp;
use callsheet::domain::utc_day::UtcDay;
use callsheet::store::{BatchRecord, Change, Ended, JobRecord, Store};
use proptest::prelude::*;

const JOBS: usize = 4;
const BATCH: BatchNo = BatchNo(1);
const SERVICE: &str = "https://media.example";
const TERMS: AttemptRules = AttemptRules { attempts: 3, keyed: true };

/// What happens to a job, drawn blindly: half of it has no place where it arrives.
#[derive(Debug, Clone)]
struct Draw {
    job: usize,
    event: u8,
    status: u8,
    credits: u64,
    waived: u64,
    /// Sent for the attempt before.
    is_late: bool,
}

#[derive(Debug, Clone)]
enum Act {
    Happen(Draw),
    Commit,
    /// The process ends, and another one opens the state.
    Restart,
}

fn any_act() -> impl Strategy<Value = Act> {
    let draw = (0..JOBS, 0u8..16, 0u8..6, 0u64..30, 0u64..5, prop::bool::weighted(0.1)).prop_map(
        |(job, event, status, credits, waived, is_late)| Draw {
            job,
            event,
            status,
            credits,
            waived,
            is_late,
        },
    );
    prop_oneof![8 => draw.prop_map(Act::Happen), 3 => Just(Act::Commit), 1 => Just(Act::Restart)]
}

fn fault() -> Fault {
    Fault::new("busy", "come again")
}

fn reading(draw: &Draw) -> TaskReading {
    let words = ["pending", "processing", "success", "failed", "canceled", "some-new-word"];
    TaskReading {
        id: TaskId("t".into()),
        status: TaskStatus::from_wire(words[usize::from(draw.status)]),
        model: None,
        options: None,
        charged: Some(Credits(draw.credits)),
        waived: Some(Credits(draw.waived)),
        urls: vec!["http://x/1".into()],
        fault: None,
        record: None,
    }
}

fn event(draw: &Draw) -> Event {
    match draw.event {
        0..=2 => {
            Event::Admit { hold: Credits(draw.credits), day: UtcDay(20_000 + i32::from(draw.status % 3)) }
        }
        3 | 4 => Event::Posted(PostAnswer::Task(reading(draw))),
        5 => Event::Posted(PostAnswer::TaskNamed(TaskId("t".into()), fault())),
        6 => Event::Posted(PostAnswer::Again { fault: fault(), wait: None, may_have_run: draw.is_late }),
        7 => Event::Posted(PostAnswer::OutOfCredits(fault())),
        8 => Event::Posted(PostAnswer::Refused(fault())),
        9..=11 => Event::Read(reading(draw)),
        12 => Event::Fetched(Vec::new()),
        13 => Event::FetchAbandoned(fault()),
        14 if draw.status < 3 => Event::TaskMissing(fault()),
        14 => Event::Overdue,
        _ if draw.status < 3 => Event::Retry,
        _ => Event::FetchAgain,
    }
}

/// What a process has in memory: the jobs, and running totals of every account.
#[derive(Debug, Clone, PartialEq)]
struct Memory {
    jobs: Vec<Job>,
    batch: Totals,
    total: Totals,
    days: BTreeMap<UtcDay, Totals>,
}

impl Memory {
    fn new() -> Memory {
        let jobs = vec![Job::queued(); JOBS];
        Memory { jobs, batch: Totals::default(), total: Totals::default(), days: BTreeMap::new() }
    }

    /// True when it had a place.
    fn happen(&mut self, draw: &Draw) -> bool {
        let before = &self.jobs[draw.job];
        let attempt =
            if draw.is_late { AttemptNo(before.attempt().0.saturating_sub(1)) } else { before.attempt() };
        let Ok(step) = lifecycle::apply(before, attempt, event(draw), TERMS, Timestamp(0)) else {
            return false;
        };
        for movement in step.movements {
            self.batch.apply(movement).unwrap();
            self.total.apply(movement).unwrap();
            self.days.entry(step.day.unwrap()).or_default().apply(movement).unwrap();
        }
        self.jobs[draw.job] = step.job;
        true
    }

    /// Every account is the sum of the books of the jobs that it covers: no hold is left behind, and
    /// nothing is spent but what jobs were charged and did not get back.
    fn adds_up(&self) {
        let sums = |covers: &dyn Fn(&Job) -> bool| {
            let books = self.jobs.iter().filter(|job| covers(job)).map(|job| job.books());
            books.fold(Books::default(), |sum, of| Books {
                held: sum.held + of.held,
                charged: sum.charged + of.charged,
                waived: sum.waived + of.waived,
            })
        };
        let told = |totals: Totals| Books { held: totals.held, charged: totals.spent, waived: totals.waived };
        assert_eq!(told(self.total), sums(&|_| true), "the whole state");
        assert_eq!(told(self.batch), sums(&|_| true), "the batch");
        for (day, totals) in &self.days {
            assert_eq!(told(*totals), sums(&|job| job.day() == Some(*day)), "{day:?}");
        }
        let open = |job: &Job| {
            matches!(job.state(), State::Submitting { .. } | State::Running { .. } | State::InDoubt { .. })
        };
        assert_eq!(self.total.held, sums(&open).held, "only what is in the air or in doubt holds anything");
    }

    fn changes(&self, changed: &BTreeSet<usize>) -> Vec<Change> {
        let record = |n: &usize| {
            let key = JobKey { batch: BATCH, seq: Seq(u32::try_from(*n).unwrap()) };
            let record = JobRecord { key, id: JobId([0; 16]), row_at: 0, job: self.jobs[*n].clone() };
            if record.job.is_over() { Change::End(record) } else { Change::Open(record) }
        };
        let batch = BatchRecord::new(BATCH, "batch".parse().unwrap(), Timestamp(0));
        let mut ended = Ended::default();
        self.jobs.iter().filter(|job| job.is_over()).for_each(|job| ended.count(job.state(), false));
        let batch = BatchRecord { rows: u32::try_from(JOBS).unwrap(), totals: self.batch, ended, ..batch };
        let mut changes: Vec<Change> = changed.iter().map(record).collect();
        changes.extend([Change::Batch(Box::new(batch)), Change::Total(self.total)]);
        changes.extend(self.days.iter().map(|(day, totals)| Change::Day(*day, *totals)));
        changes
    }

    /// What is on the device, read as a process does that begins.
    fn read(store: &Store, days: impl Iterator<Item = UtcDay>) -> Memory {
        let mut jobs = vec![Job::queued(); JOBS];
        let spool = store.spool(BATCH);
        let batch = store.batch(BATCH).unwrap();
        if let Some(batch) = &batch
            && spool.outcomes_on_disk().unwrap().is_some()
        {
            let mut outcomes = spool.outcomes(0, store.outcomes_bytes(batch).unwrap()).unwrap();
            while let Some((_, ended)) = outcomes.next_line::<JobRecord>().unwrap() {
                jobs[ended.key.seq.0 as usize] = ended.job;
            }
        }
        for open in store.open_jobs().unwrap() {
            jobs[open.key.seq.0 as usize] = open.job;
        }
        let batch = batch.map(|batch| batch.totals).unwrap_or_default();
        let days = days.map(|day| (day, store.day(day).unwrap())).collect();
        Memory { jobs, batch, total: store.total().unwrap(), days }
    }
}

fn open(dir: &Path) -> Store {
    Store::open(dir, SERVICE, false).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_restart_at_any_point_finds_the_same_books(acts in prop::collection::vec(any_act(), 20..120)) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let (mut memory, mut committed) = (Memory::new(), Memory::new());
        // A batch comes with all of its jobs.
        let all = || (0..JOBS).collect::<BTreeSet<usize>>();
        let mut changed = all();
        for act in acts.into_iter().chain([Act::Commit, Act::Restart]) {
            match act {
                Act::Happen(draw) => {
                    if memory.happen(&draw) {
                        changed.insert(draw.job);
                    }
                    memory.adds_up();
                }
                Act::Commit => {
                    store.commit(&memory.changes(&std::mem::take(&mut changed))).unwrap();
                    committed = memory.clone();
                }
                Act::Restart => {
                    drop(store);
                    store = open(dir.path());
                    // What was not committed never happened.
                    changed = if store.batch(BATCH).unwrap().is_none() { all() } else { BTreeSet::new() };
                    memory = Memory::read(&store, committed.days.keys().copied());
                    prop_assert_eq!(&memory, &committed);
                    memory.adds_up();
                }
            }
        }
    }
}
