//! What becomes of a doubt once a person finds out what was charged.

use super::*;

#[test]
fn a_recorded_charge_is_corrected_when_the_service_gives_it_back() {
    let in_doubt = || vec![admit(10), task("pending", 10), Event::TaskMissing(fault())];
    let (ten, none) = (Event::Resolve(Credits(10)), Event::Resolve(Credits::ZERO));
    check(
        TERMS,
        in_doubt().into_iter().chain([ten.clone(), ten.clone(), none.clone(), none, ten]).collect(),
        "admit: submitting#1 10/0
         posted: running#1 0/10
         task missing: in_doubt#1 0/10
         resolve: failed#1 0/10
         resolve: \"resolve\" cannot happen to a job that is failed
         resolve: failed#1 0/0
         resolve: \"resolve\" cannot happen to a job that is failed
         resolve: failed#1 0/10",
    );
    let corrected = in_doubt().into_iter().chain([Event::Resolve(Credits(10))]);
    assert_eq!(resolved(corrected.collect(), 0), "failed 0/0 spent 0 refunded 10");
}

/// What a doubt comes to: the state, the books and the totals that every movement was added to.
fn resolved(events: Vec<Event>, charged: u64) -> String {
    let mut job = Job::queued();
    let mut totals = Totals::default();
    for event in events.into_iter().chain([Event::Resolve(Credits(charged))]) {
        let transition = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap();
        job = transition.job;
        transition.movements.into_iter().for_each(|movement| totals.apply(movement).unwrap());
    }
    let (Books { held, charged, .. }, Totals { spent, refunded, .. }) = (job.books(), totals);
    assert_eq!(totals.held, held);
    format!("{} {}/{} spent {} refunded {}", job.state().name(), held.0, charged.0, spent.0, refunded.0)
}

#[test]
fn a_person_ends_a_doubt_and_the_books_follow() {
    let held = || {
        let named = Event::Posted(PostAnswer::TaskNamed(TaskId("t1".into()), fault()));
        vec![admit(10), named, Event::TaskMissing(fault())]
    };
    assert_eq!(resolved(held(), 0), "failed 0/0 spent 0 refunded 0");
    assert_eq!(resolved(held(), 7), "failed 0/7 spent 7 refunded 0");
    let charged = || vec![admit(10), task("pending", 10), Event::TaskMissing(fault())];
    assert_eq!(resolved(charged(), 10), "failed 0/10 spent 10 refunded 0");
    assert_eq!(resolved(charged(), 0), "failed 0/0 spent 0 refunded 10");
    assert_eq!(resolved(charged(), 4), "failed 0/4 spent 4 refunded 0");
}

#[test]
fn an_overdue_job_without_an_end_is_ended_by_what_a_person_found_out() {
    let lost = || {
        let lost = PostAnswer::Again { fault: fault(), wait: None, may_have_run: true };
        vec![admit(10), Event::Posted(lost), Event::Overdue]
    };
    assert_eq!(resolved(lost(), 0), "failed 0/0 spent 0 refunded 0");
    assert_eq!(resolved(lost(), 10), "failed 0/10 spent 10 refunded 0");
    let running = vec![admit(10), task("pending", 10), Event::Overdue];
    assert_eq!(resolved(running, 0), "failed 0/0 spent 0 refunded 10");
    let job = lost().into_iter().fold(Job::queued(), |job, event| {
        apply(&job, AttemptNo::FIRST, event, TERMS, Timestamp(0)).unwrap().job
    });
    assert!(!job.is_in_doubt() && job.attempt_to_resolve(None, Credits(0)).is_ok());
    let expired =
        apply(&job, AttemptNo::FIRST, Event::WatchExpired(fault()), TERMS, Timestamp(0)).unwrap().job;
    assert!(expired.is_in_doubt() && expired.books().held == Credits(10), "what is held stays held");
    let in_time = apply(&Job::queued(), AttemptNo::FIRST, admit(10), TERMS, Timestamp(0)).unwrap().job;
    let refused = in_time.attempt_to_resolve(None, Credits(0)).unwrap_err();
    assert_eq!(refused, "it is not in doubt: it is submitting");
}

#[test]
fn an_attempt_in_doubt_beside_the_present_one_is_resolved_by_its_number() {
    let mut job = Job::queued();
    let mut happen = |no: u32, event: Event| {
        job = apply(&job, AttemptNo(no), event, TERMS, Timestamp(0)).unwrap().job;
        job.clone()
    };
    let task_of = |id: &str, status: &str| {
        let reading = TaskReading { id: TaskId(id.into()), ..reading(status, 10) };
        Event::Posted(PostAnswer::Task(reading))
    };
    happen(1, admit(10));
    happen(1, task_of("t1", "pending"));
    happen(1, Event::Resubmit);
    happen(2, admit(10));
    happen(2, task_of("t2", "success"));
    happen(1, Event::WatchExpired(fault()));
    let job = happen(2, Event::Fetched(vec![file()]));
    assert_eq!((job.state().name(), job.all_books().charged), ("succeeded", Credits(20)));
    let chosen = |asked: Option<u32>| {
        let attempt = job.attempt_to_resolve(asked.map(AttemptNo), Credits(0));
        attempt.map(|attempt| attempt.no().0)
    };
    assert_eq!((chosen(None), chosen(Some(1))), (Ok(1), Ok(1)));
    assert_eq!(chosen(Some(2)), Err("it is not in doubt: it is succeeded".to_owned()));
    assert_eq!(chosen(Some(3)), Err("it has no attempt 3".to_owned()));
    let job = happen(1, Event::Resolve(Credits::ZERO));
    assert_eq!((job.state().name(), job.all_books().charged), ("succeeded", Credits(10)));
    assert!(!job.is_in_doubt() && job.is_over());
}

#[test]
fn outputs_that_are_there_do_not_wait_for_a_second_request_that_waits_for_credits() {
    let lost = || {
        let fault = Fault::new("http_500", "an error");
        PostAnswer::Again { fault, wait: None, may_have_run: true }
    };
    let no_credits = || PostAnswer::OutOfCredits(Fault::new("insufficient_credits", "none are left"));
    let no_key = || PostAnswer::Unauthorised(Fault::new("http_401", "no such key"));
    let posted = |answer| (2, Event::Posted(answer));
    let first = || (1, read("success", 10));
    let kept = "fetching#1 0/10, none#2 0 InDoubt";
    let not_needed = || (2, Event::NotNeeded);
    for answer in [no_credits, no_key] {
        let sent = || vec![(2, admit(10)), posted(lost())];
        let then = |events: Vec<(u32, Event)>| resubmitted(sent().into_iter().chain(events).collect());
        assert_eq!(then(vec![posted(answer()), first(), not_needed()]), kept);
        assert_eq!(then(vec![first(), posted(answer()), not_needed()]), kept);
        // Its answer may be on its way.
        assert_eq!(
            then(vec![posted(answer()), first(), (2, second_task("pending"))]),
            "fetching#1 0/10, t2#2 10 Open"
        );
    }
    // One that surely made no task leaves no trace.
    assert_eq!(resubmitted(vec![(2, admit(10)), first(), posted(no_credits())]), "fetching#1 0/10");
}

#[test]
fn an_attempt_that_is_watched_beside_an_ended_one_is_resolved_by_its_number() {
    let mut job = Job::queued();
    let mut happen = |no: u32, event: Event| {
        job = apply(&job, AttemptNo(no), event, TERMS, Timestamp(0)).unwrap().job;
        job.clone()
    };
    happen(1, admit(10));
    happen(1, task("pending", 10));
    happen(1, Event::Resubmit);
    happen(2, admit(10));
    let lost = PostAnswer::Again { fault: fault(), wait: None, may_have_run: true };
    let job = happen(2, Event::Posted(lost));
    let refused = job.attempt_to_resolve(Some(AttemptNo(1)), Credits(0)).unwrap_err();
    assert_eq!(refused, "it is not in doubt: it is running", "the second is still wanted");
    let resolve = Event::Resolve(Credits(0));
    assert!(apply(&job, AttemptNo(1), resolve, TERMS, Timestamp(0)).is_err());
    happen(2, Event::Overdue);
    let job = happen(2, Event::Resolve(Credits(10)));
    assert_eq!((job.state().name(), job.is_over()), ("failed", false), "the first task is still watched");
    let chosen = |asked: Option<u32>| {
        let attempt = job.attempt_to_resolve(asked.map(AttemptNo), Credits(10));
        attempt.map(|attempt| attempt.no().0)
    };
    let recorded =
        "a charge of 10 credits is recorded already; to end its attempt 1, add --attempt 1 (attempt)";
    assert_eq!(chosen(None), Err(recorded.to_owned()));
    assert_eq!(chosen(Some(1)), Ok(1));
    let job = happen(1, Event::Resolve(Credits::ZERO));
    assert_eq!((job.state().name(), job.is_over()), ("failed", true));
    assert_eq!(job.all_books(), Books { charged: Credits(10), ..Books::default() });
}
