//! `[paths]`: directories and the socket.

use std::path::PathBuf;

use serde::Deserialize;

/// `[paths]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Paths {
    /// Manifests: `jobs` unless given. `inbox`, `accepted` and `rejected` lie in it.
    pub jobs: Option<PathBuf>,
    /// The state; `state` unless given. With the emulator `emulator` in it.
    pub state: Option<PathBuf>,
    /// The outputs; `output` unless given. With the emulator `emulator` in it.
    pub output: Option<PathBuf>,
    /// The control socket; `callsheet.sock` in the state unless given.
    pub socket: Option<PathBuf>,
}
