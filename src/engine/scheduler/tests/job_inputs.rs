//! Rows that need outputs of other rows.

use super::*;
use crate::domain::input_file::{InputContent, InputFile, InputMedia};
use crate::domain::job_reference::{EndedTake, FoundInput, InputBatch, InputField, JobInput};
use crate::domain::job_state::JobState;
use crate::domain::manifest::row::OnDeadline;
use crate::domain::queue_class::QueueClass;
use crate::domain::review::{Decision, Verdict};
use crate::store::Pause;

const CHILD_FIELD: InputField = InputField::ImageUrls;

/// Row `seq`, which is variation 1 of its own row, and needs the first output of each row of `parents`.
fn with_parents(seq: u32, parents: &[u32], review: bool) -> Arc<JobSpec> {
    let spec = spec(seq, Kind::Video);
    let fingerprint = |seq: u32| Fingerprint(u128::from(seq).to_be_bytes());
    let inputs = (0..).zip(parents).map(|(place, parent)| JobInput {
        field: CHILD_FIELD,
        place,
        batch: None,
        row: format!("job-{parent}"),
        fingerprint: fingerprint(*parent),
        takes: 1,
        variation: None,
        output: 1,
    });
    let mut order = Order { inputs: inputs.collect(), ..spec.order.clone() };
    order.terms_mut().review = review;
    Arc::new(JobSpec { id: JobId::derive(fingerprint(seq), 1), order, ..(*spec).clone() })
}

/// A batch of these rows: each with its parents.
pub(super) fn stage(rows: &[&[u32]]) -> Stage {
    let mut stage = Stage::of(u32::try_from(rows.len()).unwrap());
    stage.specs = (0..).zip(rows).map(|(seq, parents)| with_parents(seq, parents, false)).collect();
    stage
}

pub(super) fn found(stage: &mut Stage, seq: u32) -> String {
    let attempt = stage.attempt(seq);
    let addresses = stage.specs[seq as usize].order.inputs.iter().map(|_| FoundInput {
        address: "https://r/now".to_owned(),
        take: None,
        length: None,
    });
    stage.step(vec![Input::InputsFound(Stage::key(seq), attempt, Ok(addresses.collect()))])
}

/// A job that was posted runs to its end. Returns what follows from that.
pub(super) fn finish(stage: &mut Stage, seq: u32) -> String {
    stage.posted(seq, task("pending"));
    stage.pass_until(&format!("read {seq}#1"));
    assert_eq!(stage.read(seq, ReadAnswer::Task(reading("success"))), format!("fetch {seq}#1"));
    let attempt = stage.attempt(seq);
    stage.step(vec![Input::Fetched(Stage::key(seq), attempt, Ok(files()))])
}

/// An open job, as it is durable.
fn job(stage: &Stage, seq: u32) -> &crate::domain::job::Job {
    &stage.durable[&Stage::key(seq)].job
}

fn refused() -> PostAnswer {
    PostAnswer::Refused(fault("generic"))
}

#[test]
fn a_child_is_sent_when_its_parent_is_done_with_the_addresses_found_then() {
    let mut stage = stage(&[&[1], &[], &[]]);
    assert_eq!(
        stage.step(vec![]),
        "post 1#1, post 2#1",
        "what comes first in the file may wait for what follows"
    );
    assert_eq!(finish(&mut stage, 1), "inputs 0#1 of [1]");
    assert_eq!(job(&stage, 0).state().name(), "submitting");
    assert!(job(&stage, 0).present().inputs().is_empty());
    assert_eq!(found(&mut stage, 0), "post 0#1");
    assert_eq!(job(&stage, 0).present().inputs(), ["https://r/now"]);
    // However often it is sent, it says the same.
    stage.posted(0, lost());
    stage.pass_until("post 0#1");
}

#[test]
fn a_child_does_not_wait_for_another_task_of_its_parent_that_is_watched() {
    for restarts in [false, true] {
        let mut stage = stage(&[&[], &[0]]);
        stage.batch.policy.on_deadline = Some(OnDeadline::Resubmit);
        stage.batch.policy.budget = Some(Credits(100));
        stage.scheduler.add_batch(stage.batch.clone());
        assert_eq!(stage.step(vec![]), "post 0#1");
        stage.posted(0, task("pending"));
        assert_eq!(stage.pass(Millis::from_secs(1_800)).step(vec![]), "read 0#1");
        assert_eq!(stage.read(0, ReadAnswer::Task(reading("processing"))), "post 0#2");
        let second = |status| TaskReading { id: TaskId("t2".into()), ..reading(status) };
        stage.posted(0, PostAnswer::Task(second("pending")));
        stage.pass_until("read 0#2");
        assert_eq!(stage.read(0, ReadAnswer::Task(second("success"))), "fetch 0#2");
        let fetched = vec![Input::Fetched(Stage::key(0), AttemptNo(2), Ok(files()))];
        assert_eq!(stage.step(fetched), "inputs 1#1 of [0]");
        if restarts {
            stage.restart();
            stage.pass_until("inputs 1#1 of [0]");
        }
        assert_eq!(found(&mut stage, 1), "post 1#1");
        assert!(stage.ended.is_empty());
    }
}

#[test]
fn chains_go_on_before_new_rows_begin() {
    let mut stage = stage(&[&[], &[], &[], &[0], &[3]]);
    stage.scheduler.settings.limits.in_flight = 1;
    let settings = Box::new(stage.scheduler.settings.clone());
    stage.scheduler.execute(Command::Reload(settings), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "post 0#1");
    stage.posted(0, task("pending"));
    stage.pass_until("read 0#1");
    assert_eq!(stage.read(0, ReadAnswer::Task(reading("success"))), "fetch 0#1, post 1#1");
    let fetched = Input::Fetched(Stage::key(0), AttemptNo::FIRST, Ok(files()));
    assert_eq!(stage.step(vec![fetched]), "", "the only slot is taken");
    stage.posted(1, task("pending"));
    stage.pass_until("read 1#1");
    let success = ReadAnswer::Task(reading("success"));
    assert_eq!(stage.read(1, success), "fetch 1#1, inputs 3#1 of [0]", "row 2 can wait");
}

#[test]
fn children_of_a_failed_row_wait_for_its_retry() {
    let mut stage = stage(&[&[], &[0], &[1]]);
    stage.step(vec![]);
    assert_eq!(stage.posted(0, refused()), "");
    assert_eq!(stage.ended, ["job-0 failed"]);
    let parked = Standstill::Parked(Parked::Inputs);
    assert_eq!(stage.scheduler.standstill(), Some(parked));
    // Nor does a restart send them, and it is known at once whom they wait for.
    stage.restart();
    assert_eq!(stage.scheduler.waiting_for_people(), None, "the parent may have succeeded");
    assert_eq!(stage.step(vec![Input::DiskIsLow(true)]), "", "admission does not come to them");
    assert_eq!(stage.scheduler.waiting_for_people(), Some(vec![BatchNo(1)]));
    assert_eq!(stage.step(vec![Input::DiskIsLow(false)]), "");
    assert_eq!(stage.scheduler.standstill(), Some(parked));
    assert_eq!(stage.scheduler.waiting_for_people(), Some(vec![BatchNo(1)]));
    let record = stage.outcomes[&Stage::key(0)].clone();
    let retry = Command::Retry(vec![(stage.specs[0].clone(), record)]);
    stage.scheduler.execute(retry, stage.now).unwrap();
    let said = stage.step(vec![]);
    assert!(said.starts_with("post 0#"), "{said}");
    assert_eq!(stage.scheduler.waiting_for_people(), Some(vec![]), "it goes on by itself");
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0]");
    found(&mut stage, 1);
    assert_eq!(finish(&mut stage, 1), "inputs 2#1 of [1]");
}

#[test]
fn a_canceled_batch_drops_what_waits_for_others() {
    let mut stage = stage(&[&[], &[0], &[1]]);
    stage.step(vec![]);
    stage.scheduler.execute(Command::Cancel(BatchNo(1)), stage.now).unwrap();
    stage.step(vec![]);
    stage.step(vec![]);
    assert_eq!(stage.ended, ["job-1 canceled", "job-2 canceled"]);
    assert_eq!(finish(&mut stage, 0), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Done));
}

#[test]
fn a_job_is_canceled_while_its_inputs_are_looked_for_and_what_is_found_then_is_dropped() {
    let mut stage = stage(&[&[], &[0]]);
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0]");
    let child = (stage.specs[1].clone(), stage.durable[&Stage::key(1)].clone());
    let canceled = stage.scheduler.execute(Command::CancelJob(Box::new(child)), stage.now).unwrap();
    assert_eq!((canceled.jobs, canceled.in_flight), (1, 0));
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.ended[1..], ["job-1 canceled"]);
    assert_eq!(stage.batch.totals.held, Credits::ZERO);
    // It is wanted again before that has ended.
    let again = (stage.specs[1].clone(), stage.outcomes[&Stage::key(1)].clone());
    stage.scheduler.execute(Command::Retry(vec![again]), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(found(&mut stage, 1), "inputs 1#1 of [0]", "what was found was of the canceled one");
    assert_eq!(found(&mut stage, 1), "post 1#1");
}

#[test]
fn a_batch_is_canceled_with_the_jobs_whose_inputs_are_looked_for() {
    let mut stage = stage(&[&[], &[0], &[0]]);
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0], inputs 2#1 of [0]");
    let canceled = stage.scheduler.execute(Command::Cancel(BatchNo(1)), stage.now).unwrap();
    assert_eq!((canceled.jobs, canceled.in_flight), (2, 0));
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.ended[1..], ["job-1 canceled", "job-2 canceled"]);
}

#[test]
fn rows_that_are_still_to_be_dropped_after_a_cancel_are_not_begun_when_others_are_added() {
    let (children, each) = (1_200, 100);
    let mut rows: Vec<&[u32]> = vec![&[]];
    rows.resize(children + 2, &[0]);
    rows[children + 1] = &[];
    let mut stage = stage(&rows);
    // The last row is not there yet, and the children are of twelve classes.
    let end = children as u64 + 1;
    let classes = (1..end).step_by(each).zip(1..);
    let segments = classes.map(|(from, class)| Segment {
        class: QueueClass(class),
        ..Segment::mixed(0, from, from + each as u64)
    });
    stage.batch.segments = [Segment::mixed(0, 0, 1)].into_iter().chain(segments).collect();
    (stage.batch.rows, stage.batch.spool_bytes) = (u32::try_from(end).unwrap(), end);
    stage.restart();
    assert_eq!(stage.step(vec![]), "post 0#1");
    let canceled = stage.scheduler.execute(Command::Cancel(BatchNo(1)), stage.now).unwrap();
    assert_eq!(canceled.jobs, u32::try_from(children).unwrap());
    let mut more = stage.scheduler.batches.get(&BatchNo(1)).unwrap().record().clone();
    (more.rows, more.spool_bytes) = (more.rows + 1, end + 1);
    more.segments.push(Segment::mixed(0, end, end + 1));
    stage.scheduler.execute(Command::AddBatch(Box::new(more)), stage.now).unwrap();
    let mut said = vec![stage.step(vec![])];
    said.push(finish(&mut stage, 0));
    said.extend((0..100).map(|_| stage.step(vec![])));
    said.retain(|said| !said.is_empty());
    assert_eq!(said, [format!("post {end}#1")]);
    assert_eq!(stage.ended.len(), children + 1, "one succeeded, all others are canceled");
}

#[test]
fn a_row_to_be_reviewed_feeds_nothing_before_it_is_approved() {
    let mut stage = stage(&[&[], &[0]]);
    stage.specs[0] = with_parents(0, &[], true);
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "");
    let decide = |stage: &mut Stage, verdict| decide(stage, 0, verdict);
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Inputs)));
    assert_eq!(decide(&mut stage, Verdict::Rejected), "");
    assert_eq!(decide(&mut stage, Verdict::Approved), "inputs 1#1 of [0]");
    // It was let out, and nothing of it left: what is decided now still holds it back.
    decide(&mut stage, Verdict::Rejected);
    let passing = Err(InputFault::Passing(fault("timeout")));
    stage.step(vec![Input::InputsFound(Stage::key(1), AttemptNo::FIRST, passing)]);
    for _ in 0..100 {
        assert_eq!(stage.pass(Millis(1_000)).step(vec![]), "");
    }
    assert_eq!((job(&stage, 1).state().name(), job(&stage, 1).books().held), ("queued", Credits::ZERO));
    assert_eq!(decide(&mut stage, Verdict::Approved), "inputs 1#1 of [0]");
}

pub(super) fn decide(stage: &mut Stage, seq: u32, verdict: Verdict) -> String {
    let record = stage.outcomes[&Stage::key(seq)].clone();
    let sha256 = record.job.outputs().iter().map(|file| file.sha256.clone()).collect();
    let decision = Decision { verdict, by: "ana".to_owned(), at: Timestamp(0), note: None, sha256 };
    let command = Command::Decide(vec![((stage.specs[seq as usize].clone(), record), decision)]);
    stage.scheduler.execute(command, stage.now).unwrap();
    stage.step(vec![])
}

#[test]
fn a_row_that_is_rejected_while_its_result_is_looked_for_feeds_nothing() {
    let mut stage = stage(&[&[], &[0]]);
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0]");
    decide(&mut stage, 0, Verdict::Rejected);
    assert_eq!(found(&mut stage, 1), "");
    assert_eq!((job(&stage, 1).state().name(), job(&stage, 1).books().held), ("queued", Credits::ZERO));
    assert_eq!(decide(&mut stage, 0, Verdict::Approved), "inputs 1#1 of [0]");
    assert_eq!(found(&mut stage, 1), "post 1#1");
}

#[test]
fn a_child_that_the_balance_covers_once_is_sent_after_a_402() {
    let mut stage = stage(&[&[], &[], &[0]]);
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1");
    assert_eq!(stage.posted(1, PostAnswer::OutOfCredits(fault("insufficient_credits"))), "balance?");
    stage.step(vec![Input::Balance(Ok(Credits(PRICE - 1)))]);
    let other = Box::new((stage.specs[1].clone(), stage.durable[&Stage::key(1)].clone()));
    assert_eq!(stage.scheduler.execute(Command::CancelJob(other), stage.now).unwrap().jobs, 1);
    assert_eq!(finish(&mut stage, 0), "balance?");
    assert_eq!(stage.step(vec![Input::Balance(Ok(Credits(2 * PRICE - 1)))]), "inputs 2#1 of [0]");
    assert_eq!(found(&mut stage, 2), "post 2#1");
}

/// Two takes of one row, and a row that takes the output of one of them.
pub(super) fn of_two_takes() -> Stage {
    let mut stage = stage(&[&[], &[], &[0]]);
    let fingerprint = stage.specs[0].fingerprint;
    let second = JobSpec { id: JobId::derive(fingerprint, 2), ..(*stage.specs[1]).clone() };
    stage.specs[1] = Arc::new(JobSpec { fingerprint, variation: 2, ..second });
    let mut child = (*stage.specs[2]).clone();
    child.order.inputs[0].takes = 2;
    stage.specs[2] = Arc::new(child);
    stage
}

/// The output of this take is found for that row.
pub(super) fn take_found(stage: &mut Stage, take: u32) -> String {
    let found = vec![FoundInput { address: "https://r/now".to_owned(), take: Some(take), length: None }];
    stage.step(vec![Input::InputsFound(Stage::key(2), AttemptNo::FIRST, Ok(found))])
}

#[test]
fn a_take_that_is_picked_while_the_one_before_is_looked_for_is_the_one_that_is_sent() {
    let mut stage = of_two_takes();
    stage.step(vec![]);
    finish(&mut stage, 0);
    assert_eq!(finish(&mut stage, 1), "", "none is picked");
    assert_eq!(decide(&mut stage, 0, Verdict::Picked), "inputs 2#1 of [0]");
    decide(&mut stage, 0, Verdict::Withdrawn);
    decide(&mut stage, 1, Verdict::Picked);
    assert_eq!(take_found(&mut stage, 1), "inputs 2#1 of [1]");
    assert_eq!(take_found(&mut stage, 2), "post 2#1");
}

#[test]
fn what_may_have_been_sent_waits_for_the_account_though_its_inputs_are_found() {
    let mut stage = stage(&[&[], &[0], &[]]);
    stage.batch.rebuilt_rows = 2;
    stage.restart();
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0]");
    assert!(matches!(job(&stage, 1).state(), State::Submitting { may_have_run: true, .. }));
    stage.posted(2, PostAnswer::Unauthorised(fault("unauthorized")));
    let said = found(&mut stage, 1);
    assert!(!said.contains("post"), "{said}");
    for _ in 0..100 {
        let said = stage.pass(Millis(100)).step(vec![]);
        assert!(!said.contains("post"), "{said}");
    }
}

#[test]
fn what_may_have_been_sent_looks_for_its_inputs_again_when_they_are_gone() {
    let mut stage = stage(&[&[], &[0]]);
    stage.batch.rebuilt_rows = 2;
    stage.restart();
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0]");
    let gone = |stage: &mut Stage| {
        let gone = Err(InputFault::Lasting(fault("input_gone")));
        stage.step(vec![Input::InputsFound(Stage::key(1), AttemptNo::FIRST, gone)])
    };
    for _ in 0..4 {
        gone(&mut stage);
        assert_eq!(job(&stage, 1).state().name(), "submitting", "it may have been bought");
        stage.pass_until("inputs 1#1 of [0]");
    }
    gone(&mut stage);
    let job = &stage.outcomes[&Stage::key(1)].job;
    assert!(job.is_in_doubt() && !job.books().held.is_zero(), "a person can tell: {:?}", job.state());
}

#[test]
fn what_may_have_been_sent_and_takes_a_length_that_does_not_fit_is_in_doubt() {
    let mut stage = stage(&[&[], &[0]]);
    stage.batch.rebuilt_rows = 2;
    stage.restart();
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0]");
    let unfit = Err(InputFault::Lasting(fault("input_too_long")));
    stage.step(vec![Input::InputsFound(Stage::key(1), AttemptNo::FIRST, unfit)]);
    let job = &stage.outcomes[&Stage::key(1)].job;
    assert!(job.is_in_doubt(), "{:?}", job.state());
    assert!(!job.books().held.is_zero(), "it may have been bought");
}

#[test]
fn a_child_that_was_ready_waits_while_its_parent_is_downloaded_again() {
    let mut stage = stage(&[&[], &[], &[0]]);
    stage.scheduler.settings.limits.in_flight = 1;
    let settings = Box::new(stage.scheduler.settings.clone());
    stage.scheduler.execute(Command::Reload(settings), stage.now).unwrap();
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.pass_until("read 0#1");
    stage.read(0, ReadAnswer::Task(reading("success")));
    let fetched = |stage: &mut Stage| {
        let fetched = Input::Fetched(Stage::key(0), AttemptNo::FIRST, Ok(files()));
        stage.step(vec![fetched])
    };
    assert_eq!(fetched(&mut stage), "", "row 1 has the only slot");
    let record = stage.outcomes[&Stage::key(0)].clone();
    let again = Command::FetchAgain(vec![(stage.specs[0].clone(), record)]);
    stage.scheduler.execute(again, stage.now).unwrap();
    stage.step(vec![]);
    assert_eq!(stage.posted(1, refused()), "", "the slot is free, and the parent is not there");
    assert_eq!(job(&stage, 2).state().name(), "queued");
    stage.pass_until("read 0#1");
    stage.read(0, ReadAnswer::Task(reading("success")));
    assert_eq!(fetched(&mut stage), "inputs 2#1 of [0]");
}

#[test]
fn an_input_that_is_gone_costs_nothing() {
    let mut stage = stage(&[&[], &[0]]);
    stage.step(vec![]);
    finish(&mut stage, 0);
    let gone = Err(InputFault::Lasting(fault("input_gone")));
    stage.step(vec![Input::InputsFound(Stage::key(1), AttemptNo::FIRST, gone)]);
    assert_eq!(stage.ended, ["job-0 succeeded", "job-1 failed"]);
    assert_eq!(stage.outcomes[&Stage::key(1)].job.all_books(), crate::domain::job::Books::default());
    assert_eq!(stage.batch.totals.held, Credits::ZERO);
}

#[test]
fn a_child_that_was_refused_looks_for_its_inputs_again_when_it_is_retried() {
    let mut stage = stage(&[&[], &[0]]);
    stage.step(vec![]);
    finish(&mut stage, 0);
    assert_eq!(found(&mut stage, 1), "post 1#1");
    stage.posted(1, refused());
    assert_eq!(stage.ended, ["job-0 succeeded", "job-1 failed"]);
    let record = stage.outcomes[&Stage::key(1)].clone();
    let retry = Command::Retry(vec![(stage.specs[1].clone(), record)]);
    stage.scheduler.execute(retry, stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "inputs 1#1 of [0]", "its link may be gone, and another take be picked");
}

#[test]
fn a_restart_finds_the_inputs_of_what_was_let_out_before_anything_left() {
    let mut stage = stage(&[&[], &[0]]);
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0]");
    stage.restart();
    stage.step(vec![]);
    stage.pass_until("inputs 1#1 of [0]");
    found(&mut stage, 1);
    assert_eq!(job(&stage, 1).present().inputs().len(), 1);
    // Now it may have left: it is sent again as it was.
    stage.restart();
    assert_eq!(stage.step(vec![]), "post 1#1");
}

#[test]
fn thousands_of_rows_that_wait_leave_room_for_what_they_wait_for() {
    let parents: Vec<[u32; 1]> = (0..3_000).map(|child| [3_000 + child]).collect();
    let nothing: [u32; 0] = [];
    let rows = parents.iter().map(|parents| &parents[..]).chain((0..3_000).map(|_| &nothing[..]));
    let mut stage = stage(&rows.collect::<Vec<_>>());
    let mut said = String::new();
    for _ in 0..200 {
        said = stage.step(vec![]);
        if !said.is_empty() {
            break;
        }
    }
    assert!(said.starts_with("post 3000#1"), "{said}");
}

/// Rows 0 to 2 need nothing, then 2,000 need row 1, and the last one needs row 2.
fn a_crowd_that_waits_for_row_1() -> Stage {
    let mut rows: Vec<&[u32]> = vec![&[], &[], &[]];
    rows.resize(2_003, &[1]);
    rows.push(&[2]);
    stage(&rows)
}

/// What is asked for until the last row has its turn.
fn what_comes(stage: &mut Stage) -> String {
    let said = (0..100).map(|_| stage.step(vec![])).find(|said| !said.is_empty());
    said.unwrap_or_default()
}

#[test]
fn a_ready_row_behind_thousands_that_wait_for_a_decision_goes_while_something_else_runs() {
    let mut stage = a_crowd_that_waits_for_row_1();
    stage.specs[1] = with_parents(1, &[], true);
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1, post 2#1");
    // Row 0 is never done.
    stage.posted(0, task("pending"));
    let said = [finish(&mut stage, 1), finish(&mut stage, 2), what_comes(&mut stage)];
    assert!(said.contains(&"inputs 2003#1 of [2]".to_owned()), "{said:?}");
}

#[test]
fn a_ready_row_behind_thousands_that_wait_for_an_overdue_one_goes_and_before_that_few_are_in_memory() {
    let mut stage = a_crowd_that_waits_for_row_1();
    stage.step(vec![]);
    stage.posted(0, refused());
    stage.posted(1, task("pending"));
    assert_eq!((finish(&mut stage, 2), what_comes(&mut stage)), (String::new(), String::new()));
    let in_memory = stage.durable.len();
    assert!(in_memory < 1_200, "what they wait for is under way, and {in_memory} are in memory");
    stage.pass(Millis::from_secs(1_801));
    let said = [stage.step(vec![]), what_comes(&mut stage)].join(", ");
    assert!(said.contains("inputs 2003#1 of [2]"), "{said}");
}

#[test]
fn a_ready_row_behind_thousands_that_wait_for_a_batch_goes_while_that_one_is_paused() {
    let other = BatchNo(7);
    let mut stage = a_crowd_that_waits_for_row_1();
    for spec in &mut stage.specs[3..2_003] {
        let mut child = (**spec).clone();
        child.order.inputs[0].batch = Some(InputBatch { no: other, name: "spring".parse().unwrap() });
        *spec = Arc::new(child);
    }
    let mut batch = BatchRecord::new(other, "spring".parse().unwrap(), Timestamp(0));
    (batch.rows, batch.paused) = (1, Some(Pause::Owner));
    stage.scheduler.add_batch(batch);
    let parent = stage.specs[1].clone();
    let key = JobKey { batch: other, seq: parent.seq };
    let record = JobRecord { key, id: parent.id, row_at: 0, job: crate::domain::job::Job::queued() };
    stage.scheduler.resume_job(BegunJob::new(record, parent), stage.now);
    stage.step(vec![]);
    stage.step(vec![Input::Ended { batch: other, jobs: vec![] }]);
    // Rows 0 and 1 are never done.
    stage.posted(0, task("pending"));
    stage.posted(1, task("pending"));
    let said = [finish(&mut stage, 2), what_comes(&mut stage)];
    assert!(said.contains(&"inputs 2003#1 of [2]".to_owned()), "{said:?}");
}

#[test]
fn a_finished_batch_that_rows_of_another_named_is_let_go_with_that() {
    let mut stage = Stage::of(1);
    let mut child = (*with_parents(0, &[5], false)).clone();
    child.order.inputs[0].batch = Some(InputBatch { no: BatchNo(7), name: "spring".parse().unwrap() });
    let parent = child.order.inputs[0].jobs().next().unwrap();
    stage.specs[0] = Arc::new(child);
    let give = EndedTake { seq: Seq(5), state: JobState::Succeeded, wants_review: false, verdict: None };
    stage.step(vec![]);
    assert_eq!(
        stage.step(vec![Input::Ended { batch: BatchNo(7), jobs: vec![(parent, give)] }]),
        "inputs 0#1 of [5]"
    );
    assert!(stage.scheduler.inputs.is_known(BatchNo(7)));
    found(&mut stage, 0);
    finish(&mut stage, 0);
    stage.step(vec![]);
    assert!(!stage.scheduler.inputs.is_known(BatchNo(7)), "nobody names it any more");
}

#[test]
fn what_waits_for_a_row_that_expired_is_parked_also_where_the_turn_of_a_second_is_taken() {
    let mut stage = stage(&[&[], &[0]]);
    let rate = Settings { submits_per_second: std::num::NonZeroU32::new(1), ..settings() };
    stage.scheduler.execute(Command::Reload(Box::new(rate)), stage.now).unwrap();
    stage.set_late(0);
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.ended, ["job-0 expired"]);
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.scheduler.standstill(), Some(Standstill::Parked(Parked::Inputs)));
}

/// A look for the inputs of a job came to this.
fn looked(stage: &mut Stage, seq: u32, outcome: Result<Vec<FoundInput>, InputFault>) -> String {
    let attempt = stage.attempt(seq);
    stage.step(vec![Input::InputsFound(Stage::key(seq), attempt, outcome)])
}

fn with_slots(stage: &mut Stage, in_flight: u32) {
    stage.scheduler.settings.limits.in_flight = in_flight;
    let settings = Box::new(stage.scheduler.settings.clone());
    stage.scheduler.execute(Command::Reload(settings), stage.now).unwrap();
}

#[test]
fn a_child_whose_inputs_cannot_be_had_leaves_its_slot_to_others_and_ends_after_a_day() {
    let mut stage = stage(&[&[], &[0]]);
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0]");
    with_slots(&mut stage, 1);
    let mut more = stage.scheduler.batches.get(&BatchNo(1)).unwrap().record().clone();
    (more.rows, more.spool_bytes) = (3, 3);
    more.segments.push(Segment::mixed(0, 2, 3));
    stage.specs.push(with_parents(2, &[], false));
    stage.scheduler.execute(Command::AddBatch(Box::new(more)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "", "the only slot is taken");
    let unavailable = || Err(InputFault::Passing(fault("download")));
    for _ in 0..2 {
        assert_eq!(looked(&mut stage, 1, unavailable()), "");
        assert_eq!(job(&stage, 1).state().name(), "submitting", "it may be over in a moment");
        stage.pass_until("inputs 1#1 of [0]");
    }
    assert_eq!(looked(&mut stage, 1, unavailable()), "post 2#1", "its slot is free");
    assert_eq!((job(&stage, 1).state().name(), job(&stage, 1).books().held), ("queued", Credits::ZERO));
    let why = stage.scheduler.withheld(Stage::key(1), &stage.specs[1], stage.now);
    assert_eq!(why, Some(Withheld::InputsUnavailable("download: said so".to_owned())));
    stage.posted(2, refused());
    assert_eq!(stage.scheduler.overview()[0].parked, Some(Parked::InputsUnavailable));
    assert_eq!(stage.scheduler.standstill(), None, "it tries again by itself");
    let mut tries = 0;
    while stage.ended.len() < 3 {
        if stage.pass(Millis(300_000)).step(vec![]) == "inputs 1#1 of [0]" {
            looked(&mut stage, 1, unavailable());
            tries += 1;
        }
    }
    assert!((200..400).contains(&tries) && stage.now.tick >= Tick(24 * 3_600_000), "{tries}");
    let job = &stage.outcomes[&Stage::key(1)].job;
    let State::Failed { fault, .. } = job.state() else { panic!("{:?}", job.state()) };
    assert_eq!((fault.code.as_str(), job.all_books()), ("input_unavailable", Default::default()));
    assert!(stage.scheduler.withheld(Stage::key(1), &stage.specs[1], stage.now).is_none());
}

#[test]
fn a_child_that_left_its_slot_is_sent_once_its_inputs_can_be_had() {
    let mut stage = stage(&[&[], &[0]]);
    stage.step(vec![]);
    assert_eq!(finish(&mut stage, 0), "inputs 1#1 of [0]");
    for _ in 0..5 {
        looked(&mut stage, 1, Err(InputFault::Passing(fault("download"))));
        stage.pass_until("inputs 1#1 of [0]");
    }
    assert_eq!(found(&mut stage, 1), "post 1#1");
    assert_eq!(stage.scheduler.overview()[0].parked, None);
}

/// Rows without references that each take a file.
fn with_files(rows: u32) -> Stage {
    let mut stage = Stage::of(rows);
    for spec in &mut stage.specs {
        let content =
            InputContent { sha256: "a".repeat(64), bytes: 1, media: InputMedia::Png, seconds: None };
        let file = InputFile { field: CHILD_FIELD, place: 0, name: "./a.png".to_owned(), content };
        let order = Order { files: vec![file].into(), ..spec.order.clone() };
        *spec = Arc::new(JobSpec { order, ..(**spec).clone() });
    }
    stage
}

#[test]
fn a_row_whose_file_alone_is_refused_leaves_its_slot_to_the_other_rows() {
    let mut stage = with_files(2);
    with_slots(&mut stage, 1);
    assert_eq!(stage.step(vec![]), "inputs 0#1 of []");
    for _ in 0..2 {
        looked(&mut stage, 0, Err(InputFault::Passing(fault("store"))));
        stage.pass_until("inputs 0#1 of []");
    }
    assert_eq!(looked(&mut stage, 0, Err(InputFault::Passing(fault("store")))), "inputs 1#1 of []");
}

#[test]
fn while_the_store_takes_nothing_another_row_asks_it_each_time() {
    let mut stage = with_files(3);
    with_slots(&mut stage, 1);
    assert_eq!(stage.step(vec![]), "inputs 0#1 of []");
    for next in [1, 2, 0, 1] {
        let asking = (next + 2) % 3;
        assert_eq!(
            looked(&mut stage, asking, Err(InputFault::Store(fault("store")))),
            "",
            "it is not asked at once"
        );
        stage.pass_until(&format!("inputs {next}#1 of []"));
    }
    assert_eq!(stage.scheduler.withheld(Stage::key(0), &stage.specs[0], stage.now), None);
}

#[test]
fn many_children_whose_inputs_cannot_be_had_take_no_more_than_a_part_of_the_slots() {
    let mut rows: Vec<&[u32]> = vec![&[]];
    rows.resize(41, &[0]);
    let mut stage = stage(&rows);
    stage.step(vec![]);
    let mut said = finish(&mut stage, 0);
    with_slots(&mut stage, 8);
    // Nobody answers: each look is over after ten seconds.
    let mut most = 0;
    for round in 0..400 {
        let looking: Vec<u32> = (1..41).filter(|seq| said.contains(&format!("inputs {seq}#1 "))).collect();
        if round > 100 {
            most = most.max(looking.len());
        }
        stage.pass(Millis(10_000));
        let answers = looking.into_iter().map(|seq| {
            let unavailable = Err(InputFault::Passing(fault("download")));
            Input::InputsFound(Stage::key(seq), AttemptNo::FIRST, unavailable)
        });
        said = stage.step(answers.collect());
    }
    assert!((1..=2).contains(&most), "{most} of 8 slots");
}
