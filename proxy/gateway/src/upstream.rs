//! The servers that requests go to, and the one client that asks them.
//!
//! No redirects, no decompression, no retry but what `routing.fail_over` asks for (`ask`) and what a
//! connection needs that had been closed (`client`).

mod ask;
mod body;
mod client;
mod connect;
mod failure;
mod ids;
mod keys;
mod lack;
mod speech;
mod tls;
mod upload;
mod wording;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Uri, uri::PathAndQuery};
use metaclaw_chat::AgentId;
use metaclaw_dialects::vllm;
use rustls::RootCertStore;

pub(crate) use self::{
    ask::{Answer, AnyOf},
    body::UpstreamBody,
};
use self::{
    client::{Client, SendError, is_not_http, sources},
    connect::Proxy,
    keys::KeyRing,
    lack::Lack,
    speech::Speech,
};
use crate::{
    address::Address,
    auth::Door,
    config::{AgentConfig, ConfigError, GatewayConfig, Mode, POLICY, UpstreamConfig},
    pieces::Pieces,
    refusal::Refusal,
    relay::Body,
    serving::{Endpoint, Lease, Serving},
};
pub use failure::Failure;

/// All upstreams, and the order in which they are asked.
#[derive(Debug)]
pub(crate) struct Upstreams {
    named: BTreeMap<String, Arc<Upstream>>,
    order: Vec<String>,
    agents: BTreeMap<AgentId, AgentConfig>,
    mode: Mode,
    fail_over: Vec<Failure>,
    policy: Client,
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
    speech: Speech,
    /// Whether it gives no token ids.
    lacks_ids: Lack,
    /// The proxy on the way to it.
    proxy: Option<Proxy>,
    client: Client,
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
    pub body: Sent,
    /// What the caller asked for itself, where the upstream is asked for token ids.
    pub ids: Option<vllm::Asked>,
}

/// A request's body.
pub(crate) enum Sent {
    /// A chat in the caller's API, which may be put in other words and sent again.
    Chat(Pieces),
    /// Anything else, as it comes.
    Stream(Body),
}

// === impl Upstreams ===

impl Upstreams {
    /// Those of the configuration, each trusted by `roots`.
    pub(crate) fn new(
        config: &GatewayConfig,
        roots: &RootCertStore,
        door: Arc<Door>,
    ) -> Result<Self, ConfigError> {
        let mut named = BTreeMap::new();
        for (name, own) in &config.upstreams {
            let upstream = Upstream::new(name, own, config, roots)?;
            named.insert(name.clone(), Arc::new(upstream));
        }
        let tls = tls::config(roots.clone())?;
        let default = UpstreamConfig::default();
        Ok(Self {
            named,
            order: config.routing.order.clone(),
            agents: config.agents.clone(),
            mode: config.mode,
            fail_over: config.routing.fail_over.clone(),
            policy: Client::new(tls, &default, None, false),
            door,
        })
    }

    /// Who can answer an agent's chats, in order.
    pub(crate) fn targets(&self, serving: &Serving, agent: &AgentId) -> Vec<Target> {
        self.targets_named(serving, &self.order_of(agent))
    }

    fn targets_named(&self, serving: &Serving, names: &[&str]) -> Vec<Target> {
        let target = |name: &&str| match *name {
            POLICY => serving.policy().map(Target::Policy),
            name => self.named.get(name).cloned().map(Target::Named),
        };
        names.iter().filter_map(target).collect()
    }

    /// Who can answer this chat, in order. Our own policy model reads text alone: `has_media` says
    /// whether there is more.
    pub(crate) fn any_of(
        &self,
        serving: &Serving,
        agent: &AgentId,
        has_media: impl FnOnce() -> bool,
    ) -> AnyOf {
        let names = self.order_of(agent);
        let mut targets = self.targets_named(serving, &names);
        let has_policy = names.contains(&POLICY);
        let mut nobody = Refusal::of_nobody(has_policy);
        if has_policy && has_media() {
            targets.retain(|target| !matches!(target, Target::Policy(_)));
            nobody = Refusal::TextOnly;
        }
        AnyOf { targets, nobody }
    }

    /// Why nobody can answer.
    pub(crate) fn nobody(&self, agent: &AgentId) -> Refusal {
        Refusal::of_nobody(self.has_policy(agent))
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

// === impl Upstream ===

impl Upstream {
    fn new(
        name: &str,
        own: &UpstreamConfig,
        all: &GatewayConfig,
        roots: &RootCertStore,
    ) -> Result<Self, ConfigError> {
        let address = Address::of(&own.url, own.dialect, own.api_version.as_deref());
        let address = address.map_err(|error| ConfigError::Address {
            name: name.to_owned(),
            reason: error.to_string(),
        })?;
        let roots = match &own.ca {
            None => roots.clone(),
            Some(ca) => tls::with_ca(roots.clone(), ca).map_err(|reason| ConfigError::Ca {
                name: name.to_owned(),
                reason,
            })?,
        };
        let to = address.uri(&PathAndQuery::from_static("/v1/models"), None);
        let to: Uri = to.unwrap_or_default();
        let is_here = is_this_machine(address.name());
        let given = own.proxy.as_ref().map(crate::Secret::expose);
        let proxy = Proxy::of(given, &all.environment, &to, is_here);
        let proxy = proxy.map_err(|given| ConfigError::Proxy {
            name: name.to_owned(),
            given,
        })?;
        if let Some(proxy) = &proxy {
            tracing::info!(upstream = name, proxy = proxy.host(), "by way of a proxy");
        }
        let tls = tls::config(roots)?;
        let is_https = address.is_https();
        Ok(Self {
            name: name.to_owned(),
            client: Client::new(tls, own, proxy.as_ref(), is_https),
            keys: KeyRing::new(&own.keys),
            speech: Speech::of(own, &address),
            lacks_ids: Lack::default(),
            config: own.clone(),
            proxy,
            address,
        })
    }
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.is_loopback())
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

    fn address(&self) -> &Address {
        match self {
            Self::Policy(endpoint) => &endpoint.address,
            Self::Named(upstream) => &upstream.address,
        }
    }

    fn unreadable(&self, reason: String) -> Refusal {
        Refusal::Unreadable {
            name: self.name().to_owned(),
            reason,
        }
    }

    /// Why it gave no reply.
    fn failed(&self, error: SendError) -> Refusal {
        let (name, host) = (self.name().to_owned(), self.address().host().to_owned());
        let error = match error {
            SendError::Upload(why) => {
                return *why.downcast().unwrap_or(Box::new(Refusal::BodyCut));
            }
            SendError::TooSlow(after) => return Refusal::TooSlow { name, host, after },
            SendError::Failed(error) => error,
        };
        let reason = sources(&error)
            .last()
            .map_or_else(String::new, ToString::to_string);
        match self {
            // It is being restarted, or will be at once: a caller that tries again is served.
            Self::Policy(_) => Refusal::PolicyDown,
            Self::Named(_) if is_not_http(&error) => Refusal::NotHttp { name, host, reason },
            Self::Named(_) if error.is_connect() => Refusal::Unreachable { name, host, reason },
            Self::Named(_) => Refusal::NoReply { name, host, reason },
        }
    }
}
