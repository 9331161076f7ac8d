//! Notifications to systemd: ready, watchdog, status, stopping. Nothing is sent without systemd.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::domain::job_state::JobState;
use crate::domain::time::{Millis, Tick};
use crate::engine::StepView;

/// Between two status lines.
const STATUS_INTERVAL: Millis = Millis::from_secs(2);
/// While it takes long to begin or to end, systemd is asked for so much more time.
const EXTENSION: Duration = Duration::from_secs(20);

/// Sends notifications to systemd.
#[derive(Debug)]
pub struct SystemdNotifier {
    clock: Clock,
    /// Interval of the watchdog.
    watchdog: Option<Millis>,
    last_ping: Tick,
    last_status: Tick,
    text: String,
    /// Asks for more time, while something takes long.
    timeout_extender: Option<JoinHandle<()>>,
}

impl SystemdNotifier {
    /// Reports that the state is being loaded, and asks for more time until it is ready. Must be called within a runtime, whose
    /// thread stays free meanwhile.
    pub fn begin(clock: Clock) -> SystemdNotifier {
        let watchdog = sd_notify::watchdog_enabled();
        // Twice in the time there is.
        let watchdog = watchdog.and_then(|span| u64::try_from(span.as_millis() / 2).ok()).map(Millis);
        let now = clock.now().tick;
        notify(&[NotifyState::Status("loading the state")]);
        let timeout_extender = Some(tokio::spawn(extend_timeout()));
        SystemdNotifier {
            clock,
            watchdog,
            last_ping: now,
            last_status: now,
            text: String::new(),
            timeout_extender,
        }
    }

    /// Reports that the state is loaded, the socket listens and the engine takes its steps. From now on the watchdog waits
    /// for them.
    pub(super) fn ready(&mut self) {
        self.last_ping = self.clock.now().tick;
        if let Some(timeout_extender) = self.timeout_extender.take() {
            timeout_extender.abort();
        }
        notify(&[NotifyState::Ready, NotifyState::Status("ready")]);
    }

    /// Notes a step of the engine: the watchdog is answered only while steps are seen.
    pub(super) fn observe(&mut self, view: &StepView<'_>, is_stopping: bool) {
        let now = self.clock.now().tick;
        if self.watchdog.is_some_and(|interval| now.since(self.last_ping) >= interval) {
            self.last_ping = now;
            notify(&[NotifyState::Watchdog]);
        }
        if is_stopping && self.timeout_extender.is_none() {
            notify(&[NotifyState::Stopping, NotifyState::Status("stopping: waiting for requests in flight")]);
            self.timeout_extender = Some(tokio::spawn(extend_timeout()));
        }
        if now.since(self.last_status) >= STATUS_INTERVAL && !is_stopping {
            self.last_status = now;
            let text = status_text(view);
            if text != self.text {
                notify(&[NotifyState::Status(&text)]);
                self.text = text;
            }
        }
    }

    /// No request is in flight any more.
    pub(super) fn stopping(&self) {
        notify(&[NotifyState::Stopping, NotifyState::Status("stopped")]);
    }
}

/// The configuration is being read anew.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

pub(super) fn reloaded() {
    notify(&[NotifyState::Ready]);
}

async fn extend_timeout() {
    let span = u32::try_from(EXTENSION.as_micros()).unwrap_or(u32::MAX);
    loop {
        notify(&[NotifyState::ExtendTimeoutUsec(span)]);
        tokio::time::sleep(EXTENSION / 2).await;
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "failed to notify systemd");
    }
}

/// `2 batches at work: 14 in flight, 320 queued; 1 parked (day_budget); 4210 credits spent`
fn status_text(view: &StepView<'_>) -> String {
    let batches = view.scheduler.overview();
    let count = |wanted: fn(JobState) -> bool| -> u32 {
        let states = batches.iter().flat_map(|batch| batch.states);
        states.filter(|(state, _)| wanted(*state)).map(|(_, n)| n).sum()
    };
    let (in_flight, queued) = (count(JobState::is_moving), count(|state| state == JobState::Queued));
    let spent = view.scheduler.total().spent.0;
    let parked = batches.iter().filter(|batch| batch.parked.is_some());
    let parked: std::collections::BTreeSet<&str> = parked.filter_map(|b| Some(b.parked?.name())).collect();
    let parked = match parked.len() {
        0 => String::new(),
        _ => format!("; parked by {}", parked.into_iter().collect::<Vec<_>>().join(", ")),
    };
    match in_flight + queued {
        0 => format!("idle; {spent} credits spent"),
        _ => format!("{in_flight} in flight, {queued} queued{parked}; {spent} credits spent"),
    }
}
