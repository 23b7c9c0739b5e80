//! Tests that failures become a skill after its owner's consent.

use std::path::PathBuf;

use anyhow::Result;
use axum::{Json, Router, routing::post};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    harness::{Running, TestHome, Upstream, until},
    wishes::files_with,
};

const ASKED: &str = "How is the weather?";

/// A model that always writes the same skills; it ends when dropped.
struct Evolver {
    url: String,
    _tasks: JoinSet<std::io::Result<()>>,
}

impl Evolver {
    async fn new(skills: &Value) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let message = json!({"role": "assistant", "content": skills.to_string()});
        let reply = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        let answer = move || std::future::ready(Json(reply.clone()));
        let routes = Router::new().route("/v1/chat/completions", post(answer));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { url, _tasks: tasks })
    }
}

/// Starts a proxy whose agent was contradicted once, in session s-1.
async fn after_a_failure(upstream: &Upstream, evolver: &Evolver) -> Result<(TestHome, Running)> {
    let home = TestHome::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}', model_id: scripted, api_key: sk-0123456789abcd}}\n\
         judge: {{kind: rules, rules: [{{on: next, pattern: 'no, in', score: -1}}]}}\n\
         evolver: {{url: '{}', model: writer}}\nskills: {{evolution_every_n_turns: 2}}\n\
         scheduler: {{idle_minutes: 0, on_battery: true}}\n",
        upstream.url, evolver.url
    ))?;
    let proxy = home.start().await?;
    proxy.chat("s-1", &[ASKED]).await?;
    let contradicted = [ASKED, "answer to 1", "no, in Rome"];
    proxy.chat("s-1", &contradicted).await?;
    Ok((home, proxy))
}

#[tokio::test]
async fn a_skill_that_was_written_is_reviewed_served_counted_and_forgotten() {
    let content = "1. Ask which city Xqzjvkwp the weather is wanted for.";
    let skills = json!([
        {"name": "ask-where", "description": "Use when asked for the weather.",
         "keywords": ["weather", "forecast"], "content": content},
        {"name": "../../ask-where", "description": "d", "content": "c"},
    ]);
    let evolver = Evolver::new(&skills).await.unwrap();
    let upstream = Upstream::new().await.unwrap();
    let (home, proxy) = after_a_failure(&upstream, &evolver).await.unwrap();
    assert!(
        proxy.banner.contains("skill writing -> nowhere"),
        "{}",
        proxy.banner
    );
    let waits = async || {
        let waiting = home.json(&["skills", "review", "--json"]).await?;
        Ok(waiting[0]["name"] == "ask-where")
    };
    until(waits).await.unwrap();
    let shown = home.ask(&["skills", "review"]).await.unwrap();
    for part in [
        "1  ask-where  for _default",
        "from 1 turns that went wrong (sessions s-1)",
        "   | 1. Ask which city Xqzjvkwp",
        "it waits because a model wrote it",
        "metaclaw skills accept 1",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    let refused = home
        .refusal(&["skills", "show", "ask-where"])
        .await
        .unwrap();
    assert_eq!(refused, "metaclaw: there is no skill ask-where");

    let said = home.ask(&["skills", "accept", "ask-where"]).await.unwrap();
    assert!(
        said.starts_with("in force from the next session on: ask-where"),
        "{said}"
    );
    proxy.chat("s-2", &[ASKED]).await.unwrap();
    let list = async || {
        let list = home
            .json(&["skills", "list", "--agent", "_default", "--json"])
            .await?;
        let mut skills = list.as_array().cloned().unwrap_or_default();
        skills.retain(|skill| skill["name"] == "ask-where");
        Ok::<_, anyhow::Error>(skills.pop().unwrap_or_default()["counts"].clone())
    };
    until(async || Ok(list().await?["injected"] == 1))
        .await
        .unwrap();
    assert_eq!(list().await.unwrap()["bad_without"], 1);
    let log = home.ask(&["skills", "log"]).await.unwrap();
    assert!(
        log.contains("_default  1 turns that went wrong -> 1 skills: ask-where"),
        "{log}"
    );
    assert!(log.contains("refused: \"../../ask-where\""), "{log}");
    assert!(!log.contains("Xqzjvkwp"));
    let full = home.ask(&["skills", "log", "--full"]).await.unwrap();
    assert!(
        full.contains("| 1. Ask which city Xqzjvkwp") && full.contains(ASKED),
        "{full}"
    );

    let said = home.ask(&["forget", "s-1"]).await.unwrap();
    assert!(said.contains("and 1 lesson from there"), "{said}");
    let left = files_with(home.path(), b"Xqzjvkwp").unwrap();
    assert_eq!(left, Vec::<PathBuf>::new());
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    let refused = home
        .refusal(&["skills", "revert", "ask-where"])
        .await
        .unwrap();
    assert_eq!(
        refused,
        "metaclaw: ask-where is no skill that was learned: `metaclaw skills log` shows those that were"
    );
}
