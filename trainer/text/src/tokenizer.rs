//! Text to ids and back, and the chat template: everything of a model that is not a tensor.
//!
//! A rendered conversation is cut at the control tokens that its template wrote (see `content.rs`), and what
//! stands between is tokenised with control tokens off.

mod decoder;
mod rendered;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tokenizers::Tokenizer;

pub use self::decoder::StreamDecoder;
use self::decoder::TokenBytes;
pub use self::decoder::byte_letters;
pub use self::rendered::Rendered;
pub(crate) use self::rendered::push_control;
use self::rendered::{KeyPart, parts};
pub use self::text::EncodeError;
pub(crate) use self::text::Place;
use self::text::TextEncoder;
use crate::LoadError;
use crate::content::ControlTokens;
use crate::template::{ChatTemplate, RenderError, RenderRequest};

/// The tokenizer and the chat template of a model; shared by all threads.
#[derive(Debug)]
pub struct ChatTokenizer {
    encoder: TextEncoder,
    controls: ControlTokens,
    bytes: Arc<TokenBytes>,
    template: Option<ChatTemplate>,
    /// Used where tools are given; some models have one of its own for that.
    tool_template: Option<ChatTemplate>,
    end_id: Option<u32>,
    file: PathBuf,
}

impl ChatTokenizer {
    /// Reads `tokenizer.json` and the chat templates of a model directory, from where `transformers` reads them.
    ///
    /// # Errors
    /// [`LoadError`] naming the file that is missing or not usable.
    pub fn load(dir: &Path) -> Result<Self, LoadError> {
        let file = dir.join("tokenizer.json");
        let bytes = read(&file)?;
        let damaged = |detail: String| LoadError::Damaged {
            file: file.clone(),
            detail,
        };
        let tokenizer = Tokenizer::from_bytes(&bytes).map_err(|e| damaged(e.to_string()))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        let decoder = json.get("decoder").unwrap_or(&Value::Null);
        let bytes = TokenBytes::new(&tokenizer, decoder).ok_or_else(|| LoadError::Unsupported {
            file: file.clone(),
            what: "decoder".into(),
            value: decoder
                .get("type")
                .map_or_else(|| "missing".into(), Value::to_string),
            allowed: "ByteLevel, or ByteFallback with Metaspace".into(),
        })?;
        let controls = ControlTokens::new(tokenizer.get_added_tokens_decoder())
            .map_err(|error| damaged(error.to_string()))?;
        let encoder = TextEncoder::new(tokenizer, json, &controls)
            .map_err(|error| damaged(error.to_string()))?;
        let config = TokenizerConfig::read(dir)?;
        let (template, tool_template) = config.templates(dir)?;
        let end_id = config.special.get("eos_token");
        Ok(Self {
            end_id: end_id.and_then(|token| encoder.token_to_id(token)),
            template,
            tool_template,
            encoder,
            controls,
            bytes: Arc::new(bytes),
            file,
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
        let (text, mark) = template.render(request, &self.controls)?;
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

fn read(file: &Path) -> Result<Vec<u8>, LoadError> {
    std::fs::read(file).map_err(|source| LoadError::Read {
        file: file.to_owned(),
        source,
    })
}

/// `tokenizer_config.json`, which a model may lack.
struct TokenizerConfig {
    file: PathBuf,
    json: Value,
    /// `bos_token` and its like, which templates write themselves.
    special: BTreeMap<String, String>,
}

impl TokenizerConfig {
    fn read(dir: &Path) -> Result<Self, LoadError> {
        let file = dir.join("tokenizer_config.json");
        let json: Value = if file.exists() {
            serde_json::from_slice(&read(&file)?).map_err(|e| LoadError::Damaged {
                file: file.clone(),
                detail: e.to_string(),
            })?
        } else {
            Value::Null
        };
        let special = special_tokens(&json);
        Ok(Self {
            file,
            json,
            special,
        })
    }

    /// The chat template, and the one for conversations with tools where the model has two.
    ///
    /// As `transformers` does, files of their own come before what stands here, and one named `tool_use` is taken where
    /// there are tools.
    fn templates(
        &self,
        dir: &Path,
    ) -> Result<(Option<ChatTemplate>, Option<ChatTemplate>), LoadError> {
        let extra = dir.join("additional_chat_templates");
        let find = |name: &str, files: &[PathBuf]| {
            let (file, source) = match files.iter().find(|file| file.exists()) {
                Some(file) => (file.clone(), Some(template_text(file)?)),
                None => (self.file.clone(), named_template(&self.json, name)),
            };
            source
                .map(|source| ChatTemplate::new(&source, self.special.clone()))
                .transpose()
                .map_err(|detail| LoadError::Template { file, detail })
        };
        let default = [dir.join("chat_template.jinja"), extra.join("default.jinja")];
        let default = match find("default", &default)? {
            // Models that read images have it there, before they had a file of its own.
            None => processor_template(&dir.join("chat_template.json"), &self.special)?,
            found => found,
        };
        Ok((default, find("tool_use", &[extra.join("tool_use.jinja")])?))
    }
}

fn template_text(file: &Path) -> Result<String, LoadError> {
    String::from_utf8(read(file)?).map_err(|e| LoadError::Template {
        file: file.to_owned(),
        detail: e.to_string(),
    })
}

fn processor_template(
    file: &Path,
    special: &BTreeMap<String, String>,
) -> Result<Option<ChatTemplate>, LoadError> {
    if !file.exists() {
        return Ok(None);
    }
    let wrong = |detail: String| LoadError::Template {
        file: file.to_owned(),
        detail,
    };
    let json: Value = serde_json::from_slice(&read(file)?).map_err(|e| wrong(e.to_string()))?;
    let source = named_template(&json, "default");
    source
        .map(|source| ChatTemplate::new(&source, special.clone()))
        .transpose()
        .map_err(wrong)
}

/// The template of that name; a single one is the default.
fn named_template(config: &Value, name: &str) -> Option<String> {
    let template = config.get("chat_template")?;
    let is_named = |it: &&Value| it["name"] == name;
    let named = template.as_array().into_iter().flatten().find(is_named);
    let single = template.as_str().filter(|_| name == "default");
    single
        .or_else(|| named?["template"].as_str())
        .map(str::to_owned)
}

fn special_tokens(config: &Value) -> BTreeMap<String, String> {
    let fields = config.as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| key.ends_with("_token"))
        .filter_map(|(key, value)| {
            let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
            Some((key.clone(), text.to_owned()))
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests;
