//! Makes connections to an upstream, directly or through a proxy, with or without TLS.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Uri};
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
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
use metaclaw_chat::Secret;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tower::{Service, ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::{address::UpstreamAddress, body::BoxError, config::EnvironmentProxies};

const KEEPALIVE: Duration = Duration::from_secs(60);
/// No proxy, whatever the environment says.
const DIRECT: &str = "none";

pub(super) type Connector = BoxCloneSyncService<Uri, TokioIo<Tracked>, BoxError>;
type Transport = BoxCloneSyncService<Uri, TokioIo<TcpStream>, BoxError>;

#[derive(Debug, Clone)]
pub(super) struct Proxy(Intercept);

pub(super) struct Tracked {
    io: TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>,
    is_forwarded: bool,
    usage: ConnectionUse,
}

/// The state of a connection, which is attached to each of its replies and errors.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionUse {
    /// Whether a reply has come on it.
    pub has_answered: Arc<AtomicBool>,
    /// Whether bytes arrived after the last write. In HTTP/1, these are a part of the next reply.
    pub is_answering: Arc<AtomicBool>,
}

#[derive(Debug, thiserror::Error)]
#[error("no connection within {0:?}")]
struct NotInTime(Duration);

/// Makes connections within `deadline`, including TLS and a proxy's greeting.
pub(super) fn connector(
    tls: rustls::ClientConfig,
    proxy: Option<&Proxy>,
    is_https: bool,
    deadline: Duration,
) -> Connector {
    let is_forwarded = !is_https && proxy.is_some_and(Proxy::is_http);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(transport(proxy, is_https, deadline));
    BoxCloneSyncService::new(service_fn(move |to: Uri| {
        let connecting = https.clone().call(to);
        async move {
            let connected = timeout(deadline, connecting).await;
            let io = connected.map_err(|_| NotInTime(deadline))??;
            Ok(TokioIo::new(Tracked {
                io: TokioIo::new(io),
                is_forwarded,
                usage: ConnectionUse::default(),
            }))
        }
    }))
}

fn transport(proxy: Option<&Proxy>, is_https: bool, deadline: Duration) -> Transport {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_keepalive(Some(KEEPALIVE));
    // The deadline is shared among the addresses of a name, so that a silent one leaves time for the next.
    http.set_connect_timeout(Some(deadline));
    let Some(proxy) = proxy else {
        return boxed(http);
    };
    let at = proxy.0.uri().clone();
    if !proxy.is_http() {
        // The proxy resolves the name.
        let socks = SocksV5::new(at, http);
        return boxed(match proxy.0.raw_auth() {
            Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
            None => socks,
        });
    }
    if !is_https {
        // The proxy gets the absolute address.
        return boxed(ServiceExt::<Uri>::map_request(http, move |_: Uri| {
            at.clone()
        }));
    }
    let tunnel = Tunnel::new(at, http);
    boxed(match proxy.authorization() {
        Some(authorization) => tunnel.with_auth(authorization.clone()),
        None => tunnel,
    })
}

fn boxed<S>(connector: S) -> Transport
where
    S: Service<Uri, Response = TokioIo<TcpStream>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    BoxCloneSyncService::new(connector.map_err(Into::into))
}

// === impl Proxy ===

impl Proxy {
    /// Returns the proxy for an upstream at `address`: its own, else the environment's. This machine is reached without
    /// a proxy, unless the upstream's own is set. Returns `Err` if the proxy is of an unknown kind.
    pub(super) fn for_upstream(
        own: Option<&Secret>,
        environment: &EnvironmentProxies,
        address: &UpstreamAddress,
    ) -> Result<Option<Self>, String> {
        let own = own.map(|own| own.expose().trim());
        let matcher = match own {
            Some(DIRECT) => return Ok(None),
            Some(own) => Matcher::builder().all(own.to_owned()).build(),
            None if address.is_this_machine() => return Ok(None),
            None => matcher(environment),
        };
        let proxy = matcher.intercept(&address.base()).map(Self);
        let is_known = |proxy: &Self| matches!(proxy.scheme(), "http" | "socks5" | "socks5h");
        match (own, proxy) {
            (_, Some(proxy)) if is_known(&proxy) => Ok(Some(proxy)),
            (None, None) => Ok(None),
            (_, Some(other)) => Err(format!("{}://", other.scheme())),
            // The text is not shown, because it may contain a password.
            (Some(_), None) => Err("what is given".to_owned()),
        }
    }

    fn scheme(&self) -> &str {
        self.0.uri().scheme_str().unwrap_or_default()
    }

    fn is_http(&self) -> bool {
        self.scheme() == "http"
    }

    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.0.basic_auth()
    }

    pub(super) fn host(&self) -> &str {
        let authority = self.0.uri().authority();
        authority.map_or("", |authority| authority.as_str())
    }
}

fn matcher(environment: &EnvironmentProxies) -> Matcher {
    let text = |url: &Option<_>| url.as_ref().map_or("", Secret::expose).to_owned();
    Matcher::builder()
        .http(text(&environment.http))
        .https(text(&environment.https))
        .all(text(&environment.all))
        .no(environment.no.clone())
        .build()
}

// === impl Tracked ===

impl Connection for Tracked {
    fn connected(&self) -> Connected {
        // The addresses of its ends are not attached, because nothing uses them and each reply would get them.
        let connected = Connected::new()
            .proxy(self.is_forwarded)
            .extra(self.usage.clone());
        if self.io.inner().connected().is_negotiated_h2() {
            connected.negotiated_h2()
        } else {
            connected
        }
    }
}

impl AsyncRead for Tracked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > n_before {
            self.usage.is_answering.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Tracked {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.usage.is_answering.store(false, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.usage.is_answering.store(false, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
