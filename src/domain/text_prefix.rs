//! Beginnings of texts.

/// The longest beginning of a text that has so many bytes at most.
pub fn text_prefix(text: &str, most_bytes: usize) -> &str {
    let mut end = text.len().min(most_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_cut_in_two() {
        let found = [0, 1, 2, 3, 9].map(|most| text_prefix("aéb", most));
        assert_eq!(found, ["", "a", "a", "aé", "aéb"]);
    }
}
