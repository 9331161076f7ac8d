//! Thumbnails, sizes and lengths of a batch's outputs, found out page by page, one output at a time.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::domain::ids::BatchName;
use crate::domain::job::{OutputFile, State};
use crate::engine::EngineError;
use crate::engine::gallery::pages::{BatchPages, DATA_FOLDER, THUMBNAIL_FOLDER, replace};
use crate::output::publish::OutputDir;
use crate::pages::decoder_process::DecoderProcess;
use crate::pages::gallery_job::media_key;
use crate::pages::{GALLERY_FOLDER, script_data};
use crate::store::{BatchRecord, JobRecord, Store};
use callsheet_media_facts::{MediaFacts, MediaQuestion, is_readable};

/// Facts of the outputs of a page, by their keys.
type PageFacts = BTreeMap<String, MediaFacts>;

/// The process that looks into files, started when there is one to look into.
#[derive(Debug, Default)]
pub(super) struct MediaReader {
    process: Option<DecoderProcess>,
    /// It cannot be started.
    is_missing: bool,
}

impl MediaReader {
    /// What there is to tell of a file; nothing where it cannot be told.
    fn ask(&mut self, question: &MediaQuestion) -> Option<MediaFacts> {
        if self.process.is_none() && !self.is_missing {
            self.process = DecoderProcess::start();
            self.is_missing = self.process.is_none();
        }
        let facts = self.process.as_mut()?.ask(question);
        if facts.is_none() {
            tracing::debug!(path = %question.path.display(), "no thumbnail: the file could not be read");
            self.process = None;
        }
        // Asked again it would not be told either.
        Some(facts.unwrap_or_default())
    }

    /// Ends the process.
    pub(super) fn rest(&mut self) {
        self.process = None;
    }
}

impl BatchPages {
    /// Finds out what is not known of the outputs of a batch's pages, as long as `goes_on` says so. Returns whether
    /// anything is left to find out.
    pub(super) fn find_facts(
        &mut self,
        store: &Store,
        output_dir: &OutputDir,
        batch: &BatchRecord,
        reader: &mut MediaReader,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, EngineError> {
        let folder = output_dir.batch_dir(&batch.name).join(GALLERY_FOLDER);
        let pages = self.stamp.pages.len();
        self.stamp.media.resize(pages + 1, 0);
        self.stamp.media_done.resize(pages + 1, 0);
        for page in 0..=pages {
            let begin = if page == 0 { 0 } else { self.stamp.pages[page - 1].end };
            let end = self.stamp.pages.get(page).map_or(self.stamp.end, |page| page.end);
            if self.stamp.media_done[page] == end || begin == end {
                continue;
            }
            if !goes_on() {
                return Ok(true);
            }
            let files = files_between(store, batch, begin, end)?;
            let path = facts_path(&folder, page);
            let failed = |source: io::Error| EngineError::Output { path: path.clone(), source };
            let mut facts = read_facts(&path);
            let known = facts.len();
            let mut is_complete = true;
            for file in files.iter().filter(|file| is_readable(&file.content_type)) {
                if facts.contains_key(media_key(file)) {
                    continue;
                }
                if !goes_on() {
                    is_complete = false;
                    break;
                }
                let question = question(output_dir, &batch.name, &folder, file).map_err(failed)?;
                let found = kept_facts(&question).or_else(|| reader.ask(&question));
                let Some(found) = found else { return Ok(false) };
                facts.insert(media_key(file).to_owned(), found);
            }
            if facts.len() > known {
                let file = script_data::call("callsheetMedia", page, &facts)
                    .map_err(|error| failed(error.into()))?;
                replace(&path, file.as_bytes()).map_err(failed)?;
            }
            self.stamp.media[page] = u32::try_from(facts.len()).unwrap_or(u32::MAX);
            if !is_complete {
                return Ok(true);
            }
            self.stamp.media_done[page] = end;
        }
        Ok(false)
    }
}

/// Finds out what there is to tell of outputs that are about to leave the disk, and keeps it beside their thumbnails.
pub(super) fn keep_facts(
    output_dir: &OutputDir,
    batch: &BatchName,
    files: &[OutputFile],
    reader: &mut MediaReader,
) -> io::Result<()> {
    let folder = output_dir.batch_dir(batch).join(GALLERY_FOLDER);
    for file in files.iter().filter(|file| is_readable(&file.content_type)) {
        let question = question(output_dir, batch, &folder, file)?;
        if kept_facts(&question).is_none()
            && let Some(facts) = reader.ask(&question)
        {
            replace(&kept_facts_path(&question), &serde_json::to_vec(&facts)?)?;
        }
    }
    Ok(())
}

/// What is known of an output that has left the disk.
fn kept_facts(question: &MediaQuestion) -> Option<MediaFacts> {
    serde_json::from_slice(&fs::read(kept_facts_path(question)).ok()?).ok()
}

/// `thumbs/9/9f2c….json`
fn kept_facts_path(question: &MediaQuestion) -> PathBuf {
    question.thumbnail.with_extension("json")
}

/// `data/0003.media.js`
fn facts_path(folder: &Path, page: usize) -> PathBuf {
    folder.join(DATA_FOLDER).join(format!("{page:04}.media.js"))
}

/// The facts that are known; none where the file is not as it was written.
fn read_facts(path: &Path) -> PageFacts {
    let json = fs::read_to_string(path).ok().and_then(|file| script_data::json_of(&file));
    json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default()
}

/// The outputs that outcomes tell of, from one byte to another.
fn files_between(
    store: &Store,
    batch: &BatchRecord,
    begin: u64,
    end: u64,
) -> Result<Vec<OutputFile>, EngineError> {
    let mut outcomes = store.spool(batch.no).outcomes(begin, end)?;
    let mut files = Vec::new();
    while let Some((_, record)) = outcomes.next_line::<JobRecord>()? {
        if let State::Succeeded { files: found, .. } = record.job.state() {
            files.extend(found.iter().cloned());
        }
    }
    Ok(files)
}

fn question(
    output_dir: &OutputDir,
    batch: &BatchName,
    folder: &Path,
    file: &OutputFile,
) -> io::Result<MediaQuestion> {
    let key = media_key(file);
    let beginning = key.get(..1).unwrap_or(key);
    output_dir.make_folder_in(batch, &format!("{GALLERY_FOLDER}/{THUMBNAIL_FOLDER}/{beginning}"))?;
    Ok(MediaQuestion {
        path: std::path::absolute(output_dir.batch_dir(batch).join(&file.path))?,
        bytes: file.bytes,
        content_type: file.content_type.clone(),
        thumbnail: std::path::absolute(
            folder.join(THUMBNAIL_FOLDER).join(beginning).join(format!("{key}.jpg")),
        )?,
        length_only: false,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::pages::decoder_process;

    #[test]
    fn a_file_that_the_process_dies_of_costs_no_other_file_its_facts() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("media");
        // It answers, and dies of one file without an answer. Another process writes it: no process that a test begins
        // meanwhile has it open for writing, which would keep it from being run.
        let script = "#!/bin/sh\nwhile read -r line; do\n  case \"$line\" in *deadly*) exit 1;; esac\n  echo '{\"seconds\": 2.5}'\ndone\n";
        let write = "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"";
        let made = Command::new("sh").args(["-c", write, "sh", script]).arg(&program).status();
        assert!(made.unwrap().success());
        decoder_process::use_program(program);
        let mut reader = MediaReader::default();
        let mut ask = |name: &str| {
            let (path, thumbnail) = (dir.path().join(name), dir.path().join("thumbnail"));
            let content_type = "audio/wav".to_owned();
            let question = MediaQuestion { path, bytes: 1, content_type, thumbnail, length_only: false };
            reader.ask(&question).expect("it is known that there is nothing to tell").seconds
        };
        let told = ["one.wav", "deadly.wav", "two.wav", "deadly.wav", "three.wav"].map(&mut ask);
        assert_eq!(told, [Some(2.5), None, Some(2.5), None, Some(2.5)]);
    }
}
