//! The parts of a request that its reply needs.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

use super::{
    call_ids::CallIds,
    direction::Direction,
    names::ToolNames,
    responses_tools::ResponseTools,
    stops::Stops,
    wire::{filled, given},
};

/// The number of contexts so far. It distinguishes replies of the same second to which their upstream gave no id.
static N: AtomicU64 = AtomicU64::new(0);

/// The fields of a request that its response repeats, and their default values. The values are JSON.
const ECHOED: [(&str, &str); 16] = [
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("prompt_cache_key", "null"),
    ("reasoning", r#"{"effort":null,"summary":null}"#),
    ("safety_identifier", "null"),
    ("store", "true"),
    ("temperature", "null"),
    ("text", r#"{"format":{"type":"text"}}"#),
    ("tool_choice", r#""auto""#),
    ("tools", "[]"),
    ("top_p", "null"),
    ("truncation", r#""disabled""#),
    ("user", "null"),
];

/// What a reply needs to know about its request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplyContext {
    /// The request's time in seconds since 1970, for `created` of a chat reply, which Anthropic does not have.
    pub created: u64,
    /// Whether the caller gets the usage: it requested a chunk with it (`stream_options.include_usage`), or no stream.
    pub include_usage: bool,
    /// The caller's `stop_sequences`. The reply may name the one at which it ended.
    pub stop_sequences: Vec<String>,
    /// Distinguishes requests of the same second; 0 for none.
    pub(super) n: u64,
    pub(super) calls: CallIds,
    pub(super) stops: Stops,
    pub(super) tools: ToolNames,
    pub(super) response_tools: ResponseTools,
    pub(super) echo: Map<String, Value>,
}

// === impl ReplyContext ===

impl ReplyContext {
    /// Reads them from the client's request.
    pub fn for_request(direction: Direction, body: &Value, created: u64) -> Self {
        let n = N.fetch_add(1, Ordering::Relaxed) + 1;
        let calls = CallIds::of_request(body);
        if direction == Direction::ResponsesToChat {
            return Self {
                created,
                n,
                calls,
                response_tools: ResponseTools::of_request(body),
                echo: echo(body),
                ..Self::default()
            };
        }
        let include_usage = body["stream_options"]["include_usage"].as_bool() == Some(true)
            || body["stream"].as_bool() != Some(true);
        let stops = body["stop_sequences"].as_array().into_iter().flatten();
        let stop_sequences = stops.filter_map(Value::as_str).map(str::to_owned);
        Self {
            created,
            n,
            calls,
            include_usage,
            stop_sequences: stop_sequences.collect(),
            stops: Stops::of_request(body),
            tools: ToolNames::of_request(body),
            ..Self::default()
        }
    }

    /// Returns the upstream's own id of a reply, so that the logs of both sides name the same reply, or a new one.
    pub(super) fn reply_id(&self, prefix: &str, reply: &Value) -> String {
        let made = || match self.n {
            0 => format!("{prefix}{}", self.created),
            n => format!("{prefix}{}_{n}", self.created),
        };
        filled(&reply["id"]).map_or_else(made, str::to_owned)
    }
}

fn echo(body: &Value) -> Map<String, Value> {
    let field = |(name, usual): (&str, &str)| {
        let usual = || serde_json::from_str(usual).unwrap_or_default();
        let value = given(&body[name]).cloned().unwrap_or_else(usual);
        (name.to_owned(), value)
    };
    ECHOED.into_iter().map(field).collect()
}
