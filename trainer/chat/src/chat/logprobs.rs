//! Log-probabilities of tokens, as OpenAI writes them.

use metaclaw_trainer_terms::SampledToken;
use metaclaw_trainer_text::tokenizer::ChatTokenizer;
use serde::Serialize;

/// A token of the reply, with the likeliest in its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TokenLogprob {
    #[serde(flatten)]
    token: OneToken,
    top_logprobs: Vec<OneToken>,
}

/// A token as the vocabulary has it: not what a client sees of it, which may be held back or none.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct OneToken {
    /// Its bytes as text; U+FFFD for what is no character by itself.
    token: String,
    /// At temperature 1 over the full vocabulary.
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
