//! Names of the outputs of edited rows: the version that is wanted has the plain name, others have their identity in it.
//!
//! Which version is wanted is durable before anything moves. Then every crash is harmless: a second sidecar is written
//! under the new name, which names the files as they will be called; the files are renamed one after the other, never
//! over anything; their folders are synced; the old sidecar is removed. Who finds both sidecars goes on from there.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::RenameFlags;

use crate::domain::ids::BatchName;
use crate::domain::job::{Job, JobSpec, OutputFile};
use crate::failpoint;
use crate::file_system::rename;
use crate::output::file_names::{self, Layout};
use crate::output::group_sync::sync_folders;
use crate::output::output_spec::OutputSpec;
use crate::output::publish::name_when_taken::{is_edited, is_taken};
use crate::output::publish::{OutputDir, create, folders_of, has_its_content};
use crate::output::recorded_paths;
use crate::output::sidecar::Sidecar;

/// Held while outputs move: two versions of one row may be published at once.
static MOVING: Mutex<()> = Mutex::new(());

impl OutputDir {
    /// Gives the plain name of an edited row to the version that is wanted: outputs of others that have it move aside.
    /// Where those of the wanted one were published already, they take it, too. Files that a person edited stay where they
    /// are, and so does whatever has such a name without being ours.
    ///
    /// # Errors
    /// I/O errors; it may then be done again.
    pub fn name_versions(&self, wanted: OutputSpec<'_>, others: &[(JobSpec, Job)]) -> io::Result<()> {
        // Its outputs never have the plain name.
        if wanted.spec.apart {
            return Ok(());
        }
        let _one_at_a_time = MOVING.lock().unwrap_or_else(PoisonError::into_inner);
        let [plain, ..] = file_names::job_names(wanted.spec);
        for (spec, job) in others {
            let [name, short, long] = file_names::job_names(spec);
            if name == plain {
                self.move_outputs(OutputSpec { spec, job, ..wanted }, &name, &[short, long])?;
            }
        }
        let [name, short, long] = file_names::job_names(wanted.spec);
        self.move_outputs(wanted, &short, std::slice::from_ref(&name))?;
        self.move_outputs(wanted, &long, &[name])
    }

    /// Has the outputs of a version that is not wanted give the plain name up, as [`OutputDir::name_versions`] of the one
    /// that is wanted does.
    ///
    /// # Errors
    /// I/O errors; it may then be done again.
    pub fn set_aside(&self, output_spec: OutputSpec<'_>) -> io::Result<()> {
        let _one_at_a_time = MOVING.lock().unwrap_or_else(PoisonError::into_inner);
        let [plain, short, long] = file_names::job_names(output_spec.spec);
        self.move_outputs(output_spec, &plain, &[short, long])
    }

    /// The outputs of a job as its sidecar names them, whatever became of the files.
    pub fn named_outputs(&self, output_spec: OutputSpec<'_>) -> Option<Vec<OutputFile>> {
        let recorded = output_spec.job.recorded_outputs();
        Some(self.sidecars_by_record(output_spec, recorded).next()?.1.files)
    }

    /// Moves the outputs that a job has under the name `from`, if any, to the first name of `to` that is free.
    fn move_outputs(&self, output_spec: OutputSpec<'_>, from: &str, to: &[String]) -> io::Result<()> {
        let OutputSpec { batch, layout, spec, .. } = output_spec;
        let dir = self.batch_dir(batch);
        let named = self.sidecar_named(batch, layout, spec, from).map(|(path, old)| (Some(path), old));
        let Some((old_path, old)) = named.or_else(|| self.recorded_as(output_spec, from)) else {
            return Ok(());
        };
        for file in &old.files {
            if file.edited.is_some() || is_edited(&dir.join(&file.path), &[file])? {
                let (job, path) = (spec.label.as_str(), file.path.as_str());
                tracing::info!(%batch, job, path, "an output was edited: it keeps its name beside a newer version");
                return Ok(());
            }
        }
        for name in to.iter().filter(|name| *name != from) {
            let (new_path, files) = match self.sidecar_named(batch, layout, spec, name) {
                // A process that was killed began it.
                Some((path, begun)) if begun.is_of(spec.id, old.task()) => (path, begun.files),
                _ => {
                    let files = called(&old.files, layout, batch, spec, name);
                    let place = dir.join(layout.sidecar(self.options().sidecars, batch, spec, name));
                    let places = layout.sidecars(batch, spec, name).map(|path| dir.join(path));
                    if is_taken(&place, &places, &dir, &files) {
                        continue;
                    }
                    for path in files.iter().map(|file| dir.join(&file.path)).chain([place.clone()]) {
                        self.make_folder(path.parent().unwrap_or(&dir))?;
                    }
                    let draft = self.part_path(batch, spec.id, 0);
                    let mut file = create(&draft)?;
                    file.write_all(&old.with_files(files.clone()).encode()?)?;
                    file.sync_data()?;
                    rename(&draft, &place, RenameFlags::NOREPLACE)?;
                    (place, files)
                }
            };
            sync_names(&dir, [new_path.clone()])?;
            failpoint::hit("moving");
            if rename_all(&dir, &old.files, &files)? {
                sync_names(&dir, files.iter().chain(&old.files).map(|file| dir.join(&file.path)))?;
                failpoint::hit("moved");
                if let Some(old_path) = old_path {
                    fs::remove_file(&old_path)?;
                    sync_names(&dir, [old_path])?;
                }
                tracing::info!(%batch, job = spec.label, from, to = name, "outputs of an edited row were renamed");
            } else {
                fs::remove_file(&new_path)?;
            }
            return Ok(());
        }
        Ok(())
    }

    /// The outputs that a job's record has under the name `from`, whatever the layout was, with the sidecar that they have; they
    /// may have none any more. Nothing where they are another job's by now, or were moved since they were recorded.
    fn recorded_as(&self, output_spec: OutputSpec<'_>, from: &str) -> Option<(Option<PathBuf>, Sidecar)> {
        let OutputSpec { batch, layout, spec, job } = output_spec;
        let (dir, recorded, task) = (self.batch_dir(batch), job.recorded_outputs(), job.state().task());
        let is_within = recorded.iter().all(|file| recorded_paths::is_within_batch(&file.path));
        if !is_within || file_names::name_in(spec, recorded_paths::usual(recorded.first()?))? != from {
            return None;
        }
        let is_whole =
            |sidecar: &Sidecar| sidecar.files.iter().all(|file| has_its_content(&dir.join(&file.path), file));
        if self.own_sidecars(batch, layout, spec, task).any(|(_, sidecar)| is_whole(&sidecar)) {
            return None;
        }
        let mut is_others = false;
        for path in recorded_paths::sidecars(recorded).map(|path| dir.join(path)) {
            match Sidecar::read(&path) {
                Some(sidecar) if sidecar.is_of(spec.id, task) => return Some((Some(path), sidecar)),
                found => is_others |= found.is_some(),
            }
        }
        (!is_others).then(|| (None, Sidecar::of_record(output_spec)))
    }

    /// The sidecar that a job has under one of its names.
    fn sidecar_named(
        &self,
        batch: &BatchName,
        layout: &Layout,
        spec: &JobSpec,
        name: &str,
    ) -> Option<(PathBuf, Sidecar)> {
        let dir = self.batch_dir(batch);
        layout.sidecars(batch, spec, name).into_iter().find_map(|path| {
            let path = dir.join(path);
            Some((path.clone(), Sidecar::read(&path).filter(|sidecar| sidecar.job == spec.id)?))
        })
    }
}

/// Waits until the names of files, and of the folders that lead to them, are on the device.
fn sync_names(dir: &Path, files: impl IntoIterator<Item = PathBuf>) -> io::Result<()> {
    sync_folders(dir, &folders_of(dir, files))
}

/// The files of a job under another name.
fn called(
    files: &[OutputFile],
    layout: &Layout,
    batch: &BatchName,
    spec: &JobSpec,
    name: &str,
) -> Vec<OutputFile> {
    let path = |n: usize, file: &OutputFile| {
        let ext = file.path.rsplit('.').next().unwrap_or_default();
        layout.path(batch, spec, name, n, ext)
    };
    files.iter().zip(1..).map(|(file, n)| OutputFile { path: path(n, file), ..file.clone() }).collect()
}

/// Renames files one after the other; one that is missing, or was renamed before, is passed over. False: something has one
/// of the new names, and all are back under the old ones.
fn rename_all(dir: &Path, old: &[OutputFile], new: &[OutputFile]) -> io::Result<bool> {
    let pairs = || old.iter().zip(new).map(|(old, new)| (dir.join(&old.path), dir.join(&new.path)));
    for (from, to) in pairs() {
        if from == to || from.symlink_metadata().is_err() {
            continue;
        }
        match rename(&from, &to, RenameFlags::NOREPLACE) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                for (from, to) in pairs().filter(|(from, to)| from != to && from.symlink_metadata().is_err())
                {
                    if to.symlink_metadata().is_ok() {
                        rename(&to, &from, RenameFlags::NOREPLACE)?;
                    }
                }
                return Ok(false);
            }
            other => other?,
        }
        failpoint::hit("moving-file");
    }
    Ok(true)
}
