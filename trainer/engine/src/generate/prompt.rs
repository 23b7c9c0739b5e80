//! How likely the prompt itself was.

use tokio::sync::oneshot;

use crate::head::TopTokens;
use crate::sampler::ParamError;

const MAX_TOP: usize = 128;

/// What to report of every prompt token except the first, which has no context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptLogprobs {
    /// How many of the likeliest tokens to report, 0 to 128.
    pub top: usize,
}

/// A token of a prompt, seen from the tokens before it.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptToken {
    /// Natural logarithm of its probability at temperature 1 over the whole vocabulary.
    pub logprob: f32,
    /// The likeliest tokens at the position, likeliest first, each with its `logprob`: as many as
    /// [`PromptLogprobs::top`] asks for.
    pub top: Vec<(u32, f32)>,
}

#[derive(Debug)]
pub(crate) struct Scores {
    pub(crate) logprobs: Vec<f32>,
    /// Empty unless asked for.
    pub(crate) top: TopTokens,
}

#[derive(Debug)]
pub(crate) struct PromptScoring {
    wanted: PromptLogprobs,
    /// The scored tokens, from the second on.
    tokens: Vec<PromptToken>,
    n_wanted: usize,
    to: Option<oneshot::Sender<Vec<PromptToken>>>,
}

// === impl PromptLogprobs ===

impl PromptLogprobs {
    pub(super) fn check(self) -> Result<(), ParamError> {
        if self.top <= MAX_TOP {
            return Ok(());
        }
        let allowed = format!("0 to {MAX_TOP}");
        Err(ParamError::new("prompt_logprobs", self.top, allowed))
    }
}

// === impl PromptScoring ===

impl PromptScoring {
    /// The scoring of a prompt of `n_prompt` tokens. A prompt of one token is done immediately.
    pub(crate) fn new(
        wanted: PromptLogprobs,
        n_prompt: usize,
        to: oneshot::Sender<Vec<PromptToken>>,
    ) -> Self {
        let mut scoring = Self {
            wanted,
            tokens: Vec::new(),
            n_wanted: n_prompt.saturating_sub(1),
            to: Some(to),
        };
        scoring.tell_if_done();
        scoring
    }

    pub(crate) fn n_done(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn n_wanted(&self) -> usize {
        self.n_wanted
    }

    pub(crate) fn is_done(&self) -> bool {
        self.tokens.len() >= self.n_wanted
    }

    pub(crate) fn top(&self) -> usize {
        self.wanted.top
    }

    /// Adds the next tokens, and tells all of them after the last.
    pub(crate) fn push(&mut self, scores: &Scores) {
        let k = self.wanted.top;
        let top = |i: usize| {
            let at = i * k..(i + 1) * k;
            let ids = scores.top.ids.get(at.clone()).unwrap_or_default();
            let logprobs = scores.top.logprobs.get(at).unwrap_or_default();
            ids.iter().copied().zip(logprobs.iter().copied()).collect()
        };
        let tokens = scores.logprobs.iter().enumerate();
        let tokens = tokens.map(|(i, &logprob)| {
            let top = top(i);
            PromptToken { logprob, top }
        });
        self.tokens.extend(tokens);
        self.tell_if_done();
    }

    fn tell_if_done(&mut self) {
        if self.is_done()
            && let Some(to) = self.to.take()
        {
            // Who does not wait for it needs no answer.
            let _ = to.send(self.tokens.clone());
        }
    }
}
