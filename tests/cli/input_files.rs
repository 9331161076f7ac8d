//! Files of this machine as inputs: uploaded once to an object store, sent as links that can be fetched, and known by their
//! content.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use hyper::Method;
use serde_json::{Value, json};

use crate::support::process::{Outcome, Running};
use crate::support::s3::{ACCESS_KEY, S3Server, SECRET_KEY, StoreFault};
use crate::support::scripted_proxy::{Act, Route, ScriptedProxy};
use crate::support::{TestEnv, until};

/// A picture of one pixel.
const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0,
    1, 8, 2, 0, 0, 0, 0x90, 0x77, 0x53, 0xde,
];

fn png(mark: u8) -> Vec<u8> {
    let mut picture = PNG.to_vec();
    picture.push(mark);
    picture
}

const STORE: &str = "[inputs]\nstore = \"s3://media/refs\"\n";

fn env() -> (TestEnv, S3Server) {
    let env = TestEnv::new();
    env.configure(STORE);
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
        assert!(!said.contains(SECRET_KEY) && !said.contains("X-Amz-Signature"), "{said}");
    }
    outcome
}

/// The pictures that the service was given, request by request.
fn sent(proxy: &ScriptedProxy) -> Vec<Value> {
    let bodies = proxy.calls(Route::Create).into_iter();
    bodies.map(|call| serde_json::from_str::<Value>(&call.body).unwrap()["image_urls"].clone()).collect()
}

#[test]
fn a_file_is_uploaded_once_and_sent_as_a_link_that_can_be_fetched() {
    let (env, store) = env();
    let proxy = ScriptedProxy::before(&env.base_url(), |_| Act::Pass);
    env.configure_for(&proxy.base_url(), "", STORE);
    env.write("ref/logo.png", png(1));
    env.write("ref/same content.png", png(1));
    let rows = json!([
        {"id": "a", "kind": "video", "model": "house-c1", "prompt": "a", "image_urls": ["./ref/logo.png"]},
        {"id": "b", "kind": "video", "model": "house-c1", "prompt": "b", "image_urls": ["./ref/same content.png"]},
    ]);
    env.write("clips.json", rows.to_string());
    let plan = run(&env, &store, &["plan", "clips.json", "--rows"]).exited(0).stdout;
    assert!(plan.contains("./ref/logo.png"), "{plan}");
    assert_eq!(store.requests(&Method::PUT), 0, "a plan uploads nothing");
    run(&env, &store, &["run", "clips.json"]).exited(0);
    let objects = store.objects();
    let (name, content) = objects.first_key_value().unwrap();
    assert_eq!(content, &png(1));
    assert!(name.starts_with("refs/inputs/") && name.ends_with(".png") && objects.len() == 1, "{name}");
    assert_eq!(store.requests(&Method::PUT), 1);
    for addresses in sent(&proxy) {
        let (status, fetched) = store.fetch(addresses[0].as_str().unwrap());
        assert_eq!((status, fetched), (200, png(1)));
    }
    // Nothing of it stays in the state but a mark, no credentials and no signature.
    for file in walk(&env.path("state")).into_iter().chain(walk(&env.path("output"))) {
        let text = fs::read(&file).unwrap();
        let text = String::from_utf8_lossy(&text);
        for secret in [SECRET_KEY, ACCESS_KEY, "X-Amz-Signature"] {
            assert!(!text.contains(secret), "{secret} is in {}", file.display());
        }
    }
    run(&env, &store, &["run", "clips.json"]).exited(0).says("0 new (0 credits), 2 already there");
    let explained = run(&env, &store, &["explain", "clips/a"]).exited(0).stdout;
    for told in ["image_urls[0] is ./ref/logo.png: 34 bytes, SHA-256 ", "sent      s3://media/refs/inputs/"] {
        assert!(explained.contains(told), "{told}: {explained}");
    }
    env.audit().each_paid_once(2);
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    crate::support::api_key::files(dir)
}

#[test]
fn who_a_row_is_follows_from_the_content_and_not_from_the_name() {
    let (env, store) = env();
    env.write("logo.png", png(1));
    let row = |name: &str| format!("id,kind,model,prompt,image_urls\na,image,gi-2,a fox,{name}\n");
    env.write("stills.csv", row("./logo.png"));
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    fs::rename(env.path("logo.png"), env.path("moved.png")).unwrap();
    env.write("stills.csv", row("./moved.png"));
    run(&env, &store, &["run", "stills.csv"]).exited(0).says("0 new (0 credits), 1 already there");
    env.write("stills.csv", row(&format!("file://{}", env.path("moved.png").display())));
    run(&env, &store, &["run", "stills.csv"]).exited(0).says("0 new (0 credits), 1 already there");
    // A path may be a cell that begins a line, or follows a tab.
    let path = env.path("moved.png").display().to_string();
    env.write("stills.csv", format!("image_urls,id,kind,model,prompt\n{path},a,image,gi-2,a fox\n"));
    run(&env, &store, &["run", "stills.csv"]).exited(0).says("0 new (0 credits), 1 already there");
    env.write("stills.csv", format!("id\tkind\tmodel\tprompt\timage_urls\na\timage\tgi-2\ta fox\t{path}\n"));
    run(&env, &store, &["run", "stills.csv"]).exited(0).says("0 new (0 credits), 1 already there");
    env.write("moved.png", png(2));
    env.write("stills.csv", row("./moved.png"));
    let plan = run(&env, &store, &["plan", "stills.csv", "--rows"]).exited(0);
    assert!(plan.stdout.contains("changed"), "{}", plan.stdout);
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!(store.objects().len(), 2);
    env.audit().each_paid_once(2);
}

#[test]
fn what_cannot_be_taken_is_said_with_its_place_and_costs_nothing() {
    let (env, store) = env();
    env.configure("[inputs]\nstore = \"s3://media\"\nmax_file = \"1KiB\"\n");
    env.write("good.png", png(1));
    env.write("empty.png", "");
    env.write("text.png", "this is a text that somebody has called a picture, of no known type at all");
    env.write("large.png", [png(1), vec![0; 2000]].concat());
    fs::create_dir(env.path("folder")).unwrap();
    let rows = "id,kind,model,prompt,image_urls\n\
                ok,image,gi-2,x,./good.png\n\
                1,image,gi-2,x,./missing.png\n\
                2,image,gi-2,x,./empty.png\n\
                3,image,gi-2,x,./text.png\n\
                4,image,gi-2,x,./large.png\n\
                5,image,gi-2,x,./folder\n\
                6,image,gi-2,x,good.png\n";
    env.write("stills.csv", rows);
    let outcome = run(&env, &store, &["run", "stills.csv"]).exited(2);
    for said in [
        "stills.csv:3:16: image_urls: \"./missing.png\" does not exist",
        "stills.csv:4:16: image_urls: \"./empty.png\" is empty",
        "stills.csv:5:16: image_urls: \"./text.png\" is of a type that is not known",
        "stills.csv:6:16: image_urls: \"./large.png\" has more than 1.0 KiB, the most that inputs.max_file allows",
        "stills.csv:7:16: image_urls: \"./folder\" is a folder",
        "stills.csv:8:16: image_urls: \"good.png\" is not an address",
    ] {
        assert!(outcome.stderr.contains(said), "{said}\n{}", outcome.stderr);
    }
    env.audit().each_paid_once(1);
    env.configure("");
    env.write("none.csv", "id,kind,model,prompt,image_urls\nok,image,gi-2,x,./good.png\n");
    run(&env, &store, &["run", "none.csv"]).exited(2).says("set inputs.store in the configuration");
}

#[test]
fn a_file_that_may_not_be_read_is_said_with_its_place_and_the_other_rows_go_on() {
    let (env, store) = env();
    env.write("good.png", png(1));
    env.write("closed.png", png(2));
    env.write("closed/logo.png", png(3));
    env.write(
        "stills.csv",
        "id,kind,model,prompt,image_urls\nok,image,gi-2,x,./good.png\n1,image,gi-2,x,./closed.png\n\
         2,image,gi-2,x,./closed/logo.png\n",
    );
    let close = |name: &str, mode| {
        fs::set_permissions(env.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["closed.png", "closed"] {
        close(name, 0o000);
    }
    for arguments in [["plan", "stills.csv"], ["run", "stills.csv"]] {
        let mut command = command(&env, &store, &arguments);
        // Nothing is closed to root.
        if rustix::process::getuid().is_root() {
            close("", 0o777);
            command.uid(65534).gid(65534);
        }
        let outcome = Running::start(command).end().exited(2);
        for said in [
            "stills.csv:3:16: image_urls: \"./closed.png\" cannot be read: Permission denied",
            "stills.csv:4:16: image_urls: \"./closed/logo.png\" cannot be read: Permission denied",
        ] {
            assert!(outcome.stderr.contains(said), "{said}\n{}", outcome.stderr);
        }
    }
    // The folder of the test can be removed again.
    close("closed", 0o700);
    assert_eq!(store.objects().into_values().collect::<Vec<_>>(), [png(1)]);
    env.audit().each_paid_once(1);
}

#[test]
fn a_store_that_is_slow_or_down_is_waited_for() {
    let (env, store) = env();
    env.write("logo.png", png(1));
    env.write("stills.csv", "id,kind,model,prompt,image_urls\na,image,gi-2,a fox,./logo.png\n");
    store.fault(&Method::PUT, StoreFault::Status(503), 3);
    store.fault(&Method::HEAD, StoreFault::Status(500), 2);
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert_eq!(store.objects().len(), 1);
    env.audit().each_paid_once(1);
}

#[test]
fn jobs_without_files_go_on_while_the_store_is_down() {
    let (env, store) = env();
    env.configure(&format!("{STORE}[limits]\nin_flight = 2\n"));
    env.write("logo.png", png(1));
    let with = |n| format!("f{n},image,gi-2,fox {n},./logo.png\n");
    let without = |n| format!("w{n},video,house-c1,gull {n},\n");
    let rows: String = (0..8).map(with).chain((0..8).map(without)).collect();
    env.write("mixed.csv", format!("id,kind,model,prompt,image_urls\n{rows}"));
    store.fault(&Method::HEAD, StoreFault::Status(403), 100_000);
    store.fault(&Method::PUT, StoreFault::Status(403), 100_000);
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    run(&env, &store, &["submit", "mixed.csv"]).exited(0);
    let status = || -> Value {
        run(&env, &store, &["status", "mixed", "--json"]).exited(0).json()["batches"][0].clone()
    };
    until("those without files are done", || env.audit().tasks.len() == 8);
    until("the rest waits for the store", || status()["parked_by"] == "store");
    store.mend();
    until("all are done", || status()["state"] == "done");
    daemon.stop().exited(0);
    env.audit().each_paid_once(16);
}

#[test]
fn killed_at_every_step_of_an_upload_it_is_bought_once() {
    for point in ["finding-inputs", "uploading", "uploaded"] {
        let (env, store) = env();
        env.write("logo.png", png(1));
        env.write("stills.csv", "id,kind,model,prompt,image_urls\na,image,gi-2,a fox,./logo.png\n");
        let mut killed = command(&env, &store, &["run", "stills.csv"]);
        killed.env("CALLSHEET_FAILPOINT", point);
        Running::start(killed).end().was_killed(point);
        // The original is not needed any more.
        fs::remove_file(env.path("logo.png")).unwrap();
        let daemon = Running::start(command(&env, &store, &["daemon"]));
        daemon.says("ready");
        until("the job is done", || env.audit().tasks.iter().any(|task| task.downloads > 0));
        daemon.stop().exited(0);
        assert_eq!(store.objects().into_values().collect::<Vec<_>>(), [png(1)], "{point}");
        env.audit().each_paid_once(1);
    }
}

#[test]
fn an_output_that_the_service_has_no_more_is_taken_from_our_own_copy() {
    let (env, store) = env();
    // Once the still was downloaded, its link leads nowhere.
    let (still, gone) = (env.path("output/story/still.png"), format!("{}/media/gone.png", env.base_url()));
    let proxy = ScriptedProxy::before(&env.base_url(), move |call| {
        let gone = gone.clone();
        match call.route {
            Route::Poll if still.exists() => Act::Change(Box::new(move |body| {
                if body["data"]["mediaType"] == "image" {
                    body["data"]["taskUrls"] = json!([gone]);
                }
            })),
            _ => Act::Pass,
        }
    });
    let story = json!([
        {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox"},
        {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "it runs", "image_urls": ["job:still"]},
    ]);
    env.write("story.json", story.to_string());
    env.configure_for(&proxy.base_url(), "", "");
    let failed = run(&env, &store, &["run", "story.json"]).exited(1).says("result link that cannot be used");
    let helps = "to have the copy on disk sent: set inputs.store in the configuration, then: callsheet retry story/clip";
    let failed = failed.says(&format!("nothing was charged; {helps}"));
    failed.says(
        "story: 1 job takes an input that is gone; do what its error says, then:\n    callsheet retry story\n",
    );
    let told = run(&env, &store, &["explain", "story/clip"]).exited(0).stdout;
    assert!(told.contains(helps), "{told}");
    env.configure_for(&proxy.base_url(), "", STORE);
    // Nor does a retry help without the copy.
    let still = env.path("output/story/still.png");
    fs::rename(&still, env.path("aside.png")).unwrap();
    fs::write(&still, "edited").unwrap();
    run(&env, &store, &["retry", "story"]).exited(0);
    run(&env, &store, &["run", "story.json"]).exited(1).says(
        "its copy story/still.png is not on disk as it was downloaded: put it back as it was downloaded, then: callsheet \
         retry story/clip; or another take of still can be bought and picked: callsheet review another-take story/still",
    );
    fs::rename(env.path("aside.png"), &still).unwrap();
    run(&env, &store, &["retry", "story"]).exited(0);
    run(&env, &store, &["run", "story.json"]).exited(0);
    let still = fs::read(env.path("output/story/still.png")).unwrap();
    assert_eq!(store.objects().into_values().collect::<Vec<_>>(), [still.as_slice()]);
    let given = sent(&proxy);
    let (status, fetched) = store.fetch(given.last().unwrap()[0].as_str().unwrap());
    assert_eq!((status, fetched), (200, still));
    env.audit().each_paid_once(2);
}

#[test]
fn an_output_whose_host_does_not_answer_is_taken_from_our_own_copy() {
    let (env, store) = env();
    // Nothing listens there once the still was downloaded.
    let still = env.path("output/story/still.png");
    let proxy = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
        Route::Poll if still.exists() => Act::Change(Box::new(|body| {
            if body["data"]["mediaType"] == "image" {
                body["data"]["taskUrls"] = json!(["http://127.0.0.1:9/still.png"]);
            }
        })),
        _ => Act::Pass,
    });
    let story = json!([
        {"id": "still", "kind": "image", "model": "gi-2", "prompt": "a fox"},
        {"id": "clip", "kind": "video", "model": "house-c1", "prompt": "it runs", "image_urls": ["job:still"]},
    ]);
    env.write("story.json", story.to_string());
    env.configure_for(&proxy.base_url(), "", STORE);
    run(&env, &store, &["run", "story.json"]).exited(0);
    let still = fs::read(env.path("output/story/still.png")).unwrap();
    assert_eq!(store.objects().into_values().collect::<Vec<_>>(), [still.as_slice()]);
    let (status, fetched) = store.fetch(sent(&proxy).last().unwrap()[0].as_str().unwrap());
    assert_eq!((status, fetched), (200, still));
    env.audit().each_paid_once(2);
}

#[test]
fn a_source_video_tells_its_length_and_the_price_follows_from_it() {
    let (env, store) = env();
    // A clip of 3 s, as the service makes them.
    env.write("clip.csv", "id,kind,model,prompt,duration\nclip,video,house-c1,a fox,3s\n");
    run(&env, &store, &["run", "clip.csv"]).exited(0);
    fs::rename(env.path("output/clip/clip.mp4"), env.path("fox.mp4")).unwrap();
    let row = json!([{"id": "long", "kind": "video", "model": "model-s-2-5", "prompt": "and on",
                      "video_urls": "./fox.mp4", "duration": "5s"}]);
    env.write("long.json", row.to_string());
    let told = run(&env, &store, &["plan", "long.json"]).exited(0).stderr;
    assert!(told.contains("options.source_video_duration_seconds: is 3"), "{told}");
    run(&env, &store, &["run", "long.json"]).exited(0);
    assert!(store.objects().keys().all(|name| name.ends_with(".mp4")));
    env.write("wrong.json", row.to_string().replace("video_urls", "image_urls"));
    run(&env, &store, &["plan", "wrong.json"])
        .exited(2)
        .says("is a file of the type mp4; image_urls takes png");
    env.audit().each_paid_once(2);
}

#[test]
fn a_large_file_goes_in_parts_and_a_cut_one_goes_again() {
    let (env, store) = env();
    let picture = [png(1), (0..20_000_000_u32).map(|at| (at % 251) as u8).collect()].concat();
    env.write("large.png", &picture);
    env.write("stills.csv", "id,kind,model,prompt,image_urls\na,image,gi-2,a fox,./large.png\n");
    // The parts are parts of one upload, which is begun again.
    store.fault(&Method::POST, StoreFault::Status(503), 2);
    let mut killed = command(&env, &store, &["run", "stills.csv"]);
    killed.env("CALLSHEET_FAILPOINT", "uploaded");
    Running::start(killed).end().was_killed("uploaded");
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    assert!(store.objects().into_values().eq([picture]), "it is whole");
    env.audit().each_paid_once(1);
}

#[test]
fn a_copy_that_is_damaged_or_gone_stops_its_job_free_of_charge() {
    let (env, store) = env();
    env.write("logo.png", png(1));
    env.write("stills.csv", "id,kind,model,prompt,image_urls\na,image,gi-2,a fox,./logo.png\n");
    let mut killed = command(&env, &store, &["run", "stills.csv"]);
    killed.env("CALLSHEET_FAILPOINT", "uploading");
    Running::start(killed).end().was_killed("uploading");
    let staged = walk(&env.path("state/inputs")).pop().unwrap();
    fs::write(&staged, png(2)).unwrap();
    run(&env, &store, &["run", "stills.csv"]).exited(1).says("input_changed");
    assert!(store.objects().is_empty() && env.audit().tasks.is_empty());
    assert!(!staged.exists(), "it is handed over again");
    fs::rename(env.path("logo.png"), env.path("away.png")).unwrap();
    run(&env, &store, &["retry", "stills"]).exited(0);
    let daemon = Running::start(command(&env, &store, &["daemon"]));
    daemon.says("ready");
    until("it has failed", || {
        run(&env, &store, &["explain", "stills/a"]).stdout.contains("submit its manifest again, then retry")
    });
    daemon.stop().exited(0);
    fs::rename(env.path("away.png"), env.path("logo.png")).unwrap();
    run(&env, &store, &["run", "stills.csv"]).exited(1);
    run(&env, &store, &["retry", "stills"]).exited(0);
    run(&env, &store, &["run", "stills.csv"]).exited(0);
    env.audit().each_paid_once(1);
}

#[test]
fn rows_without_files_go_on_while_the_store_is_down() {
    let (env, store) = env();
    for method in [Method::HEAD, Method::GET, Method::PUT] {
        store.fault(&method, StoreFault::Status(503), 1_000);
    }
    env.write("logo.png", png(1));
    env.write(
        "stills.csv",
        "id,kind,model,prompt,image_urls\na,image,gi-2,a fox,./logo.png\nb,image,gi-2,b,\n",
    );
    let going = Running::start(command(&env, &store, &["run", "stills.csv"]));
    until("the other row", || env.path("output/stills/b.png").exists());
    going.says("its inputs are not there yet; trying again");
    assert_eq!(env.audit().tasks.len(), 1);
    store.mend();
    going.end().exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn doctor_says_whether_the_store_answers() {
    let (env, store) = env();
    let check_of = |name: &str, command: Command| {
        let outcome = Running::start(command).end();
        let checks: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let all = checks["checks"].as_array().unwrap().clone();
        all.into_iter().find(|check| check["check"] == name).unwrap()
    };
    let check = |command: Command| check_of("inputs", command);
    let good = check(command(&env, &store, &["doctor", "--json"]));
    assert_eq!(good["level"], "good", "{good}");
    let mut wrong = command(&env, &store, &["doctor", "--json"]);
    wrong.env("AWS_SECRET_ACCESS_KEY", "another");
    let wrong = check(wrong);
    assert_eq!(wrong["level"], "wrong", "{wrong}");
    assert!(wrong["found"].as_str().unwrap().contains("refuses the credentials"), "{wrong}");
    env.configure("[inputs]\nstore = \"ftp://media\"\n");
    let unknown = check_of("config", command(&env, &store, &["doctor", "--json"]));
    assert!(unknown["found"].as_str().unwrap().contains("must begin with s3://, gs://"), "{unknown}");
}

/// An export carries no files: what names them waits until its manifest is submitted again, and is then bought once.
#[test]
fn an_import_names_the_batches_whose_files_it_lacks() {
    let (env, store) = env();
    env.write("ref/logo.png", png(1));
    let row = json!({"id": "a", "kind": "video", "model": "house-c1", "prompt": "a", "image_urls": ["./ref/logo.png"]});
    env.write("clips.json", json!([row]).to_string());
    run(&env, &store, &["run", "clips.json", "--budget", "0"]).exited(4);
    run(&env, &store, &["state", "export", "dump.jsonl"]).exited(0);
    fs::remove_dir_all(env.path("state")).unwrap();
    let imported = run(&env, &store, &["state", "import", "dump.jsonl"]).exited(0);
    imported.says("clips: rows of it take files of the machine").says("submit its manifest again");
    run(&env, &store, &["run", "clips.json", "--budget", "1000"]).exited(7);
    run(&env, &store, &["resume", "clips"]).exited(0);
    run(&env, &store, &["run", "clips.json", "--budget", "1000"]).exited(0);
    env.audit().each_paid_once(1);
}
