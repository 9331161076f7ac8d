//! `[[inbox]]`: directories that manifests are dropped into, and their terms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;

use super::policy::policy;
use super::read::Positions;
use super::span::{Span, secs};
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::BatchName;
use crate::domain::manifest::row::Policy;

/// How long a manifest stays unchanged before it counts as written, in an inbox that says nothing else.
pub const INBOX_SETTLE: Span = secs(2);
/// What stands before the name of such a value in the heading of a manifest.
const META: &str = "meta.";
/// Longest name of an inbox, in bytes: half of what a batch's name may have.
const INBOX_NAME_MAX_BYTES: usize = 50;

/// `[[inbox]]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InboxConfig {
    /// The folder. `accepted` and `rejected` are made beside it where it is called `inbox`, and inside it
    /// otherwise.
    pub path: PathBuf,
    /// Its name, after which its batches are called: `NAME--STEM`. The folder's name unless given.
    #[serde(default)]
    name: Option<String>,
    /// How long a manifest that is written here in place must stay unchanged before it is read. One that is renamed
    /// to its name is read at once.
    #[serde(default = "settle")]
    pub settle: Span,
    /// Values of `meta` that every row has that comes in here, whatever it says itself: its client does not choose them.
    #[serde(default)]
    pub meta: BTreeMap<String, String>,
    /// Terms of every manifest that comes in here, where it gives none of its own.
    #[serde(default, deserialize_with = "policy")]
    pub policy: Policy,
}

impl InboxConfig {
    /// Its name; nothing where the folder has none and none is given.
    pub fn name(&self) -> Option<String> {
        let folder = || Some(self.path.file_name()?.to_string_lossy().into_owned());
        self.name.clone().or_else(folder)
    }

    /// Why the name cannot begin its batches' names.
    fn check_name(&self) -> Result<String, String> {
        let name = self.name().unwrap_or_default();
        let is_name = name.len() <= INBOX_NAME_MAX_BYTES && name.parse::<BatchName>().is_ok();
        if is_name && !name.contains("--") {
            return Ok(name);
        }
        let what = if self.name.is_some() { "" } else { ", the directory's name" };
        Err(format!(
            "{}: found {name:?}{what}; it is part of batch names, so 1 to {INBOX_NAME_MAX_BYTES} letters, digits, \
             dots, dashes and underscores are accepted, without two dashes in a row; set a name, such as name = \
             \"acme\"",
            self.path.display()
        ))
    }
}

fn settle() -> Span {
    INBOX_SETTLE
}

/// What is wrong with inboxes, each by itself and beside the others.
pub(super) fn problems(inboxes: &[InboxConfig], positions: &Positions<'_>) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, which: usize, message: String| {
        problems.push(positions.problem(key, which, message));
    };
    let mut paths = BTreeSet::new();
    let mut names = BTreeMap::new();
    for (which, inbox) in inboxes.iter().enumerate() {
        let path = inbox.path.display();
        if inbox.settle.0.0 == 0 {
            wrong("inbox.settle", which, format!("{path}: must be greater than 0 (default: 2s)"));
        }
        for (meta, said) in inbox.meta.keys().filter_map(|meta| Some((meta, meta_mistake(meta)?))) {
            wrong("inbox.meta", which, format!("{path}: found the name {meta:?}; {said}"));
        }
        if !paths.insert(&inbox.path) {
            wrong("inbox.path", which, format!("{path} is given twice"));
            continue;
        }
        let name = match inbox.check_name() {
            Ok(name) => name,
            Err(message) => {
                wrong("inbox.name", which, message);
                continue;
            }
        };
        // On some disks the folders of their batches would be one.
        if let Some(other) = names.insert(name.to_lowercase(), &inbox.path) {
            let message = format!(
                "{} and {path} have the same name {name:?}; set another name for one of them, such as name = \
                 \"{name}-2\"",
                other.display(),
            );
            wrong("inbox.name", which, message);
        }
    }
    problems
}

/// Why no column of a manifest has this name, so that a budget of it would not count the rows.
fn meta_mistake(name: &str) -> Option<String> {
    let plain = name.trim();
    let plain = match plain.get(..META.len()) {
        Some(prefix) if prefix.eq_ignore_ascii_case(META) => plain[META.len()..].trim(),
        _ => plain,
    };
    match plain {
        "" => Some("write that of a column without meta., such as client = \"acme\"".to_owned()),
        _ if plain == name => None,
        _ => Some(format!("write it as {plain:?}: that is the column meta.{plain}")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use crate::domain::credits::Credits;
    use crate::domain::manifest::row::Deadline;
    use crate::domain::schedule::catch_up::{Missed, Overlap};
    use crate::domain::time::Millis;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("callsheet.toml")).unwrap_err().to_string()
    }

    #[test]
    fn inboxes_and_schedules_carry_terms() {
        let text = r#"
            [[inbox]]
            path = "clients/a"
            policy = { budget = 500, priority = 5, deadline = "2h" }
            [[schedule]]
            name = "nightly"
            cron = "0 3 * * *"
            manifest = "nightly.csv"
            budget = 100
            missed = "latest"
        "#;
        let config = Config::parse(text, Path::new("x")).unwrap();
        let policy = &config.inbox[0].policy;
        assert_eq!(policy.budget, Some(Credits(500)));
        assert_eq!(policy.deadline, Some(Deadline::After(Millis(7_200_000))));
        assert_eq!(config.schedule[0].missed, Missed::Latest);
        assert_eq!(config.schedule[0].overlap, Overlap::Skip);
    }

    #[test]
    fn wrong_terms_are_named() {
        assert!(
            error("[[inbox]]\npath = \"a\"\npolicy = { budgte = 5 }\n")
                .contains("callsheet.toml:3: unknown key `budgte`: did you mean `budget`?")
        );
        assert!(
            error("[[inbox]]\npath = \"a\"\npolicy = { deadline = \"30\" }\n")
                .contains("add the unit: s, m, h")
        );
        assert!(error("[[inbox]]\npath = \"a\"\n[[inbox]]\npath = \"a\"\n").contains("a is given twice"));
    }

    #[test]
    fn names_of_meta_values_that_no_column_has_are_refused() {
        let meta =
            |name: &str| error(&format!("[[inbox]]\npath = \"a\"\nmeta = {{ {name:?} = \"acme\" }}\n"));
        for name in ["meta.client", "Meta.client", " client", "client "] {
            assert_eq!(
                meta(name),
                format!(
                    "callsheet.toml:3: inbox.meta: a: found the name {name:?}; write it as \"client\": that is the column \
                     meta.client"
                )
            );
        }
        for name in ["", " ", "meta."] {
            assert!(
                meta(name).contains("write that of a column without meta., such as client"),
                "{}",
                meta(name)
            );
        }
        let text = "[[inbox]]\npath = \"a\"\nmeta = { \"a.b\" = \"1\", metal = \"2\" }\n";
        assert!(Config::parse(text, Path::new("x")).is_ok());
    }

    #[test]
    fn errors_name_the_line_of_a_term_and_how_many_inboxes_are_written() {
        let second = "[[inbox]]\npath = \"a\"\n\n[[inbox]]\npath = \"b\"\n[inbox.policy]\n\npriority = 1\n";
        for (term, said) in [
            ("budgte = 4", "callsheet.toml:9: unknown key `budgte`: did you mean `budget`?"),
            ("deadline = \"30\"", "callsheet.toml:9: deadline: "),
            ("layout = \"x\"", "callsheet.toml:9: policy.layout: a layout begins with {batch}/"),
        ] {
            let found = error(&format!("{second}{term}\n"));
            assert!(found.starts_with(said), "{found}");
        }
        assert_eq!(
            error("[inbox]\npath = \"a\"\n"),
            "callsheet.toml:1: found [inbox]; write [[inbox]], once for each"
        );
    }

    #[test]
    fn layouts_of_inboxes_and_schedules_are_checked_with_their_place() {
        let inbox =
            |layout: &str| error(&format!("[[inbox]]\npath = \"a\"\npolicy = {{ layout = {layout:?} }}"));
        let said = inbox("{batch}/{job}.{ext}");
        assert!(
            said.starts_with("callsheet.toml:3: policy.layout: the file name needs {job} and {-n}"),
            "{said}"
        );
        let said = inbox("{batch}/../../esc-{job}{-n}.{ext}");
        assert!(
            said.starts_with("callsheet.toml:3: policy.layout: \"..\" is not a directory of a layout"),
            "{said}"
        );
        let said = error(
            "[[schedule]]\nname = \"n\"\ncron = \"@daily\"\nmanifest = \"a.csv\"\n[schedule.policy]\nlayout = \"x\"",
        );
        assert!(said.contains("policy.layout: a layout begins with {batch}/"), "{said}");
        assert!(said.starts_with("callsheet.toml:"), "{said}");
    }

    #[test]
    fn an_inbox_waits_as_long_as_it_is_told() {
        let settle = |text: &str| {
            let text = format!("[[inbox]]\npath = \"a\"\n{text}");
            Config::parse(&text, Path::new("x")).unwrap().inbox[0].settle
        };
        assert_eq!(settle(""), Span(Millis::from_secs(2)));
        assert_eq!(settle("settle = \"700ms\""), Span(Millis(700)));
        assert_eq!(
            error("[[inbox]]\npath = \"a\"\nsettle = \"0s\""),
            "callsheet.toml:3: inbox.settle: a: must be greater than 0 (default: 2s)"
        );
    }
}
