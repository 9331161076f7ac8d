//! Errors as people read them: what failed, what to do next, and the exit code.

use anstream::eprintln;

use crate::api::{ClientError, ServiceError};
use crate::cli::exit::Exit;
use crate::cli::printable;
use crate::config::ConfigError;
use crate::engine::EngineError;
use crate::intake::IntakeError;
use crate::intake::catalog_refresh::CatalogError;
use crate::store::StoreError;
use crate::store::dump::DumpError;

/// Why a command could not do its work.
#[derive(Debug)]
pub(super) struct Failure {
    exit: Exit,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), hint: None }
    }

    /// Nothing went wrong; there is only nobody left to tell.
    pub(super) fn quiet() -> Failure {
        Failure { exit: Exit::Success, message: String::new(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Exit code, what failed, and what to do next.
    pub(super) fn into_parts(self) -> (Exit, String, Option<String>) {
        (self.exit, self.message, self.hint)
    }

    /// Says it on stderr.
    pub(super) fn report(self) -> Exit {
        if self.message.is_empty() {
            return self.exit;
        }
        eprintln!("error: {}", printable(&self.message));
        if let Some(hint) = self.hint {
            eprintln!("hint: {}", printable(&hint));
        }
        self.exit
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.hint {
            Some(hint) => write!(f, "{} ({hint})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::new(Exit::Usage, error.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::new(Exit::Usage, error.to_string())
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Failure {
        let message = error.to_string();
        match error {
            ServiceError::Unauthorised(_) => {
                Failure::new(Exit::Unauthorised, message).hint("set CALLSHEET_API_KEY to a valid key")
            }
            ServiceError::Unreachable { .. } => Failure::new(Exit::Unreachable, message)
                .hint("check --base-url and the network; --emulator works offline"),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let message = error.to_string();
        match &error {
            StoreError::InUse { .. } => Failure::new(Exit::Usage, message)
                .hint("wait for that process to end, or choose another state with --state"),
            StoreError::Missing { .. } => Failure::new(Exit::Usage, message)
                .hint("give the state with --state; runs with --emulator use state/emulator"),
            StoreError::Foreign { .. } => {
                Failure::new(Exit::Usage, message).hint("give an empty or missing directory with --state")
            }
            StoreError::OtherVersion { .. } => Failure::new(Exit::Usage, message)
                .hint("use the version that wrote it, or choose another state with --state"),
            StoreError::OtherService { .. } => Failure::new(Exit::Usage, message).hint(
                "keys and tasks are valid for one service only; choose another state with --state, or use this one \
                 with --adopt-state",
            ),
            StoreError::Damaged { .. } => Failure::new(Exit::Disk, message).hint(
                "nothing was sent; callsheet state verify lists the damage, and callsheet state rebuild rebuilds the \
                 state, paused. No paid job is bought again",
            ),
            StoreError::ArchiveGone { .. } => Failure::new(Exit::Usage, message)
                .hint("nothing was sent: only the archive knows what the batch bought"),
            StoreError::NoRoom { .. } => Failure::new(Exit::Disk, message)
                .hint("nothing was changed; free disk space, then repeat the command to resume"),
            StoreError::Io { .. } | StoreError::Database { .. } if error.is_disk() => {
                Failure::new(Exit::Disk, message)
                    .hint("free disk space or grant the rights, then repeat the command to resume")
            }
            StoreError::Io { .. } | StoreError::Database { .. } => Failure::new(Exit::Disk, message),
        }
    }
}

impl From<IntakeError> for Failure {
    fn from(error: IntakeError) -> Failure {
        match error {
            IntakeError::Store(error) => error.into(),
            IntakeError::Changed { .. } => Failure::new(Exit::Usage, error.to_string())
                .hint("repeat the command when the file is complete"),
            IntakeError::BatchName(_) => {
                Failure::new(Exit::Usage, error.to_string()).hint("name the batch with --batch")
            }
            IntakeError::Unreadable { .. } | IntakeError::NotAFile { .. } => {
                Failure::new(Exit::Usage, error.to_string())
            }
        }
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Failure {
        match error {
            CatalogError::Service(error) => error.into(),
            CatalogError::NoService => Failure::new(Exit::Usage, error.to_string())
                .hint("give --base-url URL once, or --emulator; the catalogs are stored for later"),
            CatalogError::Store(error) => error.into(),
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Gone(_) => Failure::new(Exit::Unfinished, error.to_string()),
            EngineError::Output { .. } => Failure::new(Exit::Disk, error.to_string())
                .hint("free disk space, grant the rights, or choose another directory with --output, then repeat the \
                       command to resume"),
            EngineError::Scheduler(error) => Failure::new(Exit::Disk, error.to_string())
                .hint("nothing more was sent; keep the state as it is and report this"),
        }
    }
}

impl From<DumpError> for Failure {
    fn from(error: DumpError) -> Failure {
        match error {
            DumpError::Store(error) => error.into(),
            // The reader has closed its end.
            DumpError::Io(source) if source.kind() == std::io::ErrorKind::BrokenPipe => Failure::quiet(),
            DumpError::Io(_) => Failure::new(Exit::Disk, error.to_string()),
            DumpError::Line { .. } => Failure::new(Exit::Usage, error.to_string())
                .hint("an export is imported completely or not at all; export again, or use an older export"),
            DumpError::NotEmpty { .. } => Failure::new(Exit::Usage, error.to_string())
                .hint("give an empty or missing directory with --state"),
        }
    }
}
