//! Reads a manifest for the rows that other rows name, before it is validated.
//!
//! The key of a child hashes who its parents are, which only their own rows tell, and these may stand behind it. So a
//! manifest with references is read through before: once for the ids that are named, once for the rows of these ids.
//! No row is kept but those whose own parents come later, and those only until these have come.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use crate::domain::diagnostic::Position;
use crate::domain::ids::{BatchName, Fingerprint, JobId};
use crate::domain::job_reference::{DecidedTake, JobReference, ReferredRow};
use crate::domain::manifest::Manifest;
use crate::domain::manifest::row::{ReadRow, Row};
use crate::domain::reference_graph::{ReferenceGraph, batches_in_circles};
use crate::ingest::manifest_file;
use crate::ingest::named_rows::{NamedRow, NamedRows};
use crate::ingest::row_chooser::RowChooser;
use crate::ingest::row_references::{ReferredBatch, RowReferences, all_named_by, named_by};
use crate::ingest::row_validator::{RowRules, RowValidator, ValidateStep};
use crate::ingest::validation_cache::ValidationCache;
use crate::store::staging::{RowRequest, StagedRow};

/// How often a manifest is read through for its references. Once does, unless rows that are named cannot be sent any more: then
/// once more for each of these that takes outputs of another.
const READS_MAX: usize = 16;

/// Whether a manifest may have references. The rows of one with a matrix may take them from tables.
pub(super) fn may_have(file: impl Read) -> std::io::Result<bool> {
    manifest_file::has_any(file, &[b"job:", b"\"matrix\""])
}

/// What is there before the manifest.
pub(super) struct AcceptedBatches<L, R, T> {
    /// Finds rows of a batch, or tells why they cannot be named, and tells the graph what each row is made from.
    pub(super) look_up: L,
    /// The other batches that rows of a batch may name.
    pub(super) refers_to: R,
    /// What was decided about the takes of the manifest's own batch.
    pub(super) takes: T,
}

/// Reads through a manifest for its references. `open` opens it anew; where the manifest cannot be read, the references
/// are nobody's and the rows are refused where they stand.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn read<R: Read, E>(
    mut open: impl FnMut() -> Result<Option<Manifest<R>>, E>,
    accepted_batches: AcceptedBatches<
        impl FnMut(
            &BatchName,
            &HashSet<String>,
            Option<&mut ReferenceGraph>,
        ) -> Result<Result<ReferredBatch, String>, E>,
        impl FnMut(&BatchName) -> Result<BTreeSet<BatchName>, E>,
        impl FnOnce() -> Result<HashMap<JobId, DecidedTake>, E>,
    >,
    batch: &BatchName,
    rules: RowRules<'_>,
    chooser: Option<RowChooser<'_>>,
) -> Result<RowReferences, E> {
    let AcceptedBatches { mut look_up, refers_to, takes } = accepted_batches;
    let is_part_of_batch = rules.context.options.amends.is_some();
    let mut references = RowReferences { is_part_of_batch, ..RowReferences::default() };
    let Some(rows) = open()? else { return Ok(references) };
    let mut named = Named::read(rows, batch, rules, chooser);
    references.rows = std::mem::take(&mut named.rows);
    let in_circles = batches_in_circles(batch, named.elsewhere.keys().cloned(), refers_to)?;
    let mut graph = Some(ReferenceGraph::default()).filter(|_| !in_circles.is_empty());
    for (other, ids) in &named.elsewhere {
        let graph = graph.as_mut().filter(|_| in_circles.contains(other));
        references.batches.insert(other.clone(), look_up(other, ids, graph)?);
    }
    for other in in_circles.iter().filter(|other| !named.elsewhere.contains_key(other)) {
        _ = look_up(other, &HashSet::new(), graph.as_mut())?;
    }
    references.graph = graph;
    if !references.rows.is_empty() || !named.elsewhere.is_empty() {
        references.takes = takes()?;
    }
    if references.rows.is_empty() {
        return Ok(references);
    }
    let mut accepted = HashMap::new();
    for _ in 0..READS_MAX {
        // What was found without the rows that were accepted before.
        references.rows.forget();
        let Some(rows) = open()? else { return Ok(references) };
        let invalid = look_up_rows(rows, &named, (batch, rules, &accepted), &mut references);
        let ids = invalid.keys().cloned().collect();
        let found = if invalid.is_empty() { None } else { look_up(batch, &ids, None)?.ok() };
        let found = found.map(|batch| batch.rows).unwrap_or_default().into_iter();
        // The batch may have more takes of it, which were asked for since: the row asks for its own.
        let as_it_is = |(id, row): (String, ReferredRow)| {
            let (fingerprint, count) = *invalid.get(&id)?;
            let is_same = fingerprint == row.fingerprint && count <= row.count;
            is_same.then_some((id, ReferredRow { count, ..row }))
        };
        let before = accepted.len();
        accepted.extend(found.filter_map(as_it_is));
        if accepted.len() == before {
            break;
        }
    }
    references.needed = named.needed();
    Ok(references)
}

/// Looks up every row that is named. Returns those that cannot be sent today: who they are, and how many variations they have.
/// They can be meant where the batch has them from a day when they could be sent: those of `accepted`.
fn look_up_rows<R: Read>(
    rows: Manifest<R>,
    named: &Named,
    (batch, rules, accepted): (&BatchName, RowRules<'_>, &HashMap<String, ReferredRow>),
    references: &mut RowReferences,
) -> HashMap<String, (Fingerprint, u32)> {
    let mut pending = Pending::default();
    let mut lookup = Lookup {
        batch,
        rules,
        accepted,
        cache: ValidationCache::new(batch, rules.context),
        invalid: HashMap::new(),
    };
    for read in rows {
        let row = match read {
            ReadRow::Good(mut row) => {
                rules.fill(&mut row);
                *row
            }
            ReadRow::Bad(bad) => {
                if let Some(row) = bad.row
                    && let Some(id) = row.id.clone().filter(|id| references.rows.is_named(id))
                {
                    references.rows.insert(&id, refused(row.position.line));
                    pending.settle(id, named, &mut lookup, references);
                }
                continue;
            }
            ReadRow::Unreadable(_) => break,
        };
        let Some(id) = row.id.clone().filter(|id| references.rows.is_named(id)) else { continue };
        if references.rows.get(&id).is_some() || pending.rows.contains_key(&id) {
            // The id is refused where it stands for the second time.
            continue;
        }
        match named.first_unknown(&row, batch, references) {
            None => {
                let found = lookup.look_up(row, references);
                references.rows.insert(&id, found);
                pending.settle(id, named, &mut lookup, references);
            }
            Some(parent) => pending.wait(id, row, parent),
        }
    }
    lookup.resolve(pending.rows, references);
    lookup.invalid
}

/// Rows that are named and name rows behind them: each is kept until the last of those has come.
#[derive(Debug, Default)]
struct Pending {
    rows: HashMap<String, Row>,
    /// Ids of these rows, by the name that each waits for.
    waiting: HashMap<String, Vec<String>>,
}

impl Pending {
    fn wait(&mut self, id: String, row: Row, parent: String) {
        // A variation is known with its row.
        if let Some((row, _)) = JobReference::variation_of(&parent) {
            self.waiting.entry(row.to_owned()).or_default().push(id.clone());
        }
        self.waiting.entry(parent).or_default().push(id.clone());
        self.rows.insert(id, row);
    }

    /// A row is known from now on: the rows that waited for no other one are looked up.
    fn settle(&mut self, id: String, named: &Named, lookup: &mut Lookup<'_>, references: &mut RowReferences) {
        let mut known = vec![id];
        while let Some(id) = known.pop() {
            for child in self.waiting.remove(&id).into_iter().flatten() {
                let Some(row) = self.rows.remove(&child) else { continue };
                match named.first_unknown(&row, lookup.batch, references) {
                    Some(parent) => self.wait(child, row, parent),
                    None => {
                        let found = lookup.look_up(row, references);
                        references.rows.insert(&child, found);
                        known.push(child);
                    }
                }
            }
        }
    }
}

/// The ids that rows name.
#[derive(Debug, Default)]
struct Named {
    /// All of them, with those whose variations may be meant.
    rows: NamedRows,
    /// Those of them that are ids of rows and look like variations of others: `still-v2` beside `still`.
    like_variations: HashSet<String>,
    /// Where a part is handed in: which id names which.
    by_id: HashMap<String, Vec<String>>,
    /// Named by rows of the part.
    by_part: Vec<String>,
    /// Ids with the batches that are written before them.
    elsewhere: BTreeMap<BatchName, HashSet<String>>,
}

impl Named {
    fn read<R: Read>(
        rows: Manifest<R>,
        batch: &BatchName,
        rules: RowRules<'_>,
        mut chooser: Option<RowChooser<'_>>,
    ) -> Named {
        let mut named = Named::default();
        for mut read in rows {
            if let ReadRow::Good(row) = &mut read {
                rules.fill(row);
            }
            let is_taken = chooser.as_mut().is_some_and(|chooser| chooser.takes(&read, rules));
            let ReadRow::Good(row) = read else { continue };
            named
                .like_variations
                .extend(row.id.clone().filter(|id| JobReference::variation_of(id).is_some()));
            for (other, name) in all_named_by(&row) {
                let row = JobReference::variation_of(&name).map(|(row, _)| row.to_owned());
                let names = || row.iter().chain([&name]);
                if other.as_ref().is_none_or(|other| other == batch) {
                    names().for_each(|name| named.rows.name(name));
                }
                // The rows of a batch that are retried are some of its rows: what they name may be another.
                let amended = rules.context.options.amends.is_some().then(|| batch.clone());
                if let Some(other) = other.or(amended) {
                    named.elsewhere.entry(other).or_default().extend(names().cloned());
                }
            }
            let names: Vec<String> = named_by(&row, batch).collect();
            if names.is_empty() {
                continue;
            }
            if chooser.is_some() {
                if is_taken {
                    named.by_part.extend(names.iter().cloned());
                }
                named.by_id.extend(row.id.map(|id| (id, names)));
            }
        }
        let Named { rows, like_variations, .. } = &mut named;
        like_variations.retain(|id| rows.is_named(id));
        named
    }

    /// The first name in a row that is to be looked up, and was not yet.
    fn first_unknown(&self, row: &Row, batch: &BatchName, references: &RowReferences) -> Option<String> {
        named_by(row, batch).find(|name| {
            let is_known = references.rows.get(name).is_some()
                || !self.like_variations.contains(name) && references.find(name).is_some();
            !is_known && references.rows.is_named(name)
        })
    }

    /// The ids that rows of the part name, and those that these name.
    fn needed(mut self) -> HashSet<String> {
        let mut needed = HashSet::new();
        while let Some(name) = self.by_part.pop() {
            let row = JobReference::variation_of(&name).map(|(row, _)| row.to_owned());
            for id in row.into_iter().chain([name]) {
                self.by_part.extend(self.by_id.remove(&id).into_iter().flatten());
                needed.insert(id);
            }
        }
        needed
    }
}

fn refused(line: u64) -> NamedRow {
    NamedRow { line, meant: Err("is refused".into()) }
}

/// What rows that are named come to.
struct Lookup<'a> {
    batch: &'a BatchName,
    rules: RowRules<'a>,
    /// Rows of the batch that cannot be sent today, and were accepted when they could be.
    accepted: &'a HashMap<String, ReferredRow>,
    cache: ValidationCache<'a>,
    /// Rows that cannot be sent today: who they are, and how many variations they have.
    invalid: HashMap<String, (Fingerprint, u32)>,
}

impl Lookup<'_> {
    /// A row whose own references are known.
    fn look_up(&mut self, row: Row, references: &mut RowReferences) -> NamedRow {
        let Position { line, .. } = row.position;
        let id = row.id.clone();
        let validator = RowValidator { batch: self.batch, rules: self.rules, references };
        let validated = validator.validate_row(&mut ReadRow::Good(Box::new(row)), &mut self.cache);
        let ValidateStep::Row(StagedRow { fingerprint, count, wanted, .. }) = validated.step else {
            return refused(line);
        };
        let RowRequest::Order(order) = wanted else {
            if let Some(known) = id.as_ref().and_then(|id| self.accepted.get(id)) {
                return NamedRow { line, meant: Ok(known.clone()) };
            }
            self.invalid.extend(id.map(|id| (id, (fingerprint, count))));
            return refused(line);
        };
        let Ok(order) = order.order() else { return refused(line) };
        if let Some(graph) = &mut references.graph {
            graph.add(fingerprint, &order.inputs);
        }
        NamedRow { line, meant: Ok(ReferredRow::new(fingerprint, order.kind, count, &order.body.fields())) }
    }

    /// Rows that name rows behind them: each after those that it names. What is left over goes in a circle.
    fn resolve(&mut self, mut pending: HashMap<String, Row>, references: &mut RowReferences) {
        let mut roots: Vec<String> = pending.keys().cloned().collect();
        roots.sort_unstable();
        for root in roots {
            let mut path: Vec<String> = vec![root];
            while let Some(id) = path.last().cloned() {
                let Some(row) = pending.get(&id) else {
                    path.pop();
                    continue;
                };
                let next = named_by(row, self.batch).find_map(|name| {
                    let variation = JobReference::variation_of(&name).map(|(row, _)| row.to_owned());
                    [Some(name), variation].into_iter().flatten().find(|name| pending.contains_key(name))
                });
                match next {
                    Some(next) => match path.iter().position(|on_path| *on_path == next) {
                        None => path.push(next),
                        Some(first) => {
                            let circle = path.split_off(first);
                            let shown: Vec<&str> = circle.iter().chain([&next]).map(String::as_str).collect();
                            let why = match shown.len() {
                                2 => "names itself".to_owned(),
                                _ => format!("names itself by way of others: {}", shown.join(" -> ")),
                            };
                            for id in &circle {
                                if let Some(row) = pending.remove(id) {
                                    let named =
                                        NamedRow { line: row.position.line, meant: Err(why.as_str().into()) };
                                    references.rows.insert(id, named);
                                }
                            }
                        }
                    },
                    None => {
                        if let Some(row) = pending.remove(&id) {
                            let found = self.look_up(row, references);
                            references.rows.insert(&id, found);
                        }
                        path.pop();
                    }
                }
            }
        }
    }
}

/// The manifest at `path` may have references, or could not be read through. What cannot be opened has none.
pub(super) fn file_may_have(path: &Path) -> bool {
    // Of what is no file by now nothing is waited for.
    manifest_file::open(path).is_ok_and(|(file, _)| may_have(file).unwrap_or(true))
}
