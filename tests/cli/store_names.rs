//! Names that are not plain ASCII in object stores: objects have the names that their files have on disk, and what an older
//! version stored under other names is found.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::process::Command;

use hyper::Method;

use crate::support::TestEnv;
use crate::support::collect_outputs::{Outputs, stored_files};
use crate::support::gcs::GcsServer;
use crate::support::process::{Outcome, Running};
use crate::support::s3::S3Server;

const S3: &str = "[output]\nstore = \"s3://media/out\"\n";
const GOOGLE: &str = "[output]\nstore = \"gs://media/out\"\n";
const STILLS: &str = "id,kind,model,prompt\na,image,gi-2,a fox\nb,image,gi-2,a gull\n";
/// Names of which each was another key: `na%C3%AFve %231%7E.png`.
const ODD: &str = "id,kind,model,prompt\nnaïve #1~,image,gi-2,a fox\n100% 春 [a],image,gi-2,a gull\n";
const ODD_NAMES: [&str; 2] = ["100% 春 [a]", "naïve #1~"];

fn run(env: &TestEnv, store: &S3Server, arguments: &[&str]) -> Outcome {
    let mut command = env.command(arguments.iter().copied());
    store.give_to(&mut command);
    Running::start(command).end()
}

fn google(env: &TestEnv, store: &GcsServer, arguments: &[&str]) -> Command {
    let mut command = env.command(arguments.iter().copied());
    command.env("GOOGLE_SERVICE_ACCOUNT", env.path("account.json")).env("GOOGLE_BASE_URL", store.base_url());
    command
}

#[test]
fn a_batch_of_any_letters_is_stored_at_amazon_and_found_again() {
    let env = TestEnv::new();
    env.configure(S3);
    let store = S3Server::start();
    for batch in ["Frühling", "春"] {
        env.write(&format!("{batch}.csv"), STILLS);
        run(&env, &store, &["run", &format!("{batch}.csv")]).exited(0);
        let object = &Outputs::of(&env, batch).lines[0]["files"][0]["object"];
        assert_eq!(object, &format!("s3://media/out/{batch}/a.png"));
    }
    let disk = stored_files(&env, "Frühling").into_iter().chain(stored_files(&env, "春")).collect();
    assert_eq!(store.objects(), disk);
    let puts = store.requests(&Method::PUT);
    run(&env, &store, &["outputs", "sync", "Frühling"]).exited(0).says("0 uploaded, 0 restored");
    assert_eq!(store.requests(&Method::PUT), puts, "all is found");
    env.audit().each_paid_once(4);
}

#[test]
fn a_batch_of_any_letters_is_stored_at_google_and_found_again() {
    let (env, store) = (TestEnv::new(), GcsServer::start());
    env.configure(GOOGLE);
    env.write("account.json", store.key_file().to_string());
    env.write("Frühling.csv", STILLS);
    Running::start(google(&env, &store, &["run", "Frühling.csv"])).end().exited(0);
    assert_eq!(store.objects(), stored_files(&env, "Frühling"));
    for (name, object) in store.found() {
        assert_eq!(object.metadata["callsheet-batch"], "Fr%C3%BChling", "{name}");
    }
    let puts = store.requests(&Method::PUT);
    Running::start(google(&env, &store, &["outputs", "sync", "Frühling"])).end().exited(0);
    assert_eq!(store.requests(&Method::PUT), puts, "all is found");
    env.audit().each_paid_once(2);
}

#[test]
fn a_prefix_of_any_letters_is_in_the_addresses_as_it_is_in_the_keys() {
    let env = TestEnv::new();
    let store = S3Server::start();
    env.write("stills.csv", STILLS);
    env.configure("[output]\nstore = \"s3://media/Frühling %231\"\n");
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    let object = &Outputs::of(&env, "stills").lines[0]["files"][0]["object"];
    assert_eq!(object, "s3://media/Frühling #1/stills/a.png");
    assert!(store.objects().contains_key("Frühling #1/stills/a.png"), "{:?}", store.objects().keys());
    fs::remove_file(env.path("output/stills/a.png")).unwrap();
    run(&env, &store, &["outputs", "sync", "stills"]).exited(0).says("0 uploaded, 1 restored");
    env.configure("[output]\nstore = \"s3://media/Frühling #1\"\n");
    run(&env, &store, &["run", "stills.csv"]).exited(2).says("output.store: write # as %23");
    env.audit().each_paid_once(2);
}

#[test]
fn objects_have_the_names_that_results_say() {
    let env = TestEnv::new();
    env.configure(S3);
    env.write("plain.csv", ODD);
    let store = S3Server::start();
    run(&env, &store, &["run", "plain.csv"]).exited(0);
    let objects = store.objects();
    assert_eq!(objects, stored_files(&env, "plain"));
    for line in Outputs::of(&env, "plain").lines {
        let object = line["files"][0]["object"].as_str().unwrap();
        let key = object.strip_prefix("s3://media/").unwrap();
        assert!(objects.contains_key(key), "{object}: {:?}", objects.keys());
    }
    // They are found, and come back.
    run(&env, &store, &["outputs", "sync", "plain"]).exited(0).says("0 uploaded, 0 restored");
    assert_eq!(store.requests(&Method::PUT), 4, "nothing is put anew");
    for name in ODD_NAMES {
        fs::remove_file(env.path(&format!("output/plain/{name}.png"))).unwrap();
    }
    run(&env, &store, &["outputs", "sync", "plain"]).exited(0).says("0 uploaded, 2 restored");
    assert_eq!(store.objects(), stored_files(&env, "plain"));
    env.audit().each_paid_once(2);
}

fn is_of_older(name: &str) -> bool {
    ["%2", "%7E", "%C3", "%E6"].iter().any(|sign| name.contains(sign))
}

/// Gives every object the name that older versions gave it.
fn make_older(store: &S3Server) {
    for name in store.objects().into_keys().filter(|name| !is_of_older(name)) {
        let former = name.replace('%', "%25").replace('ï', "%C3%AF").replace('#', "%23").replace('~', "%7E");
        let former = former.replace('春', "%E6%98%A5").replace('[', "%5B").replace(']', "%5D");
        if former != name {
            store.rename(&name, &former);
        }
    }
}

#[test]
fn what_an_older_version_stored_under_other_names_is_found_and_not_uploaded_again() {
    let env = TestEnv::new();
    env.configure(&format!("{S3}[limits]\nuploads = 1\n"));
    env.write("plain.csv", ODD);
    let store = S3Server::start();
    // Its first upload was done, and nothing came after it.
    let mut killed = env.command(["run", "plain.csv"]);
    store.give_to(&mut killed);
    killed.env("CALLSHEET_FAILPOINT", "stored");
    Running::start(killed).end().was_killed("stored");
    make_older(&store);
    let older: Vec<String> = store.objects().into_keys().collect();
    assert!(older.len() == 1 && older[0].contains("%2"), "{older:?}");
    run(&env, &store, &["run", "plain.csv"]).exited(0);
    assert_eq!(store.requests(&Method::PUT), 4, "each file went once");
    assert!(store.objects().contains_key(&older[0]));
    // All of it is from an older version, whose results named them as the files on disk.
    make_older(&store);
    let disk = stored_files(&env, "plain");
    fs::remove_file(env.path("output/plain/naïve #1~.png")).unwrap();
    let synced = run(&env, &store, &["outputs", "sync", "plain"]);
    synced.exited(0).says("0 uploaded, 1 restored");
    let picture = "out/plain/naïve #1~.png";
    assert_eq!(stored_files(&env, "plain")[picture], disk[picture]);
    let objects = store.objects();
    assert!(!objects.contains_key(picture), "{:?}", objects.keys());
    for line in Outputs::of(&env, "plain").lines {
        let object = line["files"][0]["object"].as_str().unwrap();
        assert!(objects.contains_key(object.strip_prefix("s3://media/").unwrap()), "{object}");
    }
    // A newer version of a row takes the plain name; nothing of the older one is replaced.
    env.write("plain.csv", ODD.replace("a fox", "a red fox"));
    run(&env, &store, &["run", "plain.csv"]).exited(0);
    let now = store.objects();
    let mut older = objects.iter().filter(|(name, _)| is_of_older(name));
    assert!(older.all(|(name, content)| now.get(name) == Some(content)), "{:?}", now.keys());
    assert_eq!(now["out/plain/naïve #1~.png"], fs::read(env.path("output/plain/naïve #1~.png")).unwrap());
    env.audit().each_paid_once(3);
}

#[test]
fn an_object_whose_metadata_cannot_be_read_is_of_others() {
    let env = TestEnv::new();
    env.configure(S3);
    env.write("stills.csv", STILLS);
    let store = S3Server::start();
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    // As an older version wrote it, and as some stores tell it.
    store.tell_raw("out/stills/a.png", "callsheet-batch", "Frühling");
    let before = store.objects();
    env.write("stills.csv", STILLS.replace("a fox", "a red fox"));
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!(store.objects()["out/stills/a.png"], before["out/stills/a.png"]);
    let object = Outputs::of(&env, "stills").lines[0]["files"][0]["object"].as_str().unwrap().to_owned();
    assert!(object.starts_with("s3://media/out/stills/a-"), "{object}");
}
