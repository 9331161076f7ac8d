//! Outputs that are downloaded again.

use super::*;
use crate::domain::job::RESOLVED;

#[test]
fn outputs_that_cannot_be_downloaded_again_are_not_forgotten() {
    let given_up = [
        vec![Event::TaskMissing(fault())],
        vec![read("success", 10), Event::FetchAbandoned(fault())],
        vec![read("pending", 10), Event::TaskMissing(fault())],
        vec![read("success", 10), read("success", 10), Event::FetchAbandoned(fault())],
    ];
    for events in given_up {
        let mut job = Job::queued();
        let before = [admit(10), task("success", 10), Event::Fetched(vec![file()]), Event::FetchAgain];
        for event in before.into_iter().chain(events) {
            job = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap().job;
            // A new process continues with what is stored.
            let stored = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<Job>(&stored).unwrap(), job);
        }
        assert_eq!(*job.state(), State::Succeeded { task: TaskId("t1".into()), files: vec![file()].into() });
        assert!(job.gave_up_download_since(Timestamp(0)) && !job.gave_up_download_since(Timestamp(1)));
        assert_eq!(job.books(), Books { charged: Credits(10), ..Books::default() });
    }
}

#[test]
fn a_download_buys_nothing_though_the_record_of_the_task_says_that_it_failed_or_was_canceled() {
    let succeeded = "admit: submitting#1 10/0
         posted: fetching#1 0/10
         fetched: succeeded#1 0/10
         fetch again: fetching#1 0/10";
    for ended in [Event::Read(failed("generic")), Event::Read(failed("busy")), read("canceled", 10)] {
        let before = vec![admit(10), task("success", 10), Event::Fetched(vec![file()]), Event::FetchAgain];
        let expected = format!("{succeeded}\nread: succeeded#1 0/0\nfetch again: fetching#1 0/0");
        let events = before.iter().cloned().chain([ended.clone(), Event::FetchAgain]);
        check(TERMS, events.collect(), &expected);
        let mut job = Job::queued();
        for event in before.into_iter().chain([ended]) {
            job = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap().job;
        }
        assert_eq!(*job.state(), State::Succeeded { task: TaskId("t1".into()), files: vec![file()].into() });
        assert!(job.gave_up_download_since(Timestamp(0)));
    }
    // Nor where its outputs never came.
    let given_up = Event::FetchAbandoned(Fault::new(DOWNLOAD_FAILED, "no answer"));
    check(
        TERMS,
        vec![
            admit(10),
            task("success", 10),
            given_up.clone(),
            Event::FetchAgain,
            read("pending", 10),
            given_up,
            Event::FetchAgain,
            Event::Read(failed("generic")),
            Event::Retry,
        ],
        "admit: submitting#1 10/0
         posted: fetching#1 0/10
         fetch abandoned: failed#1 0/10
         fetch again: fetching#1 0/10
         read: fetching#1 0/10
         fetch abandoned: failed#1 0/10
         fetch again: fetching#1 0/10
         read: failed#1 0/0
         retry: queued#2 0/0",
    );
}

#[test]
fn what_a_person_recorded_stays_when_outputs_are_asked_for_and_are_not_there() {
    let resolved =
        [admit(10), task("pending", 10), Event::Overdue, Event::Resolve(Credits(8)), Event::FetchAgain];
    let after = |event: Event| {
        let mut job = Job::queued();
        for event in resolved.iter().cloned().chain([event]) {
            job = apply(&job, job.attempt(), event, TERMS, Timestamp(0)).unwrap().job;
            // A new process continues with what is stored.
            let stored = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<Job>(&stored).unwrap(), job);
        }
        let State::Failed { fault, .. } = job.state() else { return (job.state().name().to_owned(), job) };
        (fault.code.clone(), job)
    };
    for event in [read("processing", 10), Event::TaskMissing(fault()), Event::FetchAbandoned(fault())] {
        let (code, job) = after(event);
        assert_eq!((&*code, job.books().charged, job.attempt()), (RESOLVED, Credits(8), AttemptNo(1)));
        assert!(job.is_over() && apply(&job, AttemptNo(1), Event::FetchAgain, TERMS, Timestamp(0)).is_ok());
    }
    let (code, job) = after(Event::Read(failed("generic")));
    assert_eq!((&*code, job.books(), job.attempt()), ("generic", Books::default(), AttemptNo(1)));
    let (state, job) = after(read("success", 10));
    assert_eq!((&*state, job.books().charged), ("fetching", Credits(10)));
}
