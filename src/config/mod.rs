//! The configuration: file, environment and flags, checked once.
//!
//! Flag over environment over file over default. An unknown key is an error that names its line and
//! the nearest key there is. A section is read and checked in the file that has its name.

mod budget;
mod control;
mod deadlines;
mod error;
mod hooks;
mod inbox;
mod inputs;
mod limits;
mod log;
mod output;
mod paths;
mod policy;
mod poll;
mod read;
mod retention;
mod retry;
mod schedule;
mod service;
mod size;
mod span;
mod suggest;

use std::fs;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

pub use self::budget::Budget;
pub use self::control::ControlConfig;
pub use self::deadlines::Deadlines;
pub use self::error::ConfigError;
pub use self::hooks::HooksConfig;
pub use self::inbox::{INBOX_SETTLE, InboxConfig};
pub use self::inputs::InputsConfig;
pub use self::limits::LimitsConfig;
pub use self::log::{LogConfig, LogFormat, check_log_level};
pub use self::output::OutputConfig;
use self::output::{is_same_or_below, store_mistake};
pub use self::paths::Paths;
pub use self::poll::{POLL_ADVISED, Poll};
use self::read::Positions;
pub use self::retention::RetentionConfig;
pub use self::retry::Retry;
pub use self::schedule::ScheduleConfig;
pub use self::service::ServiceConfig;
pub use self::span::Span;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::quote::{Rules, RulesExtension};
use crate::output::file_names::{self, Layout};

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

    /// The file that [`Config::load`] reads, if there is one. One that is there and cannot be looked at is the one: without it
    /// its budgets would not hold.
    pub fn place(named: Option<&Path>) -> Option<&Path> {
        named.or_else(|| PLACES.iter().map(Path::new).find(|path| !is_missing(path)))
    }

    /// Parses the text of the file `path`.
    ///
    /// # Errors
    /// [`ConfigError`], with line and suggestion.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let invalid = |problems| ConfigError::Invalid { path: path.to_owned(), problems };
        let (config, places) = match read::read(text) {
            Ok(read) => read,
            Err(damaged) => {
                let of_rest = damaged.rest.as_ref().map(|(config, places)| config.problems(places));
                let of_rest = of_rest.unwrap_or_default().into_iter().filter(|problem| damaged.has(problem));
                let mut problems: Vec<Diagnostic> = damaged.problems.iter().cloned().chain(of_rest).collect();
                problems.sort_by_key(|problem| problem.position);
                return Err(invalid(problems));
            }
        };
        let mut problems = config.problems(&places);
        if problems.is_empty() {
            return Ok(config);
        }
        problems.sort_by_key(|problem| problem.position);
        Err(invalid(problems))
    }

    /// Values that are out of their range, or do not fit together.
    fn problems(&self, places: &Positions<'_>) -> Vec<Diagnostic> {
        let mut problems = [
            self.service.problems(places),
            self.deadlines.problems(places),
            self.limits.problems(places),
            self.poll.problems(places),
            self.retry.problems(places),
            self.control.problems(places),
            self.hooks.problems(places),
            self.log.problems(places),
            inbox::problems(&self.inbox, places),
            schedule::problems(&self.schedule, places),
        ]
        .concat();
        let mut wrong = |key: &str, message: &str| problems.push(places.problem(key, 0, message));
        if let Err(error) = Layout::parse(&self.output.layout) {
            wrong("output.layout", &error.to_string());
        }
        for (key, size) in
            [("output.max_file", self.output.max_file), ("inputs.max_file", self.inputs.max_file)]
        {
            if size.0 == 0 {
                wrong(key, "must be greater than 0");
            }
        }
        if !self.output.keep_local && self.output.store.is_none() {
            wrong("output.keep_local", "needs output.store: without it no copy of the outputs would be kept");
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
        for (key, store) in [("inputs.store", &self.inputs.store), ("output.store", &self.output.store)] {
            if let Some(mistake) = store.as_ref().and_then(store_mistake) {
                wrong(key, mistake);
            }
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
        let wrong = |error: file_names::BadLayout| ConfigError::Value {
            key: "output.layout",
            message: error.to_string(),
        };
        Layout::parse(&self.output.layout).map_err(wrong)
    }

    /// The API key: `environment` (`CALLSHEET_API_KEY`), `service.api_key_file`, or the systemd
    /// credential `api-key` in `credentials` (`$CREDENTIALS_DIRECTORY`).
    ///
    /// # Errors
    /// When a file that should hold it cannot be read, or is empty.
    pub fn api_key(
        &self,
        environment: Option<String>,
        credentials: Option<PathBuf>,
    ) -> Result<Option<SecretString>, ConfigError> {
        if let Some(key) = environment.filter(|key| !key.trim().is_empty()) {
            return Ok(Some(SecretString::from(key.trim())));
        }
        let credential = credentials.map(|dir| dir.join("api-key")).filter(|path| path.exists());
        let named = self.service.api_key_file.clone().map(|path| ("service.api_key_file", path));
        let of_unit = credential.map(|path| ("the systemd credential api-key", path));
        let Some((key, path)) = named.or(of_unit) else { return Ok(None) };
        let at = path.display().to_string();
        let wrong = |message: String| ConfigError::Value { key, message };
        let secret = secret_in(path).map_err(|error| wrong(error.to_string()))?;
        if secret.expose_secret().is_empty() {
            return Err(wrong(format!("{at} is empty; write the API key into it")));
        }
        Ok(Some(secret))
    }
}

/// Whether nothing has this name: a link that leads nowhere has it.
fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// A secret is the text of its file, without white space around it.
fn secret_in(path: PathBuf) -> Result<SecretString, ConfigError> {
    let text = fs::read_to_string(&path).map_err(|source| ConfigError::Unreadable { path, source })?;
    Ok(SecretString::from(text.trim()))
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::span::secs;
    use super::*;
    use crate::domain::credits::Credits;
    use crate::domain::quote::AccountPlan;
    use crate::domain::request::Kind;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("callsheet.toml")).unwrap_err().to_string()
    }

    #[test]
    fn what_no_request_or_output_could_keep_to_is_refused_by_its_key() {
        for (section, key, zero) in [
            ("service", "connect_timeout", "0s"),
            ("service", "request_timeout", "0ms"),
            ("service", "render_timeout", "0s"),
            ("output", "max_file", "0B"),
            ("inputs", "max_file", "0B"),
            ("deadlines", "video", "0s"),
            ("deadlines", "sound_effect", "0s"),
            ("deadlines", "watch_overdue_for", "0s"),
            ("deadlines", "overdue_poll", "0s"),
        ] {
            assert_eq!(
                error(&format!("[{section}]\n{key} = \"{zero}\"\n")),
                format!("callsheet.toml:2: {section}.{key}: must be greater than 0")
            );
        }
    }

    #[test]
    fn a_file_that_is_there_and_cannot_be_read_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("callsheet.toml");
        assert!(is_missing(&link));
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(!is_missing(&link));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(!is_missing(&dir.path().join("file/callsheet.toml")), "a file in its way");
        fs::create_dir(dir.path().join("folder")).unwrap();
        assert!(is_missing(&dir.path().join("folder/callsheet.toml")));
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        let config = Config::parse("", Path::new("x")).unwrap();
        assert_eq!(config.limits.in_flight, 16);
        assert_eq!(config.poll.min, secs(5));
        assert!(config.service.base_url.is_none());
    }

    #[test]
    fn all_problems_of_a_section_are_said_but_those_that_a_missing_value_makes() {
        let fields = |text: &str| {
            let said = error(text);
            let field = |line: &str| line.split(": ").nth(1).unwrap().to_owned();
            said.lines().map(field).collect::<Vec<_>>()
        };
        let output =
            "[output]\nmin_free = \"3 apples\"\nlayout = \"{nope}\"\nkeep_local = false\nstore = \"x\"\n";
        // Without its store it could not do without local files; which one it has is not known yet.
        assert_eq!(fields(output), ["output.min_free", "output.layout", "output.store"]);
        assert_eq!(fields("[poll]\nmin = \"20s\"\nmax = 3\n"), ["poll.max"]);
        assert_eq!(fields("[poll]\nmin = \"0s\"\nmax = 3\n"), ["poll.min", "poll.max"]);
        let schedule = "[[schedule]]\nname = \"n/n\"\ncron = \"soon\"\nmanifest = \"a.csv\"\ntimezone = \"Mars\"\n\
                        missed_max = 0\nbudget = \"much\"\n";
        let all = ["name", "cron", "timezone", "missed_max", "budget"].map(|key| format!("schedule.{key}"));
        assert_eq!(fields(schedule), all);
        let of_inbox = "[[inbox]]\nname = \"a\"\n[budget.by.inbox.values]\na = 3\n";
        assert_eq!(fields(of_inbox), ["inbox"], "its name may be right");
        // A key that is misspelt may be what another one needs.
        for text in [
            "[control]\nhttp = \"0.0.0.0:80\"\ntoken_fiel = \"x\"\n",
            "[output]\nkeep_local = false\nstoer = \"s3://b/p\"\n",
            "[hooks]\nwebook = \"http://x\"\nwebhook_secret_file = \"x\"\n",
            "[poll]\nmin = \"20s\"\nmx = \"1m\"\n",
            "[[inbox]]\npath = \"a b\"\nnam = \"acme\"\n",
        ] {
            let said = error(text);
            assert!(said.contains("unknown key") && said.lines().count() == 1, "{said}");
        }
        // The second is not told at the line of the first.
        let tables =
            "[[schedule]]\nname = \"a\"\n[[schedule]]\nname = \"b\"\ncron = \"soon\"\nmanifest = \"b\"\n";
        assert_eq!(fields(tables), ["schedule"]);
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
            "callsheet.toml:2: poll.min: \"soon\" is not a duration; write it as 10s, 30m or 24h"
        );
        assert_eq!(
            error("[output]\nmax_file = \"8 elephants\"\n"),
            "callsheet.toml:2: output.max_file: found \"8 elephants\", expected a size such as \"500 MB\", \"8 GiB\" or a \
             number of bytes"
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
            "callsheet.toml:2: output.allow_hosts: \"http://cdn.example\" is not a host; write media.example, *.media.example, 10.1.2.3 \
             or 10.1.0.0/16, without a port"
        );
        let two = error("[output]\nallow_hosts = [\"http://a\", \"b.example\",\n  \"10.1.2.3/99\"]");
        assert!(two.contains("\"http://a\" or \"10.1.2.3/99\" is not a host; write"), "{two}");
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
             callsheet.toml:8: inbox: missing field `path`\n\
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
        // What could be read is checked, too, but not against what could not.
        assert_eq!(
            error(
                "[limits]\nin_flight = \"many\"\ndownloads = 0\n[poll]\nmin = \"1m\"\n[output]\nstore = \"/tmp/x\"\nkeep_local = \
                 false\n[log]\nlevel = \"loud\"\n[retry]\nattempts = 0\nbase = \"soon\"\n"
            )
            .lines()
            .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": "))
            .collect::<Vec<_>>(),
            [
                "callsheet.toml:2: limits.in_flight",
                "callsheet.toml:3: limits.downloads",
                "callsheet.toml:5: poll.min",
                "callsheet.toml:7: output.store",
                "callsheet.toml:10: log.level",
                "callsheet.toml:12: retry.attempts",
                "callsheet.toml:13: retry.base",
            ]
        );
        assert_eq!(
            error("[output]\nstore = \"/tmp/x\"\n[inputs]\nstore = \"bucket\"\n"),
            "callsheet.toml:2: output.store: found \"/tmp/x\", expected an object store such as s3://bucket/prefix, gs://… or \
             az://…, or a folder as file:///path/of/folder\n\
             callsheet.toml:4: inputs.store: found \"bucket\", expected an object store such as s3://bucket/prefix, gs://… or \
             az://…"
        );
        let broken = error("[limits]\nin_flight = \n[budget\ntotal = 5\n");
        assert!(broken.starts_with("callsheet.toml:2: "), "{broken}");
        assert_eq!(
            error("[service]\nbase_url = \"x\"\nplan = \"gold\"\n[retry]\nbase = \"soon\"\n"),
            "callsheet.toml:2: service.base_url: found \"x\", expected an address such as https://service.example\n\
             callsheet.toml:3: service.plan: unknown value `gold`, expected one of `none`, `pro`, `ultra`\n\
             callsheet.toml:5: retry.base: \"soon\" is not a duration; write it as 10s, 30m or 24h"
        );
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
            "callsheet.toml:2: service.plan: unknown value `ulrta`: did you mean `ultra`?"
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
        std::fs::write(dir.path().join("api-key"), "\n").unwrap();
        let empty = config.api_key(None, Some(dir.path().to_owned())).unwrap_err().to_string();
        assert!(empty.starts_with("the systemd credential api-key: "), "{empty}");
    }
}
