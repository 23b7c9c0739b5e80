//! The connections of one upstream, and how a request goes out on one.
//!
//! In the clear and straight, as to a model server of one's own, HTTP/1.1 is ours (`metaclaw_http1`): such
//! a server is so near that what lies between is felt. Over TLS, or by way of a proxy, hyper's client
//! speaks, HTTP/2 as well: not reqwest, which adds an `accept` of its own to a request without one.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, Uri, uri::Scheme};
use hyper::ext::ReasonPhrase;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use metaclaw_http1::{Connection, Pool, Reason};
use tokio::net::TcpStream;
use tower::Service;

use super::{
    body::UpstreamBody,
    connect::{Deadline, Proxy, Way, to_anywhere},
};
use crate::{
    config::UpstreamConfig,
    relay::{Body, BoxError},
};

/// How long an unused connection is kept; shorter than the keep-alive of servers in use.
const POOL_IDLE: Duration = Duration::from_secs(50);
/// The most unused connections that one thread keeps to one upstream: a burst does not hold its files after it.
const POOL_SIZE: usize = 256;
/// Silence after which a connection of HTTP/2, which all requests share, is tried: one that is dead, as
/// after a night's sleep of a laptop, would hold up every one of them.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);

/// The connections of one thread to one upstream.
#[derive(Debug)]
pub(super) struct Connections {
    /// To servers in the clear; none, where a proxy stands between.
    straight: Option<Straight>,
    others: Client<Deadline<HttpsConnector<Way>>, Body>,
}

#[derive(Debug)]
struct Straight {
    connector: Deadline<HttpConnector>,
    pool: Pool<TcpStream>,
}

// === impl Connections ===

impl Connections {
    /// To an upstream of this configuration, which is asked over TLS or not.
    pub(super) fn new(
        tls: rustls::ClientConfig,
        config: &UpstreamConfig,
        proxy: Option<&Proxy>,
        is_https: bool,
    ) -> Self {
        let after = config.connect.0;
        let straight = proxy.is_none().then(|| Straight {
            connector: Deadline::new(to_anywhere(), after),
            pool: Pool::new(POOL_SIZE, POOL_IDLE),
        });
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(Way::new(proxy, is_https));
        let others = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_SIZE)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PONG)
            .build(Deadline::new(https, after));
        Self { straight, others }
    }

    /// Sends a request. The reply's body is still to come.
    pub(super) async fn ask(
        &self,
        request: Request<Body>,
    ) -> Result<Response<UpstreamBody>, BoxError> {
        let is_clear = request.uri().scheme() == Some(&Scheme::HTTP);
        if let Some(straight) = self.straight.as_ref().filter(|_| is_clear) {
            let connection = straight.connection(request.uri()).await?;
            return Ok(connection.ask(request).await?.map(UpstreamBody::from));
        }
        let mut reply = self.others.request(request).await?;
        if let Some(words) = reply.extensions_mut().remove::<ReasonPhrase>() {
            let words = Bytes::copy_from_slice(words.as_bytes());
            reply.extensions_mut().insert(Reason(words));
        }
        Ok(reply.map(UpstreamBody::from))
    }

    /// Closes connections that rest for too long, or that the upstream has closed.
    pub(super) fn sweep(&self) {
        if let Some(straight) = &self.straight {
            straight.pool.sweep();
        }
    }
}

// === impl Straight ===

impl Straight {
    /// One that rests, or a new one.
    async fn connection(&self, to: &Uri) -> Result<Connection<TcpStream>, BoxError> {
        let server = to.authority().map_or("", |authority| authority.as_str());
        if let Some(rested) = self.pool.resting(server).await {
            return Ok(rested);
        }
        let io = self.connector.clone().call(to.clone()).await?;
        Ok(self.pool.connection(&Arc::from(server), io.into_inner()))
    }
}
