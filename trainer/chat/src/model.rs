//! The text side of a model: prompts, and what fits into its context.

use std::{fmt, sync::Arc};

use metaclaw_trainer_text::{
    served::ServedTokenIndex,
    template::RenderRequest,
    tokenizer::{ChatTokenizer, Rendered, SplitReply},
};
use serde_json::{Map, Value};

use crate::{bodies::Largest, error::ApiError};

/// No text has more bytes per token on average, except one of white space. A longer text is checked before it is
/// tokenised completely, which takes a hundred times its bytes.
const BYTES_PER_TOKEN: usize = 16;
/// Bytes of a request for text besides its prompt.
const BESIDE: usize = 1 << 20;

/// The source of a front's model. It may have no model yet.
pub trait ModelSource: fmt::Debug + Send + Sync {
    /// Returns the model.
    ///
    /// # Errors
    /// Answers 503, which says how to load one.
    fn model(&self) -> Result<Arc<Model>, ApiError>;
}

/// The text side of a model.
#[derive(Debug, Clone)]
pub struct Model {
    name: String,
    fingerprint: Option<String>,
    context: usize,
    tokenizer: Arc<ChatTokenizer>,
    pub(crate) end_ids: Vec<u32>,
    longest: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Prompt {
    pub(crate) rendered: Rendered,
    /// The ids: the sampled ones where the prompt begins like an earlier served sequence, and tokenised ones for the
    /// rest.
    pub(crate) ids: Vec<u32>,
    /// The conversation that it was rendered from, or none for another kind of prompt.
    pub(crate) conversation: Option<Arc<Conversation>>,
}

#[derive(Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Value>,
    pub(crate) tools: Option<Value>,
    pub(crate) variables: Map<String, Value>,
    pub(crate) system_append: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Always(pub(crate) Arc<Model>);

// === impl Always ===

impl ModelSource for Always {
    fn model(&self) -> Result<Arc<Model>, ApiError> {
        Ok(Arc::clone(&self.0))
    }
}

// === impl Model ===

impl Model {
    /// Makes a model from the base model's name, its longest sequence in tokens, and its tokenizer.
    pub fn new(name: impl Into<String>, context: usize, tokenizer: Arc<ChatTokenizer>) -> Self {
        Self {
            name: name.into(),
            fingerprint: None,
            context,
            end_ids: Vec::new(),
            longest: tokenizer.longest_token().max(1),
            tokenizer,
        }
    }

    /// Sets an identifier that distinguishes its weights from others of the same name.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: String) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Sets ids that end a reply, for a sampler that does not know the model's own.
    #[must_use]
    pub fn with_end_ids(mut self, end_ids: Vec<u32>) -> Self {
        self.end_ids = end_ids;
        self
    }

    /// Returns the base model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the identifier that distinguishes its weights from others of the same name, if it is known.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Returns the longest sequence in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Returns the tokenizer and the chat template.
    pub fn tokenizer(&self) -> &Arc<ChatTokenizer> {
        &self.tokenizer
    }

    /// Returns the limit for the body of a request for text, at most `most`: as JSON, no text that fits is more than
    /// twice as long as the context filled with the longest tokens.
    pub(crate) fn largest_text(&self, most: usize) -> Largest {
        let bytes = self.longest_text().saturating_mul(2).saturating_add(BESIDE);
        if bytes > most {
            return Largest::of(most);
        }
        let refusal = ApiError::context_bytes(bytes, self.context);
        Largest { bytes, refusal }
    }

    /// Returns the number of tokens that fit after a prompt.
    ///
    /// # Errors
    /// Answers 400 `context_length_exceeded` if no token fits.
    pub fn room_after(&self, n_prompt: usize) -> Result<usize, ApiError> {
        match self.context.checked_sub(n_prompt) {
            Some(room @ 1..) => Ok(room),
            Some(0) | None => Err(ApiError::context_length(n_prompt, self.context)),
        }
    }

    /// Renders a conversation with the chat template, up to the beginning of the assistant's turn if `open`.
    ///
    /// # Errors
    /// Answers 400, which names the message that the template refuses.
    pub(crate) async fn render(
        self: &Arc<Self>,
        served: &Arc<ServedTokenIndex>,
        conversation: Conversation,
        open: bool,
    ) -> Result<Prompt, ApiError> {
        let served = Arc::clone(served);
        self.aside(move |model| {
            let rendered = model.tokenizer.render_request(&RenderRequest {
                messages: &conversation.messages,
                tools: conversation.tools.as_ref(),
                add_generation_prompt: open,
                append_system: conversation.system_append.as_deref(),
                extra: Some(&conversation.variables),
            })?;
            model.check_length(rendered.text())?;
            let ids = served.encode(&model.tokenizer, &rendered)?;
            Ok(Prompt {
                rendered,
                ids,
                conversation: Some(Arc::new(conversation)),
            })
        })
        .await
    }

    /// Returns the ids of a conversation that ends with an assistant's message, split where that begins. They are the
    /// same whatever was served before.
    ///
    /// # Errors
    /// Answers 400 if the template refuses the conversation or does not show where the reply begins.
    pub(crate) async fn split_reply(
        self: &Arc<Self>,
        conversation: Conversation,
    ) -> Result<SplitReply, ApiError> {
        self.aside(move |model| {
            let rendered = model.tokenizer.render_reply(&RenderRequest {
                messages: &conversation.messages,
                tools: conversation.tools.as_ref(),
                add_generation_prompt: false,
                append_system: conversation.system_append.as_deref(),
                extra: Some(&conversation.variables),
            })?;
            model.check_length(rendered.text())?;
            Ok(model.tokenizer.encode_reply(&rendered)?)
        })
        .await
    }

    pub(crate) fn rendered_with(
        &self,
        conversation: &Conversation,
        message: Value,
    ) -> Option<Rendered> {
        let mut messages = conversation.messages.clone();
        messages.push(message);
        let rendered = self.tokenizer.render_request(&RenderRequest {
            messages: &messages,
            tools: conversation.tools.as_ref(),
            add_generation_prompt: false,
            append_system: conversation.system_append.as_deref(),
            extra: Some(&conversation.variables),
        });
        rendered.ok()
    }

    /// Returns the ids of a text that the caller rendered. Control tokens in it are recognised.
    ///
    /// # Errors
    /// Answers 400 if the tokenizer has no token for a part.
    pub(crate) async fn encode(self: &Arc<Self>, text: String) -> Result<Vec<u32>, ApiError> {
        self.aside(move |model| {
            model.check_length(&text)?;
            Ok(model.tokenizer.encode(&text)?)
        })
        .await
    }

    /// Runs work on a blocking thread, because tokenising a long prompt takes milliseconds.
    async fn aside<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let model = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&model)).await;
        done.map_err(|error| ApiError::internal(format!("the tokenizer failed: {error}")))?
    }

    fn longest_text(&self) -> usize {
        self.context.saturating_mul(self.longest)
    }

    fn check_length(&self, text: &str) -> Result<(), ApiError> {
        if text.len() > self.longest_text() {
            return Err(ApiError::context_bytes(self.longest_text(), self.context));
        }
        // The factor is two, because a beginning that is cut anywhere has a few more tokens.
        let most = self.context.saturating_mul(2);
        let mut beginning = most.saturating_mul(BYTES_PER_TOKEN);
        if text.len() <= beginning {
            return Ok(());
        }
        while !text.is_char_boundary(beginning) {
            beginning -= 1;
        }
        if self.tokenizer.encode(&text[..beginning])?.len() > most {
            return Err(ApiError::context_bytes(beginning, self.context));
        }
        Ok(())
    }
}
