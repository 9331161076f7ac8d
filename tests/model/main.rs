//! A model checker on the transition function, whole histories of the scheduler simulated from a seed, and random lives of
//! a ledger. Nothing here starts a process: between fork and exec a child has its parent's files, and a state that was
//! closed then may still be locked.

mod checker;
mod graph_checker;
mod ledger_restart;
mod life;
mod simulation;

/// Whether all cases are asked for, as `.ci/run` does, and not the few of a plain `cargo test`.
fn takes_every_case() -> bool {
    std::env::var_os("CALLSHEET_EVERY_CASE").is_some_and(|value| !value.is_empty())
}
