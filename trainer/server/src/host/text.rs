//! Text: prompts, and replies as they come.

use std::sync::Arc;

use metaclaw_engine::{
    engine::EngineState,
    generate::{FinishReason, GenerateEvent, GenerateRequest, GenerationStream, Token},
    template::RenderRequest,
    tokenizer::{ChatTokenizer, Rendered},
};
use metaclaw_trainer_api::AdapterName;
use serde_json::Value;

use super::Host;
use crate::error::ApiError;

/// A prompt, as the template writes it and as what the model reads.
#[derive(Debug, Clone)]
pub(crate) struct Prompt {
    /// Through the chat template.
    pub(crate) rendered: Rendered,
    /// The ids that were sampled where the prompt begins as what was served before; else tokenised.
    pub(crate) ids: Vec<u32>,
}

/// What to draw.
#[derive(Debug, Clone)]
pub(crate) struct Draw {
    pub(crate) prompt_ids: Vec<u32>,
    /// `None` is the base.
    pub(crate) adapter: Option<AdapterName>,
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Sampling,
}

/// How to draw.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sampling {
    /// 0 is greedy.
    pub(crate) temperature: f64,
    /// 1 is off.
    pub(crate) top_p: f64,
    /// `None` is off.
    pub(crate) top_k: Option<u32>,
    /// Drawn when absent.
    pub(crate) seed: Option<u64>,
    /// End the reply; not part of it.
    pub(crate) stop: Vec<String>,
}

/// A reply on its way. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Generation {
    stream: GenerationStream,
    /// Optimiser steps behind the adapter; `None` of the base.
    pub(crate) version: Option<u64>,
}

/// What happened next.
#[derive(Debug)]
pub(crate) enum Event {
    /// A token; the one that ends the reply is among them.
    Token(Token),
    /// The last event.
    End(End),
}

/// What the chat template is given.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Value>,
    /// `None` when there are none.
    pub(crate) tools: Option<Value>,
    /// Added at the end of the system text.
    pub(crate) system_append: Option<String>,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// `stop` or `length`.
    pub(crate) reason: &'static str,
    pub(crate) n_prompt: usize,
    pub(crate) n_generated: usize,
    /// Ids of the prompt that were not computed again.
    pub(crate) n_cached: usize,
}

// === impl Host ===

impl Host {
    /// A conversation through the chat template, to where the assistant begins if `open`.
    ///
    /// # Errors
    /// 400 naming the message that the template cannot take.
    pub(crate) async fn render(
        &self,
        conversation: Conversation,
        open: bool,
    ) -> Result<Prompt, ApiError> {
        let served = Arc::clone(&self.served);
        self.with_tokenizer(move |tokenizer| {
            let rendered = tokenizer.render_request(&RenderRequest {
                messages: &conversation.messages,
                tools: conversation.tools.as_ref(),
                add_generation_prompt: open,
                append_system: conversation.system_append.as_deref(),
                extra: None,
            })?;
            let ids = served.encode(tokenizer, &rendered)?;
            Ok(Prompt { rendered, ids })
        })
        .await
    }

    /// Ids of a text that the caller rendered: control tokens that it spells are read as such.
    ///
    /// # Errors
    /// 400 when the tokenizer has no token for a part.
    pub(crate) async fn encode(&self, text: String) -> Result<Vec<u32>, ApiError> {
        self.with_tokenizer(move |tokenizer| Ok(tokenizer.encode(&text)?))
            .await
    }

    /// Begins a reply.
    ///
    /// # Errors
    /// What the engine refuses.
    pub(crate) async fn generate(&self, draw: Draw) -> Result<Generation, ApiError> {
        let adapter = draw.adapter.as_ref().map(|name| name.as_str().to_owned());
        let request = GenerateRequest {
            prompt_ids: draw.prompt_ids,
            adapter: adapter.clone(),
            max_tokens: draw.max_tokens,
            temperature: draw.sampling.temperature,
            top_p: draw.sampling.top_p,
            top_k: draw.sampling.top_k.map_or(0, |k| k as usize),
            seed: draw.sampling.seed,
            stop: draw.sampling.stop,
            ..GenerateRequest::default()
        };
        // Both at once, so that the second costs no turn of its own.
        let (stream, version) = tokio::join!(self.engine.generate(request), self.version(adapter));
        Ok(Generation {
            stream: stream?,
            version,
        })
    }

    /// Optimiser steps behind an adapter; loads it, as the reply is about to do.
    async fn version(&self, adapter: Option<String>) -> Option<u64> {
        let name = adapter?;
        let step = move |state: &mut EngineState| Some(state.adapter(&name).ok()?.step);
        // What is wrong with the adapter is told by the reply.
        self.engine.call_now(step).await.ok().flatten()
    }

    /// Remembers the ids of a complete reply by what it says, so that the conversation goes on with them.
    pub(crate) fn remember(&self, prompt: &Rendered, prompt_ids: &[u32], ids: &[u32]) {
        let tokenizer = self.engine.tokenizer();
        self.served.remember(&tokenizer, prompt, prompt_ids, ids);
    }

    /// Tokenising takes milliseconds where prompts are long, which an IO thread must not.
    async fn with_tokenizer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ChatTokenizer) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let tokenizer = self.engine.tokenizer();
        let done = tokio::task::spawn_blocking(move || work(&tokenizer)).await;
        done.map_err(|error| ApiError::internal(format!("the tokenizer failed: {error}")))?
    }
}

// === impl Generation ===

impl Generation {
    /// The next event; nothing may be asked for after the end.
    ///
    /// # Errors
    /// What ended the reply early.
    ///
    /// # Cancel safety
    /// No event is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Event, ApiError> {
        match self.stream.recv().await {
            Some(Ok(GenerateEvent::Token(token))) => Ok(Event::Token(token)),
            Some(Ok(GenerateEvent::Finished(end))) => Ok(Event::End(End {
                reason: match end.reason {
                    FinishReason::Stop => "stop",
                    FinishReason::Length => "length",
                },
                n_prompt: end.n_prompt,
                n_generated: end.n_generated,
                n_cached: end.cached,
            })),
            Some(Err(error)) => Err(error.into()),
            None => Err(ApiError::internal("the reply has ended already")),
        }
    }
}
