//! Object stores that fail, and credentials: what is lost is tried again, what is wrong is said, and nothing is bought twice.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use chrono::{TimeDelta, Utc};
use hyper::Method;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::process::{Outcome, Running};
use crate::support::s3::{
    ACCESS_KEY, S3Server, SECRET_KEY, SESSION_TOKEN, StoreFault, store_secrets_are_nowhere,
};
use crate::support::strace::{has_strace, strace};
use crate::support::tls::{Face, Front};
use crate::support::{TestEnv, case_share, until};

const OUTPUTS: &str = "[output]\nstore = \"s3://media/out\"\n";
const INPUTS: &str = "[inputs]\nstore = \"s3://media/refs\"\n";
const STILLS: &str = "id,kind,model,prompt\na,image,gi-2,a fox\nb,image,gi-2,a gull\n";
const WITH_FILE: &str = "id,kind,model,prompt,image_urls\na,image,gi-2,a fox,./logo.png\n";

fn png() -> Vec<u8> {
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde!".to_vec()
}

fn env(sections: &str) -> (TestEnv, S3Server) {
    let env = TestEnv::new();
    env.configure(sections);
    env.write("stills.csv", STILLS);
    env.write("logo.png", png());
    env.write("clips.csv", WITH_FILE);
    (env, S3Server::start())
}

fn command(env: &TestEnv, store: &S3Server, arguments: &[&str]) -> Command {
    let mut command = env.command(arguments.iter().copied());
    store.give_to(&mut command);
    command
}

fn run(env: &TestEnv, store: &S3Server, arguments: &[&str]) -> Outcome {
    ended(env, command(env, store, arguments))
}

fn status_of(env: &TestEnv, store: &S3Server, batch: &str) -> Value {
    run(env, store, &["status", batch, "--json"]).exited(0).json()["batches"][0].clone()
}

/// The end of a command that says and leaves nothing of the store's credentials.
fn ended(env: &TestEnv, command: Command) -> Outcome {
    let outcome = Running::start(command).end();
    for left in ["state", "output"] {
        store_secrets_are_nowhere(&env.path(left), &[&outcome.stdout, &outcome.stderr]);
    }
    outcome
}

/// The outputs and sidecars on disk, by the names of their objects.
fn on_disk(env: &TestEnv) -> BTreeMap<String, Vec<u8>> {
    let names = ["a.png", "b.png", "sidecars/a.json", "sidecars/b.json"];
    let file =
        |name| (format!("out/stills/{name}"), fs::read(env.path(&format!("output/stills/{name}"))).unwrap());
    names.map(file).into()
}

fn in_an_hour(hours: i64) -> String {
    (Utc::now() + TimeDelta::hours(hours)).format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn in_minutes(minutes: i64) -> String {
    (Utc::now() + TimeDelta::minutes(minutes)).format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What `doctor` says of a store.
fn diagnosis(env: &TestEnv, mut command: Command, about: &str) -> Value {
    command.args(["doctor", "--json"]);
    let outcome = ended(env, command);
    let checks: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let all = checks["checks"].as_array().unwrap().clone();
    all.into_iter().find(|check| check["check"] == about).unwrap()
}

#[test]
fn whatever_happens_to_a_request_each_output_is_there_once_and_whole() {
    let faults = [
        StoreFault::Cut,
        StoreFault::Unanswered,
        StoreFault::Corrupted,
        StoreFault::Code(503, "SlowDown"),
        StoreFault::Code(400, "BadDigest"),
        StoreFault::Code(403, "RequestTimeTooSkewed"),
        StoreFault::Status(500),
    ];
    let methods = [Method::PUT, Method::HEAD].into_iter();
    let cases = methods.flat_map(|method| faults.map(|fault| (fault, method.clone())));
    // A plain run has the upload that is damaged on its way.
    for (fault, method) in case_share::of_this_run(cases, 2) {
        let (env, store) = env(OUTPUTS);
        // More often than one request is repeated by itself.
        store.fault(&method, fault, 8);
        run(&env, &store, &["run", "stills.csv"]).exited(0);
        assert_eq!(store.objects(), on_disk(&env), "{fault:?} {method}");
        env.audit().each_paid_once(2);
    }
}

#[test]
fn a_file_is_uploaded_whatever_happens_to_a_request() {
    for fault in [
        StoreFault::Cut,
        StoreFault::Unanswered,
        StoreFault::Corrupted,
        StoreFault::Code(403, "AccessDenied"),
    ] {
        let (env, store) = env(INPUTS);
        store.fault(&Method::PUT, fault, 8);
        run(&env, &store, &["run", "clips.csv"]).exited(0);
        assert_eq!(store.objects().into_values().collect::<Vec<_>>(), [png()], "{fault:?}");
        env.audit().each_paid_once(1);
    }
}

#[test]
fn a_bucket_that_vanishes_is_said_and_waited_for() {
    let (env, store) = env(OUTPUTS);
    store.remove_bucket();
    let check = diagnosis(&env, command(&env, &store, &[]), "outputs");
    assert_eq!(
        (&check["level"], check["found"].as_str().unwrap().contains("there is no such bucket")),
        (&"wrong".into(), true),
        "{check}"
    );
    store.restore_bucket();
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    store.remove_bucket();
    run(&env, &store, &["submit", "stills.csv"]).exited(0);
    let status = || status_of(&env, &store, "stills");
    until("the queue is parked", || status()["parked_by"] == "store");
    daemon.says("there is no such bucket");
    store.restore_bucket();
    until("all are done", || status()["state"] == "done");
    daemon.stop().exited(0);
    assert_eq!(store.objects(), on_disk(&env));
    env.audit().each_paid_once(2);
}

#[test]
fn nothing_is_bought_before_the_store_of_outputs_answers() {
    let (env, store) = env(OUTPUTS);
    store.remove_bucket();
    let waiting = Running::start(command(&env, &store, &["run", "stills.csv"]));
    waiting.says("there is no such bucket").says("nothing is sent until it answers").says("queue parked");
    waiting.signal(Signal::INT);
    waiting.end().exited(130);
    assert!(env.audit().tasks.is_empty());
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("queue parked");
    let status = || status_of(&env, &store, "stills");
    assert_eq!((&status()["parked_by"], env.audit().tasks.len()), (&"store".into(), 0));
    store.restore_bucket();
    until("all are done", || status()["state"] == "done");
    daemon.stop().exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn where_a_bucket_is_missing_no_object_is_taken_for_missing() {
    let (env, store) = env(INPUTS);
    run(&env, &store, &["run", "clips.csv"]).exited(0);
    env.write("again.csv", WITH_FILE.replace("a fox", "a gull"));
    // Its file is in the store alone.
    env.configure(&format!("{INPUTS}[budget]\ntotal = 8\n"));
    run(&env, &store, &["run", "again.csv"]).exited(4);
    env.configure(INPUTS);
    store.remove_bucket();
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("there is no such bucket");
    let status = || status_of(&env, &store, "again");
    let waits = || {
        let status = status();
        assert!(status.get("failed").is_none(), "{status}");
        status["parked_by"] == "store"
    };
    until("the row waits for the store", waits);
    store.restore_bucket();
    until("it is made", || status()["state"] == "done");
    daemon.stop().exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn a_bucket_that_comes_back_while_an_object_is_looked_for_has_it() {
    let (env, store) = env(INPUTS);
    run(&env, &store, &["run", "clips.csv"]).exited(0);
    env.write("again.csv", WITH_FILE.replace("a fox", "a gull"));
    // Its file is in the store alone.
    env.configure(&format!("{INPUTS}[budget]\ntotal = 8\n"));
    run(&env, &store, &["run", "again.csv"]).exited(4);
    env.configure(INPUTS);
    store.fault(&Method::HEAD, StoreFault::Code(404, "NoSuchBucket"), 1);
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    until("the row has ended", || status_of(&env, &store, "again")["state"] == "done");
    daemon.stop().exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn outputs_are_not_missing_where_their_bucket_is() {
    let (env, store) = env(OUTPUTS);
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    fs::remove_file(env.path("output/stills/a.png")).unwrap();
    store.remove_bucket();
    let sync = || run(&env, &store, &["outputs", "sync", "stills"]);
    let refused = sync();
    assert!(
        refused.code != Some(0) && refused.stderr.contains("there is no such bucket"),
        "{}",
        refused.stderr
    );
    assert!(!refused.stderr.contains("neither"), "{}", refused.stderr);
    store.restore_bucket();
    sync().exited(0).says("1 restored");
    env.audit().each_paid_once(2);
}

#[test]
fn settings_of_a_store_that_no_request_could_have_are_refused_before_anything_is_bought() {
    let (env, store) = env(OUTPUTS);
    for (variable, value) in [
        ("AWS_ENDPOINT_URL", "127.0.0.1:9000"),
        ("AWS_ENDPOINT_URL", "http://store.example"),
        ("AWS_REGION", "us-east-1\n"),
        ("AWS_ACCESS_KEY_ID", "AKID\n"),
    ] {
        let mut wrong = command(&env, &store, &["run", "stills.csv"]);
        wrong.env(variable, value);
        ended(&env, wrong).exited(2).says(&format!("output.store: s3://media/out: {variable}"));
    }
    env.write("home/.aws/config", "[default]\nendpoint_url = store.example\n");
    let mut profile = env.command(["run", "stills.csv"]);
    profile.env("HOME", env.path("home"));
    ended(&env, profile)
        .exited(2)
        .says("endpoint_url of the profile default: \"store.example\" is no address");
    assert!(env.audit().tasks.is_empty());
}

#[test]
fn variables_that_are_empty_or_unused_keep_no_store_from_being_used() {
    let (env, store) = env(OUTPUTS);
    let mut ordinary = command(&env, &store, &["run", "stills.csv"]);
    ordinary.env("AWS_ENDPOINT_URL_S3", store.base_url()).env("AWS_ENDPOINT_URL", "http://localstack:4566");
    for empty in
        ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT", "AWS_TOKEN"]
    {
        ordinary.env(empty, "");
    }
    ended(&env, ordinary).exited(0);
    assert_eq!(store.objects(), on_disk(&env));
    env.audit().each_paid_once(2);
}

#[test]
fn a_run_whose_bucket_does_not_exist_ends_unless_a_budget_ends_it_before() {
    let (env, store) = env(OUTPUTS);
    store.remove_bucket();
    run(&env, &store, &["run", "stills.csv", "--budget", "1"]).exited(4);
    let ended = run(&env, &store, &["run", "stills.csv", "--batch", "others"]);
    ended.exited(5).says("there is no such bucket").says("object store");
    assert!(env.audit().tasks.is_empty());
}

#[test]
fn a_run_ends_whose_files_no_store_takes() {
    let (env, store) = env(INPUTS);
    store.remove_bucket();
    run(&env, &store, &["run", "clips.csv"]).exited(5).says("parked: the object store refuses files");
    assert!(env.audit().tasks.is_empty());
    store.restore_bucket();
    run(&env, &store, &["run", "clips.csv"]).exited(0);
    env.audit().each_paid_once(1);
}

#[test]
fn who_may_only_put_objects_is_let_through() {
    let (env, store) = env(OUTPUTS);
    store.fault(&Method::GET, StoreFault::Code(403, "AuthorizationPermissionMismatch"), 1);
    let outcome = run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert!(!outcome.stderr.contains("queue parked"), "{}", outcome.stderr);
    env.audit().each_paid_once(2);
}

#[test]
fn wrong_credentials_are_told_at_the_start_and_by_doctor() {
    for section in [OUTPUTS, INPUTS] {
        let (env, store) = env(section);
        for process in [&["daemon"][..], &["run", "stills.csv", "--budget", "0"]] {
            let mut wrong = command(&env, &store, process);
            wrong.env("AWS_SECRET_ACCESS_KEY", "another");
            let running = Running::start(wrong);
            running.says("the store refuses the credentials: they are wrong");
            // It may not listen to signals yet.
            drop(running);
        }
        let about = if section == OUTPUTS { "outputs" } else { "inputs" };
        let mut wrong = command(&env, &store, &[]);
        wrong.env("AWS_ACCESS_KEY_ID", "AKIDNOBODY");
        let check = diagnosis(&env, wrong, about);
        assert!(check["found"].as_str().unwrap().contains("refuses the credentials"), "{check}");
        store.fault(&Method::GET, StoreFault::Code(403, "RequestTimeTooSkewed"), 1);
        let skewed = diagnosis(&env, command(&env, &store, &[]), about);
        assert!(skewed["found"].as_str().unwrap().contains("timedatectl"), "{skewed}");
        assert!(env.audit().tasks.is_empty() && store.objects().is_empty());
    }
}

#[test]
fn credentials_come_from_profile_files() {
    let (env, store) = env(&format!("{OUTPUTS}{INPUTS}"));
    let (base_url, home) = (store.base_url(), env.path("home"));
    env.write(
        "home/.aws/config",
        format!("[profile studio]\nregion = us-east-1\nendpoint_url = {base_url}\n"),
    );
    let keys = |secret: &str| {
        format!("[studio]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key = {secret}\n")
    };
    env.write("home/.aws/credentials", keys(SECRET_KEY));
    let with = |profile: &str, arguments: &[&str]| {
        let mut command = env.command(arguments.iter().copied());
        command.env("HOME", &home).env("AWS_PROFILE", profile);
        command
    };
    ended(&env, with("studio", &["run", "clips.csv"])).exited(0);
    assert_eq!(store.objects().len(), 3, "the file, the output and its sidecar");
    env.write("home/.aws/credentials", keys("another"));
    let check = diagnosis(&env, with("studio", &[]), "inputs");
    assert!(check["found"].as_str().unwrap().contains("refuses the credentials"), "{check}");
    let missing = ended(&env, with("nobody", &["run", "clips.csv"])).exited(2);
    missing.says("AWS_PROFILE names the profile nobody, which is neither in");
    env.write("home/.aws/config", "[profile studio]\nsso_session = one\n");
    env.write("home/.aws/credentials", "");
    ended(&env, with("studio", &["run", "clips.csv"])).exited(2).says("aws configure export-credentials");
    env.audit().each_paid_once(1);
}

#[test]
fn a_row_is_refused_whose_deadline_is_after_the_end_of_the_credentials() {
    let (env, store) = env(INPUTS);
    let temporary = |end: Option<&str>, arguments: &[&str]| {
        let mut command = command(&env, &store, arguments);
        command.env("AWS_SESSION_TOKEN", SESSION_TOKEN);
        if let Some(end) = end {
            command.env("AWS_CREDENTIAL_EXPIRATION", end);
        }
        command
    };
    // Images have ten minutes.
    ended(&env, temporary(Some(&in_minutes(5)), &["run", "clips.csv"]))
        .exited(1)
        .says("credentials_too_short");
    let explained = run(&env, &store, &["explain", "clips/a"]).exited(0).stdout;
    assert!(explained.contains("and signed links with them; the deadline is in 10m"), "{explained}");
    let check = diagnosis(&env, temporary(Some(&in_minutes(5)), &[]), "inputs");
    assert_eq!(check["level"], "advice", "{check}");
    let unknown = diagnosis(&env, temporary(None, &[]), "inputs");
    assert!(unknown["found"].as_str().unwrap().contains("AWS_CREDENTIAL_EXPIRATION"), "{unknown}");
    run(&env, &store, &["retry", "clips"]).exited(0);
    ended(&env, temporary(None, &["run", "clips.csv"])).exited(1);
    assert!(store.objects().is_empty() && env.audit().tasks.is_empty(), "nothing was uploaded or bought");
    run(&env, &store, &["retry", "clips"]).exited(0);
    ended(&env, temporary(Some(&in_an_hour(1)), &["run", "clips.csv"])).exited(0);
    env.audit().each_paid_once(1);
}

#[test]
fn credentials_that_a_machine_is_given_hold_until_their_end() {
    let (env, store) = env(INPUTS);
    let on_machine = |end: &str, arguments: &[&str]| {
        let mut command = env.command(arguments.iter().copied());
        store.give_by_metadata_to(&mut command, end);
        command
    };
    ended(&env, on_machine(&in_minutes(6), &["run", "clips.csv"])).exited(1).says("credentials_too_short");
    assert!(env.audit().tasks.is_empty());
    run(&env, &store, &["retry", "clips"]).exited(0);
    ended(&env, on_machine(&in_an_hour(6), &["run", "clips.csv"])).exited(0);
    assert_eq!(diagnosis(&env, on_machine(&in_an_hour(6), &[]), "inputs")["level"], "good");
    env.audit().each_paid_once(1);
}

/// The ways in which a container or a workload gets credentials that end.
#[test]
fn credentials_of_containers_and_workloads_hold_until_their_end() {
    for way in ["task", "pod", "web identity"] {
        let (env, store) = env(&format!("{OUTPUTS}{INPUTS}"));
        let sts = Front::before(&store.base_url(), |_| Face::Good);
        let token = env.path("identity-token");
        let with = |end: &str, arguments: &[&str]| {
            let mut command = env.command(arguments.iter().copied());
            match way {
                "task" => store.give_by_container_to(&mut command, end, None),
                "pod" => store.give_by_container_to(&mut command, end, Some(&token)),
                _ => store.give_by_web_identity_to(&mut command, end, &token, &sts.https()),
            }
            command
        };
        let short = ended(&env, with(&in_minutes(6), &["run", "clips.csv"]));
        short.exited(1).says("credentials_too_short");
        assert!(env.audit().tasks.is_empty() && store.objects().is_empty(), "{way}");
        run(&env, &store, &["retry", "clips"]).exited(0);
        ended(&env, with(&in_an_hour(6), &["run", "clips.csv"])).exited(0);
        assert_eq!(store.objects().len(), 3, "{way}: the file, the output and its sidecar");
        assert_eq!(diagnosis(&env, with(&in_an_hour(6), &[]), "inputs")["level"], "good", "{way}");
        env.audit().each_paid_once(1);
        // Who may not have them is told so by doctor, without the token.
        let stranger = with(&in_an_hour(6), &[]);
        fs::write(&token, "another").unwrap();
        let refused = diagnosis(&env, stranger, "outputs");
        assert_eq!(refused["level"], if way == "task" { "good" } else { "wrong" }, "{way}: {refused}");
    }
}

#[test]
fn a_large_upload_goes_on_where_it_broke_off() {
    let (env, store) = env(INPUTS);
    let picture = [png(), (0..44_000_000_u32).map(|at| (at % 251) as u8).collect()].concat();
    env.write("logo.png", &picture);
    let parts = picture.len().div_ceil(8 << 20);
    for point in ["part-stored:3", "completing-parts"] {
        let mut killed = command(&env, &store, &["run", "clips.csv"]);
        killed.env("CALLSHEET_FAILPOINT", point);
        Running::start(killed).end().was_killed(point);
    }
    let puts = store.requests(&Method::PUT);
    assert!((parts..=parts + 3).contains(&puts), "{puts} parts were sent of {parts}");
    run(&env, &store, &["run", "clips.csv"]).exited(0);
    assert_eq!(store.requests(&Method::PUT), puts, "all parts were there");
    assert!(store.objects().into_values().eq([picture]), "it is whole");
    assert_eq!(fs::read_dir(env.path("state/uploads")).unwrap().count(), 0, "nothing is left of it");
    env.audit().each_paid_once(1);
}

#[test]
fn an_upload_that_the_store_forgot_begins_anew() {
    let (env, store) = env(INPUTS);
    let picture = [png(), (0..20_000_000_u32).map(|at| (at % 251) as u8).collect()].concat();
    env.write("logo.png", &picture);
    let mut killed = command(&env, &store, &["run", "clips.csv"]);
    killed.env("CALLSHEET_FAILPOINT", "completing-parts");
    Running::start(killed).end().was_killed("completing-parts");
    store.fault(&Method::POST, StoreFault::Code(404, "NoSuchUpload"), 1);
    run(&env, &store, &["run", "clips.csv"]).exited(0);
    assert!(store.objects().into_values().eq([picture]), "it is whole");
    env.audit().each_paid_once(1);
}

#[test]
fn status_says_what_uploads_take_beside_downloads() {
    let (env, store) = env(OUTPUTS);
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    let before = run(&env, &store, &["status", "--json"]).exited(0).json();
    assert!(before.get("transfers").is_none(), "{before}");
    run(&env, &store, &["submit", "stills.csv", "--wait"]).exited(0);
    let transfers = run(&env, &store, &["status", "--json"]).exited(0).json()["transfers"].clone();
    // Two outputs came; they and their sidecars went.
    assert_eq!(
        (&transfers["downloads"]["files"], &transfers["uploads"]["files"]),
        (&2.into(), &4.into()),
        "{transfers}"
    );
    let (down, up) = (transfers["downloads"]["bytes"].as_u64(), transfers["uploads"]["bytes"].as_u64());
    assert!(down.is_some_and(|down| down > 0) && up > down, "{transfers}");
    run(&env, &store, &["status"]).exited(0).says("uploads: 4 files, ");
    daemon.stop().exited(0);
}

#[test]
fn a_folder_can_be_the_store_of_outputs() {
    let (env, store) = env("");
    let share = env.path("share");
    env.configure(&format!("[output]\nstore = \"file://{}\"\n", share.display()));
    let objects = || -> BTreeMap<String, Vec<u8>> {
        let files = crate::support::api_key::files(&share).into_iter();
        let named = files.filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.'));
        let name = |path: &std::path::Path| format!("out/{}", path.strip_prefix(&share).unwrap().display());
        named.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
    };
    // One that is not mounted.
    let check = diagnosis(&env, command(&env, &store, &[]), "outputs");
    assert!(check["found"].as_str().unwrap().contains("does not exist; mount or create it"), "{check}");
    fs::create_dir(&share).unwrap();
    fs::create_dir(share.join("stills")).unwrap();
    for point in ["noted", "stored", "ended"] {
        let mut killed = command(&env, &store, &["run", "stills.csv"]);
        killed.env("CALLSHEET_FAILPOINT", point);
        Running::start(killed).end().was_killed(point);
    }
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!(objects(), on_disk(&env));
    let names = crate::support::api_key::files(&share).into_iter().map(|path| path.display().to_string());
    assert_eq!(names.filter(|name| name.ends_with(".part")).count(), 0, "nothing is left of killed uploads");
    // What somebody changes there is theirs.
    fs::write(share.join("stills/a.png"), "theirs").unwrap();
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("1 uploaded");
    assert_eq!(fs::read(share.join("stills/a.png")).unwrap(), b"theirs");
    assert_eq!(objects().len(), 5);
    env.write("stills.csv", STILLS.replace("a gull", "a white gull"));
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!(objects()["out/stills/b.png"], fs::read(env.path("output/stills/b.png")).unwrap());
    env.audit().each_paid_once(3);
    for (sections, said) in [
        (
            "[inputs]\nstore = \"file:///srv/refs\"\n",
            "inputs.store: must be a store that the service can fetch from",
        ),
        (
            &format!("[output]\nstore = \"file://{}\"\n", env.path("output").display()),
            "must not be the output directory",
        ),
    ] {
        env.configure(sections);
        run(&env, &store, &["run", "stills.csv"]).exited(2).says(said);
    }
}

#[test]
fn a_folder_is_a_store_on_a_file_system_without_links_and_without_names_that_replace_nothing() {
    if !has_strace() {
        return;
    }
    let (env, _) = env("");
    let share = env.path("share");
    fs::create_dir(&share).unwrap();
    env.write("stills.csv", "id,kind,model,prompt\na,image,gi-2,a fox\n");
    env.configure(&format!("[output]\nstore = \"file://{}\"\n", share.display()));
    let objects =
        ["stills/a.png", "stills/sidecars/a.json"].map(|name| share.join(name).display().to_string());
    let [image, sidecar] = objects.each_ref().map(String::as_str);
    let refuses = ["inject=renameat2:error=EINVAL", "inject=linkat:error=EPERM"];
    let options =
        ["-P", image, "-P", sidecar, "-e", "trace=renameat2,linkat", "-e", refuses[0], "-e", refuses[1]];
    let notes = tempfile::tempdir().unwrap();
    let run = strace(&env, &options, &notes.path().join("calls"), ["run", "stills.csv"]);
    Running::start(run).end().exited(0);
    for name in ["a.png", "sidecars/a.json"] {
        let read = |folder: &str| fs::read(env.path(&format!("{folder}/stills/{name}"))).unwrap();
        assert_eq!(read("share"), read("output"));
    }
}

/// The name of the object that a content becomes.
fn object_of(content: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let hash: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("refs/inputs/{hash}.png")
}

#[test]
fn a_file_that_the_store_refuses_alone_holds_back_no_other_row() {
    let (env, store) = env(&format!("{INPUTS}[limits]\nin_flight = 2\n"));
    let picture = |n: u8| [png(), vec![n]].concat();
    let rows = (0..6).map(|n| {
        env.write(&format!("logo-{n}.png"), picture(n));
        format!("r{n},image,gi-2,fox {n},./logo-{n}.png\n")
    });
    let rows: String = rows.collect();
    env.write("many.csv", format!("id,kind,model,prompt,image_urls\n{rows}"));
    let refused = object_of(&picture(0));
    store.forbid_below(Some(&refused));
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    run(&env, &store, &["submit", "many.csv"]).exited(0);
    let status = || -> Value {
        run(&env, &store, &["status", "many", "--json"]).exited(0).json()["batches"][0].clone()
    };
    until("the other rows are done", || status()["succeeded"] == 5);
    until("the reason is said", || status()["parked_by"] == "inputs_unavailable");
    let explained = run(&env, &store, &["explain", "many/r0"]).exited(0).stdout;
    assert!(explained.contains(&refused) && explained.contains("takes other objects"), "{explained}");
    store.forbid_below(None);
    until("all are done", || status()["state"] == "done");
    daemon.stop().exited(0);
    env.audit().each_paid_once(6);
}

#[test]
fn a_file_whose_object_is_gone_or_in_another_store_is_uploaded_again() {
    let (env, store) = env(INPUTS);
    run(&env, &store, &["run", "clips.csv"]).exited(0);
    let object = object_of(&png());
    let again =
        |n: u32| env.write(&format!("clips-{n}.csv"), WITH_FILE.replace("a fox", &format!("fox {n}")));
    again(1);
    fs::remove_file(store.path_of(&object)).unwrap();
    run(&env, &store, &["run", "clips-1.csv"]).exited(0);
    assert_eq!(store.objects().into_keys().collect::<Vec<_>>(), std::slice::from_ref(&object));
    // A daemon reads the files of what is dropped into an inbox itself.
    let (other, logo) = (INPUTS.replace("refs", "other"), env.path("logo.png"));
    env.configure(&format!("{other}roots = [{:?}]\n", logo.parent().unwrap()));
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    let dropped = WITH_FILE.replace("./logo.png", &logo.display().to_string()).replace("a fox", "fox 2");
    until("the inbox", || env.path("jobs/inbox").exists());
    fs::rename(env.write("jobs/inbox/.dropped.tmp", dropped), env.path("jobs/inbox/dropped.csv")).unwrap();
    until("it is made", || env.audit().tasks.len() == 3);
    daemon.stop().exited(0);
    again(3);
    run(&env, &store, &["run", "clips-3.csv"]).exited(0);
    let names = store.objects().into_keys().collect::<Vec<_>>();
    assert_eq!(names, [object.replace("refs", "other"), object]);
    env.audit().each_paid_once(4);
}
