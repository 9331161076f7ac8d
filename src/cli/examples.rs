//! Examples as `--help` and the man pages show them: each can be typed as it stands.

use crate::cli::exit;

pub(super) const RUN: &str = "\
Examples:
  # Offline, with an imaginary account: files appear in output/emulator/sampler.
  callsheet run jobs/sampler.csv --emulator

  # For real: the key is in the environment, and the batch may spend 500 credits.
  callsheet run spring.csv --base-url https://media.example --budget 500

  # The same manifest bought anew, under another batch name.
  callsheet run spring.csv --batch spring-2

  # For scripts: what became of it, as JSON on stdout.
  callsheet run spring.csv --json | jq '.batches[] | {name, state, succeeded}'

Ctrl-C once finishes what is in the air, twice leaves at once; the same command resumes.";

pub(super) const PLAN: &str = "\
Examples:
  # What it would cost, row by row, with the formula.
  callsheet plan spring.csv --base-url https://media.example --rows

  # Without an account.
  callsheet plan jobs/sampler.csv --emulator

  # In a pipeline: refuse a manifest with a single bad row.
  callsheet plan spring.csv --strict --json >plan.json || exit 1";

pub(super) const DAEMON: &str = "\
Examples:
  # By hand, offline; drop manifests into jobs/inbox.
  callsheet daemon --emulator

  # By systemd: the key is a credential, the rest is in /etc/callsheet/callsheet.toml.
  systemctl enable --now callsheet
  systemctl reload callsheet     # reads the configuration anew
  journalctl -u callsheet CALLSHEET_BATCH=spring

Writers drop files whole: write to a name that begins with a dot, then rename.";

pub(super) const SUBMIT: &str = "\
Examples:
  # Hand in and go; `callsheet status` shows the rest.
  callsheet submit spring.csv --budget 500

  # Hand in and wait: the exit code is that of the batch.
  callsheet submit spring.csv --wait

  # To a daemon that systemd runs; its group may write to the socket.
  callsheet submit spring.csv --socket /run/callsheet/callsheet.sock

  # From cron, a batch a day.
  callsheet submit nightly.csv --batch nightly-$(date +%F)";

pub(super) const TASKS: &str = "\
Examples:
  # What a job's task cost, when, and under which credit record.
  callsheet tasks 6f1c2c1e-0d2a-4c55-9f0e-0b1f2a3c4d5e

  # Every task of a batch, to be held against an invoice.
  jq -r '.task_id // empty' output/spring/results.jsonl | xargs callsheet tasks --json";

pub(super) const DOCTOR: &str = "\
Examples:
  # Before the first run: is everything in place?
  callsheet doctor

  # Of an installed service, with the key that its unit hands over.
  sudo callsheet doctor

  # What is wrong, for a monitoring script.
  callsheet doctor --json | jq '.checks[] | select(.level != \"good\")'

Exit codes:
    0  nothing is wrong; there may be advice
    2  configuration, paths or state are wrong
    3  the key is missing or refused
    4  the account is empty
    5  the service does not answer, or does not answer as itself
    6  the disk is full or not writable";

pub(super) const MAN: &str = "\
Examples:
  callsheet man | man -l -
  callsheet man /usr/local/share/man/man1";

pub(super) const COMPLETIONS: &str = "\
Examples:
  callsheet completions bash >~/.local/share/bash-completion/completions/callsheet
  callsheet completions zsh >~/.zfunc/_callsheet
  callsheet completions fish >~/.config/fish/completions/callsheet.fish";

/// Examples, and under them the exit codes.
pub(super) fn and_exit_codes(examples: &str) -> String {
    format!("{examples}\n\n{}", exit::HELP)
}
