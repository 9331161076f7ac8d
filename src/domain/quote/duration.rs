//! Durations as the service spells them: `8s`, `8` and the number 8 are one (POST videos, `options`).

use std::str::FromStr;

use rust_decimal::Decimal;
use serde_json::{Number, Value};

/// The seconds a duration means, where it means any: `8s`, `8`, 8, 8.0.
pub(super) fn seconds(value: &Value) -> Option<Decimal> {
    match value {
        Value::Number(number) => decimal(number).filter(|seconds| !seconds.is_sign_negative()),
        Value::String(text) => seconds_of(text),
        _ => None,
    }
}

/// The seconds that a text means.
pub(super) fn seconds_of(text: &str) -> Option<Decimal> {
    let digits = text.trim();
    let digits = digits.strip_suffix(['s', 'S']).unwrap_or(digits);
    let plain = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    if !plain {
        return None;
    }
    // Most are whole numbers, which are read in a fraction of the time.
    digits.parse::<u64>().map(Decimal::from).or_else(|_| Decimal::from_str(digits)).ok()
}

/// Whether two texts mean the same seconds.
pub(super) fn same_seconds(a: &str, b: &str) -> bool {
    a == b || seconds_of(a).is_some_and(|seconds| seconds_of(b) == Some(seconds))
}

/// A JSON number without float error: from its shortest spelling, not from its bits.
pub(super) fn decimal(number: &Number) -> Option<Decimal> {
    let text = number.to_string();
    Decimal::from_str(&text).or_else(|_| Decimal::from_scientific(&text)).ok()
}

/// `8`, `7.5`: without trailing zeros.
pub(super) fn plain(value: Decimal) -> String {
    value.normalize().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whole_seconds_are_read_as_decimals_are(digits in "[0-9]{1,31}") {
            let (read, decimal) = (seconds_of(&digits), Decimal::from_str(&digits).ok());
            prop_assert_eq!(read, decimal);
            prop_assert_eq!(read.map(plain), decimal.map(plain));
        }
    }
}
