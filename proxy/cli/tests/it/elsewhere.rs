//! Tests of a proxy in a container: who reaches it and its page from outside, and when it is unhealthy.

use std::fs::File;

use crate::harness::{Home, Upstream, exchange, until};

/// What the image sets, and a key that was left empty.
const CONTAINER: [(&str, &str); 4] = [
    ("METACLAW__PROXY__HOST", "0.0.0.0"),
    ("METACLAW__PROXY__API_KEY", ""),
    ("METACLAW__UI__HOST", "0.0.0.0"),
    ("METACLAW__UI__PORT", "0"),
];

#[tokio::test]
async fn an_empty_key_is_none_and_the_page_is_reached_with_the_link() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let log = File::create(home.path().join("stderr.log")).unwrap();
    let proxy = home.start_with(log.into(), &CONTAINER).await;
    let named = "Set proxy.api_key (in the environment: METACLAW__PROXY__API_KEY)";
    let log = async || home.read("stderr.log");
    until("the variable", log, |it| it.contains(named)).await;
    let link = home.json(&["ui", "--json"]).await;
    let page = link["page"].as_str().unwrap().trim_end_matches("/ui");
    let path = link["link"].as_str().unwrap().trim_start_matches(page);
    let asked = async |method: &str, path: &str, headers: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
        exchange(page, &head).await.unwrap()
    };
    let outside = "host: 192.0.2.7:30080\r\n";
    let run: serde_json::Value = serde_json::from_str(&home.read("run.json")).unwrap();
    let token = run["token"].as_str().unwrap();
    let bearer = format!("{outside}authorization: Bearer {token}\r\ncontent-length: 0\r\n");
    for (method, path, headers, status) in [
        ("GET", "/ui", outside, 401),
        ("GET", "/ui", "host: rebound.example:30080\r\n", 403),
        ("POST", "/status", bearer.as_str(), 404),
        ("GET", path, outside, 200),
        ("GET", path, outside, 401),
    ] {
        let answer = asked(method, path, headers).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{method} {path}: {answer}"
        );
        assert_eq!(answer.contains("set-cookie: "), status == 200, "{answer}");
    }
    home.stop(proxy).await;
}

#[tokio::test]
async fn it_is_unhealthy_where_no_upstream_answers() {
    let home = Home::before("http://127.0.0.1:1/v1");
    let stopped = home.run(&["status", "--ready"]).await;
    assert_eq!(stopped.status.code(), Some(3));
    let proxy = home.start().await;
    assert_eq!(home.ask(&["status", "--ready"]).await, "ready");
    proxy.post("s", &["Hello"]).await;
    let unready = home.run(&["status", "--ready"]).await;
    assert_eq!(unready.status.code(), Some(1));
    let said = String::from_utf8_lossy(&unready.stdout);
    assert!(said.starts_with("llm: "), "{said}");
    home.stop(proxy).await;
}
