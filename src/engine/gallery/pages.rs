//! The pages of data of one batch: outcomes that are new are read, and written behind those that were there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use thin_vec::ThinVec;

use crate::domain::ids::{BatchName, Seq};
use crate::domain::job::{JobSpec, OutputFile, State};
use crate::domain::time::Timestamp;
use crate::engine::EngineError;
use crate::engine::gallery::Standing;
use crate::output::own_file::OwnFile;
use crate::output::publish::{OutputDir, create};
use crate::pages::gallery_index::{
    FORMAT, GalleryIndex, GalleryStamp, PAGE_JOBS, PageStamp, ParkedNote, index_file, stamp_of, states,
};
use crate::pages::gallery_job::{GalleryJob, media_key};
use crate::pages::gallery_page::gallery_page;
use crate::pages::{ASSETS, GALLERY_FOLDER, INDEX, script_data};
use crate::store::spool::Lines;
use crate::store::{JobRecord, Store};

/// Longest stamp that is read, in bytes: that of some million jobs.
const STAMP_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Jobs of a batch whose outputs are looked for, at most.
const LOOKED_FOR_MAX: u32 = 100_000;
/// The folder of the pages of data in a gallery's folder.
pub(super) const DATA_FOLDER: &str = "data";
/// The folder of the thumbnails in a gallery's folder. They stay when outputs do not.
pub(super) const THUMBNAIL_FOLDER: &str = "thumbs";
/// The index of a gallery, in its folder.
const INDEX_FILE: &str = "index.js";

/// The pages of a batch as they lie on the disk, and the last one in memory.
#[derive(Debug, Default)]
pub(super) struct BatchPages {
    pub(super) stamp: GalleryStamp,
    /// The jobs of the page that is not full, as JSON with commas between them.
    tail: Vec<u8>,
    tail_jobs: usize,
    /// How many of them are on the disk.
    tail_written: usize,
    /// Byte of the outcomes after the last job.
    at: u64,
    /// The byte where the outcome of the last job begins.
    last_at: u64,
    /// The index as it was written last, but for its time.
    index: String,
}

/// The folder of a gallery, where that can be written to.
pub(super) fn folder(output_dir: &OutputDir, batch: &BatchName) -> io::Result<PathBuf> {
    output_dir.make_folder_in(batch, &format!("{GALLERY_FOLDER}/{DATA_FOLDER}"))?;
    Ok(output_dir.batch_dir(batch).join(GALLERY_FOLDER))
}

/// Refuses a folder whose page is not one of ours: somebody else's site lies there, and is left as it is.
///
/// # Errors
/// What the disk says, or that the page is somebody else's, and what to do.
pub(super) fn refuse_others_page(folder: &Path) -> io::Result<()> {
    let path = folder.join(INDEX);
    if OwnFile::Page.is_free(&path)? {
        return Ok(());
    }
    let said = format!(
        "{} was not written by callsheet, and is left as it is; move it, choose another output directory, or set \
         output.gallery = false",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::AlreadyExists, said))
}

/// Puts a file in the place of another. Nothing waits for the device: what a power cut leaves of it is found, and it is
/// written again.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.draft"));
    let written = create(&draft).and_then(|mut file| file.write_all(content));
    let replaced = written.and_then(|()| fs::rename(&draft, path));
    if replaced.is_err() {
        // A full disk needs the room.
        let _ = fs::remove_file(&draft);
    }
    replaced
}

/// The same where the file is another one.
pub(super) fn replace_if_changed(path: &Path, content: &str) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == content.as_bytes()) {
        return Ok(());
    }
    replace(path, content.as_bytes())
}

/// `data/0003.js`
pub(super) fn data_path(folder: &Path, page: usize) -> PathBuf {
    folder.join(DATA_FOLDER).join(format!("{page:04}.js"))
}

impl BatchPages {
    /// What is on the disk of them, as far as it is whole and of this batch; nothing where nothing is.
    pub(super) fn load(store: &Store, folder: &Path, standing: &Standing) -> BatchPages {
        let stamp =
            read_stamp(&folder.join(INDEX_FILE)).filter(|stamp| stamp.created == standing.record.created.0);
        let Some(mut stamp) = stamp else { return BatchPages::new(standing.record.created) };
        let is_whole = |(page, stamp): (usize, &PageStamp)| {
            fs::metadata(data_path(folder, page)).is_ok_and(|meta| meta.len() == stamp.bytes)
        };
        let whole = stamp.pages.iter().enumerate().take_while(|page| is_whole(*page)).count();
        stamp.pages.truncate(whole);
        if !folder.join(THUMBNAIL_FOLDER).is_dir() {
            (stamp.media, stamp.media_done) = <_>::default();
        }
        if let Some(last) = stamp.pages.last()
            && !is_last_of_page(store, standing, last)
        {
            return BatchPages::new(standing.record.created);
        }
        let at = stamp.pages.last().map_or(0, |page| page.end);
        BatchPages { stamp, at, ..BatchPages::default() }
    }

    fn new(created: Timestamp) -> BatchPages {
        let stamp = GalleryStamp { format: FORMAT, created: created.0, ..GalleryStamp::default() };
        BatchPages { stamp, ..BatchPages::default() }
    }

    /// Reads the outcomes that came since, and writes what changed by them: pages of data, then the index. `looks` says
    /// whether it is looked which outputs are on disk; `flags` are those of commands that are shown.
    pub(super) fn update(
        &mut self,
        store: &Store,
        output_dir: &OutputDir,
        standing: &Standing,
        looks: bool,
        now: Timestamp,
        flags: &str,
    ) -> Result<(), EngineError> {
        let batch = &standing.record;
        let dir = output_dir.batch_dir(&batch.name);
        let output = |source| EngineError::Output { path: dir.clone(), source };
        refuse_others_page(&dir).map_err(output)?;
        let folder = folder(output_dir, &batch.name).map_err(output)?;
        let end = store.outcomes_bytes(batch)?;
        if end < self.at {
            // Another state than the one that they are of.
            *self = BatchPages::new(batch.created);
        }
        let spool = store.spool(batch.no);
        let mut outcomes = spool.outcomes(self.at, end)?;
        let mut rows = spool.rows_scattered(0, batch.spool_bytes)?;
        while let Some((at, record)) = outcomes.next_line::<JobRecord>()? {
            let spec: JobSpec = rows.line_at(record.row_at)?;
            self.push(&GalleryJob::new(&batch.name, &spec, &record.job)).map_err(output)?;
            if at >= self.stamp.end {
                self.take_back_missing(&record);
            }
            (self.at, self.last_at) = (outcomes.at(), at);
            if self.tail_jobs == PAGE_JOBS {
                self.finish_page(&folder).map_err(output)?;
            }
        }
        self.stamp.end = self.at;
        if looks {
            self.look_for_files(store, output_dir, standing)?;
        }
        if self.tail_jobs != self.tail_written || (self.tail_jobs > 0 && !self.tail_path(&folder).exists()) {
            replace(&self.tail_path(&folder), self.page().as_bytes()).map_err(output)?;
            self.tail_written = self.tail_jobs;
        }
        self.write_index(store, &mut rows, &folder, standing, now, flags)?;
        for (name, content) in ASSETS {
            replace_if_changed(&folder.join(name), content).map_err(output)?;
        }
        // Last: what it loads is there.
        replace_if_changed(&dir.join(INDEX), &gallery_page(&batch.name)).map_err(output)
    }

    /// Looks which outputs are not on disk, as long as that does not take too long: in sight a page finds out by itself.
    fn look_for_files(
        &mut self,
        store: &Store,
        output_dir: &OutputDir,
        standing: &Standing,
    ) -> Result<(), EngineError> {
        let batch = &standing.record;
        if batch.rows > LOOKED_FOR_MAX {
            return Ok(());
        }
        let mut outcomes = store.spool(batch.no).outcomes(0, store.outcomes_bytes(batch)?)?;
        // The last outcome of a job counts.
        let mut files: BTreeMap<Seq, ThinVec<OutputFile>> = BTreeMap::new();
        while let Some((_, record)) = outcomes.next_line::<JobRecord>()? {
            match record.job.state() {
                State::Succeeded { files: found, .. } => files.insert(record.key.seq, found.clone()),
                _ => files.remove(&record.key.seq),
            };
        }
        let dir = output_dir.batch_dir(&batch.name);
        let is_missing = |file: &&OutputFile| !dir.join(&file.path).is_file();
        let missing = files.values().flatten().filter(is_missing).map(|file| media_key(file).to_owned());
        self.stamp.missing = missing.collect();
        Ok(())
    }

    fn push(&mut self, job: &GalleryJob<'_>) -> io::Result<()> {
        if self.tail_jobs > 0 {
            self.tail.push(b',');
        }
        serde_json::to_writer(&mut self.tail, job)?;
        self.tail_jobs += 1;
        Ok(())
    }

    /// The page that is not full, as a file.
    fn page(&self) -> String {
        let jobs = String::from_utf8_lossy(&self.tail);
        script_data::call_with("callsheetPage", self.stamp.pages.len(), &format!("[{jobs}]"))
    }

    fn tail_path(&self, folder: &Path) -> PathBuf {
        data_path(folder, self.stamp.pages.len())
    }

    fn finish_page(&mut self, folder: &Path) -> io::Result<()> {
        let page = self.page();
        replace(&self.tail_path(folder), page.as_bytes())?;
        self.stamp.pages.push(PageStamp { end: self.at, last: self.last_at, bytes: page.len() as u64 });
        self.tail.clear();
        (self.tail_jobs, self.tail_written) = (0, 0);
        Ok(())
    }

    fn write_index(
        &mut self,
        store: &Store,
        rows: &mut Lines,
        folder: &Path,
        standing: &Standing,
        now: Timestamp,
        flags: &str,
    ) -> Result<(), EngineError> {
        let batch = &standing.record;
        let versions = store.row_versions(batch)?;
        let mut superseded: Vec<u32> = versions.superseded().map(|seq| seq.0).collect();
        superseded.sort_unstable();
        let specs = standing.open.iter().map(|record| rows.line_at::<JobSpec>(record.row_at));
        let specs = specs.collect::<Result<Vec<_>, _>>()?;
        let open = standing.open.iter().zip(&specs);
        let is_done = batch.is_done();
        // One that only waits for decisions is not held up.
        let parked = standing.parked.filter(|_| !batch.has_ended());
        self.stamp.media.truncate(self.stamp.pages.len() + 1);
        self.stamp.media_done.truncate(self.stamp.pages.len() + 1);
        let index = GalleryIndex {
            batch: &batch.name,
            flags,
            created: batch.created.0,
            written: now.0,
            jobs: batch.rows,
            done: is_done,
            states: states(&standing.states, batch.ended.replaced),
            planned: batch.planned_credits().0,
            budget: batch.budget().0,
            charged: batch.totals.spent.0,
            held: batch.totals.held.0,
            waived: batch.totals.waived.0,
            refunded: batch.totals.refunded.0,
            parked: parked.map(|parked| ParkedNote::new(parked, &batch.name)),
            pages: self.stamp.pages.len() + usize::from(self.tail_jobs > 0),
            last: if self.tail_jobs > 0 { self.tail_jobs } else { PAGE_JOBS },
            page_jobs: PAGE_JOBS,
            media: &self.stamp.media,
            open: open.map(|(record, spec)| GalleryJob::new(&batch.name, spec, &record.job)).collect(),
            superseded,
            missing: &self.stamp.missing,
        };
        let path = folder.join(INDEX_FILE);
        let failed = |source: io::Error| EngineError::Output { path: path.clone(), source };
        let mut file = index_file(&self.stamp, &index).map_err(|error| failed(error.into()))?;
        // The time alone is nothing new.
        let written = format!("\"written\":{},", now.0);
        let timeless = file.replacen(&written, "", 1);
        if timeless != self.index || !path.exists() {
            replace(&path, file.as_bytes()).map_err(failed)?;
            file = timeless;
            self.index = file;
        }
        Ok(())
    }

    /// Outputs of a job that ended again are on the disk again.
    fn take_back_missing(&mut self, record: &JobRecord) {
        if self.stamp.missing.is_empty() {
            return;
        }
        if let State::Succeeded { files, .. } = record.job.state() {
            let keys: Vec<&str> = files.iter().map(media_key).collect();
            self.stamp.missing.retain(|key| !keys.contains(&key.as_str()));
        }
    }
}

fn read_stamp(path: &Path) -> Option<GalleryStamp> {
    let mut line = String::new();
    BufReader::new(fs::File::open(path).ok()?.take(STAMP_MAX_BYTES)).read_line(&mut line).ok()?;
    stamp_of(&line)
}

/// Whether the outcome that a page ends with is in this state, where the page says.
fn is_last_of_page(store: &Store, standing: &Standing, page: &PageStamp) -> bool {
    let spool = store.spool(standing.record.no);
    let Ok(committed) = store.outcomes_bytes(&standing.record) else { return false };
    if page.end > committed {
        return false;
    }
    let Ok(mut outcomes) = spool.outcomes_scattered(page.last, page.end) else {
        return false;
    };
    matches!(outcomes.next_line::<JobRecord>(), Ok(Some(_))) && outcomes.at() == page.end
}
