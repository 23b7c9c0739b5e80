//! Tests of Anthropic's messages and OpenAI's Responses: a turn takes the same way as a chat completion.

use metaclaw_chat::{Message, Role};
use metaclaw_test_kit::has;

use super::{
    compressed::gzip,
    harness::{Harness, json_reply, post},
};

const WISH: (&str, &str) = ("main/WISHES.md", "- Be brief.\n");

/// The beginning of OpenClaw's request in its Anthropic mode. Its own line is in the last block.
const OPENCLAW: &str = r#"{"model":"m","max_tokens":9,"stop_sequences":["END"],"system":[{"type":"text","text":"You are OpenClaw.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Runtime info\n\nRuntime: agent=main | session=agent:main:x | sessionId=0b3c9a52-0000-4000-8000-000000000001 | host=h"}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#;

const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":2}}"#;

#[tokio::test]
async fn a_turn_in_anthropics_messages_is_taught_and_kept_in_chat_shape() {
    let mut harness = Harness::taught(&[WISH]).await;
    let request = post("/v1/messages", "", OPENCLAW);
    let (exchange, seen) = harness.exchange(&request, &json_reply(MESSAGE)).await;
    let sent = exchange.body();
    let (system, rest) = sent.split_once(r#""messages":"#).unwrap();
    let (begins, _) = OPENCLAW.split_once("}],\"messages").unwrap();
    assert!(system.starts_with(begins), "{sent}");
    has(system, ["Be brief."]);
    let user = r#"[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#;
    assert_eq!(rest, user);
    assert_eq!(seen.text(), MESSAGE);
    let turn = &harness.log.wait(1).await[0];
    let names = (turn.agent.as_str(), turn.session.as_str());
    assert_eq!(names, ("main", "0b3c9a52-0000-4000-8000-000000000001"));
    let roles: Vec<Role> = turn.request.messages.iter().map(Message::role).collect();
    assert_eq!(roles, [Role::System, Role::User]);
    assert!(!turn.request.messages[0].text().contains("Be brief."));
    assert_eq!(turn.reply.as_ref().unwrap().text(), "hello");
    assert_eq!(turn.served.api.as_deref(), Some("/v1/messages"));
    assert_eq!(turn.request.params["max_tokens"], 9);
    assert_eq!(turn.request.params["stop"][0], "END");
}

#[tokio::test]
async fn what_stands_beside_the_messages_passes_unread() {
    let mut harness = Harness::taught(&[WISH]).await;
    let request = post("/v1/messages/count_tokens", "", OPENCLAW);
    let (exchange, _) = harness.exchange(&request, &json_reply("{}")).await;
    assert_eq!(exchange.body(), OPENCLAW);
    assert!(harness.log.turns().is_empty());
}

const RESPONSE: &str = r#"{"id":"resp_1","object":"response","status":"completed","model":"m","output":[{"type":"reasoning","id":"r","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hello"}]}]}"#;

#[tokio::test]
async fn a_response_that_goes_on_from_another_is_the_next_turn_of_its_session() {
    let mut harness = Harness::start().await;
    let mut ask = async |body: &str, reply: &str| {
        let request = post("/v1/responses", "", body);
        harness.exchange(&request, &json_reply(reply)).await;
    };
    ask(r#"{"model":"m","input":"hi"}"#, RESPONSE).await;
    let next = RESPONSE.replace("resp_1", "resp_2");
    // The request comes at once, so the log may not have the first turn yet.
    let request = r#"{"model":"m","previous_response_id":"resp_1","input":"on"}"#;
    ask(request, &next).await;
    let whole = r#"{"model":"m","input":[{"role":"user","content":"hi"},{"type":"reasoning","id":"r","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hello"}]},{"role":"user","content":[{"type":"input_text","text":"on"}]}]}"#;
    ask(whole, &next).await;
    let request = r#"{"model":"m","previous_response_id":"unknown","input":"on"}"#;
    ask(request, &next).await;
    let turns = harness.log.wait(4).await;
    assert_eq!(turns[0].reply.as_ref().unwrap().text(), "hello");
    assert_eq!(turns[1].session, turns[0].session);
    // A client that repeats the whole history and one that names the previous reply continue the same conversation.
    assert_eq!(turns[2].session, turns[1].session);
    assert_eq!(turns[2].meta.chain, turns[1].meta.chain);
    assert_ne!(turns[3].session, turns[0].session);
}

#[tokio::test]
async fn a_compressed_response_is_gone_on_from_as_well() {
    let mut harness = Harness::start().await;
    let zipped = gzip(RESPONSE.as_bytes());
    let length = zipped.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    let reply = [head.as_bytes(), &zipped].concat();
    for body in [
        r#"{"model":"m","input":"hi"}"#,
        r#"{"model":"m","previous_response_id":"resp_1","input":"on"}"#,
    ] {
        let request = post("/v1/responses", "", body);
        let (_, seen) = harness.exchange(&request, &reply).await;
        assert_eq!(seen.body, zipped);
    }
    let turns = harness.log.wait(2).await;
    assert_eq!(turns[1].session, turns[0].session);
    assert_eq!(turns[1].reply.as_ref().unwrap().text(), "hello");
}
