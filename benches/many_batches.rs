//! Many small batches at once: `cargo bench --bench many_batches [-- BATCHES [ROWS [ROUNDS]]]`.
//!
//! Sound effects of 10 KB, 64 in flight: a run of one manifest with all rows, and one of as many manifests as there are
//! batches, with so many rows each, in turn. What a batch costs beside its files (a receipt of its plan, results, report,
//! gallery) does not grow with how many there are: a second run has four times as many.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use support::service::Options;
use support::{
    RunFolders, Service, Usage, callsheet, measure, number, parts, print_ratios, sound_effects_in,
};

const IN_FLIGHT: usize = 64;
const SERVED: Options = Options { result_bytes: 10_000, image_seconds: 0 };

fn main() {
    if parts() {
        return;
    }
    let (batches, rows, rounds) = (number(0, 1_000), number(1, 6), number(2, 3));
    let mut folders = RunFolders::new();
    let (mut of_one, mut growth) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        println!("round {round}");
        let one = run(&mut folders, 1, batches * rows);
        let few = run(&mut folders, batches, rows);
        let many = run(&mut folders, 4 * batches, rows);
        of_one.push(few.rate(batches) / one.rate(batches));
        growth.push(many.cpu_seconds / (4.0 * few.cpu_seconds));
    }
    print_ratios("rate with many batches / with one", &mut of_one, "none");
    print_ratios("processor time of a batch among four times as many", &mut growth, "1.1");
}

fn run(folders: &mut RunFolders, batches: usize, rows: usize) -> Usage {
    let folder = folders.next();
    let service = Service::start(SERVED);
    let names: Vec<String> = (0..batches).map(|batch| format!("gulls-{batch}.csv")).collect();
    names.iter().for_each(|name| sound_effects_in(&folder.join(name), rows));
    let arguments: Vec<&str> = ["run"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let usage = measure(&mut callsheet(&folder, &service.base_url, IN_FLIGHT, &arguments));
    assert_eq!(usage.code, 0, "callsheet run failed");
    println!("{batches} batches of {rows}: {}", usage.line(batches * rows, "jobs"));
    usage
}
