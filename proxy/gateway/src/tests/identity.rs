//! Tests of identity: agent, session and kind of turns.

use metaclaw_turns::TurnKind::{Main, Side};

use super::harness::{BRIEF, Harness, SetUp, conversation};

/// A key of the owner, and one of an agent.
pub(super) const KEYS: &str =
    r#"{"api_key":"owner","keys":{"guest":{"key":"guest","agents":["guest"]}}}"#;

async fn sessions(harness: &Harness, n_turns: usize) -> Vec<String> {
    harness
        .turns(n_turns, |turn| turn.session.to_string())
        .await
}

#[tokio::test]
async fn a_conversation_is_one_session_without_a_word_about_it() {
    let mut harness = Harness::start().await;
    for texts in [
        &["hi"][..],
        &["hi", "hello", "and now?"],
        &["something else"],
        // These are a retry, and the turn after it. The client has rewritten the assistant's message.
        &["hi", "hello", "and now?"],
        &["hi", "Hello!", "and  now?", "…", "bye"],
    ] {
        harness.talk("", texts).await;
    }
    // Another agent with the same text has another conversation.
    harness.talk("x-agent-id: other\r\n", &["hi"]).await;
    let sessions = sessions(&harness, 6).await;
    let is_first = sessions.iter().map(|session| *session == sessions[0]);
    let expected = [true, true, false, true, true, false];
    assert_eq!(is_first.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_tool_turn_goes_on_with_its_session() {
    let mut harness = Harness::start().await;
    harness.talk("", &["list files"]).await;
    // OpenClaw rewrites the ids of tool calls, and adds its own message at the end.
    let body = r#"{"messages":[{"role":"user","content":"list files"},{"role":"assistant","content":null,"tool_calls":[{"id":"callmock1","type":"function","function":{"name":"exec","arguments":"{}"}}]},{"role":"tool","content":"a.txt","tool_call_id":"callmock1"},{"role":"user","content":[{"type":"text","text":"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"}]}]}"#;
    harness.chat("", body, "a.txt").await;
    let sessions = sessions(&harness, 2).await;
    assert_eq!(sessions[0], sessions[1]);
}

#[tokio::test]
async fn names_count_in_their_order() {
    let mut harness = Harness::start().await;
    let id = "0b3c9a52-0000-4000-8000-000000000001";
    let runtime = format!("hi\\n\\nRuntime: agent=main | session=x | sessionId={id} | host=h");
    let body = conversation(&[&runtime]);
    let key = "0b3c9a52-0000-4000-8000-000000000002";
    let keyed = body.replace(
        r#""model":"m""#,
        &format!(r#""prompt_cache_key":"{key}:0""#),
    );
    let affinity = format!("x-session-affinity: {id}:0\r\n");
    let ours = "x-session-id: mine\r\nx-agent-id: me\r\nsession_id: other\r\n";
    let cases = [
        ("", &body, ("main", id)),
        (&affinity, &body, ("main", id)),
        ("session_id: other\r\n", &body, ("main", "other")),
        ("", &keyed, ("main", key)),
        (ours, &keyed, ("me", "mine")),
    ];
    for (headers, body, _) in cases {
        harness.chat(headers, body, "x").await;
    }
    for (turn, (headers, _, named)) in harness.log.wait(5).await.iter().zip(cases) {
        let given = (turn.agent.as_str(), turn.session.as_str());
        assert_eq!(given, named, "{headers}");
    }
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
    let sessions = sessions(&harness, 3).await;
    assert_ne!(sessions[1], sessions[0]);
    assert_eq!(sessions[2], sessions[0], "it goes on");
}

#[tokio::test]
async fn errands_are_side_turns_and_take_no_lessons() {
    const HEARTBEAT: &str = "Read HEARTBEAT.md if it exists.";
    let mut harness = Harness::taught(&[BRIEF]).await;
    let s = "x-session-id: s\r\n";
    let bodies = [
        harness.talk(s, &[HEARTBEAT]).await,
        harness.talk("x-turn-type: memory\r\n", &["hi"]).await,
        harness.talk("x-turn-type: Main\r\n", &[HEARTBEAT]).await,
        // If it continues a conversation, it does not get that one's lessons either.
        harness.talk(s, &["hi"]).await,
        harness.talk(s, &["hi", "hello", HEARTBEAT]).await,
    ];
    assert_eq!(bodies[0].body(), conversation(&[HEARTBEAT]));
    let kinds = harness.turns(5, |turn| turn.meta.kind).await;
    assert_eq!(kinds, [Side, Side, Main, Main, Side]);
    for (exchange, kind) in bodies.iter().zip(kinds) {
        assert_eq!(exchange.body().contains("Be brief."), kind == Main);
    }
}

#[tokio::test]
async fn the_originals_rule_holds_where_it_is_asked_for() {
    let mut set_up = SetUp::default();
    set_up.config.compat.session_implies_side = true;
    let mut harness = Harness::with(set_up).await;
    let says_main = "x-session-id: s\r\nx-turn-type: main\r\n";
    for headers in ["x-session-id: s\r\n", says_main, ""] {
        harness.talk(headers, &["hi"]).await;
    }
    let kinds = harness.turns(3, |turn| turn.meta.kind).await;
    assert_eq!(kinds, [Side, Main, Main]);
}

#[tokio::test]
async fn a_pattern_of_the_settings_makes_a_side_turn() {
    let mut set_up = SetUp::default();
    set_up.config.compat.side_patterns = vec!["^Digest of today".to_owned()];
    let mut harness = Harness::with(set_up).await;
    for text in ["Digest of today:", "hi", "Read HEARTBEAT.md if it exists."] {
        harness.talk("", &[text]).await;
    }
    let kinds = harness.turns(3, |turn| turn.meta.kind).await;
    assert_eq!(kinds, [Side, Main, Side]);
}

#[tokio::test]
async fn what_one_key_says_of_a_session_is_not_believed_of_anothers() {
    let mut set_up = SetUp::default();
    set_up.config.proxy = serde_json::from_str(KEYS).unwrap();
    let mut harness = Harness::with(set_up).await;
    let by = |key: &str| format!("authorization: Bearer {key}\r\nx-session-id: shared\r\n");
    let claims = "hi\\n\\nRuntime: agent=guest | host=h";
    harness.talk(&by("guest"), &[claims]).await;
    harness.talk(&by("owner"), &["hi"]).await;
    let agents = harness.turns(2, |turn| turn.agent.to_string()).await;
    assert_eq!(agents[0], "guest");
    assert_ne!(agents[1], "guest", "the owner's turn became the guest's");
}
