//! The manifests of a command: files, and standard input as `-`.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::manifest_arguments::{ManifestArguments, ManifestFormat};
use crate::cli::terminal::say;
use crate::control::protocol::Submission;
use crate::domain::batch_origin::SourcePlace;
use crate::domain::manifest::{self, Limits};
use crate::engine::blocking;
use crate::intake::manifest_file;

/// What standard input is called in everything shown.
pub(super) const STDIN: &str = "standard input";

/// A manifest that a command hands in, or plans.
#[derive(Debug)]
pub(super) struct ManifestInput {
    /// The file that is read.
    pub(super) path: PathBuf,
    /// As people are shown it.
    pub(super) shown: PathBuf,
    /// How it is handed in: the same for a plan and for a run.
    pub(super) submission: Submission,
    /// Holds what came by standard input.
    _copy: Option<TempDir>,
}

/// All manifests of a command. Standard input is read to its end first, so that its writer may use the state meanwhile.
///
/// # Errors
/// When a folder cannot be found, a name not be said, or standard input not be read.
pub(super) async fn open_all(
    manifests: &[PathBuf],
    terms: &ManifestArguments,
) -> Result<Vec<ManifestInput>, Failure> {
    let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
    match manifests.iter().filter(is_stdin).count() {
        0 if terms.format.is_some() => {
            return Err(Failure::new(Exit::Usage, "--format is for standard input")
                .hint("a file's name gives its format: .csv, .json, .jsonl or .ndjson"));
        }
        0 | 1 => {}
        _ => return Err(Failure::new(Exit::Usage, "- can be given once: standard input has one end")),
    }
    let mut inputs = Vec::with_capacity(manifests.len());
    for path in manifests {
        let input = if is_stdin(&path) { stdin(terms).await? } else { file(path, terms)? };
        inputs.push(input);
    }
    Ok(inputs)
}

fn file(path: &Path, terms: &ManifestArguments) -> Result<ManifestInput, Failure> {
    let file = path.file_name().and_then(|name| name.to_str());
    let file = file.ok_or_else(|| {
        Failure::new(Exit::Usage, format!("{}: the file name is not valid UTF-8", path.display()))
    })?;
    let folder = match manifest_file::place_of(path)? {
        SourcePlace::Folder(folder) => Some(folder),
        _ => None,
    };
    let submission = submission(file, folder, terms);
    Ok(ManifestInput { path: path.to_owned(), shown: path.to_owned(), submission, _copy: None })
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
        if manifest::open(name, file, &Limits::default()).is_ok_and(is_unnamed) {
            return Err(Failure::new(Exit::Usage, format!("{STDIN} gives its batch no name"))
                .hint("name the batch with --name, or with \"batch\" in a JSON manifest"));
        }
    }
    let submission = submission(name, None, terms);
    Ok(ManifestInput { path, shown: PathBuf::from(STDIN), submission, _copy: Some(copy) })
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
        selection: terms.selection(),
    }
}
