//! Serves the listener of the page and of commands, which is apart from that of agents.
//!
//! Every program of this machine can connect to it, and only some show a key. So the number of connections has a limit,
//! and a connection on which no request runs gives its place to a new one, the oldest first. Connections that send
//! nothing, or half of a head, therefore keep nobody out.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{TryFutureExt, future::BoxFuture};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tower::{Service, service_fn};

use super::connection::connection;
use crate::{accept::Accepting, body::BoxError, lock::lock};

/// The time for a request's headers, and for a connection without a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection, which gives up its place if it has no request.
#[derive(Default)]
struct LocalConnection {
    /// Each request holds a copy until its reply has ended.
    requests: Arc<()>,
    given_up: CancellationToken,
}

/// Serves at most `n_connections` at once until `stop`, and then the running requests to their end.
pub fn serve_local<S, B>(
    listener: TcpListener,
    service: S,
    n_connections: usize,
    stop: CancellationToken,
) -> BoxFuture<'static, ()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Box::pin(async move {
        let all = Mutex::default();
        let mut connections = JoinSet::new();
        let accepting = Accepting::new(&listener, n_connections, || give_up_oldest(&all));
        let accepting = accepting.run(&mut connections, |stream| {
            let this = Arc::new(LocalConnection::default());
            let mut others = lock(&all);
            others.retain(|other: &Weak<LocalConnection>| other.strong_count() > 0);
            others.push(Arc::downgrade(&this));
            drop(others);
            let (given_up, inner) = (this.given_up.clone(), service.clone());
            let service = service_fn(move |request| {
                let running = Arc::clone(&this.requests);
                let reply = inner.clone().call(request);
                // The closure owns the running request, which ends with the body.
                reply.map_ok(|reply| reply.map(|body| body.inspect_frame(move |_| _ = &running)))
            });
            let stop = stop.clone();
            async move {
                let served = connection(service, stream, HEADER_TIMEOUT, stop);
                given_up.run_until_cancelled(served).await;
            }
        });
        stop.run_until_cancelled(accepting).await;
        drop(listener);
        while connections.join_next().await.is_some() {}
    })
}

/// Returns whether there was a connection without a request.
fn give_up_oldest(all: &Mutex<Vec<Weak<LocalConnection>>>) -> bool {
    let all = lock(all);
    let is_idle = |connection: &Arc<LocalConnection>| {
        Arc::strong_count(&connection.requests) == 1 && !connection.given_up.is_cancelled()
    };
    let oldest = all.iter().filter_map(Weak::upgrade).find(is_idle);
    oldest.inspect(|oldest| oldest.given_up.cancel()).is_some()
}

#[cfg(test)]
mod tests {
    use http::header;
    use http_body_util::StreamBody;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        time::timeout,
    };

    use super::*;
    use crate::body::{Body, full};

    /// Longer than any answer takes, and shorter than the time for a head.
    const SOON: Duration = Duration::from_secs(8);

    async fn reply(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        // A stream that never ends, as the page's events are.
        let body = match request.uri().path() {
            "/stream" => {
                let frames = futures_util::stream::pending::<Result<_, BoxError>>();
                Body::new(StreamBody::new(frames))
            }
            _ => full(Bytes::from_static(b"here")),
        };
        Ok(Response::builder()
            .header(header::CONNECTION, "keep-alive")
            .body(body)
            .unwrap())
    }

    async fn answer(stream: &mut TcpStream, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        let end = if path == "/stream" {
            "\r\n\r\n"
        } else {
            "here"
        };
        while !seen.ends_with(end.as_bytes()) {
            let n = timeout(SOON, stream.read_buf(&mut seen)).await;
            assert_ne!(n.expect("an answer").unwrap(), 0, "closed after {seen:?}");
        }
        String::from_utf8(seen).unwrap()
    }

    /// Once, 239 half heads used all descriptors, and neither a chat nor `metaclaw status` got an answer.
    #[tokio::test]
    async fn connections_without_a_request_keep_nobody_out_and_running_ones_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = serve_local(listener, service_fn(reply), 4, stop.clone());
        let clients = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let begun = answer(&mut stream, "/stream").await;
            assert!(begun.starts_with("HTTP/1.1 200"), "{begun}");
            let mut held = Vec::new();
            for n in 0..300 {
                let mut other = TcpStream::connect(address).await.unwrap();
                let half = ["", "G", "GET /status HTTP/1.1\r\nhost: l"].get(n % 4);
                match half {
                    Some(half) => other.write_all(half.as_bytes()).await.unwrap(),
                    // It was answered once, and then keeps its place.
                    None => drop(answer(&mut other, "/").await),
                }
                held.push(other);
            }
            for _ in 0..3 {
                let mut late = TcpStream::connect(address).await.unwrap();
                assert!(answer(&mut late, "/").await.starts_with("HTTP/1.1 200"));
            }
            // The running reply was not given up: its connection is still open.
            let more = stream.try_read(&mut [0]).unwrap_err();
            assert_eq!(more.kind(), std::io::ErrorKind::WouldBlock);
            drop((stream, held));
            stop.cancel();
        };
        timeout(4 * SOON, async { tokio::join!(serving, clients) })
            .await
            .expect("an end");
    }

    #[tokio::test]
    async fn a_head_has_ten_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = serve_local(listener, service_fn(reply), 4, CancellationToken::new());
        let half = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let half = b"GET / HTTP/1.1\r\nhost: l";
            stream.write_all(half).await.unwrap();
            let mut seen = Vec::new();
            timeout(2 * HEADER_TIMEOUT, stream.read_to_end(&mut seen)).await
        };
        tokio::select! {
            () = serving => panic!("it ended"),
            closed = half => assert!(closed.is_ok()),
        }
    }
}
