//! Prices, budgets, idempotency keys, and the accounts on both sides.

mod accepted_rows;
mod account;
mod accounting;
mod charge_drift;
mod frozen_keys;
mod group_budgets;
mod price_table;
mod prices_in_force;
mod racing_budgets;
