//! Tests of web pages of other sites, which any browser on this machine may show.

use super::harness::{CHAT, Harness, SetUp, completion, json_reply, post};

fn from_page(origin: &str, kind: &str) -> Vec<u8> {
    let headers = format!("origin: {origin}\r\ncontent-type: {kind}\r\n");
    post("/v1/chat/completions", &headers, CHAT)
}

#[tokio::test]
async fn a_page_of_another_site_gets_nothing_and_nothing_is_asked_for_it() {
    let mut harness = Harness::start().await;
    // A browser sends such a POST without asking first (a "simple" request in CORS), so the proxy must refuse it.
    let seen = harness
        .refused(&from_page("https://evil.example", "text/plain"))
        .await;
    assert_eq!(seen.status(), 403);
    assert_eq!(seen.header("access-control-allow-origin"), None);
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"web pages of \"https://evil.example\" may not speak to this proxy: if they should, add it to proxy.allow_origins (in quotes), or let them show a key of this proxy (none is set: proxy.api_key)","type":"permission_error","param":null,"code":"foreign_origin"}}"#);
    let asks = "OPTIONS /v1/messages HTTP/1.1\r\nhost: localhost\r\norigin: null\r\naccess-control-request-method: POST\r\n\r\n";
    assert_eq!(harness.refused(asks.as_bytes()).await.status(), 403);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn a_page_that_may_ask_is_told_so_and_reads_the_answer() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.allow_origins = vec!["https://ui.example".into()];
    let mut harness = Harness::with(set_up).await;
    let asks = "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\norigin: https://ui.example\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization, content-type\r\naccess-control-request-private-network: true\r\nconnection: close\r\n\r\n";
    let seen = harness.refused(asks.as_bytes()).await;
    let header = |name| seen.header(name).unwrap();
    assert_eq!(seen.status(), 204);
    assert_eq!(header("access-control-allow-origin"), "https://ui.example");
    assert_eq!(header("access-control-allow-methods"), "POST");
    assert_eq!(
        header("access-control-allow-headers"),
        "authorization, content-type"
    );
    assert_eq!(header("access-control-allow-private-network"), "true");
    let request = from_page("https://ui.example", "application/json");
    let (_, seen) = harness
        .exchange(&request, &json_reply(&completion("x")))
        .await;
    assert_eq!(
        seen.header("access-control-allow-origin").as_deref(),
        Some("https://ui.example")
    );
}

#[tokio::test]
async fn clients_that_are_no_browsers_are_not_taken_for_one() {
    let mut harness = Harness::start().await;
    let openclaw = "sec-fetch-mode: cors\r\naccept-language: *\r\nanthropic-dangerous-direct-browser-access: true\r\n";
    let exchange = harness.chat(openclaw, CHAT, "x").await;
    assert_eq!(exchange.header("sec-fetch-mode").as_deref(), Some("cors"));
    let dangerous = "anthropic-dangerous-direct-browser-access";
    assert_eq!(exchange.header(dangerous).as_deref(), Some("true"));
}

#[tokio::test]
async fn a_site_whose_name_was_made_to_mean_this_machine_reads_nothing() {
    let get = |host: &str| format!("GET /v1/models HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let mut harness = Harness::start().await;
    // In this case the page has the same origin as the proxy: the browser sends no `Origin`, and lets it read.
    let seen = harness.refused(get("evil.example:30000").as_bytes()).await;
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"this proxy was asked for as \"evil.example\", which may be any site's name, and no key is set: ask for it as 127.0.0.1, set proxy.api_key, or add http://evil.example to proxy.allow_origins","type":"permission_error","param":null,"code":"foreign_host"}}"#);
    assert_eq!(seen.status(), 403);
    assert!(harness.upstream.is_unasked());
    for host in ["127.0.0.1:1", "[::1]:1", "localhost", "app.localhost:1"] {
        let (_, seen) = harness
            .exchange(get(host).as_bytes(), &json_reply("{}"))
            .await;
        assert_eq!(seen.status(), 200, "{host}");
    }
}

#[tokio::test]
async fn any_page_that_shows_the_right_key_is_answered_and_no_other() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.api_key = Some(crate::Secret::from("right-key"));
    let mut harness = Harness::with(set_up).await;
    for origin in ["null", "https://ui.example", "app://obsidian.md"] {
        // A browser asks first, without the key.
        let asks = |names: &str| {
            format!(
                "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\naccess-control-request-method: POST\r\naccess-control-request-headers: {names}\r\nconnection: close\r\n\r\n"
            )
        };
        let seen = harness
            .refused(asks("content-type, Authorization").as_bytes())
            .await;
        let allowed = seen.header("access-control-allow-origin");
        assert_eq!((seen.status(), allowed.as_deref()), (204, Some(origin)));
        let seen = harness.refused(asks("content-type").as_bytes()).await;
        assert_eq!(seen.status(), 403);
        let with = |key: &str| {
            let headers = format!("origin: {origin}\r\nauthorization: Bearer {key}\r\n");
            post("/v1/chat/completions", &headers, CHAT)
        };
        let (_, seen) = harness
            .exchange(&with("right-key"), &json_reply(&completion("x")))
            .await;
        let allowed = seen.header("access-control-allow-origin");
        assert_eq!((seen.status(), allowed.as_deref()), (200, Some(origin)));
        let seen = harness.refused(&with("wrong-key")).await;
        assert_eq!(seen.status(), 403);
        assert_eq!(seen.header("access-control-allow-origin"), None);
    }
}

#[tokio::test]
async fn the_origin_null_can_be_named() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.allow_origins = vec!["null".into()];
    let mut harness = Harness::with(set_up).await;
    let request = from_page("null", "application/json");
    let (_, seen) = harness
        .exchange(&request, &json_reply(&completion("x")))
        .await;
    let allowed = seen.header("access-control-allow-origin");
    assert_eq!((seen.status(), allowed.as_deref()), (200, Some("null")));
}
