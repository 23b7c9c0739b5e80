//! The upstream behind every peer: it reads a request to its end and answers from memory.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use bytes::Bytes;
use futures_util::{Stream, stream};
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::workload::{Kind, PACE, Reply, next_answer};

/// A running upstream; it ends when dropped.
#[derive(Debug)]
pub struct Upstream {
    pub address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    _server: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    reply: Reply,
    /// The last request's body, if requests are stored.
    kept: Option<Vec<u8>>,
}

type Events = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

// === impl Upstream ===

impl Upstream {
    /// Starts it on a port of the system's choice.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Mutex::new(Shared {
            reply: Kind::Plain.reply(),
            kept: None,
        }));
        let mut server = JoinSet::new();
        server.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            _server: server,
        })
    }

    /// From now on it answers with this.
    pub fn answers(&self, reply: Reply) {
        lock(&self.shared).reply = reply;
    }

    /// From now on it keeps the last request's body, or none.
    pub fn keep(&self, keeps: bool) {
        lock(&self.shared).kept = keeps.then(Vec::new);
    }

    /// The last body that was kept.
    pub fn kept(&self) -> Vec<u8> {
        lock(&self.shared).kept.clone().unwrap_or_default()
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Mutex<Shared>>) {
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

async fn serve(stream: TcpStream, shared: Arc<Mutex<Shared>>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(|request| answer(request, &shared));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // If it breaks, the load reports it.
    let _ = connection.await;
}

async fn answer(
    request: Request<Incoming>,
    shared: &Mutex<Shared>,
) -> Result<Response<Either<Full<Bytes>, StreamBody<Events>>>> {
    let keeps = lock(shared).kept.is_some();
    let (mut body, mut kept) = (request.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        if let (true, Ok(data)) = (keeps, frame?.into_data()) {
            kept.extend_from_slice(&data);
        }
    }
    let reply = {
        let mut shared = lock(shared);
        if keeps {
            shared.kept = Some(kept);
        }
        shared.reply.clone()
    };
    let (content_type, body) = match reply.kind {
        Kind::Plain => ("application/json", Either::Left(Full::new(reply.whole))),
        Kind::Growing => ("application/json", Either::Left(Full::new(next_answer()))),
        Kind::Burst | Kind::Paced => (
            "text/event-stream",
            Either::Right(StreamBody::new(events(reply))),
        ),
    };
    Ok(Response::builder()
        .header("content-type", content_type)
        .body(body)?)
}

fn events(reply: Reply) -> Events {
    let began = Instant::now();
    Box::pin(stream::unfold(0, move |next: u32| {
        let piece = reply.pieces.get(next as usize).cloned();
        let is_paced = reply.kind == Kind::Paced;
        async move {
            let piece = piece?;
            if is_paced {
                // From the plan, not from now: what is late once does not move the rest.
                sleep_until(began + PACE * next).await;
            }
            Some((Ok(Frame::data(piece)), next + 1))
        }
    }))
}
