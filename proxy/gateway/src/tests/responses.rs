//! Tests of clients that use only Responses, such as Codex, with upstreams that do not have it.

use super::harness::{
    Client, Exchange, Harness, STREAM, SetUp, Upstream, chunk, completion, delta, json_reply, post,
};
use crate::{Api, Endpoint, Provider, UpstreamConfig};

const NO_ROUTE: &str = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 22\r\n\r\n{\"detail\":\"Not Found\"}";

async fn before(llm: UpstreamConfig) -> Harness {
    let mut set_up = SetUp::default();
    set_up.config.upstreams.insert("llm".into(), llm);
    Harness::with(set_up).await
}

fn speaks(apis: &[Api]) -> UpstreamConfig {
    UpstreamConfig {
        speaks: Some(apis.to_vec()),
        ..UpstreamConfig::default()
    }
}

async fn ask(harness: &Harness, body: &str) -> Client {
    harness.sent(&post("/v1/responses", "", body)).await
}

/// Sends a request, lets the upstream answer with this completion, and returns what the upstream and the client got.
async fn exchange(
    harness: &mut Harness,
    body: &str,
    completion: &str,
) -> (serde_json::Value, serde_json::Value) {
    let mut client = ask(harness, body).await;
    let mut exchange = harness.upstream.next().await;
    assert_eq!(path(&exchange), "/v1/chat/completions");
    exchange.answer(completion).await;
    (value(exchange.body()), value(client.read().await.text()))
}

fn path(exchange: &Exchange) -> &str {
    exchange.head.split(' ').nth(1).unwrap()
}

fn value(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn an_upstream_without_responses_is_asked_in_chat_completions_from_then_on() {
    let mut harness = before(UpstreamConfig::default()).await;
    let mut client = ask(&harness, r#"{"model":"m","input":"hi"}"#).await;
    let mut first = harness.upstream.next().await;
    assert_eq!(path(&first), "/v1/responses");
    first.send(NO_ROUTE.as_bytes()).await;
    let mut second = harness.upstream.next().await;
    assert_eq!(path(&second), "/v1/chat/completions");
    let paris = json_reply(&completion("Paris"));
    second.send(paris.as_bytes()).await;
    let answer = value(client.read().await.text());
    assert_eq!(answer["output"][0]["content"][0]["text"], "Paris");
    let (asked, _) = exchange(
        &mut harness,
        r#"{"model":"m","input":"And now?"}"#,
        &completion("x"),
    )
    .await;
    assert_eq!(asked["messages"][0]["content"], "And now?");
    // A route that is missing for one API says nothing about another API.
    let messages = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
    let _client = harness.sent(&post("/v1/messages", "", messages)).await;
    assert_eq!(path(&harness.upstream.next().await), "/v1/messages");
}

#[tokio::test]
async fn a_stream_comes_as_events_of_responses_and_the_log_has_what_the_upstream_said() {
    let mut harness = before(speaks(&[Api::Chat])).await;
    let body = r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"The capital of France?"}]}],"stream":true}"#;
    let mut client = ask(&harness, body).await;
    let mut exchange = harness.upstream.next().await;
    exchange.send(STREAM.as_bytes()).await;
    for text in ["Par", "is"] {
        exchange.send(chunk(&delta(text)).as_bytes()).await;
    }
    let end = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    exchange.send(chunk(end).as_bytes()).await;
    exchange.send(b"0\r\n\r\n").await;
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
    let mut harness = before(speaks(&[Api::Chat])).await;
    let first = r#"{"model":"m","instructions":"Be kind.","input":"The capital of France?"}"#;
    let (_, reply) = exchange(&mut harness, first, &completion("Paris")).await;
    let id = reply["id"].as_str().unwrap();
    let second = format!(
        r#"{{"model":"m","instructions":"Be brief.","previous_response_id":"{id}","input":"And of Italy?"}}"#
    );
    let (asked, reply) = exchange(&mut harness, &second, &completion("Rome")).await;
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
    let mut harness = before(speaks(&[Api::Responses])).await;
    let other = r#"{"model":"m","previous_response_id":"resp_1","input":"hi"}"#;
    let mut client = ask(&harness, other).await;
    let mut exchange = harness.upstream.next().await;
    assert_eq!(exchange.body(), other, "its own reply it knows");
    exchange.answer("{}").await;
    client.read().await;
    let ours = r#"{"model":"m","previous_response_id":"resp_mc_chatcmpl-9","input":"hi"}"#;
    let seen = harness.refused(&post("/v1/responses", "", ours)).await;
    assert_eq!(seen.status(), 400);
}

#[tokio::test]
async fn a_reply_that_nobody_has_cannot_be_gone_on_from() {
    let mut harness = before(speaks(&[Api::Chat])).await;
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
    let llm = UpstreamConfig {
        dialect: Provider::Anthropic,
        ..UpstreamConfig::default()
    };
    let mut harness = before(llm).await;
    let mut client = ask(&harness, r#"{"model":"claude","input":"hi","stream":true}"#).await;
    let mut exchange = harness.upstream.next().await;
    assert_eq!(path(&exchange), "/v1/messages");
    // The reply is not streamed, although a stream was requested.
    let said = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Paris"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":2}}"#;
    exchange.answer(said).await;
    let seen = client.read().await;
    let read = Api::Responses.read_sse(&seen.body);
    assert_eq!(read.message.unwrap().text(), "Paris");
    assert_eq!(read.usage.unwrap().prompt_tokens, 9);
    let mut client = ask(&harness, r#"{"model":"claude","input":"hi"}"#).await;
    let mut exchange = harness.upstream.next().await;
    let error = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#;
    let refused = json_reply(error).replace("200 OK", "400 Bad Request");
    exchange.send(refused.as_bytes()).await;
    let seen = client.read().await;
    assert_eq!(seen.status(), 400);
    assert_eq!(
        value(seen.text())["error"]["code"],
        "context_length_exceeded"
    );
}

#[tokio::test]
async fn the_policy_model_answers_as_well() {
    let set_up = SetUp {
        no_llm: true,
        lessons: vec![("_default/WISHES.md", "- Be brief.\n")],
        ..SetUp::default()
    };
    let harness = Harness::with(set_up).await;
    let mut policy = Upstream::start(&harness.tasks).await;
    let url = format!("http://{}", policy.address);
    let endpoint = Endpoint::new(&url, None, "base").unwrap();
    harness
        .serving
        .set_policy(Some(endpoint.with_system_append()));
    let body = r#"{"model":"gpt-5","input":"List the files.","store":false,"include":["reasoning.encrypted_content"],"tools":[{"type":"function","name":"exec","parameters":{"type":"object","properties":{}}}]}"#;
    let mut client = ask(&harness, body).await;
    let mut exchange = policy.next().await;
    assert_eq!(path(&exchange), "/v1/chat/completions");
    let asked = value(exchange.body());
    assert_eq!(asked["model"], "base");
    let append = asked["metaclaw_system_append"].as_str().unwrap();
    assert!(append.contains("Be brief."), "{append}");
    let call = r#"<think>ls it is</think><tool_call>\n{\"name\": \"exec\", \"arguments\": {}}\n</tool_call>"#;
    exchange.say(call).await;
    let answer = value(client.read().await.text());
    let kinds = answer["output"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|it| &it["type"]).collect();
    assert_eq!(kinds, ["reasoning", "function_call"]);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.served.upstream, "policy");
}
