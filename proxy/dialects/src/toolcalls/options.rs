//! What a reply's calls are read by.

use serde_json::Value;

use super::{names, schema::Schemas};

/// What a reply is read by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The chat template has opened the `<think>` already, so that replies begin inside of it (as those of
    /// Qwen3-Thinking and DeepSeek-R1 do).
    pub think_is_open: bool,
    /// The names of the request's tools; one of them is never taken for another's misspelling.
    pub tools: Vec<String>,
    pub schemas: Schemas,
}

// === impl Options ===

impl Options {
    /// Whether the request offers tools, so that slips in calls of them can be told from text.
    pub(super) fn has_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// Whether `written` names one of the request's tools.
    pub(super) fn offers(&self, written: &str) -> bool {
        let name = names::normalised(written, "{}", &self.tools);
        self.tools.contains(&name)
    }

    /// The options for the reply to a chat request, whose tools it names.
    pub fn for_request(request: &Value, think_is_open: bool) -> Self {
        let tools = request["tools"].as_array().into_iter().flatten();
        let names = tools.filter_map(|tool| tool["function"]["name"].as_str());
        Self {
            think_is_open,
            tools: names.map(str::to_owned).collect(),
            schemas: Schemas::from_request(request),
        }
    }
}
