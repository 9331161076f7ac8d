//! Which rows take outputs of which: of their own manifest and of other batches, as an address or as a length.

use std::collections::BTreeMap;
use std::sync::Arc;

use callsheet::domain::credits::Credits;
use callsheet::domain::ids::{BatchNo, Fingerprint, JobId, JobKey};
use callsheet::domain::job::{JobSpec, Order};
use callsheet::domain::job_reference::{InputBatch, InputField, JobInput};
use callsheet::domain::request::Kind;
use callsheet::domain::time::Millis;
use fastrand::Rng;
use serde_json::json;

use super::FOUND;
use super::plan::Happening;

/// What the service will charge for a job, and whether it refuses it.
type Truths = BTreeMap<JobId, (u64, bool)>;

/// References between the rows of a manifest, drawn apart: most histories have none. A row may stand before the rows
/// whose outputs it takes.
pub fn take_outputs(seed: u64, happenings: &mut [(u64, Happening)], truths: &mut Truths) {
    let mut random = Rng::with_seed(seed ^ 0x9A4E_27C4);
    if random.u32(0..3) > 0 {
        return;
    }
    let mut of_takes = Rng::with_seed(seed ^ 0x7A4E_5000);
    let has_takes = of_takes.bool();
    for (_, what) in happenings {
        let Happening::Manifest(manifest) = what else { continue };
        if has_takes {
            ask_for_takes(&mut of_takes, &mut manifest.rows, truths);
        }
        let mut order: Vec<usize> = (0..manifest.rows.len()).collect();
        random.shuffle(&mut order);
        order.retain(|at| manifest.rows[*at].order.kind.is_keyed() && manifest.rows[*at].variation == 1);
        derive_ids(&mut manifest.rows, truths);
        for place in 1..order.len() {
            let parents: Vec<JobInput> = (0..[0, 1, 1, 2][random.usize(0..4)])
                .map(|at| {
                    let parent = &manifest.rows[order[random.usize(0..place)]];
                    let of_row = manifest.rows.iter().filter(|row| row.fingerprint == parent.fingerprint);
                    let takes = u32::try_from(of_row.count()).unwrap();
                    let is_named = takes > 1 && of_takes.u32(0..4) == 0;
                    JobInput {
                        field: InputField::ImageUrls,
                        place: at,
                        batch: None,
                        row: parent.label.clone(),
                        fingerprint: parent.fingerprint,
                        takes,
                        variation: is_named.then(|| of_takes.u32(1..=takes)),
                        output: 1,
                    }
                })
                .collect();
            let child = manifest.rows[order[place]].fingerprint;
            for row in manifest.rows.iter_mut().filter(|row| row.fingerprint == child) {
                Arc::make_mut(row).order.inputs = parents.as_slice().into();
            }
        }
    }
}

/// Some rows are asked for twice: two jobs of one row. Of some outputs a person says whether they are good.
fn ask_for_takes(random: &mut Rng, rows: &mut [Arc<JobSpec>], truths: &mut Truths) {
    for row in rows.iter_mut() {
        Arc::make_mut(row).order.terms_mut().review = random.u32(0..4) == 0;
    }
    for pair in rows.chunks_exact_mut(2) {
        let [first, second] = pair else { continue };
        if !first.order.kind.is_keyed() || random.bool() {
            continue;
        }
        let second = Arc::make_mut(second);
        second.fingerprint = first.fingerprint;
        second.variation = 2;
        second.order = Order { line: second.order.line, ..first.order.clone() };
        let cost = truths[&first.id].0;
        truths.entry(second.id).and_modify(|truth| truth.0 = cost);
    }
}

/// Identities as references derive them.
fn derive_ids(rows: &mut [Arc<JobSpec>], truths: &mut Truths) {
    for row in rows {
        let row = Arc::make_mut(row);
        let truth = truths.remove(&row.id);
        row.id = JobId::derive(row.fingerprint, row.variation);
        truths.extend(truth.map(|truth| (row.id, truth)));
    }
}

/// A row that others may take outputs of.
#[derive(Debug, Clone)]
struct Parent {
    at: u64,
    batch: BatchNo,
    label: String,
    fingerprint: Fingerprint,
    takes: u32,
}

impl Parent {
    /// As an input of a job of the batch `own`.
    fn input(&self, own: BatchNo, field: InputField, place: u32) -> JobInput {
        let name = format!("batch-{}", self.batch.0).parse().unwrap();
        JobInput {
            field,
            place,
            batch: (self.batch != own).then_some(InputBatch { no: self.batch, name }),
            row: self.label.clone(),
            fingerprint: self.fingerprint,
            takes: self.takes,
            variation: None,
            output: 1,
        }
    }
}

/// References to rows of batches that came before, and videos that are as long as an output of a row of their own manifest or
/// of such a batch. Drawn apart: most histories have neither. What was found once stays the history that it was.
pub fn take_from_elsewhere(
    seed: u64,
    is_listed: bool,
    happenings: &mut [(u64, Happening)],
    truths: &mut Truths,
) {
    let mut random = Rng::with_seed(seed ^ 0xE15E_84E5);
    // A length has a price where there is a catalog.
    let (is_across, has_lengths) = (random.u32(0..3) == 0, is_listed && random.bool());
    if FOUND.contains(&seed) || !is_across && !has_lengths {
        return;
    }
    let mut parents: Vec<Parent> = Vec::new();
    for (at, what) in happenings.iter_mut() {
        let Happening::Manifest(manifest) = what else { continue };
        derive_ids(&mut manifest.rows, truths);
        let first_takes = manifest.rows.iter().filter(|row| row.order.kind.is_keyed() && row.variation == 1);
        parents.extend(first_takes.map(|row| {
            let takes = manifest.rows.iter().filter(|other| other.fingerprint == row.fingerprint).count();
            let (label, takes) = (row.label.clone(), u32::try_from(takes).unwrap());
            Parent { at: *at, batch: manifest.batch, label, fingerprint: row.fingerprint, takes }
        }));
    }
    for (at, what) in happenings {
        let Happening::Manifest(manifest) = what else { continue };
        let own = manifest.batch;
        let of_others: Vec<&Parent> =
            parents.iter().filter(|parent| is_across && parent.batch != own && parent.at < *at).collect();
        // Rows that need nothing: whoever is as long as one of them makes no circle.
        let is_root = |parent: &&Parent| {
            let is_it =
                |row: &&Arc<JobSpec>| row.fingerprint == parent.fingerprint && row.order.inputs.is_empty();
            parent.batch == own && manifest.rows.iter().any(|row| is_it(&row))
        };
        let roots: Vec<&Parent> = parents.iter().filter(is_root).step_by(2).collect();
        let rows: Vec<(Fingerprint, Order)> = manifest
            .rows
            .iter()
            .filter(|row| row.variation == 1 && row.order.kind.is_keyed())
            .filter(|row| roots.iter().all(|root| root.fingerprint != row.fingerprint))
            .map(|row| (row.fingerprint, row.order.clone()))
            .collect();
        for (fingerprint, mut order) in rows {
            if !of_others.is_empty() && random.bool() {
                let place = u32::try_from(order.inputs.len()).unwrap();
                let parent = of_others[random.usize(0..of_others.len())];
                order.inputs.push(parent.input(own, InputField::ImageUrls, place));
            }
            let voices: Vec<&&Parent> = roots.iter().chain(&of_others).collect();
            let is_video = order.kind == Kind::Video && order.price.is_some();
            if has_lengths && is_video && !voices.is_empty() && random.bool() {
                take_length(
                    &mut order,
                    voices[random.usize(0..voices.len())].input(own, InputField::Duration, 0),
                );
            }
            for row in manifest.rows.iter_mut().filter(|row| row.fingerprint == fingerprint) {
                let row = Arc::make_mut(row);
                row.order = Order { line: row.order.line, ..order.clone() };
            }
        }
    }
}

/// A video is to be as long as an output: what it costs hangs on that.
fn take_length(order: &mut Order, input: JobInput) {
    let least = order.price.unwrap().0;
    let body = json!({"model": format!("long-{least}"), "prompt": "x", "options": {"duration": format!("job:{}", input.row)}});
    order.body = serde_json::from_value(body).unwrap();
    let terms = order.terms_mut();
    (terms.price, terms.cheapest, terms.bound) = (None, Some(Credits(least)), Some(Credits(3 * least)));
    order.inputs.push(input);
}

/// How long the output of a job is. Some are longer than the service takes.
pub fn length_of(job: JobKey) -> Millis {
    Millis([300, 4_290, 5_000, 9_001, 14_999, 20_000][(job.batch.0 * 5 + job.seq.0) as usize % 6])
}

/// What is sent for an output that is so long, and how many times 5 seconds that is.
pub fn sent_for(length: Millis) -> Option<(String, u64)> {
    let times = length.0.div_ceil(5_000);
    (times <= 3).then(|| (format!("{}s", 5 * times), times))
}

/// How many times 5 seconds a job is asked for with these inputs; nothing for one that is not as long as an output.
pub fn times_sent(order: &Order, inputs: &[String]) -> Option<u64> {
    let sent = order.sent_length(inputs).filter(|_| order.has_open_length())?;
    Some(sent.trim_end_matches('s').parse::<u64>().unwrap() / 5)
}
