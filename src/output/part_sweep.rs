//! Removing the parts that a killed process left in the folders of batches.
//!
//! A folder may hold a million outputs, and nothing waits until it is listed: downloads begin meanwhile. A part that this
//! process writes itself is noted before it is written, and stays.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of a part that is being removed: no output has it.
const ASIDE: usize = 1_000_000;

/// What the sweeps of an output folder have to know of each other, and of the parts that are written meanwhile.
#[derive(Debug, Default)]
pub(super) struct PartSweeps(Mutex<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    sweeps: usize,
    /// Parts that this process writes, or has written since a sweep began.
    own: HashSet<PathBuf>,
}

impl PartSweeps {
    /// This process is about to write a part, or does so already.
    pub(super) fn note_own(&self, part: &Path) {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.sweeps > 0 {
            under_way.own.insert(part.to_owned());
        }
    }

    /// A sweep of these folders. From now on no part is removed that this process begins.
    pub(super) fn begin(self: &Arc<PartSweeps>, dirs: Vec<PathBuf>) -> PartSweep {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sweeps += 1;
        PartSweep { dirs, shared: self.clone() }
    }

    /// Removes a part, unless this process writes it. One that somebody else removed is gone.
    fn remove(&self, part: &Path, aside: &Path) -> io::Result<()> {
        let moved = {
            // One that is begun now waits until this one has another name: to free gigabytes takes longer.
            let under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if under_way.own.contains(part) { Ok(false) } else { fs::rename(part, aside).map(|()| true) }
        };
        match moved.and_then(|is_moved| if is_moved { fs::remove_file(aside) } else { Ok(()) }) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A sweep that has begun.
#[derive(Debug)]
pub struct PartSweep {
    dirs: Vec<PathBuf>,
    shared: Arc<PartSweeps>,
}

impl PartSweep {
    /// Lists the folders and removes what a killed process left. What cannot be removed stays, with a warning.
    pub fn run(self) {
        for dir in &self.dirs {
            match self.sweep(dir) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    let path = dir.display();
                    tracing::warn!(%path, %error, "unfinished downloads of an earlier process are left in the folder");
                }
                _ => {}
            }
        }
    }

    /// Removes what can be removed, and returns the first error.
    fn sweep(&self, dir: &Path) -> io::Result<()> {
        // Behind a link lie parts of others.
        if !dir.symlink_metadata()?.is_dir() {
            return Ok(());
        }
        let mut swept = Ok(());
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if let Some(job) = job_of_part(&entry.file_name().to_string_lossy()) {
                let removed = self.shared.remove(&entry.path(), &dir.join(format!(".{job}-{ASIDE}.part")));
                swept = swept.and(removed);
            }
        }
        swept
    }
}

impl Drop for PartSweep {
    fn drop(&mut self) {
        let mut under_way = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.sweeps -= 1;
        if under_way.sweeps == 0 {
            under_way.own = HashSet::new();
        }
    }
}

/// The job of a name that was made by [`OutputDir::part_path`](crate::output::publish::OutputDir::part_path).
fn job_of_part(name: &str) -> Option<&str> {
    let (job, n) = name.strip_prefix('.')?.strip_suffix(".part")?.split_once('-')?;
    let is_job = job.len() == 32 && job.bytes().all(|b| b.is_ascii_hexdigit());
    Some(job).filter(|_| is_job && n.parse::<usize>().is_ok())
}

#[cfg(test)]
mod tests {
    use crate::domain::ids::{BatchName, JobId};
    use crate::output::OutputOptions;
    use crate::output::publish::OutputDir;

    #[test]
    fn what_a_killed_process_left_goes_and_what_this_one_began_stays() {
        let root = tempfile::tempdir().unwrap();
        let batch: BatchName = "b".parse().unwrap();
        let killed = OutputDir::new(root.path(), OutputOptions::default());
        killed.prepare(&batch).unwrap();
        let part = |dir: &OutputDir, job: u8| dir.part_path(&batch, JobId([job; 16]), 1);
        let other = root.path().join("b/.notes.part");
        for left in [&part(&killed, 1), &part(&killed, 2), &other] {
            std::fs::write(left, "left").unwrap();
        }
        let output_dir = OutputDir::new(root.path(), OutputOptions::default());
        let gone: BatchName = "gone".parse().unwrap();
        let sweep = output_dir.begin_part_sweep([&gone, &batch]);
        let (first, second) = (part(&output_dir, 1), part(&killed, 2));
        std::fs::write(&first, "begun anew").unwrap();
        sweep.run();
        assert_eq!(std::fs::read_to_string(&first).unwrap(), "begun anew");
        assert!(!second.exists());
        assert!(other.exists(), "somebody else's file");
        // The next one knows no more of it: that process has ended.
        output_dir.begin_part_sweep([&batch]).run();
        assert!(!first.exists());
    }

    #[test]
    fn parts_behind_a_link_are_those_of_others() {
        let root = tempfile::tempdir().unwrap();
        let [batch, linked]: [BatchName; 2] = ["b", "linked"].map(|name| name.parse().unwrap());
        let output_dir = OutputDir::new(root.path(), OutputOptions::default());
        output_dir.prepare(&batch).unwrap();
        std::os::unix::fs::symlink("b", root.path().join("linked")).unwrap();
        let part = output_dir.part_path(&batch, JobId([1; 16]), 1);
        std::fs::write(&part, "theirs").unwrap();
        output_dir.begin_part_sweep([&linked]).run();
        assert!(part.exists());
    }

    #[test]
    fn settings_that_are_read_anew_change_nothing_about_a_sweep() {
        let root = tempfile::tempdir().unwrap();
        let batch: BatchName = "b".parse().unwrap();
        let output_dir = OutputDir::new(root.path(), OutputOptions::default());
        output_dir.prepare(&batch).unwrap();
        let sweep = output_dir.begin_part_sweep([&batch]);
        let reloaded = OutputDir::new(root.path(), OutputOptions::default()).in_place_of(&output_dir);
        let part = reloaded.part_path(&batch, JobId([1; 16]), 1);
        std::fs::write(&part, "begun").unwrap();
        sweep.run();
        assert!(part.exists());
    }
}
