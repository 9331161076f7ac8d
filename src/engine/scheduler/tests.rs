//! Turns as transcripts: a scripted service and a scripted clock around the scheduler.

mod account;
mod deadlines;
mod groups;
mod job_inputs;
mod many_batches;
mod output_folders;
mod polls;
mod prices;
mod queues;
mod resends;
mod resubmit;
mod retention;
mod row_versions;
mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::domain::admission::Limits;
use crate::domain::budget_group::{GroupLimits, GroupTotals};
use crate::domain::credits::Credits;
use crate::domain::ids::{AttemptNo, BatchNo, Fingerprint, JobId, JobKey, Seq, TaskId};
use crate::domain::job::{JobSpec, Order, OrderTerms, OutputFile, State};
use crate::domain::json_object::JsonObject;
use crate::domain::out_of_credits::AccountBlock;
use crate::domain::parked_reason::Parked;
use crate::domain::request::Kind;
use crate::domain::retry_delay::Backoff;
use crate::domain::task::{Fault, PostAnswer, ReadAnswer, TaskReading, TaskStatus};
use crate::domain::time::{Millis, Now, Tick, Timestamp};
use crate::store::{BatchRecord, Change, JobRecord, Segment};

const PRICE: u64 = 10;

/// A scheduler with one batch, and what it asked for so far.
struct Stage {
    scheduler: Scheduler,
    now: Now,
    specs: Vec<Arc<JobSpec>>,
    durable: BTreeMap<JobKey, JobRecord>,
    outcomes: BTreeMap<JobKey, JobRecord>,
    batch: BatchRecord,
    account: AccountBlock,
    ended: Vec<String>,
    /// Turns that had something to make durable.
    commits: u32,
    groups: Option<GroupTotals>,
}

pub(super) fn settings() -> Settings {
    Settings {
        limits: Limits {
            in_flight: 16,
            in_flight_per_kind: BTreeMap::new(),
            in_flight_per_model: BTreeMap::new(),
            total: None,
            per_day: None,
            min_balance: None,
        },
        requests_at_once: usize::MAX,
        adaptive: true,
        rejections: 3,
        downloads: 4,
        scratch_max: None,
        poll_min: Millis(5_000),
        poll_max: Millis(10_000),
        submits_per_second: None,
        deadlines: BTreeMap::from([(Kind::Video, Millis::from_secs(1800))]),
        overdue_poll: Millis::from_secs(300),
        watch_overdue_for: Millis::from_secs(86_400),
        attempts: 3,
        backoff: Backoff { base: Millis(2_000), max: Millis(300_000) },
        balance_interval: Millis::from_secs(60),
        has_allowances: true,
        group_limits: Default::default(),
        rules: None,
        seed: 7,
    }
}

pub(in crate::engine) fn spec(seq: u32, kind: Kind) -> Arc<JobSpec> {
    let order = Order {
        line: u64::from(seq) + 2,
        body: JsonObject::default(),
        inputs: Default::default(),
        files: Default::default(),
        written: None,
        meta: JsonObject::default(),
        terms: OrderTerms { price: Some(Credits(PRICE)), ..OrderTerms::of(kind) }.into(),
    };
    let id = JobId(u128::from(seq).to_be_bytes());
    let (fingerprint, label) = (Fingerprint(id.0), format!("job-{seq}"));
    Arc::new(JobSpec { seq: Seq(seq), id, fingerprint, variation: 1, label, apart: false, order })
}

fn reading(status: &str) -> TaskReading {
    TaskReading {
        id: TaskId("t".into()),
        status: TaskStatus::from_wire(status),
        model: None,
        options: None,
        charged: Some(Credits(PRICE)),
        waived: Some(Credits::ZERO),
        urls: if status == "success" { vec!["http://r/1".into()] } else { vec![] },
        fault: None,
        record: None,
    }
}

/// An answer about `t` is about the job's own task.
fn of_its_own_task(mut input: Input) -> Input {
    if let Input::Posted(key, _, PostAnswer::Task(reading)) | Input::Read(key, _, ReadAnswer::Task(reading)) =
        &mut input
        && reading.id.as_str() == "t"
    {
        reading.id = TaskId(format!("t{}", key.seq.0).into());
    }
    input
}

fn fault(code: &str) -> Fault {
    Fault::new(code, "said so")
}

impl Stage {
    /// A batch of `rows` videos, each row one byte long in an imagined spool.
    fn with(rows: u32, settings: Settings) -> Stage {
        let mut batch = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(0));
        batch.rows = rows;
        batch.planned = Credits(PRICE * u64::from(rows));
        batch.spool_bytes = u64::from(rows);
        batch.segments.push(Segment::mixed(0, 0, u64::from(rows)));
        let specs = (0..rows).map(|seq| spec(seq, Kind::Video)).collect();
        let mut scheduler = Scheduler::new(settings, Totals::default());
        scheduler.add_batch(batch.clone());
        let now = Now { wall: Timestamp(1_000_000), tick: Tick(0) };
        Stage {
            scheduler,
            now,
            specs,
            durable: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            batch,
            account: AccountBlock::default(),
            groups: None,
            ended: Vec::new(),
            commits: 0,
        }
    }

    fn of(rows: u32) -> Stage {
        Stage::with(rows, settings())
    }

    fn key(seq: u32) -> JobKey {
        JobKey { batch: BatchNo(1), seq: Seq(seq) }
    }

    /// One step; rows are served at once. Answers in short: `post 0#1`, `read 0#1`, `fetch 0#1`.
    fn step(&mut self, inputs: Vec<Input>) -> String {
        let mut inputs: Vec<Input> = inputs.into_iter().map(of_its_own_task).collect();
        let mut said = Vec::new();
        loop {
            let step = self.scheduler.step(std::mem::take(&mut inputs), self.now).unwrap();
            self.commit(&step.changes);
            assert!(self.scheduler.jobs.counts_right(), "what is counted is what is there");
            assert!(self.scheduler.batches.are_sorted(), "every batch is found by what it needs");
            self.ended.extend(
                step.ended.iter().map(|(spec, job)| format!("{} {}", spec.label, job.job.state().name())),
            );
            for effect in step.effects {
                match effect {
                    Effect::Post { key, attempt, .. } => {
                        said.push(format!("post {}#{}", key.seq.0, attempt.0));
                    }
                    Effect::Read { key, attempt, .. } => {
                        said.push(format!("read {}#{}", key.seq.0, attempt.0));
                    }
                    Effect::Fetch(order) => {
                        said.push(format!("fetch {}#{}", order.key.seq.0, order.attempt.0));
                    }
                    Effect::AskBalance => said.push("balance?".into()),
                    Effect::RenewCatalog => said.push("catalog?".into()),
                    Effect::KeepSurcharges(_) => said.push("surcharges".into()),
                    Effect::FindInputs { key, attempt, parents, .. } => {
                        let parents: Vec<u32> = parents.iter().map(|key| key.seq.0).collect();
                        said.push(format!("inputs {}#{} of {parents:?}", key.seq.0, attempt.0));
                    }
                    // Another batch is none of the stage's.
                    Effect::LoadEnded { batch } if batch != BatchNo(1) => {}
                    Effect::LoadEnded { batch } => {
                        let jobs =
                            self.outcomes.values().map(|ended| (ended.id, ended_take(ended))).collect();
                        inputs.push(Input::Ended { batch, jobs });
                    }
                    Effect::GoBack { from, .. } => said.push(format!("go back {from}")),
                    Effect::LoadRows { batch, from, end, most } => {
                        let rows = self.rows(from, end, most);
                        inputs.push(Input::Rows { batch, from, rows });
                    }
                }
            }
            if inputs.is_empty() {
                return said.join(", ");
            }
        }
    }

    fn rows(&self, from: u64, end: u64, most: usize) -> Vec<SpooledRow> {
        let row = |at: u64| {
            let index = usize::try_from(at).unwrap();
            SpooledRow { at, end: at + 1, spec: self.specs[index].clone() }
        };
        (from..end).take(most).map(row).collect()
    }

    fn commit(&mut self, changes: &[Change]) {
        self.commits += u32::from(!changes.is_empty());
        for change in changes {
            match change {
                Change::Open(record) => drop(self.durable.insert(record.key, record.clone())),
                Change::End(record) => {
                    self.durable.remove(&record.key);
                    self.outcomes.insert(record.key, record.clone());
                }
                Change::Batch(batch) => self.batch = (**batch).clone(),
                Change::Account(block) => self.account = block.clone(),
                Change::Groups(groups) => self.groups = Some((**groups).clone()),
                Change::Total(_) | Change::Day(..) => {}
            }
        }
    }

    /// Lets both clocks run.
    fn pass(&mut self, span: Millis) -> &mut Stage {
        self.now = Now { wall: self.now.wall.after(span), tick: self.now.tick.after(span) };
        self
    }

    /// Lets time pass until a step says `said`.
    fn pass_until(&mut self, said: &str) {
        while self.step(vec![]) != said {
            self.pass(Millis(100));
        }
    }

    fn posted(&mut self, seq: u32, answer: PostAnswer) -> String {
        let attempt = self.attempt(seq);
        self.step(vec![Input::Posted(Stage::key(seq), attempt, answer)])
    }

    fn read(&mut self, seq: u32, answer: ReadAnswer) -> String {
        let attempt = self.attempt(seq);
        self.step(vec![Input::Read(Stage::key(seq), attempt, answer)])
    }

    fn rows_in_memory(&self) -> usize {
        let active = self.scheduler.batches.get(&BatchNo(1)).unwrap();
        active.rows().count()
    }

    fn attempt(&self, seq: u32) -> AttemptNo {
        self.durable[&Stage::key(seq)].job.attempt()
    }

    /// The process dies and starts again with what is durable.
    fn restart(&mut self) {
        let mut scheduler = Scheduler::new(self.scheduler.settings.clone(), self.batch.totals);
        scheduler.set_account_block(self.account.clone());
        let keys = scheduler.settings.group_limits.clone();
        let groups = self.groups.clone().unwrap_or_else(|| GroupTotals::of_keys(keys.keys()));
        scheduler.set_groups(groups, false);
        scheduler.set_day(self.now.wall.utc_day(), self.batch.totals);
        scheduler.add_batch(self.batch.clone());
        for record in self.durable.values() {
            let spec = self.specs[record.key.seq.0 as usize].clone();
            scheduler.resume_job(BegunJob::new(record.clone(), spec), self.now);
        }
        self.scheduler = scheduler;
    }
}

fn task(status: &str) -> PostAnswer {
    PostAnswer::Task(reading(status))
}

fn lost() -> PostAnswer {
    PostAnswer::Again { fault: fault("timeout"), wait: None, may_have_run: true }
}

fn files() -> Vec<OutputFile> {
    vec![OutputFile {
        path: "a".into(),
        bytes: 1,
        sha256: String::new(),
        content_type: String::new(),
        edited: None,
        object: None,
    }]
}

#[test]
fn a_job_runs_from_queue_to_disk() {
    let mut stage = Stage::of(1);
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.batch.totals.held, Credits(10), "the hold is durable before the POST");
    assert_eq!(stage.posted(0, task("pending")), "");
    assert_eq!(stage.pass(Millis(4_999)).step(vec![]), "", "not before the advised interval");
    assert_eq!(stage.pass(Millis(5_001)).step(vec![]), "read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    assert_eq!(stage.scheduler.standstill(), None);
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
    assert!(stage.durable.is_empty());
}

#[test]
fn a_lost_answer_is_sent_again_under_the_same_key_and_later_each_time() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    let mut waits = Vec::new();
    for _ in 0..6 {
        assert_eq!(stage.posted(0, lost()), "");
        let before = stage.now.tick;
        while stage.step(vec![]).is_empty() {
            stage.pass(Millis(100));
        }
        waits.push(stage.now.tick.since(before));
    }
    assert_eq!(stage.attempt(0), AttemptNo(1));
    assert!(waits[5] > Millis(10_000) && waits[0] <= Millis(2_100), "{waits:?}");
}

#[test]
fn the_task_of_another_job_is_not_believed() {
    let mut stage = Stage::of(2);
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1");
    let first = TaskReading { id: TaskId("first".into()), ..reading("success") };
    assert_eq!(stage.posted(0, PostAnswer::Task(first.clone())), "fetch 0#1");
    for again in [PostAnswer::Task(first.clone()), PostAnswer::TaskNamed(first.id.clone(), fault("busy"))] {
        assert_eq!(stage.posted(1, again), "", "the same key goes out again, later");
        stage.pass_until("post 1#1");
        assert!(
            matches!(&stage.durable[&Stage::key(1)].job.state(), State::Submitting { fault: Some(fault), .. }
            if fault.message == "the service answered with task first, which it has made for another job")
        );
    }
    // Of a job that has ended, too, and of one that was taken up.
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.posted(1, PostAnswer::Task(first)), "");
    assert_eq!(stage.batch.totals.held, Credits(PRICE), "what it may have cost stays set aside");
    stage.pass_until("post 1#1");
    assert_eq!(stage.posted(1, task("success")), "fetch 1#1");
}

#[test]
fn a_page_that_refuses_what_was_taken_before_is_waited_out() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, lost());
    stage.pass_until("post 0#1");
    assert_eq!(stage.posted(0, PostAnswer::Refused(fault("http_413"))), "", "not at once again");
    assert_eq!(stage.batch.totals.held, Credits(PRICE));
    stage.pass_until("post 0#1");
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
}

#[test]
fn a_restart_goes_on_where_each_job_was() {
    let mut stage = Stage::of(4);
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1, post 2#1, post 3#1");
    stage.posted(1, task("pending"));
    stage.posted(2, task("success"));
    let totals = stage.batch.totals;
    stage.restart();
    // Read last at an unknown time, so job 1 waits for the interval.
    assert_eq!(
        stage.step(vec![]),
        "post 0#1, fetch 2#1, post 3#1".replace("fetch 2#1, post 3#1", "post 3#1, fetch 2#1")
    );
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "read 1#1");
    assert_eq!(stage.batch.totals, totals, "a restart moves no credits");
}

#[test]
fn a_post_without_a_key_is_not_sent_again_after_a_restart() {
    let mut stage = Stage::of(1);
    stage.specs[0] = spec(0, Kind::ShortsStudio);
    assert_eq!(stage.step(vec![]), "post 0#1");
    stage.restart();
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.ended, ["job-0 in_doubt"]);
    assert_eq!(stage.batch.totals.held, Credits(10), "its hold stays until a person decides");
}

#[test]
fn a_post_without_a_key_that_surely_made_no_task_is_queued_again() {
    let mut stage = Stage::of(1);
    stage.specs[0] = spec(0, Kind::ShortsStudio);
    stage.step(vec![]);
    let refused = PostAnswer::Again { fault: fault("http_429"), wait: None, may_have_run: false };
    assert_eq!(stage.posted(0, refused), "");
    assert_eq!(stage.batch.totals.held, Credits(0));
    stage.restart();
    assert_eq!(stage.pass(Millis(2_000)).step(vec![]), "post 0#1");
}

#[test]
fn only_what_is_in_flight_and_a_window_are_in_memory() {
    let mut stage = Stage::of(5_000);
    stage.step(vec![]);
    assert_eq!(stage.scheduler.jobs.len(), 16);
    assert!(stage.rows_in_memory() <= 128);
    assert_eq!(stage.durable.len(), 16, "what has not begun costs no record");
}

#[test]
fn a_refused_key_parks_polls_too() {
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    assert_eq!(stage.posted(1, PostAnswer::Unauthorised(fault("unauthorized"))), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Err(NoBalance::Unauthorised))]), "");
    assert_eq!(stage.pass(Millis(20_000)).step(vec![]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Key)));
    assert_eq!(stage.pass(Millis(40_000)).step(vec![]), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(0)))]), "post 1#1");
    assert_eq!(stage.pass(Millis(1_000)).step(vec![]), "read 0#1");
}

#[test]
fn poll_faults_never_create_a_post() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    for _ in 0..20 {
        stage.pass(Millis::from_secs(301));
        assert_eq!(stage.step(vec![]), "read 0#1");
        assert_eq!(stage.read(0, ReadAnswer::Again { fault: fault("http_502"), wait: None }), "");
    }
}

#[test]
fn broken_links_are_renewed_by_reading_the_task() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    let stale = Err(FetchFault::Stale(fault("download")));
    assert_eq!(stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), stale)]), "");
    assert_eq!(stage.pass(Millis(2_000)).step(vec![]), "read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
}

#[test]
fn fresh_links_that_never_work_are_given_up() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    let mut fetches = 1;
    while stage.ended.is_empty() {
        let stale = Err(FetchFault::Stale(fault("not_media")));
        stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), stale)]);
        if stage.pass(Millis::from_secs(300)).step(vec![]) == "read 0#1" {
            assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
            fetches += 1;
        }
        assert!(fetches < 100, "it never ends");
    }
    assert_eq!((stage.ended.join(""), fetches), ("job-0 failed".to_owned(), 8));
    assert_eq!(stage.batch.totals.spent, Credits(10), "it was paid for");
}

#[test]
fn a_result_host_that_is_not_available_is_waited_for_a_day() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    let (began, mut fetches) = (stage.now.tick, 1);
    let asked = Some(Millis::from_secs(30));
    while stage.ended.is_empty() {
        let away = FetchFault::Unavailable { fault: fault("download"), wait: asked };
        stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Err(away))]);
        assert_eq!(stage.pass(Millis::from_secs(29)).step(vec![]), "", "it asks for 30 seconds");
        if stage.pass(Millis::from_secs(271)).step(vec![]) == "read 0#1" {
            assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
            fetches += 1;
        }
        assert!(fetches < 1_000, "it never ends");
    }
    assert_eq!((stage.ended.join(""), fetches), ("job-0 failed".to_owned(), 289));
    assert_eq!(stage.now.tick.since(began), Millis::from_secs(24 * 3600 + 300));
}

#[test]
fn a_success_without_results_is_given_up() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    let nothing = || ReadAnswer::Task(TaskReading { urls: vec![], ..reading("success") });
    let mut reads = 0;
    while stage.ended.is_empty() {
        assert!(reads < 100, "it never ends");
        assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]), "read 0#1");
        assert_eq!(stage.read(0, nothing()), "");
        reads += 1;
    }
    assert_eq!((stage.ended.join(""), reads), ("job-0 failed".to_owned(), 8));
}

#[test]
fn a_budget_parks_what_does_not_fit() {
    let mut stage = Stage::of(3);
    stage.batch.policy.budget = Some(Credits(25));
    stage.restart();
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1");
    stage.posted(0, task("success"));
    stage.posted(1, task("success"));
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    stage.step(vec![Input::Fetched(Stage::key(1), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::BatchBudget)));
    assert_eq!(stage.batch.totals.committed(), Credits(20));
}

#[test]
fn a_batch_that_its_budget_parks_is_parked_while_every_slot_is_taken() {
    let mut stage = Stage::of(3);
    stage.batch.policy.budget = Some(Credits(25));
    stage.restart();
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1");
    stage.posted(0, task("pending"));
    assert_eq!(stage.scheduler.overview()[0].parked, Some(Parked::BatchBudget));
    let wait = Some(Millis(7_000));
    stage.posted(1, PostAnswer::Again { fault: fault("http_429"), wait, may_have_run: false });
    stage.step(vec![]);
    assert_eq!(stage.scheduler.overview()[0].parked, Some(Parked::BatchBudget), "no slot now");
    stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(30)), stage.now).unwrap();
    stage.step(vec![]);
    assert_eq!(stage.scheduler.overview()[0].parked, None, "it waits for a slot only");
}

#[test]
fn a_stop_lets_what_is_in_the_air_finish_and_begins_nothing() {
    let mut stage = Stage::of(20);
    stage.step(vec![]);
    assert_eq!(stage.step(vec![Input::Stop]), "");
    for seq in 0..16 {
        assert_eq!(stage.scheduler.standstill(), None);
        assert_eq!(stage.posted(seq, task("success")), "");
    }
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Stopped));
    let fetching =
        stage.durable.values().filter(|record| matches!(record.job.state(), State::Fetching { .. }));
    assert_eq!(fetching.count(), 16, "what the answers told is durable");
}

#[test]
fn clock_steps_move_no_poll() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.now.wall = Timestamp(stage.now.wall.0 - 86_400_000);
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "read 0#1");
}

#[test]
fn a_429_halves_what_is_in_flight_and_is_waited_out() {
    let mut stage = Stage::of(100);
    stage.step(vec![]);
    let crowded =
        || PostAnswer::Again { fault: fault("http_429"), wait: Some(Millis(7_000)), may_have_run: false };
    for seq in 0..16 {
        assert_eq!(stage.posted(seq, crowded()), "");
    }
    assert_eq!(stage.scheduler.present_limit(), 8);
    let again = stage.pass(Millis(7_000)).step(vec![]);
    assert!(again.starts_with("post 0#1"), "{again}");
    for seq in 0..16 {
        assert_eq!(stage.posted(seq, task("pending")), "", "16 are in flight, and 8 to 10 may be");
    }
    assert_eq!(stage.scheduler.present_limit(), 9, "a round of answers gave one slot back");
}

#[test]
fn rejected_prompts_in_a_row_pause_the_batch() {
    let mut stage =
        Stage::with(9, Settings { limits: Limits { in_flight: 1, ..settings().limits }, ..settings() });
    let rejected = || PostAnswer::Refused(fault("content_rejected"));
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.posted(0, rejected()), "post 1#1");
    assert_eq!(stage.posted(1, task("success")), "fetch 1#1, post 2#1");
    assert_eq!(stage.step(vec![Input::Fetched(Stage::key(1), AttemptNo(1), Ok(files()))]), "");
    assert_eq!(stage.posted(2, rejected()), "post 3#1");
    assert_eq!(stage.posted(3, rejected()), "post 4#1");
    assert_eq!(stage.posted(4, rejected()), "", "three in a row");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Paused)));
    assert_eq!(stage.batch.paused, Some(crate::store::Pause::Rejections));
}

#[test]
fn nothing_is_sent_before_the_balance_is_known_to_leave_enough() {
    let keep = Limits { min_balance: Some(Credits(100)), ..settings().limits };
    let mut stage = Stage::with(5, Settings { limits: keep, ..settings() });
    assert_eq!(stage.step(vec![]), "balance?");
    assert_eq!(stage.scheduler.standstill(), None);
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(125)))]), "post 0#1, post 1#1");
}

#[test]
fn a_full_disk_parks_and_goes_on_when_there_is_room() {
    let mut stage = Stage::of(2);
    assert_eq!(stage.step(vec![Input::DiskIsLow(true)]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Disk)));
    assert_eq!(stage.step(vec![Input::DiskIsLow(false)]), "post 0#1, post 1#1");
}

/// However often: the file is paid for, and the disk is what is waited for.
#[test]
fn a_disk_that_refuses_files_parks_and_no_file_is_given_up() {
    let mut stage = Stage::of(3);
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1, post 2#1");
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    for _ in 0..20 {
        let refused = FetchFault::DiskRefuses { fault: fault("disk"), wanted_bytes: 500 };
        assert_eq!(stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Err(refused))]), "");
        assert_eq!(stage.scheduler.refused_bytes(), Some(500));
        assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]).matches("fetch").count(), 0);
        assert!(stage.step(vec![Input::DiskIsLow(false)]).contains("fetch 0#1"));
        assert_eq!(stage.scheduler.refused_bytes(), None);
    }
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
}

#[test]
fn a_day_budget_resumes_at_midnight() {
    let day = Limits { per_day: Some(Credits(10)), ..settings().limits };
    let mut stage = Stage::with(2, Settings { limits: day, ..settings() });
    assert_eq!(stage.step(vec![]), "post 0#1");
    stage.posted(0, task("success"));
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::DayBudget)));
    assert!(stage.scheduler.watches_the_calendar());
    assert_eq!(stage.pass(Millis(86_400_000)).step(vec![]), "post 1#1");
}

#[test]
fn a_charge_that_differs_pauses_the_batch_when_its_policy_says_so() {
    let mut stage =
        Stage::with(3, Settings { limits: Limits { in_flight: 1, ..settings().limits }, ..settings() });
    stage.batch.policy.on_drift = Some(crate::domain::manifest::row::OnDrift::Pause);
    stage.batch.policy.budget = Some(Credits(100));
    stage.scheduler.add_batch(stage.batch.clone());
    assert_eq!(stage.step(vec![]), "post 0#1");
    let dear = TaskReading { charged: Some(Credits(PRICE * 2)), ..reading("success") };
    assert_eq!(stage.posted(0, PostAnswer::Task(dear)), "fetch 0#1", "what is paid for is collected");
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.batch.paused, Some(crate::store::Pause::Drift));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Paused)));
    // Of another one its person has been told when it is resumed.
    stage.scheduler.execute(Command::Resume(BatchNo(1)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "post 1#1");
    let dear = TaskReading { charged: Some(Credits(PRICE * 2)), ..reading("success") };
    assert_eq!(stage.posted(1, PostAnswer::Task(dear)), "fetch 1#1");
    assert_eq!(stage.batch.paused, Some(crate::store::Pause::Drift));
    stage.scheduler.execute(Command::Resume(BatchNo(1)), stage.now).unwrap();
    let fetched = Input::Fetched(Stage::key(1), AttemptNo(1), Ok(files()));
    assert_eq!(stage.step(vec![fetched]), "post 2#1", "its end says nothing new");
    assert_eq!(stage.batch.paused, None);
    // The owner's own pause gives way to it.
    stage.scheduler.execute(Command::Pause(BatchNo(1)), stage.now).unwrap();
    let dear = TaskReading { charged: Some(Credits(PRICE * 2)), ..reading("success") };
    stage.posted(2, PostAnswer::Task(dear));
    assert_eq!(stage.batch.paused, Some(crate::store::Pause::Drift));
}

#[test]
fn a_stop_that_comes_with_the_last_answer_leaves_nothing_unfinished() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("success"));
    let fetched = Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()));
    stage.step(vec![Input::Stop, fetched]);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
}
