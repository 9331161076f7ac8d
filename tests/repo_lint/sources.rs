//! Rules that a compiler does not hold: who may import whom, the single clock, the
//! single user of the database and of the HTTP client. When one of these fails, it names the fix.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Who may import whom. Arrows point downwards only: a module may import modules further down the list
/// that it names, and nothing else.
const MODULES: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    (
        "cli",
        &[
            "api",
            "client",
            "clock",
            "config",
            "daemon",
            "domain",
            "engine",
            "failpoint",
            "ingest",
            "metrics",
            "object_storage",
            "output",
            "pages",
            "recovery",
            "server",
            "store",
        ],
    ),
    (
        "daemon",
        &["clock", "config", "domain", "engine", "hooks", "ingest", "metrics", "output", "server", "store"],
    ),
    ("client", &["api", "domain", "engine", "ingest", "output", "server"]),
    ("server", &["api", "clock", "domain", "engine", "ingest", "metrics", "output", "pages", "store"]),
    ("ingest", &["api", "clock", "domain", "engine", "failpoint", "output", "store"]),
    (
        "engine",
        &["api", "clock", "domain", "failpoint", "metrics", "object_storage", "output", "pages", "store"],
    ),
    ("hooks", &["api", "clock", "config", "domain", "store"]),
    ("config", &["domain", "output"]),
    ("pages", &["domain", "output"]),
    ("output", &["domain", "failpoint", "file_system"]),
    ("recovery", &["domain", "store"]),
    ("store", &["domain", "failpoint"]),
    ("api", &["clock", "domain"]),
    ("metrics", &["domain"]),
    ("object_storage", &["clock", "domain", "failpoint", "file_system"]),
    ("clock", &["domain"]),
    ("domain", &[]),
    ("failpoint", &[]),
    ("file_system", &[]),
];

/// What only some places may mention, and what to do instead.
const BANS: &[Ban] = &[
    Ban {
        what: "debug_assert",
        only: &[],
        instead: "no tested build has debug assertions: return an error, or `assert!` what the line above proves",
    },
    Ban {
        what: "Instant::now",
        only: &["src/clock.rs", "emulator/"],
        instead: "take `Now` as an argument; only clock.rs reads the clock",
    },
    Ban {
        what: "SystemTime::now",
        only: &["src/clock.rs", "emulator/"],
        instead: "take `Now` as an argument; only clock.rs reads the clock",
    },
    Ban {
        what: "Utc::now",
        only: &["src/clock.rs", "emulator/"],
        instead: "take `Now` as an argument; only clock.rs reads the clock",
    },
    Ban {
        what: "callsheet_emulator",
        only: &["src/cli/emulator/"],
        instead: "speak to it over HTTP, as to the service; cli/emulator starts and ends it",
    },
    Ban {
        what: "sled::",
        only: &["src/store/commit/database.rs", "src/store/error.rs"],
        instead: "read through `Database`, and change it by `Store::commit`: its handle is private to its file",
    },
    // Which functions change a database: see src/store/commit.rs.
    Ban {
        what: "apply_batch",
        only: &["src/store/commit/database.rs"],
        instead: "put what is to be written into a `Change`, and commit it",
    },
    Ban {
        what: "lifecycle::",
        only: &["src/domain/", "src/engine/scheduler/", "src/recovery/"],
        instead: "the scheduler and recovery/ decide about jobs; others say what happened, or load and commit",
    },
    Ban {
        what: "domain::recovered_job_state",
        only: &["src/recovery/"],
        instead: "recovery/ decides about jobs of a lost state; the store loads and commits",
    },
    Ban {
        what: "reqwest::",
        only: &["src/api/", "src/client/control_client.rs"],
        instead: "go through `Service`, `Downloads` or `Webhook` in api/; a daemon is spoken to by client/control_client.rs",
    },
    Ban {
        what: "object_store::",
        only: &["src/object_storage/"],
        instead: "go through `ObjectStorage`; its HTTP client and its retries stay within one module",
    },
    Ban {
        what: "prometheus_client::",
        only: &["src/metrics/"],
        instead: "count through `Metrics`; a method for each thing that is measured",
    },
    Ban {
        what: "std::env::var",
        // The crate of the object stores reads all of its variables by itself; here the empty ones are left out.
        only: &["src/cli/", "src/failpoint.rs", "src/object_storage/store_variables.rs"],
        instead: "read the environment in cli/ and pass values on",
    },
    Ban {
        what: "process::exit",
        only: &["src/cli/"],
        instead: "return an `Exit`; only the second Ctrl-C leaves at once",
    },
    Ban { what: "thread::sleep", only: &[], instead: "wait for an event, or for a timer of the runtime" },
    Ban { what: "todo!", only: &[], instead: "finish it, or leave it out" },
    Ban { what: "#[ignore", only: &[], instead: "make it pass, or delete it" },
];

/// What the pure core may not mention.
const IMPURE: &[(&str, &str)] = &[
    ("std::fs", "files"),
    ("std::net", "the network"),
    ("std::time::", "clocks"),
    ("tokio", "async"),
    ("async fn", "async"),
    ("fastrand", "randomness"),
    ("tracing", "logging"),
];

/// Longest module file, in lines: past this, is it one module?
const FILE_MAX_LINES: usize = 700;

struct Ban {
    what: &'static str,
    only: &'static [&'static str],
    instead: &'static str,
}

struct Source {
    path: String,
    module: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn collect(dir: &Path, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let relative = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            let module = relative.trim_start_matches("src/").split(['/', '.']).next().unwrap().to_owned();
            sources.push(Source { module, text: fs::read_to_string(&path).unwrap(), path: relative });
        }
    }
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    collect(&root().join("src"), &mut sources);
    collect(&root().join("emulator/src"), &mut sources);
    collect(&root().join("emulator/renderer/src"), &mut sources);
    collect(&root().join("media_facts/src"), &mut sources);
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(sources.len() > 30, "the sources were not found");
    sources
}

/// Code lines with their numbers: comments, and test modules at the end of a file, are left out.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..tests].lines().enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn report(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// `test = false` of `media_facts/Cargo.toml`: unit tests there would not run.
#[test]
fn media_facts_is_tested_from_outside_only() {
    let sources = sources().into_iter().filter(|source| source.path.starts_with("media_facts/src"));
    let with_tests = sources.filter(|source| source.text.contains("#[cfg(test)]"));
    let problems: Vec<String> = with_tests
        .map(|source| format!("{}: move its tests to media_facts/tests, where they run", source.path))
        .collect();
    report(&problems);
}

#[test]
fn imports_follow_the_table() {
    let allowed: BTreeMap<&str, &[&str]> = MODULES.iter().copied().collect();
    let mut problems = Vec::new();
    // These are crates of their own, which do not have the program among their dependencies.
    let others = ["lib", "emulator", "media_facts"];
    for source in sources().into_iter().filter(|source| !others.contains(&source.module.as_str())) {
        let Some(allowed) = allowed.get(source.module.as_str()) else {
            problems.push(format!(
                "{}: the module {} is not in the table of tests/repo_lint/sources.rs",
                source.path, source.module
            ));
            continue;
        };
        for (number, line) in code(&source.text) {
            for prefix in ["crate::", "callsheet::"] {
                for (at, _) in line.match_indices(prefix) {
                    let rest = &line[at + prefix.len()..];
                    let target: String =
                        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    let known = MODULES.iter().any(|(module, _)| *module == target);
                    if known && target != source.module && !allowed.contains(&target.as_str()) {
                        problems.push(format!(
                            "{}:{number}: {} may not import {target}; pass a value in, or move the code to a module \
                             that may",
                            source.path, source.module
                        ));
                    }
                }
            }
        }
    }
    report(&problems);
}

#[test]
fn the_table_has_no_cycles() {
    let position: BTreeMap<&str, usize> =
        MODULES.iter().enumerate().map(|(at, (module, _))| (*module, at)).collect();
    for (module, imports) in MODULES {
        for import in *imports {
            assert!(
                position[import] > position[module],
                "{module} imports {import}, which does not stand below it"
            );
        }
    }
}

#[test]
fn what_has_one_user_has_one_user() {
    let mut problems = Vec::new();
    for source in sources() {
        for ban in BANS.iter().filter(|ban| !ban.only.iter().any(|place| source.path.starts_with(place))) {
            for (number, line) in code(&source.text).filter(|(_, line)| line.contains(ban.what)) {
                let _ = line;
                problems.push(format!("{}:{number}: {} here: {}", source.path, ban.what, ban.instead));
            }
        }
    }
    report(&problems);
}

#[test]
fn the_core_is_pure() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| source.module == "domain") {
        for (number, line) in code(&source.text) {
            for (word, what) in IMPURE.iter().filter(|(word, _)| line.contains(word)) {
                problems.push(format!(
                    "{}:{number}: {word} brings {what} into the pure core; take a value as an argument",
                    source.path
                ));
            }
        }
    }
    report(&problems);
}

#[test]
fn no_part_of_the_scheduler_knows_the_scheduler() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with("src/engine/scheduler/parts/")) {
        for (number, line) in code(&source.text) {
            if line.contains("scheduler::Scheduler") || line.contains("impl Scheduler") {
                problems.push(format!(
                    "{}:{number}: a part is composed by the scheduler; pass it what it must know",
                    source.path
                ));
            }
        }
    }
    report(&problems);
}

#[test]
fn every_file_says_what_it_is_for_and_is_one_room() {
    let mut problems = Vec::new();
    for source in sources() {
        if !source.text.starts_with("//!") {
            problems.push(format!("{}: begin with a //! line that says what it is for", source.path));
        }
        let lines = source.text.lines().count();
        if lines > FILE_MAX_LINES {
            problems.push(format!("{}: {lines} lines; split it where it has two subjects", source.path));
        }
        let stem = source.path.rsplit('/').next().unwrap();
        if ["utils.rs", "util.rs", "helpers.rs", "common.rs", "misc.rs"].contains(&stem) {
            problems.push(format!("{}: name it after what is in it", source.path));
        }
    }
    report(&problems);
}

/// Every `Cargo.toml` says `doctest = false`, since looking for examples takes as long as reading the whole crate. So an
/// example in a comment would never run.
#[test]
fn no_example_is_only_in_a_comment() {
    let mut problems = Vec::new();
    for source in sources() {
        let mut is_open = false;
        for (index, line) in source.text.lines().enumerate() {
            let line = line.trim_start();
            let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
                is_open = false;
                continue;
            };
            let Some(language) = text.trim_start().strip_prefix("```") else { continue };
            // A fence with a language of its own begins a block that is no Rust; all else does for `rustdoc`.
            if !is_open && language.trim() != "text" {
                let place = format!("{}:{}", source.path, index + 1);
                problems.push(format!("{place}: make a test of it, or say what it is: ```text"));
            }
            is_open = !is_open;
        }
    }
    report(&problems);
}

#[test]
fn architecture_md_names_every_module() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let modules: BTreeSet<String> = sources().into_iter().map(|source| source.module).collect();
    let missing: Vec<String> = modules
        .iter()
        .filter(|module| *module != "lib" && !map.contains(&format!("`{module}")))
        .map(|module| format!("ARCHITECTURE.md: say what `{module}` is for"))
        .collect();
    report(&missing);
}

#[test]
fn architecture_md_names_files_that_exist() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut files = Vec::new();
    for folder in ["src", "emulator", "media_facts", "tests", "benches", "fuzz"] {
        paths_below(&root().join(folder), &mut files);
    }
    let named = map.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs") && !name.contains(' '));
    let missing: Vec<String> = named
        .filter(|name| !files.iter().any(|path| path.ends_with(name)))
        .map(|name| format!("ARCHITECTURE.md: there is no file `{name}`"))
        .collect();
    report(&missing);
}

fn paths_below(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { paths_below(&path, paths) } else { paths.push(path) }
    }
}
