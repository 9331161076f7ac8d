//! A client without state, prices or checks: the limit that the machine sets.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{Usage, measure, part};

/// How its files reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Each by its own `fsync`.
    Each,
    /// The same, and its SHA-256 is computed from what comes in.
    EachHashed,
    /// All that wait share one `syncfs`.
    Groups,
    /// Whenever the kernel likes.
    Nothing,
}

impl Sync {
    fn name(self) -> &'static str {
        match self {
            Sync::Each => "each",
            Sync::EachHashed => "each-hashed",
            Sync::Groups => "groups",
            Sync::Nothing => "nothing",
        }
    }
}

/// Measures it: so many sound effects of a service, so many in flight, into a folder.
pub fn run(base_url: &str, jobs: usize, in_flight: usize, folder: &Path, sync: Sync) -> Usage {
    fs::create_dir(folder).unwrap();
    let folder = folder.to_str().unwrap().to_owned();
    let arguments =
        [base_url.to_owned(), jobs.to_string(), in_flight.to_string(), folder, sync.name().to_owned()];
    let usage = measure(&mut part("--bare", &arguments));
    assert_eq!(usage.code, 0, "the bare client failed");
    println!("bare client, {} synced: {}", sync.name(), usage.line(jobs, "jobs"));
    usage
}

/// The part `--bare`.
pub fn begin(arguments: &[String]) {
    let [base_url, jobs, in_flight, folder, sync] = arguments else { unreachable!("as `run` passes them") };
    let sync = [Sync::Each, Sync::EachHashed, Sync::Groups, Sync::Nothing]
        .into_iter()
        .find(|one| one.name() == sync)
        .unwrap();
    let (jobs, in_flight) = (jobs.parse().unwrap(), in_flight.parse().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(client(base_url, jobs, in_flight, Path::new(folder), sync));
}

/// One POST, one download, one file a job: written under another name, synced as asked, renamed.
async fn client(base_url: &str, jobs: usize, in_flight: usize, folder: &Path, sync: Sync) {
    callsheet::api::install_tls_provider();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let slots = Arc::new(Semaphore::new(in_flight));
    let folder: Arc<PathBuf> = Arc::new(folder.to_owned());
    let syncs = grouped_syncs(&folder, in_flight);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..jobs {
        let permit = slots.clone().acquire_owned().await.unwrap();
        let (http, url) = (http.clone(), format!("{base_url}/api/v1/sound-effects"));
        let (folder, syncs) = (folder.clone(), syncs.clone());
        tasks.spawn(async move {
            let body = json!({"prompt": format!("gull {n}"), "options": {"duration_seconds": 0.5}});
            let request = http.post(url).header("Idempotency-Key", n.to_string()).json(&body);
            let answer: Value = request.send().await.unwrap().json().await.unwrap();
            let result = answer["data"]["taskUrls"][0].as_str().unwrap();
            let (part, whole) = (folder.join(format!("{n}.part")), folder.join(format!("{n}.wav")));
            let mut chunks = http.get(result).send().await.unwrap().bytes_stream();
            let mut file = File::create(&part).unwrap();
            let mut hasher = Sha256::new();
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk.unwrap();
                if sync == Sync::EachHashed {
                    hasher.update(&chunk);
                }
                file.write_all(&chunk).unwrap();
            }
            std::hint::black_box(hasher.finalize());
            match sync {
                Sync::Each | Sync::EachHashed => {
                    tokio::task::spawn_blocking(move || file.sync_data().unwrap()).await.unwrap();
                }
                Sync::Groups => {
                    let (done, is_durable) = oneshot::channel();
                    syncs.send(done).await.unwrap();
                    is_durable.await.unwrap();
                }
                Sync::Nothing => {}
            }
            fs::rename(part, whole).unwrap();
            drop(permit);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

/// Whoever asks while one sync runs shares the next.
fn grouped_syncs(folder: &Path, in_flight: usize) -> mpsc::Sender<oneshot::Sender<()>> {
    let (send, mut receive) = mpsc::channel::<oneshot::Sender<()>>(in_flight);
    let folder = File::open(folder).unwrap();
    std::thread::spawn(move || {
        while let Some(first) = receive.blocking_recv() {
            let mut group = vec![first];
            while let Ok(next) = receive.try_recv() {
                group.push(next);
            }
            rustix::fs::syncfs(&folder).unwrap();
            for done in group {
                let _ = done.send(());
            }
        }
    });
    send
}
