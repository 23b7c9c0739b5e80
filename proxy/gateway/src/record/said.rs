//! What was said, as the log has it: in chat shape, as text.

use metaclaw_chat::{ChainHash, Message};
use metaclaw_dialects::{
    Api,
    request::{ChatRequest, OWN_FIELDS},
};
use metaclaw_turns::{JsonText, RawMessage};
use serde::Serialize;
use serde_json::{Map, Value};

/// A part of a request that no value can hold: a number beyond f64. Upstreams may take it; it is not
/// learned from.
pub(super) struct Unread;

/// The conversation in chat shape.
#[derive(Debug)]
pub(crate) struct Said {
    pub messages: Vec<RawMessage>,
    /// The reply whose conversation the request leaves out.
    pub goes_on_from: Option<String>,
    /// The hash of the conversation.
    pub chain: ChainHash,
    /// Bytes of all of it.
    pub n_bytes: u64,
}

// === impl Said ===

impl Said {
    /// Reads a request; `start` is the hash before its first message.
    pub(super) fn read(chat: &ChatRequest, start: ChainHash) -> Result<Self, Unread> {
        let mut said = Self {
            messages: Vec::new(),
            goes_on_from: goes_on_from(chat),
            chain: start,
            n_bytes: 0,
        };
        for message in chat.to_messages().map_err(|_| Unread)? {
            said.push(&message)?;
        }
        Ok(said)
    }

    fn push(&mut self, message: &Message) -> Result<(), Unread> {
        self.chain = self.chain.then(message);
        let text = written(message.as_map())?;
        self.n_bytes += (size_of::<RawMessage>() + text.as_str().len()) as u64;
        let chain = self.chain;
        self.messages.push(RawMessage { text, chain });
        Ok(())
    }
}

/// The tools of a request, as those of a chat completion.
pub(super) fn tools(chat: &ChatRequest) -> Result<Option<JsonText>, Unread> {
    let Some(tools) = chat.field_json("tools") else {
        return Ok(None);
    };
    let tools = metaclaw_dialects::json::value(tools.as_bytes()).ok_or(Unread)?;
    written(&chat.api().tools(&tools)).map(Some)
}

/// What steers the answer, beside the conversation and the tools.
pub(super) fn params(chat: &ChatRequest) -> Map<String, Value> {
    let api = chat.api();
    let is_said = |name: &str| match (name, api) {
        ("system" | "messages", Api::Messages)
        | ("instructions" | "input", Api::Responses)
        | ("messages", Api::Chat) => true,
        (name, _) => name == "tools",
    };
    let steering = chat.fields().filter(|(name, _)| !is_said(name));
    let steering = steering.filter(|(name, _)| !OWN_FIELDS.contains(name));
    let param = |(name, json): (&str, &str)| {
        // A number that no f64 holds is all that can fail: nothing that steers an answer.
        let value = metaclaw_dialects::json::value(json.as_bytes());
        (api.param(name).to_owned(), value.unwrap_or_default())
    };
    steering.map(param).collect()
}

fn goes_on_from(chat: &ChatRequest) -> Option<String> {
    match chat.field("previous_response_id")? {
        Value::String(id) if chat.api() == Api::Responses => Some(id),
        _ => None,
    }
}

pub(super) fn written(value: &impl Serialize) -> Result<JsonText, Unread> {
    JsonText::of(value).map_err(|_| Unread)
}
