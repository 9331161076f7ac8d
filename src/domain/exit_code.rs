//! How a program or a request ends: exit codes, the one place where they are written down.

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
