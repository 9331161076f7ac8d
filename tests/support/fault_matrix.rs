//! One fault against a row of every kind: how each row must end, and books that agree on both sides.

use std::fmt;

use callsheet_emulator::Options;
use serde_json::Value;

use super::TestEnv;
use super::accounting::{Audit, Task};
use super::collect_outputs::Outputs;
use super::process::Outcome;

/// The calls of a job's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Create,
    Poll,
    Download,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Create => "create",
            Step::Poll => "poll",
            Step::Download => "download",
        }
    }
}

/// How a row ends, and how many tasks the service makes for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Made(usize),
    Failed(usize),
    Canceled(usize),
    InDoubt(usize),
}

impl Fate {
    fn tasks(self) -> usize {
        match self {
            Fate::Made(tasks) | Fate::Failed(tasks) | Fate::Canceled(tasks) | Fate::InDoubt(tasks) => tasks,
        }
    }

    fn state(self) -> &'static str {
        match self {
            Fate::Made(_) => "succeeded",
            Fate::Failed(_) => "failed",
            Fate::Canceled(_) => "canceled",
            Fate::InDoubt(_) => "in_doubt",
        }
    }
}

/// A fault, and what it may come to.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub name: &'static str,
    /// What the emulator is told to `do`, as an inline table.
    pub effect: &'static str,
    /// How often it strikes each row.
    pub times: u64,
    /// The kinds that have keys.
    pub keyed: Fate,
    /// Those of them that render inside the creating call, where they end otherwise.
    pub rendered_inside: Option<Fate>,
    /// Shorts Studio, which has none.
    pub studio: Fate,
    /// POSTs that the service answers with a task it made before, for each row with a key. None where
    /// time decides.
    pub replays: Option<u64>,
    /// More keys of `[service]`.
    pub service: &'static str,
}

impl Fault {
    /// One strike at each row, which all get over it without another task.
    pub const fn new(name: &'static str, effect: &'static str) -> Fault {
        let (keyed, studio) = (Fate::Made(1), Fate::Made(1));
        Fault { name, effect, times: 1, keyed, rendered_inside: None, studio, replays: Some(0), service: "" }
    }

    pub const fn keyed(self, keyed: Fate) -> Fault {
        Fault { keyed, ..self }
    }

    pub const fn rendered_inside(self, fate: Fate) -> Fault {
        Fault { rendered_inside: Some(fate), ..self }
    }

    pub const fn studio(self, studio: Fate) -> Fault {
        Fault { studio, ..self }
    }

    pub const fn times(self, times: u64) -> Fault {
        Fault { times, ..self }
    }

    /// The answer is lost after the work was done.
    pub const fn replayed(self) -> Fault {
        Fault { replays: Some(self.times), ..self }
    }

    pub const fn impatient(self, service: &'static str) -> Fault {
        Fault { service, replays: None, ..self }
    }

    fn fate(&self, kind: &str) -> Fate {
        match (kind, self.rendered_inside) {
            (STUDIO, _) => self.studio,
            ("music" | "speech" | "sound-effect", Some(fate)) => fate,
            _ => self.keyed,
        }
    }

    /// The plan that strikes at this step.
    fn plan(&self, step: Step) -> String {
        let Fault { effect, times, .. } = self;
        if step != Step::Create {
            let on = step.name();
            return format!("[[rules]]\non = '{on}'\nper = 'task'\ntimes = {times}\neffect = {effect}");
        }
        // Counted by kind: another attempt has another key, and would be struck again.
        let rule =
            |kind| format!("[[rules]]\non = 'create'\nkind = '{kind}'\ntimes = {times}\neffect = {effect}\n");
        KINDS.map(rule).concat()
    }
}

/// Every kind; the rows are named after them.
pub const KINDS: [&str; 6] = ["video", "image", "music", "speech", "sound-effect", STUDIO];
const STUDIO: &str = "shorts-studio";
/// What is set aside for the short: more than it costs.
pub const STUDIO_HOLD: u64 = 25;
/// A row of every kind.
pub const ROWS: &str = r#"{"id": "video", "kind": "video", "model": "house-turbo", "prompt": "a boat", "duration": 5}
{"id": "image", "kind": "image", "model": "gi-2", "prompt": "a harbour"}
{"id": "music", "kind": "music", "prompt": "slow piano", "duration_seconds": 10}
{"id": "speech", "kind": "speech", "text": "All aboard.", "voice_id": "aria"}
{"id": "sound-effect", "kind": "sound-effect", "prompt": "a gull", "duration_seconds": 1}
{"id": "shorts-studio", "kind": "shorts-studio", "options": {"topic": "a boat"}, "max_credits": 25}
"#;
/// The advised 5 seconds between two polls are then 17 milliseconds, and the client waits 20.
pub const SPEED: f64 = 300.0;
const RUN: [&str; 3] = ["run", "--json", "batch.jsonl"];

/// Lets these faults strike at this step, one run for each, and complains of every cell that is not as
/// it should be.
#[track_caller]
pub fn holds(step: Step, faults: &[Fault]) {
    let complaints: Vec<String> = faults.iter().flat_map(|fault| strike(step, fault)).collect();
    assert!(complaints.is_empty(), "fault / kind / step: what is wrong\n{}", complaints.join("\n"));
}

fn strike(step: Step, fault: &Fault) -> Vec<String> {
    let _here = Here(format!("{} / every kind / {}", fault.name, step.name()));
    let env = TestEnv::with(Options { speed: SPEED, ..Options::default() });
    // Five rejected rows in a row would pause the batch, and the sixth would wait.
    env.configure_service(fault.service, "[limits]\npause_after_rejections = 100");
    env.faults(&fault.plan(step));
    env.write("batch.jsonl", ROWS);
    let outcome = env.run(RUN);
    let seen = Seen { audit: env.audit(), outputs: Outputs::of(&env, "batch") };
    let mut complaints = Complaints { fault: fault.name, step, list: Vec::new() };
    for kind in KINDS {
        complaints.of_row(kind, fault, &seen);
    }
    complaints.of_run(&outcome, fault, &seen);
    complaints.of_accounts(&Accounts::read(&env, &seen, &outcome), fault, &seen);
    seen.outputs.is_whole();
    complaints.list
}

struct Seen {
    audit: Audit,
    outputs: Outputs,
}

impl Seen {
    fn tasks(&self, kind: &str) -> Vec<&Task> {
        self.audit.tasks.iter().filter(|task| task.kind == kind).collect()
    }

    fn row(&self, kind: &str) -> &Value {
        self.outputs.lines.iter().find(|line| line["id"] == kind).unwrap()
    }
}

struct Complaints {
    fault: &'static str,
    step: Step,
    list: Vec<String>,
}

impl Complaints {
    fn expect<T: PartialEq + fmt::Debug>(&mut self, kind: &str, what: &str, found: &T, expected: &T) {
        if found != expected {
            let (fault, step) = (self.fault, self.step.name());
            self.list.push(format!("{fault} / {kind} / {step}: {what}: {found:?}, not {expected:?}"));
        }
    }

    fn of_row(&mut self, kind: &str, fault: &Fault, seen: &Seen) {
        let (fate, tasks, row) = (fault.fate(kind), seen.tasks(kind), seen.row(kind));
        self.expect(kind, "state", &row["state"].as_str(), &Some(fate.state()));
        self.expect(kind, "tasks", &tasks.len(), &fate.tasks());
        // Another task only after the one before was over and given back.
        let standing = tasks.iter().rev().skip(1).filter(|task| task.net_credits() > 0).count();
        self.expect(kind, "tasks that were paid for and left", &standing, &0);
        let net: u64 = tasks.iter().map(|task| task.net_credits()).sum();
        if fate.state() != "in_doubt" {
            self.expect(kind, "charge", &row["charged_credits"].as_u64(), &Some(net));
        }
        let mut keys: Vec<&String> = tasks.iter().filter_map(|task| task.key.as_ref()).collect();
        keys.sort_unstable();
        keys.dedup();
        let is_keyed = kind != STUDIO;
        self.expect(kind, "keys", &keys.len(), &if is_keyed { tasks.len() } else { 0 });
        let posts: u64 = tasks.iter().map(|task| task.posts).sum();
        match fault.replays {
            Some(replays) if is_keyed && self.step == Step::Create => {
                self.expect(kind, "POSTs that were taken", &posts, &(tasks.len() as u64 + replays));
            }
            None if is_keyed && self.step == Step::Create => {}
            _ => self.expect(kind, "POSTs that were taken", &posts, &(tasks.len() as u64)),
        }
        let rereads = match self.step {
            Step::Create => 1,
            // Its answer was lost, or it was another's.
            Step::Poll => 1 + fault.times,
            // For fresh links.
            Step::Download => 2 + fault.times,
        };
        let worst = tasks.iter().map(|task| task.polls_after_end).max().unwrap_or_default();
        self.expect(kind, "polled after its end too often", &(worst > rereads), &false);
    }

    fn of_run(&mut self, outcome: &Outcome, fault: &Fault, seen: &Seen) {
        let fates = KINDS.map(|kind| fault.fate(kind).state());
        let code = if fates.contains(&"failed") || fates.contains(&"canceled") {
            1
        } else if fates.contains(&"in_doubt") {
            7
        } else {
            0
        };
        self.expect("every kind", "exit code", &outcome.code, &Some(code));
        let totals = &seen.audit.totals;
        self.expect("every kind", "polls too close to each other", &totals.hasty_polls, &0);
        self.expect("every kind", "keys under another body", &totals.foreign_body_replays, &0);
        self.expect("every kind", "keys shown to the host of results", &totals.media_requests_with_key, &0);
    }

    fn of_accounts(&mut self, accounts: &Accounts, fault: &Fault, seen: &Seen) {
        let in_doubt = KINDS.into_iter().filter(|kind| fault.fate(kind).state() == "in_doubt");
        let (mut held, mut unknown) = (0, 0);
        for kind in in_doubt {
            held += seen.row(kind)["price_credits"].as_u64().unwrap_or(STUDIO_HOLD);
            unknown += seen.tasks(kind).iter().map(|task| task.net_credits()).sum::<u64>();
        }
        let charged = accounts.service - unknown;
        for (whose, found) in &accounts.ours {
            self.expect("every kind", &format!("held and charged, by {whose}"), found, &(held, charged));
        }
        self.expect("every kind", "charges of all results", &accounts.results, &charged);
        self.expect("every kind", "what is in doubt is covered by holds", &(unknown <= held), &true);
    }
}

/// The same money, as everybody tells it.
pub struct Accounts {
    /// Credits that left the account and did not come back.
    pub service: u64,
    /// The sum of `results.jsonl`.
    pub results: u64,
    /// Held and charged.
    pub ours: [(&'static str, (u64, u64)); 3],
}

impl Accounts {
    fn read(env: &TestEnv, seen: &Seen, run: &Outcome) -> Accounts {
        let totals = &seen.audit.totals;
        let service = totals.charged_credits - totals.refunded_credits;
        assert_eq!(service, Options::default().credits - totals.balance, "the service's own books");
        let held_and_charged = |sums: &Value| {
            (sums["held_credits"].as_u64().unwrap(), sums["charged_credits"].as_u64().unwrap())
        };
        let batch = held_and_charged(&run.json()["batches"][0]);
        let report = held_and_charged(&seen.outputs.report()["total"]);
        let ours = [("the ledger", ledger(env)), ("the batch", batch), ("report.json", report)];
        Accounts { service, results: seen.outputs.sum("charged_credits"), ours }
    }
}

/// Held and charged, as the movements of `callsheet ledger --csv` add up.
#[track_caller]
pub fn ledger(env: &TestEnv) -> (u64, u64) {
    movements(&env.run(["ledger", "--csv"]).exited(0).stdout)
}

/// The same, of what was printed.
#[track_caller]
pub fn movements(text: &str) -> (u64, u64) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let columns = reader.headers().unwrap().clone();
    let column = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let (held, charged) = (column("held_credits"), column("charged_credits"));
    let mut sums = (0i64, 0i64);
    for record in reader.records().map(Result::unwrap) {
        sums.0 += record[held].parse::<i64>().unwrap();
        sums.1 += record[charged].parse::<i64>().unwrap();
    }
    (u64::try_from(sums.0).unwrap(), u64::try_from(sums.1).unwrap())
}

/// Says where it was, should the test stop here.
struct Here(String);

impl Drop for Here {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("stopped at: {}", self.0);
        }
    }
}
