//! What every benchmark needs: a service that answers at once, and the processor time and memory of a process.
//!
//! A benchmark starts itself again for its parts ([`parts`]): the service (`--serve`), an object store (`--store`), and whatever it measures beside the
//! program. So nothing that is measured shares a process with anything else.

// Each benchmark uses a part of it.
#![allow(dead_code)]

pub mod bare_client;
pub mod plot;
pub mod service;
pub mod store_server;

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use tempfile::TempDir;

/// Between two looks at the memory of a process.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// Ticks of `/proc/PID/stat` in a second, on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a process took.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub wall: Duration,
    /// Of the processor, in user and kernel mode.
    pub cpu_seconds: f64,
    pub peak_mib: f64,
    /// Its exit code.
    pub code: i32,
}

impl Usage {
    /// Things a second.
    pub fn rate(&self, things: usize) -> f64 {
        things as f64 / self.wall.as_secs_f64()
    }

    /// `1360 jobs/s, 1.20 CPU s per 1,000, 74 MiB`
    pub fn line(&self, things: usize, name: &str) -> String {
        format!(
            "{:.0} {name}/s, {:.2} CPU s per 1,000, {:.0} MiB",
            self.rate(things),
            self.cpu_seconds * 1_000.0 / things as f64,
            self.peak_mib
        )
    }
}

/// Runs a command to its end.
pub fn measure(command: &mut Command) -> Usage {
    let before = children_ticks();
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    let mut peak_kib: f64 = 0.0;
    let code = loop {
        peak_kib = peak_kib.max(peak_memory_kib(child.id()).unwrap_or_default());
        if let Some(status) = child.try_wait().unwrap() {
            break status.code().unwrap_or(-1);
        }
        std::thread::park_timeout(SAMPLE_INTERVAL);
    };
    let wall = began.elapsed();
    let cpu_seconds = (children_ticks() - before) / TICKS_PER_SECOND;
    Usage { wall, cpu_seconds, peak_mib: peak_kib / 1024.0, code }
}

/// This benchmark once more, as one of its parts.
pub fn part(name: &str, arguments: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(name).args(arguments);
    command
}

/// Whether this process is a part, which has then done its work.
pub fn parts() -> bool {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("--serve") => service::serve(&arguments.collect::<Vec<_>>()),
        Some("--store") => store_server::serve(),
        Some("--bare") => bare_client::begin(&arguments.collect::<Vec<_>>()),
        _ => return false,
    }
    true
}

/// Writes a manifest of so many sound effects: `gulls.csv`.
pub fn sound_effects(folder: &Path, jobs: usize) {
    sound_effects_in(&folder.join("gulls.csv"), jobs);
}

/// The same in a manifest called otherwise.
pub fn sound_effects_in(manifest: &Path, jobs: usize) {
    let mut manifest = BufWriter::new(File::create(manifest).unwrap());
    writeln!(manifest, "id,kind,prompt,duration_seconds").unwrap();
    for n in 0..jobs {
        writeln!(manifest, "gull-{n},sound-effect,gull {n},0.5").unwrap();
    }
}

/// The numbers that were given, without what cargo adds.
pub fn number(place: usize, default: usize) -> usize {
    std::env::args().skip(1).filter_map(|text| text.parse().ok()).nth(place).unwrap_or(default)
}

/// A service in a process of its own, which ends with this value.
pub struct Service {
    process: Child,
    pub base_url: String,
}

impl Service {
    pub fn start(options: service::Options) -> Service {
        let (process, base_url) = start_server(&mut part("--serve", &options.arguments()));
        Service { process, base_url }
    }

    /// Requests for tasks so far.
    pub fn posts(&self) -> u64 {
        let mut stream = TcpStream::connect(self.base_url.trim_start_matches("http://")).unwrap();
        stream.write_all(b"GET /posts HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            answer.read_line(&mut line).unwrap();
        }
        let mut digits = [0; service::COUNT_DIGITS];
        answer.read_exact(&mut digits).unwrap();
        String::from_utf8_lossy(&digits).parse().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a server that prints its address first, and returns that as a URL.
fn start_server(command: &mut Command) -> (Child, String) {
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (process, format!("http://{}", line.trim()))
}

/// An object store in a process of its own, which ends with this value.
pub struct StoreServer {
    process: Child,
    pub base_url: String,
}

impl StoreServer {
    pub fn start() -> StoreServer {
        let (process, base_url) = start_server(&mut part("--store", &[]));
        StoreServer { process, base_url }
    }

    /// Says to a client where it is, as every client of such a store takes it.
    pub fn give_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("AWS_ACCESS_KEY_ID", "benchmark")
            .env("AWS_SECRET_ACCESS_KEY", "benchmark")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", &self.base_url)
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `callsheet` with a configuration that lets it work at full speed, in `folder`.
pub fn callsheet(folder: &Path, base_url: &str, in_flight: usize, arguments: &[&str]) -> Command {
    let configuration = format!(
        "[service]\nbase_url = \"{base_url}\"\n[limits]\nin_flight = {in_flight}\ndownloads = {}\nadaptive = false\n",
        in_flight.min(64)
    );
    std::fs::write(folder.join("callsheet.toml"), configuration).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_callsheet"));
    command.args(["--config", "callsheet.toml"]).args(arguments).current_dir(folder);
    command.env("CALLSHEET_API_KEY", "benchmark").stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Waits until the file system of a folder has written what waits, so that one run does not pay for another.
pub fn settle(folder: &Path) {
    rustix::fs::syncfs(File::open(folder).unwrap()).unwrap();
}

/// Folders of runs that are compared with each other: each run has its own, and nothing is removed before the last is over.
///
/// ext4 without a journal gives no number of a file that was removed in the last minutes to a new one, and looks at each of
/// them again for every file that is made nearby: after ten thousand files were removed, making as many took twelve times
/// the processor time (measured). So each folder lies in a group of its own, as those at the top of a file system do.
pub struct RunFolders {
    base: TempDir,
    made: usize,
}

impl RunFolders {
    pub fn new() -> RunFolders {
        let base = tempfile::tempdir().unwrap();
        let folder = File::open(base.path()).unwrap();
        // Other file systems have no such groups.
        if let Ok(flags) = ioctl_getflags(&folder) {
            let _ = ioctl_setflags(&folder, flags | IFlags::TOPDIR);
        }
        RunFolders { base, made: 0 }
    }

    /// An empty one. What waits to be written is written on return, so that one run does not pay for another.
    pub fn next(&mut self) -> PathBuf {
        self.made += 1;
        let folder = self.base.path().join(format!("run-{}", self.made));
        std::fs::create_dir(&folder).unwrap();
        settle(&folder);
        folder
    }
}

/// `NAME: 0.81 (0.78 to 0.90 in 3 rounds; goal 0.90)`
pub fn print_ratios(name: &str, ratios: &mut [f64], goal: &str) {
    ratios.sort_by(f64::total_cmp);
    let (middle, rounds) = (ratios.len() / 2, ratios.len());
    let [least, .., most] = &*ratios else {
        return println!("{name}: {:.2} (one round; goal {goal})", ratios[0]);
    };
    println!("{name}: {:.2} ({least:.2} to {most:.2} in {rounds} rounds; goal {goal})", ratios[middle]);
}

/// The middle one, of an odd number of values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The high-water mark of a process's resident memory, in MiB; 0 where it is gone.
pub fn peak_mib(pid: u32) -> f64 {
    peak_memory_kib(pid).unwrap_or_default() / 1024.0
}

fn peak_memory_kib(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Processor time of all children that were waited for, in ticks.
fn children_ticks() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // cutime and cstime are the fields 16 and 17; the name is the second.
    fields[13].parse::<f64>().unwrap() + fields[14].parse::<f64>().unwrap()
}
