//! Rows that name other rows, of their manifest or of another batch (`image_urls = job:still-07`): whom they mean.
//!
//! Who each row is that is named is kept in memory, and no row.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::domain::batch_origin::Origin;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::{BatchName, BatchNo, Fingerprint, JobId};
use crate::domain::input_file::InputFile;
use crate::domain::job_reference::{
    DecidedTake, FORM, InputBatch, InputField, JobInput, JobReference, ReferredRow, chosen_otherwise,
    is_reference,
};
use crate::domain::manifest::row::Row;
use crate::domain::reference_graph::ReferenceGraph;
use crate::domain::request::{Kind, Request};
use crate::ingest::named_rows::{NamedRow, NamedRows};

/// Rows of a batch that was accepted before.
#[derive(Debug, Clone)]
pub struct ReferredBatch {
    /// Its number.
    pub no: BatchNo,
    /// Where it was begun from, where that is known.
    pub origin: Option<Origin>,
    /// Those of its rows that are named, by their ids.
    pub rows: HashMap<String, ReferredRow>,
    /// What was decided about its takes.
    pub takes: HashMap<JobId, DecidedTake>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct RowReferences {
    pub(super) rows: NamedRows,
    /// The manifest is some rows of its batch, to be retried: they may name others of it.
    pub(super) is_part_of_batch: bool,
    /// What was decided about the takes of the own batch, and of which takes its children were made.
    pub(super) takes: HashMap<JobId, DecidedTake>,
    /// Batches that rows name, or why their rows cannot be named.
    pub(super) batches: BTreeMap<BatchName, Result<ReferredBatch, String>>,
    /// What accepted rows of batches that lead back to this one are made from, and what named rows of the manifest are;
    /// nothing where no batch leads back.
    pub(super) graph: Option<ReferenceGraph>,
    /// Ids of rows that rows of the part need that is handed in, and that are not in it themselves.
    pub(super) needed: HashSet<String>,
}

/// The options that may be lengths of outputs.
const LENGTHS: [InputField; 3] =
    [InputField::Duration, InputField::DurationSeconds, InputField::SourceVideoDurationSeconds];

/// The references of a row: where each stands, and what is written there.
fn references_of(row: &Row) -> impl Iterator<Item = (InputField, usize, &str)> {
    let lists =
        [(InputField::ImageUrls, &row.request.image_urls), (InputField::VideoUrls, &row.request.video_urls)];
    let addresses = lists.into_iter().flat_map(|(field, list)| {
        let given = list.iter().enumerate().filter(|(_, text)| is_reference(text));
        given.map(move |(place, text)| (field, place, text.as_str()))
    });
    // Another kind has no such option, which is said elsewhere.
    let lengths = LENGTHS.into_iter().filter_map(|field| {
        let text = row.request.options.get(field.name())?.as_str().filter(|text| is_reference(text))?;
        Some((field, 0, text))
    });
    addresses.chain(lengths)
}

/// What a row names, as it stands: the batch, where one is written, and the id.
pub(super) fn all_named_by(row: &Row) -> impl Iterator<Item = (Option<BatchName>, String)> {
    references_of(row).filter_map(|(_, _, text)| {
        let JobReference { batch, row, .. } = JobReference::parse(text)?.ok()?;
        Some((batch, row))
    })
}

/// The ids of its own batch that a row names.
pub(super) fn named_by(row: &Row, own: &BatchName) -> impl Iterator<Item = String> {
    all_named_by(row).filter_map(move |(batch, row)| batch.is_none_or(|batch| batch == *own).then_some(row))
}

/// The row that is meant by a name: the one of that id, or a variation of another (`still-07-v2`).
fn find_in<T>(get: impl Fn(&str) -> Option<T>, name: &str) -> Option<(&str, T, Option<u32>)> {
    if let Some(found) = get(name) {
        return Some((name, found, None));
    }
    let (row, variation) = JobReference::variation_of(name)?;
    Some((row, get(row)?, Some(variation)))
}

/// A request with who its inputs are made by in place of its references, and what its files hold in place of their names:
/// another spelling is the same job, another parent or content another one.
pub(super) fn with_identities(request: &Request, inputs: &[JobInput], files: &[InputFile]) -> Request {
    let mut request = request.clone();
    let inputs = inputs.iter().map(|input| (input.field, input.place, input.identity()));
    let files = files.iter().map(|file| (file.field, file.place, file.identity()));
    for (field, place, identity) in inputs.chain(files) {
        let list = match field {
            InputField::ImageUrls => &mut request.image_urls,
            InputField::VideoUrls => &mut request.video_urls,
            InputField::Duration | InputField::DurationSeconds | InputField::SourceVideoDurationSeconds => {
                let option = request.options.get_mut(field.name());
                // One that the plan knew is not written so in its row.
                let option = option.filter(|value| value.as_str().is_some_and(is_reference));
                option.into_iter().for_each(|value| *value = Value::from(identity.as_str()));
                continue;
            }
        };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        list.get_mut(place).into_iter().for_each(|text| *text = identity.clone());
    }
    request
}

/// What a field takes.
fn taken_by(field: InputField) -> &'static str {
    match field {
        InputField::ImageUrls => "images",
        InputField::VideoUrls => "videos",
        InputField::Duration | InputField::DurationSeconds => "the length of a video or of a sound",
        InputField::SourceVideoDurationSeconds => "the length of a video",
    }
}

/// A row that would be made from another version of itself.
fn circle_problem(text: &str, circle: &[String]) -> Diagnostic {
    let message = format!(
        "\"{text}\" makes a circle: {}; each of these rows would make the next one new again, and buy it again",
        circle.join(" -> ")
    );
    Diagnostic::new(message).hint(
        "remove one of these references; if the manifest of another of these rows does not have it any more, submit that \
         manifest first",
    )
}

/// Of which takes a row was made, and what is chosen now.
pub(super) enum ChoiceOfTakes {
    /// It was made of the chosen ones, or was not made: it is wanted as it is.
    AsWritten,
    /// It was made of others: another job is wanted in its place, with these inputs.
    Otherwise(Vec<JobInput>),
    /// Its first variation was made of others, and this one of the chosen ones: it is wanted as it is, since what would take
    /// its place would be bought twice.
    Mixed {
        /// The first variation that was made of the chosen ones.
        variation: u32,
        /// The inputs that are chosen.
        inputs: Vec<JobInput>,
    },
}

/// A row that is named.
struct Found<'a> {
    id: &'a str,
    row: &'a ReferredRow,
    variation: Option<u32>,
    /// `the row at line 12`.
    place_text: String,
}

impl RowReferences {
    /// The row of the manifest that is meant by a name.
    pub(super) fn find<'a, 'b>(&'a self, name: &'b str) -> Option<(&'b str, &'a NamedRow, Option<u32>)> {
        find_in(|id| self.rows.get(id), name)
    }

    /// The inputs of a row that are outputs of other rows.
    ///
    /// # Errors
    /// Everything that is wrong with its references; they are in their fields, and have no position yet.
    pub(super) fn inputs_of(
        &self,
        kind: Kind,
        row: &Row,
        own: &BatchName,
    ) -> Result<Vec<JobInput>, Vec<Diagnostic>> {
        let (mut inputs, mut problems) = (Vec::new(), Vec::new());
        let is_of_kind =
            |field: InputField| !field.is_length() || InputField::lengths_of(kind).contains(&field);
        for (field, place, text) in references_of(row).filter(|(field, ..)| is_of_kind(*field)) {
            let problem = match self.input(own, field, place, text) {
                Ok(input) => match self.circle(row, own, &input) {
                    Some(circle) => circle_problem(text, &circle),
                    None => {
                        inputs.push(input);
                        continue;
                    }
                },
                Err(why) => Diagnostic::new(format!("\"{text}\" {why}")),
            };
            let options = if field.is_length() { "options." } else { "" };
            problems.push(problem.in_field(format!("{options}{}", field.name())));
        }
        if problems.is_empty() { Ok(inputs) } else { Err(problems) }
    }

    /// The circle in which a row would be with this input, by way of rows that were accepted before.
    fn circle(&self, row: &Row, own: &BatchName, input: &JobInput) -> Option<Vec<String>> {
        self.graph.as_ref()?.circle(own, row.id.as_deref()?, input)
    }

    fn input(
        &self,
        own: &BatchName,
        field: InputField,
        place: usize,
        text: &str,
    ) -> Result<JobInput, String> {
        let Some(reference) = JobReference::parse(text) else { return Err(format!("is no {FORM}")) };
        let JobReference { batch, row: name, output } = reference?;
        let (batch, found) = match &batch {
            None if self.is_part_of_batch && self.find(&name).is_none() => {
                (None, self.in_batch(own, &name)?.1)
            }
            None => (None, self.in_manifest(&name)?),
            Some(other) if other != own => {
                let (no, found) = self.in_batch(other, &name)?;
                (Some(InputBatch { no, name: other.clone() }), found)
            }
            // What the batch has from an earlier manifest.
            Some(own) if self.find(&name).is_none() => (None, self.in_batch(own, &name)?.1),
            Some(_) => (None, self.in_manifest(&name)?),
        };
        let Found { id, row, variation, place_text } = found;
        let ReferredRow { fingerprint, kind, count, .. } = row;
        if !field.takes(*kind) {
            let what = taken_by(field);
            return Err(format!("names {place_text}, a {kind}; {} takes {what}", field.name()));
        }
        if let Some(variation) = variation.filter(|variation| variation > count || *variation == 0) {
            let message = format!(
                "names variation {variation} of {place_text}, which asks for {count}; set its count to {variation} or \
                 more"
            );
            return Err(message);
        }
        Ok(JobInput {
            field,
            place: u32::try_from(place).unwrap_or(u32::MAX),
            batch,
            row: id.to_owned(),
            fingerprint: *fingerprint,
            takes: *count,
            variation,
            output,
        })
    }

    fn in_manifest<'a>(&'a self, name: &'a str) -> Result<Found<'a>, String> {
        let Some((id, NamedRow { line, meant }, variation)) = self.find(name) else {
            return Err(format!("names no row of this manifest; the id of a row is accepted: {FORM}"));
        };
        match meant {
            Ok(row) => Ok(Found { id, row, variation, place_text: format!("the row at line {line}") }),
            Err(why) => Err(format!("names the row at line {line}, which {why}")),
        }
    }

    fn in_batch<'a>(&'a self, batch: &BatchName, name: &'a str) -> Result<(BatchNo, Found<'a>), String> {
        let known = match self.batches.get(batch) {
            Some(Ok(known)) => known,
            Some(Err(why)) => return Err(format!("names the batch {batch}, {why}")),
            None => return Err(format!("names the batch {batch}, which was not looked up")),
        };
        let Some((id, row, variation)) = find_in(|id| known.rows.get(id), name) else {
            return Err(format!(
                "names no row of the batch {batch}; to list its rows: callsheet jobs {batch}"
            ));
        };
        let place_text = format!("the row {batch}/{id}");
        Ok((known.no, Found { id, row, variation, place_text }))
    }

    /// Of which takes a row in so many variations was made, and whether others are chosen now. `row` is who it is by the
    /// references as they are written.
    pub(super) fn choice(&self, row: Fingerprint, count: u32, inputs: &[JobInput]) -> ChoiceOfTakes {
        let made = |variation: u32| {
            let made_of = &self.takes.get(&JobId::derive(row, variation))?.made_of;
            Some(made_of).filter(|made_of| made_of.len() >= inputs.len())
        };
        if self.takes.is_empty() || inputs.is_empty() {
            return ChoiceOfTakes::AsWritten;
        }
        let Some(first) = made(1) else { return ChoiceOfTakes::AsWritten };
        let other = self.batches.values().flatten().map(|batch| &batch.takes);
        let all: Vec<_> = [&self.takes].into_iter().chain(other).collect();
        let verdict_of = |job: JobId| all.iter().find_map(|takes| takes.get(&job)?.verdict);
        let otherwise = |made_of: &Vec<u32>| chosen_otherwise(inputs, made_of, verdict_of);
        let Some(inputs_now) = otherwise(first) else { return ChoiceOfTakes::AsWritten };
        let as_chosen =
            (2..=count).find(|variation| made(*variation).is_some_and(|of| otherwise(of).is_none()));
        match as_chosen {
            Some(variation) => ChoiceOfTakes::Mixed { variation, inputs: inputs_now },
            None => ChoiceOfTakes::Otherwise(inputs_now),
        }
    }

    /// How long the output is that one of a row's inputs names, where the options of that row tell, and which row it is.
    pub(super) fn seconds_of(
        &self,
        inputs: &[JobInput],
        own: &BatchName,
        is_wanted: impl Fn(InputField) -> bool,
    ) -> Option<(Value, String)> {
        let source = inputs.iter().find(|input| is_wanted(input.field))?;
        let of_manifest = self.rows.get(&source.row).filter(|_| source.batch.is_none());
        let row = match of_manifest {
            Some(named) => named.meant.as_ref().ok()?,
            None => {
                let batch = source.batch.as_ref().map_or(own, |batch| &batch.name);
                self.batches.get(batch)?.as_ref().ok()?.rows.get(&source.row)?
            }
        };
        let batch = source.batch.as_ref().map(|batch| format!("{}/", batch.name)).unwrap_or_default();
        Some((Value::Number(row.seconds.clone()?), batch + &source.row))
    }

    /// Whether a row of the part that is handed in needs the row of this id.
    pub(super) fn needs(&self, id: &str) -> bool {
        self.needed.contains(id)
    }
}
