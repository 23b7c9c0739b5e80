//! HTTP in, HTTP out: identifies the caller, adds lessons to the request, chooses an upstream, and relays the reply.
//!
//! The gateway edits a request in place (`splice`), and relays a reply frame by frame (`relay`). Learning gets a
//! bounded copy of the reply, which goes to the turn log (`metaclaw-capture`). If learning and chats compete, chats
//! win, and the loss is counted ([`Metrics`]).

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
mod timed_body;
mod timed_stream;
mod upstream;

#[cfg(test)]
use metaclaw_dialects::Reply;

/// The longest name that a client or an upstream chooses (an id, a model) and that is remembered, in bytes.
pub(crate) const LONGEST_NAME: usize = 1 << 10;

pub use metaclaw_chat::Secret;
pub use metaclaw_dialects::{Api, translate::upstream_reply_id};

pub use self::{
    accept::max_local_connections,
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
    routing::Upstreams,
    server::serve_local,
    services::{Answering, Call, MemoryCall, MemoryService, Service, ServiceError, Services},
    serving::{Endpoint, Lease, Serving},
    upstream::innermost,
};

#[cfg(test)]
mod tests;
