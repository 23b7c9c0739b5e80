//! HTTP/1.1: requests are read alike however they are cut, and whatever comes is read without a panic.
#![no_main]

use std::{cell::RefCell, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, combinators::UnsyncBoxBody};
use libfuzzer_sys::fuzz_target;
use metaclaw_fuzz::{Input, pieces};
use metaclaw_http1::{BoxError, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_util::sync::CancellationToken;

/// First line, fields and body of each request.
type Seen = Vec<(String, http::HeaderMap, Bytes)>;

fn nothing() -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    let body = Empty::new().map_err(|never| match never {});
    Response::new(body.boxed_unsync())
}

async fn read(pieces: &[&[u8]]) -> Seen {
    let (mut client, server) = duplex(1 << 20);
    let seen = RefCell::new(Vec::new());
    let handle = |request: Request<_>| async {
        let (head, body): (_, metaclaw_http1::Incoming<_>) = request.into_parts();
        if let Ok(body) = body.collect().await {
            let line = format!("{} {} {:?}", head.method, head.uri, head.version);
            seen.borrow_mut()
                .push((line, head.headers, body.to_bytes()));
        }
        nothing()
    };
    let stop = CancellationToken::new();
    let server = Server::new(server, BytesMut::new(), Duration::from_secs(75));
    let client = async {
        for piece in pieces {
            // It may have been refused already.
            let _ = client.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _ = client.shutdown().await;
        let _ = client.read_to_end(&mut Vec::new()).await;
    };
    let _ = tokio::join!(server.serve(&stop, handle, |_| nothing()), client);
    seen.into_inner()
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let lengths = input.take(4);
    let bytes = input.rest();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let whole = runtime.block_on(read(&[bytes]));
    assert_eq!(runtime.block_on(read(&pieces(bytes, lengths))), whole);
});
