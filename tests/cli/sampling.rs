//! A part of a manifest: a sample under its final keys.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{TestEnv, manifests};

const ROWS: usize = 12;

fn manifest() -> String {
    let row = |n: usize| {
        let client = if n.is_multiple_of(2) { "acme" } else { "beta" };
        format!("image-{n},image,gi-2,A compass number {n},{client}\n")
    };
    "id,kind,model,prompt,meta.client\n".to_owned() + &(1..=ROWS).map(row).collect::<String>()
}

/// The ids and job ids that a plan shows.
fn planned(env: &TestEnv, flags: &[&str]) -> BTreeSet<(String, String)> {
    let words = ["plan", "batch.csv", "--json"].iter().chain(flags).copied();
    let plan: Value = serde_json::from_str(&env.run(words).exited(0).stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    plan["rows"].as_array().unwrap().iter().map(|row| (text(&row["id"]), text(&row["job_id"]))).collect()
}

#[test]
fn a_part_of_a_manifest_says_that_what_was_accepted_before_is_sent_with_it() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    env.run(["run", "batch.csv", "--budget", "0"]).exited(4);
    env.run(["run", "batch.csv", "--first", "1", "--budget", "16"])
        .exited(4)
        .says("batch: 2 other jobs of the batch were accepted before and are not done: they are sent, too");
    let again = env.run(["run", "batch.csv", "--budget", "24"]).exited(0);
    assert!(!again.stderr.contains("other jobs of the batch"), "{}", again.stderr);
}

#[test]
fn a_part_has_the_keys_of_the_whole() {
    let env = TestEnv::new();
    env.write("batch.csv", manifest());
    let whole = planned(&env, &[]);
    assert_eq!(whole.len(), ROWS);
    for (flags, count) in [
        (vec!["--first", "3"], 3),
        (vec!["--random", "3"], 3),
        (vec!["--only", "image-2,image-5"], 2),
        (vec!["--where", "meta.client=acme"], 6),
        (vec!["--where", "meta.client=acme", "--first", "2"], 2),
        (vec!["--where", "meta.client=beta", "--random", "4", "--where", "kind=image"], 4),
        (vec!["--random", "100"], ROWS),
    ] {
        let part = planned(&env, &flags);
        assert_eq!(part.len(), count, "{flags:?}");
        assert!(part.is_subset(&whole), "{flags:?}");
        assert_eq!(part, planned(&env, &flags), "the same again: {flags:?}");
    }
    let acme = planned(&env, &["--where", "meta.client=acme", "--first", "2"]);
    let ids: Vec<&str> = acme.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["image-2", "image-4"]);
    let first: BTreeSet<String> = planned(&env, &["--first", "3"]).into_iter().map(|(id, _)| id).collect();
    let random: BTreeSet<String> = planned(&env, &["--random", "3"]).into_iter().map(|(id, _)| id).collect();
    assert_ne!(first, random, "drawn by identity, not by place");
}

#[test]
fn a_random_part_has_rows_that_take_outputs_of_others() {
    let env = TestEnv::new();
    let clip = |n: usize| {
        format!(
            "{{\"id\":\"c{n}\",\"kind\":\"video\",\"model\":\"house-c1\",\"prompt\":\"clip {n}\",\"duration\":\"2s\",\"image_urls\":[\"job:s\"]}}\n"
        )
    };
    let still = "{\"id\":\"s\",\"kind\":\"image\",\"model\":\"gi-2\",\"prompt\":\"a fox\"}\n".to_owned();
    env.write("batch.jsonl", still + &(1..=6).map(clip).collect::<String>());
    let planned = |flags: &[&str]| -> BTreeSet<String> {
        let words = ["plan", "batch.jsonl", "--json"].iter().chain(flags).copied();
        let plan = env.run(words).exited(0).json();
        plan["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let clips = planned(&["--random", "3", "--where", "kind=video"]);
    assert_eq!(clips.len(), 4, "three, and the still that they need: {clips:?}");
    assert!(clips.contains("s"), "{clips:?}");
    assert_eq!(clips, planned(&["--random", "3", "--where", "kind=video"]), "the same again");
    assert_eq!(planned(&["--random", "7"]).len(), 7);
    assert!(planned(&["--random", "3"]).len() >= 3);
}

#[test]
fn the_whole_adds_the_rest_and_buys_nothing_twice() {
    let env = TestEnv::new();
    env.write("batch.csv", manifest());
    env.run(["run", "batch.csv", "--random", "3"])
        .exited(0)
        .says("3 new (24 credits), a part: 9 rows left out")
        .says("without --first, --random, --only and --where adds them");
    env.audit().each_paid_once(3);
    env.run(["run", "batch.csv", "--random", "3"]).exited(0).says("3 already there");
    env.audit().each_paid_once(3);
    env.run(["run", "batch.csv", "--random", "5"]).exited(0).says("2 new (16 credits)");
    env.audit().each_paid_once(5);
    let outcome = env.run(["run", "batch.csv"]).exited(0).says("7 new (56 credits), 5 already there");
    assert!(!outcome.stderr.contains("left out"), "{}", outcome.stderr);
    env.audit().each_paid_once(ROWS);
}

#[test]
fn a_daemon_takes_the_same_part() {
    let env = TestEnv::new();
    env.write("batch.csv", manifest());
    let daemon = env.start(["daemon"]);
    daemon.says("ready");
    env.run(["submit", "batch.csv", "--wait", "--where", "meta.client=beta", "--first", "2"])
        .exited(0)
        .says("2 new (16 credits), a part: 10 rows left out");
    env.audit().each_paid_once(2);
}

#[test]
fn a_part_that_is_mistyped_is_said() {
    let env = TestEnv::new();
    env.write("batch.csv", manifest());
    env.run(["run", "batch.csv", "--only", "image-2,image-99"])
        .exited(2)
        .says("no row has the id \"image-99\" (--only)");
    env.audit().each_paid_once(1);
    env.run(["run", "batch.csv", "--where", "meta.client=acmee"])
        .exited(2)
        .says("none of the 12 rows is selected");
    env.run(["run", "batch.csv", "--where", "client=acme"]).exited(2).says("expected FIELD=VALUE");
    env.run(["run", "batch.csv", "--first", "3", "--random", "3"]).exited(2).says("cannot be used with");
    env.audit().each_paid_once(1);
}

#[test]
fn rows_that_are_left_out_still_count_for_the_ids_and_variations_of_the_whole() {
    let env = TestEnv::new();
    let text = "id,kind,model,prompt,meta.client\n\
                ,image,gi-2,A compass,acme\n\
                ,image,gi-2,A compass,beta\n\
                twice,image,gi-2,A gull,acme\n\
                twice,image,gi-2,A whale,beta\n";
    env.write("batch.csv", text);
    // The second row of an id is as wrong in a part as in the whole.
    env.run(["run", "batch.csv", "--where", "meta.client=beta"]).exited(2).says("is already used at line 4");
    env.audit().each_paid_once(1);
    env.run(["run", "batch.csv"]).exited(2).says("2 new (16 credits), 1 already there");
    env.audit().each_paid_once(3);
}

/// Rows of one sound each, as `client: count`.
fn write_knocks(env: &TestEnv, rows: &[(&str, u32)]) {
    let row = |(client, count): &(&str, u32)| {
        format!(
            "{{\"kind\":\"sound-effect\",\"prompt\":\"knock\",\"count\":{count},\"meta\":{{\"client\":\"{client}\"}}}}\n"
        )
    };
    env.write("knocks.jsonl", rows.iter().map(row).collect::<String>());
}

/// For whom the outputs are.
fn clients(env: &TestEnv) -> Vec<String> {
    let text = std::fs::read_to_string(env.path("output/knocks/results.jsonl")).unwrap();
    let mut clients: Vec<String> = text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["state"], "succeeded", "{line:#}");
            line["meta"]["client"].as_str().unwrap().to_owned()
        })
        .collect();
    clients.sort();
    clients
}

#[test]
fn rows_without_an_id_that_want_the_same_are_told_apart_in_a_part() {
    let env = TestEnv::new();
    write_knocks(&env, &[("acme", 1), ("beta", 2), ("gamma", 1)]);
    let beta = ["knocks.jsonl", "--where", "meta.client=beta"];
    env.run(["run"].into_iter().chain(beta)).exited(0);
    assert_eq!(clients(&env), ["beta", "beta"]);
    env.run(["run"].into_iter().chain(beta)).exited(0);
    let plan = env.run(["plan", "knocks.jsonl", "--json"]).exited(0).json();
    assert_eq!((&plan["jobs"]["done"], &plan["total_credits"]), (&2.into(), &10.into()), "{plan:#}");
    env.run(["run", "knocks.jsonl", "--first", "1"]).exited(0);
    assert_eq!(clients(&env), ["acme", "beta", "beta"]);
    env.run(["run", "knocks.jsonl"]).exited(0);
    assert_eq!(clients(&env), ["acme", "beta", "beta", "gamma"]);
    env.run(["run", "knocks.jsonl"]).exited(0);
    env.audit().each_paid_once(4);
    env.run(["state", "verify"]).exited(0);
}

#[test]
fn a_row_that_lacks_a_variation_before_one_that_is_there_buys_that_alone() {
    let env = TestEnv::new();
    write_knocks(&env, &[("acme", 1), ("beta", 2)]);
    env.run(["run", "knocks.jsonl", "--where", "meta.client=beta"]).exited(0);
    // The first row takes over one of those that are there: the same is wanted.
    write_knocks(&env, &[("acme", 2), ("beta", 2)]);
    let plan = env.run(["plan", "knocks.jsonl", "--json"]).exited(0).json();
    let verdicts: Vec<&str> =
        plan["rows"].as_array().unwrap().iter().map(|row| row["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["new", "done", "done", "new"], "{plan:#}");
    env.run(["run", "knocks.jsonl"]).exited(0);
    env.audit().each_paid_once(4);
    env.run(["run", "knocks.jsonl"]).exited(0);
    env.audit().each_paid_once(4);
    env.run(["state", "verify"]).exited(0);
}

#[test]
fn a_list_of_ids_without_an_id_is_refused_and_does_not_take_every_row() {
    let env = TestEnv::new();
    env.write(
        "batch.csv",
        "id,kind,model,prompt\n\"a,b\",image,gi-2,one\na,image,gi-2,two\nb,image,gi-2,three\n",
    );
    for empty in ["", ",", " , "] {
        for command in ["plan", "run"] {
            env.run([command, "batch.csv", "--only", empty])
                .exited(2)
                .says("for '--only <ID,...>': it names no id; omit --only to take every row");
        }
    }
    env.audit().each_paid_once(0);
    env.run(["run", "batch.csv", "--only", r"a\,b"])
        .exited(0)
        .says("1 new (8 credits), a part: 2 rows left out");
    assert_eq!(env.audit().tasks[0].prompt, "one");
    env.run(["run", "batch.csv", "--only", "a,,b,"]).exited(0).says("2 new (16 credits)");
    env.audit().each_paid_once(3);
}
