//! Signals: SIGTERM and SIGINT stop, SIGHUP reads the configuration anew.

use std::io;
use std::sync::Arc;

use secrecy::SecretString;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::daemon::inboxes::WatchedInbox;
use crate::daemon::retention::RetentionTerms;
use crate::daemon::schedules::ConfiguredSchedule;
use crate::daemon::{Fixed, Reload, sd_notify};
use crate::engine::{Handle, Stop};
use crate::hooks::Hooks;
use crate::ingest::ingest_handle::{IngestDefaults, IngestHandle};
use crate::metrics::Metrics;
use crate::server::access::TcpAccess;
use crate::server::handlers::OutputPlaces;

/// What a new configuration is given to.
pub(super) struct Reloader {
    pub(super) reload: Reload,
    pub(super) handle: Handle,
    pub(super) ingest: IngestHandle,
    pub(super) inboxes: Vec<WatchedInbox>,
    pub(super) tcp_access: Arc<TcpAccess>,
    pub(super) hooks: Hooks,
    /// What stays as it is, whatever the new one says.
    pub(super) fixed: Fixed,
    pub(super) schedules: watch::Sender<Vec<ConfiguredSchedule>>,
    pub(super) retention: watch::Sender<RetentionTerms>,
    pub(super) output_places: watch::Sender<OutputPlaces>,
    pub(super) metrics: Metrics,
}

/// SIGHUP. From creation on it does not end the process: a reload that is asked for before the daemon has begun follows its
/// beginning.
#[derive(Debug)]
pub struct ReloadSignal(Signal);

impl ReloadSignal {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen() -> io::Result<ReloadSignal> {
        signal(SignalKind::hangup()).map(ReloadSignal)
    }
}

/// The signals that are listened to.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on: a signal that comes before anybody waits for it is not lost.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn listen(ReloadSignal(hangup): ReloadSignal) -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup,
        })
    }
}

/// Waits for signals for as long as the process lives. A reload keeps no other signal waiting: what it needs may take long
/// to answer. One that is asked for meanwhile follows it.
pub(super) async fn watch(signals: Signals, stop: watch::Sender<Stop>, reloader: Reloader) {
    let Signals { mut terminate, mut interrupt, mut hangup } = signals;
    let (reload, mut reloads) = mpsc::channel(1);
    tokio::spawn(async move {
        while reloads.recv().await.is_some() {
            reloader.reload().await;
        }
    });
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {
                // Where one waits already, it reads what is there when its turn comes.
                let _ = reload.try_send(());
                continue;
            }
        }
        // The engine may have ended meanwhile.
        let _ = stop.send(Stop::Soon);
    }
}

impl Reloader {
    /// A token or secret that was leaked is of no more use once its file was changed and read again.
    fn reload_secrets(&self, token: Option<SecretString>, webhook_secret: Option<&SecretString>) {
        if let Some(token) = token
            && self.tcp_access.replace_token(token)
        {
            tracing::info!("the token of control.token_file was replaced; open sessions of pages were ended");
        }
        if let Err(error) = self.hooks.replace_secret(webhook_secret) {
            tracing::warn!(%error, "the secret of the webhook was not replaced");
        }
    }

    async fn reload(&self) {
        sd_notify::reloading();
        match (self.reload)() {
            Ok(parts) => {
                let waiting = self.fixed.differences(&Fixed::of(&parts));
                if !waiting.is_empty() {
                    tracing::warn!("changed, takes effect after a restart: {}", waiting.join(", "));
                }
                // Jobs that are known under keys of one namespace must not be bought under another's.
                let defaults = IngestDefaults { namespace: self.fixed.namespace.clone(), ..parts.app.ingest };
                self.ingest.reload(defaults);
                self.inboxes.iter().for_each(|inbox| inbox.take_over(&parts.inboxes));
                self.reload_secrets(parts.token, parts.hooks_secret.as_ref());
                // A run that is being taken in keeps no limit waiting.
                self.schedules.send_replace(parts.schedules);
                let before = self.output_places.borrow().clone();
                let deps = parts.deps.in_place_of(&self.metrics, &before.dir, before.store.as_ref());
                self.retention.send_replace(RetentionTerms {
                    list_finished_for: parts.list_finished_for,
                    keep_inputs: parts.keep_inputs,
                    inputs: deps.inputs.clone(),
                });
                self.ingest.set_input_store(deps.inputs.clone());
                self.output_places.send_replace(OutputPlaces {
                    dir: deps.output_dir.clone(),
                    layout: deps.layout.clone(),
                    store: deps.outputs.clone(),
                });
                match self.handle.reload(parts.app.settings, deps).await {
                    Ok(None) => tracing::info!("configuration reloaded"),
                    Ok(Some(why)) => tracing::error!(
                        "the limits, budgets and retries of the new configuration are not in force: {why}"
                    ),
                    Err(error) => tracing::warn!(%error, "configuration not reloaded"),
                }
            }
            Err(error) => {
                tracing::error!("failed to reload the configuration; the old one stays in force: {error}");
            }
        }
        sd_notify::reloaded();
    }
}
