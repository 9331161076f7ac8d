//! One process at a time.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::store::state_folders::open_or_create;
use crate::store::{StoreError, file_owner};

/// Holds the state directory until dropped, or until the process ends in whatever way.
#[derive(Debug)]
pub(super) struct Lock {
    dir: PathBuf,
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked, and nothing else is open any more.
        file_owner::hand_over(&self.dir);
        // A child that another thread is starting has the file open until it runs its own program: closing it here alone would
        // leave it locked until then. What cannot be unlocked is unlocked by the end of all that have it open.
        let _ = self.file.unlock();
    }
}

/// What a process takes the lock for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// A command that answers and ends.
    Briefly,
    /// Work that may take long: a run, a daemon.
    ForLong,
}

/// Follows the number of a process that holds the lock briefly.
const BRIEFLY: &str = " briefly";
/// How long a lock is waited for whose holder has ended.
const ENDED_HOLDER_WAIT: Duration = Duration::from_secs(2);
/// How long one is waited for whose holder was killed and has not ended yet: what it wrote last may have to reach the device.
const ENDING_HOLDER_WAIT: Duration = Duration::from_secs(10);
/// How long one is waited for that is held briefly.
const BRIEF_HOLDER_WAIT: Duration = Duration::from_secs(10);
/// Between two looks at who holds it meanwhile.
const HOLDER_LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl Lock {
    /// Takes the lock. One that is held briefly is waited for: a script that asks for the status every second keeps no daemon from
    /// starting. So is one whose holder was killed a moment ago, and one whose holder has ended: a process that was killed
    /// while it started a child leaves it to the child until that runs its own program, and [`holder`] takes it for the time
    /// of a look.
    pub(super) fn take(dir: &Path, holding: Holding) -> Result<Lock, StoreError> {
        let path = dir.join("lock");
        let mut file = open_or_create(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                if !wait_for_holder(&mut file).map_err(StoreError::io(&path))? {
                    return Err(StoreError::InUse {
                        dir: dir.to_owned(),
                        pid: pid_in(&written_in(&mut file)),
                    });
                }
            }
            Err(TryLockError::Error(source)) => return Err(StoreError::Io { path, source }),
        }
        let briefly = if holding == Holding::Briefly { BRIEFLY } else { "" };
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}{briefly}", std::process::id()))
            .map_err(StoreError::io(&path))?;
        Ok(Lock { dir: dir.to_owned(), file })
    }
}

/// Waits for as long as the holder of a lock promises to be done with it. False: it is still held. The thread that waits ends
/// with the lock of another process.
fn wait_for_holder(file: &mut File) -> io::Result<bool> {
    let Some(mut wait) = wait_promised(&written_in(file)) else { return Ok(false) };
    let waiting = file.try_clone()?;
    let (locked, is_locked) = mpsc::channel();
    thread::Builder::new().name("state-lock".to_owned()).spawn(move || locked.send(waiting.lock()))?;
    let mut waited = Duration::ZERO;
    while waited < wait {
        match is_locked.recv_timeout(HOLDER_LOOK_INTERVAL) {
            Ok(locked) => return locked.map(|()| true),
            Err(_) => waited += HOLDER_LOOK_INTERVAL,
        }
        // Another process may have been faster, and only now says who it is.
        let Some(promised) = wait_promised(&written_in(file)) else { return Ok(false) };
        // Never less than before: who has ended meanwhile is about to release it.
        wait = wait.max(promised);
    }
    Ok(false)
}

/// How long the holder that wrote this is waited for; nothing for one that holds the lock for long.
fn wait_promised(written: &str) -> Option<Duration> {
    let pid = pid_in(written);
    if !is_running(&pid) {
        return Some(ENDED_HOLDER_WAIT);
    }
    if is_ending(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()) {
        return Some(ENDING_HOLDER_WAIT);
    }
    written.ends_with(BRIEFLY).then_some(BRIEF_HOLDER_WAIT)
}

/// The number of the process in what a holder wrote.
fn pid_in(written: &str) -> String {
    written.strip_suffix(BRIEFLY).unwrap_or(written).to_owned()
}

/// Whether a process of this number runs, whosever it is. One that has no number does not.
fn is_running(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Whether a process with this `/proc/PID/stat` was killed, and only its end is not over: its first thread has ended, is about
/// to (`PF_EXITING`), or will be (a pending SIGKILL, which nothing takes back).
fn is_ending(stat: &str) -> bool {
    const PF_EXITING: u64 = 0x4;
    const SIGKILL: u64 = 1 << 8;
    // What follows the name of its program, which may hold anything: the state, 5 numbers, the flags, 21 numbers, the signals.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let state = fields.next();
    let mut bits =
        |skipped: usize| fields.nth(skipped).and_then(|bits| bits.parse::<u64>().ok()).unwrap_or_default();
    let (flags, signals) = (bits(5), bits(21));
    matches!(state, Some("Z" | "X")) || flags & PF_EXITING != 0 || signals & SIGKILL != 0
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
        Err(TryLockError::WouldBlock) => Ok(Some(pid_in(&written_in(&mut file)))),
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

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    /// The lock of a state in `dir` whose file names the process `pid`, held by this one.
    fn locked(dir: &Path, pid: u32, briefly: &str) -> File {
        let path = dir.join("lock");
        std::fs::write(&path, format!("{pid}{briefly}\n")).unwrap();
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
    fn a_lock_whose_holder_has_ended_or_holds_it_briefly_is_waited_for() {
        for (pid, briefly) in [(ended_process(), ""), (std::process::id(), BRIEFLY)] {
            is_waited_for(pid, briefly);
        }
    }

    #[test]
    fn a_lock_whose_holder_was_killed_and_has_not_ended_is_waited_for() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(wait_promised(&child.id().to_string()), None, "it runs");
        child.kill().unwrap();
        // Nobody has taken note of its end.
        let pid = WaitId::Pid(Pid::from_child(&child));
        waitid(pid, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        is_waited_for(child.id(), "");
        child.wait().unwrap();
    }

    #[test]
    fn who_is_ending_is_told_by_its_state_its_flags_and_its_signals() {
        let stat = |state: &str, flags: u32, signals: u32| {
            let numbers = "0 ".repeat(21);
            format!("7 (a ) Z 1) {state} 1 7 7 0 -1 {flags} {numbers}{signals} 0 4096 0\n")
        };
        let (forked, kill, term) = (0x40_0040, 0x100, 0x4000);
        assert!(!is_ending(&stat("R", forked, 0)));
        assert!(!is_ending(&stat("S", forked, term)), "it may go on after SIGTERM");
        assert!(is_ending(&stat("Z", 0, 0)));
        assert!(is_ending(&stat("R", forked | 0x4, 0)));
        assert!(is_ending(&stat("D", forked, kill)));
        assert!(!is_ending(""), "nothing is known of it");
    }

    fn is_waited_for(pid: u32, briefly: &str) {
        let dir = tempfile::tempdir().unwrap();
        let held = locked(dir.path(), pid, briefly);
        let (taken, is_taken) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| taken.send(Lock::take(dir.path(), Holding::ForLong)));
            // Not before it is released.
            assert!(is_taken.recv_timeout(Duration::from_millis(50)).is_err());
            held.unlock().unwrap();
            let lock = is_taken.recv().unwrap().unwrap();
            assert_eq!(holder(dir.path()).unwrap(), Some(std::process::id().to_string()));
            drop(lock);
        });
        assert_eq!(holder(dir.path()).unwrap(), None);
    }

    #[test]
    fn one_whose_holder_says_later_that_it_takes_long_is_not_waited_for_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let _held = locked(dir.path(), ended_process(), "");
        let start = Instant::now();
        thread::scope(|scope| {
            let taking = scope.spawn(|| Lock::take(dir.path(), Holding::Briefly));
            std::fs::write(dir.path().join("lock"), format!("{}\n", std::process::id())).unwrap();
            assert!(matches!(taking.join().unwrap().unwrap_err(), StoreError::InUse { .. }));
        });
        assert!(start.elapsed() < ENDED_HOLDER_WAIT);
    }

    #[test]
    fn one_whose_holder_runs_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let _held = locked(dir.path(), std::process::id(), "");
        let start = Instant::now();
        let refused = Lock::take(dir.path(), Holding::ForLong).unwrap_err();
        assert!(matches!(refused, StoreError::InUse { pid, .. } if pid == std::process::id().to_string()));
        assert!(start.elapsed() < ENDED_HOLDER_WAIT);
    }
}
