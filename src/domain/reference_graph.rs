//! What rows are made from, by who they are: finds rows that would be made from another version of themselves.
//!
//! The key of a row hashes who the rows are that it names. Two rows of different manifests that name each other would be new
//! at every drop of their unchanged files, and be bought again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::domain::ids::{BatchName, Fingerprint};
use crate::domain::job_reference::JobInput;

/// A row that another one takes an output of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedBy {
    /// Its batch, where that is another one.
    batch: Option<BatchName>,
    id: String,
    fingerprint: Fingerprint,
}

/// See the module's documentation. Rows that name no other are not in it.
#[derive(Debug, Default)]
pub struct ReferenceGraph(HashMap<Fingerprint, Box<[NamedBy]>>);

impl ReferenceGraph {
    /// A row that takes outputs of others.
    pub fn add(&mut self, row: Fingerprint, inputs: &[JobInput]) {
        if inputs.is_empty() {
            return;
        }
        let named = |input: &JobInput| NamedBy {
            batch: input.batch.as_ref().map(|batch| batch.name.clone()),
            id: input.row.clone(),
            fingerprint: input.fingerprint,
        };
        self.0.entry(row).or_insert_with(|| inputs.iter().map(named).collect());
    }

    /// The circle in which the row `id` of the batch `own` would be with this input: from the row to another version of it.
    pub fn circle(&self, own: &BatchName, id: &str, input: &JobInput) -> Option<Vec<String>> {
        let shown = |batch: &BatchName, id: &str| format!("{batch}/{id}");
        let batch = input.batch.as_ref().map_or(own, |batch| &batch.name);
        // Every row that was reached, with its batch and the place of the one that names it.
        let mut reached = vec![(batch, input.row.as_str(), input.fingerprint, 0)];
        let mut seen = HashSet::from([input.fingerprint]);
        let mut at = 0;
        while let Some(&(batch, row, fingerprint, _)) = reached.get(at) {
            if batch == own && row == id {
                let mut circle = vec![shown(batch, row)];
                while at > 0 {
                    at = reached.get(at).map_or(0, |(.., by)| *by);
                    circle.extend(reached.get(at).map(|(batch, row, ..)| shown(batch, row)));
                }
                circle.push(shown(own, id));
                circle.reverse();
                return Some(circle);
            }
            for next in self.0.get(&fingerprint).into_iter().flatten() {
                if seen.insert(next.fingerprint) {
                    let batch = next.batch.as_ref().unwrap_or(batch);
                    reached.push((batch, &next.id, next.fingerprint, at));
                }
            }
            at += 1;
        }
        None
    }
}

/// The batches by way of which rows of the batch `own` that name rows of `named` may come back to `own`, itself among them.
/// Empty where none does, and no row of them needs to be looked at. `refers_to` tells which batches one names.
///
/// # Errors
/// What `refers_to` fails with.
pub fn batches_in_circles<E>(
    own: &BatchName,
    named: impl IntoIterator<Item = BatchName>,
    mut refers_to: impl FnMut(&BatchName) -> Result<BTreeSet<BatchName>, E>,
) -> Result<BTreeSet<BatchName>, E> {
    let mut named_by: BTreeMap<BatchName, BTreeSet<BatchName>> = BTreeMap::new();
    let mut reached: BTreeSet<BatchName> = named.into_iter().collect();
    let mut pending: Vec<BatchName> = reached.iter().cloned().collect();
    while let Some(batch) = pending.pop() {
        for next in refers_to(&batch)? {
            if reached.insert(next.clone()) {
                pending.push(next.clone());
            }
            named_by.entry(next).or_default().insert(batch.clone());
        }
    }
    let mut in_circles: BTreeSet<BatchName> = reached.iter().filter(|batch| *batch == own).cloned().collect();
    let mut pending: Vec<BatchName> = in_circles.iter().cloned().collect();
    while let Some(batch) = pending.pop() {
        for by in named_by.get(&batch).into_iter().flatten() {
            if in_circles.insert(by.clone()) {
                pending.push(by.clone());
            }
        }
    }
    Ok(in_circles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::BatchNo;
    use crate::domain::job_reference::{InputBatch, InputField};

    fn name(text: &str) -> BatchName {
        text.parse().unwrap()
    }

    /// An input that is written `row` or `batch/row`.
    fn input(text: &str, version: u8) -> JobInput {
        let (batch, row) = text.split_once('/').map_or((None, text), |(batch, row)| (Some(batch), row));
        JobInput {
            field: InputField::ImageUrls,
            place: 0,
            batch: batch.map(|batch| InputBatch { no: BatchNo(0), name: name(batch) }),
            row: row.to_owned(),
            fingerprint: Fingerprint([version; 16]),
            takes: 1,
            variation: None,
            output: 1,
        }
    }

    #[test]
    fn a_row_that_leads_to_another_version_of_itself_is_shown_with_its_way() {
        let mut graph = ReferenceGraph::default();
        graph.add(Fingerprint([1; 16]), &[input("x/plain", 7), input("mid", 2)]);
        graph.add(Fingerprint([2; 16]), &[input("B/b", 3)]);
        let circle = |id: &str| graph.circle(&name("B"), id, &input("A/a", 1));
        assert_eq!(circle("b").unwrap(), ["B/b", "A/a", "A/mid", "B/b"]);
        assert_eq!(circle("c"), None);
        assert_eq!(
            graph.circle(&name("A"), "b", &input("B/b", 3)),
            None,
            "a row of that id of another batch"
        );
    }

    #[test]
    fn only_batches_that_lead_back_are_looked_at() {
        let told = |batch: &BatchName| -> Result<BTreeSet<BatchName>, ()> {
            let others: &[&str] = match batch.as_str() {
                "finals" => &["clips"],
                "clips" => &["stills", "voices"],
                "stills" => &["looks", "finals"],
                _ => &[],
            };
            Ok(others.iter().map(|other| name(other)).collect())
        };
        let found = |own: &str, named: &str| {
            let found = batches_in_circles(&name(own), [name(named)], told).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found("finals", "clips"), ["clips", "finals", "stills"]);
        assert_eq!(found("finals", "voices"), [""; 0]);
        assert_eq!(found("voices", "clips"), ["clips", "finals", "stills", "voices"]);
    }
}
