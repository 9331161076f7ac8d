//! How many files this process may have open, which limits the requests at once: each has a connection, and the state must
//! not be left without a file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::LimitsConfig;
use crate::engine::publish_queue::files_at_once;

/// Files that everything takes but requests, downloads, uploads and outputs that are being published.
const RESERVED: usize = 96;
/// With so many requests at once no service is waited for.
const PLENTY: usize = 1_024;

/// Raises the limit as far as it may be: a shell or systemd grants 1,024 at first.
pub(super) fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Refused, it is as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How many requests may be under way at once. The log says where that is less than the configuration asks for.
pub(super) fn requests_at_once(limits: &LimitsConfig) -> usize {
    let Some(files) = getrlimit(Resource::Nofile).current else { return usize::MAX };
    let requests = with_files(usize::try_from(files).unwrap_or(usize::MAX), limits);
    if requests < PLENTY.min(limits.in_flight as usize) {
        tracing::warn!(
            "limits.in_flight is {}, but this process may have only {files} files open: it sends at most {requests} \
             requests at once; to allow more: LimitNOFILE= in the unit of systemd, or `ulimit -n` in a shell",
            limits.in_flight
        );
    }
    requests
}

fn with_files(files: usize, limits: &LimitsConfig) -> usize {
    // A transfer has a connection and a file.
    let transfers = limits.downloads.saturating_add(limits.uploads).saturating_mul(2);
    // A connection may be opened for a request that another one takes: then it is idle for a while.
    let others = transfers.saturating_add(files_at_once(files)).saturating_add(RESERVED);
    let left = files.saturating_sub(others);
    (left / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_leave_files_for_all_else() {
        let limits = LimitsConfig { downloads: 4, uploads: 4, ..LimitsConfig::default() };
        assert_eq!(with_files(1_024, &limits), 392);
        assert_eq!(with_files(64, &limits), 1, "one at a time is always tried");
    }
}
