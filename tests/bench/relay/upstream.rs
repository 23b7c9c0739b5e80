//! The upstream behind every peer: it reads a request to its end and answers from memory.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
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
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    task::JoinSet,
    time::{Instant, Sleep, sleep_until},
};

use crate::workload::{Kind, PACE, Reply};

/// A running upstream, on threads of its own.
#[derive(Debug)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Shared {
    reply: Mutex<Reply>,
    /// Whether requests are kept.
    keeps: AtomicBool,
    kept: Mutex<Vec<u8>>,
    large: Mutex<Bytes>,
}

/// The request header that asks for what [`Upstream::answers_large`] was given.
pub const LARGE: &str = "x-bench-large";

/// A reply on its way.
struct Replying {
    reply: Reply,
    next: usize,
    /// When the next piece is due, where there is a pace.
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
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let guard = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(guard);
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            reply: Mutex::new(Kind::Plain.reply()),
            keeps: AtomicBool::new(false),
            kept: Mutex::default(),
            large: Mutex::default(),
        });
        let mut server = JoinSet::new();
        server.spawn_on(accept(listener, Arc::clone(&shared)), runtime.handle());
        Ok(Self {
            address,
            shared,
            _server: server,
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // A peer that gives up a connection is no reason to end.
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
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
