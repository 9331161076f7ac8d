//! The configuration: file, environment and flags, checked once.
//!
//! Flag over environment over file over default. An unknown key is an error that names its line and
//! the nearest key there is.

mod budget;
mod daemon;
mod files;
mod read;
mod suggest;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};
use url::Url;

pub use self::budget::Budget;
pub use self::daemon::{
    ControlConfig, HooksConfig, INBOX_SETTLE, InboxConfig, LogConfig, LogFormat, RetentionConfig,
    ScheduleConfig, check_log_level,
};
use self::files::is_same_or_below;
pub use self::files::{InputsConfig, OutputConfig};
use self::read::Positions;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::quote::{AccountPlan, Rules, RulesExtension};
use crate::domain::request::Kind;
use crate::domain::time::Millis;
use crate::output::layout::{self, Layout};

/// A span of time as people write it: `10s`, `30m`, `24h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Millis);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        Span::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Span {
    fn parse(text: &str) -> Result<Span, String> {
        let span = humantime::parse_duration(text).ok();
        let ms = span.and_then(|span| u64::try_from(span.as_millis()).ok());
        let wrong = || format!("\"{text}\" is not a duration; write it as 10s, 30m or 24h");
        ms.map(|ms| Span(Millis(ms))).ok_or_else(wrong)
    }
}

const fn secs(secs: u64) -> Span {
    Span(Millis::from_secs(secs))
}

/// The whole configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address, key and timeouts of the service.
    pub service: ServiceConfig,
    /// Directories and the socket.
    pub paths: Paths,
    /// Rates and numbers of jobs.
    pub limits: LimitsConfig,
    /// Poll intervals.
    pub poll: Poll,
    /// Deadlines of jobs by kind.
    pub deadlines: Deadlines,
    /// Retries.
    pub retry: Retry,
    pub budget: Budget,
    pub output: OutputConfig,
    /// Files that manifests name.
    pub inputs: InputsConfig,
    /// Inboxes beside `jobs/inbox`.
    pub inbox: Vec<InboxConfig>,
    /// Schedules.
    pub schedule: Vec<ScheduleConfig>,
    /// Notifications of batches that are done.
    pub hooks: HooksConfig,
    /// How long batches that are done are kept.
    pub retention: RetentionConfig,
    /// The control API.
    pub control: ControlConfig,
    pub log: LogConfig,
    /// Rules for models that the built-in table does not have.
    pub rules: RulesExtension,
}

/// `[service]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceConfig {
    /// Base address of the service. Without one nothing is sent: it is never guessed.
    pub base_url: Option<Url>,
    pub api_key_file: Option<PathBuf>,
    /// The account's subscription: decides which allowances `callsheet plan` shows.
    pub plan: AccountPlan,
    /// Part of every idempotency key: two installations that share an account and batch names, and
    /// must not share jobs, have different ones.
    pub key_namespace: String,
    /// Timeout of a connection attempt.
    pub connect_timeout: Span,
    /// Timeout of a request with its response.
    pub request_timeout: Span,
    /// Timeout of a creating call that renders before it responds.
    pub render_timeout: Span,
}

impl Default for ServiceConfig {
    fn default() -> ServiceConfig {
        ServiceConfig {
            base_url: None,
            api_key_file: None,
            plan: AccountPlan::Unknown,
            key_namespace: String::new(),
            connect_timeout: secs(10),
            request_timeout: secs(60),
            render_timeout: secs(600),
        }
    }
}

/// `[paths]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Paths {
    /// Manifests: `jobs` unless given. `inbox`, `accepted` and `rejected` lie in it.
    pub jobs: Option<PathBuf>,
    /// The state; `state` unless given, `state/emulator` with the emulator.
    pub state: Option<PathBuf>,
    /// The outputs; `output` unless given, `output/emulator` with the emulator.
    pub output: Option<PathBuf>,
    /// The control socket; `callsheet.sock` in the state unless given.
    pub socket: Option<PathBuf>,
}

/// `[limits]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Jobs in flight at once.
    pub in_flight: u32,
    /// Jobs of a kind in flight at once.
    pub in_flight_per_kind: BTreeMap<Kind, u32>,
    /// Jobs of a model in flight at once, by model id.
    pub in_flight_per_model: BTreeMap<String, u32>,
    /// Creating POSTs a second.
    pub submits_per_second: Option<NonZeroU32>,
    pub polls_per_second: Option<NonZeroU32>,
    /// Jobs whose outputs are downloaded at once.
    pub downloads: usize,
    /// Files that are put into object stores at once.
    pub uploads: usize,
    /// A download that is slower, in bytes a second, is suspended while another waits.
    pub min_download_rate: ByteSize,
    /// Time over which the rate of a download is measured.
    pub slow_window: Span,
    /// Whether the number of jobs in flight follows what the service takes, up to `in_flight`.
    pub adaptive: bool,
    /// Rejected prompts in a row that pause a batch.
    pub pause_after_rejections: u32,
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig {
            in_flight: 16,
            in_flight_per_kind: BTreeMap::new(),
            in_flight_per_model: BTreeMap::new(),
            submits_per_second: None,
            polls_per_second: None,
            downloads: 4,
            uploads: 4,
            min_download_rate: ByteSize::kib(1),
            slow_window: secs(30),
            adaptive: true,
            pause_after_rejections: 5,
        }
    }
}

/// `[poll]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Poll {
    /// Shortest poll interval of a task. The document advises 5 to 10 seconds.
    pub min: Span,
    /// Longest poll interval of a task.
    pub max: Span,
}

/// Shorter poll intervals are against the service's advice (Limits, polling interval).
pub const POLL_ADVISED: Millis = Millis::from_secs(5);

impl Poll {
    /// A warning if the poll interval is shorter than the service advises.
    pub fn hasty(&self) -> Option<String> {
        let min = self.min.0;
        (min < POLL_ADVISED).then(|| {
            let min = humantime::format_duration(std::time::Duration::from_millis(min.0));
            format!("poll.min is {min}, but the service advises polling a task every 5 to 10 seconds")
        })
    }
}

impl Default for Poll {
    fn default() -> Poll {
        Poll { min: Span(POLL_ADVISED), max: secs(10) }
    }
}

/// `[deadlines]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Deadlines {
    /// Deadline of videos, and of Shorts Studio.
    pub video: Span,
    /// Deadline of images.
    pub image: Span,
    pub music: Span,
    pub speech: Span,
    pub sound_effect: Span,
    /// How long the task of an overdue job is still watched.
    pub watch_overdue_for: Span,
    /// Poll interval of the task of an overdue job.
    pub overdue_poll: Span,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            video: secs(30 * 60),
            image: secs(10 * 60),
            music: secs(15 * 60),
            speech: secs(10 * 60),
            sound_effect: secs(10 * 60),
            watch_overdue_for: secs(24 * 3600),
            overdue_poll: secs(5 * 60),
        }
    }
}

impl Deadlines {
    pub fn by_kind(&self) -> BTreeMap<Kind, Millis> {
        BTreeMap::from([
            (Kind::Video, self.video.0),
            (Kind::Image, self.image.0),
            (Kind::Music, self.music.0),
            (Kind::Speech, self.speech.0),
            (Kind::SoundEffect, self.sound_effect.0),
            (Kind::ShortsStudio, self.video.0),
        ])
    }
}

/// `[retry]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Attempts (idempotency keys) of a job.
    pub attempts: u32,
    /// Longest first delay after a fault.
    pub base: Span,
    /// Longest delay after a fault, unless the service asks for more.
    pub max: Span,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { attempts: 3, base: secs(2), max: secs(5 * 60) }
    }
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file is not valid: everything that is wrong with it.
    #[error("{}", listed(.path, .problems))]
    Invalid { path: PathBuf, problems: Vec<Diagnostic> },
    /// A value is out of its range.
    #[error("{key}: {message}")]
    Value {
        key: &'static str,
        /// What was found, and what would be accepted.
        message: String,
    },
}

/// `callsheet.toml:2: limits.in_flight: ...`, a line for each.
fn listed(path: &Path, problems: &[Diagnostic]) -> String {
    let each = problems.iter().map(|problem| format!("{}:{problem}", path.display()));
    each.collect::<Vec<_>>().join("\n")
}

/// Default paths of the configuration, in order.
const PLACES: [&str; 2] = ["callsheet.toml", "/etc/callsheet/callsheet.toml"];

impl Config {
    /// Reads `named`, or the first of the default paths that exists; defaults where none does.
    ///
    /// # Errors
    /// [`ConfigError`], with line and suggestion.
    pub fn load(named: Option<&Path>) -> Result<Config, ConfigError> {
        let Some(path) = Config::place(named) else { return Ok(Config::default()) };
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        Config::parse(&text, path)
    }

    /// The file that [`Config::load`] reads, if there is one.
    pub fn place(named: Option<&Path>) -> Option<&Path> {
        named.or_else(|| PLACES.iter().map(Path::new).find(|path| path.exists()))
    }

    /// Parses the text of the file `path`.
    ///
    /// # Errors
    /// [`ConfigError`], with line and suggestion.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let invalid = |problems| ConfigError::Invalid { path: path.to_owned(), problems };
        let (config, places) = read::read(text).map_err(invalid)?;
        let mut problems = config.problems(&places);
        if problems.is_empty() {
            return Ok(config);
        }
        problems.sort_by_key(|problem| problem.position);
        Err(invalid(problems))
    }

    /// Values that are out of their range, or do not fit together.
    fn problems(&self, places: &Positions<'_>) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        let mut wrong = |key: &str, message: &str| {
            problems.push(Diagnostic::at(places.of(key, 0), message).in_field(key));
        };
        let limits = &self.limits;
        // A limit of none would leave its jobs waiting for ever.
        let nones = [
            ("limits.in_flight", limits.in_flight == 0),
            ("limits.in_flight_per_kind", limits.in_flight_per_kind.values().any(|limit| *limit == 0)),
            ("limits.in_flight_per_model", limits.in_flight_per_model.values().any(|limit| *limit == 0)),
            ("limits.downloads", limits.downloads == 0),
            ("limits.uploads", limits.uploads == 0),
            ("limits.pause_after_rejections", limits.pause_after_rejections == 0),
            ("retry.attempts", self.retry.attempts == 0),
        ];
        for (key, _) in nones.into_iter().filter(|(_, is_none)| *is_none) {
            wrong(key, "must be at least 1");
        }
        if self.poll.min.0 > self.poll.max.0 {
            wrong("poll.min", "is longer than poll.max");
        }
        let nothings = [("poll.min", self.poll.min), ("limits.slow_window", limits.slow_window)];
        for (key, _) in nothings.into_iter().filter(|(_, span)| span.0.0 == 0) {
            wrong(key, "must be greater than 0");
        }
        if let Err(error) = Layout::parse(&self.output.layout) {
            wrong("output.layout", &error.to_string());
        }
        if !self.output.keep_local && self.output.store.is_none() {
            wrong("output.keep_local", "needs output.store: outputs would be nowhere");
        }
        if !self.output.keep_local && self.output.scratch_max < self.output.max_file {
            wrong(
                "output.scratch_max",
                "must not be less than output.max_file: an output of that size would not fit",
            );
        }
        if self.inputs.store.as_ref().is_some_and(|store| store.scheme() == "file") {
            wrong(
                "inputs.store",
                "must be a store that the service can fetch from: s3://bucket/prefix, gs://… or az://…; from a folder of \
                 this machine it cannot",
            );
        }
        if let (Some(inputs), Some(outputs)) = (&self.inputs.store, &self.output.store)
            && is_same_or_below(inputs, outputs)
        {
            wrong(
                "output.store",
                "must not be inputs.store, nor above or below it; give each a prefix of its own, such as \
                 s3://bucket/inputs and s3://bucket/outputs",
            );
        }
        self.budget_problems(places, &mut problems);
        self.daemon_problems(places, &mut problems);
        if let Err(errors) = Rules::builtin().extended(self.rules.clone()) {
            problems.extend(errors.into_iter().map(|error| {
                let key = error.field.as_ref().map_or("rules".to_owned(), |field| format!("rules.{field}"));
                error.positioned(places.of(&key, 0)).in_field(key)
            }));
        }
        problems
    }

    /// The rules of all models: the document's, and those of `[rules]` beside or in place of them. Those of a
    /// configuration that was read are valid.
    ///
    /// # Errors
    /// A `inherit` that names no built-in id, and limits that nothing can satisfy.
    pub fn rules(&self) -> Result<Rules, ConfigError> {
        Rules::builtin().extended(self.rules.clone()).map_err(|errors| {
            let first = errors.first().map(Diagnostic::field_message).unwrap_or_default();
            ConfigError::Value { key: "rules", message: first }
        })
    }

    /// The layout of output files.
    ///
    /// # Errors
    /// Where it is none; that of a configuration that was read is one.
    pub fn layout(&self) -> Result<Layout, ConfigError> {
        let wrong = |error: layout::BadLayout| ConfigError::Value {
            key: "output.layout",
            message: error.to_string(),
        };
        Layout::parse(&self.output.layout).map_err(wrong)
    }

    /// The API key: `environment` (`CALLSHEET_API_KEY`), `service.api_key_file`, or the systemd
    /// credential `api-key` in `credentials` (`$CREDENTIALS_DIRECTORY`).
    ///
    /// # Errors
    /// When a file that should hold it cannot be read.
    pub fn api_key(
        &self,
        environment: Option<String>,
        credentials: Option<PathBuf>,
    ) -> Result<Option<SecretString>, ConfigError> {
        if let Some(key) = environment.filter(|key| !key.trim().is_empty()) {
            return Ok(Some(SecretString::from(key.trim())));
        }
        let credential = credentials.map(|dir| dir.join("api-key")).filter(|path| path.exists());
        self.service.api_key_file.clone().or(credential).map(secret_in).transpose()
    }

    /// The bearer token of the control API over TCP.
    ///
    /// # Errors
    /// When its file cannot be read, or its text cannot be a header's value.
    pub fn control_token(&self) -> Result<Option<SecretString>, ConfigError> {
        let Some(path) = self.control.token_file.clone() else { return Ok(None) };
        let at = path.display().to_string();
        let token = secret_in(path)?;
        let text = token.expose_secret();
        let found = match text {
            "" => "is empty",
            text if text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) => {
                return Ok(Some(token));
            }
            _ => "holds more than a token",
        };
        let message = format!(
            "{at} {found}; one line of visible ASCII characters is accepted: `openssl rand -hex 32` makes one"
        );
        Err(ConfigError::Value { key: "control.token_file", message })
    }
}

/// A secret is the text of its file, without white space around it.
fn secret_in(path: PathBuf) -> Result<SecretString, ConfigError> {
    let text = fs::read_to_string(&path).map_err(|source| ConfigError::Unreadable { path, source })?;
    Ok(SecretString::from(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::credits::Credits;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("callsheet.toml")).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        let config = Config::parse("", Path::new("x")).unwrap();
        assert_eq!(config.limits.in_flight, 16);
        assert_eq!(config.poll.min, secs(5));
        assert!(config.service.base_url.is_none());
    }

    #[test]
    fn every_section_is_read() {
        let text = r#"
            [service]
            base_url = "https://media.example"
            key_namespace = "client-a"
            render_timeout = "20m"
            [limits]
            in_flight_per_kind = { video = 4, sound-effect = 2 }
            in_flight_per_model = { "house-c1" = 3 }
            [deadlines]
            video = "1h 30m"
            [budget]
            per_day = 5000
            [output]
            max_file = "2GiB"
            allow_hosts = ["*.cdn.example", "10.1.0.0/16"]
        "#;
        let config = Config::parse(text, Path::new("x")).unwrap();
        assert_eq!(config.limits.in_flight_per_kind[&Kind::SoundEffect], 2);
        assert_eq!(config.limits.in_flight_per_model["house-c1"], 3);
        assert_eq!(config.deadlines.video, secs(5400));
        assert_eq!(config.budget.per_day, Some(Credits(5000)));
        assert_eq!(config.output.max_file, ByteSize::gib(2));
        assert_eq!(config.output.allow_hosts[0], "*.cdn.example".parse().unwrap());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_a_suggestion() {
        assert_eq!(
            error("[limits]\nin_fligth = 3\n"),
            "callsheet.toml:2: unknown key `in_fligth`: did you mean `in_flight`?"
        );
        assert_eq!(
            error("[budget]\nkeep = 3\n"),
            "callsheet.toml:2: unknown key `keep`: it is called `min_balance` now"
        );
        for (section, old, value, new) in [
            ("limits", "rejections", "3", "pause_after_rejections"),
            ("limits", "slow_download", "\"1KiB\"", "min_download_rate"),
            ("limits", "slow_after", "\"30s\"", "slow_window"),
            ("deadlines", "late_window", "\"24h\"", "watch_overdue_for"),
            ("deadlines", "late_poll", "\"5m\"", "overdue_poll"),
            ("retention", "archive_after", "\"30d\"", "list_finished_for"),
            ("rules.models.a", "like", "\"model-r\"", "inherit"),
        ] {
            assert_eq!(
                error(&format!("[{section}]\n{old} = {value}\n")),
                format!("callsheet.toml:2: unknown key `{old}`: it is called `{new}` now")
            );
        }
        assert_eq!(
            error("[poll]\nmin = \"soon\"\n"),
            "callsheet.toml:2: \"soon\" is not a duration; write it as 10s, 30m or 24h"
        );
        assert_eq!(
            error("[limits]\nin_flight = 0"),
            "callsheet.toml:2: limits.in_flight: must be at least 1"
        );
        assert_eq!(
            error("[limits]\nin_flight_per_model = { \"house-c1\" = 0 }"),
            "callsheet.toml:2: limits.in_flight_per_model: must be at least 1"
        );
        assert_eq!(
            error("[output]\nallow_hosts = [\"http://cdn.example\"]"),
            "callsheet.toml:2: \"http://cdn.example\" is not a host; write media.example, *.media.example, 10.1.2.3 \
             or 10.1.0.0/16, without a port"
        );
        assert!(error("[output]\nlayout = \"{job}.{ext}\"").contains("a layout begins with {batch}/"));
    }

    #[test]
    fn all_problems_are_said_at_once() {
        let text = "[limits]\nin_flight = \"many\"\nadaptive = \"yes\"\n[service]\nbase_ulr = \"https://x\"\n\
                    [budget]\nper_day = -1\n[[inbox]]\nsettle = \"2s\"\n[[inbox]]\npath = 5\n[outptu]\n";
        assert_eq!(
            error(text),
            "callsheet.toml:2: limits.in_flight: found \"many\", expected a whole number, 0 or more\n\
             callsheet.toml:3: limits.adaptive: found \"yes\", expected true or false\n\
             callsheet.toml:5: unknown key `base_ulr`: did you mean `base_url`?\n\
             callsheet.toml:7: budget.per_day: found -1, expected a whole number, 0 or more\n\
             callsheet.toml:8: missing field `path`\n\
             callsheet.toml:11: inbox.path: found 5, expected a text in quotes\n\
             callsheet.toml:12: unknown key `outptu`: did you mean `output`?"
        );
        assert_eq!(
            error("[limits]\nin_flight = 0\n[poll]\nmin = \"1m\"\n[output]\nlayout = \"x\"\n[log]\nlevel = \"loud\"\n")
                .lines()
                .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": "))
                .collect::<Vec<_>>(),
            [
                "callsheet.toml:2: limits.in_flight",
                "callsheet.toml:4: poll.min",
                "callsheet.toml:6: output.layout",
                "callsheet.toml:8: log.level"
            ]
        );
        let broken = error("[limits]\nin_flight = \n[budget\ntotal = 5\n");
        assert!(broken.starts_with("callsheet.toml:2: "), "{broken}");
    }

    #[test]
    fn real_model_ids_borrow_the_rules_of_the_documents_stand_ins() {
        let text = r#"
            [service]
            plan = "ultra"
            [rules]
            prohibited = ["lookalike"]
            [rules.models."vendor/real-1"]
            inherit = "model-s-2-0"
            inputs.image-to-video = { images = [1, 4] }
        "#;
        let config = Config::parse(text, Path::new("x")).unwrap();
        assert_eq!(config.service.plan, AccountPlan::Ultra);
        let rules = config.rules().unwrap();
        let model = rules.model("vendor/real-1").unwrap();
        assert_eq!(model.billed_source_seconds_max, Some(15));
        assert_eq!(model.inputs["image-to-video"].images.max, 4);
        assert_eq!(model.inputs["frames-to-video"].images.min, 2);
    }

    #[test]
    fn rules_that_make_no_sense_are_named() {
        assert_eq!(
            error(
                "[rules.models.a]\ninherit = \"b\"\n[rules.models.c.inputs.image-to-video]\nimages = [2, 1]\n"
            ),
            "callsheet.toml:2: rules.models.a.inherit: \"b\" is not a model id of the built-in table\n\
             callsheet.toml:4: rules.models.c.inputs.image-to-video.images: [2, 1] holds no number; the lesser comes first"
        );
        assert_eq!(
            error("[rules.models.a]\ninhreit = \"model-r\"\n"),
            "callsheet.toml:2: unknown key `inhreit`: did you mean `inherit`?"
        );
        assert!(error("[service]\nplan = \"gold\"\n").contains("expected one of `none`, `pro`, `ultra`"));
        assert_eq!(
            error("[service]\nplan = \"ulrta\"\n"),
            "callsheet.toml:2: unknown value `ulrta`: did you mean `ultra`?"
        );
    }

    #[test]
    fn the_key_comes_from_the_environment_a_file_or_a_credential() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("api-key"), "from-credential\n").unwrap();
        let config = Config::default();
        let key = |env: Option<&str>| {
            let key = config.api_key(env.map(str::to_owned), Some(dir.path().to_owned())).unwrap();
            key.map(|key| key.expose_secret().to_owned())
        };
        assert_eq!(key(Some("from-env")), Some("from-env".into()));
        assert_eq!(key(None), Some("from-credential".into()));
        assert_eq!(key(Some("  ")), Some("from-credential".into()));
    }
}
