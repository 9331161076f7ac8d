//! Hooks: a command and a webhook that are notified when a batch is done, each at least once, even across crashes.
//!
//! A message is on the device before [`Hooks::batch_done`] returns, and stays there until the command has
//! ended with 0 and the webhook was answered with 2xx, or until three days have passed. A crash between a
//! delivery and its note leads to a second delivery, with the same id: receivers drop what they know.

mod command;
mod delivery_retry;
mod event;
mod outbox;
#[cfg(test)]
mod tests;
mod webhook_signature;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use self::delivery_retry::DeliveryError;
pub use self::delivery_retry::RetrySchedule;
pub use self::event::BatchDone;
use self::outbox::{Channel, DeliveryState, DueMessage, Outbox};
pub use self::webhook_signature::BadSecret;
use self::webhook_signature::Secret;
use crate::api::ClientError;
use crate::api::webhook_client::Webhook;
use crate::clock::Clock;
use crate::config::HooksConfig;
use crate::domain::ids::BatchName;

/// Timeouts and retries of deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookTimeouts {
    pub command: Duration,
    /// Of a request to the webhook with its response.
    pub webhook: Duration,
    /// When one that failed is tried again.
    pub retries: RetrySchedule,
    /// How long a stop waits for deliveries under way.
    pub stop: Duration,
}

impl Default for HookTimeouts {
    fn default() -> HookTimeouts {
        HookTimeouts {
            command: Duration::from_secs(60),
            webhook: Duration::from_secs(20),
            retries: RetrySchedule::default(),
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
    /// The outbox cannot be read or written.
    #[error("failed to store messages in {}: {source}", .folder.display())]
    Io {
        /// The outbox.
        folder: PathBuf,
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
    /// One for each channel.
    wake: [Notify; 2],
    command: Vec<String>,
    webhook: Option<(Webhook, Mutex<Secret>)>,
    timeouts: HookTimeouts,
    clock: Clock,
}

fn webhook(
    config: &HooksConfig,
    secret: Option<&SecretString>,
    timeouts: HookTimeouts,
) -> Result<Option<(Webhook, Secret)>, HooksError> {
    let Some(url) = &config.webhook else { return Ok(None) };
    let secret = parsed(secret)?;
    Ok(Some((Webhook::new(url.clone(), timeouts.webhook)?, secret)))
}

fn parsed(secret: Option<&SecretString>) -> Result<Secret, HooksError> {
    Ok(Secret::parse(secret.ok_or(HooksError::NoSecret)?.expose_secret())?)
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
        let webhook =
            webhook(config, secret, timeouts)?.map(|(webhook, secret)| (webhook, Mutex::new(secret)));
        let folder = state.join("hooks");
        let outbox =
            Outbox::open(&folder).map_err(|source| HooksError::Io { folder: folder.clone(), source })?;
        let (outbox, wake) = (Mutex::new(outbox), <[Notify; 2]>::default());
        let command = config.batch_done.clone();
        Ok(Hooks { inner: Arc::new(HooksInner { folder, outbox, wake, command, webhook, timeouts, clock }) })
    }

    /// Another secret signs what is delivered from now on. Without a webhook there is nothing to sign.
    ///
    /// # Errors
    /// [`HooksError`]: no usable secret; the one before stays in force.
    pub fn replace_secret(&self, secret: Option<&SecretString>) -> Result<(), HooksError> {
        if let Some((_, present)) = &self.inner.webhook {
            *present.lock().unwrap_or_else(PoisonError::into_inner) = parsed(secret)?;
        }
        Ok(())
    }

    /// Checks the configuration; nothing is created or sent.
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

    /// Whether a hook is configured.
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
    /// When the outbox cannot be written.
    pub fn forget(&self, batch: &BatchName) -> Result<(), HooksError> {
        self.inner.outbox().forget(batch.as_str()).map_err(|source| self.inner.io(source))
    }

    /// Whether this end of a batch was delivered, given up, or waits for its delivery.
    #[cfg(test)]
    fn has_delivered_or_pending(&self, event: &BatchDone) -> Result<bool, HooksError> {
        self.inner.outbox().contains(event).map_err(|source| self.inner.io(source))
    }

    /// Stores the message that a batch is done. On return it is durable, and will be delivered even after a crash.
    /// The same message is stored once. Without hooks it is recorded as delivered, so that hooks that are configured
    /// later get messages of later batches only.
    ///
    /// # Errors
    /// When it cannot be stored; nothing is delivered then.
    pub fn batch_done(&self, event: &BatchDone) -> Result<(), HooksError> {
        if !self.is_any() {
            return self.mark_delivered(event);
        }
        let mut outbox = self.inner.outbox();
        if outbox.contains(event).map_err(|source| self.inner.io(source))? {
            return Ok(());
        }
        let now = self.inner.clock.now();
        outbox.push(event, now).map_err(|source| self.inner.io(source))?;
        drop(outbox);
        self.inner.wake.iter().for_each(Notify::notify_one);
        Ok(())
    }

    /// Records the end of a batch as delivered without a delivery.
    ///
    /// # Errors
    /// When it cannot be recorded.
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
                    let outcome = tokio::select! {
                        outcome = self.deliver_once(channel, &due) => Some(outcome),
                        () = async {
                            // An error: the sender of the stop is gone.
                            let _ = stop.wait_for(|stop| *stop).await;
                            tokio::time::sleep(timeouts).await;
                        } => None,
                    };
                    // The next process repeats what was cut off.
                    let Some(outcome) = outcome else { return };
                    Arc::clone(&self).record_outcome(channel, due, outcome).await;
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

    /// Delivers one message, once. A channel that is not configured has nothing to deliver.
    async fn deliver_once(&self, channel: Channel, due: &DueMessage) -> Result<(), DeliveryError> {
        let delivery_error = |reason| DeliveryError { reason, wait: None, is_final: false };
        match (channel, &self.webhook) {
            (Channel::Command, _) => command::run(&self.command, &due.entry.body, self.timeouts.command)
                .await
                .map_err(delivery_error),
            (Channel::Webhook, None) => Ok(()),
            (Channel::Webhook, Some((webhook, secret))) => {
                let now = self.clock.now().wall;
                let headers = secret
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
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

    /// Records the outcome of a try.
    async fn record_outcome(
        self: Arc<HooksInner>,
        channel: Channel,
        due: DueMessage,
        outcome: Result<(), DeliveryError>,
    ) {
        let what = match channel {
            Channel::Command => "hooks.batch_done",
            Channel::Webhook => "hooks.webhook",
        };
        let DueMessage { number, tries, entry, .. } = due;
        let delivery_state = match outcome {
            Ok(()) => DeliveryState::Delivered,
            Err(error) => {
                let now = self.clock.now();
                let age = now.wall.since(entry.since);
                let wait = self.timeouts.retries.wait(&error, tries, age, fastrand::f64());
                let reason = error.reason;
                if let Some(wait) = wait {
                    let secs = wait.0.div_ceil(1000);
                    tracing::info!(batch = entry.batch, "{what}: {reason}; retrying in {secs} s");
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
        let recorded = spawn_blocking(move || inner.outbox().end(number, channel, delivery_state)).await;
        if let Err(error) = recorded.map_err(io::Error::from).and_then(|recorded| recorded) {
            let folder = self.folder.display();
            tracing::error!(
                "failed to record a delivery in {folder}: {error}; it is delivered again after a restart"
            );
        }
    }
}
