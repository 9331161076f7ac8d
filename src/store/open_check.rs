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

use crate::store::commit::Database;
use crate::store::snapshot::Salvaged;
use crate::store::{StoreError, quarantine};

/// First argument of the child. The second is the folder of the database.
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

/// The child's part: opens the database, reads all of it, prints what it holds, and returns the
/// exit code.
pub fn child(path: &OsString) -> u8 {
    // A parent that is killed while it waits takes this with it: nobody would read what is found, and the next
    // process sweeps the copy. Without it, the copy is swept a little later.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let path = Path::new(path);
    let (code, text) = match Database::open_at(path, path) {
        Ok(database) => (0, serde_json::to_string(&Salvaged::of(&database)).unwrap_or_default()),
        Err(StoreError::Damaged { detail, .. }) => (DAMAGED, detail),
        Err(error) => (NOT_CHECKED, error.to_string()),
    };
    // A parent that went away needs no answer.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    code
}

/// What trying a database out came to.
#[derive(Debug)]
pub(super) enum CheckResult {
    /// It opens, and this is what it holds.
    Opens(Box<Salvaged>),
    /// It opens, and holds this, once its log is read without the snapshots of it; and what is wrong with them.
    OpensWithoutSnapshots(Box<Salvaged>, StoreError),
    /// There is none, or it could not be tried: opening it tells.
    Untried,
}

/// What came of one copy.
enum CopyResult {
    Opens(Box<Salvaged>),
    /// Why.
    Damaged(String),
    Untried,
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

/// Tries the database of the state in `dir` out, with its snapshots, and from its log alone where that is refused:
/// snapshots spare reading all of the log, and nothing is lost with them. `accept` says whether what it holds will do.
/// The copies are made in `work`, and gone on return.
///
/// # Errors
/// [`StoreError::Damaged`]: what is wrong with the first; or what the file system said.
pub(super) fn run(
    dir: &Path,
    work: &Path,
    accept: &dyn Fn(&Salvaged) -> Result<(), StoreError>,
) -> Result<CheckResult, StoreError> {
    let first = match run_copy(dir, work, true, accept) {
        Ok(Some(salvaged)) => return Ok(CheckResult::Opens(salvaged)),
        Ok(None) => return Ok(CheckResult::Untried),
        Err(error @ StoreError::Damaged { .. }) => error,
        Err(error) => return Err(error),
    };
    match run_copy(dir, work, false, accept) {
        Ok(Some(salvaged)) => Ok(CheckResult::OpensWithoutSnapshots(salvaged, first)),
        Err(StoreError::Damaged { .. }) | Ok(None) => Err(first),
        Err(error) => Err(error),
    }
}

fn run_copy(
    dir: &Path,
    work: &Path,
    with_snapshots: bool,
    accept: &dyn Fn(&Salvaged) -> Result<(), StoreError>,
) -> Result<Option<Box<Salvaged>>, StoreError> {
    let copy = tempfile::Builder::new().prefix(COPY).tempdir_in(work).map_err(StoreError::io(work))?;
    copy_database(&dir.join("db"), copy.path(), with_snapshots)?;
    let found = match PROGRAM.get() {
        Some(program) => in_child(program, copy.path()),
        None => in_this_process(copy.path()),
    };
    match found {
        CopyResult::Opens(salvaged) => accept(&salvaged).map(|()| Some(salvaged)),
        CopyResult::Damaged(detail) => Err(damaged(dir, detail)),
        CopyResult::Untried => Ok(None),
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
        } else if with_snapshots || !quarantine::is_dispensable(&name.to_string_lossy()) {
            fs::copy(&path, to.join(name)).map_err(StoreError::io(&path))?;
        }
    }
    Ok(())
}

fn in_this_process(path: &Path) -> CopyResult {
    match Database::open_at(path, path) {
        Ok(database) => CopyResult::Opens(Box::new(Salvaged::of(&database))),
        Err(StoreError::Damaged { detail, .. }) => CopyResult::Damaged(detail),
        Err(_) => CopyResult::Untried,
    }
}

fn in_child(program: &Path, path: &Path) -> CopyResult {
    let child = Command::new(program)
        .arg(ARGUMENT)
        .arg(path)
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

fn wait(mut child: Child) -> CopyResult {
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
            return CopyResult::Damaged("reading it does not end".to_owned());
        };
        said[index] = bytes;
    }
    let code = child.wait().ok().and_then(|status| status.code());
    let [out, err] = said.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match code {
        Some(0) => serde_json::from_str(&out)
            .map_or(CopyResult::Untried, |salvage| CopyResult::Opens(Box::new(salvage))),
        Some(code) if code == i32::from(NOT_CHECKED) => CopyResult::Untried,
        Some(code) if code == i32::from(DAMAGED) => CopyResult::Damaged(out),
        _ => CopyResult::Damaged(panic_in_words(&err)),
    }
}

/// What a dying child said, on one line.
fn panic_in_words(stderr: &str) -> String {
    let mut lines = stderr.lines().skip_while(|line| !line.contains("panicked at"));
    let said = lines.nth(1).unwrap_or("it crashed the process that read it").trim();
    format!("it cannot be read: {said}")
}
