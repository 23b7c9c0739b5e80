//! What a server sees of a client, and whoever asks of a server.

use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tokio::{io::duplex, join};

use super::*;
use crate::{Error, Pool, Reply, client::Connection};

type Answered = Result<Response<Reply<DuplexStream, Fed>>, Error>;

fn pool() -> Pool<DuplexStream> {
    Pool::new(8, PATIENCE)
}

fn connection(pool: &Pool<DuplexStream>, room: usize) -> (Connection<DuplexStream>, DuplexStream) {
    let (client, server) = duplex(room);
    (pool.connection(&Arc::from("x"), client), server)
}

fn get() -> Request<Fed> {
    let mut request = Request::new(fed().1);
    *request.uri_mut() = "http://user:secret@x:81/a?b".parse().unwrap();
    request
        .headers_mut()
        .insert("content-length", "0".parse().unwrap());
    request
}

/// What is read of a reply: its body, and whether that was whole; and whether the connection rests then.
async fn read(said: &str, method: Method) -> (Answered, Vec<u8>, bool, usize) {
    let pool = pool();
    let (connection, mut server) = connection(&pool, 1 << 20);
    say(&mut server, said).await;
    let mut request = get();
    *request.method_mut() = method;
    // The end of the connection comes with the bytes, unless it is to go on.
    let mut answered = connection.ask(request).await;
    let (mut body, mut is_whole) = (Vec::new(), answered.is_ok());
    drop(server);
    while let Ok(reply) = &mut answered
        && let Some(frame) = reply.frame().await
    {
        match frame {
            Ok(frame) => body.extend(frame.into_data().unwrap_or_default()),
            Err(_) => is_whole = false,
        }
    }
    (answered, body, is_whole, pool.n_resting())
}

#[tokio::test(start_paused = true)]
async fn a_cut_body_is_cut_though_the_server_reads_slowly() {
    let pool = pool();
    let (connection, mut server) = connection(&pool, 64);
    let (feed, body) = fed();
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    let asking = async {
        feed.data(vec![b'x'; 500]);
        feed.cut();
        connection.ask(request).await
    };
    let server = async {
        let seen = rest(&mut server).await;
        assert!(!seen.ends_with("0\r\n\r\n"), "{seen}");
        // It would have answered.
    };
    let (asked, ()) = join!(asking, server);
    assert!(matches!(asked, Err(Error::Body(_))), "{asked:?}");
    assert_eq!(pool.n_resting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_and_a_password_stay_out_of_the_host() {
    let pool = pool();
    let (connection, mut server) = connection(&pool, 1 << 10);
    let serving = async {
        let seen = until(&mut server, "\r\n\r\n").await;
        say(&mut server, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 Fine\r\ncontent-length: 0\r\n\r\n").await;
        seen
    };
    let (seen, reply) = join!(serving, connection.ask(get()));
    assert!(
        seen.contains("\r\nhost: x:81\r\n") && !seen.contains("secret"),
        "{seen}"
    );
    let reply = reply.unwrap();
    let reason = reply.extensions().get::<crate::Reason>().unwrap();
    assert_eq!(
        (reply.status().as_u16(), &reason.0[..]),
        (200, &b"Fine"[..])
    );
    assert!(!reply.headers().contains_key("link"));
    assert_eq!(pool.n_resting(), 1);
}

/// What is said to a request of this method, the body, and how many connections rest then.
const REPLIES: [(&str, &str, &str, usize); 14] = [
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        "GET",
        "hi",
        1,
    ),
    (
        "\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        "GET",
        "hi",
        1,
    ),
    (
        "HTTP/1.1 200\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi",
        "GET",
        "hi",
        1,
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi!",
        "GET",
        "hi",
        0,
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: x, Close\r\n\r\nhi",
        "GET",
        "hi",
        0,
    ),
    (
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        "GET",
        "hi",
        0,
    ),
    (
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nhi",
        "GET",
        "hi",
        1,
    ),
    ("HTTP/1.0 200 OK\r\n\r\nhi", "GET", "hi", 0),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "GET",
        "hi",
        1,
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 9\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "GET",
        "hi",
        0,
    ),
    (
        "HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n",
        "GET",
        "",
        1,
    ),
    (
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\n",
        "GET",
        "",
        1,
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
        "HEAD",
        "",
        1,
    ),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 X\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "GET",
        "",
        1,
    ),
];

#[tokio::test(start_paused = true)]
async fn a_reply_is_what_it_says_it_is() {
    for (said, method, body, n_resting) in REPLIES {
        let (reply, seen, is_whole, rests) = read(said, method.parse().unwrap()).await;
        assert!(reply.is_ok() && is_whole, "{said:?}: {reply:?}");
        assert_eq!(
            (String::from_utf8(seen).unwrap(), rests),
            (body.into(), n_resting),
            "{said:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_may_be_read_differently_is_none() {
    for said in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx : y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: y\r\n z\r\n\r\n",
        "HTTP/1.1 099 X\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
    ] {
        let (reply, ..) = read(said, Method::GET).await;
        assert!(
            matches!(reply, Err(Error::Malformed(_))),
            "{said:?}: {reply:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_came_before_a_malformed_chunk_or_a_cut_is_given() {
    for end in ["zz\r\n", "1\r\n!\r\nzz\r\n", "", "3\r\nab", "0\r\n"] {
        let said = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n{end}");
        let (reply, body, is_whole, n_resting) = read(&said, Method::GET).await;
        assert!(reply.is_ok() && !is_whole && n_resting == 0, "{end:?}");
        assert!(body.starts_with(b"hi"), "{end:?}: {body:?}");
    }
}
