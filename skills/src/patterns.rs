//! Patterns in the code and in tables. A test compiles each of them.

use regex::{Regex, RegexSet};

/// Compiles a built-in pattern.
#[expect(
    clippy::expect_used,
    reason = "all patterns are in the code or in tables, and tests compile each one: no input reaches it"
)]
pub(crate) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of ours")
}

/// Compiles several patterns that are searched at once.
#[expect(
    clippy::expect_used,
    reason = "they stand in the code or in a table, and tests compile every one: no input reaches them"
)]
pub(crate) fn pattern_set<'p>(texts: impl IntoIterator<Item = &'p str>) -> RegexSet {
    RegexSet::new(texts).expect("patterns of ours")
}
