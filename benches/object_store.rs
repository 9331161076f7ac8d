//! Outputs into an object store: `cargo bench --bench object_store [-- LARGE [SMALL [ROUNDS]]]`.
//!
//! Files of 20 MB, then small ones, lie on disk and are brought into a store that answers at once. The limit is a bare
//! client that sends each file by one request, signs nothing and hashes nothing. Beside it stands Amazon's own command line
//! client, where `aws` is installed. `callsheet outputs sync` looks whether each object is there, hashes what it sends,
//! signs it, and has it confirmed.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use support::service::Options;
use support::{
    RunFolders, Service, StoreServer, Usage, callsheet, measure, number, part, parts, print_ratios, settle,
    sound_effects,
};

/// Files under way at once: as many requests as Amazon's client has.
const UPLOADS: usize = 10;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--upload") {
        return upload_all(&arguments.collect::<Vec<_>>());
    }
    if parts() {
        return;
    }
    let (large, small, rounds) = (number(0, 200), number(1, 10_000), number(2, 3));
    let mut folders = RunFolders::new();
    compare("files of 20 MB", large, 20_000_000, rounds, &folders.next());
    compare("files of 10 KB", small, 10_000, rounds, &folders.next());
}

/// Makes so many outputs on disk, and brings them into the store by each client, in changing order.
fn compare(name: &str, jobs: usize, result_bytes: usize, rounds: usize, folder: &Path) {
    println!("{jobs} {name}, each with its sidecar");
    make_outputs(folder, jobs, result_bytes);
    let has_aws =
        Command::new("aws").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    let clients: [fn(&Path) -> Usage; 3] = [bare, ours, amazons];
    let names = ["bare client", "callsheet", "aws s3 cp"];
    let (mut of_bare, mut of_amazons) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut rates = [None; 3];
        let mut order = [0, 1, 2];
        order.rotate_left(round % 3);
        for which in order.into_iter().filter(|which| *which < 2 || has_aws) {
            let usage = clients[which](folder);
            assert_eq!(usage.code, 0, "{} failed", names[which]);
            let megabytes = usage.rate(jobs) * result_bytes as f64 / 1e6;
            println!("{}: {}, {megabytes:.0} MB/s", names[which], usage.line(jobs, "outputs"));
            rates[which] = Some(usage.rate(jobs));
        }
        let ours = rates[1].unwrap();
        of_bare.push(ours / rates[0].unwrap());
        of_amazons.extend(rates[2].map(|rate| ours / rate));
    }
    print_ratios(&format!("{name}: callsheet / bare client"), &mut of_bare, "none");
    if of_amazons.is_empty() {
        println!("`aws` is not installed: pip install awscli");
    } else {
        print_ratios(&format!("{name}: callsheet / aws s3 cp"), &mut of_amazons, "1.00");
    }
}

fn make_outputs(folder: &Path, jobs: usize, result_bytes: usize) {
    let service = Service::start(Options { result_bytes, image_seconds: 0 });
    sound_effects(folder, jobs);
    let run = measure(&mut callsheet(folder, &service.base_url, 64, &["run", "gulls.csv"]));
    assert_eq!(run.code, 0, "callsheet run failed");
    settle(folder);
}

fn ours(folder: &Path) -> Usage {
    let store = StoreServer::start();
    // As no output was ever put into a store.
    let (state, before) = (folder.join("state"), folder.join("state-before"));
    if before.exists() {
        fs::remove_dir_all(&state).unwrap();
        copy(&before, &state);
    } else {
        copy(&state, &before);
    }
    // The service is not asked.
    let mut command = callsheet(folder, "http://127.0.0.1:1", 64, &["outputs", "sync", "gulls"]);
    let configuration = folder.join("callsheet.toml");
    let text = fs::read_to_string(&configuration).unwrap();
    let uploads = format!("uploads = {UPLOADS}\n[output]\nstore = \"s3://media/out\"\n");
    fs::write(configuration, text + &uploads).unwrap();
    measure(store.give_to(&mut command))
}

fn amazons(folder: &Path) -> Usage {
    let store = StoreServer::start();
    let mut command = Command::new("aws");
    let source = folder.join("output/gulls");
    command.args(["s3", "cp", "--recursive", "--only-show-errors"]).arg(source).arg("s3://media/out/gulls");
    measure(store.give_to(&mut command))
}

fn bare(folder: &Path) -> Usage {
    let store = StoreServer::start();
    let source = folder.join("output/gulls").to_str().unwrap().to_owned();
    measure(&mut part("--upload", &[store.base_url.clone(), source]))
}

/// The part `--upload`: each file of a folder by one request.
fn upload_all(arguments: &[String]) {
    let [base_url, folder] = arguments else { unreachable!("as `bare` passes them") };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        callsheet::api::install_tls_provider();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let slots = Arc::new(Semaphore::new(UPLOADS));
        let mut tasks = JoinSet::new();
        for path in files(Path::new(folder)) {
            let permit = slots.clone().acquire_owned().await.unwrap();
            let (http, name) =
                (http.clone(), path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            let url = format!("{base_url}/media/out/gulls/{name}");
            tasks.spawn(async move {
                let content = tokio::fs::read(path).await.unwrap();
                http.put(url).body(content).send().await.unwrap().error_for_status().unwrap();
                drop(permit);
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    });
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
    settle(to);
}

/// Outputs and sidecars; nothing of the batch as a whole.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let all = entries(folder).chain(entries(&folder.join("sidecars")));
    all.filter(|path| path.extension().is_some_and(|ext| ext == "wav" || ext == "json") && path.is_file())
        .collect()
}
