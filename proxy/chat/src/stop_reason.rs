//! Why a reply ended. Each server has its own word for it.

use std::{collections::HashMap, sync::LazyLock};

use crate::words::words;

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model was done, or met a stop text.
    Done,
    /// It called tools.
    Called,
    /// The reply was cut at a limit on its length.
    Length,
    /// The reply was cut at the end of the model's context.
    Window,
    /// A filter, or the model itself, refused to say it.
    Filtered,
    /// The provider's own tools are not done, and the client continues by itself.
    Paused,
    /// The server broke off. The reply is not whole.
    Broken,
}

const KINDS: [(&str, StopReason); 7] = [
    ("done", StopReason::Done),
    ("called", StopReason::Called),
    ("length", StopReason::Length),
    ("window", StopReason::Window),
    ("filtered", StopReason::Filtered),
    ("paused", StopReason::Paused),
    ("broken", StopReason::Broken),
];

static REASONS: LazyLock<HashMap<String, StopReason>> = LazyLock::new(|| {
    let read = |(kind, reason)| words(kind).iter().map(move |word| (plain(word), reason));
    KINDS.into_iter().flat_map(read).collect()
});

/// Words before the reason in the names of enums: `FINISH_REASON_STOP`, `FinishReason.STOP`, `REASON_MAX_LEN`.
const PREFIXES: [&str; 3] = ["finishreason", "stopreason", "reason"];

impl StopReason {
    /// Returns the meaning of a server's word, whatever its case and its separators, or `None` if it is unknown.
    pub fn of(word: &str) -> Option<Self> {
        let word = plain(word);
        let mut prefixes = PREFIXES.iter();
        let rest = prefixes.find_map(|prefix| word.strip_prefix(prefix));
        REASONS.get(rest.unwrap_or(&word)).copied()
    }

    /// Returns whether the server says that the reply is not whole: it was cut at a limit, or the server broke off.
    pub fn is_cut(self) -> bool {
        matches!(self, Self::Length | Self::Window | Self::Broken)
    }

    /// Returns OpenAI's word, if it has one.
    pub fn in_chat(self) -> Option<&'static str> {
        match self {
            Self::Done => Some("stop"),
            Self::Called => Some("tool_calls"),
            Self::Length | Self::Window => Some("length"),
            Self::Filtered => Some("content_filter"),
            Self::Paused | Self::Broken => None,
        }
    }
}

/// Returns OpenAI's word for a server's word. A word without one is unchanged.
pub fn finish_reason(word: &str) -> String {
    let known = StopReason::of(word).and_then(StopReason::in_chat);
    known.unwrap_or(word).to_owned()
}

/// Returns whether a server's word says that it broke off.
pub fn breaks_off(word: &str) -> bool {
    StopReason::of(word) == Some(StopReason::Broken)
}

fn plain(word: &str) -> String {
    let letters = word.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_means_the_same_in_every_spelling() {
        for (spellings, expected) in [
            (
                "stop STOP FinishReason.STOP FINISH_REASON_STOP endTurn eos_token",
                Some("stop"),
            ),
            (
                "length MAX_TOKENS max-tokens model_length REASON_MAX_LEN maxTokens modelContextWindowExceeded max_new_tokens maxPredictedTokensReached context_length contextLengthReached CONTEXT_WINDOW_EXCEEDED",
                Some("length"),
            ),
            (
                "SAFETY content-filter guardrailIntervened refusal PROHIBITED_CONTENT",
                Some("content_filter"),
            ),
            (
                "tool_calls tool-calls TOOL_CALL toolUse function_call",
                Some("tool_calls"),
            ),
            ("pause_turn OTHER zzz ", None),
        ] {
            for word in spellings.split(' ') {
                let found = StopReason::of(word).and_then(StopReason::in_chat);
                assert_eq!(found, expected, "{word}");
                assert_eq!(finish_reason(word), expected.unwrap_or(word));
            }
        }
        let broken = "abort aborted ERROR Network_Error MALFORMED_FUNCTION_CALL TOO_MANY_TOOL_CALLS modelUnloaded";
        for word in broken.split(' ') {
            assert!(breaks_off(word), "{word}");
        }
        assert!(!breaks_off("stop") && !breaks_off("zzz"));
    }

    #[test]
    fn every_word_has_one_meaning() {
        let n_words: usize = KINDS.iter().map(|(kind, _)| words(kind).len()).sum();
        assert_eq!(n_words, REASONS.len());
    }
}
