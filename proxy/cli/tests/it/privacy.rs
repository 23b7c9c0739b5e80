//! Tests of off and on in the running program, of sessions off the record, and that no file of the home contains
//! secrets.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    harness::{Running, TestHome, Upstream, until},
    wishes::files_with,
};

/// Returns the questions in the log, in order of their sessions' names.
async fn asked(home: &TestHome) -> Result<Vec<String>> {
    let turns = home.json(&["turns", "list", "--json"]).await?;
    let asked = turns.as_array().into_iter().flatten().rev();
    Ok(asked
        .filter_map(|turn| Some(turn["asked"].as_str()?.to_owned()))
        .collect())
}

async fn chat_with(proxy: &Running, session: &str, text: &str) -> Result<()> {
    let body = json!({"model": "default", "messages": [{"role": "user", "content": text}]});
    let reply = proxy.send("/v1/chat/completions", session, &body).await?;
    anyhow::ensure!(reply.contains("answer to "), "{reply}");
    Ok(())
}

#[tokio::test]
async fn without_turns_a_chat_passes_and_is_not_kept() {
    let upstream = Upstream::new().await.unwrap();
    let config = format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}'}}\nturns: {{enabled: false}}\n",
        upstream.url
    );
    let home = TestHome::new(&config).unwrap();
    let proxy = home.start().await.unwrap();
    chat_with(&proxy, "a", "one").await.unwrap();
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    assert_eq!(asked(&home).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn off_is_at_once_and_kept_over_a_restart_and_on_ends_it() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    assert!(!proxy.banner.contains("  off "), "{}", proxy.banner);
    proxy.chat("a", &["one"]).await.unwrap();
    let told = "relay only, for everyone: nothing is put in, kept, judged or learned (metaclaw on)";
    assert_eq!(home.ask(&["off"]).await.unwrap(), told);
    proxy
        .chat("a", &["one", "answer to 1", "a secret"])
        .await
        .unwrap();
    let status = home.ask(&["status"]).await.unwrap();
    assert!(status.contains(&format!("off:     {told}")), "{status}");
    assert!(
        status.contains("private: 1 chat only relayed, 0 off the record"),
        "{status}"
    );
    let refused = home.refusal(&["on", "--agent", "work"]).await.unwrap();
    assert!(
        refused.ends_with("everyone is off, agent work among them: `metaclaw on` first"),
        "{refused}"
    );
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());

    let proxy = home.start().await.unwrap();
    assert!(
        proxy.banner.contains(&format!("  off       {told}")),
        "{}",
        proxy.banner
    );
    proxy.chat("b", &["another secret"]).await.unwrap();
    let on = home.ask(&["on"]).await.unwrap();
    assert!(
        on.starts_with("on again; a session in which something was said meanwhile"),
        "{on}"
    );
    // Its history contains what was said meanwhile, also in the previous process.
    proxy
        .chat(
            "a",
            &["one", "answer to 1", "a secret", "answer to 3", "two"],
        )
        .await
        .unwrap();
    proxy.chat("c", &["three"]).await.unwrap();
    until(async || Ok(asked(&home).await?.contains(&"three".to_owned())))
        .await
        .unwrap();
    assert_eq!(asked(&home).await.unwrap(), ["one", "three"]);
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    let told = home.ask(&["off", "--agent", "work"]).await.unwrap();
    assert!(
        told.starts_with("relay only, for agent work:") && told.ends_with("from the next start on"),
        "{told}"
    );
    let off = home.json(&["on", "--json"]).await.unwrap();
    assert_eq!(off, json!({"all": false, "agents": []}));
}

#[tokio::test]
async fn what_is_off_the_record_and_what_is_secret_lies_in_no_file() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    let key = ["sk-", "Xqzj7vkwp0a1B2c3D4e5"].concat();
    chat_with(&proxy, "a", "Off the record: I moved to Qwvzbridge.")
        .await
        .unwrap();
    chat_with(
        &proxy,
        "b",
        &format!("Please always use the key {key} for this."),
    )
    .await
    .unwrap();
    let is_kept = async || Ok(asked(&home).await?.len() == 1);
    until(is_kept).await.unwrap();
    assert_eq!(
        asked(&home).await.unwrap(),
        ["Please always use the key [masked: api key] for this."]
    );
    let marks = home.path().join("off_record.jsonl");
    until(async || Ok(marks.exists())).await.unwrap();
    let mark: Value = serde_json::from_slice(&std::fs::read(&marks).unwrap()).unwrap();
    assert_eq!(mark, json!({"agent": "_default", "session": "a"}));
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    for text in [&b"Qwvzbridge"[..], b"Xqzj7vkwp"] {
        assert_eq!(
            files_with(home.path(), text).unwrap(),
            Vec::<PathBuf>::new()
        );
    }
    let exported = home.ask(&["turns", "export"]).await.unwrap();
    assert!(
        !exported.contains("Qwvzbridge") && !exported.contains("Xqzj7vkwp"),
        "{exported}"
    );
}

#[tokio::test]
async fn training_elsewhere_is_not_begun_without_a_yes() {
    let config =
        "mode: rl\nproxy: {port: 0}\nrl: {backend: remote, remote_url: 'http://192.0.2.1:9'}\n";
    let home = TestHome::new(config).unwrap();
    let refused = home.refusal(&["start"]).await.unwrap();
    assert!(
        refused.contains("Training happens at 192.0.2.1:9 (rl.remote_url)"),
        "{refused}"
    );
    assert!(
        refused.contains("`metaclaw config privacy.cloud_training_ok true` allows it"),
        "{refused}"
    );
    home.ask(&["config", "privacy.cloud_training_ok", "false"])
        .await
        .unwrap();
    let proxy = home.start().await.unwrap();
    assert!(
        proxy
            .banner
            .contains("training -> nowhere (privacy.cloud_training_ok is not true)"),
        "{}",
        proxy.banner
    );
    assert!(
        proxy
            .banner
            .contains("no weights (privacy.cloud_training_ok is not true)")
    );
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
}
