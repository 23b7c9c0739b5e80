//! Helpers for the tests of several files.

use metaclaw_chat::Message;
use metaclaw_dialects::{Api, request::ChatRequest};

pub(crate) fn request(messages: &[Message]) -> ChatRequest {
    let raw = serde_json::json!({ "messages": messages }).to_string();
    ChatRequest::parse(Api::Chat, raw.into()).unwrap()
}
