//! Jobs that are found by their outcomes.

use super::*;

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
    assert!(store.undone_outcome(&batch, Seq(300)).unwrap().is_none());
}
