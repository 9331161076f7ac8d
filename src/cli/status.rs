//! `callsheet status`: every batch in numbers.

use std::io::Write;

use serde::Serialize;

use crate::cli::arguments::{BatchArgument, Global};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::{state, summary, written};
use crate::engine::conductor::{BatchOverview, batch_overview};
use crate::store::{BatchRecord, Store};

#[derive(Debug, Serialize)]
struct Status {
    batches: Vec<BatchStatus>,
}

/// Scripts rely on the names: fields may be added, not renamed.
#[derive(Debug, Serialize)]
struct BatchStatus {
    name: String,
    state: &'static str,
    parked_by: Option<&'static str>,
    jobs: u32,
    #[serde(flatten)]
    states: std::collections::BTreeMap<&'static str, u32>,
    planned_credits: u64,
    budget_credits: u64,
    held_credits: u64,
    charged_credits: u64,
    waived_credits: u64,
    refunded_credits: u64,
}

pub(super) fn run(command: &BatchArgument, global: &Global) -> Result<Exit, Failure> {
    let store = state::open(global)?;
    let batches = state::batches(&store, command.batch.as_ref())?;
    let mut overviews = Vec::with_capacity(batches.len());
    for batch in &batches {
        overviews.push(overview(&store, batch)?);
    }
    if global.json {
        let batches =
            batches.iter().zip(&overviews).map(|(batch, overview)| status(batch, overview)).collect();
        let text = serde_json::to_string_pretty(&Status { batches }).unwrap_or_default();
        written(writeln!(std::io::stdout(), "{text}"))?;
    } else {
        summary::states(&overviews);
    }
    Ok(Exit::Success)
}

fn overview(store: &Store, batch: &BatchRecord) -> Result<BatchOverview, Failure> {
    let open = store.open_jobs()?;
    let open = open.iter().filter(|record| record.key.batch == batch.no);
    Ok(batch_overview(batch, open.map(|record| record.job.state.name())))
}

fn status(batch: &BatchRecord, overview: &BatchOverview) -> BatchStatus {
    let state = match (batch.is_done(), overview.parked) {
        (true, _) => "done",
        (false, _) if batch.paused.is_some() => "paused",
        (false, Some(_)) => "parked",
        (false, None) => "active",
    };
    BatchStatus {
        name: batch.name.to_string(),
        state,
        parked_by: overview.parked.map(crate::domain::admission::Parked::name),
        jobs: batch.rows,
        states: overview.states.iter().copied().collect(),
        planned_credits: batch.planned.0,
        budget_credits: batch.budget().0,
        held_credits: batch.totals.held.0,
        charged_credits: batch.totals.spent.0,
        waived_credits: batch.totals.waived.0,
        refunded_credits: batch.totals.refunded.0,
    }
}
