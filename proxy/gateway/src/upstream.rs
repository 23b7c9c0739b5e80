//! One server that requests go to: a configured upstream, or our own policy model.
//!
//! No redirects, no decompression, and nothing is sent twice here but where a connection needs it that had
//! been closed (`client`).

mod body;
mod capabilities;
mod client;
mod connect;
mod error;
mod keys;
mod negative_cache;
mod parents;
mod tls;
mod upload;

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::TryFutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, uri::PathAndQuery};
use metaclaw_capture::Parent;
use metaclaw_dialects::Api;
use rustls::RootCertStore;
use serde::Deserialize;
use tokio::time::timeout;

pub(crate) use self::{
    body::UpstreamBody,
    capabilities::{Capabilities, Variant},
    client::{Client, Sent},
    error::UpstreamError,
};
use metaclaw_chat::Secret;

use self::{
    connect::Proxy,
    keys::KeyRing,
    parents::{Parents, Said},
};
use crate::{
    address::Address,
    body::full,
    config::{ConfigError, EnvironmentProxies, POLICY, Provider, UpstreamConfig},
    failure::Failure,
    headers::{self, AuthStyle},
    route::RouteError,
    serving::{Endpoint, Lease},
};

/// After these failures of the policy model the next upstream is asked without being told to.
const POLICY_FAILS_OVER: [Failure; 4] = [
    Failure::Unreachable,
    Failure::Timeout,
    Failure::ContextLength,
    Failure::Unsupported,
];

/// The same beside them where it answers by an account at a provider.
const ACCOUNT_FAILS_OVER: [Failure; 7] = [
    Failure::RateLimit,
    Failure::Overloaded,
    Failure::Billing,
    Failure::Auth,
    Failure::AuthPermanent,
    Failure::ModelNotFound,
    Failure::Server,
];

/// Where the policy model's server turns text into ids. No caller can ask for it: their routes are below `/v1`.
pub(crate) const TOKENIZE: &str = "/tokenize";
/// Where a server says which models it has.
const MODELS: &str = "/v1/models";
/// The most that is read of that, and how long it may take.
const MODELS_BYTES: usize = 1 << 20;
const MODELS_WITHIN: Duration = Duration::from_secs(10);

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub name: String,
    pub capabilities: Capabilities,
    pub keys: KeyRing,
    /// The longest silence inside a reply.
    pub idle: Option<Duration>,
    /// Classes of failure after which another key or upstream is asked.
    pub fail_over: Vec<Failure>,
    address: Address,
    provider: Provider,
    model: Option<String>,
    /// What a proxy on the way wants to be shown with a request that it forwards.
    proxy_authorization: Option<HeaderValue>,
    client: Arc<Client>,
    /// Where our own policy model is served, if it is that.
    policy: Option<Arc<Endpoint>>,
    /// Where it is a vLLM: which of its models are adapters.
    parents: Option<Parents>,
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    pub method: Method,
    pub route: PathAndQuery,
    pub headers: HeaderMap,
    pub body: Sent,
}

/// What is shown with a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credentials {
    /// Which of the upstream's keys.
    pub key: Option<usize>,
    /// What the caller shows of its own goes along, but for its key where there is another.
    pub passes_callers: bool,
}

/// What is read of a chat whose model stands in the upstream's route.
#[derive(Deserialize)]
struct ModelField {
    model: String,
}

// === impl Upstream ===

impl Upstream {
    /// A configured one.
    ///
    /// # Errors
    /// [`ConfigError`], for an address, a proxy or a file of certificates that cannot be used.
    pub(crate) fn new(
        name: &str,
        own: &UpstreamConfig,
        fail_over: &[Failure],
        environment: &EnvironmentProxies,
        roots: &RootCertStore,
    ) -> Result<Self, ConfigError> {
        let address = Address::for_upstream(&own.url, own.dialect, own.api_version.as_deref());
        let address = address
            .map_err(|error| ConfigError::invalid(format!("upstreams.{name}.url"), &error))?;
        let proxy = Proxy::for_upstream(own.proxy.as_ref(), environment, &address);
        let proxy = proxy.map_err(|given| ConfigError::Proxy {
            name: name.to_owned(),
            given,
        })?;
        if let Some(proxy) = &proxy {
            tracing::info!(upstream = name, proxy = proxy.host(), "by way of a proxy");
        }
        let tls = tls::config(roots.clone(), own.ca.as_deref())
            .map_err(|reason| ConfigError::invalid(format!("upstreams.{name}.ca"), &reason))?;
        let is_https = address.is_https();
        let authorization = proxy.as_ref().and_then(Proxy::authorization);
        Ok(Self {
            name: name.to_owned(),
            capabilities: Capabilities::from_config(own, &address),
            keys: KeyRing::new(&own.keys),
            idle: own.idle.map(|idle| idle.0),
            fail_over: fail_over.to_vec(),
            provider: own.dialect,
            model: own.model.clone(),
            proxy_authorization: authorization.filter(|_| !is_https).cloned(),
            client: Arc::new(Client::new(tls, own, proxy.as_ref(), is_https)),
            policy: None,
            parents: (own.dialect == Provider::Vllm).then(Parents::new),
            address,
        })
    }

    /// Our own policy model, served at `endpoint`.
    pub(crate) fn policy(
        endpoint: Arc<Endpoint>,
        client: Arc<Client>,
        fail_over: &[Failure],
        idle: Option<Duration>,
    ) -> Self {
        let account: &[Failure] = if endpoint.is_by_account {
            &ACCOUNT_FAILS_OVER
        } else {
            &[]
        };
        Self {
            name: POLICY.to_owned(),
            capabilities: Capabilities::policy(endpoint.appends_system),
            keys: KeyRing::new(&[]),
            idle,
            fail_over: [&POLICY_FAILS_OVER, account, fail_over].concat(),
            address: endpoint.address.clone(),
            provider: Provider::default(),
            model: Some(endpoint.base.clone()),
            proxy_authorization: None,
            client,
            policy: Some(endpoint),
            parents: None,
        }
    }

    /// Whether it is our own policy model.
    pub(crate) fn is_policy(&self) -> bool {
        self.policy.is_some()
    }

    /// The model to ask it for; `None` leaves the caller's.
    pub(crate) fn model<'a>(&'a self, adapter: Option<&'a str>) -> Option<&'a str> {
        let adapter = adapter.filter(|_| self.is_policy());
        adapter.or(self.model.as_deref())
    }

    /// The adapter that answers; none is the base, or no model of ours.
    pub(crate) fn adapter<'a>(&self, lease: &'a Lease) -> Option<&'a str> {
        lease.adapter().filter(|_| self.is_policy())
    }

    /// Whether it is Anthropic itself, or a server on the way to it that stands here or has no public name.
    pub(crate) fn is_anthropic(&self) -> bool {
        let host = self.address.name();
        let is_local = !host.contains('.') || host.parse::<IpAddr>().is_ok();
        let is_its = host == "anthropic.com" || host.ends_with(".anthropic.com");
        self.provider == Provider::Anthropic && (is_its || is_local)
    }

    /// Whether it is the same server.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        self.address.is_at(&other.address)
    }

    /// Sends a request. The reply's body is still to come.
    ///
    /// # Errors
    /// [`UpstreamError`], where there is no reply.
    pub(crate) async fn send(
        &self,
        outgoing: Outgoing,
        shown: Credentials,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let model = match &outgoing.body {
            Sent::Chat(body) if self.address.is_by_model() => model_of(&body.concat()),
            Sent::Chat(_) | Sent::Stream(_) => None,
        };
        let uri = if self.is_policy() && outgoing.route.path() == TOKENIZE {
            self.address.beside(TOKENIZE)
        } else {
            self.address.uri(&outgoing.route, model.as_deref())
        };
        let Some(uri) = uri else {
            let path = outgoing.route.path();
            return Err(RouteError::not_found(&outgoing.method, path).into());
        };
        let key = match &self.policy {
            Some(endpoint) => endpoint.key.as_ref(),
            None => shown.key.and_then(|key| self.keys.key(key)),
        };
        let key = key.map(|key| (key, self.auth_style(key, &outgoing.route)));
        let mut headers = headers::upwards(outgoing.headers, key, shown.passes_callers);
        if let Some(authorization) = &self.proxy_authorization {
            headers.insert(header::PROXY_AUTHORIZATION, authorization.clone());
        }
        if let Sent::Chat(body) = &outgoing.body {
            let n_bytes: usize = body.iter().map(Bytes::len).sum();
            headers.insert(header::CONTENT_LENGTH, n_bytes.into());
        }
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (outgoing.method, uri, headers);
        let sent = self.client.send(head, outgoing.body);
        let sent = sent.map_err(|error| {
            UpstreamError::from_send_error(error, &self.name, self.address.host())
        });
        let Some(endpoint) = &self.policy else {
            return sent.await;
        };
        let reply = tokio::select! {
            reply = sent => reply,
            () = endpoint.falls_silent() => return Err(UpstreamError::PolicyDown),
        };
        let mut reply = reply.map_err(|error| match error.failure() {
            // It is being restarted, or will be at once: a caller that tries again is served.
            Some(Failure::Unreachable) => UpstreamError::PolicyDown,
            _ => error,
        })?;
        let endpoint = Arc::clone(endpoint);
        let silent = async move { endpoint.falls_silent().await };
        reply.body_mut().breaks_off(Box::pin(silent));
        Ok(reply)
    }

    /// Whether a failure says that it would fail anybody: a key that callers show of their own may be the fault
    /// of one.
    pub(crate) fn is_unable(&self, failure: Failure) -> bool {
        match failure {
            Failure::Auth | Failure::AuthPermanent | Failure::Billing => self.keys.len() > 0,
            Failure::Unreachable | Failure::Timeout | Failure::Server => true,
            Failure::RateLimit
            | Failure::Overloaded
            | Failure::ModelNotFound
            | Failure::ContextLength
            | Failure::Unsupported => false,
        }
    }

    /// Whether its server answers anything at all within `deadline`.
    pub(crate) async fn is_there(&self, deadline: Duration) -> bool {
        let route = PathAndQuery::from_static("/v1/health");
        let Some(uri) = self.address.uri(&route, None) else {
            return false;
        };
        let (mut head, ()) = Request::new(()).into_parts();
        head.uri = uri;
        let sent = self.client.send(head, Sent::Stream(full(Bytes::new())));
        timeout(deadline, sent)
            .await
            .is_ok_and(|reply| reply.is_ok())
    }

    /// The base model of what is asked for as `model`, where this is a vLLM and that is an adapter there. The server is asked
    /// beside the chat where it was not before.
    pub(crate) fn parent(&self, model: &str) -> Option<Parent> {
        let parents = self.parents.as_ref()?;
        Some(parents.of(model, || self.list()))
    }

    fn list(&self) -> impl Future<Output = Said> + Send + use<> {
        let route = PathAndQuery::from_static(MODELS);
        let key = self.keys.first().and_then(|key| self.keys.key(key));
        let key = key.map(|key| (key, self.auth_style(key, &route)));
        let (mut head, ()) = Request::new(()).into_parts();
        head.headers = headers::upwards(HeaderMap::new(), key, false);
        if let Some(authorization) = &self.proxy_authorization {
            head.headers
                .insert(header::PROXY_AUTHORIZATION, authorization.clone());
        }
        let (uri, client) = (self.address.uri(&route, None), Arc::clone(&self.client));
        let list = async move {
            head.uri = uri?;
            let sent = client.send(head, Sent::Stream(full(Bytes::new())));
            let mut reply = sent.await.ok()?;
            if !reply.status().is_success() {
                return Some(Said::Refusal).filter(|_| reply.status().is_client_error());
            }
            let body = reply.body_mut().read_whole(MODELS_BYTES, None).await;
            Some(Said::List(body.ok()?.to_vec()))
        };
        async move {
            let listed = timeout(MODELS_WITHIN, list).await;
            listed.ok().flatten().unwrap_or(Said::Nothing)
        }
    }

    fn auth_style(&self, key: &Secret, route: &PathAndQuery) -> AuthStyle {
        let api = Api::of_path(route.path());
        let is_openais = matches!(api, Some(Api::Chat | Api::Responses));
        match self.provider {
            Provider::Anthropic => AuthStyle::of_anthropic(key, is_openais),
            Provider::Azure => AuthStyle::ApiKey,
            Provider::Openai | Provider::Vllm => AuthStyle::Bearer,
        }
    }
}

/// The client of the policy model's server.
///
/// # Errors
/// [`ConfigError::Tls`], where TLS cannot be set up.
pub(crate) fn policy_client(
    config: &UpstreamConfig,
    roots: &RootCertStore,
) -> Result<Client, ConfigError> {
    let tls = tls::config(roots.clone(), None);
    let tls = tls.map_err(|reason| ConfigError::Tls { reason })?;
    Ok(Client::new(tls, config, None, false))
}

fn model_of(body: &[u8]) -> Option<String> {
    let field: ModelField = serde_json::from_slice(body).ok()?;
    Some(field.model)
}
