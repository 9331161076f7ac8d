//! An account that is short of credits, has allowances, or is spent by others, too; and calls that render before they
//! answer.

use std::time::{Duration, Instant};

use callsheet_emulator::{Options, Plan};
use serde_json::json;

use crate::support::collect_outputs::Outputs;
use crate::support::{TestEnv, manifests, until};

/// An account of the Ultra plan with so many credits.
fn ultra(credits: u64) -> TestEnv {
    let env = TestEnv::with(Options { plan: Plan::Ultra, credits, ..Options::default() });
    env.configure_service("plan = \"ultra\"", "[limits]\nin_flight = 2");
    env
}

/// Two videos that no allowance covers, before so many images that one does.
fn manifest(images: usize) -> String {
    let videos = manifests::manifest("video", 2);
    let images = manifests::manifest("image", images);
    format!("{videos}{}\n", images.lines().skip(1).collect::<Vec<_>>().join("\n"))
}

#[test]
fn free_images_are_made_on_an_empty_account_and_the_videos_wait() {
    let env = ultra(0);
    env.write("batch.csv", manifest(6));
    let outcome = env.run(["run", "batch.csv", "--json"]).exited(4);
    assert_eq!(outcome.json()["batches"][0]["waived_credits"], 6 * 8);
    outcome.says("add credits");
    let totals = env.audit().totals;
    assert_eq!((totals.tasks, totals.charged_credits, totals.waived_credits), (6, 0, 6 * 8));
    assert!(totals.refused_402 <= 2, "{totals:?}");
    let status = env.run(["status"]).exited(0);
    assert!(status.stdout.contains("waived") && status.stdout.contains("48"), "{}", status.stdout);
    assert_eq!(Outputs::of(&env, "batch").sum("waived_credits"), 48);
    env.credits(1_000);
    env.run(["run", "batch.csv"]).exited(0);
    assert_eq!(env.audit().totals.tasks, 8);
}

#[test]
fn a_video_that_takes_the_length_of_another_row_is_covered_like_any_other() {
    let env = ultra(5);
    let rows = json!([
        {"id": "vo", "kind": "speech", "text": "All aboard the night train.", "voice_id": "aria"},
        {"id": "song", "kind": "music", "prompt": "a slow waltz"},
        {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "a train", "duration": "job:vo"},
    ]);
    env.write("batch.json", rows.to_string());
    env.run(["run", "batch.json"]).exited(4).says("the next job needs 60 credits");
    let totals = env.audit().totals;
    assert_eq!((totals.tasks, totals.charged_credits > 5), (2, false), "{totals:?}");
    assert!(totals.waived_credits > 0, "{totals:?}");
}

#[test]
fn an_allowance_that_is_used_up_is_not_tried_again_and_again() {
    let env = ultra(0);
    env.write("batch.csv", manifest(102));
    env.run(["run", "batch.csv"]).exited(4);
    let totals = env.audit().totals;
    assert_eq!((totals.tasks, totals.waived_credits), (100, 800), "a day's allowance");
    assert!(totals.refused_402 <= 4, "{totals:?}");
    env.run(["run", "batch.csv"]).exited(4);
    assert_eq!(env.audit().totals.refused_402, totals.refused_402, "not one more of either kind");
}

#[test]
fn seven_starts_on_an_empty_account_send_no_more_than_the_first() {
    let env = TestEnv::with_credits(0);
    env.configure_service("plan = \"none\"", "[limits]\nin_flight = 2");
    env.write("batch.csv", manifests::manifest("image", 20));
    env.run(["run", "batch.csv"]).exited(4);
    let refused = env.audit().totals.refused_402;
    assert!(refused <= 2, "{refused}");
    for _ in 0..6 {
        env.run(["run", "batch.csv"]).exited(4).says("add credits");
    }
    assert_eq!(env.audit().totals.refused_402, refused);
    // What there is now covers one.
    env.credits(11);
    env.run(["run", "batch.csv"])
        .exited(4)
        .says("the next job needs 8 credits, the balance is 3: add 5 or more");
    let totals = env.audit().totals;
    assert_eq!((totals.tasks, totals.refused_402), (1, refused), "{totals:?}");
}

#[test]
fn a_top_up_is_noticed_soon_and_at_once_when_somebody_resumes() {
    let env = TestEnv::with_credits(0);
    env.configure_service("plan = \"none\"", "");
    let daemon = env.daemon("info");
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["submit", "batch.csv"]).exited(0);
    let parked = || env.run(["status", "--json"]).json()["batches"][0]["parked_by"] == "credits";
    until("the queue to be parked", parked);
    until("the balance to be told", || {
        let said = env.run(["status"]).exited(0).stderr;
        said.contains("batch: the next job needs 8 credits, the balance is 0; after adding credits: callsheet resume batch")
    });
    env.credits(100);
    let since = Instant::now();
    env.run(["resume", "batch"]).exited(0);
    until("the image to be bought", || env.audit().totals.tasks == 1);
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    daemon.stop();
}

#[test]
fn a_covered_row_does_not_pass_a_budget() {
    let env = ultra(1_000);
    env.write("batch.csv", manifests::manifest("image", 3));
    env.run(["run", "batch.csv", "--budget", "10"]).exited(0);
    assert_eq!(env.audit().totals.waived_credits, 3 * 8, "what was waived is not spent");
    env.write("dear.csv", manifests::manifest("image", 1));
    env.run(["run", "dear.csv", "--budget", "7"]).exited(4).says("even if an allowance may cover");
    assert_eq!(env.audit().totals.tasks, 3);
}

#[test]
fn a_least_balance_holds_although_others_spend_of_the_account() {
    const LEAST: u64 = 500;
    let env = TestEnv::with(Options { credits: 640, speed: 100.0, ..Options::default() });
    env.configure(&format!("[budget]\nmin_balance = {LEAST}\n[limits]\nin_flight = 1"));
    env.write("batch.csv", manifests::manifest("image", 60));
    let running = env.start(["run", "batch.csv"]);
    until("some images to be bought", || env.audit().totals.tasks >= 5);
    // Somebody else spends nearly everything at once.
    env.credits(LEAST + 20);
    running.end().exited(4).says("budget.min_balance");
    let left = env.audit().totals.balance;
    assert!(left >= LEAST, "{left} are left of {LEAST}");
}

#[test]
fn an_image_that_renders_inside_the_call_takes_the_time_it_needs() {
    let env = TestEnv::with_faults(
        "[[rules]]\non = 'create'\neffect = { do = 'delay', ms = 1500, when = 'after' }",
    );
    env.configure_service("request_timeout = \"500ms\"\nrender_timeout = \"30s\"", "");
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    let audit = env.audit();
    assert_eq!((audit.posts(), audit.totals.replays), (1, 0), "nobody lost patience");
    assert_eq!(Outputs::of(&env, "batch").column("state"), ["succeeded"]);
}

/// Its charge took the last credits, and its key returns its task whatever is left.
#[test]
fn a_task_whose_creation_had_no_answer_is_fetched_from_an_empty_account() {
    let env = TestEnv::with_credits(10);
    env.configure_service("plan = \"none\"", "");
    env.faults(
        "[[rules]]\non = 'create'\ncontains = 'alpha'\ntimes = 5\neffect = { do = 'drop', when = 'after' }\n\
         [[rules]]\non = 'create'\ncontains = 'beta'\neffect = { do = 'delay', ms = 20, when = 'before' }\n",
    );
    let row = |id: &str| json!({"id": id, "kind": "video", "model": "house-c1", "prompt": id});
    env.write("two.json", json!([row("alpha"), row("beta")]).to_string());
    env.run(["run", "two.json"]).exited(4).says("the next job needs 10 credits, the balance is 0");
    let totals = env.audit().totals;
    assert_eq!((totals.tasks, totals.charged_credits, totals.refused_402), (1, 10, 1), "{totals:?}");
    let lines = Outputs::of(&env, "two").lines;
    assert_eq!((&lines[0]["state"], &lines[0]["charged_credits"]), (&json!("succeeded"), &json!(10)));
    assert_eq!(lines[1]["state"], "queued");
}

#[test]
fn music_costs_its_minimum_however_low_the_catalog_goes() {
    let env = TestEnv::new();
    env.prices(&json!({"multiply": 0.5}));
    env.write(
        "song.json",
        json!([{"kind": "music", "prompt": "a waltz", "duration_seconds": 10}]).to_string(),
    );
    let ran = env.run(["run", "song.json", "--json"]).exited(0);
    assert!(!ran.stderr.contains("drift"), "{}", ran.stderr);
    assert_eq!(env.audit().totals.charged_credits, 60);
}
