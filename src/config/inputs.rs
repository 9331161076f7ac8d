//! `[inputs]`: files of this machine that rows name, and what rows may name of other batches.

use std::path::PathBuf;

use bytesize::ByteSize;
use serde::Deserialize;
use url::Url;

use super::span::{Span, secs};
use crate::config::size::size;
use crate::domain::batch_origin::SharedSource;

/// `[inputs]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InputsConfig {
    /// Below which folders files may lie that manifests of inboxes, of schedules and from the control API name.
    pub roots: Vec<PathBuf>,
    /// Sources whose batches manifests of every other source may name in references: `inbox:NAME`, `schedule:NAME`,
    /// `socket`, or the absolute path of a folder.
    pub shared_sources: Vec<SharedSource>,
    /// The object store that files of this machine are uploaded to, so that the service can fetch them:
    /// `s3://bucket/prefix`, `gs://…` or `az://…`. Without one no row may name a file.
    pub store: Option<Url>,
    /// Largest file that is uploaded.
    #[serde(deserialize_with = "size")]
    pub max_file: ByteSize,
    /// How long an uploaded file stays in the store after a job took it, where no job needs it any more.
    pub keep: Span,
}

impl Default for InputsConfig {
    fn default() -> InputsConfig {
        InputsConfig {
            roots: Vec::new(),
            shared_sources: Vec::new(),
            store: None,
            max_file: ByteSize::mib(100),
            keep: secs(30 * 24 * 3600),
        }
    }
}
