//! How much of the machine's own limit the safe program reaches: jobs a second of `callsheet run`
//! against a bare client that does the same exchanges without any safety, in the same run.
//!
//! `cargo bench --bench throughput [-- JOBS]`. Both talk to an emulator in this process, take steps,
//! and keep 16 jobs in flight. Only the ratio means anything.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callsheet_emulator::{self as emulator, DEFAULT_API_KEY, Emulator};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const IN_FLIGHT: usize = 16;
const ROUNDS: usize = 3;

fn main() {
    let jobs: usize = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(2_000);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let dir = tempfile::tempdir().unwrap();
        let options =
            || emulator::Options { speed: f64::INFINITY, credits: 1_000_000_000, ..Default::default() };
        let emulator = runtime.block_on(emulator::start(options())).unwrap();
        let bare = runtime.block_on(bare_client(&emulator, jobs, &dir.path().join("bare")));
        let emulator = runtime.block_on(emulator::start(options())).unwrap();
        let safe = safe_program(&emulator, jobs, dir.path());
        let rate = |span: Duration| jobs as f64 / span.as_secs_f64();
        let ratio = rate(safe) / rate(bare);
        println!(
            "round {round}: bare {:.0} jobs/s, callsheet {:.0} jobs/s, ratio {ratio:.2}",
            rate(bare),
            rate(safe)
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}", ratios[ratios.len() / 2]);
}

/// One POST, one download and one synced file a job; no keys, no state, no checks.
async fn bare_client(emulator: &Emulator, jobs: usize, dir: &Path) -> Duration {
    fs::create_dir_all(dir).unwrap();
    callsheet::api::install_tls_provider();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let slots = Arc::new(Semaphore::new(IN_FLIGHT));
    let (url, dir) = (format!("{}/api/v1/sound-effects", emulator.base_url()), Arc::new(dir.to_owned()));
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..jobs {
        let permit = slots.clone().acquire_owned().await.unwrap();
        let (http, url, dir) = (http.clone(), url.clone(), dir.clone());
        tasks.spawn(async move {
            let body = json!({"prompt": format!("gull {n}"), "options": {"duration_seconds": 0.5}});
            let answer = http.post(url).bearer_auth(DEFAULT_API_KEY).json(&body).send().await.unwrap();
            let answer: Value = answer.json().await.unwrap();
            let result = answer["data"]["taskUrls"][0].as_str().unwrap();
            let bytes = http.get(result).send().await.unwrap().bytes().await.unwrap();
            let write = move || {
                let mut file = fs::File::create(dir.join(format!("{n}.wav"))).unwrap();
                file.write_all(&bytes).unwrap();
                file.sync_data().unwrap();
            };
            tokio::task::spawn_blocking(write).await.unwrap();
            drop(permit);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    began.elapsed()
}

fn safe_program(emulator: &Emulator, jobs: usize, dir: &Path) -> Duration {
    let mut manifest = fs::File::create(dir.join("gulls.csv")).unwrap();
    writeln!(manifest, "id,kind,prompt,duration_seconds").unwrap();
    for n in 0..jobs {
        writeln!(manifest, "gull-{n},sound-effect,gull {n},0.5").unwrap();
    }
    let began = Instant::now();
    let run = Command::new(env!("CARGO_BIN_EXE_callsheet"))
        .args(["run", "gulls.csv", "--base-url", &emulator.base_url()])
        .env("CALLSHEET_API_KEY", DEFAULT_API_KEY)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    began.elapsed()
}
