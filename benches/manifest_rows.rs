//! A million rows: `cargo bench --bench manifest_rows [-- ROWS [ROUNDS]]`; how it grows from a thousand rows on:
//! `cargo bench --bench manifest_rows -- growth [ROWS]`, which draws `benches/manifest_growth.svg`.
//!
//! A manifest is read, validated, priced, keyed and made durable; its budget is 0, so nothing is sent. Then the run writes
//! the results of all rows, which is told apart. The limit reads the same file with the csv crate, hashes every row with
//! SHA-256 and appends it to one file that is synced at the end.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use support::service::Options;
use support::{Service, Usage, callsheet, measure, number, part, parts, plot, print_ratios, settle};

/// Between two looks for a file.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--copy") {
        return copy(Path::new(&arguments.next().unwrap()));
    }
    if parts() {
        return;
    }
    if std::env::args().any(|argument| argument == "growth") {
        return growth(number(0, 1_000_000));
    }
    let (rows, rounds) = (number(0, 1_000_000), number(1, 1));
    let mut ratios: Vec<f64> = (0..rounds)
        .map(|_| {
            let Figures { limit, durable, .. } = run(rows);
            durable.as_secs_f64() / limit.wall.as_secs_f64()
        })
        .collect();
    let goal = "4 s where the limit takes 0.53 s, which is 7.5";
    print_ratios("until it is durable, callsheet / limit", &mut ratios, goal);
}

struct Figures {
    limit: Usage,
    /// All of the run, with the results.
    whole: Usage,
    /// From the start of the process until its jobs are accepted.
    durable: Duration,
}

fn run(rows: usize) -> Figures {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("million.csv");
    write_manifest(&manifest, rows);
    let size = fs::metadata(&manifest).unwrap().len();
    println!("manifest: {rows} rows, {:.1} MB", size as f64 / 1e6);
    settle(folder.path());
    let limit = measure(&mut part("--copy", &[manifest.to_str().unwrap().to_owned()]));
    println!("csv, SHA-256, append, sync: {:.3} s, {:.0} MiB", limit.wall.as_secs_f64(), limit.peak_mib);
    let service = Service::start(Options { result_bytes: 1_000, image_seconds: 0 });
    settle(folder.path());
    let arguments = ["run", "million.csv", "--budget", "0"];
    let mut command = callsheet(folder.path(), &service.base_url, 16, &arguments);
    // It is written right before the commit.
    let durable = appears(folder.path().join("state/spool/000001/batch.json"));
    let whole = measure(&mut command);
    assert_eq!(whole.code, 4, "parked by its budget");
    let durable = durable.join().unwrap();
    println!(
        "callsheet: durable after {:.3} s, all with results {:.3} s ({:.2} CPU s), {:.0} MiB; state {:.2} times the \
         manifest",
        durable.as_secs_f64(),
        whole.wall.as_secs_f64(),
        whole.cpu_seconds,
        whole.peak_mib,
        bytes_below(&folder.path().join("state")) as f64 / size as f64
    );
    Figures { limit, whole, durable }
}

/// How long it takes until there is a file.
fn appears(path: PathBuf) -> JoinHandle<Duration> {
    let began = Instant::now();
    std::thread::spawn(move || {
        while !path.exists() {
            std::thread::park_timeout(LOOK_INTERVAL);
        }
        began.elapsed()
    })
}

/// Ten times as many rows each time.
fn growth(most: usize) {
    let sizes: Vec<usize> = (3..).map(|power| 10_usize.pow(power)).take_while(|rows| *rows <= most).collect();
    let figures: Vec<(usize, Figures)> = sizes.into_iter().map(|rows| (rows, run(rows))).collect();
    let line = |of: fn(&Figures) -> f64| -> Vec<(f64, f64)> {
        figures.iter().map(|(rows, figures)| (*rows as f64, of(figures))).collect()
    };
    let lines = [
        ("csv, SHA-256, append, sync", line(|figures| figures.limit.wall.as_secs_f64())),
        ("callsheet, until durable", line(|figures| figures.durable.as_secs_f64())),
        ("callsheet, processor time with results", line(|figures| figures.whole.cpu_seconds)),
    ];
    fs::write("benches/manifest_growth.svg", plot::log_log("rows", "seconds", &lines)).unwrap();
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
