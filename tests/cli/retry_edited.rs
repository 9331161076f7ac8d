//! `retry --set`: rows of jobs that failed, taken anew as if they had been edited in their manifest.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::fs;

use serde_json::Value;

use crate::support::process::{Outcome, Running};
use crate::support::{TestEnv, until};

/// What the service refuses once, free of charge.
const ONE_STORM: &str = "[[rules]]\ncontains = 'storm'\ntimes = 1\neffect = { do = 'content-rejected' }";

const BIRDS: &str = "id,kind,model,prompt,duration,options.seed,meta.client\n\
                     crow,image,gi-2,a crow,,,acme\n\
                     gull,video,model-s-2-5,a gull in a storm,8s,7,acme\n\
                     owl,image,gi-2,an owl,,,blue\n";
const GULL: &str = "gull,video,model-s-2-5,a gull in a storm,8s,7,acme";
const EDITED_GULL: &str = "gull,video,house-c1,a gull in a storm,5s,,acme";
const EDITS: [&str; 6] =
    ["--set", "model=house-c1", "--set", "options.duration=5s", "--set", "options.seed="];

/// A batch of which a row failed.
fn failed() -> TestEnv {
    let env = TestEnv::with_faults(ONE_STORM);
    env.write("birds.csv", BIRDS);
    env.run(["run", "birds.csv"]).exited(1);
    env.audit().each_paid_once(2);
    env
}

fn retry(env: &TestEnv, more: &[&'static str]) -> Outcome {
    env.run(["retry", "birds", "--failed"].into_iter().chain(EDITS).chain(more.iter().copied()))
}

/// The results as `id: model state`, superseded ones in brackets.
fn results(env: &TestEnv, batch: &str) -> Vec<String> {
    let text = fs::read_to_string(env.path(&format!("output/{batch}/results.jsonl"))).unwrap();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let told = format!("{}: {} {}", text("id"), text("model"), text("state"));
        if line["superseded"] == true { format!("({told})") } else { told }
    };
    text.lines().map(line).collect()
}

#[test]
fn rows_that_failed_are_taken_anew_and_the_edited_manifest_costs_nothing_more() {
    let env = failed();
    let plan = retry(&env, &["--dry-run"]).exited(0);
    let plan = plan.says("birds: batch birds: 1 new (");
    plan.says("gull is in the batch with another request, which failed; this one takes its place: was \"model-s-2-5\"");
    let verdict_of_gull = |plan: &Value| {
        plan["rows"].as_array().unwrap().iter().find(|row| row["id"] == "gull").unwrap()["verdict"].clone()
    };
    let before = env.run(["plan", "birds.csv", "--json"]).exited(0).json();
    assert_eq!(verdict_of_gull(&before), "failed", "nothing was accepted");
    // Another plan of the same: an editor's.
    env.write("edited/birds.csv", BIRDS.replace(GULL, EDITED_GULL));
    let by_hand = env.run(["plan", "edited/birds.csv", "--batch", "birds", "--json"]).exited(0).json();
    let of_gull =
        |plan: &Value| plan["rows"].as_array().unwrap().iter().find(|row| row["id"] == "gull").cloned();
    assert_eq!(of_gull(&by_hand).unwrap()["verdict"], "changed", "{by_hand:#}");
    let done = retry(&env, &[]).exited(0).says("1 new job accepted");
    done.says("the manifest of birds still has the old rows");
    let explained = env.run(["explain", "gull", "--json"]).exited(0).json();
    assert_eq!(explained["spec"]["id"], of_gull(&by_hand).unwrap()["job_id"]);
    assert_eq!(explained["spec"]["order"]["line"], 3);
    assert_eq!(explained["spec"]["order"]["meta"]["client"], "acme");
    assert_eq!(explained["versions"][0]["superseded"], true, "{explained:#}");
    // Again: nothing failed any more.
    retry(&env, &[]).exited(0).says("nothing to retry");
    env.write("birds.csv", BIRDS.replace(GULL, EDITED_GULL));
    env.run(["run", "birds.csv"])
        .exited(0)
        .says("birds.csv: batch birds: 0 new (0 credits), 3 already there");
    env.audit().each_paid_once(3);
    assert_eq!(
        results(&env, "birds"),
        [
            "crow: gi-2 succeeded",
            "(gull: model-s-2-5 failed)",
            "owl: gi-2 succeeded",
            "gull: house-c1/text-to-video succeeded"
        ]
    );
    env.run(["state", "verify"]).exited(0);
    // The old manifest goes back to the version that failed, and buys nothing.
    env.write("birds.csv", BIRDS);
    env.run(["run", "birds.csv"]).exited(1);
    env.audit().each_paid_once(3);
}

#[test]
fn the_command_that_is_suggested_continues_them_without_the_manifest() {
    let env = failed();
    retry(&env, &[])
        .exited(0)
        .says("1 new job accepted; no process works on this state; to continue: callsheet daemon\n");
    let daemon = env.daemon("info");
    until("the edited row", || env.status("birds")["state"] == "done");
    daemon.stop();
    env.audit().each_paid_once(3);
}

#[test]
fn a_manifest_that_goes_back_says_so_in_its_plan_and_its_receipt() {
    let env = failed();
    retry(&env, &[]).exited(0);
    let plan = env.run(["plan", "birds.csv"]).exited(0).stdout;
    assert!(plan.contains("; back to an earlier request: "), "{plan}");
    let run = env.run(["run", "birds.csv"]).exited(1).says(
        "gull goes back to a request that the batch had before; the one that was wanted until now is not submitted yet \
         and is replaced free of charge: was ",
    );
    assert!(!run.stderr.contains("with another request"), "{}", run.stderr);
    env.audit().each_paid_once(2);
    // The same again goes back to nothing.
    let again = env.run(["run", "birds.csv"]).exited(1);
    assert!(!again.stderr.contains("goes back"), "{}", again.stderr);
}

#[test]
fn what_is_wrong_is_told_of_each_row_and_nothing_is_accepted() {
    let env = failed();
    env.run(["retry", "birds", "--set", "durration=5s"])
        .exited(2)
        .says("durration: unknown column; did you mean \"duration\"?");
    env.run(["retry", "birds", "--set", "duration"]).exited(2).says("expected FIELD=VALUE");
    env.run(["retry", "birds", "--set", "duration=5s", "--set", "options.duration=8s"])
        .exited(2)
        .says("options.duration is set twice");
    env.run(["retry", "birds", "--dry-run"]).exited(2);
    let wrong = env.run(["retry", "birds", "--set", "duration=77s"]).exited(2);
    wrong
        .says("(row gull)")
        .says("nothing was accepted: each of these rows must be valid with the new fields");
    let json = env.run(["retry", "birds", "--set", "count=0", "--json"]).exited(2).json();
    let problem = &json["receipt"]["problems"][0];
    assert_eq!((&problem["field"], &problem["line"]), (&"count".into(), &3.into()), "{json:#}");
    assert_eq!(json["receipt"]["refused"], true);
    env.run(["run", "birds.csv"]).exited(1).says("0 new (0 credits)");
    env.audit().each_paid_once(2);
}

#[test]
fn a_daemon_takes_them_and_goes_on() {
    let env = TestEnv::with_faults(ONE_STORM);
    env.write("birds.csv", BIRDS);
    let daemon = env.daemon("info");
    env.run(["submit", "birds.csv", "--wait"]).exited(1);
    let plan = retry(&env, &["--dry-run", "--json"]).exited(0).json();
    assert_eq!((&plan["jobs"], &plan["receipt"]["changed"]), (&1.into(), &1.into()), "{plan:#}");
    let done = retry(&env, &["--json"]).exited(0).json();
    assert_eq!(done["receipt"]["price"], plan["receipt"]["price"]);
    env.write("birds.csv", BIRDS.replace(GULL, EDITED_GULL));
    env.run(["submit", "birds.csv", "--wait"]).exited(0).says("0 new (0 credits), 3 already there");
    env.audit().each_paid_once(3);
    daemon.signal(rustix::process::Signal::TERM);
    daemon.end().exited(0);
}

#[test]
fn a_process_that_is_killed_after_accepting_has_accepted() {
    let env = failed();
    let words = ["retry", "birds"].into_iter().chain(EDITS);
    let mut command = env.command(words);
    command.env("CALLSHEET_FAILPOINT", "accepted");
    Running::start(command).end().was_killed("accepted");
    env.run(["retry", "birds", "--set", "model=house-c1"]).exited(0).says("nothing to retry");
    env.write("birds.csv", BIRDS.replace(GULL, EDITED_GULL));
    env.run(["run", "birds.csv"]).exited(0).says("0 new (0 credits), 3 already there");
    env.audit().each_paid_once(3);
    env.run(["state", "verify"]).exited(0);
}

const STORY: &str = r#"{"batch": "story", "policy": {"budget": 300, "priority": 3}, "jobs": [
  {"id": "long", "kind": "video", "model": "model-s-2-5", "prompt": "and on", "video_urls": ["job:clip"], "duration": "5s"},
  {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the fox runs", "image_urls": ["job:still"], "duration": "2s"},
  {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox in a storm"},
  {"id": "other", "kind": "image", "model": "gi-2", "prompt": "a wolf"}
]}"#;

#[test]
fn rows_that_take_outputs_of_an_edited_row_follow_it_and_the_terms_stay() {
    let env = TestEnv::with_faults(ONE_STORM);
    env.configure("[budget]\nper_batch = 1000");
    env.write("story.json", STORY);
    env.run(["run", "story.json"]);
    env.audit().each_paid_once(1);
    let edited = STORY.replace("a fox in a storm", "a red fox");
    let told = "2 jobs that take outputs of these rows become new jobs, too, even if they succeeded";
    env.run(["retry", "story/still", "--set", "prompt=a red fox", "--dry-run"]).exited(0).says(told);
    let done = env.run(["retry", "story/still", "--set", "prompt=a red fox", "--json"]).exited(0).json();
    assert_eq!((&done["jobs"], &done["receipt"]["changed"]), (&1.into(), &3.into()), "{done:#}");
    assert_eq!(done["dependent_jobs"], 2, "{done:#}");
    let status = env.run(["status", "story", "--json"]).exited(0).json();
    assert_eq!(status["batches"][0]["budget_credits"], 300, "{status:#}");
    env.write("story.json", edited);
    env.run(["run", "story.json"]).exited(0).says("0 new (0 credits), 4 already there");
    env.audit().each_paid_once(4);
}

#[test]
fn a_child_that_failed_keeps_its_reference_to_the_wanted_version_of_its_parent() {
    let env =
        TestEnv::with_faults("[[rules]]\ncontains = 'runs'\ntimes = 1\neffect = { do = 'content-rejected' }");
    let story = STORY.replace(" in a storm", "");
    env.write("story.json", &story);
    env.run(["run", "story.json"]);
    env.audit().each_paid_once(2);
    env.run(["retry", "story/clip", "--set", "duration=4s"]).exited(0).says("2 new job");
    let edited = story.replace("\"2s\"", "\"4s\"");
    env.write("story.json", edited);
    env.run(["run", "story.json"]).exited(0).says("0 new (0 credits), 4 already there");
    env.audit().each_paid_once(4);
    env.run(["state", "verify"]).exited(0);
}

#[test]
fn rows_without_an_id_are_left_as_they_are() {
    let env = TestEnv::with_faults(ONE_STORM);
    let rows = "kind,model,prompt\nimage,gi-2,a storm\nimage,gi-2,a storm\n";
    env.write("birds.csv", rows);
    env.run(["run", "birds.csv"]).exited(1);
    let refused = env.run(["retry", "birds", "--set", "model=gi-2-5"]).exited(2);
    refused
        .says("1 have rows without an id, so that no other job can take their place")
        .says("nothing was accepted");
    let json = env.run(["retry", "birds", "--set", "model=gi-2-5", "--json"]).exited(2).json();
    assert_eq!((&json["jobs"], json["without_id"].as_array().unwrap().len()), (&0.into(), 1), "{json:#}");
    env.run(["run", "birds.csv"]).exited(1).says("0 new (0 credits), 2 already there");
    env.audit().each_paid_once(1);
    // Those beside them that have one are taken.
    env.faults(ONE_STORM);
    let with_ids =
        "id,kind,model,prompt\n,image,gi-2,a storm\n,image,gi-2,a storm\nowl,image,gi-2,a stormy owl\n";
    env.write("birds.csv", with_ids);
    env.run(["run", "birds.csv"]).exited(1);
    let mixed = env.run(["retry", "birds", "--set", "model=gi-2-5"]).exited(0);
    mixed.says("1 have rows without an id").says("1 new job accepted");
}

#[test]
fn a_row_that_takes_an_output_of_another_batch_keeps_its_reference() {
    let env = TestEnv::with_faults(ONE_STORM);
    env.write("stills.csv", "id,kind,model,prompt\nfox,image,gi-2,a fox\n");
    env.run(["run", "stills.csv"]).exited(0);
    let row = |duration: &str| {
        format!(
            "id,kind,model,prompt,image_urls,duration\nrun,video,house-c1,a storm,job:stills/fox,{duration}\n"
        )
    };
    env.write("clips.csv", row("2s"));
    env.run(["run", "clips.csv"]).exited(1);
    env.run(["retry", "clips", "--set", "duration=4s"]).exited(0).says("1 new job accepted");
    env.write("clips.csv", row("4s"));
    env.run(["run", "clips.csv"]).exited(0).says("0 new (0 credits), 1 already there");
    env.audit().each_paid_once(2);
}

#[test]
fn all_variations_of_a_row_are_edited_with_it_and_rows_that_were_refused_stay_told() {
    let env = TestEnv::with_faults(ONE_STORM);
    let rows = |prompt: &str| {
        format!("id,kind,model,prompt,count\ngull,image,gi-2,{prompt},3\nowl,image,gi-9,an owl,1\n")
    };
    env.write("birds.csv", rows("a storm"));
    env.run(["run", "birds.csv"]).exited(2);
    env.audit().each_paid_once(2);
    let refused = |env: &TestEnv| env.status("birds")["refused_rows"].clone();
    assert_eq!(refused(&env), 1);
    // The variation that was canceled or failed takes its row along.
    let plan =
        env.run(["retry", "birds", "--set", "prompt=a calm sea", "--dry-run", "--json"]).exited(0).json();
    assert_eq!((&plan["jobs"], &plan["receipt"]["changed"]), (&1.into(), &3.into()), "{plan:#}");
    assert_eq!(plan["other_variations"], 2, "{plan:#}");
    env.run(["retry", "birds", "--set", "prompt=a calm sea"])
        .exited(0)
        .says("all variations of a row are edited together: 2 of these jobs take the place of ones that the command does not name")
        .says("3 new jobs accepted");
    assert_eq!(refused(&env), 1);
    env.write("birds.csv", rows("a calm sea"));
    env.run(["run", "birds.csv"]).exited(2).says("0 new (0 credits), 3 already there");
    env.audit().each_paid_once(5);
}

#[test]
fn a_run_that_works_on_the_state_takes_none() {
    let env = TestEnv::with_faults("[[rules]]\neffect = { do = 'task-never' }");
    env.write("birds.csv", BIRDS);
    let running = env.start(["run", "birds.csv"]);
    until("the run listens", || env.path("state/callsheet.sock").exists());
    env.run(["retry", "birds", "--set", "model=gi-2-5"]).exited(2).says("takes no more manifests");
    running.signal(rustix::process::Signal::TERM);
    running.end().exited(130);
}

#[test]
fn what_changes_no_request_is_refused_and_says_nothing_of_the_manifest() {
    let env = failed();
    let same = env.run(["retry", "birds", "--set", "meta.note=x"]).exited(2).says("--set changes nothing");
    assert!(!same.stderr.contains("old rows"), "{}", same.stderr);
    env.audit().each_paid_once(2);
}

#[test]
fn a_row_is_retried_with_an_output_of_another_row_of_its_batch() {
    let env = TestEnv::with_faults(ONE_STORM);
    env.write(
        "story.json",
        r#"{"jobs": [
            {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "a fox in a storm",
             "image_urls": ["https://example.com/fox.png"], "duration": "2s"},
            {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox"}
        ]}"#,
    );
    env.run(["run", "story.json"]).exited(1);
    let retry = |still: &str| {
        let field = format!("image_urls=job:{still}");
        env.run(["retry", "story/clip", "--set", field.as_str()])
    };
    retry("stil").exited(2).says("names no row of the batch story; to list its rows: callsheet jobs story");
    retry("still").exited(0).says("1 new job accepted");
    let daemon = env.daemon("info");
    until("the clip", || {
        results_if_any(&env, "story").contains(&"clip: house-c1/image-to-video succeeded".into())
    });
    daemon.stop();
    let explained = env.run(["explain", "story/clip"]).exited(0).stdout;
    assert!(explained.contains("is there: still"), "{explained}");
    env.audit().each_paid_once(2);
}

fn results_if_any(env: &TestEnv, batch: &str) -> Vec<String> {
    if env.path(&format!("output/{batch}/results.jsonl")).exists() { results(env, batch) } else { Vec::new() }
}
