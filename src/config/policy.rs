//! `policy` of an inbox or a schedule: terms of manifests that give none of their own.

use serde::{Deserialize, Deserializer};

use super::suggest::with_suggestion;
use crate::domain::manifest::read_policy;
use crate::domain::manifest::row::Policy;
use crate::output::file_names::Layout;

/// Terms, all of them valid.
pub(super) fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
    let terms = serde_json::Map::deserialize(deserializer)?;
    let policy = read_policy(terms).map_err(|problems| {
        let said: Vec<String> = problems.iter().map(|problem| with_suggestion("", problem)).collect();
        serde::de::Error::custom(said.join("; "))
    })?;
    let layout = policy.layout.as_deref().map(Layout::parse).transpose();
    layout.map_err(|error| serde::de::Error::custom(format!("policy.layout: {error}")))?;
    Ok(policy)
}
