//! Trying a copy of a database out, in a process of its own.
//!
//! A damaged file can make sled panic or run in circles, and a panic ends this program. So a database that was not closed
//! in order, or is not as it was left, is first opened and read to the end by a child: the program
//! itself with [`ARGUMENT`]. What the child dies of is damage; the parent lives to say so. It is done on a copy, since
//! opening writes: what is refused stays as it was found.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread::park_timeout;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::store::commit::Database;
use crate::store::snapshot::Salvaged;
use crate::store::{StoreError, commit_count, set_aside, verify};

/// First argument of the child. The second is the folder of the database's copy; the third, if there is one, the state.
pub const ARGUMENT: &str = "__try-database";

/// How long a child may take: a scan of a million records takes some seconds.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// The child's exit code for a database that could not be opened for reasons of the file system.
const NOT_CHECKED: u8 = 3;
/// The child's exit code for a damaged database.
const DAMAGED: u8 = 4;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that answers to [`ARGUMENT`]. Without it a copy is opened in this process.
pub fn use_program(path: PathBuf) {
    // The first one stays.
    let _ = PROGRAM.set(path);
}

/// The child's part: opens the copy of a database that its first argument names and reads all of it. Prints what it holds; or,
/// where the second one names the state that it belongs to, whether the two fit, so that nothing large is handed over.
/// Returns the exit code.
pub fn child(mut arguments: impl Iterator<Item = OsString>) -> u8 {
    // A parent that is killed while it waits takes this with it: nobody would read what is found, and the next
    // process sweeps the copy. Without it, the copy is swept a little later.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let copy = PathBuf::from(arguments.next().unwrap_or_default());
    match arguments.next() {
        None => say(&read_copy(&copy)),
        Some(dir) => say(&verify_copy(&copy, Path::new(&dir))),
    }
}

/// Prints what was found, for the parent to read.
fn say<T: Serialize>(found: &CopyResult<T>) -> u8 {
    let (code, text) = match found {
        CopyResult::Opens(found) => (0, serde_json::to_string(found)),
        CopyResult::Damaged(damage) => (DAMAGED, serde_json::to_string(damage)),
        CopyResult::Untried => (NOT_CHECKED, Ok(String::new())),
    };
    // A parent that went away needs no answer.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.unwrap_or_default().as_bytes());
    code
}

/// What trying a database out came to.
#[derive(Debug)]
pub(super) enum CheckResult<T> {
    /// It opens, and this was found.
    Opens(T),
    /// It opens, and this was found, once its log is read without the snapshots of it; and what is wrong with them.
    OpensWithoutSnapshots(T, StoreError),
    /// There is none, or it could not be tried: opening it tells.
    Untried,
}

/// What came of one copy.
enum CopyResult<T> {
    Opens(T),
    Damaged(Damage),
    Untried,
}

/// What is wrong with a database.
#[derive(Debug, Serialize, Deserialize)]
struct Damage {
    /// The part of the state.
    what: String,
    detail: String,
}

impl Damage {
    fn of_the_database(detail: String) -> Damage {
        Damage { what: "the database".to_owned(), detail }
    }
}

/// How copies are called, and the work of a rebuild; leftovers of a killed process are swept by it.
const COPY: &str = ".try-";
pub(super) const REBUILD: &str = ".rebuild-";

/// How often it is tried to remove a copy that the child of a killed process may still be writing to.
const AGAIN_TRIES: u32 = 50;
const AGAIN_WAIT: Duration = Duration::from_millis(20);

/// Whether the state in `dir` has a database.
pub(super) fn has_database(dir: &Path) -> bool {
    dir.join("db").join("db").exists()
}

/// Reads what the database of the state in `dir` holds, from a copy of it in `work`, which is gone on return.
///
/// # Errors
/// [`StoreError::Damaged`], or what the file system said.
pub(super) fn read(dir: &Path, work: &Path) -> Result<CheckResult<Box<Salvaged>>, StoreError> {
    run(dir, work, None, &read_copy)
}

/// Whether the database of the state in `dir` can be read, is the latest one, and fits the spool. It is looked at as
/// [`read`] does.
///
/// # Errors
/// As [`read`].
pub(super) fn verify(dir: &Path, work: &Path) -> Result<CheckResult<()>, StoreError> {
    run(dir, work, Some(dir), &|copy| verify_copy(copy, dir))
}

fn read_copy(copy: &Path) -> CopyResult<Box<Salvaged>> {
    look_at(copy, |database| Ok(Box::new(Salvaged::of(database))))
}

fn verify_copy(copy: &Path, dir: &Path) -> CopyResult<()> {
    look_at(copy, |database| {
        let salvaged = Salvaged::of(database);
        if let Some(first) = salvaged.unreadable.first() {
            return Err(damaged(dir, first.clone()));
        }
        commit_count::must_be_latest(dir, salvaged.records.commits, commit_count::read(dir)?)?;
        verify::quick(dir, &salvaged.records)
    })
}

fn look_at<T>(copy: &Path, look: impl FnOnce(&Database) -> Result<T, StoreError>) -> CopyResult<T> {
    match Database::open_at(copy, copy).and_then(|database| look(&database)) {
        Ok(found) => CopyResult::Opens(found),
        Err(StoreError::Damaged { what, detail, .. }) => CopyResult::Damaged(Damage { what, detail }),
        Err(_) => CopyResult::Untried,
    }
}

/// Tries the database of the state in `dir` out, with its snapshots, and from its log alone where that is refused:
/// snapshots spare reading all of the log, and nothing is lost with them. A child that is told of `state` looks whether
/// they fit. Without a program to start, `look` does what the child would.
fn run<T: DeserializeOwned>(
    dir: &Path,
    work: &Path,
    state: Option<&Path>,
    look: &dyn Fn(&Path) -> CopyResult<T>,
) -> Result<CheckResult<T>, StoreError> {
    let try_copy = |with_snapshots| {
        let copy = tempfile::Builder::new().prefix(COPY).tempdir_in(work).map_err(StoreError::io(work))?;
        copy_database(&dir.join("db"), copy.path(), with_snapshots)?;
        Ok(match PROGRAM.get() {
            Some(program) => in_child(program, copy.path(), state),
            None => look(copy.path()),
        })
    };
    let first = match try_copy(true)? {
        CopyResult::Opens(found) => return Ok(CheckResult::Opens(found)),
        CopyResult::Untried => return Ok(CheckResult::Untried),
        CopyResult::Damaged(Damage { what, detail }) => {
            StoreError::Damaged { dir: dir.to_owned(), what, detail }
        }
    };
    match try_copy(false)? {
        CopyResult::Opens(found) => Ok(CheckResult::OpensWithoutSnapshots(found, first)),
        CopyResult::Damaged(_) | CopyResult::Untried => Err(first),
    }
}

pub(super) fn damaged(dir: &Path, detail: String) -> StoreError {
    StoreError::Damaged { dir: dir.to_owned(), what: "the database".to_owned(), detail }
}

/// Removes the copies that killed processes left.
pub(super) fn sweep(dir: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(StoreError::io(dir))? {
        let entry = entry.map_err(StoreError::io(dir))?;
        let name = entry.file_name();
        if [COPY, REBUILD].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            remove_folder(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a folder that a child of a killed process may still be writing to.
fn remove_folder(path: &Path) -> Result<(), StoreError> {
    for _ in 0..AGAIN_TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => park_timeout(AGAIN_WAIT),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => return other.map_err(StoreError::io(path)),
        }
    }
    tracing::warn!(path = %path.display(), "another process writes to the copy of a database; it is left in place");
    Ok(())
}

/// Copies a database, with what its log can do without or not.
fn copy_database(from: &Path, to: &Path, with_snapshots: bool) -> Result<(), StoreError> {
    fs::create_dir_all(to).map_err(StoreError::io(to))?;
    for entry in fs::read_dir(from).map_err(StoreError::io(from))? {
        let path = entry.map_err(StoreError::io(from))?.path();
        let name = path.file_name().unwrap_or_default().to_os_string();
        if path.is_dir() {
            copy_database(&path, &to.join(name), true)?;
        } else if with_snapshots || !set_aside::is_dispensable(&name.to_string_lossy()) {
            fs::copy(&path, to.join(name)).map_err(StoreError::io(&path))?;
        }
    }
    Ok(())
}

fn in_child<T: DeserializeOwned>(program: &Path, copy: &Path, state: Option<&Path>) -> CopyResult<T> {
    let child = Command::new(program)
        .arg(ARGUMENT)
        .arg(copy)
        .args(state)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match child {
        Ok(child) => wait(child),
        Err(error) => {
            tracing::warn!(%error, "the database is opened without a trial in a child process");
            CopyResult::Untried
        }
    }
}

fn wait<T: DeserializeOwned>(mut child: Child) -> CopyResult<T> {
    let (sender, text) = mpsc::channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ];
    for (index, pipe) in pipes.into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                // What could be read is good enough for a message.
                let _ = pipe.read_to_end(&mut bytes);
            }
            let _ = sender.send((index, bytes));
        });
    }
    let mut said = [Vec::new(), Vec::new()];
    for _ in 0..said.len() {
        let Ok((index, bytes)) = text.recv_timeout(CHECK_TIMEOUT) else {
            let _ = child.kill();
            let _ = child.wait();
            return CopyResult::Damaged(Damage::of_the_database("reading it does not end".to_owned()));
        };
        said[index] = bytes;
    }
    let code = child.wait().ok().and_then(|status| status.code());
    let [out, err] = said.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match code {
        Some(0) => serde_json::from_str(&out).map_or(CopyResult::Untried, CopyResult::Opens),
        Some(code) if code == i32::from(NOT_CHECKED) => CopyResult::Untried,
        Some(code) if code == i32::from(DAMAGED) => {
            CopyResult::Damaged(serde_json::from_str(&out).unwrap_or_else(|_| Damage::of_the_database(out)))
        }
        _ => CopyResult::Damaged(Damage::of_the_database(panic_in_words(&err))),
    }
}

/// What a dying child said, on one line.
fn panic_in_words(stderr: &str) -> String {
    let mut lines = stderr.lines().skip_while(|line| !line.contains("panicked at"));
    let said = lines.nth(1).unwrap_or("it crashed the process that read it").trim();
    format!("it cannot be read: {said}")
}
