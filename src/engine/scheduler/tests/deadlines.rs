//! What is overdue, and what could only be late.

use super::*;
use crate::engine::scheduler::parts::outage_detector::OutageDetector;

impl Stage {
    /// The deadline of a row passed before it was accepted: at 999.999 s, where the clock begins at 1,000 s.
    pub(super) fn set_late(&mut self, seq: usize) {
        let mut late = (*self.specs[seq]).clone();
        late.order.terms_mut().deadline =
            Some(crate::domain::manifest::row::Deadline::At(Timestamp(999_999)));
        self.specs[seq] = Arc::new(late);
    }

    /// Steps until none is due at once. Returns what `look` sees of each that is durable.
    pub(super) fn steps_at_once<T>(&mut self, mut look: impl FnMut(&Stage, &Step) -> T) -> Vec<T> {
        let mut seen = Vec::new();
        loop {
            let step = self.scheduler.step(vec![], self.now).unwrap();
            self.commit(&step.changes);
            seen.push(look(self, &step));
            if step.wake != Some(self.now.tick) {
                return seen;
            }
        }
    }
}

#[test]
fn an_overdue_job_frees_its_slot_and_is_collected_late() {
    let mut stage =
        Stage::with(2, Settings { limits: Limits { in_flight: 1, ..settings().limits }, ..settings() });
    assert_eq!(stage.step(vec![]), "post 0#1");
    stage.posted(0, task("pending"));
    let said = stage.pass(Millis::from_secs(1800)).step(vec![]);
    assert_eq!(said, "read 0#1, post 1#1", "its slot went to the next");
    stage.read(0, ReadAnswer::Task(reading("processing")));
    assert_eq!(stage.pass(Millis::from_secs(299)).step(vec![]), "", "watched slowly");
    assert_eq!(stage.pass(Millis::from_secs(1)).step(vec![]), "read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
}

#[test]
fn a_calendar_that_steps_ahead_makes_no_job_late() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.now.wall = stage.now.wall.after(Millis::from_secs(3 * 86_400));
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.scheduler.standstill(), None, "it was sent a moment ago");
    let said = stage.pass(Millis::from_secs(1800)).step(vec![]);
    assert_eq!(said, "read 0#1");
    stage.read(0, ReadAnswer::Task(reading("processing")));
    stage.step(vec![]);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue), "half an hour has passed now");
    // It is watched for a day, of which the calendar says that it is over.
    for _ in 0..3 {
        assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]), "read 0#1");
        stage.read(0, ReadAnswer::Task(reading("processing")));
    }
    assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]), "read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
}

#[test]
fn the_answer_to_a_post_ends_no_watch() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.pass(Millis::from_secs(1)).step(vec![Input::Posted(Stage::key(0), AttemptNo(1), lost())]);
    // The service is away for longer than an overdue job is watched.
    stage.pass(Millis::from_secs(2 * 86_400)).step(vec![]);
    stage.posted(0, task("processing"));
    assert_eq!(stage.ended, [""; 0], "its task has only just become known");
    assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]), "read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
}

#[test]
fn after_a_downtime_deadlines_are_applied_by_and_by() {
    let limits = Limits { in_flight: 600, ..settings().limits };
    let mut stage = Stage::with(600, Settings { limits, adaptive: false, ..settings() });
    while stage.durable.len() < 600 {
        stage.step(vec![]);
    }
    (0..600).for_each(|seq| drop(stage.posted(seq, task("pending"))));
    stage.pass(Millis::from_secs(1800)).restart();
    let overdue = stage
        .steps_at_once(|stage, _| stage.durable.values().filter(|record| record.job.is_overdue()).count());
    assert_eq!(overdue, [136, 272, 408, 544, 600], "no commit carries more than it should");
}

#[test]
fn requests_of_unknown_outcome_are_in_doubt_by_and_by_after_a_restart() {
    let limits = Limits { in_flight: 300, ..settings().limits };
    let mut stage = Stage::with(300, Settings { limits, adaptive: false, ..settings() });
    stage.specs = (0..300).map(|seq| spec(seq, Kind::ShortsStudio)).collect();
    while stage.durable.len() < 300 {
        stage.step(vec![]);
    }
    stage.restart();
    let in_doubt = stage.steps_at_once(|stage, _| stage.outcomes.len());
    assert_eq!(in_doubt, [136, 272, 300], "no commit carries more than it should");
}

#[test]
fn an_overdue_task_is_looked_at_once_after_a_restart() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.pass(Millis::from_secs(1800)).step(vec![]);
    stage.read(0, ReadAnswer::Task(reading("processing")));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue));
    stage.restart();
    stage.step(vec![]);
    assert_eq!(stage.scheduler.standstill(), None, "not before it was read");
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "read 0#1");
    stage.read(0, ReadAnswer::Task(reading("processing")));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue));
}

#[test]
fn what_could_only_be_late_is_not_bought() {
    let mut stage = Stage::of(1);
    stage.set_late(0);
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.ended, ["job-0 expired"]);
}

#[test]
fn a_downtime_longer_than_every_deadline_gives_up_nothing_unread() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.now.wall = stage.now.wall.after(Millis::from_secs(10 * 86_400));
    stage.restart();
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "read 0#1", "it may have succeeded long ago");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    assert!(stage.ended.is_empty(), "{:?}", stage.ended);
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.now.wall = stage.now.wall.after(Millis::from_secs(10 * 86_400));
    stage.restart();
    stage.step(vec![]);
    stage.pass(Millis(10_000)).step(vec![]);
    stage.read(0, ReadAnswer::Task(reading("processing")));
    assert_eq!(stage.ended, ["job-0 in_doubt"], "read, and still not over after all its time");
}

/// An answer without a task, after which there may be one.
fn lost() -> PostAnswer {
    PostAnswer::Again { fault: fault("internal_error"), wait: None, may_have_run: true }
}

#[test]
fn an_overdue_task_that_cannot_be_read_is_waited_for_only_so_often() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.pass(Millis::from_secs(1800)).restart();
    stage.step(vec![]);
    let mut readings = 0;
    while stage.scheduler.standstill().is_none() {
        if stage.pass(Millis(10_000)).step(vec![]) == "read 0#1" {
            readings += 1;
            stage.read(0, ReadAnswer::Again { fault: fault("http_403"), wait: None });
        }
        assert!(readings < 20, "nobody waits for ever");
    }
    assert_eq!((readings, stage.scheduler.standstill()), (8, Some(Standstill::Overdue)));
    assert!(stage.ended.is_empty(), "it is read again after the next start: {:?}", stage.ended);
}

#[test]
fn a_request_that_is_never_answered_with_a_task_is_left_to_a_person_after_the_watch() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, lost());
    let mut hours = 0;
    while stage.ended.is_empty() && hours < 100 {
        for _ in 0..12 {
            if stage.pass(Millis::from_secs(300)).step(vec![]) == "post 0#1" {
                stage.posted(0, lost());
                // Others are answered meanwhile: it is no outage.
                stage.scheduler.outage_detector = OutageDetector::default();
            }
        }
        hours += 1;
    }
    assert_eq!(stage.ended, ["job-0 in_doubt"]);
    assert_eq!(hours, 25, "the deadline of half an hour, and the watch of a day");
}

#[test]
fn in_an_outage_a_request_is_repeated_however_long_it_lasts() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, lost());
    for _ in 0..3 * 24 * 12 {
        if stage.pass(Millis::from_secs(300)).step(vec![]) == "post 0#1" {
            stage.posted(0, lost());
        }
    }
    assert!(stage.ended.is_empty(), "{:?}", stage.ended);
}

#[test]
fn a_task_that_could_not_be_read_is_not_given_up() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    // The key is refused, or the service is away, for three days.
    for _ in 0..3 * 24 * 12 {
        if stage.pass(Millis::from_secs(300)).step(vec![]) == "read 0#1" {
            stage.read(0, ReadAnswer::Again { fault: fault("connection"), wait: None });
        }
    }
    assert!(stage.ended.is_empty(), "{:?}", stage.ended);
    stage.pass_until("read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1", "it is paid for");
}

#[test]
fn a_task_that_runs_on_is_left_to_a_person_once_its_time_is_over() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    let (begin, window) = (stage.now.wall, Millis::from_secs(1_800 + 86_400));
    while stage.ended.is_empty() {
        if stage.pass(Millis::from_secs(300)).step(vec![]) == "read 0#1" {
            stage.read(0, ReadAnswer::Task(reading("processing")));
        }
    }
    assert_eq!(stage.ended, ["job-0 in_doubt"]);
    let late = stage.now.wall.since(begin).0 - window.0;
    assert!(late <= 600_000, "{late} ms after the end of its watch");
}

#[test]
fn what_is_not_sent_in_time_expires() {
    let mut stage =
        Stage::with(200, Settings { limits: Limits { in_flight: 1, ..settings().limits }, ..settings() });
    stage.batch.policy.expires = Some(crate::domain::manifest::row::Deadline::At(Timestamp(2_000_000)));
    stage.scheduler.add_batch(stage.batch.clone());
    assert_eq!(stage.step(vec![]), "post 0#1");
    stage.posted(0, task("pending"));
    stage.pass(Millis(1_000_000)).step(vec![]);
    assert_eq!(stage.ended.len(), 199);
    assert!(stage.ended.iter().all(|line| line.ends_with("expired")));
    assert_eq!(stage.scheduler.standstill(), None, "what was sent goes on");
    assert_eq!(stage.scheduler.batches.get(&BatchNo(1)).unwrap().parked(), None);
}

/// The first may have been sent in time by a state that is gone; nobody sent the second.
#[test]
fn what_a_lost_state_may_have_sent_in_time_is_neither_sent_late_nor_dropped() {
    let mut stage = Stage::of(3);
    (0..2).for_each(|seq| stage.set_late(seq));
    stage.batch.rebuilt_rows = 1;
    stage.scheduler.add_batch(stage.batch.clone());
    assert_eq!(stage.step(vec![]), "post 2#1", "it stands in nobody's way");
    assert_eq!(stage.ended, ["job-1 expired"]);
    stage.posted(2, PostAnswer::Refused(fault("invalid_request")));
    let withheld = |stage: &Stage| stage.scheduler.withheld(Stage::key(0), &stage.specs[0], stage.now);
    for _ in 0..3 {
        assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::PerhapsSent)));
        assert_eq!(withheld(&stage), Some(Withheld::PastDeadline));
        stage.restart();
        assert_eq!(stage.pass(Millis(100_000)).step(vec![]), "");
    }
    let record = stage.durable.get(&Stage::key(0)).cloned();
    let record = record.unwrap_or(JobRecord {
        key: Stage::key(0),
        id: stage.specs[0].id,
        row_at: 0,
        job: crate::domain::job::Job::queued_perhaps_sent(),
    });
    let found = Box::new((stage.specs[0].clone(), record));
    let resolve = Command::Resolve(found, None, Credits(10));
    stage.scheduler.execute(resolve, stage.now).unwrap();
    stage.step(vec![]);
    assert_eq!(stage.ended[2..], ["job-0 failed"]);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
}

/// It was dropped, and so not sent, before the state was lost: another attempt would expire, too.
#[test]
fn a_retry_leaves_out_what_could_only_expire_also_in_a_rebuilt_state() {
    let mut stage = Stage::of(2);
    stage.set_late(0);
    stage.scheduler.add_batch(stage.batch.clone());
    assert_eq!(stage.step(vec![]), "post 1#1");
    assert_eq!(stage.ended, ["job-0 expired"]);
    let record = stage.outcomes[&Stage::key(0)].clone();
    for rebuilt_rows in [0, 1] {
        stage.batch.rebuilt_rows = rebuilt_rows;
        stage.scheduler.add_batch(stage.batch.clone());
        let retry = Command::Retry(vec![(stage.specs[0].clone(), record.clone())]);
        let outcome = stage.scheduler.execute(retry, stage.now).unwrap();
        assert_eq!((outcome.jobs, outcome.missed_deadline), (0, vec!["job-0".to_owned()]), "{rebuilt_rows}");
    }
}

#[test]
fn what_a_lost_state_may_have_sent_waits_for_a_person_once_its_batch_has_expired() {
    let mut stage = Stage::of(2);
    stage.batch.rebuilt_rows = 1;
    stage.batch.policy.expires = Some(crate::domain::manifest::row::Deadline::At(Timestamp(999_999)));
    stage.scheduler.add_batch(stage.batch.clone());
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::PerhapsSent)));
    assert_eq!(stage.scheduler.overview()[0].parked, Some(Parked::PerhapsSent));
    let withheld = stage.scheduler.withheld(Stage::key(0), &stage.specs[0], stage.now);
    assert_eq!(withheld, Some(Withheld::Expired));
    // There is more time for it.
    stage.batch.policy.expires = None;
    stage.scheduler.add_batch(stage.batch.clone());
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1");
}
