//! Realistic conversations and streams, both ways; the properties stand in `properties`.

mod calls;
mod errors;
mod properties;
mod replies;
mod requests;
mod streams;

use super::*;
use crate::{Api, rewrite::rewritten};

const ASKED: ReplyContext = ReplyContext {
    created: 1_763_600_000,
    include_usage: true,
    stop_sequences: Vec::new(),
};

use Direction::{ChatToMessages, MessagesToChat};

/// A streamed reply, translated in one piece.
fn streamed(direction: Direction, stream: &str) -> String {
    let stream = [stream.as_bytes()];
    let out = rewritten(super::stream(direction, &ASKED), stream);
    String::from_utf8(out).unwrap()
}

fn replied(direction: Direction, body: &Value) -> Value {
    let out = reply(direction, &ASKED, body.to_string().as_bytes()).unwrap();
    serde_json::from_slice(&out).unwrap()
}
