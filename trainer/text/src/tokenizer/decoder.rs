//! Converts ids to text, byte by byte.
//!
//! A token is a sequence of bytes, not of characters. A Chinese letter or an emoji may be split over several tokens.
//! The bytes of each token are known once the vocabulary is read. So decoding joins them and returns complete
//! characters. It needs no look-back and loses nothing.

use std::{collections::HashMap, sync::Arc};

use metaclaw_trainer_terms::gemma;
use serde_json::Value;
use tokenizers::Tokenizer;

#[derive(Debug)]
pub(super) struct TokenBytes {
    pieces: Vec<TokenPiece>,
    /// Whether a text begins with a blank that the tokenizer added (SentencePiece).
    pub(super) strips_blank: bool,
}

#[derive(Debug, Clone, Default)]
struct TokenPiece {
    bytes: Box<[u8]>,
    special: bool,
}

/// Special tokens that are part of a reply's text, because they mark what clients need: Gemma 4's marks of thinking, of
/// calls and of texts in calls.
const REPLY_MARKS: [&str; 5] = [
    gemma::CHANNEL,
    gemma::CHANNEL_END,
    gemma::CALL,
    gemma::CALL_END,
    gemma::QUOTE,
];

/// Models have fewer ids (`model_config` refuses more). A larger id comes from a damaged file and has no text.
const MOST_IDS: usize = 1 << 20;

#[derive(Debug, Clone, Copy)]
enum Spelling {
    /// GPT-2's printable character for each byte.
    ByteLevel,
    /// SentencePiece: `▁` for a space, `<0x0A>` for a byte without a token.
    Metaspace,
}

impl TokenBytes {
    /// Returns `None` if the decoder uses neither known encoding.
    pub(super) fn new(tokenizer: &Tokenizer, decoder: &Value) -> Option<Self> {
        let spelling = if mentions(decoder, "ByteLevel") {
            Spelling::ByteLevel
        } else if mentions(decoder, "ByteFallback") {
            Spelling::Metaspace
        } else {
            return None;
        };
        let letters: HashMap<char, u8> = byte_letters().into_iter().zip(0..=u8::MAX).collect();
        let vocab = tokenizer.get_vocab(true);
        let n = vocab.values().max().map_or(0, |&id| id as usize + 1);
        let mut pieces = vec![TokenPiece::default(); n.min(MOST_IDS)];
        for (token, &id) in &vocab {
            let Some(piece) = pieces.get_mut(id as usize) else {
                continue;
            };
            piece.bytes = match spelling {
                Spelling::ByteLevel => byte_level(token, &letters),
                Spelling::Metaspace => metaspace(token),
            };
        }
        // Added tokens are written literally.
        for (id, added) in tokenizer.get_added_tokens_decoder() {
            if let Some(piece) = pieces.get_mut(id as usize) {
                piece.bytes = added.content.as_bytes().into();
                piece.special = added.special && !REPLY_MARKS.contains(&added.content.as_str());
            }
        }
        Some(Self {
            pieces,
            strips_blank: strips_blank(decoder),
        })
    }

    pub(super) fn of_pieces<'a>(given: impl Iterator<Item = (u32, &'a [u8], bool)>) -> Self {
        let mut pieces = Vec::new();
        for (id, bytes, special) in given.filter(|(id, _, _)| (*id as usize) < MOST_IDS) {
            let id = id as usize;
            if id >= pieces.len() {
                pieces.resize(id + 1, TokenPiece::default());
            }
            let bytes = bytes.into();
            pieces[id] = TokenPiece { bytes, special };
        }
        Self {
            pieces,
            strips_blank: false,
        }
    }

    pub(super) fn longest(&self) -> usize {
        let lengths = self.pieces.iter().map(|piece| piece.bytes.len());
        lengths.max().unwrap_or(0)
    }

    pub(super) fn of(&self, id: u32) -> &[u8] {
        let piece = self.pieces.get(id as usize);
        piece.map_or(&[], |piece| &piece.bytes)
    }
}

/// Returns whether the decoder removes a blank from the beginning of a text: Llama 2's and Mistral's `Strip`, or a
/// `Metaspace` that encoding added.
fn strips_blank(decoder: &Value) -> bool {
    let own = match decoder["type"].as_str() {
        Some("Strip") => decoder["content"] == " " && decoder["start"] != 0,
        Some("Metaspace") => {
            decoder["prepend_scheme"] != "never" && decoder["add_prefix_space"] != false
        }
        _ => false,
    };
    let nested = || decoder["decoders"].as_array();
    own || nested().is_some_and(|list| list.iter().any(strips_blank))
}

/// A decoder may be a sequence of several.
fn mentions(decoder: &Value, kind: &str) -> bool {
    let nested = || decoder.get("decoders").and_then(Value::as_array);
    decoder.get("type").is_some_and(|t| t == kind)
        || nested().is_some_and(|list| list.iter().any(|d| mentions(d, kind)))
}

fn byte_level(token: &str, letters: &HashMap<char, u8>) -> Box<[u8]> {
    let bytes: Option<Vec<u8>> = token.chars().map(|c| letters.get(&c).copied()).collect();
    // A token with other letters was added to the vocabulary literally.
    bytes.unwrap_or_else(|| token.as_bytes().to_vec()).into()
}

pub(super) fn metaspace(token: &str) -> Box<[u8]> {
    let digits = token
        .strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'));
    let hex = digits.filter(|hex| hex.len() == 2);
    let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
    match byte {
        Some(byte) => [byte].into(),
        None => token.replace('\u{2581}', " ").into_bytes().into(),
    }
}

/// Returns GPT-2's printable character for each byte, in order of the bytes.
pub fn byte_letters() -> Vec<char> {
    let plain = |b: u32| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 256;
    (0..256_u32)
        .map(|byte| {
            let code = if plain(byte) {
                byte
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
        })
        .collect()
}

/// Decodes one sequence id by id.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    tokens: Arc<TokenBytes>,
    special: bool,
    pending: Vec<u8>,
    /// Whether the first blank is not part of the text, and no text has come yet.
    strips_blank: bool,
}

impl StreamDecoder {
    pub(super) fn new(tokens: Arc<TokenBytes>, special: bool) -> Self {
        Self {
            strips_blank: tokens.strips_blank && !special,
            tokens,
            special,
            pending: Vec::new(),
        }
    }

    pub(super) fn with_blank(mut self) -> Self {
        self.strips_blank = false;
        self
    }

    /// Returns the text that is complete with this id, which may be empty, and never half a character.
    ///
    /// Bytes that can no longer become a character are returned as U+FFFD. Unknown ids have no text.
    pub fn push(&mut self, id: u32) -> String {
        if let Some(piece) = self.tokens.pieces.get(id as usize)
            && (self.special || !piece.special)
        {
            self.pending.extend_from_slice(&piece.bytes);
        }
        let text = self.whole_characters();
        if !self.strips_blank || text.is_empty() {
            return text;
        }
        self.strips_blank = false;
        match text.strip_prefix(' ') {
            Some(rest) => rest.to_owned(),
            None => text,
        }
    }

    pub(crate) fn is_within_character(&self) -> bool {
        !self.pending.is_empty()
    }

    fn whole_characters(&mut self) -> String {
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let (whole, rest) = self.pending.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(whole));
                    let Some(wrong) = error.error_len() else {
                        self.pending = rest.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending = rest[wrong..].to_vec();
                }
            }
        }
    }

    /// Returns the rest at the end: U+FFFD for a character that was begun and not ended, else nothing.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}
