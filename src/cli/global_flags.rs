//! Flags that every command takes, and those of the emulator that a command starts.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;
use url::Url;

use crate::cli::speed_factor::speed;
use crate::config::check_log_level;

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct Global {
    /// Configuration file [default: ./callsheet.toml, then /etc/callsheet/callsheet.toml]
    #[arg(long, global = true, env = "CALLSHEET_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Base address of the service
    #[arg(long, global = true, env = "CALLSHEET_BASE_URL", hide_env_values = true, value_name = "URL")]
    pub(super) base_url: Option<Url>,
    /// Work offline with the built-in emulator of the service, with a separate state and output directory
    #[arg(long, global = true, env = "CALLSHEET_EMULATOR", hide_env_values = true, value_parser = BoolishValueParser::new(), hide = NO_EMULATOR)]
    pub(super) emulator: bool,
    /// State directory [default: state, or state/emulator with --emulator]
    #[arg(long, global = true, env = "CALLSHEET_STATE", hide_env_values = true, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// Output directory [default: output, or output/emulator with --emulator]
    #[arg(long, global = true, env = "CALLSHEET_OUTPUT", hide_env_values = true, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Manifest directory, with inbox, accepted and rejected in it [default: jobs]
    #[arg(long, global = true, env = "CALLSHEET_JOBS", hide_env_values = true, value_name = "DIR")]
    pub(super) jobs: Option<PathBuf>,
    /// Control socket of the daemon [default: callsheet.sock in the state directory]
    #[arg(long, global = true, env = "CALLSHEET_SOCKET", hide_env_values = true, value_name = "FILE")]
    pub(super) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true, env = "CALLSHEET_JSON", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub(super) json: bool,
    /// Log level on stderr: error, warn, info, debug or trace
    #[arg(long, global = true, env = "CALLSHEET_LOG_LEVEL", hide_env_values = true, value_name = "LEVEL", value_parser = log_level)]
    pub(super) log_level: Option<String>,
}

/// A level, or a filter that is made of levels.
fn log_level(text: &str) -> Result<String, String> {
    check_log_level(text).map(|()| text.to_owned())
}

/// Whether this build has no emulator. `--emulator` is then taken all the same, and refused: in an environment it must
/// not be passed over, and the command go to the service.
pub(super) const NO_EMULATOR: bool = cfg!(not(feature = "emulator"));

/// How fast the emulator works that a command starts.
#[derive(Debug, Args)]
pub(super) struct EmulatorArguments {
    /// Speed of the emulator, as a multiple of real time
    #[arg(long, default_value_t = 5.0, value_name = "FACTOR", requires = "emulator", value_parser = speed, hide = NO_EMULATOR)]
    pub(super) emulator_speed: f64,
}
