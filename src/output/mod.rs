//! What people find on disk: one folder a batch, outputs named after their jobs, a sidecar for
//! each job's outputs, and the results of the whole batch.
//!
//! Architecture invariant: a file under its final name is whole, checked and synced. Anything else
//! is called `.part` and begins with a dot.

mod csv_dialect;
pub mod decisions_csv;
pub mod direct_io;
pub mod file_names;
mod group_sync;
mod integrity;
mod media_type;
pub mod open_output;
pub mod output_spec;
pub mod own_file;
pub mod part_sweep;
pub mod publish;
mod recorded_paths;
pub mod report;
pub mod results;
mod row_version_names;
pub mod sidecar;
mod sidecar_search;
mod task_fields;

pub use self::csv_dialect::CsvDialect;
pub use self::integrity::is_truncated;
pub use self::media_type::{Media, NotMedia, detect_media_type};

use serde::Deserialize;

/// How outputs and results are laid out, as `[output]` sets it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OutputOptions {
    pub sidecars: SidecarPlace,
    pub results_csv: CsvDialect,
    /// Whether each batch leaves a page to look at.
    pub gallery: bool,
}

/// Where new sidecars are put.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SidecarPlace {
    /// In a folder of the batch's folder.
    #[default]
    Folder,
    /// Beside the outputs.
    Beside,
}
