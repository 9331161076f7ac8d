//! Limits that a person set, while the daemon is killed and all around it changes: prices, allowances, credits that
//! others spend and buy, tasks that are canceled at the service, and two inboxes whose files have one name.
//!
//! After every life the books are read. What is held and spent is within each limit, but for what was charged above a
//! hold that is older than the price; and each hold is the price that was in force when it was taken.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use callsheet_emulator::{Options, Plan};
use serde_json::json;

use crate::kills::setup::Story;
use crate::support::TestEnv;
use crate::support::process::Running;

/// Rows of every kind in each manifest.
const EACH: usize = 6;
/// What each kind of row is made with, and what it costs in the catalog that is built in.
const ROWS: [(&str, &str, &str); 3] =
    [("image", "gi-2", ""), ("video", "house-turbo", "5"), ("film", "house-c1", "2")];
const CLIENTS: [&str; 2] = ["acme", "beta"];

/// What came of some rounds.
#[derive(Debug, Default)]
pub struct LimitCounts {
    pub kills: usize,
    pub prices: usize,
    pub holds: usize,
    pub tasks: usize,
    pub waived: usize,
    pub canceled: usize,
    /// Credits that were charged above holds from before a price rose.
    pub above: u64,
}

impl LimitCounts {
    pub fn add(&mut self, other: &LimitCounts) {
        self.kills += other.kills;
        self.prices += other.prices;
        self.holds += other.holds;
        self.tasks += other.tasks;
        self.waived += other.waived;
        self.canceled += other.canceled;
        self.above += other.above;
    }
}

impl fmt::Display for LimitCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimitCounts { kills, prices, holds, tasks, waived, canceled, above } = self;
        write!(
            f,
            "{kills} kills, {prices} changes of prices, {holds} holds, {tasks} tasks, {waived} of them waived and \
             {canceled} canceled, {above} credits above older holds"
        )
    }
}

/// An attempt, by its batch, its label and its number.
type AttemptOf = (String, String, String);

/// One attempt, as the ledger has it.
#[derive(Debug, Default, Clone)]
struct Entry {
    holds: Vec<u64>,
    held: i64,
    charged: i64,
    /// The most that a settlement or a correction said.
    most: u64,
    settlements: usize,
}

/// What was known of an attempt when a life ended.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    holds: usize,
    settlements: usize,
    /// The dearest that it was since its credits were set aside.
    dearest: u64,
}

/// One service, one state, two clients of it, and many ends.
pub struct LimitsRun {
    env: TestEnv,
    random: fastrand::Rng,
    /// The budget of each client's batch.
    budgets: BTreeMap<String, u64>,
    total: Option<u64>,
    seen: BTreeMap<AttemptOf, Seen>,
    counts: LimitCounts,
    story: Story,
}

impl LimitsRun {
    pub fn new(seed: u64) -> LimitsRun {
        let mut random = fastrand::Rng::with_seed(seed);
        let plan = [Plan::None, Plan::Pro, Plan::Ultra][random.usize(0..3)];
        let env = TestEnv::with(Options { speed: 300.0, plan, ..Options::default() });
        let budgets: BTreeMap<String, u64> =
            CLIENTS.iter().map(|client| ((*client).to_owned(), random.u64(60..500))).collect();
        let total = random.bool().then(|| random.u64(80..600));
        let (in_flight, word) = ([2, 16][random.usize(0..2)], format!("{plan:?}").to_lowercase());
        let limit = total.map_or(String::new(), |total| format!("[budget]\ntotal = {total}\n"));
        let inboxes = budgets.iter().map(|(client, budget)| {
            format!(
                "[[inbox]]\npath = \"clients/{client}\"\nsettle = \"20ms\"\npolicy = {{ budget = {budget}, attempts = 20 }}\n"
            )
        });
        env.configure_service(
            &format!("plan = \"{word}\""),
            &format!("[limits]\nin_flight = {in_flight}\n{limit}{}", inboxes.collect::<String>()),
        );
        env.faults(&faults(&mut random));
        let mut story = Story::default();
        story.push(format!("{word}, budgets {budgets:?}, total {total:?}, {in_flight} in flight"));
        let run = LimitsRun {
            env,
            random,
            budgets,
            total,
            seen: BTreeMap::new(),
            counts: LimitCounts::default(),
            story,
        };
        CLIENTS.into_iter().for_each(|client| run.drop_in(client));
        run
    }

    /// Lives and kills, with changes between them.
    pub fn play(mut self, kills: usize) -> LimitCounts {
        for _ in 0..kills {
            self.change();
            let delay = Duration::from_millis(self.random.u64(200..2_000));
            let prices = self.prices();
            let outcome = Running::start(self.env.command(["daemon"])).end_or_kill_after(delay);
            assert_eq!(outcome.signal, Some(9), "a daemon ends when it is told to: {outcome:#?}");
            self.story.push(format!("killed after {delay:?}"));
            self.counts.kills += 1;
            self.check(&prices);
        }
        self.env.run(["state", "verify"]).exited(0).says("all fits");
        let tasks = self.env.audit().tasks;
        self.counts.tasks += tasks.len();
        self.counts.waived += tasks.iter().filter(|task| task.waived_credits > 0).count();
        self.counts.canceled += tasks.iter().filter(|task| task.status == "canceled").count();
        std::mem::take(&mut self.counts)
    }

    /// A manifest of the same name and with the same ids as the other client's.
    fn drop_in(&self, client: &str) {
        let rows = (1..=EACH).flat_map(|n| {
            ROWS.map(|(word, model, duration)| {
                let kind = if word == "image" { "image" } else { "video" };
                format!("{word}-{n},{kind},{model},{client} {word} {n},{duration}\n")
            })
        });
        let text = format!("id,kind,model,prompt,duration\n{}", rows.collect::<String>());
        let draft = self.env.write(&format!("clients/{client}/.spring.csv.tmp"), text);
        std::fs::rename(draft, self.env.path(&format!("clients/{client}/spring.csv"))).unwrap();
    }

    /// What others do while no daemon runs.
    fn change(&mut self) {
        if self.random.u32(0..3) > 0 {
            let factor = [2.0, 0.5, 1.5, 0.75, 3.0][self.random.usize(0..5)];
            self.env.prices(&json!({"multiply": factor}));
            self.story.push(format!("prices times {factor}"));
            self.counts.prices += 1;
        }
        let change = match self.random.u32(0..4) {
            0 => json!({"spend": self.random.u64(1..500)}),
            1 => json!({"top_up": self.random.u64(1..500)}),
            2 => {
                json!({"use_allowance": {"images": self.random.u64(1..30), "house_seconds": self.random.u64(1..100)}})
            }
            _ => return,
        };
        self.env.account(&change);
        self.story.push(change.to_string());
    }

    /// What a row of each kind costs by the catalog that is served.
    fn prices(&self) -> BTreeMap<&'static str, u64> {
        let catalog = self.env.served();
        let cost = |(word, model, duration): (&'static str, &str, &str)| {
            let of = |part: &str| {
                let models = catalog[part].as_array().unwrap();
                models.iter().find(|entry| entry["id"] == model).unwrap()["modes"].clone()
            };
            let amount = if word == "image" {
                of("image")["text-to-image"]["credits"]["1K"].as_f64().unwrap()
            } else {
                let mode = of("video")["text-to-video"].clone();
                let resolution = mode["defaults"]["resolution"].as_str().unwrap();
                mode["credits_per_second"][resolution].as_f64().unwrap() * duration.parse::<f64>().unwrap()
            };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small price")]
            let whole = amount.ceil() as u64;
            (word, whole)
        };
        ROWS.into_iter().map(cost).collect()
    }

    /// The books of a life that just ended, in which these were the prices.
    fn check(&mut self, prices: &BTreeMap<&str, u64>) {
        if !self.env.path("state/db").exists() {
            return;
        }
        let ledger = self.ledger();
        let mut committed: BTreeMap<&str, i64> = BTreeMap::new();
        let mut above: BTreeMap<&str, i64> = BTreeMap::new();
        // What may have been charged above an older hold by an answer that nobody heard.
        let mut unheard: BTreeMap<&str, i64> = BTreeMap::new();
        let mut seen = BTreeMap::new();
        for (of, entry) in &ledger {
            let (batch, job, attempt) = of;
            let Seen { holds, settlements, dearest } = self.seen.get(of).copied().unwrap_or_default();
            let price = prices[job.split('-').next().unwrap()];
            for hold in &entry.holds[holds..] {
                assert_eq!(
                    *hold, price,
                    "{batch}/{job} #{attempt} is held at another price than the one in force"
                );
                self.counts.holds += 1;
            }
            *committed.entry(batch).or_default() += entry.held + entry.charged;
            let last = entry.holds.last().copied().unwrap_or_default();
            let dearest = if holds == entry.holds.len() { dearest.max(price) } else { price };
            let now = Seen { holds: entry.holds.len(), settlements: entry.settlements, dearest };
            seen.insert(of.clone(), now);
            if entry.held > 0 {
                *unheard.entry(batch).or_default() += i64::try_from(dearest.saturating_sub(last)).unwrap();
            }
            if entry.most > last {
                let is_older = holds == entry.holds.len();
                let is_new = entry.settlements > settlements;
                assert!(
                    is_older || !is_new,
                    "{batch}/{job} #{attempt} was charged {} and held {last} within one life",
                    entry.most
                );
                let over = i64::try_from(entry.most - last).unwrap();
                *above.entry(batch).or_default() += over.min(entry.charged);
            }
        }
        let sum = |of: &BTreeMap<&str, i64>| of.values().sum::<i64>();
        for (client, budget) in &self.budgets {
            let batch = format!("{client}--spring");
            let of = |sums: &BTreeMap<&str, i64>| sums.get(batch.as_str()).copied().unwrap_or_default();
            let (ours, limit) = (of(&committed), i64::try_from(*budget).unwrap() + of(&above));
            assert!(ours <= limit, "{batch}: {ours} of {limit} are held and spent");
            let theirs = self.net_of(client);
            let known = ours + of(&unheard);
            assert!(theirs <= known, "{batch} costs {theirs} at the service, and {known} is known of");
        }
        if let Some(total) = self.total {
            let (ours, limit) = (sum(&committed), i64::try_from(total).unwrap() + sum(&above));
            assert!(ours <= limit, "{ours} of {limit} are held and spent in all");
        }
        let known: usize = committed
            .keys()
            .filter(|batch| self.budgets.contains_key(batch.trim_end_matches("--spring")))
            .count();
        assert_eq!(known, committed.len(), "every batch belongs to a client: {:?}", committed.keys());
        self.counts.above = self.counts.above.max(u64::try_from(sum(&above)).unwrap());
        self.seen = seen;
        self.each_is_bought_once();
    }

    fn ledger(&self) -> BTreeMap<AttemptOf, Entry> {
        let text = self.env.run(["ledger", "--csv"]).exited(0).stdout;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let mut entries: BTreeMap<AttemptOf, Entry> = BTreeMap::new();
        for row in reader.deserialize::<BTreeMap<String, String>>().map(Result::unwrap) {
            let text = |name: &str| row[name].clone();
            let credits = |name: &str| row[name].parse::<i64>().unwrap();
            let entry = entries.entry((text("batch"), text("job"), text("attempt"))).or_default();
            let (held, charged) = (credits("held_credits"), credits("charged_credits"));
            entry.held += held;
            entry.charged += charged;
            match row["movement"].as_str() {
                "hold" => entry.holds.push(u64::try_from(held).unwrap()),
                "settle" | "correct" => {
                    entry.most = entry.most.max(u64::try_from(entry.charged).unwrap());
                    entry.settlements += 1;
                }
                _ => {}
            }
        }
        entries
    }

    /// What a client's tasks cost at the service.
    fn net_of(&self, client: &str) -> i64 {
        let tasks = self.env.audit().tasks;
        let of_client = tasks.iter().filter(|task| task.prompt.starts_with(client));
        i64::try_from(of_client.map(crate::support::accounting::Task::net_credits).sum::<u64>()).unwrap()
    }

    /// One task of a job succeeds or stands; and where one was canceled, no later attempt was bought, since nobody
    /// asked for it.
    fn each_is_bought_once(&self) {
        let audit = self.env.audit();
        assert_eq!((audit.totals.without_key, audit.totals.foreign_body_replays), (0, 0));
        let mut jobs: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
        for task in &audit.tasks {
            let (job, attempt) = task.job_and_attempt().unwrap();
            jobs.entry(job.to_owned()).or_default().push((attempt, task.status.clone()));
        }
        for (job, mut attempts) in jobs {
            attempts.sort();
            let has_ended = |status: &str| ["failed", "canceled"].contains(&status);
            let standing = attempts.iter().filter(|(_, status)| !has_ended(status)).count();
            assert!(standing <= 1, "job {job} is paid for twice: {attempts:?}");
            let canceled = attempts.iter().position(|(_, status)| status == "canceled");
            let is_last = canceled.is_none_or(|at| at + 1 == attempts.len());
            assert!(is_last, "job {job} was bought again after it was canceled: {attempts:?}");
        }
    }
}

/// Answers that are lost, tasks that fail, and tasks that somebody cancels.
fn faults(random: &mut fastrand::Rng) -> String {
    let mut plan = format!("seed = {}\n", random.u32(..));
    for (most, rule) in [
        (12, "on = 'create'\neffect = { do = 'drop', when = 'after' }"),
        (12, "on = 'create'\neffect = { do = 'drop', when = 'before' }"),
        (8, "on = 'create'\neffect = { do = 'answer', status = 402 }"),
        (12, "effect = { do = 'task-fails', code = 'busy' }"),
        (12, "effect = { do = 'task-canceled' }"),
        (12, "effect = { do = 'fail-at-submission' }"),
        (12, "effect = { do = 'unknown-outcome' }"),
        (30, "kind = 'image'\neffect = { do = 'renders-in-call' }"),
    ] {
        let chance = f64::from(random.u32(0..=most)) / 100.0;
        plan.push_str(&format!("[[rules]]\nper = 'task'\ntimes = 2\nprobability = {chance}\n{rule}\n"));
    }
    plan
}
