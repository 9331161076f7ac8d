//! States that are rebuilt, carried elsewhere or begun anew between kills, and operators who drop, want again and resume
//! in between: what was bought once is found again, and never bought a second time.
//!
//! After every life and every change the service's books are read: a job has one charge at most that was not given
//! back. At the end every job has one, and the ledger knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use callsheet_emulator::Options;
use serde_json::Value;

use crate::kills::call_interceptor::CallOutcome;
use crate::kills::setup::{InterceptedEnv, Story, has_ended};
use crate::support::accounting::{Task, job_and_attempt};
use crate::support::collect_outputs::Outputs;
use crate::support::process::{Outcome, Running};
use crate::support::{fault_matrix, manifests, until};

/// Runs in which everything comes to its end: a task may fail twice under one key, and be canceled as often.
const LAST_RUNS: usize = 30;
/// The only job whose endpoint honours no key, and its batch.
const SHORT: &str = "short";
/// More than anything costs.
const ENOUGH: &str = "90000";

/// What came of some rounds.
#[derive(Debug, Default)]
pub struct RebuildCounts {
    pub kills: usize,
    pub rebuilds: usize,
    pub imports: usize,
    pub begun_anew: usize,
    pub orders: usize,
    pub resolved: usize,
    pub jobs: usize,
    pub tasks: usize,
    pub replays: u64,
}

impl RebuildCounts {
    pub fn add(&mut self, other: &RebuildCounts) {
        self.kills += other.kills;
        self.rebuilds += other.rebuilds;
        self.imports += other.imports;
        self.begun_anew += other.begun_anew;
        self.orders += other.orders;
        self.resolved += other.resolved;
        self.jobs += other.jobs;
        self.tasks += other.tasks;
        self.replays += other.replays;
    }
}

impl fmt::Display for RebuildCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RebuildCounts { kills, rebuilds, imports, begun_anew, orders, resolved, jobs, tasks, replays } =
            self;
        write!(
            f,
            "{kills} kills, {rebuilds} rebuilds, {imports} imports, {begun_anew} states begun anew, {orders} orders, \
             {resolved} doubts ended, {jobs} jobs, {tasks} tasks, {replays} keys sent again"
        )
    }
}

/// One service, some manifests, and many states.
pub struct RebuildsRun {
    setup: InterceptedEnv,
    random: fastrand::Rng,
    /// Manifests, and the jobs that each asks for, by batch.
    wanted: BTreeMap<String, (String, Vec<String>)>,
    has_short: bool,
    /// Exports so far; the last ones are of this state.
    dumps: Vec<String>,
    dumps_of_others: usize,
    counts: RebuildCounts,
    story: Story,
}

impl RebuildsRun {
    pub fn new(seed: u64) -> RebuildsRun {
        let mut random = fastrand::Rng::with_seed(seed);
        let (in_flight, attempts) = ([1, 3, 16][random.usize(0..3)], [3, 20][random.usize(0..2)]);
        let setup = InterceptedEnv::new(Options::default(), attempts, &format!("in_flight = {in_flight}\n"));
        let faults = faults(&mut random);
        setup.env.faults(&faults);
        let mut wanted = BTreeMap::new();
        for n in 0..random.usize(1..=2) {
            let (text, ids) = manifests::of_all_kinds(random.usize(1..=2));
            let manifest = format!("m{n}.csv");
            setup.env.write(&manifest, text);
            wanted.insert(format!("m{n}"), (manifest, ids));
        }
        let has_short = random.u32(0..3) == 0;
        if has_short {
            let row = r#"[{"id": "short", "kind": "shorts-studio", "max_credits": 100, "options": {"taskId": "t"}}]"#;
            setup.env.write("short.json", row);
            wanted.insert(SHORT.to_owned(), ("short.json".to_owned(), vec![SHORT.to_owned()]));
        }
        let (dumps, counts, mut story) = (Vec::new(), RebuildCounts::default(), Story::default());
        story.push(format!("{in_flight} in flight, {attempts} attempts, {wanted:?}\n{faults}"));
        let mut run =
            RebuildsRun { setup, random, wanted, has_short, dumps, dumps_of_others: 0, counts, story };
        run.hand_in_without_a_budget();
        run
    }

    /// Lives and kills, with changes between them; then what is left comes to its end.
    pub fn play(mut self, kills: usize) -> RebuildCounts {
        for _ in 0..kills {
            self.live();
            self.nothing_is_bought_twice();
            self.change_the_state();
            if self.random.bool() {
                self.drop_and_want_again();
            }
            for _ in 0..self.random.usize(0..4) {
                self.give_an_order();
            }
            self.nothing_is_bought_twice();
        }
        self.comes_to_its_end();
        self.check();
        std::mem::take(&mut self.counts)
    }

    fn arguments(&self, budget: &str) -> Vec<String> {
        let manifests = self.wanted.values().map(|(manifest, _)| manifest.clone());
        let words = ["run", "--json", "--budget", budget].map(str::to_owned);
        words.into_iter().chain(manifests).collect()
    }

    /// Runs a command to its end, which it comes to by itself and without finding its state damaged.
    #[track_caller]
    fn ask(&mut self, arguments: &[&str]) -> Outcome {
        let outcome = self.setup.env.run(arguments.iter().copied());
        self.story.push(format!("{}: code {:?}", arguments.join(" "), outcome.code));
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
        assert!(
            matches!(outcome.code, Some(0 | 1 | 2 | 4 | 7)),
            "{arguments:?}: {:?}\n{}",
            outcome.code,
            outcome.stderr
        );
        outcome
    }

    #[track_caller]
    fn ask_well(&mut self, arguments: &[&str]) -> Outcome {
        self.ask(arguments).exited(0)
    }

    fn hand_in_without_a_budget(&mut self) {
        let arguments = self.arguments("0");
        let posts = self.posts();
        self.ask(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(self.posts(), posts, "something was bought under a budget of nothing");
    }

    fn posts(&self) -> u64 {
        self.setup.env.audit().posts()
    }

    /// Runs all manifests, and kills the client at one of its calls or some time after its start.
    fn live(&mut self) {
        let (sender, reached) = channel();
        let at_call = self.random.u32(0..5) > 0;
        let place = CallOutcome::ALL[self.random.usize(0..CallOutcome::ALL.len())];
        let (nth, after) = (self.random.u32(1..30), Duration::from_millis(self.random.u64(0..400)));
        if at_call {
            self.setup.gate.watch(nth, place, sender);
        }
        let began = Instant::now();
        let arguments = self.arguments(ENOUGH);
        let client = Running::start(self.setup.env.command(arguments.iter().map(String::as_str)));
        if at_call {
            self.setup.is_reached(&reached, &client, || false);
        } else {
            until("the moment or the end", || began.elapsed() >= after || has_ended(client.pid()));
        }
        let outcome = self.setup.kill(client);
        // What was on its way gets there, before anybody looks.
        self.setup.gate.pass();
        until("the last call to get through", || self.setup.gate.is_empty());
        let moment = if at_call { format!("call {nth}, {place:?}") } else { format!("{after:?}") };
        self.story.push(format!("run to {moment}: code {:?}, signal {:?}", outcome.code, outcome.signal));
        self.counts.kills += usize::from(outcome.signal.is_some());
        if outcome.signal.is_none() {
            assert!(matches!(outcome.code, Some(0 | 1 | 4 | 7)), "{:?}\n{}", outcome.code, outcome.stderr);
        }
    }

    /// What becomes of the state before the next life.
    fn change_the_state(&mut self) {
        match self.random.u32(0..8) {
            0 => self.rebuild(),
            1 => {
                fs::remove_dir_all(self.setup.env.path("state/db")).unwrap();
                self.rebuild();
            }
            2 => {
                self.damage();
                self.rebuild();
            }
            3 => {
                self.export();
                self.import(self.dumps.len() - 1);
            }
            4 => self.export(),
            // An older export knows nothing of a request without a key that was sent since.
            5 if !self.has_short && !self.dumps.is_empty() => {
                let at = self.random.usize(0..self.dumps.len());
                self.import(at);
            }
            5 | 6 if !self.has_short => {
                self.story.push("the state is removed".to_owned());
                fs::remove_dir_all(self.setup.env.path("state")).unwrap();
                self.dumps_of_others = self.dumps.len();
                self.counts.begun_anew += 1;
                self.hand_in_without_a_budget();
            }
            _ => {}
        }
    }

    fn damage(&mut self) {
        let entries = fs::read_dir(self.setup.env.path("state/db")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.is_file());
        files.sort();
        let path = files.swap_remove(self.random.usize(0..files.len()));
        let mut bytes = fs::read(&path).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let at = self.random.usize(0..used.max(1));
        if self.random.bool() {
            bytes.truncate(at);
        } else if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << self.random.u8(0..8);
        }
        self.story.push(format!("{} of {used} bytes damaged at {at}", path.display()));
        fs::write(path, bytes).unwrap();
    }

    /// Sometimes the first one that tries is killed, too.
    fn killed_first(&mut self, arguments: &[&str]) -> bool {
        if self.random.u32(0..4) > 0 {
            return false;
        }
        let delay = Duration::from_millis(self.random.u64(0..80));
        let outcome =
            Running::start(self.setup.env.command(arguments.iter().copied())).end_or_kill_after(delay);
        self.story.push(format!(
            "{} for {delay:?}: {:?}, signal {:?}",
            arguments.join(" "),
            outcome.code,
            outcome.signal
        ));
        self.counts.kills += usize::from(outcome.signal.is_some());
        true
    }

    fn rebuild(&mut self) {
        let own = &self.dumps[self.dumps_of_others..];
        let export = own.last().filter(|_| self.random.bool()).cloned();
        let mut arguments = vec!["state", "rebuild"];
        arguments.extend(export.iter().flat_map(|dump| ["--export", dump]));
        self.killed_first(&arguments);
        self.ask_well(&arguments);
        self.ask_well(&["state", "verify"]);
        self.counts.rebuilds += 1;
    }

    fn export(&mut self) {
        let name = format!("dump-{}.jsonl", self.dumps.len());
        self.ask_well(&["state", "export", &name]);
        self.dumps.push(name);
    }

    fn import(&mut self, at: usize) {
        let (name, state) = (self.dumps[at].clone(), self.setup.env.path("state"));
        fs::remove_dir_all(&state).unwrap();
        let arguments = ["state", "import", &name];
        if self.killed_first(&arguments) {
            // Killed before it made anything, there is nothing to remove.
            let _ = fs::remove_dir_all(&state);
        }
        self.ask_well(&arguments);
        self.ask_well(&["state", "verify"]);
        self.dumps_of_others = self.dumps.len();
        self.counts.imports += 1;
    }

    /// Everything is dropped, wanted again and let go on: under the keys that it had, wherever no record says that a
    /// task failed or was canceled.
    fn drop_and_want_again(&mut self) {
        for batch in self.wanted.keys().cloned().collect::<Vec<_>>() {
            self.ask(&["cancel", &batch]);
            self.ask(&["retry", &batch]);
            // What was canceled and may have been sent goes on by its name alone.
            self.ask(&["resume", &batch]);
        }
        self.counts.orders += 3;
    }

    /// What an operator says, at any time and to any batch.
    fn give_an_order(&mut self) {
        let names: Vec<String> = self.wanted.keys().cloned().collect();
        let batch = names[self.random.usize(0..names.len())].clone();
        let (_, ids) = &self.wanted[&batch];
        let job = format!("{batch}/{}", ids[self.random.usize(0..ids.len())]);
        let name = if self.random.bool() { &batch } else { &job };
        match self.random.u32(0..7) {
            0 | 1 => drop(self.ask(&["cancel", name])),
            2 | 3 => drop(self.ask(&["retry", name])),
            4 => drop(self.ask(&["resume"])),
            5 => drop(self.ask(&["resume", &batch])),
            _ => self.resolve(&batch, &job),
        }
        self.counts.orders += 1;
    }

    /// Says what a job was charged, as the service's books have it once its tasks have ended. Only of one in doubt is
    /// that heard, and of one that may have been sent.
    fn resolve(&mut self, batch: &str, job: &str) {
        let Some(own) = self.identity_of(batch, job) else { return };
        let tasks = || {
            let audit = self.setup.env.audit();
            audit.tasks.into_iter().filter(|task| task_identity(task) == own).collect::<Vec<Task>>()
        };
        until("its tasks to end", || tasks().iter().all(|task| has_task_ended(&task.status)));
        let charged: u64 = tasks().iter().map(Task::net_credits).sum();
        let text = charged.to_string();
        let found: &[&str] =
            if charged > 0 { &["--charged", &text, "--above-hold"] } else { &["--not-charged"] };
        let arguments: Vec<&str> = ["resolve", job].iter().chain(found).copied().collect();
        self.counts.resolved += usize::from(self.ask(&arguments).code == Some(0));
    }

    /// The identity of a job that the state knows.
    fn identity_of(&self, batch: &str, job: &str) -> Option<String> {
        if batch == SHORT {
            return Some(SHORT.to_owned());
        }
        let story = self.setup.env.run(["explain", job, "--json"]);
        (story.code == Some(0))
            .then(|| job_and_attempt(story.json()["idempotency_key"].as_str().unwrap()).0.to_owned())
    }

    /// At any moment, what a job was charged stands once at most.
    #[track_caller]
    fn nothing_is_bought_twice(&self) {
        drop(self.standing());
    }

    /// The task of each job that is paid for, by the job's identity.
    #[track_caller]
    fn standing(&self) -> BTreeMap<String, Task> {
        let audit = self.setup.env.audit();
        let totals = &audit.totals;
        assert_eq!((totals.foreign_body_replays, totals.media_requests_with_key), (0, 0));
        let mut standing = BTreeMap::new();
        for task in audit.tasks.into_iter().filter(|task| task.refunds == 0) {
            assert!(task.charges <= 1, "{task:#?}");
            if let Some(other) = standing.insert(task_identity(&task).to_owned(), task) {
                panic!("a job is paid for twice: {other:#?} and {:#?}", standing[task_identity(&other)]);
            }
        }
        standing
    }

    /// Runs, resumes, wants again and ends doubts, until nothing is left to do.
    fn comes_to_its_end(&mut self) {
        for _ in 0..LAST_RUNS {
            let arguments = self.arguments(ENOUGH);
            self.ask(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            self.nothing_is_bought_twice();
            let left: Vec<(String, String, String)> = self
                .jobs()
                .into_iter()
                .filter(|job| !is_settled(job))
                .map(|job| {
                    let text = |name: &str| job[name].as_str().unwrap().to_owned();
                    (text("batch"), format!("{}/{}", text("batch"), text("id")), text("state"))
                })
                .collect();
            if left.is_empty() {
                return;
            }
            self.story.push(format!("left: {left:?}"));
            for (batch, job, _) in left.iter().filter(|(_, _, state)| state == "in_doubt") {
                self.resolve(batch, job);
            }
            let batches: BTreeSet<&String> = left.iter().map(|(batch, _, _)| batch).collect();
            for batch in batches {
                self.ask(&["resume", batch]);
                self.ask(&["retry", batch]);
            }
        }
        let left: Vec<String> =
            self.jobs().iter().filter(|job| !is_settled(job)).map(ToString::to_string).collect();
        panic!("it comes to no end: {left:#?}");
    }

    fn jobs(&self) -> Vec<Value> {
        let told = self.setup.env.run(["jobs", "--json"]).exited(0).stdout;
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The service's books, ours, and what lies on disk.
    fn check(&mut self) {
        let audit = self.setup.env.audit();
        let net = audit.totals.charged_credits - audit.totals.refunded_credits;
        let mut standing = self.standing();
        for (batch, (_, ids)) in &self.wanted {
            let outputs = Outputs::of(&self.setup.env, batch);
            assert_eq!(outputs.column("id"), *ids, "every job is listed");
            if outputs.lines.iter().all(|line| line["state"] == "succeeded") {
                outputs.is_complete(ids);
            }
            for line in &outputs.lines {
                let job = if batch == SHORT { SHORT } else { line["job"].as_str().unwrap() };
                let task = standing.remove(job).unwrap_or_else(|| panic!("nobody paid for {line:#}"));
                assert_eq!(task.status, "success", "{line:#}");
                assert_eq!(line["charged_credits"], task.charged_credits, "{line:#}");
                let is_named = line["task_id"] == task.id.as_str();
                assert!(is_named || line["state"] == "failed", "{line:#}\n{task:#?}");
            }
            self.counts.jobs += ids.len();
        }
        assert!(standing.is_empty(), "nobody asked for {standing:#?}");
        let ledger = self.ask_well(&["ledger", "--csv"]).stdout;
        assert_eq!(fault_matrix::movements(&ledger), (0, net), "the ledger: held, charged");
        self.ask_well(&["state", "verify"]).says("all fits");
        self.counts.tasks += audit.tasks.len();
        self.counts.replays += audit.totals.replays;
    }
}

/// The job that a task was made for: one without a key is the short's.
fn task_identity(task: &Task) -> &str {
    task.job_and_attempt().map_or(SHORT, |(job, _)| job)
}

fn has_task_ended(status: &str) -> bool {
    ["success", "failed", "canceled"].contains(&status)
}

/// Whether a job is bought, or a person has said what it was charged.
fn is_settled(job: &Value) -> bool {
    let is_charged = job["charged_credits"].as_u64().unwrap() > 0;
    job["state"] == "succeeded" || (job["state"] == "failed" && is_charged)
}

/// Answers that are lost, and tasks that fail or are canceled by somebody.
fn faults(random: &mut fastrand::Rng) -> String {
    let mut plan = format!("seed = {}\n", random.u32(..));
    for (most, rule) in [
        (40, "on = 'create'\neffect = { do = 'drop', when = 'after' }"),
        (12, "on = 'create'\neffect = { do = 'drop', when = 'before' }"),
        (12, "on = 'create'\neffect = { do = 'answer', status = 500, body = 'broken-json', when = 'after' }"),
        (12, "on = 'poll'\neffect = { do = 'answer', status = 502, body = 'html' }"),
        (20, "effect = { do = 'task-fails', code = 'provider_unavailable' }"),
        (12, "effect = { do = 'task-canceled' }"),
        (12, "effect = { do = 'fail-at-submission' }"),
        (12, "effect = { do = 'unknown-outcome' }"),
        (12, "effect = { do = 'unknown-outcome', ending = 'failed' }"),
    ] {
        let chance = f64::from(random.u32(0..=most)) / 100.0;
        plan.push_str(&format!("[[rules]]\nper = 'task'\ntimes = 2\nprobability = {chance}\n{rule}\n"));
    }
    plan
}
