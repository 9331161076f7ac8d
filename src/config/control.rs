//! `[control]`: the control API over TCP.

use std::net::SocketAddr;
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};

use super::error::ConfigError;
use super::read::Positions;
use super::secret_in;
use crate::domain::diagnostic::Diagnostic;

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

impl ControlConfig {
    /// The bearer token of the control API over TCP.
    ///
    /// # Errors
    /// When its file cannot be read, or its text cannot be a header's value.
    pub fn token(&self) -> Result<Option<SecretString>, ConfigError> {
        let Some(path) = self.token_file.clone() else { return Ok(None) };
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

    /// An address that other machines reach, and no token.
    pub(super) fn problems(&self, positions: &Positions<'_>) -> Vec<Diagnostic> {
        let open = self.http.filter(|address| self.token_file.is_none() && !address.ip().is_loopback());
        let problem = open.map(|address| {
            let message = format!(
                "{address} can be reached from other machines; give control.token_file, or a loopback address"
            );
            positions.problem("control.http", 0, message)
        });
        problem.into_iter().collect()
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|_| {
        serde::de::Error::custom(format!(
            "found {text:?}; write an address and a port, as 127.0.0.1:8080 or [::1]:8080"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("callsheet.toml")).unwrap_err().to_string()
    }

    #[test]
    fn a_token_that_nobody_could_send_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let mut config = Config::default();
        config.control.token_file = Some(path.clone());
        for wrong in ["", " \n", "one\ntwo", "t\u{f6}ken"] {
            fs::write(&path, wrong).unwrap();
            let said = config.control.token().unwrap_err().to_string();
            assert!(said.starts_with("control.token_file: ") && said.contains("token"), "{said}");
            assert!(said.contains("one line of visible ASCII characters is accepted"), "{said}");
        }
        fs::write(&path, "let-me-in\n").unwrap();
        assert_eq!(config.control.token().unwrap().unwrap().expose_secret(), "let-me-in");
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
