//! A caller's text, as it may stand in a message or a log line.

use std::borrow::Cow;

/// The most characters that are quoted.
const MAX: usize = 100;

/// The first 100 characters of a text: the caller must not choose how long an error is.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", text.split_at(end).0).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt(&"ü".repeat(100)), "ü".repeat(100));
        assert_eq!(excerpt(&"ü".repeat(5_000)), "ü".repeat(100) + "…");
    }
}
