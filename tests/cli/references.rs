//! Rows that name other rows of their manifest: in which order they are made, what is bought, and what is waited for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callsheet::domain::hex::hex;
use callsheet::failpoint;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::scripted_proxy::{Act, Route, ScriptedProxy};
use crate::support::{TestEnv, case_share, manifests, until};

/// A still, a clip from it, a longer clip from that one; each before the one that it needs.
const STORY: &str = r#"{"jobs": [
  {"id": "long", "kind": "video", "model": "model-s-2-5", "prompt": "and on", "video_urls": ["job:clip"], "duration": "5s"},
  {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the fox runs", "image_urls": ["job:still"], "duration": "2s"},
  {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox"}
]}"#;

fn story(env: &TestEnv, text: &str) {
    env.write("story.json", text);
}

/// The verdict of a row of `plan`.
fn verdicts(env: &TestEnv) -> Vec<String> {
    let plan = env.run(["plan", "story.json", "--json"]).exited(0).json();
    let told = |row: &Value| format!("{} {}", row["id"].as_str().unwrap(), row["verdict"].as_str().unwrap());
    plan["rows"].as_array().unwrap().iter().map(told).collect()
}

/// The tasks that the service made, by their prompts, in its order.
fn made(env: &TestEnv) -> Vec<String> {
    env.audit().tasks.into_iter().map(|task| task.prompt).collect()
}

/// What `explain` says of a job.
fn told(env: &TestEnv, job: &str, what: &str) {
    let outcome = env.run(["explain", job]).exited(0);
    assert!(outcome.stdout.contains(what), "{what}: {}", outcome.stdout);
}

fn explained(env: &TestEnv, job: &str) -> Value {
    env.run(["explain", job, "--json"]).exited(0).json()
}

#[test]
fn a_storyboard_is_made_in_its_order_and_bought_once() {
    let env = TestEnv::new();
    story(&env, STORY);
    let plan = env.run(["plan", "story.json"]).exited(0).says("is 2, the duration of clip").stdout;
    assert!(plan.contains("; takes clip"), "{plan}");
    let part = env.run(["plan", "story.json", "--only", "clip", "--json"]).exited(0).json();
    assert_eq!(
        part["files"][0]["left_out"], 1,
        "the row that it takes an output of is in the part: {part:#}"
    );
    env.run(["run", "story.json"]).exited(0);
    let jobs = env.run(["jobs", "story"]).exited(0).stdout;
    assert!(jobs.contains("(takes still)"), "{jobs}");
    assert_eq!(made(&env), ["a fox", "the fox runs", "and on"]);
    let long = explained(&env, "story/long");
    let input = &long["inputs"][0];
    assert_eq!((&input["field"], &input["reference"]), (&"video_urls[0]".into(), &"clip".into()), "{long:#}");
    assert!(input["address"].as_str().unwrap().ends_with("/0.mp4"), "{input}");
    told(&env, "story/long", "video_urls[0] is job:clip: is there: clip");
    env.run(["run", "story.json"]).exited(0).says("0 new (0 credits), 3 already there");
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.audit().each_paid_once(3);
}

#[test]
fn a_row_whose_id_looks_like_a_variation_is_meant_wherever_it_stands() {
    let env = TestEnv::new();
    // `on` is looked up when `clip` is, and that when the row `still-v2` has come, not when `still` has.
    story(
        &env,
        r#"{"jobs": [
  {"id": "on", "kind": "video", "model": "model-s-2-5", "prompt": "on", "video_urls": ["job:clip"], "duration": "5s"},
  {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox", "count": 2},
  {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "clip", "image_urls": ["job:still-v2"], "duration": "2s"},
  {"id": "still-v2", "kind": "image", "model": "gi-2", "prompt": "a crow"}
]}"#,
    );
    let told = env.run(["plan", "story.json", "--json"]).stdout;
    env.run(["run", "story.json"]);
    let made = made(&env);
    assert!(made.contains(&"on".to_owned()), "{made:?} {told}");
}

#[test]
fn another_prompt_of_a_parent_makes_its_children_new_and_the_plan_says_so() {
    let env = TestEnv::new();
    story(&env, STORY);
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(verdicts(&env), ["long done", "clip done", "still done"]);
    story(&env, &STORY.replace("a fox\"", "a red fox\""));
    assert_eq!(verdicts(&env), ["long changed", "clip changed", "still changed"]);
    story(&env, &STORY.replace("the fox runs", "the fox sleeps"));
    assert_eq!(verdicts(&env), ["long changed", "clip changed", "still done"]);
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(made(&env), ["a fox", "the fox runs", "and on", "the fox sleeps", "and on"]);
    env.audit().each_paid_once(5);
}

#[test]
fn children_of_a_row_that_failed_wait_for_its_retry() {
    let env = TestEnv::with_faults(
        "[[rules]]\ncontains = 'a fox'\ntimes = 1\neffect = { do = 'task-fails', code = 'busy' }",
    );
    story(&env, &STORY.replacen('{', r#"{"policy": {"attempts": 1}, "#, 1));
    env.run(["run", "story.json"]).exited(7).says("parked: what is left refers to rows that failed");
    assert_eq!(made(&env), ["a fox"]);
    told(&env, "story/clip", "the row still is failed: callsheet retry story/still");
    told(
        &env,
        "story/long",
        "the row clip is queued, since the row still is failed: callsheet retry story/still",
    );
    // The same command again buys nothing and says the same.
    env.run(["run", "story.json"]).exited(7);
    assert_eq!(made(&env), ["a fox"]);
    env.run(["retry", "story/still"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(made(&env), ["a fox", "a fox", "the fox runs", "and on"]);
    assert_eq!(env.audit().totals.refunds, 1);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn a_row_that_would_be_rejected_again_is_to_be_changed_and_not_to_be_retried() {
    let env = TestEnv::with_faults("[[rules]]\ncontains = 'a fox'\neffect = { do = 'content-rejected' }");
    story(&env, STORY);
    env.run(["run", "story.json"]).says("parked: what is left refers to rows that failed");
    let helps =
        "change its row and submit the manifest again, or: callsheet retry story/still --set FIELD=VALUE";
    told(&env, "story/clip", &format!("the row still is failed: {helps}"));
    told(&env, "story/still", &format!("nothing: it would be rejected again; {helps}"));
    env.run(["retry", "story/still"]).exited(0).says("nothing was queued again");
    let plan = env.run(["plan", "story.json"]).exited(0).stdout;
    let failed = "failed: 1 job; callsheet retry story would queue none again as they are; to see what helps: callsheet \
                  explain JOB";
    assert!(plan.contains(failed), "{plan}");
    env.run(["retry", "story/still", "--set", "prompt=a red crow"]).exited(0).says("3 new jobs accepted");
    story(&env, &STORY.replace("a fox\"", "a red crow\""));
    env.run(["run", "story.json"]).exited(0);
    env.audit().each_paid_once(3);
}

#[test]
fn what_waits_for_review_feeds_nothing_before_it_is_approved() {
    let env = TestEnv::new();
    let reviewed = STORY.replace(r#""prompt": "a fox""#, r#""prompt": "a fox", "review": true, "count": 2"#);
    story(&env, &reviewed);
    env.run(["run", "story.json"]).exited(7).says("waiting for review");
    assert_eq!(made(&env), ["a fox", "a fox"]);
    told(&env, "story/clip", "callsheet review pick story/still");
    env.run(["review", "pick", "story/still-v2"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(made(&env)[2..], ["the fox runs", "and on"]);
    let sent = explained(&env, "story/clip")["inputs"][0]["address"].as_str().unwrap().to_owned();
    let picked = explained(&env, "story/still-v2")["job"]["task"].as_str().unwrap().to_owned();
    assert!(sent.contains(&picked), "{sent}, and not the result of {picked}");
    env.audit().each_paid_once(4);
}

/// A daemon with a storyboard whose still waits for a decision.
fn reviewed_story(env: &TestEnv, before_it_comes: impl FnOnce()) -> Running {
    let draft = env.write(
        "jobs/inbox/.story.tmp",
        STORY.replace(r#""prompt": "a fox""#, r#""prompt": "a fox", "review": true"#),
    );
    let daemon = env.daemon("info");
    before_it_comes();
    std::fs::rename(draft, env.path("jobs/inbox/story.json")).unwrap();
    // What is left waits for a person, who is told.
    until("its results", || env.path("output/story/report.json").exists());
    daemon
}

/// The first decision in the results.
fn first_decision(env: &TestEnv) -> Option<String> {
    let text = std::fs::read_to_string(env.path("output/story/decisions.csv")).ok()?;
    let mut lines = text.lines();
    let place = lines.next()?.split(',').position(|name| name == "decision")?;
    Some(lines.next()?.split(',').nth(place)?.to_owned())
}

#[test]
fn a_decision_about_a_row_that_others_wait_for_is_in_the_results_at_once() {
    let env = TestEnv::new();
    let daemon = reviewed_story(&env, || ());
    env.run(["review", "reject", "story/still"]).exited(0);
    until("the decision", || first_decision(&env).as_deref() == Some("rejected"));
    // Paused, it waits for its owner instead; its results say what was decided all the same.
    env.run(["pause", "story"]).exited(0);
    env.run(["review", "approve", "story/still"]).exited(0);
    until("the decision of a paused batch", || first_decision(&env).as_deref() == Some("approved"));
    env.run(["review", "reject", "story/still"]).exited(0);
    until("the decision after it", || first_decision(&env).as_deref() == Some("rejected"));
    daemon.stop().exited(0);
    env.run(["review", "approve", "story/still"]).exited(0);
    assert_eq!(
        first_decision(&env).as_deref(),
        Some("approved"),
        "nothing works on the state: the command writes them"
    );
    assert_eq!(made(&env), ["a fox"]);
}

#[test]
fn a_decision_that_comes_while_a_person_is_being_told_is_in_the_results() {
    let env = TestEnv::new();
    // What was told of the batch before is looked up between its results and the note that a person was told.
    let digest = hex(&Sha256::digest("story")[..16]);
    let told = env.path(&format!("state/hooks/told/{digest}.json"));
    let daemon = reviewed_story(&env, || mkfifoat(CWD, &told, Mode::RUSR | Mode::WUSR).unwrap());
    // The look-up has begun once there is somebody to read.
    let mut lookup = std::fs::OpenOptions::new().write(true).open(&told).unwrap();
    assert_eq!(first_decision(&env).as_deref(), Some(""), "the results of before are written");
    env.run(["review", "reject", "story/still"]).exited(0);
    lookup.write_all(b"{}").unwrap();
    drop(lookup);
    until("the decision", || first_decision(&env).as_deref() == Some("rejected"));
    daemon.stop().exited(0);
    assert_eq!(made(&env), ["a fox"]);
}

#[test]
fn another_pick_makes_the_children_new_priced_first_and_the_former_one_costs_nothing() {
    let env = TestEnv::new();
    let reviewed = STORY.replace(r#""prompt": "a fox""#, r#""prompt": "a fox", "review": true, "count": 2"#);
    story(&env, &reviewed);
    env.run(["run", "story.json"]).exited(7);
    env.run(["review", "pick", "story/still-v2"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    env.audit().each_paid_once(4);
    let jobs = env.run(["jobs", "story"]).exited(0).stdout;
    assert!(jobs.contains("(takes still-v2)"), "the take that it was made of: {jobs}");
    env.run(["run", "story.json"]).exited(0).says("0 new");
    env.run(["review", "pick", "story/still"]).exited(0);
    assert_eq!(verdicts(&env), ["long changed", "clip changed", "still done", "still-v2 done"]);
    env.run(["run", "story.json"]).exited(0).says("2 new").says("2 of them changed");
    env.audit().each_paid_once(6);
    let task = |job: &str| explained(&env, job)["job"]["task"].as_str().unwrap().to_owned();
    let sent = explained(&env, "story/clip")["inputs"][0]["address"].as_str().unwrap().to_owned();
    assert!(sent.contains(&task("story/still")), "{sent}");
    env.run(["run", "story.json"]).exited(0).says("0 new");
    // The former pick again: what was made of it is there.
    env.run(["review", "pick", "story/still-v2"]).exited(0);
    assert_eq!(verdicts(&env), ["long done", "clip done", "still done", "still-v2 done"]);
    env.run(["run", "story.json"]).exited(0);
    env.audit().each_paid_once(6);
    let sent = explained(&env, "story/clip")["inputs"][0]["address"].as_str().unwrap().to_owned();
    assert!(sent.contains(&task("story/still-v2")), "{sent}");
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn what_names_a_canceled_row_at_any_distance_waits_and_is_told_the_command_that_helps() {
    let env = TestEnv::new();
    story(&env, STORY);
    env.run(["run", "story.json", "--budget", "0"]).exited(4);
    env.run(["cancel", "story/still"]).exited(0);
    // `long` comes first in the manifest, and waits for `clip`.
    env.run(["run", "story.json", "--budget", "1000"])
        .exited(7)
        .says("what a job waits for:\n    callsheet explain story/long\n");
    told(
        &env,
        "story/long",
        "it waits: the row clip is queued, since the row still is canceled: callsheet retry story/still",
    );
    told(&env, "story/clip", "it waits: the row still is canceled: callsheet retry story/still");
    env.run(["retry", "story/still"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    env.audit().each_paid_once(3);
}

#[test]
fn a_canceled_batch_ends_what_waits_for_others() {
    let env = TestEnv::new();
    story(&env, &STORY.replace(r#""prompt": "a fox""#, r#""prompt": "a fox", "review": true"#));
    env.run(["run", "story.json"]).exited(7);
    env.run(["cancel", "story"]).exited(0);
    let jobs = env.run(["jobs", "story", "--json"]).exited(0).stdout;
    assert_eq!(jobs.matches(r#""state":"canceled""#).count(), 2, "{jobs}");
    assert_eq!(made(&env), ["a fox"]);
}

#[test]
fn what_cannot_be_meant_is_told_with_its_place_before_anything_is_bought() {
    let env = TestEnv::new();
    story(
        &env,
        r#"{"jobs": [
  {"id": "a", "kind": "video", "model": "house-c1", "prompt": "x", "image_urls": ["job:b"], "duration": "2s"},
  {"id": "b", "kind": "image", "model": "gi-2", "prompt": "x", "image_urls": ["job:c"]},
  {"id": "c", "kind": "image", "model": "gi-2", "prompt": "x", "image_urls": ["job:b"]},
  {"id": "d", "kind": "image", "model": "gi-2", "prompt": "x", "image_urls": ["job:nobody"]},
  {"id": "e", "kind": "image", "model": "gi-2", "prompt": "x", "image_urls": ["job:voice"]},
  {"id": "voice", "kind": "speech", "voice_id": "aria", "text": "x"},
  {"id": "f", "kind": "image", "model": "gi-2", "prompt": "x", "image_urls": ["job:good#0"]},
  {"id": "g", "kind": "image", "model": "gi-2", "prompt": "x", "image_urls": ["job:good-v3"]},
  {"id": "h", "kind": "video", "model": "model-s-2-5", "prompt": "x", "video_urls": ["job:nobody"], "duration": "5s"},
  {"id": "good", "kind": "image", "model": "gi-2", "prompt": "x", "count": 2}
]}"#,
    );
    let told = env.run(["plan", "story.json"]).exited(2);
    let told = format!("{}{}", told.stdout, told.stderr);
    assert!(!told.contains("source_video_duration_seconds"), "{told}");
    for what in [
        "story.json:3:",
        "b -> c -> b",
        "names no row of this manifest",
        "a speech; image_urls takes images",
        "variation 3 of the row",
    ] {
        assert!(told.contains(what), "{what}: {told}");
    }
    assert!(made(&env).is_empty());
}

/// A clip from a still of the batch `stills`, and a longer one from that.
const CLIPS: &str = r#"{"jobs": [
  {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the fox runs", "image_urls": ["job:stills/fox"], "duration": "2s"},
  {"id": "long", "kind": "video", "model": "model-s-2-5", "prompt": "and on", "video_urls": ["job:clips/clip"], "duration": "5s"}
]}"#;

const STILLS: &str = r#"{"jobs": [{"id": "fox", "kind": "image", "model": "gi-2", "prompt": "a fox"}]}"#;

#[test]
fn a_row_that_could_not_be_sent_today_is_meant_where_it_was_accepted_before() {
    let env = TestEnv::new();
    let rows = |more: &str| {
        let text = r#"{"jobs": [
  {"id": "long", "kind": "video", "model": "model-s-2-5", "prompt": "and on", "video_urls": ["job:clip"], "duration": "5s"},
  {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the fox runs", "image_urls": ["job:still"], "duration": "2s", "max_credits": 10},
  {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox", "max_credits": 9}MORE
]}"#;
        text.replace("MORE", more)
    };
    story(&env, &rows(""));
    env.run(["run", "story.json"]).exited(0);
    env.prices(&serde_json::json!({"multiply": 3}));
    std::fs::remove_file(env.path("state/catalogs.json")).unwrap();
    env.run(["run", "story.json"]).exited(0).says("0 new (0 credits), 3 already there");
    assert_eq!(verdicts(&env), ["long done", "clip done", "still done"]);
    // A new child of it is bought.
    story(
        &env,
        &rows(
            r#", {"id": "new", "kind": "video", "model": "house-c1", "prompt": "it sits", "image_urls": ["job:still"], "duration": "2s"}"#,
        ),
    );
    env.run(["run", "story.json"]).exited(0);
    env.audit().each_paid_once(4);
    // One of a row that never could be is not.
    story(&env, &rows("").replace("a fox", "a wolf"));
    env.run(["run", "story.json"]).exited(2).says("names the row at line 4, which is refused");
}

/// A still in two takes, and a clip of the one that is picked.
const TAKES: &str = r#"{"jobs": [
  {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox", "count": 2},
  {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the fox runs", "image_urls": ["job:still"], "duration": "2s"}
]}"#;

#[test]
fn another_pick_while_a_child_is_in_flight_is_priced_before_it_is_bought() {
    let env = TestEnv::with_faults("[[rules]]\ncontains = 'runs'\neffect = { do = 'task-never' }");
    story(&env, TAKES);
    env.run(["run", "story.json"]).exited(7);
    env.run(["review", "pick", "story/still"]).exited(0);
    let running = env.start(["run", "story.json"]);
    crate::support::until("the clip to be sent", || env.audit().tasks.len() == 3);
    running.signal(rustix::process::Signal::KILL);
    running.end();
    assert_eq!(verdicts(&env), ["still done", "still-v2 done", "clip running"]);
    env.run(["review", "pick", "story/still-v2"]).exited(0);
    assert_eq!(
        verdicts(&env),
        ["still done", "still-v2 done", "clip changed"],
        "as it would be once the clip is done"
    );
}

/// Its first version was sent, and fails after the other one was made: nothing says that it is wanted again.
#[test]
fn a_child_that_was_made_anew_for_another_pick_is_not_bought_again_however_its_first_version_ends() {
    let failed = |code| json!({"status": "failed", "error_code": code});
    // Another attempt would follow, no other attempt would, and somebody else has decided.
    not_bought_again(&failed("generic"), "not sent: another version of its row is wanted");
    not_bought_again(&failed("content_rejected"), "content_rejected");
    not_bought_again(&json!({"status": "canceled"}), "canceled at the service by another client");
}

fn not_bought_again(first_ends: &Value, told: &str) {
    let env = TestEnv::with_faults(
        "[[rules]]\non = 'create'\nkind = 'video'\ntimes = 1\neffect = { do = 'task-never' }",
    );
    story(&env, TAKES);
    let daemon = env.daemon("info");
    env.run(["submit", "story.json"]).exited(0);
    until("both stills", || env.audit().tasks.iter().filter(|task| task.status == "success").count() == 2);
    until("a take to be picked", || env.run(["review", "pick", "story/still"]).code == Some(0));
    until("the first clip to be sent", || env.audit().tasks.len() == 3);
    env.run(["review", "pick", "story/still-v2"]).exited(0);
    env.run(["submit", "story.json"]).exited(0);
    until("the second clip", || {
        env.audit().tasks.iter().filter(|task| task.status == "success").count() == 3
    });
    let audit = env.audit();
    let first = audit.tasks.iter().find(|task| task.status != "success").unwrap();
    env.control(&format!("tasks/{}", first.id), first_ends);
    daemon.says(told);
    env.run(["submit", "story.json", "--wait"]).exited(0).says("0 new");
    assert_eq!(env.audit().tasks.len(), 4, "{:#?}", env.audit().tasks);
    daemon.stop();
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn a_pick_that_changes_between_two_variations_of_a_child_buys_neither_again() {
    let env = TestEnv::with_faults(
        "[[rules]]\ncontains = 'runs'\ntimes = 1\neffect = { do = 'task-late', ms = 600000 }",
    );
    env.configure("[limits]\nin_flight = 1\n");
    story(&env, &TAKES.replace(r#""duration": "2s""#, r#""duration": "2s", "count": 2"#));
    env.run(["run", "story.json"]).exited(7);
    env.run(["review", "pick", "story/still"]).exited(0);
    let running = env.start(["run", "story.json"]);
    crate::support::until("the first clip to be sent", || env.audit().tasks.len() == 3);
    env.run(["review", "pick", "story/still-v2"]).exited(0);
    env.advance(std::time::Duration::from_secs(600));
    running.end().exited(0);
    env.audit().each_paid_once(4);
    let again = env.run(["run", "story.json"]).exited(0).says("0 new");
    again.says("clip was made of another take of still than still-v2").says("review another-take story/clip");
    env.audit().each_paid_once(4);
    for (clip, still) in [("story/clip", "is there: still"), ("story/clip-v2", "is there: still-v2")] {
        assert_eq!(explained(&env, clip)["inputs"][0]["state"], still, "{clip}");
    }
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn a_take_that_is_named_is_taken_whatever_is_picked() {
    let env = TestEnv::new();
    story(&env, &TAKES.replace("job:still", "job:still-v2"));
    env.run(["run", "story.json", "--only", "still"]).exited(0);
    env.run(["review", "pick", "story/still"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(made(&env), ["a fox", "a fox", "the fox runs"]);
}

#[test]
fn a_row_that_waits_for_an_older_version_is_told_what_helps() {
    let env = TestEnv::with_faults(
        "[[rules]]\ncontains = 'fog'\neffect = { do = 'task-fails', code = 'invalid_input' }",
    );
    env.write("stills.json", STILLS.replace("a fox", "a fox in the fog"));
    env.write("clips.json", CLIPS);
    env.run(["run", "stills.json"]).exited(1);
    env.run(["run", "clips.json"]).exited(7);
    env.write("stills.json", STILLS);
    env.run(["run", "stills.json"]).exited(0);
    told(&env, "clips/clip", "to take outputs of that one, submit the manifest of this row again");
    env.run(["run", "clips.json"]).exited(0);
}

#[test]
fn a_row_that_waits_for_the_review_of_an_older_version_is_told_the_name_of_that_one() {
    let env = TestEnv::new();
    let still = |prompt: &str, clip: &str| {
        let row = r#"{"id": "still", "kind": "image", "model": "gi-2", "review": true"#;
        env.write("story.json", format!(r#"{{"jobs": [{row}, "prompt": "{prompt}"}}{clip}]}}"#));
    };
    let clip = r#", {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "it runs", "image_urls": ["job:still"], "duration": "2s"}"#;
    still("a fox", clip);
    env.run(["run", "story.json"]).exited(7);
    still("a red fox", "");
    env.run(["run", "story.json"]).exited(7);
    env.run(["review", "approve", "story/still"]).exited(0);
    let again = "its newer version is another job; to take outputs of that one, submit the manifest of this row again";
    let review = "the row still was edited, and the version before that waits for review: callsheet review";
    told(&env, "story/clip", &format!("{review} approve story/still@1; {again}"));
    env.run(["review", "reject", "story/still@1"]).exited(0);
    let rejected = "the version before that was rejected: callsheet review approve story/still@1; its newer";
    told(&env, "story/clip", rejected);
    env.run(["review", "approve", "story/still@1"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    assert_eq!(made(&env), ["a fox", "a red fox", "it runs"]);
    env.audit().each_paid_once(3);
}

#[test]
fn rows_take_outputs_of_another_batch_of_the_same_folder() {
    let env = TestEnv::new();
    env.write("clips.json", CLIPS);
    let unknown = env.run(["plan", "clips.json"]).exited(2);
    unknown.says("names the batch stills, which does not exist; submit its manifest first");
    env.write("stills.json", STILLS);
    env.run(["plan", "stills.json", "clips.json"]).exited(0).says("is 2, the duration of clip");
    env.run(["run", "stills.json", "clips.json"]).exited(0);
    assert_eq!(made(&env), ["a fox", "the fox runs", "and on"]);
    let clip = explained(&env, "clips/clip");
    assert_eq!(clip["inputs"][0]["reference"], "stills/fox", "{clip:#}");
    // A batch takes outputs of one that is done long since, and of what it has itself from an earlier manifest.
    env.write(
        "clips.json",
        r#"{"jobs": [
        {"id": "other", "kind": "video", "model": "house-c1", "prompt": "the fox sits", "image_urls": ["job:stills/fox"], "duration": "2s"},
        {"id": "on", "kind": "video", "model": "model-s-2-5", "prompt": "further", "video_urls": ["job:clips/clip"], "duration": "5s"}]}"#,
    );
    env.run(["run", "clips.json"]).exited(0);
    assert_eq!(env.audit().tasks.len(), 5);
    env.audit().each_paid_once(5);
    env.run(["state", "verify"]).exited(0).says("all fits");
    // Another folder's rows are nobody else's.
    env.write("elsewhere/clips-2.json", CLIPS.replace("clips/clip", "clip"));
    let foreign = env.run(["run", "elsewhere/clips-2.json"]).exited(2);
    foreign.says("names the batch stills, which belongs to").says("batches of its own folder or inbox");
    env.audit().each_paid_once(5);
    // Unless the configuration shares them.
    env.configure("[inputs]\nshared_sources = [\"inbox:stills\", \"socket\"]\n");
    let foreign = env.run(["run", "elsewhere/clips-2.json"]).exited(2);
    foreign.says("of those that inputs.shared_sources names");
    let folder = env.path("").canonicalize().unwrap();
    env.configure(&format!("[inputs]\nshared_sources = [\"{}\"]\n", folder.display()));
    env.run(["run", "elsewhere/clips-2.json"]).exited(0);
    env.audit().each_paid_once(7);
    env.configure("[inputs]\nshared_sources = [\"stills\"]\n");
    let bad = env.run(["run", "elsewhere/clips-2.json"]).exited(2);
    bad.says(
        "found \"stills\"; inbox:NAME, schedule:NAME, socket, or the absolute path of a folder is accepted",
    );
}

#[test]
fn an_inbox_takes_outputs_of_a_folder_that_is_shared() {
    let env = TestEnv::new();
    let folder = env.path("").canonicalize().unwrap();
    env.configure(&format!(
        "[[inbox]]\npath = \"acme\"\nname = \"acme\"\n[inputs]\nshared_sources = [\"{}\"]\n",
        folder.display()
    ));
    env.write("stills.json", STILLS);
    env.run(["run", "stills.json"]).exited(0);
    let draft = env.write("acme/.clips.tmp", CLIPS.replace("job:clips/", "job:"));
    let daemon = env.daemon("info");
    std::fs::rename(draft, env.path("acme/clips.json")).unwrap();
    crate::support::until("its results", || env.path("output/acme--clips/report.json").exists());
    daemon.stop();
    assert_eq!(made(&env), ["a fox", "the fox runs", "and on"]);
    // What the inbox has is not shared.
    env.write(
        "other.json",
        CLIPS.replace("stills/fox", "acme--clips/clip").replace("image_urls", "video_urls"),
    );
    env.run(["plan", "other.json"]).exited(2).says("which belongs to the inbox acme");
}

#[test]
fn a_child_waits_for_a_row_of_another_batch_that_failed_and_goes_on_after_its_retry() {
    let env = TestEnv::with_faults(
        "[[rules]]\ncontains = 'a fox'\ntimes = 1\neffect = { do = 'task-fails', code = 'busy' }",
    );
    env.write("stills.json", STILLS.replacen('{', r#"{"policy": {"attempts": 1}, "#, 1));
    env.write("clips.json", CLIPS);
    env.run(["run", "stills.json"]).exited(1);
    env.run(["run", "clips.json"]).exited(7).says("parked: what is left refers to rows that failed");
    told(&env, "clips/clip", "the row stills/fox is failed: callsheet retry stills/fox");
    env.run(["retry", "stills/fox"]).exited(0);
    env.run(["run", "stills.json", "clips.json"]).exited(0);
    assert_eq!(made(&env), ["a fox", "a fox", "the fox runs", "and on"]);
    assert_eq!(env.audit().totals.refunds, 1);
}

#[test]
fn a_child_of_a_batch_that_is_held_back_is_told_what_holds_it_and_the_command_that_helps() {
    let env = TestEnv::new();
    env.write("stills.json", STILLS);
    env.write("clips.json", CLIPS);
    env.run(["run", "stills.json", "--budget", "1"]).exited(4);
    let waits = env.run(["run", "clips.json"]).exited(7);
    waits.says(
        "wait for a decision, with the rest after a pilot, or with their batch, which is paused, parked",
    );
    let parked = "the row stills/fox is queued: it is parked: the next job does not fit into the rest of the batch's budget";
    told(&env, "clips/clip", parked);
    told(
        &env,
        "clips/clip",
        "to raise it: callsheet budget stills N. This job needs 8 credits; 1 of 1 credit are left",
    );
    told(&env, "clips/long", &format!("it waits: the row clip is queued, since {parked}"));
    env.run(["pause", "stills"]).exited(0);
    env.run(["budget", "stills", "100"]).exited(0);
    env.run(["run", "clips.json"]).exited(7);
    told(
        &env,
        "clips/clip",
        "it waits: the row stills/fox is queued: its batch is paused; to continue: callsheet resume stills",
    );
    env.run(["resume", "stills"]).exited(0);
    told(&env, "clips/clip", "the row stills/fox is queued: it is parked: no process works on this state");
    // A run goes on with the batches of its manifests alone.
    env.run(["run", "clips.json"]).exited(7).says("which is paused, parked or not part of this run");
    env.run(["run", "stills.json", "clips.json"]).exited(0);
    env.audit().each_paid_once(3);
}

#[test]
fn rows_wait_for_a_batch_whose_files_were_moved_away_and_nothing_else_does() {
    let env = TestEnv::new();
    env.write("stills.json", STILLS);
    env.write("clips.json", CLIPS);
    env.run(["run", "stills.json"]).exited(0);
    env.run(["run", "clips.json", "--budget", "1"]).exited(4);
    let (folder, elsewhere) = (env.path("state/spool/000001"), env.path("elsewhere"));
    std::fs::rename(&folder, &elsewhere).unwrap();
    env.run(["plan", "clips.json"])
        .exited(2)
        .says("or put the folder of the batch back if it was moved away");

    let daemon = env.daemon("info");
    env.run(["budget", "clips", "1000"]).exited(0);
    daemon.says("rows that refer to it wait: batch stills is finished, and its files are no longer in");
    let status = || env.status("clips");
    crate::support::until("it to be parked", || status()["parked_by"] == "inputs");
    told(&env, "clips/clip", "no longer in");
    told(&env, "clips/clip", "put them back (another batch name buys its rows anew); then: callsheet resume");
    env.write("more.csv", manifests::manifest("image", 1));
    env.run(["submit", "more.csv", "--wait"]).exited(0);

    std::fs::rename(&elsewhere, &folder).unwrap();
    env.run(["resume", "clips"]).exited(0);
    crate::support::until("the clips", || status()["state"] == "done");
    daemon.stop();
    env.audit().each_paid_once(4);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn a_daemon_sends_rows_of_one_batch_when_those_of_another_are_done() {
    let env = TestEnv::new();
    let draft = env.write("jobs/inbox/.stills.tmp", STILLS);
    let daemon = env.daemon("info");
    std::fs::rename(draft, env.path("jobs/inbox/stills.json")).unwrap();
    crate::support::until("the still to be accepted", || env.path("jobs/accepted/stills.json").exists());
    let draft = env.write("jobs/inbox/.clips.tmp", CLIPS);
    std::fs::rename(draft, env.path("jobs/inbox/clips.json")).unwrap();
    crate::support::until("its results", || env.path("output/clips/report.json").exists());
    daemon.stop();
    assert_eq!(made(&env), ["a fox", "the fox runs", "and on"]);
    env.audit().each_paid_once(3);
}

#[test]
fn two_batches_survive_a_kill_at_every_step_between_them() {
    for (step, nth) in [("finding-inputs", 1), ("finding-inputs", 2), ("accepting", 2)] {
        let env = TestEnv::new();
        env.write("stills.json", STILLS);
        env.write("clips.json", CLIPS);
        let mut dying = env.command(["run", "stills.json", "clips.json"]);
        dying.env("CALLSHEET_FAILPOINT", format!("{step}:{nth}"));
        Running::start(dying).end().was_killed(step);
        env.run(["run", "stills.json", "clips.json"]).exited(0);
        env.audit().each_paid_once(3);
        env.run(["state", "verify"]).exited(0).says("all fits");
    }
}

#[test]
fn a_storyboard_survives_a_kill_at_every_step() {
    let steps = failpoint::OF_A_RUN.into_iter().chain(failpoint::OF_REFERENCES);
    for step in case_share::of_this_run(steps, 1) {
        let nth = if failpoint::OF_REFERENCES.contains(&step) { 2 } else { 1 };
        let env = TestEnv::new();
        story(&env, STORY);
        let mut dying = env.command(["run", "story.json"]);
        dying.env("CALLSHEET_FAILPOINT", format!("{step}:{nth}"));
        Running::start(dying).end().was_killed(step);
        env.run(["run", "story.json"]).exited(0);
        env.audit().each_paid_once(3);
        Outputs::of(&env, "story").is_complete(&["long", "clip", "still"].map(str::to_owned));
        env.run(["state", "verify"]).exited(0).says("all fits");
    }
}

#[test]
fn a_daemon_makes_many_storyboards_under_faults() {
    let env = TestEnv::with_faults(include_str!("../../emulator/src/faults/flaky-network.toml"));
    let (text, ids) = manifests::storyboards(12);
    let draft = env.write("jobs/inbox/.story.json.tmp", text);
    let daemon = env.daemon("info");
    std::fs::rename(draft, env.path("jobs/inbox/story.json")).unwrap();
    crate::support::until("its results", || env.path("output/story/report.json").exists());
    daemon.signal(rustix::process::Signal::TERM);
    daemon.end().exited(0);
    env.audit().each_paid_once(ids.len());
    Outputs::of(&env, "story").is_complete(&ids);
}

/// Two stills are made, then nothing listens where their results were, and then it does again.
#[test]
fn children_whose_result_host_does_not_answer_leave_their_slots_to_others() {
    let env = TestEnv::new();
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let proxy = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Poll if down.load(Ordering::SeqCst) => Act::Change(Box::new(|body| {
            if body["data"]["mediaType"] == "image" {
                body["data"]["taskUrls"] = json!(["http://127.0.0.1:9/still.png"]);
            }
        })),
        _ => Act::Pass,
    });
    env.configure_for(&proxy.base_url(), "", "[limits]\nin_flight = 2\n");
    let stills = "id,kind,model,prompt\na,image,gi-2,a fox\nb,image,gi-2,a gull\n";
    env.write("stills.csv", stills);
    env.run(["run", "stills.csv"]).exited(0);
    is_down.store(true, Ordering::SeqCst);
    let daemon = env.daemon("info");
    env.write(
        "clips.csv",
        "id,kind,model,prompt,image_urls,duration\na,video,house-c1,it runs,job:stills/a,2s\n\
         b,video,house-c1,it flies,job:stills/b,2s\n",
    );
    env.run(["submit", "clips.csv"]).exited(0);
    daemon.says("its inputs cannot be had");
    env.write(
        "others.csv",
        "id,kind,model,prompt,duration\nx,video,house-c1,a crow,2s\ny,video,house-c1,an owl,2s\n",
    );
    env.run(["submit", "others.csv"]).exited(0);
    until("the others are made", || env.status("others")["state"] == "done");
    until("the reason is said", || env.status("clips")["parked_by"] == "inputs_unavailable");
    told(&env, "clips/a", "it waits for its inputs, which cannot be had just now");
    is_down.store(false, Ordering::SeqCst);
    until("the clips are made", || env.status("clips")["state"] == "done");
    daemon.stop().exited(0);
    env.audit().each_paid_once(6);
}

/// Without a process: what admission would say, of rows whose inputs are there.
#[test]
fn a_used_up_budget_is_told_of_rows_that_take_outputs() {
    let env = TestEnv::new();
    let clip = |n: u32| format!("c{n},video,house-c1,a fox runs {n},job:a,5s\n");
    let rows = [clip(1), clip(2)].concat();
    env.write("m.csv", format!("id,kind,model,prompt,image_urls,duration\na,image,gi-2,a fox,,\n{rows}"));
    env.run(["run", "m.csv", "--budget", "20"])
        .exited(4)
        .says("the next job needs 10, 2 of 20 credits are left");
    assert_eq!(env.status("m")["parked_by"], "batch_budget");
    let told = env.run(["explain", "m/c2"]).exited(0).stdout;
    assert!(told.contains("This job needs 10 credits; 2 of 20 credits are left"), "{told}");
}
