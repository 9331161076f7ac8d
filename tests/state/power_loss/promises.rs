//! What must be on the device when: the promises, held against a trace.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::state::power_loss::disk::{Change, Disk};
use crate::state::power_loss::trace::{Call, Event};

/// Names in the state that may be lost: what they say is known from elsewhere, or asked for again.
const MAY_BE_LOST: [&str; 5] = ["commits", "closed", "lock", "catalogs.json", "reserve"];

/// A record in the database, and when it was written there.
struct Record {
    content: Value,
    durable: Option<usize>,
}

pub struct Scene {
    root: PathBuf,
    lives: Vec<usize>,
    disk: Disk,
    records: Vec<Record>,
    sends: Vec<(usize, Vec<u8>)>,
    renames: Vec<(usize, usize, PathBuf, PathBuf)>,
    end: usize,
    broken: RefCell<Vec<String>>,
}

impl Scene {
    /// `lives` are the lines at which a process began.
    pub fn of(root: &Path, events: &[Event], lives: &[usize]) -> Scene {
        let disk = Disk::after(events);
        let log = root.join("state/db/db");
        let mut records: Vec<Record> = disk.writes(&log).flat_map(records_in).collect();
        for write in blobs(&disk, root).flat_map(|path| disk.writes(path)) {
            // It counts once the log tells of it.
            let told = disk.writes(&log).find(|told| told.entry > write.exit).and_then(|told| told.durable);
            let durable = write.durable.zip(told).map(|(own, told)| own.max(told));
            records.extend(records_in(write).map(|record| Record { durable, ..record }));
        }
        let (mut sends, mut renames) = (Vec::new(), Vec::new());
        for event in events {
            match &event.call {
                Call::Send { data } => sends.push((event.entry, data.clone())),
                Call::Rename { from, to } => {
                    renames.push((event.entry, event.exit, from.clone(), to.clone()));
                }
                _ => {}
            }
        }
        let end = events.iter().map(|event| event.exit).max().unwrap_or_default() + 1;
        let lives = lives.to_vec();
        Scene { root: root.to_owned(), lives, disk, records, sends, renames, end, broken: RefCell::default() }
    }

    /// Every promise that was broken. What lies anywhere in the end is promised by a run that says that it is
    /// done; a daemon ends whatever it is doing.
    pub fn broken(&self, is_said_to_be_done: bool) -> Vec<String> {
        self.intents_before_posts();
        self.sidecars_before_outputs();
        self.outputs_before_outcomes();
        self.spool_before_database();
        self.blobs_before_whatever_follows();
        self.content_before_names();
        self.commits_before_receipts();
        if is_said_to_be_done {
            self.everything_at_the_end();
        }
        self.broken.take()
    }

    fn expect(&self, lost: Option<String>, what: impl FnOnce() -> String) {
        if let Some(lost) = lost {
            self.broken.borrow_mut().push(format!("{}: {lost}", what()));
        }
    }

    /// Creating POSTs: when they left, and their bytes.
    fn creating(&self) -> impl Iterator<Item = (usize, &str)> {
        self.sends.iter().filter(|(_, data)| data.starts_with(b"POST /api/v1/")).map(|(at, data)| {
            let end = data.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(data.len());
            (*at, std::str::from_utf8(&data[..end]).unwrap())
        })
    }

    /// How many creating POSTs left.
    pub fn posts(&self) -> usize {
        self.creating().count()
    }

    /// How many files got their final names below the output folder.
    pub fn published(&self) -> usize {
        let is_sidecar = |path: &Path| path.extension().is_some_and(|ext| ext == "json");
        let published = |to: &&PathBuf| {
            to.starts_with(self.root.join("output"))
                && !is_hidden(to)
                && !is_sidecar(to)
                && !self.is_of_gallery(to)
        };
        self.renames.iter().map(|(.., to)| to).filter(published).count()
    }

    /// Pages of galleries are made of the state again where they are lost or torn: nothing waits for them.
    fn is_of_gallery(&self, path: &Path) -> bool {
        let Ok(inside) = path.strip_prefix(self.root.join("output")) else { return false };
        let parts: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
        matches!(parts[..], ["_gallery", ..] | ["index.html"] | [_, "index.html"] | [_, "gallery", ..])
    }

    /// How many manifests left their inbox.
    pub fn filed(&self) -> usize {
        self.renames.iter().filter(|(_, _, from, to)| is_filing(from, to)).count()
    }

    /// How many receipts were given by the socket.
    pub fn answered(&self) -> usize {
        self.receipts().count()
    }

    /// Answers of the daemon that tell of a manifest that was taken in: when they left, and the batch.
    fn receipts(&self) -> impl Iterator<Item = (usize, String)> {
        self.sends.iter().filter(|(_, data)| data.starts_with(b"HTTP/1.1 200")).filter_map(|(at, data)| {
            let body = data.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
            let answer: Value = serde_json::from_slice(&data[body..]).ok()?;
            let receipt = answer.get("receipt").unwrap_or(&answer);
            receipt.get("problems_total")?;
            Some((*at, receipt["batch"].as_str()?.to_owned()))
        })
    }

    fn is_durable(&self, moment: usize, is_meant: impl Fn(&Value) -> bool) -> bool {
        let is_there = |record: &Record| record.durable.is_some_and(|durable| durable < moment);
        self.records.iter().any(|record| is_there(record) && is_meant(&record.content))
    }

    /// The job, its attempt and its hold are on the device before the POST leaves, and so is its row.
    fn intents_before_posts(&self) {
        for (at, head) in self.creating() {
            let key = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("idempotency-key").then(|| value.trim())
            });
            let (job, attempt) = match key {
                Some(key) => key.strip_prefix("cs1-").unwrap().split_once('-').unwrap(),
                None => (self.job_without_key(), "1"),
            };
            let is_meant = |of: &&Value| of["no"].as_u64() == attempt.parse().ok();
            let is_intent = |record: &Value| {
                record["id"] == job
                    && attempts(record).find(is_meant).is_some_and(|of| {
                        of["state"] == "submitting" && of["books"]["held"].as_u64() > Some(0)
                    })
            };
            let what = || format!("line {at}: POST of job {job}, attempt {attempt}");
            let lost = (!self.is_durable(at, is_intent)).then(|| "its hold is not on the device".to_owned());
            self.expect(lost, what);
            let is_row_there = self.spooled("rows").any(|(path, write)| {
                contains(&write.what, job)
                    && write.is_durable_by(at)
                    && self.disk.lost_name(path, at).is_none()
            });
            self.expect((!is_row_there).then(|| "its row is not on the device".to_owned()), what);
            for name in ["state/db/db", "state/db/conf", "state/callsheet-state.json"] {
                self.expect(self.disk.lost_name(&self.root.join(name), at), what);
            }
        }
    }

    /// The one job of a kind that has no key.
    fn job_without_key(&self) -> &str {
        let studio = |record: &&Record| record.content["id"].is_string() && !self.has_key(&record.content);
        self.records.iter().find(studio).unwrap().content["id"].as_str().unwrap()
    }

    fn has_key(&self, job: &Value) -> bool {
        let id = job["id"].as_str().unwrap();
        !self.spooled("rows").any(|(_, write)| {
            let text = String::from_utf8_lossy(&write.what).into_owned();
            text.lines().any(|line| line.contains(id) && line.contains("shorts-studio"))
        })
    }

    /// What was written to the files of this name of every batch.
    fn spooled(&self, name: &'static str) -> impl Iterator<Item = (&Path, &Change<Vec<u8>>)> {
        let spool = self.root.join("state/spool");
        let is_meant = move |path: &&Path| {
            let folder = path.parent().unwrap();
            path.ends_with(name)
                && folder.parent() == Some(&spool)
                && folder.file_name().unwrap().to_string_lossy().parse::<u32>().is_ok()
        };
        let paths = self.disk.paths().filter(is_meant);
        paths.flat_map(|path| self.disk.writes(path).map(move |write| (path, write)))
    }

    fn batch_name(&self, no: &Value) -> &str {
        let found = self.records.iter().find(|record| record.content["no"] == *no);
        found.unwrap().content["name"].as_str().unwrap()
    }

    /// A job that is said to have succeeded has its outputs and its sidecar on the device.
    fn outputs_before_outcomes(&self) {
        for (_, write) in self.spooled("outcomes") {
            for line in String::from_utf8_lossy(&write.what).lines() {
                let job: Value = serde_json::from_str(line.split_once(' ').unwrap().1).unwrap();
                assert_ne!(attempts(&job).count(), 0, "an outcome is of a job with attempts: {job}");
                let Some(files) = attempts(&job).find_map(|of| of["files"].as_array()) else { continue };
                let folder = self.root.join("output").join(self.batch_name(&job["batch"]));
                let mut paths: Vec<PathBuf> =
                    files.iter().map(|file| folder.join(file["path"].as_str().unwrap())).collect();
                // It is called like the first one.
                let first = Path::new("sidecars").join(files[0]["path"].as_str().unwrap());
                paths.push(folder.join(first.with_extension("json")));
                for path in paths {
                    let what = || format!("line {}: outcome of job {}", write.entry, job["id"]);
                    self.expect(self.disk.lost(&path, write.entry), what);
                }
            }
        }
    }

    /// A file that has its name is a job's: its sidecar is on the device before.
    fn sidecars_before_outputs(&self) {
        let output = self.root.join("output");
        for (at, _, from, to) in &self.renames {
            let is_published = to.starts_with(&output) && !is_hidden(to) && is_hidden(from);
            let Ok(inside) = to.strip_prefix(&output) else { continue };
            let mut parts = inside.components();
            let (Some(batch), rest) = (parts.next(), parts.as_path()) else { continue };
            let is_media = to.extension().is_some_and(|ext| ext != "json" && ext != "jsonl" && ext != "csv");
            if !is_published || !is_media || self.is_of_gallery(to) {
                continue;
            }
            let own = output.join(batch).join("sidecars").join(rest).with_extension("json");
            // It is called like the first of several outputs.
            let stem = own.file_stem().unwrap().to_str().unwrap();
            let first = stem.rsplit_once('-').map(|(first, _)| own.with_file_name(format!("{first}.json")));
            let lost = first.map_or(Some(String::new()), |first| self.disk.lost(&first, *at));
            let lost = lost.and_then(|_| self.disk.lost(&own, *at));
            self.expect(lost, || format!("line {at}: {} gets its name", to.display()));
        }
    }

    /// What the database says of the spool is true: rows, outcomes and the batch's card are there before it.
    fn spool_before_database(&self) {
        for write in self.disk.writes(&self.root.join("state/db/db")) {
            for (path, spooled) in self.spooled("outcomes") {
                // What a life before left there beyond the acknowledged length is cut off before it goes on.
                let is_of_this_life =
                    self.lives.iter().all(|life| *life <= spooled.entry || *life > write.entry);
                let is_open =
                    is_of_this_life && spooled.entry < write.entry && !spooled.is_durable_by(write.entry);
                let lost = is_open
                    .then(|| format!("what {} got at {} is not synced", path.display(), spooled.entry));
                self.expect(lost, || format!("line {}: write to the database", write.entry));
            }
            for record in records_in(write).filter(|record| record.content["spool_bytes"].as_u64() > Some(0))
            {
                let folder = format!("state/spool/{:06}", record.content["no"].as_u64().unwrap());
                for name in ["rows", "batch.json"] {
                    let path = self.root.join(&folder).join(name);
                    let what =
                        || format!("line {}: batch {} in the database", write.entry, record.content["name"]);
                    self.expect(self.disk.lost(&path, write.entry), what);
                }
            }
        }
    }

    /// Pages that the database keeps in files of their own are there when what was committed with them is
    /// acted on: when a POST leaves, or the next commit begins.
    fn blobs_before_whatever_follows(&self) {
        let outcomes = self.spooled("outcomes").map(|(_, write)| write.entry);
        for at in self.creating().map(|(at, _)| at).chain(outcomes) {
            let commits = self.records.iter().filter_map(|record| record.durable);
            let Some(commit) = commits.filter(|commit| *commit < at).max() else { continue };
            for path in self.blobs() {
                if self.disk.writes(path).any(|write| write.exit < commit) {
                    let what = || format!("line {at}: what follows the commit of {commit}");
                    let lost =
                        self.disk.writes(path).find(|write| write.exit < commit && !write.is_durable_by(at));
                    self.expect(lost.map(|_| format!("{} is not synced", path.display())), what);
                    self.expect(self.disk.lost_name(path, at), what);
                }
            }
        }
    }

    /// Files beside the database's log.
    pub fn blobs(&self) -> impl Iterator<Item = &Path> {
        blobs(&self.disk, &self.root)
    }

    /// Nothing gets a name that others believe before its content is on the device.
    fn content_before_names(&self) {
        for (entry, _, from, to) in &self.renames {
            let is_believed = (to.starts_with(self.root.join("output"))
                || to.starts_with(self.root.join("jobs"))
                || to.starts_with(self.root.join("state")))
                && !is_hidden(to)
                && !self.is_of_gallery(to)
                && !MAY_BE_LOST.iter().any(|name| to.ends_with(name));
            // A manifest was written by its owner, who is not traced.
            if is_believed && !is_filing(from, to) {
                let mut writes = self.disk.writes_to_renamed(to, *entry);
                let unsynced = writes.find(|write| write.entry < *entry && !write.is_durable_by(*entry));
                let lost = unsynced.map(|write| format!("what it got at {} is not synced", write.entry));
                self.expect(lost, || format!("line {entry}: rename to {}", to.display()));
            }
        }
    }

    /// A receipt, and a manifest's place among the accepted, follow the commit.
    fn commits_before_receipts(&self) {
        let is_committed = |name: &str, at| {
            let is_batch =
                |record: &Value| record["name"] == name && record["spool_bytes"].as_u64() > Some(0);
            (!self.is_durable(at, is_batch)).then(|| format!("batch {name} is not on the device"))
        };
        for (at, batch) in self.receipts() {
            self.expect(is_committed(&batch, at), || format!("line {at}: answer to a manifest"));
        }
        for (entry, _, from, to) in &self.renames {
            let folder = to.parent().unwrap_or(to);
            if !folder.ends_with("jobs/accepted") && !folder.ends_with("jobs/rejected") {
                continue;
            }
            let what = || format!("line {entry}: rename to {}", to.display());
            let name = to.file_name().unwrap().to_string_lossy().into_owned();
            if folder.ends_with("jobs/accepted") {
                self.expect(is_committed(name.split('.').next().unwrap(), *entry), what);
            }
            if is_filing(from, to) {
                let receipt = to.with_file_name(format!("{name}.receipt.json"));
                self.expect(self.disk.lost(&receipt, *entry), what);
            }
        }
    }

    /// What of the files below a folder would be lost at the end.
    pub fn lost_below(&self, folder: &str) -> Vec<String> {
        let folder = self.root.join(folder);
        let paths = self.disk.paths_at(self.end).filter(|path| path.starts_with(&folder));
        paths.filter_map(|path| self.disk.lost(path, self.end)).collect()
    }

    /// Whoever is told that all is done can pull the plug.
    fn everything_at_the_end(&self) {
        let paths: Vec<&Path> = self.disk.paths_at(self.end).collect();
        for path in paths.into_iter().filter(|path| path.starts_with(&self.root)) {
            let may_be_lost = MAY_BE_LOST.iter().any(|name| path.ends_with(name));
            if path.parent() == Some(&self.root) || may_be_lost || self.is_of_gallery(path) {
                continue;
            }
            self.expect(self.disk.lost(path, self.end), || "at the end".to_owned());
        }
    }
}

fn blobs<'disk>(disk: &'disk Disk, root: &Path) -> impl Iterator<Item = &'disk Path> {
    let folder = root.join("state/db/blobs");
    disk.paths().filter(move |path| path.parent() == Some(&folder))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn is_filing(from: &Path, to: &Path) -> bool {
    from.parent().is_some_and(|folder| folder.ends_with("jobs/inbox")) && !is_hidden(to)
}

/// The attempts of a job's record; none where the record is of something else.
fn attempts(record: &Value) -> impl Iterator<Item = &Value> {
    record["attempts"].as_array().into_iter().flatten()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The jobs and batches in what was written to the database: JSON between its own numbers.
fn records_in(write: &Change<Vec<u8>>) -> impl Iterator<Item = Record> {
    let starts = ["{\"batch\":", "{\"no\":"].into_iter().flat_map(|start| {
        let bytes = &write.what;
        (0..bytes.len()).filter(move |at| bytes[*at..].starts_with(start.as_bytes()))
    });
    starts.filter_map(|at| {
        let mut values = serde_json::Deserializer::from_slice(&write.what[at..]).into_iter::<Value>();
        let content = values.next()?.ok()?;
        Some(Record { content, durable: write.durable })
    })
}
