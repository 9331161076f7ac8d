//! What people call a job.

use crate::domain::ids::JobId;

/// Longest slug of a prompt in a label, in bytes.
const SLUG_MAX_BYTES: usize = 40;

/// The label of a job: its row's `id`, with `-v2`, `-v3` for further variations, or for a row without
/// one a slug of its text and the beginning of its identity.
///
/// The first variation has no suffix, so that raising `count` later does not rename what exists.
pub fn label(id: Option<&str>, variation: u32, text: &str, job: JobId) -> String {
    match id {
        Some(id) if variation <= 1 => id.to_owned(),
        Some(id) => format!("{id}-v{variation}"),
        None => {
            let slug = slug(text);
            let slug = if slug.is_empty() { "job" } else { &slug };
            format!("{slug}-{}", job.short())
        }
    }
}

/// `A red fox, running!` becomes `a-red-fox-running`. Letters of every script stay.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let word = word.to_lowercase();
        let joined = slug.len() + usize::from(!slug.is_empty()) + word.len();
        if joined > SLUG_MAX_BYTES {
            break;
        }
        if !slug.is_empty() {
            slug.push('-');
        }
        slug.push_str(&word);
    }
    slug
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId([0xab; 16]);

    #[test]
    fn a_row_with_an_id_is_called_by_it() {
        assert_eq!(label(Some("hero"), 1, "a fox", JOB), "hero");
        assert_eq!(label(Some("hero"), 3, "a fox", JOB), "hero-v3");
    }

    #[test]
    fn a_row_without_one_is_called_by_its_text() {
        assert_eq!(label(None, 1, "A red fox, running!", JOB), "a-red-fox-running-abababab");
        assert_eq!(label(None, 2, "狐が走る", JOB), "狐が走る-abababab");
        assert_eq!(label(None, 1, "../../..", JOB), "job-abababab");
        assert_eq!(
            label(None, 1, &"word ".repeat(50), JOB),
            "word-word-word-word-word-word-word-word-abababab"
        );
    }
}
