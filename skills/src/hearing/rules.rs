//! What a language's rules say of a sentence.

use super::{facet::Facet, own_words::Sentence};

/// What one rule book makes of a sentence.
pub(super) trait Rules {
    /// The sentence is about the assistant's manner, and asks.
    fn wish(sentence: &Sentence<'_>) -> bool;
    /// It complains of the reply before.
    fn complaint(sentence: &Sentence<'_>) -> Option<(Facet, &'static str)>;
    /// It takes a wish back.
    fn takes_back(sentence: &Sentence<'_>) -> bool;
    /// It says of the sentence before it that it is to hold.
    fn holds(sentence: &Sentence<'_>) -> bool;
}
