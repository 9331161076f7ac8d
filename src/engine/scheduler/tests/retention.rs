//! Batches that are done: no step looks at them, and they can be let go.

use super::*;
use crate::engine::scheduler::{Command, CommandOutcome};

/// A batch whose only job has succeeded.
fn done() -> Stage {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, task("success"));
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
    stage
}

fn at_hand(stage: &Stage) -> usize {
    stage.scheduler.batches.unfinished().count()
}

#[test]
fn turns_look_at_a_batch_until_it_is_done_and_again_once_it_is_touched() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    assert_eq!(at_hand(&stage), 1);
    let mut stage = done();
    assert_eq!(at_hand(&stage), 0);
    stage.scheduler.execute(Command::Pause(BatchNo(1)), stage.now).unwrap();
    assert_eq!(at_hand(&stage), 1);
    stage.step(vec![]);
    assert_eq!(at_hand(&stage), 0);
}

#[test]
fn a_batch_is_let_go_once_it_is_done_and_its_owner_knows() {
    let archive =
        |stage: &mut Stage| stage.scheduler.execute(Command::Archive(BatchNo(1)), stage.now).unwrap();
    let mut stage = Stage::of(1);
    assert_eq!(archive(&mut stage), CommandOutcome::default(), "it is not done");
    let mut stage = done();
    assert_eq!(archive(&mut stage), CommandOutcome::default(), "nobody was told");
    stage.scheduler.execute(Command::MarkAnnounced(BatchNo(1)), stage.now).unwrap();
    assert_eq!(archive(&mut stage), CommandOutcome::default(), "that is not durable yet");
    stage.step(vec![]);
    assert_eq!(archive(&mut stage).jobs, 1);
    let step = stage.scheduler.step(vec![], stage.now).unwrap();
    let [Change::Archive(batch, at)] = &step.changes[..] else { panic!("{:?}", step.changes) };
    assert_eq!((batch.no, *at), (BatchNo(1), stage.now.wall));
    assert!(stage.scheduler.batch(BatchNo(1)).is_none());
    assert_eq!(archive(&mut stage), CommandOutcome::default(), "it has left");
}

#[test]
fn a_batch_that_was_taken_back_does_not_undo_what_a_manifest_added_meanwhile() {
    let mut stage = Stage::of(2);
    let before = BatchRecord { rows: 1, ..stage.batch.clone() };
    stage.scheduler.execute(Command::RestoreBatch(Box::new(before)), stage.now).unwrap();
    assert_eq!(stage.scheduler.batch(BatchNo(1)).unwrap().rows, 2);
}
