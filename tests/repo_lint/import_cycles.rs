//! No cycles between files. A file and the files of its folder (`job.rs` and `job/`) count as one: what a folder offers
//! stands in its own file.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The names from the crate down to a module or an item.
type Names = Vec<String>;

/// A crate's modules by name, what each of them imports, and what it offers under its own name.
#[derive(Default)]
struct Imports {
    files: BTreeMap<Names, PathBuf>,
    of_module: BTreeMap<Names, BTreeSet<Names>>,
    offered: BTreeMap<Names, Names>,
}

#[test]
fn no_file_imports_one_that_imports_it() {
    let mut found = Vec::new();
    for (folder, files) in
        [("src", 20), ("emulator/src", 20), ("emulator/renderer/src", 4), ("media_facts/src", 4)]
    {
        let imports = Imports::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        assert!(imports.files.len() > files, "the sources of {folder} were not found");
        found.extend(imports.cycles());
    }
    assert!(
        found.is_empty(),
        "move what both need into one of them, or into a third file:\n{}",
        found.join("\n")
    );
}

#[test]
fn a_cycle_is_found_through_groups_and_what_a_module_offers() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("shop")).unwrap();
    write("lib.rs", "mod cart;\nmod shop;\n");
    write("cart.rs", "use std::fmt;\nuse crate::shop::{Price, till::{self}};\n");
    write("shop/mod.rs", "mod till;\n#[cfg(test)]\nmod tests;\npub use self::till::Price;\n");
    write("shop/till.rs", "use super::Other;\n// use crate::cart::Cart;\n");
    assert_eq!(Imports::read(folder.path()).cycles(), Vec::<String>::new());
    write("shop/till.rs", "use super::Other;\nfn price() -> crate::cart::Cart {}\n");
    assert_eq!(Imports::read(folder.path()).cycles(), ["cart.rs -> shop/till.rs -> cart.rs"]);
}

impl Imports {
    fn read(folder: &Path) -> Imports {
        let mut imports = Imports::default();
        imports.collect(folder, folder);
        for (module, file) in imports.files.clone() {
            imports.read_module(module, &code(&fs::read_to_string(folder.join(file)).unwrap()));
        }
        imports
    }

    fn collect(&mut self, root: &Path, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.collect(root, &path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(root).unwrap().to_owned();
                let stem = file.with_extension("");
                let names = stem.iter().map(|name| name.to_string_lossy().into_owned());
                let names: Names =
                    names.filter(|name| !["mod", "lib", "main"].contains(&name.as_str())).collect();
                if !names.iter().any(|name| name == "tests") {
                    self.files.insert(names, file);
                }
            }
        }
    }

    fn read_module(&mut self, module: Names, code: &str) {
        let mut used = BTreeSet::new();
        for statement in code.split(';') {
            let Some(at) = find_use(statement) else { continue };
            let is_offered = statement[..at].trim_end().rsplit(char::is_whitespace).next();
            let is_offered = is_offered.is_some_and(|word| word.starts_with("pub"));
            for path in flattened(&statement[at + "use ".len()..]) {
                let Some(path) = self.absolute(&module, &path) else { continue };
                if let (true, Some(name)) = (is_offered, path.last()) {
                    self.offered.insert([module.clone(), vec![name.clone()]].concat(), path.clone());
                }
                used.insert(path);
            }
        }
        for prefix in ["crate::", "super::"] {
            for (at, _) in code.match_indices(prefix) {
                let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                let path: String = code[at..].chars().take_while(|c| is_path(*c)).collect();
                let names: Names =
                    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
                used.extend(self.absolute(&module, &names));
            }
        }
        self.of_module.insert(module, used);
    }

    /// A path from the crate down; nothing where it leads to another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Names> {
        let mut base = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
                return Some([base, rest.to_vec()].concat());
            }
            child if self.files.contains_key(&[module, &[child.to_owned()]].concat()) => {
                return Some([module, path].concat());
            }
            _ => return None,
        }
        rest = &rest[1..];
        Some([base, rest.iter().filter(|name| *name != "self").cloned().collect()].concat())
    }

    /// The module in which a path ends, past what other modules offer.
    fn module_of(&self, path: &[String]) -> Option<Names> {
        let mut path = path.to_vec();
        while !path.is_empty() && !self.files.contains_key(&path) {
            match self.offered.get(&path) {
                Some(origin) if *origin != path => path.clone_from(origin),
                _ => drop(path.pop()),
            }
        }
        (!path.is_empty()).then_some(path)
    }

    fn targets(&self, module: &[String]) -> BTreeSet<Names> {
        let used = self.of_module.get(module).into_iter().flatten();
        let is_apart = |target: &Names| !target.starts_with(module) && !module.starts_with(target);
        used.filter_map(|path| self.module_of(path)).filter(is_apart).collect()
    }

    /// One cycle for each module that begins one, shortest first found, written from its first name on.
    fn cycles(&self) -> Vec<String> {
        let targets: BTreeMap<&Names, BTreeSet<Names>> =
            self.files.keys().map(|module| (module, self.targets(module))).collect();
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for start in self.files.keys() {
            if let Some(path) = way_back(start, &targets)
                && seen.insert(path.iter().cloned().collect::<BTreeSet<_>>())
            {
                let files: Vec<String> =
                    path.iter().map(|module| self.files[module].to_string_lossy().into_owned()).collect();
                cycles.push(format!("{} -> {}", files.join(" -> "), files[0]));
            }
        }
        cycles
    }
}

/// The shortest way from a module back to itself, without its end.
fn way_back(start: &Names, targets: &BTreeMap<&Names, BTreeSet<Names>>) -> Option<Vec<Names>> {
    let mut reached = BTreeSet::from([start.clone()]);
    let mut ways = std::collections::VecDeque::from([vec![start.clone()]]);
    while let Some(way) = ways.pop_front() {
        for next in targets.get(way.last()?).into_iter().flatten() {
            if next == start {
                return Some(way);
            }
            if reached.insert(next.clone()) {
                ways.push_back([way.clone(), vec![next.clone()]].concat());
            }
        }
    }
    None
}

/// The text without its line comments and the module of tests at its end.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Where a statement's `use` begins.
fn find_use(statement: &str) -> Option<usize> {
    let begins_a_word = |at: &usize| statement[..*at].chars().next_back().is_none_or(char::is_whitespace);
    statement.match_indices("use ").map(|(at, _)| at).find(begins_a_word)
}

/// The paths of a `use`, its groups taken apart.
fn flattened(tree: &str) -> Vec<Names> {
    let mut paths = Vec::new();
    for part in split_at_commas(tree) {
        let part = part.trim();
        let names = |text: &str| -> Names {
            let text = text.split(" as ").next().unwrap_or_default();
            text.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        match (part.find('{'), part.rfind('}')) {
            (Some(open), Some(close)) if open < close => {
                let inner = flattened(&part[open + 1..close]);
                paths.extend(inner.into_iter().map(|path| [names(&part[..open]), path].concat()));
            }
            _ if part.is_empty() => {}
            _ => paths.push(names(part)),
        }
    }
    paths
}

fn split_at_commas(text: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut parts) = (0_u32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}
