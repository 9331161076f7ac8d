//! Manifests that a test takes in by itself, without the program.

use callsheet::domain::batch_origin::SourcePlace;
use callsheet::domain::manifest::row::Policy;
use callsheet::domain::quote::{AccountPlan, Catalog, Rules};
use callsheet::intake::Terms;

/// Nothing that a person could have asked for.
pub fn plain_terms<'a>(catalog: &'a Catalog, rules: &'a Rules) -> Terms<'a> {
    Terms {
        catalog,
        rules,
        namespace: "",
        batch: None,
        policy: Policy::default(),
        default_policy: Policy::default(),
        is_default_budget: false,
        ceiling: None,
        place: SourcePlace::Socket,
        max_credits: None,
        plan: AccountPlan::Unknown,
        occasion: None,
    }
}
