//! The servers that requests go to, and the one client that asks them.
//!
//! hyper's own client, not reqwest: that one adds an `accept` of its own to a request without one.
//! No redirects, no decompression, no retry; the one thing asked twice is a request that never left,
//! as the pooled connection had been closed meanwhile.

mod tls;

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Request, Response, uri::PathAndQuery};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use metaclaw_chat::Span;

use crate::{
    address::Address,
    config::{ConfigError, GatewayConfig, POLICY, UpstreamConfig, UpstreamDialect},
    headers::{self, Credentials},
    refusal::Refusal,
    relay::Body,
    serving::{Endpoint, Lease, Serving},
};

/// How long an unused connection is kept; shorter than the keep-alive of servers in use.
const POOL_IDLE: Duration = Duration::from_secs(50);

type Connections = Client<HttpsConnector<HttpConnector>, Body>;

/// All upstreams, and the order in which they are asked.
#[derive(Debug)]
pub(crate) struct Upstreams {
    named: BTreeMap<String, Arc<Upstream>>,
    order: Vec<String>,
    policy: Connections,
    /// Callers show a key of ours, so it is nobody's upstream.
    is_locked: bool,
}

/// A configured upstream.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub name: String,
    address: Address,
    config: UpstreamConfig,
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
    pub(crate) fn new(config: &GatewayConfig, is_locked: bool) -> Result<Self, ConfigError> {
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
                config: upstream.clone(),
                connections: connections(tls.clone(), upstream.connect),
            };
            named.insert(name.clone(), Arc::new(upstream));
        }
        Ok(Self {
            named,
            order: config.routing.order.clone(),
            policy: connections(tls, UpstreamConfig::default().connect),
            is_locked,
        })
    }

    /// Who can answer a chat, in order.
    pub(crate) fn targets(&self, serving: &Serving) -> Vec<Target> {
        let target = |name: &String| match name.as_str() {
            POLICY => serving.policy().map(Target::Policy),
            name => self.named.get(name).cloned().map(Target::Named),
        };
        self.order.iter().filter_map(target).collect()
    }

    /// Why nobody can answer.
    pub(crate) fn nobody(&self) -> Refusal {
        if self.has_policy() {
            Refusal::PolicyDown
        } else {
            Refusal::NoUpstream
        }
    }

    /// Whether our own policy model is among those who answer, up or down.
    pub(crate) fn has_policy(&self) -> bool {
        self.order.iter().any(|name| name == POLICY)
    }

    /// Asks. The reply's body is still to come.
    pub(crate) async fn ask(
        &self,
        target: &Target,
        outgoing: Outgoing<'_>,
    ) -> Result<Response<Incoming>, Refusal> {
        let Some(uri) = target.address().uri(outgoing.route) else {
            return Err(Refusal::NotFound {
                method: outgoing.method.to_string(),
                path: outgoing.route.path().to_owned(),
            });
        };
        let mut request = Request::new(outgoing.body);
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers::upwards(outgoing.headers, self.credentials(target));
        let connections = match target {
            Target::Policy(_) => &self.policy,
            Target::Named(upstream) => &upstream.connections,
        };
        let reply = connections.request(request);
        let reply = match target.first_byte() {
            Some(after) => match tokio::time::timeout(after.0, reply).await {
                Ok(reply) => reply,
                Err(_) => return Err(target.too_slow(after)),
            },
            None => reply.await,
        };
        reply.map_err(|error| target.unreachable(&error))
    }

    fn credentials<'a>(&self, target: &'a Target) -> Credentials<'a> {
        match target {
            Target::Policy(endpoint) => match &endpoint.key {
                Some(key) => Credentials::Key(key, UpstreamDialect::Openai),
                None => Credentials::Nobodys,
            },
            Target::Named(upstream) => match upstream.config.keys.first() {
                Some(key) => Credentials::Key(key, upstream.config.dialect),
                None if self.is_locked => Credentials::Nobodys,
                None => Credentials::Callers,
            },
        }
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
