//! Who talks to which daemon, and what a daemon's socket takes from its clients.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::own_address::own_address;
use crate::support::process::Running;
use crate::support::{TestEnv, manifests, until};

/// One socket for everybody, as the packaged configuration names it.
fn with_one_socket() -> TestEnv {
    let env = TestEnv::new();
    env.configure("[paths]\nsocket = \"control.sock\"");
    env.write("batch.csv", manifests::manifest("image", 2));
    env
}

#[test]
fn what_names_another_state_does_not_reach_the_daemon() {
    let env = with_one_socket();
    let daemon = env.daemon("info");
    env.run(["run", "batch.csv", "--emulator", "--emulator-speed", "500"]).exited(0);
    assert!(env.path("output/emulator/batch/image-1.png").exists());
    assert_eq!(env.audit().totals.tasks, 0, "the daemon's service was asked for nothing");
    env.run(["run", "batch.csv", "--state", "other", "--output", "elsewhere"]).exited(0);
    assert!(env.path("elsewhere/batch/image-1.png").exists());
    let batches = |arguments: &[&str]| {
        let answer = env.run(arguments.iter().copied()).exited(0).json();
        answer["batches"].as_array().unwrap().len()
    };
    assert_eq!(batches(&["status", "--json"]), 0, "of the daemon's state");
    assert_eq!(batches(&["status", "--json", "--state", "other"]), 1);
    assert_eq!(batches(&["status", "--json", "--state", "other", "--socket", "control.sock"]), 1);
    env.run(["state", "export", "--state", "nothing-there"]).exited(2);
    env.run(["cancel", "batch", "--state", "other"]).exited(0);
    // Submit is for the daemon.
    env.run(["submit", "batch.csv", "--state", "other"])
        .exited(2)
        .says(&format!("the daemon at control.sock works on {}", state(&env)));
    assert_eq!(batches(&["status", "--json"]), 0);
    daemon.stop();
}

#[test]
fn a_command_beside_a_daemon_with_an_emulator_asks_that_emulator() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    let daemon = env.start(["daemon", "--emulator", "--emulator-speed", "inf", "--log-level", "info"]);
    daemon.says("ready");
    env.run(["submit", "batch.csv", "--emulator", "--wait"]).exited(0);
    let balance = || env.run(["credits", "--json", "--emulator"]).exited(0).json()["balance_credits"].clone();
    let left = balance();
    assert!(left.as_u64().unwrap() < 1_000_000_000, "{left}");
    daemon.stop();
    assert_eq!(balance(), left, "of the account that it left");
}

fn state(env: &TestEnv) -> String {
    env.path("state").canonicalize().unwrap().display().to_string()
}

#[test]
fn a_daemon_that_works_with_something_else_than_named_is_handed_nothing() {
    let env = with_one_socket();
    let daemon = env.daemon("info");
    let other = ["run", "batch.csv", "--base-url", "http://127.0.0.1:9"];
    env.run(other).exited(2).says("but this command names http://127.0.0.1:9").says(&env.base_url());
    let other = ["submit", "batch.csv", "--output", "elsewhere"];
    env.run(other).exited(2).says("writes outputs to").says("this command names elsewhere");
    let emulated = ["run", "batch.csv", "--emulator", "--state", "state"];
    env.run(emulated).exited(2).says("this command names the emulator");
    // A service that was put into the file after the daemon had begun.
    let text = std::fs::read_to_string(env.path("callsheet.toml")).unwrap();
    env.write("callsheet.toml", text.replace(&env.base_url(), "http://127.0.0.1:9"));
    env.run(["run", "batch.csv"]).exited(2).says("but this command names http://127.0.0.1:9");
    env.write("callsheet.toml", text);
    assert_eq!(env.audit().totals.tasks, 0);
    // The same things, named, are no other things.
    let (url, output) = (env.base_url(), env.path("output").display().to_string());
    let same = ["run", "batch.csv", "--base-url", &url, "--output", &output, "--state", "./state"];
    env.run(same).exited(0).says("a daemon runs on this state");
    daemon.stop();
    env.audit().each_paid_once(2);
}

#[test]
fn a_named_socket_means_its_daemon() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    let daemon = env.start(["daemon", "--state", "far/state", "--socket", "far.sock", "--log-level", "info"]);
    daemon.says("ready");
    env.run(["submit", "batch.csv", "--wait", "--socket", "far.sock"]).exited(0);
    let status = env.run(["status", "--json", "--socket", "far.sock"]).exited(0).json();
    assert_eq!(status["batches"][0]["name"], "batch");
    // Where only the configuration names it, the state decides, and the difference is told.
    env.configure("[paths]\nsocket = \"far.sock\"\nstate = \"near\"");
    env.run(["status"]).exited(2).says("To use that daemon: --socket far.sock");
    daemon.stop();
    let nobody = env.run(["status", "--state", "far/state", "--socket", "fat.sock"]).exited(0);
    nobody.says("note: no process listens on fat.sock; this command uses the state in far/state");
}

#[test]
fn a_daemon_leaves_the_socket_of_a_living_one_alone() {
    let env = with_one_socket();
    let first = env.daemon("info");
    let second = env.run(["daemon", "--state", "other", "--jobs", "other"]).exited(2);
    second
        .says(&format!("control.sock is taken: a daemon (process {}, since 20", first.pid()))
        .says("another socket");
    env.run(["status", "--json"]).exited(0);
    // What has taken the name's place is not the daemon's to remove.
    std::fs::remove_file(env.path("control.sock")).unwrap();
    let _theirs = UnixListener::bind(env.path("control.sock")).unwrap();
    first.stop();
    assert!(env.path("control.sock").exists());
}

#[test]
fn a_place_that_cannot_be_listened_on_is_told_with_what_to_do() {
    let env = TestEnv::new();
    let long = "x".repeat(120);
    env.run(["daemon", "--socket", &long])
        .exited(2)
        .says("the path has 120 bytes; a socket path has at most 107")
        .says("choose a shorter path");
    env.run(["submit", "batch.csv", "--socket", &long])
        .exited(2)
        .says("at most 107")
        .says("choose a shorter path");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    env.configure(&format!("[control]\nhttp = \"{}\"", taken.local_addr().unwrap()));
    env.run(["daemon"]).exited(2).says("failed to listen on control.http").says("choose a free port");
    assert!(!env.path("state/callsheet.sock").exists());
}

/// Writes a request without its end, and goes on writing a byte now and then until it is sent away.
fn drip(socket: &Path) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = b"POST /v1/manifests?file=x.csv HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nid";
    std::thread::spawn(move || {
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut sent: &[u8] = head;
        while stream.write_all(sent).is_ok() {
            sent = b",";
            if matches!(stream.read(&mut [0; 64]), Ok(0..)) {
                return;
            }
        }
    });
}

#[test]
fn clients_that_hang_or_drip_keep_nobody_waiting() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 3));
    let daemon = env.daemon("info");
    let socket = env.path("state/callsheet.sock");
    (0..70).for_each(|_| drip(&socket));
    let hanging: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    // Some ask for the whole state and do not read it.
    let unread: Vec<UnixStream> = (0..70)
        .map(|_| {
            let mut stream = UnixStream::connect(&socket).unwrap();
            // Whoever was sent away meanwhile feels it here.
            let _ = stream.write_all(b"GET /v1/state HTTP/1.1\r\nhost: x\r\n\r\n");
            stream
        })
        .collect();
    for _ in 0..5 {
        let began = Instant::now();
        env.run(["status", "--json"]).exited(0);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(4), "{took:?}");
    }
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    drop((hanging, unread));
    daemon.stop();
    env.audit().each_paid_once(3);
}

#[test]
fn a_manifest_that_comes_slowly_is_taken_in() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    let pipe = env.path("batch.csv");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let submitting = env.start(["submit", "batch.csv"]);
    let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    let socket = env.path("state/callsheet.sock");
    for line in manifests::manifest("image", 30).lines() {
        writeln!(writer, "{line}").unwrap();
        // Others come and go meanwhile.
        let _ = UnixStream::connect(&socket).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(writer);
    submitting.end().exited(0).says("30 new");
    daemon.stop();
}

fn following(env: &TestEnv) -> (Running, Running) {
    env.configure("[limits]\nin_flight = 1");
    env.write("batch.csv", manifests::manifest("image", 40));
    let daemon = env.daemon("info");
    let submitting = env.start(["submit", "batch.csv", "--wait"]);
    submitting.says("40 new");
    (daemon, submitting)
}

#[test]
fn a_daemon_that_starts_again_is_waited_for() {
    let env = TestEnv::new();
    let (daemon, submitting) = following(&env);
    let watching = env.start(["status", "batch", "--watch", "--json"]);
    until("the first look", || watching.peek().contains("batch") && env.audit().totals.charges > 1);
    daemon.stop();
    submitting.says("lost the connection to the daemon; the batch is safe; reconnecting");
    let again = env.daemon("info");
    submitting.end().exited(0).says("reconnected to the daemon");
    watching.end().exited(0);
    again.stop();
    env.audit().each_paid_once(40);
}

#[test]
fn a_client_that_stops_following_says_that_the_daemon_goes_on() {
    let env = TestEnv::new();
    let (daemon, submitting) = following(&env);
    until("the second job", || env.audit().totals.charges > 1);
    submitting.signal(Signal::INT);
    let told = submitting.end().exited(130);
    told.says("the daemon continues").says("callsheet cancel batch cancels jobs that are not submitted yet");
    let running = env.start(["run", "batch.csv"]);
    running.says("40 already there");
    running.signal(Signal::INT);
    running.end().exited(130).says("callsheet status batch shows the progress");
    let watching = env.start(["status", "--watch"]);
    until("the daemon to be asked", || watching.peek().contains("batch"));
    watching.signal(Signal::INT);
    watching.end().exited(130).says("the daemon continues");
    env.run(["submit", "batch.csv", "--wait"]).exited(0);
    daemon.stop();
    env.audit().each_paid_once(40);
}

/// As the other commands that wait do.
#[test]
fn watching_a_batch_to_its_end_says_what_comes_next() {
    let env = TestEnv::new();
    env.faults("[[rules]]\ncontains = 'image-2'\neffect = { do = 'content-rejected' }");
    env.write("batch.csv", manifests::manifest("image", 3));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    let watched = env.run(["status", "batch", "--watch"]).exited(0);
    watched.says("content_rejected").says("    callsheet submit MANIFEST --batch batch");
    let as_json = env.run(["status", "batch", "--watch", "--json"]).exited(0);
    assert!(!as_json.stderr.contains("callsheet submit"), "{}", as_json.stderr);
    daemon.stop();
}

#[test]
fn every_refusal_is_as_the_page_says() {
    let env = TestEnv::new();
    let address = own_address();
    env.write("token", "secret");
    env.configure(&format!("[control]\nhttp = \"{address}\"\ntoken_file = \"token\""));
    let daemon = env.daemon("info");
    let ask = |head: &str, more: &str, body: &[u8]| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let (length, more) = (body.len(), format!("authorization: bearer secret\r\n{more}"));
        let head = format!(
            "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}content-length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let refused = |answer: String, status: &str, message: &str| {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert!(body["error"]["message"].as_str().unwrap().contains(message), "{body}");
        head.to_owned()
    };
    let head = refused(ask("POST /v1/status", "", b""), "405", "/v1/status does not support POST");
    assert!(head.to_lowercase().contains("allow: get"), "{head}");
    for path in ["/v1/manifests", "/v1/inputs", "/v1/review/take", "/v1/retry/edited", "/v1/pause"] {
        refused(ask(&format!("PATCH {path}"), "", b""), "405", &format!("{path} does not support PATCH"));
    }
    // What names no batch by mistake is no request for all of them.
    for path in ["/v1/pause", "/v1/resume", "/v1/budget"] {
        for body in ["", " ", "[]", "[null]", "[\"spring\", 9]", "null", "\"spring\""] {
            refused(ask(&format!("POST {path}"), "", body.as_bytes()), "400", "expected a JSON object");
        }
        refused(ask(&format!("POST {path}"), "", b"{\"batch\": null}"), "400", "invalid request body: ");
        refused(ask(&format!("POST {path}"), "", b"[]"), "400", "docs/control.md lists its fields");
    }
    refused(ask("POST /v1/schedules/nope/run", "", b""), "404", "no schedule is called nope");
    refused(ask("POST /v1/schedules/%ff/run", "", b""), "400", "UTF-8");
    for site in ["cross-site", "same-site"] {
        let more = format!("sec-fetch-site: {site}\r\n");
        refused(ask("POST /v1/pause", &more, b""), "403", "a page of another site");
    }
    assert!(ask("GET /v1/status", "sec-fetch-site: none\r\n", b"").starts_with("HTTP/1.1 200 "));
    // A file that cannot be read is no error of the request: its receipt says where and why.
    for body in [&b"\xff\xfei\0d\0"[..], b""] {
        let answer = ask("POST /v1/manifests?file=x.csv", "", body);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"file_refused\":true"), "{answer}");
    }
    daemon.stop();
}

/// Submits a manifest that is still being read on return: whoever changes the batch waits.
fn begin_to_submit(env: &TestEnv, manifest: &str) -> Running {
    env.write(manifest, manifests::manifest("image", 40_000));
    let submit = env.start(["submit", manifest]);
    // Rows are written from then on.
    until("rows in a draft", || {
        let drafts = std::fs::read_dir(env.path("state/spool")).into_iter().flatten().filter_map(Result::ok);
        let mut files = drafts
            .filter(|entry| entry.file_name().to_string_lossy().contains("draft"))
            .flat_map(|entry| std::fs::read_dir(entry.path()).into_iter().flatten().filter_map(Result::ok));
        files.any(|file| file.metadata().is_ok_and(|found| found.len() > 0))
    });
    submit
}

/// Sends a command, and is there as long as its response is waited for.
fn send(env: &TestEnv, daemon: &Running, path: &str, body: &str) -> UnixStream {
    let mut client = UnixStream::connect(env.path("state/callsheet.sock")).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: callsheet\r\ncontent-length: {}\r\n\r\n", body.len());
    client.write_all(format!("{head}{body}").as_bytes()).unwrap();
    daemon.says(path);
    client
}

#[test]
fn a_budget_is_set_though_its_client_leaves_while_it_waits() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    let budget = || env.status("birds")["budget_credits"].clone();
    env.write("birds.csv", manifests::manifest("image", 1));
    env.run(["submit", "birds.csv", "--budget", "0"]).exited(0);
    let submit = begin_to_submit(&env, "birds.csv");
    let client = send(&env, &daemon, "/v1/budget", r#"{"batch": "birds", "budget": 7}"#);
    assert_eq!(budget(), 0, "it waits for the manifest");
    drop(client);
    submit.end().exited(0);
    until("the budget", || budget() == 7);
    daemon.stop();
    env.audit().each_paid_once(0);
}

#[test]
fn a_retry_is_not_carried_out_after_its_client_has_left() {
    let env = TestEnv::new();
    let daemon = env.daemon("info");
    env.write("birds.csv", manifests::manifest("image", 1));
    env.run(["submit", "birds.csv", "--budget", "8", "--wait"]).exited(0);
    env.write("fish.csv", manifests::manifest("image", 2));
    env.run(["submit", "fish.csv", "--budget", "0"]).exited(0);
    env.run(["cancel", "fish"]).exited(0);
    let submit = begin_to_submit(&env, "birds.csv");
    // One command that changes what has ended waits for the manifest, and the other waits for that.
    let first =
        send(&env, &daemon, "/v1/review/take", r#"{"job": "birds/image-1", "take": 2, "price_credits": 8}"#);
    let retry = send(&env, &daemon, "/v1/retry", r#"{"name": "fish"}"#);
    let canceled = || env.status("fish")["canceled"].clone();
    assert_eq!(canceled(), 2, "it waits");
    drop(retry);
    env.run(["cancel", "fish"]).exited(0);
    submit.end().exited(0);
    // This one comes after all that waits.
    env.run(["retry", "birds"]);
    assert_eq!(canceled(), 2);
    drop(first);
    daemon.stop();
    env.audit().each_paid_once(1);
}
