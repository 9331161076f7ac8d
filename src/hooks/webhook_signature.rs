//! How webhooks are signed: Standard Webhooks, symmetric.
//!
//! `webhook-signature: v1,BASE64(HMAC-SHA256(secret, "ID.TIMESTAMP.BODY"))`, so that a receiver knows who
//! sent it and can drop what it has seen (the id stays) or what is too old (the timestamp does not).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::zeroize::Zeroizing;
use sha2::Sha256;

use crate::domain::time::Timestamp;

/// Prefix of a secret.
const PREFIX: &str = "whsec_";
/// Shortest secret, in bytes: Standard Webhooks asks for 24 to 64.
const SECRET_MIN_BYTES: usize = 24;
/// Longest secret, in bytes.
const SECRET_MAX_BYTES: usize = 64;

/// The text is not a Standard Webhooks secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the secret of hooks.webhook is not whsec_ and the base64 of {SECRET_MIN_BYTES} to {SECRET_MAX_BYTES} bytes; \
     `echo \"whsec_$(openssl rand -base64 32)\"` makes one"
)]
pub struct BadSecret;

/// The key that messages are signed with.
#[derive(Clone)]
pub(super) struct Secret(Zeroizing<Vec<u8>>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    pub(super) fn parse(text: &str) -> Result<Secret, BadSecret> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(BadSecret)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| BadSecret)?);
        if !(SECRET_MIN_BYTES..=SECRET_MAX_BYTES).contains(&bytes.len()) {
            return Err(BadSecret);
        }
        Ok(Secret(bytes))
    }

    /// The headers of a message that is sent `at` this moment.
    pub(super) fn headers(
        &self,
        id: &str,
        at: Timestamp,
        body: &str,
    ) -> Result<[(&'static str, String); 3], BadSecret> {
        let seconds = at.0.div_euclid(1000).to_string();
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).map_err(|_| BadSecret)?;
        for part in [id, ".", &seconds, ".", body] {
            mac.update(part.as_bytes());
        }
        let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        Ok([("webhook-id", id.to_owned()), ("webhook-timestamp", seconds), ("webhook-signature", signature)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the standard.
    #[test]
    fn a_message_is_signed_as_the_standard_shows() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let headers = secret.headers(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            Timestamp(1_614_265_330_999),
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(
            headers.unwrap().map(|(_, value)| value),
            ["msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="]
        );
    }

    #[test]
    fn what_is_no_secret_is_refused_without_showing_it() {
        let short = format!("whsec_{}", STANDARD.encode([7; 23]));
        let long = format!("whsec_{}", STANDARD.encode([7; 65]));
        for text in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_not base64!", &short, &long] {
            let error = Secret::parse(text).unwrap_err().to_string();
            assert!(error.contains("whsec_ and the base64 of 24 to 64 bytes"), "{text}");
        }
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
