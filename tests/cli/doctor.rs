//! `callsheet doctor`: every finding brought about for real, and nothing of it ever the key.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

use crate::support::api_key::KEY;
use crate::support::own_address::own_address;
use crate::support::process::{Outcome, Running};
use crate::support::{TestEnv, manifests};

/// Runs it with `--json`, sees its exit code, and sees that the key is nowhere.
#[track_caller]
fn doctor(command: Command, code: i32, key: &str) -> Report {
    let outcome = Running::start(command).end().exited(code);
    assert!(!outcome.stdout.contains(key) && !outcome.stderr.contains(key), "the key is shown");
    let report = outcome.json();
    assert_eq!(report["exit_code"], code);
    Report(report)
}

struct Report(Value);

impl Report {
    /// The first finding about something that is not well, or else the first one.
    #[track_caller]
    fn about(&self, check: &str) -> (&str, &str) {
        let checks = self.0["checks"].as_array().unwrap();
        let named = || checks.iter().filter(|found| found["check"] == check);
        let worst = named().find(|found| found["level"] != "good").or(named().next());
        let found = worst.unwrap_or_else(|| panic!("nothing about {check}: {:#}", self.0));
        assert!(found["level"] == "good" || found["todo"].is_string(), "nothing to do: {found:#}");
        (found["level"].as_str().unwrap(), found["found"].as_str().unwrap())
    }

    #[track_caller]
    fn shows(&self, check: &str, level: &str, text: &str) -> &Report {
        let (found_level, found) = self.about(check);
        assert!(found_level == level && found.contains(text), "{check}: {found_level}: {found}");
        self
    }
}

fn healthy(env: &TestEnv) -> Command {
    env.command(["doctor", "--json"])
}

/// Looks at another address than the emulator's, by the flag.
fn at(env: &TestEnv, url: &str) -> Command {
    let mut command = env.command(["doctor", "--json", "--base-url"]);
    command.arg(url);
    command
}

/// Answers every connection, one after the other, for as long as the test runs.
fn serve(answer: impl Fn(std::net::TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    address
}

#[test]
fn where_all_is_well_everything_is_looked_at_and_nothing_is_changed() {
    let env = TestEnv::with_credits(500);
    let report = doctor(healthy(&env), 0, KEY);
    report
        .shows("config", "good", "callsheet.toml is valid")
        .shows("key", "good", "from the environment")
        .shows("service", "good", "version 1.")
        .shows("tls", "good", "on this machine only")
        .shows("clock", "good", "within seconds")
        .shows("credits", "good", "500 credits are left")
        .shows("catalog", "good", "12 voices")
        .shows("state", "good", "no state yet")
        .shows("disk", "good", "free")
        .shows("inbox", "good", "will be created when needed")
        .shows("output", "good", "will be created when needed")
        .shows("socket", "good", "no daemon is running");
    report.about("unit");
    let text = env.run(["doctor"]).exited(0).stdout;
    assert!(text.contains("ok      credits   the key is accepted; 500 credits are left"), "{text}");
    assert!(text.ends_with("\nno problems found\n"), "{text}");
    let left: Vec<_> = fs::read_dir(env.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["callsheet.toml"], "nothing is made by looking");
    assert_eq!(env.audit().totals.tasks, 0);
}

#[test]
fn offline_the_emulator_is_asked() {
    let env = TestEnv::new();
    let mut command = env.command(["doctor", "--json", "--emulator"]);
    command.env_remove("CALLSHEET_API_KEY");
    doctor(command, 0, KEY).shows("key", "good", "the emulator's own").shows(
        "state",
        "good",
        "state/emulator",
    );
}

#[test]
fn a_configuration_alone_is_looked_at_before_a_reload() {
    let env = TestEnv::new();
    let look = || {
        let mut command = healthy(&env);
        command.arg("--config-only");
        command
    };
    let report = doctor(look(), 0, KEY);
    report.shows("config", "good", "callsheet.toml");
    assert_eq!(report.0["checks"].as_array().unwrap().len(), 1, "later checks were skipped");
    env.configure("[limits]\nin_fligth = 3");
    doctor(look(), 2, KEY).shows("config", "wrong", "did you mean `in_flight`?");
}

#[test]
fn a_configuration_that_cannot_be_read_is_the_whole_story() {
    let env = TestEnv::new();
    env.configure("[limits]\nin_fligth = 3");
    doctor(healthy(&env), 2, KEY).shows("config", "wrong", "did you mean `in_flight`?");
}

impl Report {
    /// What to do about the first finding that is not well.
    fn todo(&self, check: &str) -> String {
        let checks = self.0["checks"].as_array().unwrap();
        let found = checks.iter().find(|found| found["check"] == check && found["level"] != "good");
        found.map(|found| found["todo"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
    }
}

#[test]
fn the_key_is_missing_empty_open_to_all_or_refused() {
    let env = TestEnv::new();
    let without = |env: &TestEnv| {
        let mut command = healthy(env);
        command.env_remove("CALLSHEET_API_KEY");
        command
    };
    doctor(without(&env), 3, "sk-secret").shows("key", "wrong", "no API key is set");

    env.configure_service("api_key_file = \"key\"", "");
    doctor(without(&env), 3, "sk-secret").shows("key", "wrong", "failed to read key: No such file");
    let path = env.write("key", "\n");
    doctor(without(&env), 3, "sk-secret").shows("key", "wrong", "key is empty");
    fs::write(&path, "sk-secret\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
    let report = doctor(without(&env), 3, "sk-secret");
    report.shows("key", "advice", "which every user can read");
    report.shows("credits", "wrong", "the service refuses the API key");
    fs::write(&path, KEY).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    doctor(without(&env), 0, KEY).shows("key", "good", "from key");
}

#[test]
fn nobody_listens() {
    let env = TestEnv::new();
    let report = doctor(at(&env, &format!("http://{}", own_address())), 5, KEY);
    report.shows("service", "wrong", "Connection refused").shows("catalog", "advice", "no stored copy");
    assert!(report.todo("service").contains("connection refused"));
}

#[test]
fn polls_that_are_hastier_than_advised_are_advised_against() {
    let env = TestEnv::new();
    let base_url = env.base_url();
    // Under a name, it might be anybody's.
    let elsewhere = base_url.replace("127.0.0.1", "0.0.0.0");
    let report = doctor(at(&env, &elsewhere), 0, KEY);
    report.shows(
        "poll",
        "advice",
        "poll.min is 20ms, but the service advises polling a task every 5 to 10 seconds",
    );
    let outcome = env.run(["run", "none.csv", "--base-url", &elsewhere]);
    assert!(!outcome.stderr.contains("poll.min"), "nothing is polled: {}", outcome.stderr);
    env.write("batch.csv", manifests::manifest("image", 1));
    let run = |url: &str| env.run(["run", "batch.csv", "--base-url", url, "--adopt-state"]).stderr;
    assert_eq!(run(&elsewhere).matches("poll.min is 20ms").count(), 1);
    assert!(!run(&base_url).contains("poll.min"), "on this machine nobody minds");
    let checks = doctor(healthy(&env), 0, KEY);
    assert!(!checks.0.to_string().contains("poll.min"));
}

#[test]
fn somebody_listens_and_says_nothing() {
    let env = TestEnv::new();
    env.configure_service("request_timeout = \"300ms\"", "");
    let address = serve(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let report = doctor(at(&env, &format!("http://{address}")), 5, KEY);
    report.shows("service", "wrong", "no answer in time");
}

#[test]
fn somebody_listens_and_speaks_no_tls() {
    let env = TestEnv::new();
    let address = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    });
    let report = doctor(at(&env, &format!("https://{address}")), 5, KEY);
    report.shows("tls", "wrong", "corrupt message");
    assert!(report.todo("tls").contains("does not speak TLS"));
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_told_apart() {
    let env = TestEnv::new();
    // It vouches for itself, as localhost, for a hundred years; its key is no secret.
    let certificate = CertificateDer::from(include_bytes!("../fixtures/tls/untrusted.der").to_vec());
    let key = PrivatePkcs8KeyDer::from(include_bytes!("../fixtures/tls/untrusted.key.der").to_vec());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key))
        .unwrap();
    let config = Arc::new(config);
    let address = serve(move |mut stream| {
        let mut connection = rustls::ServerConnection::new(config.clone()).unwrap();
        // It ends with the alert that the client sends.
        let _ = rustls::Stream::new(&mut connection, &mut stream).read(&mut [0; 1024]);
    });
    let report = doctor(at(&env, &format!("https://localhost:{}", address.port())), 5, KEY);
    report.shows("tls", "wrong", "the certificate of localhost is not trusted");
    assert!(report.todo("tls").contains("the certificate is not trusted"));
}

#[test]
fn a_clock_that_is_off_is_noticed() {
    let env = TestEnv::new();
    let address = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(
            b"HTTP/1.1 404 Not Found\r\ndate: Mon, 06 Jan 2020 08:00:00 GMT\r\nconnection: close\r\n\
              content-length: 0\r\n\r\n",
        );
    });
    let report = doctor(at(&env, &format!("http://{address}")), 2, KEY);
    report.shows("service", "advice", "HTTP 404 and no description");
    let (level, found) = report.about("clock");
    assert!(level == "wrong" && found.contains("days ahead of the service's"), "{found}");
}

#[test]
fn an_empty_account_and_one_that_is_kept_are_out_of_funds() {
    let env = TestEnv::with_credits(30);
    env.configure("[budget]\nmin_balance = 50");
    doctor(healthy(&env), 4, KEY).shows("credits", "wrong", "budget.min_balance keeps all of them");
    env.account(&json!({ "credits": 0 }));
    doctor(healthy(&env), 4, KEY).shows("credits", "wrong", "0 credits are left");
}

#[test]
fn a_disk_without_the_room_that_is_asked_for_is_full() {
    let env = TestEnv::new();
    env.configure("[output]\nmin_free = \"9000PiB\"");
    doctor(healthy(&env), 6, KEY).shows("disk", "wrong", "less than");
}

#[test]
fn an_inbox_that_cannot_be_written_to_is_named_with_the_user() {
    let env = TestEnv::new();
    let open = |name: &str, mode| {
        fs::create_dir_all(env.path(name)).unwrap();
        fs::set_permissions(env.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["", "state", "output", "jobs"] {
        open(name, 0o777);
    }
    open("jobs/inbox", 0o555);
    let mut command = healthy(&env);
    // Root may write anywhere.
    if rustix::process::getuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let report = doctor(command, 6, KEY);
    report
        .shows("inbox", "wrong", "jobs/inbox cannot be written to by user")
        .shows("output", "good", "output");
}

#[test]
fn batches_that_only_a_person_can_help_are_problems() {
    let env = TestEnv::new();
    env.account(&json!({"key_valid": false}));
    env.write("batch.csv", manifests::manifest("image", 2));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv", "--wait"]).exited(3);
    // With a key of its own that is valid, doctor sees the daemon's trouble all the same.
    env.account(&json!({"key_valid": true}));
    let report = doctor(healthy(&env), 3, KEY);
    report.shows("credits", "good", "the key is accepted").shows(
        "batches",
        "wrong",
        "batch batch is parked: the service refuses the API key",
    );
    assert!(report.todo("batches").contains("systemctl restart callsheet"), "{}", report.todo("batches"));
    daemon.stop();
}

/// A command as another user, as a unit with `UMask=0027` gives it. Only root can.
fn as_another_user(env: &TestEnv, arguments: &[&str]) -> Command {
    let inner = env.command(arguments.iter().copied());
    let mut command = Command::new("sh");
    command.args(["-c", "umask 027; exec \"$0\" \"$@\""]).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(env.path("")).env_clear().env("CALLSHEET_API_KEY", KEY).uid(65534).gid(65534);
    command
}

#[test]
fn what_root_makes_in_the_state_of_another_user_is_that_users() {
    if !rustix::process::getuid().is_root() {
        println!("not tested: files of another user, which takes root");
        return;
    }
    let env = TestEnv::new();
    fs::set_permissions(env.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    env.write("batch.csv", manifests::manifest("image", 2));
    let mut dying = as_another_user(&env, &["run", "batch.csv"]);
    dying.env("CALLSHEET_FAILPOINT", "reporting");
    Running::start(dying).end().was_killed("while it wrote the results");
    // Root recovers the state to answer.
    env.run(["status"]).exited(0);
    let owners = |dir: &Path| {
        let files = content(dir).into_keys();
        files.filter(|path| fs::metadata(path).unwrap().uid() != 65534).collect::<Vec<_>>()
    };
    assert_eq!(owners(&env.path("state")), Vec::<PathBuf>::new());
    Running::start(as_another_user(&env, &["status"])).end().exited(0);
    // What an earlier version left, or a killed command.
    env.write("state/db/stray", "");
    let report = doctor(healthy(&env), 6, KEY);
    report.shows("state", "wrong", "state/db/stray does not belong to user 65534, whose state it is");
    env.run(["status"]).exited(0);
    doctor(healthy(&env), 0, KEY).shows("state", "good", "is not in use");
    Running::start(as_another_user(&env, &["run", "batch.csv"])).end().exited(0);
    env.audit().each_paid_once(2);
}

#[test]
fn a_state_of_another_service_and_one_in_use_are_known() {
    let env = TestEnv::new();
    let daemon = env.start(["daemon", "--log-level", "info"]);
    daemon.says("ready");
    let report = doctor(healthy(&env), 0, KEY);
    let pid = daemon.pid();
    report.shows("state", "good", &format!("is in use by process {pid}")).shows(
        "socket",
        "good",
        &format!("runs as process {pid}"),
    );
    // Whoever has no key of their own needs none: the daemon has one.
    let mut keyless = healthy(&env);
    keyless.env_remove("CALLSHEET_API_KEY");
    doctor(keyless, 0, KEY).shows("key", "advice", "no API key is set");
    daemon.signal(Signal::TERM);
    let _: Outcome = daemon.end().exited(0);
    let report = doctor(healthy(&env), 0, KEY);
    report.shows("state", "good", "is not in use").shows("catalog", "good", "video");

    let elsewhere = TestEnv::new();
    let report = doctor(at(&env, &elsewhere.base_url()), 2, KEY);
    report.shows("state", "wrong", "not to http");
    // The wrong folder altogether.
    env.write("attic/photo.jpg", "x");
    let mut command = healthy(&env);
    command.args(["--state", "attic"]);
    doctor(command, 2, KEY).shows("state", "wrong", "photo.jpg");
}

/// Every file below a folder, with what is in it.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(content(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

#[test]
fn a_damaged_database_is_found_and_left_as_it_is() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 2));
    env.run(["run", "batch.csv"]).exited(0);
    let sound = content(&env.path("state"));
    doctor(healthy(&env), 0, KEY).shows("state", "good", "is not in use, and its database can be read");
    assert_eq!(content(&env.path("state")), sound, "nothing is changed by looking");
    let database = env.path("state/db/db");
    let mut bytes = fs::read(&database).unwrap();
    bytes.iter_mut().skip(16).for_each(|byte| *byte ^= 0x55);
    fs::write(&database, bytes).unwrap();
    let damaged = content(&env.path("state"));
    let report = doctor(healthy(&env), 6, KEY);
    report.shows("state", "wrong", "is damaged");
    assert!(report.todo("state").contains("callsheet state rebuild"));
    assert_eq!(content(&env.path("state")), damaged, "nor of what is damaged");
    env.run(["state", "rebuild"]).exited(0);
    doctor(healthy(&env), 0, KEY).shows("state", "good", "can be read");
}

#[test]
fn hooks_that_the_daemon_would_refuse_or_never_find_are_named() {
    let env = TestEnv::new();
    let look = |more: &str, level: &str, text: &str| {
        env.configure(&format!("[hooks]\n{more}"));
        let code = if level == "wrong" { 2 } else { 0 };
        doctor(healthy(&env), code, KEY).shows("hook", level, text);
    };
    look("batch_done = [\"/no/such\"]", "wrong", "hooks.batch_done cannot be run: /no/such: No such file");
    look("batch_done = [\"no-such-program\"]", "wrong", "no-such-program is not in PATH");
    let program = env.write("tell", "#!/bin/sh\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    look("batch_done = [\"./tell\"]", "wrong", "./tell: Permission denied");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    look("batch_done = [\"./tell\", \"me\"]", "good", "./tell is run when a batch is done");

    let url = "webhook = \"https://hooks.example/t0ken\"";
    look(url, "wrong", "hooks.webhook has no signing secret");
    let url = format!("{url}\nwebhook_secret_file = \"secret\"");
    look(&url, "wrong", "failed to read secret: No such file");
    env.write("secret", "whsec_short");
    look(&url, "wrong", "is not whsec_ and the base64 of 24 to 64 bytes");
    env.run(["daemon"]).exited(2).says("is not whsec_");
    let secret = env.write("secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    look(&url, "advice", "the signing secret is set in secret, which every user can read");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    look(&url, "good", "hooks.example is notified when a batch is done");
}

#[test]
fn schedules_are_looked_at_before_they_fire() {
    let env = TestEnv::new();
    env.configure("[[schedule]]\nname = \"nightly\"\ncron = \"0 3 * * *\"\nmanifest = \"nightly.csv\"");
    let report = doctor(healthy(&env), 2, KEY);
    report.shows("schedule", "wrong", "nightly.csv cannot be read: No such file");
    env.write("nightly.csv", "id,knd\na,image\n");
    doctor(healthy(&env), 2, KEY).shows("schedule", "wrong", "nightly.csv is refused: 1:");
    env.write("nightly.csv", "id,kind,prompt,count\na,image,a gull,many\n");
    doctor(healthy(&env), 2, KEY).shows("schedule", "wrong", "no row that is accepted: 2:");
    env.write("nightly.csv", "id,kind,prompt,count\na,image,a gull,many\nb,image,a gull,1\n");
    doctor(healthy(&env), 0, KEY).shows("schedule", "advice", "1 rows of 2 that are refused");
    env.write("nightly.csv", manifests::manifest("image", 2));
    let report = doctor(healthy(&env), 0, KEY);
    report.shows("schedule", "good", "T03:00:00Z; nightly.csv can be read");
}

#[test]
fn a_socket_that_cannot_be_listened_on_is_named() {
    let env = TestEnv::new();
    env.write("here", "mine");
    let at = |path: &str| {
        let mut command = healthy(&env);
        command.args(["--socket", path]);
        doctor(command, 2, KEY)
    };
    let report = at("here");
    report.shows("socket", "wrong", "here is not a socket");
    assert!(report.todo("socket").contains("--socket"));
    let report = at(&"s".repeat(120));
    report.shows("socket", "wrong", "has 120 bytes; a socket path has at most 107");
    assert_eq!(report.todo("socket"), "choose a shorter path with --socket or paths.socket");
    assert_eq!(fs::read_to_string(env.path("here")).unwrap(), "mine");
}

#[test]
fn an_empty_token_is_refused_where_it_would_let_nobody_in() {
    let env = TestEnv::new();
    env.write("token", "\n");
    env.configure("[control]\nhttp = \"127.0.0.1:0\"\ntoken_file = \"token\"");
    doctor(healthy(&env), 2, KEY).shows("control", "wrong", "control.token_file: token is empty");
    env.run(["daemon"]).exited(2).says("control.token_file: token is empty");
    let token = env.write("token", "let-me-in\n");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let report = doctor(healthy(&env), 0, KEY);
    report.shows("control", "advice", "the token for control.http is in token, which every user can read");
    assert_eq!(report.todo("control"), "chmod o= token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o640)).unwrap();
    doctor(healthy(&env), 0, KEY).shows("control", "good", "the token for control.http is in token");
}
