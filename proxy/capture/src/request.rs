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
    /// Whether the client says that the session ends with this turn.
    pub is_last: bool,
    /// The request as the client sent it.
    pub chat: ChatRequest,
    /// Hash of the conversation before its first message.
    pub start: ChainHash,
    /// `temperature` and `top_p`, if the request left them out and the proxy set them.
    pub sampling: Vec<(&'static str, f64)>,
    /// Which upstream, model and adapter serve it. Without a model, the request's own name is used.
    pub served: Served,
    /// For a model of vLLM: the base model, if it is an adapter.
    pub parent: Option<Parent>,
    /// Called with the reply's own id, because the next request may refer to it. If the id is among the first bytes,
    /// this happens before the agent has the end of the reply, else soon after.
    pub on_reply_id: Option<Box<dyn FnOnce(String) + Send>>,
    /// Called with a reply that has tool calls, because the text of a call may be the next request's first message.
    /// This happens before the agent has the end of the reply, unless the reply is very long.
    pub on_calls: Option<OnCalls>,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// The client's trace: W3C's `traceparent`.
    pub traceparent: Option<String>,
    /// The request's own span, in which the turn's line is written. Its field `turn` is set to the turn's id once the
    /// log has it.
    pub span: Span,
}

/// The base model of an adapter, once it is known. `None` inside means that the model is no adapter.
pub type Parent = Arc<OnceLock<Option<String>>>;

/// A callback with a request and a reply to it that has tool calls.
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
