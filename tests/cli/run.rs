//! `callsheet run` as a person or a script meets it: what it leaves, what it says, and how it ends.

use std::process::Command;
use std::time::Duration;

use callsheet_emulator::Options;
use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::{TestEnv, audit_of_state, manifests, until};

/// What an image of these scripts costs.
const IMAGE_CREDITS: u64 = 8;
/// An answer to a creating call that takes its time: the task is there, the client does not know yet.
const SLOW_ANSWERS: &str = "[[rules]]\non = 'create'\neffect = { do = 'delay', ms = 400, when = 'after' }";

/// An environment with a manifest of so many images.
fn with_images(images: usize) -> TestEnv {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", images));
    env
}

fn is_finished(env: &TestEnv, ids: &[String]) {
    let (audit, outputs) = (env.audit(), Outputs::of(env, "batch"));
    audit.each_paid_once(ids.len());
    outputs.is_complete(ids);
    outputs.agrees_with(&audit);
}

// ---- the first minute ----

#[test]
fn the_sampler_runs_offline_and_says_where_its_files_are() {
    let env = TestEnv::new();
    let sampler = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/jobs/sampler.csv")).unwrap();
    env.write("jobs/sampler.csv", sampler);
    let command = ["run", "jobs/sampler.csv", "--emulator", "--emulator-speed", "500"];
    let outcome = env.run(command).exited(0);
    assert_snapshot!(env.plain(&outcome.stdout), @r"
    batch    jobs  state        planned  spent  waived  refunded  files
    sampler  8     8 succeeded  158      158    0       0         output/emulator/sampler
    ");
    assert_snapshot!(env.plain(&outcome.stderr), @r"
    jobs/sampler.csv: batch sampler: 8 new (158 credits)
    elapsed: TIME
    ");
    let outputs = Outputs::in_dir(env.path("output/emulator/sampler"));
    assert_snapshot!(outputs.names().join("\n"), @r"
    gull.wav
    icon.png
    lighthouse.mp4
    opening.mp4
    poster-v2.png
    poster.png
    report.json
    results.csv
    results.jsonl
    sidecars/gull.json
    sidecars/icon.json
    sidecars/lighthouse.json
    sidecars/opening.json
    sidecars/poster-v2.json
    sidecars/poster.json
    sidecars/theme.json
    sidecars/welcome.json
    theme.wav
    welcome.wav
    ");
    outputs.is_complete(&outputs.column("id"));
    assert_eq!(outputs.lines[0]["meta"], json!({"sku": "SKU-1001"}));

    let again = env.run(command).exited(0).says("0 new (0 credits), 8 already there");
    assert_eq!(again.stdout, outcome.stdout);
    let audit = audit_of_state(&env.path("state/emulator-service"));
    audit.each_paid_once(8);
    assert_eq!(audit.totals.replays, 0);
}

#[test]
fn without_a_service_it_says_what_to_do() {
    let env = with_images(1);
    env.write("callsheet.toml", "");
    let outcome = env.run(["run", "batch.csv"]).exited(2);
    assert_snapshot!(outcome.stderr, @r"
    error: no service is configured
    hint: try it offline with --emulator; or give --base-url URL and CALLSHEET_API_KEY, or service.base_url in callsheet.toml
    ");
}

// ---- the same again, and something else ----

#[test]
fn running_it_again_sends_nothing() {
    let env = with_images(3);
    env.run(["run", "batch.csv"]).exited(0);
    let before = env.audit().totals;
    env.run(["run", "batch.csv"]).exited(0).says("0 new (0 credits), 3 already there");
    assert_eq!(env.audit().totals, before, "not even a download");
}

#[test]
fn results_that_cannot_be_written_keep_no_other_batch_from_its_own() {
    let env = TestEnv::new();
    env.write("first.csv", manifests::manifest("image", 1));
    env.write("second.csv", manifests::manifest("image", 2));
    // What the results are called is a folder that somebody put there.
    let taken = env.path("output/first/results.csv");
    std::fs::create_dir_all(taken.join("notes")).unwrap();
    let outcome = env.run(["run", "first.csv", "second.csv"]).exited(6);
    let outcome = outcome.says("error: failed to write to output/first");
    assert!(outcome.stdout.contains("first") && outcome.stdout.contains("second"), "{}", outcome.stdout);
    assert!(!env.path("output/first/report.json").exists() && env.path("output/second/report.json").exists());
    std::fs::remove_dir_all(taken).unwrap();
    env.run(["run", "first.csv", "second.csv"]).exited(0);
    assert!(env.path("output/first/report.json").exists());
    env.audit().each_paid_once(3);
}

#[test]
fn an_edited_manifest_runs_what_is_new_or_changed() {
    let env = with_images(3);
    env.run(["run", "batch.csv"]).exited(0);
    let edited = manifests::manifest("image", 4).replace("a harbour image-2", "a lighthouse");
    env.write("batch.csv", edited);
    env.run(["run", "batch.csv"]).exited(0).says("2 new (16 credits), 1 of them changed, 2 already there");
    let audit = env.audit();
    audit.each_paid_once(5);
    let mut sent: Vec<&str> = audit.tasks[3..].iter().map(|task| task.prompt.as_str()).collect();
    sent.sort_unstable();
    assert_eq!(sent, ["a harbour image-4", "a lighthouse"]);
    let outputs = Outputs::of(&env, "batch");
    assert_eq!(outputs.lines.len(), 5, "what was made before is still listed: {:#?}", outputs.lines);
    outputs.is_complete(&outputs.column("id"));
}

#[test]
fn another_batch_is_a_deliberate_new_run() {
    let env = with_images(2);
    env.run(["run", "batch.csv"]).exited(0);
    env.run(["run", "batch.csv", "--batch", "other"]).exited(0);
    env.audit().each_paid_once(4);
    Outputs::of(&env, "other").is_complete(&manifests::ids("image", 2));
}

#[test]
fn a_lost_state_is_rebuilt_from_the_manifest_without_paying_again() {
    let env = with_images(3);
    env.run(["run", "batch.csv"]).exited(0);
    std::fs::remove_dir_all(env.path("state")).unwrap();
    env.run(["run", "batch.csv"]).exited(0);
    is_finished(&env, &manifests::ids("image", 3));
}

// ---- money that runs out ----

#[test]
fn a_budget_parks_the_rest_and_a_higher_one_finishes_it() {
    let env = with_images(5);
    let outcome = env.run(["run", "batch.csv", "--budget", "30"]).exited(4);
    assert_snapshot!(env.plain(&outcome.stderr), @r"
    batch.csv: batch batch: 5 new (40 credits); budget 30
    parked: the next job does not fit into the rest of the batch's budget, where prices count in full, even if an allowance may cover them; to raise it: callsheet budget batch N
    elapsed: TIME
    batch: the next job needs 8, 6 of 30 credits are left; for that job, or for all of the batch:
        callsheet budget batch 32
        callsheet budget batch 40
        callsheet run batch.csv
    ");
    let states = Outputs::of(&env, "batch").column("state");
    assert_eq!(states, ["succeeded", "succeeded", "succeeded", "queued", "queued"]);
    env.audit().each_paid_once(3);

    env.run(["run", "batch.csv", "--budget", "30"]).exited(4);
    env.audit().each_paid_once(3);
    env.run(["run", "batch.csv", "--budget", "40"]).exited(0);
    is_finished(&env, &manifests::ids("image", 5));
}

#[test]
fn racing_rows_never_pass_the_budget() {
    const FIT: u64 = 37;
    let env = with_images(100);
    env.configure("[limits]\nin_flight = 64");
    let budget = FIT * IMAGE_CREDITS + IMAGE_CREDITS - 1;
    let running = env.start(["run", "batch.csv", "--budget", &budget.to_string()]);
    until("all that fits to be charged", || {
        let charged = env.audit().totals.charged_credits;
        assert!(charged <= budget, "{charged} charged, {budget} allowed");
        charged == FIT * IMAGE_CREDITS
    });
    running.end().exited(4).says("does not fit into the rest of the batch's budget");
    let audit = env.audit();
    assert_eq!((audit.totals.tasks, audit.posts()), (FIT, FIT), "exactly what fits");
    assert_eq!(audit.totals.charged_credits, FIT * IMAGE_CREDITS);
}

#[test]
fn an_empty_account_stops_the_queue_and_loses_nothing() {
    const IN_FLIGHT: u64 = 2;
    let env = TestEnv::with_credits(3 * IMAGE_CREDITS);
    env.configure(&format!("[limits]\nin_flight = {IN_FLIGHT}"));
    env.write("batch.csv", manifests::manifest("image", 8));
    let outcome = env.run(["run", "batch.csv", "--json"]).exited(4);
    assert_eq!(outcome.json()["batches"][0]["parked_by"], "credits");
    assert!(outcome.stderr.contains("add credits"), "{}", outcome.stderr);
    let states = Outputs::of(&env, "batch").column("state");
    assert!(!states.contains(&"failed".to_owned()), "{states:?}");
    assert!(env.audit().totals.refused_402 <= IN_FLIGHT, "{:?}", env.audit().totals);

    env.credits(100);
    // What was sent before the first 402 came back is collected.
    env.run(["run", "batch.csv"]).exited(0);
    is_finished(&env, &manifests::ids("image", 8));
}

// ---- a service that refuses or is away ----

#[test]
fn a_wrong_key_fails_no_job() {
    let env = with_images(2);
    let mut command = env.command(["run", "batch.csv"]);
    command.env("CALLSHEET_API_KEY", "stolen");
    Running::start(command).end().exited(3).says("refuses the API key");
    assert_eq!(env.audit().totals.tasks, 0);
    env.run(["run", "batch.csv"]).exited(0);
    is_finished(&env, &manifests::ids("image", 2));
}

#[test]
fn a_key_that_is_revoked_on_the_way_fails_no_job() {
    let env = TestEnv::with(Options { speed: 10.0, ..Options::default() });
    env.write("batch.csv", manifests::manifest("image", 3));
    let running = env.start(["run", "batch.csv"]);
    until("every task to be made", || env.audit().totals.tasks == 3);
    env.account(&json!({"key_valid": false}));
    running.end().exited(3);
    env.account(&json!({"key_valid": true}));
    env.run(["run", "batch.csv"]).exited(0);
    is_finished(&env, &manifests::ids("image", 3));
}

#[test]
fn no_key_at_all_is_said_before_anything_is_done() {
    let env = with_images(1);
    let mut command = env.command(["run", "batch.csv"]);
    command.env_remove("CALLSHEET_API_KEY");
    let outcome = Running::start(command).end().exited(3);
    assert_snapshot!(outcome.stderr, @r"
    error: no API key is set
    hint: set CALLSHEET_API_KEY, or service.api_key_file in callsheet.toml
    ");
}

#[test]
fn a_service_that_is_not_there_ends_the_run_at_once() {
    let env = with_images(1);
    // Nothing ever listens on port 1.
    let outcome = env.run(["run", "batch.csv", "--base-url", "http://127.0.0.1:1"]).exited(5);
    assert_snapshot!(outcome.stderr, @r"
    error: http://127.0.0.1:1/api/v1/models?type=video: no connection: Connection refused (os error 111)
    hint: check --base-url and the network; --emulator works offline
    ");
}

#[test]
fn a_service_that_went_away_since_the_last_run_ends_the_next_at_once() {
    let env = with_images(1);
    env.run(["run", "batch.csv"]).exited(0);
    env.faults("[[rules]]\neffect = { do = 'drop', when = 'before' }");
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(5);
    env.faults("calm");
    env.run(["run", "batch.csv"]).exited(0);
    is_finished(&env, &manifests::ids("image", 2));
}

#[test]
fn failed_jobs_are_told_with_their_reasons_and_take_no_other_down() {
    let env = with_images(3);
    let reject = "[[rules]]\ncontains = 'image-2'\neffect = { do = 'content-rejected' }";
    env.faults(reject);
    let outcome = env.run(["run", "batch.csv"]).exited(1);
    assert_snapshot!(env.plain(&outcome.stderr), @r"
    batch.csv: batch batch: 3 new (24 credits)
    elapsed: TIME
    batch/image-2 (line 3): content_rejected: input content was rejected by safety filters (change the content; do not retry it unchanged)
    batch: 1 row would fail again as it is; change line 3 of batch.csv, then:
        callsheet run batch.csv
    all errors are listed in output/batch/results.csv (error_code, error_message) and results.jsonl (error)
    ");
    let outputs = Outputs::of(&env, "batch");
    assert_eq!(outputs.column("state"), ["succeeded", "failed", "succeeded"]);
    assert_eq!(outputs.lines[1]["error"]["code"], "content_rejected");
    assert_eq!(outputs.lines[1]["charged_credits"], 0);
    assert_eq!(env.audit().totals.tasks, 2, "what was rejected is never sent again");

    env.faults("calm");
    env.run(["run", "batch.csv"]).exited(1);
    assert_eq!(env.audit().totals.tasks, 2, "nor by the same command");
}

#[test]
fn a_failed_task_is_refunded_and_tried_again_under_another_key() {
    let env = with_images(1);
    env.faults("[[rules]]\ntimes = 1\neffect = { do = 'task-fails', code = 'provider_unavailable' }");
    env.run(["run", "batch.csv"]).exited(0);
    let audit = env.audit();
    assert_eq!((audit.totals.tasks, audit.totals.refunds), (2, 1));
    assert_ne!(audit.tasks[0].key, audit.tasks[1].key);
    assert_eq!(audit.totals.charged_credits - audit.totals.refunded_credits, IMAGE_CREDITS);
    let outputs = Outputs::of(&env, "batch");
    assert_eq!((&outputs.lines[0]["attempts"], &outputs.lines[0]["charged_credits"]), (&json!(2), &json!(8)));
}

#[test]
fn a_question_keeps_no_run_from_starting_nor_a_run_that_starts_a_question() {
    let env = with_images(1);
    env.run(["run", "batch.csv"]).exited(0);
    for _ in 0..8 {
        let running = env.start(["run", "batch.csv"]);
        env.run(["status"]).exited(0);
        running.end().exited(0);
    }
}

// ---- what is, and what to type next ----

#[test]
fn a_batch_that_the_program_paused_says_why() {
    let env = with_images(0);
    let job = |id: &str| json!({"id": id, "kind": "image", "model": "gi-2", "prompt": id});
    let policy = json!({"on_drift": "pause", "budget": 1_000});
    let manifest = json!({"batch": "drift", "policy": policy, "jobs": [job("a"), job("b")]});
    env.write("drift.json", manifest.to_string());
    env.configure("[limits]\nin_flight = 1\n");
    env.faults("[[rules]]\ntimes = 1\neffect = { do = 'charge-percent', percent = 200 }");
    let reason = "is paused, since a job was charged otherwise than planned";
    env.run(["run", "drift.json"]).exited(7).says(&format!("drift {reason}"));
    env.run(["status"]).exited(0).says(&format!("drift {reason}"));
    let explained = env.run(["explain", "drift/b"]).exited(0).stdout;
    assert!(explained.contains(&format!("its batch {reason}")), "{explained}");
}

#[test]
fn what_keeps_a_batch_is_told_in_the_place_of_who_goes_on() {
    let env = with_images(3);
    env.run(["run", "batch.csv", "--budget", "16"]).exited(4);
    env.run(["resume", "batch"]).exited(0).says(
        "batch: was not paused; the balance and the prices are checked again; it is parked: the next job does not fit",
    );
    env.run(["pause", "batch"]).exited(0);
    env.run(["cancel", "batch"]).exited(0);
    env.run(["retry", "batch"]).exited(0).says("it is paused; to continue: callsheet resume batch");
    env.run(["resume", "batch"]).exited(0).says("batch: resumed; it is parked: the next job does not fit");
    env.run(["cancel", "batch"]).exited(0);
    let ended = env.run(["run", "batch.csv", "--budget", "16"]).exited(1);
    assert!(!ended.stderr.contains("all errors are listed"), "nothing failed: {}", ended.stderr);
    ended.says("batch: 1 canceled; to queue them again:\n    callsheet retry batch\n");
}

#[test]
fn without_a_process_nothing_is_said_to_move() {
    let env = TestEnv::new();
    let job = json!({"id": "image-1", "kind": "image", "model": "gi-2", "prompt": "a harbour"});
    env.write("batch.json", json!({"policy": {"attempts": 1}, "jobs": [job]}).to_string());
    env.faults("[[rules]]\ntimes = 1\neffect = { do = 'task-fails', code = 'provider_unavailable' }");
    env.run(["run", "batch.json"]).exited(1);
    let next = "no process works on this state; to continue: callsheet daemon, or, with the manifest as it was last \
                accepted: callsheet run MANIFEST --batch batch";
    env.run(["retry", "batch"]).exited(0).says(next);
    let status: Value = serde_json::from_str(&env.run(["status", "--json"]).exited(0).stdout).unwrap();
    let batch = &status["batches"][0];
    assert_eq!((&batch["state"], &batch["parked_by"]), (&json!("parked"), &json!("no_process")));
    let explained = env.run(["explain", "batch/image-1"]).exited(0);
    assert!(explained.stdout.contains(next), "{}", explained.stdout);
    env.run(["run", "batch.json"]).exited(0);
    env.run(["resume", "batch"]).exited(0).says("done, nothing to resume");
}

#[test]
fn a_label_names_a_job_where_a_batch_is_called_the_same() {
    let env = TestEnv::new();
    env.write("rain.csv", "id,kind,prompt\nrain,sound-effect,rain on a roof\n");
    env.run(["run", "rain.csv"]).exited(0);
    let explained = env.run(["explain", "rain"]).exited(0).stdout;
    assert!(explained.starts_with("rain/rain: succeeded"), "{explained}");
    env.write("storm.csv", "id,kind,prompt\nrain,sound-effect,rain at sea\n");
    env.run(["run", "storm.csv"]).exited(0);
    env.run(["explain", "rain"]).exited(2).says("2 jobs are called rain; one of them is ");
    env.run(["explain", "storm"])
        .exited(2)
        .says("storm is a batch; no job has this name")
        .says("list its jobs with callsheet jobs storm; name a job as storm/JOB");
}

#[test]
fn a_run_of_what_is_done_tells_of_missing_files_and_of_drift() {
    let env = with_images(3);
    env.faults("[[rules]]\ncontains = 'image-2'\neffect = { do = 'other-model', model = 'understudy' }");
    let drift = "batch/image-2 (line 3): drift: model: planned ";
    env.run(["run", "batch.csv"]).exited(0).says(drift);
    let explained = env.run(["explain", "batch/image-2"]).exited(0);
    assert!(explained.stdout.contains("  drift     model: planned "), "{}", explained.stdout);
    for line in Outputs::of(&env, "batch").lines {
        let file = line["files"][0]["path"].as_str().unwrap();
        std::fs::remove_file(env.path("output/batch").join(file)).unwrap();
    }
    let again = env.run(["run", "batch.csv"]).exited(0);
    again.says("batch: 3 succeeded, 3 files missing:\n    callsheet download batch\n");
    assert_eq!(Outputs::of(&env, "batch").report()["missing_files"], 3);
    env.run(["download", "batch"]).exited(0);
    let whole = env.run(["run", "batch.csv"]).exited(0);
    assert!(!whole.stderr.contains("missing"), "{}", whole.stderr);
}

#[test]
fn rows_that_were_refused_are_counted_where_their_batch_is() {
    let env = TestEnv::new();
    let rows = "id,kind,model,prompt\na,image,gi-2,A map\nb,image,nope,A key\n";
    env.write("batch.csv", rows);
    env.run(["run", "batch.csv"]).exited(2);
    let refused = || {
        let told = env.run(["status", "--json"]).exited(0);
        let status: Value = serde_json::from_str(&told.stdout).unwrap();
        let report = Outputs::of(&env, "batch").report();
        (status["batches"][0]["refused_rows"].clone(), report["refused_rows"].clone())
    };
    assert_eq!(refused(), (json!(1), json!(1)));
    env.run(["status"])
        .exited(0)
        .says("batch: 1 row of its last manifest was rejected; callsheet plan MANIFEST shows why");
    // The row is left out: none is refused any more, and nothing is bought.
    env.write("batch.csv", rows.replace("b,image,nope,A key\n", ""));
    env.run(["run", "batch.csv"]).exited(0);
    assert_eq!(refused(), (Value::Null, json!(0)));
    env.audit().each_paid_once(1);
}

/// What an invoice names is in the results and in the sidecar, as the service tells it of the task.
#[test]
fn what_a_task_says_can_be_held_against_an_invoice() {
    let env = with_images(1);
    env.run(["run", "batch.csv"]).exited(0);
    let outputs = Outputs::of(&env, "batch");
    let (task, id) = (&outputs.lines[0]["task"], outputs.lines[0]["task_id"].as_str().unwrap());
    let told = env.run(["tasks", id, "--json"]).exited(0);
    let record: Value = serde_json::from_str(&told.stdout).unwrap();
    let fields = [
        ("credit_id", "creditId"),
        ("created_at", "createdAt"),
        ("updated_at", "updatedAt"),
        ("upstream_id", "taskId"),
        ("visibility", "visibility"),
    ];
    for (ours, theirs) in fields {
        assert!(record[theirs].is_string(), "{theirs}: {record:#}");
        assert_eq!(task[ours], record[theirs], "{ours}: {task:#}");
    }
    assert!(task["options"].is_object(), "{task:#}");
    let sidecar = std::fs::read(env.path("output/batch/sidecars/image-1.json")).unwrap();
    let sidecar: Value = serde_json::from_slice(&sidecar).unwrap();
    assert_eq!(&sidecar["task"], task);
    assert_eq!(sidecar["first_sent"], outputs.lines[0]["first_sent"]);
    let time = |value: &Value| chrono::DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap();
    assert!(time(&sidecar["first_sent"]) <= time(&sidecar["downloaded"]), "{sidecar:#}");
    assert!(time(&sidecar["downloaded"]) <= time(&outputs.lines[0]["ended"]), "{sidecar:#}");
    let shown = env.run(["tasks", id]).exited(0);
    assert!(shown.stdout.contains("creditId       "), "{}", shown.stdout);
    let unknown = env.run(["tasks", "00000000-0000-4000-8000-000000000000"]).exited(2);
    unknown.says("the service knows no task 00000000-0000-4000-8000-000000000000");
    env.audit().each_paid_once(1);
}

// ---- interrupted ----

#[test]
fn one_interrupt_finishes_what_is_in_the_air_and_says_how_to_go_on() {
    let env = with_images(6);
    env.configure("[limits]\nin_flight = 2");
    env.faults(SLOW_ANSWERS);
    let running = env.start(["run", "batch.csv"]);
    until("a task whose answer is on its way", || env.audit().totals.tasks >= 1);
    running.signal(Signal::INT);
    let outcome = running.end().exited(130);
    let outcome = outcome.says("stopping: nothing more is submitted; waiting for the answer");
    let outcome = outcome.says("under the same keys, and nothing is paid twice");
    let said = env.plain(&outcome.stderr);
    assert!(
        said.contains("interrupted: the state is safe; repeat the command to resume\nelapsed: TIME"),
        "{said}"
    );
    let states = Outputs::of(&env, "batch").column("state");
    assert!(!states.contains(&"submitting".to_owned()), "every answer was waited for: {states:?}");

    env.faults("calm");
    env.run(["run", "batch.csv"]).exited(0);
    is_finished(&env, &manifests::ids("image", 6));
    assert_eq!(env.audit().totals.replays, 0, "nothing had to be sent twice");
}

#[test]
fn a_second_interrupt_leaves_at_once() {
    const LONGER_THAN_ANYONE_WAITS: &str =
        "[[rules]]\non = 'create'\neffect = { do = 'delay', ms = 3600000, when = 'after' }";
    let env = with_images(2);
    env.faults(LONGER_THAN_ANYONE_WAITS);
    let running = env.start(["run", "batch.csv"]);
    until("both tasks to be made", || env.audit().totals.tasks == 2);
    running.signal(Signal::INT);
    running.says("press Ctrl-C again to exit without the answers").signal(Signal::INT);
    running.end().exited(130).says("exited without the answers to 2 requests: repeat the command");

    env.faults("calm");
    env.run(["run", "batch.csv"]).exited(0);
    is_finished(&env, &manifests::ids("image", 2));
}

#[test]
fn an_interrupted_run_waits_for_answers_longer_than_half_a_minute() {
    const LATER_THAN_THE_GRACE: &str =
        "[[rules]]\non = 'create'\neffect = { do = 'delay', ms = 33000, when = 'after' }";
    let env = with_images(1);
    env.faults(LATER_THAN_THE_GRACE);
    let running = env.start(["run", "batch.csv"]);
    until("the task to be made", || env.audit().totals.tasks == 1);
    running.signal(Signal::INT);
    running.end().exited(130);
    let states = Outputs::of(&env, "batch").column("state");
    assert_ne!(states, ["submitting"], "its answer was waited for");
    env.audit().each_paid_once(1);
}

#[test]
fn sigterm_and_a_terminal_that_closes_stop_like_an_interrupt() {
    for signal in [Signal::TERM, Signal::HUP] {
        let env = with_images(2);
        env.faults(&SLOW_ANSWERS.replace("400", "4000"));
        // Whatever these tests were started by: under `nohup` they ignore SIGHUP, and so would what they start.
        let running = Running::start(started_by(&["env", "--default-signal=HUP"], &env));
        until("a task whose answer is on its way", || env.audit().totals.tasks >= 1);
        running.signal(signal);
        if signal == Signal::HUP {
            // Its shell and the system both tell that a terminal closed.
            running.says("stopping: nothing more is submitted").signal(signal);
        }
        running.end().exited(130).says("repeat the command to resume");
        let states = Outputs::of(&env, "batch").column("state");
        assert!(
            !states.contains(&"submitting".to_owned()),
            "{signal:?}: every answer was waited for: {states:?}"
        );
        env.faults("calm");
        env.run(["run", "batch.csv"]).exited(0);
        is_finished(&env, &manifests::ids("image", 2));
    }
}

/// `run batch.csv`, started by another program that becomes it.
fn started_by(program: &[&str], env: &TestEnv) -> Command {
    let run = env.command(["run", "batch.csv"]);
    let mut command = Command::new(program[0]);
    command
        .args(&program[1..])
        .arg(run.get_program())
        .args(run.get_args())
        .envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(env.path(""));
    command
}

#[test]
fn a_run_under_nohup_goes_on_without_its_terminal() {
    let env = with_images(2);
    env.faults(SLOW_ANSWERS);
    let running = Running::start(started_by(&["nohup"], &env));
    until("a task whose answer is on its way", || env.audit().totals.tasks >= 1);
    running.signal(Signal::HUP);
    running.end().exited(0);
    is_finished(&env, &manifests::ids("image", 2));
}

#[test]
fn an_interrupt_before_the_first_job_is_sent_ends_a_run_in_order() {
    let env = with_images(1);
    env.faults("[[rules]]\non = 'credits'\neffect = { do = 'delay', ms = 3600000 }");
    let running = env.start(["run", "batch.csv"]);
    until("the run to listen", || env.path("state/callsheet.sock").exists());
    running.signal(Signal::TERM);
    running.end().exited(130).says("interrupted before this run sent a job; repeat the command to resume");
    env.faults("calm");
    env.run(["run", "batch.csv"]).exited(0);
    is_finished(&env, &manifests::ids("image", 1));
}

#[test]
fn a_pause_and_an_interrupt_reach_jobs_that_wait_for_submits_per_second() {
    let env = with_images(30);
    env.configure("[limits]\nin_flight = 30\nsubmits_per_second = 2");
    // As long as a task runs, the paused run does not end by itself before the interrupt comes.
    env.faults("[[rules]]\non = 'create'\neffect = { do = 'task-late', ms = 600000 }");
    let running = env.start(["run", "batch.csv"]);
    until("some jobs to be sent", || env.audit().totals.tasks >= 3);
    env.run(["pause", "batch"]).exited(0);
    let sent = env.audit().totals.tasks;
    running.signal(Signal::INT);
    running.end().exited(130);
    let tasks = env.audit().totals.tasks;
    assert!(tasks <= sent + 2, "{sent} were sent when the batch was paused, {tasks} in the end");
    env.advance(Duration::from_secs(601));
    env.audit().each_paid_once(usize::try_from(tasks).unwrap());
}

#[test]
fn a_download_says_what_is_not_finished() {
    let env = TestEnv::with_faults("[[rules]]\neffect = { do = 'task-never' }");
    env.configure("[deadlines]\nimage = \"1s\"");
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(7);
    env.run(["download", "batch"])
        .exited(0)
        .says("on disk; not finished: 1, in doubt: 0; to list these jobs");
}

// ---- two at once ----

#[test]
fn a_second_process_on_the_same_state_is_told_who_holds_it() {
    let env = TestEnv::with(Options { manual_clock: true, ..Options::default() });
    env.write("batch.csv", manifests::manifest("image", 1));
    let first = env.start(["run", "batch.csv"]);
    until("the first to work", || env.audit().totals.tasks == 1);
    let outcome = env.run(["run", "batch.csv"]).exited(2);
    let told = env.plain(&outcome.stderr).replace(&first.pid().to_string(), "PID");
    assert_snapshot!(told, @r"
    error: a run works on DIR/state (process PID) and takes no more manifests
    hint: wait for that process to end, or choose another state with --state; callsheet daemon takes manifests at any time
    ");
    first.signal(Signal::INT);
    first.end().exited(130);
}

#[test]
fn a_run_answers_questions_and_takes_its_owners_commands() {
    let env = TestEnv::with(Options { manual_clock: true, ..Options::default() });
    env.configure("[limits]\nin_flight = 1\nadaptive = false");
    env.write("batch.csv", manifests::manifest("image", 3));
    env.write("more.csv", manifests::manifest("image", 4));
    let running = env.start(["run", "batch.csv"]);
    until("it to work", || env.audit().totals.tasks == 1);
    let status = env.run(["status", "--json"]).exited(0).json();
    assert_eq!(
        (&status["batches"][0]["state"], &status["batches"][0]["queued"]),
        (&json!("active"), &json!(2))
    );
    env.run(["plan", "batch.csv"]).exited(0);
    env.run(["submit", "more.csv"]).exited(2).says("takes no more manifests");
    env.run(["explain", "image-3"]).exited(0);
    env.run(["cancel", "batch/image-3"]).exited(0).says("1 canceled before they were sent");
    env.run(["pause"]).exited(0).says("batch: paused");
    env.run(["pause"]).exited(0).says("batch: was paused already");
    env.run(["resume"]).exited(0).says("batch: resumed; the run continues it");
    running.signal(Signal::INT);
    running.end().exited(130);
    assert!(!env.path("state/callsheet.sock").exists());
    assert_eq!(env.audit().totals.tasks, 1);
    let status = env.run(["status", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["canceled"], 1, "{status:#}");
}

// ---- what is said, and where ----

#[test]
fn json_is_alone_on_stdout() {
    let env = with_images(2);
    env.write("batch.csv", manifests::manifest("image", 2) + "image-3,image,gi-2,,,,,\n");
    let report = env.run(["run", "batch.csv", "--json"]).exited(2).says("prompt").json();
    assert_eq!(report["exit_code"], 2);
    let receipt = &report["receipts"][0];
    assert_eq!((&receipt["new"], &receipt["invalid"]), (&json!(2), &json!(1)));
    let batch: Value = report["batches"][0].clone();
    assert_eq!((&batch["name"], &batch["states"]), (&json!("batch"), &json!({"succeeded": 2})));
    assert_eq!((&batch["charged_credits"], &batch["held_credits"]), (&json!(16), &json!(0)));
}

#[test]
fn elsewhere_than_on_a_terminal_nothing_is_coloured() {
    let env = with_images(1);
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "xterm-256color")] {
        for arguments in [&["run", "batch.csv", "--batch", name][..], &["rnu"], &["--help"]] {
            // A warning is logged for it.
            env.faults("[[rules]]\non = 'download'\ntimes = 1\neffect = { do = 'html-download' }");
            let mut command = env.command(arguments.iter().copied());
            command.env(name, value);
            let outcome = Running::start(command).end();
            let said = outcome.stdout + &outcome.stderr;
            assert!(!said.is_empty() && !said.contains('\u{1b}'), "{name}, {arguments:?}: {said:?}");
        }
    }
}

#[test]
fn elsewhere_than_on_a_terminal_progress_is_a_line_now_and_then() {
    let env = TestEnv::with(Options { manual_clock: true, ..Options::default() });
    env.write("batch.csv", manifests::manifest("image", 2));
    let running = env.start(["run", "batch.csv"]);
    running.says("0/2 jobs  2 in flight · 16 of 16 credits spent");
    env.advance(Duration::from_secs(60));
    running.end().exited(0);
}

#[test]
fn help_lists_the_exit_codes() {
    let env = TestEnv::new();
    let help = env.run(["run", "--help"]).exited(0).stdout;
    let codes = help.split_once("Exit codes:").unwrap().1;
    assert_snapshot!(codes, @r"
      0  everything is done
      1  some jobs failed, were canceled or expired
      2  usage, configuration or manifest is wrong
      3  not authorised
      4  stopped by a budget or by the balance
      5  the service does not answer
      6  the disk is full or not writable, or the state is damaged
      7  not finished: overdue, paused, in doubt, waiting for review or after a pilot
    130  interrupted; the state is safe, repeat the command to resume
    ");
}
