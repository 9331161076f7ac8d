//! `[output]`: where outputs go, and how they are laid out.

use bytesize::ByteSize;
use serde::{Deserialize, Deserializer};
use url::Url;

use crate::config::size::size;
use crate::domain::url_policy::{AllowedHost, allowed_hosts};
use crate::output::file_names;
use crate::output::{CsvDialect, OutputOptions, SidecarPlace};

/// `[output]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutputConfig {
    /// Layout of the names of output files.
    pub layout: String,
    /// Where new sidecars are put.
    pub sidecars: SidecarPlace,
    /// Who `results.csv` is written for.
    pub results_csv: CsvDialect,
    /// Whether each batch leaves a page to look at.
    pub gallery: bool,
    /// The object store that outputs are put into besides: `s3://bucket/prefix`, `gs://…` or `az://…`.
    pub store: Option<Url>,
    /// Whether outputs stay on disk when they are in the store.
    pub keep_local: bool,
    /// Room on disk for outputs on their way into the store, where they do not stay.
    #[serde(deserialize_with = "size")]
    pub scratch_max: ByteSize,
    /// Largest output that is downloaded.
    #[serde(deserialize_with = "size")]
    pub max_file: ByteSize,
    /// Free space that is kept on the output disk.
    #[serde(deserialize_with = "size")]
    pub min_free: ByteSize,
    /// Hosts that result links may lead to although their addresses are not public, or over http.
    #[serde(deserialize_with = "hosts")]
    pub allow_hosts: Vec<AllowedHost>,
}

impl Default for OutputConfig {
    fn default() -> OutputConfig {
        OutputConfig {
            layout: file_names::DEFAULT.to_owned(),
            sidecars: SidecarPlace::default(),
            results_csv: CsvDialect::default(),
            gallery: true,
            store: None,
            keep_local: true,
            scratch_max: ByteSize::gib(16),
            max_file: ByteSize::gib(8),
            min_free: ByteSize::gib(1),
            allow_hosts: Vec::new(),
        }
    }
}

impl OutputConfig {
    /// How outputs and results are laid out.
    pub fn options(&self) -> OutputOptions {
        OutputOptions { sidecars: self.sidecars, results_csv: self.results_csv, gallery: self.gallery }
    }
}

/// Reads hosts, and names all that are none.
fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AllowedHost>, D::Error> {
    allowed_hosts(&Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// What is wrong with the address of an object store, as far as the address alone tells.
pub(super) fn store_mistake(url: &Url) -> Option<&'static str> {
    match url.scheme() {
        _ if url.fragment().is_some() => Some("write # as %23, and % as %25"),
        "file" if url.to_file_path().is_err() => {
            Some("must name a folder of this machine: file:///path/of/folder")
        }
        "file" => None,
        "s3" | "gs" | "az" if url.host_str().is_none_or(str::is_empty) => {
            Some("has no bucket; write it as s3://bucket/prefix")
        }
        "s3" | "gs" | "az"
            if !url.username().is_empty() || url.password().is_some() || url.query().is_some() =>
        {
            Some("holds more than a bucket and a prefix; credentials come from the environment")
        }
        "s3" | "gs" | "az" => None,
        _ => Some("must begin with s3://, gs://, az:// or file:///"),
    }
}

/// Whether one of two addresses of object stores holds the other, so that their objects could have the same names.
pub(super) fn is_same_or_below(one: &Url, other: &Url) -> bool {
    let names = |url: &Url| {
        let parts = url.path().split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        parts.collect::<Vec<String>>()
    };
    let (one_names, other_names) = (names(one), names(other));
    let is_same_bucket = (one.scheme(), one.host_str()) == (other.scheme(), other.host_str());
    is_same_bucket && (one_names.starts_with(&other_names) || other_names.starts_with(&one_names))
}
