//! One process at a time.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::store::StoreError;
use crate::store::state_folders::open_or_create;

/// Holds the state directory until dropped, or until the process ends in whatever way.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// How long a lock is waited for whose holder has ended.
const ENDED_HOLDER_WAIT: Duration = Duration::from_secs(2);

impl Lock {
    /// A lock outlives its holder for a moment: a process that was killed while it started a child leaves it to the child
    /// until that runs its own program, and [`holder`] takes it for the time of a look.
    pub(super) fn take(dir: &Path) -> Result<Lock, StoreError> {
        let path = dir.join("lock");
        let mut file = open_or_create(&path)?;
        let is_taken = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) if is_running(&written_in(&mut file)) => false,
            Err(TryLockError::WouldBlock) => wait_for(&file).map_err(StoreError::io(&path))?,
            Err(TryLockError::Error(source)) => return Err(StoreError::Io { path, source }),
        };
        if !is_taken {
            return Err(StoreError::InUse { dir: dir.to_owned(), pid: written_in(&mut file) });
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(StoreError::io(&path))?;
        Ok(Lock { _file: file })
    }
}

/// Whether a lock was released in time, and is this file's now. The thread that waits ends with the lock of another process.
fn wait_for(file: &File) -> io::Result<bool> {
    let file = file.try_clone()?;
    let (locked, is_locked) = mpsc::channel();
    thread::Builder::new().name("state-lock".to_owned()).spawn(move || locked.send(file.lock()))?;
    is_locked.recv_timeout(ENDED_HOLDER_WAIT).map_or(Ok(false), |locked| locked.map(|()| true))
}

/// Whether a process of this number runs, whosever it is. One that has no number does not.
fn is_running(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Who holds it at this moment. Takes nothing for longer than the look lasts, and makes nothing.
pub(super) fn holder(dir: &Path) -> Result<Option<String>, StoreError> {
    let path = dir.join("lock");
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Io { path, source }),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(written_in(&mut file))),
        Err(TryLockError::Error(source)) => Err(StoreError::Io { path, source }),
    }
}

/// Whatever the holder wrote is good enough for a message.
fn written_in(file: &mut File) -> String {
    let mut holder = String::new();
    let _ = file.rewind().and_then(|()| file.take(32).read_to_string(&mut holder));
    let holder = holder.trim();
    if holder.is_empty() { "unknown" } else { holder }.to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    /// The lock of a state in `dir` whose file names the process `pid`, held by this one.
    fn locked(dir: &Path, pid: u32) -> File {
        let path = dir.join("lock");
        std::fs::write(&path, format!("{pid}\n")).unwrap();
        let file = File::open(path).unwrap();
        file.lock().unwrap();
        file
    }

    fn ended_process() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn a_lock_whose_holder_has_ended_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let held = locked(dir.path(), ended_process());
        let (taken, is_taken) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| taken.send(Lock::take(dir.path())));
            // Not before it is released.
            assert!(is_taken.recv_timeout(Duration::from_millis(50)).is_err());
            drop(held);
            let lock = is_taken.recv().unwrap().unwrap();
            assert_eq!(holder(dir.path()).unwrap(), Some(std::process::id().to_string()));
            drop(lock);
        });
        assert_eq!(holder(dir.path()).unwrap(), None);
    }

    #[test]
    fn one_whose_holder_runs_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let _held = locked(dir.path(), std::process::id());
        let start = Instant::now();
        let refused = Lock::take(dir.path()).unwrap_err();
        assert!(matches!(refused, StoreError::InUse { pid, .. } if pid == std::process::id().to_string()));
        assert!(start.elapsed() < ENDED_HOLDER_WAIT);
    }
}
