//! The servers that requests go to, and the one client that asks them.
//!
//! hyper's own client, not reqwest: that one adds an `accept` of its own to a request without one.
//! No redirects, no decompression, no retry but what `routing.fail_over` asks for (`ask`); the one
//! other thing asked twice is a request that never left, as the pooled connection had been closed
//! meanwhile.

mod ask;
mod body;
mod failure;
mod keys;
mod tls;

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, uri::PathAndQuery};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use metaclaw_chat::{AgentId, Span};

use self::keys::KeyRing;
pub(crate) use self::{
    ask::{Answer, AnyOf},
    body::UpstreamBody,
};
use crate::{
    address::Address,
    auth::Door,
    config::{AgentConfig, ConfigError, GatewayConfig, Mode, POLICY, UpstreamConfig},
    refusal::Refusal,
    relay::Body,
    serving::{Endpoint, Lease, Serving},
};
pub use failure::Failure;

/// How long an unused connection is kept; shorter than the keep-alive of servers in use.
const POOL_IDLE: Duration = Duration::from_secs(50);

type Connections = Client<HttpsConnector<HttpConnector>, Body>;

/// All upstreams, and the order in which they are asked.
#[derive(Debug)]
pub(crate) struct Upstreams {
    named: BTreeMap<String, Arc<Upstream>>,
    order: Vec<String>,
    agents: BTreeMap<AgentId, AgentConfig>,
    mode: Mode,
    fail_over: Vec<Failure>,
    policy: Connections,
    /// Where it is locked, callers show a key of ours, which is no upstream's.
    door: Arc<Door>,
}

/// A configured upstream.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub name: String,
    address: Address,
    config: UpstreamConfig,
    keys: KeyRing,
    connections: Connections,
}

/// Who is asked.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// Our own policy model.
    Policy(Arc<Endpoint>),
    /// A configured upstream.
    Named(Arc<Upstream>),
}

/// What is asked.
pub(crate) struct Outgoing<'a> {
    pub method: Method,
    pub route: &'a PathAndQuery,
    pub headers: HeaderMap,
    pub body: Body,
}

// === impl Upstreams ===

impl Upstreams {
    pub(crate) fn new(config: &GatewayConfig, door: Arc<Door>) -> Result<Self, ConfigError> {
        let tls = tls::config()?;
        let mut named = BTreeMap::new();
        for (name, upstream) in &config.upstreams {
            let address = upstream.url.parse::<Address>();
            let address = address.map_err(|error| ConfigError::Address {
                name: name.clone(),
                reason: error.to_string(),
            })?;
            let upstream = Upstream {
                name: name.clone(),
                address,
                keys: KeyRing::new(&upstream.keys),
                config: upstream.clone(),
                connections: connections(tls.clone(), upstream.connect),
            };
            named.insert(name.clone(), Arc::new(upstream));
        }
        Ok(Self {
            named,
            order: config.routing.order.clone(),
            agents: config.agents.clone(),
            mode: config.mode,
            fail_over: config.routing.fail_over.clone(),
            policy: connections(tls, UpstreamConfig::default().connect),
            door,
        })
    }

    /// Who can answer an agent's chats, in order.
    pub(crate) fn targets(&self, serving: &Serving, agent: &AgentId) -> Vec<Target> {
        let target = |name: &str| match name {
            POLICY => serving.policy().map(Target::Policy),
            name => self.named.get(name).cloned().map(Target::Named),
        };
        self.order_of(agent)
            .into_iter()
            .filter_map(target)
            .collect()
    }

    /// Who can answer this chat, in order. Our own policy model reads text alone.
    pub(crate) fn any_of(&self, serving: &Serving, agent: &AgentId, has_media: bool) -> AnyOf {
        let mut targets = self.targets(serving, agent);
        let mut nobody = self.nobody(agent);
        if has_media && self.has_policy(agent) {
            targets.retain(|target| !matches!(target, Target::Policy(_)));
            nobody = Refusal::TextOnly;
        }
        AnyOf { targets, nobody }
    }

    /// Why nobody can answer.
    pub(crate) fn nobody(&self, agent: &AgentId) -> Refusal {
        if self.has_policy(agent) {
            Refusal::PolicyDown
        } else {
            Refusal::NoUpstream
        }
    }

    /// Whether our own policy model is among those who answer, up or down.
    pub(crate) fn has_policy(&self, agent: &AgentId) -> bool {
        self.order_of(agent).contains(&POLICY)
    }

    /// The names that an agent's requests may go to. Its own upstreams stand for all others, so that
    /// what it says never reaches one that its owner did not choose for it.
    fn order_of(&self, agent: &AgentId) -> Vec<&str> {
        let own = self.agents.get(agent);
        let mode = own.and_then(|own| own.mode).unwrap_or(self.mode);
        let own = own.map_or(&[][..], |own| &own.upstream);
        let of_all = self.order.iter();
        let general = of_all.filter(|name| own.is_empty() || *name == POLICY);
        let mut names: Vec<&str> = general.map(String::as_str).collect();
        if own.iter().any(|name| name == POLICY) {
            names.clear();
        }
        names.extend(own.iter().map(String::as_str));
        names.retain(|name| *name != POLICY || mode != Mode::SkillsOnly);
        names
    }
}

fn connections(tls: rustls::ClientConfig, connect: Span) -> Connections {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(connect.0));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(http);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .build(https)
}

// === impl Target ===

impl Target {
    /// Its name in the configuration.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Policy(_) => POLICY,
            Self::Named(upstream) => &upstream.name,
        }
    }

    /// The model to ask it for; `None` leaves the caller's.
    pub(crate) fn model<'a>(&'a self, adapter: Option<&'a str>) -> Option<&'a str> {
        match self {
            Self::Policy(endpoint) => Some(adapter.unwrap_or(&endpoint.base)),
            Self::Named(upstream) => upstream.config.model.as_deref(),
        }
    }

    /// The adapter that answers, as a header says it; none is the base, or no model of ours.
    pub(crate) fn adapter(&self, lease: &Lease) -> Option<HeaderValue> {
        match self {
            Self::Policy(_) => HeaderValue::from_str(lease.adapter()?).ok(),
            Self::Named(_) => None,
        }
    }

    /// The longest silence inside a reply.
    pub(crate) fn idle(&self) -> Option<Duration> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) => upstream.config.idle.map(|idle| idle.0),
        }
    }

    /// Whether requests that are no chats belong here. At our own trainer they would be orders.
    pub(crate) fn takes_everything(&self) -> bool {
        matches!(self, Self::Named(_))
    }

    fn first_byte(&self) -> Option<Span> {
        match self {
            Self::Policy(_) => None,
            Self::Named(upstream) => upstream.config.first_byte,
        }
    }

    fn address(&self) -> &Address {
        match self {
            Self::Policy(endpoint) => &endpoint.address,
            Self::Named(upstream) => &upstream.address,
        }
    }

    fn too_slow(&self, after: Span) -> Refusal {
        Refusal::TooSlow {
            name: self.name().to_owned(),
            host: self.address().host().to_owned(),
            after,
        }
    }

    fn unreachable(&self, error: &dyn Error) -> Refusal {
        match self {
            // It is being restarted, or will be at once: a caller that tries again is served.
            Self::Policy(_) => Refusal::PolicyDown,
            Self::Named(_) => Refusal::Unreachable {
                name: self.name().to_owned(),
                host: self.address().host().to_owned(),
                reason: root(error),
            },
        }
    }
}

/// The innermost of nested errors: the one that says what happened.
fn root(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
