//! What a file is, by its name and its first bytes.

use crate::domain::diagnostic::{Diagnostic, Position};

use super::spanned::{Shape, Spanned};

/// The formats a manifest may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A heading and rows of cells.
    Csv,
    /// One document: an array of jobs, or an object that holds one.
    Json,
    /// One job object a line.
    JsonLines,
}

/// Begins files that some programs write as UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Files that are no text, by how they begin: what they are and what to do.
const FOREIGN: &[(&[u8], &str, &str)] = &[
    (b"\xFF\xFE\0\0", "UTF-32 text", SAVE_AS_UTF8),
    (b"\0\0\xFE\xFF", "UTF-32 text", SAVE_AS_UTF8),
    (b"\xFF\xFE", "UTF-16 text", SAVE_AS_UTF8),
    (b"\xFE\xFF", "UTF-16 text", SAVE_AS_UTF8),
    (b"PK\x03\x04", "a workbook (.xlsx, .ods) or a ZIP archive", EXPORT),
    (b"\xD0\xCF\x11\xE0", "an old workbook (.xls)", EXPORT),
    (b"\x1F\x8B", "a gzip archive", "unpack it first"),
    (b"\x28\xB5\x2F\xFD", "a zstd archive", "unpack it first"),
    (b"%PDF-", "a PDF document", "export the table as \"CSV UTF-8\""),
];

const EXPORT: &str = "export the sheet: in Excel File > Save As > \"CSV UTF-8\"; in LibreOffice File > Save As > \"Text \
                      CSV\" with the character set UTF-8; in Google Sheets File > Download > \"Comma-separated values\"";
const SAVE_AS_UTF8: &str = "save the file as UTF-8; a spreadsheet calls it \"CSV UTF-8\"";

/// `head` without the mark that says it is UTF-8.
pub(super) fn without_mark(head: Vec<u8>) -> Vec<u8> {
    match head.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => rest.to_vec(),
        None => head,
    }
}

/// The format of a file that is called `file_name` and begins with `head`.
pub(super) fn detect_media_type(file_name: &str, head: &[u8]) -> Result<Format, Diagnostic> {
    if head.trim_ascii().is_empty() {
        return Err(Diagnostic::at(
            Position::line(1),
            "the file is empty, expected a CSV, JSON or JSON Lines list of jobs",
        ));
    }
    if let Some((is, hint)) = foreign(head) {
        let message = format!("the file is {is}, expected UTF-8 text: CSV, JSON or JSON Lines");
        return Err(Diagnostic::at(Position::line(1), message).hint(hint));
    }
    let bracket = head.trim_ascii_start().first().copied();
    let mismatch = |message: &str, hint: &str| Err(Diagnostic::at(Position::line(1), message).hint(hint));
    match (by_name(file_name), bracket) {
        (Some(Format::Csv), Some(b'[' | b'{')) => mismatch(
            "the file is named as CSV and begins as JSON",
            "name it .json, or .jsonl if it holds one job a line",
        ),
        (Some(Format::JsonLines), Some(b'[')) => mismatch(
            "the file is named as JSON Lines and begins as an array",
            "name it .json, or write one job object a line",
        ),
        (Some(format), _) => Ok(format),
        (None, _) => Ok(by_content(head)),
    }
}

fn by_name(file_name: &str) -> Option<Format> {
    let (_, extension) = file_name.rsplit_once('.')?;
    match extension.to_ascii_lowercase().as_str() {
        "csv" | "tsv" => Some(Format::Csv),
        "json" => Some(Format::Json),
        "jsonl" | "ndjson" => Some(Format::JsonLines),
        _ => None,
    }
}

/// An object that is whole on the first line and holds no jobs is a line of many.
fn by_content(head: &[u8]) -> Format {
    let text = String::from_utf8_lossy(head);
    let first_line = text.trim_start().lines().next().unwrap_or_default();
    let start = Spanned::new(first_line, Position::at(1, 1));
    match text.trim_start().as_bytes().first() {
        Some(b'[') => Format::Json,
        Some(b'{') if start.check_syntax().is_ok() && !holds_jobs(start) => Format::JsonLines,
        Some(b'{') => Format::Json,
        _ => Format::Csv,
    }
}

fn holds_jobs(object: Spanned<'_>) -> bool {
    let mut found = false;
    let walked =
        object.entries(&mut |key, value| found |= key.name == "jobs" && value.shape() == Shape::Array);
    walked.is_ok() && found
}

/// What a file is that is no text we read, and what to do with it.
fn foreign(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if let Some((_, is, hint)) = FOREIGN.iter().find(|(begins, ..)| head.starts_with(begins)) {
        return Some((is, hint));
    }
    if looks_like_utf16(head) {
        return Some(("UTF-16 text", SAVE_AS_UTF8));
    }
    let odd = head.iter().filter(|&&byte| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')).count();
    (odd > head.len() / 10).then_some(("binary data", "give the list of jobs itself"))
}

/// Latin text in UTF-16 has a zero in nearly every other byte.
fn looks_like_utf16(head: &[u8]) -> bool {
    let zeros = |first: usize| head.iter().skip(first).step_by(2).filter(|&&byte| byte == 0).count();
    let most = head.len() * 2 / 5;
    head.len() >= 4 && (zeros(0) > most && zeros(1) == 0 || zeros(1) > most && zeros(0) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_first_bytes_decide() {
        let check = |name: &str, head: &str, expected: Format| {
            assert_eq!(detect_media_type(name, head.as_bytes()), Ok(expected), "{name}");
        };
        check("a.csv", "prompt\n", Format::Csv);
        check("a.TSV", "prompt\n", Format::Csv);
        check("a.json", "[{}]", Format::Json);
        check("a.jsonl", "{}\n", Format::JsonLines);
        check("a.ndjson", "{}\n", Format::JsonLines);
        check("list", "prompt,model\n", Format::Csv);
        check("list.txt", " [\n", Format::Json);
        check("-", "{\"prompt\":\"x\"}\n{\"prompt\":\"y\"}", Format::JsonLines);
        check("-", "{\"jobs\":[]}", Format::Json);
        check("-", "{\n\"jobs\":[]}", Format::Json);
    }

    #[test]
    fn what_is_not_ours_is_named() {
        let check = |head: &[u8], expected: &str| {
            let problem = detect_media_type("a.csv", head).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        };
        check(b"", "the file is empty");
        check(b" \r\n\n", "the file is empty");
        check(b"\xFF\xFEp\0r\0", "UTF-16 text");
        check(b"\xFE\xFF\0p\0r", "CSV UTF-8");
        check(b"p\0r\0o\0m\0p\0t\0\n\0", "UTF-16 text");
        check(b"PK\x03\x04....", "workbook");
        check(b"\x1F\x8B\x08", "unpack it first");
        check(b"\x01\x02\x03\x04abc", "binary data");
        check(b"[{\"prompt\":1}]", "begins as JSON");
        let lines = detect_media_type("a.jsonl", b"[1]").unwrap_err().to_string();
        assert!(lines.contains("begins as an array"), "{lines}");
    }

    #[test]
    fn the_mark_is_taken_off() {
        assert_eq!(without_mark(b"\xEF\xBB\xBFid".to_vec()), b"id");
        assert_eq!(without_mark(b"id".to_vec()), b"id");
    }
}
