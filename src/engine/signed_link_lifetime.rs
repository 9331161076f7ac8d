//! Presigned links: how long those to uploaded inputs are valid, and whether the store's credentials let them: a link has to outlive the
//! deadline of its job.

use std::time::Duration;

use crate::domain::time::{Millis, Timestamp};
use crate::object_storage::CredentialLife;

/// What a link lives longer than the deadline of its job.
const BEYOND_DEADLINE: Millis = Millis::from_secs(3600);

/// How long a link is valid whose job has its deadline so far off.
pub(super) fn lifetime(until_deadline: Millis) -> Duration {
    Duration::from_millis(until_deadline.0.saturating_add(BEYOND_DEADLINE.0))
}

/// Whether links live as long as they have to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkLife {
    LongEnough,
    /// Not before the credentials are renewed, which happens by itself.
    UntilRenewed(String),
    TooShort(String),
}

/// Whether links that are signed at `now` with such credentials are valid for as long as `needed`.
pub(super) fn link_life(credentials: CredentialLife, needed: Millis, now: Timestamp) -> LinkLife {
    let span = |span: Millis| humantime::format_duration(Duration::from_secs(span.0 / 1000)).to_string();
    match credentials {
        CredentialLife::Lasting => LinkLife::LongEnough,
        CredentialLife::EachLink(life) if life >= needed => LinkLife::LongEnough,
        CredentialLife::EachLink(life) => LinkLife::TooShort(format!(
            "links that the store signs for an account without its key are valid for {}; the deadline is {} off; use the key \
             file of the account, or an earlier deadline, then retry",
            span(life),
            span(needed)
        )),
        CredentialLife::Until { end, .. } if end.since(now) >= needed => LinkLife::LongEnough,
        CredentialLife::Until { end, renewed_for } => {
            let left = span(end.since(now));
            let why = format!(
                "the store's credentials expire in {left}, and signed links with them; the deadline is in {}",
                span(needed)
            );
            match renewed_for {
                Some(life) if life >= needed => LinkLife::UntilRenewed(format!("{why}; they are renewed before")),
                _ => LinkLife::TooShort(format!(
                    "{why}; use credentials that live longer, or an earlier deadline, then retry"
                )),
            }
        }
        CredentialLife::Unknown => LinkLife::TooShort(
            "the store's credentials are temporary and expire at an unknown time, and signed links with them; set \
             AWS_CREDENTIAL_EXPIRATION, or use permanent credentials, then retry"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_to_outlive_the_deadline() {
        let hour = Millis::from_secs(3600);
        let (now, soon) = (Timestamp(1_000), Timestamp(1_000).after(hour));
        let life = |end, renewed_for| link_life(CredentialLife::Until { end, renewed_for }, hour, now);
        assert_eq!(link_life(CredentialLife::Lasting, hour, now), LinkLife::LongEnough);
        assert_eq!(link_life(CredentialLife::EachLink(hour), hour, now), LinkLife::LongEnough);
        let too_short = link_life(CredentialLife::EachLink(Millis::from_secs(60)), hour, now);
        assert!(matches!(too_short, LinkLife::TooShort(_)));
        assert_eq!(life(soon, None), LinkLife::LongEnough);
        let early = soon.before(Some(Millis(1)));
        assert!(matches!(life(early, None), LinkLife::TooShort(why) if why.contains("expire in 59m 59s")));
        assert!(matches!(life(early, Some(hour)), LinkLife::UntilRenewed(_)));
        assert!(matches!(life(early, Some(Millis(1))), LinkLife::TooShort(_)));
        assert!(matches!(link_life(CredentialLife::Unknown, hour, now), LinkLife::TooShort(_)));
    }
}
