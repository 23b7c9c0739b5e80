//! Kimi's tokenizer: `tiktoken.model`, which has tokens by rank, but neither special tokens nor a pattern.
//!
//! Both are in the Python file that belongs to it, and so are the limits below. The names of special tokens are in
//! `tokenizer_config.json`. That file also sorts the keys of tools before the template sees them, which is done here
//! too. Not done here is the TypeScript form of tools (`tools_ts_str`), which Kimi K2.5's template prefers to JSON.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;
use tiktoken_rs::CoreBPE;
use tokenizers::AddedToken;

/// The pattern that cuts a text before merging: `tokenization_kimi.py` of moonshotai/Kimi-K2-Instruct.
const PATTERN: &str = concat!(
    r"[\p{Han}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+",
    r"|\s+(?!\S)",
    r"|\s+",
);
/// Number of ids after the ranks that are special tokens, named or not.
const N_SPECIAL: u32 = 256;
const CHUNK: usize = 400_000;
/// Characters of a run with only white space, or without any, that are tokenised at once, because the pattern
/// backtracks over such a run.
const RUN: usize = 25_000;

#[derive(derive_more::Debug)]
#[debug("RankEncoder")]
pub(super) struct RankEncoder {
    bpe: CoreBPE,
    special: BTreeMap<String, u32>,
}

#[derive(Debug)]
pub(super) struct Ranks {
    tokens: BTreeMap<u32, Vec<u8>>,
    pub(super) special: BTreeMap<u32, AddedToken>,
}

// === impl Ranks ===

impl Ranks {
    /// Reads one `BASE64 RANK` per line. The names of special tokens are in `added_tokens_decoder` of
    /// `tokenizer_config.json`.
    ///
    /// # Errors
    /// Returns which line is wrong and how, or which byte has no token.
    pub(super) fn read(text: &str, config: &Value) -> Result<Self, String> {
        let mut tokens = BTreeMap::new();
        let lines = (1..).zip(text.lines());
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let (bytes, rank) = read_line(line).ok_or_else(|| {
                let line: String = line.chars().take(60).collect();
                format!("line {number} is {line:?}: a token in base64, a blank, its rank")
            })?;
            if tokens.insert(rank, bytes).is_some() {
                return Err(format!("line {number}: rank {rank} is there twice"));
            }
        }
        let known: BTreeSet<&[u8]> = tokens.values().map(Vec::as_slice).collect();
        if known.len() < tokens.len() {
            return Err("a token is there twice".into());
        }
        // Text that no longer token covers consists of these.
        if let Some(byte) = (0..=u8::MAX).find(|byte| !known.contains([*byte].as_slice())) {
            return Err(format!(
                "no token is the byte {byte:#04x}: all 256 must be there"
            ));
        }
        let n = u32::try_from(tokens.len()).map_err(|_| "too many tokens".to_owned())?;
        if tokens.last_key_value().is_some_and(|(rank, _)| *rank >= n) {
            return Err(format!("{n} tokens, and ranks beyond that"));
        }
        let special = (n..n + N_SPECIAL).map(|id| (id, special(id, config)));
        let special = special.collect();
        Ok(Self { tokens, special })
    }

    /// Returns the encoder.
    ///
    /// # Errors
    /// Fails if `tiktoken-rs` refuses the ranks.
    pub(super) fn encoder(&self) -> Result<RankEncoder, String> {
        let tokens = self.tokens.iter();
        let by_bytes = tokens.map(|(rank, bytes)| (bytes.clone(), *rank));
        // Special tokens were cut out before, so all text here is data.
        let none = std::iter::empty::<(String, u32)>().collect();
        let bpe = CoreBPE::new(by_bytes.collect(), none, PATTERN);
        let special = self.special.iter();
        Ok(RankEncoder {
            bpe: bpe.map_err(|error| error.to_string())?,
            special: special.map(|(id, it)| (it.content.clone(), *id)).collect(),
        })
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = (u32, &[u8], bool)> {
        let tokens = self.tokens.iter();
        let tokens = tokens.map(|(id, bytes)| (*id, bytes.as_slice(), false));
        let special = self.special.iter();
        let special = special.map(|(id, it)| (*id, it.content.as_bytes(), it.special));
        tokens.chain(special)
    }
}

fn read_line(line: &str) -> Option<(Vec<u8>, u32)> {
    let (bytes, rank) = line.trim().split_once(' ')?;
    let bytes = BASE64_STANDARD.decode(bytes).ok()?;
    Some((bytes, rank.trim().parse().ok()?)).filter(|(bytes, _)| !bytes.is_empty())
}

fn special(id: u32, config: &Value) -> AddedToken {
    let named = &config["added_tokens_decoder"][id.to_string()];
    let content = named["content"].as_str();
    let content = content.map_or_else(|| format!("<|reserved_token_{id}|>"), str::to_owned);
    AddedToken::from(content, named["special"].as_bool().unwrap_or(true))
}

// === impl RankEncoder ===

impl RankEncoder {
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        for part in parts(text, CHUNK, RUN) {
            ids.extend(self.bpe.encode_ordinary(part));
        }
    }

    pub(super) fn token_to_id(&self, token: &str) -> Option<u32> {
        self.special.get(token).copied()
    }
}

/// Cuts a text into parts of at most `chunk` characters, in which no run with only white space, or without any, is
/// longer than `run`.
fn parts(text: &str, chunk: usize, run: usize) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut in_chunk, mut in_run, mut was_blank) = (0, 0, false);
    for (at, c) in text.char_indices() {
        let is_blank = c.is_whitespace();
        let goes_on = in_chunk > 0 && is_blank == was_blank;
        in_run = if goes_on { in_run + 1 } else { 1 };
        was_blank = is_blank;
        in_chunk += 1;
        let ends_chunk = in_chunk > chunk;
        if ends_chunk || in_run > run {
            parts.push(&text[start..at]);
            start = at;
            in_run = 1;
            if ends_chunk {
                in_chunk = 1;
            }
        }
    }
    if start < text.len() {
        parts.push(&text[start..]);
    }
    parts
}

#[cfg(test)]
mod tests;
