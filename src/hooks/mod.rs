//! Hooks: whom the daemon tells that a batch is done, at least once each, whatever happens in between.
//!
//! A message is on the device before [`Hooks::batch_done`] returns, and stays there until the command has
//! ended with 0 and the webhook was answered with 2xx, or until three days have passed. A crash between a
//! delivery and its note leads to a second delivery, with the same id: receivers drop what they know.

mod command;
mod event;
mod outbox;
mod signature;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

pub use self::event::BatchDone;
use self::outbox::{Channel, DeliveryState, DueMessage, Outbox};
pub use self::signature::BadSecret;
use self::signature::Secret;
use crate::api::ClientError;
use crate::api::webhook::Webhook;
use crate::clock::Clock;
use crate::config::HooksConfig;
use crate::domain::ids::BatchName;
use crate::domain::retry::Backoff;
use crate::domain::time::Millis;

/// How long and how often hooks are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookTimeouts {
    /// For a command.
    pub command: Duration,
    /// For an exchange with a webhook's receiver.
    pub webhook: Duration,
    /// Between two tries.
    pub backoff: Backoff,
    /// After which a message is given up.
    pub give_up: Millis,
    /// For what is under way when the daemon stops.
    pub stop: Duration,
}

impl Default for HookTimeouts {
    fn default() -> HookTimeouts {
        HookTimeouts {
            command: Duration::from_secs(60),
            webhook: Duration::from_secs(20),
            backoff: Backoff { base: Millis::from_secs(5), max: Millis::from_secs(3600) },
            give_up: Millis::from_secs(3 * 24 * 3600),
            stop: Duration::from_secs(5),
        }
    }
}

/// Hooks cannot be set up, or a message cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum HooksError {
    /// Messages are never sent unsigned.
    #[error(
        "hooks.webhook has no signing secret; set hooks.webhook_secret_file, or the systemd credential webhook-secret"
    )]
    NoSecret,
    /// The secret cannot sign.
    #[error(transparent)]
    Secret(#[from] BadSecret),
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The folder refuses.
    #[error("failed to store messages in {}: {source}", .folder.display())]
    Io {
        /// Where they lie.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// See the module's documentation. Copies share one outbox.
#[derive(Debug, Clone)]
pub struct Hooks {
    inner: Arc<HooksInner>,
}

#[derive(Debug)]
struct HooksInner {
    folder: PathBuf,
    outbox: Mutex<Outbox>,
    /// One for each way.
    wake: [Notify; 2],
    command: Vec<String>,
    webhook: Option<(Webhook, Secret)>,
    timeouts: HookTimeouts,
    clock: Clock,
}

/// Why a try failed.
struct DeliveryError {
    reason: String,
    wait: Option<Millis>,
    is_final: bool,
}

fn webhook(
    config: &HooksConfig,
    secret: Option<&SecretString>,
    timeouts: HookTimeouts,
) -> Result<Option<(Webhook, Secret)>, HooksError> {
    let Some(url) = &config.webhook else { return Ok(None) };
    let secret = Secret::parse(secret.ok_or(HooksError::NoSecret)?.expose_secret())?;
    Ok(Some((Webhook::new(url.clone(), timeouts.webhook)?, secret)))
}

impl Hooks {
    /// Takes up what an earlier process left in `hooks` of the `state` folder, which the store has opened
    /// before: it takes no folder for its own that has something else in it. Sends nothing yet.
    ///
    /// # Errors
    /// [`HooksError`]: a webhook without a usable secret, or a folder that cannot be used.
    pub fn new(
        config: &HooksConfig,
        secret: Option<&SecretString>,
        state: &Path,
        timeouts: HookTimeouts,
        clock: Clock,
    ) -> Result<Hooks, HooksError> {
        let webhook = webhook(config, secret, timeouts)?;
        let folder = state.join("hooks");
        let outbox =
            Outbox::open(&folder).map_err(|source| HooksError::Io { folder: folder.clone(), source })?;
        let (outbox, wake) = (Mutex::new(outbox), <[Notify; 2]>::default());
        let command = config.batch_done.clone();
        Ok(Hooks { inner: Arc::new(HooksInner { folder, outbox, wake, command, webhook, timeouts, clock }) })
    }

    /// Whether they could be set up so; nothing is made or sent.
    ///
    /// # Errors
    /// [`HooksError`]: a webhook without a usable secret.
    pub fn check(
        config: &HooksConfig,
        secret: Option<&SecretString>,
        timeouts: HookTimeouts,
    ) -> Result<(), HooksError> {
        webhook(config, secret, timeouts).map(drop)
    }

    /// Whether anybody is told anything.
    fn is_any(&self) -> bool {
        self.inner.webhook.is_some() || !self.inner.command.is_empty()
    }

    /// The batches of which an end was told, or would have been.
    ///
    /// # Errors
    /// When the folder refuses.
    pub fn delivered(&self) -> Result<Vec<BatchName>, HooksError> {
        let delivered = self.inner.outbox().delivered().map_err(|source| self.inner.io(source))?;
        Ok(delivered.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Forgets what was told about a batch that is not listed any more: no end of it is told again before it has a new
    /// one.
    ///
    /// # Errors
    /// When the folder refuses.
    pub fn forget(&self, batch: &BatchName) -> Result<(), HooksError> {
        self.inner.outbox().forget(batch.as_str()).map_err(|source| self.inner.io(source))
    }

    /// Whether this end of a batch was delivered, given up, or waits for its delivery.
    #[cfg(test)]
    fn has_delivered_or_pending(&self, event: &BatchDone) -> Result<bool, HooksError> {
        self.inner.outbox().contains(event).map_err(|source| self.inner.io(source))
    }

    /// Takes in that a batch is done. On return it is on the device, and will be told, also after a crash.
    /// One that was taken in before is not told again. Without hooks it is noted that nobody was told, so
    /// that hooks that are configured later hear of later batches only.
    ///
    /// # Errors
    /// When it cannot be kept; nothing is told then.
    pub fn batch_done(&self, event: &BatchDone) -> Result<(), HooksError> {
        if !self.is_any() {
            return self.mark_delivered(event);
        }
        let mut outbox = self.inner.outbox();
        if outbox.contains(event).map_err(|source| self.inner.io(source))? {
            return Ok(());
        }
        let now = self.inner.clock.now().wall;
        outbox.push(event, now).map_err(|source| self.inner.io(source))?;
        drop(outbox);
        self.inner.wake.iter().for_each(Notify::notify_one);
        Ok(())
    }

    /// Notes a batch's end as told, without telling anybody: one that ended where nobody was listening.
    ///
    /// # Errors
    /// When it cannot be noted.
    pub fn mark_delivered(&self, event: &BatchDone) -> Result<(), HooksError> {
        let outbox = self.inner.outbox();
        let known = outbox.contains(event).and_then(|known| match known {
            true => Ok(()),
            false => outbox.record_delivered(event.batch.as_str(), &event.id),
        });
        known.map_err(|source| self.inner.io(source))
    }

    /// Delivers until `stop` comes; what is under way then may end within a bounded time. Command and
    /// webhook wait for nothing of each other.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = tokio::sync::watch::channel(false);
        let tell = async {
            stop.await;
            // Nobody listens any more when both have ended.
            let _ = stopping.send(true);
        };
        let (command, webhook) = (stopped.clone(), stopped);
        tokio::join!(
            tell,
            Arc::clone(&self.inner).deliver(Channel::Command, command),
            Arc::clone(&self.inner).deliver(Channel::Webhook, webhook)
        );
    }
}

impl HooksInner {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        // Its files are whole at any moment, and what it holds is what they say.
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn io(&self, source: io::Error) -> HooksError {
        HooksError::Io { folder: self.folder.clone(), source }
    }

    async fn deliver(self: Arc<HooksInner>, channel: Channel, mut stop: tokio::sync::watch::Receiver<bool>) {
        loop {
            let due = self.outbox().next(channel);
            let wait = due.as_ref().map(|due| self.clock.until(due.at));
            match (due, wait) {
                (Some(due), Some(Duration::ZERO)) => {
                    let timeouts = self.timeouts.stop;
                    let told = tokio::select! {
                        told = self.tell(channel, &due) => Some(told),
                        () = async {
                            // An error: the sender of the stop is gone.
                            let _ = stop.wait_for(|stop| *stop).await;
                            tokio::time::sleep(timeouts).await;
                        } => None,
                    };
                    // What was cut off is told again by the next process.
                    let Some(told) = told else { return };
                    Arc::clone(&self).note(channel, due, told).await;
                    if *stop.borrow() {
                        return;
                    }
                }
                (_, wait) => {
                    tokio::select! {
                        () = self.wake[channel as usize].notified() => {}
                        () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                        () = async {
                            let _ = stop.wait_for(|stop| *stop).await;
                        } => return,
                    }
                }
            }
        }
    }

    /// Tells one message, once. A way that is not configured has nobody to tell.
    async fn tell(&self, channel: Channel, due: &DueMessage) -> Result<(), DeliveryError> {
        let delivery_error = |reason| DeliveryError { reason, wait: None, is_final: false };
        match (channel, &self.webhook) {
            (Channel::Command, _) => command::run(&self.command, &due.entry.body, self.timeouts.command)
                .await
                .map_err(delivery_error),
            (Channel::Webhook, None) => Ok(()),
            (Channel::Webhook, Some((webhook, secret))) => {
                let now = self.clock.now().wall;
                let headers = secret
                    .headers(&due.entry.id, now, &due.entry.body)
                    .map_err(|error| delivery_error(error.to_string()))?;
                webhook.post(&headers, &due.entry.body).await.map_err(|error| DeliveryError {
                    reason: error.to_string(),
                    wait: error.wait(),
                    is_final: error.is_final(),
                })
            }
        }
    }

    /// Notes what a try came to.
    async fn note(self: Arc<HooksInner>, channel: Channel, due: DueMessage, told: Result<(), DeliveryError>) {
        let what = match channel {
            Channel::Command => "hooks.batch_done",
            Channel::Webhook => "hooks.webhook",
        };
        let DueMessage { number, tries, entry, .. } = due;
        let delivery_state = match told {
            Ok(()) => DeliveryState::Delivered,
            Err(DeliveryError { reason, wait, is_final }) => {
                let now = self.clock.now();
                let is_old = now.wall.since(entry.since) >= self.timeouts.give_up;
                if !is_final && !is_old {
                    let wait = self.timeouts.backoff.wait(tries, fastrand::f64(), wait);
                    let secs = wait.0.div_ceil(1000);
                    tracing::warn!(batch = entry.batch, "{what}: {reason}; retrying in {secs} s");
                    return self.outbox().postpone(number, channel, now.tick.after(wait));
                }
                let path = self.outbox().path_of_failed(number);
                tracing::error!(
                    batch = entry.batch,
                    "{what}: {reason}; given up, kept in {}",
                    path.display()
                );
                DeliveryState::GivenUp { reason }
            }
        };
        let inner = Arc::clone(&self);
        // Off the runtime: this waits for the device.
        let noted = spawn_blocking(move || inner.outbox().end(number, channel, delivery_state)).await;
        if let Err(error) = noted.map_err(io::Error::from).and_then(|noted| noted) {
            let folder = self.folder.display();
            tracing::error!(
                "failed to record a delivery in {folder}: {error}; it is delivered again after a restart"
            );
        }
    }
}
