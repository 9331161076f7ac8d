//! What decides about a manifest beside itself: what holds for every one, and how this one comes in.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::batch_origin::SourcePlace;
use crate::domain::budget_group::GroupLimits;
use crate::domain::credits::Credits;
use crate::domain::ids::{BatchName, Fingerprint};
use crate::domain::manifest::RowEdits;
use crate::domain::manifest::row::Policy;
use crate::domain::pilot::PilotRows;
use crate::domain::quote::{AccountPlan, Catalog, Rules};
use crate::domain::row_selection::RowSelection;
use crate::domain::schedule::placeholders::ScheduledRun;
use crate::ingest::input_files::{HandedFiles, InputRules, NO_FILES};
use crate::ingest::manifest_file::Identity;
use crate::ingest::newer_catalog::NewerCatalog;
use crate::output::file_names::Layout;
use crate::store::BatchRecord;

static NO_GROUPS: GroupLimits = BTreeMap::new();

/// What a manifest is validated by.
#[derive(Debug, Clone)]
pub struct IngestContext<'a> {
    /// The catalogs in force.
    pub catalog: &'a Catalog,
    /// What the catalogs do not carry.
    pub rules: &'a Rules,
    /// `service.key_namespace`.
    pub namespace: &'a str,
    /// The account's plan: what of the price an allowance could cover.
    pub plan: AccountPlan,
    /// Budgets by group: rows of different groups wait apart.
    pub group_limits: &'a GroupLimits,
    /// Which files the manifest may name.
    pub inputs: &'a InputRules,
    /// `output.layout`, which new batches begin with; nothing where no configuration says anything.
    pub layout: Option<&'a Layout>,
    /// How this manifest comes in.
    pub options: IngestOptions,
    /// Where newer catalogs come from before rows are refused for what these do not list; nothing where these are new.
    pub newer_catalog: Option<&'a NewerCatalog<'a>>,
}

impl<'a> IngestContext<'a> {
    /// One of a manifest that comes in with these options, where no configuration says anything.
    pub fn new(catalog: &'a Catalog, rules: &'a Rules, options: IngestOptions) -> IngestContext<'a> {
        IngestContext {
            catalog,
            rules,
            namespace: "",
            plan: AccountPlan::Unknown,
            group_limits: &NO_GROUPS,
            inputs: &NO_FILES,
            layout: None,
            options,
            newer_catalog: None,
        }
    }
}

/// How one manifest comes in.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct IngestOptions {
    /// Overrules the manifest's own name.
    pub batch: Option<BatchName>,
    /// Overrules the manifest's own policy, where it says something.
    pub policy: Policy,
    /// For what neither says: the terms of its inbox or schedule.
    pub default_policy: Policy,
    /// For a batch that nobody sets a budget of its own for: that of the configuration.
    pub default_budget: Option<Credits>,
    /// The batch goes back to its default budget, whatever was set before.
    pub is_default_budget: bool,
    /// The most that a manifest may allow its batch to spend: the budget of its inbox or schedule.
    pub ceiling: Option<Credits>,
    /// Where it comes from.
    pub place: SourcePlace,
    /// The most a job may cost; what costs more, or cannot be priced, is not valid.
    pub max_credits: Option<Credits>,
    /// The file that is meant: another one that took its name meanwhile is not taken in.
    pub expected: Option<Identity>,
    /// The run of a schedule that this is, which fills its placeholders; without one, braces stay as they are.
    pub occasion: Option<ScheduledRun>,
    /// The part of the manifest that is handed in; the rest is not accepted.
    pub selection: RowSelection,
    /// The rows that are done before a person continues; all where there is none.
    pub pilot: Option<PilotRows>,
    /// Values of `meta` that every row has, whatever it says itself.
    pub meta: BTreeMap<String, String>,
    /// The files that its rows name, where they were read by who handed it in.
    pub files: Option<Arc<HandedFiles>>,
    /// What is set in some of its rows.
    pub edits: Option<RowEdits>,
    /// Its rows are rows of its batch, which was so when they were taken from it: what it has beside them is not absent, and
    /// its terms stay.
    pub amends: Option<BatchVersion>,
    /// What it adds: this take of a row of its batch, or nothing of it is accepted.
    pub take: Option<ExpectedTake>,
}

/// The only job that a manifest may add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedTake {
    /// Its row.
    pub fingerprint: Fingerprint,
    /// Which variation of that row.
    pub take: u32,
}

impl IngestOptions {
    /// As the last manifest of the batch came in, but that all its rows must be valid, and that the batch must still be
    /// as it is now.
    pub(super) fn amending(batch: &BatchRecord) -> IngestOptions {
        IngestOptions {
            batch: Some(batch.name.clone()),
            policy: Policy {
                strict: Some(true),
                allow_unknown_options: batch.policy.allow_unknown_options,
                ..Policy::default()
            },
            place: batch.origin.as_ref().map_or(SourcePlace::Socket, |origin| origin.place.clone()),
            amends: Some(BatchVersion::of(batch)),
            ..IngestOptions::default()
        }
    }
}

/// Which rows a batch has, and which versions of them are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchVersion {
    rows: u32,
    versions_bytes: u64,
}

impl BatchVersion {
    /// Of a batch as it is now.
    pub fn of(batch: &BatchRecord) -> BatchVersion {
        BatchVersion { rows: batch.rows, versions_bytes: batch.versions_bytes }
    }
}
