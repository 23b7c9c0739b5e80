//! Regular expressions of ours.

use regex::Regex;

/// Compiles a pattern of the code, or one made of the phrases of a file of ours.
#[expect(
    clippy::expect_used,
    reason = "no input reaches it, and the tests use each pattern"
)]
pub(crate) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of ours")
}
