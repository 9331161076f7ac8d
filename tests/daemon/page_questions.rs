//! What the forms of the live pages ask before they spend: the most that may be spent is shown, and a form does no more than its
//! page showed, once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use serde_json::Value;

use crate::daemon::live_page::{Answer, Server, serve};
use crate::support::{manifests, until};

/// A form as a browser sends it from a page, with `more` beside its hidden fields.
fn filled(page: &Answer, hidden: &[&str], more: &str) -> String {
    let fields = ["form_token"].iter().chain(hidden).map(|name| format!("{name}={}", page.field(name)));
    fields.chain([more.to_owned()]).collect::<Vec<_>>().join("&")
}

#[test]
fn what_is_planned_again_counts_in_what_a_retry_may_spend() {
    let server = serve(true, "");
    let cookie = server.login();
    let cookie = cookie.as_str();
    server.env.write("batch.csv", manifests::manifest("image", 3));
    server.env.run(["submit", "batch.csv", "--pilot", "1"]).exited(0);
    until("the pilot", || server.env.status("batch")["parked_by"] == "pilot");
    server.env.run(["cancel", "batch"]).exited(0);
    let asked = server.ask("GET /batches/batch/retry", &[cookie], "");
    let told = "may spend the 16 credits that its budget has left once they are planned again.";
    assert!(asked.body.contains(told) && asked.field("most") == "16", "{}", asked.body);
    let form = filled(&asked, &["most", "seen"], "");
    let done = server.ask("POST /batches/batch/retry", &[cookie], &form);
    assert_eq!(done.status, 303, "{}", done.body);
    assert_eq!(server.ask("POST /batches/batch/retry", &[cookie], &form).status, 409, "the form again");
    server.env.run(["continue", "batch"]).exited(0);
    server.env.run(["submit", "batch.csv", "--wait"]).exited(0);
    server.daemon.stop();
    server.env.audit().each_paid_once(3);
}

#[test]
fn a_form_that_would_spend_more_than_its_page_showed_asks_again() {
    let server = serve(true, "");
    let cookie = server.login();
    let cookie = cookie.as_str();
    server.env.write("batch.csv", manifests::manifest("image", 3));
    server.env.run(["submit", "batch.csv", "--pilot", "1"]).exited(0);
    until("the pilot", || server.env.status("batch")["parked_by"] == "pilot");
    let asked = server.ask("GET /batches/batch/continue", &[cookie], "");
    assert_eq!(asked.field("most"), "16");
    server.env.run(["budget", "batch", "500"]).exited(0);
    let again = server.ask("POST /batches/batch/continue", &[cookie], &filled(&asked, &["most"], ""));
    assert_eq!(again.status, 409, "{}", again.body);
    for told in ["It may spend more now than this page showed.", "may spend the 492 credits"] {
        assert!(again.body.contains(told), "{told}: {}", again.body);
    }
    let without = server.ask("POST /batches/batch/continue", &[cookie], &filled(&asked, &[], ""));
    assert_eq!(without.status, 409, "{}", without.body);
    server.env.audit().each_paid_once(1);
    let done = server.ask("POST /batches/batch/continue", &[cookie], &filled(&again, &["most"], ""));
    assert_eq!(done.status, 303, "{}", done.body);
    server.env.run(["submit", "batch.csv", "--wait"]).exited(0);
    server.daemon.stop();
    server.env.audit().each_paid_once(3);
}

#[test]
fn the_form_of_a_retry_retries_once_even_if_its_job_fails_again() {
    let server = serve(true, "");
    server.env.faults(
        "[[rules]]\ncontains = 'twice'\ntimes = 2\neffect = { do = 'task-fails', code = 'provider_unavailable' }\n",
    );
    let cookie = server.login();
    let cookie = cookie.as_str();
    let job = r#"{"policy": {"attempts": 1}, "jobs": [{"id": "a", "kind": "image", "model": "gi-2", "prompt": "twice"}]}"#;
    server.env.write("w.json", job);
    server.env.run(["submit", "w.json", "--wait"]).exited(1);
    let listed: Value = serde_json::from_str(&server.env.run(["jobs", "w", "--json"]).stdout).unwrap();
    let page = format!("/jobs/{}/retry", listed["job"].as_str().unwrap());
    let ask = |page: &str| server.ask(&format!("GET {page}"), &[cookie], "");
    let send = |page: &str, form: &str| server.ask(&format!("POST {page}"), &[cookie], form);
    // The limit is emptied: the job may cost what the page showed all the same.
    let (of_job, of_batch) = (ask(&page), ask("/batches/w/retry"));
    let (of_job, of_batch) = (
        filled(&of_job, &["most", "seen"], "max_credits="),
        filled(&of_batch, &["most", "seen"], "max_credits="),
    );
    let done = send(&page, &of_job);
    assert_eq!(done.status, 303, "{}", done.body);
    until("it to fail again", || {
        server.env.audit().tasks.len() == 2 && server.env.status("w")["failed"] == 1
    });
    let explained = server.env.run(["explain", "w/a", "--json"]).exited(0).json();
    assert_eq!(explained["job"]["max_credits"], 8, "{explained:#}");
    for (page, form) in [(page.as_str(), &of_job), ("/batches/w/retry", &of_batch)] {
        let again = send(page, form);
        assert_eq!(again.status, 409, "{}", again.body);
        assert!(again.body.contains("It was retried since this page was shown."), "{}", again.body);
    }
    assert_eq!(server.env.audit().tasks.len(), 2, "nothing more was asked for");
    let done = send(&page, &filled(&ask(&page), &["most", "seen"], ""));
    assert_eq!(done.status, 303, "{}", done.body);
    server.env.run(["submit", "w.json", "--wait"]).exited(0);
    server.daemon.stop();
    assert_eq!(server.env.audit().tasks.len(), 3);
}

/// The identity of the only job of a batch.
fn only_job(server: &Server, batch: &str) -> String {
    let listed = server.env.run(["jobs", batch, "--json"]).exited(0).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    listed["job"].as_str().unwrap().to_owned()
}

#[test]
fn the_form_of_a_retry_retries_once_even_if_its_job_is_canceled_again() {
    let server = serve(true, "");
    let cookie = server.login();
    let cookie = cookie.as_str();
    server.env.write("w.csv", manifests::manifest("image", 1));
    server.env.run(["submit", "w.csv", "--budget", "0"]).exited(0);
    server.env.run(["cancel", "w/image-1"]).exited(0);
    let page = format!("/jobs/{}/retry", only_job(&server, "w"));
    let asked = server.ask(&format!("GET {page}"), &[cookie], "");
    let form = filled(&asked, &["most", "seen"], "");
    let send = || server.ask(&format!("POST {page}"), &[cookie], &form);
    let done = send();
    assert_eq!(done.status, 303, "{}", done.body);
    assert_eq!(server.env.status("w")["queued"], 1);
    server.env.run(["cancel", "w/image-1"]).exited(0);
    let again = send();
    assert_eq!(again.status, 409, "its key is the same, {}", again.body);
    assert!(again.body.contains("It was retried since this page was shown."), "{}", again.body);
    assert_eq!(server.env.status("w")["canceled"], 1);
    server.daemon.stop();
    server.env.audit().each_paid_once(0);
}

#[test]
fn a_charge_is_recorded_for_the_attempt_that_was_shown() {
    let server = serve(true, "");
    server.env.faults("[[rules]]\non = 'create'\neffect = { do = 'drop', when = 'after' }\n");
    let cookie = server.login();
    let cookie = cookie.as_str();
    let job =
        r#"{"id": "short", "kind": "shorts-studio", "options": {"topic": "a boat"}, "max_credits": 20}"#;
    server.env.write("w.jsonl", job);
    server.env.run(["submit", "w.jsonl", "--wait"]).exited(7);
    let page = format!("/jobs/{}/resolve", only_job(&server, "w"));
    let asked = server.ask(&format!("GET {page}"), &[cookie], "");
    assert_eq!(asked.field("shown_attempt"), "1");
    // Meanwhile somebody else records it, and the next attempt is in doubt, too.
    server.env.run(["resolve", "w/short", "--not-charged"]).exited(0);
    server.env.run(["retry", "w/short"]).exited(0);
    let in_doubt = || server.env.status("w")["in_doubt"] == 1;
    until("the second to be in doubt", || server.env.audit().tasks.len() == 2 && in_doubt());
    let send = |page_shown: &Answer| {
        let form = filled(page_shown, &["shown_attempt"], "charged=0&attempt=");
        server.ask(&format!("POST {page}"), &[cookie], &form)
    };
    let again = send(&asked);
    assert_eq!((again.status, again.field("shown_attempt").as_str()), (409, "2"), "{}", again.body);
    assert!(again.body.contains("It is not the attempt any more"), "{}", again.body);
    assert!(in_doubt(), "nothing is recorded");
    let done = send(&again);
    assert_eq!(done.status, 303, "{}", done.body);
    assert!(!in_doubt());
    server.daemon.stop();
}

#[test]
fn what_cannot_be_read_is_refused_in_a_way_that_can() {
    let server = serve(false, "");
    for path in ["/batches/%FF", "/batches/x%FF/gallery/a.png", "/jobs/%FF", "/batches/x/%FF"] {
        let refused = server.ask(&format!("GET {path}"), &[], "");
        assert_eq!(refused.status, 400, "{path}");
        let error: Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(error["error"]["exit_code"], 2, "{path}: {error}");
    }
    server.daemon.stop();
    let server = serve(true, "");
    let large = format!("token={}", "x".repeat(70_000));
    let refused = server.ask("POST /login", &[], &large);
    assert_eq!(refused.status, 400, "{}", refused.body);
    for told in ["<!DOCTYPE html>", "the form is too large", "callsheet submit"] {
        assert!(refused.body.contains(told), "{told}: {}", refused.body);
    }
    server.daemon.stop();
}
