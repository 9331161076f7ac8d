//! The daemon as a process: what it takes in, what it answers, and what it survives.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::Write;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::own_address::own_address;
use crate::support::process::Running;
use crate::support::{TestEnv, eventually, manifests, until};

fn kill(daemon: Running) {
    daemon.signal(Signal::KILL);
    daemon.end().was_killed("by the test");
}

#[test]
fn what_is_submitted_is_done_and_paid_once() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 5));
    let daemon = env.daemon("info");
    let first = env.run(["submit", "batch.csv", "--wait", "--json"]).exited(0).json();
    assert_eq!(first["receipts"][0]["new"], 5);
    assert_eq!(first["batches"][0]["state"], "done");
    let again = env.run(["submit", "batch.csv", "--wait"]).exited(0);
    again.says("0 new (0 credits), 5 already there");
    until("its results", || env.path("output/batch/report.json").exists());
    daemon.stop();
    env.audit().each_paid_once(5);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 5));
    assert!(!env.path("state/callsheet.sock").exists(), "nobody listens any more");
}

#[test]
fn a_daemon_that_refuses_its_hooks_listens_nowhere() {
    let env = TestEnv::new();
    env.write("secret", "whsec_short");
    env.configure("[hooks]\nwebhook = \"http://127.0.0.1:1/\"\nwebhook_secret_file = \"secret\"");
    env.run(["daemon"]).exited(2).says("whsec_");
    assert!(!env.path("state/callsheet.sock").exists());
}

#[test]
fn a_killed_daemon_goes_on_where_it_was() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 40));
    let first = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    until("some work", || env.audit().totals.charges > 5);
    kill(first);
    let second = env.daemon("info");
    until("the end", || env.status("batch")["state"] == "done");
    until("its results", || env.path("output/batch/report.json").exists());
    second.stop();
    env.audit().each_paid_once(40);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 40));
}

#[test]
fn a_batch_that_was_done_when_the_daemon_died_is_announced_by_the_next() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    let mut dying = env.command(["daemon", "--log-level", "info"]);
    dying.env("CALLSHEET_FAILPOINT", "reporting");
    let dying = Running::start(dying);
    dying.says("ready");
    env.run(["submit", "batch.csv"]).exited(0);
    dying.end().was_killed("while it wrote the results");
    assert!(!env.path("output/batch/report.json").exists());
    let next = env.daemon("info");
    until("its results", || env.path("output/batch/report.json").exists());
    next.stop();
    env.audit().each_paid_once(2);
}

#[test]
fn results_that_cannot_be_written_keep_no_other_batch_waiting() {
    let env = TestEnv::new();
    for name in ["first", "second"] {
        env.write(&format!("{name}.csv"), manifests::manifest("image", 2));
    }
    // What the results are called is a folder that somebody put there.
    let taken = env.path("output/first/results.csv");
    std::fs::create_dir_all(taken.join("notes")).unwrap();
    let daemon = env.daemon("info");
    env.run(["submit", "first.csv", "--wait"]).exited(0);
    daemon.says("the notification failed");
    env.run(["submit", "second.csv", "--wait"]).exited(0);
    until("the results of the other", || env.path("output/second/report.json").exists());
    daemon.stop();
    std::fs::remove_dir_all(taken).unwrap();
    let next = env.daemon("info");
    until("its results", || env.path("output/first/report.json").exists());
    next.stop();
    env.audit().each_paid_once(4);
}

#[test]
fn every_answer_is_the_same_with_and_without_a_daemon() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 6));
    let running = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait", "--budget", "30"]).exited(4);
    let questions: [&[&str]; 8] = [
        &["status", "--json"],
        &["jobs", "--json"],
        &["jobs", "batch", "--state", "succeeded"],
        &["ledger", "--csv"],
        &["ledger", "--json"],
        &["explain", "batch/image-1"],
        &["explain", "batch/image-6"],
        &["explain", "batch/image-6", "--json"],
    ];
    let ask = |question: &[&str]| env.run(question.iter().copied()).exited(0).stdout;
    let there: Vec<String> = questions.iter().map(|question| ask(question)).collect();
    assert!(there[0].contains("\"parked_by\": \"batch_budget\""), "{}", there[0]);
    assert!(there[6].contains("This job needs 8 credits; 6 of 30 credits are left"), "{}", there[6]);
    let exported = ask(&["state", "export"]);
    running.stop();
    // The dump names the commit that it is of; a daemon that stops makes none.
    assert_eq!(ask(&["state", "export"]), exported);
    for (question, there) in questions.iter().zip(there) {
        assert_eq!(ask(question), there, "{question:?}");
    }
    env.run(["status"]).exited(0).says("batch: the next job needs 8, 6 of 30 credits are left");
}

#[test]
fn every_outcome_is_one_json_object_with_and_without_a_daemon() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 6));
    let running = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait", "--budget", "30"]).exited(4);
    let wishes: [&[&str]; 8] = [
        &["pause", "--json"],
        &["resume", "batch", "--json"],
        &["download", "batch", "--json"],
        &["cancel", "batch", "--json"],
        &["pause", "batch", "--json"],
        &["retry", "batch", "--json"],
        &["cancel", "batch/image-6", "--json"],
        &["cancel", "batch", "--json"],
    ];
    let wish = |wish: &[&str]| env.run(wish.iter().copied()).exited(0).json();
    let there: Vec<Value> = wishes.iter().map(|words| wish(words)).collect();
    let resolve = ["resolve", "batch/image-1", "--not-charged", "--json"];
    let refused = env.run(resolve).exited(2).json();
    assert_eq!(refused["batches"][0]["refused"], "it is not in doubt: it is succeeded");
    running.stop();
    let jobs: Vec<_> = there.iter().map(|outcome| outcome["batches"][0]["jobs"].as_u64().unwrap()).collect();
    assert_eq!(jobs, [0, 0, 0, 3, 0, 3, 1, 2], "{there:#?}");
    assert!(there.iter().all(|outcome| outcome["batches"][0]["batch"] == "batch"), "{there:#?}");
    env.run(["retry", "batch"]).exited(0);
    for (words, there) in wishes.iter().zip(there) {
        assert_eq!(wish(words), there, "{words:?}");
    }
    assert_eq!(env.run(resolve).exited(2).json(), refused);
}

#[test]
fn what_has_ended_is_neither_paused_nor_resumed() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    let mut daemon = Some(env.daemon("info"));
    let nothing = "no unfinished batch to pause; batches that come later are not paused";
    env.run(["pause"]).exited(0).says(nothing);
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    for _ in ["with a daemon", "without one"] {
        env.run(["pause"]).exited(0).says(nothing);
        env.run(["resume"]).exited(0).says("no unfinished batch to resume");
        env.run(["pause", "batch"]).exited(0).says("batch: done, nothing to pause");
        env.run(["resume", "batch"]).exited(0).says("batch: done, nothing to resume");
        let retried = env.run(["retry", "batch"]).exited(0);
        retried.says("batch: nothing to retry: no job failed");
        if let Some(daemon) = daemon.take() {
            daemon.stop();
        }
    }
}

#[test]
fn a_pause_is_what_keeps_a_paused_batch_whatever_the_key_does() {
    let env = TestEnv::new();
    env.account(&serde_json::json!({"key_valid": false}));
    env.write("batch.csv", manifests::manifest("image", 2));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"]).exited(3).says("set a valid key");
    let explained = env.run(["explain", "batch/image-2", "--json"]).exited(0).json();
    assert_eq!(explained["parked_by"], "key");
    let next = explained["next"].as_str().unwrap();
    assert!(
        next.starts_with("it is parked: the service refuses the API key; set a valid key where"),
        "{next}"
    );
    env.run(["pause", "batch"]).exited(0);
    env.run(["submit", "batch.csv", "--wait"]).exited(7).says("to continue: callsheet resume batch");
    let paused = env.status("batch");
    assert_eq!((&paused["state"], &paused["parked_by"]), (&"paused".into(), &"paused".into()));
    env.run(["status"]).exited(0).says("to continue: callsheet resume batch");
    daemon.stop();
}

#[test]
fn a_daemon_that_is_stopped_closes_its_state_in_order_so_that_the_next_one_need_not_try_it_out() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    let mark = env.path("state/closed");
    assert!(!mark.exists(), "it is open");
    daemon.stop();
    assert!(mark.exists());
}

#[test]
fn verifying_beside_a_daemon_says_to_stop_it() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    let refused = env.run(["state", "verify"]).exited(2);
    refused
        .says(&format!("a daemon (process {}, since 20", daemon.pid()))
        .says("stop the daemon, verify, and start it");
    daemon.stop();
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.write("there.jsonl", "mine");
    env.run(["state", "export", "there.jsonl"]).exited(2).says("choose a new file");
    assert_eq!(std::fs::read(env.path("there.jsonl")).unwrap(), b"mine");
}

#[test]
fn a_higher_budget_lifts_what_the_lower_one_parked_without_a_restart() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 6));
    let daemon = env.daemon("info");
    let parked = env.run(["submit", "batch.csv", "--wait", "--budget", "30"]).exited(4);
    parked.says("the next job does not fit into the rest of the batch's budget");
    assert!(env.audit().totals.charged_credits <= 30);
    env.run(["submit", "batch.csv", "--wait", "--budget", "1000"]).exited(0);
    daemon.stop();
    env.audit().each_paid_once(6);
}

#[test]
fn a_batch_is_paused_resumed_and_canceled_while_the_daemon_runs() {
    let env = TestEnv::new();
    env.configure("[limits]\nin_flight = 1");
    env.write("batch.csv", manifests::manifest("image", 200));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    env.run(["pause", "batch"]).exited(0).says("batch: paused");
    until("nothing in flight", || {
        let status = env.status("batch");
        status["running"].is_null() && status["submitting"].is_null() && status["fetching"].is_null()
    });
    let paused = env.status("batch");
    assert_eq!(paused["state"], "paused");
    let tasks = env.audit().totals.tasks;
    // One single job is dropped before its turn, twice, and told apart from the batch.
    env.run(["cancel", "batch/image-199"]).exited(0).says("1 canceled before they were sent");
    env.run(["cancel", "batch/image-199"]).exited(0).says("batch/image-199: nothing to cancel");
    assert_eq!(env.audit().totals.tasks, tasks, "nothing was sent meanwhile");
    env.run(["resume", "batch"]).exited(0).says("the daemon continues it");
    until("more work", || env.audit().totals.tasks > tasks);
    env.run(["cancel", "batch"]).exited(0);
    until("the end", || env.status("batch")["state"] == "done");
    let ended = env.status("batch");
    let (succeeded, canceled) = (&ended["succeeded"], &ended["canceled"]);
    assert_eq!(succeeded.as_u64().unwrap() + canceled.as_u64().unwrap(), 200);
    env.run(["cancel", "batch/image-1"]).exited(2).says("batch/image-1: it has ended as succeeded");
    // What was dropped comes back when it is asked for.
    env.run(["retry", "batch/image-199"]).exited(0).says("1 queued again");
    until("the end", || env.status("batch")["state"] == "done");
    assert_eq!(env.status("batch")["canceled"].as_u64().unwrap(), canceled.as_u64().unwrap() - 1);
    daemon.stop();
    let audit = env.audit();
    assert_eq!(audit.totals.charges, succeeded.as_u64().unwrap() + 1);
}

#[test]
fn the_configuration_is_read_anew_and_a_bad_one_is_not() {
    let env = TestEnv::new();
    env.configure("[budget]\ntotal = 0");
    env.write("batch.csv", manifests::manifest("image", 3));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"])
        .exited(4)
        .says("the total budget, where prices count in full, is used up");
    env.configure("[budget]\ntotla = 1000");
    daemon.signal(Signal::HUP);
    daemon.says("the old one stays in force").says("did you mean `total`");
    env.configure("[budget]\ntotal = 1000");
    assert_eq!(env.status("batch")["parked_by"], "total_budget");
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    until("the end", || env.status("batch")["state"] == "done");
    daemon.stop();
    env.audit().each_paid_once(3);
}

#[test]
fn a_level_that_left_the_configuration_is_the_usual_one_again() {
    let env = TestEnv::new();
    env.configure("[log]\nlevel = \"warn\"");
    let daemon = env.start(["daemon"]);
    until("the socket", || env.path("state/callsheet.sock").exists());
    env.configure("");
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    daemon.stop();
}

/// Nobody names a state: run and download look where an emulator's daemon keeps its own.
#[test]
fn an_emulators_daemon_is_found_by_those_who_name_the_emulator() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    let running = env.start(["daemon", "--emulator", "--emulator-speed", "500", "--log-level", "info"]);
    running.says("ready");
    let run = env.run(["run", "batch.csv", "--emulator", "--page"]).exited(0);
    run.says("a daemon runs on this state")
        .says("note: --page has no effect here, since the daemon does the work");
    running.says(&format!("\"uid\":{},\"pid\":", rustix::process::getuid().as_raw()));
    std::fs::remove_file(env.path("output/emulator/batch/image-1.png")).unwrap();
    env.run(["download", "batch", "--emulator"]).exited(0).says("the daemon downloads 1 again");
    until("the output", || env.path("output/emulator/batch/image-1.png").exists());
    running.stop();
}

#[test]
fn what_the_emulator_of_a_daemon_makes_stays_out_of_the_object_store() {
    let env = TestEnv::new();
    let store = env.write("store/of-paid-outputs", "");
    let store = store.parent().unwrap();
    env.configure(&format!("[output]\nstore = \"file://{}\"\nkeep_local = false\n", store.display()));
    env.write("batch.csv", manifests::manifest("image", 2));
    let daemon = env.start(["daemon", "--emulator", "--emulator-speed", "500", "--log-level", "info"]);
    daemon.says("ready");
    env.run(["run", "batch.csv", "--emulator"]).exited(0).says("a daemon runs on this state");
    assert!(env.path("output/emulator/batch/image-1.png").exists());
    assert_eq!(std::fs::read_dir(store).unwrap().count(), 1, "nothing is added to what is paid for");
    daemon.stop();
}

#[test]
fn run_hands_over_to_a_running_daemon() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    let daemon = env.daemon("info");
    let run = env.run(["run", "batch.csv", "--json"]).exited(0).says("a daemon runs on this state");
    assert_eq!(run.json()["batches"][0]["succeeded"], 3);
    daemon.stop();
    env.audit().each_paid_once(3);
}

/// Drops a manifest as careful writers do: under another name first.
fn drop_in(env: &TestEnv, inbox: &str, name: &str, content: &str) {
    let temporary = env.write(&format!("{inbox}/.{name}.tmp"), content);
    std::fs::rename(temporary, env.path(&format!("{inbox}/{name}"))).unwrap();
}

#[test]
fn what_programs_put_beside_a_manifest_in_an_inbox_is_not_bought() {
    let env = TestEnv::new();
    let copies = ["spring.csv.bak", "spring.csv.filepart", "~$spring.csv", "README"];
    for name in copies {
        env.write(&format!("jobs/inbox/{name}"), manifests::manifest("image", 2));
    }
    let daemon = env.daemon("info");
    daemon.says("spring.csv.bak is ignored: only manifests are taken here").says("README is ignored");
    drop_in(&env, "jobs/inbox", "spring.csv", &manifests::manifest("image", 2));
    until("the manifest", || env.path("output/spring/report.json").exists());
    let said = daemon.stop().stderr;
    assert_eq!(said.matches("spring.csv.filepart is ignored").count(), 1, "{said}");
    assert!(copies.iter().all(|name| env.path(&format!("jobs/inbox/{name}")).exists()));
    env.audit().each_paid_once(2);
}

#[test]
fn a_hook_that_prints_many_lines_does_not_flood_the_log() {
    let env = TestEnv::new();
    env.configure("[hooks]\nbatch_done = [\"sh\", \"-c\", \"yes | head -n 20000; seq 60 >&2\"]");
    env.write("batch.csv", manifests::manifest("image", 1));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    daemon.says("19950 more lines left out").says("10 more lines left out");
    let said = daemon.stop().stderr;
    assert!(said.lines().count() < 200, "{} lines", said.lines().count());
}

#[test]
fn counters_that_are_kept_across_restarts_are_never_0_after_one() {
    let env = TestEnv::new();
    env.configure("[budget]\ntotal = 16");
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(0);
    // The folders of unfinished batches are prepared before the first step.
    let unfinished: Vec<String> = (0..30).map(|n| format!("unfinished-{n}.csv")).collect();
    unfinished.iter().for_each(|name| drop(env.write(name, manifests::manifest("image", 1))));
    env.run(std::iter::once("run").chain(unfinished.iter().map(String::as_str))).exited(4);
    let daemon = env.start(["daemon", "--log-level", "info"]);
    let first = eventually("its first answer", || {
        let mut stream = UnixStream::connect(env.path("state/callsheet.sock")).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).ok()?;
        Some(answer).filter(|answer| !answer.is_empty())
    });
    assert!(first.contains("callsheet_credits_spent_total 16\n"), "{first}");
    daemon.stop();
}

fn receipt(env: &TestEnv, path: &str) -> Value {
    let path = env.path(path);
    until("a receipt", || path.exists());
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn what_is_dropped_is_filed_done_and_told() {
    let env = TestEnv::new();
    env.configure(
        "[hooks]\nbatch_done = [\"sh\", \"-c\", \"cat >> told.jsonl; echo >> told.jsonl\"]\n\
         [[inbox]]\npath = \"clients/a\"\npolicy = { budget = 20 }",
    );
    let daemon = env.daemon("info");
    until("the inboxes", || env.path("jobs/inbox").exists() && env.path("clients/a").exists());
    drop_in(&env, "jobs/inbox", "batch.csv", &manifests::manifest("image", 3));
    drop_in(&env, "jobs/inbox", "broken.csv", "id,knd\n1,image\n");
    drop_in(&env, "clients/a", "client.csv", &manifests::manifest("image", 3));
    let accepted = receipt(&env, "jobs/accepted/batch.csv.receipt.json");
    assert_eq!((&accepted["accepted"], &accepted["new"]), (&Value::Bool(true), &Value::from(3)));
    let rejected = receipt(&env, "jobs/rejected/broken.csv.receipt.json");
    assert_eq!(rejected["problems"][0]["field"], "knd");
    receipt(&env, "clients/a/accepted/client.csv.receipt.json");
    until("what was told", || {
        let told = std::fs::read_to_string(env.path("told.jsonl")).unwrap_or_default();
        told.lines().any(|line| {
            let told: Value = serde_json::from_str(line).unwrap_or_default();
            // The path that it names is good from anywhere.
            let results = told["data"]["results"].as_str().is_some_and(|path| {
                std::path::Path::new(path).is_absolute() && std::path::Path::new(path).exists()
            });
            told["type"] == "batch.done" && told["data"]["batch"] == "batch" && results
        })
    });
    until("the client's budget to be used up", || env.status("a--client")["parked_by"] == "batch_budget");
    let client = env.status("a--client");
    assert_eq!(client["budget_credits"], 20);
    assert!(client["charged_credits"].as_u64().unwrap() <= 20, "{client:#}");
    daemon.stop();
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 3));
}

#[test]
fn a_kill_between_taking_in_and_filing_reads_it_again_and_buys_nothing_twice() {
    let env = TestEnv::new();
    let mut dying = env.command(["daemon", "--log-level", "info"]);
    dying.env("CALLSHEET_FAILPOINT", "accepted");
    let dying = Running::start(dying);
    dying.says("ready");
    until("the inbox", || env.path("jobs/inbox").exists());
    drop_in(&env, "jobs/inbox", "batch.csv", &manifests::manifest("image", 5));
    dying.end().was_killed("between the two");
    assert!(env.path("jobs/inbox/batch.csv").exists());
    let next = env.daemon("info");
    let read_again = receipt(&env, "jobs/accepted/batch.csv.receipt.json");
    assert_eq!((&read_again["new"], &read_again["have"]), (&Value::from(0), &Value::from(5)));
    until("the end", || env.status("batch")["state"] == "done");
    next.stop();
    env.audit().each_paid_once(5);
}

#[test]
fn clients_that_hang_harm_nobody() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    let daemon = env.daemon("info");
    let socket = env.path("state/callsheet.sock");
    // Some say nothing, some stop in the middle of a request.
    let mut hanging: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for stream in hanging.iter_mut().step_by(2) {
        stream.write_all(b"POST /v1/pause HTTP/1.1\r\nhost: x\r\ncontent-le").unwrap();
    }
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    drop(hanging);
    daemon.stop();
}

#[test]
fn a_control_socket_whose_file_is_removed_is_made_again() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    let daemon = env.daemon("info");
    let socket = env.path("state/callsheet.sock");
    std::fs::remove_file(&socket).unwrap();
    daemon.says("created it again");
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    daemon.stop();
    assert!(!socket.exists(), "it goes away with the daemon all the same");
}

#[test]
fn strangers_are_told_what_they_did_wrong() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    let ask = |head: &str, body: &str| {
        let mut stream = UnixStream::connect(env.path("state/callsheet.sock")).unwrap();
        let length = body.len();
        let request = format!(
            "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        answer
    };
    until("the first look", || ask("GET /metrics", "").contains("callsheet_in_flight_limit 16"));
    assert!(ask("GET /v1/nothing", "").contains("no such route: GET /v1/nothing"));
    assert!(ask("POST /v1/cancel", "{}").contains("missing field `name`"));
    assert!(ask("POST /v1/pause", "{\"bach\": 1}").contains("unknown field `bach`"));
    assert!(ask("POST /v1/cancel", "not json").contains("400 Bad Request"));
    assert!(ask("GET /v1/status?batch=nope", "").contains("no batch is called nope; there is none"));
    assert!(ask("GET /v1/jobs?state=lost", "").contains("expected one of queued, submitting"));
    assert!(ask("POST /v1/manifests?file=../../etc/x.csv", "a").contains("a file's name without folders"));
    assert!(ask("POST /v1/schedules/none/run", "").contains("no schedule is called none"));
    let huge = "x".repeat(100_000);
    assert!(ask("POST /v1/pause", &huge).contains("more than 65536 bytes"));
    daemon.stop();
}

#[test]
fn every_request_of_the_page_is_there() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    let page = include_str!("../../docs/control.md");
    let requests = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let requests: Vec<&str> =
        requests.filter(|text| text.starts_with("GET ") || text.starts_with("POST ")).collect();
    assert_eq!(requests.len(), 28);
    for request in requests {
        let mut stream = UnixStream::connect(env.path("state/callsheet.sock")).unwrap();
        let head = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        assert!(!answer.contains("there is no ") && !answer.contains(" 405 "), "{request}: {answer}");
    }
    daemon.stop();
}

#[test]
fn tcp_asks_for_its_token() {
    let env = TestEnv::new();
    env.write("token", "open sesame\n");
    let address = own_address();
    env.configure(&format!("[control]\nhttp = \"{address}\"\ntoken_file = \"token\""));
    let daemon = env.daemon("info");
    let ask = |more: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request =
            format!("GET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        answer
    };
    assert!(ask("").starts_with("HTTP/1.1 401"));
    assert!(ask("authorization: Bearer open\r\n").starts_with("HTTP/1.1 401"));
    assert!(ask("authorization: Bearer open sesame\r\n").starts_with("HTTP/1.1 200"));
    assert!(ask("authorization: bearer  open sesame\r\n").starts_with("HTTP/1.1 200"), "RFC 9110, 11.1");
    assert!(ask("authorization: Basic open sesame\r\n").starts_with("HTTP/1.1 401"));
    // A token that leaked is worth nothing once its file was changed and the configuration reloaded.
    env.write("token", "another one\n");
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    daemon.says("the token of control.token_file was replaced");
    assert!(ask("authorization: Bearer open sesame\r\n").starts_with("HTTP/1.1 401"));
    assert!(ask("authorization: Bearer another one\r\n").starts_with("HTTP/1.1 200"));
    daemon.stop();
    env.configure("[control]\nhttp = \"0.0.0.0:0\"");
    env.run(["daemon"]).exited(2).says("give control.token_file");
}

#[test]
fn a_second_daemon_is_told_who_has_the_state() {
    let env = TestEnv::new();
    let first = env.daemon("info");
    let second = env.run(["daemon"]).exited(2).says(&format!("a daemon (process {}, since 20", first.pid()));
    second.says("socket state/callsheet.sock) works on ").says("callsheet submit");
    let elsewhere = ["daemon", "--state", "other", "--jobs", "other", "--socket", "state/callsheet.sock"];
    env.run(elsewhere)
        .exited(2)
        .says(&format!("state/callsheet.sock is taken: a daemon (process {}, ", first.pid()));
    // A name that a killed daemon left is taken over.
    kill(first);
    assert!(env.path("state/callsheet.sock").exists());
    let second = env.daemon("info");
    second.stop();
}

#[test]
fn a_second_daemon_on_an_inbox_refuses_to_start_and_names_the_first() {
    let env = TestEnv::new();
    env.configure("[[inbox]]\npath = \"clients/acme\"");
    let first = env.daemon("info");
    let watched =
        |inbox: &str| format!("the inbox {inbox} is watched by another daemon (process {})", first.pid());
    for other in [&["daemon", "--emulator"][..], &["daemon", "--state", "other"]] {
        env.run(other.iter().copied()).exited(2).says(&watched("jobs/inbox")).says("--jobs DIR");
    }
    let elsewhere = env.run(["daemon", "--emulator", "--jobs", "other"]).exited(2);
    elsewhere.says(&watched("clients/acme")).says("[[inbox]]");
    assert!(!env.path("state/emulator/callsheet.sock").exists());
    env.run(["doctor", "--json"]);
    env.write("jobs/inbox/.batch.csv", manifests::manifest("image", 2));
    std::fs::rename(env.path("jobs/inbox/.batch.csv"), env.path("jobs/inbox/batch.csv")).unwrap();
    until("it to be filed", || env.path("jobs/accepted/batch.csv").exists());
    until("the end", || env.status("batch")["state"] == "done");
    // With folders of its own it starts.
    env.configure("");
    let beside = env.start(["daemon", "--emulator", "--jobs", "other", "--log-level", "info"]);
    beside.says("ready");
    beside.stop();
    // A daemon that was killed leaves its inboxes to the next one.
    kill(first);
    env.daemon("info").stop();
    env.audit().each_paid_once(2);
}

#[test]
fn watching_ends_with_its_batch() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    env.run(["status", "--watch"]).exited(2);
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    let watched = env.run(["status", "batch", "--watch", "--json"]).exited(0);
    let last = watched.stdout.lines().last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["batches"][0]["state"], "done");
    daemon.stop();
}

#[test]
fn a_service_that_hangs_on_its_catalogs_keeps_no_command_and_no_signal_waiting() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.write("other.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(0);
    std::fs::remove_file(env.path("state/catalogs.json")).unwrap();
    env.faults("[[rules]]\non = 'catalog'\neffect = { do = 'delay', ms = 3600000 }");
    let daemon = env.daemon("debug");
    let waiting = env.start(["submit", "other.csv"]);
    until("the manifest to be there", || env.path("state/incoming").exists());
    env.run(["budget", "batch", "100"]).exited(0);
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    daemon.stop();
    waiting.end();
    assert_eq!(env.audit().totals.tasks, 1);
}

#[test]
fn a_batch_whose_folder_cannot_be_written_to_keeps_no_daemon_from_starting_and_buys_nothing() {
    let env = TestEnv::new();
    env.write("one.csv", manifests::manifest("image", 2));
    env.write("two.csv", manifests::manifest("image", 3));
    env.run(["run", "one.csv", "--budget", "8"]).exited(4);
    std::fs::rename(env.path("output/one"), env.path("moved")).unwrap();
    std::os::unix::fs::symlink(env.path("moved"), env.path("output/one")).unwrap();
    let daemon = env.daemon("info");
    daemon.says("batch parked: its output directory cannot be written to: ").says("output/one is a link");
    env.run(["budget", "one", "100"]).exited(0);
    env.run(["submit", "two.csv", "--wait"]).exited(0);
    assert_eq!(env.status("one")["parked_by"], "disk");
    assert_eq!(env.audit().totals.tasks, 4, "nothing is bought for a folder that cannot be written to");
    std::fs::remove_file(env.path("output/one")).unwrap();
    std::fs::rename(env.path("moved"), env.path("output/one")).unwrap();
    daemon.says("its output directory can be written to again");
    until("the end", || env.status("one")["state"] == "done");
    daemon.stop();
    env.audit().each_paid_once(5);
}

#[test]
fn who_waits_for_a_batch_is_told_that_more_was_charged_than_planned() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.faults("[[rules]]\neffect = { do = 'charge-percent', percent = 150 }");
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait", "--budget", "100"])
        .exited(0)
        .says("batch: 12 credits were charged and 8 were planned; what each job was charged: callsheet ledger batch");
    daemon.stop();
}

#[test]
fn nobody_waits_for_a_task_that_is_overdue() {
    let env = TestEnv::new();
    let job = serde_json::json!({"id": "a", "kind": "image", "model": "gi-2", "prompt": "a"});
    let manifest = serde_json::json!({"batch": "late", "policy": {"deadline": "2s"}, "jobs": [job]});
    env.write("late.json", manifest.to_string());
    env.faults("[[rules]]\neffect = { do = 'task-never' }");
    let daemon = env.daemon("info");
    env.run(["submit", "late.json", "--wait"])
        .exited(7)
        .says("late: 1 overdue: watched until the service ends");
    assert_eq!(env.status("late")["overdue"], 1);
    env.run(["status"]).exited(0).says("late: 1 overdue");
    daemon.stop();
}
