//! A reply on its way: what the engine's thread keeps of it between two steps.

use std::rc::Rc;

use tokio::sync::mpsc::{self, error::TrySendError};

use super::stop::StopMatcher;
use super::{FinishReason, Finished, GenerateError, GenerateEvent, Token};
use crate::cache::KvCache;
use crate::engine::ServedAdapter;
use crate::model::Model;
use crate::sampler::{Drawn, Sampler};
use crate::tokenizer::StreamDecoder;

/// Prompt ids that one step runs: long enough that weights are read once for many tokens, short
/// enough that other streams and a training job get their turn.
const PORTION: usize = 128;

/// What a step left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Call again.
    More,
    /// The reply has ended, or nobody listens any more.
    Ended,
}

/// What a generation is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) prompt_ids: Vec<u32>,
    /// May hold the keys and values of a beginning of the prompt.
    pub(crate) cache: KvCache,
    pub(crate) adapter: Option<Rc<ServedAdapter>>,
    pub(crate) sampler: Sampler,
    pub(crate) decoder: StreamDecoder,
    pub(crate) max_tokens: usize,
    pub(crate) stop: Vec<String>,
    pub(crate) end_ids: Vec<u32>,
    pub(crate) events: mpsc::Sender<Result<GenerateEvent, GenerateError>>,
}

/// One reply in the making.
#[derive(Debug)]
pub(crate) struct Generation {
    /// Prompt, then what was generated.
    ids: Vec<u32>,
    n_prompt: usize,
    cached: usize,
    cache: KvCache,
    adapter: Option<Rc<ServedAdapter>>,
    sampler: Sampler,
    decoder: StreamDecoder,
    stops: StopMatcher,
    max_tokens: usize,
    end_ids: Vec<u32>,
    events: mpsc::Sender<Result<GenerateEvent, GenerateError>>,
}

impl Generation {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            n_prompt: parts.prompt_ids.len(),
            cached: parts.cache.len(),
            ids: parts.prompt_ids,
            cache: parts.cache,
            adapter: parts.adapter,
            sampler: parts.sampler,
            decoder: parts.decoder,
            stops: StopMatcher::new(parts.stop),
            max_tokens: parts.max_tokens,
            end_ids: parts.end_ids,
            events: parts.events,
        }
    }

    /// Runs a portion of the prompt, or one token.
    ///
    /// # Errors
    /// What ends this reply early; the caller passes it on with [`Self::fail`].
    pub(crate) fn step(&mut self, model: &Model) -> Result<Step, GenerateError> {
        if self.events.is_closed() {
            return Ok(Step::Ended);
        }
        let lora = self.adapter.as_ref().map(|adapter| &adapter.lora);
        let start = self.cache.len();
        let end = self.ids.len().min(start + PORTION);
        let hidden = model.forward_cached(&self.ids[start..end], &mut self.cache, lora)?;
        if end < self.ids.len() {
            return Ok(Step::More);
        }
        let last = hidden.f_select(1, -1)?;
        let drawn = self.sampler.draw(&model.logits(&last)?.f_squeeze_dim(0)?)?;
        Ok(self.take(drawn))
    }

    /// Memory of its keys and values.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Ends the reply with an error.
    pub(crate) fn fail(&mut self, error: GenerateError) {
        // Nobody may be listening any more; then there is nobody to tell.
        let _ = self.events.try_send(Err(error));
    }

    /// The ids whose keys and values are cached, the adapter they were made with, and the cache.
    pub(crate) fn into_prefix(mut self) -> (Vec<u32>, Option<Rc<ServedAdapter>>, KvCache) {
        self.ids.truncate(self.cache.len());
        (self.ids, self.adapter, self.cache)
    }

    fn take(&mut self, drawn: Drawn) -> Step {
        self.ids.push(drawn.id);
        let n_generated = self.ids.len() - self.n_prompt;
        let ended = self.end_ids.contains(&drawn.id);
        // What ends a reply is no part of its text, not even where a vocabulary forgot to call it special.
        let piece = if ended {
            String::new()
        } else {
            self.decoder.push(drawn.id)
        };
        let (mut text, mut stopped) = self.stops.push(&piece);
        let full = n_generated >= self.max_tokens;
        if !stopped && (ended || full) {
            // Nothing more comes: a stop text that was begun is ordinary text, unless this completes it.
            let (rest, now) = self.stops.push(&self.decoder.finish());
            text.push_str(&rest);
            stopped = now;
            text.push_str(&self.stops.finish());
        }
        let token = Token {
            id: drawn.id,
            text,
            logprob: drawn.logprob,
            sampling_logprob: drawn.sampling_logprob,
            top: Vec::new(),
        };
        let sent = self.send(GenerateEvent::Token(token));
        if !(ended || stopped || full) {
            return sent;
        }
        let reason = if ended || stopped {
            FinishReason::Stop
        } else {
            FinishReason::Length
        };
        let (n_prompt, cached) = (self.n_prompt, self.cached);
        self.send(GenerateEvent::Finished(Finished {
            reason,
            n_prompt,
            n_generated,
            cached,
        }));
        Step::Ended
    }

    fn send(&self, event: GenerateEvent) -> Step {
        match self.events.try_send(Ok(event)) {
            Ok(()) => Step::More,
            // The channel holds a whole reply, so it is never full; a listener that left cancels.
            Err(TrySendError::Closed(_) | TrySendError::Full(_)) => Step::Ended,
        }
    }
}
