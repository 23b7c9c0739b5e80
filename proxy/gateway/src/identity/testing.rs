//! Helpers for the tests of several files.

use metaclaw_chat::Message;
use metaclaw_dialects::{Api, request::ChatRequest};

use super::{
    SidePatterns,
    system_texts::{KNOWN, KnownTexts, SystemTexts},
};

pub(crate) fn request(messages: &[Message]) -> ChatRequest {
    let raw = serde_json::json!({ "messages": messages }).to_string();
    ChatRequest::parse(Api::Chat, raw.into()).unwrap()
}

pub(super) fn is_side_by(patterns: &SidePatterns, chat: &ChatRequest) -> bool {
    patterns.is_side(chat, &system_texts(chat))
}

pub(super) fn system_texts(chat: &ChatRequest) -> SystemTexts {
    SystemTexts::read(chat, &KnownTexts::new(KNOWN))
}
