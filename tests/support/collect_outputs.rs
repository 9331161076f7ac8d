//! What a batch left on disk: whole files, complete results, nothing half done.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::TestEnv;

/// What lies beside the outputs once a run has ended.
pub const OF_THE_BATCH: [&str; 3] = ["report.json", "results.csv", "results.jsonl"];

/// The outputs and sidecars of a batch on disk, by the names that their objects have in a store below `out`.
pub fn stored_files(env: &TestEnv, batch: &str) -> BTreeMap<String, Vec<u8>> {
    let root = env.path("output").join(batch);
    let mut found = BTreeMap::new();
    for dir in [root.clone(), root.join("sidecars")] {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            let is_of_the_batch = [".", "results.", "report.", "index.", "decisions."].iter();
            if path.is_file() && !is_of_the_batch.clone().any(|start| name.starts_with(start)) {
                found.insert(format!("out/{batch}/{name}"), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// The folder of a batch.
#[derive(Debug)]
pub struct Outputs {
    dir: PathBuf,
    /// The lines of `results.jsonl`.
    pub lines: Vec<Value>,
    /// Sidecars that an older version put beside their outputs, by their paths relative to the folder.
    pub beside: BTreeSet<String>,
}

impl Outputs {
    /// Reads what a batch left in the default output folder.
    #[track_caller]
    pub fn of(env: &TestEnv, batch: &str) -> Outputs {
        Outputs::in_dir(env.path("output").join(batch))
    }

    #[track_caller]
    pub fn in_dir(dir: PathBuf) -> Outputs {
        let text = fs::read_to_string(dir.join("results.jsonl"))
            .unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Outputs { dir, lines, beside: BTreeSet::new() }
    }

    /// A column of `results.jsonl`, as text.
    pub fn column(&self, name: &str) -> Vec<String> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.lines.iter().map(|line| text(&line[name])).collect()
    }

    /// Every job succeeded, in this order, and all that was paid for is whole and in its place.
    #[track_caller]
    pub fn is_complete(&self, ids: &[String]) {
        assert_eq!(self.column("id"), ids, "results.jsonl lists every job in manifest order");
        assert_eq!(self.column("state"), vec!["succeeded"; ids.len()], "{:#?}", self.lines);
        let mut listed = self.csv_column("id");
        listed.dedup();
        assert_eq!(listed, ids, "results.csv lists every job in manifest order");
        let hashes: Vec<String> = self.files().into_iter().map(|file| file.sha256).collect();
        assert_eq!(self.csv_column("sha256"), hashes, "results.csv has a row for every file");
        for file in self.files() {
            file.is_whole(&self.dir);
        }
        self.holds_nothing_else();
    }

    /// Every job that succeeded has its files, whole, and nothing else lies there: no half file of a job
    /// that failed, for one.
    #[track_caller]
    pub fn is_whole(&self) {
        for line in self.lines.iter().filter(|line| line["state"] == "succeeded") {
            assert_ne!(line["files"], serde_json::json!([]), "{line:#}");
        }
        for file in self.files() {
            file.is_whole(&self.dir);
        }
        self.holds_nothing_else();
    }

    /// A sum over `results.jsonl`.
    pub fn sum(&self, column: &str) -> u64 {
        self.lines.iter().map(|line| line[column].as_u64().unwrap()).sum()
    }

    /// `report.json`.
    pub fn report(&self) -> Value {
        serde_json::from_slice(&fs::read(self.dir.join("report.json")).unwrap()).unwrap()
    }

    /// The service's charges are those of the results, job by job.
    #[track_caller]
    pub fn agrees_with(&self, audit: &super::accounting::Audit) {
        let here: BTreeMap<String, u64> = self
            .lines
            .iter()
            .map(|line| {
                (line["task_id"].as_str().unwrap().to_owned(), line["charged_credits"].as_u64().unwrap())
            })
            .collect();
        let there = audit.tasks.iter().map(|task| (task.id.clone(), task.charged_credits)).collect();
        assert_eq!(here, there, "tasks and charges, here and at the service");
    }

    /// Every file in the folder and in the folders in it, in order, by its path relative to it, but for the gallery.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![self.dir.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if ["index.html", "gallery"].iter().any(|name| path == self.dir.join(name)) {
                    continue;
                }
                match path.is_dir() {
                    true => folders.push(path),
                    false => names.push(path.strip_prefix(&self.dir).unwrap().to_str().unwrap().to_owned()),
                }
            }
        }
        names.sort();
        names
    }

    fn files(&self) -> Vec<File> {
        let files = self.lines.iter().flat_map(|line| line["files"].as_array().unwrap());
        files.map(|file| serde_json::from_value(file.clone()).unwrap()).collect()
    }

    fn csv_column(&self, name: &str) -> Vec<String> {
        let mut reader = csv::Reader::from_path(self.dir.join("results.csv")).unwrap();
        let index = reader.headers().unwrap().iter().position(|header| header == name).unwrap();
        reader.records().map(|record| record.unwrap()[index].to_owned()).collect()
    }

    /// Outputs, a sidecar for each job, the results: no part, no draft, no orphan.
    #[track_caller]
    fn holds_nothing_else(&self) {
        let mut expected: BTreeSet<String> = self.files().into_iter().map(|file| file.path).collect();
        for file in self.files() {
            let beside = Path::new(&file.path).with_extension("json").display().to_string();
            let is_beside = self.beside.contains(&beside);
            expected.insert(if is_beside { beside } else { format!("sidecars/{beside}") });
        }
        expected.extend(OF_THE_BATCH.map(str::to_owned));
        assert_eq!(self.names(), expected.into_iter().collect::<Vec<_>>());
    }
}

/// An output, as the results tell of it.
#[derive(Debug, serde::Deserialize)]
struct File {
    path: String,
    bytes: u64,
    sha256: String,
    content_type: String,
}

impl File {
    #[track_caller]
    fn is_whole(&self, dir: &Path) {
        let bytes = fs::read(dir.join(&self.path)).unwrap_or_else(|error| panic!("{}: {error}", self.path));
        assert_eq!(bytes.len() as u64, self.bytes, "{}", self.path);
        let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sha256, self.sha256, "{}", self.path);
        opens(&bytes, &self.content_type).unwrap_or_else(|error| panic!("{}: {error}", self.path));
    }
}

/// Reads media to its end, as a player would.
fn opens(bytes: &[u8], content_type: &str) -> Result<(), String> {
    match content_type {
        "image/png" => {
            let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info().map_err(|e| e.to_string())?;
            let mut pixels = vec![0; reader.output_buffer_size().ok_or("the picture is too large")?];
            reader.next_frame(&mut pixels).map(drop).map_err(|e| e.to_string())
        }
        "audio/wav" | "audio/x-wav" => {
            let mut reader = hound::WavReader::new(Cursor::new(bytes)).map_err(|e| e.to_string())?;
            reader.samples::<i16>().try_for_each(|sample| sample.map(drop)).map_err(|e| e.to_string())
        }
        "video/mp4" => boxes(bytes),
        other => Err(format!("{other} is no kind of media that the service makes")),
    }
}

/// Walks the boxes of an MP4 file, which must fill it exactly.
fn boxes(bytes: &[u8]) -> Result<(), String> {
    let mut names = Vec::new();
    let mut rest = bytes;
    while let Some((head, _)) = rest.split_at_checked(8) {
        let length = u32::from_be_bytes(head[..4].try_into().unwrap()) as usize;
        names.push(String::from_utf8_lossy(&head[4..]).into_owned());
        rest = rest.get(length.max(8)..).ok_or(format!("the box {:?} is cut off", names.last()))?;
    }
    let has = |name: &str| names.iter().any(|found| found == name);
    if rest.is_empty() && has("ftyp") && has("moov") && has("mdat") {
        Ok(())
    } else {
        Err(format!("the boxes are {names:?}, then {} bytes", rest.len()))
    }
}
