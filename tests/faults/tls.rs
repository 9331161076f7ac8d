//! TLS that fails: what is wrong, with whose certificate, and what to do. Nothing is sent to whom is not trusted,
//! and in the middle of a run it is an outage like any other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::collect_outputs::Outputs;
use crate::support::tls::{Face, Front};
use crate::support::{TestEnv, manifests};

#[test]
fn what_is_wrong_is_said_with_whose_certificate_it_is_and_what_to_do() {
    for (face, wrong, todo) in [
        (
            Face::Untrusted,
            "the certificate of localhost is not trusted: it is self-signed",
            "update-ca-certificates",
        ),
        (
            Face::Other,
            "the certificate of localhost is for other names (media.example, *.media.example)",
            "the name in the address",
        ),
        (Face::Expired, "the certificate of localhost expired at 2021-01-01T00:00:00Z", "has to be renewed"),
        (
            Face::Early,
            "the certificate of localhost is valid from 2100-01-01T00:00:00Z on",
            "this machine's clock",
        ),
        (Face::Garbage, "localhost does not speak TLS there", "the scheme and the port"),
        (Face::Plain, "localhost does not speak TLS there", "the scheme and the port"),
        (Face::HungUp, "handshake", "check --base-url"),
    ] {
        let env = TestEnv::new();
        env.write("batch.csv", manifests::manifest("image", 1));
        let front = Front::before(&env.base_url(), move |_| face);
        let base_url = front.https();
        for arguments in
            [&["run", "batch.csv", "--base-url", &base_url][..], &["credits", "--base-url", &base_url]]
        {
            let outcome = env.run(arguments.iter().copied()).exited(5).says(wrong).says(todo);
            let lines = outcome.stderr.lines().filter(|line| line.contains(wrong)).count();
            assert_eq!(lines, 1, "{face:?} is told once: {}", outcome.stderr);
        }
        let report = env.run(["doctor", "--json", "--base-url", &base_url]).exited(5).json();
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["exit_code"] != 0 && check["level"] == "wrong").unwrap();
        assert!(found["found"].as_str().unwrap().contains(wrong), "{found:#}");
        assert!(found["todo"].is_string(), "{found:#}");
        if face != Face::HungUp {
            assert_eq!(found["check"], "tls", "{found:#}");
        }
        assert!(front.heads().is_empty(), "{face:?}: nothing is sent");
        assert_eq!(env.audit().totals.tasks, 0);
    }
}

#[test]
fn plain_http_where_tls_is_spoken_is_named() {
    let env = TestEnv::new();
    let front = Front::before(&env.base_url(), |_| Face::Good);
    env.run(["credits", "--base-url", &front.http()]).exited(5).says("try https://");
}

#[test]
fn a_certificate_that_goes_bad_in_the_middle_of_a_run_is_waited_out() {
    for bad in [Face::Expired, Face::Other, Face::Untrusted, Face::Garbage, Face::HungUp] {
        let env = TestEnv::new();
        env.configure("[output]\nallow_hosts = [\"127.0.0.1\"]");
        env.write("batch.csv", manifests::manifest("image", 12));
        let met = AtomicUsize::new(0);
        // From the first creating call on, the next connections. All twelve jobs may ask at once, and what passes within
        // moments is no outage: so each of them is tried several times.
        let front = Front::before(&env.base_url(), move |heads| {
            let has_begun = heads.iter().any(|head| head.starts_with("post "));
            if has_begun && met.fetch_add(1, Ordering::Relaxed) < 60 { bad } else { Face::Good }
        });
        let outcome = env.run(["run", "batch.csv", "--base-url", &front.https()]).exited(0);
        outcome.says("no usable answer from the service since 20");
        env.audit().each_paid_once(12);
        let outputs = Outputs::of(&env, "batch");
        outputs.is_complete(&manifests::ids("image", 12));
        outputs.agrees_with(&env.audit());
    }
}
