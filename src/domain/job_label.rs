//! What people call a job.

use icu_normalizer::DecomposingNormalizerBorrowed;

use crate::domain::ids::JobId;

/// Longest slug of a prompt in a label, in bytes.
const SLUG_MAX_BYTES: usize = 40;

/// The label of a job: its row's `id`, with `-v2`, `-v3` for further variations, or for a row without
/// one a slug of its text, which is asked for then alone, and the beginning of its identity.
///
/// The first variation has no suffix, so that raising `count` later does not rename what exists.
pub fn label<T: AsRef<str>>(
    id: Option<&str>,
    variation: u32,
    text: impl FnOnce() -> T,
    job: JobId,
) -> String {
    match id {
        Some(id) if variation <= 1 => id.to_owned(),
        Some(id) => format!("{id}-v{variation}"),
        None => {
            let slug = slug(text().as_ref());
            let slug = if slug.is_empty() { "job" } else { &slug };
            format!("{slug}-{}", job.short())
        }
    }
}

/// The `id` of the row of a job with this label, which is that of the given variation; nothing where its row has none.
/// Of a first variation the label itself, whether that was made of an `id` or not.
pub fn row_id(label: &str, variation: u32) -> Option<&str> {
    if variation <= 1 { Some(label) } else { label.strip_suffix(&format!("-v{variation}")) }
}

/// What the names of a row's outputs have in common: its `id`, or a job's label, without the numbers of variations
/// and outputs at its end.
pub fn name_stem(label: &str) -> &str {
    let without_number = |text: &str| {
        let (rest, number) = text.rsplit_once('-')?;
        let digits = number.strip_prefix(['v', 'V']).unwrap_or(number);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !rest.is_empty()).then_some(rest.len())
    };
    let mut stem = label;
    while let Some(bytes) = without_number(stem) {
        stem = &stem[..bytes];
    }
    stem
}

/// A name as a disk sees it that tells neither upper from lower case nor one Unicode normal form from another: such
/// a disk takes names for one and the same that are equal after this.
pub fn folded(name: &str) -> String {
    let replaced = |c: char| if c.is_control() || "/\\:*?\"<>|".contains(c) { '_' } else { c };
    if name.is_ascii() {
        return name.chars().map(|c| replaced(c.to_ascii_lowercase())).collect();
    }
    let normal = DecomposingNormalizerBorrowed::new_nfd();
    let folded = normal.normalize(name).to_uppercase().to_lowercase();
    normal.normalize(&folded).chars().map(replaced).collect()
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
        assert_eq!(label(Some("hero"), 1, || "a fox", JOB), "hero");
        assert_eq!(label(Some("hero"), 3, || "a fox", JOB), "hero-v3");
        assert_eq!((row_id("hero", 1), row_id("hero-v3", 3)), (Some("hero"), Some("hero")));
        assert_eq!(row_id("a-fox-abababab", 2), None);
    }

    #[test]
    fn names_that_a_disk_may_take_for_one_are_folded_into_one() {
        for (one, other) in [
            ("hero", "HERO"),
            ("caf\u{e9}", "cafe\u{301}"),
            ("CAF\u{c9}", "cafe\u{301}"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{3c3}", "\u{3c2}"),
            ("a/b", "A:b"),
            ("\u{ac00}", "\u{1100}\u{1161}"),
            ("K\u{fc}HL", "ku\u{308}hl"),
            ("A|b\u{7f}", "a_B_"),
            // The Kelvin sign, which is ASCII in lower case.
            ("\u{212a}", "K"),
        ] {
            assert_eq!(folded(one), folded(other), "{one} {other}");
        }
        for (one, other) in [("hero", "her0"), ("cafe", "caf\u{e9}"), ("a-b", "a_b"), ("a.b", "a b")] {
            assert_ne!(folded(one), folded(other), "{one} {other}");
        }
    }

    #[test]
    fn a_stem_has_no_numbers_at_its_end() {
        let stems = ["hero", "hero-2", "hero-v2", "hero-V2-3", "2", "-2", "hero-x2", "hero-"].map(name_stem);
        assert_eq!(stems, ["hero", "hero", "hero", "hero", "2", "-2", "hero-x2", "hero-"]);
    }

    #[test]
    fn a_row_without_one_is_called_by_its_text() {
        assert_eq!(label(None, 1, || "A red fox, running!", JOB), "a-red-fox-running-abababab");
        assert_eq!(label(None, 2, || "狐が走る", JOB), "狐が走る-abababab");
        assert_eq!(label(None, 1, || "../../..", JOB), "job-abababab");
        assert_eq!(
            label(None, 1, || "word ".repeat(50), JOB),
            "word-word-word-word-word-word-word-word-abababab"
        );
    }
}
