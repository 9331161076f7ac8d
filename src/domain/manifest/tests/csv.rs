//! CSV, read as transcripts.

use std::cell::Cell;

use crate::domain::diagnostic::Position;
use crate::domain::manifest::{Limits, row::ReadRow};

use super::{limits, open, transcript};

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    super::check("a.csv", text, expected);
}

#[test]
fn plain_rows() {
    check(
        "id,kind,model,prompt,duration,meta.sku\n1,video,house-c1,a cat,5s,007\n2,image,,a dog,,\n",
        &[
            r#"2:1 {"id":"1","kind":"video","meta":{"sku":"007"},"model":"house-c1","options":{"duration":"5s"},"prompt":"a cat"}"#,
            r#"3:1 {"id":"2","kind":"image","prompt":"a dog"}"#,
        ],
    );
}

#[test]
fn separators_are_sniffed() {
    let expected = [r#"2:1 {"id":"1","prompt":"a, b; c"}"#];
    check("id,prompt\n1,\"a, b; c\"\n", &expected);
    check("id;prompt\n1;\"a, b; c\"\n", &expected);
    check("id\tprompt\n1\ta, b; c\n", &expected);
    check("sep=;\nid;prompt\n1;\"a, b; c\"\n", &[r#"3:1 {"id":"1","prompt":"a, b; c"}"#]);
    check("\"id\";\"meta.a,b\";\"prompt\"\n1;2;x\n", &[r#"2:1 {"id":"1","meta":{"a,b":"2"},"prompt":"x"}"#]);
}

#[test]
fn a_byte_order_mark_and_every_line_end() {
    let expected = [r#"2:1 {"id":"1","prompt":"x"}"#, r#"3:1 {"id":"2","prompt":"y"}"#];
    check("\u{feff}id,prompt\n1,x\n2,y\n", &expected);
    check("id,prompt\r\n1,x\r\n2,y", &expected);
    check("id,prompt\r1,x\r2,y\r", &expected);
    check("\u{feff}\"id\",\"prompt\"\r\n\"1\",\"x\"\r\n2,y\r\n", &expected);
}

#[test]
fn quotes_newlines_and_unicode() {
    check(
        "id,prompt\n1,\"say \"\"hi\"\", then\nleave\"\n2,\"Größe 🎬\"\n3,5\" tall\n4,\"\"\"\"\n",
        &[
            r#"2:1 {"id":"1","prompt":"say \"hi\", then\nleave"}"#,
            r#"4:1 {"id":"2","prompt":"Größe 🎬"}"#,
            r#"5:1 {"id":"3","prompt":"5\" tall"}"#,
            r#"6:1 {"id":"4","prompt":"\""}"#,
        ],
    );
}

#[test]
fn a_quote_behind_a_space_quotes_nothing_and_is_spoken_of() {
    let hint = "(hint: remove the space before the quote)";
    let open = "a space is before the quote, so the cell ends at the next separator";
    check(
        "id, prompt, meta.x\na, \"hello, world\"\nb, \"say \"\"hi\"\", now\"\nc, \"Stop!\" he said, x\nd, \"\n",
        &[
            &format!("bad 2:3: prompt: {open} {hint}"),
            &format!("bad 3:3: prompt: {open} {hint}"),
            r#"4:1 {"id":"c","meta":{"x":"x"},"prompt":"\"Stop!\" he said"}"#,
            &format!("bad 5:3: {open} {hint}"),
        ],
    );
    let text = "id, prompt, meta.x\nb, \"hello\", z\nc,\"\"\"hello\"\"\", z\n";
    let rows: Vec<_> = open_rows(text);
    let said = |row: &ReadRow| match row {
        ReadRow::Good(row) => {
            (row.request.prompt.clone(), row.notes.iter().map(ToString::to_string).collect())
        }
        _ => (None, Vec::new()),
    };
    let note = "2:3: prompt: the quotes are part of the value, because a space is before them (hint: to leave them out, \
                remove the space)";
    let quoted = Some("\"hello\"".to_owned());
    assert_eq!(
        rows.iter().map(said).collect::<Vec<_>>(),
        [(quoted.clone(), vec![note.to_owned()]), (quoted, Vec::new())]
    );
    let table = |text: &str| {
        super::super::csv::read_table(text.as_bytes(), &limits()).map_err(|problem| problem.to_string())
    };
    assert_eq!(table("sku, name\nA, \"red, mug\"\n"), Err(format!("2:3: {open} {hint}")));
    assert!(table("sku, name\nA, \"red\"\n").is_ok());
}

fn open_rows(text: &str) -> Vec<ReadRow> {
    open("a.csv", text.as_bytes(), &limits()).unwrap().collect()
}

#[test]
fn json_in_a_quoted_cell() {
    check(
        "id,options.at,image_urls\n1,\"{\"\"type\"\": \"\"Point\"\", \"\"of\"\": [1.5, 2]}\",\"[\"\"https://a/1\"\"]\"\n",
        &[r#"2:1 {"id":"1","image_urls":["https://a/1"],"options":{"at":{"of":[1.5,2],"type":"Point"}}}"#],
    );
}

#[test]
fn cells_and_names_are_trimmed_and_empty_cells_are_absent() {
    check(
        " id , prompt\n 1 ,  a cat \n2,   \n",
        &[r#"2:1 {"id":"1","prompt":"a cat"}"#, r#"3:1 {"id":"2"}"#],
    );
}

#[test]
fn blank_rows_are_skipped_and_lines_still_counted() {
    check(
        "\n\nid,prompt\n\n1,x\n,\n \t \n2,y\n\"\",\"\"\n\n",
        &[r#"5:1 {"id":"1","prompt":"x"}"#, r#"8:1 {"id":"2","prompt":"y"}"#],
    );
}

#[test]
fn ragged_rows() {
    check(
        "id,prompt,model\n1,x\n2,x,m,,\n3,one, two,m\n4,x,m\n",
        &[
            "bad 2:1: found 2 cells, expected 3, one for each column (hint: an empty cell needs its separator too)",
            r#"3:1 {"id":"2","model":"m","prompt":"x"}"#,
            "bad 4:12: found 4 cells, expected 3, one for each column (hint: put a cell that contains the separator in double quotes)",
            r#"5:1 {"id":"4","model":"m","prompt":"x"}"#,
        ],
    );
}

#[test]
fn every_problem_of_the_heading_is_told() {
    check(
        "id,durration,prompt,Prompt,seed,prompt,duration,options.duration,meta.,,model\n1\n",
        &[
            "refused 1:4: durration: unknown column; did you mean \"duration\"? (hint: \"options.durration\" would be sent to the service, \"meta.durration\" kept for the results)",
            "refused 1:21: Prompt: the column \"prompt\" sets the same field; keep one",
            "refused 1:28: seed: unknown column; did you mean \"speed\"? (hint: \"options.seed\" would be sent to the service, \"meta.seed\" kept for the results)",
            "refused 1:33: prompt: the column appears twice; keep one",
            "refused 1:49: options.duration: the column \"duration\" sets the same field; keep one",
            "refused 1:66: meta.: unknown column (hint: \"options.meta.\" would be sent to the service, \"meta.meta.\" kept for the results)",
            "refused 1:72: column 10 has no name",
        ],
    );
}

#[test]
fn names_missing_at_the_end_are_a_spreadsheets_habit() {
    check(
        "prompt,,\nx,,\ny,z,\n",
        &[
            r#"2:1 {"prompt":"x"}"#,
            "bad 3:3: found 2 cells, expected 1, one for each column (hint: put a cell that contains the separator in double quotes)",
        ],
    );
}

#[test]
fn a_file_without_a_heading_is_told_so() {
    check(
        "a cat,5s\na dog,8s\n",
        &[
            "refused 1:1: a cat: unknown column (hint: the first line names the columns)",
            "refused 1:7: 5s: unknown column (hint: the first line names the columns)",
        ],
    );
}

#[test]
fn an_unclosed_quote_gives_the_rows_before_it() {
    check(
        "id,prompt\n1,x\n2,\"y\n3,z\n4,z\n",
        &[
            r#"2:1 {"id":"1","prompt":"x"}"#,
            "unreadable 3:3: the quote that opens this cell is never closed (hint: close it with \"; inside a quoted cell a quote is written twice)",
        ],
    );
}

#[test]
fn a_quote_closed_by_the_next_rows_quote_is_noticed() {
    check(
        "id,prompt\n1,\"x\n2,\"y\"\n3,z\n",
        &[
            "bad 2:3: text follows the closing quote of this cell at 3:4 (hint: inside a quoted cell a quote is written twice)",
            r#"4:1 {"id":"3","prompt":"z"}"#,
        ],
    );
}

#[test]
fn a_row_that_is_not_utf8_is_bad_alone() {
    let text = b"id,prompt\n1,x\n2,caf\xE9 noir\n3,z\n";
    assert_eq!(
        transcript("a.csv", text),
        [
            r#"2:1 {"id":"1","prompt":"x"}"#,
            "bad 3:6: found the byte 0xE9, expected UTF-8 (hint: save the file as UTF-8; a spreadsheet calls it \"CSV UTF-8\")",
            r#"4:1 {"id":"3","prompt":"z"}"#,
        ]
    );
    let heading = transcript("a.csv", b"id,pr\xE9\n1,x\n");
    assert!(heading.len() == 1 && heading[0].starts_with("refused 1:6: found the byte 0xE9"), "{heading:?}");
}

#[test]
fn nul_characters_are_found() {
    check(
        "id,prompt,options.a,meta.b\n1,some text around it\0,,\n2,x,\0y,\0z\n",
        &[
            r#"bad 2:3: prompt: found "some text around it\u{0}", expected text without NUL characters"#,
            r#"bad 3:5: options.a: found "\u{0}y", expected text without NUL characters"#,
            r#"bad 3:8: meta.b: found "\u{0}z", expected text without NUL characters"#,
        ],
    );
}

#[test]
fn a_long_row_is_bad_alone() {
    let long = "x".repeat(limits().max_line_bytes);
    check(
        &format!("id,prompt\n1,{long}\n2,\"{long}\n{long}\"\n3,y\n"),
        &[
            "bad 2:1: the row is longer than 500 bytes (hint: an unclosed quote joins rows)",
            "bad 3:1: the row is longer than 500 bytes (hint: an unclosed quote joins rows)",
            r#"5:1 {"id":"3","prompt":"y"}"#,
        ],
    );
    check(
        &format!("id,{long}\n1,2\n"),
        &["refused 1:1: the row is longer than 500 bytes (hint: an unclosed quote joins rows)"],
    );
}

#[test]
fn places_point_at_cells() {
    let manifest = open("a.csv", "id,prompt,duration\n1,\"a\nü\", 5s\n".as_bytes(), &limits()).unwrap();
    let rows: Vec<_> = manifest.collect();
    let [ReadRow::Good(row)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row.place("prompt"), Position::at(2, 3));
    assert_eq!(row.place("options.duration"), Position::at(3, 4));
    assert_eq!(row.place("model"), row.position);
}

/// So many rows of a CSV manifest, made as they are read.
struct Generated<'a> {
    rows: u64,
    made: &'a Cell<u64>,
    line: Vec<u8>,
    read: usize,
}

impl std::io::Read for Generated<'_> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let row = self.made.get() + 1;
        if self.read == self.line.len() && row <= self.rows {
            self.made.set(row);
            self.line = format!("job-{row},image,\"a cat, number {row}\",16:9,{row}\n").into_bytes();
            self.read = 0;
        }
        let count = (&self.line[self.read..]).read(room)?;
        self.read += count;
        Ok(count)
    }
}

/// A row has some 45 bytes.
const READ_AHEAD_MAX: u64 = 4_000;

/// Measured with optimisation on two cores: 700,000 rows a second, at most 13 MiB for the whole process.
#[test]
fn rows_are_a_stream() {
    let made = Cell::new(0);
    let heading = b"id,kind,prompt,aspect_ratio,meta.row\n".to_vec();
    let source = Generated { rows: 100_000, made: &made, line: heading, read: 0 };
    let mut good = 0;
    for row in open("a.csv", source, &Limits::default()).unwrap() {
        good += u64::from(matches!(row, ReadRow::Good(_)));
        let ahead = made.get() - good;
        assert!(ahead < READ_AHEAD_MAX, "{ahead} rows are held after {good}");
    }
    assert_eq!(good, 100_000);
}

#[test]
fn an_endless_line_is_never_held() {
    let endless = || std::io::Read::take(std::io::repeat(b'x'), 20 << 20);
    let source = std::io::Read::chain("id,prompt\n1,x\n2,".as_bytes(), endless());
    let rows: Vec<_> = open("a.csv", source, &limits()).unwrap().collect();
    assert!(matches!(&rows[..], [ReadRow::Good(_), ReadRow::Bad(_)]), "{rows:?}");
    let unclosed = std::io::Read::chain("id,prompt\n1,x\n2,\"".as_bytes(), endless());
    let rows: Vec<_> = open("a.csv", unclosed, &limits()).unwrap().collect();
    assert!(matches!(&rows[..], [ReadRow::Good(_), ReadRow::Unreadable(_)]), "{rows:?}");
}
