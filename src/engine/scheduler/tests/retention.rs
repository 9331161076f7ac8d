//! Batches that are done leave memory, and come back for a command.

use super::*;
use crate::domain::job_state::JobState;
use crate::engine::scheduler::Command;

/// A batch whose only job has succeeded, in the step before.
fn done() -> Stage {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("success"));
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
    stage
}

fn is_here(stage: &Stage) -> bool {
    stage.scheduler.batch(BatchNo(1)).is_some()
}

fn succeeded(stage: &Stage) -> u64 {
    let jobs = stage.scheduler.gauges(stage.now).jobs;
    jobs.into_iter().filter(|((state, _), _)| *state == JobState::Succeeded).map(|(_, n)| n).sum()
}

/// The record of the last commit.
fn committed(stage: &mut Stage) -> Vec<BatchRecord> {
    let step = stage.scheduler.step(vec![], stage.now).unwrap();
    let batch = |change| if let Change::Batch(batch) = change { Some(*batch) } else { None };
    step.changes.into_iter().filter_map(batch).collect()
}

#[test]
fn a_batch_that_is_done_leaves_once_that_is_durable_and_its_jobs_stay_counted() {
    let mut stage = done();
    let end = stage.scheduler.batch(BatchNo(1)).unwrap().finished;
    assert_eq!((end, succeeded(&stage)), (Some(stage.now.wall), 1));
    assert_eq!(committed(&mut stage), []);
    assert!(!is_here(&stage));
    assert_eq!(succeeded(&stage), 1);
    assert_eq!(stage.scheduler.overview(), []);
}

#[test]
fn a_command_about_a_batch_that_is_done_takes_it_up_for_one_step() {
    let mut stage = done();
    let record = stage.scheduler.batch(BatchNo(1)).unwrap().clone();
    stage.step(vec![]);
    stage.scheduler.add_finished_batch(record.clone());
    assert_eq!(succeeded(&stage), 1, "it is counted once");
    let earlier = BatchRecord { finished: Some(Timestamp(0)), ..record.clone() };
    stage.scheduler.execute(Command::MarkAnnounced(Box::new(earlier)), stage.now).unwrap();
    assert_eq!(committed(&mut stage), std::slice::from_ref(&record), "another end was announced");
    stage.scheduler.add_finished_batch(record.clone());
    stage.scheduler.execute(Command::MarkAnnounced(Box::new(record.clone())), stage.now).unwrap();
    let announced = BatchRecord { announced: true, announced_at: Some(stage.now.wall), ..record.clone() };
    assert_eq!(committed(&mut stage), [announced]);
    stage.step(vec![]);
    assert!(!is_here(&stage));
    // One that a command leaves as it was is no change.
    stage.scheduler.add_finished_batch(record);
    assert_eq!(committed(&mut stage), []);
    assert!(!is_here(&stage));
    assert_eq!(succeeded(&stage), 1);
}

#[test]
fn a_batch_goes_on_in_the_step_that_adds_rows_to_it() {
    let mut stage = done();
    let before = stage.scheduler.batch(BatchNo(1)).unwrap().clone();
    stage.step(vec![]);
    stage.scheduler.add_finished_batch(before.clone());
    let mut more = BatchRecord { rows: 2, spool_bytes: before.spool_bytes + 1, announced: false, ..before };
    more.segments.push(Segment::mixed(0, more.spool_bytes - 1, more.spool_bytes));
    stage.scheduler.execute(Command::AddBatch(Box::new(more)), stage.now).unwrap();
    let [batch] = &committed(&mut stage)[..] else { panic!("one batch") };
    assert_eq!((batch.rows, batch.finished, batch.is_done()), (2, None, false));
    stage.step(vec![]);
    assert!(is_here(&stage));
    assert_eq!(succeeded(&stage), 1, "it is counted once");
}

#[test]
fn what_a_manifest_adds_is_not_undone_by_the_record_that_was_read_before() {
    let mut stage = Stage::of(2);
    let before = BatchRecord { rows: 1, ..stage.batch.clone() };
    stage.scheduler.add_finished_batch(before);
    assert_eq!(stage.scheduler.batch(BatchNo(1)).unwrap().rows, 2);
}
