//! How a program or a request ends: exit codes, and their descriptions as `--help` shows them.

use std::process::{ExitCode, Termination};

/// The codes as `--help` shows them.
pub const HELP: &str = "Exit codes:
    0  everything is done
    1  some jobs failed, were canceled or expired
    2  usage, configuration or manifest is wrong
    3  not authorised
    4  stopped by a budget or by the balance
    5  the service does not answer
    6  the disk is full or not writable, or the state is damaged
    7  not finished: overdue, paused, in doubt, waiting for review or after a pilot
  130  interrupted; the state is safe, repeat the command to resume";

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything that was asked for is done.
    Success,
    /// Some jobs failed.
    SomeFailed,
    /// Usage, configuration or manifest is wrong. Good rows were done all the same.
    Usage,
    /// The API key is missing or refused.
    Unauthorised,
    /// Stopped by a budget or by the balance.
    OutOfFunds,
    /// The service does not answer.
    Unreachable,
    /// The disk is full, something cannot be written, or the state is damaged.
    Disk,
    /// Not finished: overdue, paused, in doubt, waiting for review or after a pilot.
    Unfinished,
    /// Interrupted; state is safe, and the same command resumes.
    Interrupted,
}

impl Exit {
    /// Every end.
    pub const ALL: [Exit; 9] = [
        Exit::Success,
        Exit::SomeFailed,
        Exit::Usage,
        Exit::Unauthorised,
        Exit::OutOfFunds,
        Exit::Unreachable,
        Exit::Disk,
        Exit::Unfinished,
        Exit::Interrupted,
    ];

    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::SomeFailed => 1,
            Exit::Usage => 2,
            Exit::Unauthorised => 3,
            Exit::OutOfFunds => 4,
            Exit::Unreachable => 5,
            Exit::Disk => 6,
            Exit::Unfinished => 7,
            Exit::Interrupted => 130,
        }
    }

    /// What a code means that a daemon answered with. One that is not known is a matter of usage.
    pub fn of_code(code: u8) -> Exit {
        Exit::ALL.into_iter().find(|exit| exit.code() == code).unwrap_or(Exit::Usage)
    }
}

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
