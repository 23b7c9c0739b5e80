//! Patterns that stand in the code: each is compiled once, and by a test.

use regex::{Regex, RegexSet};

/// A pattern of ours.
#[expect(
    clippy::expect_used,
    reason = "it stands in the code, and tests compile every one: no input reaches it"
)]
pub(crate) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of ours")
}

/// Several, looked for at once.
#[expect(
    clippy::expect_used,
    reason = "they stand in the code, and tests compile every one: no input reaches them"
)]
pub(crate) fn pattern_set<'p>(texts: impl IntoIterator<Item = &'p str>) -> RegexSet {
    RegexSet::new(texts).expect("patterns of ours")
}
