//! What the metrics say of a run is what happened: the engine in this process, a service on a socket.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use callsheet::api::{Service, ServiceOptions};
use callsheet::clock::Clock;
use callsheet::domain::admission::Limits;
use callsheet::domain::credits::Credits;
use callsheet::domain::quote::Rules;
use callsheet::domain::retry_delay::Backoff;
use callsheet::domain::slow_download::MinRate;
use callsheet::domain::time::Millis;
use callsheet::domain::url_policy::UrlPolicy;
use callsheet::engine::scheduler::{Settings, Standstill};
use callsheet::engine::{Engine, EngineDeps, Mode, RateLimit, Scope, Stop};
use callsheet::ingest::{self, IngestContext, IngestOptions, catalog_refresh};
use callsheet::metrics::Metrics;
use callsheet::output::OutputOptions;
use callsheet::output::file_names::{self, Layout};
use callsheet::output::publish::OutputDir;
use callsheet::store::{Change, Store};
use callsheet_emulator::{self as emulator, Emulator, FaultPlan};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::support::api_key::KEY;

/// Three images for 8 credits each, and a sound for 1.
const MANIFEST: &str = "\
id,kind,model,prompt,duration_seconds
one,image,gi-2,a harbour,
two,image,gi-2,a lighthouse,
bad,image,gi-2,a wreck,
gull,sound-effect,,a gull,1
";
/// One lost answer, one full house, and a task that fails.
const FAULTS: &str = "
[[rules]]
on = 'create'
contains = 'harbour'
times = 1
effect = { do = 'drop', when = 'after' }
[[rules]]
on = 'create'
contains = 'lighthouse'
times = 1
effect = { do = 'answer', status = 429 }
[[rules]]
contains = 'wreck'
effect = { do = 'task-fails', code = 'invalid_input', reason = 'no' }
";

fn settings() -> Settings {
    Settings {
        limits: Limits {
            in_flight: 4,
            in_flight_per_kind: BTreeMap::new(),
            in_flight_per_model: BTreeMap::new(),
            total: Some(Credits(1_000)),
            per_day: None,
            min_balance: None,
        },
        submits_per_second: None,
        requests_at_once: 1_000,
        adaptive: false,
        rejections: 5,
        downloads: 4,
        scratch_max: None,
        poll_min: Millis(20),
        poll_max: Millis(40),
        deadlines: BTreeMap::new(),
        overdue_poll: Millis::from_secs(1),
        watch_overdue_for: Millis::from_secs(60),
        attempts: 1,
        backoff: Backoff { base: Millis(10), max: Millis(50) },
        balance_interval: Millis::from_secs(60),
        has_allowances: true,
        group_limits: Default::default(),
        rules: None,
        seed: 1,
    }
}

async fn service() -> Emulator {
    let options = emulator::Options {
        // Slow enough for a task to be seen at work, and charged, before it fails.
        speed: 40.0,
        api_key: KEY.to_owned(),
        faults: Some(FaultPlan::parse(FAULTS).unwrap()),
        ..emulator::Options::default()
    };
    emulator::start(options).await.unwrap()
}

fn client(emulator: &Emulator) -> Service {
    let wait = Duration::from_secs(10);
    let options = ServiceOptions {
        base_url: emulator.base_url().parse().unwrap(),
        api_key: Some(KEY.to_owned().into()),
        connect_timeout: wait,
        request_timeout: wait,
        render_timeout: wait,
    };
    Service::new(options).unwrap()
}

/// Accepts the manifest and runs it to its end.
async fn run(dir: &TempDir, emulator: &Emulator, metrics: &Metrics) -> Standstill {
    let (clock, service) = (Clock::start(), client(emulator));
    let store = Arc::new(Store::open(&dir.path().join("state"), "s", false).unwrap());
    let catalogs =
        catalog_refresh::load(Some((&service, "s")), &dir.path().join("state"), &clock).await.unwrap();
    let manifest = dir.path().join("batch.csv");
    fs::write(&manifest, MANIFEST).unwrap();
    let rules = Rules::builtin();
    let context = IngestContext::new(&catalogs.catalog, &rules, IngestOptions::default());
    let accepted = ingest::accept(&store, &manifest, &context, clock.now().wall).unwrap();
    store.commit(&[Change::Batch(Box::new(accepted.batch.unwrap()))]).unwrap();
    let deps = EngineDeps {
        downloads: service
            .downloads(UrlPolicy::new(&emulator.base_url().parse().unwrap(), Vec::new()))
            .unwrap(),
        service,
        catalogs: None,
        output_dir: OutputDir::new(&dir.path().join("output"), OutputOptions::default()),
        max_file_bytes: u64::MAX,
        min_rate: MinRate { bytes_per_second: 0, window: Millis(1_000) },
        min_free_bytes: 0,
        inputs: None,
        outputs: None,
        keeps_local: true,
        submits: RateLimit::default(),
        polls: RateLimit::default(),
        layout: Layout::parse(file_names::DEFAULT).unwrap(),
        metrics: metrics.clone(),
    };
    let mut engine =
        Engine::new(store, Mode::Paying(Box::new(deps)), settings(), clock, &Scope::All).unwrap();
    let (_keep, stop) = watch::channel(Stop::AtStandstill);
    let standstill = engine.run(stop, |_| {}).await.unwrap();
    metrics.set_gauges(&engine.scheduler().gauges(clock.now()));
    standstill
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_was_done_is_counted() {
    let (dir, metrics, emulator) = (tempfile::tempdir().unwrap(), Metrics::new(), service().await);
    assert_eq!(run(&dir, &emulator, &metrics).await, Standstill::Done);
    emulator.stop().await;
    let text = metrics.render();
    let value = |series: &str| -> f64 {
        let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
    };
    let is = |series: &str, expected: f64| assert_eq!(value(series), expected, "{series}");

    is("callsheet_jobs{state=\"succeeded\",kind=\"image\"}", 2.0);
    is("callsheet_jobs{state=\"failed\",kind=\"image\"}", 1.0);
    is("callsheet_jobs{state=\"succeeded\",kind=\"sound-effect\"}", 1.0);
    is("callsheet_jobs{state=\"queued\",kind=\"image\"}", 0.0);
    is("callsheet_credits_held", 0.0);
    let (spent, refunded) =
        (value("callsheet_credits_spent_total"), value("callsheet_credits_refunded_total"));
    assert!(spent > refunded && refunded > 0.0, "{spent} {refunded}");
    is("callsheet_budget_room_credits{budget=\"total\"}", 1_000.0 - spent + refunded);
    is("callsheet_queue_age_seconds", 0.0);
    is("callsheet_in_flight_limit", 4.0);

    is("callsheet_requests_total{endpoint=\"images\",answer=\"ok\"}", 3.0);
    is("callsheet_requests_total{endpoint=\"images\",answer=\"connection\"}", 1.0);
    is("callsheet_requests_total{endpoint=\"images\",answer=\"rate_limited\"}", 1.0);
    is("callsheet_request_seconds_count{endpoint=\"images\"}", 5.0);
    is("callsheet_requests_total{endpoint=\"sound-effects\",answer=\"ok\"}", 1.0);
    is("callsheet_requests_total{endpoint=\"results\",answer=\"ok\"}", 3.0);
    let reads = value("callsheet_requests_total{endpoint=\"tasks\",answer=\"ok\"}");
    assert!(reads >= 1.0, "{reads}");
    is("callsheet_poll_lateness_seconds_count", reads);
    assert!(value("callsheet_commit_seconds_count") >= 4.0);
    assert!(value("callsheet_commit_seconds_sum") > 0.0);
    let media = fs::read_dir(dir.path().join("output/batch")).unwrap().map(|entry| entry.unwrap());
    let media =
        media.filter(|entry| entry.path().extension().is_some_and(|ext| ext == "png" || ext == "wav"));
    let bytes: u64 = media.map(|entry| entry.metadata().unwrap().len()).sum();
    assert_eq!(value("callsheet_download_bytes_total").to_string(), bytes.to_string());

    assert!(!text.contains(KEY) && !text.contains("batch.csv"));
}
