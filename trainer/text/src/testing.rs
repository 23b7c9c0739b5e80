//! A small tokenizer with a chat template on disk, for tests of this crate and of dependent ones.
//!
//! It is byte-level without merges: each byte is a token, so a test can count ids by hand.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::ModelFileError;
use crate::tokenizer::byte_letters;

/// Ids of the tiny tokenizer after the 256 bytes.
pub const SPECIAL: [(&str, u32); 3] = [
    ("<|endoftext|>", 256),
    ("<|im_start|>", 257),
    ("<|im_end|>", 258),
];

/// The template of [`write_tiny_text`]: ChatML with a default system prompt, like small chat models.
pub const TEMPLATE: &str = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}\
{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Writes `tokenizer.json` and `tokenizer_config.json` of the tiny tokenizer into `dir`.
///
/// # Errors
/// Fails if `dir` cannot be written.
pub fn write_tiny_text(dir: &Path) -> Result<(), ModelFileError> {
    write(dir, "tokenizer.json", &tokenizer())?;
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE,
        "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>",
    });
    write(dir, "tokenizer_config.json", &config)
}

fn tokenizer() -> Value {
    let mut vocab = Map::new();
    for (byte, letter) in byte_letters().into_iter().enumerate() {
        vocab.insert(letter.to_string(), json!(byte));
    }
    let added: Vec<Value> = SPECIAL
        .iter()
        .map(|(content, id)| {
            json!({
                "id": id, "content": content, "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            })
        })
        .collect();
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": vocab, "merges": [],
        },
    })
}

fn write(dir: &Path, name: &str, json: &Value) -> Result<(), ModelFileError> {
    let file = dir.join(name);
    std::fs::write(&file, json.to_string()).map_err(ModelFileError::writing(&file))
}
