//! Many tasks at once: `cargo bench --bench images_in_flight [-- TASKS]`; how it grows from ten tasks on:
//! `cargo bench --bench images_in_flight -- growth [TASKS]`, which draws `benches/in_flight_growth.svg`.
//!
//! Images that render for 20 s are all submitted at once, polled every 5 s and downloaded. The limit is a bare client
//! that does the same for each in a task of its own.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use support::service::Options;
use support::{Service, Usage, callsheet, measure, number, part, parts, plot};

const SERVED: Options = Options { result_bytes: 10_000, image_seconds: 20 };
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Requests of the bare client at once.
const EXCHANGES: usize = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, base_url, tasks, folder] = &arguments[..]
        && name == "--bare-images"
    {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(bare_client(base_url, tasks.parse().unwrap(), Path::new(folder)));
    }
    if parts() {
        return;
    }
    if std::env::args().any(|argument| argument == "growth") {
        return growth(number(0, 100_000));
    }
    let Figures { bare, ours } = run(number(0, 5_000));
    let ratio = ours.wall.as_secs_f64() / bare.wall.as_secs_f64();
    println!("callsheet / bare client: {ratio:.2} times as long (goal 1.05)");
}

struct Figures {
    bare: Usage,
    ours: Usage,
}

fn run(tasks: usize) -> Figures {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(SERVED);
    let output = folder.path().join("bare");
    std::fs::create_dir(&output).unwrap();
    let arguments = [service.base_url.clone(), tasks.to_string(), output.to_str().unwrap().to_owned()];
    let bare = measure(&mut part("--bare-images", &arguments));
    assert_eq!(bare.code, 0, "the bare client failed");
    println!("bare client: {:.1} s; {}", bare.wall.as_secs_f64(), bare.line(tasks, "tasks"));
    let service = Service::start(SERVED);
    write_manifest(&folder.path().join("images.csv"), tasks);
    let mut command = callsheet(folder.path(), &service.base_url, tasks, &["run", "images.csv"]);
    let configuration = folder.path().join("callsheet.toml");
    let mut text = std::fs::read_to_string(&configuration).unwrap();
    text.push_str("[poll]\nmin = \"5s\"\nmax = \"5s\"\n");
    std::fs::write(&configuration, text).unwrap();
    let ours = measure(&mut command);
    assert_eq!(ours.code, 0, "callsheet run failed");
    println!("callsheet: {:.1} s; {}", ours.wall.as_secs_f64(), ours.line(tasks, "tasks"));
    Figures { bare, ours }
}

/// Ten times as many tasks each time.
fn growth(most: usize) {
    let counts = (1..).map(|power| 10_usize.pow(power)).take_while(|tasks| *tasks <= most);
    let figures: Vec<(usize, Figures)> = counts.map(|tasks| (tasks, run(tasks))).collect();
    let line = |of: fn(&Figures) -> f64| -> Vec<(f64, f64)> {
        figures.iter().map(|(tasks, figures)| (*tasks as f64, of(figures))).collect()
    };
    let lines = [
        ("bare client", line(|figures| figures.bare.wall.as_secs_f64())),
        ("callsheet", line(|figures| figures.ours.wall.as_secs_f64())),
        ("callsheet, processor time", line(|figures| figures.ours.cpu_seconds)),
    ];
    std::fs::write("benches/in_flight_growth.svg", plot::log_log("tasks at once", "seconds", &lines))
        .unwrap();
}

fn write_manifest(path: &Path, tasks: usize) {
    let mut manifest = BufWriter::new(File::create(path).unwrap());
    writeln!(manifest, "id,kind,model,prompt,quality").unwrap();
    for n in 0..tasks {
        writeln!(manifest, "image-{n},image,gi-2,paper boat {n},Medium").unwrap();
    }
}

/// One POST, a poll every five seconds, one download and one synced file a task.
async fn bare_client(base_url: &str, tasks: usize, folder: &Path) {
    callsheet::api::install_tls_provider();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let exchanges = Arc::new(Semaphore::new(EXCHANGES));
    let folder: Arc<PathBuf> = Arc::new(folder.to_owned());
    let mut all = tokio::task::JoinSet::new();
    for n in 0..tasks {
        let (http, exchanges, folder, base_url) =
            (http.clone(), exchanges.clone(), folder.clone(), base_url.to_owned());
        all.spawn(async move {
            let body = json!({"model": "gi-2", "prompt": format!("paper boat {n}")});
            let permit = exchanges.acquire().await.unwrap();
            let request = http.post(format!("{base_url}/api/v1/images"));
            let request = request.header("Idempotency-Key", n.to_string()).json(&body);
            let mut answer: Value = request.send().await.unwrap().json().await.unwrap();
            drop(permit);
            while answer["data"]["status"] != "success" {
                tokio::time::sleep(POLL_INTERVAL).await;
                let _permit = exchanges.acquire().await.unwrap();
                let task = answer["data"]["id"].as_str().unwrap();
                let request = http.get(format!("{base_url}/api/v1/tasks/{task}"));
                answer = request.send().await.unwrap().json().await.unwrap();
            }
            let _permit = exchanges.acquire().await.unwrap();
            let result = answer["data"]["taskUrls"][0].as_str().unwrap();
            let bytes = http.get(result).send().await.unwrap().bytes().await.unwrap();
            let write = move || {
                let mut file = File::create(folder.join(format!("{n}.wav"))).unwrap();
                file.write_all(&bytes).unwrap();
                file.sync_data().unwrap();
            };
            tokio::task::spawn_blocking(write).await.unwrap();
        });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
}
