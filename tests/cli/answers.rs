//! What commands answer: about one job what is true of that job, and what stays as it is told as that.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use serde_json::json;

use crate::support::TestEnv;

/// The first task of a row with this prompt fails.
const ONCE: &str = "[[rules]]\ncontains = 'once'\ntimes = 1\neffect = { do = 'task-fails', code = 'provider_unavailable' }\n";

fn manifest(jobs: &serde_json::Value) -> String {
    json!({"policy": {"attempts": 1}, "jobs": jobs}).to_string()
}

#[test]
fn a_download_of_one_job_speaks_of_that_job() {
    let env = TestEnv::with_faults("[[rules]]\ncontains = 'refused'\neffect = { do = 'content-rejected' }\n");
    env.write(
        "w.json",
        manifest(&json!([
            {"id": "my a", "kind": "sound-effect", "prompt": "fine"},
            {"id": "b", "kind": "sound-effect", "prompt": "refused"},
        ])),
    );
    env.run(["run", "w.json"]).exited(1);
    env.run(["download", "w/my a"]).exited(0).says("w/my a: nothing to download: its outputs are on disk\n");
    env.run(["download", "w/b"])
        .exited(0)
        .says("w/b: nothing to download: it is failed; to see what comes next: callsheet explain w/b\n");
    env.run(["download", "w"])
        .exited(0)
        .says("w: nothing to download: all outputs of known tasks are on disk");
    let daemon = env.daemon("info");
    env.run(["download", "w/my a"]).exited(0).says("w/my a: nothing to download: its outputs are on disk\n");
    env.run(["download", "w/b"]).exited(0).says("w/b: nothing to download: it is failed");
    daemon.stop();
}

#[test]
fn a_retry_of_failed_jobs_says_what_it_leaves_out_and_one_of_waiting_jobs_what_they_may_cost() {
    let env = TestEnv::new();
    env.write("w.csv", "id,kind,prompt\na,sound-effect,gull\nb,sound-effect,tern\n");
    env.run(["run", "w.csv", "--budget", "0"]).exited(4);
    let allowed = env.run(["retry", "w/a", "--max-credits", "9", "--json"]).exited(0);
    assert_eq!(allowed.json()["batches"][0]["jobs"], 1);
    let allowed = allowed.says("w: 1 job, which waits and may cost up to 9 credits now; ");
    assert!(!allowed.stderr.contains("queued again"), "{}", allowed.stderr);
    env.run(["cancel", "w"]).exited(0);
    env.run(["retry", "w", "--failed"]).exited(0).says(
        "w: nothing to retry: no job failed; --failed leaves out those that were canceled or expired: callsheet retry w \
         queues them again\n",
    );
    env.run(["retry", "w"]).exited(0).says("w: 2 queued again");
}

#[test]
fn fields_that_make_no_other_job_are_refused() {
    let env = TestEnv::with_faults(ONCE);
    env.write("w.json", manifest(&json!([{"id": "a", "kind": "sound-effect", "prompt": "once"}])));
    env.run(["run", "w.json"]).exited(1);
    for more in [&["--dry-run"][..], &[], &["--json"]] {
        let command = ["retry", "w", "--set", "priority=5"].iter().chain(more).copied();
        env.run(command)
            .exited(2)
            .says("w: --set changes nothing that these jobs are made of, so nothing was accepted")
            .says("to queue the jobs again as they are: callsheet retry w");
    }
    env.run(["retry", "w"]).exited(0).says("w: 1 queued again");
}

#[test]
fn an_ambiguous_name_is_told_with_one_that_is_not() {
    let env = TestEnv::new();
    env.write("v.csv", "id,kind,prompt\nw/a,sound-effect,gull\n");
    env.write("w.csv", "id,kind,prompt\na,sound-effect,tern\n");
    env.run(["run", "v.csv", "w.csv", "--budget", "0"]).exited(4);
    let told = env.run(["explain", "w/a"]).exited(2);
    let (_, example) = told.stderr.split_once("2 jobs are called w/a; one of them is ").unwrap();
    let example = example.lines().next().unwrap();
    assert_ne!(example, "w/a");
    env.run(["explain", example]).exited(0);
}

#[test]
fn an_export_says_of_the_state_that_it_is_of_what_it_leaves_out() {
    let env = TestEnv::new();
    env.write("w.csv", "id,kind,prompt\na,sound-effect,gull\n");
    env.run(["run", "w.csv", "--state", "other"]).exited(0);
    env.write("other/schedules.json", "{}");
    env.run(["state", "export", "out.jsonl", "--state", "other"])
        .exited(0)
        .says("not part of the export: up to when schedules were handled; to carry it along, copy other/schedules.json");
    assert!(env.run(["state", "export", "--help"]).exited(0).stdout.contains("running daemon or `run`"));
}

#[test]
fn names_in_commands_are_typed_as_a_shell_takes_them() {
    let env = TestEnv::new();
    env.write("w.csv", "id,kind,prompt,review\na,sound-effect,gull,yes\n");
    env.run(["run", "w.csv"]).exited(7);
    env.run(["review", "w", "--export", "my decisions.csv"])
        .exited(0)
        .says("callsheet review w --import 'my decisions.csv'\n");
}

#[test]
fn a_plan_of_two_manifests_for_one_batch_says_what_its_total_counts() {
    let env = TestEnv::new();
    env.write("a.csv", "id,kind,model,prompt\na,image,gi-2,a fox\n");
    env.write("b.csv", "id,kind,model,prompt\na,image,gi-2,a red fox\n");
    let told = "several of these manifests go into batch m";
    let shared = env.run(["plan", "a.csv", "b.csv", "--batch", "m"]).exited(0).stdout;
    assert!(shared.contains(told), "{shared}");
    let apart = env.run(["plan", "a.csv", "b.csv"]).exited(0).stdout;
    assert!(!apart.contains(told), "{apart}");
}

#[test]
fn half_of_a_character_is_told_as_that_and_not_as_a_field_that_is_missing() {
    let env = TestEnv::new();
    env.write("a.json", r#"[{"id": "a", "kind": "sound-effect", "prompt": "x\ud800y"}]"#);
    env.write(
        "b.jsonl",
        "{\"id\": \"b\", \"kind\": \"sound-effect\", \"pro\\ud800\": \"q\", \"prompt\": \"good\"}\n",
    );
    for file in ["a.json", "b.jsonl"] {
        let told = env.run(["plan", file]).exited(2).says("has half of a character");
        assert!(!told.stderr.contains("is missing"), "{}", told.stderr);
    }
}

#[test]
fn an_older_version_in_doubt_is_named_in_the_command_that_settles_it() {
    let env = TestEnv::with_faults(
        "[[rules]]\non = 'create'\ntimes = 1\neffect = { do = 'drop', when = 'after' }\n",
    );
    let write = |task: &str| {
        let short =
            json!([{"id": "s", "kind": "shorts-studio", "max_credits": 100, "options": {"taskId": task}}]);
        env.write("m.json", short.to_string());
    };
    write("one");
    env.run(["run", "m.json"]).exited(7);
    write("two");
    env.run(["run", "m.json"]).exited(7);
    let explained = env.run(["explain", "m/s@1"]).exited(0).stdout;
    assert!(explained.contains("callsheet resolve m/s@1 --charged N, or --not-charged"), "{explained}");
    env.run(["resolve", "m/s@1", "--not-charged"]).exited(0);
}
