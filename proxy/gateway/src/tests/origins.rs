//! Tests of web pages of other sites, which any browser on this machine may show.

use super::harness::{CHAT, CHATS, Harness, SetUp, bare, json_reply, post, says};

/// The header that lets a page read an answer, and a part of a browser's question for it.
const ALLOWED: &str = "access-control-allow-origin";
const ASKS_TO_POST: &str = "access-control-request-method: POST\r\n";

fn from_page(origin: &str, kind: &str) -> Vec<u8> {
    let headers = format!("origin: {origin}\r\ncontent-type: {kind}\r\n");
    post(CHATS, &headers, CHAT)
}

#[tokio::test]
async fn a_page_of_another_site_gets_nothing_and_nothing_is_asked_for_it() {
    let mut harness = Harness::start().await;
    // A browser sends such a POST without asking first (a "simple" request in CORS), so the proxy must refuse it.
    let evil = from_page("https://evil.example", "text/plain");
    let seen = harness.refused(&evil).await;
    assert_eq!(seen.status(), 403);
    assert_eq!(seen.header(ALLOWED), None);
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"web pages of \"https://evil.example\" may not speak to this proxy: if they should, add it to proxy.allow_origins (in quotes), or let them show a key of this proxy (none is set: proxy.api_key)","type":"permission_error","param":null,"code":"foreign_origin"}}"#);
    let asks = "origin: null\r\naccess-control-request-method: POST\r\n";
    let asks = bare("OPTIONS", "/v1/messages", asks);
    assert_eq!(harness.refused(&asks).await.status(), 403);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn a_page_that_may_ask_is_told_so_and_reads_the_answer() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.allow_origins = vec!["https://ui.example".into()];
    let mut harness = Harness::with(set_up).await;
    let asks = "origin: https://ui.example\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization, content-type\r\naccess-control-request-private-network: true\r\nconnection: close\r\n";
    let seen = harness.refused(&bare("OPTIONS", CHATS, asks)).await;
    assert_eq!(seen.status(), 204);
    for (name, value) in [
        ("origin", "https://ui.example"),
        ("methods", "POST"),
        ("headers", "authorization, content-type"),
        ("private-network", "true"),
    ] {
        let name = format!("access-control-allow-{name}");
        assert_eq!(seen.header(&name), Some(value), "{name}");
    }
    let request = from_page("https://ui.example", "application/json");
    let (_, seen) = harness.exchange(&request, &says("x")).await;
    assert_eq!(seen.header(ALLOWED), Some("https://ui.example"));
}

#[tokio::test]
async fn clients_that_are_no_browsers_are_not_taken_for_one() {
    let mut harness = Harness::start().await;
    let openclaw = "sec-fetch-mode: cors\r\naccept-language: *\r\nanthropic-dangerous-direct-browser-access: true\r\n";
    let exchange = harness.chat(openclaw, CHAT, "x").await;
    assert_eq!(exchange.header("sec-fetch-mode"), Some("cors"));
    let dangerous = "anthropic-dangerous-direct-browser-access";
    assert_eq!(exchange.header(dangerous), Some("true"));
}

#[tokio::test]
async fn a_site_whose_name_was_made_to_mean_this_machine_reads_nothing() {
    let get = |host: &str| format!("GET /v1/models HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let mut harness = Harness::start().await;
    // In this case the page has the same origin as the proxy: the browser sends no `Origin`, and lets it read.
    let seen = harness.refused(&get("evil.example:30000")).await;
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"this proxy was asked for as \"evil.example\", which may be any site's name, and no key is set: ask for it as 127.0.0.1, set proxy.api_key, or add http://evil.example to proxy.allow_origins","type":"permission_error","param":null,"code":"foreign_host"}}"#);
    assert_eq!(seen.status(), 403);
    assert!(harness.upstream.is_unasked());
    for host in ["127.0.0.1:1", "[::1]:1", "localhost", "app.localhost:1"] {
        let (_, seen) = harness.exchange(&get(host), &json_reply("{}")).await;
        assert_eq!(seen.status(), 200, "{host}");
    }
}

#[tokio::test]
async fn any_page_that_shows_the_right_key_is_answered_and_no_other() {
    let mut harness = Harness::with(SetUp::with_key("right-key")).await;
    for origin in ["null", "https://ui.example", "app://obsidian.md"] {
        // A browser asks first, without the key.
        let asks = |names: &str| {
            let names = format!("access-control-request-headers: {names}\r\n");
            let headers = format!("origin: {origin}\r\n{names}{ASKS_TO_POST}connection: close\r\n");
            bare("OPTIONS", CHATS, &headers)
        };
        let seen = harness.refused(&asks("content-type, Authorization")).await;
        assert_eq!((seen.status(), seen.header(ALLOWED)), (204, Some(origin)));
        let seen = harness.refused(&asks("content-type")).await;
        assert_eq!(seen.status(), 403);
        let with = |key: &str| {
            let headers = format!("origin: {origin}\r\nauthorization: Bearer {key}\r\n");
            post(CHATS, &headers, CHAT)
        };
        let (_, seen) = harness.exchange(&with("right-key"), &says("x")).await;
        assert_eq!((seen.status(), seen.header(ALLOWED)), (200, Some(origin)));
        let seen = harness.refused(&with("wrong-key")).await;
        assert_eq!((seen.status(), seen.header(ALLOWED)), (403, None));
    }
}

#[tokio::test]
async fn the_origin_null_can_be_named() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.allow_origins = vec!["null".into()];
    let mut harness = Harness::with(set_up).await;
    let request = from_page("null", "application/json");
    let (_, seen) = harness.exchange(&request, &says("x")).await;
    assert_eq!((seen.status(), seen.header(ALLOWED)), (200, Some("null")));
}
