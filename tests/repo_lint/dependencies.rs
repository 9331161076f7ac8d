//! Every crate that is built in says in `docs/dependencies.md` what it is for, and is used; the page names no
//! other. What the workspace shares is used by several of its members.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../docs/dependencies.md");
const MANIFESTS: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("../../Cargo.toml")),
    ("emulator/Cargo.toml", include_str!("../../emulator/Cargo.toml")),
    ("emulator/renderer/Cargo.toml", include_str!("../../emulator/renderer/Cargo.toml")),
    ("media_facts/Cargo.toml", include_str!("../../media_facts/Cargo.toml")),
    ("fuzz/Cargo.toml", include_str!("../../fuzz/Cargo.toml")),
];

/// The direct dependencies of a manifest, for whatever they are needed.
fn direct(manifest: &str) -> impl Iterator<Item = String> {
    let manifest: toml::Table = toml::from_str(manifest).unwrap();
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let tables = sections.map(|name| manifest.get(name).and_then(toml::Value::as_table).cloned());
    tables.into_iter().flatten().flat_map(|table| table.into_iter().map(|(name, _)| name))
}

#[test]
fn the_page_names_every_direct_dependency_and_no_other() {
    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| crate "));
    let mut told = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "crate, used for, why this one, brings: {row}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "a cell is empty: {row}");
        assert!(told.insert(cells[0].to_owned()), "{} is named twice", cells[0]);
    }
    let mut named = BTreeSet::new();
    for (path, manifest) in MANIFESTS {
        for name in direct(manifest).filter(|name| !name.starts_with("callsheet")) {
            assert!(told.contains(&name), "{path}: say in docs/dependencies.md what {name} is for");
            named.insert(name);
        }
    }
    let gone: Vec<&String> = told.difference(&named).collect();
    assert!(gone.is_empty(), "docs/dependencies.md: no manifest names {gone:?} any more");
}

#[test]
fn what_the_workspace_shares_is_shared() {
    let manifests: Vec<toml::Table> =
        MANIFESTS.iter().map(|(_, text)| toml::from_str(text).unwrap()).collect();
    let shared = manifests[0]["workspace"]["dependencies"].as_table().unwrap();
    // `fuzz/` is a workspace of its own.
    let members = MANIFESTS.iter().filter(|(path, _)| !path.starts_with("fuzz/"));
    let members = members.map(|(_, text)| direct(text).collect::<BTreeSet<String>>());
    let mut users: BTreeMap<String, usize> = BTreeMap::new();
    for name in members.flatten().filter(|name| !name.starts_with("callsheet")) {
        *users.entry(name).or_default() += 1;
    }
    for name in shared.keys() {
        assert!(
            users.get(name).is_some_and(|users| *users > 1),
            "one crate uses {name}: leave it to that one"
        );
    }
    for (name, _) in users.iter().filter(|(_, users)| **users > 1) {
        assert!(shared.contains_key(name), "several crates use {name}: move it to [workspace.dependencies]");
    }
}

fn read_sources(dir: &Path, text: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_direct_dependency_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = ["src", "tests", "benches"];
    let sources = [
        &program[..],
        &["emulator/src"],
        &["emulator/renderer/src"],
        &["media_facts/src", "media_facts/tests"],
        &["fuzz/fuzz_targets"],
    ];
    for ((path, manifest), dirs) in MANIFESTS.into_iter().zip(sources) {
        let mut text = String::new();
        dirs.iter().for_each(|dir| read_sources(&root.join(dir), &mut text));
        if path.starts_with("fuzz") {
            text.push_str(&fs::read_to_string(root.join("fuzz/entries.rs")).unwrap());
        }
        for name in direct(manifest) {
            let used = format!("{}::", name.replace('-', "_"));
            let begins_a_path = |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let is_used = text.match_indices(&used).any(|(at, _)| begins_a_path(at));
            assert!(is_used, "{path}: nothing uses {name}; take it out");
        }
    }
}
