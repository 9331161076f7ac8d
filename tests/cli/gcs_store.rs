//! Google Cloud Storage as the store of outputs and inputs: whole, bought once, no object of others replaced, and no
//! credentials left anywhere.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use hyper::Method;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::collect_outputs::{Outputs, stored_files};
use crate::support::gcs::GcsServer;
use crate::support::process::{Outcome, Running};
use crate::support::s3::StoreFault;
use crate::support::scripted_proxy::{Act, Route, ScriptedProxy};
use crate::support::{TestEnv, case_share, until};

const OUTPUTS: &str = "[output]\nstore = \"gs://media/out\"\n";
const INPUTS: &str = "[inputs]\nstore = \"gs://media/my refs\"\n";
const STILLS: &str = "id,kind,model,prompt\na,image,gi-2,a fox\nb,image,gi-2,a gull\n";
const WITH_FILE: &str = "id,kind,model,prompt,image_urls\na,image,gi-2,a fox,./logo.png\n";

fn png(more: usize) -> Vec<u8> {
    let mut picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde!".to_vec();
    picture.extend((0..=250_u8).cycle().take(more));
    picture
}

fn env(sections: &str) -> (TestEnv, GcsServer) {
    let (env, store) = (TestEnv::new(), GcsServer::start());
    env.configure(sections);
    env.write("account.json", store.key_file().to_string());
    env.write("stills.csv", STILLS);
    env.write("logo.png", png(0));
    env.write("clips.csv", WITH_FILE);
    (env, store)
}

fn command(env: &TestEnv, store: &GcsServer, arguments: &[&str]) -> Command {
    let mut command = env.command(arguments.iter().copied());
    command.env("GOOGLE_SERVICE_ACCOUNT", env.path("account.json")).env("GOOGLE_BASE_URL", store.base_url());
    command
}

fn run(env: &TestEnv, store: &GcsServer, arguments: &[&str]) -> Outcome {
    ended(env, store, command(env, store, arguments))
}

/// The end of a command that says and leaves nothing of the store's credentials.
fn ended(env: &TestEnv, store: &GcsServer, command: Command) -> Outcome {
    let outcome = Running::start(command).end();
    for left in ["state", "output"] {
        store.secrets_are_nowhere(&env.path(left), &[&outcome.stdout, &outcome.stderr]);
    }
    outcome
}

fn killed(env: &TestEnv, store: &GcsServer, arguments: &[&str], point: &str) {
    let mut command = command(env, store, arguments);
    command.env("CALLSHEET_FAILPOINT", point);
    ended(env, store, command).was_killed(point);
}

/// What `doctor` says of a store.
fn diagnosis(env: &TestEnv, store: &GcsServer, mut command: Command, about: &str) -> (String, String) {
    command.args(["doctor", "--json"]);
    let outcome = ended(env, store, command);
    let checks: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let check = checks["checks"].as_array().unwrap().iter().find(|check| check["check"] == about).unwrap();
    let text = |key: &str| check[key].as_str().unwrap().to_owned();
    (text("level"), text("found"))
}

#[test]
fn outputs_and_sidecars_become_objects_that_say_whose_they_are() {
    let (env, store) = env(OUTPUTS);
    run(&env, &store, &["run", "stills.csv", "--log-level", "trace"]).exited(0);
    let disk = stored_files(&env, "stills");
    assert_eq!((store.objects(), disk.len()), (disk, 4));
    let lines = Outputs::of(&env, "stills").lines;
    for (name, object) in store.found() {
        let line = &lines[usize::from(name.contains("/b.") || name.contains("/b-"))];
        let sha256: String =
            Sha256::digest(&object.content).iter().map(|byte| format!("{byte:02x}")).collect();
        let said = |key: &str| object.metadata.get(key).map(String::as_str);
        assert_eq!(said("callsheet-batch"), Some("stills"), "{name}");
        assert_eq!(said("callsheet-sha256"), Some(sha256.as_str()), "{name}");
        assert_eq!(said("callsheet-job"), line["job"].as_str(), "{name}");
        assert_eq!(
            said("callsheet-price").map(str::to_owned),
            Some(line["charged_credits"].to_string()),
            "{name}"
        );
        let is_sidecar = Path::new(&name).extension().is_some_and(|ext| ext == "json");
        assert_eq!(object.content_type, if is_sidecar { "application/json" } else { "image/png" }, "{name}");
    }
    assert_eq!(lines[0]["files"][0]["object"], "gs://media/out/stills/a.png");
    // All is there: nothing is put anew, and what was confirmed once is not read again.
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    run(&env, &store, &["outputs", "sync", "stills"])
        .exited(0)
        .says("of 2 jobs are on disk and in the object store");
    assert_eq!((store.requests(&Method::PUT), store.objects_read()), (4, 4));
    env.audit().each_paid_once(2);
    run(&env, &store, &["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn objects_of_others_are_never_replaced() {
    let (env, store) = env(OUTPUTS);
    store.put_theirs("out/stills/a.png", "theirs");
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!(store.objects()["out/stills/a.png"], b"theirs");
    let object = Outputs::of(&env, "stills").lines[0]["files"][0]["object"].as_str().unwrap().to_owned();
    let name = object.strip_prefix("gs://media/").unwrap();
    assert!(name.starts_with("out/stills/a-"), "{name}");
    assert_eq!(store.objects()[name], fs::read(env.path("output/stills/a.png")).unwrap());
    // Also where another program took the name between the look and the upload.
    let (puts, lost) = (store.requests(&Method::PUT), "out/stills/b.png");
    store.remove(lost);
    store.take_name_before_the_next_put(lost, "theirs");
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("1 uploaded");
    assert_eq!(store.objects()[lost], b"theirs");
    assert_eq!(store.requests(&Method::PUT), puts + 2, "the first one was refused by its condition");
    env.audit().each_paid_once(2);
}

#[test]
fn an_edited_row_takes_the_plain_name_there_too() {
    let (env, store) = env(OUTPUTS);
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let first = store.objects()["out/stills/a.png"].clone();
    env.write("stills.csv", STILLS.replace("a fox", "a red fox"));
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let disk = stored_files(&env, "stills");
    assert_eq!(store.objects(), disk);
    assert!(disk["out/stills/a.png"] != first && disk.values().any(|content| *content == first));
    // And back.
    env.write("stills.csv", STILLS);
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!(store.objects()["out/stills/a.png"], first);
    env.audit().each_paid_once(3);
}

#[test]
fn what_one_side_lacks_comes_from_the_other() {
    let (env, store) = env(OUTPUTS);
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let names: Vec<String> = store.objects().into_keys().collect();
    store.remove("out/stills/a.png");
    fs::remove_file(env.path("output/stills/b.png")).unwrap();
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("1 uploaded, 1 restored");
    assert_eq!(store.objects(), stored_files(&env, "stills"));
    assert!(store.objects().into_keys().eq(names));
    fs::remove_dir_all(env.path("output/stills")).unwrap();
    // Again where it broke off.
    store.fault(&Method::GET, StoreFault::HalfAnswered, 3);
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("0 uploaded, 2 restored");
    assert_eq!(store.objects(), stored_files(&env, "stills"));
    env.audit().each_paid_once(2);
}

#[test]
fn a_file_is_sent_as_a_signed_link_that_can_be_fetched() {
    let (env, store) = env("");
    let proxy = ScriptedProxy::before(&env.base_url(), |_| Act::Pass);
    env.configure_for(&proxy.base_url(), "", INPUTS);
    run(&env, &store, &["run", "clips.csv", "--log-level", "trace"]).exited(0);
    let objects = store.objects();
    let (name, content) = objects.first_key_value().unwrap();
    assert!(name.starts_with("my refs/inputs/") && objects.len() == 1, "{name}");
    assert_eq!(*content, png(0));
    let sent: Value = serde_json::from_str(&proxy.calls(Route::Create)[0].body).unwrap();
    let link = sent["image_urls"][0].as_str().unwrap();
    assert_eq!(store.fetch(link), (200, png(0)));
    for changed in [link.replace(".png", ".jpg"), link.replace("X-Goog-Expires=", "X-Goog-Expires=9")] {
        assert_eq!(store.fetch(&changed).0, 403, "{changed}");
    }
    assert_eq!(store.fetch(link.split_once('?').unwrap().0).0, 401, "nobody reads the bucket without a link");
    env.audit().each_paid_once(1);
}

#[test]
fn a_large_output_goes_in_parts_and_replaces_nothing_either() {
    let (env, store) = env("");
    let proxy = ScriptedProxy::with_large_sounds(&env.base_url());
    env.configure_for(&proxy.base_url(), "", OUTPUTS);
    env.write("talks.csv", "id,kind,voice_id,text\na,speech,aria,a gull\n");
    store.fault(&Method::POST, StoreFault::Status(503), 2);
    run(&env, &store, &["run", "talks.csv"]).exited(0);
    let disk = stored_files(&env, "talks");
    let large = &disk["out/talks/a.wav"];
    assert!(large.len() > 8 << 20, "{} bytes", large.len());
    assert_eq!(store.objects(), disk);
    let said = &store.found()["out/talks/a.wav"];
    assert_eq!(
        (said.content_type.as_str(), said.metadata["callsheet-batch"].as_str()),
        ("audio/x-wav", "talks")
    );
    store.put_theirs("out/more/a.wav", "theirs");
    run(&env, &store, &["run", "talks.csv", "--batch", "more"]).exited(0);
    assert_eq!(store.objects()["out/more/a.wav"], b"theirs");
    assert_eq!(store.objects().into_values().filter(|object| object == large).count(), 2);
    assert_eq!(store.unfinished(), 0);
    env.audit().each_paid_once(2);
}

#[test]
fn a_large_upload_goes_on_where_it_broke_off() {
    let (env, store) = env(INPUTS);
    let picture = png(44_000_000);
    env.write("logo.png", &picture);
    let parts = picture.len().div_ceil(8 << 20);
    for point in ["part-stored:3", "completing-parts"] {
        killed(&env, &store, &["run", "clips.csv"], point);
    }
    let puts = store.requests(&Method::PUT);
    assert!((parts..=parts + 3).contains(&puts), "{puts} parts were sent of {parts}");
    run(&env, &store, &["run", "clips.csv"]).exited(0);
    assert_eq!(store.requests(&Method::PUT), puts, "all parts were there");
    assert!(store.objects().into_values().eq([picture]), "it is whole");
    assert_eq!((store.unfinished(), fs::read_dir(env.path("state/uploads")).unwrap().count()), (0, 0));
    env.audit().each_paid_once(1);
}

#[test]
fn whatever_happens_to_a_request_each_output_is_there_once_and_whole() {
    let faults = [
        StoreFault::Cut,
        StoreFault::Unanswered,
        StoreFault::Corrupted,
        StoreFault::CorruptedAndUnanswered,
        StoreFault::HalfAnswered,
        StoreFault::Code(429, "TooManyRequests"),
        StoreFault::Code(503, "ServiceUnavailable"),
    ];
    let methods = [Method::PUT, Method::HEAD, Method::GET];
    let cases = faults.into_iter().flat_map(|fault| methods.clone().map(|method| (fault, method)));
    // A plain run has the upload that is damaged on its way.
    for (fault, method) in case_share::of_this_run(cases, 2) {
        let (env, store) = env(OUTPUTS);
        // More often than one request is repeated by itself.
        store.fault(&method, fault, 8);
        run(&env, &store, &["run", "stills.csv"]).exited(0);
        assert_eq!(store.objects(), stored_files(&env, "stills"), "{fault:?} {method}");
        env.audit().each_paid_once(2);
    }
}

#[test]
fn killed_at_every_step_each_output_is_there_once_and_paid_for_once() {
    for point in
        ["published", "storing", "confirming", "confirming:2", "stored", "stored:2", "stored:3", "ended"]
    {
        let (env, store) = env(OUTPUTS);
        killed(&env, &store, &["run", "stills.csv"], point);
        run(&env, &store, &["run", "stills.csv"]).exited(0);
        assert_eq!(store.objects(), stored_files(&env, "stills"), "{point}");
        env.audit().each_paid_once(2);
    }
}

#[test]
fn killed_at_every_step_of_an_upload_a_file_is_there_and_paid_for_once() {
    for point in ["finding-inputs", "uploading", "confirming", "uploaded"] {
        let (env, store) = env(INPUTS);
        killed(&env, &store, &["run", "clips.csv"], point);
        run(&env, &store, &["run", "clips.csv"]).exited(0);
        assert_eq!(store.objects().into_values().collect::<Vec<_>>(), [png(0)], "{point}");
        env.audit().each_paid_once(1);
    }
}

/// Google is not told the SHA-256: who was killed before an object was read back does not know what it holds.
#[test]
fn what_was_damaged_on_its_way_is_found_after_a_kill_too() {
    for (section, manifest) in [(OUTPUTS, "stills.csv"), (INPUTS, "clips.csv")] {
        let (env, store) = env(section);
        store.fault(&Method::PUT, StoreFault::Corrupted, 1);
        killed(&env, &store, &["run", manifest], "confirming");
        run(&env, &store, &["run", manifest]).exited(0);
        match section {
            OUTPUTS => assert_eq!(store.objects(), stored_files(&env, "stills")),
            _ => assert_eq!(store.objects().into_values().collect::<Vec<_>>(), [png(0)]),
        }
        env.audit().each_paid_once(if section == OUTPUTS { 2 } else { 1 });
    }
}

#[test]
fn a_bucket_that_vanishes_is_said_and_waited_for() {
    let (env, store) = env(OUTPUTS);
    store.set_bucket_gone(true);
    let (level, found) = diagnosis(&env, &store, command(&env, &store, &[]), "outputs");
    assert_eq!((level.as_str(), found.contains("there is no such bucket")), ("wrong", true), "{found}");
    store.set_bucket_gone(false);
    assert_eq!(diagnosis(&env, &store, command(&env, &store, &[]), "outputs").0, "good");
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    store.set_bucket_gone(true);
    run(&env, &store, &["submit", "stills.csv"]).exited(0);
    let status = || -> Value {
        run(&env, &store, &["status", "stills", "--json"]).exited(0).json()["batches"][0].clone()
    };
    until("the queue is parked", || status()["parked_by"] == "store");
    daemon.says("there is no such bucket");
    store.set_bucket_gone(false);
    until("all are done", || status()["state"] == "done");
    daemon.stop().exited(0);
    assert_eq!(store.objects(), stored_files(&env, "stills"));
    env.audit().each_paid_once(2);
}

#[test]
fn wrong_credentials_are_told_at_the_start_and_by_doctor() {
    let (env, store) = env(&format!("{OUTPUTS}{INPUTS}"));
    let mut account = store.key_file();
    account["client_email"] = "somebody@else.example".into();
    env.write("account.json", account.to_string());
    for process in [&["daemon"][..], &["run", "stills.csv", "--budget", "0"]] {
        let running = Running::start(command(&env, &store, process));
        running.says("the store does not accept the credentials");
        // It may not listen to signals yet.
        drop(running);
    }
    for about in ["outputs", "inputs"] {
        let (level, found) = diagnosis(&env, &store, command(&env, &store, &[]), about);
        assert_eq!(level, "wrong", "{found}");
        assert!(found.contains("does not accept the credentials"), "{found}");
    }
    // Files that are none, and say so without what is in them.
    let mut broken = store.key_file();
    broken["private_key"] = broken["private_key"].as_str().unwrap().replace("MII", "MIJ").into();
    for content in [broken.to_string(), "{\"private_key\": ".to_owned()] {
        env.write("account.json", content);
        run(&env, &store, &["run", "stills.csv"])
            .exited(2)
            .says("error: inputs.store: gs://media/my%20refs: ");
    }
    fs::remove_file(env.path("account.json")).unwrap();
    run(&env, &store, &["run", "stills.csv"]).exited(2).says("account.json");
    assert!(env.audit().tasks.is_empty() && store.objects().is_empty());
}

#[test]
fn credentials_come_from_the_application_and_from_the_machine() {
    let (env, store) = env(OUTPUTS);
    let mut by_file = env.command(["run", "stills.csv"]);
    by_file
        .env("GOOGLE_APPLICATION_CREDENTIALS", env.path("account.json"))
        .env("GOOGLE_BASE_URL", store.base_url());
    ended(&env, &store, by_file).exited(0);
    env.write("home/.config/gcloud/application_default_credentials.json", store.key_file().to_string());
    let mut by_home = env.command(["run", "stills.csv", "--batch", "second"]);
    by_home.env("HOME", env.path("home")).env("GOOGLE_BASE_URL", store.base_url());
    ended(&env, &store, by_home).exited(0);
    let mut on_machine = env.command(["run", "stills.csv", "--batch", "third"]);
    store.give_by_metadata_to(&mut on_machine);
    ended(&env, &store, on_machine).exited(0);
    let disk: BTreeMap<_, _> =
        ["stills", "second", "third"].iter().flat_map(|batch| stored_files(&env, batch)).collect();
    assert_eq!(store.objects(), disk);
    env.audit().each_paid_once(6);
}

/// Google signs for a machine with keys that it changes.
#[test]
fn a_row_is_refused_whose_deadline_is_after_the_end_of_links_of_a_machine() {
    let (env, store) = env(&format!("{INPUTS}[deadlines]\nimage = \"13h\"\n"));
    let mut on_machine = env.command(["run", "clips.csv"]);
    store.give_by_metadata_to(&mut on_machine);
    // Nothing of it asks Google.
    on_machine.env("https_proxy", "http://127.0.0.1:1").env("no_proxy", "127.0.0.1");
    ended(&env, &store, on_machine).exited(1).says("credentials_too_short");
    let explained = run(&env, &store, &["explain", "clips/a"]).exited(0).stdout;
    assert!(
        explained.contains("are valid for 12h; the deadline is 13h off; use the key file"),
        "{explained}"
    );
    assert!(store.objects().is_empty() && env.audit().tasks.is_empty(), "nothing was uploaded or bought");
    run(&env, &store, &["retry", "clips"]).exited(0);
    run(&env, &store, &["run", "clips.csv"]).exited(0);
    env.audit().each_paid_once(1);
}
