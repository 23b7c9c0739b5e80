//! Tests of memories in requests.

use metaclaw_chat::AgentId;
use metaclaw_skills::{MemoryConfig, MemoryKind, MemoryScope, MemoryStore};
use metaclaw_test_kit::has;

use super::harness::{Harness, SetUp, completion, json_reply, post};

const HEADING: &str = "## What the user has told you";

async fn with_memory() -> (tempfile::TempDir, MemoryStore, Harness) {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::open(dir.path(), MemoryConfig::default());
    let harness = Harness::with(SetUp {
        memory: Some(store.clone()),
        lessons: vec![("_default/WISHES.md", "- Be brief.\n")],
        ..SetUp::default()
    })
    .await;
    (dir, store, harness)
}

fn write_down(store: &MemoryStore, scope: &str, text: &str) {
    let agent = AgentId::default_agent();
    let scope = MemoryScope::new(scope);
    store
        .write_down(&agent, &scope, MemoryKind::Semantic, text, false)
        .unwrap();
}

/// The system text of a chat with these messages, as the upstream got it.
async fn system_text(harness: &mut Harness, headers: &str, messages: &str) -> String {
    let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
    let request = post("/v1/chat/completions", headers, &body);
    let (exchange, _) = harness
        .exchange(&request, &json_reply(&completion("Hi.")))
        .await;
    let body: serde_json::Value = serde_json::from_slice(&exchange.body).unwrap();
    let first = &body["messages"][0];
    if first["role"] == "system" {
        first["content"].as_str().unwrap_or_default().to_owned()
    } else {
        String::new()
    }
}

#[tokio::test]
async fn a_session_gets_memories_once_and_wishes_stand_behind_them() {
    let (_dir, store, mut harness) = with_memory().await;
    write_down(&store, "default", "The shop runs on Postgres 16.");
    let asked = r#"[{"role":"user","content":"Why is Postgres slow?"}]"#;
    let first = system_text(
        &mut harness,
        "x-session-id: s\r\nx-turn-type: main\r\n",
        asked,
    )
    .await;
    assert!(first.starts_with(HEADING), "{first}");
    has(&first, [": The shop runs on Postgres 16.\n"]);
    assert!(first.ends_with("- Be brief."), "{first}");
    // What is learned meanwhile comes with the next session: the provider's cache keeps this one's prefix.
    write_down(&store, "default", "The shop has two replicas.");
    let more = r#"[{"role":"user","content":"Why is Postgres slow?"},{"role":"assistant","content":"Hi."},{"role":"user","content":"And now?"}]"#;
    let second = system_text(
        &mut harness,
        "x-session-id: s\r\nx-turn-type: main\r\n",
        more,
    )
    .await;
    assert_eq!(second, first);
    let next = system_text(
        &mut harness,
        "x-session-id: t\r\nx-turn-type: main\r\n",
        asked,
    )
    .await;
    assert!(next.contains("two replicas"), "{next}");
    // A side turn gets none.
    let side = system_text(
        &mut harness,
        "x-session-id: u\r\nx-turn-type: side\r\n",
        asked,
    )
    .await;
    assert_eq!(side, "");
}

#[tokio::test]
async fn a_request_names_the_scope_of_its_memories() {
    let (_dir, store, mut harness) = with_memory().await;
    write_down(&store, "user:anna", "My name is Anna.");
    let asked = r#"[{"role":"user","content":"What is my name?"}]"#;
    let of_all = system_text(&mut harness, "", asked).await;
    assert!(!of_all.contains("Anna"), "{of_all}");
    let asked = r#"[{"role":"user","content":"So what is my name?"}]"#;
    let of_anna = system_text(&mut harness, "x-user-id: anna\r\n", asked).await;
    assert!(of_anna.contains("My name is Anna."), "{of_anna}");
}
