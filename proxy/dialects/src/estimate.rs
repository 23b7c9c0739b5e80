//! How many tokens a prompt has, estimated from its bytes, where no tokenizer is at hand.

use serde_json::Value;

/// Bytes per token of English text and code for most tokenizers. Other scripts have fewer.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens of a message besides its text.
const MESSAGE: usize = 4;
/// Anthropic's count for an image of about a megapixel, in bytes of text.
const IMAGE: usize = 1_600 * BYTES_PER_TOKEN;

/// Returns the estimated tokens of `n_messages` messages, whose text and that beside them has `n_bytes` as
/// [`model_bytes`] counts them.
pub fn tokens(n_bytes: usize, n_messages: usize) -> usize {
    n_bytes.div_ceil(BYTES_PER_TOKEN) + MESSAGE * n_messages
}

/// Returns the bytes of text that a model reads of a part of a request, of any API. Thinking of earlier replies is not
/// read again, and its signature never.
pub fn model_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 0,
        Value::Number(number) => number.to_string().len(),
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(model_bytes).sum(),
        Value::Object(fields) => match fields.get("type").and_then(Value::as_str) {
            Some("image" | "image_url" | "input_image" | "input_audio" | "base64") => IMAGE,
            Some("thinking" | "redacted_thinking") => 0,
            Some(_) | None => {
                let read = fields.iter().filter(|(key, _)| !is_of_the_api(key));
                read.map(|(key, value)| match key.as_str() {
                    "file_data" => IMAGE,
                    key => key.len() + model_bytes(value),
                })
                .sum()
            }
        },
    }
}

/// Returns whether a key only describes a block, so that the model does not read its value.
fn is_of_the_api(key: &str) -> bool {
    matches!(
        key,
        "type"
            | "role"
            | "cache_control"
            | "tool_use_id"
            | "tool_call_id"
            | "call_id"
            | "id"
            | "media_type"
            | "encrypted_content"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pictures_and_files_count_for_what_they_cost_and_not_for_their_encoding() {
        let data = "A".repeat(1 << 20);
        for part in [
            json!({ "type": "image", "source": { "type": "base64", "data": data } }),
            json!({ "type": "image_url", "image_url": { "url": data } }),
            json!({ "type": "input_image", "image_url": data }),
            json!({ "type": "document", "source": { "type": "base64", "data": data } }),
            json!({ "type": "input_file", "filename": "a.pdf", "file_data": data }),
        ] {
            let n_tokens = tokens(model_bytes(&part), 1);
            assert!((1_600..1_700).contains(&n_tokens), "{n_tokens}");
        }
        let thought =
            json!({ "type": "thinking", "thinking": "long", "signature": "s".repeat(999) });
        assert_eq!(model_bytes(&thought), 0);
        let reasoning = json!({ "type": "reasoning", "encrypted_content": "s".repeat(999) });
        assert_eq!(model_bytes(&reasoning), 0);
    }
}
