//! What happened, line by line, for a person to read. Kept only where somebody will.

use std::fmt;

use callsheet::domain::ids::JobKey;

/// Lines of one history.
#[derive(Debug, Default)]
pub struct Transcript {
    is_kept: bool,
    lines: Vec<String>,
}

impl Transcript {
    pub fn new(is_kept: bool) -> Transcript {
        Transcript { is_kept, lines: Vec::new() }
    }

    /// One line: since the beginning, who, and what.
    pub fn say(&mut self, at: u64, who: impl fmt::Display, what: fmt::Arguments<'_>) {
        if self.is_kept {
            let (seconds, ms) = (at / 1000, at % 1000);
            let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let who = who.to_string();
            self.lines.push(format!("{h:>4}:{m:02}:{s:02}.{ms:03}  {who:<10} {what}"));
        }
    }

    pub fn text(&self) -> String {
        self.lines.join("\n")
    }
}

/// `1.7#2`: the second attempt of job 7 of batch 1.
pub fn job(key: JobKey, attempt: u32) -> String {
    format!("{}.{}#{attempt}", key.batch.0, key.seq.0)
}
