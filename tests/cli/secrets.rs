//! The API key appears nowhere: not in what is printed, not in the log at any level, not in what is left
//! on disk, whatever goes wrong.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::support::api_key::{KEY, KEY_IN_BASE64, KEY_IN_JSON, files, files_with_key, holds_key};
use crate::support::process::{Outcome, Running};
use crate::support::s3::{ACCESS_KEY, S3Server, SECRET_KEY, holds_store_secret, store_secrets_are_nowhere};
use crate::support::scripted_proxy::{Act, Route, ScriptedProxy, reply_of};
use crate::support::{TestEnv, manifests, until};

/// Dropped connections, foreign answers, failing tasks, broken downloads: everything that makes a program talk.
const FAULTS: &str = "
seed = 5
[[rules]]
probability = 0.1
effect = { do = 'drop', when = 'after' }
[[rules]]
on = 'poll'
probability = 0.1
effect = { do = 'answer', status = 502, body = 'html' }
[[rules]]
on = 'create'
probability = 0.1
effect = { do = 'answer', status = 500, body = 'broken-json', when = 'after' }
[[rules]]
contains = 'image-2'
effect = { do = 'task-fails', code = 'provider_unavailable', reason = 'no' }
[[rules]]
on = 'download'
probability = 0.2
effect = { do = 'truncated-download', keep_percent = 40 }
";

fn with_key() -> TestEnv {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::of_all_kinds(2).0);
    env
}

fn run(env: &TestEnv, key: &str, arguments: &[&str]) -> Outcome {
    let mut command = env.command(arguments.iter().copied());
    command.env("CALLSHEET_API_KEY", key);
    Running::start(command).end()
}

#[track_caller]
fn key_is_nowhere(env: &TestEnv, outcome: &Outcome) {
    assert!(!holds_key(outcome.stdout.as_bytes()), "on stdout:\n{}", outcome.stdout);
    let line = outcome.stderr.lines().find(|line| holds_key(line.as_bytes()));
    assert_eq!(line, None, "on stderr");
    assert_eq!(files_with_key(&env.path("")), [] as [PathBuf; 0]);
}

#[test]
fn the_search_finds_a_key() {
    assert!(holds_key(format!("authorization: Bearer {KEY}\r\n").as_bytes()));
    assert!(holds_key(format!("Basic {KEY_IN_BASE64}==").as_bytes()));
    for spelling in KEY_IN_JSON {
        assert!(
            holds_key(format!("{{\"message\":\"bad header Bearer {spelling}\"}}").as_bytes()),
            "{spelling}"
        );
    }
    assert!(!holds_key(b"authorization: Sensitive"));
    assert!(!holds_key(br"\u \u12 C:\sk\live"));
}

#[test]
fn a_run_in_bad_weather_that_logs_everything_shows_no_key() {
    for format in ["human", "json"] {
        let env = with_key();
        env.configure(&format!("[log]\nformat = \"{format}\""));
        env.faults(FAULTS);
        let outcome = run(&env, KEY, &["run", "batch.csv", "--log-level", "trace"]);
        assert!(env.audit().totals.tasks > 0, "{}", outcome.stderr);
        for library in ["hyper", "reqwest", "callsheet"] {
            assert!(outcome.stderr.contains(library), "{library} says nothing: is everything logged?");
        }
        assert!(env.path("output/batch/results.jsonl").exists());
        assert!(files(&env.path("state")).len() > 3);
        key_is_nowhere(&env, &outcome);
    }
}

#[test]
fn a_refused_key_is_not_repeated() {
    let env = TestEnv::new();
    env.account(&serde_json::json!({ "key_valid": false }));
    env.write("batch.csv", manifests::manifest("image", 1));
    let outcome = run(&env, KEY, &["run", "batch.csv", "--log-level", "trace"]).exited(3);
    assert!(env.audit().totals.unauthorized > 0);
    key_is_nowhere(&env, &outcome);
}

/// What the daemon answers to one question on its socket, head and all.
fn asked(env: &TestEnv, path: &str) -> String {
    let mut stream = UnixStream::connect(env.path("state/callsheet.sock")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: callsheet\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_daemon_shows_its_key_to_no_client_no_hook_and_no_monitor() {
    let env = with_key();
    env.configure("[hooks]\nbatch_done = [\"sh\", \"-c\", \"env > told.txt; cat >> told.txt\"]");
    env.faults(FAULTS);
    let mut command = env.command(["daemon", "--log-level", "trace"]);
    command.env("CALLSHEET_API_KEY", KEY);
    let daemon = Running::start(command);
    daemon.says("ready");
    let submitted = run(&env, "not-the-key", &["submit", "batch.csv", "--json"]).exited(0);
    assert!(!holds_key(submitted.stdout.as_bytes()), "{}", submitted.stdout);
    until("the hook", || env.path("told.txt").exists());
    let metrics = asked(&env, "/metrics");
    assert!(metrics.contains("callsheet_jobs{"), "{metrics}");
    for answer in [metrics, asked(&env, "/v1/status"), asked(&env, "/v1/jobs")] {
        assert!(!holds_key(answer.as_bytes()), "{answer}");
    }
    daemon.signal(Signal::TERM);
    let outcome = daemon.end().exited(0);
    assert!(outcome.stderr.contains("hyper"), "is everything logged?");
    key_is_nowhere(&env, &outcome);
}

/// A proxy that answers with the request it could not pass on, the key in it.
fn talkative_proxy() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = vec![0; 16 * 1024];
            let read = connection.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let headers: Vec<&str> = request.lines().filter(|line| line.contains("Bearer")).collect();
            assert!(read == 0 || holds_key(headers.join("").as_bytes()), "the key was not sent: {request}");
            let page = headers.join("\n");
            let head = format!(
                "HTTP/1.1 502 Bad Gateway\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                page.len()
            );
            let _ = connection.write_all(format!("{head}{page}").as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn an_error_page_that_shows_the_key_is_not_passed_on() {
    let env = with_key();
    let proxy = talkative_proxy();
    for command in ["credits", "run"] {
        let mut arguments = vec![command, "--base-url", proxy.as_str(), "--log-level", "trace"];
        if command == "run" {
            arguments.push("batch.csv");
        }
        let outcome = run(&env, KEY, &arguments).exited(5).says("[API key]");
        key_is_nowhere(&env, &outcome);
    }
}

/// However the service writes it: in a refusal, in a record of a task that failed, in half an answer, in an error.
#[test]
fn an_answer_that_spells_the_key_in_json_is_not_passed_on() {
    for spelling in KEY_IN_JSON {
        let env = TestEnv::new();
        env.write("batch.csv", manifests::manifest("image", 3));
        let hostile = ScriptedProxy::before(&env.base_url(), move |call| match call.route {
            Route::Create if call.body.contains("image-1\"") => Act::Bytes(reply_of(
                "400 Bad Request",
                "application/json",
                format!(
                    r#"{{"code":-1,"message":"header {spelling}","error":{{"type":"of {spelling}","hint":"{spelling}"}}}}"#
                ),
            )),
            Route::Create if call.body.contains("image-2\"") && call.nth == 0 => Act::Bytes(reply_of(
                "502 Bad Gateway",
                "application/json",
                format!(r#"{{"headers":{{"authorization":"Bearer {spelling}","#),
            )),
            Route::Create if call.body.contains("image-3\"") => Act::Bytes(reply_of(
                "200 OK",
                "application/json",
                format!(
                    r#"{{"code":0,"data":{{"id":"t","status":"failed","costCredits":0,"model":"{spelling}",
                    "options":{{"{spelling}":1}},"taskInfo":{{"errorCode":"invalid_input","errorMessage":"{spelling}"}}}}}}"#
                ),
            )),
            Route::Other => Act::Bytes(reply_of(
                "200 OK",
                "application/json",
                r#"{"code":0,"message":"ok","data":{"remainingCredits":1000}}"#,
            )),
            _ => Act::Pass,
        });
        let base_url = hostile.base_url();
        let arguments = ["run", "batch.csv", "--base-url", base_url.as_str(), "--log-level", "trace"];
        let outcome = run(&env, KEY, &arguments).exited(1).says("header [API key]");
        key_is_nowhere(&env, &outcome);
        let results = std::fs::read_to_string(env.path("output/batch/results.jsonl")).unwrap();
        assert!(results.contains("invalid_input"), "{results}");
        assert!(files(&env.path("state")).len() > 3);
        for id in ["image-1", "image-2", "image-3"] {
            let story = run(&env, KEY, &["explain", id, "--base-url", &base_url]).exited(0);
            assert!(story.stdout.contains("[API key]"), "{}", story.stdout);
        }
    }
}

#[test]
fn a_key_in_the_wrong_place_of_the_configuration_is_not_shown() {
    let env = with_key();
    env.configure(&format!("[log]\napi_key = \"{KEY}\""));
    let outcome = run(&env, KEY, &["run", "batch.csv", "--log-level", "trace"]).exited(2);
    assert!(outcome.stderr.contains("unknown key `api_key`"), "{}", outcome.stderr);
    assert!(!holds_key(outcome.stderr.as_bytes()), "{}", outcome.stderr);
}

/// Files go to the store and outputs are put into it; links to the files go to the service.
#[test]
fn the_key_never_goes_to_the_store_and_credentials_of_the_store_never_to_the_service() {
    let (env, store) = (TestEnv::new(), S3Server::start());
    let proxy = ScriptedProxy::before(&env.base_url(), |_| Act::Pass);
    let sections = "[inputs]\nstore = \"s3://media/refs\"\n[output]\nstore = \"s3://media/out\"\n";
    env.configure_for(&proxy.base_url(), "", sections);
    env.write("logo.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde!");
    let rows = "id,kind,model,prompt,image_urls\na,image,gi-2,a fox,./logo.png\nb,image,gi-2,a gull,\n";
    env.write("stills.csv", rows);
    for (manifest, level) in [(rows.to_owned(), "trace"), (rows.replace("a gull", "a white gull"), "info")] {
        env.write("stills.csv", manifest);
        let mut command = env.command(["run", "stills.csv", "--log-level", level]);
        store.give_to(&mut command);
        let outcome = Running::start(command).end().exited(0);
        key_is_nowhere(&env, &outcome);
        store_secrets_are_nowhere(&env.path("state"), &[&outcome.stdout, &outcome.stderr]);
    }
    let mut command = env.command(["outputs", "sync", "stills"]);
    store.give_to(&mut command);
    Running::start(command).end().exited(0);
    assert_eq!(store.objects().len(), 7, "a file, three outputs with their sidecars");
    assert_eq!(store.with_service_secrets(), [] as [String; 0]);
    let creations = proxy.calls(Route::Create);
    assert!(creations.iter().all(|call| holds_key(call.head.as_bytes())), "the key goes to the service");
    for route in [Route::Create, Route::Poll, Route::Catalog, Route::Result, Route::Other] {
        for call in proxy.calls(route) {
            let elsewhere = format!("{}{}", call.head, if route == Route::Create { "" } else { &call.body });
            assert!(!holds_store_secret(elsewhere.as_bytes()) && !elsewhere.contains(ACCESS_KEY), "{call:?}");
            assert!(!call.body.contains(SECRET_KEY), "{call:?}");
        }
    }
    // The link says who signed it, and that is all.
    assert!(
        creations.iter().any(|call| call.body.contains(ACCESS_KEY) && call.body.contains("X-Amz-Signature"))
    );
    env.audit().each_paid_once(3);
    // The search would have found it.
    store.fetch(&format!("{}/media/{KEY}", store.base_url()));
    assert_eq!(store.with_service_secrets().len(), 1);
}

/// A daemon that holds the key in its memory, allowed to leave an image of it when it dies.
fn daemon_that_may_dump(env: &TestEnv) -> Running {
    let inner = env.command(["daemon", "--log-level", "info"]);
    let mut command = Command::new("sh");
    command
        // Where the tests run in the background of a script, SIGQUIT is ignored, and what they start inherits that.
        .args(["-c", "ulimit -c unlimited; exec env --default-signal=QUIT \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args());
    command.current_dir(env.path("")).env_clear().env("CALLSHEET_API_KEY", KEY);
    if rustix::process::getuid().is_root() {
        std::fs::set_permissions(env.path(""), std::fs::Permissions::from_mode(0o777)).unwrap();
        command.uid(65534).gid(65534);
    }
    let daemon = Running::start(command);
    daemon.says("ready");
    daemon
}

#[test]
fn no_image_of_the_memory_is_left_and_nobody_may_look_into_it() {
    for signal in [Signal::ABORT, Signal::QUIT] {
        let env = with_key();
        let daemon = daemon_that_may_dump(&env);
        let proc = format!("/proc/{}", daemon.pid());
        let limits = std::fs::read_to_string(format!("{proc}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let limit: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
        assert_eq!(limit, ["0", "0"], "{core}");
        // Memory and environment of a process that may not be dumped are root's alone.
        for name in ["mem", "environ"] {
            assert_eq!(std::fs::metadata(format!("{proc}/{name}")).unwrap().uid(), 0, "{name}");
        }
        daemon.signal(signal);
        let outcome = daemon.end();
        assert_eq!(outcome.signal, Some(signal.as_raw()));
        assert!(!outcome.dumped, "an image was left");
        let left = files(&env.path(""))
            .into_iter()
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core")));
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn an_address_with_a_password_or_a_query_is_refused_and_not_shown() {
    let env = with_key();
    env.write("one.csv", manifests::manifest("image", 1));
    for (address, told) in [
        ("http://ana:secretpw@127.0.0.1:1", "has a user name or password"),
        ("http://127.0.0.1:1/x?token=secretpw", "has a ? or #"),
    ] {
        for words in [&["run", "one.csv"][..], &["status"], &["credits"]] {
            let refused = env.run(words.iter().copied().chain(["--base-url", address])).exited(2).says(told);
            assert!(!refused.stderr.contains("secretpw"), "{}", refused.stderr);
        }
    }
}

#[test]
fn a_key_file_that_is_missing_or_empty_is_named_with_its_setting() {
    let env = with_key();
    env.configure_service("api_key_file = \"key\"", "");
    let credits = || {
        let mut command = env.command(["credits"]);
        command.env_remove("CALLSHEET_API_KEY");
        Running::start(command).end()
    };
    credits().exited(2).says("error: service.api_key_file: failed to read key: No such file");
    env.write("key", "\n");
    credits().exited(2).says("error: service.api_key_file: key is empty; write the API key into it");
}
