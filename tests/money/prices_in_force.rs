//! The price in force when a job is let out is what is held, asked against every limit, and believed.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callsheet_emulator::Options;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::collect_outputs::Outputs;
use crate::support::scripted_proxy::{Act, Route, ScriptedProxy};
use crate::support::{TestEnv, manifests, until};

/// Two videos at 10 credits each.
fn two_videos(max_credits: Option<u64>) -> String {
    let row = |id: &str| json!({"id": id, "kind": "video", "model": "house-c1", "prompt": format!("a {id}"), "max_credits": max_credits});
    json!([row("boat"), row("fox")]).to_string()
}

/// The list of models that holds this one, and the same without it.
fn with_and_without(kept: &Value, id: &str) -> (Value, Value) {
    let is_it = |entry: &Value| entry["id"] == id;
    if let Some(list) = kept.as_array().filter(|list| list.iter().any(is_it)) {
        let rest: Vec<Value> = list.iter().filter(|entry| !is_it(entry)).cloned().collect();
        return (kept.clone(), Value::from(rest));
    }
    let inner: Vec<&Value> = match kept {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let found = inner.into_iter().map(|value| with_and_without(value, id));
    found.into_iter().find(|(with, _)| !with.is_null()).unwrap_or_default()
}

fn error_codes(env: &TestEnv, batch: &str) -> Vec<Value> {
    Outputs::of(env, batch).lines.iter().map(|line| line["error"]["code"].clone()).collect()
}

#[test]
fn what_waited_for_credits_while_its_price_doubled_passes_neither_its_maximum_nor_its_budget() {
    let env = TestEnv::with_credits(0);
    env.write("w.json", two_videos(Some(10)));
    env.run(["run", "w.json", "--budget", "20"]).exited(4);
    env.prices(&json!({"multiply": 2}));
    env.credits(1000);
    env.run(["run", "w.json", "--budget", "20"]).exited(1).says("the price is 20 credits now");
    assert_eq!(env.audit().totals.charged_credits, 0);
    assert_eq!(error_codes(&env, "w"), ["above_max_credits", "above_max_credits"]);

    // Let go at the new price, the budget still holds.
    env.run(["retry", "w", "--max-credits", "20"]).exited(0).says("2 queued again");
    env.run(["run", "w.json", "--budget", "20"]).exited(4);
    assert_eq!(env.audit().totals.charged_credits, 20);
    let prices: Vec<Value> =
        Outputs::of(&env, "w").lines.iter().map(|line| line["price_credits"].clone()).collect();
    assert_eq!(prices[0], 20, "the results show the price in force, not the one that was planned");
}

#[test]
fn a_plan_counts_what_waits_at_the_price_that_its_owner_allowed_since() {
    let env = TestEnv::with_credits(0);
    env.write("w.json", two_videos(Some(10)));
    env.run(["run", "w.json", "--budget", "100"]).exited(4);
    env.prices(&json!({"multiply": 2}));
    env.run(["retry", "w", "--max-credits", "20"]).exited(0);
    std::fs::remove_file(env.path("state/catalogs.json")).unwrap();
    let planned = env.run(["plan", "w.json", "--json"]).json()["total_credits"].clone();
    env.credits(1000);
    env.run(["run", "w.json"]).exited(0);
    assert_eq!(env.audit().totals.charged_credits, 40);
    assert_eq!(planned, 40);
}

#[test]
fn without_a_budget_a_batch_spends_what_its_plan_showed_whatever_prices_become() {
    let env = TestEnv::with_credits(0);
    env.write("w.json", two_videos(None));
    env.run(["run", "w.json"]).exited(4);
    env.prices(&json!({"multiply": 2}));
    env.credits(1000);
    env.run(["run", "w.json"]).exited(4).says("its jobs cost 10 credits more than planned");
    assert_eq!(env.audit().totals.charged_credits, 20, "20 were planned: one at the new price");
    let explained = env.run(["explain", "w/boat"]).exited(0);
    assert!(
        explained.stdout.contains("the price is 20 credits now, was 10 when it was accepted"),
        "{}",
        explained.stdout
    );
}

#[test]
fn versions_that_were_replaced_free_of_charge_leave_no_room_for_higher_prices() {
    let env = TestEnv::new();
    let rows = |clip: &str| {
        json!({"batch": "w", "jobs": [
            {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a boat", "review": true},
            {"id": "clip", "kind": "video", "model": "house-c1", "prompt": clip, "image_urls": ["job:still"]},
        ]})
    };
    for clip in ["one", "two", "three", "two"] {
        env.write("w.json", rows(clip).to_string());
        env.run(["run", "w.json"]).exited(7);
    }
    let status = env.status("w");
    assert_eq!(
        (&status["planned_credits"], &status["budget_credits"]),
        (&json!(18), &json!(18)),
        "{status:#}"
    );
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.prices(&json!({"multiply": 2}));
    env.run(["review", "approve", "w/still"]).exited(0);
    env.run(["run", "w.json"]).exited(4);
    assert_eq!(env.audit().totals.charged_credits, 8);
    env.run(["budget", "w", "28"]).exited(0);
    env.run(["run", "w.json"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
    assert_eq!(env.audit().totals.charged_credits, 28);
}

#[test]
fn rows_that_were_canceled_before_they_were_sent_leave_no_room_for_higher_prices() {
    let env = TestEnv::new();
    let image = |id: &str| json!({"id": id, "kind": "image", "model": "gi-2", "prompt": id});
    let manifest = json!({"batch": "w", "jobs": [image("a"), image("b"), image("c")]});
    env.write("w.json", manifest.to_string());
    env.run(["run", "w.json", "--budget", "0"]).exited(4);
    env.run(["budget", "w", "none"]).exited(0);
    let money = || {
        let status = env.status("w");
        ["planned_credits", "budget_credits"].map(|name| status[name].as_u64().unwrap())
    };
    assert_eq!(money(), [24, 24]);
    env.run(["cancel", "w/a"]).exited(0);
    env.run(["cancel", "w/b"]).exited(0);
    assert_eq!(money(), [8, 8]);
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.prices(&json!({"multiply": 3}));
    env.run(["run", "w.json"]).exited(4).says("does not fit into the rest of the batch's budget");
    assert_eq!(env.audit().totals.charges, 0);
    // One that is wanted again is planned again.
    env.run(["retry", "w/a"]).exited(0);
    assert_eq!(money(), [16, 16]);
    env.run(["retry", "w/b"]).exited(0);
    env.run(["run", "w.json"]).exited(4);
    assert_eq!((money(), env.audit().totals.charged_credits), ([24, 24], 24));
    // One that costs more than it may leaves none either.
    env.run(["retry", "w", "--max-credits", "9"]).exited(0);
    env.run(["run", "w.json"]).exited(1);
    assert_eq!((money(), env.audit().totals.charged_credits), ([8, 8], 24));
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.run(["state", "rebuild"]).exited(0);
    assert_eq!(money(), [8, 8]);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn rows_without_an_exact_price_are_bounded_and_a_charge_above_the_hold_pauses() {
    let env = TestEnv::new();
    let size = json!({"size": "3840x2160", "quality": "Max"});
    let image = |id: &str| json!({"id": id, "kind": "image", "model": "gi-2-5", "prompt": "x", "max_credits": 1, "options": size});
    let short =
        |id: &str| json!({"id": id, "kind": "shorts-studio", "max_credits": 1, "options": {"taskId": id}});
    let manifest = json!({
        "policy": {"budget": 3, "on_drift": "pause"},
        "jobs": [image("a"), image("b"), short("c"), short("d")],
    });
    env.write("u.json", manifest.to_string());
    let outcome = env.run(["run", "u.json"]).exited(7);
    assert!(outcome.stderr.contains("it may cost up to"), "{}", outcome.stderr);
    // One alone was sent: what nothing bounds goes one at a time, and its charge paused the rest.
    assert_eq!(env.audit().totals.tasks, 1);
    let drift = Outputs::of(&env, "u").lines[0]["drift"].clone();
    assert_eq!(drift[0]["field"], "hold_credits");
    assert_eq!(drift[0]["planned"], 1);
}

#[test]
fn a_model_that_is_withdrawn_parks_its_jobs_until_the_catalog_lists_it_again() {
    let env = TestEnv::with_credits(0);
    env.write("w.json", two_videos(None));
    env.run(["run", "w.json"]).exited(4);
    let kept = std::fs::read_to_string(env.path("state/catalogs.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let (video, without) = with_and_without(&kept, "house-c1");
    env.prices(&json!({"video": without}));
    env.credits(1000);
    env.run(["run", "w.json"]).exited(7).says("the catalog has no price for it now");
    assert_eq!(env.audit().totals.tasks, 0);
    env.prices(&json!({"video": video}));
    env.run(["run", "w.json"]).exited(0);
    assert_eq!(env.audit().totals.charged_credits, 20);
}

#[test]
fn a_run_asks_once_for_what_it_validates_and_prices_by() {
    let calls_of_a_run_and_the_next = || {
        let env = TestEnv::new();
        let service = ScriptedProxy::before(&env.base_url(), |_| Act::Pass);
        let calls_of_a_run = |file: &str| {
            let before = service.calls(Route::Catalog).len();
            env.run(["run", file, "--base-url", &service.base_url()]).exited(0);
            service.calls(Route::Catalog).len() - before
        };
        env.write("w.json", two_videos(None));
        env.write("other.csv", manifests::manifest("image", 1));
        let calls = [calls_of_a_run("w.json"), calls_of_a_run("other.csv")];
        env.audit().each_paid_once(3);
        calls
    };
    // The next one validates by the stored ones, which another process asked for, and asks before it sends. On a machine that
    // stands still for seconds, what was read is too old.
    assert!((0..3).any(|_| calls_of_a_run_and_the_next() == [4, 4]));
}

/// Has the stored catalogs as they would be two minutes later.
fn two_minutes_pass(env: &TestEnv) {
    let path = env.path("state/catalogs.json");
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    kept["fetched"] = json!(kept["fetched"].as_i64().unwrap() - 120_000);
    kept.as_object_mut().unwrap().remove("older");
    env.write("state/catalogs.json", kept.to_string());
}

#[test]
fn a_model_that_was_released_since_the_catalogs_were_stored_works_at_once() {
    let env = TestEnv::new();
    let (video, without) = with_and_without(&env.served(), "house-c1");
    let service = ScriptedProxy::before(&env.base_url(), |_| Act::Pass);
    let base_url = service.base_url();
    let does = |command, code| {
        let asked = service.calls(Route::Catalog).len();
        env.run([command, "w.json", "--base-url", &base_url]).exited(code);
        service.calls(Route::Catalog).len() - asked
    };
    env.write("w.json", two_videos(None));
    env.prices(&json!({"video": without}));
    assert_eq!(does("plan", 2), 4, "there was none");
    assert_eq!(does("plan", 2), 0, "they are recent");
    two_minutes_pass(&env);
    assert_eq!(does("plan", 2), 4, "it might be listed by now");
    assert_eq!(does("plan", 2), 0, "that was looked at a moment ago");
    two_minutes_pass(&env);
    env.prices(&json!({"video": video}));
    assert_eq!(does("plan", 0), 4);
    two_minutes_pass(&env);
    assert_eq!(does("plan", 0), 0, "nothing is refused");
    env.prices(&json!({"video": without}));
    std::fs::remove_file(env.path("state/catalogs.json")).unwrap();
    does("run", 2);
    two_minutes_pass(&env);
    env.prices(&json!({"video": video}));
    does("run", 0);
    env.audit().each_paid_once(2);
}

#[test]
fn a_daemon_looks_once_more_before_it_refuses_what_is_not_listed_and_not_again_at_once() {
    for is_released in [true, false] {
        let env = TestEnv::new();
        let (video, without) = with_and_without(&env.served(), "house-c1");
        env.write("w.json", two_videos(None));
        env.prices(&json!({"video": without}));
        env.run(["plan", "w.json"]).exited(2);
        two_minutes_pass(&env);
        if is_released {
            env.prices(&json!({"video": video}));
        }
        let daemon = env.daemon("info");
        if is_released {
            env.run(["submit", "w.json", "--wait"]).exited(0).says("2 new");
        } else {
            env.run(["submit", "w.json"]).exited(2).says("house-c1");
            env.prices(&json!({"video": video}));
            env.run(["submit", "w.json"]).exited(2).says("house-c1");
        }
        daemon.stop();
        env.audit().each_paid_once(if is_released { 2 } else { 0 });
    }
}

/// A manifest that waits for newer catalogs keeps no daemon from stopping, and stays for the next one.
#[test]
fn a_service_that_hangs_while_newer_catalogs_are_read_keeps_no_signal_waiting() {
    let env = TestEnv::new();
    let (_, without) = with_and_without(&env.served(), "house-c1");
    let is_mute = Arc::new(AtomicBool::new(false));
    let mute = is_mute.clone();
    let service = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Catalog if mute.load(Ordering::Relaxed) => Act::Mute,
        _ => Act::Pass,
    });
    let base_url = service.base_url();
    env.write("w.json", two_videos(None));
    env.prices(&json!({"video": without}));
    env.run(["plan", "w.json", "--base-url", &base_url]).exited(2);
    two_minutes_pass(&env);
    is_mute.store(true, Ordering::Relaxed);
    let daemon = env.start(["daemon", "--base-url", &base_url, "--log-level", "info"]);
    daemon.says("ready");
    let asked = service.calls(Route::Catalog).len();
    let submit = env.start(["submit", "w.json"]);
    until("the catalogs to be asked for", || service.calls(Route::Catalog).len() > asked);
    daemon.stop();
    submit.end();
    assert_eq!(env.audit().totals.tasks, 0);
}

#[test]
fn what_a_catalog_priced_that_is_older_than_it_may_be_cached_is_not_sent() {
    let env = TestEnv::with_credits(0);
    env.write("w.json", two_videos(None));
    env.run(["run", "w.json"]).exited(4);
    let path = env.path("state/catalogs.json");
    let mut kept: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    kept["fetched"] = json!(kept["fetched"].as_i64().unwrap() - 7_200_000);
    kept.as_object_mut().unwrap().remove("older");
    std::fs::write(&path, kept.to_string()).unwrap();
    env.prices(&json!({"multiply": 10}));
    env.credits(1000);
    env.faults("[[rules]]\non = 'catalog'\neffect = { do = 'answer', status = 503 }");
    let running = env.start(["run", "w.json"]);
    running.says("no catalog to price jobs of this kind by: they wait");
    env.run(["status", "w"]).exited(0);
    assert_eq!(env.audit().totals.tasks, 0);
    running.signal(Signal::TERM);
    running.end().exited(130);
    env.faults("calm");
    env.run(["run", "w.json"]).exited(4).says("the next job needs 100");
    assert_eq!(env.audit().totals.tasks, 0, "20 were planned");
}

#[test]
fn a_charge_above_the_price_is_believed_by_the_next_hold_and_the_next_plan() {
    let env = TestEnv::with(Options { speed: 10.0, ..Options::default() });
    env.configure("[limits]\nin_flight = 1");
    env.write("w.json", two_videos(None));
    let running = env.start(["run", "w.json"]);
    until("the first to be at the service", || env.audit().totals.tasks == 1);
    // The program knows its prices since a moment ago, and asks for them again in some minutes.
    env.prices(&json!({"multiply": 2}));
    running.end().exited(0).says("charged above the catalog's price");
    assert_eq!(env.audit().totals.charged_credits, 30);
    let one = json!([{"id": "owl", "kind": "video", "model": "house-c1", "prompt": "an owl"}]);
    env.write("next.json", one.to_string());
    // The kept catalog still says 10.
    let plan = env.run(["plan", "next.json", "--json"]).exited(0).json();
    assert_eq!(plan["total_credits"], 20);
    let formula = plan["rows"][0]["formula"].as_str().unwrap().to_owned();
    assert!(formula.ends_with("and 20 as 20 was charged for 10 before"), "{formula}");
    assert!(plan["files"][0]["notes"].to_string().contains("20 was charged for 10 before"), "{plan}");
    // The catalog's own entry has changed by now: what was charged for the old one says nothing any more.
    env.run(["run", "next.json"]).exited(0);
    assert_eq!(env.audit().totals.charged_credits, 50);
}

#[test]
fn a_charge_for_what_the_catalog_gives_away_is_believed_and_keeps_the_budget() {
    let env = TestEnv::with(Options { speed: 10.0, ..Options::default() });
    env.configure("[limits]\nin_flight = 1");
    let paid = env.served();
    env.prices(&json!({"multiply": 0}));
    let row = |n: u32| json!({"kind": "video", "model": "house-c1", "prompt": format!("boat {n}")});
    env.write("w.json", Value::from((1..=4).map(row).collect::<Vec<_>>()).to_string());
    let running = env.start(["run", "w.json", "--budget", "20"]);
    until("the first to be at the service", || env.audit().totals.tasks == 1);
    // The program knows its prices since a moment ago, and asks for them again in some minutes.
    env.prices(&paid);
    let stopped = running.end().exited(4).says("charged above the catalog's price");
    stopped.says("the next job needs 10, 0 of 20 credits are left");
    assert_eq!(env.audit().totals.charged_credits, 20, "the first was free, and one waits");
}
