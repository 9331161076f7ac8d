//! A state written down, taken in again, and read to the end.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

const RUN: [&str; 3] = ["run", "--json", "batch.csv"];

/// A state in the middle of a run: jobs that have ended, jobs in the air, rows that have not begun.
fn in_mid_run(step: &str) -> (TestEnv, Vec<String>) {
    let env = TestEnv::new();
    env.configure("[limits]\nin_flight = 3\ndownloads = 1");
    let (manifest, ids) = manifests::of_all_kinds(3);
    env.write("batch.csv", manifest);
    let mut command = env.command(RUN);
    command.env("CALLSHEET_FAILPOINT", step);
    Running::start(command).end().was_killed(step);
    (env, ids)
}

fn dump(env: &TestEnv, state: &str) -> String {
    env.run(["state", "export", "--state", state]).exited(0).stdout
}

/// The dump with every batch as it is when it was imported.
fn paused(dump: &str) -> String {
    let lines = dump.lines().filter(|line| !line.starts_with("{\"end\""));
    lines
        .map(|line| line.replace("\"rejections\"", "\"paused\":\"rebuilt\",\"rejections\""))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_finished_state_comes_back_byte_for_byte() {
    let env = TestEnv::new();
    let (manifest, ids) = manifests::of_all_kinds(2);
    env.write("batch.csv", manifest);
    env.run(RUN).exited(0);
    let first = dump(&env, "state");
    env.write("dump.jsonl", &first);
    env.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0);
    env.run(["state", "verify", "--state", "new"]).exited(0).says("all fits");
    assert_eq!(dump(&env, "new"), first);
    assert_eq!(first.lines().filter(|line| line.starts_with("{\"row\"")).count(), ids.len());
    let head: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!(head["callsheet_dump"], 2);
}

#[test]
fn an_unfinished_state_comes_back_paused_and_goes_on_without_paying_twice() {
    let (env, ids) = in_mid_run("task-known:4");
    env.write("dump.jsonl", dump(&env, "state"));
    env.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0).says("callsheet resume");
    env.run(["state", "verify", "--state", "new"]).exited(0).says("all fits");
    let second = dump(&env, "new");
    env.write("second.jsonl", &second);
    env.run(["state", "import", "second.jsonl", "--state", "newer"]).exited(0);
    assert_eq!(dump(&env, "newer"), second);

    let posts = env.audit().posts();
    let run = ["run", "--json", "--state", "new", "batch.csv"];
    env.run(run).exited(7).says("paused");
    assert_eq!(env.audit().posts(), posts, "nothing creating was sent");
    env.run(["resume", "--state", "new"]).exited(0);
    env.run(run).exited(0);
    env.audit().each_paid_once(ids.len());
    Outputs::of(&env, "batch").is_complete(&ids);
}

#[test]
fn what_nothing_is_on_its_way_of_differs_by_the_pause_and_the_mark_alone() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    let mut command = env.command(RUN);
    command.env("CALLSHEET_FAILPOINT", "accepted");
    Running::start(command).end().was_killed("accepted");
    let first = dump(&env, "state");
    env.write("dump.jsonl", &first);
    env.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0);
    let second = dump(&env, "new");
    // The dump may be older than what was sent: its rows are marked so.
    assert!(second.contains(",\"rebuilt_rows\":3,"), "{second}");
    let mut without = second.replace(",\"paused\":\"rebuilt\"", "").replace(",\"rebuilt_rows\":3", "");
    let rows_bytes = std::fs::metadata(env.path("new/spool/000001/rows")).unwrap().len();
    without = without.replace(&format!(",\"rebuilt_bytes\":{rows_bytes}"), "");
    let body =
        |text: &str| text.lines().filter(|line| !line.starts_with("{\"end\"")).collect::<Vec<_>>().join("\n");
    // Nor is it known how many of them were.
    let known = first.replace(",\"sent_at_once\":16", "");
    assert_ne!(known, first);
    assert_eq!(body(&without), body(&known));
    assert_ne!(paused(&first), "", "the dump has a body");
}

#[test]
fn a_job_that_is_canceled_before_its_turn_damages_nothing() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    let fits = |state: &str| {
        env.run(["state", "verify", "--state", state]).exited(0).says("all fits");
    };
    let states_of = |state: &str| {
        let jobs = env.run(["jobs", "batch", "--json", "--state", state]).exited(0).stdout;
        let state = |line: &str| serde_json::from_str::<Value>(line).unwrap()["state"].clone();
        jobs.lines().map(state).collect::<Vec<_>>()
    };
    for step in ["cancel", "retry", "cancel"] {
        env.run([step, "batch/image-2"]).exited(0);
        fits("state");
    }
    assert_eq!(states_of("state"), ["queued", "canceled", "queued"]);
    env.write("dump.jsonl", dump(&env, "state"));
    env.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0);
    fits("new");
    assert_eq!(states_of("new"), ["queued", "canceled", "queued"]);
    // Its row is passed over, and those around it are not.
    env.run(["state", "rebuild"]).exited(0);
    fits("state");
    assert_eq!(states_of("state"), ["queued", "canceled", "queued"]);
    env.run(["resume"]).exited(0);
    env.run(["run", "batch.csv", "--budget", "1000"]).exited(1);
    fits("state");
    assert_eq!(states_of("state"), ["succeeded", "canceled", "succeeded"]);
    env.audit().each_paid_once(2);
}

#[test]
fn a_job_that_was_canceled_before_its_turn_and_is_lost_has_its_turn_again() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["cancel", "batch/image-2"]).exited(0);
    let outcomes = env.path("state/spool/000001/outcomes");
    flip(&outcomes, 60);
    env.run(["state", "verify"]).exited(6).says("job 1 has begun, and is neither open nor ended");
    env.run(["state", "rebuild"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.run(["resume"]).exited(0);
    env.run(["run", "batch.csv", "--budget", "1000"]).exited(0);
    env.audit().each_paid_once(3);
}

#[test]
fn half_a_dump_and_a_changed_one_are_refused() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(RUN).exited(0);
    let whole = dump(&env, "state");
    let lines: Vec<&str> = whole.lines().collect();
    for length in 0..lines.len() {
        env.write("cut.jsonl", lines[..length].iter().map(|line| format!("{line}\n")).collect::<String>());
        let state = format!("cut-{length}");
        env.run(["state", "import", "cut.jsonl", "--state", &state]).exited(2).says("cut off");
        env.run(["jobs", "--state", &state])
            .exited(2)
            .says("there is neither a job state nor a state directory");
    }
    env.write("changed.jsonl", whole.replacen("\"spent\":", "\"spent\":1", 1));
    let import = |dump: &str| env.run(["state", "import", dump, "--state", "changed"]);
    import("changed.jsonl").exited(2).says("were changed");
    assert!(!env.path("changed").exists(), "nothing is left of a directory that it made");
    fs::create_dir(env.path("changed")).unwrap();
    env.write("changed/lock", "");
    import("changed.jsonl").exited(2).says("were changed");
    let left = || fs::read_dir(env.path("changed")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left().collect::<Vec<_>>(), ["lock"], "what was there stays, and nothing else");
    // Two exports in one file, of which only the first would come in.
    env.write("two.jsonl", format!("{whole}\n{whole}"));
    let second = format!("line {} of the export: the export ends on a line before", lines.len() + 2);
    import("two.jsonl").exited(2).says(&second);
    assert_eq!(left().collect::<Vec<_>>(), ["lock"]);
    env.write("dump.jsonl", format!("{whole}\n"));
    env.write("changed/spool/mine", "");
    import("dump.jsonl").exited(2).says("it holds spool");
    assert!(env.path("changed/spool/mine").exists());
    fs::remove_dir_all(env.path("changed/spool")).unwrap();
    import("dump.jsonl").exited(0);
    env.run(["state", "verify", "--state", "changed"]).exited(0).says("all fits");
    env.run(["state", "import", "dump.jsonl"]).exited(2).says("is not empty");
}

#[test]
fn an_export_goes_to_a_new_file_and_a_state_in_use_is_left_alone() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(RUN).exited(0);
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    assert_eq!(fs::read_to_string(env.path("dump.jsonl")).unwrap(), dump(&env, "state"));
    env.run(["state", "export", "dump.jsonl"]).exited(2).says("choose a new file");
    let lock = fs::File::options().write(true).open(env.path("state/lock")).unwrap();
    lock.lock().unwrap();
    env.run(["state", "export"]).exited(2).says("in use by process");
    env.run(["state", "rebuild"]).exited(2).says("in use by process");
}

#[test]
fn an_import_that_was_killed_is_repeated_and_what_a_plan_keeps_is_no_hindrance() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(RUN).exited(0);
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    env.run(["plan", "batch.csv", "--state", "new"]).exited(0);
    assert!(env.path("new/catalogs.json").exists());
    let import = ["state", "import", "dump.jsonl", "--state", "new"];
    let mut dying = env.command(import);
    dying.env("CALLSHEET_FAILPOINT", "database-replaced");
    Running::start(dying).end().was_killed("database-replaced");
    assert!(env.path("new/spool").exists());
    env.run(["run", "batch.csv", "--state", "new"]).exited(2);
    env.run(import).exited(0);
    env.run(["state", "verify", "--state", "new"]).exited(0).says("all fits");
    assert_eq!(dump(&env, "new"), dump(&env, "state"));
    let hidden = |name: &str| name.starts_with(".importing") || name.starts_with(".rebuild");
    let names = fs::read_dir(env.path("new")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| hidden(&name.to_string_lossy())), "nothing of it is left");
    // A state is not taken for the rest of an import.
    env.write("new/.importing", "");
    env.run(import).exited(2).says("is not empty");
    env.run(["state", "verify", "--state", "new"]).exited(0).says("all fits");
}

#[test]
fn jobs_of_a_finished_batch_that_came_with_an_import_are_found_by_an_index() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    env.run(RUN).exited(0);
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    env.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0);
    let index = |state: &str| fs::read(env.path(&format!("{state}/spool/000001/jobs"))).unwrap();
    assert_eq!(index("new"), index("state"));
}

#[test]
fn what_an_owner_has_paused_stays_paused_in_an_import_until_it_is_named() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    env.write("next.csv", "id,kind,model,prompt\nnext-1,image,gi-2,A lighthouse\n");
    env.run(["run", "batch.csv", "next.csv", "--budget", "0"]).exited(4);
    env.run(["pause", "batch"]).exited(0);
    for name in ["batch", "next"] {
        env.run(["budget", name, "none"]).exited(0);
    }
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    let imported = env.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0);
    imported
        .says("paused: 1 unfinished batch")
        .says("paused by their owners before the export, and still: batch");
    let resumed = env.run(["resume", "--state", "new"]).exited(0);
    resumed.says("batch: it stays paused, as its owner said").says("next: resumed");
    env.run(["run", "batch.csv", "next.csv", "--state", "new"]).exited(7);
    env.audit().each_paid_once(1);
    env.run(["resume", "batch", "--state", "new"]).exited(0).says("batch: resumed");
    env.run(["run", "batch.csv", "--state", "new"]).exited(0);
    env.audit().each_paid_once(3);
}

/// With its database, and from what lies beside its rows alone.
#[test]
fn what_an_owner_has_paused_stays_paused_in_a_rebuild_until_it_is_named() {
    for database_is_left in [true, false] {
        let env = TestEnv::new();
        env.write("batch.csv", manifests::manifest("image", 2));
        env.write("next.csv", "id,kind,model,prompt\nnext-1,image,gi-2,A lighthouse\n");
        env.run(["run", "batch.csv", "next.csv", "--budget", "0"]).exited(4);
        env.run(["pause"]).exited(0);
        env.run(["resume", "next"]).exited(0);
        for name in ["batch", "next"] {
            env.run(["budget", name, "none"]).exited(0);
        }
        if !database_is_left {
            fs::remove_dir_all(env.path("state/db")).unwrap();
        }
        let rebuilt = env.run(["state", "rebuild"]).exited(0);
        rebuilt
            .says("paused: 1 unfinished batch")
            .says("paused by their owners before the loss, and still: batch");
        let resumed = env.run(["resume"]).exited(0);
        resumed.says("batch: it stays paused, as its owner said").says("next: resumed");
        env.run(["run", "batch.csv", "next.csv"]).exited(7);
        env.audit().each_paid_once(1);
        env.run(["resume", "batch"]).exited(0).says("batch: resumed");
        env.run(["run", "batch.csv"]).exited(0);
        env.audit().each_paid_once(3);
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    let index = at % bytes.len();
    bytes[index] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn every_flipped_bit_of_the_spool_is_found_by_verify() {
    let (env, _) = in_mid_run("ended:4");
    let sound = env.run(["state", "verify", "--json"]).exited(0).json();
    assert_eq!(sound["sound"], true);
    for (file, steps) in [("state/spool/000001/rows", 12), ("state/spool/000001/outcomes", 12)] {
        let whole = fs::read(env.path(file)).unwrap();
        for step in 0..steps {
            flip(&env.path(file), step * whole.len() / steps + step);
            let report = env.run(["state", "verify", "--json"]).exited(6).json();
            assert_eq!(report["sound"], false, "{file}, step {step}");
            fs::write(env.path(file), &whole).unwrap();
        }
        fs::write(env.path(file), &whole[..whole.len() - 1]).unwrap();
        env.run(["state", "verify"]).exited(6).says("were acknowledged").says("callsheet state rebuild");
        fs::write(env.path(file), &whole).unwrap();
    }
    env.run(["state", "verify"]).exited(0);
}

#[test]
fn an_export_says_which_messages_it_does_not_carry_and_a_copy_of_them_is_delivered() {
    let env = TestEnv::new();
    let received = env.path("received");
    let hook = |command: &str| env.configure(&format!("[hooks]\nbatch_done = {command}\n"));
    hook(r#"["false"]"#);
    env.write("batch.csv", manifests::manifest("image", 1));
    let daemon = env.daemon("info");
    env.run(["submit", "--wait", "batch.csv"]).exited(0);
    until("its message to be tried", || env.path("state/hooks/000001.json").exists());
    daemon.stop();
    env.run(["state", "export", "dump.jsonl"]).exited(0).says("not part of the export: messages of hooks");
    fs::rename(env.path("state"), env.path("old")).unwrap();
    env.run(["state", "import", "dump.jsonl"]).exited(0);
    fs::create_dir(env.path("state/hooks")).unwrap();
    fs::copy(env.path("old/hooks/000001.json"), env.path("state/hooks/000001.json")).unwrap();
    hook(&format!(r#"["cp", "/dev/stdin", "{}"]"#, received.display()));
    let daemon = env.daemon("info");
    until("the message to be delivered", || received.exists());
    daemon.stop();
}
