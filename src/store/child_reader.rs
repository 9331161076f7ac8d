//! Reading a database to the end, in a process of its own.
//!
//! A damaged file can make sled panic or run in circles, and a panic ends this program. So the program itself, started with
//! [`ARGUMENT`], opens a copy of the database and prints all entries as they are; this process decodes them as they
//! come. What the child dies of is damage; the parent lives to say so.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::store::StoreError;
use crate::store::commit::Database;
use crate::store::snapshot::{FinishedRecords, Salvaged};

/// First argument of the child. The second is the folder of the database's copy.
pub const ARGUMENT: &str = "__try-database";

/// How long a child may be silent: to open a database of a gigabyte takes seconds, and then entries come all the time. One
/// that goes on printing takes as long as it takes.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Buffer of what the child prints, on both sides, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;
/// An entry is longer than this only where the stream is not what the child wrote.
const ENTRY_MAX_BYTES: u32 = 1 << 30;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that answers to [`ARGUMENT`]. Without it a copy is read in this process.
pub fn use_program(path: PathBuf) {
    // The first one stays.
    let _ = PROGRAM.set(path);
}

/// What came of reading a copy.
pub(super) enum CopyResult {
    Opens(Box<Salvaged>),
    Damaged(Damage),
    /// It could not be opened for reasons of the file system, or no child could be started.
    Untried,
}

/// What is wrong with a database.
#[derive(Debug)]
pub(super) struct Damage {
    /// The part of the state.
    pub(super) what: String,
    pub(super) detail: String,
}

impl Damage {
    fn of_the_database(detail: String) -> Damage {
        Damage { what: "the database".to_owned(), detail }
    }
}

/// What a message of the child is about, as its first byte. Each is followed by as many texts as it says, after their
/// lengths.
mod message {
    /// A key and its bytes.
    pub(super) const ENTRY: u8 = b'e';
    /// Why nothing can be read from here on. No more comes.
    pub(super) const UNREADABLE: u8 = b'u';
    /// The part of the state that is damaged, and how: it does not open. No more comes.
    pub(super) const DAMAGED: u8 = b'd';
    /// The file system refused: nothing is known. No more comes.
    pub(super) const UNTRIED: u8 = b'n';
    /// All entries were read.
    pub(super) const END: u8 = b'.';
}

/// The child's part: opens the copy of a database that its first argument names, and prints all entries. Returns the exit
/// code.
pub fn child(mut arguments: impl Iterator<Item = OsString>) -> u8 {
    // A parent that is killed while it waits takes this with it: nobody would read what is found, and the next
    // process sweeps the copy. Without it, the copy is swept a little later.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let copy = PathBuf::from(arguments.next().unwrap_or_default());
    // `Stdout` looks for ends of lines.
    let printed = io::stdout().as_fd().try_clone_to_owned().and_then(|stdout| {
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, File::from(stdout));
        print_entries(&copy, &mut output)?;
        output.flush()
    });
    // A parent that went away needs no answer.
    u8::from(printed.is_err())
}

fn print_entries(copy: &Path, output: &mut impl Write) -> io::Result<()> {
    let database = match Database::open_at(copy, copy) {
        Ok(database) => database,
        Err(StoreError::Damaged { what, detail, .. }) => {
            return print(output, message::DAMAGED, &[what.as_bytes(), detail.as_bytes()]);
        }
        Err(_) => return print(output, message::UNTRIED, &[]),
    };
    let mut unreadable = None;
    for entry in database.entries_as(&[], |key, bytes| print(output, message::ENTRY, &[key, bytes])) {
        match entry {
            Ok(printed) => printed?,
            Err(error) => {
                // It has no way past a page that it cannot read.
                unreadable = Some(in_words(error));
                break;
            }
        }
    }
    match unreadable {
        Some(why) => print(output, message::UNREADABLE, &[why.as_bytes()]),
        None => print(output, message::END, &[]),
    }
}

fn print(output: &mut impl Write, about: u8, texts: &[&[u8]]) -> io::Result<()> {
    output.write_all(&[about])?;
    for text in texts {
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        output.write_all(&length.to_be_bytes())?;
        output.write_all(text)?;
    }
    Ok(())
}

fn in_words(error: StoreError) -> String {
    match error {
        StoreError::Damaged { detail, .. } => detail,
        other => other.to_string(),
    }
}

/// Reads a copy of a database to the end, by a child where there is a program to start.
pub(super) fn read(copy: &Path, of_finished: FinishedRecords) -> CopyResult {
    let Some(program) = PROGRAM.get() else { return read_here(copy, of_finished) };
    let child = Command::new(program)
        .arg(ARGUMENT)
        .arg(copy)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match child {
        Ok(child) => read_from(child, of_finished),
        Err(error) => {
            tracing::warn!(%error, "the database is opened without a trial in a child process");
            CopyResult::Untried
        }
    }
}

fn read_here(copy: &Path, of_finished: FinishedRecords) -> CopyResult {
    match Database::open_at(copy, copy) {
        Ok(database) => {
            let entries = database.entries().map(|entry| entry.map_err(in_words));
            CopyResult::Opens(Box::new(Salvaged::of(entries, of_finished)))
        }
        Err(StoreError::Damaged { what, detail, .. }) => CopyResult::Damaged(Damage { what, detail }),
        Err(_) => CopyResult::Untried,
    }
}

fn read_from(mut child: Child, of_finished: FinishedRecords) -> CopyResult {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (Some(stdout), Some(mut stderr)) = (stdout, stderr) else { return CopyResult::Untried };
    let child = Mutex::new(child);
    let the_child = || child.lock().unwrap_or_else(PoisonError::into_inner);
    let count = AtomicU64::new(0);
    let read = &count;
    let mut messages =
        Messages { source: BufReader::with_capacity(BUFFER_BYTES, stdout), read, end: End::Missing };
    let (salvaged, said, is_late) = thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let watch = scope.spawn(move || {
            let mut before = 0;
            while is_done.recv_timeout(SILENCE_MAX) == Err(RecvTimeoutError::Timeout) {
                let now = read.load(Ordering::Relaxed);
                if now == before {
                    // It is waited for below, so its number is still its own.
                    let _ = the_child().kill();
                    return true;
                }
                before = now;
            }
            false
        });
        let errors = scope.spawn(move || {
            let mut said = Vec::new();
            // What could be read is good enough for a message.
            let _ = stderr.read_to_end(&mut said);
            said
        });
        let salvaged = Salvaged::of(&mut messages, of_finished);
        let said = errors.join().unwrap_or_default();
        drop(done);
        (salvaged, said, watch.join().unwrap_or_default())
    });
    // Nobody reads any more: a child that prints on ends by that.
    let Messages { end, source, .. } = messages;
    drop(source);
    let _ = the_child().wait();
    match end {
        End::Whole => CopyResult::Opens(Box::new(salvaged)),
        _ if is_late => CopyResult::Damaged(Damage::of_the_database("reading it does not end".to_owned())),
        End::Damaged(damage) => CopyResult::Damaged(damage),
        End::Untried => CopyResult::Untried,
        End::Missing => {
            let said = String::from_utf8_lossy(&said);
            CopyResult::Damaged(Damage::of_the_database(panic_in_words(&said)))
        }
    }
}

/// The entries that a child prints.
struct Messages<'a> {
    source: BufReader<ChildStdout>,
    /// How many there were.
    read: &'a AtomicU64,
    end: End,
}

/// How they ended.
enum End {
    /// The child has not said so.
    Missing,
    Whole,
    Damaged(Damage),
    Untried,
}

impl Iterator for Messages<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        // What breaks off has no end.
        let (about, texts) = self.message().ok()?;
        self.read.fetch_add(1, Ordering::Relaxed);
        let text = |place: usize| String::from_utf8_lossy(&texts[place]).into_owned();
        self.end = match about {
            message::ENTRY => {
                let [key, bytes] = texts;
                return Some(Ok((key, bytes)));
            }
            message::UNREADABLE => {
                self.end = End::Whole;
                return Some(Err(text(0)));
            }
            message::END => End::Whole,
            message::DAMAGED => End::Damaged(Damage { what: text(0), detail: text(1) }),
            message::UNTRIED => End::Untried,
            _ => End::Missing,
        };
        None
    }
}

impl Messages<'_> {
    /// The next message with its texts, of which those that it does not have are empty.
    fn message(&mut self) -> io::Result<(u8, [Vec<u8>; 2])> {
        let mut about = [0];
        self.source.read_exact(&mut about)?;
        let count = match about[0] {
            message::ENTRY | message::DAMAGED => 2,
            message::UNREADABLE => 1,
            _ => 0,
        };
        let mut texts = [Vec::new(), Vec::new()];
        for text in texts.iter_mut().take(count) {
            let mut length = [0; 4];
            self.source.read_exact(&mut length)?;
            let length = u32::from_be_bytes(length);
            if length > ENTRY_MAX_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            text.resize(length as usize, 0);
            self.source.read_exact(text)?;
        }
        Ok((about[0], texts))
    }
}

/// What a dying child said, on one line.
fn panic_in_words(stderr: &str) -> String {
    let mut lines = stderr.lines().skip_while(|line| !line.contains("panicked at"));
    let said = lines.nth(1).unwrap_or("it crashed the process that read it").trim();
    format!("it cannot be read: {said}")
}
