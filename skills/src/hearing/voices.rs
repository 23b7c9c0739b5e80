//! The table of words that tell whose words a sentence has.

use std::sync::LazyLock;

use regex::Regex;

use crate::{patterns::pattern, table::Table};

/// Words that tell whose words a sentence has. The table explains its lists.
pub(super) static VOICES: LazyLock<Table> =
    LazyLock::new(|| Table::read(include_str!("../../data/voices.tsv")));

/// Compiles a list of [`VOICES`].
pub(super) fn voice(kind: &str) -> Regex {
    pattern(&format!("(?i){}", VOICES.list(kind).join("|")))
}
