//! Tests that no conversation passes without being read, neither under another spelling of its route nor by a redirect.
//! Other tests cover the requests that do pass, and are counted.

use metaclaw_dialects::Api;
use metaclaw_test_kit::has;

use super::harness::{
    CHAT, CHATS, DONE, Exchange, Harness, MESSAGES, RESPONSES, Seen, SetUp, completion, delta, get,
    json_reply, post, post_chat, reply, request, says, streamed,
};
use crate::{Provider, UpstreamConfig};

const WISH: (&str, &str) = ("_shared/WISHES.md", "- Answer in French.\n");

/// The routes of the three APIs, each with a request.
const ASKED: [(&str, &str); 3] = [
    (CHATS, CHAT),
    ("/v1/messages", MESSAGES),
    ("/v1/responses", RESPONSES),
];

pub(super) async fn before_chat_alone() -> Harness {
    let mut set_up = SetUp::taught(&[WISH]);
    set_up.llm().speaks = Some(vec![Api::Chat]);
    set_up.llm().keys = vec!["sk-up".into()];
    Harness::with(set_up).await
}

#[tokio::test]
async fn a_chat_under_another_spelling_of_its_route_is_read() {
    let mut harness = before_chat_alone().await;
    let spellings = include_str!("data/spellings.txt").lines();
    for line in spellings.clone() {
        let (api, path) = line.split_once(' ').unwrap();
        let body = match api {
            "messages" => MESSAGES,
            "responses" => RESPONSES,
            _ => CHAT,
        };
        let (exchange, seen) = harness.exchange(&post(path, "", body), &says("x")).await;
        assert_eq!(seen.status(), 200, "{path}");
        let query = if path.contains("?a") { "?a=b" } else { "" };
        let line = format!("POST /v1/chat/completions{query} HTTP/1.1");
        assert_eq!(exchange.line(), line, "{path}");
        has(exchange.body(), ["Answer in French."]);
    }
    let n_turns = spellings.count();
    assert_eq!(harness.log.wait(n_turns).await.len(), n_turns);
    for path in [
        "/v1//messages/count_tokens",
        "/v1/v1/messages/count_tokens/",
    ] {
        let counted = harness.refused(&post(path, "", MESSAGES)).await;
        has(counted.text(), ["input_tokens"]);
    }
    for (path, status) in [
        ("/v1//feedback", 503),
        ("/v1/feedback/", 503),
        ("/v1/V1/admin/train_step", 401),
        ("/v1//rollouts", 503),
        ("/v1//memory/search", 503),
    ] {
        let seen = harness.refused(&post(path, "", "{}")).await;
        assert_eq!(seen.status(), status, "{path}: {}", seen.text());
    }
    assert!(harness.metrics.passed().is_empty());
}

#[tokio::test]
async fn what_only_looks_like_a_chat_is_refused_and_not_passed_on() {
    let mut harness = before_chat_alone().await;
    for path in include_str!("data/lookalikes.txt").lines() {
        let (status, message) = harness.refused(&post(path, "", CHAT)).await.refusal();
        assert_eq!(status, 404, "{path}: {message}");
        has(message, ["chats are POST /v1/"]);
    }
    for method in ["PUT", "PATCH", "post", "QUERY"] {
        let seen = harness.refused(&request(method, CHATS, "", CHAT)).await;
        assert_eq!(seen.status(), 405, "{method}");
    }
    assert!(harness.upstream.is_unasked());
    // Neither a list of stored chats, nor another API, is a chat.
    for (line, name) in [
        ("GET /v1/chat/completions?limit=1", "GET /v1/chat/.."),
        ("POST /v1/chat/completions/chatcmpl-1", "POST /v1/chat/.."),
        ("POST /v1/threads/t1/messages", "POST /v1/threads/.."),
        ("POST /v1/responses/r1/cancel", "POST /v1/responses/.."),
        ("POST /v1//embeddings/", "POST /v1//.."),
    ] {
        let (method, path) = line.split_once(' ').unwrap();
        let request = request(method, path, "", "{}");
        let (exchange, seen) = harness.exchange(&request, &json_reply("{}")).await;
        assert_eq!(seen.status(), 200);
        assert_eq!(exchange.line(), format!("{line} HTTP/1.1"));
        assert_eq!(harness.metrics.passed().get(name), Some(&1), "{name}");
    }
}

#[tokio::test]
async fn a_byte_order_mark_before_the_json_is_no_part_of_it() {
    let mut harness = before_chat_alone().await;
    for (path, body) in ASKED {
        let request = post(path, "", &format!("\u{feff}{body}"));
        let (exchange, seen) = harness.exchange(&request, &says("x")).await;
        assert_eq!(seen.status(), 200, "{path}: {}", seen.text());
        assert!(exchange.body().starts_with('{'), "{path}");
        has(exchange.body(), ["Answer in French."]);
    }
    let within = post_chat(&format!("{{\u{feff}{}", &CHAT[1..]));
    assert_eq!(harness.refused(&within).await.status(), 400);
}

fn moved(status: u16, location: &str) -> String {
    let location = format!("location: {location}\r\n");
    reply(&format!("{status} Moved"), &location, "")
}

#[tokio::test]
async fn a_redirect_is_followed_on_the_same_server_with_method_and_body() {
    let mut harness = before_chat_alone().await;
    let address = harness.upstream.address;
    for (status, location, to) in [
        (307, "/v1/moved?a=b#c", "/v1/moved?a=b"),
        (308, &format!("http://{address}/elsewhere"), "/elsewhere"),
        (307, "completions/", "/v1/chat/completions/"),
        (308, "../x", "/v1/x"),
        (307, &format!("//{address}/y"), "/y"),
    ] {
        for (path, body) in &ASKED[..2] {
            let mut client = harness.sent(&post(path, "", body)).await;
            let first = harness.upstream.answer(&moved(status, location)).await;
            let second = harness.upstream.answer(&says("x")).await;
            assert_eq!(second.line(), format!("POST {to} HTTP/1.1"));
            assert_eq!(second.body, first.body);
            let agent = second.header("user-agent").unwrap();
            assert!(agent.starts_with("metaclaw/"), "{agent}");
            let key = |exchange: &Exchange| exchange.header("authorization").map(str::to_owned);
            assert_eq!(key(&second), key(&first));
            assert_eq!(client.read().await.status(), 200, "{location}");
        }
    }
    // A list of models has no body, so each of them keeps it as it is.
    for status in [301, 302, 303, 307, 308] {
        let mut client = harness.sent(&get("/v1/models", "")).await;
        let first = harness.upstream.answer(&moved(status, "/v1/models/")).await;
        assert_eq!(first.header("content-length"), None);
        assert_eq!(first.header("transfer-encoding"), None);
        let second = harness.upstream.answer(&json_reply("{}")).await;
        assert_eq!(second.line(), "GET /v1/models/ HTTP/1.1");
        assert_eq!(client.read().await.status(), 200);
    }
}

#[tokio::test]
async fn any_other_redirect_is_an_error_that_names_the_new_address() {
    let mut harness = before_chat_alone().await;
    let address = harness.upstream.address;
    for (status, location, named) in [
        (301, "/v1/moved", "/v1/moved"),
        (302, &format!("http://{address}/moved"), "/moved"),
        (303, "/v1/moved", "/v1/moved"),
        (300, "/v1/moved", "/v1/moved"),
        (304, "", ""),
        (
            307,
            "https://e.example/v1?sig=secret",
            "https://e.example/v1",
        ),
        (308, &format!("https://{address}"), "https://"),
        (307, "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1"),
        (307, "//elsewhere.example/v1", "//elsewhere.example/v1"),
        (308, &format!("http://user:word@{address}/v1"), "/v1"),
        (307, "ftp:x", "ftp:x"),
    ] {
        for (path, body) in ASKED {
            let request = post(path, "", body);
            let (_, seen) = harness.exchange(&request, &moved(status, location)).await;
            let (given, message) = seen.refusal();
            assert_eq!(given, 502, "{status} {location}");
            assert_eq!(seen.header("location"), None);
            has(&message, ["redirects", named]);
            assert!(!message.contains("secret"), "{message}");
            let is_messages = seen.text().starts_with(r#"{"type":"error""#);
            assert_eq!(is_messages, path == "/v1/messages");
        }
    }
    assert!(harness.upstream.is_unasked(), "none was followed");
    // One that never ends is given up.
    let mut client = harness.sent(&post_chat(CHAT)).await;
    for n in 0..6 {
        harness.upstream.answer(&moved(307, &format!("/{n}"))).await;
    }
    assert_eq!(client.read().await.status(), 502);
    assert!(harness.upstream.is_unasked());
    // What passes unread gets what came, and so does a client that has the list already.
    for (method, path, status) in [
        ("POST", "/v1/embeddings", 307),
        ("GET", "/v1/files/f/content", 302),
        ("GET", "/v1/models", 304),
    ] {
        let request = request(method, path, "", "");
        let (_, seen) = harness.exchange(&request, &moved(status, "/x")).await;
        assert_eq!(seen.status(), status, "{path}");
    }
}

async fn listed(dialect: Provider, key: Option<&str>, path: &str, headers: &str) -> Exchange {
    let mut harness = Harness::before(UpstreamConfig {
        dialect,
        keys: key.into_iter().map(Into::into).collect(),
        ..UpstreamConfig::default()
    })
    .await;
    let request = get(path, headers);
    harness.exchange(&request, &json_reply("{}")).await.0
}

#[tokio::test]
async fn lists_of_models_have_the_headers_of_their_servers_api() {
    use Provider::{Anthropic, Azure, Openai};
    let bearer = "authorization: Bearer own\r\n";
    let claude = "x-api-key: own\r\nanthropic-version: 2024-01-01\r\n";
    let (own, k) = (Some("own"), Some("k"));
    let (ours, theirs) = (Some("2023-06-01"), Some("2024-01-01"));
    for path in [
        "/v1/models",
        "/v1/models/",
        "/v1/models?limit=5",
        "/v1/models/claude-x",
    ] {
        for (dialect, key, sent, wanted) in [
            // The caller's own key.
            (Anthropic, None, bearer, [None, own, ours]),
            (Anthropic, None, claude, [None, own, theirs]),
            (Openai, None, bearer, [Some("Bearer own"), None, None]),
            (Openai, None, claude, [Some("Bearer own"), None, theirs]),
            (Azure, None, "api-key: own\r\n", [None, None, None]),
            // A configured key.
            (Anthropic, k, bearer, [None, k, ours]),
            (Anthropic, k, "", [None, k, ours]),
            (Openai, k, claude, [Some("Bearer k"), None, theirs]),
        ] {
            let exchange = listed(dialect, key, path, sent).await;
            let names = ["authorization", "x-api-key", "anthropic-version"];
            let given = names.map(|name| exchange.header(name));
            assert_eq!(given, wanted, "{dialect:?} {key:?} {path} {sent}");
            let added = exchange.header("accept-encoding");
            assert_eq!(added, None, "nothing else is added");
        }
    }
    let gateway_token = "authorization: Bearer own\r\nanthropic-version: 2023-06-01\r\n";
    let exchange = listed(Anthropic, None, "/v1/models", gateway_token).await;
    assert_eq!(exchange.header("authorization"), Some("Bearer own"));
}

#[tokio::test]
async fn streams_of_our_own_are_not_held_back() {
    let mut harness = before_chat_alone().await;
    let events = streamed(&format!("{}{DONE}", delta("x")));
    let headers = |seen: &Seen| {
        ["x-accel-buffering", "cache-control"]
            .map(|name| seen.header(name).unwrap_or_default().to_owned())
    };
    for (path, body) in &ASKED[1..] {
        let stream = post(path, "", &body.replacen('{', r#"{"stream":true,"#, 1));
        for reply in [&events, &says("x")] {
            let (_, seen) = harness.exchange(&stream, reply).await;
            assert_eq!(headers(&seen), ["no", "no-cache"], "{path}");
        }
        let (_, seen) = harness.exchange(&post(path, "", body), &says("x")).await;
        assert_eq!(headers(&seen), ["", ""], "{path} whole");
    }
    let (_, seen) = harness.exchange(&post_chat(CHAT), &events).await;
    assert_eq!(headers(&seen), ["", ""], "relayed as it came");
}

#[tokio::test]
async fn a_reply_may_have_a_thousand_fields() {
    let mut harness = before_chat_alone().await;
    for (path, body) in &ASKED[..2] {
        for n in [120, 1_000] {
            let many = reply("200 OK", &"x-field: 1\r\n".repeat(n), &completion("x"));
            let (_, seen) = harness.exchange(&post(path, "", body), &many).await;
            assert_eq!(seen.status(), 200, "{path} {n}");
            assert_eq!(seen.head.matches("\r\nx-field").count(), n, "{path}");
        }
    }
}
