//! Reading when something is over: after a span, or at an instant.

use chrono::DateTime;

use crate::domain::diagnostic::Diagnostic;
use crate::domain::time::{Millis, Timestamp};

use super::messages::quoted;
use super::row::Deadline;

const ACCEPTED: &str = "a span such as 30m or 2h 30m, or an instant such as 2026-12-01T08:00:00Z";

/// `30m`, or `2026-12-01T08:00:00Z`.
pub(super) fn parse(text: &str) -> Result<Deadline, Diagnostic> {
    if let Ok(instant) = DateTime::parse_from_rfc3339(text) {
        return Ok(Deadline::At(Timestamp(instant.timestamp_millis())));
    }
    let refused = || Diagnostic::expected(&quoted(text), ACCEPTED);
    match humantime::parse_duration(text) {
        Ok(span) if span.as_millis() == 0 => Err(refused().hint("must be greater than 0")),
        Ok(span) => {
            u64::try_from(span.as_millis()).map(|ms| Deadline::After(Millis(ms))).map_err(|_| refused())
        }
        Err(_) => {
            // `2H`: units in capitals that mean nothing else. `30M` is months, and read above.
            let lower = text.to_lowercase();
            if lower != text && humantime::parse_duration(&lower).is_ok() {
                return parse(&lower);
            }
            Err(with_reason(text, refused()))
        }
    }
}

/// Says what the usual near misses lack.
fn with_reason(text: &str, diagnostic: Diagnostic) -> Diagnostic {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return diagnostic.hint("add the unit: s, m, h or days");
    }
    let starts_with_a_date = text.get(..5).is_some_and(|year| year.ends_with('-'));
    if starts_with_a_date {
        return diagnostic.hint("an instant needs date, time and zone: end it with Z or +02:00");
    }
    diagnostic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_instants() {
        let check = |text, expected| assert_eq!(parse(text), Ok(expected), "{text}");
        check("30m", Deadline::After(Millis(1_800_000)));
        check("2h 30m", Deadline::After(Millis(9_000_000)));
        check("1500ms", Deadline::After(Millis(1500)));
        check("2H", Deadline::After(Millis(7_200_000)));
        check("30 Min", Deadline::After(Millis(1_800_000)));
        check("1970-01-01T00:00:01Z", Deadline::At(Timestamp(1000)));
        check("1970-01-01T02:00:00+02:00", Deadline::At(Timestamp(0)));
    }

    #[test]
    fn near_misses_are_told_what_they_lack() {
        let check = |text: &str, hint: Option<&str>| {
            let diagnostic = parse(text).unwrap_err();
            assert!(diagnostic.message.contains("expected a span such as 30m"), "{}", diagnostic.message);
            assert_eq!(diagnostic.hint.as_deref(), hint, "{text}");
        };
        check("30", Some("add the unit: s, m, h or days"));
        check("0s", Some("must be greater than 0"));
        check("2026-12-01T08:00:00", Some("an instant needs date, time and zone: end it with Z or +02:00"));
        check("2026-12-01", Some("an instant needs date, time and zone: end it with Z or +02:00"));
        check("soon", None);
        check("-5m", None);
        check("99999999999999999999999y", None);
    }
}
