//! Outputs that do not stay on disk: removed once they are in the store for certain, within a bounded room, and found again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use hyper::Method;

use crate::support::api_key::files;
use crate::support::process::{Outcome, Running};
use crate::support::s3::{S3Server, StoreFault};
use crate::support::{TestEnv, until};

const STORE: &str = "[output]\nstore = \"s3://media/out\"\nkeep_local = false\n";
const STILLS: &str = "id,kind,model,prompt\na,image,gi-2,a fox\nb,image,gi-2,a gull\n";

fn env() -> (TestEnv, S3Server) {
    let env = TestEnv::new();
    env.configure(STORE);
    env.write("stills.csv", STILLS);
    (env, S3Server::start())
}

fn command(env: &TestEnv, store: &S3Server, arguments: &[&str]) -> Command {
    let mut command = env.command(arguments.iter().copied());
    store.give_to(&mut command);
    command
}

fn run(env: &TestEnv, store: &S3Server, arguments: &[&str]) -> Outcome {
    Running::start(command(env, store, arguments)).end()
}

/// The pictures on disk that are outputs, or are being downloaded, with their lengths.
fn pictures(env: &TestEnv) -> BTreeMap<String, u64> {
    let found = files(&env.path("output")).into_iter();
    let is_output = |name: &str| name.ends_with(".png") || name.ends_with(".part");
    let named = found.filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path)));
    named
        .filter(|(name, _)| is_output(name))
        .filter_map(|(name, path)| Some((name, path.metadata().ok()?.len())))
        .collect()
}

fn marks(env: &TestEnv) -> usize {
    fs::read_dir(env.path("state/scratch")).map_or(0, Iterator::count)
}

#[test]
fn what_is_in_the_store_leaves_the_disk_and_its_thumbnail_stays() {
    let (env, store) = env();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!((pictures(&env), marks(&env)), (BTreeMap::new(), 0));
    let objects = store.objects();
    assert_eq!(objects.len(), 4, "two outputs and their sidecars: {:?}", objects.keys());
    let kept = files(&env.path("output/stills")).into_iter().map(|path| path.display().to_string());
    let kept: Vec<String> = kept.collect();
    assert_eq!(kept.iter().filter(|path| path.contains("/sidecars/")).count(), 2, "{kept:?}");
    assert!(kept.iter().any(|path| path.contains("/thumbs/")), "{kept:?}");
    run(&env, &store, &["run", "stills.csv"]).exited(0).says("0 new (0 credits), 2 already there");
    run(&env, &store, &["state", "verify"]).exited(0);
    // A person wants them here.
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("0 uploaded, 2 restored");
    assert_eq!(fs::read(env.path("output/stills/a.png")).unwrap(), objects["out/stills/a.png"]);
    env.audit().each_paid_once(2);
}

/// Somebody removed an object: the service has the output still.
#[test]
fn what_is_not_in_the_store_any_more_comes_back_into_it_and_a_person_is_told_where_it_is() {
    let (env, store) = env();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    store.remove("out/stills/a.png");
    let told = run(&env, &store, &["download", "stills"]).exited(0);
    told.says("1 of 1 downloaded into the object store; to copy them to output/stills:")
        .says("    callsheet download stills");
    assert!(store.objects().contains_key("out/stills/a.png"));
    run(&env, &store, &["download", "stills"]).exited(0);
    assert!(env.path("output/stills/a.png").exists());
    env.audit().each_paid_once(2);
}

#[test]
fn killed_at_every_step_nothing_is_lost_and_nothing_stays() {
    for point in ["storing", "stored:4", "ended", "freeing", "freeing:2", "freed", "freed:2"] {
        let (env, store) = env();
        let mut killed = command(&env, &store, &["run", "stills.csv"]);
        killed.env("CALLSHEET_FAILPOINT", point);
        Running::start(killed).end().was_killed(point);
        let daemon = Running::start(command(&env, &store, &["daemon"]));
        daemon.says("ready");
        until("all are done", || env.status("stills")["state"] == "done");
        until("nothing stays", || pictures(&env).is_empty() && marks(&env) == 0);
        daemon.stop().exited(0);
        assert_eq!(store.objects().len(), 4, "{point}");
        env.audit().each_paid_once(2);
    }
}

#[test]
fn what_waited_for_a_decision_leaves_the_disk_after_it() {
    let (env, store) = env();
    env.write(
        "stills.csv",
        "id,kind,model,prompt,review\na,image,gi-2,a fox,true\nb,image,gi-2,a gull,true\n",
    );
    run(&env, &store, &["run", "stills.csv"]).exited(7);
    assert_eq!((pictures(&env).len(), marks(&env)), (2, 2), "a person looks at them first");
    // The next process removes what is decided while none works.
    run(&env, &store, &["review", "approve", "stills/a"]).exited(0);
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    until("the one that was approved is gone", || (pictures(&env).len(), marks(&env)) == (1, 1));
    assert!(pictures(&env).contains_key("b.png"));
    run(&env, &store, &["review", "reject", "stills/b"]).exited(0);
    until("the other one, too", || (pictures(&env).len(), marks(&env)) == (0, 0));
    daemon.stop().exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn no_more_than_the_scratch_lies_on_disk_while_the_store_is_down() {
    const MAX: u64 = 24 * 1024;
    let (env, store) = env();
    let sizes = "max_file = \"24KiB\"\nscratch_max = \"24KiB\"\n[limits]\nin_flight = 4\n";
    env.configure(&format!("{STORE}{sizes}"));
    let rows: String = (0..24).map(|n| format!("r{n},image,gi-2,gull {n}\n")).collect();
    env.write("birds.csv", format!("id,kind,model,prompt\n{rows}"));
    for method in [Method::HEAD, Method::PUT] {
        store.fault(&method, StoreFault::Status(403), 100_000);
    }
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    run(&env, &store, &["submit", "birds.csv"]).exited(0);
    let status = || env.status("birds");
    until("the queue is parked", || status()["parked_by"] == "store");
    let on_disk = pictures(&env);
    assert!(!on_disk.is_empty() && on_disk.values().sum::<u64>() <= MAX, "{on_disk:?}");
    assert!(env.audit().tasks.len() < 24, "the rest is not bought");
    store.mend();
    let mut most = 0;
    until("all are done", || {
        most = most.max(pictures(&env).values().sum());
        status()["state"] == "done"
    });
    // A download may turn out larger than all before it.
    let largest = store.objects().into_values().map(|object| object.len() as u64).max().unwrap();
    assert!(most <= MAX + largest, "{most} bytes were on disk");
    until("nothing stays", || pictures(&env).is_empty());
    daemon.stop().exited(0);
    assert_eq!(store.objects().len(), 48);
    env.audit().each_paid_once(24);
}

#[test]
fn an_edited_row_takes_the_plain_name_though_nothing_is_on_disk() {
    let (env, store) = env();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let first = store.objects()["out/stills/a.png"].clone();
    env.write("stills.csv", STILLS.replace("a fox", "a red fox"));
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let objects = store.objects();
    assert_ne!(objects["out/stills/a.png"], first);
    assert!(objects.values().any(|content| *content == first), "the older version is there, too");
    assert_eq!(pictures(&env), BTreeMap::new());
    env.audit().each_paid_once(3);
}

#[test]
fn sizes_that_do_not_fit_and_outputs_that_would_be_nowhere_are_refused_at_the_start() {
    let (env, store) = env();
    for (section, said) in [
        ("[output]\nkeep_local = false\n", "output.keep_local: needs output.store"),
        (
            &format!("{STORE}max_file = \"2GiB\"\nscratch_max = \"1GiB\"\n"),
            "output.scratch_max: must not be less than",
        ),
        (
            "[output]\nstore = \"ftp://media/out\"\n",
            "output.store: must begin with s3://, gs://, az:// or file:///",
        ),
        ("[output]\nstore = \"s3://\"\n", "output.store: has no bucket"),
        ("[inputs]\nstore = \"s3://key@media/in\"\n", "inputs.store: holds more than a bucket and a prefix"),
    ] {
        env.configure(section);
        run(&env, &store, &["run", "stills.csv"]).exited(2).says(said);
        let checked = run(&env, &store, &["doctor", "--config-only"]).exited(2);
        assert!(checked.stdout.contains(said), "{}", checked.stdout);
    }
    assert!(env.audit().tasks.is_empty());
}
