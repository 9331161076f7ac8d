//! Opens an output for reading, as it was recorded: inside its batch's folder, through no link.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};

use crate::domain::ids::BatchName;
use crate::domain::job::OutputFile;
use crate::output::publish::OutputDir;

/// Opens an output of a batch. A path that leaves the batch's folder is refused, as are links, and a file of another length
/// than was recorded: somebody edited it.
///
/// # Errors
/// I/O errors; [`ErrorKind::NotFound`] where the file is gone or is another one.
pub fn open_output(output_dir: &OutputDir, batch: &BatchName, output: &OutputFile) -> io::Result<File> {
    let file = open_in_batch(output_dir, batch, &output.path)?;
    if file.metadata()?.len() != output.bytes {
        return Err(ErrorKind::NotFound.into());
    }
    Ok(file)
}

/// Opens a file in a batch's folder, whichever it is. A path that leaves that folder is refused, as are links.
///
/// # Errors
/// I/O errors; [`ErrorKind::NotFound`] where there is no such file.
pub fn open_in_batch(output_dir: &OutputDir, batch: &BatchName, path: &str) -> io::Result<File> {
    // The output folder itself may be a link, since a person named it.
    let root = rustix::fs::open(output_dir.root(), FOLDER, Mode::empty())?;
    let mut folder = step(&root, Path::new(batch.as_str()), FOLDER | OFlags::NOFOLLOW)?;
    let path = Path::new(path);
    for part in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(name) = part else { return Err(ErrorKind::NotFound.into()) };
        folder = step(&folder, Path::new(name), FOLDER | OFlags::NOFOLLOW)?;
    }
    let Some(Component::Normal(name)) = path.components().next_back() else {
        return Err(ErrorKind::NotFound.into());
    };
    // A pipe that took its place is not waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(step(&folder, Path::new(name), flags)?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::NotFound.into()) }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn step(folder: &OwnedFd, name: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    use rustix::io::Errno;
    rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(|error| match error {
        // What is there is something else.
        Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::MLINK => ErrorKind::NotFound.into(),
        error => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::output::OutputOptions;

    #[test]
    fn only_a_file_of_the_batch_as_it_was_recorded_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("output");
        fs::create_dir_all(root.join("b/sub")).unwrap();
        fs::create_dir_all(root.join("other")).unwrap();
        for path in ["b/a.png", "b/sub/a.png", "other/a.png", "../secret"] {
            fs::write(root.join(path), "12345").unwrap();
        }
        symlink("../other/a.png", root.join("b/link.png")).unwrap();
        symlink("../other", root.join("b/folder")).unwrap();
        symlink("b", root.join("linked")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("b/pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let output_dir = OutputDir::new(&root, OutputOptions::default());
        let open = |batch: &str, path: &str, bytes: u64| {
            let output = OutputFile {
                path: path.to_owned(),
                bytes,
                sha256: "00".repeat(32),
                content_type: "image/png".to_owned(),
                edited: None,
                object: None,
            };
            let mut text = String::new();
            open_output(&output_dir, &batch.parse().unwrap(), &output)?.read_to_string(&mut text)?;
            Ok::<_, io::Error>(text)
        };
        assert_eq!(open("b", "a.png", 5).unwrap(), "12345");
        assert_eq!(open("b", "sub/a.png", 5).unwrap(), "12345");
        let secret = dir.path().join("secret").to_string_lossy().into_owned();
        for path in ["link.png", "folder/a.png", "../other/a.png", "../../secret", "sub/../a.png", &secret] {
            assert!(open("b", path, 5).is_err(), "{path}");
        }
        for path in ["pipe", "sub", "", ".", "..", "none.png"] {
            assert!(open("b", path, 0).is_err(), "{path}");
        }
        assert_eq!(open("b", "a.png", 6).unwrap_err().kind(), ErrorKind::NotFound, "it was edited");
        assert!(open("linked", "a.png", 5).is_err(), "the folder of a batch is no link");
    }
}
