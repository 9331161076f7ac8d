//! Outputs that wait for a person: what is told, decided, kept and handed over as a table.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;
use crate::support::{TestEnv, until};

const MANIFEST: &str = "id,kind,model,prompt,count,review\n\
                        poster,image,gi-2,A harbour,2,yes\n\
                        wind,sound-effect,,Wind,,\n";

/// A batch that is made, of which two takes wait.
fn made() -> TestEnv {
    let env = TestEnv::new();
    env.write("spring.csv", MANIFEST);
    env.run(["run", "spring.csv"])
        .exited(7)
        .says("spring: 2 waiting for review")
        .says("callsheet review spring");
    env
}

fn batch(env: &TestEnv) -> Value {
    env.status("spring")
}

/// `id decision` of every output that asks for one or has one.
fn decisions(env: &TestEnv) -> Vec<String> {
    let listed = env.run(["review", "spring", "--all", "--json"]).exited(0).stdout;
    let lines = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told =
        |line: Value| Some(format!("{} {}", line["id"].as_str()?, line["review"]["decision"].as_str()?));
    lines.filter_map(told).collect()
}

#[test]
fn a_batch_is_done_once_all_is_decided_and_nothing_is_bought_by_it() {
    let env = made();
    assert_eq!((&batch(&env)["state"], &batch(&env)["waiting_for_review"]), (&"review".into(), &2.into()));
    env.run(["run", "spring.csv"]).exited(7).says("2 waiting for review");
    env.run(["review", "approve", "spring/poster"]).exited(0).says("1 waiting for review");
    env.run(["review", "reject", "spring/poster-v2", "--note", "too dark"]).exited(0).says("spring: done");
    assert_eq!(batch(&env)["state"], "done");
    assert_eq!(decisions(&env), ["poster approved", "poster-v2 rejected"]);
    let review =
        Outputs::of(&env, "spring").lines.iter().map(|line| line["review"].clone()).collect::<Vec<_>>();
    assert_eq!(
        (&review[0]["decision"], &review[1]["note"]),
        (&"approved".into(), &"too dark".into()),
        "{review:?}"
    );
    assert!(env.path("output/spring/poster-v2.png").exists(), "what is rejected stays where it is");
    env.run(["run", "spring.csv"]).exited(0).says("0 new (0 credits), 3 already there");
    // A decision of a batch that is done can be taken back.
    env.run(["review", "withdraw", "spring/poster-v2"]).exited(0).says("1 waiting for review");
    assert_eq!(batch(&env)["state"], "review");
    let next = "next: its outputs wait for a decision: callsheet review approve spring/poster-v2, ";
    let explained = env.run(["explain", "spring/poster-v2"]).exited(0).stdout;
    assert!(explained.contains(next), "{explained}");
    env.run(["review", "pick", "spring/poster-v2"]).exited(0);
    assert_eq!(batch(&env)["state"], "done");
    env.run(["review", "pick", "spring/nothing"]).exited(2);
    env.audit().each_paid_once(3);
}

#[test]
fn decisions_outlive_a_kill_and_a_rebuild() {
    let env = made();
    let daemon = env.daemon("info");
    env.run(["review", "pick", "spring/poster-v2"])
        .exited(0)
        .says("another take of its row was decided with it");
    daemon.signal(rustix::process::Signal::KILL);
    daemon.end().was_killed("after the answer");
    let picked = ["poster not_picked", "poster-v2 picked"];
    assert_eq!(decisions(&env), picked);
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.run(["state", "rebuild"]).exited(0);
    assert_eq!(decisions(&env), picked);
    env.run(["state", "verify"]).exited(0).says("all fits");
    env.audit().each_paid_once(3);
}

#[test]
fn other_bytes_are_undecided_again() {
    let env = made();
    env.run(["review", "approve", "spring/poster", "spring/poster-v2"]).exited(0);
    let outdated = r#"{"decisions": [{"job": "spring/poster", "decision": "reject", "sha256": ["00"]}]}"#;
    env.write("outdated.json", outdated);
    let export = env.path("decisions.csv");
    let export = export.to_str().unwrap();
    env.run(["review", "spring", "--export", export]).exited(0);
    let table = fs::read_to_string(export).unwrap();
    let sum = table.lines().nth(1).unwrap().rsplit(',').next().unwrap();
    assert_eq!(sum.len(), 64, "{table}");
    let about_another = table.replacen(sum, &"0".repeat(64), 1).replacen(",approved,", ",rejected,", 1);
    env.write("about-another.csv", about_another);
    env.run(["review", "spring", "--import", "about-another.csv"]).exited(2).says("about-another.csv:2:");
    assert_eq!(decisions(&env), ["poster approved", "poster-v2 approved"]);
}

/// What was filled in meanwhile is not written over.
#[test]
fn a_table_goes_out_into_a_new_file_alone() {
    let env = made();
    env.write("filled-in.csv", "an hour of work");
    symlink("filled-in.csv", env.path("link.csv")).unwrap();
    for taken in ["filled-in.csv", "link.csv", "output"] {
        env.run(["review", "spring", "--export", taken]).exited(2).says("choose a new file");
    }
    assert_eq!(fs::read_to_string(env.path("filled-in.csv")).unwrap(), "an hour of work");
    env.run(["review", "spring", "--export", "new.csv"]).exited(0).says("new.csv: 2 outputs");
    // A link to nothing yet: the file is made where it leads.
    symlink("output/by-hand.csv", env.path("to-nothing.csv")).unwrap();
    env.run(["review", "spring", "--export", "to-nothing.csv"]).exited(0).says("2 outputs");
    assert!(env.path("to-nothing.csv").is_symlink());
    let new = fs::read_to_string(env.path("new.csv")).unwrap();
    assert_eq!(fs::read_to_string(env.path("output/by-hand.csv")).unwrap(), new);
}

#[test]
fn a_table_goes_into_pipes_and_devices_that_stay_what_they_are() {
    let env = made();
    env.run(["review", "spring", "--export", "new.csv"]).exited(0);
    let table = fs::read_to_string(env.path("new.csv")).unwrap();
    let pipe = env.path("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opened without waiting for who writes, so that a pipe that nobody opens is an empty one.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let mut reader = File::from(rustix::fs::open(&pipe, flags, Mode::empty()).unwrap());
    env.run(["review", "spring", "--export", "pipe.csv"]).exited(0);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read, table);
    symlink("/dev/null", env.path("device.csv")).unwrap();
    env.run(["review", "spring", "--export", "device.csv"]).exited(0);
    assert_eq!(fs::read_link(env.path("device.csv")).unwrap(), Path::new("/dev/null"));
    for stdout in ["-", "/dev/stdout"] {
        assert_eq!(env.run(["review", "spring", "--export", stdout]).exited(0).stdout, table);
    }
}

#[test]
fn decisions_go_out_and_in_as_a_table() {
    let env = made();
    let beside = fs::read_to_string(env.path("output/spring/decisions.csv")).unwrap();
    assert!(beside.lines().nth(1).unwrap().contains(",poster.png,8,,"), "it is to be filled in: {beside}");
    env.run(["review", "spring", "--export", "table.csv"]).exited(0);
    env.run(["review", "spring", "--import", "table.csv"]).exited(0).says("0 decisions changed");
    env.write("typed.csv", "job;decision;note\nposter;APPROVE;\n\nposter-v2;perhaps;\nnothing;approve;\n");
    let said = env.run(["review", "spring", "--import", "typed.csv"]).exited(2);
    let said = said.says("typed.csv:4: decision: found \"perhaps\"").says("typed.csv:5: no job nothing");
    said.says("1 decision changed");
    let json = env.run(["review", "spring", "--import", "typed.csv", "--json"]).exited(2);
    assert_eq!(json.json()["problems"][0]["line"], 4);
    let error: Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!(error["error"]["message"], "2 lines of typed.csv cannot be used");
    assert_eq!(error["error"]["problems"][1]["line"], 5);
    assert_eq!(decisions(&env), ["poster approved", "poster-v2 waiting"]);
    let beside = fs::read_to_string(env.path("output/spring/decisions.csv")).unwrap();
    assert!(beside.lines().nth(1).unwrap().contains(",approved,"), "{beside}");
}

/// A label means the version of its row that is wanted, and no job where several have it.
#[test]
fn a_table_that_names_labels_decides_about_the_wanted_version_and_about_none_of_several() {
    let env = TestEnv::new();
    let write = |prompt: &str| {
        let rows = [("poster", 1, prompt), ("s", 2, "a crow"), ("s-v2", 1, "a hen")];
        let row = |(id, count, prompt)| format!("{id},image,gi-2,{prompt},{count},yes\n");
        let rows: String = rows.into_iter().map(row).collect();
        env.write("spring.csv", format!("id,kind,model,prompt,count,review\n{rows}"));
        env.run(["run", "spring.csv"]).exited(7);
    };
    write("a fox");
    write("a red fox");
    write("a fox");
    let listed = env.run(["review", "spring", "--all"]).exited(0).stdout;
    let posters: Vec<&str> = listed.lines().filter(|line| line.contains("spring/poster")).collect();
    assert_eq!(posters.len(), 2, "{listed}");
    assert!(
        posters.iter().all(|line| line.contains("a red fox") == line.contains("(superseded, ")),
        "{listed}"
    );
    env.write("typed.csv", "job,decision\nposter,approve\ns-v2,pick\n");
    let said = env.run(["review", "spring", "--import", "typed.csv"]).exited(2);
    said.says("typed.csv:3: 2 jobs are called s-v2; write the identity").says("1 decision changed");
    let shown = env.run(["review", "spring", "--all", "--json"]).exited(0).stdout;
    let decided = |line: &str| {
        let job: Value = serde_json::from_str(line).unwrap();
        let decision = job["review"]["decision"].as_str().unwrap_or("none").to_owned();
        (job["prompt"].as_str().unwrap().to_owned(), decision)
    };
    let decided: Vec<(String, String)> = shown.lines().map(decided).collect();
    let approved: Vec<&str> = decided
        .iter()
        .filter(|(_, decision)| decision == "approved")
        .map(|(prompt, _)| prompt.as_str())
        .collect();
    assert_eq!(approved, ["a fox"], "{decided:?}");
    assert!(decided.iter().all(|(_, decision)| decision != "picked"), "{decided:?}");
}

/// Lines that end in `\r\n` are counted like others, and a row of another batch is refused by its batch, whether it has an
/// id or not.
#[test]
fn a_table_of_a_spreadsheet_is_read_with_the_right_lines_and_batch() {
    let env = made();
    let listed = env.run(["review", "spring", "--json"]).exited(0).stdout;
    let first: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let id = first["job"].as_str().unwrap();
    let rows = [
        "id,job,batch,decision",
        ",poster,spring,approve",
        ",poster-v2,autumn,reject",
        &format!("{id},poster,autumn,reject"),
        ",nothing,autumn,",
        ",poster-v2,,perhaps",
    ];
    env.write("typed.csv", rows.join("\r\n"));
    env.run(["review", "spring", "--import", "typed.csv"])
        .exited(2)
        .says("typed.csv:3: batch: found \"autumn\", expected spring")
        .says("typed.csv:4: batch: found \"autumn\", expected spring")
        .says("typed.csv:5: batch: found \"autumn\", expected spring")
        .says("typed.csv:6: decision: found \"perhaps\"")
        .says("1 decision changed");
    assert_eq!(decisions(&env), ["poster approved", "poster-v2 waiting"]);
    // Names as every command takes them: of a batch, and of a version of a row.
    env.write("named.csv", "job,decision\nspring/poster-v2,approve\nposter@1,reject\nposter@7,reject\n");
    env.run(["review", "spring", "--import", "named.csv"])
        .exited(2)
        .says("named.csv:4: no batch or job is called spring/poster@7")
        .says("2 decisions changed");
    assert_eq!(decisions(&env), ["poster rejected", "poster-v2 approved"]);
    // A note of two lines comes back as it went out.
    env.run(["review", "reject", "spring/poster-v2", "--note", "too dark\r\nfor print"]).exited(0);
    env.run(["review", "spring", "--export", "table.csv"]).exited(0);
    env.run(["review", "spring", "--import", "table.csv"]).exited(0).says("0 decisions changed");
}

/// What its identity would name, its number does, too; each is decided about once.
#[test]
fn a_table_names_each_version_of_an_edited_row() {
    let env = made();
    env.write("spring.csv", MANIFEST.replace("A harbour", "A harbour at night"));
    env.run(["run", "spring.csv"]).exited(7).says("2 of them changed");
    env.write("named.csv", "job,decision\nposter@1,reject\nposter@2,approve\nposter@1,approve\n");
    env.run(["review", "spring", "--import", "named.csv"])
        .exited(2)
        .says("named.csv:4: poster@1 is already decided about at line 2")
        .says("2 decisions changed")
        .says("spring: 1 waiting for review");
    // Nobody waits for a decision about the other output of the earlier version.
    assert_eq!(decisions(&env), ["poster rejected", "poster approved", "poster-v2 waiting"]);
}

#[test]
fn hooks_are_told_once_that_it_waits_and_once_that_it_is_done() {
    let env = TestEnv::new();
    env.configure("[hooks]\nbatch_done = [\"sh\", \"-c\", \"cat >> told.jsonl; echo >> told.jsonl\"]\n");
    env.write("spring.csv", MANIFEST);
    let daemon = env.daemon("info");
    env.run(["submit", "spring.csv", "--wait"]).exited(7);
    let told = || -> Vec<String> {
        let text = fs::read_to_string(env.path("told.jsonl")).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .map(|event| {
                let data = &event["data"];
                let (kind, waiting) = (event["type"].as_str().unwrap(), &data["waiting_for_review"]);
                format!("{kind} {waiting} {}", data["decisions"])
            })
            .collect()
    };
    until("the first event", || !told().is_empty());
    env.run(["review", "approve", "spring/poster", "spring/poster-v2"]).exited(0);
    until("the second event", || told().len() >= 2);
    daemon.stop();
    let last = told();
    assert_eq!(
        (last.len(), last[0].ends_with(" 2 null"), last[1].as_str()),
        (2, true, "batch.done 0 {\"approved\":2}"),
        "{last:?}"
    );
}

#[test]
fn a_kill_while_a_decision_is_made_leaves_all_of_it_or_nothing() {
    let env = made();
    let mut command = env.command(["review", "pick", "spring/poster-v2"]);
    command.env("CALLSHEET_FAILPOINT", "flushed");
    Running::start(command).end().was_killed("within the commit");
    let now = decisions(&env);
    let (all, nothing) = (["poster not_picked", "poster-v2 picked"], ["poster waiting", "poster-v2 waiting"]);
    assert!(now == all || now == nothing, "{now:?}");
    env.run(["state", "verify"]).exited(0).says("all fits");
}
