//! Large files: `cargo bench --bench large_files [-- FILES [ROUNDS]]`.
//!
//! Files of 20 MB are downloaded, hashed and made durable, eight at once. The limit is a bare client that syncs each file
//! and hashes nothing; beside it stand one that hashes, too, and what one processor hashes by itself. The order of the
//! runs changes from round to round, and nothing is removed before a round is over: a file system that frees
//! gigabytes is slow meanwhile.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use std::path::Path;
use std::time::Instant;

use sha2::{Digest, Sha256};

use support::bare_client::{self, Sync};
use support::service::Options;
use support::{Service, Usage, callsheet, measure, number, parts, print_ratios, settle, sound_effects};

const IN_FLIGHT: usize = 8;
const SERVED: Options = Options { result_bytes: 20_000_000, image_seconds: 0 };
/// Hashed by themselves, in bytes.
const HASHED: usize = 4_000_000_000;

fn main() {
    if parts() {
        return;
    }
    let (files, rounds) = (number(0, 200), number(1, 3));
    println!("SHA-256 alone: {:.0} MB/s", hash_rate());
    let (mut of_bare, mut of_hashing) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        println!("round {round}");
        let folder = tempfile::tempdir().unwrap();
        let runs: [fn(&Path, usize) -> Usage; 3] = [
            |folder, files| bare(folder, files, Sync::Each),
            |folder, files| bare(folder, files, Sync::EachHashed),
            ours,
        ];
        let mut usages = [None; 3];
        let mut order = [0, 1, 2];
        order.rotate_left(round % 3);
        for which in order {
            settle(folder.path());
            usages[which] = Some(runs[which](folder.path(), files));
        }
        let [each, hashing, ours] = usages.map(|usage| usage.unwrap().rate(files));
        of_bare.push(ours / each);
        of_hashing.push(ours / hashing);
    }
    print_ratios("callsheet / bare client with fsync", &mut of_bare, "0.90");
    print_ratios("callsheet / bare client with fsync that hashes", &mut of_hashing, "none");
}

fn bare(folder: &Path, files: usize, sync: Sync) -> Usage {
    let service = Service::start(SERVED);
    let name = if sync == Sync::Each { "bare" } else { "hashing" };
    bare_client::run(&service.base_url, files, IN_FLIGHT, &folder.join(name), sync)
}

fn ours(folder: &Path, files: usize) -> Usage {
    let service = Service::start(SERVED);
    sound_effects(folder, files);
    let usage = measure(&mut callsheet(folder, &service.base_url, IN_FLIGHT, &["run", "gulls.csv"]));
    assert_eq!(usage.code, 0, "callsheet run failed");
    println!("callsheet: {}, {:.0} MB/s", usage.line(files, "files"), usage.rate(files) * 20.0);
    usage
}

/// MB/s of one processor.
fn hash_rate() -> f64 {
    let piece = vec![7_u8; 64 * 1024];
    let mut hasher = Sha256::new();
    let began = Instant::now();
    for _ in 0..HASHED / piece.len() {
        hasher.update(&piece);
    }
    std::hint::black_box(hasher.finalize());
    HASHED as f64 / 1e6 / began.elapsed().as_secs_f64()
}
