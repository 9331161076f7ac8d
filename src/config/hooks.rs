//! `[hooks]`: who is told of batches that are done.

use std::fs;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

use super::error::ConfigError;
use super::read::Positions;
use crate::domain::diagnostic::Diagnostic;

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

    /// What could never work.
    pub(super) fn problems(&self, positions: &Positions<'_>) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        let mut wrong = |key: &str, message: &str| problems.push(positions.problem(key, 0, message));
        if self.batch_done.first().is_some_and(String::is_empty) {
            wrong("hooks.batch_done", "found an empty command; name a program first");
        }
        if let Some(url) = &self.webhook
            && !matches!(url.scheme(), "http" | "https")
        {
            wrong("hooks.webhook", &format!("found {:?}; http and https are accepted", url.scheme()));
        }
        if self.webhook.is_none() && self.webhook_secret_file.is_some() {
            wrong("hooks.webhook_secret_file", "hooks.webhook is not set");
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;
    use crate::config::Config;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("callsheet.toml")).unwrap_err().to_string()
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
}
