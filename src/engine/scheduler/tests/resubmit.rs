//! Batches whose overdue jobs are resubmitted.

use super::*;
use crate::domain::manifest::row::{Deadline, OnDeadline};
use crate::domain::review::{Decision, Verdict};
use crate::engine::scheduler::{AppliedVersions, RenamedJob};

/// One video that is overdue after half an hour, in a batch that may pay twice.
fn resubmitting(slots: u32) -> Stage {
    let limits = Limits { in_flight: slots, ..settings().limits };
    let mut stage = Stage::with(1, Settings { limits, ..settings() });
    stage.batch.policy.on_deadline = Some(OnDeadline::Resubmit);
    stage.batch.policy.budget = Some(Credits(100));
    stage.scheduler.add_batch(stage.batch.clone());
    assert_eq!(stage.step(vec![]), "post 0#1");
    stage.posted(0, task("pending"));
    stage
}

fn answer(stage: &mut Stage, attempt: u32, answer: ReadAnswer) -> String {
    stage.step(vec![Input::Read(Stage::key(0), AttemptNo(attempt), answer)])
}

/// Half an hour passes. The task is read once more before another attempt follows, and runs. Returns what is said then.
fn deadline_passes(stage: &mut Stage) -> String {
    assert_eq!(stage.pass(Millis::from_secs(1_800)).step(vec![]), "read 0#1");
    answer(stage, 1, ReadAnswer::Task(reading("processing")))
}

/// Time passes until nothing moves by itself any more; no reading of the first task works meanwhile. Returns how many there
/// were.
fn fails_to_read_the_first(stage: &mut Stage) -> u32 {
    let mut readings = 0;
    while stage.scheduler.standstill().is_none() {
        match stage.pass(Millis(5_000)).step(vec![]).as_str() {
            "" => {}
            "read 0#1" => {
                readings += 1;
                let failed = ReadAnswer::Again { fault: fault("http_500"), wait: None };
                assert_eq!(answer(stage, 1, failed), "");
            }
            said => panic!("{said}"),
        }
        assert!(readings < 20, "nobody waits for ever");
    }
    readings
}

fn second(status: &str) -> TaskReading {
    TaskReading { id: TaskId("t2".into()), ..reading(status) }
}

fn fetched(attempt: u32) -> Vec<Input> {
    vec![Input::Fetched(Stage::key(0), AttemptNo(attempt), Ok(files()))]
}

/// What a state that is gone sent under the next key would be asked for, and bought if it sent nothing.
#[test]
fn what_a_gone_state_may_have_resubmitted_is_late_and_not_resubmitted() {
    let mut stage = resubmitting(1);
    stage.durable.get_mut(&Stage::key(0)).unwrap().job.mark_may_have_gone_on();
    stage.restart();
    let until = stage.now.tick.after(Millis::from_secs(3_000));
    while stage.now.tick < until {
        match stage.pass(Millis(5_000)).step(vec![]).as_str() {
            "" => {}
            "read 0#1" => assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("processing"))), ""),
            said => panic!("{said}"),
        }
    }
    assert!(stage.durable[&Stage::key(0)].job.is_overdue());
}

#[test]
fn an_overdue_task_is_watched_beside_the_next_attempt() {
    let mut stage = resubmitting(1);
    assert_eq!(deadline_passes(&mut stage), "post 0#2");
    assert_eq!(stage.batch.totals.committed(), Credits(20), "both are counted");
    stage.posted(0, PostAnswer::Task(second("pending")));
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "read 0#2");
    assert_eq!(answer(&mut stage, 2, ReadAnswer::Task(second("success"))), "fetch 0#2");
    assert_eq!(stage.step(fetched(2)), "");
    assert_eq!(stage.ended, Vec::<String>::new(), "the first may still succeed, and be paid for");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue));
    stage.pass(Millis(290_000));
    assert_eq!(stage.step(vec![]), "read 0#1", "every five minutes");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("failed"))), "");
    assert_eq!(stage.ended, ["job-0 succeeded"]);
    assert_eq!((stage.batch.totals.spent, stage.batch.totals.refunded), (Credits(10), Credits(10)));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
}

#[test]
fn a_command_ends_where_the_first_task_cannot_be_read_before_the_next_attempt() {
    let mut stage = resubmitting(1);
    stage.pass(Millis::from_secs(1_800)).restart();
    fails_to_read_the_first(&mut stage);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue));
    assert_eq!(stage.batch.totals.committed(), Credits(10), "nothing was bought for it meanwhile");
}

#[test]
fn a_task_that_was_only_named_by_its_post_and_cannot_be_read_is_overdue_and_nothing_is_bought_for_it() {
    for deadline in [8, 15, 45, 1_800] {
        let mut stage = resubmitting(1);
        stage.scheduler.settings.deadlines = BTreeMap::from([(Kind::Video, Millis::from_secs(deadline))]);
        let settings = Box::new(stage.scheduler.settings.clone());
        stage.scheduler.execute(Command::Reload(settings), stage.now).unwrap();
        let readings = fails_to_read_the_first(&mut stage);
        assert!(readings >= 8, "{readings} with a deadline of {deadline} s");
        assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue));
        assert!(stage.durable[&Stage::key(0)].job.is_overdue());
        assert_eq!((stage.attempt(0), stage.batch.totals.committed()), (AttemptNo(1), Credits(10)));
    }
}

#[test]
fn a_task_is_resubmitted_over_once_it_can_be_read_again() {
    let mut stage = resubmitting(1);
    assert_eq!(stage.pass(Millis::from_secs(1_790)).step(vec![]), "read 0#1");
    answer(&mut stage, 1, ReadAnswer::Again { fault: fault("http_500"), wait: None });
    assert_eq!(stage.pass(Millis::from_secs(10)).step(vec![]), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("processing"))), "post 0#2");
}

#[test]
fn a_command_ends_where_the_first_task_can_be_read_no_more_while_the_next_attempt_waits() {
    let mut stage = resubmitting(1);
    stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(10)), stage.now).unwrap();
    assert_eq!(deadline_passes(&mut stage), "");
    stage.pass(Millis::from_secs(60));
    stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(100)), stage.now).unwrap();
    assert_eq!(fails_to_read_the_first(&mut stage), 8);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue));
    assert_eq!(stage.batch.totals.committed(), Credits(10));
    // It goes on once the task can be read.
    stage.pass_until("read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("processing"))), "post 0#2");
}

#[test]
fn a_first_task_that_waits_for_a_reading_slot_is_asked_for_once() {
    let mut stage = resubmitting(1);
    stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(10)), stage.now).unwrap();
    assert_eq!(deadline_passes(&mut stage), "");
    stage.pass(Millis::from_secs(60));
    while stage.scheduler.reading_slots.has_room(1, Millis(5_000)) {
        stage.scheduler.reading_slots.take();
    }
    stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(100)), stage.now).unwrap();
    let wakes: Vec<bool> = (0..4)
        .map(|_| stage.scheduler.step(vec![], stage.now).unwrap().wake.is_some_and(|at| at <= stage.now.tick))
        .collect();
    assert!(!wakes[3], "nothing moves before a reading ends: {wakes:?}");
    stage.scheduler.reading_slots.release();
    assert_eq!(stage.step(vec![]), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("processing"))), "post 0#2");
}

#[test]
fn a_job_whose_first_task_cannot_be_read_takes_nobodys_slot() {
    let mut stage = resubmitting(1);
    stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(10)), stage.now).unwrap();
    assert_eq!(deadline_passes(&mut stage), "");
    stage.pass(Millis::from_secs(60));
    stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(100)), stage.now).unwrap();
    assert_eq!((stage.step(vec![]).as_str(), stage.step(vec![]).as_str()), ("", "read 0#1"));
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Again { fault: fault("http_500"), wait: None }), "");
    add_a_row(&mut stage);
    assert_eq!(stage.step(vec![]), "post 1#1", "the only slot is free");
}

/// The second attempt has succeeded, and its outputs are on disk; the first task is watched.
fn succeeds_beside_the_first(stage: &mut Stage) {
    assert_eq!(deadline_passes(stage), "post 0#2");
    stage.posted(0, PostAnswer::Task(second("pending")));
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "read 0#2");
    assert_eq!(answer(stage, 2, ReadAnswer::Task(second("success"))), "fetch 0#2");
    assert_eq!(stage.step(fetched(2)), "");
    assert!(stage.ended.is_empty());
}

#[test]
fn a_second_request_that_waits_for_credits_keeps_no_outputs_of_the_first_task_waiting() {
    let mut stage = resubmitting(1);
    assert_eq!(deadline_passes(&mut stage), "post 0#2");
    stage.posted(0, lost());
    stage.pass_until("post 0#2");
    // Its answer may be on its way: it is waited for.
    assert_eq!(stage.pass(Millis(300_000)).step(vec![]), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("success"))), "");
    let said = stage.posted(0, PostAnswer::OutOfCredits(fault("insufficient_credits")));
    assert!(said.contains("read 0#1"), "{said}");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    stage.step(fetched(1));
    assert_eq!(stage.ended, ["job-0 succeeded"]);
    let job = &stage.outcomes[&Stage::key(0)].job;
    assert_eq!(job.doubt_beside().map(|doubt| doubt.no()), Some(AttemptNo(2)));
    assert_eq!((stage.batch.totals.held, stage.batch.totals.spent), (Credits(10), Credits(10)));
}

#[test]
fn outputs_of_a_job_of_which_another_task_is_watched_are_renamed_and_stored() {
    let mut stage = resubmitting(1);
    succeeds_beside_the_first(&mut stage);
    let (spec, record) = (stage.specs[0].clone(), stage.durable[&Stage::key(0)].clone());
    let named =
        |path: &str| files().into_iter().map(|file| OutputFile { path: path.into(), ..file }).collect();
    let moved = RenamedJob { spec: spec.clone(), record: record.clone(), files: named("boat-1.mp4") };
    let applied = AppliedVersions { renamed: vec![moved], ..AppliedVersions::none(BatchNo(1)) };
    stage.step(vec![Input::Versions(applied)]);
    let path = |stage: &Stage| stage.durable[&Stage::key(0)].job.outputs()[0].path.clone();
    assert_eq!(path(&stage), "boat-1.mp4");
    // What was read before it was renamed changes nothing.
    let stored =
        |record: &JobRecord| Command::NoteStored(vec![((spec.clone(), record.clone()), named("boat-2.mp4"))]);
    assert_eq!(stage.scheduler.execute(stored(&record), stage.now).unwrap().jobs, 0);
    let record = stage.durable[&Stage::key(0)].clone();
    // Nor does an engine change it that leaves its batch alone.
    let mut other = Scheduler::new(settings(), Totals::default());
    assert_eq!(other.execute(stored(&record), stage.now).unwrap().jobs, 0);
    assert_eq!(stage.scheduler.execute(stored(&record), stage.now).unwrap().jobs, 1);
    stage.step(vec![]);
    assert_eq!(path(&stage), "boat-2.mp4");
    // What is decided about them waits for the end of its task.
    let (verdict, by) = (Verdict::Approved, "them".to_owned());
    let decision = Decision { verdict, by, at: Timestamp(0), note: None, sha256: Vec::new() };
    let decided = vec![((spec, record), decision)];
    let refused = stage.scheduler.execute(Command::Decide(decided), stage.now).unwrap().refused.unwrap();
    assert!(
        refused.contains("callsheet resolve b/job-0 --attempt 1 --charged N or --not-charged"),
        "{refused}"
    );
}

#[test]
fn the_first_task_is_collected_when_it_succeeds_first() {
    let mut stage = resubmitting(1);
    assert_eq!(deadline_passes(&mut stage), "post 0#2");
    stage.posted(0, PostAnswer::Task(second("pending")));
    assert_eq!(stage.pass(Millis(300_000)).step(vec![]), "read 0#2, read 0#1", "as they were due");
    let said = answer(&mut stage, 1, ReadAnswer::Task(reading("success")));
    assert_eq!(said, "read 0#1", "for its links");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    stage.step(fetched(1));
    // The exchange that was under way when they changed places.
    assert_eq!(answer(&mut stage, 2, ReadAnswer::Task(second("processing"))), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue));
    assert_eq!(stage.pass(Millis(300_000)).step(vec![]), "read 0#2", "slowly from now on");
    answer(&mut stage, 2, ReadAnswer::Task(second("success")));
    assert_eq!(stage.ended, ["job-0 succeeded"]);
    assert_eq!(stage.batch.totals.spent, Credits(20), "both are paid for");
}

#[test]
fn a_request_that_was_turned_away_is_not_repeated_once_the_first_task_has_succeeded() {
    let mut stage = resubmitting(1);
    assert_eq!(deadline_passes(&mut stage), "post 0#2");
    let turned_away =
        PostAnswer::Again { fault: fault("http_429"), wait: Some(Millis(400_000)), may_have_run: false };
    assert_eq!(stage.posted(0, turned_away), "");
    assert_eq!(stage.pass(Millis(300_000)).step(vec![]), "read 0#1");
    assert_eq!(
        answer(&mut stage, 1, ReadAnswer::Task(reading("success"))),
        "",
        "the second waits to be sent"
    );
    assert_eq!(stage.pass(Millis(100_000)).step(vec![]), "read 0#1", "for its links, and nothing is bought");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    stage.step(fetched(1));
    let Totals { held, spent, .. } = stage.batch.totals;
    assert_eq!((&*stage.ended, held, spent), (&["job-0 succeeded".to_owned()][..], Credits(0), Credits(10)));
}

/// The owner cancels the job, as it stands.
fn cancel_job(stage: &mut Stage) -> CommandOutcome {
    let found = (stage.specs[0].clone(), stage.durable[&Stage::key(0)].clone());
    stage.scheduler.execute(Command::CancelJob(Box::new(found)), stage.now).unwrap()
}

/// Rows are added to the batch, so that it is wanted again.
fn add_a_row(stage: &mut Stage) {
    let mut more = stage.batch.clone();
    (more.rows, more.spool_bytes, more.canceled) = (2, 2, false);
    more.segments.push(Segment::mixed(0, 1, 2));
    stage.specs.push(spec(1, Kind::Video));
    stage.scheduler.execute(Command::AddBatch(Box::new(more)), stage.now).unwrap();
}

#[test]
fn a_job_that_was_canceled_in_flight_is_not_resubmitted_and_its_outputs_are_downloaded() {
    let mut stage = resubmitting(1);
    assert_eq!((cancel_job(&mut stage).in_flight, cancel_job(&mut stage).in_flight), (1, 1));
    stage.step(vec![]);
    assert_eq!(stage.durable[&Stage::key(0)].job.history().last().unwrap().what.matches("cancel").count(), 1);
    stage.restart();
    assert_eq!(stage.pass(Millis::from_secs(1_800)).step(vec![]), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("processing"))), "", "it is late, and no more");
    assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]), "read 0#1", "watched slowly");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    stage.step(fetched(1));
    assert_eq!((&*stage.ended, stage.batch.totals.spent), (&["job-0 succeeded".to_owned()][..], Credits(10)));
}

#[test]
fn a_job_that_was_canceled_in_flight_and_fails_is_not_bought_again_though_its_batch_is_wanted_again() {
    for all in [false, true] {
        let mut stage = resubmitting(1);
        if all {
            stage.scheduler.execute(Command::Cancel(BatchNo(1)), stage.now).unwrap();
        } else {
            cancel_job(&mut stage);
        }
        stage.step(vec![]);
        add_a_row(&mut stage);
        assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("failed"))), "post 1#1");
        assert_eq!(stage.ended, ["job-0 canceled"]);
        assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]), "");
        // Only its owner buys it again.
        let found = vec![(stage.specs[0].clone(), stage.outcomes[&Stage::key(0)].clone())];
        stage.scheduler.execute(Command::Retry(found), stage.now).unwrap();
        assert_eq!(stage.posted(1, task("failed")), "post 0#2");
        stage.posted(0, PostAnswer::Task(TaskReading { id: TaskId("t3".into()), ..reading("failed") }));
        assert_eq!(stage.attempt(0), AttemptNo(3), "it is wanted as before");
    }
}

#[test]
fn a_request_of_a_canceled_job_that_is_turned_away_ends_it_and_one_that_may_have_made_a_task_is_sent_again() {
    let mut stage = Stage::of(1);
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(cancel_job(&mut stage).in_flight, 1);
    let turned_away = PostAnswer::Again { fault: fault("http_429"), wait: None, may_have_run: false };
    assert_eq!(stage.posted(0, turned_away.clone()), "");
    assert_eq!((&*stage.ended, stage.batch.totals.held), (&["job-0 canceled".to_owned()][..], Credits(0)));
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    cancel_job(&mut stage);
    stage.posted(0, lost());
    assert_eq!(
        stage.pass(Millis::from_secs(60)).step(vec![]),
        "post 0#1",
        "its task is asked for under its key"
    );
    stage.posted(0, turned_away);
    assert_eq!(stage.pass(Millis::from_secs(300)).step(vec![]), "post 0#1");
}

#[test]
fn a_download_hurries_no_reading_beside_it() {
    let mut stage = resubmitting(1);
    deadline_passes(&mut stage);
    stage.posted(0, PostAnswer::Task(second("success")));
    assert_eq!(stage.pass(Millis(300_000)).step(vec![]), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("processing"))), "");
    assert_eq!(stage.pass(Millis(299_000)).step(vec![]), "");
    assert_eq!(stage.pass(Millis(1_000)).step(vec![]), "read 0#1");
}

#[test]
fn a_late_answer_to_a_post_touches_no_other_attempt() {
    let mut stage = resubmitting(1);
    deadline_passes(&mut stage);
    let late = Input::Posted(Stage::key(0), AttemptNo::FIRST, lost());
    assert_eq!(stage.step(vec![late]), "", "the second is still on its way");
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "", "and is not sent again beside itself");
    stage.posted(0, PostAnswer::Task(second("pending")));
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "read 0#2");
}

#[test]
fn the_watch_outlasts_a_restart_and_ends_with_the_window() {
    let mut stage = resubmitting(1);
    deadline_passes(&mut stage);
    stage.posted(0, PostAnswer::Task(second("success")));
    stage.step(fetched(2));
    stage.restart();
    stage.step(vec![]);
    assert_eq!(stage.scheduler.standstill(), None, "not before it was read once");
    assert_eq!(stage.pass(Millis(10_000)).step(vec![]), "read 0#1");
    answer(&mut stage, 1, ReadAnswer::Task(reading("processing")));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Overdue));
    assert_eq!(stage.pass(Millis::from_secs(86_400)).step(vec![]), "read 0#1", "once more");
    answer(&mut stage, 1, ReadAnswer::Task(reading("processing")));
    stage.pass(Millis::from_secs(300)).step(vec![]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
    assert_eq!(stage.batch.totals.spent, Credits(20), "its charge stays until a person decides");
}

#[test]
fn a_budget_that_has_no_room_sends_no_second_attempt() {
    let mut stage = resubmitting(1);
    stage.batch.policy.budget = None;
    stage.scheduler.add_batch(stage.batch.clone());
    assert_eq!(deadline_passes(&mut stage), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::BatchBudget)));
    assert_eq!(stage.pass(Millis(300_000)).step(vec![]), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("success"))), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    stage.step(fetched(1));
    assert_eq!(stage.ended, ["job-0 succeeded"]);
    assert_eq!(stage.batch.totals.spent, Credits(10));
}

#[test]
fn what_could_only_be_late_and_what_has_no_key_is_not_resubmitted() {
    for (kind, deadline) in [
        (Kind::Video, Deadline::At(Timestamp(1_500_000))),
        (Kind::ShortsStudio, Deadline::After(Millis(500_000))),
    ] {
        let mut stage = Stage::of(1);
        stage.specs[0] = spec(0, kind);
        Arc::make_mut(&mut stage.specs[0]).order.terms_mut().deadline = Some(deadline);
        stage.batch.policy.on_deadline = Some(OnDeadline::Resubmit);
        stage.batch.policy.budget = Some(Credits(100));
        stage.scheduler.add_batch(stage.batch.clone());
        stage.step(vec![]);
        stage.posted(0, task("pending"));
        assert_eq!(stage.pass(Millis::from_secs(1_800)).step(vec![]), "read 0#1");
        assert!(stage.durable[&Stage::key(0)].job.is_overdue());
    }
}

#[test]
fn a_clock_that_steps_buys_nothing() {
    let mut stage = resubmitting(1);
    stage.now.wall = stage.now.wall.after(Millis::from_secs(86_400));
    assert_eq!(stage.step(vec![]), "", "a day has passed by the calendar alone");
    assert!(!stage.durable[&Stage::key(0)].job.is_overdue());
    assert_eq!(stage.pass(Millis::from_secs(1_790)).step(vec![]), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("processing"))), "");
    assert_eq!(stage.pass(Millis::from_secs(10)).step(vec![]), "post 0#2");
}

#[test]
fn what_was_not_seen_in_flight_counts_for_nothing() {
    let mut stage = resubmitting(1);
    stage.restart();
    stage.now.wall = stage.now.wall.after(Millis::from_secs(86_400));
    assert_eq!(stage.pass(Millis::from_secs(10)).step(vec![]), "read 0#1", "it is read first");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("processing"))), "");
    assert_eq!(stage.pass(Millis::from_secs(1_780)).step(vec![]), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("processing"))), "");
    assert!(stage.pass(Millis::from_secs(20)).step(vec![]).contains("post 0#2"));
}

#[test]
fn nothing_is_paid_for_again_before_the_tasks_of_earlier_attempts_were_read() {
    let mut stage = resubmitting(1);
    stage.batch.policy.budget = Some(Credits(10));
    stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(10)), stage.now).unwrap();
    assert_eq!(deadline_passes(&mut stage), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::BatchBudget)));
    // Its owner lets it go much later, when the service has been done for long.
    stage.pass(Millis::from_secs(60));
    stage.scheduler.execute(Command::SetBudget(BatchNo(1), Credits(100)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.step(vec![]), "read 0#1");
    let again = ReadAnswer::Again { fault: fault("http_503"), wait: None };
    assert_eq!(answer(&mut stage, 1, again), "", "nor where it cannot be read");
    assert_eq!(stage.pass(Millis::from_secs(10)).step(vec![]), "read 0#1");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("success"))), "read 0#1", "for its links");
    assert_eq!(answer(&mut stage, 1, ReadAnswer::Task(reading("success"))), "fetch 0#1");
    stage.step(fetched(1));
    assert_eq!(
        (stage.ended.as_slice(), stage.batch.totals.spent),
        (["job-0 succeeded".to_owned()].as_slice(), Credits(10))
    );
}

#[test]
fn after_a_restart_every_task_of_a_job_is_read_soon() {
    let mut stage = resubmitting(1);
    deadline_passes(&mut stage);
    stage.posted(0, PostAnswer::Task(second("pending")));
    stage.restart();
    assert_eq!(stage.step(vec![]), "");
    let said = stage.pass(Millis(10_000)).step(vec![]);
    assert!(said.contains("read 0#1") && said.contains("read 0#2"), "{said}");
    assert_eq!(answer(&mut stage, 2, ReadAnswer::Task(second("success"))), "fetch 0#2");
    stage.step(fetched(2));
    assert_eq!(stage.scheduler.standstill(), None, "not before the first was read");
    answer(&mut stage, 1, ReadAnswer::Task(reading("success")));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
}
