//! Tests of identity: agent, session and kind of turns.

use metaclaw_turns::TurnKind;

use super::harness::{Harness, SetUp, conversation};

/// Returns agent, session and kind of each turn.
async fn turns(harness: &Harness, n_turns: usize) -> Vec<(String, String, TurnKind)> {
    let turns = harness.log.wait(n_turns).await.into_iter();
    turns
        .map(|turn| {
            (
                turn.agent.to_string(),
                turn.session.to_string(),
                turn.meta.kind,
            )
        })
        .collect()
}

#[tokio::test]
async fn a_conversation_is_one_session_without_a_word_about_it() {
    let mut harness = Harness::start().await;
    harness.chat("", &conversation(&["hi"]), "hello").await;
    harness
        .chat("", &conversation(&["hi", "hello", "and now?"]), "now")
        .await;
    harness
        .chat("", &conversation(&["something else"]), "x")
        .await;
    // These are a retry, and the turn after it. The client has rewritten the assistant's message.
    harness
        .chat("", &conversation(&["hi", "hello", "and now?"]), "now")
        .await;
    harness
        .chat(
            "",
            &conversation(&["hi", "Hello!", "and  now?", "…", "bye"]),
            "bye",
        )
        .await;
    let sessions: Vec<_> = turns(&harness, 5)
        .await
        .into_iter()
        .map(|turn| turn.1)
        .collect();
    assert_eq!(
        [&sessions[1], &sessions[3], &sessions[4]],
        [&sessions[0]; 3]
    );
    assert_ne!(sessions[2], sessions[0]);
    // Another agent with the same text has another conversation.
    harness
        .chat("x-agent-id: other\r\n", &conversation(&["hi"]), "hello")
        .await;
    assert_ne!(turns(&harness, 6).await[5].1, sessions[0]);
}

#[tokio::test]
async fn a_tool_turn_goes_on_with_its_session() {
    let mut harness = Harness::start().await;
    harness.chat("", &conversation(&["list files"]), "").await;
    // OpenClaw rewrites the ids of tool calls, and adds its own message at the end.
    let body = r#"{"messages":[{"role":"user","content":"list files"},{"role":"assistant","content":null,"tool_calls":[{"id":"callmock1","type":"function","function":{"name":"exec","arguments":"{}"}}]},{"role":"tool","content":"a.txt","tool_call_id":"callmock1"},{"role":"user","content":[{"type":"text","text":"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"}]}]}"#;
    harness.chat("", body, "a.txt").await;
    let turns = turns(&harness, 2).await;
    assert_eq!(turns[0].1, turns[1].1);
}

#[tokio::test]
async fn names_count_in_their_order() {
    let mut harness = Harness::start().await;
    let id = "0b3c9a52-0000-4000-8000-000000000001";
    let runtime = format!("hi\\n\\nRuntime: agent=main | session=x | sessionId={id} | host=h");
    let body = conversation(&[&runtime]);
    let key = "0b3c9a52-0000-4000-8000-000000000002";
    let keyed = format!(r#""prompt_cache_key":"{key}:0""#);
    let keyed = body.replace(r#""model":"m""#, &keyed);
    harness.chat("", &body, "x").await;
    harness
        .chat(&format!("x-session-affinity: {id}:0\r\n"), &body, "x")
        .await;
    harness.chat("session_id: other\r\n", &body, "x").await;
    harness.chat("", &keyed, "x").await;
    harness
        .chat(
            "x-session-id: mine\r\nx-agent-id: me\r\nsession_id: other\r\n",
            &keyed,
            "x",
        )
        .await;
    let named: Vec<_> = turns(&harness, 5)
        .await
        .into_iter()
        .map(|turn| (turn.0, turn.1))
        .collect();
    let expected = [
        ("main", id),
        ("main", id),
        ("main", "other"),
        ("main", key),
        ("me", "mine"),
    ];
    let named: Vec<_> = named
        .iter()
        .map(|(a, s)| (a.as_str(), s.as_str()))
        .collect();
    assert_eq!(named, expected);
}

#[tokio::test]
async fn a_cache_key_that_is_one_for_everything_makes_no_session_of_it() {
    let mut harness = Harness::start().await;
    for texts in [
        &["hi"][..],
        &["something else"],
        &["hi", "hello", "and now?"],
    ] {
        let keyed = r#""prompt_cache_key":"my-app:1""#;
        let body = conversation(texts).replace(r#""model":"m""#, keyed);
        harness.chat("", &body, "hello").await;
    }
    let turns = turns(&harness, 3).await;
    assert_ne!(turns[1].1, turns[0].1);
    assert_eq!(turns[2].1, turns[0].1, "it goes on");
}

#[tokio::test]
async fn errands_are_side_turns_and_take_no_lessons() {
    let set_up = SetUp {
        lessons: vec![("_default/WISHES.md", "- Be brief.\n")],
        ..SetUp::default()
    };
    let mut harness = Harness::with(set_up).await;
    let heartbeat = conversation(&["Read HEARTBEAT.md if it exists."]);
    let exchange = harness.chat("x-session-id: s\r\n", &heartbeat, "ok").await;
    assert_eq!(exchange.body(), heartbeat);
    harness
        .chat("x-turn-type: memory\r\n", &conversation(&["hi"]), "ok")
        .await;
    harness
        .chat("x-turn-type: Main\r\n", &heartbeat, "ok")
        .await;
    // If it continues a conversation, it does not get that one's lessons either.
    let first = harness
        .chat("x-session-id: s\r\n", &conversation(&["hi"]), "hello")
        .await;
    let next = conversation(&["hi", "hello", "Read HEARTBEAT.md if it exists."]);
    let next = harness.chat("x-session-id: s\r\n", &next, "ok").await;
    assert!(first.body().contains("Be brief."));
    assert!(!next.body().contains("Be brief."));
    let kinds: Vec<_> = turns(&harness, 5)
        .await
        .into_iter()
        .map(|turn| turn.2)
        .collect();
    use TurnKind::{Main, Side};
    assert_eq!(kinds, [Side, Side, Main, Main, Side]);
}

#[tokio::test]
async fn the_originals_rule_holds_where_it_is_asked_for() {
    let mut set_up = SetUp::default();
    set_up.config.compat.session_implies_side = true;
    let mut harness = Harness::with(set_up).await;
    harness
        .chat("x-session-id: s\r\n", &conversation(&["hi"]), "x")
        .await;
    harness
        .chat(
            "x-session-id: s\r\nx-turn-type: main\r\n",
            &conversation(&["hi"]),
            "x",
        )
        .await;
    harness.chat("", &conversation(&["hi"]), "x").await;
    let kinds: Vec<_> = turns(&harness, 3)
        .await
        .into_iter()
        .map(|turn| turn.2)
        .collect();
    assert_eq!(kinds, [TurnKind::Side, TurnKind::Main, TurnKind::Main]);
}

#[tokio::test]
async fn a_pattern_of_the_settings_makes_a_side_turn() {
    let mut set_up = SetUp::default();
    set_up.config.compat.side_patterns = vec!["^Digest of today".to_owned()];
    let mut harness = Harness::with(set_up).await;
    for text in ["Digest of today:", "hi", "Read HEARTBEAT.md if it exists."] {
        harness.chat("", &conversation(&[text]), "x").await;
    }
    let kinds: Vec<_> = turns(&harness, 3)
        .await
        .into_iter()
        .map(|turn| turn.2)
        .collect();
    assert_eq!(kinds, [TurnKind::Side, TurnKind::Main, TurnKind::Side]);
}

#[tokio::test]
async fn what_one_key_says_of_a_session_is_not_believed_of_anothers() {
    let mut set_up = SetUp::default();
    set_up.config.proxy = serde_json::from_str(
        r#"{"api_key":"owner","keys":{"guest":{"key":"guest","agents":["guest"]}}}"#,
    )
    .unwrap();
    let mut harness = Harness::with(set_up).await;
    let by = |key: &str| format!("authorization: Bearer {key}\r\nx-session-id: shared\r\n");
    let claims = conversation(&["hi\\n\\nRuntime: agent=guest | host=h"]);
    harness.chat(&by("guest"), &claims, "x").await;
    harness
        .chat(&by("owner"), &conversation(&["hi"]), "x")
        .await;
    let agents: Vec<_> = turns(&harness, 2)
        .await
        .into_iter()
        .map(|it| it.0)
        .collect();
    assert_eq!(agents[0], "guest");
    assert_ne!(agents[1], "guest", "the owner's turn became the guest's");
}
