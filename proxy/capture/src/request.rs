//! What is known of a turn when its reply begins.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use metaclaw_chat::{AgentId, ChainHash, Message, SessionId};
use metaclaw_dialects::request::ChatRequest;
use metaclaw_turns::{Served, TurnKind};
use tracing::Span;

/// A request on its way to the log.
pub struct CapturedRequest {
    pub agent: AgentId,
    pub session: SessionId,
    pub kind: TurnKind,
    /// The client says that the session ends with this turn.
    pub is_last: bool,
    /// The request as it came.
    pub chat: ChatRequest,
    /// The hash of the conversation before its first message.
    pub start: ChainHash,
    /// What the proxy set of `temperature` and `top_p`, which the request left out.
    pub sampling: Vec<(&'static str, f64)>,
    /// Under what it is served; without a model, the request's own.
    pub served: Served,
    /// Where the model is a vLLM's: the base model, if it is an adapter.
    pub parent: Option<Parent>,
    /// Called with the id by which the reply names itself, before the agent has its end where the id is
    /// among its first bytes, and else soon after: the next request may go on from it.
    pub on_reply_id: Option<Box<dyn FnOnce(String) + Send>>,
    /// Called with a reply that calls tools, before the agent has its end, unless it is very long: what stands in the
    /// calls may be the next request's first message.
    pub on_calls: Option<OnCalls>,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// The trace that the client is in: W3C's `traceparent`.
    pub traceparent: Option<String>,
    /// The request's own span, in which the turn's line is written; its field `turn` is filled in with
    /// the turn's id once the log has it.
    pub span: Span,
}

/// The base model of an adapter, once it is known; `None` in it is no adapter.
pub type Parent = Arc<OnceLock<Option<String>>>;

/// What is called with a request and a reply to it that calls tools.
pub type OnCalls = Box<dyn FnOnce(&ChatRequest, &Message) + Send>;

impl fmt::Debug for CapturedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapturedRequest")
            .field("api", &self.chat.api())
            .field("agent", &self.agent)
            .field("session", &self.session)
            .field("n_bytes", &self.chat.raw().len())
            .finish_non_exhaustive()
    }
}
