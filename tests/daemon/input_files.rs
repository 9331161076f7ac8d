//! Files as inputs under a daemon: handed over by `submit`, read by itself below its roots alone, and removed in time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::process::{Outcome, Running};
use crate::support::s3::S3Server;
use crate::support::{TestEnv, until};

/// The beginning of a picture, and a mark that makes it another.
fn png(mark: u8) -> Vec<u8> {
    let mut picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde".to_vec();
    picture.push(mark);
    picture
}

fn row(name: &str) -> String {
    format!("id,kind,model,prompt,image_urls\na,image,gi-2,a fox,{name}\n")
}

fn daemon(env: &TestEnv, store: &S3Server) -> Running {
    let mut command = env.command(["daemon", "--log-level", "info"]);
    store.give_to(&mut command);
    let running = Running::start(command);
    running.says("ready");
    running
}

fn drop_in(env: &TestEnv, name: &str, content: &str) {
    let temporary = env.write(&format!("jobs/inbox/.{name}.tmp"), content);
    fs::rename(temporary, env.path(&format!("jobs/inbox/{name}"))).unwrap();
}

fn submit(env: &TestEnv, arguments: &[&str]) -> Outcome {
    // The client has no credentials of the store and needs none.
    env.run([&["submit"], arguments].concat())
}

#[test]
fn submit_hands_files_over_and_the_daemon_reads_none_itself() {
    let (env, store) = (TestEnv::new(), S3Server::start());
    env.configure("[inputs]\nstore = \"s3://media\"\n");
    let daemon = daemon(&env, &store);
    env.write("here/logo.png", png(1));
    env.write("here/stills.csv", row("./logo.png"));
    submit(&env, &["here/stills.csv", "--wait"]).exited(0);
    assert_eq!(store.objects().into_values().collect::<Vec<_>>(), [png(1)]);
    // The content is there; it is not sent again, and neither is anything bought.
    submit(&env, &["here/stills.csv"]).exited(0).says("0 new (0 credits), 1 already there");
    // Another row with the same picture: nothing is uploaded.
    env.write("here/more.csv", row("./logo.png").replace("fox", "crow"));
    submit(&env, &["here/more.csv", "--wait"]).exited(0);
    assert_eq!(store.requests(&hyper::Method::PUT), 1);
    // An edited row takes the picture along, though the file is gone.
    fs::remove_file(env.path("here/logo.png")).unwrap();
    env.faults("[[rules]]\non = \"create\"\neffect = { do = \"task-fails\", code = \"content_rejected\" }\n");
    env.write("here/logo.png", png(1));
    env.write("here/fails.csv", row("./logo.png").replace("fox", "wolf"));
    submit(&env, &["here/fails.csv", "--wait"]).exited(1);
    env.faults("");
    fs::remove_file(env.path("here/logo.png")).unwrap();
    env.run(["retry", "fails", "--failed", "--set", "prompt=a lamb"]).exited(0);
    until("the edited row", || {
        env.audit().tasks.iter().any(|task| task.prompt == "a lamb" && task.downloads > 0)
    });
    daemon.stop().exited(0);
}

#[test]
fn an_inbox_takes_files_below_its_roots_alone() {
    let (env, store) = (TestEnv::new(), S3Server::start());
    let roots = env.path("pictures");
    env.write("pictures/logo.png", png(1));
    env.write("private/secret.png", png(2));
    symlink(env.path("private/secret.png"), env.path("pictures/link.png")).unwrap();
    env.configure(&format!("[inputs]\nstore = \"s3://media\"\nroots = [\"{}\"]\n", roots.display()));
    let daemon = daemon(&env, &store);
    until("the inbox", || env.path("jobs/inbox").exists());
    drop_in(&env, "good.csv", &row("../../pictures/logo.png"));
    for (name, file) in [
        ("out", "../../private/secret.png".to_owned()),
        ("link", "../../pictures/link.png".to_owned()),
        ("dots", format!("{}/../private/secret.png", roots.display())),
        ("none", format!("file://{}", env.path("private/none.png").display())),
    ] {
        drop_in(&env, &format!("{name}.csv"), &row(&file));
    }
    until("all manifests", || fs::read_dir(env.path("jobs/inbox")).unwrap().count() == 0);
    until("the good one", || env.audit().tasks.iter().any(|task| task.downloads > 0));
    daemon.stop().exited(0);
    let refused = "is not a file below a folder of inputs.roots: allowed are files below";
    for name in ["out", "link", "dots", "none"] {
        // Alike whether there is such a file or not.
        let receipt =
            fs::read_to_string(env.path(&format!("jobs/rejected/{name}.csv.receipt.json"))).unwrap();
        assert!(receipt.contains(refused), "{receipt}");
    }
    assert_eq!(store.objects().into_values().collect::<Vec<_>>(), [png(1)]);
    env.audit().each_paid_once(1);
}

#[test]
fn an_input_that_no_job_needs_is_removed_in_time() {
    let (env, store) = (TestEnv::new(), S3Server::start());
    let terms = "[inputs]\nstore = \"s3://media\"\nkeep = \"3s\"\n[retention]\nlist_finished_for = \"1s\"\n";
    env.configure(terms);
    let daemon = daemon(&env, &store);
    env.write("logo.png", png(1));
    env.write("stills.csv", row("./logo.png"));
    submit(&env, &["stills.csv", "--wait"]).exited(0);
    until("it is removed", || store.objects().is_empty());
    daemon.says("an input was removed that no job needs any more");
    // Handed in again for another job, it is uploaded again.
    env.write("other.csv", row("./logo.png").replace("fox", "crow"));
    submit(&env, &["other.csv", "--wait"]).exited(0);
    daemon.stop().exited(0);
    assert_eq!(store.requests(&hyper::Method::PUT), 2);
    env.audit().each_paid_once(2);
}
