//! Whose a batch is, and what holds for it: two folders, two inboxes and two clients with one file name, limits that
//! stay until another is set, and batches whose time is over.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::collect_outputs::Outputs;
use crate::support::{TestEnv, ahead, manifests, until};

/// Credits of an image.
const IMAGE: u64 = 8;

/// Images that nobody else asks for.
fn images(whose: &str, count: usize) -> String {
    let rows = (1..=count).map(|n| format!("{whose}-{n},image,gi-2,a harbour for {whose} {n}\n"));
    format!("id,kind,model,prompt\n{}", rows.collect::<String>())
}

// ---- whose a batch is ----

#[test]
fn a_file_of_another_folder_is_refused_free_of_charge_until_it_is_said_what_is_meant() {
    let env = TestEnv::new();
    env.write("ca/jobs.csv", images("ca", 2));
    env.write("cb/jobs.csv", images("cb", 3));
    env.run(["run", "ca/jobs.csv", "--budget", "8"]).exited(4);
    for command in ["plan", "run"] {
        let outcome = env.run([command, "cb/jobs.csv", "--budget", "50"]).exited(2);
        let folder = env.path("ca").canonicalize().unwrap();
        let outcome = outcome.says(&format!("the batch jobs belongs to {} (jobs)", folder.display()));
        outcome.says("cb/jobs.csv --batch cb-jobs");
    }
    let planned = env.run(["plan", "cb/jobs.csv", "--json"]).exited(2).json();
    assert_eq!((&planned["total_credits"], &planned["files"][0]["refused"]), (&json!(0), &json!(true)));
    env.audit().each_paid_once(1);
    assert_eq!(env.status("jobs")["budget_credits"], 8, "its limit was not lifted");
    env.run(["run", "cb/jobs.csv", "--batch", "cb-jobs"]).exited(0);
    env.audit().each_paid_once(4);
    // The same folder may hold anything else under that name.
    env.write("ca/jobs.csv", images("later", 1));
    env.run(["run", "ca/jobs.csv", "--budget", "100"]).exited(0);
    env.audit().each_paid_once(6);
}

#[test]
fn two_manifests_of_one_command_are_told_apart_as_well() {
    let env = TestEnv::new();
    env.write("ca/jobs.csv", images("ca", 1));
    env.write("cb/jobs.csv", images("cb", 1));
    for command in ["plan", "run"] {
        env.run([command, "ca/jobs.csv", "cb/jobs.csv"]).exited(2).says("the batch jobs belongs to");
    }
    env.audit().each_paid_once(1);
}

#[test]
fn file_names_that_are_mapped_to_one_batch_name_are_two_sources() {
    let env = TestEnv::new();
    env.write("$(x y).csv", images("one", 1));
    env.write(";x y;.csv", images("other", 1));
    env.run(["run", "$(x y).csv"]).exited(0);
    env.run(["run", ";x y;.csv"]).exited(2).says("the batch x-y belongs to").says("--batch x-y-2");
    env.audit().each_paid_once(1);
    assert!(env.path("output/x-y/one-1.png").exists());
}

#[test]
fn file_names_that_differ_only_where_a_batch_name_ends_get_batches_of_their_own() {
    let env = TestEnv::new();
    // What follows the hint for one of them must not edit the batch of another.
    let files = ["a", "b", "c"].map(|end| format!("{}-{end}.csv", "x".repeat(100)));
    for (index, file) in files.iter().enumerate() {
        env.write(file, images("x", index + 1).replace("a harbour", &format!("harbour {index}")));
    }
    env.run(["run", &files[0]]).exited(0);
    let mut batches = vec!["x".repeat(100)];
    for file in &files[1..] {
        let said = env.run(["run", file]).exited(2).says("for a batch of its own: callsheet run").stderr;
        let (_, batch) = said.split_once("csv --batch ").unwrap();
        batches.push(batch.split(';').next().unwrap().to_owned());
    }
    assert!(batches.iter().collect::<std::collections::BTreeSet<_>>().len() == 3, "{batches:?}");
    for (file, batch) in files.iter().zip(&batches).skip(1) {
        env.run(["run", file, "--batch", batch]).exited(0);
    }
    env.audit().each_paid_once(6);
}

#[test]
fn a_dropped_manifest_of_another_source_is_told_what_can_be_done_where_it_lies() {
    let env = TestEnv::new();
    env.configure("[[inbox]]\npath = \"acme\"");
    env.write("x.csv", images("x", 1));
    env.write("y.csv", images("y", 1));
    env.run(["run", "x.csv"]).exited(0);
    env.run(["run", "y.csv", "--batch", "acme--x"]).exited(0);
    let daemon = env.daemon("info");
    for (inbox, home, batch) in [("jobs/inbox", "jobs", "x"), ("acme", "acme", "acme--x")] {
        env.write(&format!("{inbox}/.x.csv"), images(home, 2));
        fs::rename(env.path(inbox).join(".x.csv"), env.path(inbox).join("x.csv")).unwrap();
        let receipt = env.path(home).join("rejected/x.csv.receipt.json");
        // Its receipt is there first.
        until("it to be rejected", || env.path(home).join("rejected/x.csv").exists());
        let receipt: Value = serde_json::from_slice(&fs::read(receipt).unwrap()).unwrap();
        let hint = receipt["problems"][0]["hint"].as_str().unwrap();
        assert!(hint.starts_with("for a batch of its own, drop it again under another name; "), "{hint}");
        assert!(hint.ends_with(&format!("callsheet submit FILE --batch {batch}")), "{hint}");
        fs::rename(env.path(home).join("rejected/x.csv"), env.path(inbox).join("other.csv")).unwrap();
        until("it to be accepted", || env.path(home).join("accepted/other.csv").exists());
    }
    until("the end", || env.audit().totals.charges == 6);
    daemon.stop();
    env.audit().each_paid_once(6);
}

#[test]
fn each_inbox_has_batches_and_a_ceiling_of_its_own() {
    let env = TestEnv::new();
    env.configure(
        "[[inbox]]\npath = \"clients/acme\"\npolicy = { budget = 12 }\n\
         [[inbox]]\npath = \"clients/beta\"\nname = \"second\"\npolicy = { budget = 50 }",
    );
    let daemon = env.daemon("info");
    until("the inboxes", || env.path("clients/acme").exists() && env.path("clients/beta").exists());
    let drop_in = |inbox: &str, name: &str, text: &str| {
        let folder = env.path("clients").join(inbox);
        fs::write(folder.join(format!(".{name}")), text).unwrap();
        fs::rename(folder.join(format!(".{name}")), folder.join(name)).unwrap();
        until("it to be filed", || folder.join("accepted").join(name).exists());
    };
    drop_in("acme", "spring.csv", &images("acme", 3));
    until("the budget to be used up", || env.status("acme--spring")["parked_by"] == "batch_budget");
    drop_in("beta", "spring.csv", &images("beta", 2));
    until("beta's", || env.status("second--spring")["state"] == "done");
    let greedy = json!({"batch": "own", "policy": {"budget": 500},
        "jobs": [{"id": "a", "kind": "image", "model": "gi-2", "prompt": "a gull"}]});
    drop_in("acme", "greedy.json", &greedy.to_string());
    until("acme's own", || env.status("acme--own")["state"] == "done");
    assert_eq!(env.status("acme--own")["budget_credits"], 12);
    let acme = env.status("acme--spring");
    assert_eq!((&acme["budget_credits"], &acme["charged_credits"]), (&json!(12), &json!(IMAGE)));
    assert_eq!(env.status("second--spring")["budget_credits"], 50);
    // The default is the ceiling. A person may set another limit, and it goes on at once.
    env.run(["budget", "acme--spring", "none"]).exited(0).says("acme--spring: budget 12 credits;");
    env.run(["budget", "acme--spring", "20"]).exited(0).says("budget 12 -> 20 credits");
    env.run(["budget", "acme--spring", "none"]).exited(0).says("budget 20 -> 12 credits");
    let again = env.run([
        "submit",
        "clients/acme/accepted/spring.csv",
        "--batch",
        "acme--spring",
        "--budget",
        "none",
    ]);
    again.exited(0).says("0 new (0 credits), 3 already there").says("; budget 12\n");
    env.run(["budget", "acme--spring", "24"]).exited(0).says("budget 12 -> 24 credits");
    until("the rest", || env.status("acme--spring")["state"] == "done");
    daemon.stop();
    env.audit().each_paid_once(6);
}

#[test]
fn names_of_inboxes_that_would_mix_their_batches_are_refused() {
    let env = TestEnv::new();
    for (inboxes, said) in [
        ("[[inbox]]\npath = \"a/in\"\n[[inbox]]\npath = \"b/in\"", "a/in and b/in have the same name \"in\""),
        ("[[inbox]]\npath = \"a\"\nname = \"x--y\"", "found \"x--y\""),
        ("[[inbox]]\npath = \"my clients\"", "found \"my clients\", the directory's name"),
    ] {
        env.configure(inboxes);
        env.run(["daemon"]).exited(2).says("inbox.name: ").says(said);
    }
}

#[test]
fn a_daemon_is_told_which_folder_a_manifest_lies_in() {
    let env = TestEnv::new();
    env.write("ca/jobs.csv", images("ca", 1));
    env.write("cb/jobs.csv", images("cb", 1));
    let daemon = env.daemon("info");
    env.run(["submit", "ca/jobs.csv", "--wait"]).exited(0);
    env.run(["submit", "cb/jobs.csv", "--wait"])
        .exited(2)
        .says("ca (jobs), and no row of this manifest is in it");
    env.run(["run", "cb/jobs.csv"]).exited(2).says("--batch cb-jobs");
    env.run(["submit", "cb/jobs.csv", "--wait", "--batch", "cb-jobs"]).exited(0);
    // Whoever names no folder is another source.
    let (code, said) = post(&env, "jobs.csv", &images("socket", 1));
    assert!(code == 200 && said["file_refused"] == true && said["new"] == 0, "{code} {said:#}");
    daemon.stop();
    env.audit().each_paid_once(2);
}

/// Hands a manifest to the daemon as a client that is not ours would.
fn post(env: &TestEnv, file: &str, manifest: &str) -> (u16, Value) {
    let mut socket = UnixStream::connect(env.path("state/callsheet.sock")).unwrap();
    let length = manifest.len();
    // At once: a request that is wrong is answered before all of it is there.
    let request = format!(
        "POST /v1/manifests?file={file} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{manifest}"
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_default())
}

#[test]
fn a_file_name_with_a_nul_is_a_wrong_request() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    for name in ["a%00b.csv", "%00", "a.csv%00"] {
        let (code, said) = post(&env, name, &images("x", 1));
        assert_eq!(code, 400, "{said}");
        assert_eq!(said["error"]["exit_code"], 2);
        assert!(said["error"]["message"].as_str().unwrap().contains("must not contain NUL"), "{said}");
    }
    daemon.stop();
    env.audit().each_paid_once(0);
}

// ---- what is set stays ----

#[test]
fn a_budget_is_not_lifted_by_leaving_the_flag_out() {
    let env = TestEnv::new();
    env.write("w.csv", images("w", 3));
    env.run(["run", "w.csv", "--budget", "9"]).exited(4).says("3 new (24 credits); budget 9");
    env.run(["run", "w.csv"]).exited(4).says("; budget 9\n");
    env.audit().each_paid_once(1);
    env.run(["run", "w.csv", "--budget", "16"]).exited(4).says("; budget 9 -> 16");
    env.audit().each_paid_once(2);
    let lifted = env.run(["run", "w.csv", "--budget", "none", "--json"]).exited(0);
    let lifted = lifted.says("; budget 16 -> default").json();
    assert_eq!(lifted["receipts"][0]["budget"], 24, "what its plans come to, never unlimited");
    env.audit().each_paid_once(3);
}

#[test]
fn a_limit_is_set_without_the_manifest() {
    let env = TestEnv::new();
    let manifest = env.write("w.csv", images("w", 3));
    let parked = env.run(["run", "w.csv", "--budget", "9"]).exited(4);
    parked
        .says("w: the next job needs 8, 1 of 9 credits are left; for that job, or for all of the batch:\n")
        .says("    callsheet budget w 16\n    callsheet budget w 24\n    callsheet run w.csv\n");
    fs::remove_file(manifest).unwrap();
    let set = env.run(["budget", "w", "17", "--json"]).exited(0);
    let set = set.says("w: budget 9 -> 17 credits; 8 spent or held, 9 left").json();
    assert_eq!(
        set,
        json!({"batch": "w", "before_credits": 9, "budget_credits": 17, "is_default": false, "committed_credits": 8})
    );
    env.run(["budget", "nothing", "17"]).exited(2).says("no batch is called nothing");
    env.run(["budget", "w", "-5"]).exited(2);
    env.run(["budget", "w", "much"]).exited(2).says("expected a whole number of credits, or none");
    let daemon = env.daemon("info");
    until("the second", || env.status("w")["succeeded"] == 2);
    until("the third to be parked", || env.status("w")["parked_by"] == "batch_budget");
    env.audit().each_paid_once(2);
    env.run(["budget", "w", "none"]).exited(0).says("w: budget 17 -> 24 credits (the planned cost)");
    until("the rest", || env.status("w")["state"] == "done");
    until("its results", || Outputs::of(&env, "w").sum("charged_credits") == 24);
    daemon.stop();
    env.audit().each_paid_once(3);
}

#[test]
fn the_configurations_budget_is_what_none_goes_back_to() {
    let env = TestEnv::new();
    env.configure("[budget]\nper_batch = 16");
    env.write("w.csv", images("w", 3));
    env.run(["run", "w.csv", "--budget", "8"]).exited(4);
    env.run(["budget", "w", "none"]).exited(0).says("budget 8 -> 16 credits; 8");
    env.run(["run", "w.csv"]).exited(4);
    env.audit().each_paid_once(2);
}

/// A manifest of three images, with these terms.
fn with_policy(env: &TestEnv, policy: &Value) {
    let job = |n: u32| json!({"id": format!("w-{n}"), "kind": "image", "model": "gi-2", "prompt": format!("fox {n}")});
    let jobs: Vec<Value> = (1..=3).map(job).collect();
    env.write("w.json", json!({"policy": policy, "jobs": jobs}).to_string());
}

#[test]
fn the_configurations_budget_takes_the_place_of_no_other_that_is_left_out_later() {
    let env = TestEnv::new();
    let per_batch = |credits: u32| env.configure(&format!("[budget]\nper_batch = {credits}"));
    per_batch(40);
    with_policy(&env, &json!({"budget": 9}));
    env.run(["run", "w.json"]).exited(4).says("3 new (24 credits); budget 9\n");
    with_policy(&env, &json!({}));
    env.run(["run", "w.json"]).exited(4).says("; budget 9\n");
    env.configure("");
    env.write("x.csv", images("x", 3));
    env.run(["run", "x.csv", "--budget", "9"]).exited(4);
    per_batch(40);
    env.run(["run", "x.csv"]).exited(4).says("; budget 9\n");
    env.run(["budget", "x", "8"]).exited(0);
    per_batch(41);
    env.run(["run", "x.csv"]).exited(4).says("; budget 8\n");
    env.audit().each_paid_once(2);
    // Nor does it lower one.
    per_batch(5);
    env.run(["budget", "x", "100"]).exited(0);
    env.run(["run", "x.csv"]).exited(0).says("; budget 100\n");
    env.audit().each_paid_once(4);
    // Whoever asks for the default gets the one that is configured from then on.
    env.run(["budget", "w", "none"]).exited(0).says("w: budget 9 -> 5 credits");
    per_batch(16);
    env.run(["run", "w.json"]).exited(4).says("; budget 5 -> 16\n");
    env.audit().each_paid_once(5);
}

#[test]
fn the_budget_of_an_inbox_stays_where_a_manifest_comes_in_another_way() {
    let env = TestEnv::new();
    env.configure("[budget]\nper_batch = 40\n[[inbox]]\npath = \"acme\"\npolicy = { budget = 9 }");
    let daemon = env.daemon("info");
    until("the inbox", || env.path("acme").exists());
    env.write("w.csv", images("w", 3));
    env.write("acme/.w.csv", images("w", 3));
    fs::rename(env.path("acme/.w.csv"), env.path("acme/w.csv")).unwrap();
    let is_parked = || env.status("acme--w")["parked_by"] == "batch_budget";
    until("it to be filed", || env.path("acme/accepted/w.csv").exists());
    until("the budget to be used up", is_parked);
    let again = env.run(["submit", "w.csv", "--batch", "acme--w"]).exited(0);
    again.says("0 new (0 credits), 3 already there").says("; budget 9\n");
    until("the same as before", is_parked);
    daemon.stop();
    env.audit().each_paid_once(1);
}

#[test]
fn a_default_that_was_asked_for_stays_though_the_manifest_repeats_its_budget() {
    let env = TestEnv::new();
    with_policy(&env, &json!({"budget": 9}));
    env.run(["run", "w.json"]).exited(4).says("; budget 9\n");
    env.run(["budget", "w", "none"]).exited(0).says("w: budget 9 -> 24 credits (the planned cost)");
    let run = env.run(["run", "w.json"]).exited(0);
    assert!(!run.says("3 already there").stderr.contains("->"));
    env.audit().each_paid_once(3);
    // Another word of it counts.
    with_policy(&env, &json!({"budget": 30}));
    env.run(["run", "w.json"]).exited(0).says("; budget default -> 30\n");
}

// ---- time that is over ----

#[test]
fn rows_of_a_batch_whose_time_is_over_are_refused_and_a_finished_manifest_is_not() {
    let env = TestEnv::new();
    let manifest = |expires: &str, jobs: &[&str]| {
        let job =
            |id: &&str| json!({"id": id, "kind": "image", "model": "gi-2", "prompt": format!("a {id}")});
        json!({"policy": {"expires": expires}, "jobs": jobs.iter().map(job).collect::<Vec<_>>()}).to_string()
    };
    env.write("w.json", manifest("2020-01-01T00:00:00Z", &["fox"]));
    for command in ["plan", "run"] {
        env.run([command, "w.json"])
            .exited(2)
            .says("policy.expires: is 2020-01-01T00:00:00.000Z, which has passed");
    }
    env.audit().each_paid_once(0);
    env.write("w.json", manifest("2999-01-01T00:00:00Z", &["fox"]));
    env.run(["run", "w.json"]).exited(0);
    env.write("w.json", manifest("2020-01-01T00:00:00Z", &["fox"]));
    env.run(["run", "w.json"]).exited(0);
    env.write("w.json", manifest("2020-01-01T00:00:00Z", &["fox", "owl"]));
    env.run(["run", "w.json"]).exited(2).says("1 already there");
    env.audit().each_paid_once(1);
}

#[test]
fn retry_of_what_expired_says_what_to_change() {
    let env = TestEnv::new();
    let manifest = |expires: &str| {
        json!({"policy": {"expires": expires, "budget": 0},
            "jobs": [{"id": "fox", "kind": "image", "model": "gi-2", "prompt": "a fox"}]})
        .to_string()
    };
    env.write("w.json", manifest("3s"));
    env.run(["run", "w.json"]);
    let daemon = env.daemon("info");
    until("it to expire", || env.status("w")["expired"] == 1);
    daemon.stop();
    env.run(["retry", "w"]).exited(0).says("1 would expire at once").says("set a later policy.expires");
    assert_eq!(env.status("w")["expired"], 1);
    env.write("w.json", manifest("2999-01-01T00:00:00Z"));
    env.run(["run", "w.json"]).exited(1).says("expires 3 s -> 2999-01-01T00:00:00.000Z");
    env.run(["retry", "w"]).exited(0).says("1 queued again");
    env.run(["cancel", "w"]).exited(0);
    let until = "callsheet retry w/fox queues it again, under the same key; its batch expires at 2999-01-01T00:00:00.000Z";
    let explained = env.run(["explain", "w/fox"]).exited(0).stdout;
    assert!(explained.contains(until), "{explained}");
    env.run(["retry", "w"]).exited(0).says("1 queued again");
    env.run(["run", "w.json", "--budget", "none"]).exited(0);
    env.audit().each_paid_once(1);
}

#[test]
fn another_priority_of_a_batch_is_said_not_to_be_that_of_accepted_rows() {
    let env = TestEnv::new();
    let manifest = |priority: u32| {
        let job = json!({"id": "fox", "kind": "image", "model": "gi-2", "prompt": "a fox"});
        json!({"policy": {"priority": priority, "budget": 0}, "jobs": [job]}).to_string()
    };
    env.write("w.json", manifest(1));
    env.run(["run", "w.json"]).exited(4);
    env.write("w.json", manifest(5));
    env.run(["run", "w.json"]).exited(4).says("; priority 1 -> 5 (accepted rows keep theirs)");
}

#[test]
fn a_row_that_missed_its_own_deadline_is_made_under_another_id() {
    let env = TestEnv::new();
    let soon = ahead(Duration::from_millis(1_500));
    let manifest = |ids: &[&str]| {
        let job = |id: &&str| {
            let deadline = if *id == "fox" { soon.to_string() } else { "1h".to_owned() };
            json!({"id": id, "kind": "image", "model": "gi-2", "prompt": "a fox", "deadline": deadline})
        };
        json!({"jobs": ids.iter().map(job).collect::<Vec<_>>()}).to_string()
    };
    env.write("w.json", manifest(&["fox"]));
    env.run(["run", "w.json", "--budget", "0"]).exited(4);
    until("the deadline", || ahead(Duration::ZERO) > soon);
    env.run(["run", "w.json", "--budget", "100"]).exited(1);
    let explained = env.run(["explain", "w/fox"]).exited(0).stdout;
    assert!(explained.contains("add its row with another id"), "{explained}");
    env.write("w.json", manifest(&["fox", "fox-2"]));
    env.run(["run", "w.json"]).exited(1);
    env.audit().each_paid_once(1);
}

// ---- names and edited outputs ----

#[test]
fn outputs_that_a_disk_might_take_for_one_get_names_apart() {
    let env = TestEnv::new();
    let ids = ["hero", "HERO", "Hero-v2", "caf\u{e9}", "cafe\u{301}", "owl"];
    let row = |id: &&str| {
        format!("{}\n", json!({"id": id, "kind": "image", "model": "gi-2", "prompt": format!("a {id}")}))
    };
    env.write("w.jsonl", ids.iter().map(row).collect::<String>());
    env.run(["run", "w.jsonl"]).exited(0);
    // What comes later gives way, too; what is there keeps its name.
    env.write("w.jsonl", ids.iter().chain(&["OWL"]).map(row).collect::<String>());
    env.run(["run", "w.jsonl"]).exited(0);
    let outputs = Outputs::of(&env, "w");
    outputs.is_whole();
    let paths: Vec<&str> =
        outputs.lines.iter().map(|line| line["files"][0]["path"].as_str().unwrap()).collect();
    let plain: Vec<&str> = paths.iter().copied().filter(|path| path.len() < 12).collect();
    assert_eq!(plain, ["hero.png", "caf\u{e9}.png", "owl.png"], "{paths:?}");
    let folded: std::collections::BTreeSet<String> =
        paths.iter().map(|path| callsheet::domain::job_label::folded(path)).collect();
    assert_eq!(folded.len(), 7, "{paths:?}");
}

#[test]
fn an_output_that_a_person_edited_stays_and_is_fetched_beside() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(0);
    let edited = env.path("output/batch/image-1.png");
    fs::write(&edited, "cropped").unwrap();
    fs::remove_file(env.path("output/batch/image-2.png")).unwrap();
    let outcome = env.run(["download", "batch"]).exited(0);
    outcome
        .says("batch: image-1.png was edited: kept, and downloaded under another name")
        .says("2 of 2 downloaded into");
    assert_eq!(fs::read_to_string(&edited).unwrap(), "cropped");
    let outputs = Outputs::of(&env, "batch");
    let file = &outputs.lines[0]["files"][0];
    assert_eq!(file["edited"], "image-1.png");
    let beside = env.path("output/batch").join(file["path"].as_str().unwrap());
    assert_eq!(fs::metadata(&beside).unwrap().len(), file["bytes"].as_u64().unwrap());
    assert_eq!(outputs.lines[1]["files"][0]["path"], "image-2.png");
    env.run(["download", "batch"]).exited(0).says("all outputs of known tasks are on disk");
    // So does the copy.
    fs::write(&beside, "cropped again").unwrap();
    let daemon = env.daemon("info");
    let name = beside.file_name().unwrap().to_str().unwrap();
    env.run(["download", "batch"]).exited(0).says(&format!("{name} was edited: kept"));
    until("the next copy", || {
        let line = env.run(["jobs", "batch", "--json"]).exited(0).stdout;
        let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
        line["state"] == "succeeded"
            && line["files"][0]["edited"] == "image-1.png"
            && line["files"][0]["path"] != name
    });
    daemon.stop();
    assert_eq!(fs::read_to_string(&edited).unwrap(), "cropped");
    assert_eq!(fs::read_to_string(&beside).unwrap(), "cropped again");
    env.audit().each_paid_once(2);
}
