//! Text to ids and back, and the chat template: everything of a model that is not a tensor.

mod decoder;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tokenizers::Tokenizer;

pub use self::decoder::StreamDecoder;
use self::decoder::TokenBytes;
pub(crate) use self::decoder::byte_letters;
use crate::template::{ChatTemplate, RenderError, RenderRequest};
use crate::weights::LoadError;

/// The tokenizer and the chat template of a model; shared by all threads.
#[derive(Debug)]
pub struct ChatTokenizer {
    tokenizer: Tokenizer,
    bytes: Arc<TokenBytes>,
    template: Option<ChatTemplate>,
    file: PathBuf,
}

/// Why a text cannot be turned into ids.
#[derive(Debug, thiserror::Error)]
#[error("the text cannot be tokenised: {0}")]
pub struct EncodeError(String);

impl ChatTokenizer {
    /// Reads `tokenizer.json` and the chat template (`chat_template.jinja` or `tokenizer_config.json`) of a model directory.
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
        let template = read_template(dir)?;
        Ok(Self {
            tokenizer,
            bytes: Arc::new(bytes),
            template,
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
    ) -> Result<String, RenderError> {
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
    pub fn render_request(&self, request: &RenderRequest<'_>) -> Result<String, RenderError> {
        match &self.template {
            Some(template) => template.render(request),
            None => Err(RenderError::NoTemplate {
                file: self.file.clone(),
            }),
        }
    }

    /// The system text that the template writes when a conversation has none.
    pub fn default_system(&self) -> Option<&str> {
        self.template
            .as_ref()
            .and_then(ChatTemplate::default_system)
    }

    /// Ids of a rendered text; nothing is added, special tokens in it are read as such.
    ///
    /// # Errors
    /// [`EncodeError`] when the tokenizer has no token for a part and no fall-back.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let encoding = self
            .tokenizer
            .encode_fast(text, false)
            .map_err(|e| EncodeError(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of ids without special tokens; bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.decode_with(ids, false)
    }

    /// Text of ids, special tokens included: what a template would have written.
    pub fn decode_special(&self, ids: &[u32]) -> String {
        self.decode_with(ids, true)
    }

    /// Decodes a reply id by id, without special tokens.
    pub fn stream_decoder(&self) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.bytes), false)
    }

    /// The id of a token that stands in the vocabulary as `token`.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// The token of an id as the vocabulary spells it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    /// The bytes of a token, as a reply has them; none of an id that is not in the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.bytes.of(id)
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

fn read_template(dir: &Path) -> Result<Option<ChatTemplate>, LoadError> {
    let config_file = dir.join("tokenizer_config.json");
    let config: Value = if config_file.exists() {
        serde_json::from_slice(&read(&config_file)?).map_err(|e| LoadError::Damaged {
            file: config_file.clone(),
            detail: e.to_string(),
        })?
    } else {
        Value::Null
    };
    let jinja = dir.join("chat_template.jinja");
    let (file, source) = if jinja.exists() {
        let text = String::from_utf8(read(&jinja)?).map_err(|e| LoadError::Template {
            file: jinja.clone(),
            detail: e.to_string(),
        })?;
        (jinja, Some(text))
    } else {
        (config_file, named_template(&config))
    };
    source
        .map(|source| ChatTemplate::new(&source, special_tokens(&config)))
        .transpose()
        .map_err(|detail| LoadError::Template { file, detail })
}

/// The template, or of several the one named `default`.
fn named_template(config: &Value) -> Option<String> {
    let template = config.get("chat_template")?;
    let named = template
        .as_array()
        .into_iter()
        .flatten()
        .find(|t| t["name"] == "default");
    template
        .as_str()
        .or_else(|| named?["template"].as_str())
        .map(str::to_owned)
}

/// `bos_token` and its like, which templates write themselves.
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
mod tests;
