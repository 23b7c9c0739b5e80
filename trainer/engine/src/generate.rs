//! Requests for replies, the tokens and errors that come back, and replies under way.

mod prompt;
mod reply;
mod request;

use metaclaw_trainer_terms::AdapterName;
pub use metaclaw_trainer_terms::FinishReason;
use tch::TchError;
use tokio::sync::{mpsc, oneshot};

pub use self::prompt::{PromptLogprobs, PromptToken};
pub(crate) use self::prompt::{PromptScoring, Scores};
pub(crate) use self::reply::{BegunReply, ReplyEnds, TokenOutcome};
pub use self::request::GenerateRequest;
use crate::sampler::{ParamError, SampleError};

/// A token of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// The token; an id that ends the reply is given too, with the text that was held back.
    pub id: u32,
    /// The text that is certain with it: whole characters, no part of a stop text.
    pub text: String,
    /// Natural logarithm of its probability at temperature 1 over the whole vocabulary.
    pub logprob: f32,
    /// The log-probability under the distribution that was sampled from.
    pub sampling_logprob: f32,
    /// The model's likeliest tokens, likeliest first, each with its `logprob`: as many as
    /// [`crate::sampler::SamplingParams::top_logprobs`] asks for. The sampled token need not be among them.
    pub top: Vec<(u32, f32)>,
}

/// The end of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedReply {
    pub reason: FinishReason,
    /// Ids of the prompt.
    pub n_prompt: usize,
    /// Ids generated, the ending one included.
    pub n_generated: usize,
    /// Ids of the prompt that were taken from the prefix cache.
    pub cached: usize,
}

/// An event of a reply's stream: tokens, then one end.
#[derive(Debug, Clone, PartialEq)]
pub enum GenerateEvent {
    Token(Token),
    Finished(FinishedReply),
}

/// Why nothing, or nothing more, can be generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A sampling parameter is out of range.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// A prompt without ids.
    #[error("the prompt is empty: at least one token is needed")]
    EmptyPrompt,
    /// An id that the model does not have.
    #[error("prompt id {id} at position {position} is not below the vocabulary of {vocab}")]
    UnknownId {
        id: u32,
        position: usize,
        /// Ids that the model has.
        vocab: usize,
    },
    /// A prompt that leaves no room for a reply.
    #[error(
        "the prompt has {n_prompt} tokens, this model's context is {context}: shorten the conversation"
    )]
    Context {
        /// Ids of the prompt.
        n_prompt: usize,
        context: usize,
    },
    /// A prompt that does not fit in memory.
    #[error(
        "a prompt of {n_prompt} tokens needs {needed} bytes of KV cache, its budget is {budget}: shorten the conversation or raise --kv-budget"
    )]
    Memory {
        /// Ids of the prompt.
        n_prompt: usize,
        needed: usize,
        budget: usize,
    },
    /// The adapter cannot be used.
    #[error("adapter {name}: {detail}")]
    Adapter {
        name: AdapterName,
        detail: String,
        /// There is none of that name.
        missing: bool,
    },
    /// The adapter cannot be loaded for now.
    #[error("{detail}")]
    AdapterBusy { detail: String },
    /// Too much is waiting.
    #[error("the engine is busy: {waiting} requests wait already, try again later")]
    Busy { waiting: usize },
    /// No token could be drawn.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
    /// A defect of the engine, which keeps running.
    #[error("the engine failed: {0}")]
    Panicked(String),
    /// The engine is gone.
    #[error("the engine has stopped")]
    Stopped,
}

/// A reply as it comes. Dropping it cancels the generation.
#[derive(Debug)]
pub struct GenerationStream {
    events: mpsc::Receiver<Result<GenerateEvent, GenerateError>>,
    prompt: Option<oneshot::Receiver<Vec<PromptToken>>>,
    adapter_step: Option<u64>,
    ended: bool,
}

// === impl GenerationStream ===

impl GenerationStream {
    pub(crate) fn new(
        events: mpsc::Receiver<Result<GenerateEvent, GenerateError>>,
        prompt: Option<oneshot::Receiver<Vec<PromptToken>>>,
        adapter_step: Option<u64>,
    ) -> Self {
        Self {
            events,
            prompt,
            adapter_step,
            ended: false,
        }
    }

    /// Optimiser steps behind the adapter that this reply is made with; `None` of the base.
    pub fn adapter_step(&self) -> Option<u64> {
        self.adapter_step
    }

    /// The prompt's tokens from the second on, as soon as all of it was read; the first event comes after that.
    ///
    /// `None` where the request did not ask ([`GenerateRequest::prompt_logprobs`]), when it was given already, and where the
    /// reply ended before: [`GenerationStream::recv`] says why.
    ///
    /// # Cancel safety
    /// What was not given when the future is dropped, the next call gives.
    pub async fn prompt(&mut self) -> Option<Vec<PromptToken>> {
        let tokens = self.prompt.as_mut()?.await.ok();
        self.prompt = None;
        tokens
    }

    /// The next event; `None` after the end or an error.
    ///
    /// # Errors
    /// What ended the reply early; [`GenerateError::Stopped`] when the engine went away.
    ///
    /// # Cancel safety
    /// No event is lost when the future is dropped.
    pub async fn recv(&mut self) -> Option<Result<GenerateEvent, GenerateError>> {
        if self.ended {
            return None;
        }
        let received = self.events.recv().await;
        let event = received.unwrap_or(Err(GenerateError::Stopped));
        self.ended = matches!(event, Err(_) | Ok(GenerateEvent::Finished(_)));
        Some(event)
    }

    #[cfg(test)]
    pub(crate) fn n_ready(&self) -> usize {
        self.events.len()
    }
}
