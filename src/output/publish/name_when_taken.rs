//! Which other name outputs get where a file of somebody else has theirs, or where a person edited what they replace.

use std::array;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;

use crate::domain::job::{JobSpec, OutputFile};
use crate::output::output_spec::OutputSpec;
use crate::output::publish::{OutputDir, Part, Publication, hash_file};
use crate::output::sidecar::Sidecar;
use crate::output::{SidecarPlace, file_names, recorded_paths};

/// The index of the last of a job's names.
const LAST_NAME: usize = 2;
/// Most edited copies of one output that are kept.
const EDITED_MAX: u32 = 100;

/// A name, and what lies under it.
pub(super) struct Chosen {
    pub(super) files: Vec<OutputFile>,
    pub(super) sidecar: PathBuf,
    /// Whether what lies there already is this job's.
    pub(super) flags: RenameFlags,
    /// Whether the sidecar is written under its name at once, without a draft: in a new folder that has only sidecars. What a killed
    /// process leaves of it is recognised ([`Sidecar::is_torn`]).
    pub(super) is_written_in_place: bool,
}

/// The names of a job's outputs that were not tried yet.
pub(super) struct UntriedNames {
    /// With the number of the next one.
    names: std::iter::Enumerate<array::IntoIter<String, 3>>,
    /// The first name is taken without a look at what is there.
    is_unlooked: bool,
    /// The names that the job's record has were not tried.
    is_record_untried: bool,
}

impl UntriedNames {
    /// All names of a job. `is_new`: nothing of its batch can have been published before.
    pub(super) fn of(spec: &JobSpec, is_new: bool) -> UntriedNames {
        let names = file_names::job_names(spec).into_iter().enumerate();
        UntriedNames { names, is_unlooked: is_new && !spec.apart, is_record_untried: true }
    }

    /// The next name that is free; none if there is no more.
    pub(super) fn next_free(
        &mut self,
        dir: &OutputDir,
        publication: &Publication<'_>,
    ) -> io::Result<Option<Chosen>> {
        let Publication { output_spec, parts, now } = *publication;
        let OutputSpec { batch, layout, spec, job } = output_spec;
        let task = job.state().task();
        let batch_dir = dir.batch_dir(batch);
        if std::mem::take(&mut self.is_record_untried)
            && let Some(chosen) = recorded(dir, &batch_dir, publication)?
        {
            return Ok(Some(chosen));
        }
        let files_of = |name: &str| -> Vec<OutputFile> {
            let file = |(index, part): (usize, &Part)| OutputFile {
                path: layout.path(batch, spec, name, index + 1, &part.media.ext),
                bytes: part.bytes,
                sha256: part.sha256.clone(),
                content_type: part.media.content_type.clone(),
                edited: None,
                object: None,
            };
            parts.iter().enumerate().map(file).collect()
        };
        let place_of = |name: &str| batch_dir.join(layout.sidecar(dir.options.sidecars, batch, spec, name));
        if std::mem::take(&mut self.is_unlooked)
            && let Some((_, name)) = self.names.clone().next()
        {
            let (files, sidecar) = (files_of(&name), place_of(&name));
            let is_written_in_place = dir.options.sidecars == SidecarPlace::Folder;
            return Ok(Some(Chosen { files, sidecar, flags: RenameFlags::NOREPLACE, is_written_in_place }));
        }
        for (index, name) in self.names.by_ref() {
            let places = layout.sidecars(batch, spec, &name).map(|path| batch_dir.join(path));
            let mut found = places.map(|path| Sidecar::read(&path).map(|sidecar| (path, sidecar)));
            // Outputs keep a name that they have. The last name, which has all of the identity, is the job's whichever task made
            // what lies there: there is no other.
            let own_task = task.filter(|_| index < LAST_NAME);
            let own = found
                .iter_mut()
                .find_map(|found| found.take_if(|(_, sidecar)| sidecar.is_of(spec.id, own_task)));
            if index == 0 && spec.apart && own.is_none() {
                continue;
            }
            let mut files = files_of(&name);
            if let Some((sidecar, own)) = own {
                beside_edited(&batch_dir, output_spec, &own.files, &mut files)?;
                let flags = RenameFlags::empty();
                return Ok(Some(Chosen { files, sidecar, flags, is_written_in_place: false }));
            }
            let sidecar = place_of(&name);
            let is_there = |path: &Path| path.symlink_metadata().is_ok();
            let mut has_sidecar = is_there(&sidecar);
            if has_sidecar && dir.options.sidecars == SidecarPlace::Folder && Sidecar::is_torn(&sidecar, now)
            {
                fs::remove_file(&sidecar)?;
                has_sidecar = false;
            }
            // A sidecar at one of its places has the name, and so has anything that is where its files would be put.
            let is_taken = found.iter().any(Option::is_some)
                || has_sidecar
                || files.iter().any(|file| is_there(&batch_dir.join(&file.path)));
            if !is_taken {
                let flags = RenameFlags::NOREPLACE;
                return Ok(Some(Chosen { files, sidecar, flags, is_written_in_place: false }));
            }
        }
        Ok(None)
    }
}

/// The names that a job's record has, whatever the layout is by now: its outputs come back to where they were. None where they
/// belong to another job by now, or where other outputs came than before.
fn recorded(dir: &OutputDir, batch_dir: &Path, publication: &Publication<'_>) -> io::Result<Option<Chosen>> {
    let Publication { output_spec, parts, .. } = *publication;
    let OutputSpec { batch, layout, spec, job } = output_spec;
    let known = job.recorded_outputs();
    let is_alike = |(file, part): (&OutputFile, &Part)| {
        recorded_paths::usual(file).rsplit_once('.').is_some_and(|(_, ext)| ext == part.media.ext)
    };
    let is_within = known.iter().all(|file| recorded_paths::is_within_batch(recorded_paths::usual(file)));
    let is_alike = known.len() == parts.len() && known.iter().zip(parts).all(is_alike);
    if known.is_empty() || !is_within || !is_alike {
        return Ok(None);
    }
    let places = recorded_paths::sidecars(known).map(|path| batch_dir.join(path));
    let found = places.iter().map(|path| Sidecar::read(path).map(|sidecar| (path, sidecar)));
    let found: Vec<(&PathBuf, Sidecar)> = found.flatten().collect();
    let own = found.iter().find(|(_, sidecar)| sidecar.is_of(spec.id, job.state().task()));
    let [in_folder, beside] = &places;
    let place = match dir.options.sidecars {
        SidecarPlace::Folder => in_folder,
        SidecarPlace::Beside => beside,
    };
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let sidecar = match own {
        Some((path, _)) => (*path).clone(),
        // Without a sidecar of its own it has the name as long as no other job does.
        None if !found.is_empty() || is_there(place) => return Ok(None),
        // They were renamed since.
        None if dir.own_sidecars(batch, layout, spec, job.state().task()).next().is_some() => {
            return Ok(None);
        }
        None if spec.apart && file_names::is_plain(spec, recorded_paths::usual(&known[0])) => {
            return Ok(None);
        }
        None => place.clone(),
    };
    let file = |(file, part): (&OutputFile, &Part)| OutputFile {
        path: recorded_paths::usual(file).to_owned(),
        bytes: part.bytes,
        sha256: part.sha256.clone(),
        content_type: part.media.content_type.clone(),
        edited: None,
        object: None,
    };
    let mut files: Vec<OutputFile> = known.iter().zip(parts).map(file).collect();
    beside_edited(batch_dir, output_spec, known, &mut files)?;
    let is_new = own.is_none() && !files.iter().any(|file| is_there(&batch_dir.join(&file.path)));
    let flags = if is_new { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
    Ok(Some(Chosen { files, sidecar, flags, is_written_in_place: false }))
}

/// Whether a name of a job's outputs is somebody else's: a sidecar that is at one of its places has it, anything that is
/// where its own would be put, and without one any file that is there.
pub(in crate::output) fn is_taken(
    place: &Path,
    sidecars: &[PathBuf],
    dir: &Path,
    files: &[OutputFile],
) -> bool {
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    is_there(place)
        || sidecars.iter().any(|path| Sidecar::read(path).is_some())
        || files.iter().any(|file| is_there(&dir.join(&file.path)))
}

/// Whether `path` exists and is none of the expected files.
pub(in crate::output) fn is_edited(path: &Path, may_be: &[&OutputFile]) -> io::Result<bool> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    if !found.is_file() {
        return Ok(true);
    }
    let is_as_long = |file: &&&OutputFile| file.bytes == found.len();
    let may_be: Vec<_> = may_be.iter().filter(is_as_long).collect();
    if may_be.is_empty() {
        return Ok(true);
    }
    let hash = hash_file(path)?;
    Ok(may_be.iter().all(|file| file.sha256 != hash))
}

/// Gives files that are downloaded again a name beside those that a person edited meanwhile.
fn beside_edited(
    dir: &Path,
    output_spec: OutputSpec<'_>,
    own: &[OutputFile],
    files: &mut [OutputFile],
) -> io::Result<()> {
    let OutputSpec { batch, layout, spec, .. } = output_spec;
    let [_, short, long] = file_names::job_names(spec);
    for (index, file) in files.iter_mut().enumerate() {
        let fetched = file.clone();
        let is_theirs = |path: &str| {
            let named = own.iter().find(|file| file.path == path);
            let may_be: Vec<&OutputFile> = named.into_iter().chain([&fetched]).collect();
            is_edited(&dir.join(path), &may_be)
        };
        let usual = fetched.path.clone();
        if !is_theirs(&usual)? {
            continue;
        }
        let ext = usual.rsplit('.').next().unwrap_or_default().to_owned();
        let numbered = (2..=EDITED_MAX).map(|n| format!("{long}.{n}"));
        let names = [short.clone(), long.clone()].into_iter().chain(numbered);
        let paths = names.map(|name| layout.path(batch, spec, &name, index + 1, &ext));
        let mut free = None;
        for path in own.get(index).map(|file| file.path.clone()).into_iter().chain(paths) {
            if path != usual && !is_theirs(&path)? {
                free = Some(path);
                break;
            }
        }
        let Some(path) = free else {
            let reason = format!("{usual} and all its copies were edited; rename some of them");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        };
        tracing::info!(batch = %batch, edited = usual, path, "an output was edited: kept, and downloaded under \
                                                              another name");
        file.edited = Some(usual);
        file.path = path;
    }
    Ok(())
}
