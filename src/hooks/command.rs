//! A hook that is a command: run without a shell, with the event on its standard input, and never waited for
//! longer than agreed.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// How much of what a command prints is kept for the log, in bytes.
const OUTPUT_MAX_BYTES: usize = 16 * 1024;
/// How long the output of a command that has ended is waited for: what it left running may hold it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Variables of the environment that a command does not get.
const PRIVATE_VARIABLES: [&str; 6] = [
    "CALLSHEET_API_KEY",
    "CREDENTIALS_DIRECTORY",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

/// Kills a command, and all that it started and that stayed with it, unless it has ended.
struct Leash {
    child: Child,
}

impl Drop for Leash {
    fn drop(&mut self) {
        // Its id is only known until it was waited for, so that no other process can be meant.
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = id {
            // Gone already is as good.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs a command with `body` on its standard input. What it prints goes to the log.
///
/// # Errors
/// What went wrong, in words: it could not be started, ended with another code than 0, or ran longer than
/// `timeout`. It has ended then, or is killed.
pub(super) async fn run(command: &[String], body: &str, timeout: Duration) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let child = prepare(program, arguments).spawn();
    let child = child.map_err(|error| format!("{program} could not be started: {error}"))?;
    let mut leash = Leash { child };
    let child = &mut leash.child;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let outputs = [tokio::spawn(collect(stdout)), tokio::spawn(collect(stderr))];
    let tell = async {
        if let Some(mut stdin) = stdin {
            // One that does not care to read it closes it: that is its own business.
            let _ = stdin.write_all(body.as_bytes()).await;
        }
    };
    let ended = tokio::time::timeout(timeout, async { tokio::join!(tell, leash.child.wait()).1 }).await;
    let secs = timeout.as_secs_f64();
    let outcome = match ended {
        Err(_) => Err(format!("{program} ran longer than {secs} s and was stopped")),
        Ok(Err(error)) => Err(format!("{program} was lost: {error}")),
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{program} ended with {status}")),
    };
    drop(leash);
    for output in outputs {
        let abort = output.abort_handle();
        match tokio::time::timeout(OUTPUT_TIMEOUT, output).await {
            Ok(Ok(text)) => {
                for line in text.lines() {
                    tracing::info!(hook = %program, "{line}");
                }
            }
            _ => abort.abort(),
        }
    }
    outcome
}

/// In a group of its own, so that all of it can be stopped, and without what is the daemon's alone.
fn prepare(program: &str, arguments: &[String]) -> Command {
    let mut process = Command::new(program);
    process.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    process.process_group(0).kill_on_drop(true);
    for variable in PRIVATE_VARIABLES {
        process.env_remove(variable);
    }
    process
}

/// Reads to the end, so that the command never blocks on a full pipe, and keeps the beginning.
async fn collect(stream: Option<impl AsyncRead + Unpin>) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    let Some(mut stream) = stream else { return String::new() };
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let room = OUTPUT_MAX_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_daemons_alone_is_not_handed_on() {
        let process = prepare("true", &[]);
        let removed: Vec<_> = process.as_std().get_envs().filter(|(_, value)| value.is_none()).collect();
        assert!(removed.iter().any(|(name, _)| *name == "CALLSHEET_API_KEY"), "{removed:?}");
        assert!(removed.iter().any(|(name, _)| *name == "CREDENTIALS_DIRECTORY"), "{removed:?}");
    }
}
