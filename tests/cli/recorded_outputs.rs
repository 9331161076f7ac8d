//! Outputs that lie where their records say, whatever the layout is by now and whether or not their sidecars are there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::TestEnv;
use crate::support::process::{Outcome, Running};
use crate::support::s3::S3Server;

const STORE: &str = "[output]\nstore = \"s3://media/out\"\n";
const MADE: &str = "layout = \"{batch}/made/{job}{-n}.{ext}\"\n";

/// Writes a manifest of images, as `(id, prompt)`, whose batch has this layout; that of the configuration where it has none.
fn write(env: &TestEnv, layout: Option<&str>, rows: &[(&str, &str)]) {
    let row =
        |(id, prompt): &(&str, &str)| json!({"id": id, "kind": "image", "model": "gi-2", "prompt": prompt});
    let mut manifest = json!({"jobs": rows.iter().map(row).collect::<Vec<_>>()});
    if let Some(layout) = layout {
        manifest["policy"] = json!({"layout": layout});
    }
    env.write("birds.json", manifest.to_string());
}

const BIRDS: [(&str, &str); 2] = [("crow", "a crow"), ("gull", "a gull")];
const IN_MADE: Option<&str> = Some("{batch}/made/{job}{-n}.{ext}");

/// A batch that is done, and whose layout is another one by now.
fn with_changed_layout() -> TestEnv {
    let env = TestEnv::new();
    write(&env, None, &BIRDS);
    env.run(["run", "birds.json"]).exited(0);
    write(&env, IN_MADE, &BIRDS);
    env.run(["run", "birds.json"]).exited(0);
    env
}

fn run(env: &TestEnv, store: &S3Server, arguments: &[&str]) -> Outcome {
    let mut command = env.command(arguments.iter().copied());
    store.give_to(&mut command);
    Running::start(command).end()
}

fn dir(env: &TestEnv) -> PathBuf {
    env.path("output/birds")
}

/// Every image in the batch's folder, by its path.
fn images(env: &TestEnv) -> BTreeSet<String> {
    fn add(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("gallery") {
                add(root, &path, found);
            } else if path.extension().is_some_and(|ext| ext == "png") {
                found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut found = BTreeSet::new();
    add(&dir(env), &dir(env), &mut found);
    found
}

/// Where the outputs lie by the results, as `prompt: path`, without the digits of identities. Each is there as it was recorded,
/// under a path of its own.
fn recorded(env: &TestEnv) -> Vec<String> {
    let text = fs::read_to_string(dir(env).join("results.jsonl")).unwrap();
    let (mut told, mut paths) = (Vec::new(), BTreeSet::new());
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for file in line["files"].as_array().unwrap() {
            let path = file["path"].as_str().unwrap();
            let content = fs::read(dir(env).join(path)).unwrap();
            let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(file["sha256"], hash, "{path}");
            assert!(paths.insert(path.to_owned()), "{path} twice");
            let path = path.replace(&line["job"].as_str().unwrap()[..8], "ID");
            told.push(format!("{}: {path}", line["prompt"].as_str().unwrap()));
        }
    }
    told
}

const PLAIN: [&str; 2] = ["a crow: crow.png", "a gull: gull.png"];

#[test]
fn a_batch_keeps_the_layout_that_it_began_with() {
    let env = TestEnv::new();
    write(&env, None, &BIRDS);
    env.run(["run", "birds.json"]).exited(0);
    env.configure(&format!("[output]\n{MADE}"));
    write(&env, None, &[("crow", "a crow"), ("gull", "a gull in a storm"), ("owl", "an owl")]);
    env.run(["run", "birds.json"]).exited(0);
    let mut told = recorded(&env);
    told.sort();
    let expected =
        ["a crow: crow.png", "a gull in a storm: gull.png", "a gull: gull-ID.png", "an owl: owl.png"];
    assert_eq!(told, expected);
    fs::copy(env.path("birds.json"), env.path("others.json")).unwrap();
    env.run(["run", "others.json"]).exited(0);
    assert!(env.path("output/others/made/owl.png").exists());
    // A manifest that asks for another layout is heard.
    write(&env, IN_MADE, &[("wren", "a wren")]);
    env.run(["run", "birds.json"]).exited(0);
    assert!(dir(&env).join("made/wren.png").exists());
    env.run(["state", "verify"]).exited(0);
    env.audit().each_paid_once(8);
}

#[test]
fn outputs_of_an_earlier_layout_are_on_disk_and_are_restored_to_where_they_were() {
    let env = with_changed_layout();
    env.run(["download", "birds"]).exited(0).says("nothing to download");
    // The object store gets them, and gives them back.
    let store = S3Server::start();
    env.configure(STORE);
    run(&env, &store, &["outputs", "sync", "birds"]).exited(0).says("2 uploaded, 0 restored");
    let names = ["crow.png", "gull.png", "sidecars/crow.json", "sidecars/gull.json"];
    assert!(store.objects().keys().eq(names.map(|name| format!("out/birds/{name}")).iter()));
    fs::remove_file(dir(&env).join("crow.png")).unwrap();
    run(&env, &store, &["outputs", "sync", "birds"]).exited(0).says("0 uploaded, 1 restored");
    assert_eq!(images(&env), ["crow.png", "gull.png"].map(str::to_owned).into());
    // So does the service.
    env.configure("");
    fs::remove_file(dir(&env).join("gull.png")).unwrap();
    env.run(["download", "birds"]).exited(0).says("1 of 1 downloaded");
    // With the whole folder gone, too.
    fs::remove_dir_all(dir(&env)).unwrap();
    env.run(["download", "birds"]).exited(0).says("2 of 2 downloaded");
    assert_eq!(images(&env), ["crow.png", "gull.png"].map(str::to_owned).into());
    assert_eq!(recorded(&env), PLAIN);
    env.run(["state", "verify"]).exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn outputs_without_sidecars_are_on_disk() {
    let env = with_changed_layout();
    let store = S3Server::start();
    fs::remove_dir_all(dir(&env).join("sidecars")).unwrap();
    env.run(["download", "birds"]).exited(0).says("nothing to download");
    env.configure(STORE);
    run(&env, &store, &["outputs", "sync", "birds"]).exited(0).says("2 uploaded, 0 restored");
    assert!(store.objects().keys().eq(["out/birds/crow.png", "out/birds/gull.png"]));
    fs::remove_file(dir(&env).join("crow.png")).unwrap();
    run(&env, &store, &["outputs", "sync", "birds"]).exited(0).says("1 restored");
    env.configure("");
    fs::remove_file(dir(&env).join("gull.png")).unwrap();
    env.run(["download", "birds"]).exited(0).says("1 of 1 downloaded");
    assert_eq!(recorded(&env), PLAIN);
    // What is brought back has its sidecar again.
    assert!(dir(&env).join("sidecars/crow.json").exists() && dir(&env).join("sidecars/gull.json").exists());
    env.audit().each_paid_once(2);
}

#[test]
fn what_a_person_edited_or_put_there_stays_under_an_earlier_layout_and_without_sidecars() {
    for has_sidecars in [true, false] {
        let env = with_changed_layout();
        if !has_sidecars {
            fs::remove_dir_all(dir(&env).join("sidecars")).unwrap();
        }
        fs::write(dir(&env).join("crow.png"), "edited").unwrap();
        fs::remove_file(dir(&env).join("gull.png")).unwrap();
        fs::create_dir(dir(&env).join("gull.png")).unwrap();
        fs::write(dir(&env).join("gull.png/theirs"), "theirs").unwrap();
        env.run(["download", "birds"]).exited(0).says("2 of 2 downloaded");
        assert_eq!(fs::read(dir(&env).join("crow.png")).unwrap(), b"edited");
        assert_eq!(fs::read(dir(&env).join("gull.png/theirs")).unwrap(), b"theirs");
        assert_eq!(recorded(&env), ["a crow: made/crow-ID.png", "a gull: made/gull-ID.png"]);
        // Again, to where they are by now.
        let of_results = recorded(&env);
        for path in images(&env).iter().filter(|path| path.starts_with("made/")) {
            fs::remove_file(dir(&env).join(path)).unwrap();
        }
        env.run(["download", "birds"]).exited(0).says("2 of 2 downloaded");
        assert_eq!(recorded(&env), of_results);
        env.audit().each_paid_once(2);
    }
}

#[test]
fn versions_of_edited_rows_move_aside_from_where_they_are_recorded() {
    for has_sidecars in [true, false] {
        let env = with_changed_layout();
        let remove_sidecars = || {
            if !has_sidecars {
                fs::remove_dir_all(dir(&env).join("sidecars")).unwrap();
            }
        };
        remove_sidecars();
        write(&env, IN_MADE, &[("crow", "a crow"), ("gull", "a gull in a storm")]);
        env.run(["run", "birds.json"]).exited(0);
        let edited = ["a crow: crow.png", "a gull: made/gull-ID.png", "a gull in a storm: made/gull.png"];
        assert_eq!(recorded(&env), edited);
        // Back to the first version, under the first layout.
        remove_sidecars();
        write(&env, Some("{batch}/{job}{-n}.{ext}"), &BIRDS);
        env.run(["run", "birds.json"]).exited(0);
        let back = ["a crow: crow.png", "a gull: gull.png", "a gull in a storm: gull-ID.png"];
        assert_eq!(recorded(&env), back);
        assert_eq!(images(&env).len(), 3);
        env.run(["download", "birds"]).exited(0).says("nothing to download");
        env.run(["state", "verify"]).exited(0);
        env.audit().each_paid_once(3);
    }
}

#[test]
fn a_version_whose_files_are_gone_gives_its_name_up_too() {
    let env = TestEnv::new();
    write(&env, None, &BIRDS);
    env.run(["run", "birds.json"]).exited(0);
    fs::remove_dir_all(dir(&env)).unwrap();
    write(&env, None, &[("crow", "a crow"), ("gull", "a gull in a storm")]);
    env.run(["run", "birds.json"]).exited(0);
    env.run(["download", "birds"]).exited(0).says("2 of 2 downloaded");
    assert_eq!(recorded(&env), ["a crow: crow.png", "a gull: gull-ID.png", "a gull in a storm: gull.png"]);
    env.audit().each_paid_once(3);
}

#[test]
fn a_state_that_is_gone_buys_nothing_again_that_lies_there_under_another_layout() {
    for sidecars in ["folder", "beside"] {
        let env = TestEnv::new();
        env.configure(&format!("[output]\nsidecars = \"{sidecars}\"\n"));
        let short =
            json!([{"id": "short", "kind": "shorts-studio", "max_credits": 100, "options": {"taskId": "t"}}]);
        env.write("m.json", short.to_string());
        env.run(["run", "m.json"]).exited(0);
        let paid = env.audit().totals.charged_credits;
        fs::remove_dir_all(env.path("state")).unwrap();
        env.configure(&format!("[output]\n{MADE}"));
        env.run(["run", "m.json"]).exited(1).says("made and paid for before, and nothing was bought");
        env.run(["retry", "m"]).exited(0);
        env.run(["run", "m.json"]).exited(1).says("made and paid for before, and nothing was bought");
        assert_eq!(env.audit().totals.charged_credits, paid, "bought once");
        // Once that is wanted.
        let folder = if sidecars == "folder" { "sidecars/" } else { "" };
        fs::rename(env.path(&format!("output/m/{folder}short.json")), env.path("short.json")).unwrap();
        env.run(["retry", "m/short"]).exited(0);
        env.run(["run", "m.json"]).exited(0);
        assert_eq!(env.audit().totals.charged_credits, 2 * paid);
    }
}

#[test]
fn a_rebuilt_state_finds_outputs_of_an_earlier_layout_by_their_sidecars() {
    let env = with_changed_layout();
    fs::remove_dir_all(env.path("state/db")).unwrap();
    fs::remove_file(env.path("state/spool/000001/outcomes")).unwrap();
    let rebuilt = env.run(["state", "rebuild", "--json"]).exited(0).json();
    assert_eq!((&rebuilt["from_sidecars"], &rebuilt["open"]), (&2.into(), &0.into()));
    env.run(["run", "birds.json"]).exited(0);
    assert_eq!(recorded(&env), PLAIN);
    env.audit().each_paid_once(2);
}
