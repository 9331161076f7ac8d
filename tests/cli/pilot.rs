//! A pilot: some rows first, and the rest only when a person continues.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::collect_outputs::Outputs;
use crate::support::{TestEnv, manifests, until};

/// A manifest of images, each of 8 credits.
fn images(rows: std::ops::Range<u32>) -> String {
    let row = |n: u32| format!("image-{n},image,gi-2,a gull no {n}\n");
    "id,kind,model,prompt\n".to_owned() + &rows.map(row).collect::<String>()
}

fn birds(count: u32) -> TestEnv {
    let env = TestEnv::new();
    env.write("birds.csv", images(0..count));
    env
}

fn status(env: &TestEnv) -> Value {
    env.status("birds")
}

#[test]
fn some_rows_are_made_first_and_the_rest_when_a_person_continues() {
    let env = birds(10);
    let plan = env.run(["plan", "birds.csv", "--pilot", "3"]).exited(0).stdout;
    let told =
        "birds: pilot: 3 jobs (24 credits), then 7 jobs (56 credits) wait for callsheet continue birds\n";
    assert!(plan.contains(told), "{plan}");
    let run = env.run(["run", "birds.csv", "--pilot", "3"]).exited(7);
    run.says("10 new (80 credits), pilot: 3 jobs (24 credits), then 7 jobs (56 credits) wait")
        .says("birds: the pilot of 3 jobs is done: 3 succeeded; 24 charged of 24 credits planned; to look at it:")
        .says("    callsheet open birds\n")
        .says("birds: 7 jobs (56 credits) wait until you continue:\n    callsheet continue birds\n");
    env.audit().each_paid_once(3);
    let parked = status(&env);
    assert_eq!((&parked["state"], &parked["parked_by"]), (&"parked".into(), &"pilot".into()), "{parked:#}");
    assert_eq!(parked["pilot"]["rest_credits"], 56);
    // Only a person lifts it, whatever is run again.
    for again in [vec!["run", "birds.csv"], vec!["run", "birds.csv", "--pilot", "3"]] {
        env.run(again).exited(7).says("0 new (0 credits), 10 already there").says("callsheet continue birds");
        env.audit().each_paid_once(3);
    }
    let continued = env.run(["continue", "birds", "--json"]).exited(0);
    assert_eq!(continued.json()["batches"][0]["jobs"], 7, "{}", continued.stdout);
    continued.says("birds: continued with 7 jobs (56 credits)");
    env.run(["continue", "birds"]).exited(0).says("birds: none of its rows waits for a pilot");
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(10);
    env.run(["continue", "birds"]).exited(0).says("birds: done, nothing waits for a pilot");
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn rows_that_a_pilot_takes_outputs_of_are_made_with_it() {
    let env = TestEnv::new();
    env.write("story.json", manifests::storyboards(4).0);
    let asked = ["run", "story.json", "--pilot", "random:1", "--json"];
    let first = env.run(asked).exited(7).json();
    let pilot = &first["receipts"][0]["pilot"];
    let jobs = usize::try_from(pilot["jobs"].as_u64().unwrap()).unwrap();
    let all = env.run(["plan", "story.json", "--json"]).exited(0).json();
    let all = all["rows"].as_array().unwrap().len();
    assert!((1..all).contains(&jobs), "{pilot}");
    env.audit().each_paid_once(jobs);
    env.run(["continue", "story"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    env.audit().each_paid_once(all);
}

#[test]
fn one_row_of_each_entry_of_a_matrix() {
    let env = TestEnv::new();
    env.write(
        "shop.json",
        r#"{"matrix": {"bird": ["gull", "tern", "crow"]}, "jobs": [
            {"id": "still-{{ bird }}", "kind": "image", "model": "gi-2", "prompt": "a {{ bird }}"},
            {"id": "voice-{{ bird }}", "kind": "speech", "voice_id": "aria", "text": "A {{ bird }}."}]}"#,
    );
    env.run(["run", "shop.json", "--pilot", "entries"]).exited(7).says("pilot: 2 jobs");
    let audit = env.audit();
    audit.each_paid_once(2);
    let kinds: Vec<&str> = audit.tasks.iter().map(|task| task.kind.as_str()).collect();
    assert!(kinds.contains(&"image") && kinds.contains(&"speech"), "{kinds:?}");
}

#[test]
fn one_row_of_each_combination_of_a_matrix() {
    let env = TestEnv::new();
    env.write(
        "shop.json",
        r#"{"matrix": {"bird": ["gull", "tern"], "tongue": ["en", "de"], "exclude": [{"bird": "tern", "tongue": "de"}]},
            "jobs": [
            {"id": "still-{{ bird }}", "kind": "image", "model": "gi-2", "prompt": "a {{ bird }}"},
            {"id": "voice-{{ bird }}-{{ tongue }}", "kind": "speech", "voice_id": "aria", "text": "{{ tongue }} {{ bird }}."},
            {"id": "clip-{{ bird }}-{{ tongue }}", "kind": "video", "model": "house-c1", "prompt": "{{ tongue }}",
             "image_urls": ["job:still-{{ bird }}"], "duration": "2s"}]}"#,
    );
    env.run(["run", "shop.json", "--pilot", "cells"]).exited(7).says("pilot: 3 jobs");
    env.audit().each_paid_once(3);
    let mut made: Vec<String> = env.audit().tasks.into_iter().map(|task| task.prompt).collect();
    made.sort();
    assert_eq!(made, ["a gull", "a tern", "de gull."]);
    env.run(["continue", "shop"]).exited(0);
    env.run(["run", "shop.json"]).exited(0);
    env.audit().each_paid_once(8);
}

#[test]
fn a_pilot_by_a_matrix_is_refused_where_there_is_none() {
    let env = birds(3);
    for pilot in ["cells", "entries"] {
        let message = format!("--pilot {pilot} is for a manifest with a matrix, and this one has none");
        env.run(["run", "birds.csv", "--pilot", pilot]).exited(2).says(&message);
    }
    env.audit().each_paid_once(0);
}

#[test]
fn a_pilot_that_is_all_there_is_makes_nobody_wait_and_a_wrong_one_is_told() {
    let env = birds(2);
    env.run(["run", "birds.csv", "--pilot", "5"]).exited(0);
    env.audit().each_paid_once(2);
    for wrong in ["0", "some", "random:x"] {
        env.run(["run", "birds.csv", "--pilot", wrong])
            .exited(2)
            .says("expected a number of rows, random:N, or for a matrix cells");
    }
}

#[test]
fn what_was_not_sent_before_waits_for_the_pilot_as_well_and_a_cancel_ends_it() {
    let env = birds(5);
    env.run(["run", "birds.csv", "--budget", "8"]).exited(4);
    env.audit().each_paid_once(1);
    env.write("birds.csv", images(0..8));
    let again = env.run(["run", "birds.csv", "--budget", "none", "--pilot", "1"]).exited(7);
    again.says("pilot: 1 job (8 credits), then 6 jobs (48 credits) wait");
    env.audit().each_paid_once(2);
    env.run(["cancel", "birds"]).exited(0).says("6");
    let canceled = status(&env);
    assert_eq!((&canceled["state"], &canceled["canceled"]), (&"done".into(), &6.into()), "{canceled:#}");
    assert!(canceled["pilot"].is_null(), "{canceled:#}");
    env.audit().each_paid_once(2);
}

#[test]
fn what_was_looked_at_before_and_not_sent_waits_for_the_pilot_as_well() {
    let env = TestEnv::new();
    let story = |more: &str| {
        let rows = r#"{"jobs": [
            {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "it runs", "image_urls": ["job:still"], "duration": "2s"},
            {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox", "review": true}"#;
        env.write("story.json", format!("{rows}{more}]}}"));
    };
    story("");
    env.run(["run", "story.json"]).exited(7).says("waiting for review");
    env.audit().each_paid_once(1);
    story(
        r#", {"id": "a", "kind": "image", "model": "gi-2", "prompt": "a gull"},
        {"id": "b", "kind": "image", "model": "gi-2", "prompt": "a tern"}"#,
    );
    env.run(["run", "story.json", "--pilot", "1"]).exited(7).says("pilot: 1 job (8 credits), then 2 jobs");
    env.audit().each_paid_once(2);
    env.run(["review", "approve", "story/still"]).exited(0);
    env.run(["run", "story.json"]).exited(7);
    env.audit().each_paid_once(2);
    env.run(["continue", "story"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    env.audit().each_paid_once(4);
}

#[test]
fn a_pilot_that_needs_a_row_of_an_earlier_rest_is_told_to_be_continued() {
    let env = TestEnv::new();
    let story = |clip: &str| {
        let rows = r#"{"jobs": [{"id": "a", "kind": "image", "model": "gi-2", "prompt": "a gull"},
            {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox"},
            {"id": "b", "kind": "image", "model": "gi-2", "prompt": "a tern"}"#;
        env.write("story.json", format!("{rows}{clip}]}}"));
    };
    story("");
    env.run(["run", "story.json", "--pilot", "1"]).exited(7);
    story(
        r#", {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "it runs", "image_urls": ["job:still"], "duration": "2s"}"#,
    );
    let run = env.run(["run", "story.json", "--pilot", "1", "--log-level", "info"]).exited(7);
    let run = run
        .says("story: 1 job is queued and refers to rows that are not done; what a job waits for:")
        .says("story: 2 jobs (16 credits) wait until you continue:\n    callsheet continue story\n")
        .says("waits: what is left refers to rows that failed, were canceled, or wait for a decision, with the rest");
    assert!(!run.stderr.contains("budget reached"), "{}", run.stderr);
    let explained = |job: &str| env.run(["explain", job]).exited(0).stdout;
    let waits = "waits with the rest until the pilot is continued: callsheet continue story";
    let clip = explained("story/clip");
    assert!(clip.contains(&format!("next: it waits: the row still {waits}")), "{clip}");
    let daemon = env.daemon("info");
    until("it is parked", || env.status("story")["parked_by"] == "inputs");
    let still = explained("story/still");
    assert!(still.contains(&format!("next: it {waits}")), "{still}");
    env.run(["continue", "story"]).exited(0);
    until("all of it", || env.status("story")["state"] == "done");
    daemon.stop();
    env.audit().each_paid_once(4);
}

#[test]
fn hooks_are_told_once_that_the_pilot_is_done_and_once_that_all_is() {
    let env = birds(4);
    env.configure("[hooks]\nbatch_done = [\"sh\", \"-c\", \"cat >> told.jsonl; echo >> told.jsonl\"]\n");
    let told = || -> Vec<(String, Value)> {
        let text = std::fs::read_to_string(env.path("told.jsonl")).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .map(|event| (event["type"].as_str().unwrap().to_owned(), event["data"]["pilot"].clone()))
            .collect()
    };
    let daemon = env.daemon("info");
    env.run(["submit", "birds.csv", "--pilot", "1"]).exited(0);
    until("the first event", || told().len() == 1);
    assert!(env.path("output/birds/results.csv").exists());
    // A restart tells nobody again.
    daemon.stop();
    let daemon = env.daemon("info");
    env.run(["explain", "birds/image-3"]).exited(0);
    env.run(["continue", "birds"]).exited(0);
    until("the second event", || told().len() >= 2);
    daemon.stop();
    let [(first, pilot), (second, no_pilot)] = &told()[..] else { panic!("{:?}", told()) };
    assert_eq!((first.as_str(), second.as_str()), ("batch.pilot", "batch.done"));
    assert!(pilot["rest_credits"] == 24 && no_pilot.is_null(), "{pilot}");
}

#[test]
fn a_daemon_keeps_the_rest_over_a_kill_and_a_lost_database() {
    let env = birds(6);
    let daemon = env.daemon("info");
    env.run(["submit", "birds.csv", "--pilot", "2"]).exited(0).says("pilot: 2 jobs (16 credits)");
    until("the pilot", || status(&env)["parked_by"] == "pilot");
    env.audit().each_paid_once(2);
    daemon.signal(Signal::KILL);
    daemon.end().was_killed("between two looks");
    std::fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    let daemon = env.daemon("info");
    env.run(["resume", "birds"]).exited(0);
    until("it to be parked again", || status(&env)["parked_by"] == "pilot");
    env.audit().each_paid_once(2);
    env.run(["continue", "birds"]).exited(0).says("daemon continues it");
    until("the rest", || status(&env)["state"] == "done");
    until("its results", || Outputs::of(&env, "birds").sum("charged_credits") == 48);
    daemon.stop();
    env.audit().each_paid_once(6);
}

#[test]
fn a_row_of_the_rest_that_is_canceled_and_retried_waits_on() {
    let env = birds(4);
    env.run(["run", "birds.csv", "--pilot", "1"]).exited(7);
    let last = "birds/image-3";
    env.run(["cancel", last]).exited(0);
    env.run(["run", "birds.csv"]).exited(7).says("2 jobs (16 credits) wait until you continue");
    env.run(["retry", last]).exited(0);
    let waiting = env.run(["run", "birds.csv"]).exited(7);
    waiting.says("3 jobs (24 credits) wait until you continue").says("callsheet continue birds");
    env.audit().each_paid_once(1);
    env.run(["continue", "birds"]).exited(0);
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(4);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn a_run_ends_where_a_pilot_waits_for_a_row_that_failed_beside_a_row_of_the_rest_that_is_queued() {
    let env = TestEnv::new();
    let row = |id: &str, prompt: &str| json!({"id": id, "kind": "image", "model": "gi-2", "prompt": prompt});
    let mut child = row("child", "a child");
    child["image_urls"] = json!(["job:parent"]);
    let jobs = [child, row("parent", "a deepfake"), row("one", "one"), row("two", "two")];
    env.write("a.json", json!({"jobs": jobs}).to_string());
    env.run(["run", "a.json", "--pilot", "1"]).exited(7);
    env.run(["cancel", "a/one"]).exited(0);
    env.run(["retry", "a/one"]).exited(0);
    env.run(["run", "a.json"]).exited(7).says("    callsheet continue a");
    let daemon = env.daemon("info");
    env.run(["submit", "a.json", "--wait"]).exited(7);
    let explained = env.run(["explain", "a/one"]).exited(0).stdout;
    assert!(explained.contains("waits with the rest until the pilot is continued"), "{explained}");
    daemon.stop();
}

#[test]
fn the_rest_that_was_canceled_with_its_batch_waits_again_once_it_is_retried() {
    let env = birds(5);
    env.run(["run", "birds.csv", "--pilot", "1"]).exited(7);
    env.run(["cancel", "birds"]).exited(0);
    env.run(["continue", "birds"]).exited(0).says("birds: done, nothing waits for a pilot");
    let done = env.run(["run", "birds.csv"]).exited(1);
    assert!(!done.stderr.contains("pilot"), "{}", done.stderr);
    env.run(["retry", "birds/image-2"]).exited(0);
    env.run(["run", "birds.csv"]).exited(7).says("birds: 1 job (8 credits) wait until you continue");
    env.run(["retry", "birds"]).exited(0);
    env.run(["run", "birds.csv"])
        .exited(7)
        .says("birds: 4 jobs (32 credits) wait until you continue:\n    callsheet continue birds\n");
    env.audit().each_paid_once(1);
    // A row that comes later is none of the pilot, either.
    env.run(["cancel", "birds"]).exited(0);
    env.write("birds.csv", images(0..6));
    env.run(["run", "birds.csv"]).exited(7).says("birds: 1 job (8 credits) wait until you continue");
    env.run(["retry", "birds"]).exited(0);
    env.run(["continue", "birds"]).exited(0).says("birds: continued with 5 jobs (40 credits)");
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(6);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn the_rest_of_a_rebuilt_batch_is_not_sent_by_a_cancel_and_a_resume() {
    let env = birds(6);
    env.run(["run", "birds.csv", "--pilot", "2"]).exited(7);
    std::fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    // They may have been sent as far as the rebuilt state knows, and so they are kept.
    env.run(["cancel", "birds"]).exited(0);
    env.run(["resume", "birds"]).exited(0);
    env.run(["run", "birds.csv"]).exited(7).says("callsheet continue birds");
    env.audit().each_paid_once(2);
    env.run(["continue", "birds"]).exited(0);
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(6);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn what_is_left_of_an_earlier_pilot_waits_for_the_next_one() {
    let env = halfway();
    env.run(["continue", "birds"]).exited(0);
    env.write("birds.csv", images(0..8));
    env.run(["run", "birds.csv", "--pilot", "1", "--budget", "none"])
        .exited(7)
        .says("6 jobs (48 credits) wait");
    env.audit().each_paid_once(2);
    env.run(["continue", "birds"]).exited(0);
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(8);
}

/// A pilot of three rows, of which one was made when the budget was used up.
fn halfway() -> TestEnv {
    let env = birds(6);
    env.run(["run", "birds.csv", "--pilot", "3", "--budget", "8"]).exited(4);
    env.audit().each_paid_once(1);
    env
}

/// It goes on in another state as it would have in the first one.
fn goes_on(env: &TestEnv, state: &str) {
    let run = ["run", "birds.csv", "--budget", "none", "--state", state];
    env.run(["resume", "birds", "--state", state]).exited(0);
    env.run(run).exited(7).says("birds: 3 jobs (24 credits) wait until you continue");
    env.audit().each_paid_once(3);
    env.run(["continue", "birds", "--state", state]).exited(0);
    env.run(run).exited(0);
    env.audit().each_paid_once(6);
    env.run(["state", "verify", "--state", state]).exited(0).says("all fits");
}

#[test]
fn a_rebuilt_state_knows_the_rows_of_a_pilot() {
    let env = halfway();
    std::fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild"]).exited(0);
    goes_on(&env, "state");
}

#[test]
fn an_imported_state_knows_the_rows_of_a_pilot() {
    let env = halfway();
    env.run(["state", "export", "dump.jsonl"]).exited(0);
    env.run(["state", "import", "dump.jsonl", "--state", "new"]).exited(0);
    goes_on(&env, "new");
}

#[test]
fn a_person_cannot_continue_while_a_manifest_of_the_batch_is_read() {
    let env = birds(3);
    let daemon = env.daemon("info");
    env.run(["submit", "birds.csv", "--pilot", "1"]).exited(0);
    until("the pilot", || status(&env)["parked_by"] == "pilot");
    env.write("birds.csv", images(0..40_000));
    let submit = env.start(["submit", "birds.csv"]);
    // Rows are compared with what the batch has, and written, from then on.
    until("rows in a draft", || {
        let drafts = std::fs::read_dir(env.path("state/spool")).unwrap().filter_map(Result::ok);
        let mut files = drafts
            .filter(|entry| entry.file_name().to_string_lossy().contains("draft"))
            .flat_map(|entry| std::fs::read_dir(entry.path()).into_iter().flatten().filter_map(Result::ok));
        files.any(|file| file.metadata().is_ok_and(|found| found.len() > 0))
    });
    let refused = env.run(["continue", "birds"]).exited(2);
    refused
        .says("a manifest is being read for batch birds; nothing was continued")
        .says("repeat the command");
    submit.end().exited(0);
    let parked = status(&env);
    assert_eq!((&parked["parked_by"], &parked["pilot"]["rest_jobs"]), (&"pilot".into(), &39_999.into()));
    env.audit().each_paid_once(1);
    env.run(["cancel", "birds"]).exited(0).says("39999");
    daemon.stop();
    env.audit().each_paid_once(1);
}

#[test]
fn hooks_are_told_once_that_all_that_is_left_waits_for_a_row_that_failed() {
    let env = TestEnv::with_faults(
        "[[rules]]\ncontains = 'storm'\ntimes = 1\neffect = { do = 'content-rejected' }",
    );
    env.configure("[hooks]\nbatch_done = [\"sh\", \"-c\", \"cat >> told.jsonl; echo >> told.jsonl\"]\n");
    env.write(
        "story.json",
        r#"{"jobs": [
            {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "it runs", "image_urls": ["job:still"], "duration": "2s"},
            {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox in a storm"}]}"#,
    );
    let told = || -> Vec<String> {
        let text = std::fs::read_to_string(env.path("told.jsonl")).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    let daemon = env.daemon("info");
    env.run(["submit", "story.json"]).exited(0);
    until("the first event", || told().len() == 1);
    // A restart tells nobody again.
    daemon.stop();
    let daemon = env.daemon("info");
    env.run(["explain", "story/clip"]).exited(0);
    env.run(["retry", "story/still", "--set", "prompt=a fox"]).exited(0);
    until("the second event", || told().len() >= 2);
    daemon.stop();
    assert_eq!(told(), ["batch.waiting", "batch.done"]);
    env.audit().each_paid_once(2);
}

#[test]
fn jobs_that_ended_before_a_pilot_are_told_apart_from_it() {
    let env = birds(5);
    env.run(["run", "birds.csv", "--first", "2"]).exited(0);
    env.run(["run", "birds.csv", "--pilot", "1"]).exited(7).says(
        "birds: the pilot of 1 job (8 credits) is done; of the whole batch: 3 succeeded; 24 credits charged; to look at \
         it:",
    );
    env.audit().each_paid_once(3);
}

#[test]
fn what_continuing_costs_follows_the_versions_of_its_rows_that_are_wanted() {
    let env = birds(4);
    // A row of the rest asks for four times as much.
    let dear = images(0..4).replace("image-3,image,gi-2,a gull no 3", "image-3,image,gi-2,a large gull");
    let count = |text: &str| text.replace("id,kind", "count,id,kind").replace("\nimage", "\n1,image");
    let (plain, dear) = (count(&images(0..4)), count(&dear).replace("1,image-3", "4,image-3"));
    env.write("birds.csv", &plain);
    let rest = |times: u32| {
        format!(
            "{times} jobs ({} credits) wait until you continue:\n    callsheet continue birds\n",
            times * 8
        )
    };
    env.run(["run", "birds.csv", "--pilot", "1"]).exited(7).says(&rest(3));
    for _ in 0..2 {
        env.write("birds.csv", &dear);
        env.run(["run", "birds.csv"]).exited(7).says(&rest(6));
        env.write("birds.csv", &plain);
        env.run(["run", "birds.csv"]).exited(7).says(&rest(3));
    }
    // Another version of the row that was the pilot waits with the rest, and takes nothing from it.
    env.write("birds.csv", plain.replace("a gull no 0", "a tern"));
    env.run(["run", "birds.csv"]).exited(7).says(&rest(4));
    env.run(["continue", "birds"]).exited(0).says("birds: continued with 4 jobs (32 credits)");
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(5);
}

#[test]
fn another_version_of_a_row_of_a_pilot_that_was_not_sent_takes_nothing_from_the_rest() {
    let env = birds(4);
    env.configure("[budget]\nmin_balance = 100000000\n");
    env.run(["run", "birds.csv", "--pilot", "1"]).exited(4);
    env.write("birds.csv", images(0..4).replace("a gull no 0", "a tern"));
    env.run(["run", "birds.csv"]).exited(7).says("4 jobs (32 credits) wait until you continue");
    assert_eq!(status(&env)["pilot"]["rest_credits"], 32);
    env.configure("");
    env.run(["continue", "birds"]).exited(0).says("birds: continued with 4 jobs (32 credits)");
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(4);
}
