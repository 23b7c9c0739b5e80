//! How a request goes to an upstream, on which connection, and when it goes there again.
//!
//! hyper-util's client, not reqwest: that one adds an `accept` of its own to a request without one.
//! A request that never left is sent again by it (`retry_canceled_requests`). Beyond that, one whose body
//! is in memory is sent once more, on a new connection, where a connection that had answered before broke
//! without a byte of the reply: a server that closes what lies idle does so without looking whether a
//! request is on its way. On a new connection, and once a reply has begun, nothing is sent twice.

use std::{error::Error, io, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{Extensions, Request, Response, Version, request::Parts};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::{
    client::legacy::{self, Builder},
    rt::{TokioExecutor, TokioTimer},
};
use metaclaw_chat::Span;

use super::{
    body::UpstreamBody,
    connect::{Connector, Proxy, Usage, connector},
    upload::watched,
};
use crate::{
    body::{Body, BoxError},
    config::UpstreamConfig,
};

/// The most idle connections that are kept to one upstream: a burst does not hold its files after it.
const POOL_SIZE: usize = 256;
/// Silence after which a connection of HTTP/2, which all requests share, is tried: one that is dead, as
/// after a night's sleep of a laptop, would hold up every one of them.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);

type Hyper = legacy::Client<Connector, Body>;

#[derive(Debug)]
pub(crate) enum Sent {
    /// A chat, which is in memory and may be sent again.
    Chat(Vec<Bytes>),
    /// Anything else, as it comes.
    Stream(Body),
}

/// The client of one upstream.
#[derive(Debug)]
pub(crate) struct Client {
    pooled: Hyper,
    /// For second tries: each on a connection of its own.
    fresh: Hyper,
    first_byte: Option<Span>,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// The upstream did not begin a reply within `first_byte`.
    #[error("no reply within {0}")]
    TooSlow(Span),
    /// The caller's body broke off.
    #[error(transparent)]
    Upload(BoxError),
    #[error(transparent)]
    Failed(#[from] legacy::Error),
}

// === impl Client ===

impl Client {
    /// To an upstream of this configuration, which is asked over TLS or not.
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

    /// Sends a request. The reply's body is still to come.
    pub(super) async fn send(
        &self,
        head: Parts,
        body: Sent,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let again = match &body {
            Sent::Chat(pieces) => Some((head.clone(), Sent::Chat(pieces.clone()))),
            Sent::Stream(_) => None,
        };
        match (self.once(&self.pooled, head, body).await, again) {
            (Err(SendError::Failed(error)), Some((head, body))) if is_stale(&error) => {
                tracing::debug!(%error, "an idle connection was closed: asked on a new one");
                self.once(&self.fresh, head, body).await
            }
            (sent, _) => sent,
        }
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
        if let Some(usage) = reply.extensions_mut().remove::<Usage>() {
            usage.has_answered.store(true, Ordering::Relaxed);
        }
        // Its version is that of its connection. Ours must not be HTTP/1.0, where the end of the
        // connection is the end of a reply and a cut would look like one.
        *reply.version_mut() = Version::HTTP_11;
        Ok(reply.map(UpstreamBody::from))
    }
}

/// Whether a connection that had answered before broke without a byte of this reply.
fn is_stale(error: &legacy::Error) -> bool {
    let Some(connected) = error.connect_info() else {
        return false;
    };
    let mut extensions = Extensions::new();
    connected.get_extras(&mut extensions);
    let Some(usage) = extensions.get::<Usage>() else {
        return false;
    };
    usage.has_answered.load(Ordering::Relaxed)
        && if connected.is_negotiated_h2() {
            broke_h2(error)
        } else {
            !usage.is_answering.load(Ordering::Relaxed)
        }
}

/// Whether a whole connection of HTTP/2 has ended, not one of its streams.
fn broke_h2(error: &legacy::Error) -> bool {
    sources(error).any(|error| {
        let h2 = error.downcast_ref::<h2::Error>();
        h2.is_some_and(h2::Error::is_go_away) || error.is::<io::Error>()
    })
}

/// Whether what came was no reply of HTTP.
pub(super) fn is_not_http(error: &legacy::Error) -> bool {
    sources(error).any(|error| {
        let hyper = error.downcast_ref::<hyper::Error>();
        let h2 = error.downcast_ref::<h2::Error>();
        hyper.is_some_and(hyper::Error::is_parse) || h2.is_some_and(h2::Error::is_library)
    })
}

/// An error and what caused it, the innermost last.
pub(super) fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        error.source()
    })
}
