//! The subject of a wish. Of two wishes about the same subject, the newer one applies.

use std::sync::LazyLock;

use regex::RegexSet;
use serde::{Deserialize, Serialize};

use crate::{
    patterns::pattern_set,
    table::{Table, named},
};

/// One subject of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facet {
    /// The length of answers.
    Length,
    /// Their language.
    Language,
    /// Emoji and similar signs.
    Emoji,
    /// Lists and bullet points.
    Lists,
    Tables,
    /// Headings, bold type, or any Markdown.
    Markup,
    /// Formality and friendliness.
    Tone,
    /// Apologies, praise, disclaimers, introductions.
    Filler,
    /// The owner's name or form of address.
    Name,
    /// Metric or not, Celsius, currency.
    Units,
    /// The format of times and dates.
    Time,
    /// The simplicity of the words.
    Words,
    /// Whether the assistant asks the owner before it acts.
    Asking,
    Sources,
    /// The style and comments of code.
    Code,
    Examples,
    /// What comes first and what last.
    Order,
}

/// The subjects, and the words of each. If several match, the first one counts.
static FACETS: LazyLock<(Vec<Facet>, RegexSet)> = LazyLock::new(|| {
    let table = Table::read(include_str!("../../data/facets.tsv"));
    let patterns: Vec<String> = table.0.iter().map(|(_, words)| words.join("|")).collect();
    let facets = table.0.iter().map(|(facet, _)| named(facet)).collect();
    (facets, pattern_set(patterns.iter().map(String::as_str)))
});

// === impl Facet ===

impl Facet {
    /// Returns the subject of a sentence in lower case.
    pub(super) fn of(sentence: &str) -> Option<Self> {
        let (facets, patterns) = &*FACETS;
        let first = patterns.matches(sentence).iter().next()?;
        facets.get(first).copied()
    }

    /// Returns whether only one of two wishes about it can apply. For other subjects both can, such as "type hints" and
    /// "tabs" for code.
    pub fn is_exclusive(self) -> bool {
        matches!(
            self,
            Self::Length | Self::Language | Self::Name | Self::Emoji
        )
    }

    /// Returns the subject of a wish.
    pub fn of_wish(wish: &str) -> Option<Self> {
        Self::of(&wish.to_lowercase())
    }
}
