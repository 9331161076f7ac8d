//! Commands that are named when something ended badly: copied as they stand, each does what its sentence says, and buys
//! nothing else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::support::collect_outputs::Outputs;
use crate::support::{TestEnv, ahead, manifests, until};

/// The first task of a row with this prompt fails.
const ONCE: &str = "[[rules]]\ncontains = 'once'\ntimes = 1\neffect = { do = 'task-fails', code = 'provider_unavailable' }\n";

#[test]
fn the_command_for_failed_jobs_buys_no_canceled_one() {
    let env = TestEnv::with_faults(ONCE);
    let jobs = json!([
        {"id": "a", "kind": "sound-effect", "prompt": "once"},
        {"id": "b", "kind": "video", "model": "house-c1", "prompt": "unwanted"},
        {"id": "c", "kind": "sound-effect", "prompt": "fine"},
    ]);
    env.write("w.json", json!({"batch": "w", "policy": {"attempts": 1}, "jobs": jobs}).to_string());
    env.run(["run", "w.json", "--budget", "0"]).exited(4);
    env.run(["cancel", "w/b"]).exited(0);
    env.run(["run", "w.json", "--budget", "100"])
        .exited(1)
        .says("w: 1 failed job may succeed at another attempt:\n    callsheet retry w --failed\n")
        .says("w: 1 canceled; to queue them again, together with 1 failed:\n    callsheet retry w\n");
    env.run(["retry", "w", "--failed"]).exited(0).says("w: 1 queued again");
    env.run(["run", "w.json"]).exited(1).says("w: 1 canceled; to queue them again:\n    callsheet retry w\n");
    let audit = env.audit();
    assert!(audit.tasks.iter().all(|task| task.prompt != "unwanted"), "{:#?}", audit.tasks);
}

#[test]
fn a_row_whose_deadline_has_passed_is_refused_before_it_is_accepted() {
    let env = TestEnv::new();
    env.write(
        "r.csv",
        "id,kind,prompt,deadline\na,sound-effect,rr,2020-01-01T00:00:00Z\nb,sound-effect,bb,1h\n",
    );
    let told = "r.csv:2:19: deadline: is 2020-01-01T00:00:00.000Z, which has passed: the job would not be sent (hint: set a \
                later instant, or a span such as 30m, which is counted from when the job is sent)";
    env.run(["plan", "r.csv"]).exited(2).says(told);
    env.run(["run", "r.csv"]).exited(2).says(told).says("1 new (5 credits), 1 not valid");
    let audit = env.audit();
    assert_eq!(audit.tasks.len(), 1, "{:#?}", audit.tasks);
    let policy = json!({"policy": {"deadline": "2020-01-01T00:00:00Z"}, "jobs": [{"kind": "sound-effect", "prompt": "ss"}]});
    env.write("s.json", policy.to_string());
    env.run(["plan", "s.json"])
        .exited(2)
        .says("policy.deadline: is 2020-01-01T00:00:00.000Z, which has passed");
}

#[test]
fn a_row_that_missed_its_own_deadline_is_not_queued_again_and_again() {
    let env = TestEnv::new();
    let soon = ahead(Duration::from_secs(2));
    let jobs = json!([
        {"id": "late", "kind": "sound-effect", "prompt": "rr", "deadline": soon.to_string()},
        {"id": "fine", "kind": "sound-effect", "prompt": "ff"},
    ]);
    let manifest = |budget: u64| json!({"policy": {"budget": budget}, "jobs": jobs}).to_string();
    env.write("r.json", manifest(0));
    env.run(["run", "r.json"]).exited(4);
    until("the deadline", || ahead(Duration::ZERO) > soon);
    env.write("r.json", manifest(100));
    let told = "r: 1 expired, because the deadline of its row had passed; a retry would expire, too: to have it made, add its \
                row with another id and a later deadline";
    let ended = env.run(["run", "r.json"]).exited(1).says(told);
    assert!(!ended.stderr.contains("callsheet retry"), "{}", ended.stderr);
    env.run(["retry", "r"])
        .exited(0)
        .says("r: nothing was queued again")
        .says("1 would expire at once, because the deadline of their row has passed");
    let plan = env.run(["plan", "r.json"]).exited(0).stdout;
    assert!(plan.contains("callsheet retry r would queue none again"), "{plan}");
    // What is done stays done, whatever its deadline.
    env.run(["run", "r.json"]).exited(1).says("2 already there");
    env.audit().each_paid_once(1);
}

#[test]
fn an_option_that_nobody_documents_is_noted_once() {
    let env = TestEnv::new();
    let row = |n: u32| {
        let options = json!({"zork": n, "qualtiy": "high"});
        json!({"kind": "video", "model": "house-c1", "prompt": format!("a boat {n}"), "options": options})
    };
    env.write("m.json", json!([row(1), row(2), row(3)]).to_string());
    let plan = env.run(["plan", "m.json"]).exited(0);
    for option in ["options.zork", "options.qualtiy"] {
        let told = format!(
            "{option}: is not an option of video that the service documents; it is sent as it is, unchecked"
        );
        assert_eq!(plan.stderr.matches(&told).count(), 1, "{}", plan.stderr);
    }
}

#[test]
fn a_status_without_a_process_says_that_prices_may_have_risen() {
    let env = TestEnv::new();
    env.write("m.json", json!([{"id": "a", "kind": "sound-effect", "prompt": "rr"}]).to_string());
    env.run(["run", "m.json", "--budget", "0"]).exited(4);
    let told = "callsheet budget m N, where N is 5 for that job, at the prices at which they were accepted; they may cost more by now";
    env.run(["status"]).exited(0).says(told);
}

/// The copied command, after its row was edited, must refuse what the first one refused.
#[test]
fn the_command_for_the_manifest_again_keeps_the_terms_that_refused_a_row() {
    let env = TestEnv::with_faults(
        "[[rules]]\ncontains = 'unfit'\neffect = { do = 'task-fails', code = 'content_rejected' }\n",
    );
    let manifest = |prompt: &str| {
        format!("id,kind,model,prompt\ncheap,image,gi-2,{prompt}\ndear,video,house-c1,a boat\n")
    };
    env.write("p.csv", manifest("unfit"));
    let terms = ["--max-credits", "8", "--allow-unknown-options"];
    let ended = env.run(["run", "p.csv"].into_iter().chain(terms)).exited(2);
    let ended = ended.says(
        "change line 2 of p.csv, then:\n    callsheet run p.csv --max-credits 8 --allow-unknown-options\n",
    );
    let command = ended.stderr.lines().find_map(|line| line.trim().strip_prefix("callsheet run p.csv"));
    env.write("p.csv", manifest("a gull"));
    let words = ["run", "p.csv"].into_iter().chain(command.unwrap().split_whitespace());
    env.run(words).exited(2).says("raise --max-credits, or ask for less");
    env.write("q.csv", manifest("unfit"));
    let daemon = env.daemon("info");
    env.run(["submit", "q.csv", "--wait"].into_iter().chain(terms))
        .exited(2)
        .says("    callsheet submit q.csv --max-credits 8 --allow-unknown-options\n");
    daemon.stop();
    let audit = env.audit();
    assert!(audit.tasks.iter().all(|task| task.prompt != "a boat"), "{:#?}", audit.tasks);
}

#[test]
fn a_plan_of_what_is_done_promises_no_waiting_jobs_whatever_its_budget_is_now() {
    let env = TestEnv::new();
    env.write("m.json", json!([{"id": "a", "kind": "sound-effect", "prompt": "rr"}]).to_string());
    env.run(["run", "m.json"]).exited(0);
    env.run(["budget", "m", "3"]).exited(0);
    let plan = env.run(["plan", "m.json"]).exited(0).stdout;
    let told = "budget: m may spend 3 credits, of which 5 are spent or held: nothing more is to be spent";
    assert!(plan.contains(told), "{plan}");
}

/// The service did not know a task for a while, which has succeeded all the same.
#[test]
fn what_the_task_of_a_job_in_doubt_made_is_fetched_once_its_charge_is_recorded() {
    let env = TestEnv::with_faults(
        "[[rules]]\non = 'poll'\nper = 'task'\ntimes = 8\neffect = { do = 'answer', status = 404 }\n",
    );
    env.configure("[deadlines]\nwatch_overdue_for = \"1ms\"\n");
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(7).says("1 job is in doubt");
    let next = || env.run(["explain", "batch/image-1", "--json"]).exited(0).json()["next"].to_string();
    let told = next();
    let task = env.audit().tasks[0].id.clone();
    let fetches = format!(
        "If task {task} has succeeded at the service, callsheet download batch/image-1 fetches its outputs once the charge is \
         recorded"
    );
    assert!(told.contains(&fetches), "{told}");
    assert!(told.contains(&format!("callsheet tasks {task}")), "{told}");
    env.run(["resolve", "batch/image-1", "--charged", "8"])
        .exited(0)
        .says("free of charge: callsheet download batch/image-1");
    assert!(next().contains("callsheet download batch/image-1"), "{}", next());
    env.run(["download", "batch/image-1"]).exited(0);
    Outputs::of(&env, "batch").is_complete(&manifests::ids("image", 1));
    env.audit().each_paid_once(1);
}

/// A command that is copied must reach the same service, and must not buy the rows for a batch of another name.
#[test]
fn who_continues_a_batch_is_told_with_its_name_and_its_service() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv", "--batch", "spring", "--budget", "0"]).exited(4);
    fs::remove_file(env.path("callsheet.toml")).unwrap();
    let told = env.run(["budget", "spring", "100"]).exited(0);
    let service = env.base_url();
    let service = service.trim_end_matches('/');
    let copied = format!("callsheet run --base-url {service} MANIFEST --batch spring");
    let explained = env.run(["explain", "spring/image-1"]).exited(0);
    assert!(explained.stdout.contains(&copied), "{}{}", told.stderr, explained.stdout);
    env.run(["run", "--base-url", service, "batch.csv", "--batch", "spring"]).exited(0);
    env.audit().each_paid_once(1);
}

/// A person looked the charge up, and it was right: only the outputs are missing.
#[test]
fn what_a_request_without_an_answer_made_is_fetched_although_its_charge_was_recorded() {
    let env = TestEnv::with_faults("[[rules]]\non = 'create'\neffect = { do = 'drop', when = 'after' }\n");
    env.write(
        "m.json",
        json!([{"id": "boat", "kind": "image", "model": "gi-2", "prompt": "x", "deadline": "1s"}])
            .to_string(),
    );
    let next = || env.run(["explain", "m/boat", "--json"]).exited(0).json()["next"].to_string();
    env.run(["run", "m.json"]).exited(7);
    assert!(next().contains("its outputs are not downloaded then"), "{}", next());
    env.run(["resolve", "m/boat", "--charged", "8"])
        .exited(0)
        .says("no task of it is known, so its outputs cannot be downloaded")
        .says("callsheet explain m/boat");
    env.faults("");
    let told = "callsheet resolve m/boat --not-charged, then callsheet retry m/boat";
    assert!(next().contains(told), "{}", next());
    env.run(["retry", "m/boat"]).exited(0).says("callsheet explain JOB says what can be done");
    env.run(["resolve", "m/boat", "--not-charged"]).exited(0);
    env.run(["retry", "m/boat"]).exited(0).says("1 queued again, each under its old key");
    env.run(["run", "m.json"]).exited(0);
    let line = Outputs::of(&env, "m").lines.remove(0);
    assert_eq!((&line["state"], &line["charged_credits"]), (&json!("succeeded"), &json!(8)));
    env.audit().each_paid_once(1);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

/// Which of two manifests a row is of is not known; the first one again would bring back what the second has in a newer version.
#[test]
fn after_two_manifests_of_a_batch_no_command_names_one_of_them() {
    let env = TestEnv::with_faults("[[rules]]\ncontains = 'storm'\neffect = { do = 'content-rejected' }\n");
    env.write("a.csv", "id,kind,model,prompt\na,image,gi-2,a fox\n");
    env.write("b.csv", "id,kind,model,prompt\na,image,gi-2,a red fox\nb,image,gi-2,a storm\n");
    let ended = env.run(["run", "a.csv", "b.csv", "--batch", "m"]).exited(1);
    let ended = ended.says("change line 3, then:\n    callsheet run MANIFEST --batch m\n");
    assert!(!ended.stderr.contains("run a.csv") && !ended.stderr.contains("run b.csv"), "{}", ended.stderr);
    // The same file twice is one.
    env.run(["run", "b.csv", "b.csv", "--batch", "m"]).exited(1).says("callsheet run b.csv --batch m\n");
}

#[test]
fn each_reason_that_parks_a_batch_of_a_run_is_told() {
    let env = TestEnv::new();
    env.write("a.csv", "id,kind,prompt\na,sound-effect,gull\n");
    env.write(
        "b.json",
        r#"{"policy": {"budget": 0}, "jobs": [{"id": "b", "kind": "sound-effect", "prompt": "tern"}]}"#,
    );
    env.run(["run", "a.csv", "--budget", "0"]).exited(4);
    env.run(["pause", "a"]).exited(0);
    env.run(["run", "a.csv", "b.json"])
        .exited(7)
        .says("parked: the batch is paused; to continue: callsheet resume a\n")
        .says("parked: the next job does not fit into the rest of the batch's budget");
}

/// Both commands end alike.
#[test]
fn an_invalid_row_is_told_by_the_exit_code_though_another_is_overdue() {
    let env = TestEnv::with_faults("[[rules]]\neffect = { do = 'task-never' }\n");
    let rows = "id,kind,model,prompt,deadline\na,image,gi-2,boat,1s\nb,image,no-such-model,boat,1s\n";
    env.write("a.csv", rows);
    env.run(["run", "a.csv"]).exited(2).says("the remaining tasks are overdue");
    let daemon = env.daemon("info");
    env.run(["submit", "a.csv", "--wait"]).exited(2);
    daemon.stop();
}

/// Without the flag the changed row would wait with the rest.
#[test]
fn the_command_for_a_row_of_a_pilot_that_is_changed_makes_it_as_part_of_the_pilot() {
    let env = TestEnv::with_faults("[[rules]]\ncontains = 'storm'\neffect = { do = 'content-rejected' }\n");
    let rows = |first: &str| {
        env.write(
            "p.csv",
            format!("id,kind,model,prompt\na,image,gi-2,{first}\nb,image,gi-2,a gull\nc,image,gi-2,a tern\n"),
        );
    };
    rows("a storm");
    let ended = env.run(["run", "p.csv", "--pilot", "1"]).exited(7);
    ended
        .says("change line 2 of p.csv, then:\n    callsheet run p.csv --pilot 1\n")
        .says("callsheet continue p\n");
    rows("a calm sea");
    env.run(["run", "p.csv", "--pilot", "1"]).exited(7);
    let made: Vec<String> = env.audit().tasks.into_iter().map(|task| task.prompt).collect();
    assert_eq!(made.iter().filter(|prompt| *prompt != "a storm").collect::<Vec<_>>(), ["a calm sea"]);
    env.run(["continue", "p"]).exited(0);
    env.run(["run", "p.csv"]).exited(0);
}
