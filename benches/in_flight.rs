//! 100,000 tasks in flight: are they read on time, and what does that cost?
//!
//! `cargo bench --bench in_flight [-- TASKS]`. The scheduler is the product's own; the service is simulated, and
//! so is the clock: it runs on by what each step really took of the processor, by what a commit takes
//! (`COMMIT`, assumed), and to the next event when there is nothing to do. So a slow turn makes polls late here
//! just as it would in earnest, and nothing waits.
//!
//! A poll is late by what passed between the answer before it and its own beginning, less `poll.max`. The first
//! poll of a task is left out.
//!
//! What a task takes of memory is what the scheduler frees with it at the end. Counting it is part of the measured time.
//!
//! What is within reach. 100,000 tasks, each read every 5 to 10 seconds, are some 13,000 polls a second. The
//! scheduler decides them in an eighth of one core, and what a step costs grows with what happens, not with what is open.
//! The engine has 64 exchanges open at once, and one more for every hundred tasks that may be in flight beyond
//! 6,400, at most 1,024 (`EXCHANGES_MAX` in `src/engine/mod.rs`). With 64, a poll may take 64 / 13,000 s = 5 ms, the
//! answer included: a service next door answers like that. Across the internet, at 50 ms, 64 exchanges are 1,280
//! polls a second, enough for some 10,000 tasks on time; reading 100,000 on time takes some 700, and
//! `polls_per_second` must allow it. Where it does not, none is forgotten, and nothing but time is lost. Sending the
//! requests costs more of the processor than deciding them: a bare client reached some 15,000
//! exchanges a second on two cores, so that 100,000 on two cores is the edge of what a machine like that can do
//! at all, and 10,000 is comfortable.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::alloc::System;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use callsheet::domain::admission::Limits;
use callsheet::domain::credits::Credits;
use callsheet::domain::ids::{AttemptNo, BatchNo, Fingerprint, JobId, JobKey, Seq, TaskId};
use callsheet::domain::job::{JobSpec, Order, OrderTerms, OutputFile};
use callsheet::domain::job_state::JobState;
use callsheet::domain::json_object::JsonObject;
use callsheet::domain::ledger::Totals;
use callsheet::domain::request::Kind;
use callsheet::domain::retry_delay::Backoff;
use callsheet::domain::task::{PostAnswer, ReadAnswer, TaskReading, TaskStatus};
use callsheet::domain::time::{Millis, Now, Tick, Timestamp};
use callsheet::engine::scheduler::{Effect, Input, Scheduler, Settings, SpooledRow};
use callsheet::store::{BatchRecord, Segment};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Microseconds.
type Micros = u64;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What a commit is assumed to take.
const COMMIT: Micros = 2_000;
/// How long is measured, once everything is in flight.
const MEASURED: Micros = 60_000_000;
const POLL_MIN: Millis = Millis(5_000);
const POLL_MAX: Millis = Millis(10_000);

fn main() {
    let tasks: u32 = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(100_000);
    for (exchanges, answer_ms) in [(64, 4), (64, 50), (1_024, 50)] {
        let mut world = World::new(tasks, exchanges, answer_ms * 1_000);
        world.fill();
        world.measure();
        world.report(exchanges, answer_ms);
        world.report_memory();
    }
}

/// Something on its way back, by arrival.
type OutputSpec = Reverse<(Micros, u64)>;

struct World {
    scheduler: Scheduler,
    now: Micros,
    wake: Option<Tick>,
    tasks: u32,
    free_exchanges: u32,
    answer: Micros,
    arrivals: BinaryHeap<OutputSpec>,
    inputs: HashMap<u64, Input>,
    next_input: u64,
    waiting: VecDeque<JobKey>,
    /// When a task ends, and when it was last heard of; nothing before it was read once.
    lives: BTreeMap<JobKey, (Micros, Option<Micros>)>,
    random: fastrand::Rng,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    since: Micros,
    steps: Vec<Micros>,
    processor: Micros,
    polls: u64,
    /// From one answer to the next poll.
    intervals: Vec<Micros>,
}

impl World {
    fn new(tasks: u32, exchanges: u32, answer: Micros) -> World {
        let mut scheduler = Scheduler::new(settings(tasks), Totals::default());
        let rows = tasks * 4;
        let mut batch = BatchRecord::new(BatchNo(1), "b".parse().unwrap(), Timestamp(0));
        batch.rows = rows;
        batch.planned = Credits(10 * u64::from(rows));
        batch.segments.push(Segment::mixed(0, 0, u64::from(rows)));
        scheduler.add_batch(batch);
        World {
            scheduler,
            now: 0,
            wake: None,
            tasks,
            free_exchanges: exchanges,
            answer,
            arrivals: BinaryHeap::new(),
            inputs: HashMap::new(),
            next_input: 0,
            waiting: VecDeque::new(),
            lives: BTreeMap::new(),
            random: fastrand::Rng::with_seed(1),
            seen: Seen::default(),
        }
    }

    fn fill(&mut self) {
        while self.lives.len() < self.tasks as usize {
            self.step();
        }
        // Until the polls of the beginning have spread out.
        let settled = self.now + 30_000_000;
        while self.now < settled {
            self.step();
        }
    }

    fn measure(&mut self) {
        self.seen = Seen { since: self.now, ..Seen::default() };
        while self.now < self.seen.since + MEASURED {
            self.step();
        }
    }

    /// What has arrived goes in, what comes out begins.
    fn step(&mut self) {
        let mut inputs = Vec::new();
        while inputs.len() < Scheduler::INPUTS_MAX
            && self.arrivals.peek().is_some_and(|Reverse((at, _))| *at <= self.now)
        {
            let Some(Reverse((at, number))) = self.arrivals.pop() else { break };
            let input = self.inputs.remove(&number).unwrap();
            if let Input::Read(key, ..) = &input {
                self.free_exchanges += 1;
                if let Some((_, heard)) = self.lives.get_mut(key) {
                    *heard = Some(at);
                }
            }
            inputs.push(input);
        }
        self.begin_polls();
        let now =
            Now { wall: Timestamp(i64::try_from(self.now / 1_000).unwrap()), tick: Tick(self.now / 1_000) };
        let began = Instant::now();
        let step = self.scheduler.step(inputs, now).unwrap();
        let standstill = self.scheduler.standstill();
        let took = Micros::try_from(began.elapsed().as_micros()).unwrap();
        assert!(standstill.is_none() || !self.arrivals.is_empty(), "it stands still");
        self.seen.steps.push(took);
        self.seen.processor += took;
        self.now += took + if step.changes.is_empty() { 0 } else { COMMIT };
        self.wake = step.wake;
        for effect in step.effects {
            self.begin(effect);
        }
        self.begin_polls();
        self.pass();
    }

    /// To the next arrival, or to when the scheduler wants to wake.
    fn pass(&mut self) {
        let output_spec = self.arrivals.peek().map(|Reverse((at, _))| *at);
        let wake = self.wake.map(|tick| tick.0 * 1_000);
        if let Some(next) = [output_spec, wake].into_iter().flatten().min() {
            self.now = self.now.max(next);
        }
    }

    fn arrive(&mut self, after: Micros, input: Input) {
        self.next_input += 1;
        self.inputs.insert(self.next_input, input);
        self.arrivals.push(Reverse((self.now + after, self.next_input)));
    }

    fn begin(&mut self, effect: Effect) {
        match effect {
            Effect::Post { key, attempt, .. } => {
                let ends = self.now + self.random.u64(120_000_000..600_000_000);
                self.lives.insert(key, (ends, None));
                self.arrive(
                    self.answer,
                    Input::Posted(key, attempt, PostAnswer::Task(reading(key, "pending"))),
                );
            }
            Effect::Read { key, .. } => self.waiting.push_back(key),
            Effect::Fetch(order) => {
                self.lives.remove(&order.key);
                self.arrive(self.answer, Input::Fetched(order.key, order.attempt, Ok(vec![file()])));
            }
            Effect::LoadRows { batch, from, end, most } => {
                let rows = (from..end).take(most).map(row).collect();
                self.arrive(500, Input::Rows { batch, from, rows });
            }
            Effect::FindInputs { .. }
            | Effect::LoadEnded { .. }
            | Effect::AskBalance
            | Effect::RenewCatalog
            | Effect::KeepSurcharges(_)
            | Effect::GoBack { .. } => {}
        }
    }

    fn begin_polls(&mut self) {
        while self.free_exchanges > 0
            && let Some(key) = self.waiting.pop_front()
        {
            self.free_exchanges -= 1;
            let (ends, heard) = self.lives[&key];
            self.seen.polls += 1;
            self.seen.intervals.extend(heard.map(|heard| self.now - heard));
            let status = if ends <= self.now { "success" } else { "processing" };
            self.arrive(self.answer, Input::Read(key, AttemptNo(1), ReadAnswer::Task(reading(key, status))));
        }
    }

    fn report(&mut self, exchanges: u32, answer_ms: Micros) {
        let Seen { since, steps, processor, polls, intervals } = &mut self.seen;
        let seconds = (self.now - *since) as f64 / 1e6;
        let ms = |micros: Micros| micros as f64 / 1e3;
        println!("{} tasks, {exchanges} exchanges of {answer_ms} ms at once:", self.tasks);
        println!(
            "  {:.0} polls/s; every {:.1} s (median); {:.0} % of a core to decide",
            *polls as f64 / seconds,
            ms(at(intervals, 0.5)) / 1e3,
            *processor as f64 / 1e4 / seconds
        );
        let late = |interval: Micros| ms(interval.saturating_sub(POLL_MAX.0 * 1_000));
        println!("  late: p99 {:.0} ms, worst {:.0} ms", late(at(intervals, 0.99)), late(at(intervals, 1.0)));
        println!(
            "  a turn: {} of them, median {:.2} ms, p99 {:.2} ms, worst {:.2} ms",
            steps.len(),
            ms(at(steps, 0.5)),
            ms(at(steps, 0.99)),
            ms(at(steps, 1.0))
        );
        let began = Instant::now();
        let overview = self.scheduler.overview();
        println!(
            "  an overview: {:.3} ms ({:?})",
            ms(began.elapsed().as_micros() as u64),
            overview[0].states
        );
        let running = overview[0].states[JobState::Running];
        assert!(running >= self.tasks / 10 * 9, "only {running} of the tasks run");
    }

    /// What the scheduler keeps of each task, by what is freed with it. glibc takes a word more for each piece of memory, and
    /// rounds up to two words.
    fn report_memory(self) {
        let tasks = self.lives.len();
        let freed = Region::new(ALLOCATOR);
        drop(self.scheduler);
        let freed = freed.change();
        println!(
            "  memory for each task: {} bytes, in {:.1} pieces",
            freed.bytes_deallocated / tasks,
            freed.deallocations as f64 / tasks as f64
        );
    }
}

/// The value that this share of them does not pass.
fn at(values: &mut [Micros], share: f64) -> Micros {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share) as usize).copied().unwrap_or_default()
}

fn settings(tasks: u32) -> Settings {
    Settings {
        limits: Limits {
            in_flight: tasks,
            in_flight_per_kind: BTreeMap::new(),
            in_flight_per_model: BTreeMap::from([("house-c1".to_owned(), tasks)]),
            total: None,
            per_day: None,
            min_balance: None,
        },
        submits_per_second: None,
        requests_at_once: 1_000,
        adaptive: true,
        rejections: 5,
        downloads: 64,
        scratch_max: None,
        poll_min: POLL_MIN,
        poll_max: POLL_MAX,
        deadlines: BTreeMap::from([(Kind::Video, Millis::from_secs(1_800))]),
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

fn row(at: u64) -> SpooledRow {
    let seq = u32::try_from(at).unwrap();
    let body = json!({"model": "house-c1", "prompt": format!("a boat {seq}"), "options": {"duration": "5s"}});
    let order = Order {
        line: at + 2,
        body: serde_json::from_value(body).unwrap(),
        inputs: Default::default(),
        files: Default::default(),
        written: None,
        meta: JsonObject::default(),
        terms: OrderTerms {
            model: Some("house-c1".to_owned()),
            price: Some(Credits(10)),
            formula: "2 a second x 5 s".to_owned(),
            ..OrderTerms::of(Kind::Video)
        }
        .into(),
    };
    let id = JobId(u128::from(seq).to_be_bytes());
    let spec = JobSpec {
        seq: Seq(seq),
        id,
        fingerprint: Fingerprint(id.0),
        variation: 1,
        label: format!("boat-{seq}"),
        apart: false,
        order,
    };
    SpooledRow { at, end: at + 1, spec: Arc::new(spec) }
}

fn reading(key: JobKey, status: &str) -> TaskReading {
    TaskReading {
        id: TaskId(format!("6f1c2f9e-53b5-4a6d-9b64-{:012x}", key.seq.0).into()),
        status: TaskStatus::from_wire(status),
        model: Some("house-c1/text-to-video".into()),
        options: Some(
            serde_json::from_value(json!({"duration": "5s", "resolution": "720p", "aspect_ratio": "16:9"}))
                .unwrap(),
        ),
        charged: Some(Credits(10)),
        waived: Some(Credits::ZERO),
        urls: if status == "success" { vec!["http://r/1.mp4".into()] } else { vec![] },
        fault: None,
        record: None,
    }
}

fn file() -> OutputFile {
    OutputFile {
        path: "a.mp4".into(),
        bytes: 1,
        sha256: String::new(),
        content_type: "video/mp4".into(),
        edited: None,
        object: None,
    }
}
