//! Starts: `cargo bench --bench starts [-- FINISHED [IN_FLIGHT [QUEUED [ROUNDS [BATCH_JOBS]]]]]`.
//!
//! A state with so many finished jobs, tasks in flight and queued rows. Its daemon is killed with SIGKILL and started
//! again: how long until the first POST of a queued row? Then the cold starts of `--help` and `status`, beside `/bin/true`.
//!
//! The finished jobs are copies of one that was really run: batches of `BATCH_JOBS` jobs, written by the store
//! itself.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, unreachable_pub)]

mod support;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use callsheet::domain::ids::{BatchNo, JobId, JobKey, Seq};
use callsheet::domain::job::JobSpec;
use callsheet::store::{BatchRecord, Change, JobRecord, Segment, Store};

use support::service::Options;
use support::{Service, callsheet, measure, median, number, parts, settle};

/// Nothing ends while it is measured.
const SERVED: Options = Options { result_bytes: 1_000, image_seconds: 100_000 };
/// Between two questions for what the service has seen.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Places for tasks beyond those that are taken.
const FREE: usize = 100;

fn main() {
    if parts() {
        return;
    }
    let (finished, in_flight, queued, rounds) =
        (number(0, 1_000_000), number(1, 100_000), number(2, 1_000_000), number(3, 3));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let service = Service::start(SERVED);
    add_finished(folder, &service, finished, number(4, 1_000));
    let began = Instant::now();
    images(&folder.join("queued.csv"), in_flight, queued);
    let mut daemon = start_daemon(folder, &service, in_flight);
    let submit = || {
        let mut command = callsheet(folder, &service.base_url, in_flight, &["submit", "queued.csv"]);
        command.status().unwrap().success()
    };
    // It takes a moment until the daemon listens.
    while !submit() {
        assert!(began.elapsed() < Duration::from_secs(60), "submit failed");
    }
    while service.posts() < in_flight as u64 {
        std::thread::park_timeout(LOOK_INTERVAL);
    }
    println!(
        "{in_flight} submitted in {:.1} s, of {} rows",
        began.elapsed().as_secs_f64(),
        in_flight + queued
    );
    let (mut first_posts, mut clean) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        // SIGKILL.
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        settle(folder);
        let (seen, began) = (service.posts(), Instant::now());
        daemon = start_daemon(folder, &service, in_flight + round * FREE);
        let took = first_post(&service, seen, began);
        println!("first POST after SIGKILL: {took:.3} s, {:.0} MiB", support::peak_mib(daemon.id()));
        first_posts.push(took);
        while service.posts() < seen + FREE as u64 {
            std::thread::park_timeout(LOOK_INTERVAL);
        }
    }
    cold_starts(folder, &service, in_flight, "with a daemon");
    for round in 1..=rounds {
        stop(&mut daemon);
        if round == 1 {
            cold_starts(folder, &service, in_flight, "without a daemon");
        }
        let (seen, began) = (service.posts(), Instant::now());
        daemon = start_daemon(folder, &service, in_flight + (rounds + round) * FREE);
        clean.push(first_post(&service, seen, began));
        while service.posts() < seen + FREE as u64 {
            std::thread::park_timeout(LOOK_INTERVAL);
        }
    }
    stop(&mut daemon);
    println!("first POST after SIGKILL: {:.3} s (median; goal 0.5 s)", median(first_posts));
    println!("first POST after it was stopped in order: {:.3} s (median)", median(clean));
}

fn stop(daemon: &mut std::process::Child) {
    let pid = rustix::process::Pid::from_child(daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    daemon.wait().unwrap();
}

fn start_daemon(folder: &Path, service: &Service, in_flight: usize) -> std::process::Child {
    let mut command = callsheet(folder, &service.base_url, in_flight, &["daemon"]);
    let configuration = folder.join("callsheet.toml");
    let mut text = std::fs::read_to_string(&configuration).unwrap();
    // Reading tasks is not what is measured.
    text.push_str("[poll]\nmin = \"5m\"\nmax = \"10m\"\n");
    std::fs::write(&configuration, text).unwrap();
    command.stderr(File::create(folder.join("daemon.log")).unwrap()).spawn().unwrap()
}

/// Seconds until the service sees another POST.
fn first_post(service: &Service, seen: u64, began: Instant) -> f64 {
    while service.posts() == seen {
        assert!(began.elapsed() < Duration::from_secs(300), "no POST came");
        std::thread::park_timeout(LOOK_INTERVAL);
    }
    began.elapsed().as_secs_f64()
}

fn images(path: &Path, in_flight: usize, queued: usize) {
    let mut manifest = BufWriter::new(File::create(path).unwrap());
    writeln!(manifest, "id,kind,model,prompt,quality").unwrap();
    for n in 0..in_flight + queued {
        writeln!(manifest, "image-{n},image,gi-2,paper boat {n},Medium").unwrap();
    }
}

/// Runs one job, and adds batches of copies of it.
fn add_finished(folder: &Path, service: &Service, jobs: usize, batch_jobs: usize) {
    support::sound_effects(folder, 1);
    let usage = measure(&mut callsheet(folder, &service.base_url, 1, &["run", "gulls.csv"]));
    assert_eq!(usage.code, 0, "callsheet run failed");
    let store = Store::open_existing(&folder.join("state")).unwrap();
    let template = store.batch_named(&"gulls".parse().unwrap()).unwrap().unwrap();
    let (row_at, spec) = store.rows_called(&template, "gull-0").unwrap().remove(0);
    let ended = store.job_at(&template, row_at, &spec).unwrap();
    let began = Instant::now();
    let mut total = store.total().unwrap();
    for n in 0..jobs / batch_jobs {
        total = add_batch(&store, (n, u32::try_from(batch_jobs).unwrap()), (&template, &spec, &ended), total);
    }
    println!("{jobs} finished jobs written in {:.1} s", began.elapsed().as_secs_f64());
}

fn add_batch(
    store: &Store,
    (n, jobs): (usize, u32),
    (template, spec, ended): (&BatchRecord, &JobSpec, &JobRecord),
    total: callsheet::domain::ledger::Totals,
) -> callsheet::domain::ledger::Totals {
    let no = store.next_batch_no();
    let name = format!("finished-{n}").parse().unwrap();
    let mut batch =
        BatchRecord { no, name, segments: Vec::new(), spool_bytes: 0, rows: 0, ..template.clone() };
    let (_, mut rows) = store.append_rows(&batch).unwrap();
    let mut ends = Vec::new();
    for seq in 0..jobs {
        let id = JobId((n as u128 * u128::from(jobs) + u128::from(seq) + 1).to_be_bytes());
        let row = JobSpec { seq: Seq(seq), id, label: format!("gull-{seq}"), ..spec.clone() };
        let row_at = rows.push(&row).unwrap();
        ends.push(Change::End(JobRecord {
            key: JobKey { batch: BatchNo(no.0), seq: Seq(seq) },
            id,
            row_at,
            ..ended.clone()
        }));
    }
    // A daemon would write the results of all of them first.
    batch.announced = true;
    batch.rows = jobs;
    batch.spool_bytes = rows.sync().unwrap();
    batch.segments.push(Segment::mixed(0, batch.spool_bytes, batch.spool_bytes));
    let mut all = total;
    batch.totals = Default::default();
    for _ in 0..jobs {
        batch.totals = batch.totals + template.totals;
        all = all + template.totals;
    }
    batch.ended.succeeded = jobs * template.ended.succeeded;
    let mut changes = ends;
    changes.push(Change::Batch(Box::new(batch)));
    changes.push(Change::Total(all));
    store.commit(&changes).unwrap();
    all
}

/// How long short commands take.
fn cold_starts(folder: &Path, service: &Service, in_flight: usize, when: &str) {
    let print = |name: &str, make: &dyn Fn() -> Command| {
        let mut elapsed = Vec::new();
        for _ in 0..21 {
            let began = Instant::now();
            let mut command = make();
            let usage = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            assert!(usage.success(), "{name} failed");
            elapsed.push(began.elapsed().as_secs_f64() * 1e3);
        }
        println!("{name}, {when}: {:.1} ms (median; goal 15 ms)", median(elapsed));
    };
    print("/bin/true", &|| Command::new("/bin/true"));
    print("callsheet --help", &|| callsheet(folder, &service.base_url, in_flight, &["--help"]));
    print("callsheet status", &|| callsheet(folder, &service.base_url, in_flight, &["status"]));
}
