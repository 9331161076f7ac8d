//! Rows that are edited: which version is wanted, what is bought, and what its files are called.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::TestEnv;
use crate::support::process::{Outcome, Running};

/// A manifest of images, as `id: prompt`.
fn write(env: &TestEnv, rows: &[(&str, &str)]) {
    let rows = rows.iter().map(|(id, prompt)| format!("{id},image,gi-2,{prompt}\n"));
    env.write("birds.csv", format!("id,kind,model,prompt\n{}", rows.collect::<String>()));
}

/// The results as `prompt: state`, superseded ones in brackets.
fn results(env: &TestEnv) -> Vec<String> {
    let text = fs::read_to_string(env.path("output/birds/results.jsonl")).unwrap();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let told = format!("{}: {}", line["prompt"].as_str().unwrap(), line["state"].as_str().unwrap());
        if line["superseded"] == true { format!("({told})") } else { told }
    };
    text.lines().map(line).collect()
}

fn shows(outcome: &Outcome, text: &str) {
    assert!(outcome.stdout.contains(text), "not shown: {text}\n--- stdout\n{}", outcome.stdout);
}

/// Jobs of the batch that succeeded, were canceled, and were replaced before they were sent.
fn counts(env: &TestEnv) -> [u64; 3] {
    let status = env.status("birds");
    ["succeeded", "canceled", "replaced"].map(|state| status[state].as_u64().unwrap_or_default())
}

#[test]
fn a_version_that_was_not_sent_is_replaced_free_of_charge() {
    let env = TestEnv::new();
    write(&env, &[("crow", "a crow"), ("gull", "a gull")]);
    env.run(["run", "birds.csv", "--budget", "8"]).exited(4);
    write(&env, &[("crow", "a crow"), ("gull", "a gull in a storm")]);
    shows(&env.run(["run", "birds.csv", "--budget", "16"]).exited(0), "2 succeeded, 1 replaced");
    env.audit().each_paid_once(2);
    assert_eq!(results(&env), ["a crow: succeeded", "(a gull: canceled)", "a gull in a storm: succeeded"]);
    assert_eq!(counts(&env), [2, 0, 1]);
    // A retry of the whole, and of the version by its number, buys nothing.
    env.run(["retry", "birds"]).says("1 are older versions of edited rows");
    env.run(["retry", "gull@1"]).says("1 are older versions of edited rows");
    env.run(["run", "birds.csv"]).exited(0);
    env.audit().each_paid_once(2);
    let first = env.run(["explain", "gull@1", "--json"]).exited(0).json();
    assert_eq!((&first["superseded"], &first["versions"][1]["name"]), (&true.into(), &"gull@2".into()));
    shows(&env.run(["explain", "gull"]).exited(0), "gull@2 of 2, the wanted version");
    shows(&env.run(["explain", "gull@1"]).exited(0), "birds/gull@1: canceled\n");
}

#[test]
fn a_name_means_the_version_of_the_last_manifest_whichever_was_accepted_first() {
    let env = TestEnv::new();
    for prompt in ["a gull", "a gull in a storm", "a gull"] {
        write(&env, &[("gull", prompt)]);
        env.run(["run", "birds.csv"]).exited(0);
        let found = env.run(["explain", "gull", "--json"]).exited(0).json();
        assert_eq!(found["spec"]["order"]["body"]["prompt"], prompt);
    }
    env.audit().each_paid_once(2);
    assert_eq!(results(&env), ["a gull: succeeded", "(a gull in a storm: succeeded)"]);
    shows(&env.run(["jobs", "birds"]).exited(0), "birds/gull (superseded, ");
    let of_gull = |line: &&str| line.contains("birds/gull ");
    let ledger = env.run(["ledger", "birds"]).exited(0).stdout;
    let versions: Vec<bool> =
        ledger.lines().filter(of_gull).map(|line| line.contains("(superseded)")).collect();
    assert!(versions.contains(&true) && versions.contains(&false), "{ledger}");
}

/// What the outputs in the batch's folder are called, without the digits of identities, each with its job's prompt as its
/// sidecar and the results agree on it.
fn outputs(env: &TestEnv) -> Vec<String> {
    let dir = env.path("output/birds");
    let text = fs::read_to_string(dir.join("results.jsonl")).unwrap();
    let mut told = Vec::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for file in line["files"].as_array().unwrap() {
            let path = file["path"].as_str().unwrap();
            let stem = path.split('.').next().unwrap();
            let sidecar = fs::read(dir.join(format!("sidecars/{stem}.json"))).unwrap();
            let sidecar: Value = serde_json::from_slice(&sidecar).unwrap();
            assert_eq!((&sidecar["job"], &sidecar["files"][0]), (&line["job"], file), "{path}");
            assert!(dir.join(path).exists(), "{path}");
            let name = path.replace(&line["job"].as_str().unwrap()[..8], "ID");
            told.push(format!("{name}: {}", line["prompt"].as_str().unwrap()));
        }
    }
    // Nothing else lies there.
    let names = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let images = names(&dir).filter(|name| name.to_string_lossy().ends_with(".png")).count();
    assert_eq!((images, names(&dir.join("sidecars")).count()), (told.len(), told.len()));
    told.sort();
    told
}

const PLAIN: [&str; 2] = ["gull-ID.png: a gull", "gull.png: a gull in a storm"];
const BACK: [&str; 2] = ["gull-ID.png: a gull in a storm", "gull.png: a gull"];

#[test]
fn the_plain_name_belongs_to_the_version_that_is_wanted() {
    let env = TestEnv::new();
    for (prompt, expected) in
        [("a gull", &["gull.png: a gull"][..]), ("a gull in a storm", &PLAIN), ("a gull", &BACK)]
    {
        write(&env, &[("gull", prompt)]);
        env.run(["run", "birds.csv"]).exited(0);
        assert_eq!(outputs(&env), expected);
    }
    env.audit().each_paid_once(2);
    env.run(["state", "verify"]).exited(0);
    // A third version moves the present one aside, and the one before it stays where it is.
    write(&env, &[("gull", "a gull at night")]);
    env.run(["run", "birds.csv"]).exited(0);
    assert_eq!(outputs(&env).last().unwrap(), "gull.png: a gull at night");
    assert_eq!(outputs(&env).len(), 3);
    env.audit().each_paid_once(3);
}

#[test]
fn a_version_that_was_replaced_unsent_is_bought_once_it_is_wanted_again() {
    let env = TestEnv::new();
    write(&env, &[("crow", "a crow"), ("gull", "a gull")]);
    env.run(["run", "birds.csv", "--budget", "8"]).exited(4);
    write(&env, &[("crow", "a crow"), ("gull", "a gull in a storm")]);
    env.run(["run", "birds.csv", "--budget", "8"]).exited(4);
    env.audit().each_paid_once(1);
    write(&env, &[("crow", "a crow"), ("gull", "a gull")]);
    let plan = env.run(["plan", "birds.csv", "--json"]).exited(0).json();
    assert_eq!(plan["total_credits"], 8, "{plan:#}");
    env.run(["run", "birds.csv", "--budget", "16"]).exited(0);
    env.audit().each_paid_once(2);
    assert_eq!(results(&env), ["a crow: succeeded", "a gull: succeeded", "(a gull in a storm: canceled)"]);
    assert_eq!(counts(&env), [2, 0, 1]);
}

#[test]
fn a_rebuilt_or_imported_state_wants_the_same_version() {
    for how in ["rebuild", "import"] {
        let env = TestEnv::new();
        for prompt in ["a gull", "a gull in a storm", "a gull"] {
            write(&env, &[("gull", prompt)]);
            env.run(["run", "birds.csv"]).exited(0);
        }
        if how == "rebuild" {
            fs::remove_dir_all(env.path("state/db")).unwrap();
            env.run(["state", "rebuild"]).exited(0);
        } else {
            env.run(["state", "export", "all.jsonl"]).exited(0);
            fs::remove_dir_all(env.path("state")).unwrap();
            env.run(["state", "import", "all.jsonl"]).exited(0);
        }
        env.run(["run", "birds.csv"]).exited(0);
        assert_eq!(outputs(&env), BACK, "{how}");
        let found = env.run(["explain", "gull", "--json"]).exited(0).json();
        assert_eq!(found["spec"]["order"]["body"]["prompt"], "a gull", "{how}");
        env.audit().each_paid_once(2);
    }
}

#[test]
fn what_a_person_put_under_the_plain_name_stays_there() {
    let env = TestEnv::new();
    write(&env, &[("gull", "a gull")]);
    env.run(["run", "birds.csv"]).exited(0);
    fs::write(env.path("output/birds/gull.png"), "mine").unwrap();
    write(&env, &[("gull", "a gull in a storm")]);
    env.run(["run", "birds.csv"]).exited(0);
    assert_eq!(fs::read_to_string(env.path("output/birds/gull.png")).unwrap(), "mine");
    let found = env.run(["explain", "gull", "--json"]).exited(0).json();
    assert!(found["job"]["files"][0]["path"].as_str().unwrap().starts_with("gull-"), "{found:#}");
}

/// A process that is killed anywhere while a version takes the name of another leaves nothing that the next does not
/// put right: each is paid once, and names, sidecars and results agree.
#[test]
fn a_kill_while_names_change_is_put_right_by_the_next_run() {
    let steps =
        ["moving", "moving-file", "moved", "sidecar-written", "named", "published", "ended", "reporting"];
    for (prompt, expected, steps) in [
        ("a gull in a storm", &PLAIN, &steps[..]),
        (
            "a gull",
            &BACK,
            &["moving", "moving:2", "moving-file:2", "moved", "moved:2", "versions-applied"][..],
        ),
    ] {
        for step in steps {
            let env = TestEnv::new();
            for earlier in ["a gull", "a gull in a storm"]
                .into_iter()
                .take_while(|earlier| expected == &BACK || *earlier != prompt)
            {
                write(&env, &[("gull", earlier)]);
                env.run(["run", "birds.csv"]).exited(0);
            }
            write(&env, &[("gull", prompt)]);
            let mut command = env.command(["run", "birds.csv"]);
            command.env("CALLSHEET_FAILPOINT", step);
            Running::start(command).end().was_killed(step);
            env.run(["run", "birds.csv"]).exited(0);
            assert_eq!(outputs(&env), expected.as_slice(), "{step}");
            env.audit().each_paid_once(2);
            env.run(["state", "verify"]).exited(0);
        }
    }
}

#[test]
fn rows_that_a_later_manifest_does_not_have_are_listed_with_the_command_that_drops_them() {
    let env = TestEnv::new();
    write(&env, &[("crow", "a crow"), ("gull", "a gull"), ("owl", "an owl")]);
    env.run(["run", "birds.csv", "--budget", "8"]).exited(4);
    write(&env, &[("owl", "an owl at night")]);
    let plan = env.run(["plan", "birds.csv", "--json"]).exited(0).json();
    let absent = &plan["files"][0]["absent"];
    assert_eq!((&absent["jobs"], &absent["unspent_credits"]), (&2.into(), &8.into()), "{plan:#}");
    let first = &absent["rows"][0];
    assert_eq!((&first["id"], &first["verdict"]), (&"gull".into(), &"waiting".into()));
    assert_eq!(first["command"], "callsheet cancel birds/gull");
    assert_eq!(
        (&absent["rows"][1]["id"], &absent["rows"][1]["unspent_credits"]),
        (&"crow".into(), &0.into())
    );
    let plan = env.run(["plan", "birds.csv"]).exited(0);
    for text in [
        "not in birds.csv: 2 jobs of birds, which stay wanted and may still cost 8 credits",
        "birds/crow: done",
    ] {
        shows(&plan, text);
    }
    let command =
        plan.stdout.lines().map(str::trim).find(|line| line.starts_with("callsheet cancel")).unwrap();
    let words = command.split(" ").skip(1).filter(|word| !word.is_empty());
    env.run(words.take(2)).exited(0);
    // What was canceled is wanted no more.
    let run = env.run(["run", "birds.csv", "--budget", "16"]);
    let run = run.says("not in birds.csv: 1 job of birds, which stays wanted at no further cost");
    assert!(!run.stderr.contains("birds/gull: waiting"), "{}", run.stderr);
    env.audit().each_paid_once(2);
}

/// A manifest of one row, with so many variations.
fn write_count(env: &TestEnv, prompt: &str, count: u32) {
    env.write("birds.csv", format!("id,kind,model,prompt,count\ngull,image,gi-2,{prompt},{count}\n"));
}

#[test]
fn variations_that_an_edited_row_does_not_ask_for_any_more_are_not_bought() {
    let env = TestEnv::new();
    write_count(&env, "a gull", 3);
    env.run(["run", "birds.csv", "--budget", "0"]).exited(4);
    write_count(&env, "a gull in a storm", 1);
    let plan = env.run(["plan", "birds.csv", "--json"]).exited(0).json();
    assert_eq!((&plan["total_credits"], &plan["files"][0]["absent"]), (&8.into(), &Value::Null), "{plan:#}");
    let run = env.run(["run", "birds.csv", "--budget", "none"]).exited(0);
    let run = run.says("gull: 2 further variations of an earlier version are not wanted any more");
    shows(&run, "1 succeeded, 3 replaced");
    env.audit().each_paid_once(1);
    assert_eq!(outputs(&env), ["gull.png: a gull in a storm"]);
    env.run(["state", "verify"]).exited(0);
    shows(&env.run(["explain", "birds/gull-v2"]).exited(0), "gull-v2@1 of 1, superseded\n");
    // They are wanted again once the manifest goes back to all of them.
    write_count(&env, "a gull", 2);
    env.run(["run", "birds.csv", "--budget", "none"]).exited(0);
    assert_eq!(outputs(&env), ["gull-ID.png: a gull in a storm", "gull-v2.png: a gull", "gull.png: a gull"]);
    env.audit().each_paid_once(3);
    env.run(["state", "verify"]).exited(0);
}

#[test]
fn the_default_budget_of_edited_rows_leaves_out_what_is_replaced() {
    let env = TestEnv::new();
    write_count(&env, "a gull", 3);
    env.run(["run", "birds.csv", "--budget", "0"]).exited(4);
    write_count(&env, "a gull in a storm", 1);
    let run = env.run(["run", "birds.csv", "--budget", "none", "--json"]).exited(0).json();
    assert_eq!((&run["receipts"][0]["budget"], &run["batches"][0]["budget_credits"]), (&8.into(), &8.into()));
}

#[test]
fn going_back_to_fewer_variations_drops_those_of_the_version_between() {
    let env = TestEnv::new();
    for (prompt, count) in [("a gull", 2), ("a gull in a storm", 2), ("a gull", 1)] {
        write_count(&env, prompt, count);
        env.run(["run", "birds.csv", "--budget", "0"]).exited(4);
    }
    env.run(["run", "birds.csv", "--budget", "none"]).exited(0);
    assert_eq!(outputs(&env), ["gull.png: a gull"]);
    // With the same request a lower count takes nothing back.
    write_count(&env, "a gull", 2);
    env.run(["run", "birds.csv", "--budget", "8"]).exited(4);
    write_count(&env, "a gull", 1);
    env.run(["run", "birds.csv", "--budget", "none"]).exited(0);
    env.audit().each_paid_once(2);
    // What is paid for stays, whatever is wanted.
    write_count(&env, "a gull at night", 1);
    env.run(["run", "birds.csv", "--budget", "none"]).exited(0);
    assert_eq!(outputs(&env), ["gull-ID.png: a gull", "gull-v2.png: a gull", "gull.png: a gull at night"]);
    assert_eq!(results(&env).iter().filter(|line| line.starts_with('(')).count(), 4);
    env.audit().each_paid_once(3);
    env.run(["state", "verify"]).exited(0);
}

#[test]
fn a_variation_that_an_edited_row_asks_for_later_takes_the_name_of_the_one_before() {
    let env = TestEnv::new();
    for (prompt, count) in [("a gull", 2), ("a gull in a storm", 1)] {
        write_count(&env, prompt, count);
        env.run(["run", "birds.csv"]).exited(0);
    }
    write_count(&env, "a gull in a storm", 3);
    let plan = env.run(["plan", "birds.csv", "--json"]).exited(0).json();
    assert_eq!(plan["total_credits"], 16, "{plan:#}");
    let run = env.run(["run", "birds.csv"]).exited(0);
    run.says("2 new (16 credits), 2 of them changed")
        .says("gull-v2 is in the batch with another request, and is bought again: was");
    let expected = [
        "gull-ID.png: a gull",
        "gull-v2-ID.png: a gull",
        "gull-v2.png: a gull in a storm",
        "gull-v3.png: a gull in a storm",
        "gull.png: a gull in a storm",
    ];
    assert_eq!(outputs(&env), expected);
    shows(&env.run(["explain", "birds/gull-v2"]).exited(0), "gull-v2@2 of 2, the wanted version");
    env.run(["run", "birds.csv"]).exited(0).says("0 new (0 credits), 3 already there");
    env.run(["state", "verify"]).exited(0);
    env.audit().each_paid_once(5);
}

#[test]
fn a_mistake_in_an_edited_row_is_said_together_with_what_its_earlier_version_may_still_cost() {
    let env = TestEnv::new();
    let row =
        |id: &str, rest: &str| format!("{{{id}\"kind\":\"image\",\"model\":\"gi-2\",\"prompt\":{rest}}}\n");
    let (gull, owl, crow) = ("\"id\":\"gull\",", "\"id\":\"owl\",", "\"id\":\"crow\",");
    let rows = [row(gull, "\"a gull\""), row(owl, "\"an owl\""), row(crow, "\"a crow\"")];
    env.write("birds.jsonl", rows.concat());
    env.run(["run", "birds.jsonl", "--budget", "0"]).exited(4);
    for mistake in ["\"x\":1", "\"aspect_ratio\":\"17:9\""] {
        let edited = row(gull, &format!("\"a gull in a storm\",{mistake}"));
        env.write("birds.jsonl", edited + &row(owl, "\"an owl\""));
        let plan = env.run(["plan", "birds.jsonl"]).exited(2);
        for text in [
            "not in birds.jsonl, or not valid there: 2 jobs of birds, which stay wanted and may still cost 16 credits",
            "birds/gull: its row is not valid, and what was accepted before is waiting, 8 credits; to drop it:",
            "callsheet cancel birds/gull",
            "birds/crow: waiting, 8 credits; to drop it:",
        ] {
            shows(&plan, text);
        }
    }
    let run = env.run(["run", "birds.jsonl", "--budget", "0"]);
    let run = run.says("not in birds.jsonl, or not valid there: 2 jobs of birds");
    assert!(run.stderr.contains("callsheet cancel birds/gull"), "{}", run.stderr);
    env.run(["cancel", "birds/gull"]).exited(0);
    shows(&env.run(["plan", "birds.jsonl"]).exited(2), "not in birds.jsonl: 1 job of birds");
    // Without its id it may be any row.
    env.write("birds.jsonl", row("", "\"a gull\",\"x\":1") + &row(owl, "\"an owl\""));
    let plan = env.run(["plan", "birds.jsonl"]).exited(2);
    assert!(!plan.stdout.contains("not in birds.jsonl"), "{}", plan.stdout);
    plan.says("rows of the batch that are not in this file cannot be listed")
        .says("may still cost up to 8 credits");
    env.audit().each_paid_once(0);
}

#[test]
fn a_version_that_failed_counts_as_replaced_once_another_is_wanted() {
    let env = TestEnv::new();
    env.faults("[[rules]]\ncontains = 'storm'\neffect = { do = 'content-rejected' }");
    write(&env, &[("crow", "a crow"), ("gull", "a gull in a storm")]);
    let failed = env.run(["run", "birds.csv"]).exited(1);
    shows(&failed, "1 succeeded, 1 failed");
    write(&env, &[("crow", "a crow"), ("gull", "a gull")]);
    let mended = env.run(["run", "birds.csv"]).exited(0);
    let mended =
        mended.says("gull is in the batch with another request, which failed; this one takes its place: was");
    shows(&mended, "2 succeeded, 1 replaced");
    assert!(
        !mended.stderr.contains("retry") && !mended.stderr.contains("would fail again"),
        "{}",
        mended.stderr
    );
    assert_eq!(results(&env), ["a crow: succeeded", "(a gull in a storm: failed)", "a gull: succeeded"]);
    let report: Value =
        serde_json::from_slice(&fs::read(env.path("output/birds/report.json")).unwrap()).unwrap();
    assert_eq!((&report["failed"], &report["total"]["replaced"]), (&Value::Array(Vec::new()), &1.into()));
    assert_eq!(report["total"]["states"], serde_json::json!({"succeeded": 2}));
    let sums = env.run(["report", "--by", "batch", "--json"]).exited(0).json();
    assert_eq!(sums["total"]["failures"], 0, "{sums:#}");
    env.run(["retry", "birds"]).says("1 are older versions of edited rows");
    env.run(["state", "verify"]).exited(0);
    env.audit().each_paid_once(2);
    // The manifest goes back to it: it is a failure of the batch again.
    write(&env, &[("crow", "a crow"), ("gull", "a gull in a storm")]);
    shows(&env.run(["run", "birds.csv"]).exited(1), "2 succeeded, 1 failed");
    env.run(["state", "verify"]).exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn versions_that_no_budget_let_out_are_dropped_whichever_is_wanted_last() {
    let env = TestEnv::new();
    let submit = |prompt: &str, count: u32| {
        let row = |id: &str, prompt: &str, count: u32| {
            format!(
                "{{\"id\":\"{id}\",\"kind\":\"image\",\"model\":\"gi-2\",\"prompt\":\"{prompt}\",\"count\":{count}}}\n"
            )
        };
        env.write("w.jsonl", row("a", prompt, count) + &row("b", "a bird", 1));
        env.run(["run", "w.jsonl", "--budget", "1"]).exited(4)
    };
    submit("a boat", 3);
    submit("a red boat", 1);
    submit("a red boat", 3);
    submit("a blue boat", 1);
    submit("a boat", 1);
    submit("a boat", 3).says("callsheet budget w 32\n");
    let status = env.run(["status", "w", "--json"]).exited(0).json();
    let w = &status["batches"][0];
    assert_eq!((&w["planned_credits"], &w["queued"]), (&32.into(), &4.into()), "{w:#}");
    env.run(["budget", "w", "32"]).exited(0);
    env.run(["run", "w.jsonl"]).exited(0);
    env.audit().each_paid_once(4);
}
