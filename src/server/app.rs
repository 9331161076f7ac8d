//! An engine on a state and the control API before it: put together here, for the daemon, for `run` and `download`,
//! and for a command that finds no daemon.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::engine::engine_client::EngineClient;
use crate::engine::gallery::Gallery;
use crate::engine::input_store::InputStore;
use crate::engine::output_store::OutputStore;
use crate::engine::scheduler::Settings;
use crate::engine::{Engine, Mode, Scope};
use crate::ingest::ingest_handle::{IngestDefaults, IngestHandle};
use crate::metrics::Metrics;
use crate::output::file_names::Layout;
use crate::output::publish::OutputDir;
use crate::server::app_state::AppState;
use crate::server::handlers::OutputPlaces;
use crate::server::live_page::TypedCommands;
use crate::server::page_state::Pages;
use crate::server::protocol::{Health, ProcessKind};
use crate::server::routes;
use crate::store::{Store, StoreError};

/// What the configuration decides of it.
#[derive(Debug, Clone)]
pub struct AppParts {
    /// Limits, budgets, waits and deadlines.
    pub settings: Settings,
    /// What holds for every manifest.
    pub ingest: IngestDefaults,
    /// Where outputs lie.
    pub output_dir: OutputDir,
    /// Layout of batches that have none of their own.
    pub layout: Layout,
    /// Where outputs go besides, for an engine that has no access to the service; nothing where they stay on disk alone,
    /// or nothing is done about them.
    pub outputs: Option<OutputStore>,
    /// Where files go that rows name, for an engine that has no access to the service; nothing where it takes no manifests.
    pub inputs: Option<InputStore>,
    /// Flags that commands need so that they work on this state, for pages that show commands.
    pub command_flags: String,
    /// The same of pages that are answered.
    pub typed_commands: TypedCommands,
}

/// An engine that does not run yet, and what the routes of its control API need.
#[derive(Debug)]
pub struct App {
    /// The engine.
    pub engine: Engine,
    /// What the handlers share.
    pub state: AppState,
}

impl App {
    /// Puts an engine together that works on the batches in its scope.
    ///
    /// # Errors
    /// [`StoreError`] when the state cannot be read.
    pub fn new(
        store: Arc<Store>,
        mode: Mode,
        scope: &Scope,
        parts: AppParts,
        clock: Clock,
    ) -> Result<App, StoreError> {
        let AppParts { settings, ingest, output_dir, layout, outputs, inputs, command_flags, typed_commands } =
            parts;
        let outputs = match &mode {
            Mode::Free(deps) | Mode::Paying(deps) => deps.outputs.clone(),
            Mode::Read | Mode::Offline => outputs,
        };
        let inputs = match &mode {
            Mode::Free(deps) | Mode::Paying(deps) => deps.inputs.clone(),
            Mode::Read | Mode::Offline => inputs,
        };
        let metrics = match &mode {
            Mode::Free(deps) | Mode::Paying(deps) => deps.metrics.clone(),
            Mode::Read | Mode::Offline => Metrics::new(),
        };
        let absolute = |path: &std::path::Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let health = Health {
            process: ProcessKind::Run,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            since: clock.now().wall,
            service: ingest.identity.clone(),
            output: absolute(output_dir.root()),
            state: store.dir().canonicalize().unwrap_or_else(|_| PathBuf::from(store.dir())),
        };
        let gallery = Gallery::new(store.clone(), output_dir.clone(), clock, command_flags);
        let engine = Engine::new(store.clone(), mode, settings, clock, scope)?.with_gallery(gallery.clone());
        let ingest = IngestHandle::new(store.clone(), engine.handle(), clock, ingest);
        ingest.set_input_store(inputs);
        let engine_client = EngineClient::new(store, engine.handle());
        let state = AppState {
            engine: engine_client,
            ingest,
            health,
            output_places: watch::channel(OutputPlaces { dir: output_dir, layout, store: outputs }).1,
            gallery,
            schedules: None,
            metrics,
            pages: Pages::new(clock, typed_commands),
        };
        Ok(App { engine, state })
    }

    /// The routes of its control API.
    pub fn router(&self) -> Router {
        routes::router(self.state.clone())
    }

    /// The same, for a process that takes no more manifests than it was given.
    pub fn router_without_manifests(&self) -> Router {
        routes::router_without_manifests(self.state.clone())
    }
}
