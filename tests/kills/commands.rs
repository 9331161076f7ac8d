//! What people do, drawn from a seed and several at once, while the daemon is killed and started again and the service
//! fails: manifests that are edited and handed in again by command and by inbox, batches and jobs that are canceled,
//! retried, paused, reviewed and limited.
//!
//! After every life the service's books are read: a job has one charge at most that was not given back. At the end what
//! is wanted comes to its end by the commands that `explain` names, and the ledger is the service's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::kills::setup::Story;
use crate::support::accounting::Task;
use crate::support::process::Outcome;
use crate::support::{TestEnv, fault_matrix, until};

/// Who gives commands at once.
const PEOPLE: usize = 2;
/// More than an hour of it costs.
const ENOUGH: &str = "900000";
/// Rounds in which everything comes to its end.
const LAST_ROUNDS: usize = 40;
/// The last one has rows that take outputs of others.
const BATCHES: [&str; 3] = ["posters", "mixed", "story"];
/// What parks rows until a person says what to do, as the end of a command that helps.
const HELP: [&str; 3] = ["review pick", "review approve", "continue"];

/// What came of some rounds.
#[derive(Debug, Default)]
pub struct CommandCounts {
    pub kills: usize,
    pub commands: usize,
    pub jobs: usize,
    pub tasks: usize,
    pub replays: u64,
}

impl CommandCounts {
    pub fn add(&mut self, other: &CommandCounts) {
        self.kills += other.kills;
        self.commands += other.commands;
        self.jobs += other.jobs;
        self.tasks += other.tasks;
        self.replays += other.replays;
    }
}

impl fmt::Display for CommandCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CommandCounts { kills, commands, jobs, tasks, replays } = self;
        write!(f, "{kills} kills, {commands} commands, {jobs} jobs, {tasks} tasks, {replays} keys sent again")
    }
}

/// One service, one state, and some people.
pub struct CommandsRun {
    env: TestEnv,
    random: fastrand::Rng,
    commands: AtomicUsize,
    story: Mutex<Story>,
}

impl CommandsRun {
    pub fn new(seed: u64) -> CommandsRun {
        let mut random = fastrand::Rng::with_seed(seed);
        let env = TestEnv::with_credits(10_000_000);
        let (in_flight, day) = ([1, 3, 16][random.usize(0..3)], [60, 900_000][random.usize(0..2)]);
        configure(&env, in_flight, day);
        let faults = faults(&mut random);
        env.faults(&faults);
        let mut story = Story::default();
        story.push(format!("{in_flight} in flight, {day} credits a day\n{faults}"));
        CommandsRun { env, random, commands: AtomicUsize::new(0), story: Mutex::new(story) }
    }

    /// Lives and kills, with people at work all the time; then what is left comes to its end.
    pub fn play(mut self, kills: usize) -> CommandCounts {
        let mut random = self.random.fork();
        let seeds: Vec<u64> = (0..PEOPLE).map(|_| self.random.u64(..)).collect();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (person, seed) in seeds.into_iter().enumerate() {
                let (run, is_over) = (&self, &is_over);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    while !is_over.load(Ordering::Relaxed) {
                        run.give_an_order(person, &mut random);
                    }
                });
            }
            // People are told to stop whatever ends this.
            let _told = OnDrop(|| is_over.store(true, Ordering::Relaxed));
            for _ in 0..kills {
                let life = Duration::from_millis(random.u64(50..900));
                let outcome = self.env.start(["daemon"]).end_or_kill_after(life);
                self.tell(format!("a daemon lives for {life:?}: {:?}, {:?}", outcome.code, outcome.signal));
                // Without a daemon, a download works on the state itself.
                let is_usual = outcome.signal == Some(9) || outcome.stderr.contains("is in use by process");
                assert!(is_usual, "it ended by itself: {outcome:?}");
                self.standing();
            }
        });
        self.comes_to_its_end();
        self.check(kills)
    }

    fn tell(&self, what: String) {
        self.story.lock().unwrap().push(what);
    }

    /// Runs a command to its end. That the daemon is killed before it answers is no fault of the command.
    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> Outcome {
        let outcome = self.env.run(arguments.iter().copied());
        let words = arguments.join(" ");
        self.tell(format!("{words}: {:?} {}", outcome.code, outcome.stderr.trim_end()));
        self.commands.fetch_add(1, Ordering::Relaxed);
        let is_usual = matches!(outcome.code, Some(0 | 1 | 2 | 4 | 5 | 7));
        assert!(is_usual && !outcome.stderr.contains("panicked"), "{words}: {outcome:?}");
        outcome
    }

    fn jobs(&self, batch: &[&str]) -> Vec<Value> {
        let told = self.ask(&[&["jobs", "--json"], batch].concat());
        // A daemon that is killed may have answered in part.
        let told = if told.code == Some(0) { told.stdout } else { String::new() };
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn give_an_order(&self, person: usize, random: &mut fastrand::Rng) {
        let batch = BATCHES[random.usize(0..BATCHES.len())];
        match random.u32(0..20) {
            0..5 => self.hand_in(batch, person, random),
            5 => drop(self.ask(&["pause", batch])),
            6 | 7 => drop(self.ask(&["resume", batch])),
            8 => drop(self.ask(&["cancel", batch])),
            9 => drop(self.ask(&["retry", batch])),
            10 => drop(self.ask(&["budget", batch, ["0", "30", "300", "none"][random.usize(0..4)]])),
            11 => drop(self.ask(&["continue", batch])),
            12 => drop(self.ask(&["download", batch])),
            13 => drop(self.ask(&["status", batch, "--json"])),
            _ => {
                let jobs = self.jobs(&[batch]);
                if !jobs.is_empty() {
                    self.order_about(&jobs[random.usize(0..jobs.len())], random);
                }
            }
        }
    }

    /// A manifest with other words, other rows or other terms than before.
    fn hand_in(&self, batch: &str, person: usize, random: &mut fastrand::Rng) {
        let text = manifest(batch, random);
        if random.u32(0..3) == 0 {
            let draft = self.env.write(&format!("jobs/inbox/.{person}.tmp"), &text);
            std::fs::rename(draft, self.env.path(&format!("jobs/inbox/{batch}-{person}.json"))).unwrap();
            return self.tell(format!("into the inbox: {text}"));
        }
        let name = format!("{person}.json");
        self.env.write(&name, &text);
        self.tell(format!("{name}: {text}"));
        let more: &[&str] = match random.u32(0..8) {
            0 => &["--pilot", "2"],
            1 => &["--first", "2"],
            2 => &["--budget", "30"],
            3 => &["--review"],
            _ => &[],
        };
        self.ask(&[&["submit", &name], more].concat());
    }

    fn order_about(&self, job: &Value, random: &mut fastrand::Rng) {
        let id = text(job, "job");
        match random.u32(0..8) {
            0 => drop(self.ask(&["cancel", id])),
            1 => drop(self.ask(&["retry", id])),
            2 => drop(self.ask(&["retry", id, "--set", "meta.edition=2"])),
            3 => drop(self.ask(&["explain", id])),
            4 => self.buy_another_take(id),
            other => {
                let verb =
                    ["approve", "reject", "pick", "withdraw"][(other as usize + random.usize(0..4)) % 4];
                self.ask(&["review", verb, id]);
            }
        }
    }

    fn buy_another_take(&self, id: &str) {
        let shown = self.ask(&["review", "another-take", id, "--json"]);
        if shown.code != Some(0) {
            return;
        }
        let (take, price) = (shown.json()["take"].to_string(), shown.json()["price_credits"].to_string());
        self.ask(&["review", "another-take", id, "--take", &take, "--price", &price]);
    }

    /// The task of each job that is paid for, by the job's identity. At any moment, what a job was charged stands once at
    /// most.
    #[track_caller]
    fn standing(&self) -> BTreeMap<String, Task> {
        let audit = self.env.audit();
        let totals = &audit.totals;
        assert_eq!(
            (totals.foreign_body_replays, totals.media_requests_with_key, totals.without_key),
            (0, 0, 0)
        );
        let mut standing = BTreeMap::new();
        for task in audit.tasks.into_iter().filter(|task| task.refunds == 0) {
            assert!(task.charges <= 1, "{task:#?}");
            let (job, _) = task.job_and_attempt().unwrap();
            if let Some(other) = standing.insert(job.to_owned(), task) {
                panic!("a job is paid for twice: {other:#?}");
            }
        }
        standing
    }

    /// The service works, nothing limits, and a person follows what `explain` says, until nothing is left to do.
    fn comes_to_its_end(&self) {
        self.env.faults("");
        configure(&self.env, 16, 900_000);
        let daemon = self.env.daemon("info");
        until("the inbox to be empty", || {
            let entries = std::fs::read_dir(self.env.path("jobs/inbox")).into_iter().flatten();
            entries
                .filter(|entry| entry.as_ref().unwrap().path().extension() == Some("json".as_ref()))
                .count()
                == 0
        });
        for _ in 0..LAST_ROUNDS {
            let jobs = self.jobs(&[]);
            let left: Vec<&Value> = jobs.iter().filter(|job| !is_settled(job)).collect();
            if left.iter().all(|job| self.is_for_another_manifest(job)) {
                daemon.stop();
                return;
            }
            let batches: BTreeSet<&str> = left.iter().map(|job| text(job, "batch")).collect();
            for batch in batches {
                self.ask(&["budget", batch, ENOUGH]);
                self.ask(&["resume", batch]);
                self.ask(&["continue", batch]);
                self.ask(&["retry", batch]);
            }
            for job in &left {
                self.follow_the_advice(text(job, "job"));
            }
            let is_at_work =
                |job: &Value| ["submitting", "running", "fetching"].contains(&text(job, "state"));
            until("what is in flight to end", || !self.jobs(&[]).iter().any(is_at_work));
        }
        panic!("it comes to no end: {:#?}", self.jobs(&[]));
    }

    fn next_step(&self, id: &str) -> String {
        self.ask(&["explain", id, "--json"]).exited(0).json()["next"].as_str().unwrap().to_owned()
    }

    /// Whether a row waits for one that was edited since, and its manifest has to come in again.
    fn is_for_another_manifest(&self, job: &Value) -> bool {
        self.next_step(text(job, "job")).contains("submit the manifest of this row again")
    }

    fn follow_the_advice(&self, id: &str) {
        let next = self.next_step(id);
        for verb in HELP {
            let Some((_, rest)) = next.split_once(&format!("callsheet {verb} ")) else { continue };
            let name = rest.split([' ', ',', ';']).next().unwrap();
            let words: Vec<&str> = verb.split(' ').chain([name]).collect();
            self.ask(&words);
        }
    }

    /// The service's books, ours, and what lies on disk.
    fn check(&self, kills: usize) -> CommandCounts {
        let (audit, mut standing) = (self.env.audit(), self.standing());
        let jobs = self.jobs(&[]);
        for job in &jobs {
            let task = standing.remove(text(job, "job"));
            assert_eq!(
                job["charged_credits"].as_u64(),
                Some(task.as_ref().map_or(0, |task| task.charged_credits)),
                "{job:#}"
            );
            assert!(task.is_some() || job["state"] != "succeeded", "nobody paid for {job:#}");
            for file in job["files"].as_array().unwrap() {
                let path = self.env.path(&format!("output/{}/{}", text(job, "batch"), text(file, "path")));
                let length = std::fs::metadata(&path).map(|meta| meta.len()).ok();
                assert_eq!(length, file["bytes"].as_u64(), "{}", path.display());
            }
        }
        assert!(standing.is_empty(), "nobody asked for {standing:#?}");
        let ledger = self.ask(&["ledger", "--csv"]).exited(0).stdout;
        let net = audit.totals.charged_credits - audit.totals.refunded_credits;
        assert_eq!(fault_matrix::movements(&ledger), (0, net), "the ledger: held, charged");
        self.ask(&["state", "verify"]).exited(0).says("all fits");
        let commands = self.commands.load(Ordering::Relaxed);
        let (tasks, replays) = (audit.tasks.len(), audit.totals.replays);
        CommandCounts { kills, commands, jobs: jobs.len(), tasks, replays }
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn configure(env: &TestEnv, in_flight: u32, day: u32) {
    // A task may fail once under each key.
    env.configure(&format!("attempts = 5\n[limits]\nin_flight = {in_flight}\n[budget]\nper_day = {day}\n"));
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap()
}

/// Whether nothing more is to be done for a job: it is bought, or another version of its row is wanted.
fn is_settled(job: &Value) -> bool {
    job["state"] == "succeeded" || job["superseded"] == true
}

/// Some rows of a batch; each has one of three texts.
fn manifest(batch: &str, random: &mut fastrand::Rng) -> String {
    let rows = random.usize(2..=5);
    let row = |n: usize| {
        let words = format!("{batch}, row {n}, text {}", random.usize(0..3));
        let mut row = match (batch, n) {
            ("mixed", 1) => json!({"kind": "sound-effect", "prompt": words}),
            ("mixed", 2) => json!({"kind": "speech", "voice_id": "aria", "text": words}),
            ("mixed", 3) => json!({"kind": "video", "model": "house-c1", "duration": "2s", "prompt": words}),
            _ => json!({"kind": "image", "model": "gi-2", "prompt": words}),
        };
        row["id"] = json!(format!("r{n}"));
        if random.u32(0..6) == 0 {
            row["count"] = json!(2);
        }
        if batch == "story" && n > 0 {
            row["image_urls"] = json!([format!("job:r{}", random.usize(0..n))]);
        }
        if batch == "story" && random.u32(0..3) == 0 {
            row["review"] = json!(true);
        }
        row
    };
    json!({"batch": batch, "jobs": (0..rows).map(row).collect::<Vec<_>>()}).to_string()
}

/// Answers that are lost, and tasks that fail.
fn faults(random: &mut fastrand::Rng) -> String {
    let mut plan = format!("seed = {}\n", random.u32(..));
    for (most, rule) in [
        (40, "on = 'create'\neffect = { do = 'drop', when = 'after' }"),
        (20, "on = 'create'\neffect = { do = 'drop', when = 'before' }"),
        (20, "on = 'create'\neffect = { do = 'answer', status = 500, body = 'broken-json', when = 'after' }"),
        (20, "on = 'poll'\neffect = { do = 'answer', status = 502, body = 'html' }"),
        (30, "effect = { do = 'task-fails', code = 'provider_unavailable' }"),
    ] {
        let chance = f64::from(random.u32(0..=most)) / 100.0;
        plan.push_str(&format!("[[rules]]\nper = 'task'\ntimes = 1\nprobability = {chance}\n{rule}\n"));
    }
    plan
}
