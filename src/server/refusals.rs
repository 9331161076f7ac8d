//! Errors as a person is told them: what failed, what to do next, and the exit code of a command that meets them.

use std::io::ErrorKind;

use crate::api::ServiceError;
use crate::domain::exit_code::Exit;
use crate::domain::shell_word::path_word;
use crate::engine::EngineError;
use crate::ingest::ManifestError;
use crate::ingest::catalog_refresh::CatalogError;
use crate::ingest::ingest_handle::IngestError;
use crate::server::protocol::Refusal;
use crate::store::staged_inputs::StageError;
use crate::store::{EMULATOR_IDENTITY, StoreError};

impl From<&ServiceError> for Refusal {
    fn from(error: &ServiceError) -> Refusal {
        let message = error.to_string();
        match error {
            ServiceError::Unauthorised(_) => {
                Refusal::new(Exit::Unauthorised, message).hint("set CALLSHEET_API_KEY to a valid key")
            }
            ServiceError::Unreachable { .. } => Refusal::new(Exit::Unreachable, message)
                .hint("check --base-url and the network; --emulator works offline"),
        }
    }
}

impl From<&StoreError> for Refusal {
    fn from(error: &StoreError) -> Refusal {
        let message = error.to_string();
        match error {
            StoreError::InUse { .. } => Refusal::new(Exit::Usage, message)
                .hint("wait for that process to end, or choose another state with --state"),
            StoreError::Missing { .. } => Refusal::new(Exit::Usage, message)
                .hint("give the state with --state; runs with --emulator use state/emulator"),
            StoreError::Foreign { .. } => {
                Refusal::new(Exit::Usage, message).hint("give an empty or missing directory with --state")
            }
            StoreError::OtherVersion { .. } => Refusal::new(Exit::Usage, message)
                .hint("use the version that wrote it, or choose another state with --state"),
            StoreError::OtherService { dir, found, .. } if found == EMULATOR_IDENTITY => {
                Refusal::new(Exit::Usage, message).hint(format!(
                    "only the emulator knows its tasks; repeat the command with --emulator --state {}, or choose another state \
                     with --state",
                    path_word(dir)
                ))
            }
            StoreError::OtherService { .. } => Refusal::new(Exit::Usage, message).hint(
                "keys and tasks are valid for one service only; choose another state with --state, or use this one from \
                 now on with callsheet run --adopt-state MANIFEST, or callsheet daemon --adopt-state",
            ),
            StoreError::Damaged { .. } if error.is_of_rows() => Refusal::new(Exit::Disk, message).hint(
                "nothing was sent; accepted rows are in an export and nowhere else: callsheet state rebuild --export FILE \
                 takes them from there and rebuilds the state, paused. No paid job is bought again",
            ),
            StoreError::Damaged { .. } => Refusal::new(Exit::Disk, message).hint(
                "nothing was sent; callsheet state verify lists the damage, and callsheet state rebuild rebuilds the \
                 state, paused. No paid job is bought again",
            ),
            StoreError::MarkerDamaged { path, .. } => Refusal::new(Exit::Disk, message).hint(format!(
                "nothing was sent. The file only has the format of the state and the service.base_url that the state was \
                 begun with. Write it again: echo '{{\"format\": 2, \"service\": \"BASE_URL\"}}' > {}",
                path_word(path)
            )),
            StoreError::BatchMoved { .. } => Refusal::new(Exit::Usage, message)
                .hint("nothing was sent: only those files know what the batch bought"),
            StoreError::NoRoom { .. } => Refusal::new(Exit::Disk, message)
                .hint("nothing was changed; free disk space, then repeat the command to resume"),
            // Whoever opens a state has asked its daemon before.
            StoreError::Io { path, source }
                if source.kind() == ErrorKind::PermissionDenied && path.ends_with("lock") =>
            {
                let state = path.parent().unwrap_or(path).display();
                let message = format!("no daemon answers for {state}, and it belongs to another user: {message}");
                Refusal::new(Exit::Disk, message).hint(
                    "start the service (systemctl start callsheet), or run the command as the user that the state belongs to",
                )
            }
            StoreError::Io { .. } | StoreError::Database { .. } if error.is_disk() => {
                Refusal::new(Exit::Disk, message)
                    .hint("free disk space or grant the rights, then repeat the command to resume")
            }
            StoreError::Io { .. } | StoreError::Database { .. } => Refusal::new(Exit::Disk, message),
        }
    }
}

impl From<&ManifestError> for Refusal {
    fn from(error: &ManifestError) -> Refusal {
        match error {
            ManifestError::Store(error) => error.into(),
            ManifestError::Input { source: StageError::Io(_), .. } => {
                Refusal::new(Exit::Disk, error.to_string())
                    .hint("free disk space or grant the rights, then repeat the command")
            }
            ManifestError::Changed { .. } | ManifestError::Input { .. } => {
                Refusal::new(Exit::Usage, error.to_string())
                    .hint("repeat the command when the file is complete")
            }
            ManifestError::BatchChanged { .. } => {
                Refusal::new(Exit::Usage, error.to_string()).hint("repeat the command")
            }
            ManifestError::BatchName(_) => {
                Refusal::new(Exit::Usage, error.to_string()).hint("name the batch with --batch")
            }
            ManifestError::Unreadable { .. } | ManifestError::NotAFile { .. } => {
                Refusal::new(Exit::Usage, error.to_string())
            }
        }
    }
}

impl From<&CatalogError> for Refusal {
    fn from(error: &CatalogError) -> Refusal {
        match error {
            CatalogError::Service(error) => error.into(),
            CatalogError::NoService => Refusal::new(Exit::Usage, error.to_string())
                .hint("give --base-url URL once, or --emulator; the catalogs are stored for later"),
            CatalogError::Store(error) => error.into(),
        }
    }
}

impl From<&EngineError> for Refusal {
    fn from(error: &EngineError) -> Refusal {
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Gone(_) => Refusal::new(Exit::Unfinished, error.to_string()),
            EngineError::Output { .. } => Refusal::new(Exit::Disk, error.to_string())
                .hint("free disk space, grant the rights, or choose another directory with --output, then repeat the \
                       command to resume"),
            EngineError::Scheduler(error) => Refusal::new(Exit::Disk, error.to_string())
                .hint("nothing more was sent; keep the state as it is and report this"),
        }
    }
}

impl From<&IngestError> for Refusal {
    fn from(error: &IngestError) -> Refusal {
        match error {
            IngestError::Manifest(error) => error.into(),
            IngestError::Catalog(error) => error.into(),
            IngestError::NotValidated(_) => Refusal::new(Exit::Unreachable, error.to_string()),
            IngestError::Refused(_) => Refusal::new(Exit::Unfinished, error.to_string()),
            IngestError::UnknownRows(_) => Refusal::new(Exit::Usage, error.to_string())
                .hint("edit these rows in their manifest and submit it again, or name other jobs"),
            IngestError::Gone(_) => Refusal::new(Exit::Unfinished, error.to_string()),
        }
    }
}
