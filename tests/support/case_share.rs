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
    let mut share = Share::from(first);
    cases.into_iter().filter(move |_| share.takes_next())
}

/// The same for cases that come one after the other.
pub struct Share {
    /// Cases that are passed over before the next is taken.
    passed_over: usize,
}

impl Share {
    pub fn from(first: usize) -> Share {
        Share { passed_over: first % one_of() }
    }

    pub fn takes_next(&mut self) -> bool {
        let is_taken = self.passed_over == 0;
        self.passed_over = if is_taken { one_of() - 1 } else { self.passed_over - 1 };
        is_taken
    }
}
