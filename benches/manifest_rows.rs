//! A million rows: `cargo bench --bench manifest_rows [-- ROWS [ROUNDS]]`.
//!
//! A manifest is read, judged, priced, keyed and made durable; its budget is 0, so nothing is sent. The limit reads the
//! same file with the csv crate, hashes every row with SHA-256 and appends it to one file that is synced at the end.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use support::service::Options;
use support::{Service, callsheet, measure, median, number, part, parts};

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--copy") {
        return copy(Path::new(&arguments.next().unwrap()));
    }
    if parts() {
        return;
    }
    let (rows, rounds) = (number(0, 1_000_000), number(1, 1));
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("million.csv");
        write_manifest(&manifest, rows);
        let size = fs::metadata(&manifest).unwrap().len();
        println!("manifest: {rows} rows, {} MB", size / 1_000_000);
        let limit = measure(&mut part("--copy", &[manifest.to_str().unwrap().to_owned()]));
        println!("csv, SHA-256, append, sync: {:.2} s, {:.0} MiB", limit.wall.as_secs_f64(), limit.peak_mib);
        let service = Service::start(Options { result_bytes: 1_000, image_seconds: 0 });
        let run = ["run", "million.csv", "--budget", "0"];
        let usage = measure(&mut callsheet(folder.path(), &service.base_url, 16, &run));
        assert_eq!(usage.code, 4, "parked by its budget");
        println!(
            "callsheet: {:.2} s ({:.2} CPU s), {:.0} MiB; state {:.2} times the manifest",
            usage.wall.as_secs_f64(),
            usage.cpu_seconds,
            usage.peak_mib,
            bytes_below(&folder.path().join("state")) as f64 / size as f64
        );
        ratios.push(usage.wall.as_secs_f64() / limit.wall.as_secs_f64());
    }
    println!(
        "callsheet / limit: {:.1} times as long (goal: 4 s where the limit takes 0.53 s, which is 7.5)",
        median(ratios)
    );
}

/// Rows of some 157 bytes.
fn write_manifest(path: &Path, rows: usize) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    writeln!(file, "id,kind,model,prompt,duration,meta.sku,meta.client").unwrap();
    for n in 0..rows {
        writeln!(
            file,
            "row-{n},video,house-c1,\"Paper boat {n} sails down a rainy street, seen from above, between tall houses, \
             in the evening light\",5s,SKU-{n},north-harbour"
        )
        .unwrap();
    }
}

/// The part `--copy`.
fn copy(manifest: &Path) {
    let mut reader = csv::Reader::from_path(manifest).unwrap();
    let mut out = BufWriter::new(File::create(manifest.with_extension("copy")).unwrap());
    let mut row = csv::ByteRecord::new();
    while reader.read_byte_record(&mut row).unwrap() {
        out.write_all(&Sha256::digest(row.as_slice())).unwrap();
        out.write_all(row.as_slice()).unwrap();
    }
    out.into_inner().unwrap().sync_all().unwrap();
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let size = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        metadata if metadata.is_dir() => bytes_below(&entry.path()),
        metadata => metadata.len(),
    };
    entries.map(size).sum()
}
