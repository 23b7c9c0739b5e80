//! The counters of the gateway.
//!
//! Single numbers are plain atomics here. Numbers with labels are in `traffic`. `expose` makes the text of `/metrics`
//! from both. A request looks up its labels once and then only adds.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_capture::{CaptureMetrics, Counter};
use serde::{Deserialize, Serialize};

mod answers;
mod expose;
mod passed;
mod request;
mod traffic;

pub(crate) use self::{
    answers::Answers,
    expose::{CONTENT_TYPE, text},
    passed::PassedRequests,
    request::{RequestMetrics, count_requests},
    traffic::Traffic,
};
pub use self::{
    answers::UpstreamAnswers,
    expose::{Series, SeriesValue},
};

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) requests: Counter,
    pub(crate) refused: Counter,
    pub(crate) active_streams: Counter,
    pub(crate) body_bytes: Arc<Counter>,
    pub(crate) cache_breaks: Counter,
    pub(crate) trimmed_messages: Counter,
    pub(crate) relayed_only: Counter,
    pub(crate) off_record: Counter,
    pub(crate) other_agents: Arc<Counter>,
    pub(crate) capture: Arc<CaptureMetrics>,
    pub(crate) traffic: Traffic,
    pub(crate) answers: Answers,
    pub(crate) passed: PassedRequests,
}

/// The counters at one moment. Every way to lose a turn before it reaches the log has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that came in.
    pub requests: u64,
    /// Requests that the gateway answered with an error of its own.
    pub refused: u64,
    /// Requests that are running now.
    pub active_streams: u64,
    /// Bytes held now for capture.
    pub capture_bytes: u64,
    /// Bytes of request bodies held now.
    pub body_bytes: u64,
    /// Turns that the log has acknowledged.
    pub recorded: u64,
    /// Turns that are not in the log because its queue was full.
    pub dropped: u64,
    /// Turns that are not in the log because it failed.
    pub failed: u64,
    /// Turns without their reply, because the capture's memory ran out or an event was too long to read.
    pub overflowed: u64,
    /// Turns without their reply, because it was compressed in an unsupported or invalid way.
    pub undecodable: u64,
    /// Chats that were relayed without capture, because their messages could not be read.
    pub unread: u64,
    /// Sessions whose lessons were chosen again after a pause, which invalidates the provider's prompt cache.
    pub cache_breaks: u64,
    /// Tokens of recorded prompts, cached ones included, as upstreams count them.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Tokens of these that came from a provider's cache.
    #[serde(default)]
    pub cached_prompt_tokens: u64,
    /// Messages that were dropped from prompts longer than `max_context_tokens`.
    #[serde(default)]
    pub trimmed_messages: u64,
    /// Chats that were only relayed, while `metaclaw off` was in force.
    pub relayed_only: u64,
    /// Chats of which nothing was kept, because a header or the owner required that.
    pub off_record: u64,
    /// Requests without a key whose agent counted as `_others`, because there were too many names.
    #[serde(default)]
    pub other_agents: u64,
}

// === impl Metrics ===

impl Metrics {
    /// Returns how each upstream that was tried has answered.
    pub fn upstreams(&self) -> BTreeMap<String, UpstreamAnswers> {
        self.answers.all()
    }

    /// Returns how many requests passed unread, by method and route.
    pub fn passed(&self) -> BTreeMap<String, u64> {
        self.passed.all()
    }

    pub fn counts(&self) -> Counts {
        let capture = &self.capture;
        Counts {
            requests: self.requests.get(),
            refused: self.refused.get(),
            active_streams: self.active_streams.get(),
            capture_bytes: capture.bytes.get(),
            body_bytes: self.body_bytes.get(),
            recorded: capture.recorded.get(),
            dropped: capture.dropped.get(),
            failed: capture.failed.get(),
            overflowed: capture.overflowed.get(),
            undecodable: capture.undecodable.get(),
            unread: capture.unreadable.get(),
            cache_breaks: self.cache_breaks.get(),
            prompt_tokens: capture.prompt_tokens.get(),
            cached_prompt_tokens: capture.cached_tokens.get(),
            trimmed_messages: self.trimmed_messages.get(),
            relayed_only: self.relayed_only.get(),
            off_record: self.off_record.get(),
            other_agents: self.other_agents.get(),
        }
    }
}
