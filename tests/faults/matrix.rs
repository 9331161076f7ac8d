//! Every fault against every kind at every step of its life: each run ends by itself, nothing is paid
//! for twice, and five books tell of the same credits: the service's account, the results, the ledger,
//! the batch and the report.

use crate::support::collect_outputs::Outputs;
use crate::support::fault_matrix::Fate::{Canceled, Failed, InDoubt, Made};
use crate::support::fault_matrix::{Fault, Step, holds};
use crate::support::{TestEnv, manifests};

/// Far below the answers that come late, far above those that do not.
const IMPATIENT: &str = "request_timeout = '1500ms'\nrender_timeout = '1500ms'";

// ---- create ----

#[test]
fn a_post_that_the_service_never_took_is_sent_again() {
    let lost = |name, effect| Fault::new(name, effect).studio(InDoubt(0));
    holds(
        Step::Create,
        &[
            lost("dropped before", "{ do = 'drop', when = 'before' }"),
            lost("dropped before, three times", "{ do = 'drop', when = 'before' }").times(3),
            lost("502 page before", "{ do = 'answer', status = 502, body = 'html' }"),
            lost("503 empty before", "{ do = 'answer', status = 503, body = 'empty' }"),
            lost("504 page before", "{ do = 'answer', status = 504, body = 'html' }"),
            lost("500 error without a task", "{ do = 'answer', status = 500 }"),
            lost("broken JSON before", "{ do = 'answer', status = 200, body = 'broken-json' }"),
            lost("empty 200 before", "{ do = 'answer', status = 200, body = 'empty' }"),
            lost("403 page", "{ do = 'answer', status = 403, body = 'html' }"),
            lost("404 page", "{ do = 'answer', status = 404, body = 'html' }"),
            lost("403 of a gateway", "{ do = 'answer', status = 403, body = 'gateway-json' }"),
            lost("408", "{ do = 'answer', status = 408, body = 'empty' }"),
        ],
    );
}

#[test]
fn a_post_whose_answer_is_lost_is_answered_with_its_task() {
    let lost = |name, effect| Fault::new(name, effect).studio(InDoubt(1)).replayed();
    holds(
        Step::Create,
        &[
            lost("dropped after", "{ do = 'drop', when = 'after' }"),
            lost("dropped after, three times", "{ do = 'drop', when = 'after' }").times(3).replayed(),
            lost("reset in the body", "{ do = 'drop', when = 'mid-body' }"),
            lost("502 page after", "{ do = 'answer', status = 502, body = 'html', when = 'after' }"),
            lost("504 page after", "{ do = 'answer', status = 504, body = 'html', when = 'after' }"),
            lost("broken JSON", "{ do = 'answer', status = 200, body = 'broken-json', when = 'after' }"),
            lost("empty 200", "{ do = 'answer', status = 200, body = 'empty', when = 'after' }"),
            lost("broken 500", "{ do = 'answer', status = 500, body = 'broken-json', when = 'after' }"),
            lost("timeout", "{ do = 'delay', ms = 4000, when = 'after' }").impatient(IMPATIENT),
        ],
    );
}

#[test]
fn a_post_that_is_turned_away_or_slow_is_no_loss() {
    let fault = Fault::new;
    holds(
        Step::Create,
        &[
            fault("429", "{ do = 'answer', status = 429 }"),
            fault("429 page, twice", "{ do = 'answer', status = 429, body = 'html' }").times(2),
            fault("429 with Retry-After", "{ do = 'answer', status = 429, retry_after_s = 1 }"),
            fault("405", "{ do = 'answer', status = 405, body = 'empty' }").times(2),
            fault("405 page", "{ do = 'answer', status = 405, body = 'html' }"),
            fault("503 of the safety check", "{ do = 'safety-unavailable' }").studio(InDoubt(0)),
            fault("slow answer", "{ do = 'delay', ms = 250, when = 'after' }"),
            fault("slow service", "{ do = 'delay', ms = 250 }"),
        ],
    );
}

#[test]
fn an_error_that_names_a_task_is_decided_by_the_task() {
    let fault = Fault::new;
    holds(
        Step::Create,
        &[
            fault("500 with a failed task", "{ do = 'fail-at-submission' }")
                .keyed(Made(2))
                .studio(InDoubt(1)),
            fault("500 with a failed task, for ever", "{ do = 'fail-at-submission' }")
                .times(9)
                .keyed(Failed(2))
                .studio(InDoubt(1)),
            fault("500 with a running task", "{ do = 'unknown-outcome' }").studio(InDoubt(1)),
            fault("500 with a task that fails", "{ do = 'unknown-outcome', ending = 'failed' }")
                .keyed(Made(2))
                .studio(InDoubt(1)),
            fault("400 with a task", "{ do = 'reject-at-submission', reason = 'too dark' }")
                .keyed(Failed(1))
                .studio(Failed(0)),
            fault("rejected content", "{ do = 'content-rejected' }").keyed(Failed(0)).studio(Failed(0)),
            fault("rejected content with a task", "{ do = 'content-rejected', with_task = true }")
                .keyed(Failed(1))
                .studio(Failed(0)),
            fault("413 page", "{ do = 'answer', status = 413, body = 'html' }")
                .keyed(Failed(0))
                .studio(Failed(0)),
        ],
    );
}

#[test]
fn a_task_that_fails_is_tried_again_where_that_may_help() {
    let passing = |name, effect| Fault::new(name, effect).keyed(Made(2)).studio(Made(2));
    // Shorts Studio tells no code, so that every failure may be a passing one.
    let hopeless = |name, effect| Fault::new(name, effect).keyed(Failed(1)).studio(Made(2));
    holds(
        Step::Create,
        &[
            passing("generic", "{ do = 'task-fails', code = 'generic' }"),
            passing("rate_limited", "{ do = 'task-fails', code = 'rate_limited' }"),
            passing("busy", "{ do = 'task-fails', code = 'busy' }"),
            passing("provider_unavailable", "{ do = 'task-fails', code = 'provider_unavailable' }"),
            // Somebody wanted it to end: only a person asks for it again.
            hopeless("request_cancelled", "{ do = 'task-fails', code = 'request_cancelled' }"),
            passing("duplicate_request", "{ do = 'task-fails', code = 'duplicate_request' }"),
            // Likewise: somebody canceled the task at the service.
            Fault::new("canceled", "{ do = 'task-canceled' }").keyed(Canceled(1)).studio(Canceled(1)),
            // Inside the call it is a 500 that names the task, after which the call is made once more.
            passing("busy, twice", "{ do = 'task-fails', code = 'busy' }")
                .times(2)
                .keyed(Made(3))
                .rendered_inside(Failed(2))
                .studio(Made(3)),
            hopeless("content_rejected", "{ do = 'task-fails', code = 'content_rejected' }"),
            hopeless("invalid_input", "{ do = 'task-fails', code = 'invalid_input' }"),
        ],
    );
}

/// None of them says anything about the call before it, which was taken: a job that failed here would be paid for,
/// and paid for again when somebody asks for another attempt.
#[test]
fn nothing_on_the_way_ends_a_job_after_a_lost_answer() {
    for (status, body) in [
        (403, "html"),
        (403, "gateway-json"),
        (404, "error"),
        (405, "html"),
        (405, "empty"),
        (413, "html"),
        (415, "gateway-json"),
    ] {
        let env = TestEnv::new();
        env.faults(&format!(
            "[[rules]]\non = 'create'\nper = 'task'\ntimes = 1\neffect = {{ do = 'drop', when = 'after' }}\n\
             [[rules]]\non = 'create'\nper = 'task'\nskip = 1\ntimes = 2\n\
             effect = {{ do = 'answer', status = {status}, body = '{body}' }}"
        ));
        let (manifest, ids) = manifests::of_all_kinds(1);
        env.write("batch.csv", manifest);
        env.run(["run", "batch.csv"]).exited(0);
        let (audit, outputs) = (env.audit(), Outputs::of(&env, "batch"));
        audit.each_paid_once(ids.len());
        outputs.is_complete(&ids);
        outputs.agrees_with(&audit);
    }
}

/// The balance is asked for with the same key, and tells that it works.
#[test]
fn a_401_that_is_one_answers_alone_does_not_end_the_run() {
    for (on, body) in [("create", "error"), ("create", "html"), ("poll", "error"), ("poll", "html")] {
        let env = TestEnv::new();
        env.faults(&format!(
            "[[rules]]\non = '{on}'\nper = 'task'\ntimes = 1\n\
             effect = {{ do = 'answer', status = 401, body = '{body}' }}"
        ));
        let (manifest, ids) = manifests::of_all_kinds(1);
        env.write("batch.csv", manifest);
        env.run(["run", "batch.csv"]).exited(0);
        let audit = env.audit();
        assert!(audit.totals.faults_struck > 0, "{on} {body}: {:?}", audit.totals);
        audit.each_paid_once(ids.len());
        Outputs::of(&env, "batch").is_complete(&ids);
    }
}

/// 402 stops a run; the same command goes on, and no row is worse for it.
#[test]
fn a_balance_that_fails_at_any_step_stops_the_run_and_loses_nothing() {
    let env = TestEnv::new();
    env.faults("[[rules]]\non = 'create'\nper = 'task'\ntimes = 1\neffect = { do = 'answer', status = 402 }");
    let (manifest, ids) = manifests::of_all_kinds(1);
    env.write("batch.csv", manifest);
    let runs: Vec<Option<i32>> = std::iter::repeat_with(|| env.run(["run", "batch.csv"]).code)
        .take(ids.len() + 1)
        .scan(false, |done, code| (!std::mem::replace(done, code == Some(0))).then_some(code))
        .collect();
    assert_eq!(runs.last(), Some(&Some(0)), "{runs:?}");
    assert!(runs[..runs.len() - 1].iter().all(|run| *run == Some(4)), "{runs:?}");
    let (audit, outputs) = (env.audit(), Outputs::of(&env, "batch"));
    audit.each_paid_once(ids.len());
    outputs.is_complete(&ids);
    outputs.agrees_with(&audit);
}

// ---- poll ----

#[test]
fn a_poll_that_says_nothing_of_the_task_is_asked_again() {
    let fault = Fault::new;
    holds(
        Step::Poll,
        &[
            fault("dropped before", "{ do = 'drop', when = 'before' }").times(3),
            fault("dropped after", "{ do = 'drop', when = 'after' }").times(3),
            fault("reset in the body", "{ do = 'drop', when = 'mid-body' }").times(2),
            fault("502 page", "{ do = 'answer', status = 502, body = 'html' }").times(2),
            fault("503 empty", "{ do = 'answer', status = 503, body = 'empty' }").times(2),
            fault("500 error", "{ do = 'answer', status = 500 }").times(2),
            fault("429 with Retry-After", "{ do = 'answer', status = 429, retry_after_s = 1 }"),
            fault("429 page", "{ do = 'answer', status = 429, body = 'html' }").times(2),
            fault("broken JSON", "{ do = 'answer', status = 200, body = 'broken-json' }").times(2),
            fault("empty 200", "{ do = 'answer', status = 200, body = 'empty' }").times(2),
            fault("400 error", "{ do = 'answer', status = 400 }").times(2),
            fault("307", "{ do = 'answer', status = 307, body = 'empty' }").times(2),
            fault("404 page for a while", "{ do = 'answer', status = 404, body = 'html' }").times(6),
            fault("404 of a gateway", "{ do = 'answer', status = 404, body = 'gateway-json' }").times(6),
            fault("404 for a while", "{ do = 'answer', status = 404 }").times(4),
            fault("slow answer", "{ do = 'delay', ms = 250, when = 'after' }"),
            fault("timeout", "{ do = 'delay', ms = 4000, when = 'after' }").impatient(IMPATIENT),
        ],
    );
}

// ---- download ----

#[test]
fn a_download_that_goes_wrong_is_tried_again_and_never_bought_again() {
    let fault = Fault::new;
    holds(
        Step::Download,
        &[
            fault("dropped before", "{ do = 'drop', when = 'before' }").times(2),
            fault("dropped after", "{ do = 'drop', when = 'after' }").times(2),
            fault("reset in the body", "{ do = 'drop', when = 'mid-body' }").times(2),
            fault("403", "{ do = 'answer', status = 403, body = 'html' }").times(2),
            fault("404", "{ do = 'answer', status = 404, body = 'html' }"),
            fault("429", "{ do = 'answer', status = 429, body = 'empty' }").times(2),
            fault("500", "{ do = 'answer', status = 500, body = 'html' }").times(2),
            fault("503", "{ do = 'answer', status = 503, body = 'empty' }"),
            fault("truncated", "{ do = 'truncated-download', keep_percent = 40 }").times(3),
            fault("too short", "{ do = 'short-download', keep_percent = 50 }"),
            fault("empty", "{ do = 'empty-download' }"),
            fault("a page", "{ do = 'html-download' }").times(2),
            fault("redirected", "{ do = 'redirected-download' }"),
            fault("slow", "{ do = 'delay', ms = 250 }"),
            fault("later than an answer may be", "{ do = 'delay', ms = 4000 }").impatient(IMPATIENT),
        ],
    );
}
