//! The two kinds of tokenizer files.

use std::path::PathBuf;

use serde_json::Value;
use tokenizers::Tokenizer;

use super::config::read;
use super::decoder::TokenBytes;
use super::ranks::{RankEncoder, Ranks};
use super::text::{EncodeError, Place, TextEncoder};
use crate::TextLoadError;
use crate::content::ControlTokens;

/// Converts text to ids, for one of two kinds of files.
#[derive(Debug)]
pub(super) enum Encoder {
    /// `tokenizer.json`.
    Json(Box<TextEncoder>),
    /// `tiktoken.model`.
    Ranks(Box<RankEncoder>),
}

/// The common content of both kinds of files.
pub(super) struct Vocabulary {
    pub(super) encoder: Encoder,
    pub(super) controls: ControlTokens,
    pub(super) bytes: TokenBytes,
    pub(super) file: PathBuf,
    /// Whether keys of tools are sorted before the template sees them, as Kimi's own code does.
    pub(super) sorts_tools: bool,
}

// === impl Encoder ===

impl Encoder {
    pub(super) fn encode(
        &self,
        text: &str,
        place: Place,
        ids: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        match self {
            Self::Json(encoder) => encoder.encode(text, place, ids),
            Self::Ranks(encoder) => {
                encoder.encode(text, ids);
                Ok(())
            }
        }
    }

    pub(super) fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Json(encoder) => encoder.token_to_id(token),
            Self::Ranks(encoder) => encoder.token_to_id(token),
        }
    }
}

// === impl Vocabulary ===

impl Vocabulary {
    pub(super) fn of_json(file: PathBuf) -> Result<Self, TextLoadError> {
        let bytes = read(&file)?;
        let damaged = |detail: String| TextLoadError::Damaged {
            file: file.clone(),
            detail,
        };
        let tokenizer = Tokenizer::from_bytes(&bytes).map_err(|e| damaged(e.to_string()))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        let decoder = json.get("decoder").unwrap_or(&Value::Null);
        let bytes =
            TokenBytes::new(&tokenizer, decoder).ok_or_else(|| TextLoadError::Unsupported {
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
        Ok(Self {
            encoder: Encoder::Json(Box::new(encoder)),
            controls,
            bytes,
            file,
            sorts_tools: false,
        })
    }

    pub(super) fn of_ranks(file: PathBuf, config: &Value) -> Result<Self, TextLoadError> {
        let damaged = |detail: String| TextLoadError::Damaged {
            file: file.clone(),
            detail,
        };
        let text = String::from_utf8(read(&file)?).map_err(|e| damaged(e.to_string()))?;
        let ranks = Ranks::read(&text, config).map_err(damaged)?;
        let controls = ControlTokens::new(ranks.special.clone());
        Ok(Self {
            encoder: Encoder::Ranks(Box::new(ranks.encoder().map_err(damaged)?)),
            controls: controls.map_err(|error| damaged(error.to_string()))?,
            bytes: TokenBytes::of_pieces(ranks.pieces()),
            file,
            sorts_tools: true,
        })
    }
}
