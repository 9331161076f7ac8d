//! What a person decides about the outputs of a job: approve, reject, or pick one take of a row.
//!
//! A decision belongs to the outputs as they were then, by their SHA-256: other bytes are undecided again. It changes
//! nothing that is bought, and nothing on disk. Decisions are kept in the record of their job, one behind the other, so
//! that they are stored, exported and rebuilt with it.

use serde::{Deserialize, Serialize};

use crate::domain::ids::Seq;
use crate::domain::time::Timestamp;

/// Most decisions that a job keeps; the oldest go first.
const DECISIONS_MAX: usize = 64;
/// Longest note, in characters.
pub const NOTE_MAX_CHARS: usize = 1_000;
/// Longest name of who decides, in characters.
pub const BY_MAX_CHARS: usize = 100;

/// What is decided about the outputs of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They are good.
    Approved,
    /// They are not.
    Rejected,
    /// They are good, and of the takes of their row they are the chosen one.
    Picked,
    /// Another take of their row was picked while they were undecided, or in their place.
    NotPicked,
    /// They are undecided again.
    Withdrawn,
}

impl Verdict {
    /// The name in everything shown.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Approved => "approved",
            Verdict::Rejected => "rejected",
            Verdict::Picked => "picked",
            Verdict::NotPicked => "not_picked",
            Verdict::Withdrawn => "withdrawn",
        }
    }
}

/// What a person asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewAction {
    /// The outputs are good.
    Approve,
    /// They are not. They stay where they are.
    Reject,
    /// They are good, and the chosen take of their row.
    Pick,
    /// They are undecided again.
    Withdraw,
}

impl ReviewAction {
    /// All of them.
    pub const ALL: [ReviewAction; 4] =
        [ReviewAction::Approve, ReviewAction::Reject, ReviewAction::Pick, ReviewAction::Withdraw];

    /// The name in requests and commands.
    pub fn name(self) -> &'static str {
        match self {
            ReviewAction::Approve => "approve",
            ReviewAction::Reject => "reject",
            ReviewAction::Pick => "pick",
            ReviewAction::Withdraw => "withdraw",
        }
    }

    /// What it makes of the job that it is about.
    pub fn verdict(self) -> Verdict {
        match self {
            ReviewAction::Approve => Verdict::Approved,
            ReviewAction::Reject => Verdict::Rejected,
            ReviewAction::Pick => Verdict::Picked,
            ReviewAction::Withdraw => Verdict::Withdrawn,
        }
    }
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What was decided.
    pub verdict: Verdict,
    /// Who decided: a name that the person, the program or the server gave.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Why, in the person's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// SHA-256 of each output that was decided about, in hexadecimal.
    pub sha256: Vec<String>,
}

/// The review of a job's outputs.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Review {
    /// Its row asks for a decision: until there is one, its batch is not done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub wanted: bool,
    /// What was decided so far, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

impl Review {
    /// What holds of the outputs as they are now, by their SHA-256; nothing while they are undecided.
    pub fn decision<'a>(&self, sha256: impl Iterator<Item = &'a String>) -> Option<&Decision> {
        let last = self.decisions.last().filter(|last| last.verdict != Verdict::Withdrawn)?;
        let is_about = last.sha256.iter().eq(sha256);
        is_about.then_some(last)
    }

    /// Adds a decision. Of very many the oldest are forgotten.
    pub fn decide(&mut self, decision: Decision) {
        if self.decisions.len() >= DECISIONS_MAX {
            self.decisions.remove(0);
        }
        self.decisions.push(decision);
    }
}

/// A take: a job of a row with outputs, and what holds of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take {
    /// The job.
    pub job: Seq,
    /// Which variation of its row.
    pub variation: u32,
    /// What was decided.
    pub verdict: Option<Verdict>,
}

/// Which take of a row is the chosen one: the one that was picked, or else the only one that is approved. Of rows of
/// several takes without a pick none is, and neither is of a row that is undecided.
pub fn chosen(takes: &[Take]) -> Option<&Take> {
    let with = |verdict| takes.iter().filter(move |take| take.verdict == Some(verdict));
    with(Verdict::Picked).next().or_else(|| {
        let mut approved = with(Verdict::Approved);
        approved.next().filter(|_| approved.next().is_none())
    })
}

/// What an action on one take makes of the takes of its row: each job whose verdict changes, with the new one. A pick
/// passes over the others that are undecided and the one that was picked before; taking it back makes those undecided
/// again that were passed over for it.
pub fn verdicts(action: ReviewAction, on: Seq, takes: &[Take]) -> Vec<(Seq, Verdict)> {
    let Some(target) = takes.iter().find(|take| take.job == on) else { return Vec::new() };
    let verdict = action.verdict();
    let is_same =
        target.verdict == Some(verdict) || target.verdict.is_none() && verdict == Verdict::Withdrawn;
    if is_same {
        return Vec::new();
    }
    let mut changes = vec![(on, verdict)];
    let others = takes.iter().filter(|take| take.job != on);
    if verdict == Verdict::Picked {
        let passed = others.filter(|take| matches!(take.verdict, None | Some(Verdict::Picked)));
        changes.extend(passed.map(|take| (take.job, Verdict::NotPicked)));
    } else if target.verdict == Some(Verdict::Picked) {
        let freed = others.filter(|take| take.verdict == Some(Verdict::NotPicked));
        changes.extend(freed.map(|take| (take.job, Verdict::Withdrawn)));
    }
    changes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn files(sums: &[&str]) -> Vec<String> {
        sums.iter().map(|sum| (*sum).to_owned()).collect()
    }

    fn decision(verdict: Verdict, sums: &[&str]) -> Decision {
        let sha256 = sums.iter().map(|sum| (*sum).to_owned()).collect();
        Decision { verdict, by: "ana".to_owned(), at: Timestamp(1), note: None, sha256 }
    }

    #[test]
    fn a_decision_belongs_to_the_bytes_that_it_was_made_about() {
        let mut review = Review { wanted: true, ..Review::default() };
        assert_eq!(review.decision(files(&["a"]).iter()), None);
        review.decide(decision(Verdict::Approved, &["a", "b"]));
        assert!(review.decision(files(&["a", "b"]).iter()).is_some());
        for other in [&["a"][..], &["b", "a"], &["a", "c"], &[]] {
            assert_eq!(review.decision(files(other).iter()), None, "{other:?}");
        }
        review.decide(decision(Verdict::Withdrawn, &["a", "b"]));
        assert_eq!(review.decision(files(&["a", "b"]).iter()), None);
        for _ in 0..200 {
            review.decide(decision(Verdict::Rejected, &["a"]));
        }
        assert_eq!(review.decisions.len(), DECISIONS_MAX);
    }

    fn takes(verdicts: &[Option<Verdict>]) -> Vec<Take> {
        let take = |(seq, verdict): (u32, &Option<Verdict>)| Take {
            job: Seq(seq),
            variation: seq + 1,
            verdict: *verdict,
        };
        (0..).zip(verdicts).map(take).collect()
    }

    #[test]
    fn a_pick_settles_its_row_and_withdrawing_it_does_not() {
        use Verdict::{Approved, NotPicked, Picked, Rejected, Withdrawn};
        let check = |before: &[Option<Verdict>], action, on, expected: &[(u32, Verdict)]| {
            let found = verdicts(action, Seq(on), &takes(before));
            let expected: Vec<_> = expected.iter().map(|(seq, verdict)| (Seq(*seq), *verdict)).collect();
            assert_eq!(found, expected, "{before:?} {action:?} {on}");
        };
        check(&[None, None, Some(Rejected)], ReviewAction::Pick, 1, &[(1, Picked), (0, NotPicked)]);
        check(&[Some(Picked), Some(NotPicked)], ReviewAction::Pick, 1, &[(1, Picked), (0, NotPicked)]);
        check(&[Some(Approved), None], ReviewAction::Pick, 1, &[(1, Picked)]);
        check(&[Some(Picked), Some(NotPicked)], ReviewAction::Withdraw, 0, &[(0, Withdrawn), (1, Withdrawn)]);
        check(&[Some(Picked), Some(NotPicked)], ReviewAction::Reject, 0, &[(0, Rejected), (1, Withdrawn)]);
        check(&[Some(Picked), Some(NotPicked)], ReviewAction::Reject, 1, &[(1, Rejected)]);
        check(&[Some(Approved)], ReviewAction::Approve, 0, &[]);
        check(&[None], ReviewAction::Withdraw, 0, &[]);
        check(&[None], ReviewAction::Pick, 7, &[]);
    }

    #[test]
    fn the_chosen_take_is_the_picked_one_or_the_only_approved_one() {
        use Verdict::{Approved, NotPicked, Picked, Rejected};
        let check = |verdicts: &[Option<Verdict>], expected: Option<u32>| {
            assert_eq!(chosen(&takes(verdicts)).map(|take| take.job.0), expected, "{verdicts:?}");
        };
        check(&[None], None);
        check(&[Some(Approved)], Some(0));
        check(&[Some(Rejected), Some(Approved)], Some(1));
        check(&[Some(Approved), Some(Approved)], None);
        check(&[Some(Approved), Some(Picked), Some(NotPicked)], Some(1));
        check(&[], None);
    }

    proptest! {
        /// Whatever is done to the takes of a row in whatever order: at most one is picked, and none is passed over
        /// without a pick.
        #[test]
        fn at_most_one_take_is_picked(
            count in 1_u32..5,
            actions in prop::collection::vec((prop::sample::select(&ReviewAction::ALL[..]), 0_u32..5), 0..40),
        ) {
            let mut takes = takes(&vec![None; count as usize]);
            for (action, on) in actions {
                for (job, verdict) in verdicts(action, Seq(on), &takes) {
                    let take = takes.iter_mut().find(|take| take.job == job).unwrap();
                    take.verdict = Some(verdict).filter(|verdict| *verdict != Verdict::Withdrawn);
                }
                let count = |verdict| takes.iter().filter(|take| take.verdict == Some(verdict)).count();
                prop_assert!(count(Verdict::Picked) <= 1);
                prop_assert!(count(Verdict::NotPicked) == 0 || count(Verdict::Picked) == 1);
            }
        }
    }
}
