//! The process that opens outputs for their thumbnails and their lengths: the program itself with [`ARGUMENT`], one question a line, one
//! answer a line. A file that it dies of, or that takes too long, costs nobody else anything: this program ends at a panic, and
//! must not end at one of a decoder's.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};

use callsheet_media_facts::{MediaFacts, MediaQuestion, find_out};

/// First argument of the process.
pub const ARGUMENT: &str = "__find-media-facts";
/// How long one file may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Memory that the process may take, in bytes.
const MEMORY_MAX: u64 = 1 << 30;
/// How much everybody else goes first.
const NICENESS: i32 = 19;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that answers to [`ARGUMENT`]. Without it nothing is found out.
pub fn use_program(path: PathBuf) {
    // The first one stays.
    let _ = PROGRAM.set(path);
}

/// The process's part: answers until nothing more is asked.
pub fn serve() {
    let limit = Rlimit { current: Some(MEMORY_MAX), maximum: Some(MEMORY_MAX) };
    // Without them it works all the same.
    let _ = setrlimit(Resource::As, limit);
    let _ = rustix::process::nice(NICENESS);
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { return };
        let Ok(question) = serde_json::from_str::<MediaQuestion>(&line) else { return };
        let facts = find_out(&question).unwrap_or_default();
        let Ok(answer) = serde_json::to_string(&facts) else { return };
        // The process that asked may have ended.
        if writeln!(std::io::stdout(), "{answer}").is_err() {
            return;
        }
    }
}

/// The other end of it.
#[derive(Debug)]
pub struct DecoderProcess {
    child: Child,
    questions: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl DecoderProcess {
    /// Starts one; nothing where that cannot be.
    pub fn start() -> Option<DecoderProcess> {
        let program = PROGRAM.get()?;
        let mut child = Command::new(program)
            .arg(OsStr::new(ARGUMENT))
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let (questions, output) = (child.stdin.take(), child.stdout.take()?);
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Some(DecoderProcess { child, questions, answers })
    }

    /// What there is to tell of a file. Nothing when the process died of it, or does not answer: it is of no use then.
    pub fn ask(&mut self, question: &MediaQuestion) -> Option<MediaFacts> {
        let line = serde_json::to_string(question).ok()?;
        writeln!(self.questions.as_mut()?, "{line}").ok()?;
        let answer = self.answers.recv_timeout(ANSWER_TIMEOUT).ok()?;
        serde_json::from_str(&answer).ok()
    }
}

impl Drop for DecoderProcess {
    fn drop(&mut self) {
        drop(self.questions.take());
        // One that has ended feels nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
