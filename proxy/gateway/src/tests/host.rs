//! Tests that lessons of the agent's host are not added to its request a second time.

use metaclaw_chat::AgentId;
use metaclaw_skills::{HostLessons, HostReading};
use metaclaw_test_kit::has;
use serde_json::json;

use super::harness::Harness;

const WEATHER: &str =
    "---\nname: weather\ndescription: The weather of tomorrow\n---\nLook it up.\n";
const UMBRELLAS: &str =
    "---\nname: umbrellas\ndescription: Umbrellas for the weather\n---\nBlack ones.\n";
const HOST: &str = "You are an assistant.\n<available_skills>\n  <skill>\n    <name>weather</name>\n    <description>Weather.</description>\n  </skill>\n</available_skills>\n# Project Context\n## /home/ann/.openclaw/workspace/USER.md\n<!-- observed: 2026-11-01 | status: active -->\n\n- Prefer answers in one sentence.\n";

/// Makes a gateway whose agent's host has shown `HOST`.
async fn harness() -> Harness {
    let wishes = "- Please always answer in one sentence.\n- Call me Max.\n";
    let harness = Harness::taught(&[
        ("weather/SKILL.md", WEATHER),
        ("umbrellas/SKILL.md", UMBRELLAS),
        ("_default/WISHES.md", wishes),
    ])
    .await;
    let reading = HostReading {
        session: "earlier".parse().unwrap(),
        at_ms: 1,
        lessons: HostLessons::read([HOST]),
    };
    let agent = AgentId::default_agent();
    assert!(harness.library.note_host(&agent, reading).unwrap());
    harness
}

/// Returns the system prompt that the upstream gets in a session that begins with this one.
async fn served(harness: &mut Harness, session: &str, system: &str) -> String {
    let body = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "system", "content": system},
        {"role": "user", "content": "What will the weather be tomorrow, and do I need umbrellas?"},
    ]});
    let head = format!("x-session-id: {session}\r\n");
    let exchange = harness.chat(&head, &body.to_string(), "x").await;
    let body = exchange.json();
    body["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_wish_that_stands_in_the_hosts_user_md_is_not_put_in_again_and_another_is() {
    let mut harness = harness().await;
    let served = served(&mut harness, "a", HOST).await;
    assert!(served.starts_with(HOST), "{served}");
    let ours = &served[HOST.len()..];
    assert!(!ours.contains("one sentence"), "{ours}");
    has(ours, ["- Call me Max."]);
    assert!(!ours.contains("### weather"), "{ours}");
    has(ours, ["### umbrellas"]);
}

/// Another program may use the same agent name. Its notes are only in its own prompt.
#[tokio::test]
async fn where_the_host_does_not_say_it_ours_stays() {
    let mut harness = harness().await;
    let system = "You are another assistant.";
    let served = served(&mut harness, "b", system).await;
    has(&served, ["- Please always answer in one sentence."]);
    has(&served, ["### weather"]);
}
