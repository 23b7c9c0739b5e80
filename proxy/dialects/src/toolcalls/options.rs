//! Options for reading a reply's calls.

use serde_json::Value;

use super::{names, schema::Schemas};

/// Options for reading a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCallOptions {
    /// Whether the chat template has opened the `<think>` already, so that replies begin inside it (as for
    /// Qwen3-Thinking and DeepSeek-R1).
    pub think_is_open: bool,
    /// The names of the request's tools. None of them is treated as another one's misspelling.
    pub tools: Vec<String>,
    pub schemas: Schemas,
}

// === impl Options ===

impl ToolCallOptions {
    /// Returns whether the request offers tools, so that mistakes in calls of them can be distinguished from text.
    pub(super) fn has_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    pub(super) fn offers(&self, written: &str) -> bool {
        let name = names::normalised(written, "{}", &self.tools);
        self.tools.contains(&name)
    }

    /// Returns the options for the reply to a chat request, with the tools that it names.
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
