//! Files of this machine that rows name where the service takes an address: what they hold.
//!
//! Who may drop a manifest must not publish any file of the machine by it. So a daemon reads only what lies below the
//! folders that its configuration allows. What a person names on the command line the client reads, and hands over.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytesize::ByteSize;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::domain::batch_origin::SourcePlace;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::hex::hex;
use crate::domain::input_file::{InputContent, InputFile, InputMedia, is_file_name, path_of};
use crate::domain::job_reference::InputField;
use crate::domain::manifest::row::{ReadRow, Row};
use crate::domain::manifest::{self, Limits};
use crate::ingest::manifest_file;
use crate::ingest::table_files::{self, Roots};
use callsheet_media_facts::movie_length;

/// First bytes of a file that tell its type.
const HEAD_BYTES: usize = 8 * 1024;

/// What files rows may name, and whose rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRules {
    /// Below which folders files may lie that a daemon reads itself.
    pub roots: Vec<PathBuf>,
    /// Largest file, in bytes.
    pub max_bytes: u64,
    /// There is an object store to put them into.
    pub has_store: bool,
    /// Sources whose batches manifests of every other source may name.
    pub shared_sources: Vec<SourcePlace>,
}

/// What holds where no configuration says anything: no file may be named.
pub static NO_FILES: InputRules =
    InputRules { roots: Vec::new(), max_bytes: 0, has_store: false, shared_sources: Vec::new() };

/// A file as its reader hands it over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandedFile {
    /// What it holds.
    Content(InputContent),
    /// Why it cannot be taken, as a sentence without its subject.
    Problem(String),
}

/// The files of a manifest by the names that its rows have for them, read by who hands it in.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandedFiles(pub BTreeMap<String, HandedFile>);

impl HandedFiles {
    /// Adds files by what is known of them. Returns whether that could be done: one name is for one content.
    pub(super) fn add(&mut self, files: &[InputFile]) -> bool {
        files.iter().all(|file| {
            let content = HandedFile::Content(file.content.clone());
            let known = self.0.entry(file.name.clone()).or_insert_with(|| content.clone());
            *known == content
        })
    }
}

/// A file and what it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundFile {
    pub path: PathBuf,
    pub content: InputContent,
}

type Known = HashMap<String, Arc<OnceLock<Result<FoundFile, String>>>>;

/// The files that the rows of a manifest name.
#[derive(Debug)]
pub(super) struct InputFiles<'a> {
    /// They were read by who handed the manifest in; otherwise they are read as rows name them.
    handed: Option<&'a HandedFiles>,
    folder: &'a Path,
    rules: &'a InputRules,
    /// Each is read once.
    known: Mutex<Known>,
}

impl<'a> InputFiles<'a> {
    /// Those of a manifest in `folder`.
    pub(super) fn new(
        handed: Option<&'a HandedFiles>,
        folder: &'a Path,
        rules: &'a InputRules,
    ) -> InputFiles<'a> {
        InputFiles { handed, folder, rules, known: Mutex::default() }
    }

    /// The files that a row names.
    ///
    /// # Errors
    /// Everything that is wrong with them; they are in their fields, and have no position yet.
    pub(super) fn files_of(&self, row: &Row) -> Result<Vec<InputFile>, Vec<Diagnostic>> {
        let (mut files, mut problems) = (Vec::new(), Vec::new());
        for (field, place, name) in named_by(row) {
            match self.content(field, name) {
                Ok(content) => {
                    let place = u32::try_from(place).unwrap_or(u32::MAX);
                    files.push(InputFile { field, place, name: name.to_owned(), content });
                }
                Err(why) => {
                    problems.push(Diagnostic::new(format!("\"{name}\" {why}")).in_field(field.name()));
                }
            }
        }
        if problems.is_empty() { Ok(files) } else { Err(problems) }
    }

    fn content(&self, field: InputField, name: &str) -> Result<InputContent, String> {
        if !self.rules.has_store {
            return Err(
                "is a file of this machine, which the service cannot fetch; set inputs.store in the \
                        configuration to upload such files, or give an address"
                    .to_owned(),
            );
        }
        let content = match self.handed {
            Some(handed) => match handed.0.get(name) {
                Some(HandedFile::Content(content)) => content.clone(),
                Some(HandedFile::Problem(why)) => return Err(why.clone()),
                None => return Err("was not handed over with the manifest; submit it again".to_owned()),
            },
            None => self.read(name)?.content,
        };
        // Of another's reader the limits may be others.
        let InputContent { bytes, media, .. } = content;
        if bytes > self.rules.max_bytes {
            return Err(too_large(self.rules.max_bytes));
        }
        if media.field() != field {
            let taken = InputMedia::accepted_by(field);
            return Err(format!(
                "is a file of the type {}; {} takes {taken}",
                media.extension(),
                field.name()
            ));
        }
        Ok(content)
    }

    fn read(&self, name: &str) -> Result<FoundFile, String> {
        let slot = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(name.to_owned()).or_default().clone()
        };
        let read = || {
            let path = self.folder.join(path_of(name)?);
            let roots = Roots::Below(&self.rules.roots);
            let path = roots
                .path_of(&path)
                .map_err(|allowed| format!("is not a file below a folder of inputs.roots: {allowed}"))?;
            // Its folders were checked: none of them may become a link meanwhile.
            let content = read_content(&path, Links::Refused, self.rules.max_bytes)?;
            Ok(FoundFile { path, content })
        };
        slot.get_or_init(read).clone()
    }

    /// Those that were read here, and so are not handed over by anybody.
    pub(super) fn into_read(self) -> Vec<FoundFile> {
        let known = self.known.into_inner().unwrap_or_else(PoisonError::into_inner);
        known.into_values().filter_map(|slot| slot.get()?.clone().ok()).collect()
    }
}

/// The files that a row names: where each stands, and how it is written.
fn named_by(row: &Row) -> impl Iterator<Item = (InputField, usize, &str)> {
    let lists =
        [(InputField::ImageUrls, &row.request.image_urls), (InputField::VideoUrls, &row.request.video_urls)];
    lists.into_iter().flat_map(|(field, list)| {
        let files = list.iter().enumerate().filter(|(_, text)| is_file_name(text));
        files.map(move |(place, text)| (field, place, text.as_str()))
    })
}

/// Reads the files that the rows of a manifest name, for who hands it in. `folder` is the one that their names are
/// relative to. What is wrong with the manifest itself is said when it is handed in.
///
/// # Errors
/// When the manifest cannot be read.
pub fn read_named(manifest: &Path, folder: &Path, max_bytes: u64) -> io::Result<ReadFiles> {
    let mut files = ReadFiles::default();
    if !may_name_files(File::open(manifest)?)? {
        return Ok(files);
    }
    let name = manifest.file_name().unwrap_or_default().to_string_lossy();
    let file = BufReader::with_capacity(64 * 1024, File::open(manifest)?);
    let mut read_table = |table: &str| table_files::read(folder, Roots::Any, table);
    let Ok(rows) = manifest::open(&name, file, &Limits::default(), &mut read_table) else { return Ok(files) };
    for row in rows {
        let ReadRow::Good(row) = row else { continue };
        for (_, _, name) in named_by(&row) {
            if files.handed.0.contains_key(name) {
                continue;
            }
            let read = path_of(name).and_then(|path| {
                let path = folder.join(path);
                // Said with the folder that a name is relative to.
                let named = |why: String| match path.as_os_str() == name {
                    true => why,
                    false => format!("({}) {why}", path.display()),
                };
                let content = read_content(&path, Links::Followed, max_bytes).map_err(named)?;
                Ok(FoundFile { path, content })
            });
            let handed = match read {
                Ok(found) => {
                    let content = found.content.clone();
                    files.found.insert(content.sha256.clone(), found);
                    HandedFile::Content(content)
                }
                Err(why) => HandedFile::Problem(why),
            };
            files.handed.0.insert(name.to_owned(), handed);
        }
    }
    Ok(files)
}

/// The files of a manifest, read by who hands it in.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct ReadFiles {
    /// What goes with the manifest.
    pub handed: HandedFiles,
    /// Where each content lies, by its hash.
    pub found: BTreeMap<String, FoundFile>,
}

/// Whether a manifest may name files; most do not, and are not read for them.
fn may_name_files(file: File) -> io::Result<bool> {
    const RELATIVE: [&[u8]; 4] = [b"./", b"file:", b"FILE:", b"File:"];
    // A cell that begins with a slash, whatever is before it.
    const ABSOLUTE: [&[u8]; 7] = [b"\"/", b",/", b";/", b" /", b"\t/", b"\n/", b"\r/"];
    // A slash as some writers of JSON escape it.
    const ESCAPED: [&[u8]; 3] = [b"\\/", b"\\u002f", b"\\u002F"];
    const TABLES: [&[u8]; 1] = [b"\"matrix\""];
    let marks: Vec<&[u8]> = [&RELATIVE[..], &ABSOLUTE, &ESCAPED, &TABLES].concat();
    manifest_file::has_any(file, &marks)
}

/// Whether a path may lead through symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    Followed,
    Refused,
}

/// Opens a file to read it, without waiting for a pipe's writer.
///
/// # Errors
/// When it cannot be opened, or is named by way of a link that is not followed.
pub fn open(path: &Path, links: Links) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = match links {
        Links::Followed => ResolveFlags::empty(),
        Links::Refused => ResolveFlags::NO_SYMLINKS,
    };
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?.into())
}

/// Reads a file: what it is, and what it holds.
///
/// # Errors
/// Why it cannot be taken, as a sentence without its subject.
fn read_content(path: &Path, links: Links, max_bytes: u64) -> Result<InputContent, String> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    let mut file = open(path, links).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.is_dir() {
        return Err("is a folder; a file is accepted".to_owned());
    }
    if !meta.is_file() {
        return Err("is a device, a pipe or a socket; a file is accepted".to_owned());
    }
    if meta.len() == 0 {
        return Err("is empty".to_owned());
    }
    if meta.len() > max_bytes {
        return Err(too_large(max_bytes));
    }
    let (mut hash, mut bytes, mut head) = (Sha256::new(), 0_u64, Vec::new());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = file.read(&mut buffer).map_err(failed)?;
        let Some(read) = buffer.get(..read).filter(|read| !read.is_empty()) else { break };
        let wanted = HEAD_BYTES.saturating_sub(head.len()).min(read.len());
        head.extend_from_slice(read.get(..wanted).unwrap_or_default());
        hash.update(read);
        bytes += read.len() as u64;
    }
    let media = infer::get(&head).map(|found| found.mime_type());
    let Some(media) = media.and_then(InputMedia::of_content_type) else {
        let found = media.unwrap_or("of a type that is not known");
        let taken = InputMedia::ALL.map(InputMedia::extension).join(", ");
        return Err(format!("is {found}; {taken} are accepted"));
    };
    let seconds = match media {
        InputMedia::Mp4 | InputMedia::Mov => seconds_of(file),
        _ => None,
    };
    Ok(InputContent { sha256: hex(&hash.finalize()), bytes, media, seconds })
}

fn too_large(max_bytes: u64) -> String {
    format!("has more than {}, the most that inputs.max_file allows", ByteSize(max_bytes))
}

/// How long an MPEG-4 or QuickTime video is, in seconds to a thousandth; nothing where it does not tell.
fn seconds_of(mut file: File) -> Option<f64> {
    file.rewind().ok()?;
    Some(movie_length(&mut BufReader::new(file))?.as_secs_f64())
}

/// The seconds of the one video that a row takes from a file, as a number of the body.
pub(super) fn source_seconds(files: &[InputFile]) -> Option<(Value, &str)> {
    let video = files.iter().find(|file| file.field == InputField::VideoUrls)?;
    let seconds = serde_json::Number::from_f64(video.content.seconds?)?;
    Some((Value::Number(seconds), &video.name))
}
