//! Which state a command works on, and what it says as JSON when it cannot work.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::process::{Outcome, Running};
use crate::support::{TestEnv, manifests};

const IMAGE: &str = "id,kind,model,prompt\none,image,gi-2,a harbour\n";
const NOTE: &str = "note: using state/emulator, the only state here; --emulator selects it";

#[test]
fn what_looks_and_tidies_up_finds_the_only_state_and_nothing_is_bought_in_it() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    env.run(["run", "batch.csv", "--emulator", "--emulator-speed", "inf"]).exited(0);
    assert!(!env.path("state/incoming").exists(), "a run leaves no empty folder");
    for words in [
        vec!["status"],
        vec!["jobs"],
        vec!["explain", "batch/one"],
        vec!["ledger"],
        vec!["pause", "batch"],
        vec!["cancel", "batch"],
        vec!["retry", "batch"],
        vec!["download", "batch"],
        vec!["state", "verify"],
        vec!["state", "export"],
    ] {
        let chosen = env.run(words.iter().copied()).exited(0).says(NOTE);
        let named = env.run(words.iter().copied().chain(["--emulator"])).exited(0);
        assert!(!named.stderr.contains("note: using"), "{}", named.stderr);
        assert_eq!(chosen.stdout, named.stdout, "{words:?}");
    }
    // Neither of them may come upon a state by itself.
    env.run(["submit", "batch.csv"]).exited(5).says("state/callsheet.sock");
    env.run(["submit", "batch.csv", "--emulator"]).exited(5).says("state/emulator/callsheet.sock");
    let plan = env.run(["plan", "batch.csv", "--json"]).exited(0);
    assert_eq!(plan.json()["rows"][0]["verdict"], "new", "{}", plan.stdout);
    env.audit().each_paid_once(0);
    env.run(["run", "batch.csv", "--batch", "real"]).exited(0);
    let both = env.run(["status", "--json"]).exited(0);
    assert_eq!(both.json()["batches"][0]["name"], "real");
    assert!(!both.stderr.contains("note: using"), "{}", both.stderr);
    let emulated = env.run(["status", "--json", "--emulator"]).exited(0);
    assert_eq!(emulated.json()["batches"][0]["name"], "batch");
    assert!(!env.path("state/incoming").exists());
}

#[test]
fn outputs_of_a_trial_are_not_taken_for_what_was_paid_for() {
    let env = TestEnv::new();
    env.write("s.csv", IMAGE);
    env.run(["run", "s.csv", "--output", "out", "--emulator", "--emulator-speed", "inf"]).exited(0);
    let trial = std::fs::read(env.path("out/s/one.png")).unwrap();
    env.run(["run", "s.csv", "--output", "out"]).exited(0);
    let audit = env.audit();
    audit.each_paid_once(1);
    assert_eq!(audit.totals.downloads, 1);
    assert_eq!(std::fs::read(env.path("out/s/one.png")).unwrap(), trial, "nothing is replaced");
    let job = env.run(["jobs", "s", "--json"]).exited(0).json();
    let own = job["files"][0]["path"].as_str().unwrap();
    assert!(own.starts_with("one-") && env.path("out/s").join(own).exists(), "{job:#}");
    // It is found again where it is, and so is that of the trial.
    env.run(["run", "s.csv", "--output", "out"]).exited(0);
    env.run(["download", "s", "--output", "out"]).exited(0).says("nothing to download");
    env.run(["download", "s", "--output", "out", "--emulator"]).exited(0).says("nothing to download");
    assert_eq!(env.audit().totals.downloads, 1);
    std::fs::remove_dir_all(env.path("state/db")).unwrap();
    env.run(["state", "rebuild", "--output", "out"]).exited(0);
    env.run(["resume"]);
    env.run(["run", "s.csv", "--output", "out"]).exited(0);
    env.audit().each_paid_once(1);
}

#[test]
fn outputs_find_a_name_however_often_a_lost_state_had_them_made_anew() {
    let env = TestEnv::new();
    env.write("s.csv", IMAGE);
    for _ in 0..5 {
        env.run(["run", "s.csv", "--emulator", "--emulator-speed", "inf"]).exited(0);
        std::fs::remove_dir_all(env.path("state")).unwrap();
    }
}

#[test]
fn a_trial_has_directories_of_its_own_below_those_that_the_configuration_names() {
    let env = TestEnv::new();
    env.configure("[paths]\nstate = \"real-state\"\noutput = \"real-output\"");
    env.write("s.csv", IMAGE);
    env.run(["run", "s.csv", "--emulator", "--emulator-speed", "inf"]).exited(0);
    assert!(env.path("real-output/emulator/s/one.png").exists());
    env.audit().each_paid_once(0);
    env.run(["run", "s.csv"]).exited(0);
    env.audit().each_paid_once(1);
    assert!(env.path("real-output/s/one.png").exists());
    for trial in [&[][..], &["--emulator"]] {
        let status = env.run(["status", "--json"].into_iter().chain(trial.iter().copied())).exited(0).json();
        assert_eq!(status["batches"][0]["succeeded"], 1, "{status:#}");
    }
    env.run(["state", "verify"]).exited(0).says("all fits");
}

/// The last line on stderr, which is an error as JSON.
fn error(outcome: &Outcome) -> Value {
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    serde_json::from_str::<Value>(&outcome.stderr).unwrap()["error"].clone()
}

#[test]
fn errors_with_json_are_json() {
    let env = TestEnv::new();
    let unknown = env.run(["run", "batch.csv", "--budgt", "5", "--json"]).exited(2);
    let unknown = error(&unknown);
    assert!(unknown["message"].as_str().unwrap().contains("'--budgt'"), "{unknown}");
    assert!(unknown["hint"].as_str().unwrap().contains("'--budget'"), "{unknown}");
    assert_eq!((&unknown["exit_code"], &unknown["problems"]), (&2.into(), &Value::Array(Vec::new())));
    let missing = error(&env.run(["status", "--json"]).exited(2));
    assert!(missing["hint"].as_str().unwrap().contains("--state"), "{missing}");
    let task = env.run(["tasks", "no-such-task", "--json"]).exited(2);
    assert_eq!(error(&task)["message"], "the service knows no task no-such-task on this account");
    assert_eq!(task.stderr.lines().count(), 1, "{}", task.stderr);
    env.write("batch.csv", "id,kind,model,prompt\none,image,gi-2,a harbour\ntwo,image,no-such,a pier\n");
    for words in [["plan", "batch.csv", "--json"], ["run", "batch.csv", "--json"]] {
        let rejected = env.run(words).exited(2);
        let found = error(&rejected);
        assert_eq!(found["message"], "1 problem in batch.csv", "{found}");
        let problem = &found["problems"][0];
        assert_eq!((&problem["file"], &problem["line"]), (&"batch.csv".into(), &3.into()), "{problem}");
        assert_eq!(problem["field"], "model", "{problem}");
        assert!(rejected.json().is_object(), "stdout has the report alone");
    }
}

/// What people are told before an error is not said where JSON is asked for.
#[test]
fn no_note_and_no_text_stands_beside_an_error_as_json() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    env.run(["run", "batch.csv", "--emulator", "--emulator-speed", "inf"]).exited(0);
    env.run(["status", "nope"]).exited(2).says(NOTE);
    let unknown = error(&env.run(["status", "nope", "--json"]).exited(2));
    assert_eq!(unknown["message"], "no batch is called nope; there are batch");
    env.run(["review", "approve", "nope"]).exited(2).says("error: nope: no batch or job is called nope");
    let undecided = error(&env.run(["review", "approve", "nope", "--json"]).exited(2));
    assert_eq!(undecided["message"], "nope: no batch or job is called nope");
}

#[test]
fn a_daemon_of_another_state_is_no_text_beside_an_error_as_json() {
    let env = TestEnv::new();
    env.configure("[paths]\nsocket = \"shared.sock\"");
    let daemon = env.start(["daemon", "--state", "elsewhere", "--log-level", "info"]);
    daemon.says("ready");
    env.run(["status"]).exited(2).says("works on another state").says("error: there is no state in state");
    assert_eq!(error(&env.run(["status", "--json"]).exited(2))["message"], "there is no state in state");
    daemon.stop();
}

#[test]
fn each_problem_of_the_configuration_is_one_of_the_error() {
    let env = TestEnv::new();
    env.write("callsheet.toml", "[service]\nbase_ulr = 5\n[limits]\nin_flight = 0\ndownloads = \"many\"\n");
    let found = error(&env.run(["status", "--json"]).exited(2));
    let problems = found["problems"].as_array().unwrap();
    let each = problems.iter().map(|problem| (problem["file"].as_str(), problem["line"].as_u64()));
    let file = Some("callsheet.toml");
    assert_eq!(each.collect::<Vec<_>>(), [(file, Some(2)), (file, Some(4)), (file, Some(5))], "{found}");
    assert!(problems[0]["message"].as_str().unwrap().contains("did you mean `base_url`"), "{found}");
    assert_eq!(problems[2]["field"], "limits.downloads", "{found}");
    let text = env.run(["status"]).exited(2);
    assert_eq!(text.stderr.lines().count(), 3, "{}", text.stderr);
}

#[test]
fn switches_in_the_environment_are_spelt_as_people_spell_them() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    let run = |name: &str, value: &str, words: &[&str]| {
        let mut command = env.command(words.iter().copied());
        command.env(name, value);
        Running::start(command).end()
    };
    for value in ["1", "yes", "on", "TRUE"] {
        assert!(run("CALLSHEET_JSON", value, &["plan", "batch.csv"]).exited(0).json().is_object());
        assert_eq!(error(&run("CALLSHEET_JSON", value, &["status"]).exited(2))["exit_code"], 2);
        assert_eq!(error(&run("CALLSHEET_JSON", value, &["staus"]).exited(2))["exit_code"], 2);
        run("CALLSHEET_EMULATOR", value, &["status"]).exited(2).says("there is no state in state/emulator");
    }
    for value in ["0", "no", "off", "false"] {
        run("CALLSHEET_JSON", value, &["status"]).exited(2).says("error: ");
        run("CALLSHEET_EMULATOR", value, &["status"]).exited(2).says("there is no state in state\n");
    }
    run("CALLSHEET_JSON", "perhaps", &["status"]).exited(2).says("perhaps");
}

#[test]
fn schedules_are_read_of_the_only_state_too() {
    let env = TestEnv::new();
    env.configure("[[schedule]]\nname = \"yearly\"\ncron = \"@yearly\"\nmanifest = \"batch.csv\"");
    env.write("batch.csv", IMAGE);
    env.run(["run", "batch.csv", "--emulator", "--emulator-speed", "inf"]).exited(0);
    for words in [vec!["schedule", "list"], vec!["schedule", "next", "yearly", "-n", "1"]] {
        let chosen = env.run(words.iter().copied()).exited(0).says(NOTE);
        let named = env.run(words.iter().copied().chain(["--emulator"])).exited(0);
        assert!(!named.stderr.contains("note: using"), "{}", named.stderr);
        assert_eq!(chosen.stdout, named.stdout, "{words:?}");
    }
}

#[test]
fn a_misspelt_job_state_is_suggested() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    env.run(["run", "batch.csv"]).exited(0);
    env.run(["jobs", "--state", "faild"]).exited(2).says("did you mean --state failed?");
    env.run(["jobs", "--state", "elsewhere"]).exited(2).says("elsewhere");
    env.run(["jobs", "--state", "done"])
        .exited(2)
        .says("there is neither a job state nor a state directory done")
        .says("the job states are queued, submitting,");
    env.run(["jobs", "--state", "a/done"]).exited(2).says("there is no state in a/done");
}

#[test]
fn a_command_in_a_hint_names_the_state_directory_and_not_the_job_state() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    env.run(["run", "batch.csv", "--state", "other"]).exited(0);
    std::fs::remove_dir_all(env.path("other/db")).unwrap();
    let mut command = env.command(["jobs", "--state", "failed"]);
    command.env("CALLSHEET_STATE", "other");
    let damaged = Running::start(command).end().exited(6).says("callsheet state --state other rebuild");
    assert!(!damaged.stderr.contains("--state failed"), "{}", damaged.stderr);
}

/// A command that is copied from a message without the flag would look for another state, or buy from the service.
#[test]
fn commands_in_messages_have_the_flag_that_chose_the_emulator() {
    let env = TestEnv::new();
    env.write("pil.csv", "id,kind,prompt,review\na,sound-effect,rain,yes\nb,sound-effect,snow,yes\n");
    let run = ["run", "pil.csv", "--emulator", "--emulator-speed", "inf", "--pilot", "1"];
    env.run(run).exited(7).says("callsheet review --emulator pil");
    env.run(["continue", "pil", "--emulator"])
        .exited(0)
        .says("callsheet daemon --emulator, or, with the manifest as it was last accepted: callsheet run --emulator MANIFEST");
    env.run(["submit", "pil.csv", "--emulator"]).exited(5).says("start it with callsheet daemon --emulator");
    env.run(["review", "pil", "--emulator", "--export", "d.csv"])
        .exited(0)
        .says("callsheet review --emulator pil");
    // What was copied works.
    env.run(["run", "--emulator", "pil.csv", "--emulator-speed", "inf"]).exited(7);
    assert_eq!(env.audit().totals.charges, 0, "nothing was bought from the service");
}

/// The state itself says that it is the emulator's: its outputs lie beside those of the emulator's other states.
#[test]
fn a_state_of_the_emulator_is_known_by_its_name_alone() {
    let env = TestEnv::new();
    env.write("m.csv", "id,kind,model,prompt,review\na,image,gi-2,rain,yes\nb,image,gi-2,snow,yes\n");
    let state = ["--state", "trial"];
    let run = ["run", "m.csv", "--emulator", "--emulator-speed", "inf", "--state", "trial"];
    env.run(run).exited(7);
    env.run(["review", "approve", "m/a"].into_iter().chain(state)).exited(0);
    env.run(["review", "reject", "m/b"].into_iter().chain(state))
        .exited(0)
        .says("done, nothing is left to decide");
    let decisions = std::fs::read_to_string(env.path("output/emulator/m/decisions.csv")).unwrap();
    assert!(decisions.contains("approve") && decisions.contains("reject"), "{decisions}");
    let page = env.run(["open", "m", "--print"].into_iter().chain(state)).exited(0).stdout;
    assert!(page.contains("output/emulator/m/index.html"), "{page}");
    assert!(!env.path("output/m").exists());
    let said = env.run(["retry", "m"].into_iter().chain(state));
    assert!(!said.stderr.contains("callsheet daemon --state trial\n"), "{}", said.stderr);
    // Free of charge, and from the emulator.
    std::fs::remove_file(env.path("output/emulator/m/a.png")).unwrap();
    env.run(["download", "m/a"].into_iter().chain(state)).exited(0);
    assert!(env.path("output/emulator/m/a.png").exists());
    assert_eq!(env.audit().totals.charges, 0, "nothing was bought from the service");
    // What may buy is told which service is meant.
    let plan = ["plan", "m.csv"].into_iter().chain(state);
    env.run(plan).exited(2).says("belongs to the emulator").says("repeat the command with --emulator");
    // The folder of the configuration is that of the service.
    env.configure("[paths]\noutput = \"out\"");
    env.run(["run", "m.csv", "--batch", "n", "--emulator", "--emulator-speed", "inf", "--state", "trial"])
        .exited(7);
    let page = env.run(["open", "n", "--print"].into_iter().chain(state)).exited(0).stdout;
    assert!(page.contains("out/emulator/n/index.html"), "{page}");
}

/// The command that follows a text, as words without the program's name.
fn copied(outcome: &Outcome, after: &str) -> Vec<String> {
    let (_, command) = outcome.stderr.split_once(after).unwrap();
    let command = command.split([';', ',', '\n']).next().unwrap();
    command.split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_command_that_is_copied_from_a_message_works_on_the_same_state() {
    let env = TestEnv::new();
    env.write("pil.csv", "id,kind,prompt\na,sound-effect,rain\n");
    env.run(["run", "pil.csv", "--emulator", "--emulator-speed", "inf"]).exited(0);
    // The emulator's state is the only one here: it is not named, and still meant.
    for flag in [&["--emulator"][..], &[]] {
        let asked = ["review", "another-take", "pil/a"].into_iter().chain(flag.iter().copied());
        let price = env.run(asked).exited(0);
        let buy = copied(&price, "to buy it: ");
        let next = "no process works on this state; to continue: callsheet daemon --emulator, or, with the manifest as it was \
                    last accepted: callsheet run --emulator MANIFEST --batch pil";
        env.run(buy.iter().map(String::as_str)).exited(0).says(next);
        env.run(["status"].into_iter().chain(flag.iter().copied())).exited(0).says(next);
        let explained = env.run(["explain", "pil/a"].into_iter().chain(flag.iter().copied())).exited(0);
        assert!(explained.stdout.contains("callsheet download --emulator"), "{}", explained.stdout);
    }
    // A batch of another folder.
    env.write("q/pil.csv", "id,kind,prompt\nw,sound-effect,wind\n");
    let refused = env.run(["run", "q/pil.csv", "--emulator"]).exited(2);
    let own = copied(&refused, "for a batch of its own: ");
    env.run(own.iter().map(String::as_str).chain(["--emulator-speed", "inf"]))
        .exited(0)
        .says("batch q-pil: 1 new");
    env.audit().each_paid_once(0);
}

/// How the client ends whose stdout is this.
fn with_stdout(env: &TestEnv, arguments: &[&str], stdout: impl Into<Stdio>) -> Output {
    let mut command = env.command(arguments.iter().copied());
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    for arguments in [
        &["--help"][..],
        &["credits"],
        &["credits", "--json"],
        &["plan", "batch.csv", "--graph"],
        &["run", "batch.csv", "--json"],
        &["run", "batch.csv"],
        &["status"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let outcome = with_stdout(&env, arguments, writer);
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(!said.contains("stdout"), "{arguments:?}: {said}");
    }
    env.audit().each_paid_once(1);
}

#[test]
fn what_stdout_does_not_take_is_said_and_is_no_success() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    env.write("refused.csv", "id,kind,model,prompt\none,image,no-such,a pier\n");
    let said_by = |arguments: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let outcome = with_stdout(&env, arguments, full);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status.code(), Some(6), "{arguments:?}: {said}");
        assert!(said.contains("failed to write to stdout"), "{arguments:?}: {said}");
        said
    };
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["review", "--help"],
        &["credits"],
        &["credits", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["plan", "batch.csv"],
        &["plan", "batch.csv", "--graph"],
        &["run", "batch.csv", "--json"],
        &["run", "batch.csv"],
    ] {
        said_by(arguments);
    }
    let refused = said_by(&["run", "refused.csv", "--json"]);
    assert!(refused.contains("1 problem in refused.csv"), "what is wrong is said all the same: {refused}");
    // What was run was run.
    env.run(["run", "batch.csv"]).exited(0);
    env.audit().each_paid_once(1);
}

/// A log on a full disk ends nothing that is being paid for.
#[test]
fn work_goes_on_where_stderr_cannot_be_written_to() {
    let env = TestEnv::new();
    env.write("batch.csv", IMAGE);
    let code = |arguments: &[&str]| {
        let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = env.command(arguments.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(full()).status().unwrap().code()
    };
    for (arguments, expected) in [
        (&["run", "batch.csv"][..], 0),
        (&["status", "nope"], 2),
        (&["status", "nope", "--json"], 2),
        (&["status", "--no-such-flag"], 2),
        (&["status", "--log-level", "trace"], 0),
    ] {
        assert_eq!(code(arguments), Some(expected), "{arguments:?}");
    }
    env.audit().each_paid_once(1);
}

/// A run that answers one question about itself and then ends, as one does whose batches are done just then.
fn run_that_ends(env: &TestEnv) -> std::thread::JoinHandle<()> {
    let socket = env.path("state/callsheet.sock");
    let health = serde_json::json!({
        "process": "run", "version": "0.1.0", "pid": 1, "since": 0, "service": env.base_url(),
        "output": env.path("output"), "state": env.path("state").canonicalize().unwrap(),
    })
    .to_string();
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            if request[..read].starts_with(b"GET /v1/health") {
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    health.len()
                );
                stream.write_all((head + &health).as_bytes()).unwrap();
            } else if read > 0 {
                std::fs::remove_file(socket).unwrap();
                return;
            }
        }
    })
}

#[test]
fn a_question_to_a_run_that_ends_meanwhile_is_answered_by_the_state() {
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    for question in [&["status"][..], &["jobs"], &["status", "--watch"], &["status", "batch", "--watch"]] {
        let ending = run_that_ends(&env);
        let answer = env.run(question.iter().copied()).exited(0);
        assert!(answer.stdout.contains("batch"), "{question:?}: {}", answer.stdout);
        ending.join().unwrap();
    }
    let ending = run_that_ends(&env);
    env.run(["pause", "batch"]).exited(5).says("did not answer");
    ending.join().unwrap();
}

#[test]
fn whoever_has_no_rights_to_a_state_is_told_that_no_daemon_answers_and_whose_it_is() {
    if !rustix::process::getuid().is_root() {
        println!("not tested: a state of another user, which takes root");
        return;
    }
    let env = TestEnv::new();
    env.write("batch.csv", manifests::manifest("image", 1));
    env.run(["run", "batch.csv"]).exited(0);
    let mode = |name: &str, mode| {
        std::fs::set_permissions(env.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // As a member of the service's group has it.
    mode("", 0o755);
    mode("state/lock", 0o644);
    let mut command = env.command(["status"]);
    command.uid(65534).gid(65534);
    Running::start(command)
        .end()
        .exited(6)
        .says("no daemon answers for state, and it belongs to another user")
        .says("start the service (systemctl start callsheet), or run the command as the user");
}
