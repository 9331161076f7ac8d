//! Many tasks at once: when they are read, and what that costs.

use super::*;

/// A service whose tasks take some minutes and whose answers take up to a second.
struct Crowd {
    scheduler: Scheduler,
    now: Tick,
    random: fastrand::Rng,
    /// What arrives when; the number only keeps two of one moment apart.
    arrivals: BTreeMap<(Tick, u32), Input>,
    /// When each task ends.
    ends: BTreeMap<JobKey, Tick>,
    /// When each was last heard of, and whether it had been read before.
    heard: BTreeMap<JobKey, (Tick, bool)>,
    polls: u32,
    number: u32,
}

impl Crowd {
    fn of(tasks: u32) -> Crowd {
        let stage = Stage::with(
            tasks,
            Settings { limits: Limits { in_flight: tasks, ..settings().limits }, ..settings() },
        );
        Crowd {
            scheduler: stage.scheduler,
            now: Tick(0),
            random: fastrand::Rng::with_seed(3),
            arrivals: BTreeMap::new(),
            ends: BTreeMap::new(),
            heard: BTreeMap::new(),
            polls: 0,
            number: 0,
        }
    }

    fn step(&mut self) {
        let later = self.arrivals.split_off(&(self.now.after(Millis(1)), 0));
        let inputs: Vec<Input> = std::mem::replace(&mut self.arrivals, later).into_values().collect();
        for input in &inputs {
            if let Input::Posted(key, ..) | Input::Read(key, ..) = input {
                let read = matches!(input, Input::Read(..));
                self.heard.insert(*key, (self.now, read));
            }
        }
        let wall = Timestamp(i64::try_from(self.now.0).unwrap());
        let inputs = inputs.into_iter().map(super::of_its_own_task).collect();
        let step = self.scheduler.step(inputs, Now { wall, tick: self.now }).unwrap();
        for effect in step.effects {
            self.begin(effect);
        }
        let output_spec = self.arrivals.first_key_value().map(|((at, _), _)| *at);
        if let Some(next) = [output_spec, step.wake].into_iter().flatten().min() {
            self.now = self.now.max(next);
        }
    }

    fn begin(&mut self, effect: Effect) {
        let input = match effect {
            Effect::Post { key, attempt, .. } => {
                let took = Millis(self.random.u64(60_000..240_000));
                self.ends.insert(key, self.now.after(took));
                Input::Posted(key, attempt, task("pending"))
            }
            Effect::Read { key, attempt, .. } => {
                self.polls += 1;
                let (heard, read_before) = self.heard[&key];
                let waited = self.now.since(heard);
                let Settings { poll_min, poll_max, .. } = settings();
                assert!(waited >= poll_min, "{key:?} is read again after {waited:?}");
                assert!(waited <= poll_max || !read_before, "{key:?} is read after {waited:?} only");
                let status = if self.ends[&key] <= self.now { "success" } else { "processing" };
                Input::Read(key, attempt, ReadAnswer::Task(reading(status)))
            }
            Effect::Fetch(order) => {
                // Nothing is read any more from here on.
                self.heard.remove(&order.key);
                Input::Fetched(order.key, order.attempt, Ok(files()))
            }
            Effect::LoadRows { batch, from, end, most } => {
                let row = |at: u64| SpooledRow {
                    at,
                    end: at + 1,
                    spec: spec(u32::try_from(at).unwrap(), Kind::Video),
                };
                Input::Rows { batch, from, rows: (from..end).take(most).map(row).collect() }
            }
            Effect::AskBalance
            | Effect::RenewCatalog
            | Effect::KeepSurcharges(_)
            | Effect::GoBack { .. }
            | Effect::FindInputs { .. }
            | Effect::LoadEnded { .. } => {
                return;
            }
        };
        self.number += 1;
        let at = self.now.after(Millis(self.random.u64(1..1_000)));
        self.arrivals.insert((at, self.number), input);
    }
}

#[test]
fn a_task_that_the_service_forgot_is_never_called_done() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    let began = stage.now.tick;
    let mut readings = 0;
    while stage.ended.is_empty() && readings < 40 {
        if stage.pass(Millis(10_000)).step(vec![]) == "read 0#1" {
            readings += 1;
            stage.read(0, ReadAnswer::Missing(fault("not_found")));
        }
    }
    assert_eq!(stage.ended, ["job-0 in_doubt"]);
    let lasted = stage.now.tick.since(began);
    assert!(lasted >= Millis::from_secs(3_600), "no moment of the service is believed: {lasted:?}");
    assert_eq!(stage.batch.totals.spent, Credits(10), "its charge stays until a person decides");
}

/// A run ends that has nothing but overdue tasks to read, long before an hour is over.
#[test]
fn a_task_that_is_missing_at_a_start_an_hour_after_its_deadline_is_in_doubt() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    let ends = |stage: &mut Stage| {
        for _ in 0..400 {
            if stage.scheduler.standstill().is_some() {
                return;
            }
            if stage.pass(Millis(10_000)).step(vec![]) == "read 0#1" {
                stage.read(0, ReadAnswer::Missing(fault("not_found")));
            }
        }
        panic!("it never ends");
    };
    ends(&mut stage);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue));
    assert!(stage.ended.is_empty(), "{:?}", stage.ended);
    stage.pass(Millis::from_secs(3_600));
    stage.restart();
    ends(&mut stage);
    assert_eq!(stage.ended, ["job-0 in_doubt"]);
}

/// A deploy, another copy of its records that lags, or the key of another account for a while.
#[test]
fn tasks_that_are_not_found_for_less_than_an_hour_are_read_again_and_their_jobs_end_as_usual() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    let began = stage.now.tick;
    for _ in 0..2 {
        let since = stage.now.tick;
        while stage.now.tick.since(since) < Millis::from_secs(50 * 60) {
            if stage.pass(Millis(10_000)).step(vec![]) == "read 0#1" {
                stage.read(0, ReadAnswer::Missing(fault("not_found")));
            }
        }
        stage.pass_until("read 0#1");
        stage.read(0, ReadAnswer::Task(reading("processing")));
    }
    assert!(stage.now.tick.since(began) > Millis::from_secs(5_000));
    assert!(stage.ended.is_empty(), "{:?}", stage.ended);
    stage.pass_until("read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
}

#[test]
fn a_thousand_tasks_are_read_on_time_and_never_after_their_end() {
    let mut crowd = Crowd::of(1_000);
    while crowd.scheduler.standstill().is_none() {
        crowd.step();
        assert!(crowd.now < Tick(3_600_000), "it never ends");
    }
    assert_eq!(crowd.scheduler.standstill(), Some(Standstill::Done));
    assert!(crowd.polls > 6_000, "{} polls", crowd.polls);
    assert!(crowd.scheduler.jobs.counts_right());
}

#[test]
fn what_is_due_beyond_the_readings_at_once_waits_for_the_end_of_one_and_holds_back_nothing_else() {
    let limits = Limits { in_flight: 70, ..settings().limits };
    let mut stage = Stage::with(71, Settings { limits, ..settings() });
    stage.scheduler.adaptive_limit = AdaptiveLimit::new(70, false);
    while stage.durable.len() < 70 {
        stage.step(vec![]);
    }
    let posted = |seq| Input::Posted(Stage::key(seq), AttemptNo::FIRST, task("pending"));
    stage.step((0..70).map(posted).collect());
    let first = stage.pass(Millis(20_000)).step(vec![]);
    assert_eq!(first.matches("read").count(), 64, "{first}");
    assert_eq!(stage.pass(Millis(20_000)).step(vec![]), "", "all others wait for these");
    let begun: Vec<u32> = (first.split(", "))
        .filter_map(|what| what.strip_prefix("read ")?.strip_suffix("#1")?.parse().ok())
        .collect();
    let waiting: Vec<u32> = (0..70).filter(|seq| !begun.contains(seq)).collect();
    let next = stage.read(begun[0], ReadAnswer::Task(reading("failed")));
    assert!(next.contains("post 70#1"), "a slot in flight is free for the last row: {next}");
    assert!(waiting.iter().any(|seq| next.contains(&format!("read {seq}#1"))), "{next}");
    assert_eq!(next.matches("read").count(), 1, "{next}");
    let rest = (begun[1..6].iter()).map(|seq| stage.read(*seq, ReadAnswer::Task(reading("processing"))));
    assert_eq!(
        rest.collect::<Vec<_>>().join(", ").matches("read").count(),
        5,
        "those that waited come first"
    );
    stage.restart();
    let anew = stage.pass(Millis(20_000)).step(vec![]);
    assert_eq!(anew.matches("read").count(), 64, "the next process reads anew: {anew}");
}

#[test]
fn a_reading_that_says_nothing_new_costs_no_commit() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.pass(Millis(10_000)).step(vec![]);
    let running = || ReadAnswer::Task(TaskReading { model: Some("m".into()), ..reading("processing") });
    stage.read(0, running());
    let before = stage.commits;
    for _ in 0..5 {
        assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "read 0#1");
        stage.read(0, running());
    }
    assert_eq!(stage.commits, before);
    stage.pass(Millis(10_000)).step(vec![]);
    let dearer = TaskReading { charged: Some(Credits(12)), ..reading("processing") };
    stage.read(0, ReadAnswer::Task(dearer));
    assert_eq!(stage.commits, before + 1, "another charge is news");
}

#[test]
fn a_model_with_a_limit_of_its_own_holds_back_no_other() {
    let per_model = BTreeMap::from([("slow".to_owned(), 1)]);
    let limits = Limits { in_flight_per_model: per_model, ..settings().limits };
    let mut stage = Stage::with(4, Settings { limits, ..settings() });
    for (seq, model) in ["slow", "slow", "fast", "slow"].into_iter().enumerate() {
        let mut spec = (*stage.specs[seq]).clone();
        spec.order.terms_mut().model = Some(model.to_owned());
        stage.specs[seq] = Arc::new(spec);
    }
    assert_eq!(stage.step(vec![]), "post 0#1, post 2#1");
    assert_eq!(stage.posted(2, task("pending")), "");
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1, post 1#1", "its slot is free again");
}

#[test]
fn what_is_overdue_does_not_hold_back_new_work() {
    let one = Limits { in_flight: 1, ..settings().limits };
    let mut stage = Stage::with(12, Settings { limits: one, ..settings() });
    for seq in 0..12 {
        let said = stage.step(vec![]);
        assert!(said.split(", ").any(|what| what == format!("post {seq}#1")), "{seq}: {said}");
        stage.posted(seq, task("pending"));
        stage.pass(Millis::from_secs(1_800));
    }
}
