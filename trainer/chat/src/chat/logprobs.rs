//! Log-probabilities of tokens in OpenAI's format.

use metaclaw_trainer_terms::SampledToken;
use metaclaw_trainer_text::tokenizer::ChatTokenizer;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TokenLogprob {
    #[serde(flatten)]
    token: OneToken,
    top_logprobs: Vec<OneToken>,
}

/// A token of the vocabulary. The client may see its text later or not at all.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct OneToken {
    /// Its bytes as text, or U+FFFD if they are not a character by themselves.
    token: String,
    /// Log-probability at temperature 1 over the full vocabulary.
    logprob: f32,
    bytes: Vec<u8>,
}

// === impl TokenLogprob ===

impl TokenLogprob {
    pub(crate) fn new(token: &SampledToken, tokenizer: &ChatTokenizer) -> Self {
        let one = |id, logprob| OneToken::new(tokenizer.token_bytes(id).to_vec(), logprob);
        let top = token.top.iter().map(|(id, logprob)| one(*id, *logprob));
        Self {
            token: one(token.id, token.logprob),
            top_logprobs: top.collect(),
        }
    }
}

// === impl OneToken ===

impl OneToken {
    fn new(bytes: Vec<u8>, logprob: f32) -> Self {
        Self {
            token: String::from_utf8_lossy(&bytes).into_owned(),
            logprob,
            bytes,
        }
    }
}

#[cfg(test)]
pub(super) fn for_test(text: &str, logprob: f32) -> TokenLogprob {
    TokenLogprob {
        token: OneToken::new(text.into(), logprob),
        top_logprobs: vec![OneToken::new(vec![0xf0, 0x9f], -7.0)],
    }
}
