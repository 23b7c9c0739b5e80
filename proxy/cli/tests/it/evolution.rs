//! Tests that failures become a skill after its owner's consent.

use std::path::PathBuf;

use metaclaw_test_kit::chat;
use serde_json::json;

use crate::{
    harness::{Home, Reply, Running, Server, Upstream, has, until},
    wishes::files_with,
};

const ASKED: &str = "How is the weather?";

/// Starts a proxy whose agent was contradicted once, in session s-1.
async fn after_a_failure(upstream: &Upstream, evolver: &Server) -> (Home, Running) {
    let home = Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}', model_id: scripted, api_key: sk-0123456789abcd}}\n\
         judge: {{kind: rules, rules: [{{on: next, pattern: 'no, in', score: -1}}]}}\n\
         evolver: {{url: '{}/v1', model: writer}}\nskills: {{evolution_every_n_turns: 2}}\n\
         scheduler: {{idle_minutes: 0, on_battery: true}}\n",
        upstream.url,
        evolver.url()
    ));
    let proxy = home.start().await;
    proxy.chat("s-1", &[ASKED]).await;
    let contradicted = [ASKED, "answer to 1", "no, in Rome"];
    proxy.chat("s-1", &contradicted).await;
    (home, proxy)
}

#[tokio::test]
async fn a_skill_that_was_written_is_reviewed_served_counted_and_forgotten() {
    let content = "1. Ask which city Xqzjvkwp the weather is wanted for.";
    let skills = json!([
        {"name": "ask-where", "description": "Use when asked for the weather.",
         "keywords": ["weather", "forecast"], "content": content},
        {"name": "../../ask-where", "description": "d", "content": "c"},
    ]);
    // A model that always writes the same skills.
    let evolver = Server::new(move |_| Reply::json(chat::says(&skills.to_string())));
    let upstream = Upstream::new();
    let (home, proxy) = after_a_failure(&upstream, &evolver).await;
    has(
        &proxy.banner,
        ["leaves    nothing: all models are on this machine"],
    );
    let review = ["skills", "review", "--json"];
    home.json_until(&review, |it| it[0]["name"] == "ask-where")
        .await;
    let shown = home.ask(&["skills", "review"]).await;
    has(
        &shown,
        [
            "1  ask-where  for _default",
            "from 1 turns that went wrong (sessions s-1)",
            "   | 1. Ask which city Xqzjvkwp",
            "it waits because a model wrote it",
            "metaclaw skills accept 1",
        ],
    );
    let refused = home.refusal(&["skills", "show", "ask-where"]).await;
    assert_eq!(
        refused,
        "metaclaw: no skill ask-where: see `metaclaw skills list`"
    );

    let said = home.ask(&["skills", "accept", "ask-where"]).await;
    assert!(
        said.starts_with("in force from the next session on: ask-where"),
        "{said}"
    );
    proxy.chat("s-2", &[ASKED]).await;
    let list = async || {
        let list = home
            .json(&["skills", "list", "--agent", "_default", "--json"])
            .await;
        let mut skills = list.as_array().cloned().unwrap_or_default();
        skills.retain(|skill| skill["name"] == "ask-where");
        skills.pop().unwrap_or_default()["counts"].clone()
    };
    let counts = until("its counts", list, |it| it["injected"] == 1).await;
    assert_eq!(counts["bad_without"], 1);
    let log = home.ask(&["skills", "log"]).await;
    has(
        &log,
        ["_default  1 turns that went wrong -> 1 skills: ask-where"],
    );
    assert!(log.contains("refused: \"../../ask-where\""), "{log}");
    assert!(!log.contains("Xqzjvkwp"));
    let full = home.ask(&["skills", "log", "--full"]).await;
    has(&full, ["| 1. Ask which city Xqzjvkwp"]);
    has(&full, [ASKED]);

    let said = home.ask(&["forget", "s-1"]).await;
    assert!(said.contains("and 1 lesson from there"), "{said}");
    let left = files_with(home.path(), b"Xqzjvkwp");
    assert_eq!(left, Vec::<PathBuf>::new());
    home.stop(proxy).await;
    let refused = home.refusal(&["skills", "revert", "ask-where"]).await;
    assert_eq!(
        refused,
        "metaclaw: ask-where is no skill that was learned: `metaclaw skills log` shows those that were"
    );
}
