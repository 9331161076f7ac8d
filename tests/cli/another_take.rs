//! Another take of a row: shown with its price, bought once, and counted when `count` is raised later.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;

use callsheet::failpoint;
use callsheet_emulator::Options;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::{TestEnv, case_share, until};

/// Images of 8 credits each, of which two takes are made.
fn manifest(count: u32) -> String {
    format!(
        "id,kind,model,prompt,count,review\nposter,image,gi-2,A harbour,{count},yes\nwind,sound-effect,,Wind,,\n"
    )
}

/// A batch that is made, of which two takes wait for a decision.
fn made() -> TestEnv {
    made_in(TestEnv::new())
}

fn made_in(env: TestEnv) -> TestEnv {
    env.write("spring.csv", manifest(2));
    env.run(["run", "spring.csv"]).exited(7).says("spring: 2 waiting for review");
    env
}

fn buy(take: &'static str, price: &'static str) -> [&'static str; 7] {
    ["review", "another-take", "spring/poster", "--take", take, "--price", price]
}

fn explained(env: &TestEnv, job: &str) -> Value {
    env.run(["explain", job, "--json"]).exited(0).json()
}

#[test]
fn it_costs_what_was_shown_and_a_raised_count_buys_nothing_more() {
    let env = made();
    let first = fs::read(env.path("output/spring/poster.png")).unwrap();
    env.run(["review", "reject", "spring/poster"]).exited(0);
    env.run(["review", "approve", "spring/poster-v2"]).exited(0).says("spring: done");
    let shown = env.run(["review", "another-take", "spring/poster-v2"]).exited(0);
    shown
        .says("spring/poster-v3: take 3 of its row, for 8 credits; nothing is bought yet")
        .says("callsheet review another-take spring/poster-v2 --take 3 --price 8");
    let told = env.run(["review", "another-take", "spring/poster", "--json"]).exited(0).json();
    assert_eq!(
        (&told["id"], &told["price_credits"], &told["accepted"]),
        (&"poster-v3".into(), &8.into(), &false.into())
    );
    for wrong in [["--take", "3"], ["--price", "8"]] {
        env.run(["review", "another-take", "spring/poster"].into_iter().chain(wrong)).exited(2);
    }
    env.run(buy("3", "7")).exited(2).says("no other take of spring/poster").says("ask for it again");
    env.run(buy("4", "8")).exited(2).says("take 3 of spring/poster does not exist yet");
    env.run(buy("0", "8")).exited(2);
    env.run(buy("3", "8").into_iter().chain(["--by", "ana"])).exited(2).says("--by names who decides");
    env.run(["status", "spring"]).exited(0);
    env.audit().each_paid_once(3);

    env.run(buy("3", "8")).exited(0).says("spring/poster-v3: take 3 accepted for 8 credits at most");
    // Whoever heard nothing asks again.
    env.run(buy("3", "8")).exited(0).says("spring/poster-v3: take 3 is there already; nothing was bought");
    env.run(buy("1", "8")).exited(0).says("spring/poster: take 1 is there already");
    let take = &explained(&env, "spring/poster-v3")["spec"];
    assert_eq!((&take["variation"], &take["order"]["line"]), (&3.into(), &2.into()), "its row is at line 2");
    env.run(["run", "spring.csv"])
        .exited(7)
        .says("0 new (0 credits), 3 already there")
        .says("1 waiting for review");
    env.audit().each_paid_once(4);
    assert_eq!(fs::read(env.path("output/spring/poster.png")).unwrap(), first, "nothing is overwritten");
    assert!(env.path("output/spring/poster-v3.png").exists());
    env.run(["review", "pick", "spring/poster-v3"]).exited(0).says("spring: done");

    // A count that was raised to what there is, and by one more.
    env.write("spring.csv", manifest(3));
    env.run(["run", "spring.csv"]).exited(0).says("0 new (0 credits), 4 already there");
    env.audit().each_paid_once(4);
    env.write("spring.csv", manifest(4));
    env.run(["run", "spring.csv"]).exited(7).says("1 new (8 credits), 4 already there");
    env.audit().each_paid_once(5);
    Outputs::of(&env, "spring").agrees_with(&env.audit());
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn it_comes_back_with_the_version_of_its_row_that_it_is_of() {
    let env = TestEnv::new();
    let run = |prompt: &str| {
        let row = format!(r#"{{"id": "poster", "kind": "image", "model": "gi-2", "prompt": "{prompt}"}}"#);
        env.write("spring.jsonl", row + "\n");
        env.run(["run", "spring.jsonl"]).exited(0)
    };
    let names = || env.run(["jobs", "spring"]).exited(0).stdout;
    run("a harbour");
    env.run(buy("2", "8")).exited(0);
    run("a harbour");
    let second = fs::read(env.path("output/spring/poster-v2.png")).unwrap();
    run("a red harbour");
    env.audit().each_paid_once(3);
    assert!(names().contains("superseded"), "{}", names());
    run("a harbour").says("0 new (0 credits)");
    env.audit().each_paid_once(3);
    let wanted = env.run(["jobs", "spring", "--json"]).exited(0).stdout;
    let is_wanted = |line: &&str| !line.contains("superseded\":true");
    assert_eq!(wanted.lines().filter(is_wanted).count(), 2, "{wanted}");
    assert_eq!(fs::read(env.path("output/spring/poster-v2.png")).unwrap(), second);
    env.run(["review", "another-take", "spring/poster"]).exited(0).says("take 3 of its row, for 8 credits");
    env.run(buy("3", "8")).exited(0).says("take 3 accepted");
    run("a harbour");
    env.audit().each_paid_once(4);
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.run(["state", "rebuild"]).exited(0);
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn a_take_that_was_dropped_unsent_is_not_offered_and_its_count_is() {
    let env = TestEnv::new();
    let write = |prompt: &str, count: u32| {
        let text = format!("id,kind,model,prompt,count\nposter,image,gi-2,{prompt},{count}\n");
        env.write("spring.csv", text);
    };
    write("a harbour", 1);
    env.run(["run", "spring.csv"]).exited(0);
    env.run(buy("2", "8")).exited(0);
    write("a red harbour", 1);
    env.run(["run", "spring.csv"]).exited(0);
    write("a harbour", 1);
    env.run(["run", "spring.csv"]).exited(0);
    env.audit().each_paid_once(2);
    env.run(["review", "another-take", "spring/poster"])
        .exited(2)
        .says("take 2 was dropped before it was sent")
        .says("submit the manifest again with count 2 in the row");
    write("a harbour", 2);
    env.run(["run", "spring.csv"]).exited(0);
    env.audit().each_paid_once(3);
    assert!(env.path("output/spring/poster-v2.png").exists());
}

#[test]
fn a_rebuilt_state_knows_it_and_a_lost_one_buys_it_under_the_same_key() {
    let env = made();
    env.run(buy("3", "8")).exited(0);
    env.run(["run", "spring.csv"]).exited(7);
    env.audit().each_paid_once(4);
    let key = explained(&env, "spring/poster-v3")["idempotency_key"].clone();
    env.run(["state", "rebuild"]).exited(0);
    env.run(buy("3", "8")).exited(0).says("is there already");
    env.run(["state", "verify"]).exited(0).says("all fits");
    fs::remove_dir_all(env.path("state")).unwrap();
    env.write("spring.csv", manifest(3));
    env.run(["run", "spring.csv"]).exited(7).says("4 new");
    assert_eq!(explained(&env, "spring/poster-v3")["idempotency_key"], key);
    env.audit().each_paid_once(4);
}

#[test]
fn a_kill_at_any_step_buys_it_once() {
    let accepting = ["accepting", "flushed", "accepted"];
    for step in accepting {
        let env = made();
        let mut dying = env.command(buy("3", "8"));
        dying.env("CALLSHEET_FAILPOINT", step);
        Running::start(dying).end().was_killed(step);
        env.run(buy("3", "8")).exited(0);
        env.run(["run", "spring.csv"]).exited(7).says("3 waiting for review");
        env.audit().each_paid_once(4);
        env.run(["state", "verify"]).exited(0).says("all fits");
    }
    // A batch that waits for decisions is not finished.
    let others = ["taken", "finishing"];
    let is_next = |name: &&str| !accepting.contains(name) && !others.contains(name);
    for step in case_share::of_this_run(failpoint::OF_A_RUN.into_iter().filter(is_next), 1) {
        // An image takes more than a tenth of a second, so that it is polled on a busy machine, too.
        let env = made_in(TestEnv::with(Options { speed: 300.0, ..Options::default() }));
        env.run(buy("3", "8")).exited(0);
        let mut dying = env.command(["run", "spring.csv"]);
        dying.env("CALLSHEET_FAILPOINT", step);
        Running::start(dying).end().was_killed(step);
        env.run(buy("3", "8")).exited(0).says("is there already");
        env.run(["run", "spring.csv"]).exited(7).says("3 waiting for review");
        env.audit().each_paid_once(4);
        Outputs::of(&env, "spring").agrees_with(&env.audit());
        env.run(["state", "verify"]).exited(0).says("all fits");
    }
}

#[test]
fn a_daemon_that_is_killed_after_its_answer_has_it() {
    let env = made();
    let daemon = env.daemon("info");
    env.run(buy("3", "8")).exited(0);
    daemon.signal(Signal::KILL);
    daemon.end().was_killed("after the answer");
    let daemon = env.daemon("info");
    env.run(buy("3", "8")).exited(0).says("is there already");
    until("the third take", || env.path("output/spring/poster-v3.png").exists());
    daemon.stop();
    env.audit().each_paid_once(4);
}

#[test]
fn two_at_once_buy_one() {
    let env = made();
    let daemon = env.daemon("info");
    let both = [env.start(buy("3", "8")), env.start(buy("3", "8"))];
    let said = both.map(|one| one.end().exited(0).stderr);
    let accepted = said.iter().filter(|said| said.contains("take 3 accepted")).count();
    assert_eq!(accepted, 1, "{said:?}");
    until("the third take", || env.path("output/spring/poster-v3.png").exists());
    daemon.stop();
    env.audit().each_paid_once(4);
}

#[test]
fn what_cannot_be_had_is_refused_with_what_helps() {
    let env = TestEnv::with_faults("[[rules]]\ncontains = 'storm'\neffect = { do = 'content-rejected' }");
    env.write(
        "birds.csv",
        "id,kind,model,prompt\ngull,image,gi-2,a gull in a storm\nowl,image,gi-2,an owl\n",
    );
    env.run(["run", "birds.csv"]).exited(1);
    let ask = |job: &str| env.run(["review", "another-take", job]);
    ask("birds/gull")
        .exited(2)
        .says("birds/gull is failed")
        .says("callsheet retry birds/gull --set FIELD=VALUE");
    ask("birds").exited(2).says("birds is a batch");
    ask("birds/nobody").exited(2);
    env.run(["review", "birds", "another-take", "birds/owl"]).exited(2);
    // A row without an id, and an older version of an edited one.
    env.write("plain.csv", "kind,model,prompt\nimage,gi-2,a wren\n");
    env.run(["run", "plain.csv"]).exited(0);
    let jobs = env.run(["jobs", "plain", "--json"]).exited(0).stdout;
    let wren: Value = serde_json::from_str(jobs.lines().next().unwrap()).unwrap();
    let wren = format!("plain/{}", wren["id"].as_str().unwrap());
    env.run(["review", "another-take", wren.as_str(), "--take", "2", "--price", "8"]).exited(0);
    env.run(["run", "plain.csv"]).exited(0);
    env.write("plain.csv", "kind,model,prompt\nimage,gi-2,a wren\nimage,gi-2,a wren\n");
    env.run(["run", "plain.csv"]).exited(0).says("0 new (0 credits), 2 already there");
    env.write("birds.csv", "id,kind,model,prompt\nowl,image,gi-2,a grey owl\n");
    env.run(["run", "birds.csv"]).exited(1);
    ask("birds/owl@1").exited(2).says("this version of birds/owl is an older one");
    env.audit().each_paid_once(4);
}

#[test]
fn a_budget_that_does_not_cover_it_parks_it() {
    let env = TestEnv::new();
    env.write("spring.csv", manifest(1));
    let before = env.run(["run", "spring.csv", "--budget", "13"]);
    before.exited(7);
    let spent = env.status("spring")["charged_credits"].clone();
    let left = 13 - spent.as_u64().unwrap();
    assert!(left < 8, "{left}");
    let enough = (13 - left + 8).to_string();
    env.run(["review", "another-take", "spring/poster"])
        .exited(0)
        .says(&format!("the budget of spring has {left} credits left: the take would wait"))
        .says(&format!("(callsheet budget spring {enough}, which covers what waits before it)"));
    env.run(buy("2", "8")).exited(0);
    env.run(["run", "spring.csv"]).exited(4);
    env.audit().each_paid_once(2);
    env.run(["budget", "spring", &enough]).exited(0);
    env.run(["run", "spring.csv"]).exited(7).says("2 waiting for review");
    env.audit().each_paid_once(3);
}

#[test]
fn whoever_looks_at_a_pilot_need_not_continue_for_another_take_of_it() {
    let env = TestEnv::new();
    env.write(
        "birds.csv",
        "id,kind,model,prompt\ngull,image,gi-2,a gull\nowl,image,gi-2,an owl\ntit,image,gi-2,a tit\n",
    );
    env.run(["run", "birds.csv", "--pilot", "1"]).exited(7);
    env.audit().each_paid_once(1);
    env.run(["review", "another-take", "birds/gull", "--take", "2", "--price", "8"]).exited(0);
    env.run(["run", "birds.csv"]).exited(7).says("2 jobs (16 credits) wait until you continue");
    env.audit().each_paid_once(2);
    assert!(env.path("output/birds/gull-v2.png").exists());
    env.run(["continue", "birds"]).exited(0);
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(4);
}

const STORY: &str = r#"{"jobs": [
  {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "the fox runs", "image_urls": ["job:still"], "duration": "2s"},
  {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox", "review": true}
]}"#;

#[test]
fn a_row_that_waits_for_a_rejected_one_goes_on_with_another_take_of_it() {
    let env = TestEnv::new();
    env.write("story.json", STORY);
    env.run(["run", "story.json"]).exited(7);
    env.run(["review", "reject", "story/still"]).exited(0);
    env.run(["run", "story.json"]).exited(7);
    env.audit().each_paid_once(1);
    let waits = env.run(["explain", "story/clip"]).exited(0).stdout;
    assert!(waits.contains("callsheet review another-take story/still"), "{waits}");
    env.run(["review", "another-take", "story/still", "--take", "2", "--price", "8"]).exited(0);
    // What was bought already comes first: a further take is not proposed.
    let next = "next: it waits: the row still was rejected, and";
    let waits = |and: &str| {
        let said = env.run(["explain", "story/clip"]).exited(0).stdout;
        assert!(said.contains(&format!("{next} {and}\n")), "{said}");
    };
    waits("its take still-v2 is queued; what it waits for: callsheet explain story/still-v2");
    env.run(["run", "story.json"]).exited(7);
    env.audit().each_paid_once(2);
    waits("another take of it is there: callsheet review approve story/still-v2");
    let daemon = env.daemon("info");
    env.run(["review", "approve", "story/still-v2"]).exited(0);
    until("the clip", || env.path("output/story/clip.mp4").exists());
    daemon.stop();
    env.audit().each_paid_once(3);
    let clip = explained(&env, "story/clip");
    assert_eq!(clip["inputs"][0]["state"], "is there: still-v2", "{clip:#}");
    // It is not made again, and another take of it needs the row that it names.
    env.run(["run", "story.json"]).exited(0).says("0 new (0 credits), 2 already there");
    let shown = env.run(["review", "another-take", "story/clip", "--json"]).exited(0).json();
    let price = shown["price_credits"].to_string();
    env.run(["review", "another-take", "story/clip", "--take", "2", "--price", &price]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    env.audit().each_paid_once(4);
    assert!(env.path("output/story/clip-v2.mp4").exists());
    env.run(["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn of_two_takes_the_one_that_is_not_rejected_is_proposed() {
    let env = TestEnv::new();
    env.write("story.json", STORY.replace(r#""review": true"#, r#""review": true, "count": 2"#));
    env.run(["run", "story.json"]).exited(7);
    let waits = |command: &str| {
        let said = env.run(["explain", "story/clip"]).exited(0).stdout;
        assert!(said.contains(&format!("none of which is picked: {command}\n")), "{said}");
    };
    waits("callsheet review pick story/still");
    env.run(["review", "reject", "story/still"]).exited(0);
    waits("callsheet review approve story/still-v2");
    env.run(["review", "approve", "story/still-v2"]).exited(0);
    env.run(["run", "story.json"]).exited(0);
    env.audit().each_paid_once(3);
}
