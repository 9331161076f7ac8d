//! The `callsheet` program.

use callsheet::cli;

fn main() -> cli::Exit {
    // A half-dead process that holds credits is worse than one that restarts and resumes.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| cli::abort_after(|| report(panic))));
    cli::main()
}
