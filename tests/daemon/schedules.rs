//! Schedules as a process: what fires by itself, by hand and after a kill, and that each run is paid once.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use callsheet::domain::schedule::name;
use callsheet::domain::time::Timestamp;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::process::Running;
use crate::support::{TestEnv, until};

/// One cheap image a run, told apart by its time.
const MANIFEST: &str =
    "id,kind,model,prompt\nnews-{date},image,gi-2,\"the harbour on {weekday}, run {n} of {year}\"\n";

fn schedule(name: &str, cron: &str, more: &str) -> String {
    format!("[[schedule]]\nname = \"{name}\"\ncron = \"{cron}\"\nmanifest = \"news.csv\"\n{more}\n")
}

fn env(schedules: &str) -> TestEnv {
    let env = TestEnv::new();
    env.write("news.csv", MANIFEST);
    env.configure(schedules);
    env
}

/// Batches that are done.
fn done(env: &TestEnv) -> BTreeSet<String> {
    let statuses = env.statuses();
    let done = statuses.iter().filter(|batch| batch["state"] == "done");
    done.map(|batch| batch["name"].as_str().unwrap().to_owned()).collect()
}

/// The daemon works on nothing, and what it began is done.
fn settle(env: &TestEnv) -> BTreeSet<String> {
    let is_still = || env.statuses().iter().all(|batch| batch["state"] == "done");
    until("every run to end", is_still);
    done(env)
}

#[test]
fn every_run_is_a_batch_of_its_own_and_paid_once_across_a_kill() {
    let every_second = schedule("tick", "* * * * * *", "overlap = \"allow\"");
    let env = env(&every_second);
    let first = env.daemon("info");
    until("two runs", || done(&env).len() >= 2);
    first.signal(Signal::KILL);
    first.end().was_killed("by the test");
    let second = env.daemon("info");
    let before = done(&env).len();
    until("more of them", || done(&env).len() >= before + 2);
    env.configure("");
    second.signal(Signal::HUP);
    second.says("configuration reloaded");
    let runs = settle(&env);
    second.stop();
    env.audit().each_paid_once(runs.len());
    assert!(runs.iter().all(|run| run.starts_with("tick-20") && run.ends_with('Z')), "{runs:?}");
    // The prompt is filled, and what is no placeholder is left alone.
    let prompts = env.audit().tasks.into_iter().map(|task| task.prompt).collect::<BTreeSet<_>>();
    assert_eq!(prompts.len(), runs.len(), "{{n}} tells the runs of a year apart: {prompts:?}");
    assert!(prompts.iter().all(|prompt| prompt.contains("day, run ") && prompt.ends_with("of {year}")));
    let run = runs.first().unwrap();
    let results = std::fs::read_to_string(env.path(&format!("output/{run}/results.jsonl"))).unwrap();
    let line: Value = serde_json::from_str(results.lines().next().unwrap()).unwrap();
    assert!(line["id"].as_str().unwrap().starts_with("news-20"), "{line}");
}

#[test]
fn by_hand_a_run_begins_at_once_and_within_its_budget() {
    let env = env(&schedule("yearly", "@yearly", "budget = 0"));
    env.run(["schedule", "run", "yearly"]).exited(5).says("no daemon is running");
    let daemon = env.daemon("info");
    let run = env.run(["schedule", "run", "yearly", "--json"]).exited(0).json();
    let batch = run["batch"].as_str().unwrap().to_owned();
    assert!(batch.starts_with("yearly-20"), "{batch}");
    until("the budget to park it", || env.status(&batch)["parked_by"] == "batch_budget");
    env.run(["schedule", "run", "weekly"]).exited(2).says("no schedule is called weekly; there are yearly");
    let listed = env.run(["schedule", "list", "--json"]).exited(0).json();
    assert_eq!(listed["schedules"][0]["last_run"]["batch"], batch.as_str());
    // From elsewhere, too: whoever looks for a run before starting another must find it.
    let socket = env.path("state/callsheet.sock");
    std::fs::create_dir(env.path("far")).unwrap();
    let mut far = env.command(["schedule", "list", "--json", "--socket", socket.to_str().unwrap()]);
    far.current_dir(env.path("far"));
    assert_eq!(Running::start(far).end().exited(0).json(), listed);
    daemon.stop();
    assert_eq!(env.audit().totals.charges, 0);
}

#[test]
fn schedules_are_listed_with_their_next_fires() {
    let berlin = schedule("night", "30 2 29 2 *", "timezone = \"Europe/Berlin\"");
    let env = env(&format!("{berlin}{}", schedule("past", "0 0 0 1 1 * 2020", "")));
    let listed = env.run(["schedule", "list", "--json"]).exited(0).json();
    let (night, past) = (&listed["schedules"][0], &listed["schedules"][1]);
    assert_eq!((&night["name"], &night["timezone"]), (&"night".into(), &"Europe/Berlin".into()));
    assert!(night["next_local"].as_str().unwrap().ends_with("-02-29T02:30:00+01:00"), "{night}");
    assert!(night["next"].as_str().unwrap().ends_with("-02-29T01:30:00Z"), "{night}");
    assert_eq!((&past["next"], &past["last_run"]), (&Value::Null, &Value::Null));
    let shown = env.run(["schedule", "list"]).exited(0);
    assert!(shown.stdout.contains("night") && shown.stdout.contains("never"), "{}", shown.stdout);

    let next = env.run(["schedule", "next", "night", "-n", "2", "--json"]).exited(0).json();
    let fires = next["fires"].as_array().unwrap();
    assert_eq!(fires.len(), 2);
    assert_eq!((&fires[0]["offset"], &fires[0]["n"]), (&"CET, UTC+01:00".into(), &1.into()));
    assert!(fires[0]["batch"].as_str().unwrap().ends_with("-02-29T0130Z"), "{next}");
    let never = env.run(["schedule", "next", "past"]).exited(0);
    assert_eq!(never.stdout, "never again\n");
    env.run(["schedule", "next", "morning"]).exited(2).says("no schedule is called morning");
}

#[test]
fn what_is_listed_is_what_the_daemon_carries_out() {
    let env = env(&schedule("night", "30 2 29 2 *", "timezone = \"Europe/Berlin\""));
    let daemon = env.daemon("info");
    let questions: [&[&str]; 2] = [&["schedule", "list", "--json"], &["schedule", "next", "night", "--json"]];
    let ask = |question: &[&str]| env.run(question.iter().copied()).exited(0).stdout;
    let before = questions.map(ask);
    // One that the daemon was not told of, and one that it refuses.
    env.configure(&schedule("morning", "@daily", ""));
    assert_eq!(questions.map(ask), before);
    env.configure(&schedule("night", "0 0 30 2 *", ""));
    daemon.signal(Signal::HUP);
    daemon.says("the old one stays in force");
    env.run(["schedule", "list"]).exited(0).says("never fires");
    assert_eq!(questions.map(ask), before);
    env.configure(&schedule("morning", "@daily", ""));
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    let names = || env.run(["schedule", "list", "--json"]).exited(0).json()["schedules"].to_string();
    until("the new ones", || names().contains("morning") && !names().contains("night"));
    daemon.stop();
}

#[test]
fn after_a_clock_was_set_back_no_run_is_named_that_will_not_happen() {
    let env = env(&schedule("news", "@hourly", ""));
    let daemon = env.daemon("info");
    until("it is noted", || env.path("state/schedules.json").exists());
    daemon.stop();
    // As it is after two days ahead.
    let path = env.path("state/schedules.json");
    let mut records: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let up_to = records["news"]["handled"]["up_to"].as_i64().unwrap() + 48 * 3_600_000;
    records["news"]["handled"]["up_to"] = up_to.into();
    std::fs::write(&path, records.to_string()).unwrap();
    let first = Timestamp(up_to.div_euclid(3_600_000) * 3_600_000 + 3_600_000);
    let first = first.to_string().replace(".000Z", "Z");
    let ask = |question: &[&str]| env.run(question.iter().copied()).exited(0).stdout;
    let listed: Value = serde_json::from_str(&ask(&["schedule", "list", "--json"])).unwrap();
    assert_eq!(listed["schedules"][0]["next"], first.as_str());
    let next: Value = serde_json::from_str(&ask(&["schedule", "next", "news", "-n", "1", "--json"])).unwrap();
    assert_eq!(next["fires"][0]["at"], first.as_str());
    let doctor = ask(&["doctor"]);
    assert!(doctor.contains(&format!("news fires next at {first}")), "{doctor}");
    assert!(doctor.contains("news is handled up to"), "{doctor}");
    assert!(doctor.contains("check this machine's clock"), "{doctor}");
}

#[test]
fn a_schedule_that_cannot_be_meant_is_refused_when_it_is_read() {
    let env = env(&schedule("night", "0 0 30 2 *", ""));
    env.run(["schedule", "list"]).exited(2).says("schedule.cron: night: \"0 0 30 2 *\" never fires");
    env.run(["daemon"]).exited(2).says("schedule.cron: night");
}

/// The output folder has nothing of a batch that the state does not have; the run that was interrupted is taken in by
/// the next daemon.
#[test]
fn a_run_that_is_killed_before_it_is_durable_leaves_nothing_and_comes_back() {
    let env = env(&schedule("tick", "* * * * * *", "missed = \"latest\"\noverlap = \"allow\""));
    let mut dying = env.command(["daemon"]);
    dying.env("CALLSHEET_FAILPOINT", "taken");
    Running::start(dying).end().was_killed("taken");
    let folders = || {
        let entries = std::fs::read_dir(env.path("output")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    assert_eq!(folders(), BTreeSet::new(), "nothing is made before its batch is durable");
    let records: Value =
        serde_json::from_slice(&std::fs::read(env.path("state/schedules.json")).unwrap()).unwrap();
    let handled = records["tick"]["handled"]["up_to"].as_i64().unwrap();
    let killed = name::of_run("tick", Timestamp(handled.div_euclid(1_000) * 1_000 + 1_000)).unwrap();
    let daemon = env.daemon("info");
    until("the run that was interrupted", || done(&env).contains(killed.as_str()));
    env.configure("");
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    let runs = settle(&env);
    until("their results", || runs.iter().all(|run| env.path(&format!("output/{run}/report.json")).exists()));
    daemon.stop();
    assert_eq!(folders(), runs);
    env.audit().each_paid_once(runs.len());
}

#[test]
fn a_failed_row_that_feeds_another_keeps_no_later_run_out() {
    let env = env(&schedule("news", "*/2 * * * * *", ""));
    env.write(
        "news.csv",
        "id,kind,model,prompt,image_urls\nstill,image,gi-2,doomed,\nclip,video,house-c1,It moves,job:still\n\
         jingle,sound-effect,,A jingle,\n",
    );
    env.faults("[[rules]]\ncontains = 'doomed'\neffect = { do = 'content-rejected' }\n");
    let daemon = env.daemon("info");
    let with_jingle = || {
        let is_parked = |batch: &&Value| {
            batch["parked_by"] == "inputs" && batch["succeeded"] == 1 && batch["failed"] == 1
        };
        env.statuses().iter().filter(is_parked).count()
    };
    until("two runs with their jingles", || with_jingle() >= 2);
    env.configure("");
    daemon.signal(Signal::HUP);
    daemon.says("configuration reloaded");
    daemon.stop();
}

#[test]
fn a_run_that_is_left_out_is_listed_with_the_batch_in_its_way() {
    let env = env(&schedule("tick", "* * * * * *", "budget = 0"));
    let daemon = env.daemon("info");
    daemon.says("callsheet status tick-20");
    let listed = || env.run(["schedule", "list"]).exited(0).stdout;
    until("it is noted", || listed().contains("to see what that waits for: callsheet status tick-20"));
    let left_out = env.run(["schedule", "list", "--json"]).exited(0).json()["schedules"][0].clone();
    assert_eq!(left_out["left_out"]["in_the_way"], left_out["last_run"]["batch"], "{left_out:#}");
    daemon.stop();
    assert_eq!(env.audit().totals.charges, 0);
}

#[test]
fn a_run_that_is_refused_names_its_schedule_and_wrong_rows_are_an_error_as_json() {
    let gone = schedule("lost", "@yearly", "").replace("news.csv", "gone.csv");
    let env = env(&(schedule("news", "@yearly", "") + &gone));
    env.write("news.csv", "id,kind,prompt\na,sound-effect,\nb,sound-effect,rain\n");
    let daemon = env.daemon("info");
    let ran = env.run(["schedule", "run", "news", "--json"]).exited(2);
    assert_eq!(ran.json()["new"], 1);
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["message"], "1 problem in news.csv");
    assert_eq!(error["error"]["problems"][0]["line"], 2);
    env.run(["schedule", "run", "lost"]).exited(2).says("error: schedule lost: failed to read gone.csv");
    daemon.stop();
}
