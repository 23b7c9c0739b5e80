//! Keys as they may be shown.

use metaclaw_llm::Secret;

/// `sk-…abcd`: enough to tell one from another, not enough to use.
pub(crate) fn mask(key: &str) -> String {
    Secret::from(key.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_its_ends_only() {
        assert_eq!(mask("sk-0123456789abcd"), "sk-…abcd");
        assert!(!mask("short").contains("hor"));
    }
}
