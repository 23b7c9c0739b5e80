//! Tests of replies without a body, replies with trailers, and connections that would be upgraded: the edge cases of
//! HTTP that a simple reverse proxy gets wrong.

use metaclaw_test_kit::has;
use tokio::{io::AsyncReadExt, time::timeout};

use super::harness::{
    CHAT, CHATS, Client, DONE, END, Harness, SOON, STREAM, bare, chunk, get, json_reply, post,
};

fn get_files() -> Vec<u8> {
    get("/v1/files", "")
}

/// Reads the head of a reply, and no further byte.
async fn head(client: &mut Client) -> String {
    let mut head = Vec::new();
    let read = async {
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.stream.read_u8().await.unwrap());
        }
    };
    timeout(SOON, read).await.expect("a head");
    String::from_utf8(head).unwrap().to_lowercase()
}

/// Checks that the connection continues with the next request, and nothing of the previous reply is in the way.
async fn goes_on(mut client: Client) {
    client.send(&get("/healthz", "")).await;
    assert!(head(&mut client).await.starts_with("http/1.1 200"));
}

#[tokio::test]
async fn a_reply_without_a_body_keeps_the_length_that_it_tells_of() {
    let mut harness = Harness::start().await;
    for (method, status, fields) in [
        ("HEAD", "200 OK", "content-length: 1234\r\netag: \"a\"\r\n"),
        ("HEAD", "404 Not Found", "content-length: 9\r\n"),
        (
            "GET",
            "304 Not Modified",
            "content-length: 1234\r\netag: \"a\"\r\n",
        ),
        ("GET", "304 Not Modified", "etag: \"a\"\r\n"),
        ("DELETE", "204 No Content", "x-own: 1\r\n"),
    ] {
        let asked = bare(method, "/v1/files/f", "if-none-match: \"a\"\r\n");
        let mut client = harness.sent(&asked).await;
        let reply = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
        let exchange = harness.upstream.answer(&reply).await;
        assert!(exchange.head.starts_with(method), "{}", exchange.head);
        let seen = head(&mut client).await;
        let status = status.split(' ').next().unwrap();
        assert!(seen.starts_with(&format!("http/1.1 {status}")), "{seen}");
        has(&seen, fields.lines());
        let n_lengths = |head: &str| head.matches("content-length").count();
        assert_eq!(n_lengths(&seen), n_lengths(fields), "{seen}");
        assert!(
            !seen.contains("transfer-encoding"),
            "{method} {status}: {seen}"
        );
        goes_on(client).await;
    }
}

#[tokio::test]
async fn fields_behind_a_body_pass_where_the_client_takes_them() {
    let mut harness = Harness::start().await;
    let reply = STREAM.replace("\r\n\r\n", "\r\ntrailer: x-checksum\r\n\r\n");
    let end = "0\r\nx-checksum: abc\r\n\r\n";
    let reply = format!("{reply}{}{end}", chunk(DONE));
    for (te, is_passed) in [("te: trailers\r\n", true), ("", false)] {
        let mut client = harness.sent(&post(CHATS, te, CHAT)).await;
        harness.upstream.answer(&reply).await;
        assert!(head(&mut client).await.contains("trailer: x-checksum"));
        client.until("data: [DONE]\n\n\r\n").await;
        let expected = if is_passed { end } else { END };
        client.until(&format!("\r\n{expected}")).await;
        goes_on(client).await;
    }
}

#[tokio::test]
async fn a_websocket_is_refused_in_words_and_another_offer_is_ignored() {
    let mut harness = Harness::start().await;
    let mut client = harness.client().await;
    let upgrade = "connection: Upgrade\r\nupgrade: WebSocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    client.send(&get("/v1/responses", upgrade)).await;
    let seen = client.read().await;
    assert_eq!(seen.status(), 426);
    assert_eq!(seen.header("upgrade"), Some("HTTP/1.1"));
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"WebSockets are not served here: send what would go through /v1/responses as HTTP requests","type":"invalid_request_error","param":null,"code":"no_websockets"}}"#);
    assert!(harness.upstream.is_unasked());
    // Java's client offers this with every request.
    let h2c = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAA\r\n";
    client.send(&get("/v1/files", h2c)).await;
    let no_content = "HTTP/1.1 204 No Content\r\n\r\n";
    let exchange = harness.upstream.answer(no_content).await;
    let stripped = ["upgrade", "http2-settings"].map(|name| exchange.header(name));
    assert_eq!(stripped, [None, None]);
    assert!(head(&mut client).await.starts_with("http/1.1 204"));
}

#[tokio::test]
async fn a_body_that_waits_to_be_wanted_goes_up_when_it_is() {
    let mut harness = Harness::start().await;
    let mut client = harness.client().await;
    let length = format!("content-length: {}\r\nexpect: 100-continue\r\n", CHAT.len());
    client.send(&bare("POST", CHATS, &length)).await;
    assert_eq!(head(&mut client).await, "http/1.1 100 continue\r\n\r\n");
    client.send(CHAT).await;
    let exchange = harness.upstream.answer(&json_reply("{}")).await;
    assert_eq!((exchange.body(), exchange.header("expect")), (CHAT, None));
    assert!(head(&mut client).await.starts_with("http/1.1 200"));
}

#[tokio::test]
async fn hints_before_a_reply_are_passed_over_and_its_words_are_kept() {
    let mut harness = Harness::start().await;
    let mut client = harness.sent(&get_files()).await;
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let reply = "HTTP/1.1 200 As You Like It\r\ncontent-length: 0\r\n\r\n";
    harness.upstream.answer(&format!("{hints}{reply}")).await;
    let seen = head(&mut client).await;
    let line = "http/1.1 200 as you like it\r\n";
    assert!(seen.starts_with(line), "{seen}");
    goes_on(client).await;
}

#[tokio::test]
async fn a_connection_that_the_upstream_closes_at_rest_is_not_asked_again() {
    let mut harness = Harness::start().await;
    let mut client = harness.client().await;
    for _ in 0..3 {
        client.send(&get_files()).await;
        // Each uses a new connection, because the previous one has been closed.
        let hi = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
        let exchange = harness.upstream.answer(hi).await;
        assert!(head(&mut client).await.starts_with("http/1.1 200"));
        client.stream.read_exact(&mut [0; 2]).await.unwrap();
        drop(exchange);
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_has_its_reply_to_the_end_of_the_connection() {
    let mut harness = Harness::start().await;
    let asked = b"GET /v1/files HTTP/1.0\r\n\r\n";
    let mut client = harness.sent(asked).await;
    let reply = "HTTP/1.0 200 OK\r\n\r\nall there is";
    drop(harness.upstream.answer(reply).await);
    let seen = client.read().await;
    assert_eq!(seen.header("transfer-encoding"), None);
    assert_eq!(seen.content(), ("all there is", true));
}
