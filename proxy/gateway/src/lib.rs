//! HTTP in, HTTP out: who is asking, what they take along, who answers, and the answer's bytes back
//! as they come.
//!
//! Nothing the agent can notice changes. A request is edited by its bytes (`splice`), a reply is
//! passed on frame by frame (`relay`), and what learning needs is a bounded copy that goes to the turn
//! log behind the agent's back (`metaclaw-capture`). Where learning and chat compete, chat wins, and the
//! loss is counted ([`Metrics`]).

mod accept;
mod address;
mod admission;
mod auth;
mod body;
mod body_limit;
mod chat;
mod config;
mod count_tokens;
mod failure;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod gateway;
mod gathered;
mod handler;
mod headers;
mod histories;
mod identity;
mod idle_clock;
mod lock;
mod memory_calls;
mod metrics;
mod origin;
mod passthrough;
mod past_replies;
mod privacy;
mod probes;
mod relay;
mod respond;
mod rollouts;
mod route;
mod router;
mod routing;
mod serve_calls;
mod server;
mod services;
mod serving;
mod session_key;
mod sessions;
mod stack;
mod stalled_streams;
mod timed_body;
mod timed_stream;
mod upstream;

#[cfg(test)]
use metaclaw_dialects::Reply;

pub use metaclaw_chat::Secret;
pub use metaclaw_dialects::{Api, translate::upstream_reply_id};

pub use self::{
    address::AddressError,
    auth::Authenticator,
    config::{
        AgentRouting, CompatConfig, ConfigError, DataPolicy, EnvironmentProxies, GatewayConfig,
        KeyConfig, LLM, OpenRouterConfig, OpenRouterRoute, POLICY, PrivacyConfig, Provider,
        ProxyConfig, RoutingConfig, ServingConfig, UpstreamConfig,
    },
    failure::Failure,
    gateway::{Gateway, GatewayParts},
    metrics::{Counts, Metrics, Series, SeriesValue, UpstreamAnswers},
    past_replies::{Finding, PastReplies, RepliesFuture},
    privacy::{Mark, OffRecord, Privacy, RelayOnly, Switch},
    rollouts::{RolloutError, Rollouts},
    services::{
        Answering, Call, MemoryCall, MemoryRequest, MemoryService, Service, ServiceError, Services,
        StoredRequest,
    },
    serving::{Endpoint, Lease, Serving},
};

#[cfg(test)]
mod tests;
