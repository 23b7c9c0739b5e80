//! What an upstream wants of a history, by the words in which it refused one.

use super::terms::Demands;

/// Words with which servers refuse a field that they do not know.
const UNKNOWN: [&str; 9] = [
    "unsupported",
    "not supported",
    "unknown",
    "unrecognized",
    "unexpected",
    "not permitted",
    "not allowed",
    "additional propert",
    "extra input",
];

/// Fields of one provider that others may not know.
const FIELDS: [&str; 4] = [
    "reasoning_content",
    "reasoning_details",
    "extra_content",
    "thinking_blocks",
];

impl Demands {
    /// What a refusal of a request with calls in its history says that this upstream wants.
    pub fn of_refusal(status: u16, body: &[u8]) -> Self {
        if !matches!(status, 400 | 422) {
            return Self::default();
        }
        let text = String::from_utf8_lossy(body).to_lowercase();
        let has = |words: &str| text.contains(words);
        let names_field = FIELDS.iter().any(|field| has(field));
        let is_unknown = names_field && UNKNOWN.iter().any(|words| has(words));
        Self {
            // Google: "Function call is missing a thought_signature in functionCall parts."
            signed_calls: has("thought_signature") || has("thought signature"),
            // DeepSeek: "The reasoning_content in the thinking mode must be passed back"; Moonshot: "thinking is enabled but
            // reasoning_content is missing in assistant tool call message at index 2".
            reasoning: has("reasoning_content") && !is_unknown,
            standard_fields: is_unknown,
            // Anthropic: "Invalid `signature` in `thinking` block", "Expected `thinking` or `redacted_thinking`, but found
            // `tool_use`", "tool_use.id: String should match pattern".
            own_thinking: has("thinking")
                && (has("signature") || has("expected") || has("redacted_thinking"))
                || has("tool_use.id")
                || has("tool_use_id"),
            // Mistral: "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."
            short_ids: has("tool call id") && has("length of 9"),
        }
    }
}
