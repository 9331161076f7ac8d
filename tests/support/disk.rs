//! Small disks of their own, for tests that fill them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file system of a few mebibytes.
pub struct Disk {
    dir: PathBuf,
}

impl Disk {
    /// One in memory. Nothing where the system lets nobody but root mount one, and this is somebody else; unless
    /// `CALLSHEET_MUST_MOUNT` is set, as `.ci/run` does: then that is a failure.
    pub fn in_memory(dir: PathBuf, options: &str) -> Option<Disk> {
        fs::create_dir_all(&dir).unwrap();
        match run(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&dir)) {
            Ok(()) => Some(Disk { dir }),
            Err(refused) => {
                let is_root = rustix::process::geteuid().is_root();
                let must_mount =
                    std::env::var_os("CALLSHEET_MUST_MOUNT").is_some_and(|value| !value.is_empty());
                assert!(!is_root && !must_mount, "no disk could be mounted, which takes root: {refused}");
                // Not by a macro: their words are shown of tests that fail alone.
                let words = format!("SKIPPED: no disk could be mounted: {refused}\n");
                std::io::stderr().write_all(words.as_bytes()).unwrap();
                None
            }
        }
    }

    /// An ext4 file system in a file beside `dir`, or one in memory where there are no loop devices. It has `size`
    /// (as in `24M`) and about so many inodes.
    pub fn real(dir: PathBuf, size: &str, inodes: u32) -> Option<Disk> {
        fs::create_dir_all(&dir).unwrap();
        let image = dir.with_extension("ext4");
        let inodes = inodes.to_string();
        // No journal, and nothing kept for root alone: what is full is full.
        let format = ["-q", "-F", "-m", "0", "-O", "^has_journal", "-N", inodes.as_str()];
        let made = run(Command::new("truncate").args(["-s", size]).arg(&image))
            .and_then(|()| run(Command::new("mkfs.ext4").args(format).arg(&image)))
            .and_then(|()| run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&dir)));
        match made {
            Ok(()) => Some(Disk { dir }),
            Err(refused) => {
                eprintln!("no loop device, a disk in memory instead: {refused}");
                Disk::in_memory(dir, &format!("size={size},nr_inodes={inodes}"))
            }
        }
    }

    /// Writes until not one byte more fits. What somebody else frees meanwhile is left: a daemon that gives its reserve
    /// up needs that room for its last words.
    pub fn fill(&self) {
        self.write_filler(self.free_bytes());
    }

    /// Writes until no more than so many bytes are free.
    pub fn fill_but(&self, free_bytes: u64) {
        self.write_filler(self.free_bytes().saturating_sub(free_bytes));
    }

    pub fn free_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.dir).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    /// Writes so many bytes, if they fit.
    pub fn write_filler(&self, mut most: u64) {
        let mut file = File::options().create(true).append(true).open(self.dir.join("filler")).unwrap();
        let mut piece = 1024 * 1024;
        while piece > 0 && most > 0 {
            let now = usize::try_from(most).unwrap_or(usize::MAX).min(piece);
            if file.write_all(&vec![7; now]).is_ok() {
                most -= now as u64;
            } else {
                piece /= 2;
            }
        }
    }

    /// Nothing can be written to it any more, or again. Nobody may have a file of it open for writing.
    pub fn set_read_only(&self, read_only: bool) {
        let option = if read_only { "remount,ro" } else { "remount,rw" };
        run(Command::new("mount").args(["-o", option]).arg(&self.dir)).unwrap();
    }

    /// Makes empty files until there is no inode left but so many.
    pub fn use_up_inodes_but(&self, left: u64) {
        fs::create_dir_all(self.dir.join("fillers")).unwrap();
        let free = rustix::fs::statvfs(&self.dir).unwrap().f_ffree;
        for n in 0..free.saturating_sub(left) {
            File::create(self.dir.join(format!("fillers/{n}"))).unwrap();
        }
    }

    /// Makes room again.
    pub fn clear(&self) {
        // Only one of the two was made.
        let _ = fs::remove_file(self.dir.join("filler"));
        let _ = fs::remove_dir_all(self.dir.join("fillers"));
    }

    /// Mounts it at another folder, too.
    pub fn also_at(&self, dir: PathBuf) -> Mount {
        run(Command::new("mount").arg("--bind").arg(&self.dir).arg(&dir)).unwrap();
        Mount { dir }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}

/// A further place where a disk is mounted. Dropped, it is not any more, and the disk keeps what is on it.
pub struct Mount {
    dir: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}
