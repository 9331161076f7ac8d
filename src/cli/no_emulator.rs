//! What stands in the emulator's place in a build without the feature `emulator`: a refusal.

use std::path::PathBuf;

use crate::cli::failure::Failure;
use crate::domain::exit_code::Exit;

/// Opens nothing: there is no emulator.
pub(super) const DEFAULT_API_KEY: &str = "";

/// There is none.
pub(super) enum Emulator {}

impl Emulator {
    pub(super) fn base_url(&self) -> String {
        match *self {}
    }

    pub(super) async fn stop(self) {
        match self {}
    }
}

/// Refuses.
pub(super) async fn start(_speed: f64, _state_dir: Option<PathBuf>) -> Result<Emulator, Failure> {
    Err(Failure::new(Exit::Usage, "this build of callsheet has no emulator").hint(
        "name a service with --base-url, or use a build with the feature `emulator`, as the default build is",
    ))
}
