//! Counted things in words.

/// `1 job`, `3 jobs`, `2 batches`.
pub fn counted(count: impl Into<u64>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        count if noun.ends_with("ch") => format!("{count} {noun}es"),
        count => format!("{count} {noun}s"),
    }
}
