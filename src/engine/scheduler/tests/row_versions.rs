//! Versions of edited rows: which of them are sent, and which are dropped.

use std::collections::HashSet;

use super::*;
use crate::domain::job::Job;
use crate::domain::manifest::row::Deadline;
use crate::domain::row_versions::{RowVersions, VersionChange};
use crate::engine::scheduler::{AppliedVersions, Command, FoundJob};

impl Stage {
    /// A version takes the place of another, as a manifest that was just accepted says.
    fn edit(&mut self, changes: &[(u32, u32)]) {
        let mut versions = RowVersions::default();
        for (wanted, instead_of) in changes {
            versions.add(VersionChange { wanted: Seq(*wanted), instead_of: Seq(*instead_of), row_at: None });
        }
        self.scheduler.set_versions(BatchNo(1), versions);
    }
}

fn paused(rows: u32) -> Stage {
    let mut stage = Stage::of(rows);
    stage.scheduler.execute(Command::Pause(BatchNo(1)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "");
    stage
}

#[test]
fn a_version_that_was_not_sent_is_dropped_wherever_it_waits_and_frees_nothing_else() {
    let mut stage = paused(4);
    stage.edit(&[(3, 1)]);
    assert_eq!(stage.step(vec![]), "");
    assert_eq!(stage.ended, ["job-1 canceled"]);
    assert_eq!((stage.batch.ended.replaced, stage.batch.ended.canceled), (1, 0));
    stage.scheduler.execute(Command::Resume(BatchNo(1)), stage.now).unwrap();
    assert_eq!(stage.step(vec![]), "post 0#1, post 2#1, post 3#1");
    assert_eq!(stage.batch.totals.held, Credits(3 * PRICE));
}

#[test]
fn one_that_waits_in_the_queue_is_dropped_and_one_that_was_sent_goes_on() {
    let mut stage = Stage::of(3);
    assert_eq!(stage.step(vec![]), "post 0#1, post 1#1, post 2#1");
    // The account has not enough for job 1: it is back in the queue.
    stage.posted(1, PostAnswer::OutOfCredits(fault("insufficient_credits")));
    stage.edit(&[(2, 1), (2, 0)]);
    stage.step(vec![]);
    assert_eq!(stage.ended, ["job-1 canceled"]);
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    stage.step(vec![Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()))]);
    assert_eq!(stage.ended[1..], ["job-0 succeeded"], "it is paid for");
}

#[test]
fn of_hundreds_that_wait_in_the_queue_none_is_sent_before_it_is_dropped() {
    let rows = 200;
    let mut one_at_a_time = settings();
    one_at_a_time.limits.in_flight = 1;
    let mut stage = Stage::with(1 + 2 * rows, one_at_a_time);
    assert_eq!(stage.step(vec![]), "post 0#1");
    stage.posted(0, task("pending"));
    stage.scheduler.execute(Command::Pause(BatchNo(1)), stage.now).unwrap();
    stage.scheduler.execute(Command::Cancel(BatchNo(1)), stage.now).unwrap();
    (0..20).for_each(|_| drop(stage.step(vec![])));
    let canceled = |seq: u32| (stage.specs[seq as usize].clone(), stage.outcomes[&Stage::key(seq)].clone());
    let all = Command::Retry((1..=rows).map(canceled).collect());
    assert_eq!(stage.scheduler.execute(all, stage.now).unwrap().jobs, rows);
    stage.edit(&(1..=rows).map(|seq| (rows + seq, seq)).collect::<Vec<_>>());
    stage.ended.clear();
    stage.scheduler.execute(Command::Resume(BatchNo(1)), stage.now).unwrap();
    stage.scheduler.execute(Command::Reload(Box::new(settings())), stage.now).unwrap();
    let said: String = (0..20).map(|_| stage.step(vec![])).collect();
    assert_eq!((said.as_str(), stage.ended.len()), ("", rows as usize));
}

#[test]
fn one_whose_attempt_failed_gets_no_other() {
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    stage.posted(0, task("pending"));
    stage.edit(&[(1, 0)]);
    let failed = TaskReading { fault: Some(fault("provider_unavailable")), ..reading("failed") };
    stage.pass(Millis(10_000)).step(vec![]);
    stage.read(0, ReadAnswer::Task(failed));
    for _ in 0..100 {
        stage.pass(Millis(10_000)).step(vec![]);
    }
    assert_eq!(stage.ended, ["job-0 canceled"]);
    assert_eq!(stage.batch.totals.held, Credits(PRICE), "of the version that is wanted");
}

#[test]
fn one_that_may_have_been_sent_by_a_lost_state_is_in_doubt_and_not_bought() {
    let mut stage = Stage::of(2);
    stage.batch.rebuilt_rows = 1;
    stage.scheduler.add_batch(stage.batch.clone());
    stage.edit(&[(1, 0)]);
    assert_eq!(stage.step(vec![]), "post 1#1");
    assert_eq!(stage.ended, ["job-0 in_doubt"]);
    assert_eq!(stage.batch.totals.held, Credits(PRICE));
}

#[test]
fn a_retry_takes_up_no_version_that_is_not_wanted() {
    let mut stage = paused(2);
    stage.edit(&[(1, 0)]);
    stage.step(vec![]);
    let spec = stage.specs[0].clone();
    let job = crate::domain::job::Job::at(AttemptNo(1), State::DROPPED);
    let record = JobRecord { key: Stage::key(0), id: spec.id, row_at: 0, job };
    let outcome = stage.scheduler.execute(Command::Retry(vec![(spec, record)]), stage.now).unwrap();
    assert_eq!((outcome.jobs, outcome.superseded), (0, vec!["job-0".to_owned()]));
}

/// A job that was dropped unsent, as it was found on disk.
fn dropped(stage: &Stage, seq: u32) -> FoundJob {
    let spec = stage.specs[seq as usize].clone();
    let job = Job::at(AttemptNo(1), State::DROPPED);
    (spec.clone(), JobRecord { key: Stage::key(seq), id: spec.id, row_at: u64::from(seq), job })
}

#[test]
fn jobs_that_have_ended_since_they_were_found_are_left_out() {
    let stage = Stage::of(3);
    let found = || (0..3).map(|seq| dropped(&stage, seq)).collect();
    let changed = HashSet::from([Seq(1)]);
    for mut command in [Command::Retry(found()), Command::FetchAgain(found())] {
        assert_eq!(command.leave_out(&changed), None);
        let (Command::Retry(left) | Command::FetchAgain(left)) = command else { unreachable!() };
        assert_eq!(left.iter().map(|found| found.0.seq.0).collect::<Vec<_>>(), [0, 2]);
    }
    let one = |seq| Box::new(dropped(&stage, seq));
    for (seq, is_refused) in [(0, false), (1, true)] {
        for mut command in
            [Command::CancelJob(one(seq)), Command::Resolve(one(seq), None, Credits::default())]
        {
            let outcome = command.leave_out(&changed);
            assert_eq!(outcome.and_then(|outcome| outcome.refused).is_some(), is_refused);
        }
    }
}

#[test]
fn what_a_manifest_goes_back_to_after_its_batch_expired_has_expired() {
    let mut stage = paused(2);
    stage.edit(&[(1, 0)]);
    stage.step(vec![]);
    assert_eq!(stage.ended, ["job-0 canceled"]);
    stage.batch.policy.expires = Some(Deadline::After(Millis(1)));
    stage.scheduler.execute(Command::AddBatch(Box::new(stage.batch.clone())), stage.now).unwrap();
    stage.edit(&[(1, 0), (0, 1)]);
    let queued = vec![dropped(&stage, 0)];
    let applied = AppliedVersions { queued, up_to: Some(1), ..AppliedVersions::none(BatchNo(1)) };
    stage.pass(Millis(10)).step(vec![Input::Versions(applied)]);
    stage.step(vec![]);
    assert!(stage.ended[1..].contains(&"job-0 expired".to_owned()), "{:?}", stage.ended);
}

/// It is nobody's failure while another version is wanted, and is one again once the manifest goes back to it.
#[test]
fn one_that_failed_counts_as_replaced_for_as_long_as_another_is_wanted() {
    let mut stage = Stage::of(3);
    stage.step(vec![]);
    let counts = |stage: &Stage| {
        let ended = stage.batch.ended;
        (ended.failed, ended.replaced, ended.all())
    };
    stage.posted(0, PostAnswer::Refused(fault("content_rejected")));
    assert_eq!(counts(&stage), (1, 0, 1));
    let state = State::Failed { fault: fault("content_rejected"), task: None };
    let ended = [EndedVersion { seq: Seq(0), kind: Kind::Video, state, awaits_review: false }];
    let change = |stage: &mut Stage, changes: &[(u32, u32)]| {
        let mut versions = RowVersions::default();
        for (wanted, instead_of) in changes {
            versions.add(VersionChange { wanted: Seq(*wanted), instead_of: Seq(*instead_of), row_at: None });
        }
        stage.scheduler.execute(Command::AddBatch(Box::new(stage.batch.clone())), stage.now).unwrap();
        stage.scheduler.change_versions(BatchNo(1), versions, &ended);
        stage.step(vec![]);
    };
    change(&mut stage, &[(2, 0)]);
    assert_eq!(counts(&stage), (0, 1, 1));
    change(&mut stage, &[(2, 0), (0, 2)]);
    assert_eq!(counts(&stage), (1, 0, 1));
    // One that fails once it is superseded.
    stage.posted(2, PostAnswer::Refused(fault("content_rejected")));
    assert_eq!(counts(&stage), (1, 1, 2));
}

/// The newer version may move its outputs in the moment in which they are published: they are looked at again before the outcome
/// says what they are called.
#[test]
fn what_lands_while_its_row_is_edited_is_named_as_the_newer_manifest_says() {
    let mut stage = Stage::of(2);
    stage.step(vec![]);
    assert_eq!(stage.posted(0, task("success")), "fetch 0#1");
    let edited = BatchRecord { versions_bytes: 100, ..stage.batch.clone() };
    stage.scheduler.execute(Command::AddBatch(Box::new(edited)), stage.now).unwrap();
    stage.edit(&[(1, 0)]);
    let fetched = || Input::Fetched(Stage::key(0), AttemptNo(1), Ok(files()));
    assert_eq!(stage.step(vec![fetched()]), "fetch 0#1");
    assert_eq!(stage.ended, [""; 0]);
    // A look that began after the manifest is believed.
    stage.step(vec![fetched()]);
    assert_eq!(stage.ended, ["job-0 succeeded"]);
}
