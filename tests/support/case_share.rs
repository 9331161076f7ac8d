//! Which cases of many that differ little a test takes, such as the steps of `callsheet::failpoint` that it kills at. A
//! plain `cargo test` takes a fourth of them; with `CALLSHEET_EVERY_CASE=1`, which `.ci/run` sets, all. One test of
//! `faults::crash` kills its client at every step in turn, either way.

/// A plain `cargo test` takes one of so many cases.
const ONE_OF: usize = 4;

/// Whether all cases are asked for.
fn takes_every_case() -> bool {
    std::env::var_os("CALLSHEET_EVERY_CASE").is_some_and(|value| !value.is_empty())
}

/// The cases of this run: every fourth from `first` on. Tests of the same cases begin at different ones, so that together they
/// take more of them.
pub fn of_this_run<T>(cases: impl IntoIterator<Item = T>, first: usize) -> impl Iterator<Item = T> {
    let takes_all = takes_every_case();
    let is_taken = move |index: usize| takes_all || index % ONE_OF == first % ONE_OF;
    cases.into_iter().enumerate().filter(move |(index, _)| is_taken(*index)).map(|(_, case)| case)
}
