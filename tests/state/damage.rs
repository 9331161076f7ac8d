//! A database that was cut, flipped or lost: the program goes on with nothing lost, or it refuses, says
//! so, and there is a way back that pays for nothing twice.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stderr, reason = "a seed that is not shown cannot be played again")]

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::{TestEnv, case_share, manifests};

const RUN: [&str; 3] = ["run", "--json", "batch.csv"];

/// A batch in the middle of its run, which every trial begins from.
struct Scene {
    env: TestEnv,
    ids: Vec<String>,
}

impl Scene {
    fn killed_at(step: &str) -> Scene {
        Scene::killed_at_each(&[step])
    }

    fn killed_at_each(steps: &[&str]) -> Scene {
        let env = TestEnv::new();
        env.configure("[limits]\nin_flight = 3\ndownloads = 1");
        let (manifest, ids) = manifests::of_all_kinds(2);
        env.write("batch.csv", manifest);
        for step in steps {
            let mut command = env.command(RUN);
            command.env("CALLSHEET_FAILPOINT", step);
            Running::start(command).end().was_killed(step);
        }
        for folder in ["state", "output"] {
            copy_dir(&env.path(folder), &env.path(&format!("kept-{folder}")));
        }
        Scene { env, ids }
    }

    /// State and outputs as they were when the run was killed. The service goes on: keys of an earlier
    /// trial give the tasks that they made then.
    fn restore(&self) {
        for folder in ["state", "output"] {
            let _ = fs::remove_dir_all(self.env.path(folder));
            copy_dir(&self.env.path(&format!("kept-{folder}")), &self.env.path(folder));
        }
    }

    fn is_paid_once_and_whole(&self, report: &serde_json::Value) {
        let audit = self.env.audit();
        audit.each_paid_once(self.ids.len());
        let outputs = Outputs::of(&self.env, "batch");
        outputs.is_complete(&self.ids);
        outputs.agrees_with(&audit);
        assert_eq!(report["batches"][0]["charged_credits"], audit.totals.charged_credits);
        assert_eq!(report["batches"][0]["held_credits"], 0);
    }

    /// Every job is listed, or the state is refused. Asked before the manifest is handed in again: that
    /// would bring back what was silently lost.
    fn knows_every_job_or_says_that_it_does_not(&self, what: &str) {
        let told = self.env.run(["jobs", "batch", "--json"]);
        if told.code != Some(0) {
            told.exited(6).says("is damaged");
            return;
        }
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].clone();
        let ids: Vec<serde_json::Value> = told.stdout.lines().map(id).collect();
        assert_eq!(ids, self.ids, "{what}: jobs are missing, and nobody says so");
    }

    /// Goes on, or is refused and rebuilt; whether it went on by itself.
    fn goes_on_or_comes_back(&self, what: &str) -> bool {
        self.goes_on_or_comes_back_with(what, &[])
    }

    fn goes_on_or_comes_back_with(&self, what: &str, more: &[&str]) -> bool {
        self.knows_every_job_or_says_that_it_does_not(what);
        let outcome = self.env.run(RUN);
        assert!(!outcome.stderr.contains("panicked"), "{what}: {}", outcome.stderr);
        if outcome.code == Some(0) {
            self.is_paid_once_and_whole(&outcome.json());
            self.env.run(["state", "verify"]).exited(0);
            return true;
        }
        eprintln!("{what}: {}", outcome.stderr.lines().next().unwrap_or_default());
        let outcome = outcome.exited(6);
        let error: Value = serde_json::from_str(outcome.stderr.lines().last().unwrap()).unwrap();
        let said = |what: &str| error["error"][what].as_str().unwrap();
        assert!(said("message").contains("is damaged"), "{error}");
        assert!(said("hint").starts_with("nothing was sent"), "{error}");
        self.env.run(["state", "verify"]).exited(6);
        self.comes_back(more);
        false
    }

    fn comes_back(&self, more: &[&str]) {
        let rebuild = ["state", "rebuild", "--json"].into_iter().chain(more.iter().copied());
        let rebuilt = self.env.run(rebuild).exited(0).says("rebuilt 1 batch with").json();
        self.env.run(["state", "verify"]).exited(0).says("all fits");
        // One whose jobs have all ended has nothing to pause.
        if rebuilt["paused"] == 1 {
            let posts = self.env.audit().posts();
            // What is at the service is collected; only what would be sent waits.
            let code = self.env.run(RUN).code;
            assert!(matches!(code, Some(0 | 7)), "{code:?}");
            assert_eq!(self.env.audit().posts(), posts, "nothing creating is sent before it is resumed");
            self.env.run(["resume"]).exited(0);
        }
        let report = self.env.run(RUN).exited(0).json();
        self.is_paid_once_and_whole(&report);
        self.env.run(["state", "verify"]).exited(0);
    }
}

/// Copies files and folders. A killed run leaves its socket, too, which nothing can be read from.
fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_socket() {
            continue;
        }
        let path = entry.path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy_dir(&path, &target) } else { assert!(fs::copy(&path, &target).is_ok()) }
    }
}

/// Where the trials begin: `CALLSHEET_SEED`, to play one again, or anywhere.
fn seed() -> u64 {
    let said = std::env::var("CALLSHEET_SEED").ok().and_then(|text| text.parse().ok());
    said.unwrap_or_else(|| fastrand::u64(..))
}

/// How often something is damaged at random.
fn trials() -> usize {
    let said = std::env::var("CALLSHEET_TRIALS").ok().and_then(|text| text.parse().ok());
    said.unwrap_or_else(|| case_share::of_this_run(0..40, 0).count())
}

fn damaged(scene: &Scene, mut damage: impl FnMut(&mut fastrand::Rng, &mut Vec<u8>) -> String) {
    let seed = seed();
    eprintln!("CALLSHEET_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut refused = 0;
    for _ in 0..trials() {
        scene.restore();
        // Its log, its settings or its snapshot.
        let mut files: Vec<PathBuf> =
            fs::read_dir(scene.env.path("state/db")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.is_file());
        files.sort();
        let log = scene.env.path("state/db/db");
        let path = if random.u8(0..4) > 0 { log } else { files.swap_remove(random.usize(0..files.len())) };
        let mut bytes = fs::read(&path).unwrap();
        let what = format!("{}: {}", path.file_name().unwrap().display(), damage(&mut random, &mut bytes));
        fs::write(&path, bytes).unwrap();
        refused += usize::from(!scene.goes_on_or_comes_back(&what));
    }
    eprintln!("{refused} of {} were refused and rebuilt", trials());
}

/// The part of the file that something was written to: damage beyond it shows nothing.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1)
}

#[test]
fn a_database_cut_at_any_length() {
    let scene = Scene::killed_at("ended:4");
    damaged(&scene, |random, bytes| {
        let length = random.usize(0..used(bytes));
        bytes.truncate(length);
        format!("cut to {length} bytes")
    });
}

#[test]
fn a_database_with_flipped_and_zeroed_bytes() {
    let scene = Scene::killed_at_each(&["posted:4", "ended:3"]);
    damaged(&scene, |random, bytes| {
        let at = random.usize(0..used(bytes));
        if random.bool() {
            bytes[at] ^= 1 << random.u8(0..8);
            return format!("a bit flipped at byte {at}");
        }
        let end = (at + 4096).min(bytes.len());
        bytes[at..end].fill(0);
        format!("bytes {at} to {end} zeroed")
    });
}

/// Rows, outcomes and the batch's card. An export stands by: rows are nowhere else.
#[test]
fn a_spool_cut_or_flipped_anywhere() {
    let scene = Scene::killed_at_each(&["posted:4", "ended:3"]);
    let dump = scene.env.run(["state", "export"]).exited(0).stdout;
    scene.env.write("dump.jsonl", dump);
    let seed = seed();
    eprintln!("CALLSHEET_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut refused = 0;
    for _ in 0..trials() / 2 {
        scene.restore();
        let name = ["rows", "outcomes", "batch.json"][random.usize(0..3)];
        let path = scene.env.path("state/spool/000001").join(name);
        let mut bytes = fs::read(&path).unwrap();
        let at = random.usize(0..bytes.len());
        let what = if random.bool() {
            bytes.truncate(at);
            format!("{name}: cut to {at} bytes")
        } else {
            bytes[at] ^= 1 << random.u8(0..8);
            format!("{name}: a bit flipped at byte {at}")
        };
        fs::write(&path, bytes).unwrap();
        refused += usize::from(!scene.goes_on_or_comes_back_with(&what, &["--export", "dump.jsonl"]));
    }
    eprintln!("{refused} of {} were refused and rebuilt", trials() / 2);
}

/// After a power cut, the number of the last commit may be as old as the database.
#[test]
fn an_older_database_whose_count_is_lost() {
    let scene = Scene::killed_at("ended:4");
    fs::remove_file(scene.env.path("kept-state/commits")).unwrap();
    damaged(&scene, |random, bytes| {
        let length = random.usize(0..used(bytes));
        bytes.truncate(length);
        format!("cut to {length} bytes, without its count")
    });
}

/// A snapshot whose checksum is right and whose content is not: sled believes it, and dies of it.
fn poison_the_snapshot(scene: &Scene) {
    let entries = fs::read_dir(scene.env.path("state/db")).unwrap().map(|entry| entry.unwrap().path());
    let path = entries.into_iter().find(|path| path.to_string_lossy().contains("snap.")).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let body = bytes.len() - 12;
    // Within the number up to which the log is said to be read.
    bytes[4] ^= 1;
    let checksum = crc32fast::hash(&bytes[..body]).to_le_bytes();
    bytes[body + 8..].copy_from_slice(&checksum);
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_database_that_takes_down_the_process_that_reads_it() {
    let scene = Scene::killed_at_each(&["posted:4", "ended:3"]);
    poison_the_snapshot(&scene);
    copy_dir(&scene.env.path("state/db"), &scene.env.path("copy"));
    let reader = scene.env.run(["__try-database", "copy"]);
    assert_eq!(reader.signal, Some(6), "it aborts: {}", reader.stderr);
    assert!(scene.goes_on_or_comes_back("a poisoned snapshot"), "the log alone is enough");
    assert!(fs::read_dir(scene.env.path("state/aside")).unwrap().count() > 0, "the snapshot is kept");

    scene.restore();
    poison_the_snapshot(&scene);
    let log = scene.env.path("state/db/db");
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..used(&bytes) / 2]).unwrap();
    assert!(!scene.goes_on_or_comes_back("a poisoned snapshot and half a log"));
}

/// The number of the attempt is lost with the database: the first key leads to the second.
#[test]
fn a_later_attempt_is_found_again_by_the_keys_before_it() {
    let env = TestEnv::with_faults(
        "[[rules]]\ntimes = 1\neffect = { do = 'task-fails', code = 'provider_unavailable' }",
    );
    env.write("batch.csv", manifests::manifest("image", 1));
    let mut command = env.command(RUN);
    command.env("CALLSHEET_FAILPOINT", "posted:2");
    Running::start(command).end().was_killed("posted");
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(RUN).exited(6);
    env.run(["state", "rebuild"]).exited(0);
    env.run(["resume"]).exited(0);
    let report = env.run(RUN).exited(0).json();
    let audit = env.audit();
    assert_eq!(
        (audit.tasks.len(), audit.totals.charges, audit.totals.refunds),
        (2, 2, 1),
        "{:#?}",
        audit.tasks
    );
    let paid = audit.totals.charged_credits - audit.totals.refunded_credits;
    assert_eq!(report["batches"][0]["charged_credits"], paid);
}

#[test]
fn a_database_that_is_gone() {
    let scene = Scene::killed_at("ended:5");
    for lost in
        [&["state/db"][..], &["state/db", "state/commits"], &["state/db", "state/spool/000001/outcomes"]]
    {
        scene.restore();
        for path in lost.iter().map(|path| scene.env.path(path)) {
            if path.is_dir() { fs::remove_dir_all(&path).unwrap() } else { fs::remove_file(&path).unwrap() }
        }
        assert!(!scene.goes_on_or_comes_back(&format!("without {lost:?}")), "{lost:?}");
    }
}

#[test]
fn the_damaged_database_is_kept() {
    let scene = Scene::killed_at("ended:2");
    let path = scene.env.path("state/db/db");
    fs::write(&path, "not a database").unwrap();
    scene.env.run(RUN).exited(6);
    scene.env.run(["state", "rebuild"]).exited(0).says("state/aside/db-1");
    assert_eq!(fs::read(scene.env.path("state/aside/db-1/db")).unwrap()[..14], *b"not a database");
}

#[test]
fn outcomes_that_are_lost_are_known_from_their_sidecars() {
    let env = TestEnv::new();
    let (manifest, ids) = manifests::of_all_kinds(1);
    env.write("batch.csv", manifest);
    env.run(RUN).exited(0);
    let posts = env.audit().posts();
    fs::remove_dir_all(env.path("state/db")).unwrap();
    fs::remove_file(env.path("state/spool/000001/outcomes")).unwrap();
    env.run(RUN).exited(6);
    let rebuilt = env.run(["state", "rebuild", "--json"]).exited(0).json();
    assert_eq!((&rebuilt["from_sidecars"], &rebuilt["open"]), (&ids.len().into(), &0.into()));
    let report = env.run(RUN).exited(0).json();
    assert_eq!(report["batches"][0]["charged_credits"], env.audit().totals.charged_credits);
    assert_eq!(env.audit().posts(), posts);
    Outputs::of(&env, "batch").is_complete(&ids);
}

#[test]
fn rows_that_are_damaged_come_back_from_an_export_and_are_refused_without() {
    let scene = Scene::killed_at("ended:3");
    let dump = scene.env.run(["state", "export"]).exited(0).stdout;
    scene.env.write("dump.jsonl", dump);
    let rows = scene.env.path("state/spool/000001/rows");
    let mut bytes = fs::read(&rows).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&rows, bytes).unwrap();
    scene.env.run(["state", "verify"]).exited(6);
    let refused = scene.env.run(["state", "rebuild"]).exited(6).says("its checksum is wrong");
    refused.says("callsheet state rebuild --export FILE");
    scene.comes_back(&["--export", "dump.jsonl"]);
}

/// Shorts Studio honours no key: what may have been sent is left to a person.
#[test]
fn a_job_without_a_key_is_never_sent_by_guessing() {
    let env = TestEnv::new();
    let job =
        r#"{"id": "short", "kind": "shorts-studio", "options": {"topic": "a boat"}, "max_credits": 20}"#;
    env.write("batch.jsonl", job);
    let mut command = env.command(["run", "batch.jsonl"]);
    command.env("CALLSHEET_FAILPOINT", "posted:1");
    Running::start(command).end().was_killed("posted");
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["run", "batch.jsonl"]).exited(6);
    env.run(["state", "rebuild"]).exited(0);
    env.run(["resume"]).exited(0);
    env.run(["run", "batch.jsonl"]).exited(7);
    assert_eq!(env.audit().totals.tasks, 1);
    assert_eq!(Outputs::of(&env, "batch").column("state"), ["in_doubt"]);
}

const SHORT: &str =
    r#"{"id": "short", "kind": "shorts-studio", "options": {"topic": "a boat"}, "max_credits": 20}"#;

/// A short whose first attempt failed, as a person found, and that was asked for again and made; of its second attempt the database alone
/// knew.
fn a_short_of_a_second_attempt(kill_at: &str) -> TestEnv {
    let env = TestEnv::with_faults("[[rules]]\ntimes = 1\neffect = { do = 'fail-at-submission' }");
    env.write("batch.jsonl", SHORT);
    env.run(["run", "batch.jsonl"]).exited(7);
    env.run(["resolve", "batch/short", "--not-charged"]).exited(0);
    env.run(["retry", "batch"]).exited(0);
    let mut command = env.command(["run", "batch.jsonl"]);
    command.env("CALLSHEET_FAILPOINT", kill_at);
    Running::start(command).end().was_killed(kill_at.split(':').next().unwrap());
    fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    env
}

/// The outcome of an earlier attempt is older news than a sidecar.
#[test]
fn a_sidecar_of_a_later_attempt_counts_more_than_the_outcome_of_an_earlier_one() {
    let env = a_short_of_a_second_attempt("named:1");
    env.run(["resume"]).exited(0);
    env.run(["run", "batch.jsonl"]).exited(0);
    assert_eq!((env.audit().totals.tasks, env.audit().totals.refunds), (2, 1));
    let outputs = Outputs::of(&env, "batch");
    assert_eq!(outputs.column("state"), ["succeeded"]);
    let totals = env.audit().totals;
    assert_eq!(outputs.sum("charged_credits"), totals.charged_credits - totals.refunded_credits);
}

/// What failed before the state was lost may have been asked for again since: without a key nobody can tell.
#[test]
fn a_failed_job_without_a_key_is_not_bought_again_after_a_rebuild() {
    let env = a_short_of_a_second_attempt("posted:1");
    env.run(["retry", "batch"]).exited(0);
    env.run(["resume"]).exited(0);
    env.run(["run", "batch.jsonl"]).exited(7);
    assert_eq!((env.audit().totals.tasks, env.audit().totals.refunds), (2, 1));
    assert_eq!(Outputs::of(&env, "batch").column("state"), ["in_doubt"]);
}

#[test]
fn a_plan_of_a_damaged_state_shows_no_costs() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(0);
    for (damaged, keeps) in [("state/spool/000001/outcomes", 10), ("state/spool/000001/rows", 100)] {
        let path = env.path(damaged);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..keeps]).unwrap();
        let plan = env.run(["plan", "batch.csv"]).exited(6);
        assert!(!plan.stdout.contains("credits"), "{damaged}: {}", plan.stdout);
        fs::write(&path, &whole).unwrap();
        env.run(["plan", "batch.csv"]).exited(0);
    }
}

#[test]
fn one_damaged_finished_batch_keeps_no_other_from_being_listed_and_no_pause_from_working() {
    let env = TestEnv::new();
    for name in ["old", "new"] {
        let row = format!("id,kind,model,prompt\n{name},image,gi-2,a {name} harbour\n");
        env.write(&format!("{name}.csv"), row);
    }
    env.run(["run", "old.csv"]).exited(0);
    env.run(["run", "new.csv", "--budget", "1"]).exited(4);
    let record = env.path("state/spool/000001/finished");
    let mut bytes = fs::read(&record).unwrap();
    bytes[60] ^= 1;
    fs::write(&record, bytes).unwrap();
    env.run(["pause"]).exited(0).says("new: paused");
    let queued = env.run(["jobs", "--state", "queued"]).exited(0).stdout;
    assert!(queued.contains("new/new"), "{queued}");
    let listed = env.run(["jobs"]).exited(0);
    assert!(listed.stdout.contains("new/new"), "{}", listed.stdout);
    env.run(["state", "verify"]).exited(6).says("state/spool/000001/finished");
}
