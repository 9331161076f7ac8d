//! Publishing the outputs of many jobs together: what each does alone is done for all of them, so that they share their
//! syncs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::domain::job::OutputFile;
use crate::failpoint;
use crate::file_system::rename;
use crate::output::group_sync::GroupSync;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::name_when_taken::{Chosen, UntriedNames};
use crate::output::publish::{OutputDir, Publication, create, folders_of};
use crate::output::sidecar::Sidecar;

/// What becomes of one of the jobs.
struct Publishing<'a> {
    publication: &'a Publication<'a>,
    names: UntriedNames,
    parts_are_written: bool,
    /// The name that is tried.
    chosen: Option<Chosen>,
    /// The name of its sidecar is on the device.
    sidecar_is_named: bool,
    outcome: Option<io::Result<Vec<OutputFile>>>,
}

impl OutputDir {
    /// Gives the parts of jobs their final names; one outcome a job. On return of those that succeeded they, their
    /// sidecars and their names are on the device. Parts of the others may be published again.
    ///
    /// `are_written` is called when their contents are written and not yet on the device.
    pub fn publish_all(
        &self,
        group: &[Publication<'_>],
        mut are_written: impl FnMut(),
    ) -> Vec<io::Result<Vec<OutputFile>>> {
        // In a folder that this process made nobody else has names, mostly: there a look at what is there is spared. Taking
        // a name never replaces anything, so one that is taken after all is noticed, and then everything is looked at.
        let begin = |publication| Publishing::new(publication, self.is_new(publication.output_spec.batch));
        let mut jobs: Vec<Publishing<'_>> = group.iter().map(begin).collect();
        let sync =
            GroupSync::begin(&self.root, group.iter().map(|publication| publication.parts.len() + 1).sum());
        // Once more for those who lost their name to another.
        while jobs.iter().any(|job| job.outcome.is_none() && job.chosen.is_none()) {
            self.try_names(&mut jobs, &sync, &mut are_written);
        }
        self.sync_names(&mut jobs, &sync);
        jobs.into_iter().map(Publishing::outcome).collect()
    }

    /// Every job without a name tries the next one.
    fn try_names(&self, jobs: &mut [Publishing<'_>], sync: &GroupSync, are_written: &mut impl FnMut()) {
        let mut made = BTreeSet::new();
        let mut written: Vec<(usize, File)> = Vec::new();
        let is_open = |job: &Publishing<'_>| job.outcome.is_none() && job.chosen.is_none();
        let mut open: Vec<usize> = (0..jobs.len()).filter(|n| is_open(&jobs[*n])).collect();
        for n in open.iter().copied() {
            match jobs[n].write(self, &mut made) {
                Ok(files) => written.extend(files.into_iter().map(|file| (n, file))),
                Err(error) => jobs[n].outcome = Some(Err(error)),
            }
        }
        let files: Vec<&File> = written.iter().map(|(_, file)| file).collect();
        are_written();
        let contents = sync.sync_contents(&made, &files);
        for ((n, _), synced) in written.iter().zip(contents.outcomes) {
            if let (Err(error), None) = (synced, &jobs[*n].outcome) {
                jobs[*n].remove_unfinished_sidecar();
                jobs[*n].outcome = Some(Err(error));
            }
        }
        drop(written);
        open.retain(|n| jobs[*n].outcome.is_none());
        open.iter().for_each(|_| failpoint::hit("part-written"));
        each(jobs, &open, |job| job.take_name(self));
        // A file that has its name belongs to a job, also after a power cut: its sidecar says so.
        let mut folders = BTreeSet::new();
        for n in open.iter().copied() {
            let job = &mut jobs[n];
            let Some(chosen) = &job.chosen else { continue };
            job.sidecar_is_named = chosen.is_written_in_place && contents.has_names;
            if job.sidecar_is_named {
                continue;
            }
            let dir = self.batch_dir(job.publication.output_spec.batch);
            folders.extend(folders_of(&dir, [chosen.sidecar.clone()]));
        }
        let synced = sync.sync_folders(&folders);
        each(jobs, &open, |job| {
            if let Err(error) = &synced {
                return Err(copy_of(error));
            }
            job.name_parts(self)
        });
    }

    /// Waits until the names of all that was published are on the device.
    fn sync_names(&self, jobs: &mut [Publishing<'_>], sync: &GroupSync) {
        let mut folders = BTreeSet::new();
        for job in jobs.iter().filter(|job| job.outcome.is_none()) {
            let Some(chosen) = &job.chosen else { continue };
            let dir = self.batch_dir(job.publication.output_spec.batch);
            let sidecar = (!job.sidecar_is_named).then(|| chosen.sidecar.clone());
            let paths = chosen.files.iter().map(|file| dir.join(&file.path)).chain(sidecar);
            folders.extend(folders_of(&dir, paths));
        }
        let synced = sync.sync_folders(&folders);
        for job in jobs.iter_mut().filter(|job| job.outcome.is_none()) {
            job.outcome = Some(match (&synced, job.chosen.take()) {
                (Ok(()), Some(chosen)) => {
                    failpoint::hit("published");
                    Ok(chosen.files)
                }
                (Err(error), Some(_)) => Err(copy_of(error)),
                (_, None) => job.nameless(),
            });
        }
    }
}

/// The same error once more, for another job: its number tells whether the disk fails, or only this file.
fn copy_of(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}

/// Does a step for each of the jobs `open` that have a name and no outcome; one that fails is the outcome.
fn each(
    jobs: &mut [Publishing<'_>],
    open: &[usize],
    mut step: impl FnMut(&mut Publishing<'_>) -> io::Result<()>,
) {
    for n in open.iter().copied() {
        let job = &mut jobs[n];
        if job.outcome.is_none()
            && job.chosen.is_some()
            && let Err(error) = step(job)
        {
            job.outcome = Some(Err(error));
        }
    }
}

impl<'a> Publishing<'a> {
    fn new(publication: &'a Publication<'a>, is_new: bool) -> Publishing<'a> {
        let names = UntriedNames::of(publication.output_spec.spec, is_new);
        Publishing {
            publication,
            names,
            parts_are_written: false,
            chosen: None,
            sidecar_is_named: false,
            outcome: None,
        }
    }

    fn outcome(mut self) -> io::Result<Vec<OutputFile>> {
        self.outcome.take().unwrap_or_else(|| self.nameless())
    }

    fn nameless(&self) -> io::Result<Vec<OutputFile>> {
        let label = &self.publication.output_spec.spec.label;
        let reason = format!("every name for job {label} belongs to another file");
        Err(io::Error::new(ErrorKind::AlreadyExists, reason))
    }

    /// Writes the parts that are not written yet, under the names of parts, and the sidecar for the next name that is free.
    /// Returns the files, for their sync. `made` are folders that are known to be there.
    fn write(&mut self, dir: &OutputDir, made: &mut BTreeSet<PathBuf>) -> io::Result<Vec<File>> {
        let Publication { output_spec, parts, now } = *self.publication;
        let mut files = Vec::with_capacity(parts.len() + 1);
        let batch_dir = dir.batch_dir(output_spec.batch);
        make_folder_once(dir, &batch_dir, made)?;
        if !self.parts_are_written {
            for part in parts {
                files.extend(part.write()?);
            }
            self.parts_are_written = true;
        }
        let Some(chosen) = self.names.next_free(dir, self.publication)? else {
            return self.nameless().map(|_| files);
        };
        for path in chosen.files.iter().map(|file| batch_dir.join(&file.path)).chain([chosen.sidecar.clone()])
        {
            make_folder_once(dir, path.parent().unwrap_or(&batch_dir), made)?;
        }
        let content = Sidecar::of(output_spec, chosen.files.clone(), now).encode()?;
        let mut sidecar = if chosen.is_written_in_place {
            match File::create_new(&chosen.sidecar) {
                // Somebody else has the name.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(files),
                made => made?,
            }
        } else {
            // Called a part, so that nothing takes it for a result and a sweep finds it.
            create(&dir.part_path(output_spec.batch, output_spec.spec.id, 0))?
        };
        self.chosen = Some(chosen);
        failpoint::hit("sidecar-created");
        if let Err(error) = sidecar.write_all(&content) {
            self.remove_unfinished_sidecar();
            return Err(error);
        }
        files.push(sidecar);
        Ok(files)
    }

    /// Removes a sidecar that has its name and is not whole.
    fn remove_unfinished_sidecar(&self) {
        if let Some(chosen) = self.chosen.as_ref().filter(|chosen| chosen.is_written_in_place) {
            // One that stays is recognised as torn.
            let _ = fs::remove_file(&chosen.sidecar);
        }
    }

    /// Takes the name by the sidecar. Whose name another job was faster to take has none afterwards.
    fn take_name(&mut self, dir: &OutputDir) -> io::Result<()> {
        let Some(chosen) = &self.chosen else { return Ok(()) };
        if !chosen.is_written_in_place {
            let OutputSpec { batch, spec, .. } = self.publication.output_spec;
            let draft = dir.part_path(batch, spec.id, 0);
            match rename(&draft, &chosen.sidecar, chosen.flags) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    fs::remove_file(&draft)?;
                    self.chosen = None;
                    return Ok(());
                }
                other => other?,
            }
        }
        failpoint::hit("sidecar-written");
        Ok(())
    }

    /// Names the parts. If somebody put a file there between the look and the rename the job has no name afterwards.
    fn name_parts(&mut self, dir: &OutputDir) -> io::Result<()> {
        let Some(chosen) = &self.chosen else { return Ok(()) };
        let batch_dir = dir.batch_dir(self.publication.output_spec.batch);
        for (part, file) in self.publication.parts.iter().zip(&chosen.files) {
            match rename(&part.path, &batch_dir.join(&file.path), chosen.flags) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.give_back(&batch_dir)?;
                    self.chosen = None;
                    return Ok(());
                }
                other => other?,
            }
        }
        failpoint::hit("named");
        Ok(())
    }

    /// Parts that were renamed keep their bytes: they are parts again.
    fn give_back(&self, batch_dir: &Path) -> io::Result<()> {
        let Some(chosen) = &self.chosen else { return Ok(()) };
        for (part, file) in self.publication.parts.iter().zip(&chosen.files) {
            if !part.path.exists() {
                fs::rename(batch_dir.join(&file.path), &part.path)?;
            }
        }
        fs::remove_file(&chosen.sidecar)
    }
}

fn make_folder_once(dir: &OutputDir, folder: &Path, made: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    if !made.contains(folder) {
        dir.make_folder(folder)?;
        made.insert(folder.to_owned());
    }
    Ok(())
}
