//! Instants as HTTP writes them (RFC 9110, 5.6.7): a recipient reads all three forms.

use chrono::{DateTime, Datelike, Months, NaiveDateTime, Utc};

use crate::domain::time::Timestamp;

/// How an instant is written today (IMF-fixdate).
const PREFERRED: &str = "%a, %d %b %Y %H:%M:%S GMT";
/// The obsolete form of C's `asctime`.
const ASCTIME: &str = "%a %b %e %H:%M:%S %Y";
/// How far ahead a year of two digits may lie.
const AHEAD: Months = Months::new(50 * 12);

/// Reads an instant in any of the three forms. `now` decides the century where the year has two digits.
pub(super) fn parse(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(instant) = DateTime::parse_from_rfc2822(text) {
        return Some(Timestamp(instant.timestamp_millis()));
    }
    let instant = NaiveDateTime::parse_from_str(text, ASCTIME).ok().or_else(|| two_digit_year(text, now))?;
    Some(Timestamp(instant.and_utc().timestamp_millis()))
}

/// The obsolete form of RFC 850, `Sunday, 06-Nov-94 08:49:37 GMT`: the latest year of these two digits that is not
/// more than fifty years ahead. Its day of the week is not held against it, since another century has another.
fn two_digit_year(text: &str, now: Timestamp) -> Option<NaiveDateTime> {
    let (_, date) = text.split_once(", ")?;
    let [day, month, rest] = date.splitn(3, '-').collect::<Vec<_>>().try_into().ok()?;
    let (year, time) = rest.split_once(' ')?;
    let is_short = year.len() == 2 && year.bytes().all(|byte| byte.is_ascii_digit());
    let year: i32 = year.parse().ok().filter(|_| is_short)?;
    let now = DateTime::<Utc>::from_timestamp_millis(now.0)?;
    let latest = now.checked_add_months(AHEAD)?.naive_utc();
    let century = latest.year() - latest.year().rem_euclid(100);
    let in_century = |century: i32| {
        let text = format!("{day} {month} {:04} {time}", century + year);
        NaiveDateTime::parse_from_str(&text, "%d %b %Y %H:%M:%S GMT").ok()
    };
    let not_too_far = |instant: &NaiveDateTime| *instant <= latest;
    in_century(century).filter(not_too_far).or_else(|| in_century(century - 100))
}

/// Writes an instant.
pub(super) fn format(instant: Timestamp) -> Option<String> {
    Some(DateTime::<Utc>::from_timestamp_millis(instant.0)?.format(PREFERRED).to_string())
}

/// When an answer was sent: what its `Date` says, or `now` by our own clock where it says nothing that can be read.
pub(super) fn date_or_now(header: Option<&str>, now: Timestamp) -> Option<String> {
    format(header.and_then(|header| parse(header, now)).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis())
    }

    #[test]
    fn all_three_forms_are_read() {
        let now = at("1994-11-06T08:00:00Z");
        let expected = Some(at("1994-11-06T08:49:37Z"));
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
        ] {
            assert_eq!(parse(text, now), expected, "{text}");
        }
        assert_eq!(format(now).and_then(|text| parse(&text, now)), Some(now));
        for text in [
            "",
            "tomorrow",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37",
            "Sunday, 06-Nov-+4 08:49:37 GMT",
            "Sunday, 36-Nov-94 08:49:37 GMT",
            "Sun Nov 36 08:49:37 1994",
        ] {
            assert_eq!(parse(text, now), None, "{text}");
        }
    }

    #[test]
    fn two_digits_mean_the_latest_year_that_is_at_most_fifty_years_ahead() {
        for (now, year, expected) in [
            ("2026-11-22T00:00:00Z", "26", "2026-11-06T08:49:37Z"),
            ("2026-11-22T00:00:00Z", "27", "2027-11-06T08:49:37Z"),
            ("2026-11-22T00:00:00Z", "76", "2076-11-06T08:49:37Z"),
            ("2026-11-01T00:00:00Z", "76", "1976-11-06T08:49:37Z"),
            ("2026-11-22T00:00:00Z", "77", "1977-11-06T08:49:37Z"),
            ("1999-12-31T23:59:59Z", "00", "2000-11-06T08:49:37Z"),
            ("2060-01-01T00:00:00Z", "05", "2105-11-06T08:49:37Z"),
        ] {
            let text = format!("Sunday, 06-Nov-{year} 08:49:37 GMT");
            assert_eq!(parse(&text, at(now)), Some(at(expected)), "{text} read in {now}");
        }
    }

    #[test]
    fn an_answer_without_a_readable_date_is_dated_by_our_own_clock() {
        let noon = Timestamp(784_123_200_000);
        let said = |header| date_or_now(header, noon).unwrap();
        assert_eq!(said(None), "Sun, 06 Nov 1994 12:00:00 GMT");
        assert_eq!(said(Some("noon")), "Sun, 06 Nov 1994 12:00:00 GMT");
        for header in
            ["Sun, 06 Nov 1994 11:00:00 GMT", "Sunday, 06-Nov-94 11:00:00 GMT", "Sun Nov  6 11:00:00 1994"]
        {
            assert_eq!(
                said(Some(header)),
                "Sun, 06 Nov 1994 11:00:00 GMT",
                "the service's own goes before ours"
            );
        }
    }
}
