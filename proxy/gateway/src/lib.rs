//! HTTP in, HTTP out: who is asking, what they take along, who answers, and the answer's bytes back
//! as they come.
//!
//! Nothing the agent can notice changes. A request is edited by its bytes (`splice`), a reply is
//! passed on frame by frame (`relay`), and what learning needs is a bounded copy (`capture`) that
//! goes to the turn log behind the agent's back (`record`). Where learning and chat compete, chat
//! wins, and the loss is counted ([`Metrics`]).

mod address;
mod auth;
mod body;
mod capture;
mod chat;
mod clock;
mod config;
mod failure;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod gateway;
mod handlers;
mod headers;
mod identity;
mod idle_clock;
mod inject;
mod metrics;
mod origin;
mod pieces;
mod recent;
mod record;
mod refusal;
mod relay;
mod routing;
mod secret;
mod server;
mod services;
mod serving;
mod upstream;

pub use metaclaw_dialects::Api;

pub use self::{
    address::AddressError,
    auth::Door,
    config::{
        AgentConfig, CompatConfig, ConfigError, EnvironmentProxies, GatewayConfig, KeyConfig, LLM,
        Mode, POLICY, ProxyConfig, RoutingConfig, ServingConfig, UpstreamConfig, UpstreamDialect,
    },
    failure::Failure,
    gateway::{Gateway, GatewayParts},
    metrics::{Counts, Metrics},
    record::{Appending, TurnSink},
    secret::Secret,
    services::{Answering, Call, Service, ServiceError, Services},
    serving::{Endpoint, Lease, Serving},
};

#[cfg(test)]
mod tests;
