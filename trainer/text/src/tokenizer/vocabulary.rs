//! The two kinds of tokenizer files.

use std::{fmt::Display, path::PathBuf};

use serde_json::Value;
use tokenizers::Tokenizer;

use super::config::read;
use super::decoder::TokenBytes;
use super::ranks::{RankEncoder, Ranks};
use super::text::{EncodeError, Place, TextEncoder};
use crate::{ModelFileError, content::ControlTokens, error::Result};

#[derive(Debug)]
pub(super) enum Encoder {
    /// `tokenizer.json`.
    Json(Box<TextEncoder>),
    /// `tiktoken.model`.
    Ranks(Box<RankEncoder>),
}

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
    pub(super) fn of_json(file: PathBuf) -> Result<Self> {
        let bytes = read(&file)?;
        let damaged = |error: &dyn Display| ModelFileError::damaged(&file, error);
        let tokenizer = Tokenizer::from_bytes(&bytes).map_err(|error| damaged(&error))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
        let decoder = json.get("decoder").unwrap_or(&Value::Null);
        let bytes = TokenBytes::new(&tokenizer, decoder).ok_or_else(|| {
            let named = decoder.get("type");
            let kind = named.map_or_else(|| "missing".into(), Value::to_string);
            let allowed = "ByteLevel, or ByteFallback with Metaspace";
            ModelFileError::unsupported(&file, "decoder", kind, allowed)
        })?;
        let found = ControlTokens::new(tokenizer.get_added_tokens_decoder());
        let controls = found.map_err(|error| damaged(&error))?;
        let made = TextEncoder::new(tokenizer, json, &controls);
        let encoder = made.map_err(|error| damaged(&error))?;
        Ok(Self {
            encoder: Encoder::Json(Box::new(encoder)),
            controls,
            bytes,
            file,
            sorts_tools: false,
        })
    }

    pub(super) fn of_ranks(file: PathBuf, config: &Value) -> Result<Self> {
        let damaged = |error: &dyn Display| ModelFileError::damaged(&file, error);
        let text = String::from_utf8(read(&file)?).map_err(|error| damaged(&error))?;
        let ranks = Ranks::read(&text, config).map_err(|error| damaged(&error))?;
        let encoder = ranks.encoder().map_err(|error| damaged(&error))?;
        let controls = ControlTokens::new(ranks.special.clone());
        Ok(Self {
            encoder: Encoder::Ranks(Box::new(encoder)),
            controls: controls.map_err(|error| damaged(&error))?,
            bytes: TokenBytes::of_pieces(ranks.pieces()),
            file,
            sorts_tools: true,
        })
    }
}
