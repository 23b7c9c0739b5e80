//! Tests that no conversation passes without being read, neither under another spelling of its route nor by a redirect.
//! Other tests cover the requests that do pass, and are counted.

use metaclaw_dialects::Api;

use super::harness::{
    CHAT, Exchange, Harness, STREAM, Seen, SetUp, chunk, completion, delta, json_reply, post,
    post_chat,
};
use crate::{Provider, UpstreamConfig};
const WISH: (&str, &str) = ("_shared/WISHES.md", "- Answer in French.\n");
/// A chat with Messages and a request with Responses.
pub(super) const MESSAGES: &str =
    r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
pub(super) const RESPONSES: &str = r#"{"model":"m","input":"hi"}"#;

pub(super) async fn before_chat_alone() -> Harness {
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
pub(super) fn refusal(seen: &Seen) -> (u16, String) {
    let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    let message = body["error"]["message"].as_str().unwrap();
    (seen.status(), message.to_owned())
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
        "/api/chat",
        "/v1/api/chat",
        "/v1/api/generate",
        "/v1/v2/chat",
        "/v1/v1beta/models/m:streamGenerateContent",
        "/v1/models/m%3AgenerateContent",
        "/v1/model/m/converse-stream",
        "/v1/text/chatcompletion_v2",
        "/v1/agents/completions",
        "/v1/chat",
        "/v1/chat/completion",
        "/v1/chat/completions/stream",
        "/v1/chat/completions.json",
        "/v1/chat/completions/..;/completions",
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
        (
            "POST",
            "/v1/chat/completions/chatcmpl-1",
            "POST /v1/chat/..",
        ),
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

#[tokio::test]
async fn a_byte_order_mark_before_the_json_is_no_part_of_it() {
    let mut harness = before_chat_alone().await;
    for (path, body) in [
        ("/v1/chat/completions", CHAT),
        ("/v1/messages", MESSAGES),
        ("/v1/responses", RESPONSES),
    ] {
        let request = post(path, "", &format!("\u{feff}{body}"));
        let reply = json_reply(&completion("x"));
        let (exchange, seen) = harness.exchange(&request, &reply).await;
        assert_eq!(seen.status(), 200, "{path}: {}", seen.text());
        assert!(exchange.body().starts_with('{'), "{path}");
        assert!(exchange.body().contains("Answer in French."), "{path}");
    }
    let request = post(
        "/v1/chat/completions",
        "",
        &format!("{{\u{feff}{}", &CHAT[1..]),
    );
    assert_eq!(harness.refused(&request).await.status(), 400);
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
    let [moved_here, with_tls, with_user] = [
        format!("{server}/moved"),
        server.replace("http:", "https:"),
        format!("{host}/v1"),
    ];
    for (status, location, named) in [
        (301, "/v1/moved", "/v1/moved"),
        (302, &moved_here, "/moved"),
        (303, "/v1/moved", "/v1/moved"),
        (300, "/v1/moved", "/v1/moved"),
        (304, "", ""),
        (
            307,
            "https://elsewhere.example/v1?sig=secret",
            "https://elsewhere.example/v1",
        ),
        (308, &with_tls, "https://"),
        (307, "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1"),
        (307, "//elsewhere.example/v1", "//elsewhere.example/v1"),
        (308, &with_user, "/v1"),
        (307, "ftp:x", "ftp:x"),
    ] {
        for (path, body) in [
            ("/v1/chat/completions", CHAT),
            ("/v1/messages", MESSAGES),
            ("/v1/responses", RESPONSES),
        ] {
            let (mut client, mut exchange) = harness.ask(&post(path, "", body)).await;
            exchange.send(moved(status, location).as_bytes()).await;
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
