//! Converts text to ids and back, and renders chat templates: everything of a model that is not a tensor.
//!
//! A rendered conversation is cut at the control tokens that its template wrote (see `content.rs`), and the text in
//! between is tokenised with control tokens off.

mod config;
mod decoder;
mod ranks;
mod rendered;
mod reply;
mod text;
mod vocabulary;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use metaclaw_trainer_terms::gemma;
use serde_json::{Value, json};

use self::config::TokenizerConfig;
use self::decoder::TokenBytes;
pub use self::decoder::{StreamDecoder, byte_letters};
pub use self::rendered::Rendered;
pub(crate) use self::rendered::{CONTROL_BYTES, KeyPart, parts, push_control};
pub use self::reply::{RenderedReply, SplitReply, SplitReplyError};
pub use self::text::EncodeError;
pub(crate) use self::text::Place;
use self::vocabulary::{Encoder, Vocabulary};
use crate::content::ControlTokens;
use crate::error::Result;
use crate::template::{ChatTemplate, RenderError, RenderRequest, sort_keys};

/// The tokenizer and the chat template of a model, shared by all threads.
#[derive(Debug)]
pub struct ChatTokenizer {
    encoder: Encoder,
    controls: ControlTokens,
    bytes: Arc<TokenBytes>,
    template: Option<ChatTemplate>,
    /// The template for conversations with tools. Some models have a separate one.
    tool_template: Option<ChatTemplate>,
    end_id: Option<u32>,
    file: PathBuf,
    sorts_tools: bool,
}

// === impl ChatTokenizer ===

impl ChatTokenizer {
    /// Reads `tokenizer.json`, or Kimi's `tiktoken.model` if there is none, and the chat templates of a model
    /// directory, from the files that `transformers` uses.
    ///
    /// # Errors
    /// Returns `ModelFileError`, which names the missing or unusable file.
    pub fn load(dir: &Path) -> Result<Self> {
        let config = TokenizerConfig::read(dir)?;
        let ranks = dir.join("tiktoken.model");
        let json = dir.join("tokenizer.json");
        let vocabulary = if !json.exists() && ranks.exists() {
            Vocabulary::of_ranks(ranks, &config.json)?
        } else {
            Vocabulary::of_json(json)?
        };
        let (template, tool_template) = config.templates(dir)?;
        let end_id = config.special.get("eos_token");
        Ok(Self {
            end_id: end_id.and_then(|token| vocabulary.encoder.token_to_id(token)),
            template,
            tool_template,
            encoder: vocabulary.encoder,
            controls: vocabulary.controls,
            bytes: Arc::new(vocabulary.bytes),
            file: vocabulary.file,
            sorts_tools: vocabulary.sorts_tools,
        })
    }

    /// Writes a conversation in the form that the model was trained on.
    ///
    /// # Errors
    /// Returns [`RenderError`] if the model has no template, or if the template refuses the conversation, or if a
    /// message part is not supported.
    pub fn render(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        add_generation_prompt: bool,
    ) -> Result<Rendered, RenderError> {
        self.render_request(&RenderRequest {
            messages,
            tools,
            add_generation_prompt,
            ..RenderRequest::default()
        })
    }

    /// Works like [`Self::render`], with text appended to the system prompt and the template's switches.
    ///
    /// # Errors
    /// Fails like [`Self::render`].
    pub fn render_request(&self, request: &RenderRequest<'_>) -> Result<Rendered, RenderError> {
        let other = self.tool_template.as_ref();
        let with_tools = other.filter(|_| request.tools.is_some());
        let Some(template) = with_tools.or(self.template.as_ref()) else {
            return Err(RenderError::NoTemplate {
                file: self.file.clone(),
            });
        };
        let sorted = request.tools.filter(|_| self.sorts_tools).map(|tools| {
            let mut tools = tools.clone();
            sort_keys(&mut tools);
            tools
        });
        let request = RenderRequest {
            tools: sorted.as_ref().or(request.tools),
            ..*request
        };
        let (text, mark) = template.render(&request, &self.controls)?;
        Ok(Rendered::new(text, mark, &self.controls))
    }

    /// Returns the system prompt that the template writes if a conversation has none.
    pub fn default_system(&self) -> Option<&str> {
        self.template
            .as_ref()
            .and_then(ChatTemplate::default_system)
    }

    /// Returns the ids of a rendered conversation, without additions.
    ///
    /// # Errors
    /// Returns [`EncodeError`] if the tokenizer has no token for a part and no fall-back.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, EncodeError> {
        self.encode_key(&rendered.key, Place::Start)
    }

    /// Returns the ids of a text that a template wrote. Control tokens in it are recognised. For text from elsewhere,
    /// use [`Self::render`] or [`Self::encode_data`].
    ///
    /// # Errors
    /// Fails like [`Self::encode_rendered`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        self.encode_rendered(&Rendered::new(text.to_owned(), None, &self.controls))
    }

    /// Returns the ids of a text, in which control tokens are spelled letter by letter.
    ///
    /// # Errors
    /// Fails like [`Self::encode_rendered`].
    pub fn encode_data(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let mut ids = Vec::new();
        self.encoder.encode(text, Place::Start, &mut ids)?;
        Ok(ids)
    }

    /// Returns the ids of the end of a key that is cut between two parts or within a text.
    pub(crate) fn encode_key(&self, key: &[u8], mut place: Place) -> Result<Vec<u32>, EncodeError> {
        let mut ids = Vec::new();
        for part in parts(key) {
            match part {
                KeyPart::Text(text) => self.encoder.encode(text, place, &mut ids)?,
                KeyPart::Control(id) => {
                    ids.push(id);
                    place = Place::AfterControl;
                }
            }
        }
        Ok(ids)
    }

    /// Returns the text of ids without special tokens, except those that mark thinking and calls in a reply. Invalid UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.decode_with(ids, false)
    }

    /// Returns the text of ids with special tokens, as a template would have written it.
    pub fn decode_special(&self, ids: &[u32]) -> String {
        self.decode_with(ids, true)
    }

    /// Makes a decoder for a reply id by id, without the special tokens that [`Self::decode`] leaves out, and without
    /// the blank that a tokenizer puts before a text.
    pub fn stream_decoder(&self) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.bytes), false)
    }

    pub(crate) fn raw_decoder(&self) -> StreamDecoder {
        self.stream_decoder().with_blank()
    }

    /// Returns the bytes of one token by itself, which may be a part of a character. For a special token, returns its
    /// name. Returns nothing if the id does not exist.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.bytes.of(id)
    }

    /// Returns the number of bytes of the longest token.
    pub fn longest_token(&self) -> usize {
        self.bytes.longest()
    }

    /// Returns the end token in `tokenizer_config.json`.
    pub fn end_id(&self) -> Option<u32> {
        self.end_id
    }

    /// Returns the ids that end a reply: [`Self::end_id`], and the tokens that the chat template writes after a reply
    /// and after one with a call, which differ in some models.
    pub fn end_ids(&self) -> Vec<u32> {
        const SAID: &str = "metaclaw-reply-mark";
        let rendered = |content: &str, calls: Value| {
            let user = json!({"role": "user", "content": "Hi"});
            let reply = json!({"role": "assistant", "content": content, "tool_calls": calls});
            self.render(&[user, reply], None, false).ok()
        };
        let after = rendered(SAID, Value::Null).and_then(|rendered| {
            let key = &rendered.key;
            let said = key
                .windows(SAID.len())
                .rposition(|token| token == SAID.as_bytes())?;
            // Only white space may come in between.
            parts(&key[said + SAID.len()..]).find_map(|part| match part {
                KeyPart::Control(id) => Some(Some(id)),
                KeyPart::Text(text) => (!text.trim().is_empty()).then_some(None),
            })?
        });
        let function = json!({"name": SAID, "arguments": {}});
        let call = json!([{"id": "call", "type": "function", "function": function}]);
        let after_call =
            rendered("", call).and_then(|rendered| match parts(&rendered.key).last() {
                Some(KeyPart::Control(id)) if self.decode(&[id]).is_empty() => Some(id),
                Some(KeyPart::Control(_) | KeyPart::Text(_)) | None => None,
            });
        let ids = self.end_id.into_iter().chain(after).chain(after_call);
        let mut ids: Vec<u32> = ids.collect();
        ids.dedup();
        ids
    }

    /// Returns whether an id is a control token's, which no text gives.
    pub fn is_control(&self, id: u32) -> bool {
        self.controls.contains(id)
    }

    /// Returns whether the model marks its thinking with channels (`<|channel>`, Gemma 4) and not with `<think>`.
    pub fn has_channels(&self) -> bool {
        let id = self.encoder.token_to_id(gemma::CHANNEL);
        id.is_some_and(|id| self.is_control(id))
    }

    /// Returns whether replies begin with a blank that is not part of their text.
    pub(crate) fn strips_blank(&self) -> bool {
        self.bytes.strips_blank
    }

    fn decode_with(&self, ids: &[u32], special: bool) -> String {
        let mut decoder = StreamDecoder::new(Arc::clone(&self.bytes), special);
        let mut text: String = ids.iter().map(|&id| decoder.push(id)).collect();
        text.push_str(&decoder.finish());
        text
    }
}

#[cfg(test)]
pub(crate) mod tests;
