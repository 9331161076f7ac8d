//! Credentials of Amazon's protocol: those of profile files, and until when temporary ones are valid.
//!
//! The crate reads the environment, tokens of workload identity and the metadata of machines and containers. It reads no
//! profile files, and does not say when what it was given ends: a link that is signed with temporary credentials ends with
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::DateTime;
use object_store::aws::AwsCredential;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, CredentialProvider};

use crate::clock::Clock;
use crate::domain::time::{Millis, Timestamp};
use crate::object_storage::Environment;
use crate::object_storage::transfer_limits::{LimitedConnector, TransferLimits};

/// Hosts that give credentials to machines and containers.
const METADATA_HOSTS: [&str; 3] = ["169.254.169.254", "169.254.170.2", "169.254.170.23"];
/// Names under which tools write the end of temporary credentials into profile files.
const END_NAMES: [&str; 3] = ["aws_expiration", "x_security_token_expires", "expiration"];
/// What profiles have that take their credentials from elsewhere.
const ELSEWHERE: [&str; 5] =
    ["sso_session", "sso_start_url", "role_arn", "credential_process", "web_identity_token_file"];

/// How long credentials are valid, and with them the links that they sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialLife {
    /// No end is set: a link is valid for as long as it is signed for.
    Lasting,
    /// They end then. `renewed_for` is how long they are valid each time that they are renewed, where they are renewed by
    /// themselves.
    Until { end: Timestamp, renewed_for: Option<Millis> },
    /// They last, and each link that they sign is valid for so long.
    EachLink(Millis),
    /// They are temporary, and nothing says when they end.
    Unknown,
}

/// A moment as credentials name it: `2030-01-31T10:00:00Z`.
fn moment(text: &str) -> Option<Timestamp> {
    DateTime::parse_from_rfc3339(text.trim()).ok().map(|at| Timestamp(at.timestamp_millis()))
}

/// The end of temporary credentials that the environment has.
pub(super) fn end_in(environment: Environment<'_>) -> Option<Timestamp> {
    moment(&environment("AWS_CREDENTIAL_EXPIRATION")?)
}

/// A profile of `~/.aws/config` and `~/.aws/credentials`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Profile {
    name: String,
    values: BTreeMap<String, String>,
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where profiles are, and which is used.
#[derive(Debug, Clone)]
pub(super) struct ProfileFiles {
    name: String,
    is_named: bool,
    config: Option<PathBuf>,
    credentials: Option<PathBuf>,
}

impl ProfileFiles {
    /// As the environment says.
    pub(super) fn of(environment: Environment<'_>) -> ProfileFiles {
        let home = environment("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let file = |variable: &str, name: &str| {
            let named = environment(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
            named.or_else(|| Some(home.as_ref()?.join(".aws").join(name)))
        };
        let named = environment("AWS_PROFILE").filter(|name| !name.is_empty());
        ProfileFiles {
            is_named: named.is_some(),
            name: named.unwrap_or_else(|| "default".to_owned()),
            config: file("AWS_CONFIG_FILE", "config"),
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        }
    }

    /// The profile as its files say now; nothing where it is not there, and was not named.
    ///
    /// # Errors
    /// It was named and is not there, or takes its credentials from where they are not read.
    pub(super) fn read(&self) -> Result<Option<Profile>, String> {
        let name = &self.name;
        let mut found: Option<BTreeMap<String, String>> = None;
        let sections = [
            (&self.config, vec![format!("profile {name}"), name.clone()]),
            (&self.credentials, vec![name.clone()]),
        ];
        for (path, names) in sections {
            let Some(text) = path.as_deref().map(text_of).transpose()?.flatten() else { continue };
            // Only the profile called `default` goes without the word in `config`.
            let names = if names.len() > 1 && name != "default" { &names[..1] } else { &names[..] };
            if let Some(values) = section(&text, names) {
                found.get_or_insert_default().extend(values);
            }
        }
        let Some(values) = found else {
            let paths = [&self.config, &self.credentials].into_iter().flatten();
            let paths = paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(" nor in ");
            return match self.is_named {
                true => Err(format!("AWS_PROFILE names the profile {name}, which is neither in {paths}")),
                false => Ok(None),
            };
        };
        let profile = Profile { name: name.clone(), values };
        if profile.value("aws_access_key_id").is_none()
            && let Some(key) = ELSEWHERE.iter().find(|key| profile.value(key).is_some())
        {
            return Err(format!(
                "the profile {name} takes its credentials by {key}, which is not read here; give them by the \
                 environment: eval \"$(aws configure export-credentials --format env)\""
            ));
        }
        Ok(Some(profile))
    }
}

impl Profile {
    fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn region(&self) -> Option<&str> {
        self.value("region")
    }

    pub(super) fn endpoint(&self) -> Option<&str> {
        self.value("endpoint_url")
    }

    /// The credentials; nothing where it has none, but a region for one.
    pub(super) fn credential(&self) -> Result<Option<AwsCredential>, String> {
        match (self.value("aws_access_key_id"), self.value("aws_secret_access_key")) {
            (None, None) => Ok(None),
            (Some(key_id), Some(secret_key)) => {
                let token = self.value("aws_session_token").map(str::to_owned);
                let (key_id, secret_key) = (key_id.to_owned(), secret_key.to_owned());
                Ok(Some(AwsCredential { key_id, secret_key, token }))
            }
            _ => Err(format!(
                "the profile {} has only one of aws_access_key_id and aws_secret_access_key",
                self.name
            )),
        }
    }

    /// The end of its credentials, where a tool wrote one.
    fn end(&self) -> Option<Timestamp> {
        END_NAMES.iter().find_map(|name| moment(self.value(name)?))
    }
}

/// The content of a file; nothing where there is none.
fn text_of(path: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound) => Ok(None),
        // It says nothing of what is in it.
        Err(error) => Err(format!("failed to read {}: {error}", path.display())),
    }
}

/// The values of the section with one of these names, with keys in lower case.
fn section(text: &str, names: &[String]) -> Option<BTreeMap<String, String>> {
    let mut values: Option<BTreeMap<String, String>> = None;
    let mut is_inside = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(heading) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let heading = heading.0.split_whitespace().collect::<Vec<_>>().join(" ");
            is_inside = names.contains(&heading);
            if is_inside {
                values.get_or_insert_default();
            }
            continue;
        }
        // What is indented belongs to the value above.
        if !is_inside || line.starts_with([' ', '\t']) {
            continue;
        }
        let Some((key, value)) = trimmed.split_once('=') else { continue };
        let value = [" #", " ;", "\t#", "\t;"]
            .iter()
            .fold(value, |value, mark| value.split_once(mark).map_or(value, |(value, _)| value));
        values.get_or_insert_default().insert(key.trim().to_lowercase(), value.trim().to_owned());
    }
    values
}

/// The credentials of a profile, read anew each time: tools renew them in their files.
#[derive(Debug)]
pub(super) struct ProfileCredentials(pub(super) ProfileFiles);

impl ProfileCredentials {
    /// The end of the credentials that are in the files now.
    pub(super) fn end(&self) -> Option<Timestamp> {
        self.0.read().ok().flatten()?.end()
    }

    fn credential(&self) -> Result<Arc<AwsCredential>, String> {
        let profile = self.0.read()?.ok_or_else(|| format!("the profile {} is gone", self.0.name))?;
        let found = profile.credential()?;
        found.map(Arc::new).ok_or_else(|| format!("the profile {} has no credentials any more", self.0.name))
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl CredentialProvider for ProfileCredentials {
    type Credential = AwsCredential;

    fn get_credential<'s, 'a>(&'s self) -> Boxed<'a, object_store::Result<Arc<AwsCredential>>>
    where
        's: 'a,
        Self: 'a,
    {
        let found =
            self.credential().map_err(|why| object_store::Error::Generic { store: "S3", source: why.into() });
        Box::pin(std::future::ready(found))
    }
}

/// Makes the crate's HTTP clients, and notes when the credentials end that are given to this machine.
#[derive(Debug, Clone, Default)]
pub(super) struct CredentialWatch {
    /// Hosts that give credentials besides the usual ones.
    hosts: Vec<String>,
    seen: Arc<Mutex<Option<(Timestamp, Millis)>>>,
    limits: TransferLimits,
}

impl CredentialWatch {
    /// One for the hosts that the environment names.
    pub(super) fn of(environment: Environment<'_>, limits: TransferLimits) -> CredentialWatch {
        let named = ["AWS_METADATA_ENDPOINT", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_ENDPOINT_URL_STS"];
        let host = |name| url::Url::parse(&environment(name)?).ok()?.host_str().map(str::to_owned);
        let hosts = named.into_iter().filter_map(host).collect();
        CredentialWatch { hosts, seen: Arc::default(), limits }
    }

    /// When the credentials end that were given last, and how long they were valid when they were given.
    pub(super) fn seen(&self) -> Option<(Timestamp, Millis)> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, answer: &[u8]) {
        let Some(end) = str::from_utf8(answer).ok().and_then(end_in_answer) else { return };
        let life = end.since(Clock::start().now().wall);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((end, life));
    }

    fn gives_credentials(&self, host: &str) -> bool {
        METADATA_HOSTS.contains(&host)
            || host.starts_with("sts.")
            || self.hosts.iter().any(|known| known == host)
    }
}

/// The end that an answer with credentials names, in JSON or XML.
fn end_in_answer(answer: &str) -> Option<Timestamp> {
    let (_, rest) = answer.split_once("Expiration")?;
    let begin = rest.find(|c: char| c.is_ascii_digit())?;
    let rest = rest.get(begin..)?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || "TZtz:.+-".contains(c))).unwrap_or(rest.len());
    moment(rest.get(..end)?)
}

impl HttpConnector for CredentialWatch {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = LimitedConnector(self.limits).connect(options)?;
        Ok(HttpClient::new(WatchedClient { client, watch: self.clone() }))
    }
}

#[derive(Debug)]
struct WatchedClient {
    client: HttpClient,
    watch: CredentialWatch,
}

impl HttpService for WatchedClient {
    fn call<'s, 'a>(&'s self, request: HttpRequest) -> Boxed<'a, Result<HttpResponse, HttpError>>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let is_for_credentials =
                request.uri().host().is_some_and(|host| self.watch.gives_credentials(host));
            let response = self.client.execute(request).await?;
            if !is_for_credentials || !response.status().is_success() {
                return Ok(response);
            }
            let (head, body) = response.into_parts();
            let answer = body.bytes().await?;
            self.watch.note(&answer);
            Ok(HttpResponse::from_parts(head, HttpResponseBody::from(answer)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path, named: Option<&str>) -> ProfileFiles {
        let home = dir.display().to_string();
        ProfileFiles::of(&move |name| match name {
            "HOME" => Some(home.clone()),
            "AWS_PROFILE" => named.map(str::to_owned),
            _ => None,
        })
    }

    fn written(config: &str, credentials: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".aws")).unwrap();
        fs::write(dir.path().join(".aws/config"), config).unwrap();
        fs::write(dir.path().join(".aws/credentials"), credentials).unwrap();
        dir
    }

    #[test]
    fn a_profile_is_put_together_from_both_files() {
        let dir = written(
            "[default]\nregion = eu-central-1\n\n[profile work]\nregion=us-west-2 # far\ns3 =\n  max_concurrent_requests = 20\n\
             endpoint_url = http://127.0.0.1:9\n[work]\nregion = wrong\n",
            "# mine\n[default]\naws_access_key_id = AKID\naws_secret_access_key = a/b+c=d\n[ work ]\nAWS_ACCESS_KEY_ID=W\n\
             aws_secret_access_key=S\naws_session_token=T\naws_expiration = 2030-01-31T10:00:00Z\n",
        );
        let default = files(dir.path(), None).read().unwrap().unwrap();
        assert_eq!(default.region(), Some("eu-central-1"));
        let credential = default.credential().unwrap().unwrap();
        assert_eq!(
            (credential.secret_key.as_str(), credential.token, default.end()),
            ("a/b+c=d", None, None)
        );
        let work = files(dir.path(), Some("work")).read().unwrap().unwrap();
        assert_eq!((work.region(), work.endpoint()), (Some("us-west-2"), Some("http://127.0.0.1:9")));
        assert_eq!(work.credential().unwrap().unwrap().token.as_deref(), Some("T"));
        assert_eq!(work.end(), moment("2030-01-31T10:00:00+00:00"));
        assert!(!format!("{work:?}").contains('S'), "no secret is shown");
    }

    #[test]
    fn a_profile_that_is_missing_or_takes_its_credentials_from_elsewhere_is_refused() {
        let dir = written(
            "[profile sso]\nsso_session = a\n[default]\nregion = a\n",
            "[half]\naws_access_key_id = a\n",
        );
        assert!(files(dir.path(), Some("gone")).read().unwrap_err().contains("the profile gone"));
        assert!(files(dir.path(), Some("sso")).read().unwrap_err().contains("sso_session"));
        let half = files(dir.path(), Some("half")).read().unwrap().unwrap();
        assert!(half.credential().unwrap_err().contains("only one of"));
        let default = files(dir.path(), None).read().unwrap().unwrap();
        assert_eq!(default.credential().unwrap(), None, "a region, and no credentials");
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(files(nothing.path(), None).read().unwrap(), None);
    }

    #[test]
    fn the_end_of_credentials_is_read_from_what_gives_them() {
        let json = r#"{"AccessKeyId": "A", "Expiration" : "2030-01-31T10:00:00Z", "Token": "T"}"#;
        let xml = "<Credentials><Expiration>2030-01-31T10:00:00.000Z</Expiration></Credentials>";
        assert_eq!(end_in_answer(json), moment("2030-01-31T10:00:00Z"));
        assert_eq!(end_in_answer(xml), end_in_answer(json));
        assert_eq!(end_in_answer("a-role-name"), None);
    }
}
