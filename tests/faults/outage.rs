//! While a run waits out an outage it says so once, and once when it is over; a wait that was asked for is told.

use crate::support::{TestEnv, manifests, until};

fn run_through(faults: &str) -> (TestEnv, String) {
    let env = TestEnv::with_faults(faults);
    env.write("batch.csv", manifests::manifest("image", 2));
    let said = env.run(["run", "batch.csv"]).exited(0).stderr;
    (env, said)
}

#[test]
fn an_outage_is_told_once_and_its_end_once() {
    for answer in ["status = 502, body = 'html'", "status = 429"] {
        let (env, said) = run_through(&format!(
            "[[rules]]\non = 'create'\ntimes = 16\neffect = {{ do = 'answer', {answer} }}\n"
        ));
        let lines = |what: &str| said.lines().filter(|line| line.contains(what)).count();
        assert_eq!(lines("no usable answer from the service since 20"), 1, "{said}");
        assert_eq!(lines("the service answers again, after "), 1, "{said}");
        assert!(said.contains("retrying") && said.contains("nothing is lost"), "{said}");
        env.audit().each_paid_once(2);
    }
}

#[test]
fn a_single_fault_is_nobodys_concern() {
    let (_, said) =
        run_through("[[rules]]\non = 'create'\ntimes = 1\neffect = { do = 'answer', status = 502 }\n");
    assert!(!said.contains("no usable answer"), "{said}");
}

/// What `explain` says that a job waits for, once it says so.
fn next_of_the_job(env: &TestEnv, text: &str) -> String {
    let mut next = String::new();
    until(text, || {
        let explained = env.run(["explain", "batch/image-1", "--json"]).exited(0).json();
        next = explained["next"].as_str().unwrap_or_default().to_owned();
        next.contains(text)
    });
    next
}

#[test]
fn a_wait_that_the_service_asks_for_is_told() {
    let env = TestEnv::with_faults(
        "[[rules]]\non = 'create'\ntimes = 1\neffect = { do = 'answer', status = 429, retry_after_s = 86400 }\n",
    );
    env.write("batch.csv", manifests::manifest("image", 1));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    let next = next_of_the_job(&env, "its request is repeated");
    assert!(
        next.starts_with("the service asked to wait; its request is repeated under the same key at 2"),
        "{next}"
    );
    daemon.says("the service asks to wait; repeating the request in 3600 s");
    daemon.stop();
    let offline = env.run(["explain", "batch/image-1", "--json"]).exited(0).json();
    assert!(!offline["next"].to_string().contains("asked to wait"), "nothing waits: {offline}");
    env.run(["run", "batch.csv"]).exited(0);
    env.audit().each_paid_once(1);
}

#[test]
fn a_download_that_waits_for_its_host_is_told() {
    let env = TestEnv::with_faults(
        "[[rules]]\non = 'download'\ntimes = 1\neffect = { do = 'answer', status = 503, retry_after_s = 86400 }\n",
    );
    env.write("batch.csv", manifests::manifest("image", 1));
    let daemon = env.daemon("info");
    env.run(["submit", "batch.csv"]).exited(0);
    let next = next_of_the_job(&env, "asked to wait");
    assert!(next.starts_with("the result host asked to wait; its download is tried again at 2"), "{next}");
    daemon.says("retrying in 300 s");
    daemon.stop();
    env.run(["run", "batch.csv"]).exited(0);
    env.audit().each_paid_once(1);
}
