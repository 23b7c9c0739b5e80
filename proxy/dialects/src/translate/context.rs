//! What a reply takes from its request.

use serde_json::Value;

use super::{names::ToolNames, stops::Stops};

/// What a reply needs to know of the request that it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplyContext {
    /// When the request was made, in seconds since 1970: `created` of a chat reply, which Anthropic has not.
    pub created: u64,
    /// The caller gets the usage: it asked for a chunk with it (`stream_options.include_usage`), or for no stream.
    pub include_usage: bool,
    /// The caller's `stop_sequences`, one of which the reply may say to have ended at.
    pub stop_sequences: Vec<String>,
    /// Stop texts that the upstream does not take.
    pub(super) stops: Stops,
    /// Tools whose names the upstream would not have taken.
    pub(super) tools: ToolNames,
}

// === impl ReplyContext ===

impl ReplyContext {
    /// Reads what the reply needs from the request as the client sent it.
    pub fn for_request(body: &Value, created: u64) -> Self {
        let include_usage = body["stream_options"]["include_usage"].as_bool() == Some(true)
            || body["stream"].as_bool() != Some(true);
        let stops = body["stop_sequences"].as_array().into_iter().flatten();
        let stop_sequences = stops.filter_map(Value::as_str).map(str::to_owned);
        Self {
            created,
            include_usage,
            stop_sequences: stop_sequences.collect(),
            stops: Stops::of_request(body),
            tools: ToolNames::of_request(body),
        }
    }
}
