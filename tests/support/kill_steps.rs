//! Which of the steps of `callsheet::failpoint` a test kills at. A plain `cargo test` takes a fourth of them, and
//! `CALLSHEET_KILL_STEPS=all`, which `.ci/run` sets, takes all. `faults::crash` kills one client at every step in turn,
//! either way.

/// A plain `cargo test` takes one of so many steps.
const ONE_OF: usize = 4;

/// The steps of this run. Tests of the same steps that begin at different ones take different ones.
pub fn of_this_run<T>(steps: impl IntoIterator<Item = T>, first: usize) -> impl Iterator<Item = T> {
    let takes_all = match std::env::var("CALLSHEET_KILL_STEPS") {
        Ok(asked) if asked == "all" => true,
        Ok(asked) => panic!("CALLSHEET_KILL_STEPS={asked}, expected `all`"),
        Err(_) => false,
    };
    let is_taken = move |index: usize| takes_all || index % ONE_OF == first % ONE_OF;
    steps.into_iter().enumerate().filter(move |(index, _)| is_taken(*index)).map(|(_, step)| step)
}
