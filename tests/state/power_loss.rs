//! What was acknowledged is on the device: shown by what was synced when, from the system calls of the built
//! program (`strace`), on a disk that keeps nothing else (`power_loss/disk.rs`).
//!
//! Every promise is held for every call of a trace, over lives that were killed and taken up again: a file
//! that a killed process wrote and did not sync is not on the device for the next one either.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![allow(unreachable_pub, reason = "its modules are parts of this file")]

mod disk;
mod promises;
mod trace;

use std::path::PathBuf;

use callsheet::failpoint;

use self::promises::Scene;
use self::trace::{CALLS, Event, read};
use crate::support::process::{Outcome, Running};
use crate::support::strace::strace;
use crate::support::{TestEnv, case_share, fault_matrix, manifests, until};

/// Broken promises that are shown: one cause breaks many.
const SHOWN_MAX: usize = 20;

const RUN: [&str; 3] = ["run", "--json", "batch.csv"];

/// Lives on one state, traced.
struct Traced {
    env: TestEnv,
    /// Where traces lie: what goes over the wire is in them, with the key, and what the client leaves is searched
    /// for that.
    notes: tempfile::TempDir,
    events: Vec<Event>,
    lines: usize,
    /// The lines at which lives began.
    lives: Vec<usize>,
    /// The last life was a run that came to its end.
    has_said_that_all_is_done: bool,
}

impl Traced {
    fn new(env: TestEnv) -> Traced {
        let notes = tempfile::tempdir().unwrap();
        let (events, lives) = (Vec::new(), Vec::new());
        Traced { env, notes, events, lines: 0, lives, has_said_that_all_is_done: false }
    }

    fn trace(&self) -> std::path::PathBuf {
        self.notes.path().join("trace")
    }

    /// The client under `strace`, which writes everything down that matters.
    fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>, failpoint: Option<&str>) -> Running {
        let calls = format!("trace={}", CALLS.replace(' ', ""));
        let options = ["-y", "--seccomp-bpf", "-e", "signal=none", "-s", "4194304", "-e", &calls];
        let mut command = strace(&self.env, &options, &self.trace(), arguments);
        command.envs(failpoint.map(|step| ("CALLSHEET_FAILPOINT", step)));
        Running::start(command)
    }

    fn folder(&self) -> PathBuf {
        self.env.path("").canonicalize().unwrap()
    }

    /// Takes up what a life left behind that has ended.
    fn ended(&mut self, client: Running) -> Outcome {
        let outcome = client.end();
        let text = std::fs::read_to_string(self.trace()).unwrap();
        self.lives.push(self.lines);
        self.events.extend(read(&text, self.lines, &self.folder()));
        self.lines += text.lines().count();
        outcome
    }

    fn run<'a>(&mut self, arguments: impl IntoIterator<Item = &'a str>) -> Outcome {
        let client = self.start(arguments, None);
        self.has_said_that_all_is_done = true;
        self.ended(client)
    }

    fn run_to(&mut self, step: &str) {
        self.has_said_that_all_is_done = false;
        let client = self.start(RUN, Some(step));
        self.ended(client).was_killed(step);
    }

    /// Complains of every promise that is not kept.
    #[track_caller]
    fn keeps_its_promises(&self) -> Scene {
        let scene = Scene::of(&self.folder(), &self.events, &self.lives);
        let broken = scene.broken(self.has_said_that_all_is_done);
        let first = broken.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(broken.is_empty(), "{} promises are broken, first\n{first}", broken.len());
        scene
    }
}

#[test]
fn what_a_run_acknowledges_is_on_the_device() {
    let env = TestEnv::with_faults(
        "seed = 4\n\
         [[rules]]\non = 'create'\nevery = 4\neffect = { do = 'drop', when = 'after' }\n\
         [[rules]]\nkind = 'image'\nevery = 2\neffect = { do = 'task-fails', code = 'provider_unavailable' }\n\
         [[rules]]\non = 'download'\nevery = 6\neffect = { do = 'truncated-download', keep_percent = 50 }",
    );
    env.configure("attempts = 20");
    env.write("batch.jsonl", fault_matrix::ROWS);
    env.write("more.csv", manifests::of_all_kinds(4).0);
    let mut traced = Traced::new(env);
    let outcome = traced.run(["run", "--json", "batch.jsonl", "more.csv"]);
    assert!(matches!(outcome.code, Some(0 | 7)), "{outcome:?}");
    let scene = traced.keeps_its_promises();
    assert!(
        scene.posts() >= 26 && scene.published() >= 25,
        "{} POSTs, {} files",
        scene.posts(),
        scene.published()
    );
}

/// What the life before wrote and did not sync is not on the device because a new process reads it.
#[test]
fn what_a_killed_run_left_unsynced_is_on_the_device_before_the_next_relies_on_it() {
    // The first commit takes the manifest in, the next ones are of intents.
    const MORE: [&str; 4] = ["flushed:2", "flushed:3", "flushed:5", "named:3"];
    let steps = failpoint::OF_A_RUN.into_iter().chain(MORE);
    for step in case_share::of_this_run(steps, 2) {
        let env = TestEnv::new();
        env.write("batch.csv", manifests::of_all_kinds(1).0);
        let mut traced = Traced::new(env);
        traced.run_to(step);
        traced.run(RUN).exited(0);
        let scene = traced.keeps_its_promises();
        assert!(scene.posts() >= 5 && scene.published() >= 5, "{step}");
    }
}

/// Jobs with so many results, and such long addresses of them, that the database puts each into a file of its own.
#[test]
fn what_the_database_keeps_beside_its_log_is_on_the_device() {
    let env = TestEnv::with_faults("[[rules]]\neffect = { do = 'urls', count = 200, signature = 1000 }");
    env.configure("[limits]\nin_flight = 3\nadaptive = false\ndownloads = 2");
    env.write("batch.csv", manifests::manifest("image", 12));
    let mut traced = Traced::new(env);
    traced.run_to("ended:2");
    let scene = traced.keeps_its_promises();
    assert!(scene.blobs().count() > 0, "nothing was too large for the log");
    assert!(scene.posts() > 3, "no POST follows what was too large");
}

/// Its database, with what is too large for the log, and rows that it took from an export.
#[test]
fn what_a_rebuild_makes_is_on_the_device() {
    let env = TestEnv::with_faults("[[rules]]\neffect = { do = 'urls', count = 200, signature = 1000 }");
    env.configure("[limits]\nin_flight = 3\nadaptive = false\ndownloads = 2");
    env.write("batch.csv", manifests::manifest("image", 12));
    let mut traced = Traced::new(env);
    traced.run_to("ended:2");
    traced.run(["state", "export", "export.jsonl"]).exited(0);
    let rows = traced.env.path("state/spool/000001/rows");
    let mut damaged = std::fs::read(&rows).unwrap();
    damaged[100] ^= 1;
    std::fs::write(&rows, damaged).unwrap();
    let rebuilt = traced.run(["state", "rebuild", "--export", "export.jsonl"]).exited(0);
    rebuilt.says("taken from the export");
    // The run left downloads unfinished.
    traced.has_said_that_all_is_done = false;
    let scene = traced.keeps_its_promises();
    assert!(scene.blobs().count() > 0, "nothing was too large for the log");
    let lost = ["state/db", "state/spool"].map(|folder| scene.lost_below(folder));
    assert_eq!(lost, [const { Vec::<String>::new() }; 2], "what would be lost");
}

#[test]
fn what_a_daemon_answers_and_files_is_on_the_device() {
    let env = TestEnv::new();
    env.write("jobs/inbox/dropped.csv", manifests::of_all_kinds(2).0);
    env.write("jobs/inbox/broken.csv", "id,knd\na,image\n");
    env.write("handed.csv", manifests::of_all_kinds(1).0);
    let mut traced = Traced::new(env);
    let daemon = traced.start(["daemon"], None);
    until("the socket", || traced.env.path("state/callsheet.sock").exists());
    traced.env.run(["submit", "handed.csv", "--wait"]).exited(0);
    for file in ["output/dropped/report.json", "jobs/accepted/dropped.csv", "jobs/rejected/broken.csv"] {
        until(file, || traced.env.path(file).exists());
    }
    // The first one of its process group is strace, which passes nothing on: the daemon is its child.
    let children = format!("/proc/{0}/task/{0}/children", daemon.pid());
    let child: i32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::TERM).unwrap();
    traced.ended(daemon).exited(0);
    let scene = traced.keeps_its_promises();
    assert_eq!((scene.filed(), scene.answered()), (2, 1), "manifests that were filed, and answers to one");
}
