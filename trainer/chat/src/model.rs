//! A model, as far as it is text: prompts, and what fits into its context.

use std::{fmt, sync::Arc};

use metaclaw_trainer_text::{
    served::ServedTokenIndex,
    template::RenderRequest,
    tokenizer::{ChatTokenizer, Rendered},
};
use serde_json::{Map, Value};

use crate::{bodies::Largest, error::ApiError};

/// No text has more bytes to a token on average, but for one of blanks: what is longer is looked at before it is
/// tokenised whole, which takes a hundred times its bytes.
const BYTES_PER_TOKEN: usize = 16;
/// Bytes of a request for text beside its prompt.
const BESIDE: usize = 1 << 20;

/// What a front answers for. There may be no model yet.
pub trait ModelSource: fmt::Debug + Send + Sync {
    /// The model.
    ///
    /// # Errors
    /// 503 saying how one is loaded.
    fn model(&self) -> Result<Arc<Model>, ApiError>;
}

/// A model, as far as it is text.
#[derive(Debug, Clone)]
pub struct Model {
    name: String,
    fingerprint: Option<String>,
    context: usize,
    tokenizer: Arc<ChatTokenizer>,
    end_ids: Vec<u32>,
    /// Bytes of the longest token.
    longest: usize,
}

/// A prompt, as the template writes it and as what the model reads.
#[derive(Debug, Clone)]
pub(crate) struct Prompt {
    /// Through the chat template.
    pub(crate) rendered: Rendered,
    /// The ids that were sampled where the prompt begins as what was served before; else tokenised.
    pub(crate) ids: Vec<u32>,
    /// What it was rendered of; none for a prompt of another kind.
    pub(crate) conversation: Option<Arc<Conversation>>,
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

/// A source that always has its model.
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
    /// The base model's name, its longest sequence in tokens, and its tokenizer.
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

    /// With what tells its weights from others of the same name.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: String) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// With ids that end a reply, for a sampler that does not know the model's own.
    #[must_use]
    pub fn with_end_ids(mut self, end_ids: Vec<u32>) -> Self {
        self.end_ids = end_ids;
        self
    }

    /// The base model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What tells its weights from others of the same name, if that is known.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// The longest sequence, in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The tokenizer and the chat template.
    pub fn tokenizer(&self) -> &Arc<ChatTokenizer> {
        &self.tokenizer
    }

    /// Ids that end a reply besides those that the sampler knows.
    pub(crate) fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }

    /// How large the body of a request for text may be, `most` at any rate: no text that fits is twice as long as
    /// JSON as the context could hold in its longest tokens.
    pub(crate) fn largest_text(&self, most: usize) -> Largest {
        let bytes = self.longest_text().saturating_mul(2).saturating_add(BESIDE);
        if bytes > most {
            return Largest::of(most);
        }
        let refusal = ApiError::context_bytes(bytes, self.context);
        Largest { bytes, refusal }
    }

    /// Tokens that fit after a prompt.
    ///
    /// # Errors
    /// 400 `context_length_exceeded` when there is room for none.
    pub fn room_after(&self, n_prompt: usize) -> Result<usize, ApiError> {
        match self.context.checked_sub(n_prompt) {
            Some(room @ 1..) => Ok(room),
            Some(0) | None => Err(ApiError::context_length(n_prompt, self.context)),
        }
    }

    /// A conversation through the chat template, to where the assistant begins if `open`.
    ///
    /// # Errors
    /// 400 naming the message that the template cannot take.
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

    /// A conversation with one more message, through the chat template; none where that cannot take it.
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

    /// Ids of a text that the caller rendered: control tokens that it spells are read as such.
    ///
    /// # Errors
    /// 400 when the tokenizer has no token for a part.
    pub(crate) async fn encode(self: &Arc<Self>, text: String) -> Result<Vec<u32>, ApiError> {
        self.aside(move |model| {
            model.check_length(&text)?;
            Ok(model.tokenizer.encode(&text)?)
        })
        .await
    }

    /// Tokenising takes milliseconds where prompts are long, which an IO thread must not.
    async fn aside<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let model = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&model)).await;
        done.map_err(|error| ApiError::internal(format!("the tokenizer failed: {error}")))?
    }

    /// No text of more bytes can be within the context.
    fn longest_text(&self) -> usize {
        self.context.saturating_mul(self.longest)
    }

    /// Refuses a text that is far too long without tokenising it whole.
    fn check_length(&self, text: &str) -> Result<(), ApiError> {
        if text.len() > self.longest_text() {
            return Err(ApiError::context_bytes(self.longest_text(), self.context));
        }
        // Twice the context, because a beginning that is cut anywhere has a few tokens more.
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
