//! Tests with realistic conversations and streams, in both directions. `properties` has the property tests.

mod call_ids;
mod calls;
mod corpus;
mod effort;
mod errors;
mod media;
mod properties;
mod replies;
mod requests;
mod responses;
mod stop_words;
mod streams;

use std::sync::LazyLock;

use super::*;
use crate::{Api, rewrite::rewritten};

/// The context of a reply whose request has nothing special.
static ASKED: LazyLock<ReplyContext> = LazyLock::new(|| ReplyContext {
    created: 1_763_600_000,
    include_usage: true,
    ..ReplyContext::default()
});

use Direction::{ChatToMessages, MessagesToChat, ResponsesToChat};

/// Returns a streamed reply, translated in one piece.
fn streamed(direction: Direction, stream: &str) -> String {
    let stream = [stream.as_bytes()];
    let out = rewritten(super::stream(direction, &ASKED), stream);
    String::from_utf8(out).unwrap()
}

fn replied(direction: Direction, body: &Value) -> Value {
    let out = reply(direction, &ASKED, body.to_string().as_bytes()).unwrap();
    serde_json::from_slice(&out.body).unwrap()
}
