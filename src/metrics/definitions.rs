//! Metrics for a monitoring system: counters, gauges and histograms in Prometheus' text format.
//!
//! [`Metrics`] is a cheap handle. An event is counted where it happens; what only the scheduler
//! knows (jobs, credits, queues) is set from time to time from [`Gauges`].
//! [`Metrics::render`] may be called from anywhere at any time.
//!
//! Every label has few values that are known beforehand: names of batches and jobs belong in the log.
//! `docs/monitoring.md` lists every metric; a test holds the two in step.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::domain::credits::Credits;
use crate::domain::gauge_values::Gauges;
use crate::domain::job_state::JobState;
use crate::domain::parked_reason::Parked;
use crate::domain::request::Kind;
use crate::domain::time::Millis;
use crate::metrics::labels::{Answer, Endpoint};
use crate::metrics::labels::{
    BudgetLabel, BuildLabels, EndpointLabel, JobLabels, ReasonLabel, RequestLabels,
};

/// `Content-Type` of what [`Metrics::render`] returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A request takes anything from a proxy's refusal to music that is rendered inside the call.
const REQUEST_SECONDS: [f64; 13] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// A reading that is a tenth of a second late is no trouble; one that is ten seconds late is.
const LATENESS_SECONDS: [f64; 10] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// A commit takes a fifth of a millisecond on a good disk and seconds on one that is failing.
const COMMIT_SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
/// Every reason for which a batch may be parked.
const REASONS: [Parked; 18] = [
    Parked::BatchBudget,
    Parked::DayBudget,
    Parked::TotalBudget,
    Parked::GroupBudget,
    Parked::GroupDayBudget,
    Parked::MinBalance,
    Parked::Credits,
    Parked::Key,
    Parked::Paused,
    Parked::NoPrice,
    Parked::Disk,
    Parked::Store,
    Parked::Scratch,
    Parked::ResultHost,
    Parked::Inputs,
    Parked::InputsUnavailable,
    Parked::Pilot,
    Parked::PerhapsSent,
];
/// Kind of jobs whose batch was accepted before kinds were counted.
const UNKNOWN_KIND: &str = "unknown";

/// A handle on all metrics of the process; clones share them.
#[derive(Clone)]
pub struct Metrics {
    all: Arc<All>,
}

/// Files that went one way, since the process began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    pub files: u64,
    /// Requests that did not end well.
    pub failed: u64,
    pub bytes: u64,
    /// The time that they took, each counted by itself.
    pub busy: Duration,
}

/// Requests of one endpoint, as they are added up beside its histogram.
#[derive(Debug, Default)]
struct Tally {
    good: AtomicU64,
    failed: AtomicU64,
    busy_micros: AtomicU64,
}

impl Tally {
    fn add(&self, answer: Answer, took: Duration) {
        let count = if answer == Answer::Ok { &self.good } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.busy_micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn moved(&self, bytes: u64) -> Moved {
        Moved {
            files: self.good.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            bytes,
            busy: Duration::from_micros(self.busy_micros.load(Ordering::Relaxed)),
        }
    }
}

/// Every metric, and the registry that renders them.
struct All {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<EndpointLabel, Histogram, fn() -> Histogram>,
    lateness: Histogram,
    download_bytes: Counter,
    upload_bytes: Counter,
    downloads: Tally,
    uploads: Tally,
    commit_seconds: Histogram,
    jobs: Family<JobLabels, Gauge>,
    held: Gauge,
    spent: Counter,
    refunded: Counter,
    room: Family<BudgetLabel, Gauge>,
    in_flight_limit: Gauge,
    queue_age: Gauge<f64, std::sync::atomic::AtomicU64>,
    unreviewed: Gauge,
    parked: Family<ReasonLabel, Gauge>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Metrics at zero.
    pub fn new() -> Metrics {
        let metrics = Metrics { all: Arc::new(All::new()) };
        // A series that is there from the beginning has no first value to be missed.
        for endpoint in Endpoint::all() {
            drop(metrics.all.requests.get_or_create(&RequestLabels::new(endpoint, Answer::Ok)));
            drop(metrics.all.request_seconds.get_or_create(&EndpointLabel { endpoint: endpoint.name() }));
        }
        metrics.set_gauges(&Gauges::default());
        metrics
    }

    /// Counts a request by its outcome, with its `latency`.
    pub fn request(&self, endpoint: Endpoint, answer: Answer, latency: Duration) {
        self.all.requests.get_or_create(&RequestLabels::new(endpoint, answer)).inc();
        let seconds = self.all.request_seconds.get_or_create(&EndpointLabel { endpoint: endpoint.name() });
        seconds.observe(latency.as_secs_f64());
        match endpoint {
            Endpoint::Result => self.all.downloads.add(answer, latency),
            Endpoint::Store => self.all.uploads.add(answer, latency),
            Endpoint::Create(_) | Endpoint::Task | Endpoint::Credits => {}
        }
    }

    /// What was downloaded and what was uploaded.
    pub fn transfers(&self) -> (Moved, Moved) {
        let All { downloads, uploads, download_bytes, upload_bytes, .. } = &*self.all;
        (downloads.moved(download_bytes.get()), uploads.moved(upload_bytes.get()))
    }

    /// Observes by how much a poll was late.
    pub fn poll_late(&self, late: Millis) {
        self.all.lateness.observe(seconds(late));
    }

    /// Counts downloaded bytes.
    pub fn downloaded(&self, bytes: u64) {
        self.all.download_bytes.inc_by(bytes);
    }

    /// Counts bytes that were put into object stores.
    pub fn uploaded(&self, bytes: u64) {
        self.all.upload_bytes.inc_by(bytes);
    }

    /// Observes how long a commit took until it was durable.
    pub fn flushed(&self, took: Duration) {
        self.all.commit_seconds.observe(took.as_secs_f64());
    }

    pub fn set_gauges(&self, gauges: &Gauges) {
        let all = &self.all;
        all.set_jobs(&gauges.jobs);
        all.held.set(whole(gauges.held));
        // A corrected charge may bring a sum down; a counter that goes down would be taken for a restart.
        all.spent.inner().fetch_max(gauges.charged.0, Ordering::Relaxed);
        all.refunded.inner().fetch_max(gauges.refunded.0, Ordering::Relaxed);
        let rooms = [
            ("total", gauges.room_total),
            ("day", gauges.room_day),
            ("min_balance", gauges.room_min_balance),
        ];
        for (budget, room) in rooms {
            match room {
                Some(room) => drop(all.room.get_or_create(&BudgetLabel { budget }).set(whole(room))),
                None => drop(all.room.remove(&BudgetLabel { budget })),
            }
        }
        all.in_flight_limit.set(i64::from(gauges.in_flight_limit));
        all.queue_age.set(seconds(gauges.queue_age));
        all.unreviewed.set(count(gauges.unreviewed));
        for reason in REASONS {
            let batches = gauges.parked.get(&reason).copied().unwrap_or_default();
            all.parked.get_or_create(&ReasonLabel { reason: reason.name() }).set(count(batches));
        }
    }

    /// Everything in Prometheus' text format, as [`CONTENT_TYPE`] says.
    pub fn render(&self) -> String {
        crate::metrics::exposition::render(&self.all.registry)
    }
}

impl All {
    fn new() -> All {
        let mut at = Registrar { registry: Registry::with_prefix("callsheet") };
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        at.add("build_info", "Always 1; the label has the version", build);
        let jobs = at.add("jobs", "Jobs by state and kind", Family::default());
        let held = at.add(
            "credits_held",
            "Credits held for requests whose charge is not known yet",
            Gauge::default(),
        );
        let spent = at.add(
            "credits_spent",
            "Credits charged, including those refunded later (charged_credits elsewhere is less refunds); kept \
             across restarts",
            Counter::default(),
        );
        let refunded =
            at.add("credits_refunded", "Credits refunded; kept across restarts", Counter::default());
        let room = at.add(
            "budget_room_credits",
            "Credits left in a budget; absent if none is set",
            Family::default(),
        );
        let requests = at.add("requests", "Requests by endpoint and result", Family::default());
        let request_seconds = at.add(
            "request_seconds",
            "Time from sending a request to the end of its response",
            Family::new_with_constructor((|| Histogram::new(REQUEST_SECONDS)) as fn() -> Histogram),
        );
        let lateness = at.add(
            "poll_lateness_seconds",
            "Delay of polls after they were due",
            Histogram::new(LATENESS_SECONDS),
        );
        let in_flight_limit =
            at.add("in_flight_limit", "Jobs allowed in flight by the adaptive limit", Gauge::default());
        let queue_age = at.add(
            "queue_age_seconds",
            "Time since the oldest queue of unsent jobs was last empty; 0 if none waits",
            Gauge::default(),
        );
        let download_bytes = at.add("download_bytes", "Bytes of results downloaded", Counter::default());
        let upload_bytes =
            at.add("upload_bytes", "Bytes of files and outputs put into object stores", Counter::default());
        let commit_seconds = at.add(
            "commit_seconds",
            "Time until a commit of the state was durable",
            Histogram::new(COMMIT_SECONDS),
        );
        let unreviewed = at.add(
            "review_waiting_jobs",
            "Jobs whose outputs wait for a decision (callsheet review)",
            Gauge::default(),
        );
        let parked = at.add("parked_batches", "Batches with parked jobs, by reason", Family::default());
        All {
            registry: at.registry,
            requests,
            request_seconds,
            lateness,
            download_bytes,
            upload_bytes,
            downloads: Tally::default(),
            uploads: Tally::default(),
            commit_seconds,
            jobs,
            held,
            spent,
            refunded,
            room,
            in_flight_limit,
            queue_age,
            unreviewed,
            parked,
        }
    }

    fn set_jobs(&self, jobs: &BTreeMap<(JobState, Option<Kind>), u64>) {
        for state in JobState::ALL {
            for kind in Kind::ALL {
                let jobs = jobs.get(&(state, Some(kind))).copied().unwrap_or_default();
                self.jobs
                    .get_or_create(&JobLabels { state: state.name(), kind: kind.name() })
                    .set(count(jobs));
            }
            let unknown = JobLabels { state: state.name(), kind: UNKNOWN_KIND };
            match jobs.get(&(state, None)) {
                Some(jobs) => drop(self.jobs.get_or_create(&unknown).set(count(*jobs))),
                None => drop(self.jobs.remove(&unknown)),
            }
        }
    }
}

/// Registers metrics and returns their handles.
struct Registrar {
    registry: Registry,
}

impl Registrar {
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.registry.register(name, help, metric.clone());
        metric
    }
}

fn seconds(span: Millis) -> f64 {
    Duration::from_millis(span.0).as_secs_f64()
}

fn whole(credits: Credits) -> i64 {
    count(credits.0)
}

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(metrics: &Metrics, series: &str) -> Option<String> {
        let text = metrics.render();
        let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found.map(str::to_owned)
    }

    #[test]
    fn what_is_counted_is_shown() {
        let metrics = Metrics::new();
        let posts = Endpoint::Create(Kind::Video);
        metrics.request(posts, Answer::Ok, Duration::from_millis(300));
        metrics.request(posts, Answer::RateLimited, Duration::from_millis(20));
        metrics.downloaded(1_000);
        metrics.poll_late(Millis(70));
        metrics.flushed(Duration::from_micros(800));
        let shown = |series: &str| value(&metrics, series).unwrap();
        assert_eq!(shown("callsheet_requests_total{endpoint=\"videos\",answer=\"rate_limited\"}"), "1");
        assert_eq!(shown("callsheet_request_seconds_count{endpoint=\"videos\"}"), "2");
        assert_eq!(shown("callsheet_request_seconds_bucket{le=\"0.05\",endpoint=\"videos\"}"), "1");
        assert_eq!(shown("callsheet_download_bytes_total"), "1000");
        assert_eq!(shown("callsheet_poll_lateness_seconds_bucket{le=\"0.1\"}"), "1");
        assert_eq!(shown("callsheet_commit_seconds_bucket{le=\"0.0005\"}"), "0");
        assert_eq!(shown("callsheet_commit_seconds_bucket{le=\"0.001\"}"), "1");
    }

    #[test]
    fn an_overview_takes_the_place_of_the_one_before() {
        let metrics = Metrics::new();
        let before = Gauges {
            jobs: BTreeMap::from([((JobState::Queued, Some(Kind::Image)), 7), ((JobState::Failed, None), 2)]),
            charged: Credits(50),
            room_day: Some(Credits(9)),
            queue_age: Millis(1_500),
            parked: BTreeMap::from([(Parked::DayBudget, 3)]),
            ..Gauges::default()
        };
        metrics.set_gauges(&before);
        let queued = "callsheet_jobs{state=\"queued\",kind=\"image\"}";
        let unknown = "callsheet_jobs{state=\"failed\",kind=\"unknown\"}";
        let room = "callsheet_budget_room_credits{budget=\"day\"}";
        let parked = "callsheet_parked_batches{reason=\"day_budget\"}";
        let shown = [queued, unknown, room, parked, "callsheet_queue_age_seconds"];
        let shown = shown.map(|series| value(&metrics, series).unwrap_or_default());
        assert_eq!(shown, ["7", "2", "9", "3", "1.5"]);

        metrics.set_gauges(&Gauges { charged: Credits(40), ..Gauges::default() });
        assert_eq!(value(&metrics, queued).unwrap(), "0");
        assert_eq!((value(&metrics, unknown), value(&metrics, room)), (None, None));
        assert_eq!(value(&metrics, parked).unwrap(), "0");
        assert_eq!(value(&metrics, "callsheet_credits_spent_total").unwrap(), "50", "counters never go down");
    }
}
