//! Exit codes: the one place where they are written down.

use std::process::{ExitCode, Termination};

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
    /// Not finished: overdue, paused or in doubt.
    Unfinished,
    /// Interrupted; state is safe, and the same command resumes.
    Interrupted,
}

/// The codes as `--help` shows them.
pub(super) const HELP: &str = "\
Exit codes:
    0  everything is done
    1  some jobs failed
    2  usage, configuration or manifest is wrong
    3  not authorised
    4  stopped by a budget or by the balance
    5  the service does not answer
    6  the disk is full or not writable, or the state is damaged
    7  not finished: overdue, paused or in doubt
  130  interrupted; state is safe, and the same command resumes";

impl Exit {
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
}

impl Exit {
    /// What a code means that a daemon answered with. One that is not known is a matter of usage.
    pub(super) fn of_code(code: u8) -> Exit {
        let known = [
            Exit::Success,
            Exit::SomeFailed,
            Exit::Unauthorised,
            Exit::OutOfFunds,
            Exit::Unreachable,
            Exit::Disk,
            Exit::Unfinished,
            Exit::Interrupted,
        ];
        known.into_iter().find(|exit| exit.code() == code).unwrap_or(Exit::Usage)
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
        let all = [
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
        for exit in all {
            let listed =
                HELP.lines().any(|line| line.trim_start().starts_with(&format!("{}  ", exit.code())));
            assert!(listed, "{exit:?}");
        }
    }
}
