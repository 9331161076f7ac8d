//! A million rows: how fast and in how much memory a manifest is accepted, against reading the same
//! file with the csv crate alone, in the same run.
//!
//! `cargo bench --bench million [-- ROWS]`. The budget is 0, so nothing is sent: what is measured is
//! reading, judging, pricing, spooling, and writing the results of a batch that is all queued.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

fn main() {
    let rows: usize = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(1_000_000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("million.csv");
    write_manifest(&path, rows);
    let began = Instant::now();
    let read = csv::Reader::from_path(&path).unwrap().into_byte_records().filter(|row| row.is_ok()).count();
    let bare = began.elapsed();
    assert_eq!(read, rows);
    let began = Instant::now();
    let mut run = Command::new(env!("CARGO_BIN_EXE_callsheet"))
        .args(["run", "million.csv", "--emulator", "--budget", "0"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak_kib = 0;
    let status = loop {
        peak_kib = peak_kib.max(peak_memory_kib(run.id()).unwrap_or_default());
        if let Some(status) = run.try_wait().unwrap() {
            break status;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    };
    let safe = began.elapsed();
    assert_eq!(status.code(), Some(4), "parked by its budget");
    println!(
        "{rows} rows: csv alone {:.1} s, accepted and reported {:.1} s, ratio {:.0}",
        bare.as_secs_f64(),
        safe.as_secs_f64(),
        safe.as_secs_f64() / bare.as_secs_f64()
    );
    println!("peak memory {:.0} MiB", f64::from(peak_kib) / 1024.0);
}

fn write_manifest(path: &Path, rows: usize) {
    let mut file = BufWriter::new(fs::File::create(path).unwrap());
    writeln!(file, "id,kind,model,prompt,duration,meta.sku").unwrap();
    for n in 0..rows {
        writeln!(
            file,
            "row-{n},video,house-c1,\"Paper boat {n} sails down a rainy street, seen from above\",5s,SKU-{n}"
        )
        .unwrap();
    }
}

/// The high-water mark of a process's resident memory.
fn peak_memory_kib(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}
