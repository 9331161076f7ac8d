//! Which cases of many that differ little a test takes, such as the steps of `callsheet::failpoint` that it kills at. A
//! plain `cargo test` takes a fourth of them; with `CALLSHEET_EVERY_CASE=1`, which `.ci/run` sets, all. One test of
//! `faults::crash` kills its client at every step in turn, either way.

/// One of how many cases this run takes.
pub fn one_of() -> usize {
    let takes_every_case = std::env::var_os("CALLSHEET_EVERY_CASE").is_some_and(|value| !value.is_empty());
    if takes_every_case { 1 } else { 4 }
}

/// The cases of this run: every fourth from `first` on. Tests of the same cases begin at different ones, so that together they
/// take more of them.
pub fn of_this_run<T>(cases: impl IntoIterator<Item = T>, first: usize) -> impl Iterator<Item = T> {
    let one_of = one_of();
    let is_taken = move |index: usize| index % one_of == first % one_of;
    cases.into_iter().enumerate().filter(move |(index, _)| is_taken(*index)).map(|(_, case)| case)
}
