//! The sections that only the daemon reads: inboxes, schedules, hooks, control, logs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use url::Url;

use crate::config::read::Positions;
use crate::config::suggest::with_suggestion;
use crate::config::{Config, ConfigError, Span};
use crate::domain::credits::Credits;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::ids::BatchName;
use crate::domain::manifest::read_policy;
use crate::domain::manifest::row::Policy;
use crate::domain::schedule::catch_up::CATCH_UP_MAX;
use crate::domain::schedule::catch_up::{Missed, Overlap};
use crate::domain::schedule::{Schedule, ScheduleError, name};
use crate::domain::time::Millis;
use crate::output::layout::Layout;

/// How long a manifest stays unchanged before it counts as written, in an inbox that says nothing else.
pub const INBOX_SETTLE: Span = Span(Millis::from_secs(2));
/// Most runs that `missed = "all"` may catch up with unless `missed_max` says otherwise.
const MISSED_MAX: u32 = 10;
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

/// `[[schedule]]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Its name; its batches are called after it and their fire time.
    pub name: String,
    /// When it fires: a crontab expression, five fields, six with seconds, seven with years, or `@daily`
    /// and the like.
    pub cron: String,
    /// IANA name of the time zone; UTC unless given.
    #[serde(default)]
    pub timezone: Option<String>,
    /// The manifest, which is read at each fire.
    pub manifest: PathBuf,
    /// Budget of a run, in credits.
    #[serde(default)]
    pub budget: Option<Credits>,
    /// Further terms of every run.
    #[serde(default, deserialize_with = "policy")]
    pub policy: Policy,
    /// Whether runs that were missed while the daemon was down are started.
    #[serde(default)]
    pub missed: Missed,
    /// Most missed runs that are started at once.
    #[serde(default = "missed_max")]
    pub missed_max: u32,
    /// Whether a run starts while the one before has not ended.
    #[serde(default)]
    pub overlap: Overlap,
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

fn missed_max() -> u32 {
    MISSED_MAX
}

impl ScheduleConfig {
    /// When it fires.
    ///
    /// # Errors
    /// [`ScheduleError`], which names the key.
    pub fn schedule(&self) -> Result<Schedule, ScheduleError> {
        Schedule::parse(&self.cron, self.timezone.as_deref())
    }

    fn check(&self) -> Result<(), ScheduleError> {
        name::check(&self.name)?;
        if !(1..=CATCH_UP_MAX).contains(&self.missed_max) {
            let message = format!(
                "found {}, expected 1 to {CATCH_UP_MAX}; missed = \"skip\" leaves all of them out",
                self.missed_max
            );
            return Err(ScheduleError { key: "missed_max", message });
        }
        self.schedule().map(drop)
    }
}

/// `[hooks]`
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HooksConfig {
    /// A command and its arguments, run when a batch is done, with the event as JSON on its standard input.
    pub batch_done: Vec<String>,
    /// Where the same JSON is posted, signed as Standard Webhooks.
    pub webhook: Option<Url>,
    /// File with the secret that signs it: `whsec_` and base64. The systemd credential `webhook-secret` will
    /// do instead.
    pub webhook_secret_file: Option<PathBuf>,
}

/// `[retention]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// How long a finished batch is listed; nothing for ever. By its name it is always found.
    #[serde(deserialize_with = "span_or_forever")]
    pub list_finished_for: Option<Span>,
}

impl Default for RetentionConfig {
    fn default() -> RetentionConfig {
        RetentionConfig { list_finished_for: Some(Span(Millis::from_secs(30 * 24 * 3600))) }
    }
}

fn span_or_forever<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "forever" {
        return Ok(None);
    }
    Span::parse(&text).map(Some).map_err(|error| serde::de::Error::custom(format!("{error}, or forever")))
}

/// `[control]`
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControlConfig {
    /// TCP address of the control API, beside the socket; none unless given.
    #[serde(deserialize_with = "address")]
    pub http: Option<SocketAddr>,
    /// File with the bearer token that requests over TCP must carry. Without one only loopback addresses are accepted.
    pub token_file: Option<PathBuf>,
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|_| {
        serde::de::Error::custom(format!(
            "control.http: found {text:?}; write an address and a port, as 127.0.0.1:8080 or [::1]:8080"
        ))
    })
}

/// `[log]`
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// How lines look.
    pub format: LogFormat,
    /// The log level: `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `callsheet::api=debug`.
    pub level: Option<String>,
}

/// How log lines look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `Human` on a terminal and for every command but the daemon; the daemon uses the journal if there is one, else JSON.
    #[default]
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
    /// For systemd's journal, with fields.
    Journald,
}

/// The names of log levels.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Whether `text` is a level, or a filter: parts such as `callsheet::api=debug`, with commas between them.
///
/// # Errors
/// What was found, and what would be accepted. A mistyped level would otherwise be taken for the name of
/// a module, and silence everything else.
pub fn check_log_level(text: &str) -> Result<(), String> {
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let is_part = |part: &str| match part.rsplit_once('=') {
        Some((target, level)) => {
            !target.is_empty() && !target.contains(char::is_whitespace) && is_level(level)
        }
        None => is_level(part),
    };
    if text.split(',').all(is_part) {
        return Ok(());
    }
    Err(format!(
        "found {text:?}; error, warn, info, debug, trace or off is accepted, or a filter such as \
         info,hyper=debug"
    ))
}

fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
    let terms = serde_json::Map::deserialize(deserializer)?;
    let policy = read_policy(terms).map_err(|problems| {
        let said: Vec<String> = problems.iter().map(|problem| with_suggestion(problem)).collect();
        serde::de::Error::custom(said.join("; "))
    })?;
    let layout = policy.layout.as_deref().map(Layout::parse).transpose();
    layout.map_err(|error| serde::de::Error::custom(format!("policy.layout: {error}")))?;
    Ok(policy)
}

impl HooksConfig {
    /// The secret that signs webhooks: `hooks.webhook_secret_file`, or the systemd credential
    /// `webhook-secret` in `credentials` (`$CREDENTIALS_DIRECTORY`).
    ///
    /// # Errors
    /// When a file that should hold it cannot be read.
    pub fn secret(&self, credentials: Option<&Path>) -> Result<Option<SecretString>, ConfigError> {
        let credential = credentials.map(|dir| dir.join("webhook-secret")).filter(|path| path.exists());
        let Some(path) = self.webhook_secret_file.clone().or(credential) else { return Ok(None) };
        let text = fs::read_to_string(&path).map_err(|source| ConfigError::Unreadable { path, source })?;
        Ok(Some(SecretString::from(text.trim())))
    }
}

impl Config {
    /// What is wrong with the daemon's sections.
    pub(super) fn daemon_problems(&self, places: &Positions<'_>, problems: &mut Vec<Diagnostic>) {
        let mut wrong = |key: &str, which: usize, message: String| {
            problems.push(Diagnostic::at(places.of(key, which), message).in_field(key));
        };
        if let Some(address) = self.control.http
            && self.control.token_file.is_none()
            && !address.ip().is_loopback()
        {
            let message = format!(
                "{address} can be reached from other machines; give control.token_file, or a loopback address"
            );
            wrong("control.http", 0, message);
        }
        if self.hooks.batch_done.first().is_some_and(String::is_empty) {
            wrong("hooks.batch_done", 0, "found an empty command; name a program first".to_owned());
        }
        if let Some(url) = &self.hooks.webhook
            && !matches!(url.scheme(), "http" | "https")
        {
            let message = format!("found {:?}; http and https are accepted", url.scheme());
            wrong("hooks.webhook", 0, message);
        }
        if self.hooks.webhook.is_none() && self.hooks.webhook_secret_file.is_some() {
            wrong("hooks.webhook_secret_file", 0, "hooks.webhook is not set".to_owned());
        }
        if let Some(Err(message)) = self.log.level.as_deref().map(check_log_level) {
            wrong("log.level", 0, message);
        }
        let mut paths = BTreeSet::new();
        let mut names = BTreeMap::new();
        for (which, inbox) in self.inbox.iter().enumerate() {
            let path = inbox.path.display();
            if inbox.settle.0.0 == 0 {
                wrong("inbox.settle", which, format!("{path}: must be greater than 0 (default: 2s)"));
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
        let mut names = BTreeSet::new();
        for (which, schedule) in self.schedule.iter().enumerate() {
            if !names.insert(schedule.name.as_str()) {
                wrong("schedule.name", which, format!("{:?} is given twice", schedule.name));
            }
            if let Err(error) = schedule.check() {
                let key = match error.key {
                    "name" => "schedule.name",
                    "timezone" => "schedule.timezone",
                    "missed_max" => "schedule.missed_max",
                    _ => "schedule.cron",
                };
                wrong(key, which, format!("{}: {}", schedule.name, error.message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;
    use crate::domain::manifest::row::Deadline;

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

    #[test]
    fn a_token_that_nobody_could_send_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let mut config = Config::default();
        config.control.token_file = Some(path.clone());
        for wrong in ["", " \n", "one\ntwo", "t\u{f6}ken"] {
            fs::write(&path, wrong).unwrap();
            let said = config.control_token().unwrap_err().to_string();
            assert!(said.starts_with("control.token_file: ") && said.contains("token"), "{said}");
            assert!(said.contains("one line of visible ASCII characters is accepted"), "{said}");
        }
        fs::write(&path, "let-me-in\n").unwrap();
        assert_eq!(config.control_token().unwrap().unwrap().expose_secret(), "let-me-in");
    }

    #[test]
    fn a_level_is_one_of_a_few_words() {
        for right in ["warn", "INFO", "off", "info,callsheet::engine=debug", "warn,callsheet[post]=trace"] {
            assert_eq!(check_log_level(right), Ok(()), "{right}");
        }
        for wrong in ["", "inof", "info,", "warn, info", "callsheet::api", "=info", "a=b"] {
            assert!(check_log_level(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            error("[log]\nlevel = \"inof\""),
            "callsheet.toml:2: log.level: found \"inof\"; error, warn, info, debug, trace or off is accepted, or a filter such as \
             info,hyper=debug"
        );
    }

    #[test]
    fn schedules_that_would_not_fire_as_meant_are_refused() {
        let check = |rest: &str, expected: &str| {
            let said = error(&format!("[[schedule]]\nmanifest = \"a.csv\"\n{rest}"));
            assert!(said.contains(expected), "{said}");
        };
        check("name = \"n\"\ncron = \"0 0 30 2 *\"", "schedule.cron: n: \"0 0 30 2 *\" never fires");
        check(
            "name = \"n\"\ncron = \"@daily\"\ntimezone = \"Europe/Berln\"",
            "schedule.timezone: n: \"Europe/Berln\" is not a time zone; did you mean \"Europe/Berlin\"?",
        );
        check("name = \"n/n\"\ncron = \"@daily\"", "schedule.name: n/n: \"n/n\" cannot name a schedule");
        check("name = \"n\"\ncron = \"@daily\"\nmissed_max = 0", "schedule.missed_max: n: found 0");
    }

    #[test]
    fn finished_batches_are_listed_for_a_span_or_forever() {
        let after = |text: &str| Config::parse(text, Path::new("x")).unwrap().retention.list_finished_for;
        assert_eq!(after(""), Some(Span(Millis::from_secs(2_592_000))));
        assert_eq!(after("[retention]\nlist_finished_for = \"7d\""), Some(Span(Millis::from_secs(604_800))));
        assert_eq!(after("[retention]\nlist_finished_for = \"forever\""), None);
        assert_eq!(
            error("[retention]\nlist_finished_for = \"soon\""),
            "callsheet.toml:2: \"soon\" is not a duration; write it as 10s, 30m or 24h, or forever"
        );
    }

    #[test]
    fn the_webhooks_secret_comes_from_its_file_or_a_credential() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("webhook-secret"), "whsec_credential\n").unwrap();
        fs::write(dir.path().join("named"), "whsec_named\n").unwrap();
        let mut hooks = HooksConfig::default();
        let secret =
            |hooks: &HooksConfig| hooks.secret(Some(dir.path())).unwrap().unwrap().expose_secret().to_owned();
        assert_eq!(secret(&hooks), "whsec_credential");
        hooks.webhook_secret_file = Some(dir.path().join("named"));
        assert_eq!(secret(&hooks), "whsec_named");
        hooks.webhook_secret_file = Some(dir.path().join("gone"));
        assert!(hooks.secret(None).unwrap_err().to_string().contains("failed to read"));
        assert!(HooksConfig::default().secret(None).unwrap().is_none());
    }

    #[test]
    fn hooks_that_could_never_work_are_refused() {
        assert_eq!(
            error("[hooks]\nbatch_done = [\"\"]"),
            "callsheet.toml:2: hooks.batch_done: found an empty command; name a program first"
        );
        assert_eq!(
            error("[hooks]\nwebhook = \"ftp://host/x\""),
            "callsheet.toml:2: hooks.webhook: found \"ftp\"; http and https are accepted"
        );
        assert!(Config::parse("[hooks]\nwebhook = \"https://host/x\"", Path::new("x")).is_ok());
    }

    #[test]
    fn other_machines_need_a_token() {
        assert!(error("[control]\nhttp = \"0.0.0.0:8080\"").contains("give control.token_file"));
        assert!(Config::parse("[control]\nhttp = \"127.0.0.1:8080\"", Path::new("x")).is_ok());
        let named = error("[control]\nhttp = \"localhost:8080\"");
        assert!(
            named.contains("control.http: found \"localhost:8080\"; write an address and a port"),
            "{named}"
        );
    }
}
