//! Outputs in an object store: whole, under the names that they have on disk, bought once, and no object of others replaced.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Method;
use serde_json::Value;

use crate::support::collect_outputs::{Outputs, stored_files};
use crate::support::process::{Outcome, Running};
use crate::support::s3::{S3Server, SECRET_KEY, StoreFault};
use crate::support::scripted_proxy::{Act, Route, ScriptedProxy, reply_of};
use crate::support::{TestEnv, until};

const STORE: &str = "[output]\nstore = \"s3://media/out\"\n";
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
    let outcome = Running::start(command(env, store, arguments)).end();
    for said in [&outcome.stdout, &outcome.stderr] {
        assert!(!said.contains(SECRET_KEY), "{said}");
    }
    outcome
}

fn puts(store: &S3Server) -> usize {
    store.requests(&Method::PUT)
}

#[test]
fn outputs_and_their_sidecars_become_objects_under_their_names() {
    let (env, store) = env();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let objects = store.objects();
    let names: Vec<&str> = objects.keys().map(String::as_str).collect();
    let expected = ["a.png", "b.png", "sidecars/a.json", "sidecars/b.json"];
    assert_eq!(names, expected.map(|name| format!("out/stills/{name}")));
    assert_eq!(objects, stored_files(&env, "stills"));
    let outputs = Outputs::of(&env, "stills");
    assert_eq!(outputs.lines[0]["files"][0]["object"], "s3://media/out/stills/a.png");
    let csv = fs::read_to_string(env.path("output/stills/results.csv")).unwrap();
    assert!(csv.contains("s3://media/out/stills/b.png"), "{csv}");
    let explained = run(&env, &store, &["explain", "stills/a"]).exited(0).stdout;
    assert!(explained.contains("1 output on disk and in the object store"), "{explained}");
    env.audit().each_paid_once(2);
    // All is there: nothing is put anew.
    let before = puts(&store);
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    run(&env, &store, &["outputs", "sync", "stills"])
        .exited(0)
        .says("of 2 jobs are on disk and in the object store");
    assert_eq!((puts(&store), before), (4, 4));
    run(&env, &store, &["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn what_one_side_lacks_comes_from_the_other_and_costs_nothing() {
    let (env, store) = env();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let (disk, objects) = (stored_files(&env, "stills"), store.objects());
    // The disk is gone.
    fs::remove_dir_all(env.path("output/stills")).unwrap();
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("0 uploaded, 2 restored");
    for name in ["a.png", "b.png"] {
        let name = format!("out/stills/{name}");
        assert_eq!(stored_files(&env, "stills")[&name], disk[&name], "{name}");
    }
    // One of each is gone.
    fs::remove_file(store.path_of("out/stills/a.png")).unwrap();
    fs::remove_file(env.path("output/stills/b.png")).unwrap();
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("1 uploaded, 1 restored");
    assert_eq!(store.objects().keys().collect::<Vec<_>>(), objects.keys().collect::<Vec<_>>());
    assert_eq!(store.objects(), stored_files(&env, "stills"));
    // Both are.
    fs::remove_file(store.path_of("out/stills/a.png")).unwrap();
    fs::remove_file(env.path("output/stills/a.png")).unwrap();
    let missing = run(&env, &store, &["outputs", "sync", "stills"]).exited(1);
    missing.says("1 have outputs in neither: a;").says("callsheet download stills");
    run(&env, &store, &["download", "stills"]).exited(0);
    assert_eq!(store.objects(), stored_files(&env, "stills"));
    env.audit().each_paid_once(2);
}

#[test]
fn a_batch_that_was_done_without_a_store_is_put_there_by_a_sync() {
    let (env, store) = env();
    env.configure("");
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    run(&env, &store, &["outputs", "sync", "stills"]).exited(2).says("set output.store in the configuration");
    env.configure(STORE);
    // One that somebody changed, of the same size, is not put there for what it was.
    let (changed, before) =
        (env.path("output/stills/b.png"), fs::read(env.path("output/stills/b.png")).unwrap());
    fs::write(&changed, vec![0; before.len()]).unwrap();
    run(&env, &store, &["outputs", "sync", "stills"]).says("1 uploaded, 0 restored").says("b");
    assert!(!store.objects().contains_key("out/stills/b.png"));
    fs::write(&changed, before).unwrap();
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("1 uploaded, 0 restored");
    assert_eq!(store.objects(), stored_files(&env, "stills"));
    let object = &Outputs::of(&env, "stills").lines[1]["files"][0]["object"];
    assert_eq!(object, "s3://media/out/stills/b.png");
    let again = run(&env, &store, &["outputs", "sync", "stills", "--json"]).exited(0).json();
    assert_eq!((&again["jobs"], &again["uploaded"]), (&2.into(), &0.into()), "{again}");
    run(&env, &store, &["state", "verify"]).exited(0).says("all fits");
}

#[test]
fn a_sync_keeps_no_other_command_waiting() {
    let (env, store) = env();
    env.configure("");
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    env.configure(STORE);
    env.write("others.csv", STILLS.replace("a fox", "a hare"));
    let daemon = Running::start(command(&env, &store, &["daemon", "--log-level", "info"]));
    daemon.says("ready");
    run(&env, &store, &["submit", "others.csv", "--budget", "0"]).exited(0);
    run(&env, &store, &["cancel", "others"]).exited(0);
    store.hold_puts(true);
    let before = puts(&store);
    let sync = Running::start(command(&env, &store, &["outputs", "sync", "stills"]));
    until("an upload", || puts(&store) > before);
    let second = Running::start(command(&env, &store, &["outputs", "sync", "stills", "--json"]));
    run(&env, &store, &["retry", "others"]).exited(0);
    run(&env, &store, &["review", "reject", "stills/a", "--note", "too dark"]).exited(0);
    store.hold_puts(false);
    sync.end().exited(0).says("2 uploaded");
    let second = second.end().exited(0).json();
    assert_eq!(
        (&second["jobs"], &second["uploaded"]),
        (&2.into(), &0.into()),
        "one after the other: {second}"
    );
    // What was decided meanwhile stays, and the object is known.
    let explained = run(&env, &store, &["explain", "stills/a"]).exited(0).stdout;
    assert!(explained.contains("too dark"), "{explained}");
    let object = || Outputs::of(&env, "stills").lines[0]["files"][0]["object"].clone();
    until("the daemon's results", || object() == "s3://media/out/stills/a.png");
    daemon.stop();
    env.audit().each_paid_once(2);
}

#[test]
fn objects_of_others_are_never_replaced() {
    let (env, store) = env();
    let theirs = store.path_of("out/stills/a.png");
    fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    fs::write(&theirs, "theirs").unwrap();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    let object = Outputs::of(&env, "stills").lines[0]["files"][0]["object"].as_str().unwrap().to_owned();
    let name = object.strip_prefix("s3://media/").unwrap();
    assert!(
        name.starts_with("out/stills/a-") && Path::new(name).extension().is_some_and(|ext| ext == "png"),
        "{name}"
    );
    assert_eq!(store.objects()[name], fs::read(env.path("output/stills/a.png")).unwrap());
    // It is found there again.
    fs::remove_file(env.path("output/stills/a.png")).unwrap();
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("1 restored");
    assert_eq!(store.objects()[name], fs::read(env.path("output/stills/a.png")).unwrap());
}

#[test]
fn a_large_output_goes_in_parts_and_replaces_nothing_either() {
    let (env, store) = env();
    let proxy = ScriptedProxy::with_large_sounds(&env.base_url());
    env.configure_for(&proxy.base_url(), "", STORE);
    env.write("talks.csv", "id,kind,voice_id,text\na,speech,aria,a gull\n");
    store.fault(&Method::POST, StoreFault::Status(503), 2);
    run(&env, &store, &["run", "talks.csv"]).exited(0);
    let disk = stored_files(&env, "talks");
    let (name, content) = disk.first_key_value().unwrap();
    assert!(content.len() > 8 * 1024 * 1024, "{name}: {} bytes", content.len());
    assert!(store.requests(&Method::POST) >= 2, "an upload is begun and completed");
    assert_eq!(store.objects(), disk);
    let theirs = store.path_of("out/more/a.wav");
    fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    fs::write(&theirs, "theirs").unwrap();
    run(&env, &store, &["run", "talks.csv", "--batch", "more"]).exited(0);
    assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    assert_eq!(store.objects().into_values().filter(|object| object == content).count(), 2);
    env.audit().each_paid_once(2);
}

#[test]
fn an_edited_row_takes_the_plain_name_in_the_store_too() {
    let (env, store) = env();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let first = stored_files(&env, "stills")["out/stills/a.png"].clone();
    env.write("stills.csv", STILLS.replace("a fox", "a red fox"));
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let disk = stored_files(&env, "stills");
    assert_eq!(store.objects(), disk);
    assert!(disk["out/stills/a.png"] != first && disk.values().any(|content| *content == first));
    // And back.
    env.write("stills.csv", STILLS);
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!(stored_files(&env, "stills")["out/stills/a.png"], first);
    assert_eq!(store.objects()["out/stills/a.png"], first);
    env.audit().each_paid_once(3);
}

#[test]
fn killed_at_every_step_each_output_is_there_once_and_paid_for_once() {
    for point in ["published", "storing", "stored", "stored:2", "stored:3", "ended"] {
        let (env, store) = env();
        let mut killed = command(&env, &store, &["run", "stills.csv"]);
        killed.env("CALLSHEET_FAILPOINT", point);
        Running::start(killed).end().was_killed(point);
        run(&env, &store, &["run", "stills.csv"]).exited(0);
        assert_eq!(store.objects(), stored_files(&env, "stills"), "{point}");
        env.audit().each_paid_once(2);
    }
}

#[test]
fn a_store_that_is_down_parks_the_queue_and_what_is_paid_for_waits_on_disk() {
    let (env, store) = env();
    let rows: String = (0..30).map(|n| format!("r{n},image,gi-2,gull {n}\n")).collect();
    env.write("birds.csv", format!("id,kind,model,prompt\n{rows}"));
    env.configure(&format!("{STORE}[limits]\nin_flight = 2\n"));
    store.fault(&Method::HEAD, StoreFault::Status(403), 100_000);
    store.fault(&Method::PUT, StoreFault::Status(403), 100_000);
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    run(&env, &store, &["submit", "birds.csv"]).exited(0);
    let status = || env.status("birds");
    until("the queue is parked", || status()["parked_by"] == "store");
    let bought = env.audit().tasks.len();
    assert!(bought < 30, "{bought}");
    store.mend();
    until("all are done", || status()["state"] == "done");
    daemon.stop().exited(0);
    assert_eq!(store.objects(), stored_files(&env, "birds"));
    env.audit().each_paid_once(30);
}

#[test]
fn what_waits_on_disk_for_the_store_is_not_downloaded_again() {
    let (env, store) = env();
    for method in [Method::HEAD, Method::PUT] {
        store.fault(&method, StoreFault::Status(403), 100_000);
    }
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    run(&env, &store, &["submit", "stills.csv"]).exited(0);
    until("both wait on disk", || {
        ["a.png", "b.png"].iter().all(|name| env.path(&format!("output/stills/{name}")).exists())
    });
    let before = puts(&store);
    until("the store was asked again and again", || puts(&store) >= before + 12);
    store.mend();
    run(&env, &store, &["submit", "stills.csv", "--wait"]).exited(0);
    daemon.stop().exited(0);
    assert_eq!(store.objects(), stored_files(&env, "stills"));
    let downloads: Vec<u64> = env.audit().tasks.iter().map(|task| task.downloads).collect();
    assert_eq!(downloads, [1, 1]);
    env.audit().each_paid_once(2);
}

#[test]
fn a_new_version_is_published_although_the_files_of_the_older_one_are_gone() {
    for keep_local in [true, false] {
        for is_stored in [true, false] {
            let (env, store) = env();
            env.configure(&format!("{STORE}keep_local = {keep_local}\n"));
            run(&env, &store, &["run", "stills.csv"]).exited(0);
            let first = store.objects()["out/stills/a.png"].clone();
            if keep_local {
                fs::remove_file(env.path("output/stills/a.png")).unwrap();
            }
            if !is_stored {
                fs::remove_file(store.path_of("out/stills/a.png")).unwrap();
            }
            env.write("stills.csv", STILLS.replace("a fox", "a red fox"));
            let edited = run(&env, &store, &["run", "stills.csv"]).exited(0);
            let objects = store.objects();
            assert!(objects["out/stills/a.png"] != first, "keep_local {keep_local}, stored {is_stored}");
            // What the store still had of the older version is there under its new name.
            assert_eq!(objects.values().any(|content| *content == first), is_stored, "{:?}", objects.keys());
            if !is_stored {
                edited.says("outputs of an older version");
            }
            assert_eq!(Outputs::of(&env, "stills").lines[0]["state"], "succeeded");
            env.audit().each_paid_once(3);
        }
    }
}

#[test]
fn nothing_is_downloaded_again_while_the_store_that_has_it_cannot_be_asked() {
    let (env, store) = env();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    for name in ["a.png", "b.png"] {
        fs::remove_file(env.path(&format!("output/stills/{name}"))).unwrap();
    }
    for method in [Method::HEAD, Method::GET, Method::PUT] {
        store.fault(&method, StoreFault::Status(403), 100_000);
    }
    let refused = run(&env, &store, &["download", "stills"]).exited(5);
    refused.says("nothing was downloaded").says("callsheet download stills");
    store.mend();
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("2 restored");
    assert_eq!(store.objects(), stored_files(&env, "stills"));
    assert_eq!(env.audit().totals.downloads, 2);
    env.audit().each_paid_once(2);
}

#[test]
fn a_download_says_what_came_back_from_the_store() {
    let (env, store) = env();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    for name in ["a.png", "b.png"] {
        fs::remove_file(env.path(&format!("output/stills/{name}"))).unwrap();
    }
    run(&env, &store, &["download", "stills"])
        .exited(0)
        .says("stills: the outputs of 2 jobs were restored from the object store")
        .says("nothing more to download");
    run(&env, &store, &["download", "stills"]).exited(0).says("stills: nothing to download");
    assert_eq!(env.audit().totals.downloads, 2);
}

/// The service deletes results after a while.
#[test]
fn what_cannot_be_downloaded_again_is_found_where_it_was() {
    let (env, store) = env();
    let forgets = Arc::new(AtomicBool::new(false));
    let is_gone = forgets.clone();
    let proxy = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Poll if is_gone.load(Ordering::SeqCst) => Act::Bytes(reply_of(
            "404 Not Found",
            "application/json",
            r#"{"code": -1, "message": "gone", "error": {"type": "not_found", "hint": "", "docs": ""}}"#,
        )),
        _ => Act::Pass,
    });
    env.configure_for(&proxy.base_url(), "", "");
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let (name, whole) = ("output/stills/a.png", fs::read(env.path("output/stills/a.png")).unwrap());
    forgets.store(true, Ordering::SeqCst);
    // A person edits one, and asks for it again.
    fs::write(env.path(name), "edited").unwrap();
    let given_up = run(&env, &store, &["download", "stills"]).exited(1);
    given_up
        .says("0 of 1 downloaded")
        .says("1 could not be downloaded again")
        .says("callsheet explain stills/JOB");
    assert_eq!(Outputs::of(&env, "stills").lines[0]["state"], "succeeded");
    let explained = run(&env, &store, &["explain", "stills/a"]).exited(0).stdout;
    assert!(explained.contains("download given up: the service has its results no more"), "{explained}");
    assert!(explained.contains("callsheet review another-take stills/a"), "{explained}");
    // And puts it back.
    fs::write(env.path(name), whole).unwrap();
    run(&env, &store, &["download", "stills"]).exited(0).says("nothing to download");
    env.configure_for(&proxy.base_url(), "", STORE);
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("2 uploaded");
    fs::remove_file(env.path(name)).unwrap();
    run(&env, &store, &["download", "stills"]).exited(0);
    assert_eq!(store.objects(), stored_files(&env, "stills"));
    run(&env, &store, &["state", "verify"]).exited(0).says("all fits");
    env.audit().each_paid_once(2);
}

#[test]
fn a_sync_goes_on_behind_an_output_that_is_refused() {
    let (env, store) = env();
    env.configure("");
    let rows: String = (0..120).map(|n| format!("r{n},image,gi-2,gull {n}\n")).collect();
    env.write("birds.csv", format!("id,kind,model,prompt\n{rows}"));
    run(&env, &store, &["run", "birds.csv"]).exited(0);
    env.configure(STORE);
    // One is not on disk any more and was never in the store, which does not say what is missing.
    store.hide_what_is_missing();
    fs::remove_file(env.path("output/birds/r7.png")).unwrap();
    // Of another, others have both names.
    let job = Outputs::of(&env, "birds").lines[5]["job"].as_str().unwrap().to_owned();
    for name in ["out/birds/r5.png".to_owned(), format!("out/birds/r5-{job}.png")] {
        store.put_theirs(&name, "theirs");
    }
    for uploaded in [118, 0] {
        let synced = run(&env, &store, &["outputs", "sync", "birds"]).exited(1);
        synced
            .says(&format!("outputs of 118 jobs are on disk and in the object store; {uploaded} uploaded"))
            .says("1 have outputs in neither: r7;")
            .says("1 were refused: r5")
            .says(" are objects of others");
    }
    let shown = run(&env, &store, &["outputs", "sync", "birds", "--json"]).exited(1).json();
    assert_eq!((&shown["refused"]["jobs"], &shown["stopped"]), (&1.into(), &Value::Null), "{shown}");
}

#[test]
fn what_alone_cannot_be_stored_waits_alone_and_is_named() {
    for may_list in [true, false] {
        let (env, store) = env();
        if !may_list {
            store.hide_what_is_missing();
        }
        store.forbid_below(Some("out/stills/a"));
        let daemon = Running::start(command(&env, &store, &["daemon"]));
        daemon.says("ready");
        run(&env, &store, &["submit", "stills.csv"]).exited(0);
        daemon.says("s3://media/out/stills/a.png was refused, while the store takes other objects");
        // All others of its batch, and those of other batches, are bought and stored.
        let rows: String = (0..60).map(|n| format!("r{n},image,gi-2,gull {n}\n")).collect();
        env.write("birds.csv", format!("id,kind,model,prompt\n{rows}"));
        run(&env, &store, &["submit", "birds.csv", "--wait"]).exited(0);
        until("its neighbour is done", || env.status("stills")["succeeded"] == 1);
        assert_eq!(env.status("stills")["fetching"], 1, "{}", env.status("stills"));
        assert!(!daemon.said().contains("queue parked"), "{}", daemon.said());
        store.forbid_below(None);
        until("it is done, too", || env.status("stills")["state"] == "done");
        daemon.stop().exited(0);
        let mut disk = stored_files(&env, "birds");
        disk.extend(stored_files(&env, "stills"));
        assert_eq!(store.objects(), disk);
        env.audit().each_paid_once(62);
    }
}

#[test]
fn a_batch_of_which_nothing_can_be_stored_stops_and_no_other_does() {
    let (env, store) = env();
    env.configure(&format!("{STORE}[limits]\nin_flight = 2\n"));
    store.forbid_below(Some("out/birds/"));
    let rows: String = (0..60).map(|n| format!("r{n},image,gi-2,gull {n}\n")).collect();
    env.write("birds.csv", format!("id,kind,model,prompt\n{rows}"));
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    run(&env, &store, &["submit", "birds.csv"]).exited(0);
    until("the batch is parked", || env.status("birds")["parked_by"] == "store");
    run(&env, &store, &["submit", "stills.csv", "--wait"]).exited(0);
    assert_eq!(env.status("birds")["parked_by"], "store");
    assert!(env.audit().tasks.len() < 30, "{}", env.audit().tasks.len());
    store.forbid_below(None);
    until("all are done", || env.status("birds")["state"] == "done");
    daemon.stop().exited(0);
    env.audit().each_paid_once(62);
}

#[test]
fn where_both_names_are_taken_that_is_said() {
    let (env, store) = env();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let job = Outputs::of(&env, "stills").lines[0]["job"].as_str().unwrap().to_owned();
    let (plain, apart) = ("out/stills/a.png".to_owned(), format!("out/stills/a-{job}.png"));
    for name in [&plain, &apart] {
        // Written by nobody who says so.
        store.put_theirs(name, "theirs");
    }
    let synced = run(&env, &store, &["outputs", "sync", "stills"]);
    synced.says(&format!("s3://media/{plain} and s3://media/{apart} are objects of others"));
    assert!(store.objects()[&plain] == b"theirs" && store.objects()[&apart] == b"theirs");
}

#[test]
fn commands_of_a_daemon_use_the_store_the_layout_and_the_spreadsheet_form_of_a_reload() {
    let (env, store) = env();
    env.configure("");
    let daemon = Running::start(command(&env, &store, &["daemon", "--log-level", "info"]));
    daemon.says("ready");
    run(&env, &store, &["submit", "stills.csv", "--wait"]).exited(0);
    run(&env, &store, &["outputs", "sync", "stills"]).exited(2).says("set output.store in the configuration");
    let reload = |output: &str| {
        let reloaded = || daemon.said().matches("configuration reloaded").count();
        let before = reloaded();
        env.configure(&format!("{STORE}{output}"));
        daemon.signal(rustix::process::Signal::HUP);
        until("a reload", || reloaded() > before);
    };
    reload("");
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("2 uploaded, 0 restored");
    reload("layout = \"{batch}/made/{job}{-n}.{ext}\"\nresults_csv = \"excel\"\n");
    env.write("others.csv", STILLS.replace("a fox", "a hare"));
    run(&env, &store, &["submit", "others.csv", "--wait"]).exited(0);
    let csv = fs::read_to_string(env.path("output/others/results.csv")).unwrap();
    assert!(csv.starts_with('\u{feff}') && csv.contains("made/"), "{csv}");
    // What is restored lies where it lay.
    fs::remove_dir_all(env.path("output/others/made")).unwrap();
    run(&env, &store, &["download", "others"]).exited(0).says("2 jobs were restored");
    assert_eq!(fs::read_dir(env.path("output/others/made")).unwrap().count(), 2);
    daemon.stop();
    env.audit().each_paid_once(4);
}
