//! Exit codes: their descriptions, and what the process returns.

use std::process::{ExitCode, Termination};

pub use crate::domain::exit_code::Exit;

/// The codes as `--help` shows them.
pub(super) const HELP: &str = "Exit codes:
    0  everything is done
    1  some jobs failed
    2  usage, \
                               configuration or manifest is wrong
    3  not authorised
    4  stopped by a budget \
                               or by the balance
    5  the service does not answer
    6  the disk is full or not \
                               writable, or the state is damaged
    7  not finished: overdue, paused, in doubt or waiting for review
  \
                               130  interrupted; the state is safe, repeat the command to resume";

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_every_code() {
        for exit in Exit::ALL {
            let listed =
                HELP.lines().any(|line| line.trim_start().starts_with(&format!("{}  ", exit.code())));
            assert!(listed, "{exit:?}");
        }
    }
}
