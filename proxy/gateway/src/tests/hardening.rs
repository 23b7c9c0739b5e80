//! Tests of attacks and crowds: slow and refused bodies, full tables, connections without a request.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use metaclaw_chat::Size;
use metaclaw_test_kit::has;
use tokio::time::timeout;
use tracing_subscriber::fmt::MakeWriter;

use super::harness::{
    CHAT, CHATS, Harness, SOON, SetUp, bare, delta, get, post, post_chat, reply, says, streamed,
};
use crate::Secret;

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_has_come() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.max_body = Size(1 << 20);
    let harness = Harness::with(set_up).await;
    for expect in ["expect: 100-continue\r\n", ""] {
        let headers = format!("content-length: {}\r\n{expect}", 2 << 20);
        let mut client = harness.sent(&bare("POST", CHATS, &headers)).await;
        // Nothing of it is sent, and no client is asked to send it.
        let seen = timeout(Duration::from_secs(2), client.read()).await;
        assert_eq!(seen.expect("an answer at once").status(), 413, "{expect}");
    }
    // What comes after a refusal is read and thrown away, and the connection still works.
    let mut client = harness.sent(&post_chat(&"x".repeat(4 << 20))).await;
    assert_eq!(client.read().await.status(), 413);
    client.send(&post("/healthz", "", "")).await;
    assert_eq!(client.read().await.status(), 200);
}

#[tokio::test]
async fn an_upload_that_breaks_is_its_callers_fault() {
    let mut harness = Harness::start().await;
    let chunked = bare("POST", "/v1/files", "transfer-encoding: chunked\r\n");
    let begun = [&chunked, &b"5\r\nhello\r\n"[..]].concat();
    let (mut client, _exchange) = harness.ask(&begun).await;
    client.send("no chunk\r\n").await;
    let seen = client.read().await;
    assert_eq!(seen.status(), 400, "{}", seen.text());

    let (mut client, _exchange) = harness.ask(&begun).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let seen = client.read().await;
    assert_eq!(seen.status(), 408, "{}", seen.text());
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_and_those_that_are_there_are_served() {
    let set_up = SetUp {
        max_connections: Some(2),
        ..SetUp::default()
    };
    let mut harness = Harness::with(set_up).await;
    let mut first = harness.client().await;
    let idle = harness.client().await;
    // Both have been accepted once the first is answered after the second.
    first.send(&post("/healthz", "", "")).await;
    assert_eq!(first.read().await.status(), 200);
    let mut waiting = harness.sent(&post("/healthz", "", "")).await;
    first.send(&post_chat(CHAT)).await;
    harness.upstream.answer(&says("Paris")).await;
    assert_eq!(first.read().await.status(), 200);
    assert!(waiting.is_silent().await, "no place yet");
    drop(idle);
    assert_eq!(waiting.read().await.status(), 200);
}

#[tokio::test]
async fn hosts_that_nobody_can_have_are_refused() {
    let harness = Harness::start().await;
    let get = |lines: &str| format!("GET /v1/models HTTP/1.1\r\n{lines}\r\n").into_bytes();
    for lines in [
        "host: evil.com:80:80\r\n",
        "host: evil.com#.local\r\n",
        "host: a b\r\n",
        "host: \r\n",
        "host: localhost\r\nhost: localhost\r\n",
        "",
    ] {
        assert_eq!(harness.refused(&get(lines)).await.status(), 400, "{lines}");
    }
    for host in ["printer.local", "host.docker.internal", "nas"] {
        let seen = harness.refused(&get(&format!("host: {host}\r\n"))).await;
        assert_eq!(seen.status(), 403, "{host}");
    }
    let image = get("host: localhost\r\nsec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n");
    let seen = harness.refused(&image).await;
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"a web page of another site asks for this: it may not","type":"permission_error","param":null,"code":"foreign_origin"}}"#);
    assert_eq!(seen.status(), 403);
}

#[tokio::test]
async fn why_it_is_not_ready_is_told_to_those_who_show_a_key() {
    let mut services = crate::Services::none(Secret::from("admin"));
    services.ready = Arc::new(|| Err("/home/me/checkpoints is locked".to_owned()));
    let harness = Harness::with(SetUp {
        services: Some(services),
        no_llm: true,
        ..SetUp::with_key("sk-all")
    })
    .await;
    let ready = async |headers: &str| {
        let seen = harness.refused(&get("/readyz", headers)).await;
        assert_eq!(seen.status(), 503);
        seen.text().to_owned()
    };
    for headers in ["", "authorization: Bearer x\r\n"] {
        assert_eq!(ready(headers).await, r#"{"ready":false}"#);
    }
    let told = ready("authorization: Bearer sk-all\r\n").await;
    has(told, ["/home/me/checkpoints"]);
}

#[tokio::test]
async fn a_browser_is_told_where_the_page_is_and_a_program_gets_the_error() {
    let mut services = crate::Services::none(Secret::from("admin"));
    services.page_port = Some(30_080);
    let harness = Harness::with(SetUp {
        services: Some(services),
        ..SetUp::with_key("sk-all")
    })
    .await;
    let html = "accept: text/html,*/*\r\n";
    for (path, host, accept, link) in [
        (
            "/",
            "127.0.0.1:30000",
            html,
            Some("http://127.0.0.1:30080/ui"),
        ),
        (
            "/ui",
            "localhost:30000",
            html,
            Some("http://localhost:30080/ui"),
        ),
        ("/", "[::1]", html, Some("http://[::1]:30080/ui")),
        ("/", "nas.example:30000", html, None),
        ("/", "localhost.example", html, None),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{accept}\r\n");
        let seen = harness.refused(&request).await;
        let text = seen.text();
        assert_eq!(seen.status(), 200, "{host}");
        has(text, ["MetaClaw runs", "metaclaw ui"]);
        let linked = text
            .split("href=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        assert_eq!(linked, link, "{host}");
        assert!(
            !text.contains("sk-all") && !text.contains("admin"),
            "{text}"
        );
    }
    let program = harness
        .refused(&get("/", "accept: application/json\r\n"))
        .await;
    assert_eq!(program.status(), 401);
}

/// Captures the lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn every_line_of_a_chat_stands_in_its_span_whatever_module_wrote_it() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(lines.clone())
        .finish();
    // It applies to all threads, because another thread writes turns. The lines of other tests are removed below.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut set_up = SetUp::default();
    set_up.llm().keys = vec!["sk-upstream".into()];
    let mut harness = Harness::with(set_up).await;
    let headers = "x-agent-id: lines\r\nx-session-id: s-lines\r\n";
    let request = post(CHATS, headers, CHAT);
    // The upstream's module logs a line about this one, and the log's module about both.
    let unknown = reply("401 Unauthorized", "", "{}");
    harness.exchange(&request, &unknown).await;
    harness.exchange(&request, &streamed(&delta("Paris"))).await;
    harness.log.wait(2).await;
    // The gateway answers this one itself, once it knows the sender.
    let mut without = SetUp::without_llm();
    without.config.routing.order = vec!["llm".into()];
    Harness::with(without).await.refused(&request).await;
    let ours = || {
        let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let ours = written.lines().filter(|line| line.contains("lines"));
        ours.map(str::to_owned).collect::<Vec<_>>()
    };
    let turn = "metaclaw::turn: turn ";
    let n_turns = || ours().iter().filter(|line| line.contains(turn)).count();
    let all = async {
        while n_turns() != 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, all).await.expect("a line for each turn");
    let refused = "metaclaw::refused: refused ";
    has(
        ours().concat(),
        ["the upstream refused this key", turn, refused],
    );
    for line in ours() {
        // For the last one, no upstream could be used.
        let upstream = ["upstream=\"llm\"}", ""][usize::from(line.contains("refused"))];
        let api = "request{api=\"chat\"";
        has(line, [api, "agent=lines", "session=s-lines", upstream]);
    }
}
