//! Flags of the commands that read manifests: terms of the batch, and which rows are taken.

use clap::Args;
use clap::ValueEnum;
use clap::builder::BoolishValueParser;

use crate::domain::budget::BudgetSetting;
use crate::domain::credits::Credits;
use crate::domain::ids::BatchName;
use crate::domain::pilot::PilotRows;
use crate::domain::row_selection::FieldFilter;
use crate::domain::row_selection::RowSelection;

/// The terms of a batch, over what its manifest and the configuration say.
#[derive(Debug, Args)]
pub(super) struct ManifestArguments {
    /// Name of the batch [default: from the manifest, or its file name]
    #[arg(
        long,
        visible_alias = "name",
        env = "CALLSHEET_BATCH",
        hide_env_values = true,
        value_name = "NAME"
    )]
    pub(super) batch: Option<BatchName>,
    /// Format of standard input [default: recognized from its content]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(super) format: Option<ManifestFormat>,
    /// Budget of the batch in credits, kept until another is set; none restores the default [default: the planned
    /// cost]
    #[arg(
        long,
        env = "CALLSHEET_BUDGET",
        hide_env_values = true,
        value_name = "CREDITS|none",
        allow_negative_numbers = true
    )]
    pub(super) budget: Option<BudgetSetting>,
    /// Price limit of a job: rows that cost more or cannot be priced are rejected
    #[arg(
        long,
        env = "CALLSHEET_MAX_CREDITS",
        hide_env_values = true,
        value_name = "CREDITS",
        value_parser = Credits::amount,
        allow_negative_numbers = true
    )]
    pub(super) max_credits: Option<u64>,
    /// Reject the whole manifest if a row is invalid
    #[arg(long, env = "CALLSHEET_STRICT", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub(super) strict: bool,
    /// Accept unknown options that look misspelt
    #[arg(long, env = "CALLSHEET_ALLOW_UNKNOWN_OPTIONS", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub(super) allow_unknown_options: bool,
    /// Outputs wait for a decision, unless their row says otherwise
    #[arg(long, env = "CALLSHEET_REVIEW", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub(super) review: bool,
    /// Only the first N rows; a later run of the whole manifest adds the rest
    #[arg(long, value_name = "N", conflicts_with = "random", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) first: Option<u32>,
    /// Only N rows, chosen by their identity: the same rows every time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) random: Option<u32>,
    /// Run some rows first, with the rows that they refer to; the others wait for `callsheet continue`. N: the first N
    /// rows; random:N: N rows chosen by their identity; for a matrix, cells: one row of each combination, or entries:
    /// one row of each entry of jobs
    #[arg(long, value_name = "ROWS")]
    pub(super) pilot: Option<PilotRows>,
    /// Only rows with these ids; a comma in an id is written as \,
    #[arg(long, value_name = "ID,...", value_parser = ids)]
    pub(super) only: Vec<Ids>,
    /// Only rows with this value in a field, such as meta.client=acme; repeat the flag for several fields
    #[arg(long = "where", value_name = "FIELD=VALUE")]
    pub(super) filters: Vec<FieldFilter>,
}

impl ManifestArguments {
    /// The part of each manifest that is handed in.
    pub(super) fn selection(&self) -> RowSelection {
        RowSelection {
            first: self.first,
            random: self.random,
            only: self.only.iter().flat_map(|Ids(ids)| ids.clone()).collect(),
            filters: self.filters.clone(),
        }
    }
}

/// Ids that one `--only` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ids(Vec<String>);

/// The ids of a list. One that names none, as a variable that is not set does, would select every row.
fn ids(list: &str) -> Result<Ids, String> {
    let (mut ids, mut id) = (Vec::new(), String::new());
    let mut rest = list.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ',' => ids.push(std::mem::take(&mut id)),
            '\\' => id.push(rest.next_if_eq(&',').unwrap_or(c)),
            _ => id.push(c),
        }
    }
    ids.push(id);
    let ids: Vec<String> = ids.iter().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()).collect();
    if ids.is_empty() {
        return Err("it names no id; omit --only to take every row".to_owned());
    }
    Ok(Ids(ids))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ManifestFormat {
    Csv,
    Json,
    Jsonl,
}
