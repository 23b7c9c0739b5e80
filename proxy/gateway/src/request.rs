//! A chat request, read: its bytes as they came, where its parts stand, and what was said.

mod mend;

use bytes::Bytes;
use metaclaw_chat::Message;
use serde_json::Value;

use crate::{
    refusal::Refusal,
    scan::{self, Layout},
};

/// A chat request.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub raw: Bytes,
    pub layout: Layout,
    /// What was said; `None` where it is JSON and yet cannot be read (a number that no f64 holds).
    pub messages: Option<Vec<Message>>,
}

// === impl ChatRequest ===

impl ChatRequest {
    pub(crate) fn parse(raw: Bytes) -> Result<Self, Refusal> {
        let layout = scan::scan(&raw).map_err(Refusal::Malformed)?;
        let Some(spans) = &layout.messages else {
            let is_there = layout.member("messages").is_some();
            let found = if is_there {
                "is no array"
            } else {
                "is missing"
            };
            return Err(Refusal::NoMessages { found });
        };
        if spans.each.is_empty() {
            return Err(Refusal::NoMessages { found: "is empty" });
        }
        let mut messages = Some(Vec::with_capacity(spans.each.len()));
        for (index, span) in spans.each.iter().enumerate() {
            let Some(value) = value(&raw[span.whole.clone()]) else {
                messages = None;
                break;
            };
            let message = Message::try_from(value);
            let message = message.map_err(|source| Refusal::BadMessage { index, source })?;
            if let Some(messages) = &mut messages {
                messages.push(message);
            }
        }
        Ok(Self {
            raw,
            layout,
            messages,
        })
    }

    /// A field of the body, by the name that counts.
    pub(crate) fn field(&self, name: &str) -> Option<Value> {
        value(&self.raw[self.layout.member(name)?.value.clone()])
    }
}

/// A part of the body as a value.
fn value(raw: &[u8]) -> Option<Value> {
    let read = |raw: &[u8]| serde_json::from_slice(raw).ok();
    read(raw).or_else(|| read(&mend::surrogates(raw)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &'static str) -> Result<ChatRequest, Refusal> {
        ChatRequest::parse(Bytes::from_static(raw.as_bytes()))
    }

    fn refused(raw: &'static str) -> String {
        parse(raw).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        insta::assert_snapshot!(refused(r#"{"messages":[{"role":"user"}"#), @"the request body is no JSON object: byte 28: expected a comma or the array's end");
        insta::assert_snapshot!(refused(r#"{"model":"m"}"#), @"messages: is missing; it must be an array of at least one message");
        insta::assert_snapshot!(refused(r#"{"messages":"hi"}"#), @"messages: is no array; it must be an array of at least one message");
        insta::assert_snapshot!(refused(r#"{"messages":[]}"#), @"messages: is empty; it must be an array of at least one message");
        insta::assert_snapshot!(refused(r#"{"messages":[{"role":"user"},7]}"#), @"messages[1]: a message must be a JSON object, this one is a number");
        insta::assert_snapshot!(refused(r#"{"messages":[{"content":"x"}]}"#), @r#"messages[0]: a message must have a "role" that is a string"#);
    }

    #[test]
    fn half_an_emoji_is_read_as_what_it_shows() {
        let chat = parse(r#"{"messages":[{"role":"tool","content":"cut \ud83d"}]}"#).unwrap();
        assert_eq!(chat.messages.unwrap()[0].text(), "cut \u{fffd}");
    }

    #[test]
    fn what_no_value_can_hold_is_no_reason_to_refuse() {
        let chat = parse(r#"{"n":1e999,"messages":[{"role":"user","x":1e999}]}"#).unwrap();
        assert!(chat.messages.is_none() && chat.field("n").is_none());
    }
}
