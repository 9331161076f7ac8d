//! Whether the records of finished batches fit together, found out while they are read, without keeping any of them: there
//! may be very many.
//!
//! What is said of a batch in one sort of record is hashed and added up, and so is what another sort says of it: equal sums
//! mean equal records. Where something does not fit, or an earlier version wrote it, they are read again and compared one by one,
//! which tells what is wrong.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::domain::ids::{BatchName, BatchNo};
use crate::domain::ledger::Totals;
use crate::domain::time::Timestamp;
use crate::store::codec::{self, DecodeError};
use crate::store::finished;
use crate::store::finished_sums::FinishedSums;
use crate::store::{BatchRecord, db_keys};

/// The part of a batch's line that other records tell, too.
#[derive(Debug, Deserialize)]
struct LineOutline {
    no: BatchNo,
    name: BatchName,
    at: Timestamp,
    totals: Totals,
    #[serde(default = "finished::yes")]
    announced: bool,
    #[serde(default)]
    files: Option<IgnoredAny>,
}

/// Records in any order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    count: u64,
    sum: u64,
}

impl Tally {
    fn add(&mut self, record: impl Hash) {
        let mut hasher = DefaultHasher::new();
        record.hash(&mut hasher);
        self.count += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

/// What the keys of finished batches say of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct KeyTallies {
    numbers: Tally,
    times: Tally,
    unannounced: Tally,
}

impl KeyTallies {
    /// Adds the keys that a line should have.
    fn add(&mut self, line: &LineOutline) {
        self.numbers.add((line.no, &line.name));
        self.times.add((line.at, line.no));
        if !line.announced {
            self.unannounced.add(line.no);
        }
    }
}

/// The records of finished batches that were read so far.
#[derive(Debug, Default)]
pub(super) struct FinishedTally {
    /// What their lines say.
    of_lines: KeyTallies,
    of_keys: KeyTallies,
    totals: Totals,
    /// Of all that have a key, in order.
    numbers: Vec<BatchNo>,
    /// Names and numbers of the batches that are not done, once they are asked for.
    unfinished: Option<(HashSet<BatchName>, HashSet<BatchNo>)>,
    /// Lines without files: they count once a key of theirs is seen, and have none in state format 1.
    old_lines: HashMap<BatchNo, LineOutline>,
    /// How many lines there are, whether they have keys or not.
    lines: u64,
    /// A name or a number may be that of two batches.
    is_ambiguous: bool,
}

impl FinishedTally {
    /// Takes in a batch's line and its key. Keys are unique, and so are names where each is that of its line.
    pub(super) fn line(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), DecodeError> {
        let line: LineOutline = codec::decode(bytes)?;
        self.is_ambiguous |= db_keys::finished(&line.name) != key;
        self.lines += 1;
        self.totals = self.totals + line.totals;
        if line.files.is_some() {
            self.of_lines.add(&line);
        } else {
            self.is_ambiguous |= self.old_lines.insert(line.no, line).is_some();
        }
        Ok(())
    }

    /// Takes in that the batch of that number has that name; all that are not done are known by then.
    pub(super) fn number(&mut self, no: BatchNo, name: &BatchName, unfinished: &[BatchRecord]) {
        let (names, numbers) = self
            .unfinished
            .get_or_insert_with(|| unfinished.iter().map(|batch| (batch.name.clone(), batch.no)).unzip());
        self.is_ambiguous |= names.contains(name) || numbers.contains(&no);
        if let Some(line) = self.old_lines.remove(&no) {
            self.of_lines.add(&line);
        }
        self.of_keys.numbers.add((no, name));
        self.numbers.push(no);
    }

    /// Takes in that a batch ended at that time.
    pub(super) fn time(&mut self, at: Timestamp, no: BatchNo) {
        self.of_keys.times.add((at, no));
    }

    /// Takes in that the end of a batch was not announced.
    pub(super) fn unannounced(&mut self, no: BatchNo) {
        self.of_keys.unannounced.add(no);
    }

    /// The numbers of all finished batches, in order, if all fits together and these are the sums of them.
    ///
    /// # Errors
    /// [`Unfit`] where something must be looked at one by one.
    pub(super) fn numbers(self, sums: Option<&FinishedSums>) -> Result<Vec<BatchNo>, Unfit> {
        let (count, totals) = sums.map_or_else(Default::default, |sums| (sums.count, sums.totals));
        let fits = !self.is_ambiguous
            && self.old_lines.is_empty()
            && self.of_lines == self.of_keys
            && (self.lines, self.totals) == (count, totals);
        if fits { Ok(self.numbers) } else { Err(Unfit) }
    }
}

/// Records of finished batches must be compared one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfit;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::credits::Credits;
    use serde_json::{Value, json};

    fn name(text: &str) -> BatchName {
        text.parse().unwrap()
    }

    fn line(no: u32) -> Value {
        json!({"no": no, "name": format!("b{no}"), "at": 1_000 + no, "rows": 1, "announced": no != 2, "files": {},
               "totals": Totals { spent: Credits(5), ..Totals::default() }})
    }

    fn add_line(tally: &mut FinishedTally, line: &Value) {
        let key = db_keys::finished(&name(line["name"].as_str().unwrap()));
        tally.line(&key, &codec::encode(line)).unwrap();
    }

    /// Three batches whose records fit together.
    fn three() -> FinishedTally {
        let mut tally = FinishedTally::default();
        for no in [3, 1, 2] {
            add_line(&mut tally, &line(no));
        }
        for no in [1, 2, 3] {
            tally.time(Timestamp(1_000 + i64::from(no)), BatchNo(no));
        }
        for no in [1, 2] {
            tally.number(BatchNo(no), &name(&format!("b{no}")), &[]);
        }
        tally.unannounced(BatchNo(2));
        tally
    }

    fn sums(count: u64) -> FinishedSums {
        let totals = Totals { spent: Credits(5 * count), ..Totals::default() };
        let mut sums = FinishedSums::default();
        (sums.count, sums.totals) = (count, totals);
        sums
    }

    #[test]
    fn records_that_fit_together_tell_the_numbers_of_all() {
        let mut tally = three();
        tally.number(BatchNo(3), &name("b3"), &[]);
        assert_eq!(tally.numbers(Some(&sums(3))), Ok(vec![BatchNo(1), BatchNo(2), BatchNo(3)]));
        assert_eq!(FinishedTally::default().numbers(None), Ok(vec![]));
    }

    #[test]
    fn whatever_differs_is_to_be_looked_at_one_by_one() {
        let unfit = |change: &dyn Fn(&mut FinishedTally), sums: Option<FinishedSums>| {
            let mut tally = three();
            change(&mut tally);
            tally.numbers(sums.as_ref()) == Err(Unfit)
        };
        let third = |tally: &mut FinishedTally| tally.number(BatchNo(3), &name("b3"), &[]);
        assert!(!unfit(&third, Some(sums(3))));
        assert!(unfit(&|_| {}, Some(sums(3))), "a key is missing");
        assert!(unfit(&third, Some(sums(2))) && unfit(&third, None), "other sums");
        assert!(unfit(&|tally| tally.number(BatchNo(3), &name("b4"), &[]), Some(sums(3))), "another name");
        let with = |more: &dyn Fn(&mut FinishedTally)| {
            unfit(
                &|tally| {
                    third(tally);
                    more(tally);
                },
                Some(sums(3)),
            )
        };
        assert!(with(&|tally| tally.unannounced(BatchNo(1))), "it was announced");
        assert!(with(&|tally| tally.time(Timestamp(7), BatchNo(1))), "it ended once");
        assert!(with(&|tally| add_line(tally, &line(4))), "a line without keys");
    }

    #[test]
    fn an_unfinished_batch_has_no_name_and_no_number_of_a_finished_one() {
        for (no, called) in [(9, "b3"), (3, "other")] {
            let mut tally = three();
            // The first number tells which batches are unfinished.
            tally.unfinished = None;
            tally.number(
                BatchNo(3),
                &name("b3"),
                &[BatchRecord::new(BatchNo(no), name(called), Timestamp(1))],
            );
            assert_eq!(tally.numbers(Some(&sums(3))), Err(Unfit), "{called}");
        }
    }

    #[test]
    fn two_lines_of_one_name_or_one_number_are_to_be_looked_at() {
        let called = |no, name: &str| {
            // Without files: a line that has some is told by its keys.
            let mut line = line(no);
            line["name"] = json!(name);
            line.as_object_mut().unwrap().remove("files");
            codec::encode(&line)
        };
        for (second, expected) in [(called(2, "b2"), false), (called(2, "b1"), true), (called(1, "b2"), true)]
        {
            let mut tally = FinishedTally::default();
            tally.line(b"ab1", &called(1, "b1")).unwrap();
            tally.line(b"ab2", &second).unwrap();
            assert_eq!(tally.is_ambiguous, expected);
        }
    }

    #[test]
    fn a_line_of_an_earlier_version_may_have_keys_and_need_not() {
        let mut old = line(3);
        old.as_object_mut().unwrap().remove("files");
        for has_key in [true, false] {
            let mut tally = FinishedTally::default();
            add_line(&mut tally, &old);
            if has_key {
                tally.time(Timestamp(1_003), BatchNo(3));
                tally.number(BatchNo(3), &name("b3"), &[]);
            }
            assert_eq!(tally.numbers(Some(&sums(1))).is_ok(), has_key);
        }
        assert!(FinishedTally::default().line(b"a", b"no record").is_err());
    }
}
