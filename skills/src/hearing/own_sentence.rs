//! The owner's own sentences of a message, as other crates may use them.

use super::{
    Heard, MAX_SENTENCE, hear,
    own_words::{Voice, sentences},
    question::shown,
};

/// A sentence that the owner typed. Quotations in it are named, and a text that it hands over is cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSentence {
    /// One line.
    pub text: String,
    /// Whether the message is longer than people usually type, so that it may contain unmarked pasted text.
    pub is_in_long: bool,
    /// Whether rules detect a wish in it.
    pub is_wish: bool,
}

/// Returns the owner's own sentences of a message, in order. Quoted, pasted, forwarded and reported text is left out.
pub fn own_sentences(text: &str) -> Vec<OwnSentence> {
    let heard = hear(text, true);
    let is_wish = |sentence: &str| {
        heard
            .iter()
            .any(|it| matches!(it, Heard::Wish { said, .. } if said == sentence))
    };
    let own = sentences(text)
        .into_iter()
        .filter(|it| it.voice == Voice::Owner && it.text.chars().count() <= MAX_SENTENCE);
    let own = own.map(|it| OwnSentence {
        text: match it.hands_over {
            Some(at) => shown(it.covered.get(..at).unwrap_or_default()),
            None => shown(&it.covered),
        },
        is_in_long: it.is_in_long,
        is_wish: is_wish(it.text),
    });
    own.filter(|it| !it.text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_owner_typed_is_there() {
        let texts = |text: &str| {
            let own = own_sentences(text).into_iter();
            own.map(|it| it.text).collect::<Vec<_>>()
        };
        assert_eq!(
            texts("I live in Rome. My boss says we are all moving to Paris."),
            ["I live in Rome."]
        );
        assert!(texts("Fwd: news\nI live in Rome.").is_empty());
        let quoted = texts("She wrote “I live in Rome”, funny.").join(" ");
        assert!(!quoted.contains("Rome"), "{quoted}");
        let handed_over = texts("Translate this: I live in Rome.").join(" ");
        assert!(!handed_over.contains("Rome"), "{handed_over}");
        assert!(own_sentences("Always answer in one sentence.")[0].is_wish);
    }
}
