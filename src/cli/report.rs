//! `callsheet report`: what was charged, waived, refunded and held, and what came of it, by client, kind, model, batch
//! or day.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cli::client::{self, StateClient};
use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::{printable, table, written};
use crate::clock::Clock;
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::ledger::Movement;
use crate::domain::report_group::{GroupBy, Since};
use crate::domain::row_selection::meta_value;
use crate::server::protocol::{JobsRequest, LedgerEntry, LedgerRequest, Request};

/// What `report` takes.
#[derive(Debug, Args)]
pub(super) struct ReportCommand {
    /// Names of batches [default: all that are listed]
    #[arg(value_name = "BATCH")]
    pub(super) batches: Vec<BatchName>,
    /// Group by batch, kind, model, day (UTC), or meta.NAME such as meta.client
    #[arg(long, value_name = "KEY", default_value = "batch")]
    pub(super) by: GroupBy,
    /// Only charges, refunds, files and failures from this time on: 2026-11-01, 2026-11-01T08:00:00Z or 7d. Holds are
    /// always the current ones
    #[arg(long, value_name = "TIME")]
    pub(super) since: Option<Since>,
    /// Print CSV
    #[arg(long)]
    pub(super) csv: bool,
}

const COLUMNS: [&str; 6] =
    ["held_credits", "charged_credits", "waived_credits", "refunded_credits", "files", "failures"];

/// Sums over the jobs of a group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
struct Sums {
    /// Set aside at this moment, whenever that began.
    held_credits: i128,
    /// Charged less refunds.
    charged_credits: i128,
    /// Covered by an allowance.
    waived_credits: i128,
    /// Charged once, and given back.
    refunded_credits: i128,
    /// Outputs of jobs that succeeded.
    files: u64,
    /// Jobs that failed, but for those in whose place another version of their row is wanted.
    failures: u64,
}

impl Sums {
    fn add(&mut self, more: Sums) {
        self.held_credits += more.held_credits;
        self.charged_credits += more.charged_credits;
        self.waived_credits += more.waived_credits;
        self.refunded_credits += more.refunded_credits;
        self.files += more.files;
        self.failures += more.failures;
    }

    fn cells(self) -> [String; 6] {
        let Sums { held_credits, charged_credits, waived_credits, refunded_credits, files, failures } = self;
        [
            held_credits.to_string(),
            charged_credits.to_string(),
            waived_credits.to_string(),
            refunded_credits.to_string(),
            files.to_string(),
            failures.to_string(),
        ]
    }
}

/// What a line of `/v1/jobs` says that is reported.
#[derive(Debug, Deserialize)]
struct ReportedJob {
    batch: BatchName,
    state: String,
    #[serde(default)]
    files: Vec<Value>,
    kind: String,
    model: Option<String>,
    #[serde(default)]
    meta: Map<String, Value>,
    ended: Option<String>,
    #[serde(default)]
    superseded: bool,
}

/// A group: its value of the key, nothing where a job has none.
type Group = Option<String>;

/// The sums of each group, as lines come in.
#[derive(Debug)]
struct Groups {
    by: GroupBy,
    /// Only what happened at this time or later.
    since: Option<String>,
    sums: BTreeMap<Group, Sums>,
    /// The job whose movements are read.
    job: Option<(BatchName, String)>,
    /// What is held for it: by which attempt, how much, and in which group it counts.
    holds: Vec<(u32, i128, Group)>,
}

impl Groups {
    fn new(by: GroupBy, since: Option<String>) -> Groups {
        Groups { by, since, sums: BTreeMap::new(), job: None, holds: Vec::new() }
    }

    /// Times are of one form, which sorts as they do.
    fn is_since(&self, time: &str) -> bool {
        self.since.as_deref().is_none_or(|since| time >= since)
    }

    fn group(
        &self,
        batch: &BatchName,
        kind: &str,
        model: Option<&str>,
        meta: &Map<String, Value>,
        time: &str,
    ) -> Group {
        match &self.by {
            GroupBy::Batch => Some(batch.to_string()),
            GroupBy::Kind => Some(kind.to_owned()),
            GroupBy::Model => model.map(str::to_owned),
            GroupBy::Day => time.get(..10).map(str::to_owned),
            GroupBy::Meta(name) => match meta_value(meta, name)? {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            },
        }
    }

    fn add(&mut self, group: Group, more: Sums) {
        self.sums.entry(group).or_default().add(more);
    }

    fn movement(&mut self, entry: &LedgerEntry) {
        // An older daemon tells no identity.
        let job = if entry.job_id.is_empty() { &entry.job } else { &entry.job_id };
        let job = (entry.batch.clone(), job.clone());
        if self.job.as_ref() != Some(&job) {
            self.end_job();
            self.job = Some(job);
        }
        let LedgerEntry { batch, kind, model, meta, time, .. } = entry;
        let group = self.group(batch, kind, model.as_deref(), meta, time);
        let number = |credits: crate::domain::credits::Credits| i128::from(credits.0);
        let moved = match entry.movement {
            Movement::Hold(credits) => {
                self.holds.push((entry.attempt, number(credits), group));
                return;
            }
            Movement::Release(credits) => return self.end_hold(entry.attempt, number(credits)),
            Movement::Settle { held, spent, waived } => {
                self.end_hold(entry.attempt, number(held));
                Sums { charged_credits: number(spent), waived_credits: number(waived), ..Sums::default() }
            }
            Movement::Refund { spent, waived } => Sums {
                charged_credits: -number(spent),
                waived_credits: -number(waived),
                refunded_credits: number(spent),
                ..Sums::default()
            },
            Movement::Correct { from, to } => {
                Sums { charged_credits: number(to) - number(from), ..Sums::default() }
            }
        };
        if self.is_since(time) {
            self.add(group, moved);
        }
    }

    fn end_hold(&mut self, attempt: u32, credits: i128) {
        let found = self.holds.iter_mut().find(|(of, held, _)| *of == attempt && *held >= credits);
        if let Some((_, held, _)) = found {
            *held -= credits;
        }
    }

    /// What is still held for the job whose movements were read.
    fn end_job(&mut self) {
        for (_, held_credits, group) in std::mem::take(&mut self.holds) {
            if held_credits > 0 {
                self.add(group, Sums { held_credits, ..Sums::default() });
            }
        }
    }

    fn job(&mut self, job: &ReportedJob) {
        let Some(ended) = job.ended.as_deref().filter(|ended| self.is_since(ended)) else { return };
        let sums = Sums {
            files: job.files.len() as u64,
            failures: u64::from(job.state == "failed" && !job.superseded),
            ..Sums::default()
        };
        if sums != Sums::default() {
            let group = self.group(&job.batch, &job.kind, job.model.as_deref(), &job.meta, ended);
            self.add(group, sums);
        }
    }

    fn total(&self) -> Sums {
        let mut total = Sums::default();
        self.sums.values().for_each(|sums| total.add(*sums));
        total
    }
}

pub(super) async fn run(command: &ReportCommand, global: &Global) -> Result<Exit, Failure> {
    let now = Clock::start().now().wall;
    let since = command.since.map(|since: Since| since.instant(now).to_string());
    client::with(global, LedgerRequest::METHOD, async |client| {
        let mut groups = Groups::new(command.by.clone(), since.clone());
        let mut not_listed = 0;
        if command.batches.is_empty() {
            not_listed = read(client, None, &mut groups).await?;
        }
        for batch in command.batches.iter().collect::<BTreeSet<_>>() {
            read(client, Some(batch), &mut groups).await?;
        }
        let mut out = BufWriter::new(anstream::stdout());
        let shown = match (command.csv, global.json) {
            (true, _) => as_csv(&groups, &mut out),
            (false, true) => as_json(&groups, &mut out),
            (false, false) => in_words(&groups, &mut out),
        };
        written(shown.and_then(|()| out.flush()))?;
        client::report_not_listed(not_listed);
        Ok(Exit::Success)
    })
    .await
}

/// Adds up a batch, or all that are listed; how many are not.
async fn read(client: &StateClient, batch: Option<&BatchName>, groups: &mut Groups) -> Result<u64, Failure> {
    let mut movement = |line: &[u8]| {
        groups.movement(&serde_json::from_slice(line)?);
        Ok(())
    };
    let not_listed = client.lines(&LedgerRequest { batch: batch.cloned() }, &mut movement).await?;
    groups.end_job();
    groups.job = None;
    let mut job = |line: &[u8]| {
        groups.job(&serde_json::from_slice(line)?);
        Ok(())
    };
    client.lines(&JobsRequest { batch: batch.cloned(), state: None }, &mut job).await?;
    Ok(not_listed)
}

fn in_words(groups: &Groups, out: &mut impl Write) -> io::Result<()> {
    let by = groups.by.to_string();
    let headings = [by.as_str(), "held", "charged", "waived", "refunded", "files", "failures"];
    let mut shown = table::with_headings(headings);
    let mut add = |name: String, sums: Sums| {
        shown.add_row([name].into_iter().chain(sums.cells()));
    };
    for (group, sums) in &groups.sums {
        add(group.as_deref().map_or_else(|| "-".to_owned(), printable), *sums);
    }
    add("total".to_owned(), groups.total());
    table::print(out, &shown)
}

fn as_csv(groups: &Groups, out: &mut impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let by = groups.by.to_string();
    writer.write_record([by.as_str()].into_iter().chain(COLUMNS))?;
    for (group, sums) in &groups.sums {
        let name = group.clone().unwrap_or_default();
        writer.write_record([name].into_iter().chain(sums.cells()))?;
    }
    writer.flush()
}

#[derive(Serialize)]
struct JsonReport<'a> {
    by: String,
    since: Option<&'a str>,
    groups: Vec<JsonGroup<'a>>,
    total: Sums,
}

#[derive(Serialize)]
struct JsonGroup<'a> {
    /// The value of the key; null for jobs that have none.
    key: Option<&'a str>,
    #[serde(flatten)]
    sums: Sums,
}

fn as_json(groups: &Groups, out: &mut impl Write) -> io::Result<()> {
    let each = groups.sums.iter().map(|(key, sums)| JsonGroup { key: key.as_deref(), sums: *sums });
    let report = JsonReport {
        by: groups.by.to_string(),
        since: groups.since.as_deref(),
        groups: each.collect(),
        total: groups.total(),
    };
    serde_json::to_writer_pretty(&mut *out, &report)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two versions of a row have the same label, and their attempts the same numbers.
    #[test]
    fn what_is_held_stays_in_the_group_of_its_version() {
        let mut groups = Groups::new(GroupBy::Meta("client".to_owned()), None);
        let moves = [
            ("1", "acme", json!({"hold": 8})),
            ("2", "blue", json!({"hold": 8})),
            ("2", "blue", json!({"release": 8})),
        ];
        for (job_id, client, movement) in moves {
            let entry = json!({
                "time": "2026-11-21T02:00:00.000Z", "batch": "w", "job": "a", "job_id": job_id, "attempt": 1,
                "movement": movement, "task_id": "", "kind": "image", "meta": { "client": client },
            });
            groups.movement(&serde_json::from_value(entry).unwrap());
        }
        groups.end_job();
        let held = |client: &str| groups.sums.get(&Some(client.to_owned())).map(|sums| sums.held_credits);
        assert_eq!((held("acme"), held("blue")), (Some(8), None));
    }
}
