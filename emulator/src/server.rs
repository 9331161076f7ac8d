//! Starting and stopping: sockets, state, and the two origins.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::catalog::Catalog;
use super::clock::Clock;
use super::faults::{ActiveFaults, FaultPlan};
use super::http;
use super::options::{Options, StartError};
use super::persistence::{RecordLog, VERSION};
use super::service::{Service, Setup};
use super::state::{Record, ServiceState};
use super::wire::{ConnectionHandle, CuttableListener, MOST_CONNECTIONS};

/// How long calls in flight may go on after [`Emulator::stop`].
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A running emulator. Dropping it stops it without waiting for calls in flight.
#[derive(Debug)]
pub struct Emulator {
    service: Arc<Service>,
    stop: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    stopped: watch::Receiver<usize>,
}

/// Start the service on the addresses of the options. It runs on the present tokio runtime.
///
/// # Errors
/// When an address, the state directory, the catalog or an option cannot be used.
pub async fn start(options: Options) -> Result<Emulator, StartError> {
    if options.speed.is_nan() || options.speed <= 0.0 {
        return Err(StartError::Option("speed must be a number above 0"));
    }
    if options.api_key.is_empty() || !options.api_key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(StartError::Option("the API key must be visible ASCII characters"));
    }
    if options.media_url.as_ref().is_some_and(|url| !is_origin(url)) {
        return Err(StartError::Option(
            "the media URL must be an http(s) origin, such as http://emulator:8788",
        ));
    }
    let api = listen(options.listen).await?;
    let media = listen(options.media_listen).await?;
    let setup = Setup {
        api_key: options.api_key.clone(),
        base_url: origin(&api, options.listen)?,
        media_url: match &options.media_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => origin(&media, options.media_listen)?,
        },
        speed: options.speed,
    };
    let (state, record_log, clock) = open_state(&options)?;
    let service = Arc::new(Service::new(state, record_log, clock, setup));
    tracing::info!(base_url = service.base_url, media_url = service.media_url, "emulator started");

    let stop = watch::Sender::new(false);
    let running = Arc::new(watch::Sender::new(2_usize));
    let stopped = running.subscribe();
    let servers = vec![
        serve(api, http::api_router(Arc::clone(&service)), &stop, &running),
        serve(media, http::media_router(Arc::clone(&service)), &stop, &running),
    ];
    Ok(Emulator { service, stop, servers, stopped })
}

impl Emulator {
    /// The API's address, such as `http://127.0.0.1:8080`.
    pub fn base_url(&self) -> String {
        self.service.base_url.clone()
    }

    /// The address that results come from.
    pub fn media_url(&self) -> String {
        self.service.media_url.clone()
    }

    /// What `GET /emulator/audit` answers.
    pub fn audit(&self) -> Value {
        self.service.audit(true)
    }

    /// Step the clock forwards, manual or not.
    pub fn advance(&self, by: Duration) {
        if self.service.advance(by).is_err() {
            tracing::warn!("the step of the clock could not be written down");
        }
    }

    /// Replaces the fault plan.
    pub fn set_faults(&self, faults: FaultPlan) {
        self.service.set_faults(faults);
    }

    /// Wait until the emulator has stopped, for whatever reason.
    pub async fn wait(&self) {
        let mut stopped = self.stopped.clone();
        // An error means that both servers are gone, which is what is waited for.
        let _ = stopped.wait_for(|running| *running == 0).await;
    }

    /// Stop: no new connections, a moment for calls in flight, then the end.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let deadline = tokio::time::Instant::now() + STOP_PATIENCE;
        for mut server in std::mem::take(&mut self.servers) {
            if tokio::time::timeout_at(deadline, &mut server).await.is_err() {
                server.abort();
            }
        }
        self.service.close();
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for server in &self.servers {
            server.abort();
        }
        self.service.close();
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

/// Whether a URL is a scheme and a host, and nothing after them.
fn is_origin(url: &url::Url) -> bool {
    let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty() && bare
}

/// The address a client can use: a wildcard becomes loopback.
fn origin(listener: &TcpListener, address: SocketAddr) -> Result<String, StartError> {
    let mut bound = listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
    if bound.ip().is_unspecified() {
        bound.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    Ok(format!("http://{bound}"))
}

fn serve(
    listener: TcpListener,
    router: axum::Router,
    stop: &watch::Sender<bool>,
    running: &Arc<watch::Sender<usize>>,
) -> JoinHandle<()> {
    let mut stop = stop.subscribe();
    let leaving = Leaving(Arc::clone(running));
    let stopping = async move {
        // An error means that the emulator was dropped, which is a stop as well.
        let _ = stop.wait_for(|stopped| *stopped).await;
    };
    let service = router.into_make_service_with_connect_info::<ConnectionHandle>();
    tokio::spawn(async move {
        let _leaving = leaving;
        let listener = CuttableListener::new(listener, MOST_CONNECTIONS);
        let served = axum::serve(listener, service).with_graceful_shutdown(stopping).await;
        if let Err(error) = served {
            tracing::error!(%error, "an emulator server ended");
        }
    })
}

/// Counts down the running servers when dropped.
struct Leaving(Arc<watch::Sender<usize>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running = running.saturating_sub(1));
    }
}

fn open_state(options: &Options) -> Result<(ServiceState, Option<RecordLog>, Clock), StartError> {
    let faults = options.faults.clone().unwrap_or_default();
    faults.check().map_err(StartError::FaultPlan)?;
    let fault_profile = ActiveFaults::new(faults);
    let catalog = open_catalog(options)?;
    let start_ms = Clock::new(options.manual_clock, Clock::first_base_ms(options.manual_clock)).now_ms();
    // On a manual clock everything is to be the same each time; else no two accounts share an id.
    let epoch =
        if options.manual_clock { 0 } else { u64::try_from(start_ms).unwrap_or(0) ^ fastrand::u64(..) };
    let mut state = ServiceState::new(catalog, fault_profile, options.speed, options.seed, epoch);
    let Some(dir) = &options.state_dir else {
        state.apply(opened(options, epoch));
        return Ok((
            state,
            None,
            Clock::new(options.manual_clock, Clock::first_base_ms(options.manual_clock)),
        ));
    };

    let mut last = None;
    let mut record_log = RecordLog::open(dir, |record| {
        match record {
            Record::Opened { manual_clock, .. } => {
                last = Some((manual_clock, Clock::first_base_ms(manual_clock)));
            }
            Record::Clock { manual, base_ms } => last = Some((manual, base_ms)),
            _ => {}
        }
        state.apply(record);
    })?;
    let mut write = |record: Record, state: &mut ServiceState| {
        let failed = |source| StartError::State { path: dir.clone(), source };
        record_log.append(&record).map_err(failed)?;
        state.apply(record);
        Ok(())
    };
    let base_ms = match last {
        None => {
            write(opened(options, epoch), &mut state)?;
            Clock::first_base_ms(options.manual_clock)
        }
        Some((manual, base_ms)) if manual == options.manual_clock => base_ms,
        Some((manual, base_ms)) => {
            let base_ms = Clock::new(manual, base_ms).base_for_the_other_kind();
            write(Record::Clock { manual: options.manual_clock, base_ms }, &mut state)?;
            base_ms
        }
    };
    Ok((state, Some(record_log), Clock::new(options.manual_clock, base_ms)))
}

fn opened(options: &Options, epoch: u64) -> Record {
    Record::Opened {
        version: VERSION,
        epoch,
        manual_clock: options.manual_clock,
        credits: options.credits,
        plan: options.plan,
    }
}

fn open_catalog(options: &Options) -> Result<Arc<Catalog>, StartError> {
    let path = options.catalog.clone();
    let wrong = |reason: String| StartError::Catalog { path: path.clone(), reason };
    match &options.catalog {
        None => Catalog::built_in().map_err(wrong),
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
            Catalog::recorded(&text).map(Arc::new).map_err(wrong)
        }
    }
}
