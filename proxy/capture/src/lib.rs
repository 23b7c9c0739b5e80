//! What chat leaves for learning: a bounded copy of each reply, and its way to a turn in the log.
//!
//! While a reply is relayed its bytes are copied ([`Recording::push`]); nothing else is done on the
//! threads that chat, but to read what a reply calls at its end, where it calls tools: a sub-agent's first request may
//! be there before any other thread is. When it has ended, the capture goes into one queue ([`Recording::end`]). A thread
//! behind it decompresses and decodes the reply, reads the request into the log's messages, hashes them
//! and hands the turn over ([`Worker::run`]), in the order in which the replies ended.
//!
//! What waits is bounded in bytes ([`Budget`]) and in number. What finds no room, or cannot be read,
//! is counted ([`CaptureMetrics`]); the agent's reply is the same.

mod budget;
mod conversation;
mod encoding;
mod line;
mod long_texts;
mod metrics;
mod recording;
mod reply;
mod reply_copy;
mod request;
mod sink;
mod turn;
mod worker;

pub use self::{
    budget::{Budget, Held},
    encoding::Encoding,
    metrics::{CaptureMetrics, Counter},
    recording::{CaptureConfig, Recorder, Recording},
    reply::{Format, ResponseMeta},
    request::{CapturedRequest, OnCalls, Parent},
    sink::{Appending, TurnSink},
    worker::{Worker, recorder},
};

#[cfg(test)]
mod tests;
