//! Where manifests come from, and so whose a batch is.
//!
//! Two folders may each hold a `jobs.csv`. Both would make a batch called `jobs`, and the second would lift the
//! first one's budget and buy what waits there. So a batch belongs to the source that it was begun from.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a manifest lies, or comes in.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourcePlace {
    /// A folder, by its absolute path without links.
    Folder(String),
    /// An `[[inbox]]` of the configuration, by its name.
    Inbox(String),
    /// A `[[schedule]]` of the configuration, by its name.
    Schedule(String),
    /// The control socket, from a client that names no folder, or standard input.
    #[default]
    Socket,
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourcePlace::Folder(folder) => f.write_str(folder),
            SourcePlace::Inbox(name) => write!(f, "the inbox {name}"),
            SourcePlace::Schedule(name) => write!(f, "the schedule {name}"),
            SourcePlace::Socket => f.write_str("the control socket"),
        }
    }
}

/// A source whose batches every other source may name, as the configuration writes it: `inbox:NAME`, `schedule:NAME`,
/// `socket`, or the absolute path of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SharedSource(pub SourcePlace);

impl TryFrom<String> for SharedSource {
    type Error = String;

    fn try_from(text: String) -> Result<SharedSource, String> {
        let named =
            |prefix: &str| text.strip_prefix(prefix).filter(|name| !name.is_empty()).map(str::to_owned);
        let place = if text == "socket" {
            Some(SourcePlace::Socket)
        } else if let Some(name) = named("inbox:") {
            Some(SourcePlace::Inbox(name))
        } else if let Some(name) = named("schedule:") {
            Some(SourcePlace::Schedule(name))
        } else {
            text.starts_with('/').then(|| SourcePlace::Folder(text.clone()))
        };
        place.map(SharedSource).ok_or_else(|| {
            format!("found \"{text}\"; inbox:NAME, schedule:NAME, socket, or the absolute path of a folder is accepted")
        })
    }
}

/// The source of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Where its manifest came from.
    pub place: SourcePlace,
    /// The manifest's file name without its extension, where the batch is called after it. Several names can be
    /// mapped to one batch name: `$(x y).csv` and `;x y;.csv` would both be `x-y`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stem: Option<String>,
}

impl Origin {
    /// Whether a manifest from `other` belongs to a batch that was begun from here.
    pub fn covers(&self, other: &Origin) -> bool {
        let is_same_stem = match (&self.stem, &other.stem) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        self.place == other.place && is_same_stem
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stem {
            Some(stem) => write!(f, "{} ({stem})", self.place),
            None => self.place.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(place: &SourcePlace, stem: Option<&str>) -> Origin {
        Origin { place: place.clone(), stem: stem.map(str::to_owned) }
    }

    #[test]
    fn a_batch_belongs_to_one_place_and_one_file_name() {
        let [ca, cb] = ["/ca", "/cb"].map(|folder| SourcePlace::Folder(folder.to_owned()));
        let jobs = origin(&ca, Some("jobs"));
        assert!(jobs.covers(&origin(&ca, Some("jobs"))));
        assert!(jobs.covers(&origin(&ca, None)), "a manifest that names its batch");
        assert!(!jobs.covers(&origin(&cb, Some("jobs"))));
        assert!(!jobs.covers(&origin(&cb, None)));
        assert!(!jobs.covers(&origin(&SourcePlace::Inbox("ca".into()), Some("jobs"))));
        assert!(!origin(&ca, Some("$(x y)")).covers(&origin(&ca, Some(";x y;"))), "both are called x-y");
    }

    #[test]
    fn shared_sources_as_the_configuration_writes_them() {
        let read = |text: &str| SharedSource::try_from(text.to_owned()).map(|shared| shared.0.to_string());
        for (text, shown) in [
            ("inbox:acme", "the inbox acme"),
            ("schedule:nightly", "the schedule nightly"),
            ("socket", "the control socket"),
            ("/srv/stills", "/srv/stills"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(shown));
        }
        for bad in ["", "stills", "inbox:", "schedule:", "*", "./stills"] {
            assert!(read(bad).unwrap_err().contains("inbox:NAME, schedule:NAME, socket"), "{bad}");
        }
    }

    #[test]
    fn it_reads_back_as_it_was_written() {
        let places = [
            SourcePlace::Folder("/a".into()),
            SourcePlace::Inbox("a".into()),
            SourcePlace::Schedule("a".into()),
            SourcePlace::Socket,
        ];
        for place in places {
            for stem in [None, Some("x")] {
                let written = serde_json::to_string(&origin(&place, stem)).unwrap();
                assert_eq!(serde_json::from_str::<Origin>(&written).unwrap(), origin(&place, stem));
            }
        }
    }
}
