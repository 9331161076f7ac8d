//! Examples as `--help` and the man pages show them: each can be typed as it stands.

use crate::domain::exit_code;

pub(super) const RUN: &str = "\
Examples:
  # Offline, with an imaginary account: files appear in output/emulator/sampler.
  callsheet run jobs/sampler.csv --emulator

  # With the real service: the key is in the environment, the budget is 500 credits.
  callsheet run spring.csv --base-url https://media.example --budget 500

  # Buy the same manifest again, under another batch name.
  callsheet run spring.csv --batch spring-2

  # For scripts: print the result as JSON.
  callsheet run spring.csv --json | jq '.batches[] | {name, state, succeeded}'

Ctrl-C once waits for requests in flight, twice exits at once; repeat the command to resume.";

pub(super) const PLAN: &str = "\
Examples:
  # Show the price of every row, with its formula.
  callsheet plan spring.csv --base-url https://media.example --rows

  # Without an account.
  callsheet plan jobs/sampler.csv --emulator

  # In a pipeline: reject a manifest with an invalid row.
  callsheet plan spring.csv --strict --json >plan.json || exit 1

  # A picture of which rows take outputs of which.
  callsheet plan jobs/storyboard.json --emulator --graph | dot -Tsvg >storyboard.svg";

pub(super) const DAEMON: &str = "\
Examples:
  # In a terminal, offline; drop manifests into jobs/inbox.
  callsheet daemon --emulator

  # With systemd: the key is a credential, the configuration is /etc/callsheet/callsheet.toml.
  systemctl enable --now callsheet
  systemctl reload callsheet     # reloads the configuration
  journalctl -u callsheet CALLSHEET_BATCH=spring

Drop complete files: write to a name that begins with a dot, then rename.";

pub(super) const SUBMIT: &str = "\
Examples:
  # Submit and return; `callsheet status` shows the progress.
  callsheet submit spring.csv --budget 500

  # Submit and wait; the exit code is that of the batch.
  callsheet submit spring.csv --wait

  # Submit to a daemon under systemd; its group can use the socket.
  callsheet submit spring.csv --socket /run/callsheet/callsheet.sock

  # In a crontab, where % is written as \\%: a batch per day.
  callsheet submit nightly.csv --batch nightly-$(date +\\%F)";

pub(super) const REVIEW: &str = "\
Examples:
  # List what waits for a decision, and decide.
  callsheet review spring
  callsheet review approve spring/opening
  callsheet review reject spring/poster --note 'wrong colours'
  callsheet review pick spring/poster-v2

  # Another take: its price first, then that take at that price.
  callsheet review another-take spring/poster
  callsheet review another-take spring/poster --take 3 --price 8

  # In a spreadsheet: fill in the column `decision`.
  callsheet review spring --export decisions.csv
  callsheet review spring --import decisions.csv";

pub(super) const RETRY: &str = "\
Examples:
  # Queue what failed, was canceled or expired again.
  callsheet retry spring

  # Another model and length for what failed: show the cost first, then make new jobs.
  callsheet retry spring --failed --set model=house-c1 --set options.duration=5s --dry-run
  callsheet retry spring --failed --set model=house-c1 --set options.duration=5s

  # Without a field that the model does not take.
  callsheet retry spring/opening --set options.seed=";

pub(super) const TASKS: &str = "\
Examples:
  # Show the cost, times and credit record of a job's task.
  callsheet tasks 6f1c2c1e-0d2a-4c55-9f0e-0b1f2a3c4d5e

  # Show all tasks of a batch, to compare with an invoice.
  jq -r '.task_id // empty' output/spring/results.jsonl | xargs callsheet tasks --json";

pub(super) const DOCTOR: &str = "\
Examples:
  # Before the first run:
  callsheet doctor

  # For an installed service, with the key of its unit:
  sudo callsheet doctor

  # For monitoring: list the problems.
  callsheet doctor --json | jq '.checks[] | select(.level != \"good\")'

Exit codes:
    0  no problems; there may be advice
    2  the configuration, paths or state are wrong
    3  the key is missing or refused
    4  the account is empty
    5  the service does not answer, or something else answers
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
    format!("{examples}\n\n{}", exit_code::HELP)
}
