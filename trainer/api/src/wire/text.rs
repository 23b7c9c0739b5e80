//! Text and ids: sampling, tokenising, sampled ids of replies.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use super::defaults::yes;
use crate::AdapterName;

/// `POST /v1/sample`; the defaults are the fork's.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleRequest {
    pub tokens: Vec<u32>,
    #[serde(default = "sample_defaults::num_samples")]
    pub num_samples: u32,
    /// 0 means greedy.
    #[serde(default = "sample_defaults::temperature")]
    pub temperature: f64,
    /// At most this many new tokens.
    #[serde(default = "sample_defaults::max_tokens")]
    pub max_tokens: u32,
    /// The number of most probable ids to draw from; 0 or -1 switches it off.
    #[serde(default = "sample_defaults::top_k")]
    pub top_k: i64,
    /// The most probable ids with this total probability are drawn from; 1 switches it off.
    #[serde(default = "sample_defaults::top_p")]
    pub top_p: f64,
    /// The text that ends a continuation, and is not part of it.
    pub stop: Option<Stop>,
    /// An adapter, `base`, or (if absent) the last saved one. Not in the fork's API.
    pub model: Option<String>,
    /// The seed of the first continuation; each further one adds 1. Not in the fork's API.
    pub seed: Option<u64>,
}

// === impl SampleRequest ===

impl SampleRequest {
    /// One continuation of a prompt at temperature 1, by the adapter that was saved last.
    pub fn new(tokens: Vec<u32>) -> Self {
        Self {
            tokens,
            num_samples: sample_defaults::num_samples(),
            temperature: 1.0,
            max_tokens: sample_defaults::max_tokens(),
            top_k: 0,
            top_p: 1.0,
            stop: None,
            model: None,
            seed: None,
        }
    }

    /// The shortest possible use of a model (an adapter, or `base`).
    pub fn one_token(model: String) -> Self {
        Self {
            temperature: 0.0,
            max_tokens: 1,
            model: Some(model),
            ..Self::new(vec![0])
        }
    }
}

/// Defaults of [`SampleRequest`].
mod sample_defaults {
    pub(super) fn num_samples() -> u32 {
        1
    }
    pub(super) fn temperature() -> f64 {
        crate::DEFAULT_TEMPERATURE
    }
    pub(super) fn max_tokens() -> u32 {
        2048
    }
    pub(super) fn top_k() -> i64 {
        50
    }
    pub(super) fn top_p() -> f64 {
        0.95
    }
}

/// One stop string, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
pub enum Stop {
    One(String),
    Many(Vec<String>),
}

impl Stop {
    /// Returns the strings without empty ones.
    pub fn into_strings(self) -> Vec<String> {
        let strings = match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        };
        strings.into_iter().filter(|s| !s.is_empty()).collect()
    }
}

/// Answer to [`SampleRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleReply {
    /// As many as were requested.
    pub sequences: Vec<SampledSequence>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampledSequence {
    pub tokens: Vec<u32>,
    /// Their log-probabilities at temperature 1 over the full vocabulary.
    pub logprobs: Vec<f32>,
    /// Their log-probabilities in the distribution they were drawn from. Not in the fork's API.
    #[serde(default)]
    pub sampling_logprobs: Vec<f32>,
    /// `stop` or `length`.
    pub stop_reason: String,
    /// The text of the ids, without special tokens and without the stop text. Not in the fork's API.
    #[serde(default)]
    pub text: String,
}

/// `POST /tokenize`, as in vLLM: converts a text, or messages with the chat template. Not in the fork's API.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenizeRequest {
    /// Ignored here, because there is one tokenizer.
    pub model: Option<String>,
    pub prompt: Option<String>,
    pub messages: Option<Vec<Value>>,
    /// Tools for the template.
    pub tools: Option<Value>,
    /// Whether the text ends where the assistant's message begins.
    #[serde(default = "yes")]
    pub add_generation_prompt: bool,
    /// Variables of the template, such as `enable_thinking`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub chat_template_kwargs: Map<String, Value>,
    /// Whether to split the messages where the last one, an assistant's, begins: `tokens` ends with the token that ends
    /// it, and the answer has `reply_start`. Not in vLLM's API.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub split_reply: bool,
}

// === impl TokenizeRequest ===

impl TokenizeRequest {
    /// Creates a request for a text without a template.
    pub fn text(prompt: impl Into<String>) -> Self {
        Self {
            prompt: Some(prompt.into()),
            messages: None,
            ..Self::messages(Vec::new())
        }
    }

    /// Creates a request for a conversation that ends where the assistant's message begins.
    pub fn messages(messages: Vec<Value>) -> Self {
        Self {
            model: None,
            prompt: None,
            messages: Some(messages),
            tools: None,
            add_generation_prompt: true,
            chat_template_kwargs: Map::new(),
            split_reply: false,
        }
    }
}

/// Answer to [`TokenizeRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizeReply {
    pub count: u32,
    pub max_model_len: u32,
    pub tokens: Vec<u32>,
    /// The number of tokens before the last message, if `split_reply` was set. Not in vLLM's API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_start: Option<u32>,
}

/// `GET /v1/sampled/{reply id}`: the exact sampled ids of a reply. Not in the fork's API.
///
/// Stored for callers with the trainer key, in a limited part of memory, for 15 minutes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The reply's `id`.
    pub id: String,
    /// The model's input.
    pub prompt_ids: Vec<u32>,
    /// The model's output, including the ending token if one was drawn.
    pub ids: Vec<u32>,
    /// Log-probabilities of `ids` at temperature 1 over the full vocabulary.
    pub logprobs: Vec<f32>,
    /// Log-probabilities of `ids` in the distribution they were drawn from.
    pub sampling_logprobs: Vec<f32>,
    /// The adapter that sampled; null for the base model.
    pub adapter: Option<AdapterName>,
    /// The adapter's optimiser steps, if it has the number.
    pub version: Option<u64>,
    pub base: String,
    /// The fingerprint of its content, as in `Health`.
    pub base_fingerprint: Option<String>,
}
