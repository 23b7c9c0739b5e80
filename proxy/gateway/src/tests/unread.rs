//! Tests that no conversation passes unread: compressed, under another spelling of its route, or by a redirect. Also of
//! what does pass, and is counted.

use std::io::Write;

use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use metaclaw_chat::Size;
use metaclaw_dialects::Api;

use super::harness::{
    CHAT, Exchange, Harness, STREAM, Seen, SetUp, chunk, completion, delta, json_reply, post,
    post_chat,
};
use crate::{Provider, UpstreamConfig};

const WISH: (&str, &str) = ("_shared/WISHES.md", "- Answer in French.\n");
/// A chat with Messages and a request with Responses.
const MESSAGES: &str =
    r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
const RESPONSES: &str = r#"{"model":"m","input":"hi"}"#;
/// `CHAT` by Brotli, made by Python's brotli 1.1.
const BROTLI: &[u8] = b"\x1bb\x00\x00\x1c\x07v\x8c\xe3\xc5#\x08\xf6\xe7\xb5\xc8\xde\xd6\xcf\xeck\xeb*\x16\x1d\xc78p\x99\x97\xed\x1ad\x1eh\xf0\x14\x9f\x13*\xd9\x14\xddjt\x91\xfb\x13n}\xb0\xad\xe4\xc0 \xba\x9e\xf3\xdd\x81\xd1\x11";

type Packer = fn(&[u8]) -> Vec<u8>;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// Makes a request with any bytes as its body, announced or in pieces of so many bytes.
fn packed(path: &str, encoding: &str, body: &[u8], piece: Option<usize>) -> Vec<u8> {
    let encodings = encoding.split('|');
    let encodings = encodings.map(|it| format!("content-encoding: {it}\r\n"));
    let encodings: String = encodings.collect();
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{encodings}");
    let Some(piece) = piece else {
        let length = format!("content-length: {}\r\n\r\n", body.len());
        return [head.as_bytes(), length.as_bytes(), body].concat();
    };
    head.push_str("transfer-encoding: chunked\r\n\r\n");
    let mut request = head.into_bytes();
    for piece in body.chunks(piece) {
        request.extend(format!("{:x}\r\n", piece.len()).bytes());
        request.extend([piece, b"\r\n"].concat());
    }
    request.extend(b"0\r\n\r\n");
    request
}

async fn before_chat_alone() -> Harness {
    let mut set_up = SetUp {
        lessons: vec![WISH],
        ..SetUp::default()
    };
    let llm = set_up.config.upstreams.entry("llm".into()).or_default();
    llm.speaks = Some(vec![Api::Chat]);
    llm.keys = vec!["sk-up".into()];
    Harness::with(set_up).await
}

/// Returns why a request was refused.
fn refusal(seen: &Seen) -> (u16, String) {
    let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    let message = body["error"]["message"].as_str().unwrap();
    (seen.status(), message.to_owned())
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
            let request = packed("/v1/chat/completions", encoding, &body, piece);
            let reply = json_reply(&completion("x"));
            let (exchange, seen) = harness.exchange(&request, &reply).await;
            assert_eq!(seen.status(), 200, "{encoding}");
            let sent = exchange.body();
            assert!(sent.contains("capital of France"), "{encoding}: {sent}");
            assert!(sent.contains("Answer in French."), "{encoding}: {sent}");
            let named = exchange.header("content-encoding");
            assert!(named.is_none_or(|it| it == "identity"), "{encoding}");
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
        let (exchange, seen) = harness
            .exchange(&request, &json_reply(&completion("x")))
            .await;
        assert_eq!(seen.status(), 200, "{path}");
        assert!(exchange.body().contains("Answer in French."), "{path}");
    }
    let counted = packed(
        "/v1/messages/count_tokens",
        "gzip",
        &gzip(MESSAGES.as_bytes()),
        None,
    );
    let counted = harness.refused(&counted).await;
    assert_eq!(counted.status(), 200, "{}", counted.text());
    assert!(harness.metrics.passed().is_empty());
}

#[tokio::test]
async fn a_body_that_is_not_what_its_encoding_says_is_refused_in_words() {
    let harness = before_chat_alone().await;
    let chat = CHAT.as_bytes();
    let whole = gzip(chat);
    let whole_zstd = zstd(chat);
    let (chats, cut) = ("/v1/chat/completions", |bytes: &[u8]| {
        bytes[..bytes.len() - 3].to_vec()
    });
    for (path, encoding, body, status) in [
        (chats, "zstd", b"\x28\xb5\x2f\xfdgarbage".to_vec(), 400),
        (chats, "gzip", chat.to_vec(), 400),
        (chats, "deflate", b"\x78\x9cnothing".to_vec(), 400),
        (chats, "br", b"plain".to_vec(), 400),
        (chats, "br", [BROTLI, b"more"].concat(), 400),
        (chats, "gzip", cut(&whole), 400),
        (chats, "deflate", cut(&zlib(chat)), 400),
        (chats, "zstd", cut(&whole_zstd), 400),
        (chats, "gzip, zstd", whole_zstd, 400),
        (chats, "gzip", Vec::new(), 400),
        (chats, "lzma", chat.to_vec(), 415),
        ("/v1/messages", "compress", chat.to_vec(), 415),
        ("/v1/responses", "gzip|aws-chunked", whole, 415),
        (chats, "br,br,br,br", chat.to_vec(), 415),
    ] {
        for piece in [None, Some(5)] {
            let seen = harness.refused(&packed(path, encoding, &body, piece)).await;
            let (given, message) = refusal(&seen);
            assert_eq!(given, status, "{encoding}: {message}");
            assert!(message.contains("gzip, deflate, br, zstd"), "{message}");
            assert!(message.contains(encoding.split(['|', ',']).next().unwrap()));
            let names = seen.header("accept-encoding");
            assert_eq!(names.as_deref(), Some("gzip, deflate, br, zstd"));
        }
    }
    let own = harness
        .refused(&packed("/v1/feedback", "gzip", &gzip(b"{}"), None))
        .await;
    assert_eq!(
        own.status(),
        503,
        "our own routes read them too: {}",
        own.text()
    );
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
        let request = packed("/v1/chat/completions", encoding, &bomb, None);
        let (status, message) = refusal(&harness.refused(&request).await);
        assert_eq!(status, 413, "{encoding}: {message}");
        assert!(message.contains("proxy.max_body, 1 MiB"), "{message}");
    }
    // Bytes that decompress to nothing are bounded too, and what fits is read.
    let nothing = packed("/v1/chat/completions", "gzip", &empty, Some(60_000));
    assert_eq!(harness.refused(&nothing).await.status(), 413);
    let fits = format!("{CHAT}{}", " ".repeat((1 << 20) - CHAT.len()));
    let request = packed("/v1/chat/completions", "gzip", &gzip(fits.as_bytes()), None);
    let (_, seen) = harness
        .exchange(&request, &json_reply(&completion("x")))
        .await;
    assert_eq!(seen.status(), 200);
    while harness.metrics.counts().body_bytes > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_chat_under_another_spelling_of_its_route_is_read() {
    let mut harness = before_chat_alone().await;
    let mut n_turns = 0;
    for path in [
        "/v1//chat/completions",
        "//v1/chat/completions",
        "/v1/chat/completions/",
        "/v1/chat/completions//?a=b",
        "/v1/v1/chat/completions",
        "/v1//v1/v1/chat/completions/",
        "/v1/./chat/completions",
        "/v1/chat%2Fcompletions",
        "/v1/chat/%63ompletions",
        "/v1/chat%252fcompletions",
        "/v1/chat\\completions",
        "/v1/chat%5Ccompletions",
        "/V1/Chat/Completions",
        "/v1/chat/completions;a=b",
        "/v1/chat/completions%20",
        "/v1/chat/completions%3Fa=b",
        "/v1/chat/completions/%2e",
        "http://localhost/v1//chat/completions",
    ] {
        let reply = json_reply(&completion("x"));
        let (exchange, seen) = harness.exchange(&post(path, "", CHAT), &reply).await;
        assert_eq!(seen.status(), 200, "{path}");
        let line = exchange.head.lines().next().unwrap().to_owned();
        let query = if path.contains('?') { "?a=b" } else { "" };
        assert_eq!(
            line,
            format!("POST /v1/chat/completions{query} HTTP/1.1"),
            "{path}"
        );
        assert!(exchange.body().contains("Answer in French."), "{path}");
        n_turns += 1;
    }
    for (path, body) in [
        ("/v1/v1/messages", MESSAGES),
        ("//v1/messages/", MESSAGES),
        ("/v1/MESSAGES?beta=true", MESSAGES),
        ("/v1//responses", RESPONSES),
        ("/v1/%72esponses/", RESPONSES),
    ] {
        let reply = json_reply(&completion("x"));
        let (exchange, seen) = harness.exchange(&post(path, "", body), &reply).await;
        assert_eq!(seen.status(), 200, "{path}");
        assert!(
            exchange.head.starts_with("POST /v1/chat/completions HTTP"),
            "{path}"
        );
        n_turns += 1;
    }
    assert_eq!(harness.log.wait(n_turns).await.len(), n_turns);
    for path in [
        "/v1//messages/count_tokens",
        "/v1/v1/messages/count_tokens/",
    ] {
        let counted = harness.refused(&post(path, "", MESSAGES)).await;
        assert!(counted.text().contains("input_tokens"), "{path}");
    }
    for (path, status) in [
        ("/v1//feedback", 503),
        ("/v1/feedback/", 503),
        ("/v1/V1/admin/train_step", 401),
        ("/v1//rollouts", 503),
        ("/v1//memory/search", 404),
    ] {
        let seen = harness.refused(&post(path, "", "{}")).await;
        assert_eq!(seen.status(), status, "{path}: {}", seen.text());
    }
    assert!(harness.metrics.passed().is_empty());
}

#[tokio::test]
async fn what_only_looks_like_a_chat_is_refused_and_not_passed_on() {
    let mut harness = before_chat_alone().await;
    for path in [
        "/v1/openai/chat/completions",
        "/v1/chat/completions/chat/completions",
        "/v1/x/..%2fchat/completions",
        "/v1/../v1/chat/completions",
        "/v1/%252e%252e/v1/chat/completions",
        "/v1/anthropic/v1/messages",
        "/v1/anthropic//messages/",
        "/v1/messages/messages",
        "/v1/messages/v1/messages/count_tokens",
        "/v1/api/Responses",
        "/v1/engines/x/chat;a/completions",
        "/chat/completions",
        "/v2/chat/completions",
    ] {
        let (status, message) = refusal(&harness.refused(&post(path, "", CHAT)).await);
        assert_eq!(status, 404, "{path}: {message}");
        assert!(message.contains("chats are POST /v1/"), "{path}: {message}");
    }
    for method in ["PUT", "PATCH", "post", "QUERY"] {
        let request = String::from_utf8(post_chat(CHAT)).unwrap();
        let request = request.replacen("POST", method, 1);
        assert_eq!(
            harness.refused(request.as_bytes()).await.status(),
            405,
            "{method}"
        );
    }
    assert!(harness.upstream.is_unasked());
    // Neither a list of stored chats, nor another API, is a chat.
    for (method, path, name) in [
        ("GET", "/v1/chat/completions?limit=1", "GET /v1/chat/.."),
        ("POST", "/v1/threads/t1/messages", "POST /v1/threads/.."),
        ("POST", "/v1/responses/r1/cancel", "POST /v1/responses/.."),
        ("POST", "/v1//embeddings/", "POST /v1//.."),
    ] {
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}");
        let request = request.replace("host: x", "host: localhost");
        let (exchange, seen) = harness
            .exchange(request.as_bytes(), &json_reply("{}"))
            .await;
        assert_eq!(seen.status(), 200);
        assert!(
            exchange.head.starts_with(&format!("{method} {path} ")),
            "{path}"
        );
        assert_eq!(harness.metrics.passed().get(name), Some(&1), "{name}");
    }
}

fn moved(status: u16, location: &str) -> String {
    format!(
        "HTTP/1.1 {status} Moved\r\nlocation: {location}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )
}

#[tokio::test]
async fn a_redirect_is_followed_on_the_same_server_with_method_and_body() {
    let mut harness = before_chat_alone().await;
    let server = format!("http://{}", harness.upstream.address);
    for (status, location, to) in [
        (307, "/v1/moved?a=b#c".to_owned(), "/v1/moved?a=b"),
        (308, format!("{server}/elsewhere"), "/elsewhere"),
        (307, "completions/".to_owned(), "/v1/chat/completions/"),
        (308, "../x".to_owned(), "/v1/x"),
        (307, format!("//{}/y", harness.upstream.address), "/y"),
    ] {
        for (path, body) in [("/v1/chat/completions", CHAT), ("/v1/messages", MESSAGES)] {
            let (mut client, mut first) = harness.ask(&post(path, "", body)).await;
            first.send(moved(status, &location).as_bytes()).await;
            let mut second = harness.upstream.next().await;
            assert!(
                second.head.starts_with(&format!("POST {to} HTTP")),
                "{}",
                second.head
            );
            assert_eq!(second.body, first.body);
            let agent = second.header("user-agent").unwrap();
            assert!(agent.starts_with("metaclaw/"), "{agent}");
            assert_eq!(
                second.header("authorization"),
                first.header("authorization")
            );
            second.say("x").await;
            assert_eq!(client.read().await.status(), 200, "{location}");
        }
    }
    // A list of models has no body, so each of them keeps it as it is.
    for status in [301, 302, 303, 307, 308] {
        let get = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let (mut client, mut first) = harness.ask(get).await;
        assert_eq!(first.header("content-length"), None);
        assert_eq!(first.header("transfer-encoding"), None);
        first.send(moved(status, "/v1/models/").as_bytes()).await;
        let mut second = harness.upstream.next().await;
        assert!(
            second.head.starts_with("GET /v1/models/ HTTP"),
            "{}",
            second.head
        );
        second.answer("{}").await;
        assert_eq!(client.read().await.status(), 200);
    }
}

#[tokio::test]
async fn any_other_redirect_is_an_error_that_names_the_new_address() {
    let mut harness = before_chat_alone().await;
    let server = format!("http://{}", harness.upstream.address);
    let host = server.replace("http://", "http://user:word@");
    for (status, location, named) in [
        (301, "/v1/moved".to_owned(), "/v1/moved"),
        (302, format!("{server}/moved"), "/moved"),
        (303, "/v1/moved".to_owned(), "/v1/moved"),
        (300, "/v1/moved".to_owned(), "/v1/moved"),
        (304, String::new(), ""),
        (
            307,
            "https://elsewhere.example/v1?sig=secret".to_owned(),
            "https://elsewhere.example/v1",
        ),
        (308, server.replace("http:", "https:"), "https://"),
        (
            307,
            "http://127.0.0.1:1/v1".to_owned(),
            "http://127.0.0.1:1/v1",
        ),
        (
            307,
            "//elsewhere.example/v1".to_owned(),
            "//elsewhere.example/v1",
        ),
        (308, format!("{host}/v1"), "/v1"),
        (307, "ftp:x".to_owned(), "ftp:x"),
    ] {
        for (path, body) in [
            ("/v1/chat/completions", CHAT),
            ("/v1/messages", MESSAGES),
            ("/v1/responses", RESPONSES),
        ] {
            let (mut client, mut exchange) = harness.ask(&post(path, "", body)).await;
            exchange.send(moved(status, &location).as_bytes()).await;
            let seen = client.read().await;
            let (given, message) = refusal(&seen);
            assert_eq!(
                (given, seen.header("location")),
                (502, None),
                "{status} {location}"
            );
            assert!(
                message.contains("redirects") && message.contains(named),
                "{message}"
            );
            assert!(!message.contains("secret"), "{message}");
            let is_messages = seen.text().starts_with(r#"{"type":"error""#);
            assert_eq!(is_messages, path == "/v1/messages");
        }
    }
    assert!(harness.upstream.is_unasked(), "none was followed");
    // One that never ends is given up.
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    for n in 0..6 {
        exchange.send(moved(307, &format!("/{n}")).as_bytes()).await;
        if n < 5 {
            exchange = harness.upstream.next().await;
        }
    }
    assert_eq!(client.read().await.status(), 502);
    assert!(harness.upstream.is_unasked());
    // What passes unread gets what came, and so does a client that has the list already.
    for (method, path, status) in [
        ("POST", "/v1/embeddings", 307),
        ("GET", "/v1/files/f/content", 302),
        ("GET", "/v1/models", 304),
    ] {
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
        let (_, seen) = harness
            .exchange(request.as_bytes(), &moved(status, "/x"))
            .await;
        assert_eq!(seen.status(), status, "{path}");
    }
}

async fn listed(dialect: Provider, key: Option<&str>, path: &str, headers: &str) -> Exchange {
    let mut set_up = SetUp::default();
    let keys = key.into_iter().map(Into::into).collect();
    set_up.config.upstreams.insert(
        "llm".into(),
        UpstreamConfig {
            dialect,
            keys,
            ..UpstreamConfig::default()
        },
    );
    let mut harness = Harness::with(set_up).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    harness
        .exchange(request.as_bytes(), &json_reply("{}"))
        .await
        .0
}

#[tokio::test]
async fn lists_of_models_have_the_headers_of_their_servers_api() {
    use Provider::{Anthropic, Azure, Openai};
    let bearer = "authorization: Bearer own\r\n";
    let claude = "x-api-key: own\r\nanthropic-version: 2024-01-01\r\n";
    for path in [
        "/v1/models",
        "/v1/models/",
        "/v1/models?limit=5",
        "/v1/models/claude-x",
    ] {
        for (dialect, key, sent, wanted) in [
            // The caller's own key.
            (
                Anthropic,
                None,
                bearer,
                [None, Some("own"), Some("2023-06-01")],
            ),
            (
                Anthropic,
                None,
                claude,
                [None, Some("own"), Some("2024-01-01")],
            ),
            (Openai, None, bearer, [Some("Bearer own"), None, None]),
            (
                Openai,
                None,
                claude,
                [Some("Bearer own"), None, Some("2024-01-01")],
            ),
            (Azure, None, "api-key: own\r\n", [None, None, None]),
            // A configured key.
            (
                Anthropic,
                Some("k"),
                bearer,
                [None, Some("k"), Some("2023-06-01")],
            ),
            (
                Anthropic,
                Some("k"),
                "",
                [None, Some("k"), Some("2023-06-01")],
            ),
            (
                Openai,
                Some("k"),
                claude,
                [Some("Bearer k"), None, Some("2024-01-01")],
            ),
        ] {
            let exchange = listed(dialect, key, path, sent).await;
            let names = ["authorization", "x-api-key", "anthropic-version"];
            let given = names.map(|name| exchange.header(name));
            assert_eq!(
                given.each_ref().map(Option::as_deref),
                wanted,
                "{dialect:?} {key:?} {path} {sent}"
            );
            assert_eq!(
                exchange.header("accept-encoding"),
                None,
                "nothing else is added"
            );
        }
    }
    let gateway_token = "authorization: Bearer own\r\nanthropic-version: 2023-06-01\r\n";
    let exchange = listed(Anthropic, None, "/v1/models", gateway_token).await;
    assert_eq!(
        exchange.header("authorization").as_deref(),
        Some("Bearer own")
    );
}

/// Makes a reply with an encoding, in pieces of so many bytes.
fn encoded(kind: &str, encoding: &str, body: &[u8], piece: usize) -> Vec<u8> {
    let mut reply = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: {encoding}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for piece in body.chunks(piece) {
        reply.extend(format!("{:x}\r\n", piece.len()).bytes());
        reply.extend([piece, b"\r\n"].concat());
    }
    reply.extend(b"0\r\n\r\n");
    reply
}

#[tokio::test]
async fn a_compressed_reply_that_was_not_asked_for_is_translated() {
    let mut harness = before_chat_alone().await;
    let whole = completion("bonjour");
    let stream = format!("{}{}data: [DONE]\n\n", delta("bon"), delta("jour"));
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
                let (mut client, mut exchange) = harness.ask(&post("/v1/messages", "", body)).await;
                let reply = encoded(kind, encoding, &pack(reply.as_bytes()), piece);
                exchange.send(&reply).await;
                let seen = client.read().await;
                assert_eq!((seen.status(), seen.is_whole), (200, true), "{encoding}");
                assert_eq!(seen.header("content-encoding"), None);
                let text = seen.text();
                let is_said = text.contains("bonjour") || text.contains(r#""bon""#);
                assert!(is_said, "{encoding} {kind}: {text}");
                n_turns += 1;
            }
        }
    }
    let turns = harness.log.wait(n_turns).await;
    assert!(
        turns
            .iter()
            .all(|turn| turn.reply.as_ref().unwrap().text() == "bonjour")
    );
    for (encoding, body, why) in [
        ("x-own", &b"?"[..], "x-own"),
        ("gzip", b"not gzip at all", "gzip header"),
    ] {
        let (mut client, mut exchange) = harness.ask(&post("/v1/messages", "", MESSAGES)).await;
        exchange
            .send(&encoded("application/json", encoding, body, 9))
            .await;
        let (status, message) = refusal(&client.read().await);
        assert_eq!(status, 502, "{message}");
        assert!(message.contains(why), "{message}");
    }
}

#[tokio::test]
async fn an_error_that_came_compressed_is_understood() {
    let mut set_up = SetUp::default();
    let llm = set_up.config.upstreams.entry("llm".into()).or_default();
    llm.keys = vec!["k1".into(), "k2".into()];
    set_up.config.routing.fail_over = vec![crate::Failure::Billing];
    let mut harness = Harness::with(set_up).await;
    let (mut client, mut first) = harness.ask(&post_chat(CHAT)).await;
    let error = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    let reply = encoded("application/json", "gzip", &gzip(error.as_bytes()), 4_096);
    let reply = String::from_utf8_lossy(&reply[..15])
        .replace("200 OK", "429 No")
        .into_bytes()
        .into_iter()
        .chain(reply[15..].iter().copied());
    first.send(&reply.collect::<Vec<u8>>()).await;
    let mut second = harness.upstream.next().await;
    assert_eq!(second.header("authorization").as_deref(), Some("Bearer k2"));
    second.say("x").await;
    assert_eq!(client.read().await.status(), 200);
}

#[tokio::test]
async fn streams_of_our_own_are_not_held_back() {
    let mut harness = before_chat_alone().await;
    let streamed = |body: &str| body.replacen('{', r#"{"stream":true,"#, 1);
    let events = format!(
        "{STREAM}{}{}0\r\n\r\n",
        chunk(&delta("x")),
        chunk("data: [DONE]\n\n")
    );
    let whole = json_reply(&completion("x"));
    let headers = |seen: &Seen| {
        ["x-accel-buffering", "cache-control"].map(|name| seen.header(name).unwrap_or_default())
    };
    for (path, body) in [("/v1/messages", MESSAGES), ("/v1/responses", RESPONSES)] {
        for reply in [&events, &whole] {
            let (_, seen) = harness
                .exchange(&post(path, "", &streamed(body)), reply)
                .await;
            assert_eq!(headers(&seen), ["no", "no-cache"], "{path}");
        }
        let (_, seen) = harness.exchange(&post(path, "", body), &whole).await;
        assert_eq!(headers(&seen), ["", ""], "{path} whole");
    }
    let (_, seen) = harness.exchange(&post_chat(CHAT), &events).await;
    assert_eq!(headers(&seen), ["", ""], "relayed as it came");
}

#[tokio::test]
async fn a_reply_may_have_a_thousand_fields() {
    let mut harness = before_chat_alone().await;
    for (path, body) in [("/v1/chat/completions", CHAT), ("/v1/messages", MESSAGES)] {
        for n in [120, 1_000] {
            let many = "x-field: 1\r\n".repeat(n);
            let reply = json_reply(&completion("x")).replacen(
                "connection",
                &format!("{many}connection"),
                1,
            );
            let (_, seen) = harness.exchange(&post(path, "", body), &reply).await;
            assert_eq!(seen.status(), 200, "{path} {n}");
            let relayed = seen
                .head
                .lines()
                .filter(|line| line.starts_with("x-field"))
                .count();
            assert_eq!(relayed, n, "{path}");
        }
    }
}
