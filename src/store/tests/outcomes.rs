//! Jobs that are found by their outcomes.

use super::*;
use crate::domain::job::{Books, RESOLVED};
use crate::domain::task::Fault;
use crate::store::verify::LOOKED_AT;

fn spec(seq: u32) -> JobSpec {
    JobSpec {
        seq: Seq(seq),
        id: job(1, seq, State::Expired).id,
        fingerprint: Fingerprint([1; 16]),
        variation: 1,
        label: format!("job-{seq}"),
        apart: false,
        order: *order(2, 0),
    }
}

/// Each time an edited row is published, its versions are asked for: all of a large batch may be edited.
#[test]
fn each_outcome_is_read_once_however_many_jobs_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let batch = batch(1, 2 * 300);
    let failed = |seq: u32| seq.is_multiple_of(3);
    for seq in 0..300 {
        let state = if failed(seq) { State::Expired } else { State::DROPPED };
        store.commit(&[Change::End(job(1, seq, state))]).unwrap();
        // As others are published meanwhile.
        for seq in 0..=seq {
            let expected = if failed(seq) { State::Expired } else { State::DROPPED };
            assert_eq!(*store.job_at(&batch, 0, &spec(seq)).unwrap().job.state(), expected);
        }
    }
    assert_eq!(store.outcomes_indexed(), 300);
    assert_eq!(*store.job_at(&batch, 0, &spec(300)).unwrap().job.state(), State::Queued);
    // The last one counts.
    store.commit(&[Change::End(job(1, 7, State::Expired))]).unwrap();
    assert_eq!(*store.job_at(&batch, 0, &spec(7)).unwrap().job.state(), State::Expired);
    assert_eq!(store.outcomes_indexed(), 301);
    assert!(store.outcome(&batch, Seq(300)).unwrap().is_none());
}

/// Rows that take outputs of others ask for one before each request, in turns with those of other batches.
#[test]
fn each_outcome_is_read_once_however_many_batches_are_asked_about_in_turns() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let batches: Vec<BatchRecord> = (1..=9).map(|no| batch(no, 20)).collect();
    for record in &batches {
        for seq in 0..10 {
            store.commit(&[Change::End(job(record.no.0, seq, State::Expired))]).unwrap();
        }
    }
    for seq in 0..10 {
        for record in &batches {
            assert!(store.outcome(record, Seq(seq)).unwrap().is_some());
        }
    }
    assert_eq!(store.outcomes_indexed(), 9 * 10);
}

/// A state whose only batch has a job that runs, and one that has ended so.
fn ended_as(ended: Job) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let batch = BatchRecord { ended: Ended { failed: 1, ..Ended::default() }, ..batch(1, 2) };
    let ended = JobRecord { job: ended, ..job(1, 0, State::Queued) };
    let running = Change::Open(job(1, 1, running()));
    store.commit(&[Change::Batch(Box::new(batch)), running, Change::End(ended)]).unwrap();
    dir
}

/// Adds an outcome, as a commit does that is killed before it comes to the database.
fn add_uncommitted(dir: &TempDir, record: &JobRecord) {
    let path = dir.path().join("spool/000001/outcomes");
    let mut outcomes = Appender::open(&path, fs::metadata(&path).unwrap().len()).unwrap();
    outcomes.push(record).unwrap();
    outcomes.sync().unwrap();
}

fn failed(code: &str, task: Option<&str>) -> State {
    State::Failed { fault: Fault::new(code, "x"), task: task.map(|task| TaskId(task.into())) }
}

fn charged(credits: u64) -> Books {
    Books { charged: Credits(credits), ..Books::default() }
}

/// A person resolves and corrects what has ended, and rows are refused or resolved where they wait: a kill in between is no
/// damage.
#[test]
fn an_outcome_of_a_job_that_is_not_open_is_no_damage_where_it_tells_of_no_request() {
    let in_doubt = State::InDoubt { fault: Fault::new("x", "x"), task: None };
    let held = Books { held: Credits(7), ..Books::default() };
    let first = |state| Job::at(AttemptNo(1), state);
    let resolved = |credits| first(failed(RESOLVED, None)).with_books(charged(credits));
    let in_doubt = first(in_doubt).with_books(held);
    for (known, then) in
        [(in_doubt.clone(), resolved(0)), (in_doubt, resolved(5)), (resolved(5), resolved(0))]
    {
        let dir = ended_as(known);
        add_uncommitted(&dir, &JobRecord { job: then, ..job(1, 0, State::Queued) });
        drop(open(&dir));
    }
    for of_a_row in [resolved(5), first(failed("above_max_credits", None)), first(State::DROPPED)] {
        let dir = ended_as(first(State::DROPPED));
        add_uncommitted(&dir, &JobRecord { job: of_a_row, ..job(1, 5, State::Queued) });
        drop(open(&dir));
    }
}

#[test]
fn an_outcome_that_tells_of_a_request_shows_an_older_database_although_its_job_had_ended() {
    let refused = Job::at(AttemptNo(1), failed("invalid_input", None));
    let succeeded = State::Succeeded { task: TaskId("t".into()), files: Default::default() };
    let in_doubt = State::InDoubt { fault: Fault::new("x", "x"), task: None };
    let paid = Job::at(AttemptNo(1), succeeded).with_books(charged(5));
    let held = Job::at(AttemptNo(1), in_doubt).with_books(Books { held: Credits(7), ..Books::default() });
    for sent_again in [paid, held, Job::at(AttemptNo(2), failed("generic", Some("t")))] {
        let dir = ended_as(refused.clone());
        add_uncommitted(&dir, &JobRecord { job: sent_again, ..job(1, 0, State::Queued) });
        let refused = refusal(dir.path(), SERVICE);
        assert!(refused.contains("job 0 has ended, and the database knows neither"), "{refused}");
    }
}

/// A table of decisions is recorded by a hundred in a commit, in a batch that may have a million.
#[test]
fn committed_outcomes_are_read_once_however_many_others_a_kill_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let ended = |seq| {
        let state = State::Succeeded { task: TaskId(format!("t{seq}").into()), files: Default::default() };
        job(1, seq, state)
    };
    let batch =
        BatchRecord { ended: Ended { succeeded: 300, ..Ended::default() }, unreviewed: 1, ..batch(1, 300) };
    let changes = (0..300).map(|seq| Change::End(ended(seq)));
    store.commit(&changes.chain([Change::Batch(Box::new(batch))]).collect::<Vec<_>>()).unwrap();
    drop(store);
    for seq in 0..100 {
        add_uncommitted(&dir, &ended(seq));
    }
    LOOKED_AT.set(0);
    drop(open(&dir));
    assert_eq!(LOOKED_AT.get(), 300);
}
