//! Words of commands that people copy into a shell.

use std::fmt::Display;
use std::path::Path;

/// A word as a shell takes it: in quotes where a character of it means something to a shell, or parts words.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A path as it is typed in a command.
pub fn path_word(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

/// A job as it is typed in a command: `BATCH/LABEL`.
pub fn job_argument(batch: impl Display, label: &str) -> String {
    shell_word(&format!("{batch}/{label}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_them_otherwise() {
        let pairs = [
            ("b/gull", "b/gull"),
            ("b/möwe-v2", "b/möwe-v2"),
            ("b/my row", "'b/my row'"),
            ("b/it's", "'b/it'\\''s'"),
            ("b/$HOME;`id`", "'b/$HOME;`id`'"),
            ("", "''"),
        ];
        for (word, typed) in pairs {
            assert_eq!(shell_word(word), typed);
        }
    }
}
