//! A hook that is a command: run without a shell, with the event on its standard input, and never waited for
//! longer than agreed.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// How much of what a command prints is kept for the log, in bytes.
const OUTPUT_MAX_BYTES: usize = 16 * 1024;
/// How many lines of each of its streams are logged.
const OUTPUT_MAX_LINES: usize = 50;
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
            Ok(Ok(printed)) => {
                let (lines, left_out) = printed.logged();
                for line in lines {
                    tracing::info!(hook = %program, "{line}");
                }
                if left_out > 0 {
                    tracing::info!(hook = %program, "{left_out} more lines left out");
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

/// What a command printed on one of its streams.
#[derive(Debug, Default)]
struct Printed {
    /// The beginning.
    kept: Vec<u8>,
    /// Lines in all, the last of which may not be ended.
    lines: usize,
}

impl Printed {
    /// The lines that are logged, and how many more there were.
    fn logged(&self) -> (Vec<String>, usize) {
        let text = String::from_utf8_lossy(&self.kept);
        let lines: Vec<String> = text.lines().take(OUTPUT_MAX_LINES).map(str::to_owned).collect();
        let left_out = self.lines.saturating_sub(lines.len());
        (lines, left_out)
    }
}

/// Reads to the end, so that the command never blocks on a full pipe, and keeps the beginning.
async fn collect(stream: Option<impl AsyncRead + Unpin>) -> Printed {
    let (mut printed, mut buffer, mut is_ended) = (Printed::default(), [0; 4096], true);
    let Some(mut stream) = stream else { return printed };
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let room = OUTPUT_MAX_BYTES - printed.kept.len();
        printed.kept.extend_from_slice(&buffer[..read.min(room)]);
        printed.lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count();
        is_ended = buffer[read - 1] == b'\n';
    }
    printed.lines += usize::from(!is_ended);
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_many_lines_the_first_are_logged() {
        let logged = async |text: &str| collect(Some(text.as_bytes())).await.logged();
        assert_eq!(logged("").await, (Vec::new(), 0));
        assert_eq!(logged("one\ntwo").await, (vec!["one".to_owned(), "two".to_owned()], 0));
        let (lines, left_out) = logged(&"x\n".repeat(24_576)).await;
        assert_eq!((lines.len(), left_out), (50, 24_526));
        let (lines, left_out) = logged(&format!("{}\nlast", "x".repeat(20_000))).await;
        assert_eq!((lines[0].len(), left_out), (OUTPUT_MAX_BYTES, 1));
    }

    #[test]
    fn what_is_the_daemons_alone_is_not_handed_on() {
        let process = prepare("true", &[]);
        let removed: Vec<_> = process.as_std().get_envs().filter(|(_, value)| value.is_none()).collect();
        assert!(removed.iter().any(|(name, _)| *name == "CALLSHEET_API_KEY"), "{removed:?}");
        assert!(removed.iter().any(|(name, _)| *name == "CREDENTIALS_DIRECTORY"), "{removed:?}");
    }
}
