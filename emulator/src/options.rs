//! How an emulator is started, and why it may not start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use url::Url;

use super::account::Plan;
use super::faults::FaultPlan;

/// The API key of an emulator that was given none.
pub const DEFAULT_API_KEY: &str = "emulator-key";

/// How an emulator is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the API listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where results are served; another origin than the API's.
    pub media_listen: SocketAddr,
    /// The address that results are named by, where clients do not reach `media_listen` as it is.
    pub media_url: Option<Url>,
    /// The one valid API key.
    pub api_key: String,
    /// The balance at the beginning, in credits. A balance found in `state_dir` wins.
    pub credits: u64,
    /// The account's plan. A plan found in `state_dir` wins.
    pub plan: Plan,
    /// 1.0 takes plausible time; 20.0 is twenty times faster.
    pub speed: f64,
    /// Where account, keys and tasks outlive the process; nowhere when absent.
    pub state_dir: Option<PathBuf>,
    /// What goes wrong; nothing when absent. Not kept in `state_dir`, and neither are its counters.
    pub faults: Option<FaultPlan>,
    /// A recorded catalog to serve instead of the built-in one.
    pub catalog: Option<PathBuf>,
    /// Decides ids, jitter and the look of results.
    pub seed: u64,
    /// Time stands still until it is stepped (`Emulator::advance`, `POST /emulator/clock`). Synchronous calls
    /// then wait for the step.
    pub manual_clock: bool,
}

impl Default for Options {
    fn default() -> Self {
        let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self {
            listen: loopback,
            media_listen: loopback,
            media_url: None,
            api_key: DEFAULT_API_KEY.to_owned(),
            credits: 10_000,
            plan: Plan::None,
            speed: 1.0,
            state_dir: None,
            faults: None,
            catalog: None,
            seed: 0,
            manual_clock: false,
        }
    }
}

/// Why an emulator did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address could not be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The state directory could not be used.
    #[error("cannot use the emulator's state {path}: {source}")]
    State {
        /// The record log.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another emulator holds the state directory.
    #[error("the emulator's state {path} is in use by another emulator")]
    StateInUse {
        /// The record log.
        path: PathBuf,
    },
    /// The record log is damaged, or of another version.
    #[error("cannot read line {line} of the emulator's state {path}: {reason}")]
    Damaged {
        /// The record log.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A catalog cannot be served.
    #[error("cannot serve the catalog{}: {reason}", path.as_ref().map(|p| format!(" {}", p.display())).unwrap_or_default())]
    Catalog {
        /// The file, or none for the built-in catalog.
        path: Option<PathBuf>,
        /// What is wrong with it.
        reason: String,
    },
    /// The fault plan cannot be used.
    #[error("cannot use the fault plan: {0}")]
    FaultPlan(String),
    /// An option has a value that means nothing.
    #[error("{0}")]
    Option(&'static str),
}
