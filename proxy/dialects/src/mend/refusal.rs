//! Learns an upstream's requirements for a history from the words of its refusals.

use super::terms::{CallIds, Demands};

const UNKNOWN: [&str; 11] = [
    "unsupported",
    "not supported",
    "unknown",
    "unrecognized",
    "unexpected",
    "not permitted",
    "not allowed",
    "not enabled",
    "additional propert",
    "extra input",
    "supported values",
];

const OF_ONE: [&str; 7] = [
    "reasoning_content",
    "reasoning_details",
    "extra_content",
    "thinking_blocks",
    "reasoning input",
    "'thinking'",
    "assistant",
];

impl Demands {
    /// Returns the requirements in a refusal of a request with a history.
    pub fn of_refusal(status: u16, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body).to_lowercase();
        let has = |words: &str| text.contains(words);
        match status {
            400 | 422 => {}
            // OpenAI: "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."
            404 => {
                return Demands {
                    own_thinking: has("item with id"),
                    ..Demands::default()
                };
            }
            _ => return Demands::default(),
        }
        let is_unknown =
            OF_ONE.iter().any(|name| has(name)) && UNKNOWN.iter().any(|words| has(words));
        // DeepSeek: "The `reasoning_content` in the thinking mode must be passed back to the API", and the same of
        // `content[].thinking` in Anthropic's API.
        let is_lost = has("passed back");
        Demands {
            // Google: "Function call is missing a thought_signature in functionCall parts."
            signed_calls: has("thought_signature") || has("thought signature"),
            // Moonshot: "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2".
            reasoning: has("reasoning_content") && !is_unknown,
            thinking: is_lost && has("content[].thinking"),
            // Cerebras: "property 'messages.1.assistant.reasoning_content' is unsupported"; Mistral: "Extra inputs are not
            // permitted", "Reasoning input is not enabled for this model".
            standard_fields: is_unknown,
            // Anthropic: "Invalid `signature` in `thinking` block", "Expected `thinking` or `redacted_thinking`, but found
            // `tool_use`", "tool_use.id: String should match pattern". OpenAI: "The encrypted content … could not be
            // verified", "encrypted_content was not issued to this caller".
            own_thinking: has("thinking")
                && (has("signature") || has("expected") || has("redacted_thinking"))
                || has("tool_use.id")
                || has("tool_use_id")
                || has("encrypted content")
                || has("encrypted_content")
                || has("item with id"),
            // Anthropic: "`tool_use` ids must be unique", "`tool_use` ids were found without `tool_result` blocks
            // immediately after", "unexpected `tool_use_id` found in `tool_result` blocks".
            paired_calls: has("`tool_use` ids")
                || has("tool_use ids")
                || has("unexpected `tool_use_id`"),
            ids: if has("tool call id") && has("length of 9") {
                // Mistral: "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."
                CallIds::Nine
            } else if has("string too long") && (has("tool_call") || has("call_id")) {
                // OpenAI: "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40".
                CallIds::Bounded
            } else {
                CallIds::Any
            },
        }
    }
}
