//! Rows that name other rows of their manifest (`image_urls = job:still-07`): whom they mean.
//!
//! A line for each row that is named is kept in memory, and no row.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::Fingerprint;
use crate::domain::job_reference::{FORM, InputField, JobInput, JobReference, is_reference};
use crate::domain::manifest::row::Row;
use crate::domain::request::Kind;

/// A row that is named by another.
#[derive(Debug)]
pub(super) struct NamedRow {
    pub(super) line: u64,
    /// Who it is, or why nothing can be made from it.
    pub(super) meant: Result<MeantRow, String>,
}

#[derive(Debug)]
pub(super) struct MeantRow {
    pub(super) fingerprint: Fingerprint,
    pub(super) kind: Kind,
    /// Its variations.
    pub(super) count: u32,
    /// How long its outputs are by its options, in the form that a number of the body has.
    pub(super) seconds: Option<Value>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct RowReferences {
    pub(super) rows: HashMap<String, NamedRow>,
    /// Ids of rows that rows of the part need that is handed in, and that are not in it themselves.
    pub(super) needed: HashSet<String>,
}

/// The references of a row: where each stands, and what is written there.
fn references_of(row: &Row) -> impl Iterator<Item = (InputField, usize, &str)> {
    let lists =
        [(InputField::ImageUrls, &row.request.image_urls), (InputField::VideoUrls, &row.request.video_urls)];
    lists.into_iter().flat_map(|(field, list)| {
        let given = list.iter().enumerate().filter(|(_, text)| is_reference(text));
        given.map(move |(place, text)| (field, place, text.as_str()))
    })
}

/// The ids that a row names, as they stand.
pub(super) fn named_by(row: &Row) -> impl Iterator<Item = String> {
    references_of(row).filter_map(|(_, _, text)| Some(JobReference::parse(text)?.ok()?.row))
}

/// What a field takes.
fn taken_by(field: InputField) -> (Kind, &'static str) {
    match field {
        InputField::ImageUrls => (Kind::Image, "images"),
        InputField::VideoUrls => (Kind::Video, "videos"),
    }
}

impl RowReferences {
    /// The row that is meant by a name: the one of that id, or a variation of another (`still-07-v2`).
    pub(super) fn find<'a, 'b>(&'a self, name: &'b str) -> Option<(&'b str, &'a NamedRow, Option<u32>)> {
        if let Some(found) = self.rows.get(name) {
            return Some((name, found, None));
        }
        let (row, variation) = JobReference::variation_of(name)?;
        Some((row, self.rows.get(row)?, Some(variation)))
    }

    /// The inputs of a row that are outputs of other rows.
    ///
    /// # Errors
    /// Everything that is wrong with its references; they are in their fields, and have no position yet.
    pub(super) fn inputs_of(&self, row: &Row) -> Result<Vec<JobInput>, Vec<Diagnostic>> {
        let (mut inputs, mut problems) = (Vec::new(), Vec::new());
        for (field, place, text) in references_of(row) {
            match self.input(field, place, text) {
                Ok(input) => inputs.push(input),
                Err(why) => {
                    problems.push(Diagnostic::new(format!("\"{text}\" {why}")).in_field(field.name()));
                }
            }
        }
        if problems.is_empty() { Ok(inputs) } else { Err(problems) }
    }

    fn input(&self, field: InputField, place: usize, text: &str) -> Result<JobInput, String> {
        let Some(reference) = JobReference::parse(text) else { return Err(format!("is no {FORM}")) };
        let JobReference { row: name, output } = reference?;
        let Some((id, NamedRow { line, meant }, variation)) = self.find(&name) else {
            return Err(format!("names no row of this manifest; the id of a row is accepted: {FORM}"));
        };
        let MeantRow { fingerprint, kind, count, .. } = match meant {
            Ok(meant) => meant,
            Err(why) => return Err(format!("names the row at line {line}, which {why}")),
        };
        let (taken, what) = taken_by(field);
        if *kind != taken {
            return Err(format!("names the row at line {line}, a {kind}; {} takes {what}", field.name()));
        }
        if let Some(variation) = variation.filter(|variation| variation > count || *variation == 0) {
            let message = format!(
                "names variation {variation} of the row at line {line}, which asks for {count}; set its count to \
                 {variation} or more"
            );
            return Err(message);
        }
        Ok(JobInput {
            field,
            place: u32::try_from(place).unwrap_or(u32::MAX),
            row: id.to_owned(),
            fingerprint: *fingerprint,
            takes: *count,
            variation,
            output,
        })
    }

    /// How long the source video of a row is, where that is an output of another row and its options tell.
    pub(super) fn source_seconds(&self, inputs: &[JobInput]) -> Option<(Value, &str)> {
        let source = inputs.iter().find(|input| input.field == InputField::VideoUrls)?;
        let (id, named) = self.rows.get_key_value(&source.row)?;
        Some((named.meant.as_ref().ok()?.seconds.clone()?, id.as_str()))
    }

    /// Whether a row of the part that is handed in needs the row of this id.
    pub(super) fn needs(&self, id: &str) -> bool {
        self.needed.contains(id)
    }
}
