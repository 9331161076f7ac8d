//! What `callsheet emulator` takes.

use std::net::SocketAddr;
use std::path::PathBuf;

use callsheet_emulator::DEFAULT_API_KEY;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use url::Url;

use crate::cli::speed_factor::speed;
use crate::domain::credits::Credits;

/// What `emulator` takes.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Emulator options",
    after_help = EXAMPLE,
    after_long_help = EXAMPLES
)]
pub(in crate::cli) struct EmulatorCommand {
    /// Address of the API; port 0 picks a free port
    #[arg(
        long,
        env = "CALLSHEET_EMULATOR_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:8787",
        value_name = "ADDRESS"
    )]
    pub(super) listen: SocketAddr,
    /// Address that serves result files, another origin than the API
    #[arg(
        long,
        env = "CALLSHEET_EMULATOR_MEDIA_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:0",
        value_name = "ADDRESS"
    )]
    pub(super) media_listen: SocketAddr,
    /// Base URL of result files, if clients cannot reach --media-listen, such as in a container
    #[arg(long, env = "CALLSHEET_EMULATOR_MEDIA_URL", hide_env_values = true, value_name = "URL")]
    pub(super) media_url: Option<Url>,
    /// The only valid API key. It protects nothing: never use a real key
    #[arg(long, env = "CALLSHEET_EMULATOR_API_KEY", hide_env_values = true, default_value = DEFAULT_API_KEY, value_name = "KEY")]
    pub(super) api_key: String,
    /// Initial balance of the account
    #[arg(long, env = "CALLSHEET_EMULATOR_CREDITS", hide_env_values = true, default_value_t = 10_000, value_parser = Credits::amount)]
    pub(super) credits: u64,
    /// Plan of the account; decides its daily allowances
    #[arg(long, env = "CALLSHEET_EMULATOR_PLAN", hide_env_values = true, value_enum, default_value_t = PlanName::None)]
    pub(super) plan: PlanName,
    /// Speed as a multiple of real time: 1 is realistic, 20 is twenty times faster, inf is instant
    #[arg(long, env = "CALLSHEET_EMULATOR_SPEED", hide_env_values = true, default_value_t = 1.0, value_name = "FACTOR", value_parser = speed)]
    pub(super) speed: f64,
    /// Directory that keeps account, keys and tasks after exit [default: none]
    #[arg(long, env = "CALLSHEET_EMULATOR_STATE", hide_env_values = true, value_name = "DIR")]
    pub(super) emulator_state: Option<PathBuf>,
    /// Fault plan: calm, flaky-network, storm, or a TOML or JSON file [default: none]
    #[arg(long, env = "CALLSHEET_EMULATOR_FAULTS", hide_env_values = true, value_name = "NAME|FILE")]
    pub(super) faults: Option<String>,
    /// Catalog file for models and prices, in place of the built-in catalogs
    #[arg(long, env = "CALLSHEET_EMULATOR_CATALOG", hide_env_values = true, value_name = "FILE")]
    pub(super) catalog: Option<PathBuf>,
    /// Seed of ids, jitter and the look of results
    #[arg(long, env = "CALLSHEET_EMULATOR_SEED", hide_env_values = true, default_value_t = 0)]
    pub(super) seed: u64,
    /// Stop the clock; POST /emulator/clock advances it
    #[arg(long, env = "CALLSHEET_EMULATOR_MANUAL_CLOCK", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub(super) manual_clock: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PlanName {
    /// No allowances
    None,
    /// 25 images a day
    Pro,
    /// 100 images and 300 seconds of house-c1 a day
    Ultra,
}

const EXAMPLE: &str = "\
Example:
  callsheet emulator --speed 20 &
  curl http://127.0.0.1:8787/api/v1/videos -H 'Authorization: Bearer emulator-key' \\
    -H 'Idempotency-Key: boat-1' -d '{\"model\": \"house-c1\", \"prompt\": \"a small boat\"}'

See --help for fault plans, control endpoints and use in scripts.";

const EXAMPLES: &str = "\
Example:
  callsheet emulator --speed 20 &

  # Create a video. Repeating the Idempotency-Key returns the same task and charges nothing.
  curl http://127.0.0.1:8787/api/v1/videos -H 'Authorization: Bearer emulator-key' \\
    -H 'Idempotency-Key: boat-1' -d '{\"model\": \"house-c1\", \"prompt\": \"a small boat\"}'

  # Poll the task by its id until `status` is final; then download its `taskUrls`.
  curl http://127.0.0.1:8787/api/v1/tasks/ID -H 'Authorization: Bearer emulator-key'

Fault plans (--faults):
  calm           nothing goes wrong
  flaky-network  connections drop, proxies answer, downloads are cut; the service works
  storm          every failure that the service's document allows, and some more
  FILE           your own plan; a rule has a trigger and an effect:
                   [[rules]]
                   on = \"create\"
                   every = 3
                   effect = { do = \"drop\", when = \"after\" }

Control endpoints, on the address of the API, without a key:
  GET  /emulator/audit        charges, refunds, repeated requests, too frequent polls
  POST /emulator/faults       {\"plan\": \"storm\"}, or a plan
  POST /emulator/clock        {\"advance_ms\": 60000}
  POST /emulator/account      {\"credits\": 5, \"plan\": \"ultra\", \"key_valid\": false}
  POST /emulator/account      {\"top_up\": 100, \"spend\": 30, \"use_allowance\": {\"images\": 20}}
  POST /emulator/catalog      {\"multiply\": 2}, or parts of a catalog file
  POST /emulator/tasks/ID     {\"status\": \"canceled\"}, success, or failed with error_code and reason

For scripts: with --json the emulator prints one line when it is ready:
  {\"api_key\":\"emulator-key\",\"base_url\":\"http://127.0.0.1:8787\",\"media_url\":\"http://127.0.0.1:40123\"}

SIGTERM and SIGINT stop it with exit code 0; a port in use or a wrong option is 2.
See docs/emulator.md for transcripts of all calls.";
