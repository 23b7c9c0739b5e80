//! A request for a reply, and the allowed values.

use metaclaw_trainer_terms::{AdapterName, SamplerRequest};
use tokio::sync::oneshot;

use super::GenerateError;
use super::prompt::{PromptLogprobs, PromptScoring, PromptToken};
use crate::sampler::{ParamError, SamplingParams};

#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// The whole prompt; at least one id, fewer than the context.
    pub prompt_ids: Vec<u32>,
    /// An adapter of the checkpoint folder; `None` is the base.
    pub adapter: Option<AdapterName>,
    /// The most tokens to generate; less if the context leaves less.
    pub max_tokens: usize,
    /// How its tokens are drawn.
    pub sampling: SamplingParams,
    /// The same seed, prompt, adapter and parameters give the same reply in f32, alone or beside others. In bf16 a
    /// prompt that was read in other portions, or found in the cache, may round to another one. `None`: another draw
    /// each time.
    pub seed: Option<u64>,
    /// Texts that end the reply; they are not given out.
    pub stop: Vec<String>,
    /// Ids that end the reply, besides the model's own.
    pub stop_token_ids: Vec<u32>,
    /// Whether the model's own end ids are tokens like any other.
    pub ignore_eos: bool,
    /// Whether the prompt's own log-probabilities are told ([`super::GenerationStream::prompt`]). Then all of it is
    /// computed: nothing of it is taken from the prefix cache.
    pub prompt_logprobs: Option<PromptLogprobs>,
}

// === impl GenerateRequest ===

impl Default for GenerateRequest {
    fn default() -> Self {
        Self {
            prompt_ids: Vec::new(),
            adapter: None,
            max_tokens: 256,
            sampling: SamplingParams::default(),
            seed: None,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            prompt_logprobs: None,
        }
    }
}

impl From<SamplerRequest> for GenerateRequest {
    /// Only the first reply: the caller handles `n`.
    fn from(request: SamplerRequest) -> Self {
        Self {
            prompt_ids: request.prompt_ids,
            adapter: request.adapter,
            max_tokens: request.max_tokens,
            sampling: request.sampling,
            seed: request.seed,
            stop: request.stop,
            stop_token_ids: request.stop_token_ids,
            ignore_eos: request.ignore_eos,
            prompt_logprobs: None,
        }
    }
}

impl GenerateRequest {
    /// Checks what needs no model thread.
    ///
    /// # Errors
    /// A parameter out of range, an empty prompt, an unknown id, or a prompt beyond the context.
    pub fn check(&self, vocab: usize, context: usize) -> Result<(), GenerateError> {
        self.sampling.check()?;
        self.prompt_logprobs.map_or(Ok(()), PromptLogprobs::check)?;
        let n_prompt = self.prompt_ids.len();
        if n_prompt == 0 {
            return Err(GenerateError::EmptyPrompt);
        }
        if self.max_tokens == 0 {
            return Err(ParamError::new("max_tokens", 0, "1 or more").into());
        }
        if n_prompt >= context {
            return Err(GenerateError::Context { n_prompt, context });
        }
        if self.sampling.min_tokens > self.max_tokens {
            let allowed = format!("0 to max_tokens, {}", self.max_tokens);
            return Err(ParamError::new("min_tokens", self.sampling.min_tokens, allowed).into());
        }
        let is_unknown = |id: &&u32| **id as usize >= vocab;
        if let Some(id) = self.stop_token_ids.iter().find(is_unknown) {
            let allowed = format!("ids below the vocabulary of {vocab}");
            return Err(ParamError::new("stop_token_ids", id, allowed).into());
        }
        match self.prompt_ids.iter().position(|id| is_unknown(&id)) {
            Some(position) => Err(GenerateError::UnknownId {
                id: self.prompt_ids[position],
                position,
                vocab,
            }),
            None => Ok(()),
        }
    }

    /// The ids whose keys and values may be shared. A prompt that is scored shares none, because hidden states are not
    /// kept.
    pub(crate) fn reusable_ids(&self) -> &[u32] {
        let n = self.prompt_ids.len();
        &self.prompt_ids[..self.prompt_logprobs.map_or(n, |_| n.min(1))]
    }

    pub(crate) fn scoring(&self) -> Option<(PromptScoring, oneshot::Receiver<Vec<PromptToken>>)> {
        let wanted = self.prompt_logprobs?;
        let (to, tokens) = oneshot::channel();
        let scoring = PromptScoring::new(wanted, self.prompt_ids.len(), to);
        Some((scoring, tokens))
    }

    pub(crate) fn max_new_tokens(&self, context: usize) -> usize {
        let room = context.saturating_sub(self.prompt_ids.len());
        self.max_tokens.min(room)
    }
}
