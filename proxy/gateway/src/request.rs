//! A chat request, read: its bytes as they came, where its parts stand, and what was said.

mod conversation;
mod mend;

use bytes::Bytes;
use metaclaw_chat::MessageError;
use metaclaw_dialects::Api;
use serde_json::Value;

pub(crate) use self::conversation::{Conversation, Said};
use crate::{
    refusal::Refusal,
    scan::{self, Item, Layout, Seen},
};

/// A chat request.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub api: Api,
    pub raw: Bytes,
    pub layout: Layout,
    pub conversation: Conversation,
}

// === impl ChatRequest ===

impl ChatRequest {
    /// Reads a request; what it repeats of those before is `seen`.
    pub(crate) fn parse(api: Api, raw: Bytes, seen: &Seen) -> Result<Self, Refusal> {
        let layout = scan::scan(&raw, api, seen).map_err(Refusal::Malformed)?;
        check(api, &raw, &layout)?;
        let conversation = Conversation::read(api, &raw, &layout);
        Ok(Self {
            api,
            raw,
            layout,
            conversation,
        })
    }

    /// A field of the body, by the name that counts.
    pub(crate) fn field(&self, name: &str) -> Option<Value> {
        value(&self.raw[self.layout.member(name)?.value.clone()])
    }
}

/// Whether there is a conversation to read. What upstreams of the Responses API make of a request
/// without one is for them to say: it may go on from what they keep.
fn check(api: Api, raw: &[u8], layout: &Layout) -> Result<(), Refusal> {
    let field = scan::conversation(api);
    if api != Api::Responses && layout.each().is_empty() {
        let found = match (&layout.items, layout.member(field)) {
            (Some(_), _) => "is empty",
            (None, Some(_)) => "is no array",
            (None, None) => "is missing",
        };
        return Err(Refusal::NoMessages { found });
    }
    for (index, item) in layout.each().iter().enumerate() {
        if let Some(source) = fault(api, raw, item) {
            return Err(Refusal::BadMessage {
                field,
                index,
                source,
            });
        }
    }
    Ok(())
}

/// Why an element of the conversation is no message.
fn fault(api: Api, raw: &[u8], item: &Item) -> Option<MessageError> {
    let found = match raw.get(item.whole.start)? {
        b'{' => {
            let role = item.role.as_ref();
            let has_role = role.is_some_and(|role| scan::is_string(raw, role));
            return (api != Api::Responses && !has_role).then_some(MessageError::NoRole);
        }
        b'"' => "a string",
        b'[' => "an array",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    };
    Some(MessageError::NotAnObject { found })
}

/// A part of the body as a value.
pub(crate) fn value(raw: &[u8]) -> Option<Value> {
    let read = |raw: &[u8]| serde_json::from_slice(raw).ok();
    read(raw).or_else(|| read(&mend::surrogates(raw)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &'static str) -> Result<ChatRequest, Refusal> {
        ChatRequest::parse(
            Api::Chat,
            Bytes::from_static(raw.as_bytes()),
            &Seen::default(),
        )
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
    fn a_response_may_go_on_from_what_the_upstream_keeps() {
        let parse = |raw: &'static [u8]| {
            ChatRequest::parse(Api::Responses, Bytes::from(raw), &Seen::default())
        };
        assert!(parse(br#"{"previous_response_id":"resp_1"}"#).is_ok());
        assert!(parse(br#"{"input":[{"type":"reasoning","summary":[]}]}"#).is_ok());
        let error = parse(br#"{"input":["hi"]}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "input[0]: a message must be a JSON object, this one is a string"
        );
    }

    #[test]
    fn what_no_value_can_hold_is_no_reason_to_refuse() {
        let chat = parse(r#"{"n":1e999,"messages":[{"role":"user","x":1e999}]}"#).unwrap();
        assert!(chat.field("n").is_none());
    }
}
