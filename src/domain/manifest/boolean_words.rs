//! How true and false may be written in a cell.

/// Words for true and false, in lower case, in the languages that spreadsheets are used in most.
const TRUE: [&str; 13] =
    ["true", "yes", "y", "on", "1", "wahr", "ja", "vrai", "oui", "verdadero", "sí", "vero", "sim"];
const FALSE: [&str; 12] =
    ["false", "no", "n", "off", "0", "falsch", "nein", "faux", "non", "falso", "não", "nee"];

/// A word for true or false, in any case.
pub(super) fn boolean_word(cell: &str) -> Option<bool> {
    let word = cell.to_lowercase();
    match word.as_str() {
        word if TRUE.contains(&word) => Some(true),
        word if FALSE.contains(&word) => Some(false),
        _ => None,
    }
}

/// `true` and `false` as JSON and spreadsheets write them, and nothing else.
pub(super) fn exact_boolean(cell: &str) -> Option<bool> {
    match cell {
        "true" | "TRUE" => Some(true),
        "false" | "FALSE" => Some(false),
        _ => None,
    }
}
