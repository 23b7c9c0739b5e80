//! Text to ids and back, and the chat template: everything of a model that is not a tensor.
//!
//! A rendered conversation is cut at the control tokens that its template wrote (see `content.rs`), and what
//! stands between is tokenised with control tokens off.

mod config;
mod decoder;
mod ranks;
mod rendered;
mod text;
mod vocabulary;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use self::config::TokenizerConfig;
use self::decoder::TokenBytes;
pub use self::decoder::{StreamDecoder, byte_letters};
pub use self::rendered::Rendered;
pub(crate) use self::rendered::{CONTROL_BYTES, KeyPart, parts, push_control};
pub use self::text::EncodeError;
pub(crate) use self::text::Place;
use self::vocabulary::{Encoder, Vocabulary};
use crate::LoadError;
use crate::content::ControlTokens;
use crate::template::{ChatTemplate, RenderError, RenderRequest, sort_keys};

/// The tokenizer and the chat template of a model; shared by all threads.
#[derive(Debug)]
pub struct ChatTokenizer {
    encoder: Encoder,
    controls: ControlTokens,
    bytes: Arc<TokenBytes>,
    template: Option<ChatTemplate>,
    /// Used where tools are given; some models have one of its own for that.
    tool_template: Option<ChatTemplate>,
    end_id: Option<u32>,
    file: PathBuf,
    sorts_tools: bool,
}

// === impl ChatTokenizer ===

impl ChatTokenizer {
    /// Reads `tokenizer.json`, or Kimi's `tiktoken.model` where there is none, and the chat templates of a model
    /// directory, from where `transformers` reads them.
    ///
    /// # Errors
    /// [`LoadError`] naming the file that is missing or not usable.
    pub fn load(dir: &Path) -> Result<Self, LoadError> {
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

    /// Writes a conversation as the model was taught to read it.
    ///
    /// # Errors
    /// [`RenderError`] when the model has no template, or the template or a message part is refused.
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

    /// As [`Self::render`], with an appended system text and the template's own switches.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn render_request(&self, request: &RenderRequest<'_>) -> Result<Rendered, RenderError> {
        let with_tools = self
            .tool_template
            .as_ref()
            .filter(|_| request.tools.is_some());
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

    /// The system text that the template writes when a conversation has none.
    pub fn default_system(&self) -> Option<&str> {
        self.template
            .as_ref()
            .and_then(ChatTemplate::default_system)
    }

    /// Ids of a rendered conversation; nothing is added.
    ///
    /// # Errors
    /// [`EncodeError`] when the tokenizer has no token for a part and no fall-back.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, EncodeError> {
        self.encode_key(rendered.key(), Place::Start)
    }

    /// Ids of a text that is what a template writes: control tokens that it spells are read as such. Text from
    /// elsewhere belongs into [`Self::render`], or into [`Self::encode_data`].
    ///
    /// # Errors
    /// As [`Self::encode_rendered`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        self.encode_rendered(&Rendered::new(text.to_owned(), None, &self.controls))
    }

    /// Ids of a text, in which control tokens are spelled letter by letter.
    ///
    /// # Errors
    /// As [`Self::encode_rendered`].
    pub fn encode_data(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let mut ids = Vec::new();
        self.encoder.encode(text, Place::Start, &mut ids)?;
        Ok(ids)
    }

    /// Ids of the end of a key that is cut between two parts or within a text.
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

    /// Text of ids without special tokens; bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.decode_with(ids, false)
    }

    /// Text of ids, special tokens included: what a template would have written.
    pub fn decode_special(&self, ids: &[u32]) -> String {
        self.decode_with(ids, true)
    }

    /// Decodes a reply id by id, without special tokens and without the blank that a tokenizer puts before a text.
    pub fn stream_decoder(&self) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.bytes), false)
    }

    /// As [`Self::stream_decoder`], with that blank.
    pub(crate) fn raw_decoder(&self) -> StreamDecoder {
        self.stream_decoder().with_blank()
    }

    /// The bytes of one token by itself: perhaps a part of a character; a special token's name. Empty where
    /// there is no such id.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.bytes.of(id)
    }

    /// Bytes of the longest token.
    pub fn longest_token(&self) -> usize {
        self.bytes.longest()
    }

    /// The token that `tokenizer_config.json` says a reply ends with.
    pub fn end_id(&self) -> Option<u32> {
        self.end_id
    }

    /// Ids that a reply ends with: [`Self::end_id`], and what the chat template writes after one, which is another
    /// token in some models.
    pub fn end_ids(&self) -> Vec<u32> {
        const SAID: &str = "metaclaw-reply-mark";
        let message =
            |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
        let talk = [message("user", "Hi"), message("assistant", SAID)];
        let rendered = self.render(&talk, None, false).ok();
        let after = rendered.and_then(|rendered| {
            let key = rendered.key();
            let said = key
                .windows(SAID.len())
                .rposition(|it| it == SAID.as_bytes())?;
            // Nothing but blanks may stand between.
            parts(&key[said + SAID.len()..]).find_map(|part| match part {
                KeyPart::Control(id) => Some(Some(id)),
                KeyPart::Text(text) => (!text.trim().is_empty()).then_some(None),
            })?
        });
        let mut ids: Vec<u32> = self.end_id.into_iter().chain(after).collect();
        ids.dedup();
        ids
    }

    /// Whether an id is a control token's, which no text gives.
    pub fn is_control(&self, id: u32) -> bool {
        self.controls.contains(id)
    }

    /// Whether replies begin with a blank that is not part of their text.
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
