//! Tests of memories in requests.

use metaclaw_chat::AgentId;
use metaclaw_skills::{MemoryConfig, MemoryKind, MemoryScope, MemoryStore};
use metaclaw_test_kit::has;

use super::harness::{BRIEF, Harness, SetUp};

const HEADING: &str = "## What the user has told you";

async fn with_memory() -> (tempfile::TempDir, MemoryStore, Harness) {
    with_memory_beside([]).await
}

/// These agents have a memory of their own.
async fn with_memory_beside(
    remembering: impl IntoIterator<Item = AgentId>,
) -> (tempfile::TempDir, MemoryStore, Harness) {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::open_beside(dir.path(), MemoryConfig::default(), remembering);
    let harness = Harness::with(SetUp {
        memory: Some(store.clone()),
        ..SetUp::taught(&[BRIEF])
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
async fn system_text(harness: &mut Harness, headers: &str, texts: &[&str]) -> String {
    let exchange = harness.talk(headers, texts).await;
    let first = &exchange.json()["messages"][0];
    let text = first["content"]
        .as_str()
        .filter(|_| first["role"] == "system");
    text.unwrap_or_default().to_owned()
}

fn in_session(name: &str, kind: &str) -> String {
    format!("x-session-id: {name}\r\nx-turn-type: {kind}\r\n")
}

#[tokio::test]
async fn a_session_gets_memories_once_and_wishes_stand_behind_them() {
    let (_dir, store, mut harness) = with_memory().await;
    write_down(&store, "default", "The shop runs on Postgres 16.");
    let texts = ["Why is Postgres slow?", "Hi.", "And now?"];
    let session = in_session("s", "main");
    let first = system_text(&mut harness, &session, &texts[..1]).await;
    assert!(first.starts_with(HEADING), "{first}");
    has(&first, [": The shop runs on Postgres 16.\n"]);
    assert!(first.ends_with("- Be brief."), "{first}");
    // What is learned meanwhile comes with the next session: the provider's cache keeps this one's prefix.
    write_down(&store, "default", "Our Postgres has two replicas.");
    let second = system_text(&mut harness, &session, &texts).await;
    assert_eq!(second, first);
    let next = system_text(&mut harness, &in_session("t", "main"), &texts[..1]).await;
    has(next, ["two replicas"]);
    // A side turn gets none.
    let side = system_text(&mut harness, &in_session("u", "side"), &texts[..1]).await;
    assert_eq!(side, "");
}

#[tokio::test]
async fn an_agent_with_a_memory_of_its_own_gets_no_memories() {
    let (_dir, store, mut harness) = with_memory_beside([AgentId::default_agent()]).await;
    write_down(&store, "default", "My name is Anna.");
    let system = system_text(&mut harness, "", &["What is my name?"]).await;
    assert!(!system.contains("Anna"), "{system}");
}

#[tokio::test]
async fn a_request_names_the_scope_of_its_memories() {
    let (_dir, store, mut harness) = with_memory().await;
    write_down(&store, "user:anna", "My name is Anna.");
    let by_all = system_text(&mut harness, "", &["What is my name?"]).await;
    assert!(!by_all.contains("Anna"), "{by_all}");
    let anna = "x-user-id: anna\r\n";
    let by_anna = system_text(&mut harness, anna, &["So what is my name?"]).await;
    has(by_anna, ["My name is Anna."]);
}
