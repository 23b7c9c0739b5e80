//! Tests of what the agent's own software has learned: detected, listed with MetaClaw's lessons, not repeated, and
//! deleted with its session.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    harness::{Home, Running, Upstream, until},
    wishes::files_with,
};

const WISH: &str = "Please always answer in one sentence.";

/// Returns a system text like OpenClaw's, with this line in its `USER.md`.
fn system(line: &str) -> String {
    format!(
        "You are a personal assistant.\n# Project Context\n## /home/ann/.openclaw/workspace/USER.md\n\n- {line}\n"
    )
}

async fn says(proxy: &Running, session: &str, system: &str, words: &str) -> String {
    let body = json!({"model": "default", "max_tokens": 9, "messages": [
        {"role": "system", "content": system},
        {"role": "user", "content": words},
    ]});
    let path = "/v1/chat/completions";
    proxy.send(path, session, &body).await
}

async fn hosts(home: &Home) -> Vec<String> {
    let listed = home.json(&["lessons", "--json"]).await;
    let lessons = listed["lessons"].as_array().into_iter().flatten();
    let hosts = lessons.filter(|it| it["source"] == "host");
    hosts
        .filter_map(|it| it["lesson"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn what_the_agent_has_learned_itself_is_listed_held_back_and_forgotten() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    home.ask(&["wishes", "add", WISH]).await;
    let proxy = home.start().await;
    let secret = "Prefer answers in one sentence.";
    says(&proxy, "s-1", &system(secret), "What is rain?").await;
    until(
        "its lesson",
        async || hosts(&home).await,
        |it| *it == [secret],
    )
    .await;
    let listed = home.json(&["lessons", "--json"]).await;
    let ours = &listed["lessons"][0];
    assert_eq!(
        (&ours["source"], &ours["lesson"]),
        (&json!("ours"), &json!(WISH))
    );
    assert_eq!(ours["held_back"], format!("the host says: {secret}"));

    says(&proxy, "s-2", &system(secret), "What is snow?").await;
    says(&proxy, "s-3", "You are another assistant.", "What is hail?").await;
    let wishes = async |session: &str| -> Option<Value> {
        let turns = ["turns", "list", "--session", session, "--json"];
        let turns = home.json(&turns).await;
        let id = turns[0]["id"].as_str()?;
        let turn = home.json(&["turns", "show", id, "--full", "--json"]).await;
        Some(turn["served"]["wishes"].clone())
    };
    until("s-3", async || wishes("s-3").await, Option::is_some).await;
    assert_eq!(wishes("s-2").await, Some(Value::Null));
    assert_ne!(wishes("s-3").await, Some(Value::Null));

    let shown = system("Always call me Xqzjvkwp.");
    says(&proxy, "s-4", &shown, "What is fog?").await;
    until(
        "its lesson",
        async || hosts(&home).await,
        |it| *it == ["Always call me Xqzjvkwp."],
    )
    .await;
    home.ask(&["forget", "s-4"]).await;
    let left = files_with(home.path(), b"Xqzjvkwp");
    assert_eq!(left, Vec::<PathBuf>::new());
    assert!(hosts(&home).await.is_empty());

    let off = "Off the record: what is dew?";
    says(&proxy, "s-5", &shown, off).await;
    // A later turn is there, so this one is not only late.
    says(&proxy, "s-6", &system("Use metric units."), "What is mist?").await;
    until(
        "its lesson",
        async || hosts(&home).await,
        |it| *it == ["Use metric units."],
    )
    .await;
    let left = files_with(home.path(), b"Xqzjvkwp");
    assert_eq!(left, Vec::<PathBuf>::new());
    home.stop(proxy).await;
    assert_eq!(hosts(&home).await, ["Use metric units."]);
}
