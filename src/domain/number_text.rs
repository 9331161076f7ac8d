//! Numbers as people write them: with a decimal comma, and with the unit of seconds behind them.

/// Units of a number of seconds, in lower case.
const SECONDS: [&str; 6] = ["s", "sec", "secs", "second", "seconds", "sek"];

/// A number of seconds without its unit: `5 s`, `5sec`.
pub fn without_unit(text: &str) -> &str {
    let text = text.trim();
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = text.get(digits.len()..).unwrap_or_default().to_lowercase();
    if SECONDS.contains(&unit.as_str()) { digits.trim_end() } else { text }
}

/// Whether a comma between these may be one between thousands.
pub fn groups_thousands(whole: &str, fraction: &str) -> bool {
    let digits = whole.trim_start_matches(['-', '+']);
    let is_group = fraction.len() == 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    is_group && digits.len() <= 3 && digits.starts_with(|c: char| matches!(c, '1'..='9'))
}

/// A decimal number as JSON writes it: with a point, with a digit before it, without a plus or leading zeros. A comma
/// is a decimal comma where it cannot group thousands.
pub fn decimal_text(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = match digits.split_once([',', '.']) {
        Some((whole, fraction)) if digits.contains(',') && groups_thousands(whole, fraction) => return None,
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (digits, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = all_digits(whole) && fraction.is_none_or(|part| !part.is_empty() && all_digits(part));
    if !is_number || digits.is_empty() {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(fraction.map_or_else(|| format!("{sign}{whole}"), |fraction| format!("{sign}{whole}.{fraction}")))
}

/// `3`, and `3.0` as spreadsheets and data frames write it.
pub fn whole_in_text(text: &str) -> Option<i128> {
    let digits = match text.split_once('.') {
        Some((digits, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => digits,
        Some(_) => return None,
        None => text,
    };
    let starts_like_a_number = digits.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    digits.parse().ok().filter(|_| starts_like_a_number)
}
