//! An engine and its control API in this process, for a command that finds no daemon.

use std::pin::Pin;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::engine::scheduler::Standstill;
use crate::engine::{EngineError, Stop};
use crate::server::app::App;

/// An engine that serves its control API to this process alone.
#[derive(Debug)]
pub struct InProcess {
    client: Client,
    stop: watch::Sender<Stop>,
    serving: JoinHandle<Result<Standstill, EngineError>>,
}

impl InProcess {
    /// Begins to serve.
    pub fn begin(mut app: App) -> InProcess {
        let client = Client::in_process(app.router());
        let (stop, stopped) = watch::channel(Stop::No);
        // Boxed, so that it is compiled once.
        let running: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let outcome = app.engine.run(stopped, |_| {}).await;
            app.engine.end();
            outcome
        });
        let serving = tokio::spawn(running);
        InProcess { client, stop, serving }
    }

    /// Its client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Lets the engine work until nothing moves any more, and ends it.
    ///
    /// # Errors
    /// [`EngineError`]; a restart resumes.
    pub async fn finish(self) -> Result<Standstill, EngineError> {
        self.stop(Stop::AtStandstill).await
    }

    /// Ends it; on return nothing of it has the state open any more.
    ///
    /// # Errors
    /// What the engine ended with, where it ended before.
    pub async fn end(self) -> Result<(), EngineError> {
        self.stop(Stop::Soon).await.map(drop)
    }

    async fn stop(self, how: Stop) -> Result<Standstill, EngineError> {
        let InProcess { stop, serving, .. } = self;
        // Where the engine has ended by itself, that is told next.
        let _ = stop.send(how);
        // A panic in it ended the process.
        serving.await.unwrap_or(Ok(Standstill::Stopped))
    }
}
