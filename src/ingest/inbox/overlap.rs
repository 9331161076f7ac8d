//! Inboxes that are one folder under two names, or one of which is where another files its manifests: every manifest would
//! be accepted twice, into two batches, and bought twice.

use std::path::{Component, Path, PathBuf};

use crate::ingest::inbox::dispose::Folders;

/// Why some of these inboxes cannot be watched beside each other; nothing where all can.
pub fn overlap(inboxes: &[&Folders]) -> Option<String> {
    let places: Vec<PathBuf> = inboxes.iter().map(|folders| real_path(&folders.inbox)).collect();
    for (index, (folders, place)) in inboxes.iter().zip(&places).enumerate() {
        let path = folders.inbox.display();
        for (other_index, other) in inboxes.iter().enumerate().filter(|(other, _)| *other != index) {
            let inbox = other.inbox.display();
            if place == &places[other_index] {
                return Some(format!("the inboxes {path} and {inbox} are one directory: remove one of them"));
            }
            let filed = [("accepted", &other.accepted), ("rejected", &other.rejected)];
            if let Some((what, _)) = filed.into_iter().find(|(_, dir)| real_path(dir) == *place) {
                return Some(format!(
                    "the inbox {path} is where {what} manifests of the inbox {inbox} are moved: choose another directory"
                ));
            }
        }
    }
    None
}

/// A path without links and dots, as far as it exists.
fn real_path(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut real = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(real.pop()),
            Component::CurDir => {}
            other => real.push(other),
        }
        if let Ok(found) = real.canonicalize() {
            real = found;
        }
    }
    real
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn one_folder_under_two_names_is_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("in/acme")).unwrap();
        symlink("in/acme", dir.path().join("link")).unwrap();
        let told = |first: &str, second: &str| {
            let [first, second] = [first, second].map(|path| Folders::of_inbox(&dir.path().join(path)));
            overlap(&[&first, &second]).unwrap_or_default()
        };
        for other in ["in/acme", "./in/acme/", "in/../in/acme", "link", "link/../acme"] {
            assert!(told("in/acme", other).ends_with("are one directory: remove one of them"), "{other}");
        }
        assert!(told("not/yet", "not/../not/yet").contains("are one directory"));
        assert!(told("in/acme", "link/accepted").contains("is where accepted manifests of the inbox"));
        assert!(told("in/acme/rejected", "in/acme").contains("is where rejected manifests of the inbox"));
        assert!(told("jobs/inbox", "jobs/accepted").contains("is where accepted manifests"));
        for (first, second) in [("in/acme", "in"), ("in/acme", "in/b"), ("a/inbox", "b/inbox")] {
            assert_eq!(told(first, second), "");
        }
    }
}
