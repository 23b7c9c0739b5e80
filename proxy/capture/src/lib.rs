//! Makes turns for the log: takes a bounded copy of each reply, and converts it.
//!
//! While a reply is relayed, its bytes are copied ([`Recording::push`]). The threads that relay do nothing else, with
//! one exception: at the end of a reply with tool calls they read these calls, because a sub-agent's first request may
//! arrive before another thread has read them. When the reply has ended, the capture goes into one queue
//! ([`Recording::end`]). A separate thread decompresses and decodes the reply, converts the request to the log's
//! messages, hashes them and hands the turn over ([`Worker::run`]), in the order in which the replies ended.
//!
//! This is not done on the log's own thread. That one may wait for the disk, while the proxy needs the reply's id, its
//! calls and its fields for the agent's next request. Reading 250,000 messages or a reply of 32 MB would also add to the
//! time for which other agents' turns wait there. And decoded turns that wait for the disk share
//! their long texts. Requests that are not decoded yet would each hold a copy.
//!
//! The queue is bounded in bytes ([`Budget`]) and in number. Captures that find no room, or cannot be read, are counted
//! ([`CaptureMetrics`]). The agent's reply is the same.

mod budget;
mod encoding;
mod long_texts;
mod recording;
mod reply;
mod reply_copy;
mod turn;
mod worker;

pub use self::{
    budget::{Budget, CaptureMetrics, Counter, Held},
    encoding::Encoding,
    recording::{
        Appending, CaptureConfig, CapturedRequest, OnCalls, Parent, Recorder, Recording, TurnSink,
    },
    reply::{Format, ResponseMeta},
    worker::{Worker, recorder},
};

#[cfg(test)]
mod tests;
