//! A chat request, read: its bytes as they came, where its parts stand, and what was said.

mod mend;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use metaclaw_chat::{Message, Size, Span};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    refusal::Refusal,
    scan::{self, Layout},
};

/// How long, and how much of, a body that is too large is read on and thrown away: a client that is
/// cut off while it writes never sees the answer that says why.
const PATIENCE: Duration = Duration::from_secs(5);
const DISCARDED: u64 = 256 << 20;
/// The longest silence inside a request's body.
const STALL: Duration = Duration::from_secs(60);
/// The most that is set aside for a body before any of it has come.
const EXPECTED: usize = 1 << 20;

/// A chat request.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub raw: Bytes,
    pub layout: Layout,
    /// What was said; `None` where it is JSON and yet cannot be read (a number that no f64 holds).
    pub messages: Option<Vec<Message>>,
}

/// Reads a body, up to `limit`.
pub(crate) async fn read_body(mut body: Incoming, limit: Size) -> Result<Bytes, Refusal> {
    let hint = body.size_hint();
    let given = hint.exact();
    if given.is_some_and(|given| given > limit.0) {
        discard(body).await;
        return Err(Refusal::TooLarge { limit, given });
    }
    // Known to be within the limit; a client that only says so is held to what it sends.
    let expected = usize::try_from(hint.lower()).unwrap_or(0).min(EXPECTED);
    let mut bytes = BytesMut::with_capacity(expected);
    loop {
        let frame = match timeout(STALL, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(Refusal::BodyCut),
            Ok(None) => return Ok(bytes.freeze()),
            Err(_) => return Err(Refusal::BodyStalled { after: Span(STALL) }),
        };
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if (bytes.len() + data.len()) as u64 > limit.0 {
            discard(body).await;
            let given = None;
            return Err(Refusal::TooLarge { limit, given });
        }
        bytes.extend_from_slice(data);
    }
}

async fn discard(mut body: Incoming) {
    let all = async {
        let mut n_bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            n_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if n_bytes > DISCARDED {
                break;
            }
        }
    };
    // Whether it ended or went on is all the same.
    let _ = timeout(PATIENCE, all).await;
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
