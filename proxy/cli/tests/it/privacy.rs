//! Tests of off and on in the running program, of sessions off the record, and that no file of the home contains
//! secrets.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    harness::{Home, Running, Upstream, has, started, until},
    wishes::files_with,
};

async fn asked(home: &Home) -> Vec<String> {
    let turns = home.json(&["turns", "list", "--json"]).await;
    let asked = turns.as_array().into_iter().flatten().rev();
    asked
        .filter_map(|turn| turn["asked"].as_str().map(str::to_owned))
        .collect()
}

async fn chat_with(proxy: &Running, session: &str, text: &str) {
    let body = json!({"model": "default", "messages": [{"role": "user", "content": text}]});
    let reply = proxy.send("/v1/chat/completions", session, &body).await;
    assert!(reply.contains("answer to "), "{reply}");
}

#[tokio::test]
async fn without_turns_a_chat_passes_and_is_not_kept() {
    let upstream = Upstream::new();
    let config = format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}'}}\nturns: {{enabled: false}}\n",
        upstream.url
    );
    let home = Home::new(&config);
    let proxy = home.start().await;
    chat_with(&proxy, "a", "one").await;
    home.stop(proxy).await;
    assert_eq!(asked(&home).await, [""; 0]);
}

#[tokio::test]
async fn off_is_at_once_and_kept_over_a_restart_and_on_ends_it() {
    let (_upstream, home, proxy) = started().await;
    assert!(!proxy.banner.contains("  off "), "{}", proxy.banner);
    proxy.chat("a", &["one"]).await;
    let told = "relay only, for everyone: nothing is put in, kept, judged or learned (metaclaw on)";
    assert_eq!(home.ask(&["off"]).await, told);
    proxy.chat("a", &["one", "answer to 1", "a secret"]).await;
    let status = home.ask(&["status"]).await;
    assert!(status.contains(&format!("off:     {told}")), "{status}");
    has(&status, ["private: 1 chat only relayed, 0 off the record"]);
    let refused = home.refusal(&["on", "--agent", "work"]).await;
    assert!(
        refused.ends_with("everyone is off, agent work among them: `metaclaw on` first"),
        "{refused}"
    );
    home.stop(proxy).await;

    let proxy = home.start().await;
    has(&proxy.banner, [format!("  off       {told}")]);
    proxy.chat("b", &["another secret"]).await;
    let on = home.ask(&["on"]).await;
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
        .await;
    proxy.chat("c", &["three"]).await;
    until(
        "three",
        async || asked(&home).await,
        |it| it.contains(&"three".to_owned()),
    )
    .await;
    assert_eq!(asked(&home).await, ["one", "three"]);
    home.stop(proxy).await;
    let told = home.ask(&["off", "--agent", "work"]).await;
    assert!(
        told.starts_with("relay only, for agent work:") && told.ends_with("from the next start on"),
        "{told}"
    );
    let off = home.json(&["on", "--json"]).await;
    assert_eq!(off, json!({"all": false, "agents": []}));
}

#[tokio::test]
async fn what_is_off_the_record_and_what_is_secret_lies_in_no_file() {
    let (_upstream, home, proxy) = started().await;
    let key = ["sk-", "Xqzj7vkwp0a1B2c3D4e5"].concat();
    chat_with(&proxy, "a", "Off the record: I moved to Qwvzbridge.").await;
    chat_with(
        &proxy,
        "b",
        &format!("Please always use the key {key} for this."),
    )
    .await;
    let kept = until("a turn", async || asked(&home).await, |it| it.len() == 1).await;
    assert_eq!(
        kept,
        ["Please always use the key [masked: api key] for this."]
    );
    let marks = async || home.read("off_record.jsonl");
    let marks = until("a mark", marks, |it| !it.is_empty()).await;
    let mark: Value = serde_json::from_str(&marks).unwrap();
    assert_eq!(mark, json!({"agent": "_default", "session": "a"}));
    home.stop(proxy).await;
    for text in [&b"Qwvzbridge"[..], b"Xqzj7vkwp"] {
        assert_eq!(files_with(home.path(), text), Vec::<PathBuf>::new());
    }
    let exported = home.ask(&["turns", "export"]).await;
    assert!(
        !exported.contains("Qwvzbridge") && !exported.contains("Xqzj7vkwp"),
        "{exported}"
    );
}

#[tokio::test]
async fn training_elsewhere_is_not_begun_without_a_yes() {
    let config =
        "mode: rl\nproxy: {port: 0}\nrl: {backend: remote, remote_url: 'http://192.0.2.1:9'}\n";
    let home = Home::new(config);
    let refused = home.refusal(&["start"]).await;
    has(
        &refused,
        ["Training happens at 192.0.2.1:9 (rl.remote_url)"],
    );
    has(
        &refused,
        ["`metaclaw config privacy.cloud_training_ok true` allows it"],
    );
    home.ask(&["config", "privacy.cloud_training_ok", "false"])
        .await;
    let proxy = home.start().await;
    assert!(!proxy.banner.contains("to train on"), "{}", proxy.banner);
    assert!(
        proxy
            .banner
            .contains("no weights (privacy.cloud_training_ok is not true)")
    );
    home.stop(proxy).await;
}

#[tokio::test]
async fn before_texts_are_sent_to_a_service_its_name_and_the_price_of_a_day_are_said() {
    let upstream = Upstream::new();
    let settings = format!(
        "proxy: {{port: 0}}\nllm: {{api_base: '{}', model_id: scripted, api_key: sk-0123456789abcd}}\n",
        upstream.url
    );
    let home = Home::new(&format!("{settings}mode: skills_only\n"));
    let proxy = home.start().await;
    proxy.chat("s", &["Hello"]).await;
    home.stop(proxy).await;
    let service = "rl: {backend: tinker, model: Qwen/Qwen3-8B, tinker_api_key: k, tinker_base_url: 'https://tinker.example', price_train: 1, price_read: 1, price_sample: 1}";
    home.write("config.yaml", format!("{settings}mode: rl\n{service}\n"));
    let refused = home.refusal(&["start"]).await;
    has(
        &refused,
        [
            "Qwen/Qwen3-8B is trained by the training server at tinker.example (rl.backend)",
            "For your budget: by the chats of the last 7 days, an average day at the training server takes about",
            " USD), and the tests of each new adapter come on top. Nobody can be asked here: `metaclaw config privacy.cloud_training_ok true` allows it",
        ],
    );
}
