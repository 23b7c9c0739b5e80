//! Makes turns for the log: takes a bounded copy of each reply, and converts it.
//!
//! While a reply is relayed, its bytes are copied ([`Recording::push`]). The threads that relay do nothing else, with
//! one exception: at the end of a reply with tool calls they read these calls, because a sub-agent's first request may
//! arrive before another thread has read them. When the reply has ended, the capture goes into one queue
//! ([`Recording::end`]). A separate thread decompresses and decodes the reply, converts the request to the log's
//! messages, hashes them and hands the turn over ([`Worker::run`]), in the order in which the replies ended.
//!
//! The queue is bounded in bytes ([`Budget`]) and in number. Captures that find no room, or cannot be read, are counted
//! ([`CaptureMetrics`]). The agent's reply is the same.

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
