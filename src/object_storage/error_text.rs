//! What a store says, in words that a person can act on.

use object_store::Error;
use object_store::client::HttpError;

/// Codes of refusals that are not about what is asked but about who asks: nothing at all is done for him.
const REFUSES_WHO_ASKS: [&str; 16] = [
    "AccountIsDisabled",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidToken",
    "NotSignedUp",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
];

/// The error code in what a store said, `NoSuchBucket` for one.
pub(super) fn code_of(error: &Error) -> Option<String> {
    let text = whole_text(error);
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    Some(code.trim().to_owned())
}

/// Whether the bucket itself is missing.
pub(super) fn is_bucket_missing(error: &Error) -> bool {
    let code = code_of(error);
    matches!(code.as_deref(), Some("NoSuchBucket" | "ContainerNotFound" | "ContainerBeingDeleted"))
        || whole_text(error).contains("The specified bucket does not exist")
}

/// Whether a store that knows the bucket and the credentials denied what was asked. A refusal without a code may be that of
/// something before the store.
pub(super) fn is_there_but_denied(error: &Error) -> bool {
    let denied = matches!(error, Error::PermissionDenied { .. });
    let code = code_of(error).filter(|_| denied && !is_bucket_missing(error));
    code.is_some_and(|code| !REFUSES_WHO_ASKS.contains(&code.as_str()))
}

/// Whether the store has no room for anything more.
pub(super) fn is_full(error: &Error) -> bool {
    let code = code_of(error).unwrap_or_default();
    ["Quota", "StorageFull", "InsufficientCapacity", "InsufficientStorage"]
        .iter()
        .any(|sign| code.contains(sign))
        || whole_text(error).contains("507 Insufficient Storage")
}

/// Whether the store answered nothing: the connection was not made, broke off, or was silent for too long.
pub(super) fn is_cut(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<HttpError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Whether an object is there whose metadata are not ASCII: others wrote them, or an older version that wrote the name of a
/// batch as it was.
pub(super) fn is_metadata_unreadable(error: &Error) -> bool {
    whole_text(error).contains("contained non UTF-8 characters")
}

/// What a store says, with what to do about it where that is known.
pub(super) fn explained(error: &Error) -> String {
    let code = code_of(error);
    let known = match code.as_deref() {
        Some("RequestTimeTooSkewed") => {
            "the store refuses the credentials, since this machine's clock differs too much from its own; synchronize \
             it: timedatectl set-ntp true"
        }
        Some("ExpiredToken" | "TokenRefreshRequired") => {
            "the store refuses the credentials: they have expired; renew them"
        }
        Some("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "AuthenticationFailed") => {
            "the store refuses the credentials: they are wrong or belong to another store; see docs/inputs.md"
        }
        _ if is_bucket_missing(error) => "there is no such bucket",
        _ => match error {
            Error::Unauthenticated { .. } => {
                "the store does not accept the credentials; see those of the environment"
            }
            Error::PermissionDenied { .. } => {
                "the store refuses the credentials, or they may not do that there; see docs/inputs.md"
            }
            other => return whole_text(other),
        },
    };
    known.to_owned()
}

/// An error with its causes.
fn whole_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(said: &str) -> Error {
        Error::PermissionDenied { path: "a".to_owned(), source: said.to_owned().into() }
    }

    #[test]
    fn the_code_of_the_store_decides_what_is_advised() {
        let body = |code: &str| format!("403 Forbidden: <?xml?><Error><Code>{code}</Code></Error>");
        for (code, advice) in [
            ("RequestTimeTooSkewed", "clock"),
            ("ExpiredToken", "expired"),
            ("SignatureDoesNotMatch", "are wrong"),
            ("AccessDenied", "may not do that"),
        ] {
            let error = denied(&body(code));
            assert_eq!(code_of(&error).as_deref(), Some(code));
            assert!(explained(&error).contains(advice), "{code}: {}", explained(&error));
        }
        for (code, is_there) in [
            ("AccessDenied", true),
            ("AuthorizationPermissionMismatch", true),
            ("AuthorizationFailure", false),
            ("InvalidAccessKeyId", false),
            ("SignatureDoesNotMatch", false),
            ("ExpiredToken", false),
            ("NoSuchBucket", false),
        ] {
            assert_eq!(is_there_but_denied(&denied(&body(code))), is_there, "{code}");
        }
        assert!(!is_there_but_denied(&denied("403 Forbidden: <html>a proxy</html>")));
        let gone = Error::NotFound { path: "a".to_owned(), source: body("NoSuchBucket").into() };
        assert!(is_bucket_missing(&gone) && explained(&gone) == "there is no such bucket");
        let missing = Error::NotFound { path: "a".to_owned(), source: body("NoSuchKey").into() };
        assert!(!is_bucket_missing(&missing));
    }
}
