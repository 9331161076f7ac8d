//! What an engine is told from outside: what it may do, for which batches and until when.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::{Downloads, Service};
use crate::domain::ids::BatchNo;
use crate::domain::slow_download::MinRate;
use crate::engine::catalog_source::CatalogSource;
use crate::engine::input_store::InputStore;
use crate::engine::output_store::OutputStore;
use crate::engine::request_rate::RateLimit;
use crate::metrics::Metrics;
use crate::output::file_names::Layout;
use crate::output::publish::OutputDir;

/// When the engine stops. It may be changed while the engine works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Not by itself, whether there is work or not.
    No,
    /// When nothing moves any more.
    AtStandstill,
    /// When requests in flight are answered, within half a minute; nothing new begins.
    Soon,
    /// The same, and creating requests are waited for as long as they take.
    Answered,
}

impl Stop {
    /// Whether nothing new is to begin.
    pub fn is_stopping(self) -> bool {
        matches!(self, Stop::Soon | Stop::Answered)
    }
}

/// Everything that happens outside.
#[derive(Debug, Clone)]
pub struct EngineDeps {
    /// The service.
    pub service: Service,
    /// Its results.
    pub downloads: Downloads,
    /// The output folder.
    pub output_dir: OutputDir,
    /// Largest output that is downloaded, in bytes.
    pub max_file_bytes: u64,
    /// A download that stays below makes room for one that waits.
    pub min_rate: MinRate,
    /// Room that must stay free on the output disk, in bytes.
    pub min_free_bytes: u64,
    /// Where files go that rows name; nothing where rows may name none.
    pub inputs: Option<InputStore>,
    /// Where published outputs go besides; nothing where they stay on disk alone.
    pub outputs: Option<OutputStore>,
    /// Whether outputs stay on disk when they are in the store.
    pub keeps_local: bool,
    /// How fast creating POSTs may leave.
    pub submits: RateLimit,
    /// How fast tasks may be read.
    pub polls: RateLimit,
    /// The catalogs in force; nothing where jobs go out at the prices that they were accepted at.
    pub catalogs: Option<Arc<dyn CatalogSource>>,
    /// Layout of batches that have none of their own.
    pub layout: Layout,
    /// Who is told what is done, how long it took and how everything stands.
    pub metrics: Metrics,
}

impl EngineDeps {
    /// The same, in the place of those that an engine had: its counters go on, a sweep that goes on knows of its parts, and of
    /// the same folders it is known how they were found.
    #[must_use]
    pub fn in_place_of(
        self,
        metrics: &Metrics,
        output_dir: &OutputDir,
        outputs: Option<&OutputStore>,
    ) -> EngineDeps {
        EngineDeps {
            inputs: self.inputs.map(|store| store.counted_by(metrics)),
            outputs: self.outputs.map(|store| store.in_place_of(outputs, metrics)),
            output_dir: self.output_dir.in_place_of(output_dir),
            metrics: metrics.clone(),
            ..self
        }
    }
}

/// What an engine may do in its process.
#[derive(Debug, Clone)]
pub enum Mode {
    /// Answers questions from a snapshot: no step, no commit.
    Read,
    /// Executes commands and commits them. Nothing leaves the process.
    Offline,
    /// Reads tasks, catalogs and the balance, and downloads. Sends no creating POST.
    Free(Box<EngineDeps>),
    /// Sends what the budgets allow, too.
    Paying(Box<EngineDeps>),
}

/// Which batches of the state an engine works on. What all others hold and have spent counts all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// Those with these numbers.
    Only(BTreeSet<BatchNo>),
}

impl Scope {
    /// Whether it works on this batch.
    pub fn contains(&self, no: BatchNo) -> bool {
        match self {
            Scope::All => true,
            Scope::Only(batches) => batches.contains(&no),
        }
    }
}
