//! What the handlers of every route share.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tokio::sync::{mpsc, watch};

use crate::domain::credits::Credits;
use crate::domain::exit_code::Exit;
use crate::domain::time::Timestamp;
use crate::engine::engine_client::EngineClient;
use crate::engine::gallery::Gallery;
use crate::ingest::ingest_handle::IngestHandle;
use crate::ingest::receipt::Receipt;
use crate::metrics::Metrics;
use crate::output::publish::OutputDir;
use crate::server::api_error::ApiError;
use crate::server::handlers::OutputPlaces;
use crate::server::page_state::Pages;
use crate::server::protocol::{Health, Refusal, Schedules};

/// What the handlers share.
#[derive(Debug, Clone)]
pub struct AppState {
    /// Batches and commands.
    pub engine: EngineClient,
    /// Takes manifests in.
    pub ingest: IngestHandle,
    /// The response of `/v1/health`.
    pub health: Health,
    /// Where outputs are: a reload changes it.
    pub output_places: watch::Receiver<OutputPlaces>,
    /// Pages to look at.
    pub gallery: Gallery,
    /// The schedules that this process carries out; nothing where it carries out none.
    pub schedules: Option<ScheduleAccess>,
    /// The metrics, as Prometheus reads them.
    pub metrics: Metrics,
    /// The live pages.
    pub pages: Pages,
}

impl AppState {
    /// Where outputs are at present.
    pub fn output_places(&self) -> OutputPlaces {
        self.output_places.borrow().clone()
    }

    /// Where they lie on disk.
    pub fn output_dir(&self) -> OutputDir {
        self.output_places().dir
    }
}

impl AppState {
    /// Has the daemon do something with a schedule out of turn.
    ///
    /// # Errors
    /// This process runs none, none is called so, or its manifest cannot be taken in.
    pub(super) async fn fire(&self, name: String, how: FireMode) -> Result<Receipt, ApiError> {
        let Some(schedules) = &self.schedules else {
            let refusal = Refusal::new(Exit::Usage, "this process runs no schedules");
            return Err(ApiError(StatusCode::CONFLICT, refusal.hint("start callsheet daemon")));
        };
        let gone = || {
            let refusal = Refusal::new(Exit::Unfinished, "the daemon is stopping");
            ApiError(StatusCode::SERVICE_UNAVAILABLE, refusal)
        };
        let (reply, answer) = tokio::sync::oneshot::channel();
        schedules.run.send(FireRequest { name, how, reply }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?.map_err(|error| match error {
            FireError::Unknown(refusal) => ApiError(StatusCode::NOT_FOUND, refusal),
            FireError::Refused(refusal) => ApiError(StatusCode::CONFLICT, refusal),
        })
    }
}

/// The schedules of a daemon.
#[derive(Debug, Clone)]
pub struct ScheduleAccess {
    /// Runs a schedule by its name, and says what came of it.
    pub run: mpsc::Sender<FireRequest>,
    /// Those that are carried out at present.
    pub in_force: watch::Receiver<Schedules>,
}

/// A schedule is to be fired out of turn.
#[derive(Debug)]
pub struct FireRequest {
    /// Its name.
    pub name: String,
    /// What is to be done.
    pub how: FireMode,
    /// Where what came of it goes.
    pub reply: tokio::sync::oneshot::Sender<Result<Receipt, FireError>>,
}

/// What is done with a schedule out of turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FireMode {
    /// It runs now.
    Now,
    /// Only what a run of this instant would do and cost is asked.
    Plan(Timestamp),
    /// It runs as it was planned for an instant, and may spend what was shown then: twice is one run.
    Planned(Timestamp, Credits),
}

/// Why a schedule does not fire.
#[derive(Debug)]
pub enum FireError {
    /// No schedule is called so.
    Unknown(Refusal),
    /// Its manifest cannot be taken in.
    Refused(Refusal),
}

pub(super) type Shared = State<Arc<AppState>>;
