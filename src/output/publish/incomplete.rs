//! Outputs that came whole while others of their task did not: until all are there they are kept in a folder of their own,
//! where a person finds them.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;

use crate::domain::ids::BatchName;
use crate::domain::job::{JobSpec, OutputFile};
use crate::file_system::rename;
use crate::output::file_names::{self, INCOMPLETE_FOLDER, Layout};
use crate::output::publish::{OutputDir, Part, has_its_content, hash_file};

impl OutputDir {
    /// The folder for outputs of a batch that came whole while others of their task did not.
    pub fn incomplete_dir(&self, batch: &BatchName) -> PathBuf {
        self.batch_dir(batch).join(INCOMPLETE_FOLDER)
    }

    /// Moves output `n` (from 1) of a job into that folder, from where it can be published as well. On return its content is
    /// on the device.
    ///
    /// # Errors
    /// I/O errors; the part may be anywhere then.
    pub fn keep_part(&self, batch: &BatchName, spec: &JobSpec, n: usize, part: &mut Part) -> io::Result<()> {
        let dir = self.incomplete_dir(batch);
        if part.path.starts_with(&dir) {
            return Ok(());
        }
        self.make_folder_in(batch, INCOMPLETE_FOLDER)?;
        part.write_out()?;
        let [plain, _, with_id] = file_names::job_names(spec);
        let path = |name: &str| dir.join(Layout::default().path(batch, spec, name, n, &part.media.ext));
        let (plain, with_id) = (path(&plain), path(&with_id));
        let place = match rename(&part.path, &plain, RenameFlags::NOREPLACE) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // The same from an earlier process, or a file of somebody else.
                let is_same = hash_file(&plain).is_ok_and(|hash| hash == part.sha256);
                let place = if is_same { plain } else { with_id };
                fs::rename(&part.path, &place)?;
                place
            }
            other => {
                other?;
                plain
            }
        };
        part.path = place;
        Ok(())
    }

    /// Removes copies of outputs of a job from that folder once all of them are published, and the folder where nothing else
    /// is in it. What a person changed there stays.
    pub fn remove_kept(&self, batch: &BatchName, spec: &JobSpec, files: &[OutputFile]) {
        let dir = self.incomplete_dir(batch);
        if !dir.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return;
        }
        for (index, file) in files.iter().enumerate() {
            let ext = Path::new(&file.path).extension().unwrap_or_default().to_string_lossy();
            for name in file_names::job_names(spec) {
                let path = dir.join(Layout::default().path(batch, spec, &name, index + 1, &ext));
                // Earlier versions let a layout or a row publish into that folder.
                let is_published = files.iter().any(|other| self.batch_dir(batch).join(&other.path) == path);
                if !is_published && has_its_content(&path, file) {
                    // One that stays is a copy.
                    let _ = fs::remove_file(path);
                }
            }
        }
        let _ = fs::remove_dir(dir);
    }
}
