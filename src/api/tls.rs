//! What is wrong with a TLS connection, in words that say whose certificate it is and what to do.

use std::error::Error;
use std::io;

use chrono::{DateTime, SecondsFormat};
use rustls::CertificateError;
use rustls::pki_types::UnixTime;

/// Most names of a certificate that are shown.
const NAMES_MAX: usize = 5;
/// Longest part of a name that is shown, in characters.
const NAME_MAX_CHARS: usize = 100;

/// What TLS says, however often it is wrapped: an I/O error does not name what it holds as its source.
pub(super) fn within<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(wrapped) => wrapped.get_ref().and_then(|held| within(held)),
        None => error.downcast_ref::<rustls::Error>(),
    }
}

/// Why there is no TLS connection to `host`, and what to do.
pub(super) fn message(error: &rustls::Error, host: &str) -> String {
    match error {
        rustls::Error::InvalidCertificate(fault) => of_certificate(fault, host),
        rustls::Error::AlertReceived(alert) => {
            format!("{host} refuses the TLS handshake ({alert:?}); see the host's name and port")
        }
        rustls::Error::PeerIncompatible(why) => {
            format!("{host} does not support TLS 1.2 or 1.3 ({why:?}); its operator has to update it")
        }
        other => {
            format!("{host} does not speak TLS there ({other}); check the scheme and the port of the address")
        }
    }
}

fn of_certificate(fault: &CertificateError, host: &str) -> String {
    let of = format!("the certificate of {host}");
    match fault {
        // The last two: it bears the name of an authority that is known here, and not its signature.
        CertificateError::UnknownIssuer
        | CertificateError::BadSignature
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => format!(
            "{of} is not trusted: it is self-signed, or its authority is unknown; add the authority to the system's \
             store (update-ca-certificates) if you trust it"
        ),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!(
                "{of} expired at {}; it has to be renewed, or this machine's clock is wrong",
                at(*not_after)
            )
        }
        CertificateError::Expired => {
            format!("{of} has expired; it has to be renewed, or this machine's clock is wrong")
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("{of} is valid from {} on; this machine's clock may be wrong", at(*not_before))
        }
        CertificateError::NotValidYet => format!("{of} is not valid yet; this machine's clock may be wrong"),
        CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            let names = presented.iter().take(NAMES_MAX).map(|name| bare(name)).collect::<Vec<_>>();
            format!("{of} is for other names ({}); see the name in the address", names.join(", "))
        }
        CertificateError::NotValidForNameContext { .. } | CertificateError::NotValidForName => {
            format!("{of} is for another name; see the name in the address")
        }
        CertificateError::Revoked => format!("{of} was revoked; the operator of the host has to renew it"),
        // A certificate of an authority that is used as the host's own: it vouches for itself.
        CertificateError::Other(other) => {
            format!("{of} is not trusted ({other}); the operator of the host has to renew it")
        }
        other => format!("{of} is not accepted ({other}); the operator of the host has to renew it"),
    }
}

/// The name alone of `DnsName("media.example")`, as much of it as belongs into a message.
fn bare(name: &str) -> String {
    let name = name.split('"').nth(1).unwrap_or(name);
    name.chars().take(NAME_MAX_CHARS).collect()
}

fn at(time: UnixTime) -> String {
    let instant = i64::try_from(time.as_secs()).ok().and_then(|secs| DateTime::from_timestamp(secs, 0));
    instant.map_or_else(String::new, |instant| instant.to_rfc3339_opts(SecondsFormat::Secs, true))
}
