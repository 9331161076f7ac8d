//! Names that mean harm: of jobs, of batches, of meta columns and of what already lies in the output folder. Every
//! file stays in its batch's folder under a name of its own, nothing that is not ours is touched, and no terminal
//! is told what to do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::TestEnv;
use crate::support::collect_outputs::Outputs;
use crate::support::process::Running;

/// A manifest of an image for each id.
fn rows<'a>(ids: impl IntoIterator<Item = &'a str>) -> String {
    let row = |(n, id): (usize, &str)| {
        json!({"id": id, "kind": "image", "model": "gi-2", "prompt": format!("harbour {n}")}).to_string()
            + "\n"
    };
    ids.into_iter().enumerate().map(row).collect()
}

/// Everything below a folder, and what it is, without following anything.
fn listing(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            found.extend(listing(&entry.path()).into_iter().map(|below| format!("{name}/{below}")));
        }
        found.insert(name);
    }
    found
}

/// The outputs of every job are published, with as many files as there are jobs, all of them in the batch's folder.
#[track_caller]
fn all_published(env: &TestEnv, ids: &[&str]) {
    let outputs = Outputs::of(env, "batch");
    assert_eq!(outputs.column("id"), ids);
    outputs.is_whole();
    let mut paths = BTreeSet::new();
    for file in outputs.lines.iter().flat_map(|line| line["files"].as_array().unwrap()) {
        let path = file["path"].as_str().unwrap();
        assert!(!path.contains('/') && !path.starts_with('.') && path.len() <= 200, "{path:?}");
        assert!(!path.chars().any(|c| c.is_control() || "\\:*?\"<>|".contains(c)), "{path:?}");
        assert!(paths.insert(path.to_owned()), "{path:?} twice");
    }
    assert_eq!(paths.len(), ids.len());
    env.audit().each_paid_once(ids.len());
}

#[test]
fn ids_that_mean_harm_stay_in_their_folder_and_apart() {
    let long = "x".repeat(10_000);
    let allowed = "\u{9577}".repeat(200);
    // What no label can be is refused, row by row, and takes nothing else down.
    let refused = ["a\0b", "a\nb", "a\rb", "a\u{1b}[2Jb", "a\u{9b}31mb", long.as_str()];
    let ids = [
        "../../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        "C:\\Windows\\system32",
        "con",
        "NUL.txt",
        "COM1",
        "a\u{202e}gnp.exe",
        "a\u{200b}b",
        "\u{1f98a}",
        "\u{1f468}\u{200d}\u{1f469}",
        "Hero",
        "hero",
        "HERO",
        "caf\u{e9}",
        "cafe\u{301}",
        "results.csv",
        "report",
        "Results",
        "index.html",
        "sidecars",
        "-rf",
        "$(reboot)",
        "%2e%2e%2f",
        "{job}{-n}",
        "dot.",
        "dot..",
        allowed.as_str(),
    ];
    let env = TestEnv::new();
    env.write("batch.jsonl", rows(ids.into_iter().chain(refused)));
    let outcome = env.run_raw(["run", "batch.jsonl"]).exited(2).says(", 6 not valid");
    outcome.commands_no_terminal();
    assert!(outcome.stderr.len() < 64 * 1024, "{} bytes were said", outcome.stderr.len());
    all_published(&env, &ids);
    let around: BTreeSet<String> = fs::read_dir(env.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(around, ["batch.jsonl", "callsheet.toml", "output", "state"].map(str::to_owned).into());
    for arguments in [vec!["status"], vec!["jobs", "batch"], vec!["ledger"], vec!["explain", "a\u{1b}[2Jb"]] {
        env.run_raw(arguments).commands_no_terminal();
    }
}

#[test]
fn two_jobs_with_one_name_are_two_files() {
    let env = TestEnv::new();
    // One name on disk for three ids.
    env.write("batch.jsonl", rows(["a/b", "a\\b", "a:b"]));
    env.run(["run", "batch.jsonl"]).exited(0);
    all_published(&env, &["a/b", "a\\b", "a:b"]);
    // One id for two jobs: one of them is all that is bought, and the other is spoken of.
    let env = TestEnv::new();
    env.write("batch.jsonl", rows(["same", "same"]));
    let outcome = env.run(["run", "batch.jsonl"]).exited(2);
    outcome.says("batch.jsonl:2: id: is already used at line 1");
    env.audit().each_paid_once(1);
}

#[test]
fn a_batch_is_never_called_what_could_lead_elsewhere() {
    let long = "b".repeat(101);
    for name in [
        "..",
        "../up",
        "/abs",
        "a/b",
        "a\\b",
        "",
        " ",
        ".hidden",
        "a\u{1b}[2J",
        "a\u{202e}b",
        "\u{1f98a}",
        "b.",
        "-x",
        long.as_str(),
    ] {
        let env = TestEnv::new();
        env.write("rows.jsonl", rows(["one"]));
        let flag = format!("--batch={name}");
        env.run(["run", "rows.jsonl", &flag]).exited(2);
        env.write(
            "named.json",
            json!({"batch": name, "jobs": [{"kind": "image", "prompt": "a"}]}).to_string(),
        );
        let outcome = env.run_raw(["run", "named.json"]);
        outcome.commands_no_terminal();
        // A name of white space is none, and the file's own counts.
        if !name.trim().is_empty() {
            assert_eq!(outcome.code, Some(2), "{name:?}: {}", outcome.stderr);
            assert_eq!(env.audit().totals.tasks, 0, "{name:?}");
            assert!(!env.path("output").exists() || listing(&env.path("output")).is_empty(), "{name:?}");
        }
    }
}

#[test]
fn meta_columns_carry_any_name_into_the_results() {
    let names =
        ["=1+1", "../x", "a\u{1b}[2Jb", "a\nb", "\u{202e}x", "\u{1f98a}", "a,b", "a\"b", "id", "state"];
    let meta: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!(*name))).collect();
    let env = TestEnv::new();
    let row = json!({"id": "one", "kind": "image", "model": "gi-2", "prompt": "a", "meta": meta});
    env.write("batch.jsonl", row.to_string());
    env.run_raw(["run", "batch.jsonl"]).exited(0).commands_no_terminal();
    let outputs = Outputs::of(&env, "batch");
    outputs.is_complete(&["one".to_owned()]);
    assert_eq!(outputs.lines[0]["meta"], Value::Object(meta));
    let mut reader = csv::Reader::from_path(env.path("output/batch/results.csv")).unwrap();
    let headers = reader.headers().unwrap().clone();
    let row = reader.records().next().unwrap().unwrap();
    for name in names {
        let at = headers.iter().position(|header| header == format!("meta.{name}")).unwrap();
        assert_eq!(&row[at], name);
    }
}

// ---- what lies in the output folder ----

#[test]
fn a_batch_folder_that_is_a_link_is_not_written_through() {
    let env = TestEnv::new();
    env.write("elsewhere/mine.png", "mine");
    fs::create_dir(env.path("output")).unwrap();
    symlink(env.path("elsewhere"), env.path("output/batch")).unwrap();
    env.write("batch.jsonl", rows(["one"]));
    env.run(["run", "batch.jsonl"]).exited(6).says("output/batch is a link");
    assert_eq!(listing(&env.path("elsewhere")), ["mine.png".to_owned()].into());
    assert_eq!(env.audit().totals.tasks, 0, "nothing was bought that could not be put down");
    // The folder itself may be one: a person named it.
    fs::remove_file(env.path("output/batch")).unwrap();
    fs::remove_dir_all(env.path("output")).unwrap();
    symlink(env.path("elsewhere"), env.path("output")).unwrap();
    env.run(["run", "batch.jsonl"]).exited(0);
    assert!(env.path("elsewhere/batch/one.png").exists());
}

#[test]
fn links_in_the_way_of_files_are_neither_followed_nor_replaced() {
    let env = TestEnv::new();
    env.write("secret", "mine");
    fs::create_dir_all(env.path("output/batch")).unwrap();
    for name in ["one.png", "two.json"] {
        symlink(env.path("secret"), env.path("output/batch").join(name)).unwrap();
    }
    fs::hard_link(env.path("secret"), env.path("output/batch/three.png")).unwrap();
    symlink(env.path("nowhere"), env.path("output/batch/four.png")).unwrap();
    env.write("batch.jsonl", rows(["one", "two", "three", "four"]));
    env.run(["run", "batch.jsonl"]).exited(0);
    assert_eq!(fs::read_to_string(env.path("secret")).unwrap(), "mine");
    assert!(!env.path("nowhere").exists());
    let outputs = Outputs::of(&env, "batch");
    assert_eq!(outputs.column("state"), ["succeeded"; 4]);
    for file in outputs.lines.iter().flat_map(|line| line["files"].as_array().unwrap()) {
        let path = env.path("output/batch").join(file["path"].as_str().unwrap());
        assert!(path.symlink_metadata().unwrap().is_file(), "{}", path.display());
    }
    for name in ["one.png", "two.json", "four.png"] {
        assert!(env.path("output/batch").join(name).is_symlink(), "{name} is as it was");
    }
    assert_eq!(fs::read_to_string(env.path("output/batch/three.png")).unwrap(), "mine");
}

#[test]
fn links_in_the_way_of_results_and_drafts_touch_nothing_elsewhere() {
    let env = TestEnv::new();
    env.write("secret", "mine");
    fs::create_dir_all(env.path("output/batch")).unwrap();
    for name in ["results.csv", "results.jsonl", "report.json"] {
        symlink(env.path("secret"), env.path("output/batch").join(name)).unwrap();
    }
    env.write("batch.jsonl", rows(["one"]));
    env.run(["run", "batch.jsonl"]).exited(0);
    assert_eq!(fs::read_to_string(env.path("secret")).unwrap(), "mine");
    Outputs::of(&env, "batch").is_complete(&["one".to_owned()]);
    // A draft is opened before it is renamed: a link under its name is refused, not followed.
    symlink(env.path("secret"), env.path("output/batch/.results.csv.draft")).unwrap();
    env.run(["run", "batch.jsonl"]);
    assert_eq!(fs::read_to_string(env.path("secret")).unwrap(), "mine");
}

#[test]
fn a_folder_of_the_layout_that_is_a_link_is_not_written_through() {
    let env = TestEnv::new();
    env.configure("[output]\nlayout = \"{batch}/{kind}/{job}{-n}.{ext}\"");
    fs::create_dir_all(env.path("elsewhere")).unwrap();
    fs::create_dir_all(env.path("output/batch")).unwrap();
    symlink(env.path("elsewhere"), env.path("output/batch/image")).unwrap();
    env.write("batch.jsonl", rows(["one"]));
    env.run(["run", "batch.jsonl"]).exited(1).says("is a link");
    assert_eq!(listing(&env.path("elsewhere")), BTreeSet::new());
    fs::remove_file(env.path("output/batch/image")).unwrap();
    env.run(["download", "batch"]).exited(0);
    env.run(["run", "batch.jsonl"]).exited(0);
    env.audit().each_paid_once(1);
    assert!(env.path("output/batch/image/one.png").exists());
}

// ---- what is said about names ----

#[test]
fn what_a_manifest_holds_is_never_said_raw() {
    let escape = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}";
    for (name, text) in [
        ("batch.jsonl", json!({"id": escape, "kind": escape, "prompt": "a"}).to_string()),
        ("batch.jsonl", json!({"id": escape, "kind": "image", "model": escape, "prompt": "a"}).to_string()),
        ("batch.jsonl", json!({escape: 1, "kind": "image", "prompt": "a"}).to_string()),
        ("batch.jsonl", format!("{{\"id\": {escape}}}")),
        ("batch.csv", format!("id,kind,prompt,{escape}\n1,image,a,b\n")),
        ("batch.csv", format!("id,kind,model,prompt\n{escape},image,{escape},a\n")),
        ("batch.json", json!({"policy": {escape: 1}, "jobs": []}).to_string()),
    ] {
        for command in ["run", "plan"] {
            let env = TestEnv::new();
            env.write(name, &text);
            let outcome = env.run_raw([command, name]);
            assert_ne!(outcome.code, Some(0), "{text:?}");
            outcome.commands_no_terminal();
        }
    }
    let env = TestEnv::new();
    env.write("a\u{1b}[2J.csv", "id\n");
    env.run_raw(["run", "a\u{1b}[2J.csv"]).commands_no_terminal();
    env.write(
        "callsheet.toml",
        format!("[limits]\n\"{escape}\" = 1\n").replace('\u{1b}', "\\u001b").replace('\u{7}', "\\u0007"),
    );
    env.run_raw(["run", "batch.csv"]).commands_no_terminal();
}

#[test]
fn names_of_files_and_folders_are_never_said_raw() {
    let name = |what: &str| format!("{what}\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{202e}");
    let (manifest, output, state, export) =
        (name("rows") + ".jsonl", name("out"), name("state"), name("dump"));
    let env = TestEnv::new();
    env.write(&manifest, rows(["one", "two", "two"]) + "{\"kind\":\"image\"}\n");
    let (output, state) = (format!("--output={output}"), format!("--state={state}"));
    let imported = name("--state=imported");
    for (code, arguments) in [
        (2, vec!["plan", &manifest, "--batch=batch", &state]),
        (2, vec!["run", &manifest, "--batch=batch", &state, &output]),
        (0, vec!["status", &state]),
        (0, vec!["explain", "one", &state]),
        (0, vec!["state", "verify", &state]),
        (0, vec!["state", "export", &export, &state]),
        (2, vec!["state", "export", &export, &state]),
        (0, vec!["state", "import", &export, &imported]),
        (0, vec!["state", "rebuild", &state, &output]),
        (0, vec!["doctor", &state, &output]),
        (0, vec!["download", "batch", &state, &output]),
    ] {
        let outcome = env.run_raw(arguments.clone());
        outcome.commands_no_terminal();
        outcome.exited(code);
        if arguments[0] == "state" && arguments[1] == "rebuild" {
            fs::remove_file(env.path(&output["--output=".len()..]).join("batch/one.png")).unwrap();
        }
    }
    env.audit().each_paid_once(2);
}

/// Runs a command whose arguments need not be UTF-8.
fn start_bytes(env: &TestEnv, words: &[&[u8]]) -> Running {
    let mut command = env.command([]);
    command.args(words.iter().map(|word| OsStr::from_bytes(word)));
    Running::start(command)
}

#[test]
fn paths_that_are_not_utf8_end_no_command_and_hide_no_daemon() {
    let env = TestEnv::new();
    let folder = env.path("").join(OsStr::from_bytes(b"x\xff"));
    let run = |words: &[&[u8]]| start_bytes(&env, words).end();
    let error = |said: &str| serde_json::from_str::<Value>(said).unwrap()["error"].clone();
    assert_eq!(
        run(&[b"init", b"x\xff", b"--json"]).exited(0).json()["written"][1],
        "x\u{fffd}/jobs/sample.csv"
    );
    fs::write(folder.join("bad.csv"), "id,kind,prompt\na,sound-effect,\nb,sound-effect,rain\n").unwrap();
    fs::write(folder.join("wrong.toml"), "[limits]\nin_flight = \"many\"\n").unwrap();
    let wrong = run(&[b"status", b"--config", b"x\xff/wrong.toml", b"--json"]).exited(2);
    assert_eq!(error(&wrong.stderr)["problems"][0]["file"], "x\u{fffd}/wrong.toml");
    let bad = run(&[b"run", b"x\xff/bad.csv", b"--json"]).exited(2);
    assert_eq!(error(&bad.stderr)["problems"][0]["file"], "x\u{fffd}/bad.csv");
    assert_eq!(bad.json()["batches"][0]["succeeded"], 1);

    let state: &[&[u8]] = &[b"--state", b"x\xff/state", b"--output", b"x\xff/out"];
    let on_state =
        |words: &[&'static [u8]]| words.iter().copied().chain(state.iter().copied()).collect::<Vec<_>>();
    let daemon = start_bytes(&env, &on_state(&[b"daemon", b"--log-level", b"info"]));
    daemon.says("ready");
    run(&on_state(&[b"submit", b"x\xff/bad.csv", b"--batch", b"more", b"--wait"])).exited(2);
    let status = run(&on_state(&[b"status", b"more", b"--json"])).exited(0).json();
    assert_eq!(status["batches"][0]["succeeded"], 1);
    let page = run(&on_state(&[b"open", b"more", b"--json"])).exited(0).json();
    assert!(page["page"].as_str().unwrap().ends_with("x\u{fffd}/out/more/index.html"), "{page}");
    daemon.stop();
    run(&on_state(&[b"open", b"more", b"--print"])).exited(0);
    let rebuilt = run(&on_state(&[b"state", b"rebuild", b"--json"])).exited(0).json();
    assert!(rebuilt["aside"].as_str().unwrap().contains("x\u{fffd}/state/aside"), "{rebuilt}");
    env.audit().each_paid_once(2);
}
