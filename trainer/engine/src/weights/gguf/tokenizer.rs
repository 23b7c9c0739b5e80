//! Makes tokenizer.json and tokenizer_config.json from GGUF metadata.
//!
//! GGUF only names the way in which text is cut before merging (`tokenizer.ggml.pre`), so the patterns are here. Only
//! byte-level BPE (`gpt2`) is supported, which the supported families use.

use serde_json::{Map, Value, json};

use super::header::{CONTROL, GgufHeader, Meta};
use crate::weights::error::Result;

/// ggml's token type of tokens that are never split. Control tokens are special.
const USER_DEFINED: i64 = 4;

/// Llama 3's pattern, from its tokenizer.json.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's pattern: like Llama 3's, but one digit at a time.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

struct CutRules {
    normalizer: Value,
    pre_tokenizer: Value,
    ignore_merges: bool,
}

/// Returns tokenizer.json, in the form of both `tokenizers` and `transformers`.
pub(super) fn tokenizer(header: &GgufHeader) -> Result<Value> {
    let model = header.text("tokenizer.ggml.model")?;
    if model != "gpt2" {
        let allowed = "gpt2 (for others use the model's Hugging Face folder)";
        return Err(header.unsupported("tokenizer.ggml.model", model, allowed));
    }
    let cut = cut(header)?;
    let tokens = header.texts("tokenizer.ggml.tokens")?;
    let numbered = tokens.iter().enumerate();
    let vocab: Map<String, Value> = numbered
        .map(|(id, token)| ((*token).to_owned(), json!(id)))
        .collect();
    if vocab.len() != tokens.len() {
        let value = format!("{} tokens, {} of them distinct", tokens.len(), vocab.len());
        return Err(header.unsupported("tokenizer.ggml.tokens", &value, "distinct tokens"));
    }
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_tokens(header, &tokens)?,
        "normalizer": cut.normalizer,
        "pre_tokenizer": cut.pre_tokenizer,
        "post_processor": null,
        "decoder": byte_level(true),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": cut.ignore_merges,
            "vocab": vocab,
            "merges": header.texts("tokenizer.ggml.merges")?,
        },
    }))
}

pub(super) fn tokenizer_config(header: &GgufHeader) -> Result<Value> {
    let tokens = header.texts("tokenizer.ggml.tokens")?;
    let arch = header.text("general.architecture")?;
    let mut config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": header.int(&format!("{arch}.context_length"))?,
        "clean_up_tokenization_spaces": false,
        "add_prefix_space": false,
    });
    for (role, key) in [
        ("bos", "bos"),
        ("eos", "eos"),
        ("unk", "unknown"),
        ("pad", "padding"),
    ] {
        let key = format!("tokenizer.ggml.{key}_token_id");
        if header.get(&key).is_none() {
            continue;
        }
        let id = header.int(&key)?;
        let token = usize::try_from(id).ok().and_then(|id| tokens.get(id));
        let token = token.ok_or_else(|| {
            header.unsupported(&key, &id.to_string(), &format!("below {}", tokens.len()))
        })?;
        config[format!("{role}_token")] = json!(token);
    }
    let template = |key: &str| match header.get(key) {
        Some(Meta::Text(template)) => Some(json!(template)),
        Some(_) | None => None,
    };
    let default = template("tokenizer.chat_template");
    if let Some(default) = default {
        config["chat_template"] = match template("tokenizer.chat_template.tool_use") {
            Some(tools) => json!([
                {"name": "default", "template": default},
                {"name": "tool_use", "template": tools},
            ]),
            None => default,
        };
    }
    Ok(config)
}

fn added_tokens(header: &GgufHeader, tokens: &[&str]) -> Result<Vec<Value>> {
    let key = "tokenizer.ggml.token_type";
    let types = header.list(key)?;
    if types.len() != tokens.len() {
        let allowed = format!("{}, one for each token", tokens.len());
        return Err(header.unsupported(key, &format!("a list of {}", types.len()), &allowed));
    }
    let typed = tokens.iter().zip(types).enumerate();
    let added = typed.filter_map(|(id, (token, kind))| {
        let special = match kind {
            Meta::Int(CONTROL) => true,
            Meta::Int(USER_DEFINED) => false,
            _ => return None,
        };
        Some(json!({
            "id": id, "content": token, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": special,
        }))
    });
    Ok(added.collect())
}

fn cut(header: &GgufHeader) -> Result<CutRules> {
    let plain = |pre_tokenizer| CutRules {
        normalizer: Value::Null,
        pre_tokenizer,
        ignore_merges: false,
    };
    let split = |pattern: &str| {
        let split = json!({
            "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false,
        });
        sequence(&[split, byte_level(false)])
    };
    Ok(match header.text("tokenizer.ggml.pre")? {
        "smollm" => plain(sequence(&[
            json!({"type": "Digits", "individual_digits": true}),
            byte_level(true),
        ])),
        "gpt-2" => plain(byte_level(true)),
        "llama-bpe" | "llama3" => CutRules {
            ignore_merges: true,
            ..plain(split(LLAMA3))
        },
        "qwen2" => CutRules {
            normalizer: json!({"type": "NFC"}),
            ..plain(split(QWEN2))
        },
        other => {
            let allowed =
                "smollm, gpt-2, llama-bpe, qwen2 (for others use the model's Hugging Face folder)";
            return Err(header.unsupported("tokenizer.ggml.pre", other, allowed));
        }
    })
}

fn sequence(steps: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": steps})
}

/// `use_regex` also cuts like GPT-2.
fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}
