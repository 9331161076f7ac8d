//! Where outputs lie whose paths are recorded, whatever the layout is by now.

use std::path::{Component, Path};

use crate::domain::job::OutputFile;
use crate::output::file_names::SIDECAR_FOLDER;

/// The path that a file has where nobody edited what lies there.
pub(super) fn usual(file: &OutputFile) -> &str {
    file.edited.as_deref().unwrap_or(&file.path)
}

/// Whether a path leads to something in the batch's folder: a state that was imported may say anything.
pub(super) fn is_within_batch(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Where the sidecar of these outputs of a job may be, relative to the batch's folder: in the folder for sidecars, or beside
/// the outputs.
pub(super) fn sidecars(files: &[OutputFile]) -> [String; 2] {
    let path = files.first().map_or("", usual);
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let slash = if folder.is_empty() { "" } else { "/" };
    let beside = format!("{folder}{slash}{stem}.json");
    [format!("{SIDECAR_FOLDER}/{beside}"), beside]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, edited: Option<&str>) -> OutputFile {
        OutputFile {
            path: path.into(),
            bytes: 1,
            sha256: String::new(),
            content_type: String::new(),
            edited: edited.map(str::to_owned),
            object: None,
        }
    }

    #[test]
    fn a_sidecar_has_the_name_of_the_first_output() {
        assert_eq!(sidecars(&[file("a/b.c.png", None)]), ["sidecars/a/b.c.json", "a/b.c.json"]);
        assert!(is_within_batch("a/b.c.png") && is_within_batch("..a.png"));
        assert!(!["", "../a.png", "a/../../b.png", "/a.png"].into_iter().any(is_within_batch));
        assert_eq!(sidecars(&[file("b-0101.png", Some("b.png"))]), ["sidecars/b.json", "b.json"]);
    }
}
