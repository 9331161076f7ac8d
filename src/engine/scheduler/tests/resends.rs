//! Jobs whose POST surely made no task: what is asked before they are sent again.

use super::job_inputs;
use super::*;
use crate::domain::review::Verdict;
use crate::engine::scheduler::Command;
use crate::store::Pause;

const DAY: Millis = Millis::from_secs(86_400);

/// The service could not take it, and says so.
fn turned_away() -> PostAnswer {
    PostAnswer::Again { fault: fault("service_unavailable"), wait: None, may_have_run: false }
}

/// So many videos, of which the first was turned away.
fn turned_away_once(rows: u32, limits: Limits) -> Stage {
    let mut stage = Stage::with(rows, Settings { limits, ..settings() });
    assert!(stage.step(vec![]).starts_with("post 0#1"));
    assert_eq!(stage.posted(0, turned_away()), "");
    stage
}

fn first(stage: &Stage) -> (&'static str, Credits) {
    let job = &stage.durable[&Stage::key(0)].job;
    (job.state().name(), job.books().held)
}

fn execute(stage: &mut Stage, command: Command) -> CommandOutcome {
    stage.scheduler.execute(command, stage.now).unwrap()
}

const WAITING: (&str, Credits) = ("queued", Credits::ZERO);

#[test]
fn nothing_has_changed_and_it_is_sent_again_as_it_was() {
    let mut stage = turned_away_once(1, settings().limits);
    stage.pass_until("post 0#1");
    assert_eq!(first(&stage), ("submitting", Credits(PRICE)));
    let said = stage.durable[&Stage::key(0)].job.history().len();
    stage.posted(0, turned_away());
    stage.pass_until("post 0#1");
    assert_eq!(stage.durable[&Stage::key(0)].job.history().len(), said, "an outage fills no history");
}

#[test]
fn a_day_later_it_counts_for_that_day_and_is_asked_against_its_budget() {
    let mut stage = turned_away_once(1, settings().limits);
    stage.pass(DAY);
    assert_eq!(stage.step(vec![]), "post 0#1");
    assert_eq!(stage.durable[&Stage::key(0)].job.day(), Some(stage.now.wall.utc_day()));

    let limits = Limits { per_day: Some(Credits(PRICE)), in_flight: 1, ..settings().limits };
    let mut stage = turned_away_once(2, limits);
    stage.pass(DAY);
    stage.scheduler.set_day(stage.now.wall.utc_day(), Totals { spent: Credits(1), ..Totals::default() });
    assert_eq!(stage.step(vec![]), "");
    assert_eq!((first(&stage), stage.batch.totals), (WAITING, Totals::default()));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::DayBudget)));
    assert_eq!(stage.pass(DAY).step(vec![]), "post 0#1");
}

#[test]
fn a_budget_that_was_lowered_keeps_it() {
    let mut stage = turned_away_once(1, settings().limits);
    execute(&mut stage, Command::SetBudget(BatchNo(1), Credits(PRICE - 1)));
    stage.step(vec![]);
    assert_eq!(stage.pass(Millis::from_secs(60)).step(vec![]), "");
    assert_eq!(first(&stage), WAITING);
    execute(&mut stage, Command::SetBudget(BatchNo(1), Credits(PRICE)));
    assert_eq!(stage.step(vec![]), "post 0#1");
}

#[test]
fn what_must_stay_on_the_account_is_asked_for_again() {
    let limits = Limits { min_balance: Some(Credits(100)), ..settings().limits };
    let mut stage = Stage::with(1, Settings { limits, ..settings() });
    assert_eq!(stage.step(vec![]), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(110)))]), "post 0#1");
    stage.posted(0, turned_away());
    stage.pass_until("balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(109)))]), "", "others spent of it");
    assert_eq!(first(&stage), WAITING);
}

#[test]
fn a_pause_keeps_it() {
    let mut stage = turned_away_once(1, settings().limits);
    execute(&mut stage, Command::Pause(BatchNo(1)));
    stage.step(vec![]);
    assert_eq!(stage.batch.paused, Some(Pause::Owner));
    assert_eq!(stage.pass(Millis::from_secs(60)).step(vec![]), "");
    assert_eq!(first(&stage), WAITING);
    execute(&mut stage, Command::Resume(BatchNo(1)));
    assert_eq!(stage.step(vec![]), "post 0#1", "under the same key");
}

#[test]
fn a_full_disk_keeps_it() {
    let mut stage = turned_away_once(1, settings().limits);
    stage.step(vec![Input::DiskIsLow(true)]);
    assert_eq!(stage.pass(Millis::from_secs(60)).step(vec![]), "");
    assert_eq!(first(&stage), WAITING);
    assert_eq!(stage.step(vec![Input::DiskIsLow(false)]), "post 0#1");
}

#[test]
fn canceling_its_batch_ends_it_at_once() {
    let mut stage = turned_away_once(2, Limits { in_flight: 2, ..settings().limits });
    let outcome = execute(&mut stage, Command::Cancel(BatchNo(1)));
    assert_eq!((outcome.jobs, outcome.in_flight), (1, 1), "the other one is on its way");
    stage.step(vec![]);
    assert_eq!(
        (&*stage.ended, stage.batch.totals.held),
        (&["job-0 canceled".to_owned()][..], Credits(PRICE))
    );
}

#[test]
fn it_is_canceled_alone() {
    let mut stage = turned_away_once(1, settings().limits);
    let found = (stage.specs[0].clone(), stage.durable[&Stage::key(0)].clone());
    let outcome = execute(&mut stage, Command::CancelJob(Box::new(found)));
    assert_eq!((outcome.jobs, outcome.in_flight), (1, 0));
    stage.step(vec![]);
    assert_eq!(stage.ended, ["job-0 canceled"]);
    assert_eq!(stage.batch.totals, Totals::default());
}

#[test]
fn what_may_have_made_a_task_is_neither_canceled_nor_kept() {
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    stage.posted(0, lost());
    assert_eq!(execute(&mut stage, Command::Cancel(BatchNo(1))).in_flight, 1);
    stage.pass(DAY);
    assert_eq!(stage.step(vec![]), "post 0#1", "its task is asked for under its key");
}

#[test]
fn one_whose_deadline_passes_gives_its_slot_back_and_is_not_late() {
    let mut stage = turned_away_once(2, Limits { in_flight: 1, ..settings().limits });
    // Half an hour passes before it is sent again: the next takes the slot.
    stage.now.wall = stage.now.wall.after(Millis::from_secs(1_800));
    assert_eq!(stage.step(vec![]), "post 1#1");
    assert_eq!(first(&stage), WAITING);
    assert!(!stage.durable[&Stage::key(0)].job.is_overdue(), "its time counts from the POST that is taken");
    assert_eq!(stage.scheduler.standstill(), None, "it goes on by itself");
    stage.posted(1, task("pending"));
    assert_eq!(stage.pass(Millis::from_secs(60)).step(vec![]), "read 1#1", "one at a time");
    assert_eq!(first(&stage), WAITING);
    let done = Input::Read(Stage::key(1), AttemptNo::FIRST, ReadAnswer::Task(reading("failed")));
    assert!(stage.step(vec![done]).contains("post 0#1"));
}

#[test]
fn a_stop_leaves_it_in_the_queue_for_the_prices_of_the_next_start() {
    let mut stage = turned_away_once(1, settings().limits);
    assert_eq!(stage.step(vec![Input::Stop]), "");
    assert_eq!((first(&stage), stage.batch.totals.held), (WAITING, Credits::ZERO));
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Stopped));
    // An answer that comes after the stop, too.
    let mut stage = Stage::of(1);
    stage.step(vec![]);
    assert_eq!(stage.step(vec![Input::Stop]), "");
    assert_eq!(stage.posted(0, turned_away()), "");
    assert_eq!((first(&stage), stage.scheduler.standstill()), (WAITING, Some(Standstill::Stopped)));
    stage.restart();
    assert_eq!(stage.step(vec![]), "post 0#1");
}

#[test]
fn a_stop_with_many_of_them_ends_after_all_are_in_the_queue() {
    let limits = Limits { in_flight: 300, ..settings().limits };
    let mut stage = Stage::with(300, Settings { limits, adaptive: false, ..settings() });
    while stage.durable.len() < 300 {
        stage.step(vec![]);
    }
    (0..300).for_each(|seq| drop(stage.posted(seq, turned_away())));
    let step = stage.scheduler.step(vec![Input::Stop], stage.now).unwrap();
    stage.commit(&step.changes);
    assert_eq!(stage.scheduler.standstill(), None, "some are left");
    let held = stage.steps_at_once(|stage, _| stage.batch.totals.held.0 / PRICE);
    assert_eq!(held, [300 - 2 * 136, 0], "no commit carries more than it should");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Stopped));
}

/// A row and one that takes its output, which was turned away.
fn child_turned_away() -> Stage {
    let mut stage = job_inputs::stage(&[&[], &[0]]);
    stage.step(vec![]);
    assert_eq!(job_inputs::finish(&mut stage, 0), "inputs 1#1 of [0]");
    assert_eq!(job_inputs::found(&mut stage, 1), "post 1#1");
    assert_eq!(stage.posted(1, turned_away()), "");
    stage
}

fn seconds_pass_in_silence(stage: &mut Stage) {
    for _ in 0..100 {
        assert_eq!(stage.pass(Millis(1_000)).step(vec![]), "");
    }
}

#[test]
fn one_whose_inputs_stand_is_sent_again_with_them() {
    let mut stage = child_turned_away();
    stage.pass_until("post 1#1");
    job_inputs::decide(&mut stage, 0, Verdict::Approved);
    assert_eq!(stage.posted(1, turned_away()), "");
    stage.pass_until("post 1#1");
    stage.posted(1, task("pending"));
    assert_eq!(stage.durable[&Stage::key(1)].job.present().inputs(), ["https://r/now"]);
}

#[test]
fn one_whose_input_was_rejected_meanwhile_is_not_sent_again() {
    let mut stage = child_turned_away();
    job_inputs::decide(&mut stage, 0, Verdict::Rejected);
    seconds_pass_in_silence(&mut stage);
    let child = |stage: &Stage| {
        let job = &stage.durable[&Stage::key(1)].job;
        (job.state().name(), job.books().held)
    };
    assert_eq!(child(&stage), WAITING);
    assert_eq!(job_inputs::decide(&mut stage, 0, Verdict::Approved), "inputs 1#1 of [0]");
    // What may have made a task is asked for with what it said.
    assert_eq!(job_inputs::found(&mut stage, 1), "post 1#1");
    stage.posted(1, lost());
    job_inputs::decide(&mut stage, 0, Verdict::Rejected);
    stage.pass_until("post 1#1");
}

#[test]
fn one_whose_input_is_another_take_by_then_looks_for_that() {
    let mut stage = job_inputs::of_two_takes();
    stage.step(vec![]);
    job_inputs::finish(&mut stage, 0);
    job_inputs::finish(&mut stage, 1);
    assert_eq!(job_inputs::decide(&mut stage, 0, Verdict::Picked), "inputs 2#1 of [0]");
    assert_eq!(job_inputs::take_found(&mut stage, 1), "post 2#1");
    stage.posted(2, turned_away());
    stage.pass_until("post 2#1");
    stage.posted(2, turned_away());
    job_inputs::decide(&mut stage, 0, Verdict::Withdrawn);
    job_inputs::decide(&mut stage, 1, Verdict::Picked);
    stage.pass_until("inputs 2#1 of [1]");
    assert_eq!(job_inputs::take_found(&mut stage, 2), "post 2#1");
}
