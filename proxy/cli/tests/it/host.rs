//! Tests of what the agent's own software has learned: detected, listed with MetaClaw's lessons, not repeated, and
//! deleted with its session.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    harness::{Running, TestHome, Upstream, until},
    wishes::files_with,
};

const WISH: &str = "Please always answer in one sentence.";

/// Returns a system text like OpenClaw's, with this line in its `USER.md`.
fn system(line: &str) -> String {
    format!(
        "You are a personal assistant.\n# Project Context\n## /home/ann/.openclaw/workspace/USER.md\n\n- {line}\n"
    )
}

async fn says(proxy: &Running, session: &str, system: &str, words: &str) -> anyhow::Result<String> {
    let body = json!({"model": "default", "max_tokens": 9, "messages": [
        {"role": "system", "content": system},
        {"role": "user", "content": words},
    ]});
    let path = "/v1/chat/completions";
    proxy.send(path, session, &body).await
}

/// Returns the agent's lessons that come from its host.
async fn hosts(home: &TestHome) -> anyhow::Result<Vec<String>> {
    let listed = home.json(&["lessons", "--json"]).await?;
    let lessons = listed["lessons"].as_array().into_iter().flatten();
    let hosts = lessons.filter(|it| it["source"] == "host");
    Ok(hosts
        .filter_map(|it| it["lesson"].as_str().map(str::to_owned))
        .collect())
}

#[tokio::test]
async fn what_the_agent_has_learned_itself_is_listed_held_back_and_forgotten() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    home.ask(&["wishes", "add", WISH]).await.unwrap();
    let proxy = home.start().await.unwrap();
    let secret = "Prefer answers in one sentence.";
    says(&proxy, "s-1", &system(secret), "What is rain?")
        .await
        .unwrap();
    until(async || Ok(hosts(&home).await? == [secret]))
        .await
        .unwrap();
    let listed = home.json(&["lessons", "--json"]).await.unwrap();
    let ours = &listed["lessons"][0];
    assert_eq!(
        (&ours["source"], &ours["lesson"]),
        (&json!("ours"), &json!(WISH))
    );
    assert_eq!(ours["held_back"], format!("the host says: {secret}"));

    says(&proxy, "s-2", &system(secret), "What is snow?")
        .await
        .unwrap();
    says(&proxy, "s-3", "You are another assistant.", "What is hail?")
        .await
        .unwrap();
    let wishes = async |session: &str| -> anyhow::Result<Option<Value>> {
        let turns = ["turns", "list", "--session", session, "--json"];
        let turns = home.json(&turns).await?;
        let Some(id) = turns[0]["id"].as_str() else {
            return Ok(None);
        };
        let turn = home
            .json(&["turns", "show", id, "--full", "--json"])
            .await?;
        Ok(Some(turn["served"]["wishes"].clone()))
    };
    until(async || Ok(wishes("s-3").await?.is_some()))
        .await
        .unwrap();
    assert_eq!(wishes("s-2").await.unwrap(), Some(Value::Null));
    assert_ne!(wishes("s-3").await.unwrap(), Some(Value::Null));

    let shown = system("Always call me Xqzjvkwp.");
    says(&proxy, "s-4", &shown, "What is fog?").await.unwrap();
    until(async || Ok(hosts(&home).await? == ["Always call me Xqzjvkwp."]))
        .await
        .unwrap();
    home.ask(&["forget", "s-4"]).await.unwrap();
    let left = files_with(home.path(), b"Xqzjvkwp").unwrap();
    assert_eq!(left, Vec::<PathBuf>::new());
    assert!(hosts(&home).await.unwrap().is_empty());

    let off = "Off the record: what is dew?";
    says(&proxy, "s-5", &shown, off).await.unwrap();
    // A later turn is there, so this one is not only late.
    says(&proxy, "s-6", &system("Use metric units."), "What is mist?")
        .await
        .unwrap();
    until(async || Ok(hosts(&home).await? == ["Use metric units."]))
        .await
        .unwrap();
    let left = files_with(home.path(), b"Xqzjvkwp").unwrap();
    assert_eq!(left, Vec::<PathBuf>::new());
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    assert_eq!(hosts(&home).await.unwrap(), ["Use metric units."]);
}
