//! Thinking in the parts of a content.

use serde_json::Value;

/// The fields that may have a part's text: Mistral's and Anthropic's `thinking`, others' `reasoning`, `text`, and
/// Databricks' `summary`.
const FIELDS: [&str; 4] = ["thinking", "reasoning", "text", "summary"];

/// Returns the text of a part that is thinking, such as Mistral's
/// `{"type":"thinking","thinking":[{"type":"text","text":..}]}`.
pub(crate) fn thought(part: &Value) -> Option<String> {
    let mut texts = FIELDS.iter().map(|name| match &part[*name] {
        Value::Array(texts) => texts.iter().filter_map(|it| it["text"].as_str()).collect(),
        text => text.as_str().unwrap_or_default().to_owned(),
    });
    matches!(part["type"].as_str(), Some("thinking" | "reasoning"))
        .then(|| texts.find(|text| !text.is_empty()).unwrap_or_default())
}
