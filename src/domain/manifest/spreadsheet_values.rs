//! Numbers and flags as spreadsheets and people write them: `1,5`, `5 s`, `WAHR`. Each is read only where it would be an
//! error otherwise, and where one reading is possible; a note tells how it was read.

use serde_json::{Number, Value};

use crate::domain::number_text::{decimal_text, groups_thousands, whole_in_text, without_unit};

use super::boolean_words::boolean_word;
use super::fields::OptionType;

/// How a cell may be read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CellReading {
    /// In this one way.
    As(Value),
    /// In more than one: what it may mean.
    Ambiguous(String),
    /// In none.
    Unknown,
}

/// Reads the cell of an option that is called `name` and is a flag or a number.
pub(super) fn read(name: &str, accepts: OptionType, cell: &str) -> CellReading {
    match accepts {
        OptionType::Flag => {
            boolean_word(cell).map_or(CellReading::Unknown, |flag| CellReading::As(flag.into()))
        }
        OptionType::Number | OptionType::Length if name.ends_with("_seconds") => number(without_unit(cell)),
        OptionType::Number | OptionType::Length => number(cell),
        OptionType::Text | OptionType::Duration => CellReading::Unknown,
    }
}

/// `1,5`, `.5` and `+5`. A comma before three digits may also group thousands.
fn number(text: &str) -> CellReading {
    if let Some((whole, fraction)) = text.split_once(',')
        && groups_thousands(whole, fraction)
    {
        return CellReading::Ambiguous(format!("{whole}.{fraction} or {whole}{fraction}"));
    }
    match decimal_text(text).and_then(|text| serde_json::from_str::<Number>(&text).ok()) {
        Some(found) => {
            let whole = whole_in_text(&found.to_string()).and_then(|whole| i64::try_from(whole).ok());
            CellReading::As(whole.map_or(Value::Number(found), Value::from))
        }
        None => CellReading::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flags_are_read_in_any_case_and_in_the_languages_of_spreadsheets() {
        for cell in ["True", "yes", "WAHR", "Ja", "VRAI", "1", "on", "SÍ"] {
            assert_eq!(read("audio", OptionType::Flag, cell), CellReading::As(json!(true)), "{cell}");
        }
        for cell in ["False", "NO", "Falsch", "nein", "FAUX", "0", "off", "NÃO"] {
            assert_eq!(read("audio", OptionType::Flag, cell), CellReading::As(json!(false)), "{cell}");
        }
        for cell in ["maybe", "x", "2", "yes and no"] {
            assert_eq!(read("audio", OptionType::Flag, cell), CellReading::Unknown, "{cell}");
        }
    }

    #[test]
    fn numbers_have_one_reading_or_none() {
        let check = |name: &str, cell: &str, expected: CellReading| {
            assert_eq!(read(name, OptionType::Number, cell), expected, "{cell}");
        };
        check("speed", "1,5", CellReading::As(json!(1.5)));
        check("speed", "1,0", CellReading::As(json!(1)));
        check("speed", "-0,25", CellReading::As(json!(-0.25)));
        check("speed", "0,125", CellReading::As(json!(0.125)));
        check("speed", ".5", CellReading::As(json!(0.5)));
        check("speed", "+2", CellReading::As(json!(2)));
        check("speed", "1,500", CellReading::Ambiguous("1.500 or 1500".to_owned()));
        for cell in ["1.234,5", "1,2,3", ",", "-", "1,", "5 s", "fast", "٥"] {
            check("speed", cell, CellReading::Unknown);
        }
        check("duration_seconds", "5 s", CellReading::As(json!(5)));
        check("duration_seconds", "1,5 Sek", CellReading::As(json!(1.5)));
        check("duration_seconds", "2 min", CellReading::Unknown);
    }
}
