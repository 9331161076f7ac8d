//! Variables of the environment that the crate puts into addresses and headers as they are. What it cannot use there ends
//! the process, in the middle of a run; it is refused before. An empty one counts as not set.

use std::str::FromStr;

use url::Url;

use crate::domain::url_policy::is_loopback;
use crate::object_storage::Environment;

/// What a variable holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// The address of the store.
    Endpoint,
    /// The address of what gives credentials.
    Url,
    /// The path of one.
    UrlPath,
    /// A region or an account.
    Name,
    /// What is sent in a header, and never shown.
    Token,
    /// What is neither sent nor shown.
    Secret,
}

/// Those of endpoints come first, in the order in which one wins.
const AMAZON: [(&str, Holds); 13] = [
    ("AWS_ENDPOINT_URL_S3", Holds::Endpoint),
    ("AWS_ENDPOINT_URL", Holds::Endpoint),
    ("AWS_ENDPOINT", Holds::Endpoint),
    ("AWS_ENDPOINT_URL_STS", Holds::Url),
    ("AWS_METADATA_ENDPOINT", Holds::Url),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", Holds::Url),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", Holds::UrlPath),
    ("AWS_REGION", Holds::Name),
    ("AWS_DEFAULT_REGION", Holds::Name),
    ("AWS_ACCESS_KEY_ID", Holds::Token),
    ("AWS_SECRET_ACCESS_KEY", Holds::Secret),
    ("AWS_SESSION_TOKEN", Holds::Token),
    ("AWS_TOKEN", Holds::Token),
];

const GOOGLE: [(&str, Holds); 2] =
    [("GOOGLE_BASE_URL", Holds::Endpoint), ("GOOGLE_BEARER_TOKEN", Holds::Token)];

const AZURE: [(&str, Holds); 11] = [
    ("AZURE_STORAGE_ENDPOINT", Holds::Endpoint),
    ("AZURE_ENDPOINT", Holds::Endpoint),
    ("AZURITE_BLOB_STORAGE_URL", Holds::Url),
    ("AZURE_STORAGE_AUTHORITY_HOST", Holds::Url),
    ("AZURE_AUTHORITY_HOST", Holds::Url),
    ("AZURE_MSI_ENDPOINT", Holds::Url),
    ("AZURE_IDENTITY_ENDPOINT", Holds::Url),
    ("IDENTITY_ENDPOINT", Holds::Url),
    ("AZURE_STORAGE_ACCOUNT_NAME", Holds::Name),
    ("AZURE_STORAGE_ACCOUNT_KEY", Holds::Secret),
    ("AZURE_STORAGE_TOKEN", Holds::Token),
];

/// The variables with this prefix that are set, as the crate's builders take them.
pub(super) fn set_variables<K: FromStr>(prefix: &str) -> impl Iterator<Item = (K, String)> {
    std::env::vars_os().filter_map(move |(name, value)| {
        let name = name.to_str().filter(|name| name.starts_with(prefix))?;
        let value = value.to_str().filter(|value| !value.is_empty())?;
        Some((name.to_ascii_lowercase().parse().ok()?, value.to_owned()))
    })
}

/// Checks the variables that a store of this scheme takes: of several endpoints the one that is used.
///
/// # Errors
/// The first variable that cannot be used, and what would be accepted. No secret is in it.
pub(super) fn check_environment(scheme: &str, environment: Environment<'_>) -> Result<(), String> {
    let variables = match scheme {
        "s3" => AMAZON.as_slice(),
        "gs" => GOOGLE.as_slice(),
        "az" => AZURE.as_slice(),
        _ => &[],
    };
    let is_set = |name: &str| environment(name).is_some_and(|value| !value.is_empty());
    // Nobody else is asked for credentials then.
    let has_keys = scheme == "s3" && (is_set("AWS_ACCESS_KEY_ID") || is_set("AWS_SECRET_ACCESS_KEY"));
    let mut has_endpoint = false;
    for (name, holds) in variables {
        let Some(value) = environment(name).filter(|value| !value.is_empty()) else { continue };
        match holds {
            Holds::Endpoint if std::mem::replace(&mut has_endpoint, true) => {}
            Holds::Endpoint => check_endpoint(name, &value)?,
            Holds::Url | Holds::UrlPath if has_keys => {}
            Holds::Url => check_url(name, &value).map(drop)?,
            Holds::UrlPath if value.starts_with('/') && is_graphic(&value) => {}
            Holds::UrlPath => {
                return Err(format!(
                    "{name}: {value:?} is no path; one is accepted as in /v2/credentials/ID"
                ));
            }
            Holds::Name => check_name(name, &value)?,
            Holds::Token | Holds::Secret => check_secret(name, &value, *holds)?,
        }
    }
    Ok(())
}

/// Checks the address of a store that a variable or a profile gives.
///
/// # Errors
/// It is none, or leads to another machine without TLS.
pub(super) fn check_endpoint(name: &str, value: &str) -> Result<(), String> {
    let url = check_url(name, value)?;
    let is_as_written = value.trim_end_matches('/').ends_with(url.path().trim_end_matches('/'));
    if url.query().is_some() || url.fragment().is_some() || !is_as_written {
        return Err(format!(
            "{name}: {value:?} holds more than a host and a plain path; accepted is {}",
            url.origin().ascii_serialization()
        ));
    }
    if url.scheme() != "https" && !is_loopback(&url) {
        return Err(format!(
            "{name}: {value:?}: a store that is not on this machine is only used with TLS; accepted is https://{}",
            url.authority()
        ));
    }
    Ok(())
}

/// Checks a region or the name of an account. An empty one stands for none.
///
/// # Errors
/// It holds what no such name has.
pub(super) fn check_name(name: &str, value: &str) -> Result<(), String> {
    match value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        true => Ok(()),
        false => Err(format!(
            "{name}: {value:?}: letters, digits, \"-\", \"_\" and \".\" are accepted, and no blank or line break"
        )),
    }
}

fn check_url(name: &str, value: &str) -> Result<Url, String> {
    let accepted = "an address is accepted, as in https://store.example";
    if value.is_empty() {
        return Err(format!("{name} is empty; {accepted}; to go without: unset {name}"));
    }
    let url = Url::parse(value).ok().filter(|_| is_graphic(value));
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    match url {
        Some(url) if url.username().is_empty() && url.password().is_none() => Ok(url),
        None if !value.contains('@') => Err(format!("{name}: {value:?} is no address; {accepted}")),
        // What it holds may be a password.
        _ => Err(format!("{name} is no address without a user; {accepted}")),
    }
}

fn check_secret(name: &str, value: &str, holds: Holds) -> Result<(), String> {
    let is_plain = value == value.trim() && !value.chars().any(char::is_control);
    match is_plain && (holds == Holds::Secret || value.is_ascii()) {
        true => Ok(()),
        false => Err(format!(
            "{name} begins or ends with a blank or a line break, or holds one that cannot be sent; set it without: \
             export {name}=\"$(printf %s \"${name}\" | tr -d '[:space:]')\""
        )),
    }
}

fn is_graphic(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(scheme: &str, name: &str, value: &str) -> Result<(), String> {
        check_environment(scheme, &|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn what_would_end_the_process_in_an_address_or_a_header_is_refused_by_the_name_of_its_variable() {
        for (scheme, name, value) in [
            ("s3", "AWS_ENDPOINT_URL", "minio:9000"),
            ("s3", "AWS_ENDPOINT", "127.0.0.1:9000"),
            ("s3", "AWS_ENDPOINT_URL_S3", "https://store.example\n"),
            ("s3", "AWS_ENDPOINT_URL", "https://store.example/a b"),
            ("s3", "AWS_ENDPOINT_URL", "https://store.example/{a}"),
            ("s3", "AWS_ENDPOINT_URL", "https://store.example?a"),
            ("s3", "AWS_ENDPOINT_URL", "http://minio:9000"),
            ("s3", "AWS_ENDPOINT_URL_STS", "sts.example"),
            ("s3", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "a\n"),
            ("s3", "AWS_REGION", "us-east-1\n"),
            ("s3", "AWS_DEFAULT_REGION", "us east"),
            ("s3", "AWS_ACCESS_KEY_ID", "AKID\n"),
            ("s3", "AWS_SECRET_ACCESS_KEY", "hidden\n"),
            ("s3", "AWS_SESSION_TOKEN", "hid\rden"),
            ("gs", "GOOGLE_BASE_URL", "storage.example"),
            ("gs", "GOOGLE_BEARER_TOKEN", "hidden\n"),
            ("az", "AZURE_STORAGE_ENDPOINT", "localhost:10000"),
            ("az", "AZURE_STORAGE_ACCOUNT_NAME", "account\n"),
        ] {
            let refused = checked(scheme, name, value).unwrap_err();
            assert!(
                refused.starts_with(name) && refused.contains("accepted") | refused.contains("set it"),
                "{refused}"
            );
            assert!(!refused.contains("hid"), "no secret is shown: {refused}");
        }
        let refused = checked("s3", "AWS_ENDPOINT_URL", "https://me:hidden@store.example").unwrap_err();
        assert!(refused.contains("AWS_ENDPOINT_URL") && !refused.contains("hidden"), "{refused}");
    }

    #[test]
    fn what_stores_are_used_with_is_accepted() {
        for (scheme, name, value) in [
            ("s3", "AWS_ENDPOINT_URL", "http://127.0.0.1:9000"),
            ("s3", "AWS_ENDPOINT_URL", "http://localhost:9000/"),
            ("s3", "AWS_ENDPOINT_URL", "HTTPS://Store.example:443/s3/"),
            ("s3", "AWS_METADATA_ENDPOINT", "http://169.254.169.254"),
            ("s3", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/a?b=c"),
            ("s3", "AWS_REGION", "eu-central-1"),
            ("s3", "AWS_REGION", ""),
            ("s3", "AWS_ENDPOINT_URL", ""),
            ("s3", "AWS_ENDPOINT_URL_STS", ""),
            ("s3", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ""),
            ("gs", "GOOGLE_BASE_URL", ""),
            ("az", "IDENTITY_ENDPOINT", ""),
            ("s3", "AWS_SECRET_ACCESS_KEY", "a/b+c=d é"),
            ("gs", "GOOGLE_BASE_URL", "http://[::1]:4443"),
            ("az", "AWS_ENDPOINT_URL", "minio:9000"),
            ("az", "AZURITE_BLOB_STORAGE_URL", "http://azurite:10000"),
        ] {
            assert_eq!(checked(scheme, name, value), Ok(()), "{name}={value}");
        }
    }
    #[test]
    fn only_what_is_used_is_checked() {
        let with = |set: &[(&str, &str)]| {
            let value = |asked: &str| Some(set.iter().find(|(name, _)| *name == asked)?.1.to_owned());
            check_environment("s3", &value)
        };
        let (of_s3, of_all) = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
        assert_eq!(with(&[(of_s3, "https://store.example"), (of_all, "http://localstack:4566")]), Ok(()));
        assert_eq!(with(&[(of_all, "https://store.example"), ("AWS_ENDPOINT", "minio:9000")]), Ok(()));
        let refused = with(&[(of_s3, ""), (of_all, "http://localstack:4566")]).unwrap_err();
        assert!(refused.starts_with("AWS_ENDPOINT_URL:"), "{refused}");
        let keys = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_ENDPOINT_URL_STS", "sts.example")];
        assert_eq!(with(&keys), Ok(()));
        assert!(with(&keys[1..]).is_err());
    }
}
