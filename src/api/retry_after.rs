//! The `Retry-After` header: how long the service, or a proxy before it, asks to wait.

use crate::api::http_client::RawResponse;
use crate::api::http_date;
use crate::domain::time::{Millis, Timestamp};

/// `Retry-After` of a response. An instant is measured by the `Date` of the same answer, so that no clock
/// has to agree with the service's.
pub(super) fn retry_after(raw: &RawResponse) -> Option<Millis> {
    asked_wait(raw.retry_after.as_deref(), raw.date.as_deref())
}

/// The wait that a header `Retry-After` asks for, in an answer with this `Date`.
pub(super) fn asked_wait(header: Option<&str>, date: Option<&str>) -> Option<Millis> {
    let header = header?.trim();
    if !header.is_empty() && header.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has are a long time all the same.
        return Some(Millis(header.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000)));
    }
    let sent = http_date::parse(date?, Timestamp::default())?;
    Some(http_date::parse(header, sent)?.since(sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_seconds_or_an_instant_by_the_date_of_the_answer() {
        let noon = Some("Sun, 06 Nov 1994 12:00:00 GMT");
        for (header, date, expected) in [
            ("7", None, Some(7_000)),
            (" 7 ", noon, Some(7_000)),
            ("Sun, 06 Nov 1994 12:01:30 GMT", noon, Some(90_000)),
            ("Sun, 06 Nov 1994 11:59:59 GMT", noon, Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", noon, Some(252_618_177_599_000)),
            ("Sun, 06 Nov 1994 12:01:30 GMT", None, None),
            ("Sun, 06 Nov 1994 12:01:30 GMT", Some("noon"), None),
            ("Sunday, 06-Nov-94 12:01:30 GMT", noon, Some(90_000)),
            ("Sun Nov  6 12:01:30 1994", noon, Some(90_000)),
            ("99999999999999999999999", noon, Some(u64::MAX)),
            ("tomorrow", noon, None),
            ("-7", noon, None),
            ("7.5", noon, None),
            ("", noon, None),
        ] {
            let (header_text, date) = (Some(header.to_owned()), date.map(str::to_owned));
            let asked =
                RawResponse { status: 429, retry_after: header_text, date, redirect: None, body: Vec::new() };
            assert_eq!(retry_after(&asked), expected.map(Millis), "{header}");
        }
    }
}
