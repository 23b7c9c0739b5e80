//! Continuations of token ids, asked of whoever has the model.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use futures_util::Stream;
use smart_default::SmartDefault;

use crate::{AdapterName, ErrorCode, ParamError, SamplingParams};

/// The future of one call of a [`Sampler`].
pub type SamplerFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SamplerError>> + Send + 'a>>;

/// The events of all replies to one request. Dropping it cancels what is not drawn yet.
pub type SampleStream = Pin<Box<dyn Stream<Item = Result<SampleEvent, SamplerError>> + Send>>;

/// Draws continuations of token ids: ids in; ids and log-probabilities out, one by one or all at once.
///
/// # Cancel safety
/// Dropping a future or a stream cancels the request, also at a remote server if that is possible.
pub trait Sampler: fmt::Debug + Send + Sync {
    /// Begins `request.n` replies to one prompt.
    ///
    /// Resolves when the request is accepted, not when it is answered: what the server refuses at once is returned
    /// here, so that the caller can still answer with a status. What fails later is an item of the stream, its last.
    /// A sampler that cannot stream returns a stream at once that stays silent until all tokens are there.
    ///
    /// # Errors
    /// [`SamplerError`].
    fn sample(&self, request: SamplerRequest) -> SamplerFuture<'_, Sampling>;

    /// Checks how a reply is to be drawn before its prompt is known: `prompt_ids` is empty.
    ///
    /// # Errors
    /// [`SamplerFailure::Request`] naming a field that is out of its range, or that this sampler cannot do:
    /// [`SamplingParams::check_common`] names those that few samplers can.
    fn check(&self, request: &SamplerRequest) -> Result<(), SamplerError>;

    /// The adapters that may be asked for by name, in any order.
    ///
    /// # Errors
    /// [`SamplerError`].
    fn adapters(&self) -> SamplerFuture<'_, Vec<AdapterName>>;

    /// Whether there is an adapter of this name.
    ///
    /// # Errors
    /// [`SamplerError`].
    fn has_adapter<'a>(&'a self, name: &'a AdapterName) -> SamplerFuture<'a, bool> {
        Box::pin(async move { Ok(self.adapters().await?.contains(name)) })
    }

    /// The adapter of requests that name no model; `None` is the base.
    fn default_adapter(&self) -> Option<AdapterName> {
        None
    }
}

#[derive(Debug, Clone, SmartDefault, PartialEq)]
pub struct SamplerRequest {
    pub prompt_ids: Vec<u32>,
    /// `None` is the base model.
    pub adapter: Option<AdapterName>,
    /// So many replies, at least 1.
    #[default(1)]
    pub n: u32,
    /// At most so many tokens a reply. [`usize::MAX`] is what the context leaves.
    #[default(usize::MAX)]
    pub max_tokens: usize,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// Of the first reply; the others count up from it. `None`: another draw each time.
    pub seed: Option<u64>,
    /// Texts that end a reply. A sampler that gives no text ([`SampledToken::text`]) may pass over them: the caller
    /// looks for them itself, and drops the stream when all replies have ended.
    pub stop: Vec<String>,
    /// Ids that end a reply; the id itself is the reply's last.
    pub stop_token_ids: Vec<u32>,
    /// Whether the model's own end is a token like any other.
    pub ignore_eos: bool,
}

/// Replies that have begun.
#[derive(derive_more::Debug)]
#[debug("Sampling({version:?})")]
pub struct Sampling {
    /// Optimiser steps behind the adapter, where they are known; `None` of the base.
    pub version: Option<u64>,
    /// What happens, in the order in which it happens. Of each reply its tokens, then one end.
    pub events: SampleStream,
}

/// What happened to one of the replies.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleEvent {
    /// A token was drawn; the one that ends a reply is given too.
    Token {
        /// Which reply, from 0.
        choice: u32,
        token: SampledToken,
    },
    /// A reply has ended.
    End {
        /// Which reply, from 0.
        choice: u32,
        end: SamplingEnd,
    },
}

/// A token of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    pub id: u32,
    /// The text that is certain with it: whole characters, no part of a stop text. `None` where the sampler does not
    /// read its tokens: then the caller decodes them and looks for stop texts.
    pub text: Option<String>,
    /// Natural logarithm of its probability at temperature 1 over the whole vocabulary.
    pub logprob: f32,
    /// Natural logarithm of its probability in the distribution that it was drawn from.
    pub sampling_logprob: f32,
    /// The likeliest tokens with their `logprob`, likeliest first: as many as [`SamplingParams::top_logprobs`] asks for.
    pub top: Vec<(u32, f32)>,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingEnd {
    pub reason: FinishReason,
    /// Ids of the prompt that were not computed again; 0 where that is not known.
    pub n_cached: usize,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop text or id did.
    Stop,
    /// `max_tokens` or the context is used up.
    Length,
}

/// What kind of failure it is: whoever answers over HTTP chooses the status by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplerFailure {
    /// A field of the request is wrong, or cannot be done here.
    Request,
    /// The prompt leaves no room for a reply.
    Context {
        /// Ids of the prompt.
        n_prompt: usize,
        context: usize,
    },
    /// There is no such model or adapter.
    UnknownModel,
    /// The sampler's server refuses our key.
    Unauthorized,
    /// The account at the sampler's server has no money left.
    Payment,
    /// Too much is asked for at the moment.
    Busy,
    /// The sampler cannot be reached, or does not work for now.
    Unavailable,
    /// The sampler's server failed, or answered what is not understood.
    Remote,
    /// A defect on this machine.
    Internal,
}

/// Why nothing, or nothing more, is drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SamplerError {
    failure: SamplerFailure,
    message: String,
    param: Option<&'static str>,
    code: Option<ErrorCode>,
    retry_after: Option<Duration>,
}

// === impl FinishReason ===

impl FinishReason {
    /// As OpenAI writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

// === impl SamplerError ===

impl SamplerError {
    /// A failure in words: what was wrong, what was given, what is allowed, what to do.
    pub fn new(failure: SamplerFailure, message: impl Into<String>) -> Self {
        Self {
            failure,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
        }
    }

    /// A field of the request is wrong, or cannot be done here.
    pub fn field(param: &'static str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param),
            ..Self::new(SamplerFailure::Request, message)
        }
    }

    /// The prompt leaves no room for a reply.
    pub fn context(n_prompt: usize, context: usize) -> Self {
        let text = format!(
            "the prompt has {n_prompt} tokens, this model's context is {context}: shorten the conversation"
        );
        Self::new(SamplerFailure::Context { n_prompt, context }, text)
    }

    /// With a stable word for programs.
    #[must_use]
    pub fn with_code(mut self, code: ErrorCode) -> Self {
        self.code = Some(code);
        self
    }

    /// With the time after which to try again.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// What kind of failure it is.
    pub fn failure(&self) -> SamplerFailure {
        self.failure
    }

    /// The field of the request that was wrong, if it is one.
    pub fn param(&self) -> Option<&'static str> {
        self.param
    }

    /// The stable word for programs, if there is one.
    pub fn code(&self) -> Option<&ErrorCode> {
        self.code.as_ref()
    }

    /// When to try again, if the sampler says.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl From<ParamError> for SamplerError {
    fn from(error: ParamError) -> Self {
        Self::field(error.field, error.to_string())
    }
}
