//! Sessions of people who logged in with the token, and the token that each form of a page carries.
//!
//! A session is a random number in a cookie; what it means is in the memory of this process alone. The control token is
//! never in a page or in a cookie.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::clock::Clock;
use crate::domain::hex::hex;
use crate::domain::time::{Millis, Tick};

/// The cookie of a session.
pub(super) const COOKIE: &str = "callsheet-session";
/// How long a session, and its cookie, lasts at most.
pub(super) const SESSION_SPAN: Millis = Millis::from_secs(12 * 3600);
/// Sessions at once; a further one ends the oldest.
const SESSIONS_MAX: usize = 256;

/// 244 random bits in hexadecimal.
fn random() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// Compares in a time that says nothing about where two texts differ.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (Sha256::digest(a.as_bytes()), Sha256::digest(b.as_bytes()));
    a.iter().zip(b.iter()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// The sessions of one listener.
#[derive(Debug)]
pub(super) struct Sessions {
    clock: Clock,
    /// By the hash of the number, so that a search says nothing of the number itself: when it ends.
    ends: Mutex<BTreeMap<Vec<u8>, Tick>>,
}

impl Sessions {
    pub(super) fn new() -> Sessions {
        Sessions { clock: Clock::start(), ends: Mutex::default() }
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Tick>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all of them.
    pub(super) fn end_all(&self) {
        self.ends().clear();
    }

    /// Begins one, and returns its number.
    pub(super) fn begin(&self) -> String {
        let (session, now) = (random(), self.clock.now().tick);
        let mut ends = self.ends();
        ends.retain(|_, end| *end > now);
        if ends.len() >= SESSIONS_MAX
            && let Some(oldest) = ends.iter().min_by_key(|(_, end)| **end).map(|(hash, _)| hash.clone())
        {
            ends.remove(&oldest);
        }
        ends.insert(Sha256::digest(session.as_bytes()).to_vec(), now.after(SESSION_SPAN));
        session
    }

    /// Whether a session goes on.
    pub(super) fn is_open(&self, session: &str) -> bool {
        let now = self.clock.now().tick;
        self.ends().get(&*Sha256::digest(session.as_bytes())).is_some_and(|end| *end > now)
    }

    /// Ends one.
    pub(super) fn end(&self, session: &str) {
        self.ends().remove(&*Sha256::digest(session.as_bytes()));
    }
}

/// Makes the tokens of forms: a page of another site cannot know them.
#[derive(Debug)]
pub(super) struct FormKey(String);

impl FormKey {
    pub(super) fn new() -> FormKey {
        FormKey(random())
    }

    /// The token of the forms of one session, or of all that come by one trusted way.
    pub(super) fn token_of(&self, principal: &str) -> String {
        // HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()) else { return random() };
        mac.update(principal.as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lasts_until_it_is_ended() {
        let sessions = Sessions::new();
        let (first, second) = (sessions.begin(), sessions.begin());
        assert!(first != second && sessions.is_open(&first) && !sessions.is_open("other"));
        sessions.end(&first);
        assert!(!sessions.is_open(&first) && sessions.is_open(&second));
        (0..SESSIONS_MAX).for_each(|_| drop(sessions.begin()));
        assert_eq!(sessions.ends().len(), SESSIONS_MAX, "and there are never more");
    }

    #[test]
    fn each_session_has_its_own_form_token() {
        let key = FormKey::new();
        assert_eq!(key.token_of("a"), key.token_of("a"));
        assert_ne!(key.token_of("a"), key.token_of("b"));
        assert_ne!(key.token_of("a"), FormKey::new().token_of("a"));
        assert!(is_same("a", "a") && !is_same("a", "b"));
    }
}
