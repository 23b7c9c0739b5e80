//! Tests of keys that are made, used, listed and revoked, with and without a running proxy.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::harness::{Home, Running, Upstream, has};

async fn status(proxy: &Running, key: &str, agent: &str) -> String {
    let headers = format!("s\r\nauthorization: Bearer {key}\r\nx-agent-id: {agent}");
    let body = json!({"messages": [{"role": "user", "content": "Hello"}]});
    let answer = proxy.send("/v1/chat/completions", &headers, &body).await;
    let status = answer.split(' ').nth(1);
    status.expect("no status").to_owned()
}

#[tokio::test]
async fn a_key_opens_at_once_for_its_agents_and_is_shown_once() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let file = home.path().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("# my own words\n{text}")).unwrap();
    let proxy = home.start().await;
    assert_eq!(status(&proxy, "whatever", "main").await, "200");

    let output = home
        .run(&["keys", "add", "phone", "--agent", "main,work"])
        .await;
    let said = String::from_utf8(output.stderr).unwrap();
    has(&said, ["in force now", "first key"]);
    let key = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert_eq!(status(&proxy, &key, "work").await, "200");
    assert_eq!(status(&proxy, &key, "other").await, "403");
    assert_eq!(status(&proxy, "whatever", "main").await, "401");

    let listed = home.json(&["keys", "list", "--json"]).await;
    assert_eq!(listed[0]["agents"], json!(["main", "work"]));
    assert!(!listed.to_string().contains(&key), "{listed}");
    let again = home
        .refusal(&["keys", "add", "phone", "--agent", "x"])
        .await;
    assert!(again.contains("there is a key phone already"), "{again}");
    let bad = home
        .refusal(&["keys", "add", "my.phone", "--agent", "x"])
        .await;
    assert!(bad.contains("\"my.phone\" is not allowed"), "{bad}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# my own words\n"), "{text}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // The key still works after a restart, and is then revoked.
    home.stop(proxy).await;
    let proxy = home.start().await;
    assert_eq!(status(&proxy, &key, "main").await, "200");
    home.ask(&["keys", "remove", "phone"]).await;
    assert_eq!(status(&proxy, "whatever", "main").await, "200");
    assert_eq!(home.json(&["keys", "list", "--json"]).await, json!([]));
}

#[tokio::test]
async fn an_agent_with_an_upstream_of_its_own_is_answered_by_no_other() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let file = home.path().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    // Nothing listens there, and the message says so.
    let more = "upstreams: {work: {url: 'http://127.0.0.1:1'}}\nagents: {office: {upstream: work, mode: skills_only}}\n";
    std::fs::write(&file, text + more).unwrap();
    let proxy = home.start().await;
    let here = "leaves    nothing: all models are on this machine";
    assert!(proxy.banner.contains(here), "{}", proxy.banner);
    assert_eq!(status(&proxy, "k", "home").await, "200");
    assert_eq!(status(&proxy, "k", "office").await, "502");
}
