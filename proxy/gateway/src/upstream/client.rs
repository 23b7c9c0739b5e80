//! Sends a request to an upstream, chooses the connection, and decides when to send it again.
//!
//! It uses hyper-util's client, because reqwest's adds an `accept` header to a request without one. hyper-util's client
//! repeats a request of which nothing was sent (`retry_canceled_requests`). Besides that, a request whose body is in
//! memory is sent once more on a new connection, if a connection that had answered before broke without a byte of the
//! reply. Servers close idle connections without checking whether a request is on its way. On a new connection, and
//! once a reply has begun, nothing is sent twice.

use std::{error::Error, io, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{
    Extensions, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header,
    request::Parts,
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::{
    client::legacy::{self, Builder},
    rt::{TokioExecutor, TokioTimer},
};
use metaclaw_chat::{Span, excerpt};
use url::Url;

use super::{
    body::UpstreamBody,
    connect::{ConnectionUse, Connector, Proxy, connector},
    upload::watched,
};
use crate::{
    body::{Body, BoxError},
    config::UpstreamConfig,
};

/// The largest number of idle connections to one upstream, so that a burst does not keep its files open.
const POOL_SIZE: usize = 256;
/// Silence after which an HTTP/2 connection, which all requests share, is checked. A dead one, as after a laptop's
/// sleep, would block all of them.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);

/// The most fields in the head of a reply. Providers and proxies in between send over 100.
const MAX_HEADERS: usize = 1_024;
/// The user agent of a request that follows a redirect.
const OUR_NAME: &str = concat!("metaclaw/", env!("CARGO_PKG_VERSION"));
const REDIRECTS: usize = 5;

type Hyper = legacy::Client<Connector, Body>;

#[derive(Debug)]
pub(crate) enum Sent {
    /// A chat, which is in memory and may be sent again.
    Chat(Vec<Bytes>),
    /// Any other body, as it arrives.
    Stream(Body),
}

#[derive(Debug)]
pub(crate) struct Client {
    pooled: Hyper,
    /// For second tries, each on a new connection.
    fresh: Hyper,
    first_byte: Option<Span>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// The upstream did not begin a reply within `first_byte`.
    #[error("no reply within {0}")]
    TooSlow(Span),
    /// The caller's body broke off.
    #[error(transparent)]
    Upload(BoxError),
    /// It redirects to an address that is not asked.
    #[error("{0}: {1}")]
    Redirected(u16, String),
    #[error(transparent)]
    Failed(#[from] legacy::Error),
}

// === impl Client ===

impl Client {
    pub(super) fn new(
        tls: rustls::ClientConfig,
        config: &UpstreamConfig,
        proxy: Option<&Proxy>,
        is_https: bool,
    ) -> Self {
        let connector = connector(tls, proxy, is_https, config.connect.0);
        let builder = |n_idle| -> Builder {
            let mut builder = legacy::Client::builder(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(config.pool_idle.0)
                .pool_max_idle_per_host(n_idle)
                .retry_canceled_requests(true)
                .http1_max_headers(MAX_HEADERS)
                .http2_keep_alive_interval(PING)
                .http2_keep_alive_timeout(PONG);
            builder
        };
        Self {
            pooled: builder(POOL_SIZE).build(connector.clone()),
            fresh: builder(0).build(connector),
            first_byte: config.first_byte,
        }
    }

    /// Sends a request. The reply's body has not been read yet.
    pub(super) async fn send(
        &self,
        head: Parts,
        body: Sent,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let again = match &body {
            Sent::Chat(pieces) => Some((head.clone(), pieces.clone())),
            Sent::Stream(_) => None,
        };
        let sent = self.once(&self.pooled, head, body).await;
        let Some((mut head, body)) = again else {
            return sent;
        };
        let again = || Sent::Chat(body.clone());
        let mut reply = match sent {
            Err(SendError::Failed(error)) if is_stale(&error) => {
                tracing::debug!(%error, "an idle connection was closed: the request is sent again on a new one");
                self.once(&self.fresh, head.clone(), again()).await?
            }
            sent => sent?,
        };
        for _ in 0..REDIRECTS {
            let Some(uri) = redirected(&head, &reply) else {
                break;
            };
            tracing::debug!(%uri, "the upstream redirects the request, which is followed on the same server");
            head.uri = uri;
            // The proxy follows, and not the client.
            let ours = HeaderValue::from_static(OUR_NAME);
            head.headers.insert(header::USER_AGENT, ours);
            reply = self.once(&self.pooled, head.clone(), again()).await?;
        }
        let status = reply.status();
        let is_known = head.method == Method::GET && status == StatusCode::NOT_MODIFIED;
        if !status.is_redirection() || is_known {
            return Ok(reply);
        }
        // The caller would follow it past this proxy. A query may be a signature.
        let to = reply.headers().get(header::LOCATION);
        let to = String::from_utf8_lossy(to.map_or(&[][..], HeaderValue::as_bytes));
        let to = excerpt(to.split('?').next().unwrap_or_default()).into_owned();
        Err(SendError::Redirected(status.as_u16(), to))
    }

    async fn once(
        &self,
        client: &Hyper,
        head: Parts,
        body: Sent,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let (body, progress) = watched(match body {
            Sent::Chat(pieces) => {
                let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
                StreamBody::new(stream::iter(frames)).boxed_unsync()
            }
            Sent::Stream(body) => body,
        });
        let reply = client.request(Request::from_parts(head, body));
        let reply = match self.first_byte {
            Some(after) => {
                let reply = progress.in_time(after.0, reply).await;
                reply.ok_or(SendError::TooSlow(after))?
            }
            None => reply.await,
        };
        let mut reply = match (reply, progress.broken()) {
            (Ok(reply), _) => reply,
            (Err(_), Some(why)) => return Err(SendError::Upload(why)),
            (Err(error), None) => return Err(error.into()),
        };
        if let Some(usage) = reply.extensions_mut().remove::<ConnectionUse>() {
            usage.has_answered.store(true, Ordering::Relaxed);
        }
        // The version is set to that of our connections. It must not be HTTP/1.0, in which the end of the connection is
        // the end of a reply, so a cut could not be recognised.
        *reply.version_mut() = Version::HTTP_11;
        Ok(reply.map(UpstreamBody::from))
    }
}

/// Returns where the same request is sent after this reply: to another path of the same server. It does not go to any
/// other server, which is not meant to see its key. A redirect that changes the method is followed only without a body.
fn redirected(head: &Parts, reply: &Response<UpstreamBody>) -> Option<Uri> {
    use StatusCode as S;
    let is_followed = match reply.status() {
        S::TEMPORARY_REDIRECT | S::PERMANENT_REDIRECT => true,
        S::MOVED_PERMANENTLY | S::FOUND | S::SEE_OTHER => head.method == Method::GET,
        _ => false,
    };
    let location = reply.headers().get(header::LOCATION);
    let location = location.filter(|_| is_followed)?.to_str().ok()?;
    let from = Url::parse(&head.uri.to_string()).ok()?;
    let mut to = from.join(location).ok()?;
    to.set_fragment(None);
    let is_same =
        to.origin() == from.origin() && to.username().is_empty() && to.password().is_none();
    to.as_str().parse().ok().filter(|_| is_same)
}

/// Returns whether a connection that had answered before broke without a byte of this reply.
fn is_stale(error: &legacy::Error) -> bool {
    let Some(connected) = error.connect_info() else {
        return false;
    };
    let mut extensions = Extensions::new();
    connected.get_extras(&mut extensions);
    let Some(usage) = extensions.get::<ConnectionUse>() else {
        return false;
    };
    usage.has_answered.load(Ordering::Relaxed)
        && if connected.is_negotiated_h2() {
            broke_h2(error)
        } else {
            !usage.is_answering.load(Ordering::Relaxed)
        }
}

/// Returns whether a whole HTTP/2 connection has ended, and not only one of its streams.
fn broke_h2(error: &legacy::Error) -> bool {
    sources(error).any(|error| {
        let h2 = error.downcast_ref::<h2::Error>();
        h2.is_some_and(h2::Error::is_go_away) || error.is::<io::Error>()
    })
}

pub(super) fn is_not_http(error: &legacy::Error) -> bool {
    sources(error).any(|error| {
        let hyper = error.downcast_ref::<hyper::Error>();
        let h2 = error.downcast_ref::<h2::Error>();
        hyper.is_some_and(hyper::Error::is_parse) || h2.is_some_and(h2::Error::is_library)
    })
}

/// Returns an error and its causes, the innermost last.
pub(super) fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        error.source()
    })
}
