//! One server for requests: a configured upstream, or our own policy model.
//!
//! It does not decompress. Nothing is sent twice, except when a connection had been closed, or when the server redirects
//! a request to another path of its own (`client`).

mod body;
mod capabilities;
mod client;
mod connect;
mod error;
mod keys;
mod parents;
mod signing;
mod tls;
mod upload;

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::TryFutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, uri::PathAndQuery};
use metaclaw_aws::{BedrockEndpoint, CredentialSource};
use metaclaw_capture::Parent;
use metaclaw_dialects::Api;
use rustls::RootCertStore;
use serde::Deserialize;
use tokio::time::timeout;

pub use self::error::innermost;
pub(crate) use self::{
    body::UpstreamBody,
    capabilities::{UpstreamCapabilities, Variant},
    client::{Client, Sent},
    error::UpstreamError,
};
use metaclaw_chat::Secret;

use self::{
    connect::Proxy,
    keys::KeyRing,
    parents::{Parents, Said},
    signing::RequestSigner,
};
use crate::{
    address::UpstreamAddress,
    body::full,
    config::{ConfigError, EnvironmentProxies, OpenRouterConfig, POLICY, Provider, UpstreamConfig},
    failure::Failure,
    headers::{self, AuthStyle},
    route::{MODELS, RouteError},
    serving::{Endpoint, Lease},
};

/// After these failures of the policy model, the next upstream is tried without a setting.
const POLICY_FAILS_OVER: [Failure; 4] = [
    Failure::Unreachable,
    Failure::Timeout,
    Failure::ContextLength,
    Failure::Unsupported,
];

/// Additional ones if it is used through an account at a provider.
const ACCOUNT_FAILS_OVER: [Failure; 7] = [
    Failure::RateLimit,
    Failure::Overloaded,
    Failure::Billing,
    Failure::Auth,
    Failure::AuthPermanent,
    Failure::ModelNotFound,
    Failure::Server,
];

/// The route of the policy model's server that converts text to ids. No caller can reach it, because their routes are
/// below `/v1`.
pub(crate) const TOKENIZE: &str = "/tokenize";
const MODELS_BYTES: usize = 1 << 20;
const MODELS_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Upstream {
    pub name: String,
    pub capabilities: UpstreamCapabilities,
    pub keys: KeyRing,
    /// The longest silence inside a reply.
    pub idle: Option<Duration>,
    /// Classes of failures after which another key or upstream is tried.
    pub fail_over: Vec<Failure>,
    address: UpstreamAddress,
    provider: Provider,
    model: Option<String>,
    /// The credential for a proxy in between that forwards requests.
    proxy_authorization: Option<HeaderValue>,
    client: Arc<Client>,
    policy: Option<Arc<Endpoint>>,
    pub(crate) openrouter: Option<OpenRouterConfig>,
    /// Signs requests, if this is Bedrock and there is no key for it.
    signer: Option<RequestSigner>,
    parents: Option<Parents>,
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    pub method: Method,
    pub route: PathAndQuery,
    pub headers: HeaderMap,
    pub body: Sent,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Credentials {
    /// Which of the upstream's keys.
    pub key: Option<usize>,
    /// Whether the caller's own credentials are passed on, except for its key if there is another.
    pub passes_callers: bool,
}

#[derive(Deserialize)]
struct ModelField {
    model: String,
}

// === impl Upstream ===

impl Upstream {
    /// Makes a configured upstream.
    ///
    /// # Errors
    /// Returns [`ConfigError`] for an address, a proxy or a file of certificates that cannot be used.
    pub(crate) fn new(
        name: &str,
        own: &UpstreamConfig,
        fail_over: &[Failure],
        environment: &EnvironmentProxies,
        roots: &RootCertStore,
    ) -> Result<Self, ConfigError> {
        let address =
            UpstreamAddress::for_upstream(&own.url, own.dialect, own.api_version.as_deref());
        let mut address = address
            .map_err(|error| ConfigError::invalid(format!("upstreams.{name}.url"), &error))?;
        if is_bedrocks_messages(&address, &own.url) {
            address.ensure_v1();
        }
        let proxy = Proxy::for_upstream(own.proxy.as_ref(), environment, &address);
        let proxy = proxy.map_err(|given| ConfigError::Proxy {
            name: name.to_owned(),
            given,
        })?;
        if let Some(proxy) = &proxy {
            tracing::info!(
                upstream = name,
                proxy = proxy.host(),
                "this upstream is reached through a proxy"
            );
        }
        let tls = tls::config(roots.clone(), own.ca.as_deref())
            .map_err(|reason| ConfigError::invalid(format!("upstreams.{name}.ca"), &reason))?;
        let is_https = address.is_https();
        let authorization = proxy.as_ref().and_then(Proxy::authorization);
        Ok(Self {
            name: name.to_owned(),
            capabilities: UpstreamCapabilities::from_config(own, &address),
            keys: KeyRing::new(&own.keys),
            idle: own.idle.map(|idle| idle.0),
            fail_over: fail_over.to_vec(),
            provider: own.dialect,
            model: own.model.clone(),
            proxy_authorization: authorization.filter(|_| !is_https).cloned(),
            client: Arc::new(Client::new(tls, own, proxy.as_ref(), is_https)),
            policy: None,
            openrouter: None,
            signer: None,
            parents: (own.dialect == Provider::Vllm).then(Parents::new),
            address,
        })
    }

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
            capabilities: UpstreamCapabilities::policy(endpoint.appends_system),
            keys: KeyRing::new(&[]),
            idle,
            fail_over: [&POLICY_FAILS_OVER, account, fail_over].concat(),
            address: endpoint.address.clone(),
            provider: Provider::default(),
            model: Some(endpoint.base.clone()),
            proxy_authorization: None,
            client,
            policy: Some(endpoint),
            openrouter: None,
            signer: None,
            parents: None,
        }
    }

    #[must_use]
    pub(crate) fn with_openrouter(self, openrouter: &OpenRouterConfig) -> Self {
        let is_its = OpenRouterConfig::is_host(self.address.name());
        Self {
            openrouter: is_its.then(|| openrouter.clone()),
            ..self
        }
    }

    #[must_use]
    pub(crate) fn with_credentials(self, credentials: &CredentialSource) -> Self {
        let signer = RequestSigner::for_upstream(&self.address, credentials);
        Self {
            signer: signer.filter(|_| self.keys.len() == 0),
            ..self
        }
    }

    pub(crate) fn is_policy(&self) -> bool {
        self.policy.is_some()
    }

    /// Returns the model name to send, or `None` to keep the caller's.
    pub(crate) fn model<'a>(&'a self, adapter: Option<&'a str>) -> Option<&'a str> {
        let adapter = adapter.filter(|_| self.is_policy());
        adapter.or(self.model.as_deref())
    }

    /// Returns the adapter that answers, or `None` for the base model or another upstream's model.
    pub(crate) fn adapter<'a>(&self, lease: &'a Lease) -> Option<&'a str> {
        lease.adapter().filter(|_| self.is_policy())
    }

    /// Returns whether it is Anthropic itself, or a server in between on this machine or without a public name.
    pub(crate) fn is_anthropic(&self) -> bool {
        let host = self.address.name();
        let is_local = !host.contains('.') || host.parse::<IpAddr>().is_ok();
        let is_its = host == "anthropic.com" || host.ends_with(".anthropic.com");
        self.provider == Provider::Anthropic && (is_its || is_local)
    }

    pub(crate) fn is_at(&self, other: &Self) -> bool {
        self.address.is_at(&other.address)
    }

    /// Sends a request. The reply's body has not been read yet.
    ///
    /// # Errors
    /// Returns [`UpstreamError`] if there is no reply.
    pub(crate) async fn send(
        &self,
        outgoing: Outgoing,
        shown: Credentials,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let model = match &outgoing.body {
            Sent::Chat(body) if self.address.by_model => model_of(&body.concat()),
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
        // What a caller shows is no signature.
        let passes_callers = shown.passes_callers && self.signer.is_none();
        let mut headers = headers::upwards(outgoing.headers, key, passes_callers);
        if let Some(authorization) = &self.proxy_authorization {
            headers.insert(header::PROXY_AUTHORIZATION, authorization.clone());
        }
        if let Some(openrouter) = &self.openrouter {
            openrouter.add_headers(&mut headers);
        }
        if let Sent::Chat(body) = &outgoing.body {
            let n_bytes: usize = body.iter().map(Bytes::len).sum();
            if n_bytes > 0 || outgoing.method != Method::GET {
                headers.insert(header::CONTENT_LENGTH, n_bytes.into());
            }
        }
        if let Some(signer) = &self.signer {
            // A body that passes unread cannot be signed, so only a request without a body is signed correctly.
            let body = match &outgoing.body {
                Sent::Chat(body) => body.as_slice(),
                Sent::Stream(_) => &[],
            };
            let added = signer.add(&mut headers, &outgoing.method, &uri, body);
            added.await.map_err(|reason| UpstreamError::Unsigned {
                name: self.name.clone(),
                reason,
            })?;
        }
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (outgoing.method, uri, headers);
        let sent = self.client.send(head, outgoing.body).map_err(|error| {
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
            // The server is being restarted, or will be at once, so a caller that tries again is served.
            Some(Failure::Unreachable) => UpstreamError::PolicyDown,
            _ => error,
        })?;
        let endpoint = Arc::clone(endpoint);
        let silent = async move { endpoint.falls_silent().await };
        reply.body_mut().breaks_off(Box::pin(silent));
        Ok(reply)
    }

    /// Returns whether a failure would affect any caller. If callers send their own keys, the fault may be the key of
    /// one.
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

    /// Returns whether its server answers anything within `deadline`.
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

    /// Returns the base model of `model`, if this is vLLM and `model` is an adapter there. If this is not known yet,
    /// the server is asked in parallel with the chat.
    pub(crate) fn parent(&self, model: &str) -> Option<Parent> {
        let parents = self.parents.as_ref()?;
        Some(parents.find(model, || self.list()))
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

    /// Returns the API whose headers a request for a route that is not a chat needs, or `None` if any will do.
    pub(crate) fn headers_of(&self, route: &PathAndQuery) -> Option<Api> {
        match (self.provider, Api::nearest(route.path())) {
            (Provider::Anthropic, _) | (_, Api::Messages) => Some(Api::Messages),
            (Provider::Openai | Provider::Vllm, _) => Some(Api::Chat),
            (Provider::Azure, _) => None,
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

/// Makes the client of the policy model's server.
///
/// # Errors
/// Returns [`ConfigError::Tls`] if TLS cannot be set up.
pub(crate) fn policy_client(
    config: &UpstreamConfig,
    roots: &RootCertStore,
) -> Result<Client, ConfigError> {
    let tls = tls::config(roots.clone(), None).map_err(|reason| ConfigError::Tls { reason })?;
    Ok(Client::new(tls, config, None, false))
}

pub(crate) fn is_bedrocks_messages(address: &UpstreamAddress, url: &str) -> bool {
    BedrockEndpoint::of_host(address.name()).is_some() && BedrockEndpoint::is_messages(url)
}

fn model_of(body: &[u8]) -> Option<String> {
    let field: ModelField = serde_json::from_slice(body).ok()?;
    Some(field.model)
}
