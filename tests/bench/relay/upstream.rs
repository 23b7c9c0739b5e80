//! The upstream behind every peer: it reads a request to its end and answers from memory, with and without TLS.

use std::{
    convert::Infallible,
    fs,
    future::Future,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming, SizeHint},
    header::{CONTENT_ENCODING, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    runtime::Runtime,
    task::JoinSet,
    time::{Instant, Sleep, sleep_until},
};
use tokio_rustls::TlsAcceptor;

use crate::workload::{Kind, PACE, Reply};

/// A running upstream, on threads of its own.
#[derive(Debug)]
pub struct Upstream {
    /// The address without TLS.
    pub clear: Place,
    /// The address with TLS.
    pub tls: Place,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
    _folder: TempDir,
    runtime: Option<Runtime>,
}

/// The address of an upstream.
#[derive(Debug)]
pub struct Place {
    pub address: SocketAddr,
    /// With TLS, the file of the certificate to trust.
    pub ca: Option<PathBuf>,
}

/// The name in its certificate.
pub const NAME: &str = "localhost";

#[derive(Debug)]
struct Shared {
    reply: Mutex<Reply>,
    /// Whether requests are stored.
    keeps: AtomicBool,
    kept: Mutex<Vec<u8>>,
    large: Mutex<Bytes>,
}

/// The request header that selects the reply from [`Upstream::answers_large`].
pub const LARGE: &str = "x-bench-large";

/// A reply that is being sent.
struct Replying {
    reply: Reply,
    next: usize,
    /// When the next piece is due, if the reply is paced.
    due: Option<Pin<Box<Sleep>>>,
}

// === impl Upstream ===

impl Upstream {
    /// Starts it on a port of the system's choice.
    pub fn start(n_threads: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(n_threads)
            .thread_name("bench-upstream")
            .enable_all()
            .build()?;
        let folder = tempfile::tempdir()?;
        let ca = folder.path().join("ca.pem");
        let acceptor = acceptor(&ca)?;
        let (listener, address) = listen(&runtime)?;
        let (tls_listener, tls_address) = listen(&runtime)?;
        let shared = Arc::new(Shared {
            reply: Mutex::new(Kind::Plain.reply()),
            keeps: AtomicBool::new(false),
            kept: Mutex::default(),
            large: Mutex::default(),
        });
        let mut server = JoinSet::new();
        let clear = accept(listener, None, Arc::clone(&shared));
        server.spawn_on(clear, runtime.handle());
        let tls = accept(tls_listener, Some(acceptor), Arc::clone(&shared));
        server.spawn_on(tls, runtime.handle());
        Ok(Self {
            clear: Place { address, ca: None },
            tls: Place {
                address: tls_address,
                ca: Some(ca),
            },
            shared,
            _server: server,
            _folder: folder,
            runtime: Some(runtime),
        })
    }

    /// From now on it answers with this.
    pub fn answers(&self, reply: Reply) {
        *lock(&self.shared.reply) = reply;
    }

    /// From now on it answers requests with the header [`LARGE`] with this, which is JSON in gzip.
    pub fn answers_large(&self, packed: Bytes) {
        *lock(&self.shared.large) = packed;
    }

    /// From now on it keeps the last request's body.
    pub fn keep(&self, keeps: bool) {
        self.shared.keeps.store(keeps, Ordering::Relaxed);
    }

    /// The last body that was kept.
    pub fn kept(&self) -> Vec<u8> {
        lock(&self.shared.kept).clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // A runtime that waits for its threads may not be dropped where others run.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Place {
    pub fn base_url(&self) -> String {
        match self.ca {
            None => format!("http://{}", self.address),
            Some(_) => format!("https://{NAME}:{}", self.address.port()),
        }
    }
}

fn listen(runtime: &Runtime) -> Result<(TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let _guard = runtime.enter();
    Ok((TcpListener::from_std(listener)?, address))
}

/// Shows a certificate for [`NAME`]; the one that it is trusted by is written to `ca`.
fn acceptor(ca: &Path) -> Result<TlsAcceptor> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate for its own issuer's where both have one name.
    let name = &mut authority.distinguished_name;
    name.push(DnType::CommonName, "bench");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    fs::write(ca, authority.pem())?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![NAME.to_owned()])?.signed_by(&key, &authority)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.into()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // A peer that gives up a connection is no reason to end.
            Ok((stream, _)) = listener.accept() => {
                let (tls, shared) = (tls.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    if stream.set_nodelay(true).is_err() {
                        return;
                    }
                    match tls {
                        None => serve(stream, shared).await,
                        // Who does not trust it hangs up.
                        Some(tls) => if let Ok(stream) = tls.accept(stream).await {
                            serve(stream, shared).await;
                        },
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(|request| answer(request, &shared));
    // A connection that breaks is the peer's to tell.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    shared: &Shared,
) -> Result<Response<Replying>, hyper::Error> {
    let is_large = request.headers().contains_key(LARGE);
    let mut body = request.into_body();
    let mut kept = Vec::new();
    let keeps = shared.keeps.load(Ordering::Relaxed);
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        if let (true, Some(data)) = (keeps, frame.data_ref()) {
            kept.extend_from_slice(data);
        }
    }
    if keeps {
        *lock(&shared.kept) = kept;
    }
    let reply = if is_large {
        Reply::plain(lock(&shared.large).clone())
    } else {
        lock(&shared.reply).clone()
    };
    let content_type = if reply.kind.is_stream() {
        "text/event-stream"
    } else {
        "application/json"
    };
    let due = (reply.kind == Kind::Paced).then(|| Box::pin(sleep_until(Instant::now())));
    let mut response = Response::new(Replying {
        reply,
        next: 0,
        due,
    });
    let content_type = hyper::header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    if is_large {
        let gzip = hyper::header::HeaderValue::from_static("gzip");
        response.headers_mut().insert(CONTENT_ENCODING, gzip);
    }
    Ok(response)
}

impl Body for Replying {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let Some(piece) = this.reply.pieces.get(this.next) else {
            return Poll::Ready(None);
        };
        if let Some(due) = &mut this.due {
            ready!(due.as_mut().poll(cx));
            // From the plan, not from now: what is late once does not move the rest.
            let next = due.deadline() + PACE;
            due.as_mut().reset(next);
        }
        this.next += 1;
        Poll::Ready(Some(Ok(Frame::data(piece.clone()))))
    }

    fn is_end_stream(&self) -> bool {
        self.next == self.reply.pieces.len()
    }

    fn size_hint(&self) -> SizeHint {
        if self.reply.kind.is_stream() {
            SizeHint::default()
        } else {
            SizeHint::with_exact(self.reply.whole.len() as u64)
        }
    }
}
