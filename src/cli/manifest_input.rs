//! The manifests of a command: files, and standard input as `-`.

use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::cli::failure::Failure;
use crate::cli::invocation::STDIN;
use crate::cli::manifest_arguments::{ManifestArguments, ManifestFormat};
use crate::cli::terminal::say;
use crate::config::Config;
use crate::domain::batch_origin::SourcePlace;
use crate::domain::exit_code::Exit;
use crate::domain::manifest::{self, Limits};
use crate::engine::blocking;
use crate::ingest::ManifestError;
use crate::ingest::input_files::{self, ReadFiles};
use crate::ingest::manifest_file;
use crate::ingest::table_files::{self, Roots};
use crate::server::protocol::Submission;

/// A manifest that a command hands in, or plans.
#[derive(Debug)]
pub(super) struct ManifestInput {
    /// The file that is read.
    pub(super) path: PathBuf,
    /// As people are shown it.
    pub(super) shown: PathBuf,
    /// How it is handed in: the same for a plan and for a run.
    pub(super) submission: Submission,
    /// The files that its rows name.
    pub(super) files: Arc<ReadFiles>,
    /// Holds what came by standard input, or the manifest with its tables.
    copy: Option<TempDir>,
}

/// All manifests of a command. Standard input is read to its end first, so that its writer may use the state meanwhile.
///
/// # Errors
/// When a folder cannot be found, a name not be said, or standard input not be read.
pub(super) async fn open_all(
    manifests: &[PathBuf],
    terms: &ManifestArguments,
    config: &Config,
) -> Result<Vec<ManifestInput>, Failure> {
    let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
    match manifests.iter().filter(is_stdin).count() {
        0 if terms.format.is_some() => {
            return Err(Failure::new(Exit::Usage, "--format is for standard input")
                .hint("a file's name gives its format: .csv, .json, .jsonl or .ndjson"));
        }
        0 | 1 => {}
        _ => return Err(Failure::new(Exit::Usage, "- can be given only once: there is one standard input")),
    }
    let is_alone = manifests.len() == 1;
    manifests.iter().filter(|path| !is_stdin(path)).try_for_each(|path| check_present(path, is_alone))?;
    let mut inputs = Vec::with_capacity(manifests.len());
    for path in manifests {
        let input = if is_stdin(&path) { stdin(terms).await? } else { file(path, terms)? };
        // Tables and files of standard input are named from where the command runs.
        let folder = if is_stdin(&path) { Path::new("") } else { path.parent().unwrap_or(Path::new("")) };
        let input = with_tables(input, folder).await?;
        inputs.push(with_files(input, folder, config).await?);
    }
    Ok(inputs)
}

/// Refuses a file that is not there or cannot be read, before another manifest of the same command is accepted, or the
/// service is asked for anything.
fn check_present(path: &Path, is_alone: bool) -> Result<(), Failure> {
    let found = fs::metadata(path);
    // Others, as pipes, are opened once, by who reads them.
    let opened = found.and_then(|found| if found.is_file() { File::open(path).map(drop) } else { Ok(()) });
    opened.map_err(|source| {
        let failure = Failure::from(ManifestError::Unreadable { path: path.to_owned(), source });
        if is_alone {
            return failure;
        }
        failure.hint("nothing of the other manifests was accepted; correct the name and repeat the command")
    })
}

/// The tables that a manifest's matrix names are read here and handed over with it: who named the manifest may read them,
/// and the process that takes it in may run elsewhere, or as another user.
async fn with_tables(input: ManifestInput, folder: &Path) -> Result<ManifestInput, Failure> {
    let ManifestInput { path, shown, submission, files, copy } = input;
    // A stream is read once, by who takes it in.
    if !path.is_file() || !may_name_tables(&path) {
        return Ok(ManifestInput { path, shown, submission, files, copy });
    }
    let (folder, source, name) = (folder.to_owned(), path.clone(), submission.file.clone());
    let read_from = shown.clone();
    let whole = blocking(move || -> Result<_, Failure> {
        // What is wrong with it is said when it is handed in.
        let Ok(document) = fs::read_to_string(&source) else { return Ok(None) };
        let mut read = |table: &str| table_files::read(&folder, Roots::Any, table);
        let whole = manifest::with_tables(&document, &mut read, &Limits::default());
        let whole = whole
            .map_err(|problem| Failure::new(Exit::Usage, format!("{}:{problem}", read_from.display())))?;
        let Some(whole) = whole else { return Ok(None) };
        let unwritten =
            |error: io::Error| Failure::new(Exit::Disk, format!("failed to copy the manifest: {error}"));
        let dir = tempfile::tempdir().map_err(unwritten)?;
        fs::write(dir.path().join(name), whole).map_err(unwritten)?;
        Ok(Some(dir))
    });
    Ok(match whole.await? {
        Some(dir) => {
            let path = dir.path().join(&submission.file);
            ManifestInput { path, shown, submission, files, copy: Some(dir) }
        }
        None => ManifestInput { path, shown, submission, files, copy },
    })
}

/// The files that rows name are read here and handed over with it, as its tables are.
async fn with_files(input: ManifestInput, folder: &Path, config: &Config) -> Result<ManifestInput, Failure> {
    // A stream is read once, by who takes it in.
    if !input.path.is_file() {
        return Ok(input);
    }
    let (path, folder, most) = (input.path.clone(), folder.to_owned(), config.inputs.max_file.as_u64());
    let read = blocking(move || input_files::read_named(&path, &folder, most)).await;
    let files = read.map_err(|error| {
        Failure::new(Exit::Usage, format!("failed to read {}: {error}", input.shown.display()))
    })?;
    Ok(ManifestInput { files: Arc::new(files), ..input })
}

/// Whether a file may be a JSON manifest with a matrix: small enough to be held, and an object at first sight.
fn may_name_tables(path: &Path) -> bool {
    let mut head = [0; 512];
    let read = File::open(path).and_then(|mut file| file.read(&mut head));
    let is_small = fs::metadata(path).is_ok_and(|meta| meta.len() <= Limits::default().max_json_bytes as u64);
    let head = head.get(..read.unwrap_or(0)).unwrap_or_default();
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let is_lines = path.extension().is_some_and(|extension| extension == "jsonl" || extension == "ndjson");
    is_small && !is_lines && head.trim_ascii_start().first() == Some(&b'{')
}

fn file(path: &Path, terms: &ManifestArguments) -> Result<ManifestInput, Failure> {
    // `.` and `..` have no name.
    if path.is_dir() {
        return Err(ManifestError::NotAFile { path: path.to_owned() }.into());
    }
    let file = path.file_name().and_then(|name| name.to_str());
    let file = file.ok_or_else(|| {
        Failure::new(Exit::Usage, format!("{}: the file name is not valid UTF-8", path.display()))
    })?;
    let folder = match manifest_file::place_of(path)? {
        SourcePlace::Folder(folder) => Some(folder),
        _ => None,
    };
    let submission = submission(file, folder, terms);
    Ok(ManifestInput {
        path: path.to_owned(),
        shown: path.to_owned(),
        submission,
        files: Arc::default(),
        copy: None,
    })
}

async fn stdin(terms: &ManifestArguments) -> Result<ManifestInput, Failure> {
    if io::stdin().is_terminal() {
        say!("reading a manifest from standard input; end it with Ctrl-D");
    }
    let name = match terms.format {
        None => "stdin",
        Some(ManifestFormat::Csv) => "stdin.csv",
        Some(ManifestFormat::Json) => "stdin.json",
        Some(ManifestFormat::Jsonl) => "stdin.jsonl",
    };
    let unreadable = |error: io::Error| Failure::new(Exit::Disk, format!("failed to read {STDIN}: {error}"));
    let copy = blocking(move || {
        let dir = tempfile::tempdir()?;
        let mut file = File::create_new(dir.path().join(name))?;
        io::copy(&mut io::stdin().lock(), &mut file).map(|_| dir)
    });
    let copy = copy.await.map_err(unreadable)?;
    let path = copy.path().join(name);
    if terms.batch.is_none() {
        let file = BufReader::new(File::open(&path).map_err(unreadable)?);
        // What is wrong with it is said when it is handed in.
        let is_unnamed = |manifest: manifest::Manifest<_>| manifest.header().batch.is_none();
        let mut read_table = |table: &str| table_files::read(Path::new(""), Roots::Any, table);
        if manifest::open(name, file, &Limits::default(), &mut read_table).is_ok_and(is_unnamed) {
            return Err(Failure::new(Exit::Usage, format!("a batch from {STDIN} needs a name"))
                .hint("name the batch with --name, or with \"batch\" in a JSON manifest"));
        }
    }
    let submission = submission(name, None, terms);
    Ok(ManifestInput {
        path,
        shown: PathBuf::from(STDIN),
        submission,
        files: Arc::default(),
        copy: Some(copy),
    })
}

fn submission(file: &str, folder: Option<String>, terms: &ManifestArguments) -> Submission {
    Submission {
        file: file.to_owned(),
        folder,
        batch: terms.batch.clone(),
        budget: terms.budget,
        max_credits: terms.max_credits,
        strict: terms.strict,
        allow_unknown_options: terms.allow_unknown_options,
        review: terms.review,
        pilot: terms.pilot,
        files: None,
        selection: terms.selection(),
    }
}
