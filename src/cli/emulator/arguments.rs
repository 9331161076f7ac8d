//! What `callsheet emulator` takes.

use std::net::SocketAddr;
use std::path::PathBuf;

use callsheet_emulator::DEFAULT_API_KEY;
use clap::{Args, ValueEnum};
use url::Url;

use crate::cli::arguments::speed;

/// What `emulator` takes.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Emulator options",
    after_help = EXAMPLE,
    after_long_help = EXAMPLES
)]
pub(in crate::cli) struct EmulatorCommand {
    /// Where the API listens; port 0 takes a free one
    #[arg(
        long,
        env = "CALLSHEET_EMULATOR_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:8787",
        value_name = "ADDRESS"
    )]
    pub(super) listen: SocketAddr,
    /// Where results are served: another origin than the API's
    #[arg(
        long,
        env = "CALLSHEET_EMULATOR_MEDIA_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:0",
        value_name = "ADDRESS"
    )]
    pub(super) media_listen: SocketAddr,
    /// Address that results are named by, where clients do not reach the one above (a container's, say)
    #[arg(long, env = "CALLSHEET_EMULATOR_MEDIA_URL", hide_env_values = true, value_name = "URL")]
    pub(super) media_url: Option<Url>,
    /// The one API key that is valid. It guards nothing: never use a real one
    #[arg(long, env = "CALLSHEET_EMULATOR_API_KEY", hide_env_values = true, default_value = DEFAULT_API_KEY, value_name = "KEY")]
    pub(super) api_key: String,
    /// Credits on the account at the beginning
    #[arg(long, env = "CALLSHEET_EMULATOR_CREDITS", hide_env_values = true, default_value_t = 10_000)]
    pub(super) credits: u64,
    /// Plan of the account, which decides its daily allowances
    #[arg(long, env = "CALLSHEET_EMULATOR_PLAN", hide_env_values = true, value_enum, default_value_t = PlanName::None)]
    pub(super) plan: PlanName,
    /// How much faster than real time: 1 takes plausible time, 20 a twentieth of it, inf none
    #[arg(long, env = "CALLSHEET_EMULATOR_SPEED", hide_env_values = true, default_value_t = 1.0, value_name = "FACTOR", value_parser = speed)]
    pub(super) speed: f64,
    /// Where account, keys and tasks outlive the process [default: they do not]
    #[arg(long, env = "CALLSHEET_EMULATOR_STATE", hide_env_values = true, value_name = "DIR")]
    pub(super) emulator_state: Option<PathBuf>,
    /// What goes wrong: calm, flaky-network, storm, or a TOML or JSON file [default: nothing]
    #[arg(long, env = "CALLSHEET_EMULATOR_FAULTS", hide_env_values = true, value_name = "NAME|FILE")]
    pub(super) faults: Option<String>,
    /// Recorded catalogs to serve and charge by, instead of the built-in ones
    #[arg(long, env = "CALLSHEET_EMULATOR_CATALOG", hide_env_values = true, value_name = "FILE")]
    pub(super) catalog: Option<PathBuf>,
    /// Decides ids, jitter and the look of results
    #[arg(long, env = "CALLSHEET_EMULATOR_SEED", hide_env_values = true, default_value_t = 0)]
    pub(super) seed: u64,
    /// Time stands still until POST /emulator/clock steps it
    #[arg(long, env = "CALLSHEET_EMULATOR_MANUAL_CLOCK", hide_env_values = true)]
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

`--help` says more: fault plans, the control endpoints, use in scripts.";

const EXAMPLES: &str = "\
Example:
  callsheet emulator --speed 20 &

  # Create a video. The same Idempotency-Key again gives the same task and charges nothing.
  curl http://127.0.0.1:8787/api/v1/videos -H 'Authorization: Bearer emulator-key' \\
    -H 'Idempotency-Key: boat-1' -d '{\"model\": \"house-c1\", \"prompt\": \"a small boat\"}'

  # Poll it by the id of the answer, until `status` is final; download what `taskUrls` names.
  curl http://127.0.0.1:8787/api/v1/tasks/ID -H 'Authorization: Bearer emulator-key'

Fault plans (--faults):
  calm           nothing goes wrong
  flaky-network  connections drop, proxies answer, downloads are cut; the service is well
  storm          everything that the service's document allows to go wrong, and some more
  FILE           your own; a rule says when it strikes and what it does:
                   [[rules]]
                   on = \"create\"
                   every = 3
                   effect = { do = \"drop\", when = \"after\" }

Control endpoints, on the API's address, without a key:
  GET  /emulator/audit        what was charged, refunded, sent twice, polled too often
  POST /emulator/faults       {\"plan\": \"storm\"}, or a plan
  POST /emulator/clock        {\"advance_ms\": 60000}
  POST /emulator/account      {\"credits\": 5, \"plan\": \"ultra\", \"key_valid\": false}
  POST /emulator/account      {\"top_up\": 100, \"spend\": 30, \"use_allowance\": {\"images\": 20}}
  POST /emulator/catalog      {\"multiply\": 2}, or parts of a catalog file
  POST /emulator/tasks/ID     {\"status\": \"canceled\"}, success, or failed with error_code and reason

For scripts: with --json one line on stdout says when it is ready, and where:
  {\"api_key\":\"emulator-key\",\"base_url\":\"http://127.0.0.1:8787\",\"media_url\":\"http://127.0.0.1:40123\"}

SIGTERM and SIGINT end it with exit code 0; a port that is taken, or a wrong option, is 2.
docs/emulator.md has transcripts of every kind of call.";
