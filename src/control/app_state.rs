//! What the handlers of every route share.

use std::sync::Arc;

use axum::extract::State;
use tokio::sync::{mpsc, watch};

use crate::control::handlers::OutputPlaces;
use crate::control::page_state::Pages;
use crate::control::protocol::{Health, Refusal, Schedules};
use crate::engine::engine_client::EngineClient;
use crate::engine::gallery::Gallery;
use crate::engine::output_store::OutputStore;
use crate::intake::ingest::Ingest;
use crate::intake::receipt::Receipt;
use crate::metrics::Metrics;
use crate::output::file_names::Layout;
use crate::output::publish::OutputDir;

/// What the handlers share.
#[derive(Debug, Clone)]
pub struct AppState {
    /// Batches and commands.
    pub engine: EngineClient,
    /// Takes manifests in.
    pub ingest: Ingest,
    /// The response of `/v1/health`.
    pub health: Health,
    /// Where outputs lie.
    pub output_dir: OutputDir,
    /// Layout of batches that have none of their own.
    pub layout: Layout,
    /// Where outputs go besides.
    pub outputs: Option<OutputStore>,
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
    /// Where outputs are.
    pub fn output_places(&self) -> OutputPlaces<'_> {
        OutputPlaces { dir: &self.output_dir, layout: &self.layout, store: self.outputs.as_ref() }
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
    /// Where what came of it goes.
    pub reply: tokio::sync::oneshot::Sender<Result<Receipt, FireError>>,
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
