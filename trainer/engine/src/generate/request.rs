//! What a reply is asked for with, and which values are allowed.

use metaclaw_trainer_terms::AdapterName;

use super::GenerateError;
use crate::sampler::{ParamError, SamplingParams};

/// What to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// The whole prompt; at least one id, fewer than the context.
    pub prompt_ids: Vec<u32>,
    /// An adapter of the checkpoint folder; `None` is the base.
    pub adapter: Option<AdapterName>,
    /// At most so many tokens; what the context leaves if that is less.
    pub max_tokens: usize,
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// The smallest set of likeliest tokens that holds this much probability; 1 is all.
    pub top_p: f64,
    /// So many of the likeliest tokens; 0 is all.
    pub top_k: usize,
    /// Leaves out tokens less likely than this share of the likeliest one; 0 is off.
    pub min_p: f64,
    /// Logits of ids seen in prompt or reply are divided by it where positive, else multiplied; 1 is off.
    pub repetition_penalty: f64,
    /// Taken from the logits of ids that the reply holds; 0 is off.
    pub presence_penalty: f64,
    /// Taken from the logits of ids once for each time that the reply holds them; 0 is off.
    pub frequency_penalty: f64,
    /// `None`: another draw each time.
    pub seed: Option<u64>,
    /// Texts that end the reply; they are not given out.
    pub stop: Vec<String>,
    /// Ids that end the reply, besides the model's own.
    pub stop_token_ids: Vec<u32>,
    /// Whether the model's own end ids are tokens like any other.
    pub ignore_eos: bool,
    /// Nothing ends the reply before so many tokens.
    pub min_tokens: usize,
    /// So many of the likeliest tokens are given with each token, 0 to 20.
    pub top_logprobs: usize,
}

// === impl GenerateRequest ===

impl Default for GenerateRequest {
    fn default() -> Self {
        let SamplingParams {
            temperature,
            top_p,
            top_k,
            ..
        } = SamplingParams::default();
        Self {
            prompt_ids: Vec::new(),
            adapter: None,
            max_tokens: 256,
            temperature,
            top_p,
            top_k,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            min_tokens: 0,
            top_logprobs: 0,
        }
    }
}

impl GenerateRequest {
    /// Checks what needs no model thread.
    ///
    /// # Errors
    /// A parameter out of range, an empty prompt, an unknown id, or a prompt beyond the context.
    pub fn check(&self, vocab: usize, context: usize) -> Result<(), GenerateError> {
        self.sampling(0).check()?;
        let n_prompt = self.prompt_ids.len();
        if n_prompt == 0 {
            return Err(GenerateError::EmptyPrompt);
        }
        if self.max_tokens == 0 {
            return Err(ParamError {
                field: "max_tokens",
                value: "0".into(),
                allowed: "1 or more".into(),
            }
            .into());
        }
        if n_prompt >= context {
            return Err(GenerateError::Context { n_prompt, context });
        }
        if self.min_tokens > self.max_tokens {
            return Err(ParamError {
                field: "min_tokens",
                value: self.min_tokens.to_string(),
                allowed: format!("0 to max_tokens, {}", self.max_tokens),
            }
            .into());
        }
        let is_unknown = |id: &&u32| **id as usize >= vocab;
        if let Some(id) = self.stop_token_ids.iter().find(is_unknown) {
            return Err(ParamError {
                field: "stop_token_ids",
                value: id.to_string(),
                allowed: format!("ids below the vocabulary of {vocab}"),
            }
            .into());
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

    /// Tokens that may be generated in a context.
    pub(crate) fn max_new_tokens(&self, context: usize) -> usize {
        self.max_tokens
            .min(context.saturating_sub(self.prompt_ids.len()))
    }

    pub(crate) fn sampling(&self, fallback_seed: u64) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            min_tokens: self.min_tokens,
            top_logprobs: self.top_logprobs,
            seed: self.seed.unwrap_or(fallback_seed),
        }
    }
}
