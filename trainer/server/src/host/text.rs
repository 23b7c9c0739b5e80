//! Text: prompts, and replies as they come.

use std::sync::Arc;

use futures_util::future::try_join_all;
use metaclaw_engine::generate::{
    FinishReason, GenerateEvent, GenerateRequest, GenerationStream, Token,
};
use metaclaw_trainer_text::{
    template::RenderRequest,
    tokenizer::{ChatTokenizer, Rendered},
};
use serde_json::{Map, Value};

use super::Host;
use crate::error::ApiError;

/// No text has more bytes to a token on average, but for one of blanks: what is longer is looked at before it is
/// tokenised whole, which takes a hundred times its bytes.
const BYTES_PER_TOKEN: usize = 16;

/// A prompt, as the template writes it and as what the model reads.
#[derive(Debug, Clone)]
pub(crate) struct Prompt {
    /// Through the chat template.
    pub(crate) rendered: Rendered,
    /// The ids that were sampled where the prompt begins as what was served before; else tokenised.
    pub(crate) ids: Vec<u32>,
}

/// A reply on its way. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Generation {
    stream: GenerationStream,
    /// An event that was waited for already.
    first: Option<Event>,
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
    /// The template's own, such as `enable_thinking`.
    pub(crate) variables: Map<String, Value>,
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
        let room = self.room_for_text()?;
        self.with_tokenizer(move |tokenizer| {
            let rendered = tokenizer.render_request(&RenderRequest {
                messages: &conversation.messages,
                tools: conversation.tools.as_ref(),
                add_generation_prompt: open,
                append_system: conversation.system_append.as_deref(),
                extra: Some(&conversation.variables),
            })?;
            room.check(tokenizer, rendered.text())?;
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
        let room = self.room_for_text()?;
        self.with_tokenizer(move |tokenizer| {
            room.check(tokenizer, &text)?;
            Ok(tokenizer.encode(&text)?)
        })
        .await
    }

    /// Checks how a reply is to be drawn, before anything is made of its prompt.
    ///
    /// # Errors
    /// 400 naming the parameter that is out of its range.
    pub(crate) fn check_draw(&self, draw: &GenerateRequest) -> Result<(), ApiError> {
        let info = self.engine.get()?.info();
        let draw = GenerateRequest {
            prompt_ids: vec![0],
            ..draw.clone()
        };
        Ok(draw.check(info.vocab, info.context)?)
    }

    /// Begins `n` replies to one prompt; with a seed, each has the one after the last one's. The others begin when the
    /// first has its first token, and find the prompt's keys and values there.
    ///
    /// # Errors
    /// What the engine refuses.
    pub(crate) async fn generate(
        &self,
        draw: GenerateRequest,
        n: u32,
    ) -> Result<Vec<Generation>, ApiError> {
        let seeded = |at: u32| GenerateRequest {
            seed: draw.seed.map(|seed| seed.wrapping_add(u64::from(at))),
            ..draw.clone()
        };
        let mut first = self.begin(seeded(0)).await?;
        if n > 1 {
            first.first = Some(first.receive().await?);
        }
        let others = try_join_all((1..n).map(|at| self.begin(seeded(at)))).await?;
        Ok(std::iter::once(first).chain(others).collect())
    }

    async fn begin(&self, draw: GenerateRequest) -> Result<Generation, ApiError> {
        let stream = self.engine.generate(draw).await?;
        let first = None;
        Ok(Generation { stream, first })
    }

    /// Remembers the ids of a complete reply by what it says, so that the conversation goes on with them.
    pub(crate) fn remember(&self, prompt: &Rendered, prompt_ids: &[u32], ids: &[u32]) {
        if let Ok(tokenizer) = self.engine.tokenizer() {
            self.served.remember(&tokenizer, prompt, prompt_ids, ids);
        }
    }

    /// The bytes of a token.
    pub(crate) fn token_bytes(&self, id: u32) -> Vec<u8> {
        let tokenizer = self.engine.tokenizer();
        tokenizer.map_or_else(|_| Vec::new(), |it| it.token_bytes(id).to_vec())
    }

    fn room_for_text(&self) -> Result<RoomForText, ApiError> {
        Ok(RoomForText {
            context: self.context(),
            longest: self.engine.longest_text()?,
        })
    }

    /// Tokenising takes milliseconds where prompts are long, which an IO thread must not.
    async fn with_tokenizer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ChatTokenizer) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let tokenizer = self.engine.tokenizer()?;
        let done = tokio::task::spawn_blocking(move || work(&tokenizer)).await;
        done.map_err(|error| ApiError::internal(format!("the tokenizer failed: {error}")))?
    }
}

/// What tells a text that is far too long without tokenising it whole.
#[derive(Debug, Clone, Copy)]
struct RoomForText {
    /// Tokens.
    context: usize,
    /// Bytes that no text within the context can have.
    longest: usize,
}

// === impl RoomForText ===

impl RoomForText {
    fn check(self, tokenizer: &ChatTokenizer, text: &str) -> Result<(), ApiError> {
        if text.len() > self.longest {
            return Err(ApiError::context_bytes(self.longest, self.context));
        }
        // Twice the context, because a beginning that is cut anywhere has a few tokens more.
        let mut beginning = 2 * self.context * BYTES_PER_TOKEN;
        if text.len() <= beginning {
            return Ok(());
        }
        while !text.is_char_boundary(beginning) {
            beginning -= 1;
        }
        let n_tokens = tokenizer.encode(&text[..beginning])?.len();
        if n_tokens > 2 * self.context {
            return Err(ApiError::context_bytes(beginning, self.context));
        }
        Ok(())
    }
}

// === impl Generation ===

impl Generation {
    /// Optimiser steps behind the adapter that draws it; `None` of the base.
    pub(crate) fn version(&self) -> Option<u64> {
        self.stream.adapter_step()
    }

    /// The next event; nothing may be asked for after the end.
    ///
    /// # Errors
    /// What ended the reply early.
    ///
    /// # Cancel safety
    /// No event is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Event, ApiError> {
        match self.first.take() {
            Some(first) => Ok(first),
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Result<Event, ApiError> {
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
