//! Tests of clients that use only Responses, such as Codex, with upstreams that do not have it.

use metaclaw_test_kit::has;
use serde_json::Value;

use super::harness::{
    BRIEF, CHATS, Client, Harness, MESSAGES, NO_ROUTE, STREAM, SetUp, chunk, delta, json_reply,
    post, reply, says,
};
use crate::{Api, Endpoint, Provider, UpstreamConfig};

async fn before(api: Api) -> Harness {
    Harness::before(UpstreamConfig {
        speaks: Some(vec![api]),
        ..UpstreamConfig::default()
    })
    .await
}

async fn ask(harness: &Harness, body: &str) -> Client {
    harness.sent(&post("/v1/responses", "", body)).await
}

/// Sends a request, lets the upstream answer with this text, and returns what the upstream and the client got.
async fn exchange(harness: &mut Harness, body: &str, text: &str) -> (Value, Value) {
    let request = post("/v1/responses", "", body);
    let (exchange, seen) = harness.exchange(&request, &says(text)).await;
    assert_eq!(exchange.path(), CHATS);
    (exchange.json(), seen.json())
}

#[tokio::test]
async fn an_upstream_without_responses_is_asked_in_chat_completions_from_then_on() {
    let mut harness = Harness::start().await;
    let mut client = ask(&harness, r#"{"model":"m","input":"hi"}"#).await;
    let first = harness.upstream.answer(NO_ROUTE).await;
    assert_eq!(first.path(), "/v1/responses");
    let second = harness.upstream.answer(&says("Paris")).await;
    assert_eq!(second.path(), CHATS);
    let answer = client.read().await.json();
    assert_eq!(answer["output"][0]["content"][0]["text"], "Paris");
    let next = r#"{"model":"m","input":"And now?"}"#;
    let (asked, _) = exchange(&mut harness, next, "x").await;
    assert_eq!(asked["messages"][0]["content"], "And now?");
    // A route that is missing for one API says nothing about another API.
    let (_client, other) = harness.ask(&post("/v1/messages", "", MESSAGES)).await;
    assert_eq!(other.path(), "/v1/messages");
}

#[tokio::test]
async fn a_stream_comes_as_events_of_responses_and_the_log_has_what_the_upstream_said() {
    let mut harness = before(Api::Chat).await;
    let body = r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"The capital of France?"}]}],"stream":true}"#;
    let mut client = ask(&harness, body).await;
    let mut exchange = harness.upstream.next().await;
    exchange.send(STREAM).await;
    for text in ["Par", "is"] {
        exchange.send(&chunk(&delta(text))).await;
    }
    let end = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    exchange.end(end).await;
    let seen = client.read().await;
    let read = Api::Responses.read_sse(&seen.body);
    assert_eq!(read.message.unwrap().text(), "Paris");
    assert!(read.ended && seen.is_whole, "{}", seen.text());
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.reply.as_ref().unwrap().text(), "Paris");
    assert_eq!(turn.request.messages[0].text(), "The capital of France?");
    assert_eq!(turn.served.api.as_deref(), Some("/v1/responses"));
    assert_eq!(turn.meta.finish_reason.as_deref(), Some("stop"));
}

#[tokio::test]
async fn a_request_that_goes_on_from_a_reply_gets_what_was_said_before_from_the_log() {
    let mut harness = before(Api::Chat).await;
    let first = r#"{"model":"m","instructions":"Be kind.","input":"The capital of France?"}"#;
    let (_, reply) = exchange(&mut harness, first, "Paris").await;
    let id = reply["id"].as_str().unwrap();
    let second = format!(
        r#"{{"model":"m","instructions":"Be brief.","previous_response_id":"{id}","input":"And of Italy?"}}"#
    );
    let (asked, reply) = exchange(&mut harness, &second, "Rome").await;
    assert_eq!(
        asked["messages"],
        serde_json::json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "The capital of France?"},
            {"role": "assistant", "content": "Paris"},
            {"role": "user", "content": "And of Italy?"},
        ])
    );
    assert_eq!(reply["previous_response_id"], id);
    let turns = harness.log.wait(2).await;
    assert_eq!(turns[0].session, turns[1].session);
}

#[tokio::test]
async fn a_reply_of_ours_is_unknown_to_a_provider_of_responses_and_gone_on_from_all_the_same() {
    let mut harness = before(Api::Responses).await;
    let other = r#"{"model":"m","previous_response_id":"resp_1","input":"hi"}"#;
    let request = post("/v1/responses", "", other);
    let (exchange, _) = harness.exchange(&request, &json_reply("{}")).await;
    assert_eq!(exchange.body(), other, "its own reply it knows");
    let ours = r#"{"model":"m","previous_response_id":"resp_mc_chatcmpl-9","input":"hi"}"#;
    let seen = harness.refused(&post("/v1/responses", "", ours)).await;
    assert_eq!(seen.status(), 400);
}

#[tokio::test]
async fn a_reply_that_nobody_has_cannot_be_gone_on_from() {
    let mut harness = before(Api::Chat).await;
    let body = r#"{"model":"m","previous_response_id":"resp_1","input":"hi"}"#;
    let seen = harness.refused(&post("/v1/responses", "", body)).await;
    assert_eq!(seen.status(), 400);
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"previous response with id \"resp_1\" not found: upstream llm keeps none, and the log has none of this agent's by that id; send the conversation itself as input","type":"invalid_request_error","param":"previous_response_id","code":"previous_response_not_found"}}"#);
    let long = body.replace("resp_1", &"x".repeat(1 << 20));
    let seen = harness.refused(&post("/v1/responses", "", &long)).await;
    assert_eq!(seen.status(), 400);
    assert!(seen.text().len() < 600, "{}", seen.text());
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn anthropic_is_asked_in_its_own_words() {
    let mut harness = Harness::before(UpstreamConfig {
        dialect: Provider::Anthropic,
        ..UpstreamConfig::default()
    })
    .await;
    // The reply is not streamed, although a stream was requested.
    let streamed = post(
        "/v1/responses",
        "",
        r#"{"model":"claude","input":"hi","stream":true}"#,
    );
    let said = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Paris"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":2}}"#;
    let (exchange, seen) = harness.exchange(&streamed, &json_reply(said)).await;
    assert_eq!(exchange.path(), "/v1/messages");
    let read = Api::Responses.read_sse(&seen.body);
    assert_eq!(read.message.unwrap().text(), "Paris");
    assert_eq!(read.usage.unwrap().prompt_tokens, 9);
    let error = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#;
    let refused = reply("400 Bad Request", "", error);
    let (_, seen) = harness.exchange(&streamed, &refused).await;
    assert_eq!(seen.status(), 400);
    let code = &seen.json()["error"]["code"];
    assert_eq!(code, "context_length_exceeded");
}

#[tokio::test]
async fn the_policy_model_answers_as_well() {
    let harness = Harness::with(SetUp {
        lessons: vec![BRIEF],
        ..SetUp::without_llm()
    })
    .await;
    let mut policy = harness.policy(Endpoint::with_system_append).await;
    let body = r#"{"model":"gpt-5","input":"List the files.","store":false,"include":["reasoning.encrypted_content"],"tools":[{"type":"function","name":"exec","parameters":{"type":"object","properties":{}}}]}"#;
    let mut client = ask(&harness, body).await;
    let call = r#"<think>ls it is</think><tool_call>\n{\"name\": \"exec\", \"arguments\": {}}\n</tool_call>"#;
    let exchange = policy.answer(&says(call)).await;
    assert_eq!(exchange.path(), CHATS);
    let asked = exchange.json();
    assert_eq!(asked["model"], "base");
    has(
        asked["metaclaw_system_append"].as_str().unwrap(),
        ["Be brief."],
    );
    let answer = client.read().await.json();
    let items = answer["output"].as_array().unwrap().iter();
    let kinds: Vec<_> = items.map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["reasoning", "function_call"]);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.served.upstream, "policy");
}
