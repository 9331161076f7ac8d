//! A day in short: batches dropped and scheduled, a service in a storm, and a daemon that is killed again
//! and again. Batches that are done are not listed after seconds. Checked by the service's own books, by every file on
//! disk, and by the memory that it took, which must not grow with what was done (looked at after 16 lives or more).
//!
//! Ten seconds within `cargo test`; `CALLSHEET_SOAK_SECONDS=3600 cargo test --release --test program kills::soak` is the
//! long one. `CALLSHEET_SEED` plays the same kills at the same moments again.
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

/// Memory that a daemon may take, however long it works, in bytes. Unoptimised builds are larger.
const MEMORY_MAX: u64 = 160 << 20;
/// So many lives say whether memory grows.
const LIVES_MIN: usize = 16;
/// How much more the last lives may take than the first, in bytes: what differs between any two.
const GROWTH_MAX: u64 = 24 << 20;
/// More than an hour of it costs.
const CREDITS: u64 = 100_000_000;
/// Jobs of every kind in each dropped manifest.
const EACH: usize = 2;
/// Batches that have not ended, from which on nothing more is dropped.
const LIVE_MAX: usize = 40;

const SCHEDULE: &str = "\
    [[schedule]]\nname = \"pulse\"\ncron = \"*/2 * * * * *\"\nmanifest = \"pulse.csv\"\noverlap = \"allow\"\n\
    missed = \"latest\"\n";

const RETENTION: &str = "[retention]\nlist_finished_for = \"5s\"\n";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn configure(env: &TestEnv, more: &str) {
    env.configure(&format!(
        "[limits]\nin_flight = 8\npause_after_rejections = 1000000\n[deadlines]\noverdue_poll = \"1s\"\n{more}"
    ));
}

fn drop_in(env: &TestEnv, name: &str, content: &str) {
    let temporary = env.write(&format!("jobs/inbox/.{name}.tmp"), content);
    std::fs::rename(temporary, env.path(&format!("jobs/inbox/{name}"))).unwrap();
}

fn batches(env: &TestEnv) -> Vec<Value> {
    let status = env.run(["status", "--json"]).exited(0).json();
    status["batches"].as_array().unwrap().clone()
}

/// Jobs that have not ended.
fn unended(env: &TestEnv) -> u64 {
    let ended = ["succeeded", "failed", "canceled", "expired", "in_doubt"];
    let left = |batch: &Value| {
        let ended = ended.iter().filter_map(|state| batch[state].as_u64()).sum::<u64>();
        batch["jobs"].as_u64().unwrap() - ended
    };
    batches(env).iter().map(left).sum()
}

/// What lies in the inbox.
fn in_inbox(env: &TestEnv) -> Vec<String> {
    let entries = std::fs::read_dir(env.path("jobs/inbox")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Batches that have not ended yet.
fn live_batches(env: &TestEnv) -> usize {
    let folders = std::fs::read_dir(env.path("state/spool")).into_iter().flatten();
    folders.filter(|folder| !folder.as_ref().unwrap().path().join("finished").exists()).count()
}

#[test]
fn a_storm_of_kills_and_faults_loses_nothing_and_pays_nothing_twice() {
    let seconds = number("CALLSHEET_SOAK_SECONDS").unwrap_or(10);
    let seed = number("CALLSHEET_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("CALLSHEET_SEED={seed} CALLSHEET_SOAK_SECONDS={seconds}");
    let mut random = fastrand::Rng::with_seed(seed);
    let env = TestEnv::with_credits(CREDITS);
    env.faults("storm");
    env.write(
        "pulse.csv",
        "id,kind,model,prompt\npulse-{time},image,gi-2,\"a clock that shows {time}, {n}\"\n",
    );
    configure(&env, &format!("{RETENTION}{SCHEDULE}"));
    let began = Instant::now();
    let (mut kills, mut drops, mut peaks) = (0, 0, Vec::new());
    while began.elapsed() < Duration::from_secs(seconds) {
        let daemon = env.start(["daemon"]);
        // A backlog that only grows would be no load but a queue.
        let wanted = random.u32(0..3);
        let backlog = live_batches(&env) + in_inbox(&env).len();
        for _ in 0..if backlog < LIVE_MAX { wanted } else { 0 } {
            drops += 1;
            drop_in(&env, &format!("drop-{drops}.csv"), &manifests::of_all_kinds(EACH).0);
        }
        let outcome = daemon.end_or_kill_after(Duration::from_millis(random.u64(300..3_000)));
        kills += 1;
        peaks.push(outcome.peak_bytes);
    }
    // The storm passes; what is left is finished in peace.
    env.faults("");
    configure(&env, "[retention]\nlist_finished_for = \"forever\"\n");
    drop_in(&env, "last.csv", &manifests::of_all_kinds(EACH).0);
    let daemon = env.start(["daemon"]);
    until("the socket", || env.path("state/callsheet.sock").exists());
    let mut unfiled = in_inbox(&env);
    while !unfiled.is_empty() {
        let before = unfiled.len();
        until(&format!("another manifest to be filed of {unfiled:?}"), || {
            unfiled = in_inbox(&env);
            unfiled.len() < before
        });
    }
    let mut left = unended(&env);
    while left > 0 {
        let before = left;
        // As long as it takes, and not a moment without progress.
        let parked: Vec<Value> =
            batches(&env).into_iter().filter(|batch| batch["state"] == "parked").collect();
        until(&format!("another job to end of {before}, parked are {parked:?}"), || {
            left = unended(&env);
            left < before
        });
    }
    let live = batches(&env);
    until("every batch's results", || {
        let written = |batch: &Value| {
            let name = batch["name"].as_str().unwrap();
            env.path(&format!("output/{name}/report.json")).exists()
        };
        live.iter().all(written)
    });
    let state = |part: &str| bytes_in(&env.path(&format!("state/{part}"))) >> 20;
    eprintln!("the state in MiB: {} database, {} spool", state("db"), state("spool"));
    let last = stop(daemon);
    env.run(["state", "verify"]).exited(0).says("all fits");
    // Without one, every question would open the state anew.
    let reader = env.start(["daemon"]);
    until("the socket", || env.path("state/callsheet.sock").exists());
    let all = every_batch(&env);
    stop(reader);
    check(&env, &all, drops + 1);
    let most = peaks.iter().max().copied().unwrap_or_default().max(last);
    let quarter = peaks.len().div_ceil(4);
    let mean = |peaks: &[u64]| peaks.iter().sum::<u64>() / peaks.len() as u64;
    let (first, late) = (mean(&peaks[..quarter]), mean(&peaks[peaks.len() - quarter..]));
    eprintln!(
        "{kills} kills, {} batches, {drops} drops, {} charges; at most {} MiB, a first life {} MiB, a late one {} MiB",
        all.len(),
        env.audit().totals.charges,
        most >> 20,
        first >> 20,
        late >> 20
    );
    assert!(most < MEMORY_MAX, "{peaks:?}");
    // Of few lives, some of a moment, nothing is learned.
    if peaks.len() >= LIVES_MIN {
        assert!(late < first + GROWTH_MAX, "{peaks:?}");
    }
}

/// Every batch that there ever was.
fn every_batch(env: &TestEnv) -> Vec<Value> {
    let outputs = std::fs::read_dir(env.path("output")).unwrap();
    let names = outputs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| !["index.html", "_gallery"].contains(&name.as_str()));
    names.map(|name| env.status(&name)).collect()
}

fn bytes_in(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let bytes = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        if path.is_dir() { bytes_in(&path) } else { path.metadata().map_or(0, |meta| meta.len()) }
    };
    entries.map(bytes).sum()
}

fn stop(daemon: Running) -> u64 {
    daemon.signal(rustix::process::Signal::TERM);
    daemon.end().exited(0).peak_bytes
}

/// The service's books, ours, and what lies on disk.
fn check(env: &TestEnv, batches: &[Value], drops: usize) {
    let audit = env.audit();
    let dropped = batches.iter().filter(|batch| !batch["name"].as_str().unwrap().starts_with("pulse-"));
    assert_eq!(dropped.count(), drops, "every dropped manifest is a batch");
    let sum = |field: &str| batches.iter().map(|batch| batch[field].as_u64().unwrap()).sum::<u64>();
    let totals = &audit.totals;
    assert_eq!(sum("held_credits"), 0, "no hold is left");
    assert_eq!(
        sum("charged_credits"),
        totals.charged_credits - totals.refunded_credits,
        "one account, one sum"
    );
    assert_eq!((totals.foreign_body_replays, totals.media_requests_with_key, totals.without_key), (0, 0, 0));
    for task in &audit.tasks {
        assert!(task.charges <= 1, "charged twice: {task:#?}");
    }
    // What is wanted is counted once: net charges a job, by prompt, never more than one.
    let mut wanted: BTreeMap<(String, String), u64> = BTreeMap::new();
    for batch in batches {
        let name = batch["name"].as_str().unwrap();
        let results = std::fs::read_to_string(env.path(&format!("output/{name}/results.jsonl"))).unwrap();
        for line in results.lines() {
            let result: Value = serde_json::from_str(line).unwrap();
            let id = result["id"].as_str().unwrap().to_owned();
            *wanted.entry((name.to_owned(), id)).or_default() += 1;
            for file in result["files"].as_array().unwrap() {
                let path = env.path(&format!("output/{name}/{}", file["path"].as_str().unwrap()));
                let length = std::fs::metadata(&path).map(|meta| meta.len()).ok();
                assert_eq!(length, file["bytes"].as_u64(), "{}", path.display());
            }
        }
    }
    assert!(wanted.values().all(|n| *n == 1), "a job is listed once");
    let net = audit.tasks.iter().filter(|task| task.charges > task.refunds).count();
    let kept = count(batches, "succeeded") + count(batches, "failed") + count(batches, "in_doubt");
    assert!(net as u64 <= kept, "{net} tasks are paid for, and {kept} jobs could be");
}

fn count(batches: &[Value], state: &str) -> u64 {
    batches.iter().filter_map(|batch| batch[state].as_u64()).sum()
}
