//! Thinking in the parts of a content.

use serde_json::Value;

/// Returns the text of a part that is Mistral's thinking: `{"type":"thinking","thinking":[{"type":"text","text":..}]}`.
pub(crate) fn thought(part: &Value) -> Option<String> {
    if part["type"] != "thinking" {
        return None;
    }
    let texts = part["thinking"].as_array().into_iter().flatten();
    Some(texts.filter_map(|text| text["text"].as_str()).collect())
}
