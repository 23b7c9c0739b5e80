//! What a client sees of a server, and a handler of a client.

use std::cell::RefCell;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::{io::duplex, join, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Error, Incoming, Malformed, Server};

type Asked = Request<Incoming<DuplexStream>>;

/// Serves one connection; what is no request is answered with its status and nothing else.
async fn serve<F>(io: DuplexStream, handle: impl Fn(Asked) -> F) -> Result<(), Error>
where
    F: Future<Output = Response<Fed>>,
{
    let refuse = |malformed: Malformed| {
        let mut refusal = Response::new(whole(malformed.to_string()));
        *refusal.status_mut() = malformed.status();
        refusal
    };
    let server = Server::new(io, nothing_read(), PATIENCE);
    server
        .serve(&CancellationToken::new(), handle, refuse)
        .await
}

/// Reads the body and answers with it.
async fn echo(request: Asked) -> Response<Fed> {
    let (head, body) = request.into_parts();
    let mut reply = Response::new(match body.collect().await {
        Ok(body) => whole(body.to_bytes()),
        Err(error) => whole(error.to_string()),
    });
    reply
        .headers_mut()
        .insert("x-path", head.uri.path().parse().unwrap());
    reply
}

/// All that the server says to these bytes, after which the client waits for the end.
async fn answer(said: &str) -> String {
    let (mut client, server) = duplex(1 << 20);
    say(&mut client, said).await;
    join!(serve(server, echo), rest(&mut client)).1
}

#[tokio::test(start_paused = true)]
async fn a_cut_reply_is_cut_though_the_client_reads_slowly() {
    let (mut client, server) = duplex(64);
    let (feed, body) = fed();
    let body = RefCell::new(Some(body));
    let serving = serve(server, |_| {
        let body = body.borrow_mut().take().expect("one request");
        async { Response::new(body) }
    });
    let client = async {
        say(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        until(&mut client, "\r\n\r\n").await;
        // More than there is room for; and it is cut while it waits.
        feed.data(vec![b'x'; 500]);
        feed.cut();
        rest(&mut client).await
    };
    let (served, seen) = join!(serving, client);
    assert!(matches!(served, Err(Error::Body(_))), "{served:?}");
    assert_eq!(seen, format!("1f4\r\n{}\r\n", "x".repeat(500)));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_is_told_to_go_on_when_its_body_is_wanted() {
    let (mut client, server) = duplex(1 << 10);
    let head = "POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\nconnection: close\r\n\r\n";
    let client = async {
        say(&mut client, head).await;
        let told = until(&mut client, "\r\n\r\n").await;
        assert_eq!(told, "HTTP/1.1 100 Continue\r\n\r\n");
        say(&mut client, "hi").await;
        rest(&mut client).await
    };
    let (served, seen) = join!(serve(server, echo), client);
    assert!(
        served.is_ok() && seen.starts_with("HTTP/1.1 200 OK\r\n"),
        "{seen}"
    );
    assert!(seen.contains("\r\n\r\n2\r\nhi\r\n0\r\n"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_and_is_answered_is_not_told_to_go_on() {
    let (mut client, server) = duplex(1 << 10);
    let refuse = |request: Asked| async move {
        drop(request);
        let mut refusal = Response::new(whole("no"));
        *refusal.status_mut() = StatusCode::FORBIDDEN;
        refusal
    };
    // Whether the body follows is not known: what follows is no request.
    let head = "POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 30\r\n\r\n";
    say(&mut client, head).await;
    let (_, seen) = join!(serve(server, refuse), rest(&mut client));
    assert!(seen.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{seen}");
    assert!(seen.contains("connection: close"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_to_go_on_within_a_reply() {
    let (mut client, server) = duplex(1 << 10);
    // Asks for the body in the same turn in which it answers, and goes on reading behind the answer.
    let handle = |mut request: Asked| async move {
        let wanted = std::future::poll_fn(|cx| {
            Poll::Ready(Pin::new(request.body_mut()).poll_frame(cx).is_pending())
        });
        assert!(wanted.await);
        let (feed, body) = fed();
        feed.data("early");
        KEPT.with_borrow_mut(|kept| kept.push(request.into_body()));
        Response::new(body)
    };
    thread_local! {
        static KEPT: RefCell<Vec<Incoming<DuplexStream>>> = const { RefCell::new(Vec::new()) };
    }
    say(
        &mut client,
        "POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n",
    )
    .await;
    let (_, seen) = join!(serve(server, handle), rest(&mut client));
    let told = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n";
    assert!(seen.starts_with(told), "{seen}");
    assert_eq!(seen.matches("100 Continue").count(), 1, "{seen}");
    // The connection has ended, and whoever has the body hears of it, rather than of what comes later.
    let mut kept = KEPT.with_borrow_mut(Vec::pop).unwrap();
    let end = kept.frame().await.unwrap();
    assert!(matches!(end, Err(Error::Ended("a body"))), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_has_a_body_is_woken_by_the_end_of_its_connection() {
    let (mut client, server) = duplex(1 << 10);
    let (body_here, mut taken) = mpsc::channel(1);
    let (has_read, mut reads) = mpsc::channel(1);
    let (feed, reply) = fed();
    let reply = &RefCell::new(Some(reply));
    let handle = |request: Asked| {
        let body_here = body_here.clone();
        async move {
            body_here.send(request.into_body()).await.unwrap();
            Response::new(reply.borrow_mut().take().expect("one request"))
        }
    };
    say(
        &mut client,
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf",
    )
    .await;
    // Another task, as that of hyper's client: nobody but its waker brings it back.
    let mut reader = JoinSet::new();
    reader.spawn(async move {
        let mut body = taken.recv().await.unwrap();
        let mut n_bytes = 0;
        loop {
            match body.frame().await {
                Some(Ok(frame)) => {
                    n_bytes += frame.into_data().unwrap().len();
                    has_read.send(()).await.unwrap();
                }
                end => return (n_bytes, end.is_some()),
            }
        }
    });
    let cut = async {
        reads.recv().await.unwrap();
        feed.cut();
    };
    let (served, seen, ()) = join!(serve(server, handle), rest(&mut client), cut);
    let read = timeout(PATIENCE, reader.join_next()).await;
    assert!(
        served.is_err() && seen.starts_with("HTTP/1.1 200"),
        "{seen}"
    );
    let read = read.expect("an end").unwrap().unwrap();
    assert!(read.0 == 4 && read.1, "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let said = concat!(
        "\r\nPOST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello\r\n",
        "POST /b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
        "GET /c HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
        "HEAD /d HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    );
    let whole = answer(said).await;
    let paths: Vec<_> = whole
        .lines()
        .filter(|line| line.starts_with("x-path"))
        .collect();
    assert_eq!(paths, ["x-path: /a", "x-path: /b", "x-path: /c"], "{whole}");
    for cut in 1..said.len() {
        let (mut client, server) = duplex(1 << 20);
        let client = async {
            say(&mut client, &said[..cut]).await;
            tokio::task::yield_now().await;
            say(&mut client, &said[cut..]).await;
            rest(&mut client).await
        };
        let (_, seen) = join!(serve(server, echo), client);
        assert_eq!(seen, whole, "cut at {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_two_readers_may_read_differently_is_refused() {
    let post = |fields: &str| format!("POST / HTTP/1.1\r\nhost: x\r\n{fields}\r\n");
    let refused = [
        post("content-length: 5\r\ntransfer-encoding: chunked\r\n"),
        post("content-length: 5\r\ncontent-length: 6\r\n"),
        post("content-length: 5, 5\r\n"),
        post("content-length: +5\r\n"),
        post("content-length: -5\r\n"),
        post("content-length: 0x5\r\n"),
        post("content-length:\r\n"),
        post("content-length: 99999999999999999999\r\n"),
        post("content-length : 5\r\n"),
        post("transfer-encoding : chunked\r\n"),
        post("transfer-encoding: chunked, chunked\r\n"),
        post("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
        post("transfer-encoding: gzip, chunked\r\n"),
        post("transfer-encoding: identity\r\n"),
        post("transfer-encoding: xchunked\r\n"),
        post("transfer-encoding:\x0bchunked\r\n"),
        post("transfer-encoding:\r\n chunked\r\n"),
        post("x: a\r\n b\r\n"),
        post("x: a\ntransfer-encoding: chunked\r\n"),
        post("x: a\rtransfer-encoding: chunked\r\n"),
        post("x: a\0b\r\n"),
        post("host: y\r\n"),
        " GET / HTTP/1.1\r\nhost: x\r\n\r\n".into(),
        "GET / HTTP/1.1\nhost: x\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nhost: x\r\n\n".into(),
        "GET / HTTP/1.1\r\nhost: x\n\r\n".into(),
        "GET / HTTP/1.1\r\n\r\n".into(),
        "GET  / HTTP/1.1\r\nhost: x\r\n\r\n".into(),
        "GET / a HTTP/1.1\r\nhost: x\r\n\r\n".into(),
        "GET / HTTP/1.2\r\nhost: x\r\n\r\n".into(),
        "GET /\r\n\r\n".into(),
        "CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n".into(),
        "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n".into(),
    ];
    for said in refused {
        let seen = answer(&said).await;
        let status = seen.split(' ').nth(1).unwrap_or_default();
        assert!(matches!(status, "400" | "501"), "{said:?}: {seen}");
        assert!(seen.contains("connection: close"), "{seen}");
        assert_eq!(
            seen.matches("HTTP/1.1").count(),
            1 + seen.matches("not HTTP/1.1").count() + seen.matches("or HTTP/1.1").count(),
            "{seen}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_end_as_lines_do() {
    let head = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n";
    for end in ["\n", "x: y\n\r\n", "x: y\r\n\n", "x:\n\r\n"] {
        let seen = answer(&format!("{head}{end}GET /next HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        assert!(!seen.contains("/next"), "{end:?}: {seen}");
    }
    let seen = answer(&format!(
        "{head}x:\t\r\ny: z \r\n\r\nGET /next HTTP/1.0\r\n\r\n"
    ))
    .await;
    assert!(seen.contains("/next"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_line_behind_a_request_is_no_request() {
    let (mut client, server) = duplex(1 << 10);
    let client = async {
        say(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n\r\n").await;
        until(&mut client, "\r\n0\r\n\r\n").await;
        drop(client);
    };
    let (served, ()) = join!(serve(server, echo), client);
    assert!(served.is_ok(), "{served:?}");
}
