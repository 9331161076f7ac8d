//! What a page in Markdown has for a shell: its fenced blocks, and the commands in its sentences.

/// A fenced block.
#[derive(Debug)]
pub(super) struct Block<'a> {
    /// The first word after the fence.
    pub(super) language: &'a str,
    /// The second one: the file that the block is written to.
    pub(super) file: Option<&'a str>,
    /// Why it is not run.
    pub(super) not_run: Option<&'a str>,
    /// The number of its first line.
    pub(super) first: usize,
    pub(super) lines: Vec<&'a str>,
    /// Whether only blank lines are between it and the block before.
    follows_block: bool,
}

impl Block<'_> {
    pub(super) fn is_run(&self) -> bool {
        self.language == "sh" && self.file.is_none() && self.not_run.is_none()
    }

    /// Whether this is what the block before it prints.
    pub(super) fn is_output(&self) -> bool {
        self.language == "text" && self.file.is_none() && self.follows_block
    }
}

pub(super) fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut before = "";
    let mut follows_block = false;
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if let Some(info) = line.trim_start().strip_prefix("```") {
            let mut words = info.split_whitespace();
            let (language, file) = (words.next().unwrap_or_default(), words.next());
            let not_run = before.strip_prefix("<!-- not run: ").and_then(|rest| rest.strip_suffix(" -->"));
            let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
            let lines = inside.map(|line| line.get(indent..).unwrap_or_default()).collect();
            blocks.push(Block { language, file, not_run, first: number + 1, lines, follows_block });
            (before, follows_block) = ("", true);
        } else if !line.trim().is_empty() {
            (before, follows_block) = (line.trim(), false);
        }
    }
    blocks
}

/// What stands in backticks outside of blocks and begins with the name of the program.
pub(super) fn inline_commands(page: &str) -> Vec<String> {
    let mut outside = String::new();
    let mut inside = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            outside.push_str(line);
            outside.push('\n');
        }
    }
    let spans = outside.split('`').skip(1).step_by(2);
    spans.filter(|span| span.starts_with("callsheet ")).map(str::to_owned).collect()
}

/// Whether a text is as expected, where `...` stands for anything.
pub(super) fn is_as_expected(found: &str, expected: &str) -> bool {
    let mut pieces = expected.trim_end().split("...");
    let Some(mut rest) = found.trim_end().strip_prefix(pieces.next().unwrap_or_default()) else {
        return false;
    };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn a_page_is_taken_apart() {
    let page = "`callsheet plan` and `other`\n<!-- not run: no disk here -->\n```sh\na\n```\n\n```text\nb\n```\nc\n\n  ```csv d/e.csv\n  f\n  ```\n`callsheet run X\nY`";
    let found = blocks(page);
    assert_eq!(found.len(), 3);
    assert_eq!((found[0].not_run, found[0].is_run(), found[0].first), (Some("no disk here"), false, 4));
    assert!(found[1].is_output() && !found[2].is_output());
    assert_eq!((found[2].file, found[2].lines.as_slice()), (Some("d/e.csv"), ["f"].as_slice()));
    assert_eq!(inline_commands(page), ["callsheet plan", "callsheet run X\nY"]);
}

#[test]
fn three_dots_stand_for_anything() {
    for (found, expected) in
        [("a\n", "a"), ("abc", "a...c"), ("abc", "..."), ("a1b2c", "a...b...c"), ("", "")]
    {
        assert!(is_as_expected(found, expected), "{found:?} {expected:?}");
    }
    for (found, expected) in [("ab", "a"), ("abc", "a...d"), ("cba", "a...c"), ("x", "")] {
        assert!(!is_as_expected(found, expected), "{found:?} {expected:?}");
    }
}
