//! How connections to an upstream are made: straight, or by way of a proxy; in the clear, or in TLS.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::{
        legacy::connect::{
            Connected, Connection, HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use tokio::{net::TcpStream, time::timeout};
use tower::Service;

use crate::{config::EnvironmentProxies, relay::BoxError};

/// Silence after which the system asks whether the other end is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// No proxy, whatever the environment says.
const DIRECT: &str = "none";

/// Where a proxy is and what it is shown.
#[derive(Debug, Clone)]
pub(super) struct Proxy(Intercept);

/// The way to an upstream.
#[derive(Debug, Clone)]
pub(super) enum Way {
    Straight(HttpConnector),
    /// `http://` by way of an HTTP proxy, which is asked for the whole address.
    Forwarded(HttpConnector, Uri),
    /// `https://` by way of an HTTP proxy, which opens a tunnel (CONNECT).
    Tunnel(Tunnel<HttpConnector>),
    /// By way of a SOCKS5 proxy, which looks the name up.
    Socks(SocksV5<HttpConnector>),
}

/// A connection, and whether it ends at a proxy that forwards.
#[derive(Debug)]
pub(super) struct Link {
    io: TokioIo<TcpStream>,
    is_forwarded: bool,
}

/// A connector that gives up: TLS and a proxy's greeting count as well.
#[derive(Debug, Clone)]
pub(super) struct Deadline<C> {
    connector: C,
    after: Duration,
}

/// No connection in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {0:?}")]
struct NotInTime(Duration);

type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Connects to whatever address it is given.
pub(super) fn to_anywhere() -> HttpConnector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_keepalive(Some(KEEPALIVE));
    http
}

// === impl Proxy ===

impl Proxy {
    /// The proxy for an upstream at `to`: its own, else the environment's. This machine is reached
    /// without one unless its own is set. `Err` where it is none that is known here.
    pub(super) fn of(
        own: Option<&str>,
        environment: &EnvironmentProxies,
        to: &Uri,
        is_here: bool,
    ) -> Result<Option<Self>, String> {
        let matcher = match own.map(str::trim) {
            Some(DIRECT) => return Ok(None),
            Some(own) => Matcher::builder().all(own.to_owned()).build(),
            None if is_here => return Ok(None),
            None => environment.matcher(),
        };
        let proxy = matcher.intercept(to).map(Self);
        let is_known = |proxy: &Self| matches!(proxy.scheme(), "http" | "socks5" | "socks5h");
        match (own, proxy) {
            (_, Some(proxy)) if is_known(&proxy) => Ok(Some(proxy)),
            (None, None) => Ok(None),
            (_, Some(other)) => Err(format!("{}://", other.scheme())),
            // Not the text: there may be a password in it.
            (Some(_), None) => Err("what is given".to_owned()),
        }
    }

    fn scheme(&self) -> &str {
        self.0.uri().scheme_str().unwrap_or_default()
    }

    /// What a forwarding proxy wants to be shown with each request.
    pub(super) fn shown(&self) -> Option<&HeaderValue> {
        self.0.basic_auth()
    }

    /// Host and port, for messages.
    pub(super) fn host(&self) -> &str {
        self.0.uri().authority().map_or("", |it| it.as_str())
    }
}

// === impl EnvironmentProxies ===

impl EnvironmentProxies {
    fn matcher(&self) -> Matcher {
        let text = |it: &Option<_>| it.as_ref().map_or("", crate::Secret::expose).to_owned();
        Matcher::builder()
            .http(text(&self.http))
            .https(text(&self.https))
            .all(text(&self.all))
            .no(self.no.clone())
            .build()
    }
}

// === impl Way ===

impl Way {
    pub(super) fn new(proxy: Option<&Proxy>, is_https: bool) -> Self {
        let http = to_anywhere();
        let Some(proxy) = proxy else {
            return Self::Straight(http);
        };
        let at = proxy.0.uri().clone();
        if proxy.scheme() != "http" {
            let socks = SocksV5::new(at, http);
            return Self::Socks(match proxy.0.raw_auth() {
                Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                None => socks,
            });
        }
        if !is_https {
            return Self::Forwarded(http, at);
        }
        let tunnel = Tunnel::new(at, http);
        Self::Tunnel(match proxy.shown() {
            Some(shown) => tunnel.with_auth(shown.clone()),
            None => tunnel,
        })
    }
}

impl Service<Uri> for Way {
    type Response = Link;
    type Error = BoxError;
    type Future = Connecting<Link>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each of them is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let is_forwarded = matches!(self, Self::Forwarded(..));
        let io: Connecting<_> = match self {
            Self::Straight(http) => into(http.call(to)),
            Self::Forwarded(http, proxy) => into(http.call(proxy.clone())),
            Self::Tunnel(tunnel) => into(tunnel.call(to)),
            Self::Socks(socks) => into(socks.call(to)),
        };
        Box::pin(async move {
            let io = io.await?;
            Ok(Link { io, is_forwarded })
        })
    }
}

fn into<T, E: Into<BoxError>>(
    connecting: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Connecting<T> {
    Box::pin(async move { connecting.await.map_err(Into::into) })
}

// === impl Link ===

impl Connection for Link {
    /// Not the addresses of its ends: nobody asks, and each reply would get them.
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_forwarded)
    }
}

impl Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

// === impl Deadline ===

impl<C> Deadline<C> {
    pub(super) fn new(connector: C, after: Duration) -> Self {
        Self { connector, after }
    }
}

impl<C> Service<Uri> for Deadline<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Connecting<C::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let after = self.after;
        let connecting = self.connector.call(to);
        Box::pin(async move {
            match timeout(after, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(NotInTime(after).into()),
            }
        })
    }
}
