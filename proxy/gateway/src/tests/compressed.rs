//! Tests that compressed requests and replies are read like any other, within the limits of a body.

use std::io::Read;

use flate2::{
    Compression,
    read::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use metaclaw_chat::Size;
use metaclaw_test_kit::has;

use super::{
    harness::{
        CHAT, CHATS, DONE, END, Harness, MESSAGES, RESPONSES, SetUp, completion, delta, post,
        post_chat, says,
    },
    unread::before_chat_alone,
};

/// The encodings that are read.
const KNOWN: &str = "gzip, deflate, br, zstd";

/// `CHAT` by Brotli, made by Python's brotli 1.1.
const BROTLI: &[u8] = b"\x1bb\x00\x00\x1c\x07v\x8c\xe3\xc5#\x08\xf6\xe7\xb5\xc8\xde\xd6\xcf\xeck\xeb*\x16\x1d\xc78p\x99\x97\xed\x1ad\x1eh\xf0\x14\x9f\x13*\xd9\x14\xddjt\x91\xfb\x13n}\xb0\xad\xe4\xc0 \xba\x9e\xf3\xdd\x81\xd1\x11";

type Packer = fn(&[u8]) -> Vec<u8>;

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    read(&mut GzEncoder::new(bytes, Compression::fast()))
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    read(&mut ZlibEncoder::new(bytes, Compression::fast()))
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    read(&mut DeflateEncoder::new(bytes, Compression::fast()))
}

fn read(packer: &mut impl Read) -> Vec<u8> {
    let mut packed = Vec::new();
    packer.read_to_end(&mut packed).unwrap();
    packed
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// Makes a request with any bytes as its body, announced or in pieces of so many bytes.
fn packed(path: &str, encoding: &str, body: &[u8], piece: Option<usize>) -> Vec<u8> {
    let encodings = encoding.split('|');
    let encodings = encodings.map(|name| format!("content-encoding: {name}\r\n"));
    let encodings: String = encodings.collect();
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{encodings}");
    let Some(piece) = piece else {
        let length = format!("content-length: {}\r\n\r\n", body.len());
        return [head.as_bytes(), length.as_bytes(), body].concat();
    };
    head.push_str("transfer-encoding: chunked\r\n\r\n");
    chunked(head, body, piece)
}

/// Adds a body to a head, in chunks of `piece` bytes.
fn chunked(head: String, body: &[u8], piece: usize) -> Vec<u8> {
    let mut message = head.into_bytes();
    for piece in body.chunks(piece) {
        message.extend(format!("{:x}\r\n", piece.len()).bytes());
        message.extend([piece, b"\r\n"].concat());
    }
    message.extend(END.bytes());
    message
}

#[tokio::test]
async fn a_compressed_chat_is_read_like_any_other() {
    let mut harness = before_chat_alone().await;
    let (chat, mut n_turns) = (CHAT.as_bytes(), 0);
    for (encoding, body) in [
        ("gzip", gzip(chat)),
        ("x-gzip", gzip(chat)),
        ("GZip ", gzip(chat)),
        ("deflate", zlib(chat)),
        ("deflate", deflate(chat)),
        ("br", BROTLI.to_vec()),
        ("zstd", zstd(chat)),
        ("identity", chat.to_vec()),
        ("gzip, zstd", zstd(&gzip(chat))),
        ("gzip|identity|deflate", zlib(&gzip(chat))),
    ] {
        for piece in [None, Some(7), Some(1)] {
            let request = packed(CHATS, encoding, &body, piece);
            let (exchange, seen) = harness.exchange(&request, &says("x")).await;
            assert_eq!(seen.status(), 200, "{encoding}");
            has(exchange.body(), ["capital of France", "Answer in French."]);
            let named = exchange.header("content-encoding");
            assert!(named.is_none_or(|name| name == "identity"), "{encoding}");
            let length = exchange.header("content-length").unwrap();
            assert_eq!(length, exchange.body.len().to_string(), "{encoding}");
            assert_eq!(exchange.header("transfer-encoding"), None);
            n_turns += 1;
        }
    }
    assert_eq!(harness.log.wait(n_turns).await.len(), n_turns);
    // The other two APIs are translated, and tokens are counted.
    for (path, body) in [("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES)] {
        let request = packed(path, "zstd", &zstd(body.as_bytes()), None);
        let (exchange, seen) = harness.exchange(&request, &says("x")).await;
        assert_eq!(seen.status(), 200, "{path}");
        assert!(exchange.body().contains("Answer in French."), "{path}");
    }
    let body = gzip(MESSAGES.as_bytes());
    let counted = packed("/v1/messages/count_tokens", "gzip", &body, None);
    let counted = harness.refused(&counted).await;
    assert_eq!(counted.status(), 200, "{}", counted.text());
    assert!(harness.metrics.passed().is_empty());
}

#[tokio::test]
async fn a_body_that_is_not_what_its_encoding_says_is_refused_in_words() {
    let harness = before_chat_alone().await;
    let chat = CHAT.as_bytes();
    let whole = gzip(chat);
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 3].to_vec();
    for (path, encoding, body, status) in [
        (CHATS, "zstd", b"\x28\xb5\x2f\xfdgarbage".to_vec(), 400),
        (CHATS, "gzip", chat.to_vec(), 400),
        (CHATS, "deflate", b"\x78\x9cnothing".to_vec(), 400),
        (CHATS, "br", b"plain".to_vec(), 400),
        (CHATS, "br", [BROTLI, b"more"].concat(), 400),
        (CHATS, "gzip", cut(&whole), 400),
        (CHATS, "deflate", cut(&zlib(chat)), 400),
        (CHATS, "zstd", cut(&zstd(chat)), 400),
        (CHATS, "gzip, zstd", zstd(chat), 400),
        (CHATS, "gzip", Vec::new(), 400),
        (CHATS, "lzma", chat.to_vec(), 415),
        ("/v1/messages", "compress", chat.to_vec(), 415),
        ("/v1/responses", "gzip|aws-chunked", whole, 415),
        (CHATS, "br,br,br,br", chat.to_vec(), 415),
    ] {
        for piece in [None, Some(5)] {
            let seen = harness.refused(&packed(path, encoding, &body, piece)).await;
            let (given, message) = seen.refusal();
            assert_eq!(given, status, "{encoding}: {message}");
            let first = encoding.split(['|', ',']).next().unwrap();
            has(message, [KNOWN, first]);
            assert_eq!(seen.header("accept-encoding"), Some(KNOWN));
        }
    }
    // Our own routes read them too.
    let own = packed("/v1/feedback", "gzip", &gzip(b"{}"), None);
    assert_eq!(harness.refused(&own).await.status(), 503);
}

#[tokio::test]
async fn a_bomb_is_refused_when_it_is_too_long() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.max_body = Size(1 << 20);
    let mut harness = Harness::with(set_up).await;
    let zeros = vec![b' '; 64 << 20];
    let empty = gzip(b"").repeat(200_000);
    for (encoding, bomb) in [
        ("gzip", gzip(&zeros)),
        ("zstd", zstd(&zeros)),
        ("deflate", deflate(&zeros)),
        ("zstd, gzip", gzip(&zstd(&zeros))),
        ("gzip, zstd", zstd(&empty)),
    ] {
        assert!(bomb.len() < 1 << 20, "{encoding}: {}", bomb.len());
        let request = packed(CHATS, encoding, &bomb, None);
        let (status, message) = harness.refused(&request).await.refusal();
        assert_eq!(status, 413, "{encoding}: {message}");
        has(&message, ["proxy.max_body, 1 MiB"]);
    }
    // Bytes that decompress to nothing are bounded too, and what fits is read.
    let nothing = packed(CHATS, "gzip", &empty, Some(60_000));
    assert_eq!(harness.refused(&nothing).await.status(), 413);
    let fits = format!("{CHAT}{}", " ".repeat((1 << 20) - CHAT.len()));
    let request = packed(CHATS, "gzip", &gzip(fits.as_bytes()), None);
    let (_, seen) = harness.exchange(&request, &says("x")).await;
    assert_eq!(seen.status(), 200);
    harness.until(|counts| counts.body_bytes == 0).await;
}

/// Makes a reply with an encoding, in pieces of so many bytes.
fn encoded(kind: &str, encoding: &str, body: &[u8], piece: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: {encoding}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    chunked(head, body, piece)
}

#[tokio::test]
async fn a_compressed_reply_that_was_not_asked_for_is_translated() {
    let mut harness = before_chat_alone().await;
    let whole = completion("bonjour");
    let stream = format!("{}{}{DONE}", delta("bon"), delta("jour"));
    let streamed = MESSAGES.replacen('{', r#"{"stream":true,"#, 1);
    let packers: [(&str, Packer); 5] = [
        ("gzip", gzip),
        ("deflate", zlib),
        ("deflate", deflate),
        ("zstd", zstd),
        ("gzip, zstd", |bytes| zstd(&gzip(bytes))),
    ];
    let mut n_turns = 0;
    for (encoding, pack) in packers {
        for piece in [1, 11, 4_096] {
            for (body, kind, reply) in [
                (MESSAGES, "application/json", &whole),
                (&streamed, "text/event-stream", &stream),
                (&streamed, "application/json", &whole),
            ] {
                let reply = encoded(kind, encoding, &pack(reply.as_bytes()), piece);
                let request = post("/v1/messages", "", body);
                let (_, seen) = harness.exchange(&request, &reply).await;
                assert_eq!((seen.status(), seen.is_whole), (200, true), "{encoding}");
                assert_eq!(seen.header("content-encoding"), None);
                let text = seen.text();
                let is_said = text.contains("bonjour") || text.contains(r#""bon""#);
                assert!(is_said, "{encoding} {kind}: {text}");
                n_turns += 1;
            }
        }
    }
    for turn in harness.log.wait(n_turns).await {
        assert_eq!(turn.reply.unwrap().text(), "bonjour");
    }
    for (encoding, body, why) in [
        ("x-own", &b"?"[..], "x-own"),
        ("gzip", b"not gzip at all", "gzip header"),
    ] {
        let reply = encoded("application/json", encoding, body, 9);
        let request = post("/v1/messages", "", MESSAGES);
        let (_, seen) = harness.exchange(&request, &reply).await;
        let (status, message) = seen.refusal();
        assert_eq!(status, 502, "{message}");
        has(message, [why]);
    }
}

#[tokio::test]
async fn an_error_that_came_compressed_is_understood() {
    let mut set_up = SetUp::default();
    set_up.llm().keys = vec!["k1".into(), "k2".into()];
    set_up.config.routing.fail_over = vec![crate::Failure::Billing];
    let mut harness = Harness::with(set_up).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let error = br#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    let refusal = encoded("application/json", "gzip", &gzip(error), 4_096);
    let refusal = [b"HTTP/1.1 429 No", &refusal["HTTP/1.1 200 OK".len()..]].concat();
    harness.upstream.answer(&refusal).await;
    let second = harness.upstream.answer(&says("x")).await;
    assert_eq!(second.header("authorization"), Some("Bearer k2"));
    assert_eq!(client.read().await.status(), 200);
}
