//! Whatever comes: read alike however it is cut, and never otherwise than hyper reads it.

use std::{cell::RefCell, convert::Infallible};

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::{io::duplex, join};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Malformed, Server};

/// A request as a handler sees it: its first line, its fields and its body.
type Seen = (String, Vec<(String, Vec<u8>)>, Vec<u8>);

/// What requests are made of, and what they should not be made of.
const PARTS: [&str; 40] = [
    "GET / HTTP/1.1\r\n",
    "POST /a?b HTTP/1.1\r\n",
    "HEAD /c HTTP/1.0\r\n",
    "PUT http://y/d HTTP/1.1\r\n",
    "POST / HTTP/1.0\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "host: x\r\n",
    "host: x\r\n",
    "Host:x\r\n",
    "content-length: 5\r\n",
    "content-length: 5\r\n",
    "Content-Length: 05\r\n",
    "content-length: 3\r\n",
    "content-length: +5\r\n",
    "content-length: 5, 5\r\n",
    "content-length : 5\r\n",
    "transfer-encoding: chunked\r\n",
    "Transfer-Encoding: Chunked \r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "transfer-encoding: identity\r\n",
    "connection: close\r\n",
    "connection: keep-alive\r\n",
    "expect: 100-continue\r\n",
    "x:\r\n",
    "x: a\n",
    "x: a\r\n b\r\n",
    "\r\n",
    "\r\n",
    "\r\n",
    "\n",
    "hello",
    "5\r\nhello\r\n",
    "5 ;a=b\r\nhello\r\n",
    "3\r\nabc\r\n",
    "00\r\n\r\n",
    "0\r\n\r\n",
    "0\r\nx: y\r\n\r\n",
    "0\r\nx: y\n\r\n",
    "\r",
    "5\nhello\r\n",
];

/// Requests that are, one behind the other, and then somebody's fingers in them.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::sample::select(&PARTS[..]).prop_map(str::to_owned);
    let loose = prop::collection::vec(part.clone(), 1..12).prop_map(|parts| parts.concat());
    let body = prop_oneof![
        Just("\r\n".to_owned()),
        Just("content-length: 5\r\n\r\nhello".to_owned()),
        Just(
            "transfer-encoding: chunked\r\n\r\n3;a\r\nabc\r\n2\r\nde\r\n0\r\nx: y\r\n\r\n"
                .to_owned()
        ),
    ];
    let request = (0..6_usize, prop::collection::vec(part, 0..2), body)
        .prop_map(|(line, odd, body)| format!("{}host: x\r\n{}{body}", PARTS[line], odd.concat()));
    let valid = prop::collection::vec(request, 1..4).prop_map(|requests| requests.concat());
    let text = prop_oneof![valid, loose];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2);
    (text, changes).prop_map(|(text, changes)| {
        let mut bytes = text.into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

async fn note<B: Body<Data = Bytes>>(request: Request<B>, seen: &RefCell<Vec<Seen>>) {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return;
    };
    let line = format!("{} {} {:?}", head.method, head.uri, head.version);
    let fields = head.headers.iter();
    let mut fields: Vec<_> = fields
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    fields.sort();
    seen.borrow_mut()
        .push((line, fields, body.to_bytes().to_vec()));
}

/// What we read where the bytes come in pieces of this size; and all that is said to it.
async fn ours(bytes: &[u8], piece: usize) -> (Vec<Seen>, String) {
    let (mut client, server) = duplex(1 << 20);
    let seen = RefCell::new(Vec::new());
    let handle = |request: Request<_>| async {
        note(request, &seen).await;
        Response::new(whole("ok"))
    };
    let refuse = |_: Malformed| Response::new(whole("refused"));
    let server = Server::new(server, nothing_read(), PATIENCE);
    let stop = CancellationToken::new();
    let client = async {
        for piece in bytes.chunks(piece) {
            // It may have been refused already.
            let _ = client.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _ = client.shutdown().await;
        let mut said = Vec::new();
        let _ = client.read_to_end(&mut said).await;
        String::from_utf8(said).unwrap()
    };
    let (_, said) = join!(server.serve(&stop, handle, refuse), client);
    (seen.into_inner(), said)
}

/// What hyper reads.
async fn hypers(bytes: &[u8]) -> Vec<Seen> {
    let (mut client, server) = duplex(1 << 20);
    let seen = RefCell::new(Vec::new());
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let seen = &seen;
        async move {
            note(request, seen).await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    let serving = builder
        .half_close(true)
        .serve_connection(TokioIo::new(server), service);
    let client = async {
        client.write_all(bytes).await.unwrap();
        let _ = client.shutdown().await;
        let _ = client.read_to_end(&mut Vec::new()).await;
    };
    let _ = join!(serving, client);
    seen.into_inner()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_we_read_hyper_reads_too_and_alike(bytes in bytes(), piece in 1_usize..40) {
        let (ours_whole, hypers, ours_cut) = run(async {
            let whole = ours(&bytes, usize::MAX).await;
            (whole, hypers(&bytes).await, ours(&bytes, piece).await)
        });
        let text = String::from_utf8_lossy(&bytes).into_owned();
        prop_assert_eq!(&ours_whole.0, &ours_cut.0, "cut into {}: {:?}", piece, text);
        let n_read = ours_whole.0.len();
        prop_assert_eq!(&ours_whole.0[..], &hypers[..n_read.min(hypers.len())], "{:?}", text);
    }
}
