//! Outputs that are downloaded again.

use super::*;

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
        assert_eq!(*job.state(), State::Succeeded { task: TaskId("t1".into()), files: vec![file()] });
        assert!(job.gave_up_download_since(Timestamp(0)) && !job.gave_up_download_since(Timestamp(1)));
        assert_eq!(job.books(), Books { charged: Credits(10), ..Books::default() });
    }
}
