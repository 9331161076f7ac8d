//! Lists of addresses: a JSON array, or one text in which people put something between them.

use serde_json::Value;

use crate::domain::diagnostic::Diagnostic;
use crate::domain::input_file::is_file_name;
use crate::domain::job_reference::is_reference;

use super::cell_value::CellValue;
use super::messages::{named, quoted};
use super::spanned::value_in_cell;

const ACCEPTED: &str = "addresses separated by white space or \";\", or a JSON array of texts";

/// A list of texts: a JSON array, or one text whose items stand between white space, `;` or `,`.
pub(super) fn list(given: CellValue<'_>) -> Result<Option<Vec<String>>, Diagnostic> {
    let items = match given {
        CellValue::Cell(cell) if cell.starts_with('[') => listed(value_in_cell(cell)?)?,
        CellValue::Cell(cell) => separated(cell)?,
        CellValue::Json(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        CellValue::Json(Value::String(text)) => separated(&text)?,
        CellValue::Json(value) => listed(value)?,
    };
    match items.iter().find(|item| item.contains('\0')) {
        Some(item) => Err(Diagnostic::expected(&quoted(item), ACCEPTED)),
        None => Ok(Some(items)),
    }
}

/// The items of one text. A semicolon and a comma may stand inside an address: they separate where the next address
/// begins, or where nothing follows. A bar separates where it stands alone.
fn separated(text: &str) -> Result<Vec<String>, Diagnostic> {
    let words = text.split_whitespace().filter(|word| *word != "|");
    let items: Vec<String> = words.flat_map(addresses).map(str::to_owned).collect();
    if items.is_empty() { Err(Diagnostic::expected(&quoted(text), ACCEPTED)) } else { Ok(items) }
}

/// What stands between the separators of a word, without them.
fn addresses(word: &str) -> impl Iterator<Item = &str> {
    // Within an address such a mark may stand before a slash.
    let begins = |text: &str| begins_address(text) || is_file_name(word) && is_file_name(text);
    let mut cuts = vec![0];
    let marks = word.char_indices().filter(|(_, c)| is_mark(*c));
    cuts.extend(marks.map(|(at, _)| at + 1).filter(|at| word.get(*at..).is_some_and(&begins)));
    cuts.push(word.len());
    let pieces: Vec<&str> =
        cuts.windows(2).filter_map(|ends| word.get(*ends.first()?..*ends.last()?)).collect();
    pieces.into_iter().map(|piece| piece.trim_matches(is_mark)).filter(|piece| !piece.is_empty())
}

fn is_mark(c: char) -> bool {
    matches!(c, ';' | ',')
}

fn begins_address(text: &str) -> bool {
    let begins =
        |scheme: &str| text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
    begins("http://") || begins("https://") || is_reference(text)
}

/// The items of a JSON array, each as it is: nothing in them is a separator.
fn listed(value: Value) -> Result<Vec<String>, Diagnostic> {
    let accepted = "a list of texts";
    let Value::Array(items) = value else { return Err(Diagnostic::expected(&named(&value), accepted)) };
    let item = |item: Value| match item {
        Value::String(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        other => Err(Diagnostic::expected(&format!("{} in a list", named(&other)), accepted)),
    };
    let items: Vec<String> = items.into_iter().map(item).collect::<Result<_, _>>()?;
    for item in &items {
        let runs_on = item.contains(",http://") || item.contains(",https://");
        if runs_on || item.ends_with(is_mark) {
            return Err(Diagnostic::expected(&quoted(item), ACCEPTED));
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::separated;

    #[test]
    fn whatever_people_put_between_addresses() {
        let both = ["https://a/1.png", "https://b/2.png"];
        for text in [
            "https://a/1.png https://b/2.png",
            "https://a/1.png\nhttps://b/2.png",
            "https://a/1.png;https://b/2.png",
            "https://a/1.png ; https://b/2.png",
            "https://a/1.png;; https://b/2.png;",
            "https://a/1.png,https://b/2.png",
            "https://a/1.png, https://b/2.png,",
            "https://a/1.png ,https://b/2.png",
            "https://a/1.png | https://b/2.png",
        ] {
            assert_eq!(separated(text).unwrap(), both, "{text}");
        }
        for one in [
            "https://a/1;v=2,3.png",
            "https://a/?u=https://b/",
            "HTTPS://A/1.png",
            "a;b",
            "https://a/1|https://b",
            "https://a/1;/2,./3",
            "./a;b.png",
        ] {
            assert_eq!(separated(one).unwrap(), [one]);
        }
        assert_eq!(separated("http://a/;HTTP://b/").unwrap(), ["http://a/", "HTTP://b/"]);
        assert_eq!(separated("./a.png;../b.png, /c.png").unwrap(), ["./a.png", "../b.png", "/c.png"]);
        assert_eq!(separated("./a.png;https://b").unwrap(), ["./a.png", "https://b"]);
        for nothing in [";", ", ,", "|"] {
            assert!(separated(nothing).is_err(), "{nothing}");
        }
    }
}
