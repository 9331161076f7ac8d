//! A round is played: with a gate before the service, a kill at each of its moments, and in the end a check.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use callsheet_emulator::Options;
use notify::{RecursiveMode, Watcher};
use serde_json::Value;

use crate::kills::plan::{ClientMode, Moment, Round};
use crate::kills::setup::{InterceptedEnv, Story};
use crate::support::collect_outputs::Outputs;
use crate::support::process::{Outcome, Running};
use crate::support::{fault_matrix, manifests, until};

/// Credits on the account, far more than any round costs.
const CREDITS: u64 = 100_000;

/// What came of some rounds.
#[derive(Debug, Default)]
pub struct MomentCounts {
    pub kills: usize,
    pub jobs: usize,
    /// Jobs whose every task was given back.
    pub failed: usize,
    pub tasks: usize,
    pub charges: u64,
    pub refunds: u64,
    pub replays: u64,
    pub faults: u64,
}

impl MomentCounts {
    pub fn add(&mut self, other: &MomentCounts) {
        self.kills += other.kills;
        self.jobs += other.jobs;
        self.failed += other.failed;
        self.tasks += other.tasks;
        self.charges += other.charges;
        self.refunds += other.refunds;
        self.replays += other.replays;
        self.faults += other.faults;
    }
}

impl fmt::Display for MomentCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MomentCounts { kills, jobs, failed, tasks, charges, refunds, replays, faults } = self;
        write!(
            f,
            "{kills} kills, {jobs} jobs ({failed} failed), {tasks} tasks, {charges} charges, {refunds} refunds, {replays} keys \
             sent again, {faults} faults"
        )
    }
}

pub struct MomentsRun {
    setup: InterceptedEnv,
    story: Story,
}

impl MomentsRun {
    pub fn new(round: &Round) -> MomentsRun {
        let Round { in_flight, downloads, faults, .. } = round;
        let options = Options { credits: CREDITS, ..Options::default() };
        let limits = format!("in_flight = {in_flight}\ndownloads = {downloads}\n");
        let setup = InterceptedEnv::new(options, 50, &limits);
        setup.env.faults(faults);
        MomentsRun { setup, story: Story::default() }
    }

    /// Plays a round to its end, and checks it.
    pub fn play(mut self, round: &Round) -> MomentCounts {
        self.story.push(round.to_string());
        let wanted = self.lay_out(round);
        let mut counts = MomentCounts::default();
        for moment in &round.moments {
            let outcome = self.live(round, moment);
            self.story.push(format!("{moment}: code {:?}, signal {:?}", outcome.code, outcome.signal));
            match outcome.signal {
                Some(9) => counts.kills += 1,
                _ => has_ended_well(&outcome, round),
            }
            if self.is_done(round) {
                break;
            }
        }
        self.comes_to_its_end(round);
        self.check(&wanted, &mut counts);
        counts
    }

    fn path(&self, name: &str) -> PathBuf {
        self.setup.env.path(name)
    }

    /// Puts the manifests where they are read; the jobs that they ask for, by batch.
    fn lay_out(&self, round: &Round) -> BTreeMap<String, Vec<String>> {
        let folder = if round.mode == ClientMode::Daemon { "jobs/inbox" } else { "." };
        let lay = |(n, each): (usize, &usize)| {
            let (text, ids) = match round.are_storyboards {
                true => manifests::storyboards(*each),
                false => manifests::of_all_kinds(*each),
            };
            let draft = self.setup.env.write(&format!("{folder}/.draft.tmp"), text);
            std::fs::rename(draft, self.path(&format!("{folder}/{}", manifest(round, n)))).unwrap();
            (format!("m{n}"), ids)
        };
        round.manifests.iter().enumerate().map(lay).collect()
    }

    fn ask<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Outcome {
        self.setup.env.run(arguments).exited(0)
    }

    fn start(&self, round: &Round) -> Running {
        if round.mode == ClientMode::Daemon {
            return self.setup.env.start(["daemon"]);
        }
        let manifests: Vec<String> = (0..round.manifests.len()).map(|n| manifest(round, n)).collect();
        let arguments = ["run", "--json"].into_iter().chain(manifests.iter().map(String::as_str));
        self.setup.env.start(arguments)
    }

    /// Lets the client live until the moment, or until it has nothing left to do.
    fn live(&self, round: &Round, moment: &Moment) -> Outcome {
        let (sender, reached) = channel();
        let _watcher = self.watch(moment, &sender);
        let began = Instant::now();
        let client = self.start(round);
        let after = match *moment {
            Moment::Start(after) => after,
            Moment::Call { after, .. } | Moment::Change { after, .. } => {
                let has_nothing_to_do = || round.mode == ClientMode::Daemon && self.is_done(round);
                if !self.setup.is_reached(&reached, &client, has_nothing_to_do) {
                    return stop(client, round);
                }
                after
            }
        };
        let began = if matches!(moment, Moment::Start(_)) { began } else { Instant::now() };
        while began.elapsed() < after {
            std::hint::spin_loop();
        }
        self.setup.kill(client)
    }

    /// Sets somebody to wait for the moment, who says so.
    fn watch(&self, moment: &Moment, reached: &Sender<()>) -> Option<notify::RecommendedWatcher> {
        match *moment {
            Moment::Start(_) => None,
            Moment::Call { nth, place, .. } => {
                self.setup.gate.watch(nth, place, reached.clone());
                None
            }
            Moment::Change { nth, .. } => {
                let (mut left, reached) = (nth, reached.clone());
                let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                    if event.is_ok_and(|event| !event.kind.is_access()) && left > 0 {
                        left -= 1;
                        if left == 0 {
                            // It may have ended by itself meanwhile.
                            let _ = reached.send(());
                        }
                    }
                })
                .unwrap();
                watcher.watch(&self.path(""), RecursiveMode::Recursive).unwrap();
                Some(watcher)
            }
        }
    }

    /// Whether every manifest is filed, where they are filed, and every batch has its report: written, and not
    /// being written again because the last client was killed before it could note that it had.
    fn is_done(&self, round: &Round) -> bool {
        (0..round.manifests.len()).all(|n| {
            let has = |name: &str| self.path(name).exists();
            let drafts = [".results.jsonl.draft", ".results.csv.draft", ".report.json.draft"];
            (round.mode == ClientMode::Run || has(&format!("jobs/accepted/{}", manifest(round, n))))
                && has(&format!("output/m{n}/report.json"))
                && !drafts.iter().any(|draft| has(&format!("output/m{n}/{draft}")))
        })
    }

    /// A last life without a kill. A daemon may be told to end while it writes results again that it could not
    /// note as written: then the next one does.
    fn comes_to_its_end(&self, round: &Round) {
        until("the end", || {
            let client = self.start(round);
            if round.mode == ClientMode::Daemon {
                // From then on it takes a signal for an order.
                until("the socket", || UnixStream::connect(self.path("state/callsheet.sock")).is_ok());
                until("every batch's report", || self.is_done(round));
            }
            has_ended_well(&stop(client, round), round);
            self.is_done(round)
        });
    }

    /// The service's books, ours, and what lies on disk.
    fn check(&self, wanted: &BTreeMap<String, Vec<String>>, counts: &mut MomentCounts) {
        let audit = self.setup.env.audit();
        let totals = &audit.totals;
        assert_eq!(
            (totals.without_key, totals.foreign_body_replays, totals.media_requests_with_key),
            (0, 0, 0)
        );
        let net = totals.charged_credits - totals.refunded_credits;
        assert_eq!(CREDITS - totals.balance, net, "the service's own books");

        // One task of a job stays paid for; every other one was given back.
        let mut standing: BTreeMap<String, (String, u64)> = BTreeMap::new();
        let (mut keys, mut given_back) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
        for task in &audit.tasks {
            assert!(task.charges <= 1 && task.refunds <= task.charges, "{task:#?}");
            assert!(keys.insert(&task.key), "two tasks under one key: {task:#?}");
            let (job, _attempt) = task.job_and_attempt().unwrap();
            if task.refunds == 0 {
                assert_eq!(task.status, "success", "paid for: {task:#?}");
                let other = standing.insert(job.to_owned(), (task.id.clone(), task.charged_credits));
                assert_eq!(other, None, "a job is paid for twice: {task:#?}");
            } else {
                *given_back.entry(job.to_owned()).or_default() += 1;
            }
        }

        let mut listed: BTreeMap<String, (String, u64)> = BTreeMap::new();
        let mut reported = 0;
        for (batch, ids) in wanted {
            let dir = self.path(&format!("output/{batch}"));
            let outputs = Outputs::in_dir(dir.clone());
            assert_eq!(outputs.column("id"), *ids, "every job is listed");
            outputs.is_whole();
            for line in &outputs.lines {
                let text = |name: &str| line[name].as_str().unwrap().to_owned();
                if line["state"] == "failed" {
                    // A task that fails inside its own request is tried once more, and not again; others may have
                    // failed before it.
                    let tasks = given_back.get(&text("job")).copied().unwrap_or_default();
                    assert!(
                        tasks >= 2 && line["attempts"] == tasks,
                        "{tasks} tasks were given back: {line:#}"
                    );
                    assert_eq!(line["charged_credits"], 0, "{line:#}");
                    counts.failed += 1;
                    continue;
                }
                assert_eq!(line["state"], "succeeded", "{line:#}");
                let charged = line["charged_credits"].as_u64().unwrap();
                listed.insert(text("job"), (text("task_id"), charged));
                is_described(&dir, line);
            }
            let total = &outputs.report()["total"];
            assert_eq!(total["held_credits"], 0, "{batch}");
            assert_eq!(total["charged_credits"], outputs.sum("charged_credits"), "{batch}");
            reported += outputs.sum("charged_credits");
        }
        assert_eq!(listed, standing, "jobs with their tasks and charges, here and at the service");
        assert_eq!(reported, net, "results and reports");
        let ledger = self.ask(["ledger", "--csv"]).stdout;
        assert_eq!(fault_matrix::movements(&ledger), (0, net), "the ledger: held, charged");
        let status = self.ask(["status", "--json"]).json();
        let batches = status["batches"].as_array().unwrap();
        assert_eq!(batches.len(), wanted.len(), "{status:#}");
        for batch in batches {
            assert_eq!((&batch["state"], &batch["held_credits"]), (&"done".into(), &0.into()), "{batch:#}");
        }
        self.ask(["state", "verify"]).says("all fits");
        self.holds_nothing_half_done();

        counts.jobs += wanted.values().map(Vec::len).sum::<usize>();
        counts.tasks += audit.tasks.len();
        counts.charges += totals.charges;
        counts.refunds += totals.refunds;
        counts.replays += totals.replays;
        counts.faults += totals.faults_struck;
    }

    /// Nothing that a killed process began lies about in the state or in the folders of manifests.
    fn holds_nothing_half_done(&self) {
        for folder in ["state", "state/spool", "state/db", "jobs/inbox", "jobs/accepted"] {
            let Ok(entries) = std::fs::read_dir(self.path(folder)) else { continue };
            for entry in entries {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let is_half = name.starts_with('.')
                    || name.starts_with("draft-")
                    || name.ends_with(".part")
                    || name.ends_with(".generating");
                assert!(!is_half, "{folder}/{name} was left behind");
            }
        }
    }
}

/// The file name of the n-th manifest.
fn manifest(round: &Round, n: usize) -> String {
    format!("m{n}.{}", if round.are_storyboards { "json" } else { "csv" })
}

/// By itself or when it was told to; a run says by its code that a job failed.
#[track_caller]
fn has_ended_well(outcome: &Outcome, round: &Round) {
    let most = i32::from(round.mode == ClientMode::Run);
    assert!(outcome.code.is_some_and(|code| code <= most), "{:?}\n{}", outcome.code, outcome.stderr);
}

/// The sidecar says of every output what the results say.
fn is_described(dir: &Path, line: &Value) {
    for file in line["files"].as_array().unwrap() {
        let path = dir.join("sidecars").join(file["path"].as_str().unwrap()).with_extension("json");
        let sidecar: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(sidecar["files"], line["files"], "{}", path.display());
        assert_eq!(sidecar["task_id"], line["task_id"], "{}", path.display());
        assert_eq!(sidecar["job"], line["job"], "{}", path.display());
    }
}

fn stop(client: Running, round: &Round) -> Outcome {
    if round.mode == ClientMode::Daemon {
        client.signal(rustix::process::Signal::TERM);
    }
    client.end()
}
