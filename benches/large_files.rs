//! Large files: `cargo bench --bench large_files [-- FILES [ROUNDS]]`.
//!
//! Files of 20 MB are downloaded, hashed and made durable, eight at once. The limit is a bare client that syncs each file
//! and hashes nothing.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use support::bare_client::{self, Sync};
use support::service::Options;
use support::{Service, callsheet, measure, median, number, parts, sound_effects};

const IN_FLIGHT: usize = 8;
const SERVED: Options = Options { result_bytes: 20_000_000, image_seconds: 0 };

fn main() {
    if parts() {
        return;
    }
    let (files, rounds) = (number(0, 200), number(1, 3));
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        println!("round {round}");
        let folder = tempfile::tempdir().unwrap();
        let service = Service::start(SERVED);
        let bare =
            bare_client::run(&service.base_url, files, IN_FLIGHT, &folder.path().join("bare"), Sync::Each);
        std::fs::remove_dir_all(folder.path().join("bare")).unwrap();
        sound_effects(folder.path(), files);
        let usage =
            measure(&mut callsheet(folder.path(), &service.base_url, IN_FLIGHT, &["run", "gulls.csv"]));
        assert_eq!(usage.code, 0, "callsheet run failed");
        println!("callsheet: {}, {:.0} MB/s", usage.line(files, "files"), usage.rate(files) * 20.0);
        ratios.push(usage.rate(files) / bare.rate(files));
    }
    println!("callsheet / bare client with fsync: {:.2} (goal 0.90)", median(ratios));
}
