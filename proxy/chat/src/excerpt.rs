//! Shortens a caller's text for use in a message or a log line.

use std::borrow::Cow;

const MAX: usize = 100;

/// Returns the first 100 characters of a text, because a caller must not determine the length of an error.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", text.split_at(end).0).into(),
        None => text.into(),
    }
}

/// Returns a text on one line, with one space between its words.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the beginning of a text, at most `n_bytes` long, that ends between two characters.
pub fn head(text: &str, n_bytes: usize) -> &str {
    let mut ends = (0..=n_bytes.min(text.len())).rev();
    let end = ends.find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_between_characters() {
        assert_eq!(head("aüb", 2), "a");
        assert_eq!(head("aüb", 3), "aü");
        assert_eq!(head("aüb", 9), "aüb");
        assert_eq!(head("ü", 0), "");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt(&"ü".repeat(100)), "ü".repeat(100));
        assert_eq!(excerpt(&"ü".repeat(5_000)), "ü".repeat(100) + "…");
    }
}
