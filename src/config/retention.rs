//! `[retention]`: how long finished batches are listed.

use serde::{Deserialize, Deserializer};

use super::span::{Span, secs};

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
        RetentionConfig { list_finished_for: Some(secs(30 * 24 * 3600)) }
    }
}

fn span_or_forever<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "forever" {
        return Ok(None);
    }
    Span::parse(&text).map(Some).map_err(|error| serde::de::Error::custom(format!("{error}, or forever")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use crate::domain::time::Millis;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("callsheet.toml")).unwrap_err().to_string()
    }

    #[test]
    fn finished_batches_are_listed_for_a_span_or_forever() {
        let after = |text: &str| Config::parse(text, Path::new("x")).unwrap().retention.list_finished_for;
        assert_eq!(after(""), Some(Span(Millis::from_secs(2_592_000))));
        assert_eq!(after("[retention]\nlist_finished_for = \"7d\""), Some(Span(Millis::from_secs(604_800))));
        assert_eq!(after("[retention]\nlist_finished_for = \"forever\""), None);
        assert_eq!(
            error("[retention]\nlist_finished_for = \"soon\""),
            "callsheet.toml:2: retention.list_finished_for: \"soon\" is not a duration; write it as 10s, 30m or 24h, or forever"
        );
    }
}
