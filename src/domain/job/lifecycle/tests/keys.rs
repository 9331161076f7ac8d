//! How many attempts follow a failure, and under which keys.

use super::*;

/// How many attempts a job gets by itself whose every task fails so, and how it ends: an error of this type named the
/// task, or none did, and its record has this status and code.
fn attempts_after(named: Option<&str>, status: &str, code: &str) -> String {
    let terms = AttemptRules { attempts: 5, keyed: true };
    let mut job = Job::queued();
    let transition = |job: &mut Job, event: Event| {
        *job = apply(job, job.attempt(), event, terms, Timestamp(0)).unwrap().job;
    };
    while matches!(job.state(), State::Queued) {
        transition(&mut job, admit(10));
        let id = TaskId(format!("t{}", job.attempt().0).into());
        let fault = Some(Fault::new(code, "said so")).filter(|_| !code.is_empty());
        let ended = TaskReading { id: id.clone(), fault, ..reading(status, 10) };
        match named {
            Some(kind) => {
                transition(&mut job, Event::Posted(PostAnswer::TaskNamed(id, Fault::new(kind, ""))));
            }
            None => transition(&mut job, task("pending", 10)),
        }
        transition(&mut job, Event::Read(ended));
        assert_eq!(job.books(), Books::default(), "it is refunded");
    }
    format!("{} after {}", job.state().name(), job.attempt().0)
}

#[test]
fn every_way_a_task_ends_in_vain_has_its_number_of_attempts() {
    for (named, status, code, expected) in [
        (None, "failed", "generic", "failed after 5"),
        (None, "failed", "", "failed after 5"),
        (None, "failed", "a_new_code", "failed after 5"),
        (None, "failed", "insufficient_credits", "failed after 5"),
        (None, "failed", "auth_required", "failed after 5"),
        (None, "failed", "rate_limited", "failed after 5"),
        (None, "failed", "busy", "failed after 5"),
        (None, "failed", "provider_unavailable", "failed after 5"),
        (None, "failed", "duplicate_request", "failed after 2"),
        (None, "failed", "request_cancelled", "failed after 1"),
        (None, "failed", "invalid_input", "failed after 1"),
        (None, "failed", "content_rejected", "failed after 1"),
        (None, "canceled", "", "canceled after 1"),
        (None, "canceled", "request_cancelled", "canceled after 1"),
        (None, "canceled", "generic", "canceled after 1"),
        // 500 with `error.task_id`: "retry once", whatever its record says of why.
        (Some("internal_error"), "failed", "provider_unavailable", "failed after 2"),
        (Some("internal_error"), "failed", "", "failed after 2"),
        (Some("internal_error"), "failed", "content_rejected", "failed after 1"),
        (Some("internal_error"), "canceled", "", "canceled after 1"),
        // 400 with it: the settings, or the content.
        (Some("invalid_request"), "failed", "generic", "failed after 1"),
        (Some("content_rejected"), "failed", "", "failed after 1"),
    ] {
        assert_eq!(attempts_after(named, status, code), expected, "{named:?} {status} {code}");
    }
}

/// "Retry once" is not said anew because the next task's record gives a reason of its own that would allow it once, too.
#[test]
fn an_error_that_names_a_task_is_a_reason_for_one_more_attempt_and_no_other() {
    let mut job = Job::queued();
    let mut transition = |event| job = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap().job;
    for code in ["busy", "duplicate_request"] {
        let id = TaskId(code.into());
        transition(admit(10));
        transition(Event::Posted(PostAnswer::TaskNamed(id.clone(), Fault::new("internal_error", ""))));
        transition(Event::Read(TaskReading { id, ..failed(code) }));
    }
    assert_eq!((job.state().name(), job.attempt().0), ("failed", 2));
}

#[test]
fn a_task_canceled_at_the_service_ends_its_job_and_only_a_person_buys_it_again() {
    check(
        TERMS,
        vec![admit(10), task("pending", 10), read("canceled", 10), admit(10), Event::Retry, admit(10)],
        "admit: submitting#1 10/0
         posted: running#1 0/10
         read: canceled#1 0/0
         admit: \"admit\" cannot happen to a job that is canceled
         retry: queued#2 0/0
         admit: submitting#2 10/0",
    );
}

#[test]
fn a_retry_has_another_key_only_where_the_tasks_record_ended_the_attempt() {
    let key_of = |events: Vec<Event>| {
        let mut job = Job::queued();
        for event in events.into_iter().chain([Event::Retry]) {
            job = apply(&job, job.attempt(), event, AttemptRules { attempts: 1, ..TERMS }, Timestamp(0))
                .unwrap()
                .job;
        }
        job.attempt().0
    };
    let refused = Event::Posted(PostAnswer::Refused(Fault::new("not_found", "")));
    let named = || Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()));
    assert_eq!(key_of(vec![admit(10), refused]), 1, "no task was made");
    assert_eq!(key_of(vec![Event::Cancel]), 1);
    assert_eq!(key_of(vec![Event::Expire]), 1);
    assert_eq!(key_of(vec![admit(10), named(), Event::TaskMissing(fault()), Event::Resolve(Credits(0))]), 1);
    assert_eq!(key_of(vec![admit(10), task("pending", 10), Event::Read(failed("busy"))]), 2);
    assert_eq!(key_of(vec![admit(10), named(), Event::Read(failed("busy"))]), 2);
    assert_eq!(key_of(vec![admit(10), task("pending", 10), read("canceled", 10)]), 2);
}

/// A job of a state that was rebuilt, with what was set aside for it.
fn rebuilt(held: u64) -> Job {
    let books = Books { held: Credits(held), ..Books::default() };
    let day = Some(DAY).filter(|_| held > 0);
    let mut job = Job::queued_perhaps_sent();
    let present = job.present_mut();
    (present.books, present.day) = (books, day);
    job
}

#[test]
fn what_may_have_been_sent_is_not_dropped_and_keeps_key_and_hold() {
    for event in [Event::Cancel, Event::Replace, Event::Expire] {
        assert!(apply(&rebuilt(10), AttemptNo(1), event, TERMS, Timestamp(0)).is_err());
    }
    for (held, hold, expected) in [
        (0, 10, Movement::Hold(Credits(10))),
        (4, 10, Movement::Hold(Credits(6))),
        (10, 4, Movement::Release(Credits(6))),
    ] {
        let transition = apply(&rebuilt(held), AttemptNo(1), admit(hold), TERMS, Timestamp(0)).unwrap();
        assert_eq!(transition.movements, [expected], "{held} {hold}");
        assert_eq!(transition.job.books().held, Credits(hold));
        // A refusal of this send says nothing about the one before.
        let refused = Event::Posted(PostAnswer::OutOfCredits(fault()));
        let job = apply(&transition.job, AttemptNo(1), refused, TERMS, Timestamp(0)).unwrap().job;
        assert_eq!((job.state().name(), job.books().held), ("submitting", Credits(hold)));
    }
    let transition = apply(&rebuilt(10), AttemptNo(1), admit(10), TERMS, Timestamp(0)).unwrap();
    assert_eq!(transition.movements, [], "it is set aside already");
    let released = apply(&rebuilt(10), AttemptNo(1), Event::ReleaseHold, TERMS, Timestamp(0)).unwrap();
    assert_eq!((released.movements, released.day), (vec![Movement::Release(Credits(10))], Some(DAY)));
    assert!(released.job.may_have_been_sent(), "it is held anew and asked for under its key");
    let again = apply(&released.job, AttemptNo(1), admit(12), TERMS, Timestamp(0)).unwrap();
    assert_eq!(again.movements, [Movement::Hold(Credits(12))]);
    let doubtful = apply(&rebuilt(0), AttemptNo(1), admit(10), KEYLESS, Timestamp(0)).unwrap().job;
    assert_eq!((doubtful.state().name(), doubtful.books().held), ("in_doubt", Credits(10)));
    for (held, charged) in [(10, 0), (10, 7), (0, 0), (0, 7)] {
        let found = Event::Resolve(Credits(charged));
        let transition = apply(&rebuilt(held), AttemptNo(1), found, TERMS, Timestamp(0)).unwrap();
        let mut totals = Totals { held: Credits(held), ..Totals::default() };
        transition.movements.into_iter().for_each(|movement| totals.apply(movement).unwrap());
        assert_eq!((totals.held, totals.spent), (Credits::ZERO, Credits(charged)));
        assert_eq!(
            (transition.job.state().name(), transition.job.books().charged),
            ("failed", Credits(charged))
        );
        assert!(transition.day.is_some());
    }
}

/// A job of an older state, and what a later one may have done with it.
#[test]
fn each_attempt_after_one_of_an_older_state_may_have_been_sent() {
    let step = |job: &Job, event: Event, terms| {
        apply(job, job.attempt(), event, terms, Timestamp(0)).unwrap_or_else(|error| panic!("{error}")).job
    };
    let told = |job: &Job| {
        let sent = if job.may_have_been_sent() { "?" } else { "" };
        format!("{}{sent}#{} {}", job.state().name(), job.attempt().0, job.books().held.0)
    };
    let running = |terms| {
        let mut job = [admit(10), task("pending", 10)]
            .into_iter()
            .fold(Job::queued(), |job, event| step(&job, event, terms));
        job.mark_may_have_gone_on();
        job
    };
    let fails = || Event::Read(failed("busy"));
    let next = step(&running(TERMS), fails(), TERMS);
    assert_eq!(told(&next), "queued?#2 0");
    assert!(apply(&next, AttemptNo(2), Event::Cancel, TERMS, Timestamp(0)).is_err());
    assert_eq!(told(&step(&next, Event::Replace, TERMS)), "in_doubt?#2 0");
    // Its key finds what was sent; that may have been followed by others, too.
    let found = step(&step(&next, admit(10), TERMS), task("pending", 10), TERMS);
    assert_eq!(told(&step(&found, fails(), TERMS)), "queued?#3 0");
    let made = [read("success", 10), Event::Fetched(vec![file()])];
    let made = made.into_iter().fold(found, |job, event| step(&job, event, TERMS));
    assert!(!made.may_have_gone_on, "it is known to its end");
    // Its owner cancels it while its task runs: the next attempt is neither sent nor forgotten.
    let canceled = step(&running(TERMS), Event::Cancel, TERMS);
    let doubted = step(&canceled, fails(), TERMS);
    assert_eq!(told(&doubted), "in_doubt?#2 0");
    let resolved = step(&doubted, Event::Resolve(Credits(7)), TERMS);
    assert_eq!((told(&resolved), resolved.books().charged), ("failed#2 0".to_owned(), Credits(7)));

    // Without a key only a person tells, once.
    let doubted = step(&step(&running(KEYLESS), fails(), KEYLESS), admit(10), KEYLESS);
    assert_eq!(told(&doubted), "in_doubt#2 10");
    let retried = step(&step(&doubted, Event::Resolve(Credits(0)), KEYLESS), Event::Retry, KEYLESS);
    assert_eq!(told(&retried), "queued#3 0");
    // The same where it was in doubt before.
    for terms in [TERMS, KEYLESS] {
        let doubted = step(&running(terms), Event::TaskMissing(fault()), terms);
        let retried = step(&step(&doubted, Event::Resolve(Credits(0)), terms), Event::Retry, terms);
        assert_eq!(told(&retried), if terms.keyed { "queued?#1 0" } else { "queued?#2 0" });
    }
}

#[test]
fn what_an_allowance_covered_of_a_task_resubmitted_over_is_corrected() {
    let covered = |waived: u64| TaskReading { waived: Some(Credits(waived)), ..reading("pending", 10) };
    let (mut job, mut totals) = (Job::queued(), Totals::default());
    for (attempt, event) in [
        (1, admit(10)),
        (1, task("pending", 10)),
        (1, Event::Resubmit),
        (1, Event::Read(covered(6))),
        (1, Event::Read(covered(2))),
        (1, Event::Read(TaskReading { waived: Some(Credits(3)), ..reading("success", 10) })),
    ] {
        let transition = apply(&job, AttemptNo(attempt), event, TERMS, Timestamp(0)).unwrap();
        job = transition.job;
        transition.movements.into_iter().for_each(|movement| totals.apply(movement).unwrap());
    }
    assert_eq!((job.all_books().waived, totals.waived, totals.spent), (Credits(3), Credits(3), Credits(10)));
}

#[test]
fn the_reason_in_the_record_of_a_task_that_an_error_named_is_kept() {
    let refused = Fault::new("invalid_request", "unsupported settings");
    let mut job = Job::queued();
    for event in [
        admit(10),
        Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), refused)),
        Event::Read(failed("generic")),
    ] {
        job = apply(&job, AttemptNo(1), event, TERMS, Timestamp(0)).unwrap().job;
    }
    let State::Failed { fault, .. } = job.state() else { panic!("{:?}", job.state()) };
    assert_eq!(fault.code, "invalid_request");
    assert_eq!(fault.message, "unsupported settings; the task's record says: said so");
}

/// An allowance of the account's plan covers it: `costCredits` is 0, and not every answer tells what was waived.
#[test]
fn what_succeeded_free_of_charge_is_downloaded_again_not_bought_again() {
    let given_up = || Event::FetchAbandoned(Fault::new(DOWNLOAD_FAILED, "too large"));
    for rules in [TERMS, AttemptRules { keyed: false, ..TERMS }] {
        check(
            rules,
            vec![
                admit(10),
                task("success", 0),
                given_up(),
                Event::Retry,
                Event::FetchAgain,
                read("success", 0),
            ],
            "admit: submitting#1 10/0
         posted: fetching#1 0/0
         fetch abandoned: failed#1 0/0
         retry: \"retry\" cannot happen to a job that is failed
         fetch again: fetching#1 0/0
         read: fetching#1 0/0",
        );
    }
}
